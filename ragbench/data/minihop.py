"""MiniHop: our own small two-hop data set in HotpotQA's shape (CC BY 4.0), shipped so that everything runs offline.

Its labels are reference labels, assigned by a strong language model under a written guideline; checked by a person: 0;
the second pass measures repeatability, not human agreement. See ``data/minihop/README.md``.
"""

from __future__ import annotations

from pathlib import Path

from ragbench.data.user import load_jsonl
from ragbench.paths import shipped
from ragbench.records import Dataset


def load_minihop(limit: int | None = None) -> Dataset:
    """Load MiniHop, or its first ``limit`` questions with all documents.

    Returns
    -------
    Dataset. ``meta`` of a question holds ``supporting_facts`` ((title, index) pairs), ``reasoning``, ``both_hops``
    and, for about a third of them, ``long_answer`` and ``claims`` (a text and its supporting sentences each).
    """
    folder: Path = shipped("minihop")
    data = load_jsonl(folder / "questions.jsonl", folder / "documents.jsonl", limit=limit)
    return Dataset("minihop", data.questions, data.documents, meta={"file": "questions.jsonl", "setting": "shipped"})


def load_minihop_probes() -> Dataset:
    """Load the 80 probes over MiniHop's documents: 40 easy questions, and 40 that have no answer in them.

    Returns
    -------
    Dataset with ``kind`` "single hop" or "unanswerable". The ``level`` of an unanswerable one is "not in the documents"
    or "false premise": to abstain, or to correct the premise, is right. It has no references and so no IR score.
    """
    folder: Path = shipped("minihop")
    data = load_jsonl(folder / "probe_questions.jsonl", folder / "documents.jsonl")
    return Dataset("minihop probes", data.questions, data.documents, meta={"file": "probe_questions.jsonl"})
