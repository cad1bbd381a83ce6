"""The evidence experiment: what stands in the prompt of each condition, and nothing but that."""

import re

import pytest

from ragbench import recordings
from ragbench.data import load_minihop
from ragbench.evidence import (
    BOTH,
    DISTRACTED,
    EVIDENCE,
    FIRST,
    NEITHER,
    SECOND,
    Assigned,
    passages,
    two_hop_questions,
)
from ragbench.metrics.ir_score import ir_score


@pytest.fixture(scope="module")
def minihop():
    return load_minihop()


@pytest.fixture(scope="module")
def asked(minihop):
    return two_hop_questions(recordings.in_order(minihop))[:25]


@pytest.fixture(scope="module")
def laid_out(asked, minihop):
    documents, assigned = passages(asked, minihop)
    return {document.id: document for document in documents}, assigned


def test_only_questions_with_exactly_two_documents_are_asked(minihop):
    asked = two_hop_questions(minihop.questions)
    assert 0 < len(asked) < len(minihop.questions)
    assert {len({title for title, _ in q.meta["supporting_facts"]}) for q in asked} == {2}


def test_half_of_the_evidence_holds_that_half_and_both_hops_all_of_it(asked, laid_out):
    documents, assigned = laid_out
    for question in asked:
        first, second = question.meta["doc_ids"]
        text = {
            name: " ".join(documents[i].text for i in table[question.text])
            for name, table in assigned.items()
        }
        score = {
            name: ir_score(question.references, context, match="exact")
            for name, context in text.items()
        }
        assert score[BOTH] == 1
        assert score[FIRST] < 1
        assert score[SECOND] < 1
        assert score[NEITHER] < min(score[FIRST], score[SECOND]) or score[NEITHER] < 0.3
        assert text[FIRST].startswith(f"{first}. ")
        assert text[SECOND].startswith(f"{second}. ")
        assert text[BOTH] == f"{text[FIRST]} {text[SECOND]}"


def test_namesakes_are_other_documents_that_do_not_hold_the_answer(asked, laid_out, minihop):
    _, assigned = laid_out
    full = {document.id: document.text for document in minihop.documents}
    for question in asked:
        names = [re.sub(r"#[\d,]+$", "", name) for name in assigned[NEITHER][question.text]]
        assert len(set(names)) == 2
        assert not set(names) & set(question.meta["doc_ids"])
        if question.answer not in ("yes", "no"):
            assert all(question.answer not in full[name] for name in names)


def test_the_distracted_conditions_add_the_same_two_namesakes_around_the_evidence(asked, laid_out):
    _, assigned = laid_out
    for question in asked:
        before, after = assigned[NEITHER][question.text]
        for plain, distracted in zip(EVIDENCE[1:], DISTRACTED, strict=True):
            assert assigned[distracted][question.text] == [
                before,
                *assigned[plain][question.text],
                after,
            ]


def test_a_condition_finds_what_is_assigned_in_that_order_and_at_most_k(asked, laid_out):
    documents, assigned = laid_out
    found = Assigned(
        recordings.whole_documents(documents.values()), documents=assigned[DISTRACTED[2]]
    )
    queries = [q.text for q in asked[:3]]
    hits = found.search(queries, 3)
    assert [[hit.chunk.doc_id for hit in one] for one in hits] == [
        assigned[DISTRACTED[2]][q][:3] for q in queries
    ]
    assert [hit.rank for hit in hits[0]] == [1, 2, 3]


def test_the_grids_ask_each_question_once_alone_and_once_a_condition():
    plain = recordings.grid_experiment("smollm2", "evidence")
    cells = plain.cells("minihop")
    assert [(cell.retriever, cell.N) for cell in cells] == [
        ("LLM only", 0), *((name, recordings.ALL_OF_GOLD) for name in EVIDENCE),
    ]  # fmt: skip
    distracted = recordings.grid_experiment("smollm2", "distracted").cells("minihop")
    assert {cell.retriever for cell in distracted} == {"LLM only", *DISTRACTED}
