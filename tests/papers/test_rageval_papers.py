"""RAGEval's published cells, which add up where the paper's do, and its generators' table."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from fake_ollama import FakeOllama
from notebook_parts import parts

from ragbench import papers
from ragbench.metrics.keypoints import VERDICTS
from ragbench.paths import packaged_data
from ragbench.prompts import prompt_hash
from ragbench.records import Answer, Question

BOOK = parts("41")


def wide(item):
    return papers.published("rageval", item).pivot(index="row", columns="column", values="value")


def test_every_table_and_figure_is_there():
    tables = {f"Table {n}" for n in range(1, 7)} | {f"Figure {n}" for n in range(3, 7)}
    assert tables <= set(papers._published_items("rageval"))


def test_table_1_adds_up_to_a_hundred_percent_and_216_documents():
    table = wide("Table 1")
    sums = table[["documents", "share of questions", "share by reference count"]].sum()
    assert sums.tolist() == pytest.approx([216, 100, 100])
    assert table["questions"].dropna().to_dict() == {"All": 6711}


def test_table_3_rows_add_up_to_one_but_for_gpt_4o_in_chinese():
    table = wide("Table 3")
    assert table.shape == (8, 8)
    for language, expected in {"CN": {"GPT-4o": 0.9956}, "EN": {}}.items():
        total = keypoints_total(table, language)
        assert total[(total - 1).abs() > 0.0012].round(4).to_dict() == expected
    rouge_l = table[["Rouge-L CN", "Rouge-L EN"]]
    assert rouge_l.idxmax().eq("Baichuan-2-7B-chat").all()
    assert rouge_l.sum().round(4).tolist() == [1.8539, 1.9077]


def keypoints_total(table, language):
    names = ("Completeness", "Hallucination", "Irrelevance")
    return sum(table[f"{name} {language}"] for name in names)


def test_table_4_has_forty_cells_and_the_text_disagrees_with_three_of_them():
    table = wide("Table 4")
    text = wide("Section 5.3")
    assert table.size == 40
    sums = {
        "Recall": [2.869, 2.8508],
        "EIR": [0.1838, 0.5139],
        "Completeness": [2.4413, 2.7203],
        "Hallucination": [1.009, 0.4689],
        "Irrelevance": [0.5491, 0.8109],
    }
    for name, both in sums.items():
        assert table[[f"{name} CN", f"{name} EN"]].sum().round(4).tolist() == both
    assert ((keypoints_total(table, "CN") - 1).abs() < 0.0060).all()
    assert (table.loc["BGE-M3", text.columns] != text.loc["BGE-M3"]).all()


def test_table_5_repeats_retrieval_but_not_generation_where_the_setting_is_the_same():
    table = wide("Table 5")
    assert table.size == 60
    both = table.loc[["TopK 2", "Chunk-TopK 512-2"]]
    assert both.filter(regex="^(Recall|EIR)").nunique().eq(1).all()
    assert both["Completeness CN"].tolist() == [0.5004, 0.4932]
    for language in ("CN", "EN"):
        assert ((keypoints_total(table, language) - 1).abs() < 0.0006).all()


def test_table_2_and_table_6():
    assert wide("Table 2").stack().sum() == pytest.approx(29.01)
    assert wide("Table 6")["group"].value_counts().to_dict() == {
        "Single-document QA": 3,
        "Multi-document QA": 3,
        "Unanswerable Questions": 1,
    }


POINTS = ("1. It rose.", "2) It fell.", "It stayed.")


def question(number, keypoints=POINTS):
    return Question(
        f"q{number}",
        f"Question {number}?",
        "It rose. It fell.",
        ("It rose.",),
        "factual",
        "",
        {"domain": "finance", "language": "en", "doc_ids": ("d1",), "keypoints": keypoints},
    )


def recorded_answer(number, *passages):
    return Answer(f"q{number}", "GPT's answer.", "gpt-4o", meta={"passages": passages})


def test_a_model_answers_from_the_recorded_passages_under_the_papers_limit():
    recorded = recorded_answer(1, "(Marn) A.", "(Voss) B.")
    with FakeOllama(reply=lambda body: "It rose. " * 400) as server:
        (answer,) = BOOK.answer_recorded(server.model(), [question(1)], [recorded])
    (call,) = server.calls
    assert "Passages:\n(Marn) A.\n\n(Voss) B.\n\nQuestion: Question 1?" in call.prompt
    assert call.body["options"]["num_predict"] == 256
    assert answer.meta["prompt_sha256"] == prompt_hash("rageval_answer_en")
    # cut, and kept as in the paper
    assert (answer.meta["finish"], answer.text[:9]) == ("length", "It rose. ")


def test_key_points_are_judged_one_by_one_without_their_numbers():
    verdicts = {"1. It rose.": "covered", "1. It fell.": "contradicted", "1. It stayed.": "neither"}

    def reply(body):
        (verdict,) = (verdicts[point] for point in verdicts if point in str(body["messages"]))
        return json.dumps({"labels": [verdict]})

    with FakeOllama(reply=reply) as server:
        result = BOOK.point_verdicts(server.model(), [question(1)], ["It rose. It did not fall."])
    assert result == [("covered", "contradicted", "neither")]
    assert len(server.calls) == 3
    prompts = "".join(call.prompt for call in server.calls)
    assert prompts.count("1. It rose.\n") == 1
    assert "2) It fell" not in prompts


def test_verdicts_are_counted_by_answer_with_the_unread_apart():
    table = BOOK.verdict_counts([["covered", "covered", "neither"], [None, "contradicted"], []])
    assert [*table] == ["covered", "contradicted", "neither", "unread"]
    assert table.to_numpy().tolist() == [[2, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]


def test_answers_become_rows_with_the_released_codes_rouge_l():
    answers = [Answer("q1", "It rose.", "m", meta={"finish": "stop"}), Answer("q2", "", "m")]
    rows = BOOK.answer_rows([question(1), question(2)], answers)
    # Distinct words: "It rose" of "It rose, It fell", 2 of 2 and of 3 words.
    f1 = 2 * (2 / 2) * (2 / 3) / (2 / 2 + 2 / 3)
    assert rows["rouge_l"].tolist() == pytest.approx([f1, math.nan], nan_ok=True)
    assert rows[["words", "document"]].to_numpy().tolist() == [[2, "d1"], [0, "d1"]]


def of_kind(number, kind, answer):
    return replace(question(number), kind=kind, answer=answer)


def test_another_questions_true_answer_is_the_next_one_of_its_kind():
    kinds = ("factual", "summary", "factual", "factual", "summary")
    questions = [of_kind(n, kind, answer) for n, (kind, answer) in enumerate(zip(kinds, "abcde"))]  # noqa: B905
    assert "".join(BOOK.answers_of_others(questions)) == "cedab"


def test_one_key_point_of_each_drawn_answerable_question_is_a_control():
    questions = [of_kind(n, ("factual", "unanswerable")[n % 2], "a") for n in range(40)]
    drawn = BOOK.stray_points(questions, 9)
    assert len(drawn) == 9
    assert all(place % 2 == 0 and point in POINTS for place, point in drawn.items())
    assert len(set(drawn.values())) > 1
    assert drawn == BOOK.stray_points(questions, 9)
    assert drawn != BOOK.stray_points(questions, 9, seed=1)
    assert len(BOOK.stray_points(questions)) == 20


def test_a_finance_table_judges_four_answers_and_holds_no_text():
    def reply(body):
        if not body.get("format"):
            return "It rose."
        said = body["messages"][0]["content"].split("Answer of the system:\n")[1].split("\n")[0]
        return json.dumps({"labels": ["covered" if "fell" in said else "neither"]})

    kinds = ("factual", "factual", "unanswerable")  # the last has no control
    questions = [of_kind(number, kind, "It fell.") for number, kind in enumerate(kinds)]
    recorded = [recorded_answer(number, "(Marn) A.") for number in range(3)]
    with FakeOllama(reply=reply) as server:
        table = BOOK.finance_table(server.model(), questions, recorded)
    expected = {
        "true covered": [3, 3, 3],
        "other covered": [1, 1, 0],
        "recorded neither": [3, 3, 3],
        "own neither": [3, 3, 3],
        "words": [2, 2, 2],
        "recorded words": [2, 2, 2],
    }
    assert table[[*expected]].to_dict("list") == expected
    assert "It " not in table.to_csv()


def test_the_shipped_table_has_scores_and_counts_and_no_text():
    table = pd.read_csv(packaged_data("recordings", "rageval_finance.csv"))
    assert len(table) == table["question_id"].nunique() == 350
    assert table[["rouge_l", "recorded rouge_l"]].stack().between(0, 1).all()
    assert table[table["kind"] != "unanswerable"]["recorded rouge_l"].mean() == pytest.approx(
        0.2749, abs=5e-5
    )
    # repeating the question beats GPT-4o's answers: the measure does not show what a model can do
    answerable = table[table["kind"] != "unanswerable"]
    assert answerable["echo rouge_l"].mean() == pytest.approx(0.3463, abs=5e-5)
    for whose, counts in (("true", [967, 109, 0]), ("other", [43, 17, 0])):
        assert table[[f"{whose} {v}" for v in VERDICTS]].sum().tolist() == counts
    assert set(table.select_dtypes(exclude="number")) == {"kind", "finish"}


def test_recorded_scores_of_the_chinese_half_cover_its_questions_and_e5_leads_where_the_docs_say_so():
    recorded = pd.read_csv(packaged_data("recordings", "rageval_dense.csv.gz"))
    assert recorded.groupby(["retriever", "setting"])["question_id"].nunique().eq(2134).all()
    assert recorded["document"].nunique() == 40
    five = recorded[recorded["setting"] == "TopK 5"]
    mean = five.pivot_table("recall", "kind", "retriever")
    lead = mean["E5-small"] - mean["BM25"]
    assert lead.pop("numerical comparison") < 0
    assert (lead.drop("unanswerable") > 0).all()


@pytest.mark.data
@pytest.mark.slow
def test_the_recorded_scores_of_bm25_are_those_that_are_measured_now():
    rageval = parts("42")
    dragonball = rageval.dragonball("zh")
    settings = {"TopK 5": rageval.SETTINGS["TopK 5"]}
    now = rageval.retrieval_rows(dragonball, {"BM25": rageval.bm25("zh")}, settings, prefix=[True])
    recorded = pd.read_csv(packaged_data("recordings", "rageval_dense.csv.gz"))
    then = recorded.query("retriever == 'BM25' and setting == 'TopK 5'").set_index("question_id")
    now = now.set_index("question_id").loc[then.index]
    pd.testing.assert_frame_equal(now[["recall", "eir"]], then[["recall", "eir"]], atol=1e-6)


def test_of_a_key_point_only_the_number_before_it_is_taken_off(monkeypatch):
    monkeypatch.setattr(BOOK.rb, "keypoint_verdicts", lambda model, q, r, points, **_: points)
    written = ("1. In March 2018 revenue rose 20 percent.", "2) None.", "2018 was a good year.")
    question = Question("q", "Why?", "", meta={"keypoints": written})
    (points,) = BOOK.point_verdicts(None, [question], ["So."])
    assert points == ["In March 2018 revenue rose 20 percent.", "None.", written[2]]
