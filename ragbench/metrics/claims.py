"""RAGChecker's eleven claim-level metrics, from labels (Ru et al. 2024, section 3.3 and appendix B).

A label says whether a text entails a claim. Four sets of labels give all metrics: response claims against the
reference, reference claims against the response, and both against every retrieved chunk. Nothing here calls a model.

Follows the paper's tables and released code, not the letter of appendix B, in one point: irrelevant noise counts only
claims that no relevant chunk entails, so that precision, both noise sensitivities and hallucination add up to 1
(``irrelevant_noise="literal"`` gives the formula as printed). Contradiction counts as not entailed, as published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    labels = ClaimLabels(response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks)
    return _metrics(_entailed(labels), _number(empty), _literal(irrelevant_noise))


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
    return _counts(_entailed(labels))


def claim_metrics_table(
    results: Iterable[Any], empty: Empty = np.nan, irrelevant_noise: Noise = "exclusive"
) -> pd.DataFrame:
    """Compute the metrics of many responses; numbers of claims and chunks may differ between them.

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
    value, literal = _number(empty), _literal(irrelevant_noise)
    results = getattr(results, "results", results)
    if isinstance(results, (Mapping, str)) or not isinstance(results, Iterable):
        raise DataError(f"results is {type(results).__name__}", "a list of results", "pass [result] for a single one")
    names, rows = [], []
    for number, result in enumerate(results):
        name, labels = _named(result, number)
        entailed = _entailed(labels, f"result {name!r}, ")
        names.append(name)
        rows.append(_metrics(entailed, value, literal) | _counts(entailed))
    table = pd.DataFrame(rows, pd.Index(names, name="id", dtype=object), [*METRICS, *COUNTS])
    return table.astype(dict.fromkeys(METRICS, float) | dict.fromkeys(COUNTS, np.int64))


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
    scores = table[list(METRICS)]
    n = scores.notna().sum()
    return pd.DataFrame({"mean": scores.mean(), "n": n, "unscored": len(scores) - n}).rename_axis("metric")


