"""The template's parts: own files to experiment.yaml, the same run headless, systems compared in pairs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import onnx_parts
import pandas as pd
import pytest
import yaml
from experiment_parts import TOWNS, graded, write_lines
from fake_ollama import FakeOllama

from ragbench import comparison, your_experiment
from ragbench.cli import main
from ragbench.data import load_documents, load_minihop, load_questions
from ragbench.datagen import generate_set
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import TIMING, Experiment, load_rows
from ragbench.experiment.rows import run_folder
from ragbench.labelling.people import Label, append_labels
from ragbench.notebooks import execute, find


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    monkeypatch.setenv("RAGBENCH_RESULTS", str(folder))
    return folder


@pytest.fixture
def own(tmp_path):
    """A foreign folder: text files in a subfolder, a CSV of questions with its own column names."""
    texts = tmp_path / "texts" / "people"
    texts.mkdir(parents=True)
    lines = ["query,gold,passages"]
    for i, town in enumerate(TOWNS[:6]):
        (texts / f"person {i}.txt").write_text(f"Person{i} Lee was born in {town}. Her house still stands.")
        lines.append(f"In which town was Person{i} Lee born?,{town},Person{i} Lee was born in {town}.")
    (tmp_path / "asked.csv").write_text("\n".join(lines) + "\n")
    return {
        "questions": str(tmp_path / "asked.csv"),
        "documents": str(tmp_path / "texts"),
        "fields": {"question": "query", "answer": "gold", "references": "passages"},
    }


def grades_of(questions, systems, by=lambda question, system: "5"):
    """Grades of one person, as the form of the template's section 11 writes them: every question under every system."""
    return [
        Label("grade", f"{question}/{system}", "grade", by(i, j), "me", "2026-01-31T09:30:00+00:00")
        for i, question in enumerate(questions)
        for j, system in enumerate(systems)
    ]


def written(name="mine", **settings):
    return your_experiment.write_experiment(name, **({"retrievers": ["BM25"], "N": [50]} | settings))


# --- own files --------------------------------------------------------------------------------------------------------


def test_a_generated_folder_loads_by_its_name_alone(tmp_path):
    folder = generate_set("finance", "en", 2, 7, tmp_path / "finance")
    whole = load_questions(folder / "questions.jsonl", folder / "documents.jsonl")
    for loaded in (load_questions(folder), load_questions(folder / "questions.jsonl", folder)):
        assert (loaded.questions, loaded.documents) == (whole.questions, whole.documents)
    own = your_experiment.load(str(folder))
    assert (own.name, own.questions) == ("finance", whole.questions)
    assert your_experiment.load(folder / "questions.jsonl", folder).name == "finance"
    assert not len(your_experiment.problems(whole))


def test_a_table_of_documents_wins_over_the_readme_beside_it(tmp_path):
    (tmp_path / "README.md").write_text("About these documents.")
    (tmp_path / "documents.csv").write_text("id,title,text\nd1,One,Ann Lee was born in Ely.\n")
    assert [d.id for d in load_documents(tmp_path)] == ["d1"]
    (tmp_path / "documents.jsonl").write_text('{"id": "d2", "text": "The mill burned."}\n')
    assert [d.id for d in load_documents(tmp_path)] == ["d2"]


def test_a_folder_of_csv_files_loads_by_its_name(tmp_path):
    (tmp_path / "questions.csv").write_text("question,answer\nWhere?,Ely\n")
    (tmp_path / "documents.csv").write_text("id,text\nd1,Ann Lee was born in Ely.\n")
    loaded = load_questions(tmp_path)
    assert (len(loaded.questions), len(loaded.documents)) == (1, 1)


def test_hidden_files_are_no_documents_and_other_formats_are_named(tmp_path):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "old.md").write_text("An old copy.")
    (tmp_path / "report.odt").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"no \.txt, \.md or \.rst file, no PDF, .* \(it holds 1 \.odt\)(.|\n)*pandoc"):
        load_documents(tmp_path)
    (tmp_path / "a.txt").write_text("Ann Lee was born in Ely.")
    assert [d.id for d in load_documents(tmp_path)] == ["a.txt"]


