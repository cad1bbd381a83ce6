"""RAGChecker's eleven claim-level metrics, from labels (Ru et al. 2024, section 3.3 and appendix
B).

A label says whether a text entails a claim; Contradiction counts as not entailed, as published.
Follows the paper's tables and released code, not the letter of appendix B, in one point: irrelevant
noise counts only claims that no relevant chunk entails, so that precision, both noise sensitivities
and hallucination add up to 1 (``irrelevant_noise="literal"`` gives the formula as printed).

RAGChecker asks each chunk by itself. A claim that only several chunks together entail is then not
retrieved, and right claims of that kind are *self-knowledge*. Labels against the retrieved text as
a whole, where there are some, change `IN_RETRIEVED` and nothing else: claims of two documents count
as found and as faithful.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.data.ragchecker import RagResults
from ragbench.errors import ConfigError, DataError, check_known

CHECKS = (
    "response_in_reference",
    "reference_in_response",
    "response_in_chunks",
    "reference_in_chunks",
)
COUNTS = (
    "n_response_claims",
    "n_reference_claims",
    "n_chunks",
    "n_relevant_chunks",
    "n_recalled_claims",
)
GROUPS = {
    "overall": ("precision", "recall", "f1"),
    "retriever": ("claim_recall", "context_precision"),
    "generator": (
        "context_utilization", "relevant_noise_sensitivity", "irrelevant_noise_sensitivity", "hallucination",
        "self_knowledge", "faithfulness",
    ),
}  # fmt: skip
METRICS = tuple(name for names in GROUPS.values() for name in names)
LOWER_IS_BETTER = (
    "relevant_noise_sensitivity",
    "irrelevant_noise_sensitivity",
    "hallucination",
    "self_knowledge",
)
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
RAGCHECKER_NAMES = {name: name for name in METRICS} | {
    "relevant_noise_sensitivity": "noise_sensitivity_in_relevant",
    "irrelevant_noise_sensitivity": "noise_sensitivity_in_irrelevant",
}

# 1 == True == 1.0
_ENTAILED = {"Entailment": True, "Neutral": False, "Contradiction": False, 1: True, 0: False}
_Empty = float | Literal["published"]
_Noise = Literal["exclusive", "literal"]


@dataclass(frozen=True, slots=True, eq=False)
class ClaimLabels:
    """Labels of one result: booleans, 0/1, or the words Entailment / Neutral / Contradiction.

    Shapes: (n_response_claims,), (n_reference_claims,), (n_response_claims, n_chunks),
    (n_reference_claims, n_chunks). ``id`` names the result in tables and error messages.
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
    empty: _Empty = np.nan,
    irrelevant_noise: _Noise = "exclusive",
    response_in_retrieved: Any = None,
    reference_in_retrieved: Any = None,
) -> dict[str, float]:
    """Compute RAGChecker's eleven metrics of one response: a dict of `METRICS` to numbers in [0,
    1].

    Parameters
    ----------
    response_in_reference, reference_in_response : shape (n_claims,), the claims of one text that
    the other entails.
    response_in_chunks, reference_in_chunks : shape (n_claims, n_chunks), claims by the chunks that
    entail them.
    empty : value of what is undefined; "published" is the 0 of RAGChecker's released code.
    Undefined are: precision
        without response claims; recall without reference claims; f1 without either; claim recall
        without reference claims (without chunks it is 0: nothing was found); context precision
        without chunks or reference claims; context utilization when no chunk entails a reference
        claim; the other five without response claims or chunks, and the two noise sensitivities
        also without reference claims, which tell relevant chunks.
    irrelevant_noise : "exclusive" leaves out claims that a relevant chunk entails too; "literal" is
    appendix B.
    response_in_retrieved, reference_in_retrieved : shape (n_claims,), the claims that all chunks
    together entail; None
        (also of a single claim): as the chunks one by one. Ours, not RAGChecker's.

    Source: RAGChecker, section 3.3, appendix B. Paper values (E5-Mistral + GPT-4, Table 3,
    percent): precision 62.0, recall 53.0, f1 52.7 (the mean of f1, not the f1 of means), claim
    recall 83.5, context precision 61.8.

    >>> scores = claim_metrics([True, False], [True, False, False], [[1, 0], [0, 1]], [[1, 0], [1,
    0], [0, 0]])
    >>> scores["precision"], scores["irrelevant_noise_sensitivity"], round(scores["claim_recall"],
    3) (0.5, 0.5, 0.667)
    """
    empty = _as_number(empty)
    check_known("irrelevant_noise", [irrelevant_noise], ("exclusive", "literal"))
    correct, covered, in_response, in_reference = _read(
        response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks
    )

    def share(flags: np.ndarray, *needed: np.ndarray) -> float:
        return float(flags.mean()) if all(map(len, (flags, *needed))) else empty

    # 3.3.1 Overall: of the response's claims the correct ones, of the reference's claims those in
    # the response.
    precision = share(correct)
    recall = share(covered)
    f1 = empty
    if len(correct) and len(covered):
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0

    # 3.3.2 Retriever: reference claims that some chunk entails, and the chunks that entail one.
    # by reference claim
    recalled = in_reference.any(axis=1) | _together(reference_in_retrieved, len(covered))
    relevant = in_reference.any(axis=0)  # by chunk

    # 3.3.3 Generator: where do correct and wrong claims come from?
    # by response claim
    faithful = in_response.any(axis=1) | _together(response_in_retrieved, len(correct))
    from_relevant = in_response[:, relevant].any(axis=1)
    from_irrelevant = in_response[:, ~relevant].any(axis=1)
    if irrelevant_noise == "exclusive":
        from_irrelevant &= ~from_relevant
    return {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "claim_recall": share(recalled),
        "context_precision": share(relevant, covered),
        "context_utilization": share(covered[recalled]),
        "relevant_noise_sensitivity": share(~correct & from_relevant, relevant, covered),
        "irrelevant_noise_sensitivity": share(~correct & from_irrelevant, relevant, covered),
        "hallucination": share(~correct & ~faithful, relevant),
        "self_knowledge": share(correct & ~faithful, relevant),
        "faithfulness": share(faithful, relevant),
    }


