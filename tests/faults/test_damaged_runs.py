"""The folder of a run after something damaged one of its files: an error that names the file."""

import json
import os

import pandas as pd
import pytest

import ragbench as rb
from ragbench.experiment.rows import folder_name
from ragbench.report.export import export
from ragbench.report.scores import load_scores, save_scores


def small_run(folder, **axes):
    """A run of two questions about one document."""
    facts = ("Ada Ruck founded it.",)
    asked = ("Who founded the mill?", "Whose is the mill?")
    questions = [rb.Question(f"q{n}", text, "Ada Ruck", facts) for n, text in enumerate(asked)]
    data = rb.Dataset("mills", tuple(questions), (rb.Document("d1", "Mill", facts[0]),))
    cut = {"chunker": "token_chunks", "retriever": "BM25", "N": [30]}
    rb.Experiment("mills", data=data, folder=folder, **cut, **axes).run(progress=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    small_run(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def changed(record, **values):
    """A record, or the first of several lines of them, with other values."""
    one = record.splitlines()[0] if record.startswith(b'{"') else record
    return json.dumps(json.loads(one) | values).encode() + b"\n"


DAMAGES = {
    "empty": lambda text: b"",
    "half": lambda text: text[: len(text) // 4] + b"\n",
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


OTHER_ROWS = {
    "cut at a line": lambda rows: rows[:-1],
    "cut in a line": lambda rows: [*rows[:-1], rows[-1][:40]],
    "twice": lambda rows: rows * 2,
    "another score": lambda rows: [changed(rows[0], ir_score=0.5), *rows[1:]],
    "a score as text": lambda rows: [changed(rows[0], ir_score="0.5"), *rows[1:]],
    "Infinity": lambda rows: [changed(rows[0], ir_score=float("inf")), *rows[1:]],
    "no score": lambda rows: [changed(rows[0], ir_score=None), *rows[1:]],
}


@pytest.mark.parametrize("damage", OTHER_ROWS)
def test_rows_that_can_be_read_but_are_not_the_runs_own_are_said(whole, tmp_path, damage):
    rows = whole["rows.jsonl"].splitlines(keepends=True)
    (tmp_path / "rows.jsonl").write_bytes(b"".join(OTHER_ROWS[damage](rows)))
    (tmp_path / "manifest.json").write_bytes(whole["manifest.json"])
    with pytest.warns(UserWarning, match=r"rows\.jsonl was cut or edited"):
        rb.load_rows(tmp_path)
    with pytest.raises(rb.errors.DataError, match=r"rows\.jsonl is not what manifest\.json"):
        export(tmp_path, tmp_path / "out")


def test_cut_rows_are_said_whatever_else_the_manifest_lacks(whole, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(whole["rows.jsonl"].splitlines(keepends=True)[0])
    manifest = json.loads(whole["manifest.json"])
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"runs": []}))
    with pytest.warns(UserWarning, match=r"rows\.jsonl was cut or edited"):
        rb.load_rows(tmp_path)


def test_the_runs_own_rows_are_read_without_a_word(whole, tmp_path, recwarn):
    for file, content in whole.items():
        (tmp_path / file).write_bytes(content)
    assert len(rb.load_rows(tmp_path)) == 2
    assert not recwarn.list


ANSWERS = [b"\xff\xfe\n", b"3\nnull\n[]\n{}\n", b"[" * 100_000, b'["name"]\n', b"\0" * 100]


@pytest.mark.parametrize("content", ANSWERS)
def test_kept_answers_that_cannot_be_read_are_made_anew(tmp_path, content):
    (tmp_path / "answers.jsonl").write_bytes(content)
    small_run(tmp_path, generator={"copy": lambda question, context: "Ada"})
    assert rb.load_rows(tmp_path)["answer"].tolist() == ["Ada", "Ada"]


@pytest.mark.parametrize("name", ["rows.jsonl", "manifest.json", "answers.jsonl"])
def test_a_folder_in_the_place_of_a_runs_file_is_named(tmp_path, name):
    (tmp_path / "run" / name).mkdir(parents=True)
    with pytest.raises(rb.errors.DataError, match=name):
        small_run(tmp_path / "run", generator={"copy": lambda question, context: "Ada"})


@pytest.mark.parametrize("damage", list(DAMAGES)[:5])
@pytest.mark.parametrize("name", ["scores.csv", "scores.json"])
def test_damaged_scores_are_named(whole, tmp_path, name, damage):
    for file, content in whole.items():
        (tmp_path / file).write_bytes(content)
    save_scores(pd.DataFrame({"question_id": ["q1"], "system": ["s"], "f1": [0.5]}), tmp_path)
    file = tmp_path / name
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(rb.errors.DataError, match=r"scores\.csv"):
        load_scores(tmp_path)


def test_a_score_that_was_changed_is_said_and_not_exported(whole, tmp_path):
    for file, content in whole.items():
        (tmp_path / file).write_bytes(content)
    path = save_scores(
        pd.DataFrame({"question_id": ["q1"], "system": ["s"], "f1": [0.5]}), tmp_path
    )
    assert load_scores(tmp_path)["f1"].tolist() == [0.5]
    path.write_text(path.read_text().replace("0.5", "0.9"))
    with pytest.raises(rb.errors.DataError, match="cut or edited"):
        load_scores(tmp_path)


@pytest.mark.posix
@pytest.mark.parametrize("name", ["rows.jsonl", "answers.jsonl"])
def test_a_file_without_rights_is_named(whole, tmp_path, name):
    for file, content in whole.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / name).touch()
    (tmp_path / name).chmod(0)
    if os.access(tmp_path / name, os.R_OK):
        pytest.skip("root reads every file")
    with pytest.raises(rb.errors.DataError, match=rf"{name} cannot be read: Permission denied"):
        small_run(tmp_path, generator={"copy": lambda question, context: "Ada"})


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


def test_a_number_that_was_whole_is_no_fraction(whole, tmp_path):
    for file, content in whole.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / "rows.jsonl").write_bytes(changed(whole["rows.jsonl"], k=7.5))
    with pytest.raises(rb.errors.DataError, match=r"rows\.jsonl, line 1 is no row"):
        rb.load_rows(tmp_path)
