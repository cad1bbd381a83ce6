"""Data sets in, `Dataset` out.

Malformed input is one error with file and line; nothing is loaded by halves.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragbench._lazy import public_names
from ragbench.data.answers import read_answers
from ragbench.data.benchmarks import load_ragchecker_benchmark, load_refchecker
from ragbench.data.clapnq import load_clapnq
from ragbench.data.dragonball import load_dragonball, load_dragonball_answers
from ragbench.data.hotpotqa import fetch_hotpotqa, load_hotpotqa
from ragbench.data.mtrag import load_mtrag
from ragbench.data.ragchecker import (
    load_ragchecker_baselines,
    load_ragchecker_meta,
    read_ragchecker,
)
from ragbench.data.relevance import load_beir, write_trec_run
from ragbench.data.thesis import (
    load_figure_3_1,
    load_thesis_chunks,
    load_thesis_documents,
    load_thesis_grades,
    load_thesis_scores,
)
from ragbench.data.user import (
    load_documents,
    load_minihop,
    load_questions,
    validate,
)
from ragbench.data.wikieval import load_wikieval, wikieval_pairs
from ragbench.errors import ConfigError, NotHereError
from ragbench.records import Dataset

__dir__ = public_names(globals())
# To add a data set, write a function that returns a Dataset, as `load_clapnq` does, and enter it.
DATASETS: dict[str, Callable[..., Dataset]] = {
    "minihop": load_minihop,
    "hotpotqa": load_hotpotqa,
    "clapnq": load_clapnq,
    "dragonball": load_dragonball,
    "ragchecker": load_ragchecker_benchmark,
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

    >>> rb.data.load_dataset("minihop")
    Dataset('minihop', 180 questions, 270 documents)
    """
    if per_kind is not None and per_kind < 1:
        raise ConfigError(
            f"per_kind={per_kind}", "at least 1, or None for all questions", "leave it out"
        )
    if name not in ("auto", *table):
        raise _unknown(name, ["auto", *table])
    names = list(table) if name == "auto" else [name]
    for each in names:
        try:
            data = table[each](**options)
            break
        except NotHereError:
            if each == names[-1]:
                raise
    if per_kind is None:
        return data
    counts: Counter[tuple] = Counter()
    questions = []
    for question in data.questions:
        kind = (question.meta.get("domain"), question.kind)
        counts[kind] += 1
        if counts[kind] <= per_kind:
            questions.append(question)
    return replace(data, questions=tuple(questions))


def _unknown(name: str, valid: Iterable[str]) -> ConfigError:
    error = ConfigError.unknown("data set", name, valid)
    if Path(name).suffix:
        return ConfigError(
            error.got,
            error.expected,
            "load files of your own: data.load_questions(FILE, DOCUMENTS)",
        )
    return error
