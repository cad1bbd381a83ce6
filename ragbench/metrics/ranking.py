"""Retrieval measured against the relevant documents, by ir_measures: nDCG, MAP, MRR, recall,
precision and its others.

A measure goes by its name there, which carries its parameters: ``nDCG@10``, ``AP``, ``RR``,
``R@10``, ``Success@5``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from ragbench.errors import ConfigError
from ragbench.records import Chunk, Hit, as_id
from ragbench.stats.inputs import as_list

MEASURES = ("nDCG@10", "AP", "RR", "R@10", "P@10")


def rank_scores(
    retrieved: Sequence[Hit | Chunk | str],
    relevant: Collection[str] | Mapping[str, int],
    measures: Sequence[str] = MEASURES,
) -> dict[str, float]:
    """Score one question's ranking: value by measure; NaN when nothing is relevant.

    ``retrieved``: hits, chunks or ids of documents, best first; of several of one document each
    takes a rank, and the first one counts. ``relevant``: ids of the relevant documents, or id ->
    gain (a whole number). ``measures``: names of ir_measures.

    >>> rank_scores(["x", "a", "b"], {"a", "b"}, ["RR", "R@2"])
    {'RR': 0.5, 'R@2': 0.5}
    """
    try:
        import ir_measures
    except ModuleNotFoundError:
        what = (
            "pip install ir-measures (on Linux arm64 with a C compiler: pytrec-eval-terrier "
            "has no wheel there)"
        )
        raise ConfigError(
            "ir_measures is not installed", "the library of these measures", what
        ) from None

    retrieved = as_list(retrieved, "retrieved", object)
    _ = as_list(relevant, "relevant", object)
    parsed = {}
    for name in measures:
        try:
            parsed[name] = ir_measures.parse_measure(name)
        except (NameError, ValueError, SyntaxError):
            raise ConfigError(
                f"unknown measure {name!r}", "a name of ir_measures", "write e.g. nDCG@10"
            ) from None
    gains = relevant if isinstance(relevant, Mapping) else dict.fromkeys(relevant, 1)
    if any(gain != int(gain) or gain < 0 for gain in gains.values()):
        got = f"gains {sorted(gains.values())}"
        raise ConfigError(got, "whole numbers, at least 0", "leave out what is irrelevant")
    if not any(gains.values()):
        return dict.fromkeys(measures, math.nan)
    run: dict[str, float] = {}
    for rank, item in enumerate(retrieved):
        chunk = item.chunk if isinstance(item, Hit) else item
        name = as_id(chunk.doc_id if isinstance(chunk, Chunk) else chunk)
        run[f"{name} again at {rank}" if name in run else name] = float(len(retrieved) - rank)
    qrels = {"q": {as_id(name): int(gain) for name, gain in gains.items()}}
    values = {
        str(v.measure): v.value for v in ir_measures.iter_calc(parsed.values(), qrels, {"q": run})
    }
    return {name: values.get(str(measure), 0.0) for name, measure in parsed.items()}
