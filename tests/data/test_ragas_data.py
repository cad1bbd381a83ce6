"""WikiEval, and the recorded runs on it."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest
from checks import refused
from notebook_parts import parts

from ragbench import data, papers
from ragbench.errors import ConfigError, DataError, NotHereError
from ragbench.metrics.reference_free import answer_relevance

BOOK = parts("30")

ROW = {
    "question": "Question: Who built it?",
    "source": "Tower",
    "context_v1": ["Ann built it."],
    "context_v2": ["Ann built it.", "It is tall."],
    "answer": "Answer: Ann did.",
    "ungrounded_answer": "Bob did.",
    "poor_answer": "",
}


def test_rows_keep_the_fields_names_and_make_the_papers_three_comparisons(write_lines):
    loaded = data.load_wikieval(write_lines("w.jsonl", {**ROW, "provenance": "here"}))
    kept = {
        "question": "Who built it?",
        "answer": "Ann did.",
        "poor_answer": "",
        "source": "Tower",
        "context_v2": ("Ann built it.", "It is tall."),
        "provenance": "here",
    }
    assert loaded[[*kept]].to_dict("records") == [kept]
    pairs = [
        data.wikieval_pairs(loaded, dimension)
        for dimension in ("faithfulness", "answer_relevance", "context_relevance")
    ]
    ((f,), (a,), (c,)) = pairs
    assert (f.better, f.worse, f.context) == ("Ann did.", "Bob did.", "Ann built it.")
    assert (a.better, a.worse, a.context) == ("Ann did.", "", "")
    assert (c.better, c.worse) == ("Ann built it.", "Ann built it.\n\nIt is tall.")
    assert {f.id, a.id, c.id} == {"wikieval-01"}
    with refused(ConfigError, "did you mean 'faithfulness'"):
        data.wikieval_pairs(loaded, "faithfulnes")


def test_the_releases_parquet_file_is_read_from_its_folder(write_lines, tmp_path):
    pytest.importorskip("pyarrow")
    as_lines = data.load_wikieval(write_lines("w.jsonl", ROW))
    (tmp_path / "clone" / "data").mkdir(parents=True)
    pd.DataFrame([ROW]).to_parquet(tmp_path / "clone" / "data" / "train-00000-of-00001.parquet")
    pd.testing.assert_frame_equal(data.load_wikieval(tmp_path / "clone"), as_lines, check_like=True)
    (tmp_path / "none").mkdir()
    with refused(NotHereError, "WikiEval is not in"):
        data.load_wikieval(tmp_path / "none")


def test_bad_rows_are_named_by_file_and_line(write_lines):
    lacking = {k: v for k, v in ROW.items() if k != "poor_answer"}
    with refused(DataError, r"w.jsonl, line 2 .*'poor_answer'"):
        data.load_wikieval(write_lines("w.jsonl", ROW, lacking))


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Verdict: 1", 1),
        (" Verdict: 0\n\nThe statement", 0),
        ("Answer: 1 (The", 1),
        ("Verdict: 1 or 0?", None),
        ("Verdict: ____", None),
        ("Context: 1 thing. Verdict: 1", None),
        ("Verdict: 10", None),
        ("", None),
    ],
)
def test_a_verdict_is_read_only_where_the_reply_opens_with_one(reply, verdict):
    assert BOOK.read_verdicts([reply]) == [verdict]


@pytest.mark.parametrize(
    ("reply", "labels", "extracted"),
    [
        ('["Insufficient Information"]\n Because', [], []),
        (" [] ", [], []),
        ('["A sentence."', [], None),
        ("", [], None),
        ('["A."]', ["A."], ["A."]),
    ],
)
def test_an_empty_extraction_is_unread_unless_the_reply_says_insufficient(reply, labels, extracted):
    assert BOOK.extraction(SimpleNamespace(labels=labels, replies=[reply])) == extracted


def test_recorded_rows_are_read_by_the_columns_of_their_metric():
    common = {"is_better_by_construction": "1", "question": "Who built it?"}
    rows = {
        "ff": {"faithfulness_score": "0.5", "verdicts": "[1, 0]", "raw_judge_outputs": '["a", "b"]',
               "parse_status": "ok", "statements_truncated": "0", "any_judge_truncated": "1"},
        "ar": {"answer_relevance_score": "0.25", "gen_questions": '["Why?"]', "noncommittal_flags": "[0]",
               "output_parse_status": '["ok", "fixed"]', "any_truncated": "0"},
        "cr": {"context_relevance_score": "1", "extracted_sentences": '["C"]', "raw_output": '["C"]',
               "parse_status": "partial", "statements_truncated": "0"},
    }  # fmt: skip
    ids = {"Who built it?": "wikieval-01"}
    read = {
        name: BOOK.read_run(pd.DataFrame([common | cells]), ids).iloc[0]
        for name, cells in rows.items()
    }
    assert {(row.id, row.better) for row in read.values()} == {("wikieval-01", True)}
    assert [row.score for row in read.values()] == [0.5, 0.25, 1.0]
    assert [row.truncated for row in read.values()] == [True, False, False]
    assert (read["ff"].labels, read["ff"].replies) == ([1, 0], ["a", "b"])
    assert (read["ar"]["guesses"], read["ar"]["flags"]) == (["Why?"], [0])
    assert (read["cr"].labels, read["cr"].replies) == (["C"], ['["C"]'])


@pytest.mark.data
def test_wikieval_has_fifty_rows_and_its_unmodified_rows_agree_with_the_original_copy(data_mirror):
    rows = data.load_wikieval()
    assert len(rows) == 50
    original = data.load_wikieval(data_mirror / "wikieval" / "wikieval_first10_original.jsonl")
    texts = ["question", "answer", "ungrounded_answer", "poor_answer"]
    assert len(rows.merge(original, on="question")) == 10
    assert len(rows.merge(original, on=texts)) == 10


@pytest.fixture(scope="module")
def runs(data_mirror):
    ids = data.load_wikieval().set_index("question")["id"].to_dict()
    read = {}
    for name in BOOK.RUNS:
        path = data_mirror / "wikieval" / f"ragas_llama3_8b_{name}.csv.gz"
        read[name] = BOOK.read_run(pd.read_csv(path, dtype=str, keep_default_na=False), ids)
    return read


@pytest.mark.data
def test_every_recorded_score_of_faithfulness_and_context_relevance_comes_out_exactly(runs):
    for name in ("ff", "ff_base", "cr", "cr_base"):
        assert list(BOOK.rescore(name, runs[name], None)) == runs[name]["score"].tolist()
    assert {(len(run), run["id"].nunique()) for run in runs.values()} == {(50, 25)}


@pytest.mark.data
def test_recorded_answer_relevance_comes_out_with_minilm_and_zero_for_evasive_answers(runs, minilm):
    run = runs["ar"]
    texts = list({*run["question"], *run["guesses"].explode()})
    vectors = dict(zip(texts, minilm.embed_array(texts), strict=True))

    def ours(row):
        return answer_relevance(
            vectors[row["question"]], [vectors[text] for text in row["guesses"]]
        )

    scores = run.apply(ours, axis=1)
    evasive = run["flags"].map(any)
    assert evasive.sum() == 8
    assert (scores.mask(evasive, 0.0) - run["score"]).abs().max() < 2e-6
    assert ((scores - run["score"]).abs() > 0.01).sum() == 8


@pytest.mark.data
def test_the_chat_run_has_no_unread_verdict_and_the_base_run_270(runs):
    chat = runs["ff"]
    assert chat["replies"].map(BOOK.read_verdicts).tolist() == chat["labels"].tolist()
    counts = [BOOK.readability(name, runs[name]) for name in BOOK.RUNS if name != "ar"]
    labels = [[count["labels"], count["unread"]] for count in counts]
    assert labels == [[460, 0], [429, 270], [50, 0], [50, 6]]


@pytest.mark.data
def test_the_recorded_column_of_table_1(runs):
    def table(**options):
        names = {"ff": "faithfulness", "ar": "answer_relevance", "cr": "context_relevance"}
        pairs = {("r", d): BOOK.recorded_pairs(runs[n], **options) for n, d in names.items()}
        return BOOK.agreement_table(pairs).to_dict("list")

    recorded = table()
    assert recorded["agreement"] == [0.94, 0.58, 0.82]
    assert recorded["n"] == [25, 25, 25]
    assert (recorded["wins"], recorded["ties"]) == ([23, 14, 20], [1, 1, 1])
    assert recorded["losses"] == [1, 10, 4]
    whole = table(whole=True)
    assert (whole["wins"], whole["ties"]) == ([23, 14, 16], [1, 1, 1])
    assert whole["losses"] == [1, 10, 2]
    assert whole["unscored"] == [0, 0, 6]


def test_table_1_is_as_printed():
    table = papers.published("ragas", "Table 1")
    assert table["value"].sum() == pytest.approx(5.76)
    ragas = table[table["row"] == "RAGAS"].set_index("column")["value"]
    assert ragas.to_dict() == {
        "faithfulness": 0.95, "answer relevance": 0.78, "context relevance": 0.70,
    }  # fmt: skip
    section = papers.published("ragas", "Section 4")
    assert section[section["row"] == "two annotators"]["value"].tolist() == [95, 90, 95]
