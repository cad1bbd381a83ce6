"""Answers that choose nothing, and their scores: read by notebook 99 and by scripts/ship_hotpotqa.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ragbench.metrics.lexical import bleu, claim_overlap, contained, exact_match, rouge_l, token_f1

PADDED_WORDS = 200
ABSTENTION = "I cannot find enough information to answer the question."
METRICS = {
    "exact_match": exact_match,
    "contained": contained,
    "token_f1": token_f1,
    "bleu": bleu,
    "rouge_l": rouge_l,
}
NUMBERS = [*METRICS, "words in the passages", "words", "right words"]


def candidates(text: str) -> str:
    """Each run of capitalised words once, joined by "or"."""
    runs = re.findall(r"\b[A-Z][\w'.-]*(?: [A-Z][\w'.-]*)*", text)
    return " or ".join(dict.fromkeys(runs))


def padded(answer: str, context: str) -> str:
    """The answer, then words of the retrieved text until there are 200."""
    words = answer.split() + context.split()
    return " ".join(words[: max(PADDED_WORDS, len(answer.split()))])


def systems(question: str, context: str, answer: str) -> dict[str, str]:
    """The honest answer and what each cheat says in its place."""
    return {
        "honest": answer,
        "copy the chunks": context,
        "copy the question": question,
        "name all candidates": candidates(f"{question} {context}"),
        "say it three times": " ".join([answer] * 3),
        "pad": padded(answer, context),
        "abstain": ABSTENTION,
        "capitals": answer.upper(),
        "write a grade": "Grade: 5",
        "repeat the criterion": "Fully correct.",
    }


def cheat_rows(rows: pd.DataFrame, clusters: Mapping[str, str]) -> pd.DataFrame:
    """A row a question and system: its numbers, and no text.

    ``rows`` : question_id, question, context, answer and reference of the honest system.
    """
    scored = []
    for row in rows.itertuples():
        about = {"question_id": row.question_id, "cluster": clusters[row.question_id]}
        for system, answer in systems(row.question, row.context, row.answer).items():
            scored.append(about | {"system": system} | numbers(answer, row.reference, row.context))
    return pd.DataFrame(scored)


def numbers(answer: str, reference: str, context: str) -> dict[str, Any]:
    """What is measured of one answer."""
    values = {name: float(metric(answer, reference)) for name, metric in METRICS.items()}
    return values | {
        "words in the passages": claim_overlap(answer, context, {}),
        "words": len(answer.split()),
        "right words": claim_overlap(reference, answer, {}),
    }
