"""Sets of WikiEval's shape: from MiniHop by rule, from pages with a model on the loopback."""

from __future__ import annotations

import random
import re

import pytest
from fake_ollama import FakeOllama

from ragbench.data import load_minihop
from ragbench.datagen import ragas_pairs
from ragbench.datagen.ragas_pairs import _INCOMPLETE, _back_linked, exchanged
from ragbench.errors import DataError
from ragbench.llm import chat_model
from ragbench.records import Document
from ragbench.text.sentences import split_sentences

QUIET = {"progress": False, "retries": 0}


@pytest.fixture(scope="module")
def made():
    return ragas_pairs.minihop_ragas_set()


def test_there_is_a_row_per_long_answer_and_all_texts_differ(made):
    assert len(made) == 65
    for row in made:
        assert len({row.answer, row.ungrounded_answer, row.poor_answer}) == 3
        assert row.question
        assert row.poor_answer


def test_the_padded_context_is_the_focused_one_and_sentences_of_other_documents(made):
    documents = {d.title: d for d in load_minihop().documents}
    for row in made:
        assert row.context_v2[:-1] == row.context_v1
        gold = row.source.split(", ")
        own = [s.strip() for t, d in documents.items() if t in gold for s in d.sentences]
        known = {s.strip() for t, d in documents.items() if t not in gold for s in d.sentences}
        added = row.context_v2[-1]
        assert not any(s in added for s in own)
        assert sum(s in added for s in known) >= round(0.5 * len(own))


def test_the_ungrounded_answer_has_names_or_numbers_that_the_context_lacks_from_other_documents_of_the_topic(made):
    documents = load_minihop().documents
    topics = {d.title: d.meta["topic"] for d in documents}
    for row in made:
        context = " ".join(row.context_v1)
        numbers = set(re.findall(r"\d+", row.ungrounded_answer)) - set(re.findall(r"\d+", context + row.question))
        names = set(re.findall(r"(?<=[a-z] )[A-Z]\w+", row.ungrounded_answer)) - set(re.findall(r"\w+", context))
        assert numbers or names, row.id
        gold = row.source.split(", ")
        near = " ".join(d.text for d in documents if d.meta["topic"] == topics[gold[0]] and d.title not in gold)
        names = set(re.findall(r"\b[A-Z]\w+", row.ungrounded_answer)) - set(re.findall(r"\w+", row.answer))
        assert names <= set(re.findall(r"\w+", near)), row.id


def test_incomplete_answers_come_in_three_kinds_in_turn(made):
    questions = {q.id: q for q in load_minihop().questions}
    assert [r.meta["incomplete"] for r in made.rows[:4]] == [*_INCOMPLETE, _INCOMPLETE[0]]
    for row in made:
        if row.meta["incomplete"] == "without the answer" and questions[row.id].answer in row.answer:
            assert questions[row.id].answer not in row.poor_answer
            poor, whole = (set(split_sentences(text, "en")) for text in (row.poor_answer, row.answer))
            assert poor < whole or len(row.poor_answer) < 45
        if row.meta["incomplete"] == "vague":
            assert not re.search(r"\d", row.poor_answer)


def test_the_set_is_the_same_twice_and_another_with_another_seed(made):
    assert ragas_pairs.minihop_ragas_set(limit=5).rows == made.rows[:5]
    assert ragas_pairs.minihop_ragas_set(limit=5, seed=1).rows != made.rows[:5]


def test_exchanged_names_are_new_and_the_same_throughout():
    others = ["He met Rosa Lee in Bergen and in Oslo."]
    told = "It was made by Ann in 1896. Later Ann sold it, and by Bob it was kept."
    text = exchanged(told, "Ann 1896", others, random.Random(0))
    assert "1896" not in text
    first, second = re.findall(r"by (.+?) (?:in|it)", text)
    assert {first, second} <= {"Rosa Lee", "Bergen", "Oslo"}
    assert first != second
    taken = " ".join(str(5 + n) for n in range(3, 40) if n != 20)
    assert exchanged("It has 5 clocks.", taken, others, random.Random(0)) == "It has 25 clocks."
    known = ["He met Ann Lee in Oslo."]
    made = {exchanged("It was made by Bob.", "Ann Lee was there", known, random.Random(seed)) for seed in range(8)}
    assert made == {"It was made by Oslo."}
    assert exchanged("Nothing to change here.", "", others, random.Random(0)) == "Nothing to change here."