def claim_counts(
    response_in_reference: Any,
    reference_in_response: Any,
    response_in_chunks: Any,
    reference_in_chunks: Any,
) -> dict[str, int]:
    """Count what `claim_metrics` of one response rest on, by `COUNTS`.

    A relevant chunk entails a reference claim; a recalled claim is a reference claim that a chunk
    entails.
    """
    correct, covered, _, in_reference = _read(
        response_in_reference, reference_in_response, response_in_chunks, reference_in_chunks
    )
    relevant, recalled = (int(in_reference.any(axis).sum()) for axis in (0, 1))
    return dict(
        zip(
            COUNTS,
            (len(correct), len(covered), in_reference.shape[1], relevant, recalled),
            strict=True,
        )
    )


def claim_metrics_table(
    results: Iterable[Any],
    empty: _Empty = np.nan,
    irrelevant_noise: _Noise = "exclusive",
    in_retrieved: bool = False,
) -> pd.DataFrame:
    """Compute the metrics of many responses; numbers of claims and chunks may differ between them.

    ``results``: a `RagResults`, or objects or mappings with ``id`` and the labels under the names
    of `CHECKS`. ``empty``, ``irrelevant_noise``: as in `claim_metrics`. ``in_retrieved``: use the
    results' `RETRIEVED_LABELS` too, those against all chunks together; a DataError where a result
    has none.

    DataFrame, one row per result, index ``id``; columns `METRICS` (in [0, 1]) and `COUNTS`.
    DataError names id and field of the first result whose labels are missing, misshapen or unknown.
    """
    empty = _as_number(empty)
    results = getattr(results, "results", results)
    if isinstance(results, Mapping | str) or not isinstance(results, Iterable):
        raise DataError(
            f"results is {type(results).__name__}",
            "a list of results",
            "pass [result] for a single one",
        )
    names = []
    rows = []
    for number, result in enumerate(results):
        name, sets = _labels_of(result, number)
        names.append(name)
        try:
            read = _read(*sets)
        except DataError as error:
            raise DataError(f"result {name!r}, {error.got}", error.expected, error.do) from None
        together = _retrieved_labels(result, name) if in_retrieved else {}
        rows.append(claim_metrics(*read, empty, irrelevant_noise, **together) | claim_counts(*read))
    table = pd.DataFrame(rows, pd.Index(names, name="id", dtype=object), [*METRICS, *COUNTS])
    return table.astype(dict.fromkeys(METRICS, float) | dict.fromkeys(COUNTS, np.int64))


