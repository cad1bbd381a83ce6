"""RAGEval's published cells, which add up where the paper's do, and its generators' table."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from fake_ollama import FakeOllama
from notebook_parts import parts

from ragbench import papers
from ragbench.llm import chat_model
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
    assert table["documents"].sum() == 216
    assert table["share of questions"].sum() == pytest.approx(100.0)
    assert table["share by reference count"].sum() == pytest.approx(100.0)
    assert table["questions"].dropna().to_dict() == {"All": 6711}


def test_table_3_rows_add_up_to_one_but_for_gpt_4o_in_chinese():
    table = wide("Table 3")
    assert table.shape == (8, 8)
    for language in ("CN", "EN"):
        total = sum(
            table[f"{m} {language}"] for m in ("Completeness", "Hallucination", "Irrelevance")
        )
        off = total[(total - 1).abs() > 0.0012].round(4).to_dict()
        assert off == ({"GPT-4o": 0.9956} if language == "CN" else {})
    assert table["Rouge-L CN"].idxmax() == table["Rouge-L EN"].idxmax() == "Baichuan-2-7B-chat"
    assert table[["Rouge-L CN", "Rouge-L EN"]].sum().round(4).to_dict() == {
        "Rouge-L CN": 1.8539,
        "Rouge-L EN": 1.9077,
    }


def test_table_4_has_forty_cells_and_the_text_disagrees_with_three_of_them():
    table = wide("Table 4")
    text = wide("Section 5.3")
    assert table.size == 40
    generated = ["Completeness CN", "Completeness EN", "Hallucination CN", "Hallucination EN"]
    generated += ["Irrelevance CN", "Irrelevance EN"]
    sums = table.sum().round(4)
    assert sums[["Recall CN", "Recall EN", "EIR CN", "EIR EN"]].tolist() == [
        2.869,
        2.8508,
        0.1838,
        0.5139,
    ]
    assert sums[generated].tolist() == [2.4413, 2.7203, 1.009, 0.4689, 0.5491, 0.8109]
    generation = sum(table[f"{m} CN"] for m in ("Completeness", "Hallucination", "Irrelevance"))
    assert ((generation - 1).abs() < 0.0060).all()
    assert (table.loc["BGE-M3", text.columns] != text.loc["BGE-M3"]).all()


def test_table_5_repeats_retrieval_but_not_generation_where_the_setting_is_the_same():
    table = wide("Table 5")
    assert table.size == 60
    same = table.loc["TopK 2"]
    again = table.loc["Chunk-TopK 512-2"]
    retrieval = [c for c in table if c.startswith(("Recall", "EIR"))]
    assert (same[retrieval] == again[retrieval]).all()
    assert (same["Completeness CN"], again["Completeness CN"]) == (0.5004, 0.4932)
    for language in ("CN", "EN"):
        total = sum(
            table[f"{m} {language}"] for m in ("Completeness", "Hallucination", "Irrelevance")
        )
        assert ((total - 1).abs() < 0.0006).all(), total


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
    with FakeOllama(reply=lambda body: "It rose. " * 400) as server:
        model = chat_model("ollama:llama3:8b", host=server.url)
        (answer,) = BOOK.answer_recorded(
            model, [question(1)], [recorded_answer(1, "(Marn) A.", "(Voss) B.")]
        )
    (call,) = server.calls
    assert "Passages:\n(Marn) A.\n\n(Voss) B.\n\nQuestion: Question 1?" in call.prompt
    assert call.body["options"]["num_predict"] == 256
    assert answer.meta["prompt_sha256"] == prompt_hash("rageval_answer_en")
    # cut, and kept as in the paper
    assert (answer.meta["finish"], answer.text[:9]) == ("length", "It rose. ")


def test_key_points_are_judged_one_by_one_without_their_numbers():
    def reply(body):
        prompt = str(body["messages"])
        verdict = (
            "covered"
            if "1. It rose." in prompt
            else "contradicted"
            if "1. It fell." in prompt
            else "neither"
        )
        return json.dumps({"labels": [verdict]})

    with FakeOllama(reply=reply) as server:
        model = chat_model("ollama:llama3:8b", host=server.url)
        result = BOOK.point_verdicts(model, [question(1)], ["It rose. It did not fall."])
        prompts = [call.prompt for call in server.calls]
    assert result == [("covered", "contradicted", "neither")]
    assert len(prompts) == 3
    assert sum("1. It rose.\n" in prompt for prompt in prompts) == 1
    assert not any("2) It fell" in prompt for prompt in prompts)


def test_verdicts_are_counted_by_answer_with_the_unread_apart():
    table = BOOK.verdict_counts([["covered", "covered", "neither"], [None, "contradicted"], []])
    assert table.to_numpy().tolist() == [[2, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]
    assert list(table) == ["covered", "contradicted", "neither", "unread"]


def test_answers_become_rows_with_the_released_codes_rouge_l():
    answers = [Answer("q1", "It rose.", "m", meta={"finish": "stop"}), Answer("q2", "", "m")]
    rows = BOOK.answer_rows([question(1), question(2)], answers)
    # Distinct words: "It rose" of "It rose, It fell", 2 of 2 and of 3 words.
    assert rows["rouge_l"].tolist()[0] == pytest.approx(2 * (2 / 2) * (2 / 3) / (2 / 2 + 2 / 3))
    assert math.isnan(rows["rouge_l"][1])
    assert rows[["words", "document"]].to_numpy().tolist() == [[2, "d1"], [0, "d1"]]


def of_kind(number, kind, answer):
    return replace(question(number), kind=kind, answer=answer)


def test_another_questions_true_answer_is_the_next_one_of_its_kind():
    kinds = [
        ("factual", "a"),
        ("summary", "b"),
        ("factual", "c"),
        ("factual", "d"),
        ("summary", "e"),
    ]
    questions = [of_kind(number, *each) for number, each in enumerate(kinds)]
    assert list(BOOK.answers_of_others(questions)) == ["c", "e", "d", "a", "b"]


def test_one_key_point_of_each_drawn_answerable_question_is_a_control():
    questions = [
        of_kind(number, "unanswerable" if number % 2 else "factual", "a") for number in range(40)
    ]
    drawn = BOOK.stray_points(questions, 9)
    assert len(drawn) == 9
    assert all(place % 2 == 0 and point in POINTS for place, point in drawn.items())
    assert len(set(drawn.values())) > 1
    assert drawn == BOOK.stray_points(questions, 9)
    assert drawn != BOOK.stray_points(questions, 9, seed=1)
    assert len(BOOK.stray_points(questions)) == 20


def test_a_finance_table_judges_four_answers_and_holds_no_text():
    def reply(body):
        prompt = body["messages"][0]["content"]
        if "format" not in body or not body["format"]:
            return "It rose."
        said = prompt.split("Answer of the system:\n")[1].split("\n")[0]
        return json.dumps({"labels": ["covered" if "fell" in said else "neither"]})

    questions = [of_kind(1, "factual", "It fell."), of_kind(2, "factual", "It fell.")]
    questions.append(of_kind(3, "unanswerable", "It fell."))  # no control
    recorded = [recorded_answer(number, "(Marn) A.") for number in (1, 2, 3)]
    with FakeOllama(reply=reply) as server:
        model = chat_model("ollama:llama3:8b", host=server.url)
        table = BOOK.finance_table(model, questions, recorded)
    assert table["true covered"].tolist() == [3] * 3
    assert table["other covered"].tolist() == [1, 1, 0]
    assert table["recorded neither"].tolist() == table["own neither"].tolist() == [3] * 3
    assert table[["words", "recorded words"]].to_numpy().tolist() == [[2, 2]] * 3
    assert not any("It " in str(value) for value in table.to_numpy().ravel())


def test_the_shipped_table_has_scores_and_counts_and_no_text():
    table = pd.read_csv(packaged_data("recordings", "rageval_finance.csv"))
    assert len(table) == table["question_id"].nunique() == 350
    assert table[["rouge_l", "recorded rouge_l"]].stack().between(0, 1).all()
    assert table[table["kind"] != "unanswerable"]["recorded rouge_l"].mean() == pytest.approx(
        0.2749, abs=5e-5
    )
    for whose, counts in (("true", [967, 109, 0]), ("other", [43, 17, 0])):
        assert table[[f"{whose} {v}" for v in VERDICTS]].sum().tolist() == counts
    assert set(table.select_dtypes(exclude="number")) == {"kind", "finish"}


def test_recorded_scores_of_the_chinese_half_cover_its_questions_and_e5_leads_where_the_docs_say_so():
    recorded = pd.read_csv(packaged_data("recordings", "rageval_dense.csv.gz"))
    assert recorded.groupby(["retriever", "setting"])["question_id"].nunique().eq(2134).all()
    assert recorded["document"].nunique() == 40
    mean = (
        recorded[recorded["setting"] == "TopK 5"]
        .groupby(["kind", "retriever"])["recall"]
        .mean()
        .unstack()
    )
    assert (mean["E5-small"] < mean["BM25"])["numerical comparison"]
    assert (mean["E5-small"] > mean["BM25"]).drop(["numerical comparison", "unanswerable"]).all()


@pytest.mark.data
@pytest.mark.slow
def test_the_recorded_scores_of_bm25_are_those_that_are_measured_now():
    rageval = parts("42")
    dragonball = rageval.dragonball("zh")
    settings = {"TopK 5": rageval.SETTINGS["TopK 5"]}
    now = rageval.retrieval_rows(dragonball, {"BM25": rageval.bm25("zh")}, settings, prefix=[True])
    recorded = pd.read_csv(packaged_data("recordings", "rageval_dense.csv.gz"))
    then = recorded[
        (recorded["retriever"] == "BM25") & (recorded["setting"] == "TopK 5")
    ].set_index("question_id")
    now = now.set_index("question_id").loc[then.index]
    pd.testing.assert_frame_equal(now[["recall", "eir"]], then[["recall", "eir"]], atol=1e-6)


def test_of_a_key_point_only_the_number_before_it_is_taken_off(monkeypatch):
    monkeypatch.setattr(BOOK.rb, "keypoint_verdicts", lambda model, q, r, points, **_: points)
    written = ("1. In March 2018 revenue rose 20 percent.", "2) None.", "2018 was a good year.")
    question = Question("q", "Why?", "", meta={"keypoints": written})
    (points,) = BOOK.point_verdicts(None, [question], ["So."])
    assert points == ["In March 2018 revenue rose 20 percent.", "None.", written[2]]
