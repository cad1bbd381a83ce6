"""RAGChecker's eleven claim-level metrics, from labels (Ru et al. 2024, section 3.3 and appendix
B).

A label says whether a text entails a claim; Contradiction counts as not entailed, as published.
Follows the paper's tables and released code, not the letter of appendix B, in one point: irrelevant
noise counts only claims that no relevant chunk entails, so that precision, both noise sensitivities
and hallucination add up to 1 (notebook 20 has the formula as printed beside it).

RAGChecker asks each chunk by itself. A claim that only several chunks together entail is then not
retrieved, and right claims of that kind are *self-knowledge*. Labels against the retrieved text as
a whole, where there are some, change `IN_RETRIEVED` and nothing else: claims of two documents count
as found and as faithful.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.ragchecker import CHECKS
from ragbench.errors import DataError

COUNTS = (
    "n_response_claims",
    "n_reference_claims",
    "n_chunks",
    "n_relevant_chunks",
    "n_recalled_claims",
)
CLAIM_GROUPS = {
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
CLAIM_METRICS = tuple(name for names in CLAIM_GROUPS.values() for name in names)
LOWER_IS_BETTER = (
    "relevant_noise_sensitivity",
    "irrelevant_noise_sensitivity",
    "hallucination",
    "self_knowledge",
)
# The claims that precision leaves out, in two. Ours.
WRONG_CLAIMS = ("contradicted", "not_in_reference")
# Metrics that ask whether the retrieved text entails a claim, and can change where chunks are read
# together.
IN_RETRIEVED = (
    "claim_recall",
    "context_utilization",
    "hallucination",
    "self_knowledge",
    "faithfulness",
)
RETRIEVED_LABELS = ("response_in_retrieved", "reference_in_retrieved")
RAGCHECKER_NAMES = {name: name for name in CLAIM_METRICS} | {
    "relevant_noise_sensitivity": "noise_sensitivity_in_relevant",
    "irrelevant_noise_sensitivity": "noise_sensitivity_in_irrelevant",
}

_ENTAILED = {"Entailment": True, "Neutral": False, "Contradiction": False, 1: True, 0: False}


def claim_metrics(
    response_in_reference: Any,
    reference_in_response: Any,
    response_in_chunks: Any,
    reference_in_chunks: Any,
    empty: float = np.nan,
    response_in_retrieved: Any = None,
    reference_in_retrieved: Any = None,
) -> dict[str, float]:
    """Compute RAGChecker's eleven metrics of one response, and what kind of wrong its claims are: a
    dict of `CLAIM_METRICS` and `WRONG_CLAIMS` to numbers in [0, 1].

    Labels are the words Entailment / Neutral / Contradiction, or booleans.

    Parameters
    ----------
    response_in_reference, reference_in_response : shape (n_claims,), the claims of one text that
        the other entails.
    response_in_chunks, reference_in_chunks : shape (n_claims, n_chunks), claims by the chunks that
        entail them.
    empty : value of what is undefined; RAGChecker's released code takes 0.0. Undefined are:
        precision without response claims; recall without reference claims; f1 without either; claim
        recall without reference claims (without chunks it is 0: nothing was found); context
        precision without chunks or reference claims; context utilization when no chunk entails a
        reference claim; the other five without response claims or chunks, and the two noise
        sensitivities also without reference claims, which tell relevant chunks.
    response_in_retrieved, reference_in_retrieved : shape (n_claims,), the claims that all chunks
        together entail; None (also of a single claim): as the chunks one by one. Ours, not
        RAGChecker's.

    contradicted and not_in_reference are the claims of the response that the true answer
    contradicts, and on which it says nothing: together 1 - precision. NaN where labels are
    booleans, which do not tell them apart.

    Source: RAGChecker, section 3.3, appendix B. Paper values (E5-Mistral + GPT-4, Table 3,
    percent): precision 62.0, recall 53.0, f1 52.7 (the mean of f1, not the f1 of means), claim
    recall 83.5, context precision 61.8.

    >>> in_response = [[1, 0], [0, 1]]
    >>> in_reference = [[1, 0], [1, 0], [0, 0]]
    >>> scores = claim_metrics([True, False], [True, False, False], in_response, in_reference)
    >>> scores["precision"], scores["irrelevant_noise_sensitivity"], scores["recall"].__round__(3)
    (0.5, 0.5, 0.333)
    """
    tables = _read(
        response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks
    )
    metrics = _metrics(*tables, empty, response_in_retrieved, reference_in_retrieved)
    return metrics | _wrong_claims(response_in_reference, tables[0], empty)


def _metrics(
    correct: np.ndarray,
    covered: np.ndarray,
    in_response: np.ndarray,
    in_reference: np.ndarray,
    empty: float,
    response_in_retrieved: Any = None,
    reference_in_retrieved: Any = None,
) -> dict[str, float]:
    """Section 3.3, from booleans: claims of the response that are correct, claims of the reference
    that the response covers, and which chunks (columns) entail which claims of both (rows).
    """
    # by reference claim: does some chunk entail it; by chunk: does it entail a reference claim
    recalled = _any(in_reference, 1) | _together(reference_in_retrieved, len(covered))
    relevant = _any(in_reference, 0)
    # by response claim: does some chunk entail it
    faithful = _any(in_response, 1) | _together(response_in_retrieved, len(correct))
    return {
        # 3.3.1 Overall: precision, recall, f1
        **_overall(correct, covered, empty),
        # 3.3.2 Retriever: claims of the reference that a chunk entails
        "claim_recall": _share(recalled, empty),
        # chunks that entail a claim of the reference
        "context_precision": _share(relevant, empty, len(covered)),
        # 3.3.3 Generator: retrieved claims of the reference that the response covers
        "context_utilization": _share(covered[recalled], empty),
        # relevant_noise_sensitivity, irrelevant_noise_sensitivity
        **_noise(~correct, in_response, relevant, empty, len(covered)),
        # wrong claims that no chunk entails
        "hallucination": _share(~correct & ~faithful, empty, len(relevant)),
        # correct claims that no chunk entails
        "self_knowledge": _share(correct & ~faithful, empty, len(relevant)),
        # claims of the response that a chunk entails
        "faithfulness": _share(faithful, empty, len(relevant)),
    }


def _any(table: np.ndarray, axis: int) -> np.ndarray:
    """Say of each claim, or of each chunk, whether one of its labels is true."""
    return table.max(axis, initial=False)


def _share(flags: np.ndarray, empty: float, *counts: int) -> float:
    """Share of flags that are true; ``empty`` without flags, or where one of the counts is 0."""
    if not len(flags) or 0 in counts:
        return empty
    return float(flags.mean())


def _overall(correct: np.ndarray, covered: np.ndarray, empty: float) -> dict[str, float]:
    """Section 3.3.1: correct claims of the response; claims of the reference in the response."""
    precision = _share(correct, empty)
    recall = _share(covered, empty)
    f1 = 0.0
    if not len(correct) or not len(covered):
        f1 = empty
    elif precision + recall:
        f1 = 2 * precision * recall / (precision + recall)
    return {"precision": precision, "recall": recall, "f1": f1}


def _wrong_claims(labels: Any, correct: np.ndarray, empty: float) -> dict[str, float]:
    """Claims of the response that the reference contradicts, and those that are not in it."""
    if not all(isinstance(label, str) for label in labels):
        return dict.fromkeys(WRONG_CLAIMS, float("nan"))
    contradicted = np.array([label == "Contradiction" for label in labels], bool)
    return {
        "contradicted": _share(contradicted, empty),
        "not_in_reference": _share(~correct & ~contradicted, empty),
    }


def _noise(
    wrong: np.ndarray, in_response: np.ndarray, relevant: np.ndarray, empty: float, n_reference: int
) -> dict[str, float]:
    """Section 3.3.3: wrong claims from a relevant chunk, or from irrelevant chunks alone.

    Without reference claims nothing tells which chunks are relevant.
    """
    from_relevant = _any(in_response[:, relevant], 1)
    from_irrelevant = _any(in_response[:, ~relevant], 1) & ~from_relevant
    needed = len(relevant), n_reference
    return {
        "relevant_noise_sensitivity": _share(wrong & from_relevant, empty, *needed),
        "irrelevant_noise_sensitivity": _share(wrong & from_irrelevant, empty, *needed),
    }


def _counts(
    correct: np.ndarray, covered: np.ndarray, in_response: np.ndarray, in_reference: np.ndarray
) -> dict[str, int]:
    return {
        "n_response_claims": len(correct),
        "n_reference_claims": len(covered),
        "n_chunks": in_reference.shape[1],
        "n_relevant_chunks": int(in_reference.any(axis=0).sum()),
        "n_recalled_claims": int(in_reference.any(axis=1).sum()),
    }


def claim_metrics_table(
    results: Iterable[Any], empty: float = np.nan, in_retrieved: bool = False
) -> pd.DataFrame:
    """Compute the metrics of many responses; numbers of claims and chunks may differ between them.

    ``results``: a `RagResults`, or records or mappings with ``id`` and the labels under the names
    of `ragbench.data.ragchecker.CHECKS`. ``empty``: as in `claim_metrics`. ``in_retrieved``: use
    the results' `RETRIEVED_LABELS` too, those against all chunks together; a DataError where a
    result has none.

    DataFrame, one row per result, index ``id``; columns `CLAIM_METRICS` and `WRONG_CLAIMS` (in [0,
    1]) and `COUNTS` (a relevant chunk entails a reference claim, a recalled claim is one that a
    chunk entails).
    DataError names id and field of the first result whose labels are missing, misshapen or unknown.

    >>> from ragbench.data.ragchecker import RagResult
    >>> yes = ("Entailment",)
    >>> labels = {"response_in_reference": yes, "reference_in_response": yes}
    >>> labels |= {"response_in_chunks": ((),), "reference_in_chunks": ((),)}
    >>> claims = {"response_claims": ("Ada built it.",), "reference_claims": ("It was Ada.",)}
    >>> result = RagResult("q1", "Who?", "It was Ada.", "Ada built it.", **claims, **labels)
    >>> rb.claim_metrics_table([result])["f1"].tolist()
    [1.0]
    """
    results = getattr(results, "results", results)
    names = []
    rows = []
    for number, result in enumerate(results):
        fields = _fields(result)
        name = fields.get("id")
        if name in ("", None):
            name = number
        name = str(name)
        names.append(name)
        try:
            rows.append(_row(fields, empty, in_retrieved))
        except DataError as error:
            raise DataError(f"result {name!r}: {error.got}", error.expected, error.do) from None
    shares = [*CLAIM_METRICS, *WRONG_CLAIMS]
    table = pd.DataFrame(rows, pd.Index(names, name="id", dtype=object), [*shares, *COUNTS])
    return table.astype(dict.fromkeys(shares, float) | dict.fromkeys(COUNTS, np.int64))


def _row(fields: Mapping[str, Any], empty: float, in_retrieved: bool) -> dict[str, float]:
    tables = _read(**_labels(fields, tuple(CHECKS)))
    together = {}
    if in_retrieved:
        together = _labels(fields, RETRIEVED_LABELS)
    wrong = _wrong_claims(fields["response_in_reference"], tables[0], empty)
    return _metrics(*tables, empty, **together) | wrong | _counts(*tables)


def _fields(result: Any) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    fields = {name: getattr(result, name, None) for name in ("id", *CHECKS)}
    return {**fields, **getattr(result, "extra", {})}


def _labels(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    missing = [name for name in names if fields.get(name) is None]
    if missing:
        present = [name for name in fields if name not in missing]
        raise DataError(
            f"no labels for {', '.join(missing)} (it has {', '.join(present)})",
            f"all of {', '.join(names)}",
            "check the claims of that result first, or leave it out and say so",
        )
    return {name: fields[name] for name in names}


def _together(labels: Any, n_claims: int) -> np.ndarray:
    """Return which claims the chunks together entail.

    A claim that was not held against them (None) is none of them.
    """
    if labels is None:
        return np.zeros(n_claims, bool)
    if len(labels) != n_claims:
        raise DataError(
            f"{len(labels)} labels against the retrieved text",
            f"{n_claims}, one per claim",
            "label every claim, None where not held against it",
        )
    read = ["Neutral" if label is None else label for label in labels]
    return _booleans(read, "labels against the retrieved text", 1)


def _read(
    response_in_reference: Any,
    reference_in_response: Any,
    response_in_chunks: Any,
    reference_in_chunks: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The four sets of labels as boolean arrays of shapes that fit."""
    correct = _booleans(response_in_reference, "response_in_reference", 1)
    covered = _booleans(reference_in_response, "reference_in_response", 1)
    in_response = _booleans(response_in_chunks, "response_in_chunks", 2)
    in_reference = _booleans(reference_in_chunks, "reference_in_chunks", 2)
    n_chunks = max(in_response.shape[1], in_reference.shape[1])
    return (
        correct,
        covered,
        _of_shape(in_response, "response_in_chunks", len(correct), n_chunks),
        _of_shape(in_reference, "reference_in_chunks", len(covered), n_chunks),
    )


