"""The evidence experiment of notebook 94: what stands in the prompt of each condition."""

import pytest

import recorded
from ragbench.data import load_minihop
from ragbench.metrics.ir_score import ir_score
from recorded import (
    BOTH,
    DISTRACTED,
    EVIDENCE,
    FIRST,
    NEITHER,
    SECOND,
    evidence_passages,
)


@pytest.fixture(scope="module")
def minihop():
    return load_minihop()


@pytest.fixture(scope="module")
def passages(minihop):
    questions = recorded.grid_experiment("smollm2", "evidence").data["minihop"].questions[:25]
    return [(question, evidence_passages(question, minihop)) for question in questions]


def test_only_questions_with_exactly_two_documents_are_asked(minihop, passages):
    assert {len(question.meta["doc_ids"]) for question, _ in passages} == {2}
    assert {len(question.meta["doc_ids"]) for question in minihop.questions} > {2}


def test_half_of_the_evidence_holds_that_half_and_both_hops_all_of_it(passages):
    for question, conditions in passages:
        text = {
            name: " ".join(passage.text for passage in shown) for name, shown in conditions.items()
        }
        score = {
            name: ir_score(question.references, context, match="exact")
            for name, context in text.items()
        }
        first, second = question.meta["doc_ids"]
        assert score[BOTH] == 1 > max(score[FIRST], score[SECOND])
        assert score[NEITHER] < min(score[FIRST], score[SECOND]) or score[NEITHER] < 0.3
        assert text[FIRST].startswith(f"{first}. ")
        assert text[SECOND].startswith(f"{second}. ")
        assert text[BOTH] == f"{text[FIRST]} {text[SECOND]}"


def test_namesakes_are_other_documents_that_do_not_hold_the_answer(passages, minihop):
    full = {document.title: document.text for document in minihop.documents}
    for question, conditions in passages:
        titles = {passage.title for passage in conditions[NEITHER]}
        assert len(titles) == 2
        assert not titles & set(question.meta["doc_ids"])
        if question.answer not in ("yes", "no"):
            assert all(question.answer not in full[title] for title in titles)


def test_the_distracted_conditions_add_the_same_two_namesakes_around_the_evidence(passages):
    for _, conditions in passages:
        before, after = conditions[NEITHER]
        for plain, distracted in zip(EVIDENCE[1:], DISTRACTED, strict=True):
            assert conditions[distracted] == [before, *conditions[plain], after]


def test_a_condition_finds_what_is_assigned_in_that_order_and_at_most_k():
    experiment = recorded.grid_experiment("smollm2", "distracted")
    data = experiment.data["minihop"]
    build = experiment.retriever[DISTRACTED[2]]
    assigned = build.keywords["documents"]
    found = build(experiment.chunker["documents"](data.documents))
    queries = [question.text for question in data.questions[:3]]
    hits = found.search(queries, 3)
    assert [[hit.chunk.doc_id for hit in one] for one in hits] == [
        assigned[query][:3] for query in queries
    ]
    assert [hit.rank for hit in hits[0]] == [1, 2, 3]


def test_the_grids_ask_each_question_once_alone_and_once_a_condition():
    cells = recorded.grid_experiment("smollm2", "evidence").cells("minihop")
    assert [(cell.retriever, cell.N) for cell in cells] == [
        ("LLM only", 0), *((name, recorded.ALL_OF_GOLD) for name in EVIDENCE),
    ]  # fmt: skip
    distracted = recorded.grid_experiment("smollm2", "distracted").cells("minihop")
    assert {cell.retriever for cell in distracted} == {"LLM only", *DISTRACTED}
