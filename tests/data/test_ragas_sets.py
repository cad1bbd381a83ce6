"""A set of WikiEval's shape, made from pages by a model on the loopback."""

from __future__ import annotations

import pytest
from fake_ollama import FakeOllama

from ragbench.datagen import ragas_pairs
from ragbench.datagen.ragas_pairs import _back_linked
from ragbench.errors import DataError
from ragbench.llm import chat_model
from ragbench.records import Document

QUIET = {"progress": False, "retries": 0}

PAGES = [
    Document("1", "Clock Tower", "The Clock Tower stands in Vadodara. It was finished in 1896."),
    Document(
        "2", "Raopura", "Raopura is a market. The Clock Tower rises beside it. Trams ran there."
    ),
    Document("3", "Moss", "Moss is green. It grows on stone."),
]


def test_padding_comes_first_from_sentences_that_mention_the_page_then_from_their_pages():
    assert _back_linked(PAGES[0], PAGES, 1) == ["The Clock Tower rises beside it."]
    assert _back_linked(PAGES[0], PAGES, 3)[1:] == ["Raopura is a market.", "Trams ran there."]
    assert _back_linked(PAGES[2], PAGES, 3) == []
    copy = Document("5", "Copy", "The Clock Tower is copied here. It was finished in 1896.")
    assert "It was finished in 1896." not in _back_linked(PAGES[0], [*PAGES, copy], 9)
    similar = Document("4", "Tow", "Towers are tall.")
    assert _back_linked(similar, [*PAGES, similar], 2) == []


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
        made = ragas_pairs.make_ragas_set(
            chat_model("ollama:llama3:8b", host=server.url), PAGES, **QUIET
        )
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
    blind = [
        p for p in prompts if p.startswith(("Answer the question.", "Give an incomplete answer"))
    ]
    assert blind
    assert not any("Vadodara" in p or "In 1896." in p for p in blind)
    assert all("When was it finished?" in p for p in blind)
    assert any(
        p.startswith("Use the information in the context") and "Vadodara" in p for p in prompts
    )
    assert len(prompts) == 4 * 3 + 2  # nobody mentions pages 2 and 3
    assert raopura.meta["padding"] == "model"


def test_a_page_whose_call_fails_is_left_out_and_listed():
    def sometimes(body):
        return "" if "Moss is green" in body["messages"][0]["content"] else reply(body)

    with FakeOllama(reply=sometimes) as server:
        made = ragas_pairs.make_ragas_set(
            chat_model("ollama:llama3:8b", host=server.url), PAGES, **QUIET
        )
    assert [row.id for row in made] == ["1", "2"]
    ((page, why),) = made.failed
    assert page == "3"
    assert why.startswith("question: ")


def test_an_empty_page_is_refused_before_any_call():
    with pytest.raises(DataError, match="page '9' has no text"):
        ragas_pairs.make_ragas_set(None, [Document("9", "Empty", " ")])
    with pytest.raises(DataError, match="no pages"):
        ragas_pairs.make_ragas_set(None, [])
