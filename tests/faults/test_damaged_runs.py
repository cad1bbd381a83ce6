"""The folder of a run after something damaged one of its files: an error that names the file."""

import json
import os

import pandas as pd
import pytest

import ragbench as rb
from ragbench.report.export import export
from ragbench.rows import folder_name


def small_run(folder, languages=("de", "en"), **axes):
    """A run of a question in each language about one document."""
    fact = "Ada Ruck founded it."
    questions = tuple(
        rb.Question(f"q{n}", f"Who founded mill {n}?", "Ada", (fact,), meta={"Sprache": language})
        for n, language in enumerate(languages)
    )
    data = rb.Dataset("mills", questions, (rb.Document("d1", "Mill", fact),))
    cut = {"chunker": "token_chunks", "retriever": "BM25", "N": [30]}
    rb.Experiment("mills", data=data, folder=folder, **cut, **axes).run(progress=False)


def run_with_answers(folder):
    small_run(folder, generator={"copy": lambda question, context: "Ada"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    small_run(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def run(whole, tmp_path):
    """A folder of its own with the files of that run."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name, content in whole.items():
        (folder / name).write_bytes(content)
    return folder


def damage_file(file, damage):
    file.write_bytes(DAMAGES[damage](file.read_bytes()))


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
def test_a_damaged_file_of_a_run_is_named_and_no_traceback(run, tmp_path, name, damage):
    damage_file(run / name, damage)
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
def test_rows_that_can_be_read_but_are_not_the_runs_own_are_said(run, tmp_path, damage):
    rows = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rows.jsonl").write_bytes(b"".join(OTHER_ROWS[damage](rows)))
    with pytest.warns(UserWarning, match=r"rows\.jsonl was cut or edited"):
        rb.load_rows(run)
    with pytest.raises(rb.errors.DataError, match=r"rows\.jsonl is not what manifest\.json"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_cut_rows_are_said_whatever_else_the_manifest_lacks(whole, run):
    (run / "rows.jsonl").write_bytes(whole["rows.jsonl"].splitlines(keepends=True)[0])
    (run / "manifest.json").write_bytes(changed(whole["manifest.json"], runs=[]))
    with pytest.warns(UserWarning, match=r"rows\.jsonl was cut or edited"):
        rb.load_rows(run)


def test_the_runs_own_rows_are_read_without_a_word(run, recwarn):
    assert len(rb.load_rows(run)) == 2
    assert not recwarn.list


@pytest.mark.parametrize("name", ["rows.jsonl", "manifest.json", "cassette.sqlite"])
def test_a_folder_in_the_place_of_a_runs_file_is_named(tmp_path, name):
    (tmp_path / "run" / name).mkdir(parents=True)
    with pytest.raises(rb.errors.DataError, match=name):
        run_with_answers(tmp_path / "run")


SCORES = rb.Scores({"question_id": ["q1"], "system": ["s"], "f1": [0.5]})


@pytest.mark.parametrize("damage", list(DAMAGES)[:5])
@pytest.mark.parametrize("name", ["scores.csv", "scores.json"])
def test_damaged_scores_are_named(run, name, damage):
    SCORES.save_beside(run)
    damage_file(run / name, damage)
    with pytest.raises(rb.errors.DataError, match=r"scores\.csv"):
        rb.Scores.beside(run)


def test_a_score_that_was_changed_is_said_and_not_exported(run):
    path = SCORES.save_beside(run)
    assert rb.Scores.beside(run)["f1"].tolist() == [0.5]
    path.write_text(path.read_text().replace("0.5", "0.9"))
    with pytest.raises(rb.errors.DataError, match="cut or edited"):
        rb.Scores.beside(run)


@pytest.mark.posix
def test_a_file_without_rights_is_named(run):
    (run / "rows.jsonl").chmod(0)
    if os.access(run / "rows.jsonl", os.R_OK):
        pytest.skip("root reads every file")
    with pytest.raises(rb.errors.DataError, match=r"rows\.jsonl cannot be read: Permission denied"):
        run_with_answers(run)


def test_one_more_table_has_the_means_by_a_column_of_the_questions_file(tmp_path):
    small_run(tmp_path / "run", ["de", "en", "en"])
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


def test_a_number_that_was_whole_is_no_fraction(run):
    rows = run / "rows.jsonl"
    rows.write_bytes(changed(rows.read_bytes(), k=7.5))
    with pytest.raises(rb.errors.DataError, match=r"rows\.jsonl, line 1 is not a row"):
        rb.load_rows(run)