def ragchecker_averages(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Average each metric over responses, as RAGChecker writes it: by group, under its names, in
    percent, one decimal.

    NaN is left out, so the released numbers need ``empty="published"`` in `claim_metrics_table`.

    Source: RAGChecker, section 4.3, Tables 3 and 6-15 (means over a domain's questions).
    """
    percent = table[list(METRICS)].mean() * 100
    return {
        group: {RAGCHECKER_NAMES[name]: round(float(percent[name]), 1) for name in names}
        for group, names in GROUPS.items()
    }


def score_ragchecker(results: RagResults) -> RagResults:
    """Return checked results with all metrics and averages, as RAGChecker writes them;

    undefined ones are 0 there.
    """
    table = claim_metrics_table(results, empty="published")
    rows = table[list(METRICS)].rename(columns=RAGCHECKER_NAMES).to_dict("records")
    scored = tuple(
        replace(result, metrics=row) for result, row in zip(results.results, rows, strict=True)
    )
    return replace(results, results=scored, metrics=ragchecker_averages(table))


def _as_number(empty: _Empty) -> float:
    if empty == "published":
        return 0.0
    if isinstance(empty, int | float):
        return float(empty)
    raise ConfigError(f"empty={empty!r}", 'a number, or "published" for 0', "leave it out for NaN")


def _labels_of(result: Any, number: int) -> tuple[str, list[Any]]:
    if isinstance(result, Mapping):
        fields = dict(result)
    else:
        fields = {name: getattr(result, name, None) for name in ("id", *CHECKS)} | dict(
            getattr(result, "extra", ())
        )
    name = str(number) if fields.get("id") in ("", None) else str(fields["id"])
    if missing := [check for check in CHECKS if fields.get(check) is None]:
        # a mistyped name is among them
        others = [field for field in fields if field not in ("id", *CHECKS)]
        got = (
            f"result {name!r}: no labels for {', '.join(missing)}"
            + f" (it has {', '.join(others)})" * bool(others)
        )
        do = "check the claims of that result first, or leave it out and say so"
        raise DataError(got, f"all of {', '.join(CHECKS)}", do)
    return name, [fields[check] for check in CHECKS]


def _retrieved_labels(result: Any, name: str) -> dict[str, Any]:
    fields = result if isinstance(result, Mapping) else getattr(result, "extra", {})
    if missing := [label for label in RETRIEVED_LABELS if fields.get(label) is None]:
        do = "label its claims against all chunks together, or leave in_retrieved out"
        raise DataError(
            f"result {name!r}: no labels for {', '.join(missing)}",
            " and ".join(RETRIEVED_LABELS),
            do,
        )
    return {label: fields[label] for label in RETRIEVED_LABELS}


def _together(labels: Any, n_claims: int) -> np.ndarray:
    """Return which claims the chunks together entail;

    a claim that was not held against them (None) is none of them.
    """
    if labels is None:
        return np.zeros(n_claims, bool)
    if len(labels) != n_claims:
        got = f"{len(labels)} labels against the retrieved text"
        do = "label every claim, None where not held against it"
        raise DataError(got, f"{n_claims}, one per claim", do)
    return _as_matrix(
        ["Neutral" if label is None else label for label in labels],
        "labels against the retrieved text",
    )


def _read(*sets: Any) -> list[np.ndarray]:
    """The four sets of labels as boolean arrays of shapes that fit."""
    correct, covered = (
        _as_matrix(labels, check) for check, labels in zip(CHECKS[:2], sets[:2], strict=True)
    )
    in_response = _as_matrix(sets[2], CHECKS[2], len(correct))
    in_reference = _as_matrix(sets[3], CHECKS[3], len(covered))
    chunks = in_response.shape[1], in_reference.shape[1]
    # Where there is no claim, an empty list does not tell the number of chunks: the other matrix
    # does.
    if not len(correct) and not chunks[0]:
        in_response = np.empty((0, chunks[1]), bool)
    elif not len(covered) and not chunks[1]:
        in_reference = np.empty((0, chunks[0]), bool)
    elif chunks[0] != chunks[1]:
        got = f"{CHECKS[2]} has {chunks[0]} chunks, {CHECKS[3]} has {chunks[1]}"
        raise DataError(got, "the same chunks in both", "check the claims against all chunks again")
    return [correct, covered, in_response, in_reference]


def _as_matrix(labels: Any, name: str, n_claims: int | None = None) -> np.ndarray:
    """Return labels as booleans:

    shape (n,), a label a claim; with ``n_claims`` (n_claims, n_chunks).
    """
    found = (
        labels
        if isinstance(labels, np.ndarray) and labels.dtype == bool
        else np.asarray(labels, dtype=object)
    )
    if n_claims is None and found.ndim != 1:
        got = f"{name} is {labels!r:.60}" if found.ndim == 0 else f"{name} has shape {found.shape}"
        raise DataError(got, "a list: one dimension, one label per claim", "ravel an array of two")
    if n_claims is not None:
        found = found.reshape(n_claims, 0) if found.shape == (0,) else found
        if found.ndim != 2 or len(found) != n_claims:
            raise DataError(
                f"{name} has shape {found.shape}"
                + (", or rows of unequal length" if found.ndim == 1 else ""),
                (
                    f"shape ({n_claims}, n_chunks): one row for each of the {n_claims} claims, one "
                    "column for each chunk"
                ),
                "transpose it if rows are chunks; check the claims again if labels are missing",
            )
    if found.dtype == bool:
        return found
    try:
        return np.array([_ENTAILED[label] for label in found.flat], bool).reshape(found.shape)
    except (KeyError, TypeError):
        place, label = next(
            (p, x) for p, x in np.ndenumerate(found) if isinstance(x, list) or x not in _ENTAILED
        )
        raise DataError(
            f"{name}{list(place)}: label {label!r:.60}",
            "Entailment, Neutral or Contradiction; or True or False",
            "check that claim again; do not pad missing labels with Neutral",
        ) from None
