"""Retrieval measured against the relevant documents, by ir_measures: nDCG, MAP, MRR, recall,
precision and its others.

A measure goes by its name there, which carries its parameters: ``nDCG@10``, ``AP``, ``RR``,
``R@10``, ``Success@5``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from ragbench.errors import ConfigError
from ragbench.records import Chunk, Hit, as_id
from ragbench.stats.inputs import as_list, same_length

MEASURES = ("nDCG@10", "AP", "RR", "R@10", "P@10")
Ranking = Sequence[Hit | Chunk | str]
Relevant = Collection[str] | Mapping[str, int]


def rank_scores(
    retrieved: Ranking, relevant: Relevant, measures: Sequence[str] = MEASURES
) -> dict[str, float]:
    """Score one question's ranking: value by measure; NaN when nothing is relevant.

    ``retrieved``: hits, chunks or ids of documents, best first; of several of one document each
    takes a rank, and the first one counts. ``relevant``: ids of the relevant documents, or id ->
    gain (a whole number). ``measures``: names of ir_measures.

    >>> rank_scores(["x", "a", "b"], {"a", "b"}, ["RR", "R@2"])
    {'RR': 0.5, 'R@2': 0.5}
    """
    return rank_table([retrieved], [relevant], measures).iloc[0].to_dict()


def rank_table(
    retrieved: Sequence[Ranking],
    relevant: Sequence[Relevant],
    measures: Sequence[str] = MEASURES,
) -> pd.DataFrame:
    """Score the rankings of many questions as `rank_scores` scores one: a row per question."""
    same_length(retrieved=retrieved, relevant=relevant)
    parsed = _parse(measures)
    rankings: dict[str, dict[str, float]] = {}
    gains: dict[str, dict[str, int]] = {}
    for question, (ranking, wanted) in enumerate(zip(retrieved, relevant, strict=True)):
        gain_of = _gains(wanted)
        ids = _ids(ranking)
        if any(gain_of.values()):
            # in names of our own: some of ir_measures' programs take neither blanks nor other
            # names of questions than numbers
            codes = {name: f"d{number}" for number, name in enumerate([*ids, *gain_of])}
            rankings[str(question)] = {codes[name]: -float(rank) for rank, name in enumerate(ids)}
            gains[str(question)] = {codes[name]: gain for name, gain in gain_of.items()}
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    if gains:
        for each in _library().iter_calc(parsed.values(), gains, rankings):
            scores[str(each.measure)][int(each.query_id)] = each.value
    table = pd.DataFrame(index=range(len(retrieved)))
    for name, measure in parsed.items():
        table[name] = pd.Series(scores[str(measure)], dtype=float)
    return table


def _library() -> Any:
    try:
        import ir_measures
    except ModuleNotFoundError:
        do = "pip install ir-measures (on Linux arm64 with a C compiler: pytrec-eval-terrier "
        do += "has no wheel there)"
        raise ConfigError("ir_measures is not installed", "these measures' library", do) from None
    return ir_measures


def _parse(measures: Sequence[str]) -> dict[str, Any]:
    parsed = {}
    for name in measures:
        try:
            parsed[name] = _library().parse_measure(name)
        except (NameError, ValueError, SyntaxError):
            got = f"unknown measure {name!r}"
            raise ConfigError(got, "a name of ir_measures", "write e.g. nDCG@10") from None
    return parsed


def _gains(relevant: Relevant) -> dict[str, int]:
    if not isinstance(relevant, Mapping):
        relevant = dict.fromkeys(as_list(relevant, "relevant", object), 1)
    if any(gain != int(gain) or gain < 0 for gain in relevant.values()):
        got = f"gains {sorted(relevant.values())}"
        raise ConfigError(got, "whole numbers, at least 0", "leave out what is irrelevant")
    return {as_id(name): int(gain) for name, gain in relevant.items()}


def _ids(ranking: Ranking) -> list[str]:
    """Return the documents in their order; a document's second chunk takes its rank alone."""
    ids: list[str] = []
    for rank, item in enumerate(as_list(ranking, "retrieved", object)):
        chunk = item.chunk if isinstance(item, Hit) else item
        name = as_id(chunk.doc_id if isinstance(chunk, Chunk) else chunk)
        ids.append(f"{name} again at {rank}" if name in ids else name)
    return ids
