"""Notebook 97: planted errors by hand, and what it says of a number that sees them, or does not."""

import random

import numpy as np
import pytest
from notebook_parts import parts

import planting
from ragbench.records import Document

BOOK = parts("97")
SENTENCES = {
    "Ann Lee": ("Ann Lee built a mill in 1841.", "She had three sons.", "Her house is in Ely."),
    "Sue Roe": ("Sue Roe bought the mill of Ann Lee.", "She sold it in 1850."),
    "Eve Low": ("Eve Low wove wool.", "She came from Ulm."),
    "Tom Low": ("Tom Low was a baker.", "He died in 1900."),
    "Ely (city)": ("Ely has a cathedral.", "It is small."),
}
FACTS = ["Ann Lee built a mill in 1841.", "Sue Roe bought the mill of Ann Lee."]


DOCUMENTS = {}
for title, sentences in SENTENCES.items():
    name = title.split(" (")[0]
    DOCUMENTS[name] = Document(name, title, " ".join(sentences), sentences, {"topic": "x"})


def planted(error, answer="Sue Roe bought it from Ann Lee.", facts=FACTS, others=(), seed=0):
    case = planting.Case(
        answer,
        "Sue Roe",
        list(facts),
        ["Ann Lee", "Sue Roe", "Ely"],
        list(others),
        random.Random(seed),
        DOCUMENTS,
        planting.kinds_of(DOCUMENTS),
    )
    return planting.ERRORS[error][2](case)


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        ("another date", "It was sold in Ely.", None),
        ("another number", "Toy Story 2 came in 1841.", None),
        ("negation", "The mill was sold.", "The mill was not sold."),
        ("negation", "She died in Ely.", "She did not die in Ely."),
        ("negation", "The mill was never sold.", None),
        ("hops exchanged", "Sue Roe bought it from Ann Lee.", "Ann Lee bought it from Sue Roe."),
        ("hops exchanged", "Roe outlived Lee.", "Lee outlived Roe."),
        ("hops exchanged", "Sue Roe and Ann Lee did.", None),
        ("another name", "Sue Roe did.", "Eve Low did."),
        ("another name", "It was Roe.", "It was Low."),
        ("second half dropped", "The one who bought it was Sue Roe.", "The one who bought"),
        ("second half dropped", "Sue Roe is the one who bought it.", None),
        ("said twice", "It rained. Sue Roe did it", "It rained. Sue Roe did it. Sue Roe did it."),
        ("word order", "The mill opened in May 1841.", "In May 1841, the mill opened."),
        ("word order", "The buyer was Sue Roe.", "Sue Roe was the buyer."),
        ("lower case", "Sue Roe", "sue roe"),
        ("in German", "It was she.", "Die richtige Antwort lautet: Sue Roe."),
        ("in German", "It was she. It rained.", None),
        ("paraphrase", "It was she.", None),
    ],
)
def test_an_error_is_planted_as_worked_out_by_hand(error, before, after):
    assert planted(error, before) == after


def test_a_false_sentence_is_one_of_the_documents_with_an_error():
    text = planted("false sentence", "Sue Roe did.", facts=["She had three sons."])
    assert text.startswith("Sue Roe did. Ann Lee built a mill in ")
    assert "1841" not in text


def test_a_date_and_a_number_become_others_and_nothing_else_changes():
    for seed in range(20):
        year = planting.another_year("It opened in 1841, not in 1850.", random.Random(seed))
        assert year.endswith(", not in 1850.")
        assert 3 <= abs(int(year[13:17]) - 1841) <= 25
        count = planting.another_number("She had three sons.", random.Random(seed)).split()
        assert count[:2] + count[3:] == ["She", "had", "sons."]
        assert count[2] in set(planting.COUNTS) - {"three"}


def test_retrieved_documents_are_removed_doubled_moved_and_joined_by_a_namesake():
    assert {name: planted(name) for name in planting.OF_CHUNKS} == {
        "gold chunk removed": ["Ann Lee", "Ely"],
        "gold chunk doubled": ["Ann Lee", "Ann Lee", "Sue Roe", "Ely"],
        "namesake added": ["Ann Lee", "Sue Roe", "Ely", "Eve Low"],  # of the same kind: a she
        "gold chunks last": ["Ely", "Ann Lee", "Sue Roe"],
    }


def test_the_change_is_said_in_words():
    assert BOOK.change("It was sold.", "It was not sold.") == "(nothing) -> not"
    assert BOOK.change("in 1841 there", "in 1850 there") == "1841 -> 1850"


@pytest.mark.parametrize(
    ("claim", "worse", "p", "said"),
    [
        ("wrong", 0.3, 0.01, "sees"),
        ("wrong", 0.3, 0.2, "blind"),
        ("less", 0.04, 0.01, "hardly"),
        ("padded", -0.3, 0.01, "fooled"),
        ("same", 0.3, 0.01, "false alarm"),
        ("same", -0.3, 0.01, "false alarm"),
        ("same", 0.04, 0.01, "steady"),
        ("same", 0.3, 0.2, "steady"),
    ],
)
def test_the_verdict_of_a_change(claim, worse, p, said):
    assert BOOK.verdict_of({"claim": claim, "worse": worse, "p_holm": p, "n": 9}) == said
    assert (
        BOOK.verdict_of({"claim": claim, "worse": np.nan, "p_holm": np.nan, "n": 0}) == "undefined"
    )