def _of_shape(table: np.ndarray, name: str, claims: int, chunks: int) -> np.ndarray:
    if not len(table) and not (claims and chunks):
        return np.zeros((claims, chunks), bool)  # an empty list tells no shape
    if table.shape != (claims, chunks):
        raise DataError(
            f"{name} has shape {table.shape}",
            f"shape {(claims, chunks)}: a row per claim, a column per chunk",
            "transpose it if rows are chunks; check the claims again if labels are missing",
        )
    return table


def _booleans(labels: Any, name: str, dimensions: int) -> np.ndarray:
    """Return labels as booleans: shape (n,), a label a claim, or (n_claims, n_chunks)."""
    array = np.asarray(labels, dtype=object)
    if not array.size and dimensions == 2:
        array = array.reshape(len(labels), 0)
    if array.ndim != dimensions:
        expected = ["a list, a label per claim", "a row per claim, a column per chunk"]
        raise DataError(f"{name} of shape {array.shape}", expected[dimensions - 1])
    booleans = np.zeros(array.shape, bool)
    for place, label in np.ndenumerate(array):
        if not isinstance(label, Hashable) or label not in _ENTAILED:
            raise DataError(
                f"{name}{list(place)}: label {label!r:.60}",
                "Entailment, Neutral or Contradiction; or True or False",
                "check that claim again; do not pad missing labels with Neutral",
            )
        booleans[place] = _ENTAILED[label]
    return booleans