def test_own_columns_and_a_folder_of_texts_are_read(own):
    dataset = your_experiment.load(**own)
    assert [q.answer for q in dataset.questions] == TOWNS[:6]
    assert len(dataset.documents) == 6
    assert not len(your_experiment.problems(dataset))
    assert len(your_experiment.load(**own, limit=2).questions) == 2


def test_without_own_files_it_is_minihop():
    assert your_experiment.load(limit=3).name == "minihop"


def test_problems_are_counted_by_kind_with_the_questions_to_look_at(tmp_path):
    written, unwritten = {"references": ["Ann Lee was born in Ely."]}, {"references": ["Nobody wrote this of Ely."]}
    evidence = {"a": ("Ely", unwritten), "b": ("York", written), "c": ("Bath", written), "d": ("Ely", {})}
    evidence |= {"e": ("Wells", written), "f": ("Ripon", written)}
    rows = ({"id": name, "question": "Where?", "answer": town} | facts for name, (town, facts) in evidence.items())
    write_lines(tmp_path / "q.jsonl", *rows)
    (tmp_path / "d.txt").write_text("Ann Lee was born in Ely.")
    found = your_experiment.problems(your_experiment.load(tmp_path / "q.jsonl", tmp_path))
    assert found[["questions", "first"]].values.tolist() == [[4, "b, c, e"], [1, "a"], [1, "d"]]
    assert found["what"].tolist() == [
        "note: the answer is not in its evidence word for word",
        "supporting text not found in any document",
        "no supporting text",
    ]
    assert found["do"].str.len().gt(0).all()


# --- the file ---------------------------------------------------------------------------------------------------------


def test_references_are_checked_as_the_run_will_look_for_them(own):
    path = next(Path(own["documents"]).rglob("person 0.txt"))
    path.write_text("Person0 Lee was\n    born in Ｅｌｙ. Her house still stands.")
    loaded = your_experiment.load(**own)
    assert your_experiment.problems(loaded)["questions"].tolist() == [1]
    assert not len(your_experiment.problems(loaded, "substring_nfkc"))
    path.write_text("Person0 Lee was\n    born in Ely. Her house still stands.")
    loaded = your_experiment.load(**own)
    assert not len(your_experiment.problems(loaded))
    assert your_experiment.problems(loaded, "exact")["questions"].tolist() == [1]
    assert Experiment.from_yaml(written("exactly", **own, match="exact")).cutting.match == "exact"
    with pytest.raises(ConfigError, match="unknown match 'exakt'"):
        written("x", **own, match="exakt")


def test_the_file_beside_the_rows_does_the_same_headless(own, results, capsys, tmp_path):
    path = written(**own, retrievers=["BM25", "SIM"], N=[0, 50], k=3, chunk_tokens=60, overlap=0.0)
    assert path == results / "mine" / "experiment.yaml"
    rows = Experiment.from_yaml(path).run(progress=False)
    assert (len(rows), set(rows["status"])) == (6 * 3, {"ok"})
    before = (results / "mine" / "rows.jsonl").read_bytes()
    assert main(["run", str(path)]) == 0
    assert "18 rows, 0 failed" in capsys.readouterr().out
    assert (results / "mine" / "rows.jsonl").read_bytes() == before  # nothing was made a second time
    # The same file elsewhere, from nothing: the same rows, but for the clocks.
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "experiment.yaml"
    copy.write_text(path.read_text())
    assert main(["run", str(copy)]) == 0
    # Blocks of questions end in any order, so the order of the lines is no part of the sameness.
    one, other = (load_rows(p.parent).drop(columns=list(TIMING)).sort_values("key") for p in (path, copy))
    pd.testing.assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True))


