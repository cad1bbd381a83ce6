"""The template's parts: own files to experiment.yaml, the same run headless, systems compared in
pairs.
"""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest

import ragbench as rb
from ragbench.cli import main
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import Experiment, load_manifest
from ragbench.notebooks import HELP, create_project, execute
from ragbench.paths import packaged_data
from ragbench.rows import run_folder


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    monkeypatch.setenv("RAGBENCH_RESULTS", str(folder))
    return folder


@pytest.mark.slow
def test_the_notebook_of_a_new_folder_runs_as_it_is(tmp_path, results, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    folder = create_project(tmp_path / "mine")
    execute(folder / "91_your_experiment.ipynb", out=tmp_path / "done.ipynb")
    assert load_manifest(folder / "results" / "first-look")["axes"]["data"].keys() == {"mine"}


def test_init_makes_a_folder_whose_files_run_and_are_answerable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my thesis"]) == 0
    assert (
        "ragbench run 'my thesis/experiment.yaml'; ragbench lab 'my thesis'"
        in capsys.readouterr().out
    )
    folder = tmp_path / "my thesis"
    assert len((folder / "README.md").read_text().splitlines()) <= 10
    assert main(["validate", "my thesis/questions.csv", "my thesis/docs"]) == 0
    assert main(["run", "my thesis/experiment.yaml"]) == 0
    rows = pd.read_json(folder / "results" / "first-look" / "rows.jsonl", lines=True)
    assert set(rows["status"]) == {"ok"}
    assert (
        0
        < rows.loc[rows["N"] == 60, "ir_score"].mean()
        < rows.loc[rows["N"] == 200, "ir_score"].mean()
    )


def test_init_copies_templates_without_results_and_set_to_the_files_beside_them(tmp_path):
    folder = create_project(tmp_path / "mine")
    path, *others = sorted(folder.glob("*.ipynb"))
    assert [other.name for other in others] == ["92_workbench.ipynb", "93_score_your_answers.ipynb"]
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert not any(cell.outputs for cell in book.cells if cell.cell_type == "code")
    parameters = next(
        cell.source for cell in book.cells if "parameters" in cell.metadata.get("tags", [])
    )
    values = {}
    exec(parameters, values)
    assert (folder / values["EXPERIMENT"]).is_file()
    pages = {page.name for page in (folder / "help").iterdir()}
    assert pages >= {"data.md", "experiment.md", "models.md", "ollama.md", "study.md", "writing.md"}
    # runs lie in results/ here
    assert not any("data/results" in cell.source for cell in book.cells)


@pytest.mark.parametrize("there", ["mine", "begun", "not there/mine"])
def test_init_writes_over_nothing(tmp_path, there):
    (tmp_path / "begun").mkdir()
    for name in ("mine", "begun/thesis.tex"):
        (tmp_path / name).write_text("mine")
    target = tmp_path / there
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=target.name):
        create_project(target)
    assert sorted(tmp_path.rglob("*")) == before


def test_lab_opens_a_folder_that_init_made_and_keeps_results_in_it(tmp_path, became, monkeypatch):
    folder = create_project(tmp_path / "mine")
    monkeypatch.setenv("RAGBENCH_RESULTS", "set back when the test ends")
    monkeypatch.delenv("RAGBENCH_RESULTS")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["lab", "mine", "--no-browser"])
    (command,) = became
    assert command[command.index("--notebook-dir") + 1] == str(folder)
    assert str(folder / "91_your_experiment.ipynb") in command
    assert os.environ["RAGBENCH_RESULTS"] == str(folder / "results")
    assert main(["lab", "nothing"]) == 2


def test_a_run_in_a_folder_of_ones_own_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "first-look").mkdir(parents=True)
    (tmp_path / "results" / "first-look" / "rows.jsonl").write_text("")
    assert run_folder("first-look") == Path("results/first-look")
    named = Experiment("llama3:8b", data="minihop", chunker="token_chunks", retriever="BM25", N=100)
    assert named.home.name.startswith("llama3-8b-")  # Windows has no folder with a colon
    (named.home / "rows.jsonl").write_text("")
    assert run_folder("llama3:8b") == named.home
    with pytest.raises(DataError, match="no run 'second-look'"):
        run_folder("second-look")


def test_no_link_or_picture_of_a_created_folder_is_dead(tmp_path):
    folder = create_project(tmp_path / "mine")
    texts = {page: page.read_text(encoding="utf-8") for page in folder.rglob("*.md")}
    for path in folder.glob("*.ipynb"):
        texts[path] = "\n\n".join(
            c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown"
        )
    links = [
        (page, *link.split("#", 1))
        for page in texts
        for link in re.findall(r"\]\(([^)\s]+)\)", texts[page])
    ]
    within = [
        (page, page.parent / link if link else page, *anchor)
        for page, link, *anchor in links
        if ":" not in link
    ]
    assert {"ollama.md", "experiment.md", "study.md"} <= {linked.name for _, linked, *_ in within}
    for page, linked, *anchor in within:
        assert linked.exists(), (page.name, linked)
        assert set(anchor) <= set(
            {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in headings(linked)}
            if anchor
            else ()
        ), (page.name, linked)
    assert {page.name for page in (folder / "help").iterdir()} == set(HELP)
    # what is not there becomes its words
    assert "reliability.md)" in packaged_data("docs", "models.md").read_text(encoding="utf-8")
    assert "reliability.md)" not in texts[folder / "help" / "models.md"]


def headings(page):
    return re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)


def test_two_runs_are_compared_system_by_system_question_by_question():
    book = nbformat.read(packaged_data("notebooks", "91_your_experiment.ipynb"), 4)
    (source,) = (cell.source for cell in book.cells if "if OTHER is not None:" in cell.source)
    now = pd.DataFrame({"question_id": [*"abcdef"] * 2, "system": ["x"] * 6 + ["y"] * 6, "N": 10})
    now["ir_score"] = [0.5, 0.4, 0.6, 0.5, 0.7, 0.3] + [0.2] * 6
    earlier = now.assign(ir_score=now["ir_score"] - [*[0.1] * 6, *[0.0] * 6])
    earlier = pd.concat([earlier, earlier.assign(N=0, ir_score=0.0)])  # without documents: left out
    shown = []
    runs = SimpleNamespace(load_rows={"before": earlier}.get, compare=rb.compare)
    names = {"OTHER": "before", "scored": now, "rb": runs, "pd": pd, "measure": "ir_score"}
    exec(
        source,
        names | {"factors": SimpleNamespace(measured=lambda rows: rows), "display": shown.append},
    )
    (table,) = shown
    assert len(table) == 2  # this run and that one, by system
    assert table.set_index("system")["difference"].to_dict() == {"x": 0.1, "y": 0.0}
    assert set(table["n"]) == {6}
