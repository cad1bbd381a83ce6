"""Retrieval measured against the relevant documents, by ir_measures: nDCG, MAP, MRR, recall,
precision and its others.

A measure goes by its name there, which carries its parameters: ``nDCG@10``, ``AP``, ``RR``,
``R@10``, ``Success@5``.
"""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import pandas as pd

from ragbench.errors import ConfigError
from ragbench.records import Chunk, Hit, as_id
from ragbench.stats.inputs import as_list, same_length, several

RANK_MEASURES = ("nDCG@10", "AP", "RR", "R@10", "P@10")
Ranking = Sequence[Hit | Chunk | str] | Mapping[str, float]
Relevant = Collection[str] | Mapping[str, int]


def rank_table(
    retrieved: Sequence[Ranking],
    relevant: Sequence[Relevant],
    measures: str | Sequence[str] = RANK_MEASURES,
    questions: Sequence[Any] | None = None,
) -> pd.DataFrame:
    """Score the rankings of questions: a row per question, a column per measure; NaN when nothing
    is relevant.

    Parameters
    ----------
    retrieved : for each question hits, chunks or ids of documents, best first, or id -> score; of
        several of one document each takes a rank, and the first one counts.
    relevant : for each question the ids of the relevant documents, or id -> gain (a whole number).
    measures : names of ir_measures.
    questions : ids, shape (n,). A document with the id of its own question is left out of the
        ranking, unless it is relevant, with a warning: BEIR's ``ignore_identical_ids``.

    A warning also says where no retrieved id of any row is relevant: the ids may differ in form.

    >>> rank_table([["x", "a", "b"]], [{"a", "b"}], ["RR", "R@2"])
        RR  R@2
    0  0.5  0.5
    """
    if questions is None:
        questions = [""] * len(retrieved)
    same_length(retrieved=retrieved, relevant=relevant, questions=questions)
    parsed = {name: _parse(name) for name in several(measures)}
    judged = _judged(retrieved, relevant, map(as_id, questions))
    rankings = {}  # question -> document -> minus its rank
    gains = {}  # question -> document -> gain
    for number, (ids, gain_of) in judged.items():
        # in names of our own: some of ir_measures' programs take neither blanks nor other names of
        # questions than numbers
        rankings[str(number)] = _ranks(len(ids))
        gains[str(number)] = _gains_by_place(ids, gain_of)
    table = pd.DataFrame(index=range(len(retrieved)))
    scores = _scores(parsed.values(), rankings, gains)
    for name, measure in parsed.items():
        table[name] = pd.Series(scores[str(measure)], dtype=float)
    return table


def _judged(
    retrieved: Iterable[Ranking], relevant: Iterable[Relevant], questions: Iterable[str]
) -> dict[int, tuple[list[str], dict[str, int]]]:
    """Return by row its documents in their order and their gains, of rows with a relevant one; warn
    of what looks wrong.
    """
    judged = {}
    own = 0  # documents with the id of their question
    rows = zip(retrieved, relevant, questions, strict=True)
    for number, (ranking, wanted, question) in enumerate(rows):
        ids = _ids(ranking)
        gain_of = _gains(wanted)
        if not any(gain_of.values()):
            continue
        if question and question in ids and not gain_of.get(question):
            ids = _ids(ranking, question)
            own += 1
        judged[number] = ids, gain_of
    if own:
        warnings.warn(
            f"in {own} rankings a document has the id of its question and is left out, as by "
            "BEIR's ignore_identical_ids; if they are not the same text, rename one of them",
            stacklevel=3,
        )
    _warn_of_other_forms(judged.values())
    return judged


def _warn_of_other_forms(judged: Iterable[tuple[list[str], dict[str, int]]]) -> None:
    """Warn where no retrieved id of any row is relevant."""
    example = ()
    for ids, gain_of in judged:
        if any(map(gain_of.get, ids)):
            return
        example = example or (ids and (ids[0], next(filter(gain_of.get, gain_of))))
    if example:
        warnings.warn(
            f"of no row is any retrieved id relevant: {example[0]!r} was retrieved, {example[1]!r} "
            "is relevant; check that both are ids of documents, written alike",
            stacklevel=4,
        )


@functools.cache
def _ranks(n: int) -> Mapping[str, float]:
    """Return what orders so many documents, by their names."""
    return {f"d{rank}": -float(rank) for rank in range(n)}


def _gains_by_place(ids: Sequence[str], gain_of: Mapping[str, int]) -> dict[str, int]:
    """Return gains by the names of `_ranks`; relevant documents that were not found come after."""
    place_of = {name: place for place, name in enumerate(ids)}
    for name in gain_of:
        place_of.setdefault(name, len(place_of))
    return {f"d{place_of[name]}": gain for name, gain in gain_of.items()}


def _scores(
    measures: Iterable[Any],
    rankings: Mapping[str, Mapping[str, float]],
    gains: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[int, float]]:
    """Return measure -> question -> value, by ir_measures."""
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    if gains:
        # Some programs divide by the number of hits; a question without any is 0 to all.
        found = {number: ranking for number, ranking in rankings.items() if ranking}
        try:
            calculated = list(_library().iter_calc(measures, gains, found))
        except (ValueError, AssertionError, ArithmeticError) as error:
            raise ConfigError(
                f"ir_measures computes no {', '.join(map(str, measures))} here: {error}",
                "a measure whose program is installed, with its parameters",
                "choose another one, or install what is named",
            ) from None
        # the same few objects come again and again, and write their name slowly
        measure_of = {id(score.measure): score.measure for score in calculated}
        names = {key: str(measure) for key, measure in measure_of.items()}
        for score in calculated:
            scores[names[id(score.measure)]][int(score.query_id)] = score.value
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
        return dict.fromkeys(map(as_id, as_list(relevant, "relevant", object)), 1)
    gains = {}
    for name, gain in relevant.items():
        if not isinstance(gain, Real) or gain % 1 or gain < 0:
            raise ConfigError(
                f"the gain {gain!r} of {name!r}",
                "a whole number, at least 0",
                "leave out what is irrelevant",
            )
        gains[as_id(name)] = int(float(gain))
    return gains


def _ids(ranking: Ranking, left_out: str | None = None) -> list[str]:
    """Return the documents in their order; a document's second chunk takes its rank alone."""
    if isinstance(ranking, Mapping):
        ranking = sorted(ranking, key=ranking.__getitem__, reverse=True)
    items = as_list(ranking, "retrieved", object)
    if left_out is None and set(map(type, items)) == {str} and len(set(items)) == len(items):
        return items
    ids: dict[str, None] = {}
    for rank, item in enumerate(items):
        if isinstance(item, Hit):
            item = item.chunk
        if isinstance(item, Chunk):
            item = item.doc_id
        name = as_id(item)
        if name == left_out:
            continue
        if name in ids:
            name = f"{name} again at {rank}"
        ids[name] = None
    return list(ids)
