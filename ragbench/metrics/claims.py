"""RAGChecker's eleven claim-level metrics, from labels (Ru et al. 2024, section 3.3 and appendix B).

A label says whether a text entails a claim; Contradiction counts as not entailed, as published. Follows the paper's
tables and released code, not the letter of appendix B, in one point: irrelevant noise counts only claims that no
relevant chunk entails, so that precision, both noise sensitivities and hallucination add up to 1
(``irrelevant_noise="literal"`` gives the formula as printed).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.data.ragchecker import RagResults
from ragbench.errors import ConfigError, DataError, check_known

CHECKS = ("response_in_reference", "reference_in_response", "response_in_chunks", "reference_in_chunks")
COUNTS = ("n_response_claims", "n_reference_claims", "n_chunks", "n_relevant_chunks", "n_recalled_claims")
GROUPS = {
    "overall": ("precision", "recall", "f1"),
    "retriever": ("claim_recall", "context_precision"),
    "generator": (
        "context_utilization",
        "relevant_noise_sensitivity",
        "irrelevant_noise_sensitivity",
        "hallucination",
        "self_knowledge",
        "faithfulness",
    ),
}
METRICS = tuple(name for names in GROUPS.values() for name in names)
LOWER_IS_BETTER = ("relevant_noise_sensitivity", "irrelevant_noise_sensitivity", "hallucination", "self_knowledge")
RAGCHECKER_NAMES = {name: name for name in METRICS} | {
    "relevant_noise_sensitivity": "noise_sensitivity_in_relevant",
    "irrelevant_noise_sensitivity": "noise_sensitivity_in_irrelevant",
}

Empty = float | Literal["published"]
Noise = Literal["exclusive", "literal"]

# One look-up serves the label words and whatever equals 1 or 0: True and False, numpy's booleans, 1.0 and 0.0.
_ENTAILED = {"Entailment": True, "Neutral": False, "Contradiction": False, 1: True, 0: False}


@dataclass(frozen=True, slots=True, eq=False)
class ClaimLabels:
    """Labels of one result: booleans, 0/1, or the words Entailment / Neutral / Contradiction.

    Shapes: (n_response_claims,), (n_reference_claims,), (n_response_claims, n_chunks), (n_reference_claims, n_chunks).
    ``id`` names the result in tables and error messages.
    """

    response_in_reference: Any
    reference_in_response: Any
    response_in_chunks: Any
    reference_in_chunks: Any
    id: str = ""


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
    response_in_reference : shape (n_response_claims,), response claims that the reference entails.
    reference_in_response : shape (n_reference_claims,), reference claims that the response entails.
    response_in_chunks : shape (n_response_claims, n_chunks), response claims by the chunks that entail them.
    reference_in_chunks : shape (n_reference_claims, n_chunks), reference claims by the chunks that entail them.
    empty : value of what is undefined; "published" is the 0 of RAGChecker's released code. Undefined are: precision
        without response claims; recall without reference claims; f1 without either; claim recall without reference
        claims (without chunks it is 0: nothing was found); context precision without chunks or reference claims;
        context utilization when no chunk entails a reference claim; the other five without response claims or chunks,
        and the two noise sensitivities also without reference claims, which tell relevant chunks.
    irrelevant_noise : "exclusive" leaves out claims that a relevant chunk entails too; "literal" is appendix B.

    Returns
    -------
    dict of `METRICS` to numbers in [0, 1].

    Raises DataError for labels of the wrong shape or an unknown label; ConfigError for an unknown option.

    Source: RAGChecker, section 3.3, appendix B. Paper values (E5-Mistral + GPT-4, Table 3, percent): precision 62.0,
    recall 53.0, f1 52.7 (the mean of f1, not the f1 of means), claim recall 83.5, context precision 61.8.

    Examples
    --------
    >>> scores = claim_metrics([True, False], [True, False, False], [[1, 0], [0, 1]], [[1, 0], [1, 0], [0, 0]])
    >>> scores["precision"], scores["irrelevant_noise_sensitivity"], round(scores["claim_recall"], 3)
    (0.5, 0.5, 0.667)
    """
    empty = _number(empty)
    check_known("irrelevant_noise", [irrelevant_noise], ("exclusive", "literal"))
    sets = response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks
    correct, covered, in_response, in_reference = _entailed(*sets)
    wrong, faithful = ~correct, in_response.any(axis=1)
    relevant, recalled = in_reference.any(axis=0), in_reference.any(axis=1)  # chunks, reference claims
    from_relevant, from_irrelevant = in_response[:, relevant].any(axis=1), in_response[:, ~relevant].any(axis=1)
    if irrelevant_noise == "exclusive":
        from_irrelevant &= ~from_relevant
    chunks, references = len(relevant) > 0, len(covered) > 0

    def share(flags: np.ndarray, defined: bool = True) -> float:
        return int(flags.sum()) / len(flags) if defined and len(flags) else empty

    precision, recall = share(correct), share(covered)
    if not (len(correct) and references):
        f1 = empty
    else:  # 0 where both are: the limit of the harmonic mean
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "claim_recall": share(recalled),
        "context_precision": share(relevant, references),
        "context_utilization": share(covered[recalled]),
        "relevant_noise_sensitivity": share(wrong & from_relevant, chunks and references),
        "irrelevant_noise_sensitivity": share(wrong & from_irrelevant, chunks and references),
        "hallucination": share(wrong & ~faithful, chunks),
        "self_knowledge": share(correct & ~faithful, chunks),
        "faithfulness": share(faithful, chunks),
    }


