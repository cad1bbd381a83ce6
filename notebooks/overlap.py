"""The overlap of two texts' words that notebooks 21 and 90 hold against people's preference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from ragbench.text.words import stems


def idf_overlap(prediction: str, reference: str, idf: Mapping[str, float], *, unseen: float | None = None) -> float:
    """F1 of two texts' Porter-stemmed words, each weighted by its IDF and counted with repetition;
    NaN without words.

    ``idf`` : stem -> weight, as `idf_weights` gives. ``unseen`` : weight of a stem that ``idf``
    lacks; default the largest in ``idf``, or 1 when it is empty.

    Source: none of the papers.
    """
    if unseen is None:
        unseen = max(idf.values(), default=1.0)
    a = Counter(stems(prediction))
    b = Counter(stems(reference))
    total = _weight(a, idf, unseen) + _weight(b, idf, unseen)
    if not total:
        return math.nan
    return 2 * _weight(a & b, idf, unseen) / total


def _weight(words: Counter[str], idf: Mapping[str, float], unseen: float) -> float:
    return math.fsum(n * idf.get(stem, unseen) for stem, n in words.items())