PAGES = [
    Document("1", "Clock Tower", "The Clock Tower stands in Vadodara. It was finished in 1896."),
    Document("2", "Raopura", "Raopura is a market. The Clock Tower rises beside it. Trams ran there."),
    Document("3", "Moss", "Moss is green. It grows on stone."),
]


def test_padding_comes_first_from_sentences_that_mention_the_page_then_from_their_pages():
    assert _back_linked(PAGES[:1], PAGES, 1) == ["The Clock Tower rises beside it."]
    assert _back_linked(PAGES[:1], PAGES, 3)[1:] == ["Raopura is a market.", "Trams ran there."]
    assert _back_linked(PAGES[2:], PAGES, 3) == []
    assert _back_linked(PAGES[2:], PAGES, 1, reserve=PAGES[:1]) == ["The Clock Tower stands in Vadodara."]
    copy = Document("5", "Copy", "The Clock Tower is copied here. It was finished in 1896.")
    assert "It was finished in 1896." not in _back_linked(PAGES[:1], [*PAGES, copy], 9)
    similar = Document("4", "Tow", "Towers are tall.")
    assert _back_linked([similar], [*PAGES, similar], 2) == []


def reply(body):
    prompt = body["messages"][0]["content"]
    for opening, answer in {
        "Write one question from the context": "When was it finished?",
        "Use the information in the context": "In 1896.",
        "Answer the question.": "In 1900, I think.",
        "Give an incomplete answer": "Towers take time.",
        "Below is a text": "More moss. Still more.",
    }.items():
        if prompt.startswith(opening):
            return answer
    raise AssertionError(prompt[:60])


def test_four_calls_per_page_make_a_row_and_a_fifth_pads_a_page_that_nobody_mentions():
    with FakeOllama(reply=reply) as server:
        made = ragas_pairs.make_ragas_set(chat_model("ollama:llama3:8b", host=server.url), PAGES, **QUIET)
        prompts = [call.prompt for call in server.calls]
    assert len(made) == 3
    assert not made.failed
    tower, raopura, moss = made
    assert (tower.question, tower.answer) == ("When was it finished?", "In 1896.")
    assert tower.poor_answer == "Towers take time."
    assert tower.ungrounded_answer == "In 1900, I think."
    assert tower.context_v2 == (PAGES[0].text, "The Clock Tower rises beside it.")
    assert (tower.meta["padding"], moss.meta["padding"]) == ("back-links", "model")
    assert moss.context_v2 == (PAGES[2].text, "More moss. Still more.")
    # The ungrounded and the incomplete answer are written without the page.
    blind = [p for p in prompts if p.startswith(("Answer the question.", "Give an incomplete answer"))]
    assert blind
    assert not any("Vadodara" in p or "In 1896." in p for p in blind)
    assert all("When was it finished?" in p for p in blind)
    assert any(p.startswith("Use the information in the context") and "Vadodara" in p for p in prompts)
    assert len(prompts) == 4 * 3 + 2  # nobody mentions pages 2 and 3
    assert raopura.meta["padding"] == "model"


def test_a_page_whose_call_fails_is_left_out_and_listed():
    def sometimes(body):
        return "" if "Moss is green" in body["messages"][0]["content"] else reply(body)

    with FakeOllama(reply=sometimes) as server:
        made = ragas_pairs.make_ragas_set(chat_model("ollama:llama3:8b", host=server.url), PAGES, **QUIET)
    assert [row.id for row in made] == ["1", "2"]
    ((page, why),) = made.failed
    assert page == "3"
    assert why.startswith("question: ")


def test_an_empty_page_is_refused_before_any_call():
    with pytest.raises(DataError, match="page '9' has no text"):
        ragas_pairs.make_ragas_set(None, [Document("9", "Empty", " ")])
    with pytest.raises(DataError, match="no pages"):
        ragas_pairs.make_ragas_set(None, [])