def claim_counts(
    response_in_reference: Any, reference_in_response: Any, response_in_chunks: Any, reference_in_chunks: Any
) -> dict[str, int]:
    """Count what `claim_metrics` of one response rest on.

    Returns
    -------
    dict of `COUNTS`: claims of the response and of the reference, chunks, relevant chunks (those that entail a
    reference claim), recalled claims (reference claims that a chunk entails).
    """
    sets = response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks
    correct, covered, _, in_reference = _entailed(*sets)
    relevant, recalled = (int(in_reference.any(axis).sum()) for axis in (0, 1))
    return dict(zip(COUNTS, (len(correct), len(covered), in_reference.shape[1], relevant, recalled), strict=True))


def claim_metrics_table(
    results: Iterable[Any], empty: Empty = np.nan, irrelevant_noise: Noise = "exclusive"
) -> pd.DataFrame:
    """Compute the metrics of many responses; numbers of claims and chunks may differ between them.

    Parameters
    ----------
    results : objects or mappings with ``id`` and the four sets of labels under the names of `CHECKS` (`ClaimLabels`,
        RAGChecker's results); or a `RagResults` as it was read.
    empty, irrelevant_noise : as in `claim_metrics`.

    Returns
    -------
    DataFrame, one row per result in the order given, index ``id``; columns `METRICS` (in [0, 1]) and `COUNTS`.

    Raises DataError that names id and field of the first result whose labels are missing, misshapen or unknown.
    """
    empty, results = _number(empty), getattr(results, "results", results)
    if isinstance(results, Mapping | str) or not isinstance(results, Iterable):
        raise DataError(f"results is {type(results).__name__}", "a list of results", "pass [result] for a single one")
    names, rows = [], []
    for number, result in enumerate(results):
        name, sets = _named(result, number)
        names.append(name)
        try:
            sets = _entailed(*sets)  # once for both
            rows.append(claim_metrics(*sets, empty, irrelevant_noise) | claim_counts(*sets))
        except DataError as error:
            raise DataError(f"result {name!r}, {error.got}", error.expected, error.do) from None
    table = pd.DataFrame(rows, pd.Index(names, name="id", dtype=object), [*METRICS, *COUNTS])
    return table.astype(dict.fromkeys(METRICS, float) | dict.fromkeys(COUNTS, np.int64))


def macro_average(table: pd.DataFrame) -> pd.DataFrame:
    """Average each metric of `claim_metrics_table` over the responses it is defined for.

    Returns
    -------
    DataFrame, index ``metric``; columns mean (NaN when nothing is defined), n (responses averaged), unscored.

    Source: RAGChecker, section 4.3, Tables 3 and 6-15 (means over a domain's questions).
    """
    scores = table[list(METRICS)]
    averages = {"mean": scores.mean(), "n": scores.notna().sum(), "unscored": scores.isna().sum()}
    return pd.DataFrame(averages).rename_axis("metric")