def test_every_parameter_reaches_the_experiment(own):
    path = written(
        **own, limit=4, chunk_tokens=33, overlap=0.1, retrievers=["MMR", "REO"], k=7, N=[0, 90],
        generator="ollama:llama3:8b", judge="ollama:llama3:70b", host=["gpu1:1", "gpu2:1"], cassette="calls.sqlite",
        metrics=["token_f1"], labels="ollama:llama3:8b", checker="ollama:bespoke-minicheck",
    )  # fmt: skip
    told = yaml.safe_load(path.read_text())
    assert told["name"] == "mine"
    assert told["chunker"] == {"33 tokens": {"use": "token_chunks", "size": 33, "overlap": 0.1}}
    assert told["generator"] == {"ollama:llama3:8b": {"use": "ollama:llama3:8b", "hosts": ["gpu1:1", "gpu2:1"]}}
    assert told["judge"]["ollama:llama3:70b"]["hosts"] == ["gpu1:1", "gpu2:1"]
    assert (told["cassette"], told["metrics"]) == (str(Path("calls.sqlite").resolve()), ["token_f1"])
    assert told["checker"] == {"use": "ollama:bespoke-minicheck", "host": "gpu1:1"}
    made = Experiment.from_yaml(path)
    assert [model.base_url for model in made.labels] == ["http://gpu1:1", "http://gpu2:1"]
    assert (made.checker.model.base_url, made.grid.k) == ("http://gpu1:1", {"MMR": (7,), "REO": (7,)})
    assert made.grid.N == (0, 90)
    (load,) = made.grid.data.values()
    assert len(load().questions) == 4
    assert "run " + str(path) in path.read_text()


def test_without_models_or_grades_only_retrieval_runs(own):
    path = written(**own, generator=None, judge=None)
    rows = Experiment.from_yaml(path).run(progress=False)
    assert rows["answer"].isna().all()
    assert comparison.system_scores(rows).attrs["numbers"] == ["IR score"]


def test_a_model_on_another_host_is_asked_there(own):
    said = "Ely, after {} characters."
    with FakeOllama(reply=lambda r: graded(r) or said.format(len(r["messages"][-1]["content"]))) as server:
        path = written(**own, generator="ollama:llama3:8b", judge="ollama:llama3:8b", host=server.url)
        plan = Experiment.from_yaml(path).plan()
        assert not server.calls
        assert plan["generate"].remaining == 6
        rows = Experiment.from_yaml(path).run(progress=False)
        assert len(server.calls) == 12
    assert rows["grade"].eq(5).all()
    assert (path.parent / "cassette.sqlite").exists()


def test_embedder_reranker_and_checker_are_named_in_the_file(own, tmp_path):
    scores = onnx_parts.rows(1, sun=[1.0])
    onnx_parts.classifier(tmp_path / "scorer", scores, scores, None)
    models = {"embedder": "ollama:bge-m3", "reranker": f"onnx:{tmp_path / 'scorer'}"}
    path = written(
        **own, retrievers=["SIM", "Rerank"], **models, checker="ollama:bespoke-minicheck", host=["a:1", "b:2"]
    )
    told = yaml.safe_load(path.read_text())
    assert told["checker"] == {"use": "ollama:bespoke-minicheck", "host": "a:1"}
    experiment = Experiment.from_yaml(path)
    chunks = experiment.grid.chunker["200 tokens"](experiment.grid.data["asked"]().documents)
    sim, reranked = (build(chunks) for build in experiment.grid.retriever.values())
    assert repr(sim.embedder.embedder) == "OllamaEmbedder('bge-m3')"
    assert reranked.scorer.settings()["scorer"] == "onnx:scorer"
    assert yaml.safe_load(written(**own, checker="embedded", host="a:1").read_text())["checker"] == "embedded"


