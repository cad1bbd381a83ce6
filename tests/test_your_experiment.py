"""The template's parts: own files to experiment.yaml, the same run headless, systems compared in pairs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from ragbench import your_experiment
from ragbench.cli import main
from ragbench.data import load_minihop, load_questions
from ragbench.datagen import generate_set
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import Experiment, load_manifest
from ragbench.experiment.rows import run_folder
from ragbench.labelling.people import append_labels
from ragbench.notebooks import execute, find


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    monkeypatch.setenv("RAGBENCH_RESULTS", str(folder))
    return folder


def grades_of(questions, systems, by=lambda question, system: "5"):
    """Grades of one person, as the form of the template's section 11 writes them: every question under every system."""
    return [
        {"kind": "grade", "item": f"{question}/{system}", "aspect": "grade", "label": by(i, j), "annotator": "me"}
        for i, question in enumerate(questions)
        for j, system in enumerate(systems)
    ]


@pytest.mark.slow
def test_the_template_takes_a_foreign_folder_to_a_latex_table(tmp_path, results, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    folder = generate_set("finance", "en", 4, 7, tmp_path / "finance")
    own = {"QUESTIONS": str(folder / "questions.jsonl"), "DOCUMENTS": str(folder), "NAME": "finance", "LIMIT": 8}
    (template,) = (path for path in find() if path.stem == "91_your_experiment")
    made = results / "finance"
    made.mkdir(parents=True)
    first = load_questions(folder).questions[0].id
    append_labels(made / "labels.csv", grades_of([first], ("BM25@100", "SIM@100")))
    done = execute(template, {**own, "RETRIEVERS": ["BM25", "SIM"], "N": [100]}, tmp_path / "done.ipynb", timeout_s=300)
    said = done.read_text()
    assert "questions labelled: 1; next, for BM25@100 and SIM@100:" in said
    assert re.search(r"LabellingTool\(grade: \d of \d+ items, labels.csv\)", said)
    table = (made / "tables" / "comparison.tex").read_text()
    for words in (r"\toprule", "BM25@100 & SIM@100 & IR score", "finance"):
        assert words in table
    assert (made / "export" / "all.tex").exists()
    assert (made / "figures" / "91_power.png").exists()
    assert not (tmp_path / "figures").exists()  # the checkout's own pictures stay as they are
    assert main(["run", str(made / "experiment.yaml")]) == 0


@pytest.mark.slow
def test_the_template_takes_a_persons_grades_to_shares_and_a_difference(tmp_path, results, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    grades = tmp_path / "grades.csv"
    questions = [q.id for i, q in enumerate(load_minihop(limit=12).questions) if i % 4]
    append_labels(grades, grades_of(questions, ("BM25@300", "SIM@300"), lambda i, j: "54"[(i + j) % 2]))
    book = nbformat.read(next(path for path in find() if path.stem == "91_your_experiment"), 4)
    for cell in book.cells:
        cell.source = cell.source.replace("LABELLED = None", f"LABELLED = {str(grades)!r}")
    copy = tmp_path / "91_copy.ipynb"
    nbformat.write(book, copy)
    done = execute(copy, {"LIMIT": 12, "RETRIEVERS": ["BM25", "SIM"], "N": [300]}, tmp_path / "91_done.ipynb")
    said = "".join(o.get("text", "") for c in nbformat.read(done, 4).cells for o in c.get("outputs", ()))
    assert "questions labelled: 9; next, for BM25@300 and SIM@300:" in said
    assert re.search(
        r"fully right, BM25@300 - SIM@300, labels within the judge.s strata: -?\d\.\d+ \[.*"
        r"n = 9 in \d clusters, .*, 3 missing",
        said,
    )
    assert any("LabellingTool(grade: 0 of 6 items, grades.csv)" in str(cell) for cell in nbformat.read(done, 4).cells)
    # Half of each system's labels are 5, whatever the judge says of the rest.
    assert len(re.findall(r"grade [123]: ", said)) == 6
    assert "embedded, 3 times: share of pairs of grades that differ 0.000" in said
    assert (results / "your_experiment" / "rows.jsonl").is_file()


@pytest.mark.slow
def test_the_notebook_of_a_new_folder_runs_as_it_is(tmp_path, results, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    folder = your_experiment.create_project(tmp_path / "mine")
    execute(folder / "91_your_experiment.ipynb", out=tmp_path / "done.ipynb")
    assert load_manifest(results / "your_experiment")["axes"]["data"].keys() == {"mine"}


def test_init_makes_a_folder_whose_files_run_and_are_answerable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my thesis"]) == 0
    assert "ragbench run 'my thesis/experiment.yaml'; ragbench lab 'my thesis'" in capsys.readouterr().out
    folder = tmp_path / "my thesis"
    assert len((folder / "README.md").read_text().splitlines()) <= 10
    assert main(["validate", "my thesis/questions.csv", "my thesis/docs"]) == 0
    assert main(["run", "my thesis/experiment.yaml"]) == 0
    rows = pd.read_json(folder / "results" / "first-look" / "rows.jsonl", lines=True)
    assert set(rows["status"]) == {"ok"}
    assert 0 < rows.loc[rows["N"] == 60, "ir_score"].mean() < rows.loc[rows["N"] == 200, "ir_score"].mean()


def test_init_copies_templates_without_results_and_set_to_the_files_beside_them(tmp_path):
    folder = your_experiment.create_project(tmp_path / "mine")
    path, other = sorted(folder.glob("*.ipynb"))
    assert other.name == "93_score_your_answers.ipynb"
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert not any(cell.outputs for cell in book.cells if cell.cell_type == "code")
    parameters = next(cell.source for cell in book.cells if "parameters" in cell.metadata.get("tags", []))
    values: dict = {}
    exec(parameters, values)
    assert (folder / values["DOCUMENTS"]).is_dir()
    assert (folder / values["QUESTIONS"]).is_file()
    linked = [target for cell in book.cells for target in re.findall(r"\]\(([^)#]+)\)", cell.source)]
    assert linked
    assert all((folder / target).exists() for target in linked)
    assert not any("data/results" in cell.source for cell in book.cells)  # runs lie in results/ here


def test_the_manual_in_a_new_folder_has_no_dead_picture_or_link(tmp_path):
    pages = sorted((your_experiment.create_project(tmp_path / "mine") / "help").glob("*.md"))
    links = {page: re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")) for page in pages}
    within = [(page, *link.split("#", 1)) for page in pages for link in links[page] if "://" not in link]
    assert {"models.md", "data.md", "experiment.md"} <= {link for _, link, *_ in within}
    for page, link, *anchor in within:
        linked = page.parent / link if link else page
        assert linked.parent == page.parent
        assert linked.is_file(), (page.name, link)
        headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.M)
        names = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert {*anchor} <= names, (page.name, link)


@pytest.mark.parametrize("there", ["file", "folder with a file", "no parent"])
def test_init_writes_over_nothing(tmp_path, there):
    target = tmp_path / "mine"
    if there == "file":
        target.write_text("mine")
    elif there == "folder with a file":
        target.mkdir()
        (target / "thesis.tex").write_text("mine")
    else:
        target = tmp_path / "not there" / "mine"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="mine"):
        your_experiment.create_project(target)
    assert sorted(tmp_path.rglob("*")) == before


def test_lab_opens_a_folder_that_init_made_and_keeps_results_in_it(tmp_path, monkeypatch):
    folder = your_experiment.create_project(tmp_path / "mine")
    called: list[list[str]] = []
    monkeypatch.setattr("ragbench.cli._become", called.append)
    monkeypatch.setenv("RAGBENCH_RESULTS", "set back when the test ends")
    monkeypatch.delenv("RAGBENCH_RESULTS")
    monkeypatch.chdir(tmp_path)
    main(["lab", "mine", "--no-browser"])
    assert called[0][called[0].index("--notebook-dir") + 1] == str(folder)
    assert "91_your_experiment.ipynb" in called[0]
    assert os.environ["RAGBENCH_RESULTS"] == str(folder / "results")
    assert main(["lab", "nothing"]) == 2


def test_a_run_in_a_folder_of_ones_own_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "first-look").mkdir(parents=True)
    (tmp_path / "results" / "first-look" / "rows.jsonl").write_text("")
    assert run_folder("first-look") == Path("results/first-look")
    named = Experiment("llama3:8b", data="minihop", chunker="token_chunks", retriever="BM25", N=100)
    assert named.home == tmp_path / "elsewhere" / "llama3-8b"  # Windows has no folder with a colon
    named.path.write_text("")
    assert run_folder("llama3:8b") == named.home
    with pytest.raises(DataError, match="no run 'second-look'"):
        run_folder("second-look")


def test_no_link_or_picture_of_a_created_folder_is_dead(tmp_path):
    folder = your_experiment.create_project(tmp_path / "mine")
    texts = {page: page.read_text(encoding="utf-8") for page in folder.rglob("*.md")}
    for path in folder.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts[path] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = [(page, target) for page, text in texts.items() for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    inner = [(page, target.partition("#")[0]) for page, target in found if "://" not in target]
    files = [(page, page.parent / target if target else page) for page, target in inner]
    dead = [(page.name, str(file)) for page, file in files if not file.exists()]
    assert dead == []
    assert any(target.startswith("models.md#") for _, target in found)  # those within the manual stay
    assert "see its page" in texts[folder / "help" / "data.md"]
