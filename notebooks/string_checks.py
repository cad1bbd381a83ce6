"""What notebook 40's checks compare: numbers, and words of four letters and more (in Chinese characters)."""

from __future__ import annotations

import itertools
import re

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
WORD = re.compile(r"[a-z]{4,}|[\u4e00-\u9fff]")


def numbers_in(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def new_numbers(text, source):
    """Numbers of a text that the source does not have, nor are the sum or difference of two that it has."""
    known = numbers_in(source)
    for first, second in itertools.product(set(known), repeat=2):
        known += [first + second, first - second]
    rounded = {round(number, 6) for number in known}
    return [number for number in numbers_in(text) if round(number, 6) not in rounded]


def share_of_words(text, source):
    """Share of a text's words that the source has too; 1 without any."""
    words = set(WORD.findall(text.lower()))
    return len(words & set(WORD.findall(source.lower()))) / len(words) if words else 1.0


def mentions(text, value):
    """Whether a text has a value whole, not as a part of a longer word or number."""
    whole = rf"(?<![a-z0-9])(?<![0-9][.,]){re.escape(value)}(?![a-z0-9])(?![.,][0-9])"
    return bool(value) and re.search(whole, text, re.IGNORECASE) is not None


def states(sentences, value):
    """Whether sentences state a value: whole, or all of its numbers in one sentence with .7 of its words."""
    if mentions(" ".join(sentences), value):
        return True
    needed = set(numbers_in(value))
    places = sentences if needed else [" ".join(sentences)]
    near = [text for text in places if needed <= set(numbers_in(text)) and share_of_words(value, text) >= 0.7]
    return bool(near) and WORD.search(value.lower()) is not None


def answer_fault(question, shared):
    """Why a question is rejected, and where; ``shared``: the least share of a statement's words in its references."""
    if not question["statements"]:
        return "no statement of the answer is left", question["question"]
    referenced = [name for name, _ in question["references"]]
    for name in question["doc_ids"]:
        if name not in referenced:
            return "no reference of a document", name
    source = " ".join([question["question"], *(text for _, text in question["references"])])
    for statement in question["statements"]:
        if new_numbers(statement, source):
            return "a number that is in no reference", statement
        if share_of_words(statement, source) < shared:
            return "a statement with few words of the references", statement
    return None
