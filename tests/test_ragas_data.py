"""WikiEval, and the recorded runs on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ragbench import data, papers
from ragbench.data.wikieval import RecordedRow, RecordedRun, _read_verdict
from ragbench.errors import ConfigError, DataError
from ragbench.metrics.reference_free import answer_relevance, context_relevance, faithfulness

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
    (row,) = loaded = data.load_wikieval(write_lines("w.jsonl", {**ROW, "provenance": "here"}))
    assert (row.question, row.answer, row.poor_answer, row.source) == ("Who built it?", "Ann did.", "", "Tower")
    assert row.context_v2 == ("Ann built it.", "It is tall.")
    assert row.meta == {"provenance": "here"}
    f, a, c = (loaded.pairs(d)[0] for d in ("faithfulness", "answer_relevance", "context_relevance"))
    assert (f.better, f.worse, f.context) == ("Ann did.", "Bob did.", "Ann built it.")
    assert (a.better, a.worse, a.context) == ("Ann did.", "", "")
    assert (c.better, c.worse) == ("Ann built it.", "Ann built it.\n\nIt is tall.")
    assert {f.id, a.id, c.id} == {"wikieval-01"}
    with pytest.raises(ConfigError, match="did you mean 'faithfulness'"):
        loaded.pairs("faithfulnes")


def test_bad_rows_are_named_by_file_and_line(write_lines):
    lacking = {k: v for k, v in ROW.items() if k != "poor_answer"}
    with pytest.raises(DataError, match=r"w.jsonl, line 2: no field 'poor_answer'"):
        data.load_wikieval(write_lines("w.jsonl", ROW, lacking))
    with pytest.raises(DataError, match=r"line 1: 'context_v1\.0' is 1"):
        data.load_wikieval(write_lines("w.jsonl", {**ROW, "context_v1": [1]}))
    with pytest.raises(DataError, match=r"line 1: 'question' is empty"):
        data.load_wikieval(write_lines("w.jsonl", {**ROW, "question": " "}))


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
    assert _read_verdict(reply) == verdict


def test_an_empty_extraction_is_unread_unless_the_reply_says_insufficient():
    def row(raw, labels=()):
        return RecordedRow("w", "q", True, 0.0, labels, (raw,))

    assert row('["Insufficient Information"]\n Because').extraction() == ()
    assert row(" [] ").extraction() == ()
    assert row('["A sentence."').extraction() is None
    assert row("").extraction() is None
    assert row('["A."]', ("A.",)).extraction() == ("A.",)


def test_pairs_of_a_run_put_the_better_text_first_and_miss_nothing():
    rows = tuple(RecordedRow(i, "q", better, score) for i, better, score in
                 [("b", False, 0.1), ("a", True, 0.5), ("b", True, 0.2), ("a", False, 0.4)])  # fmt: skip
    run = RecordedRun("x", "faithfulness", rows)
    assert run.pairs() == [("a", 0.5, 0.4), ("b", 0.2, 0.1)]
    assert run.pairs([1, 2, 3, 4]) == [("a", 2, 4), ("b", 3, 1)]
    with pytest.raises(DataError, match="1 scores for 4 rows"):
        run.pairs([1])
    with pytest.raises(DataError, match="the rows of question b"):
        RecordedRun("x", "faithfulness", rows[1:]).pairs()


def test_recorded_rows_are_read_by_the_columns_of_their_metric(tmp_path, write_lines):
    common = {"is_better_by_construction": "1", "question": "Who built it?"}
    rows = {
        "ff": {"faithfulness_score": "0.5", "context": "A\\nB", "verdicts": "[1, 0]", "raw_judge_outputs": '["a", "b"]',
               "parsed_statements": '["s", "t"]', "parse_status": "ok", "statements_truncated": "0",
               "any_judge_truncated": "1"},
        "ar": {"answer_relevance_score": "0.25", "gen_questions": '["Why?"]', "noncommittal_flags": "[0]",
               "output_parse_status": '["ok", "fixed", "ok"]', "any_truncated": "0"},
        "cr": {"context_relevance_score": "1", "context": "C", "total_sentences": "3", "extracted_sentences": '["C"]',
               "raw_output": '["C"]', "parse_status": "partial", "statements_truncated": "0"},
    }  # fmt: skip
    write_lines("wikieval.jsonl", ROW)
    for name, cells in (rows | {"ff_base": rows["ff"], "cr_base": rows["cr"]}).items():
        table = pd.DataFrame([common | cells])
        table.to_csv(tmp_path / f"ragas_llama3_8b_{name}.csv.gz", index=False)
    runs = data.load_wikieval_runs(tmp_path)
    assert {name: run.dimension for name, run in runs.items()} == {
        "ff": "faithfulness", "ff_base": "faithfulness", "ar": "answer_relevance", "cr": "context_relevance",
        "cr_base": "context_relevance",
    }  # fmt: skip
    asked = ("wikieval-01", "Who built it?", True)
    assert runs["ff"].rows == (
        RecordedRow(*asked, 0.5, (1, 0), ("a", "b"), ("s", "t"), context="A\nB", status="ok", truncated=True),
    )
    assert runs["ar"].rows == (RecordedRow(*asked, 0.25, texts=("Why?",), flags=(0,), status="ok, fixed"),)
    assert runs["cr"].rows == (RecordedRow(*asked, 1.0, ("C",), ('["C"]',), context="C", total=3, status="partial"),)
    bad = pd.DataFrame([common | rows["ff"] | {"verdicts": "no"}])
    bad.to_csv(tmp_path / "ragas_llama3_8b_ff.csv.gz", index=False)
    with pytest.raises(DataError, match=r"ff\.csv\.gz, line 2: JSONDecodeError"):
        data.load_wikieval_runs(tmp_path)


# --- with the mirror --------------------------------------------------------------------------------------------


@pytest.mark.data
def test_wikieval_has_fifty_rows_and_its_unmodified_rows_agree_with_the_original_copy(data_mirror):
    rows = data.load_wikieval()
    assert len(rows) == 50
    original = {r.question: r for r in data.load_wikieval(data_mirror / "wikieval" / "wikieval_first10_original.jsonl")}
    same = [r for r in rows if r.question in original]
    assert len(same) == 10
    for row in same:
        other = original[row.question]
        assert (row.answer, row.ungrounded_answer, row.poor_answer) == (
            other.answer, other.ungrounded_answer, other.poor_answer,
        )  # fmt: skip


@pytest.fixture(scope="module")
def runs(data_mirror):
    return data.load_wikieval_runs()


@pytest.mark.data
def test_every_recorded_score_of_faithfulness_and_context_relevance_comes_out_exactly(runs):
    for name in ("ff", "ff_base"):
        assert [faithfulness(r.labels) for r in runs[name].rows] == [r.score for r in runs[name].rows]
    for name in ("cr", "cr_base"):
        assert [context_relevance(r.labels, r.total) for r in runs[name].rows] == [r.score for r in runs[name].rows]
    assert {name: len(run.rows) for name, run in runs.items()} == dict.fromkeys(runs, 50)


@pytest.mark.data
def test_recorded_answer_relevance_comes_out_with_minilm_and_zero_for_evasive_answers(runs, minilm):
    rows = runs["ar"].rows
    texts = list(dict.fromkeys(t for r in rows for t in (r.question, *r.texts)))
    vectors = dict(zip(texts, minilm.embed_array(texts), strict=True))

    def differences(noncommittal):
        options = {"noncommittal": noncommittal}
        made = [
            answer_relevance(vectors[r.question], [vectors[t] for t in r.texts], flags=r.flags, **options) for r in rows
        ]
        return np.abs(np.array(made) - [r.score for r in rows])

    assert differences("zero").max() < 2e-6
    assert (differences("ignore") > 0.01).sum() == 8  # the answers with a remark


@pytest.mark.data
def test_the_chat_run_has_no_unread_verdict_and_the_base_run_270(runs):
    read = {name: [v for r in runs[name].rows for v in r.verdicts()] for name in ("ff", "ff_base")}
    assert (len(read["ff"]), read["ff"].count(None)) == (460, 0)
    assert read["ff"] == [v for r in runs["ff"].rows for v in r.labels]
    assert (len(read["ff_base"]), read["ff_base"].count(None)) == (429, 270)
    assert sum(r.extraction() is None for r in runs["cr"].rows) == 0
    assert sum(r.extraction() is None for r in runs["cr_base"].rows) == 6


def test_table_1_is_as_printed():
    table = papers.published("ragas", "Table 1").pivot(index="row", columns="column", values="value")
    assert table.loc["RAGAS", ["faithfulness", "answer relevance", "context relevance"]].tolist() == [0.95, 0.78, 0.70]
    assert table.to_numpy().sum() == pytest.approx(5.76)
    section = papers.published("ragas", "Section 4")
    assert section[section["row"] == "two annotators"]["value"].tolist() == [95, 90, 95]
