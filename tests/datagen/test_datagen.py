"""What RAGEval's pipeline checks by strings, worked by hand, and the folder that a set is written
to.
"""

from dataclasses import replace

import pytest
from generated_parts import (
    CHAIRMAN,
    CONFIGURATIONS,
    DOCUMENTS,
    FACTUAL,
    LOST,
    REVENUE,
    SCHEMA,
    VOLE,
)

from ragbench import datagen
from ragbench.data import load_questions
from ragbench.datagen.checks import mentions, shared_words, states, unfounded_numbers
from ragbench.datagen.documents import _document, _value_fault
from ragbench.datagen.parts import Rejected, Unfit
from ragbench.datagen.questions import _check_answer, _check_keypoints, _check_unanswerable
from ragbench.errors import DataError

# What strings say


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [
        ("revenue of 80 million crowns.", "80 million crowns", True),
        ("revenue of 180 million crowns", "80 million crowns", False),
        ("revenue of 1,080 crowns", "080 crowns", False),
        ("it rose to 80.5", "80", False),
        ("it rose to 80.", "80", True),
        ("Tarn Trawlers grew", "tarn trawlers", True),
        ("Tarns grew", "Tarn", False),
        ("anything", "", False),
    ],
)
def test_a_value_is_stated_where_it_stands_whole(text, value, stated):
    assert mentions(text, value) is stated


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [
        ("It met on April 10, 2023.", "10 April 2023", True),
        ("It met on April 11, 2023.", "10 April 2023", False),
        (
            "It grew, as prices of fish were rising.",
            "rising fish prices of herring",
            True,
        ),  # 3 of 4 words
        ("It grew, as prices rose.", "rising fish prices", False),
        ("It had 5 ships.|The profit was 10 million crowns.", "5 million crowns", False),
        ("Fish were rising.|Prices followed.", "rising fish prices", True),
        ("Bo sat down.", "Bo", True),
        ("Boats sat down.", "Bo", False),
    ],
)
def test_a_value_is_stated_with_all_its_numbers_and_most_of_its_words(text, value, stated):
    assert states(text.split("|"), value) is stated


def test_numbers_are_read_with_thousands_and_decimals():
    assert unfounded_numbers("In 2020, 1,204 crates at 3.5 crowns; not A7.", "") == [
        2020,
        1204,
        3.5,
        7,
    ]


@pytest.mark.parametrize(
    ("text", "unfounded"),
    [
        ("80 and 6", []),
        ("86 together", []),  # 80 + 6
        ("74 more", []),  # 80 - 6
        ("twice 80 is 160", []),  # 80 + 80
        ("81 and 79", [81, 79]),
        ("no number", []),
    ],
)
def test_a_number_is_founded_when_the_source_has_it_or_a_sum_or_difference_of_two(text, unfounded):
    assert unfounded_numbers(text, "80 million and 6 million") == unfounded


def test_the_share_of_words_is_over_words_of_four_letters_and_more():
    assert shared_words("the profit fell sharply", "a profit that fell") == pytest.approx(2 / 3)
    assert shared_words("it is so", "nothing") == 1


# Values


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("2018", ""),
        ("Tarn Trawlers", "another field"),
        ("", "empty"),
        ("[amount]", "placeholder"),
        ("harrow vale", "seed document"),
        ("x" * 160, "cut off"),
    ],
)
def test_a_value_that_cannot_be_used_has_its_reason(value, fault):
    reason = _value_fault(value, ["Tarn Trawlers"], ["Harrow Vale grew in 2018."])
    assert fault in reason
    assert bool(reason) == bool(fault)


# Documents


def test_what_a_document_does_not_state_is_lost():
    texts = {"Results": "Vole Books had revenue of 50 million crowns. Its profit was 2 millions."}
    lost = _document(datagen.Writer(None), SCHEMA, VOLE, texts).lost
    assert lost == ("net_profit", "cause", "new_chairman", "meeting_date", "plan")
    unnamed = replace(VOLE, values={"company": "Vole Books", "revenue": "50 million crowns"})
    assert _document(datagen.Writer(None), SCHEMA, unnamed, texts).lost == lost


