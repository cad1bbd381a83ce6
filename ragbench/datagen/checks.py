"""What the steps of RAGEval check by strings: a text's values, its numbers, its words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragbench.datagen.parts import QRA, Unfit

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_WORD = re.compile(r"[a-z]{4,}")  # words that carry meaning
MIN_SHARED = 0.5  # of a statement's words that references and question must have
_MOST_WORDS = 0.7  # of a value that is stated in other words


def mentions(text: str, value: str) -> bool:
    """Tell whether a text has a value whole, not as a part of a longer word or number, in any
    case of letters.
    """
    whole = rf"(?<![a-z0-9])(?<![0-9][.,]){re.escape(value)}(?![a-z0-9])(?![.,][0-9])"
    return bool(value) and re.search(whole, text, re.IGNORECASE) is not None


def states(sentences: Sequence[str], value: str) -> bool:
    """Tell whether sentences state a value, word for word or with most of its words.

    So "April 10, 2023" states "10 April 2023": the numbers of a value stand in one sentence, beside
    most of its words. A value without numbers may be told in several sentences.
    """
    text = " ".join(sentences)
    if mentions(text, value):
        return True
    if not _content_words(value):
        return False
    needed = set(_numbers(value))
    places = sentences if needed else [text]
    return any(
        needed <= set(_numbers(place)) and shared_words(value, place) >= _MOST_WORDS
        for place in places
    )


def _numbers(text: str) -> list[float]:
    """Return the numbers of a text, in order."""
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]


def _content_words(text: str) -> set[str]:
    """Return a text's words of four letters and more."""
    return set(_WORD.findall(text.lower()))


def unfounded_numbers(text: str, source: str) -> list[float]:
    """Return the numbers of a text that the source does not have, nor are the sum or difference of
    two that it has.
    """
    given = set(_numbers(source))
    derived = set()
    for first in given:
        for second in given:
            derived.add(round(first + second, 6))
            derived.add(round(first - second, 6))
    return [
        number
        for number in _numbers(text)
        if number not in given and round(number, 6) not in derived
    ]


def shared_words(text: str, source: str) -> float:
    """Return the share of a text's content words that the source has too; 1 for a text without
    any.
    """
    words = _content_words(text)
    if not words:
        return 1.0
    return len(words & _content_words(source)) / len(words)


# Questions: each check raises `Unfit` with the first thing that is wrong


def check_unanswerable(question: QRA) -> None:
    """Check that a question asks for one of the lost facts by name, and that its answer has no
    number.
    """
    lost = _content_words(" ".join(question.lost).replace("_", " "))
    if not lost & _content_words(question.question):
        raise Unfit("the question asks for no fact that was lost", question.question)
    if unfounded_numbers(question.answer, question.question):
        raise Unfit("an answer to a question that has none", question.answer)


def check_answer(question: QRA) -> None:
    """Check that each document has a reference, and that references or question hold what each
    statement says.

    That is all of its numbers, or two that it is the sum or difference of, and at least half of its
    words.
    """
    if not question.statements:
        raise Unfit("no statement of the answer is left", question.question)
    referenced = {reference.doc_id for reference in question.references}
    for doc_id in question.doc_ids:
        if doc_id not in referenced:
            raise Unfit("no reference of a document", doc_id)
    source = " ".join([question.question, *(reference.text for reference in question.references)])
    for statement in question.statements:
        if unfounded_numbers(statement, source):
            raise Unfit("a number that is in no reference", statement)
        if shared_words(statement, source) < MIN_SHARED:
            raise Unfit("a statement with few words of the references", statement)


def check_keypoints(question: QRA) -> None:
    """Check that key points have no number that question and answer lack."""
    for point in question.keypoints:
        if unfounded_numbers(point, f"{question.question} {question.answer}"):
            raise Unfit("a key point with a number that the answer lacks", point)
