"""The eleven metrics: one response, many responses, their macro averages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.metrics.claims.labels import ClaimLabels, FlatLabels, flatten

if TYPE_CHECKING:
    import pandas as pd

METRICS = (
    "precision",
    "recall",
    "f1",
    "claim_recall",
    "context_precision",
    "context_utilization",
    "relevant_noise_sensitivity",
    "irrelevant_noise_sensitivity",
    "hallucination",
    "self_knowledge",
    "faithfulness",
)
COUNTS = ("n_response_claims", "n_reference_claims", "n_chunks", "n_relevant_chunks", "n_recalled_claims")

Empty = float | Literal["published"]
Noise = Literal["exclusive", "literal"]

_BLOCK = 2048  # results whose labels are held flat at once


def claim_metrics(
    response_in_reference: Any,
    reference_in_response: Any,
    response_in_chunks: Any,
    reference_in_chunks: Any,
    empty: Empty = np.nan,
    irrelevant_noise: Noise = "exclusive",
) -> dict[str, float]:
    """Compute RAGChecker's eleven metrics of one response.

    Parameters
    ----------
    response_in_reference : shape (n_response_claims,), response claims that the reference entails. Booleans, 0/1, or
        label words, of which only "Entailment" counts.
    reference_in_response : shape (n_reference_claims,), reference claims that the response entails.
    response_in_chunks : shape (n_response_claims, n_chunks), response claims by the chunks that entail them.
    reference_in_chunks : shape (n_reference_claims, n_chunks), reference claims by the chunks that entail them.
    empty : value of a metric that is undefined; "published" is the 0 of RAGChecker's released code. Undefined are:
        precision without response claims; recall without reference claims; f1 without either; claim recall without
        reference claims (without chunks it is 0: nothing was found); context precision without chunks or reference
        claims; context utilization when no chunk entails a reference claim; the other five without response claims or
        without chunks, and the two noise sensitivities also without reference claims, which tell relevant chunks.
    irrelevant_noise : "exclusive" leaves out claims that a relevant chunk entails too; "literal" is appendix B.

    Returns
    -------
    dict of `METRICS` to numbers in [0, 1]; `claim_counts` has the numbers of claims and chunks behind them.

    Raises
    ------
    DataError for labels of the wrong shape or an unknown label; ConfigError for an unknown option.

    Source: RAGChecker, section 3.3, appendix B. Paper values (E5-Mistral + GPT-4, Table 3, percent): precision 62.0,
    recall 53.0, f1 52.7 (the mean of f1, not the f1 of means), claim recall 83.5, context precision 61.8.

    Examples
    --------
    >>> scores = claim_metrics([True, False], [True, False, False], [[1, 0], [0, 1]], [[1, 0], [1, 0], [0, 0]])
    >>> scores["precision"], scores["irrelevant_noise_sensitivity"], round(scores["claim_recall"], 3)
    (0.5, 0.5, 0.667)
    """
    value, literal = _number(empty), _literal(irrelevant_noise)
    labels = ClaimLabels(response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks)
    scores, _ = _evaluate([FlatLabels(labels)], value, literal)
    return dict(zip(METRICS, scores[0].tolist(), strict=True))


def claim_counts(
    response_in_reference: Any, reference_in_response: Any, response_in_chunks: Any, reference_in_chunks: Any
) -> dict[str, int]:
    """Count what the metrics of one response rest on; arguments and errors as in `claim_metrics`.

    Returns
    -------
    dict of `COUNTS`: claims of the response and of the reference, chunks, relevant chunks (those that entail a
    reference claim), recalled claims (reference claims that a chunk entails).

    Source: RAGChecker, section 3.3.
    """
    labels = ClaimLabels(response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks)
    _, counts = _evaluate([FlatLabels(labels)], np.nan, False)
    return dict(zip(COUNTS, counts[0].tolist(), strict=True))


def claim_metrics_table(
    results: Iterable[Any], empty: Empty = np.nan, irrelevant_noise: Noise = "exclusive"
) -> pd.DataFrame:
    """Compute the metrics of many responses at once; numbers of claims and chunks may differ between them.

    Parameters
    ----------
    results : objects with ``id`` and the four sets of labels under the names of `CHECKS`: `ClaimLabels`, the results
        that `ragbench.data.read_ragchecker` reads, or mappings with these keys; or a `RagResults` as it was read.
    empty, irrelevant_noise : as in `claim_metrics`.

    Returns
    -------
    DataFrame, one row per result in the order given, index ``id``; columns `METRICS` (in [0, 1]) and `COUNTS`.

    Raises
    ------
    DataError that names id and field of the first result whose labels are missing, misshapen or unknown, or for one
    result in place of a list; ConfigError for an unknown option.

    Source: RAGChecker, section 3.3, appendix B.
    """
    import pandas as pd

    value, literal = _number(empty), _literal(irrelevant_noise)
    results = getattr(results, "results", results)
    if isinstance(results, (Mapping, str)) or not isinstance(results, Iterable):
        raise DataError(f"results is {type(results).__name__}", "a list of results", "pass [result] for a single one")
    ids: list[str] = []
    scores, counts = [np.empty((0, len(METRICS)))], [np.empty((0, len(COUNTS)), np.int64)]
    numbered = enumerate(results)
    while block := [flatten(result, number) for number, result in islice(numbered, _BLOCK)]:
        ids += [name for name, _ in block]
        some_scores, some_counts = _evaluate([labels for _, labels in block], value, literal)
        scores.append(some_scores)
        counts.append(some_counts)
    table = pd.DataFrame(np.concatenate(scores), pd.Index(ids, name="id", dtype=object), list(METRICS))
    return table.assign(**dict(zip(COUNTS, np.concatenate(counts).T, strict=True)))


def macro_average(table: pd.DataFrame) -> pd.DataFrame:
    """Average each metric over the responses it is defined for, with the numbers of both.

    Parameters
    ----------
    table : columns `METRICS`, from `claim_metrics_table`.

    Returns
    -------
    DataFrame, index ``metric``; columns mean (NaN when nothing is defined), n (responses averaged), unscored.

    Source: RAGChecker, section 4.3, Tables 3 and 6-15 (means over a domain's questions).
    """
    import pandas as pd

    scores = table[list(METRICS)]
    n = scores.notna().sum()
    return pd.DataFrame({"mean": scores.mean(), "n": n, "unscored": len(scores) - n}).rename_axis("metric")


def _number(empty: Empty) -> float:
    if isinstance(empty, str):
        if empty != "published":
            raise unknown("value of empty", empty, ["published"])
        return 0.0
    try:
        return float(empty)
    except (TypeError, ValueError):
        raise ConfigError(f"empty={empty!r}", 'a number, or "published" for 0', "leave it out for NaN") from None


def _literal(irrelevant_noise: str) -> bool:
    if irrelevant_noise not in ("exclusive", "literal"):
        raise unknown("irrelevant_noise", irrelevant_noise, ["exclusive", "literal"])
    return irrelevant_noise == "literal"


def _evaluate(results: Sequence[FlatLabels], empty: float, literal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, 11) and counts (n, 5) of results whose labels lie one after another in flat arrays."""
    n = len(results)
    responses, references, chunks = np.array([r.sizes for r in results], np.int64).reshape(n, 3).T
    correct, covered, in_response, in_reference = (
        np.concatenate([r.arrays[i] for r in results]) for i in range(len(results[0].arrays))
    )
    of_response, of_reference = np.repeat(np.arange(n), responses), np.repeat(np.arange(n), references)

    claim, chunk = _entailments(in_reference, references, chunks)
    recalled = _marked(claim, references.sum())
    relevant = _marked(chunk, chunks.sum())
    claim, chunk = _entailments(in_response, responses, chunks)
    faithful = _marked(claim, responses.sum())
    in_relevant = _marked(claim[relevant[chunk]], responses.sum())
    in_irrelevant = _marked(claim[~relevant[chunk]], responses.sum())
    if not literal:
        in_irrelevant &= ~in_relevant

    def count(flags: np.ndarray, owner: np.ndarray) -> np.ndarray:
        return np.bincount(owner[flags], minlength=n)

    n_relevant = count(relevant, np.repeat(np.arange(n), chunks))
    n_recalled = count(recalled, of_reference)
    grounded = (responses > 0) & (chunks > 0)

    def share(flags: np.ndarray, defined: np.ndarray) -> np.ndarray:
        return _ratio(count(flags, of_response), responses, defined, empty)

    precision, recall = share(correct, responses > 0), _ratio(count(covered, of_reference), references, True, empty)
    both = (responses > 0) & (references > 0)
    # Without a single correct claim on either side the harmonic mean is 0, its limit.
    f1 = np.where(both, _ratio(2 * precision * recall, precision + recall, both, 0.0), empty)
    scores = (
        precision,
        recall,
        f1,
        _ratio(n_recalled, references, True, empty),
        _ratio(n_relevant, chunks, references > 0, empty),
        _ratio(count(recalled & covered, of_reference), n_recalled, True, empty),
        share(~correct & in_relevant, grounded & (references > 0)),
        share(~correct & in_irrelevant, grounded & (references > 0)),
        share(~correct & ~faithful, grounded),
        share(correct & ~faithful, grounded),
        share(faithful, grounded),
    )
    return np.stack(scores, axis=1), np.stack((responses, references, chunks, n_relevant, n_recalled), axis=1)


def _entailments(flat: np.ndarray, claims: np.ndarray, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Claim and chunk, numbered over all results, of every True in the flattened (claims, chunks) matrices."""
    true = np.flatnonzero(flat)
    starts = np.cumsum(claims * chunks) - claims * chunks
    # Of results that start at the same place all but the last are empty, so the last one owns the label.
    owner = np.searchsorted(starts, true, side="right") - 1
    row, column = np.divmod(true - starts[owner], chunks[owner])
    return row + (np.cumsum(claims) - claims)[owner], column + (np.cumsum(chunks) - chunks)[owner]


def _marked(places: np.ndarray, size: int) -> np.ndarray:
    flags = np.zeros(size, bool)
    flags[places] = True
    return flags


def _ratio(part: np.ndarray, whole: np.ndarray, defined: np.ndarray | bool, empty: float) -> np.ndarray:
    """part / whole where that is defined and whole is positive, else ``empty``."""
    return np.divide(part, whole, out=np.full(len(whole), empty), where=defined & (whole > 0))
