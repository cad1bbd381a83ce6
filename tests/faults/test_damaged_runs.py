"""The folder of a run after something damaged one of its files: an error that names the file."""

import contextlib
import json

import pandas as pd
import pytest

import ragbench as rb
from ragbench.experiment.rows import folder_name
from ragbench.report.export import export
from ragbench.report.scores import load_scores, save_scores


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    question = rb.Question("q1", "Who founded the mill?", "Ada Ruck", ("Ada Ruck founded it.",))
    document = rb.Document("d1", "Mill", "Ada Ruck founded it.")
    data = rb.Dataset("mills", (question,), (document,))
    cut = {"chunker": "token_chunks", "retriever": "BM25", "N": [30]}
    rb.Experiment("mills", data=data, folder=folder, **cut).run(progress=False)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def changed(record, **values):
    return json.dumps(json.loads(record) | values).encode() + b"\n"


DAMAGES = {
    "empty": lambda text: b"",
    "half": lambda text: text[: len(text) // 2] + b"\n",
    "noise": lambda text: bytes(range(256)),
    "no object": lambda text: b"null\n",
    "deep": lambda text: b"[" * 100_000 + b"\n",
    "a number as text": lambda text: changed(text, k="many", runs="many"),
    "a text as a list": lambda text: changed(text, generator=["a"], prompts=[1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["rows.jsonl", "manifest.json"])
def test_a_damaged_file_of_a_run_is_named_and_no_traceback(whole, tmp_path, name, damage):
    run = tmp_path / "run"
    run.mkdir()
    for file, content in whole.items():
        (run / file).write_bytes(DAMAGES[damage](content) if file == name else content)
    with pytest.raises(rb.errors.RagbenchError, match=name.partition(".")[0]):
        export(run, tmp_path / "out")


@pytest.mark.parametrize("damage", list(DAMAGES)[:5])
@pytest.mark.parametrize("name", ["scores.csv", "scores.json"])
def test_damaged_scores_are_named_or_left_out(whole, tmp_path, name, damage):
    for file, content in whole.items():
        (tmp_path / file).write_bytes(content)
    save_scores(pd.DataFrame({"question_id": ["q1"], "system": ["s"], "f1": [0.5]}), tmp_path)
    file = tmp_path / name
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    readable = name == "scores.csv" and damage in ("half", "no object", "deep")  # a table, if odd
    named = pytest.raises(rb.errors.DataError, match=r"scores\.csv")
    with contextlib.nullcontext() if readable else named:
        load_scores(tmp_path)


def test_one_more_table_has_the_means_by_a_column_of_the_questions_file(tmp_path):
    questions = [
        rb.Question(
            f"q{i}", "Who founded it?", "Ada", ("Ada Ruck founded it.",), meta={"Sprache": s}
        )
        for i, s in enumerate(["de", "en", "en"])
    ]
    document = rb.Document("d1", "Mill", "Ada Ruck founded it.")
    data = rb.Dataset("mills", tuple(questions), (document,))
    cut = {"chunker": "token_chunks", "retriever": "BM25", "N": [30]}
    rb.Experiment("mills", data=data, folder=tmp_path / "run", **cut).run(progress=False)
    export(tmp_path / "run", tmp_path / "out", by="Sprache")
    table = pd.read_csv(tmp_path / "out" / "tables" / "overview_by_Sprache.csv")
    assert table.set_index("Sprache")["n"].to_dict() == {"de": 1, "en": 2}
    with pytest.raises(rb.errors.ConfigError, match="Sprache"):
        export(tmp_path / "run", tmp_path / "out", by="Sprach")


def test_names_that_a_file_system_folds_have_folders_of_their_own():
    names = ["a-b", "a\\b", "a:b", "llama3:8b", "llama3-8b", "con", "con-", "x.", "x"]
    folders = {folder_name(name) for name in names}
    assert len(folders) == len(names)
    assert not folders & {"con", "x."}
    assert not any(set('<>:"|?*\\') & set(folder) for folder in folders)
