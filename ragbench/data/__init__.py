"""Data sets in, `Dataset` out.

Malformed input is one error with file and line; nothing is loaded by halves.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench._lazy import public_names
from ragbench.data.answers import read_answers
from ragbench.data.clapnq import load_clapnq
from ragbench.data.dragonball import load_dragonball, load_dragonball_answers
from ragbench.data.hotpotqa import fetch_hotpotqa, load_hotpotqa
from ragbench.data.mtrag import load_mtrag
from ragbench.data.nuggets import read_nuggets, write_nuggets
from ragbench.data.ragchecker import load_ragchecker_meta, read_ragchecker, write_ragchecker
from ragbench.data.relevance import load_beir, read_trec_qrels, trec_rows, write_trec_run
from ragbench.data.user import (
    Problem,
    load_documents,
    load_minihop,
    load_minihop_probes,
    load_questions,
    validate,
    validate_files,
)
from ragbench.data.wikieval import load_wikieval
from ragbench.errors import ConfigError, NotHereError, unknown
from ragbench.records import Dataset

__dir__ = public_names(globals())
# To add a data set, write a function that returns a Dataset and enter it here.
DATASETS: dict[str, Callable[..., Dataset]] = {
    "minihop": load_minihop,
    "hotpotqa": load_hotpotqa,
    "clapnq": load_clapnq,
    "dragonball": load_dragonball,
}


def load_dataset(
    name: str,
    table: Mapping[str, Callable[..., Dataset]] = DATASETS,
    *,
    per_kind: int | None = None,
    **options: Any,
) -> Dataset:
    """Load a data set by its name.

    Parameters
    ----------
    name : in ``table``; ``"auto"``: the first of the table that is on this machine.
    table : name -> loader; the papers have tables of their own, such as
    ``ragbench.papers.thesis.DATA``.
    per_kind : keep the first so many questions of each domain and kind; None for all.
    options : of the loader.
    """
    if per_kind is not None and per_kind < 1:
        raise ConfigError(
            f"per_kind={per_kind}", "at least 1, or None for all questions", "leave it out"
        )
    if name not in table and (name != "auto" or table is DATASETS):
        raise unknown_data(name, table if table is DATASETS else ("auto", *table))
    *others, last = table.values() if name == "auto" else [table[name]]
    for load in others:
        with contextlib.suppress(NotHereError):
            data = load(**options)
            break
    else:
        data = last(**options)
    if per_kind is None:
        return data
    kinds = pd.Series(
        [f"{question.meta.get('domain')} {question.kind}" for question in data.questions],
        dtype=object,
    )
    first = kinds.groupby(kinds).cumcount() < per_kind
    return replace(data, questions=tuple(itertools.compress(data.questions, first)))


def unknown_data(name: str, known: Iterable[str]) -> ConfigError:
    """Build the error for a name that is no data set's;

    one that looks like a file is told how files are loaded.
    """
    error = unknown("data set", name, known)
    if not Path(name).suffix:
        return error
    return ConfigError(
        error.got, error.expected, "load files of your own: data.load_questions(FILE, DOCUMENTS)"
    )