def ragchecker_averages(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the macro averages as RAGChecker writes them: by group, under its names, in percent with one decimal.

    NaN is left out of them, so the released numbers need ``empty="published"`` in `claim_metrics_table`.
    """
    means = macro_average(table)["mean"]
    return {
        group: {RAGCHECKER_NAMES[name]: round(float(means[name]) * 100, 1) for name in names}
        for group, names in GROUPS.items()
    }


def score_ragchecker(
    results: RagResults, empty: Empty = "published", irrelevant_noise: Noise = "exclusive"
) -> RagResults:
    """Return checked results with all metrics and their averages, as RAGChecker does after checking.

    Unlike elsewhere undefined is RAGChecker's 0, since its format has no other; NaN would be written as null.
    """
    table = claim_metrics_table(results.results, empty, irrelevant_noise)
    rows = table[list(METRICS)].rename(columns=RAGCHECKER_NAMES).to_dict("records")
    scored = tuple(replace(result, metrics=row) for result, row in zip(results.results, rows, strict=True))
    return replace(results, results=scored, metrics=ragchecker_averages(table))


def _number(empty: Empty) -> float:
    if empty == "published":
        return 0.0
    if isinstance(empty, int | float):
        return float(empty)
    raise ConfigError(f"empty={empty!r}", 'a number, or "published" for 0', "leave it out for NaN")


def _named(result: Any, number: int) -> tuple[str, list[Any]]:
    """Id and labels of one result; ``number`` names one without id."""
    if isinstance(result, Mapping):
        get, strange = result.get, [key for key in result if key not in (*CHECKS, "id")]
    else:
        get, strange = lambda field: getattr(result, field, None), list(getattr(result, "extra", None) or ())
    name = str(number) if get("id") in ("", None) else str(get("id"))
    if lacking := [check for check in CHECKS if get(check) is None]:
        # A mistyped field is among those that nobody knows.
        beside = f" (it has {', '.join(map(str, strange))})" if strange else ""
        raise DataError(
            f"result {name!r}: no labels for {', '.join(lacking)}{beside}",
            f"all of {', '.join(CHECKS)}",
            "check the claims of that result first, or leave it out and say so",
        )
    return name, [get(check) for check in CHECKS]


def _entailed(*sets: Any) -> list[np.ndarray]:
    """The four sets of labels as boolean arrays of shapes that fit."""
    ready = [isinstance(labels, np.ndarray) and labels.dtype == bool for labels in sets]
    correct, covered, in_response, in_reference = (
        labels if known else np.asarray(labels, dtype=object) for labels, known in zip(sets, ready, strict=True)
    )
    for check, labels in zip(CHECKS[:2], (correct, covered), strict=True):
        if labels.ndim == 0:
            raise DataError(f"{check} is {labels.item()!r:.60}", "an array or a list of labels", "one label per claim")
        if labels.ndim > 1:
            raise DataError(f"{check} has shape {labels.shape}", "one dimension: a label per claim", "ravel it")
    in_response = _matrix(in_response, len(correct), CHECKS[2])
    in_reference = _matrix(in_reference, len(covered), CHECKS[3])
    # Without a claim a list of rows does not tell the number of chunks: the other matrix does.
    if not len(correct):
        in_response = in_response.reshape(0, in_response.shape[1] or in_reference.shape[1])
    if not len(covered):
        in_reference = in_reference.reshape(0, in_reference.shape[1] or in_response.shape[1])
    if in_response.shape[1] != in_reference.shape[1]:
        raise DataError(
            f"{CHECKS[2]} has {in_response.shape[1]} chunks, {CHECKS[3]} has {in_reference.shape[1]}",
            "the same chunks in both",
            "check the claims against all chunks again",
        )
    arrays = correct, covered, in_response, in_reference
    return [_booleans(labels, check) for check, labels in zip(CHECKS, arrays, strict=True)]


def _matrix(labels: np.ndarray, claims: int, check: str) -> np.ndarray:
    if labels.shape == (0,):
        return labels.reshape(claims, 0)
    if labels.ndim == 2 and len(labels) == claims:
        return labels
    got = f"has shape {labels.shape}"
    if labels.ndim == 1:
        widths = sorted({len(row) for row in labels if isinstance(row, list | tuple | np.ndarray)})
        got = f"has rows of {' and '.join(map(str, widths))} labels" if widths else "has one dimension"
    raise DataError(
        f"{check} {got}",
        f"shape ({claims}, n_chunks): one row for each of the {claims} claims, one column for each chunk",
        "transpose it if rows are chunks; check the claims again if labels are missing",
    )


def _booleans(labels: np.ndarray, check: str) -> np.ndarray:
    if labels.dtype == bool:
        return labels
    flat = labels.ravel()
    try:
        return np.fromiter(map(_ENTAILED.__getitem__, flat), bool, flat.size).reshape(labels.shape)
    except (KeyError, TypeError):
        known = [isinstance(label, Hashable) and label in _ENTAILED for label in flat]
        place = [int(i) for i in np.unravel_index(known.index(False), labels.shape)]
        raise DataError(
            f"{check}{place}: label {labels[tuple(place)]!r:.60}",
            "Entailment, Neutral or Contradiction; or True or False",
            "check that claim again; do not pad missing labels with Neutral",
        ) from None
