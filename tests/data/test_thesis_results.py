"""The thesis's own results, on files of the author's shapes with values worked out by hand."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pytest
from checks import refused

import ragbench as rb
from ragbench.data import thesis
from ragbench.errors import DataError, NotHereError

GRADES = {"llm_only": 4, "bm25": 5, "sim": 3, "mmr": 2, "reo": 1, "mlq": 4}


def scores_file(*rows):
    """The author's file: of each row the facts and the means by level, as numbers in text."""
    levels = [f"[{', '.join(f'[{mean}, [{mean}]]' for mean in means)}]" for _, means in rows]
    facts = json.dumps([list(facts) for facts, _ in rows])
    texts = json.dumps([["text"] * len(means) for _, means in rows])
    lens = json.dumps([100 * len(means) for _, means in rows])
    scores = f"[{', '.join(levels)}]"
    return f'{{"all_scores": {scores}, "all_Ck": {texts}, "all_P": {facts}, "lens": {lens}}}'


@pytest.fixture
def results(tmp_path, put):
    """The author's folder: two grades, scores of BM25 and, in another order, of SIM."""
    put("evaluation_scores/llm_scores.json", [GRADES, GRADES | {"bm25": 1}])
    bm25 = scores_file((["A.", "B."], ["0.125", "0.25"]), ([" C."], ["0.5"] + ["1"] * 11))
    put("evaluation_scores/ir_scores/scores_bm25.json", bm25)
    sim = scores_file((["C. "], ["0.75"]), (["B.", "A."], ["0.375"]))
    put("ir_scores/scores_sim.json.gz", gzip.compress(sim.encode()))
    return tmp_path


def test_grades_are_read_by_name(results):
    grades = thesis.load_thesis_grades(results)
    assert list(grades) == ["LLM only", "BM25", "SIM", "MMR", "MLQ", "REO"]
    assert grades.to_numpy().tolist() == [[4, 5, 3, 2, 4, 1], [4, 1, 3, 2, 4, 1]]


def test_scores_have_the_levels_that_the_text_reaches_and_at_most_ten(results):
    scores = thesis.load_thesis_scores("BM25", results)
    assert scores["facts"].tolist() == [("A.", "B."), (" C.",)]
    assert scores[200].tolist() == [Decimal("0.25"), 1]
    assert scores[300].tolist() == [None, 1]
    assert scores["last"].tolist() == [Decimal("0.25"), 1]  # of the second the tenth, not the last


def test_means_are_over_the_questions_that_reach_n_and_round_half_to_even(results):
    means = thesis.mean_thesis_scores(thesis.load_thesis_scores("BM25", results))
    # (.125 + .5) / 2 = .3125, (.25 + 1) / 2 = .625 -> .62 (half to even), then one question alone
    assert means["mean"].tolist() == [0.31, 0.62, *[1.0] * 8]
    assert means["n"].tolist() == [2, 2, *[1] * 8]
    assert means["N"].tolist() == [*range(100, 1001, 100)]


def test_rows_of_two_files_meet_by_their_facts(results):
    bm25 = thesis.load_thesis_scores("BM25", results)
    sim = thesis.load_thesis_scores("SIM", results)
    aligned = thesis.align_by_facts(sim, [*bm25["facts"], ("D.",)])
    assert aligned["last"].tolist() == [Decimal("0.375"), Decimal("0.75"), None]


def test_pages_and_chunks_are_read_as_they_are(put):
    pages = [{"title": "Mill", "text": "Old."}, {"title": "Mill", "text": "New."}]
    documents = thesis.load_thesis_documents(put("corpus_100k.json", pages))
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("Mill", "Mill", "Old."),
        ("Mill #2", "Mill", "New."),
    ]
    (chunk,) = thesis.load_thesis_chunks(put("corpus_chunks.json", [["Mill", " Old."]]))
    assert (chunk.doc_id, chunk.text, chunk.title) == ("Mill", " Old.", "Mill")


def test_what_is_not_there_and_what_is_damaged_is_named(tmp_path, put):
    with refused(NotHereError, r"LLM_scores\.json is not in "):
        thesis.load_thesis_grades(tmp_path)
    put("LLM_scores.json", [GRADES, GRADES | {"mmr": 6}])
    with refused(DataError, r"row 1.* 6\n.*less than or equal to 5"):
        thesis.load_thesis_grades(tmp_path)
    cut = scores_file((["A."], ["0.5"]))[:-20]
    put("scores_mmr.json", cut)
    with refused(DataError, r"scores_mmr\.json cannot be read"):
        thesis.load_thesis_scores("MMR", tmp_path)
    put("scores_mmr.json", scores_file((["A."], ["0.5"])).replace('"all_P": [', '"all_P": [[], '))
    with refused(DataError, "1 rows of scores and 2 of facts"):
        thesis.load_thesis_scores("MMR", tmp_path)


def test_readings_of_figure_3_1_come_with_the_package():
    readings = rb.data.load_figure_3_1()
    counts = readings["grades"].value_counts().to_dict()
    assert counts == {"2,3,4": 3688, "5": 3139, "1": 573}
    assert readings["ir_score"].between(0, 1).all()
