"""Retrieval measured against the relevant documents, by ir_measures: nDCG, MAP, MRR, recall,
precision and its others.

A measure goes by its name there, which carries its parameters: ``nDCG@10``, ``AP``, ``RR``,
``R@10``, ``Success@5``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import pandas as pd

from ragbench.errors import ConfigError
from ragbench.records import Chunk, Hit, as_id
from ragbench.stats.inputs import as_list, same_length, several

MEASURES = ("nDCG@10", "AP", "RR", "R@10", "P@10")
Ranking = Sequence[Hit | Chunk | str]
Relevant = Collection[str] | Mapping[str, int]


def rank_table(
    retrieved: Sequence[Ranking],
    relevant: Sequence[Relevant],
    measures: str | Sequence[str] = MEASURES,
) -> pd.DataFrame:
    """Score the rankings of questions: a row per question, a column per measure; NaN when nothing
    is relevant.

    Parameters
    ----------
    retrieved : for each question hits, chunks or ids of documents, best first; of several of one
        document each takes a rank, and the first one counts.
    relevant : for each question the ids of the relevant documents, or id -> gain (a whole number).
    measures : names of ir_measures.

    >>> rank_table([["x", "a", "b"]], [{"a", "b"}], ["RR", "R@2"])
        RR  R@2
    0  0.5  0.5
    """
    same_length(retrieved=retrieved, relevant=relevant)
    parsed = {name: _parse(name) for name in several(measures)}
    rankings: dict[str, dict[str, float]] = {}  # question -> document -> minus its rank
    gains: dict[str, dict[str, int]] = {}  # question -> document -> gain
    for question, (ranking, wanted) in enumerate(zip(retrieved, relevant, strict=True)):
        ids = _ids(ranking)
        gain_of = _gains(wanted)
        if not any(gain_of.values()):
            continue
        # in names of our own: some of ir_measures' programs take neither blanks nor other names of
        # questions than numbers
        codes = {name: f"d{number}" for number, name in enumerate([*ids, *gain_of])}
        number = str(question)
        rankings[number] = {codes[name]: -float(rank) for rank, name in enumerate(ids)}
        gains[number] = {codes[name]: gain for name, gain in gain_of.items()}
    table = pd.DataFrame(index=range(len(retrieved)))
    scores = _scores(parsed.values(), rankings, gains)
    for name, measure in parsed.items():
        table[name] = pd.Series(scores[str(measure)], dtype=float)
    return table


def _scores(
    measures: Iterable[Any],
    rankings: Mapping[str, Mapping[str, float]],
    gains: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[int, float]]:
    """Return measure -> question -> value, by ir_measures."""
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    if gains:
        for score in _library().iter_calc(measures, gains, rankings):
            scores[str(score.measure)][int(score.query_id)] = score.value
    return scores


def _library() -> Any:
    try:
        import ir_measures
    except ModuleNotFoundError:
        do = "pip install ir-measures (on Linux arm64 with a C compiler: pytrec-eval-terrier "
        do += "has no wheel there)"
        raise ConfigError("ir_measures is not installed", "these measures' library", do) from None
    return ir_measures


def _parse(measure: str) -> Any:
    try:
        return _library().parse_measure(measure)
    except (NameError, ValueError, SyntaxError):
        raise ConfigError(
            f"unknown measure {measure!r}", "a name of ir_measures", "write e.g. nDCG@10"
        ) from None


def _gains(relevant: Relevant) -> dict[str, int]:
    if not isinstance(relevant, Mapping):
        relevant = dict.fromkeys(as_list(relevant, "relevant", object), 1)
    gains = {}
    for name, gain in relevant.items():
        if not isinstance(gain, Real) or gain % 1 or gain < 0:
            raise ConfigError(
                f"the gain {gain!r} of {name!r}",
                "a whole number, at least 0",
                "leave out what is irrelevant",
            )
        gains[as_id(name)] = int(gain)
    return gains


def _ids(ranking: Ranking) -> list[str]:
    """Return the documents in their order; a document's second chunk takes its rank alone."""
    ids: list[str] = []
    for rank, item in enumerate(as_list(ranking, "retrieved", object)):
        if isinstance(item, Hit):
            item = item.chunk
        if isinstance(item, Chunk):
            item = item.doc_id
        name = as_id(item)
        if name in ids:
            name = f"{name} again at {rank}"
        ids.append(name)
    return ids