def ragchecker_averages(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the macro averages as RAGChecker writes them: by group, under its names, in percent with one decimal.

    Parameters
    ----------
    table : from `claim_metrics_table`; NaN is left out of the averages, so the released numbers need
        ``empty="published"`` there.
    """
    means = macro_average(table)["mean"]
    return {
        group: {RAGCHECKER_NAMES[name]: round(float(means[name]) * 100, 1) for name in names}
        for group, names in GROUPS.items()
    }


def score_ragchecker(
    results: RagResults, empty: Empty = "published", irrelevant_noise: Noise = "exclusive"
) -> RagResults:
    """Fill in the metrics of every result and their averages, as RAGChecker does after checking.

    Parameters
    ----------
    results : checked results, e.g. from `ragbench.data.read_ragchecker`.
    empty : value of undefined metrics. Unlike elsewhere the default is RAGChecker's 0, since its format has no other;
        with NaN they are written as null.
    irrelevant_noise : as in `claim_metrics`.

    Returns
    -------
    RagResults with all metrics replaced; everything else is unchanged.

    Raises
    ------
    DataError that names id and field when a result has not been checked.
    """
    table = claim_metrics_table(results.results, empty, irrelevant_noise)
    rows = table[list(METRICS)].rename(columns=RAGCHECKER_NAMES).to_dict("records")
    scored = tuple(replace(result, metrics=row) for result, row in zip(results.results, rows, strict=True))
    return replace(results, results=scored, metrics=ragchecker_averages(table))


def _entailed(labels: Any, where: str = "") -> ClaimLabels:
    """The labels of an object with the attributes `CHECKS` as boolean arrays; ``where`` begins the error messages."""
    correct = _vector(labels.response_in_reference, f"{where}{CHECKS[0]}")
    covered = _vector(labels.reference_in_response, f"{where}{CHECKS[1]}")
    in_response = _matrix(labels.response_in_chunks, len(correct), f"{where}{CHECKS[2]}")
    in_reference = _matrix(labels.reference_in_chunks, len(covered), f"{where}{CHECKS[3]}")
    # A list without rows does not tell the number of chunks: the other matrix does.
    if in_response is None:
        in_response = np.empty((0, 0 if in_reference is None else in_reference.shape[1]), bool)
    if in_reference is None:
        in_reference = np.empty((0, in_response.shape[1]), bool)
    if in_response.shape[1] != in_reference.shape[1]:
        raise DataError(
            f"{where}{CHECKS[2]} has {in_response.shape[1]} chunks, {CHECKS[3]} has {in_reference.shape[1]}",
            "the same chunks in both",
            "check the claims against all chunks again",
        )
    return ClaimLabels(correct, covered, in_response, in_reference)


def _metrics(labels: ClaimLabels, empty: float, literal: bool) -> dict[str, float]:
    """The eleven formulas of section 3.3, from boolean arrays."""
    correct, wrong = labels.response_in_reference, ~labels.response_in_reference
    covered, faithful = labels.reference_in_response, labels.response_in_chunks.any(axis=1)
    relevant = labels.reference_in_chunks.any(axis=0)  # chunks that entail a reference claim
    recalled = labels.reference_in_chunks.any(axis=1)  # reference claims that a chunk entails
    from_relevant = labels.response_in_chunks[:, relevant].any(axis=1)
    from_irrelevant = labels.response_in_chunks[:, ~relevant].any(axis=1)
    if not literal:
        from_irrelevant &= ~from_relevant

    def share(flags: np.ndarray, defined: bool = True) -> float:
        return int(flags.sum()) / len(flags) if defined and len(flags) else empty

    chunks, references = len(relevant) > 0, len(covered) > 0
    precision, recall = share(correct), share(covered)
    if not (len(correct) and references):
        f1 = empty
    elif precision + recall == 0:
        f1 = 0.0  # the limit of the harmonic mean
    else:
        f1 = 2 * precision * recall / (precision + recall)
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


def _counts(labels: ClaimLabels) -> dict[str, int]:
    relevant, recalled = (int(labels.reference_in_chunks.any(axis).sum()) for axis in (0, 1))
    sizes = (len(labels.response_in_reference), *labels.reference_in_chunks.shape)
    return dict(zip(COUNTS, (*sizes, relevant, recalled), strict=True))


def _number(empty: Empty) -> float:
    if isinstance(empty, str):
        check_known("value of empty", [empty], ("published",))
        return 0.0
    try:
        return float(empty)
    except (TypeError, ValueError):
        raise ConfigError(f"empty={empty!r}", 'a number, or "published" for 0', "leave it out for NaN") from None


def _literal(irrelevant_noise: str) -> bool:
    check_known("irrelevant_noise", [irrelevant_noise], ("exclusive", "literal"))
    return irrelevant_noise == "literal"


def _named(result: Any, number: int) -> tuple[str, Any]:
    """Id and labels of one result; ``number`` names one without id. DataError when it lacks labels."""
    strange: list[Any] = []
    if isinstance(result, Mapping):
        strange = [key for key in result if key not in CHECKS and key != "id"]
        result = ClaimLabels(*(result.get(check) for check in CHECKS), id=result.get("id", ""))
    name = getattr(result, "id", "")
    name = str(number) if name in ("", None) else str(name)
    lacking = [check for check in CHECKS if getattr(result, check, None) is None]
    if lacking:
        # A mistyped field is among those that nobody knows.
        strange += getattr(result, "extra", None) or ()
        beside = f" (it has {', '.join(map(str, strange))})" if strange else ""
        raise DataError(
            f"result {name!r}: no labels for {', '.join(lacking)}{beside}",
            f"all of {', '.join(CHECKS)}",
            "check the claims of that result first, or leave it out and say so",
        )
    return name, result


def _vector(values: Any, where: str) -> np.ndarray:
    if getattr(values, "ndim", 1) != 1:
        raise DataError(f"{where} has shape {values.shape}", "one dimension: a label per claim", "ravel it")
    return _booleans(_sequence(values, where), where)


def _matrix(values: Any, claims: int, where: str) -> np.ndarray | None:
    """Labels (claims, chunks); None where an empty list does not tell the number of chunks."""
    if len(shape := getattr(values, "shape", ())) == 2 and shape[0] == claims:
        flat = np.asarray(values).ravel()
        return (flat if flat.dtype == bool else _booleans(flat.tolist(), where, shape[1])).reshape(shape)
    if len(shape) > 1:
        raise _misshapen(where, claims, f"has shape {shape}")
    rows = _sequence(values, where)
    if not rows:
        return np.empty((claims, 0), bool) if claims else None
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        raise _misshapen(where, claims, "has one dimension")
    widths = sorted({len(row) for row in rows})
    if len(rows) != claims or len(widths) > 1:
        raise _misshapen(where, claims, f"has {len(rows)} rows of {' and '.join(map(str, widths))} labels")
    return _booleans([label for row in rows for label in row], where, widths[0]).reshape(claims, widths[0])


def _sequence(values: Any, where: str) -> Sequence[Any]:
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, (list, tuple)):
        raise DataError(f"{where} is {values!r:.60}", "an array or a list of labels", "pass one label per claim")
    return values


def _misshapen(where: str, claims: int, got: str) -> DataError:
    return DataError(
        f"{where} {got}",
        f"shape ({claims}, n_chunks): one row for each of the {claims} claims, one column for each chunk",
        "transpose it if rows are chunks; check the claims again if labels are missing",
    )


def _booleans(labels: Sequence[Any], where: str, width: int | None = None) -> np.ndarray:
    """Look the labels up; ``width`` is the number of columns of a matrix, for the place in the message."""
    try:
        return np.fromiter(map(_ENTAILED.__getitem__, labels), bool, len(labels))
    except (KeyError, TypeError):
        place = next(i for i, label in enumerate(labels) if not _known(label))
        at = f"[{place}]" if width is None else f"[{place // width}, {place % width}]"
        raise DataError(
            f"{where}{at}: label {labels[place]!r:.60}",
            "Entailment, Neutral or Contradiction; or True or False",
            "check that claim again; do not pad missing labels with Neutral",
        ) from None


def _known(label: Any) -> bool:
    try:
        return label in _ENTAILED
    except TypeError:  # a list, say
        return False