def test_the_text_of_a_document_has_its_title_headings_and_sentences():
    assert DOCUMENTS[0].text == (
        f"Tarn Trawlers\n\nResults\n{REVENUE} The cause was rising fish "
        f"prices.\n\nEvents\n{CHAIRMAN}"
    )


# Questions

COMPARED = replace(
    FACTUAL,
    id="finance-01 numerical comparison",
    kind="numerical comparison",
    question="How much more revenue had Tarn Trawlers than Vole Books?",
    statements=(
        "Tarn Trawlers had revenue of 80 million crowns.",
        "It had 30 million crowns more than Vole Books.",
    ),
    doc_ids=("finance-01", "finance-02"),
    references=(
        *FACTUAL.references,
        datagen.Reference(
            "finance-02", "Vole Books had revenue of 50 million crowns thanks to a popular atlas."
        ),
    ),
    keypoints=("Tarn Trawlers: 80.", "Vole Books has less.", "30 more."),
)


CHECK_OF = {
    "factual": _check_answer,
    "numerical comparison": _check_answer,
    "unanswerable": _check_unanswerable,
}


@pytest.mark.parametrize("question", [FACTUAL, LOST, COMPARED], ids=lambda question: question.kind)
def test_a_question_without_a_fault_passes(question):
    CHECK_OF[question.kind](question)
    _check_keypoints(question)


@pytest.mark.parametrize(
    ("check", "question", "change", "reason"),
    [
        (_check_answer, FACTUAL, {"statements": ()}, "no statement of the answer is left"),
        (_check_answer, FACTUAL, {"references": ()}, "no reference of a document"),
        (_check_answer, COMPARED, {"references": FACTUAL.references}, "no reference of a document"),
        (
            _check_answer,
            FACTUAL,
            {"statements": ("Revenue was 90 million.",)},
            "a number that is in no reference",
        ),
        (
            _check_answer,
            FACTUAL,
            {"statements": ("Shareholders welcomed growing exports.",)},
            "a statement with few words of the references",
        ),
        (
            _check_keypoints,
            FACTUAL,
            {"keypoints": ("Revenue of 90.",)},
            "a key point with a number that the answer lacks",
        ),
        (
            _check_unanswerable,
            LOST,
            {"question": "What is the revenue of Tarn Trawlers?"},
            "the question asks for no fact that was lost",
        ),
        (
            _check_unanswerable,
            LOST,
            {"statements": ("It plans 3 ships.",)},
            "an answer to a question that has none",
        ),
    ],
)
def test_a_question_with_a_fault_is_unfit(check, question, change, reason):
    with pytest.raises(Unfit) as fault:
        check(replace(question, **change))
    assert fault.value.reason == reason


# The set

SET = datagen.GeneratedSet(
    SCHEMA,
    CONFIGURATIONS,
    DOCUMENTS,
    (FACTUAL, COMPARED, LOST),
    (Rejected("x", "check", "why", "seen"),),
)


def test_a_set_is_a_data_set_with_levels_references_and_key_points():
    data = SET.dataset()
    assert [question.level for question in data.questions] == [
        "one document",
        "several documents",
        "one document",
    ]
    assert data.questions[1].meta["reference_doc_ids"] == ["finance-01", "finance-02"]
    assert data.questions[0].meta["keypoints"] == FACTUAL.keypoints
    assert SET.rejections().iloc[0].to_dict() == {
        "id": "x",
        "step": "check",
        "reason": "why",
        "detail": "seen",
    }


def test_a_written_set_is_read_back_as_it_was(tmp_path):
    folder = SET.write(tmp_path / "set")
    back = load_questions(folder / "questions.jsonl", folder / "documents.jsonl")
    assert [question.text for question in back.questions] == [
        question.question for question in SET.questions
    ]
    assert back.questions[0].references == (REVENUE,)
    assert [document.text for document in back.documents] == [
        document.text for document in DOCUMENTS
    ]
    assert "why" in (folder / "rejected.csv").read_text()
    with pytest.raises(DataError, match="not an empty folder"):
        SET.write(folder)