def test_paths_inside_the_checkout_are_relative_and_from_either_folder(own, monkeypatch, tmp_path):
    monkeypatch.setattr(your_experiment, "project_root", lambda: tmp_path)
    path = written(**{**own, "questions": "asked.csv"})  # not here: found in the checkout
    told = yaml.safe_load(path.read_text())["data"]["asked"]
    assert (told["questions"], told["documents"]) == ("../../asked.csv", "../../texts")
    assert len(Experiment.from_yaml(path).run(progress=False)) == 6


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"questions": "nowhere.csv"}, DataError, r"QUESTIONS: there is no .*nowhere\.csv; .* holds(.|\n)*spelling"),
        ({"documents": "no/texts"}, DataError, r"DOCUMENTS: there is no .*texts"),
        ({"questions": None}, ConfigError, r"DOCUMENTS without QUESTIONS(.|\n)*set QUESTIONS"),
        ({"questions": 3}, ConfigError, "QUESTIONS is 3"),
        ({"retrievers": ["BM26"]}, ConfigError, r"unknown retriever 'BM26'(.|\n)*did you mean 'BM25'"),
        ({"generator": 8}, ConfigError, "the model 8"),
    ],
)
def test_a_parameter_that_cannot_work_is_named_with_what_to_do(own, changes, kind, message):
    with pytest.raises(kind, match=message):
        written(**{**own, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"N": "500"}, "N has '500'"),
        ({"limit": "3"}, "limit='3'"),
        ({"chunk_tokens": "200"}, "size='200'"),
        ({"overlap": "0.2"}, "overlap='0.2'"),
        ({"overlap": 20}, "overlap=20"),
    ],
)
def test_a_number_in_quotes_is_named(own, changes, message):
    with pytest.raises(ConfigError, match=message):
        Experiment.from_yaml(written(**{**own, **changes})).plan()


def test_a_misspelt_path_names_what_is_most_like_it(own, tmp_path):
    with pytest.raises(DataError, match=r"there is no .*askde\.csv; .* holds asked\.csv, "):
        written(**{**own, "questions": str(tmp_path / "askde.csv")})


def test_bad_names_and_kinds_of_file_are_refused(own, tmp_path):
    for name in ("", "a/b", ".hidden", 3):
        with pytest.raises(ConfigError, match="NAME is"):
            written(name, **own)
    (tmp_path / "asked.xlsx").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"a \.xlsx file: asked\.xlsx(.|\n)*export it as CSV"):
        written(**{**own, "questions": tmp_path / "asked.xlsx"})
    with pytest.raises(ConfigError, match=r"QUESTIONS is a folder with people"):
        written(**{**own, "questions": tmp_path / "texts"})
    with pytest.raises(DataError, match=r"asked\.csv alone: no documents(.|\n)*set DOCUMENTS"):
        your_experiment.load(own["questions"], None, own["fields"])


def test_missing_columns_name_the_line_and_the_parameter(own):
    with pytest.raises(
        DataError, match=r"(?s)asked\.csv: 6 of 6 records are bad.*line 2: no field 'question'.*fields="
    ):
        your_experiment.load(own["questions"], own["documents"])


# --- the notebook -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_template_takes_a_foreign_folder_to_a_latex_table(tmp_path, results, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    folder = generate_set("finance", "en", 4, 7, tmp_path / "finance")
    own = {"QUESTIONS": str(folder / "questions.jsonl"), "DOCUMENTS": str(folder), "NAME": "finance", "LIMIT": 8}
    (template,) = (path for path in find() if path.stem == "91_your_experiment")
    made = results / "finance"
    made.mkdir(parents=True)
    first = your_experiment.load(folder).questions[0].id
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
    assert re.search(r"fully right, BM25@300 - SIM@300, labels and judge: -?\d\.\d+ \[.*n = 9, 3 missing", said)
    assert any("LabellingTool(grade: 0 of 6 items, grades.csv)" in str(cell) for cell in nbformat.read(done, 4).cells)
    # Half of each system's labels are 5, whatever the judge says of the rest.
    assert len(re.findall(r"grade [123]: ", said)) == 6
    assert "embedded, 3 times: share of pairs of grades that differ 0.000" in said
    assert (results / "your_experiment" / "rows.jsonl").is_file()


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
    monkeypatch.setattr("os.execv", lambda program, command: called.append(command))
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
    with pytest.raises(DataError, match="no run 'second-look'"):
        run_folder("second-look")
