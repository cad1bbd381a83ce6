"""What the claim inspector shows of a result, without widgets: rows of labels, metrics with reasons, HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ragbench.data.ragchecker import LABELS, RagResult, RagResults, claim_text, from_ragchecker
from ragbench.errors import ConfigError, DataError
from ragbench.metrics.claims import CHECKS, COUNTS, METRICS, claim_counts, claim_metrics
from ragbench.widgets.base import escape, mark

ENTAILED = LABELS[0]
SYMBOLS = {LABELS[0]: "✓", LABELS[1]: "–", LABELS[2]: "✗", None: "?"}
LEGEND = (
    "<span class='rb-quiet'>"
    + " &nbsp; ".join(f"{SYMBOLS[label]} {label or 'no label'}" for label in SYMBOLS)
    + " &nbsp; R: relevant, the chunk entails a reference claim</span>"
)
OTHER = {"response": "reference", "reference": "response"}
CHECKS_OF = {"response": (CHECKS[0], CHECKS[2]), "reference": (CHECKS[1], CHECKS[3])}
HINT = "Marked: the sentence with most of the claim's words ({:.0%} by weight). A hint; the label is the checker's."
NO_HINT = "No sentence shares its words (at best {:.0%} by weight)."
LEAST_SHARE = 0.2  # less in common is chance ("the", a name that every chunk has), and a mark there would mislead
NO_RESPONSE, NO_REFERENCE = "the response has no claims", "the reference has no claims"
NO_CHUNKS, NOTHING_FOUND = "nothing was retrieved", "no chunk entails a reference claim"
# What each metric cannot do without, as in ragbench.metrics.claims.claim_metrics.
_NEEDS = {
    "precision": (NO_RESPONSE,),
    "recall": (NO_REFERENCE,),
    "f1": (NO_RESPONSE, NO_REFERENCE),
    "claim_recall": (NO_REFERENCE,),
    "context_precision": (NO_REFERENCE, NO_CHUNKS),
    "context_utilization": (NO_REFERENCE, NOTHING_FOUND),
    "relevant_noise_sensitivity": (NO_RESPONSE, NO_REFERENCE, NO_CHUNKS),
    "irrelevant_noise_sensitivity": (NO_RESPONSE, NO_REFERENCE, NO_CHUNKS),
    "hallucination": (NO_RESPONSE, NO_CHUNKS),
    "self_knowledge": (NO_RESPONSE, NO_CHUNKS),
    "faithfulness": (NO_RESPONSE, NO_CHUNKS),
}
Row = tuple[str, tuple[str | None, ...]]


def as_results(given: Any) -> tuple[RagResult, ...]:
    """Take results in any of the forms `ClaimInspector` takes; DataError for malformed ones or none."""
    if isinstance(given, pd.DataFrame) and "claim_labels" in given:
        given = given["claim_labels"]
    if isinstance(given, pd.Series):
        given = given.dropna().tolist()
    if isinstance(given, RagResults):
        results = given.results
    elif isinstance(given, RagResult):
        results = (given,)
    elif isinstance(given, Mapping):
        results = from_ragchecker(dict(given) if "results" in given else {"results": [dict(given)]}).results
    elif isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(r, RagResult) for r in given):
        results = tuple(given)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        results = from_ragchecker({"results": list(given)}).results
    else:
        raise ConfigError(
            f"results is {type(given).__name__}",
            "RagResults, a list of them, RAGChecker's JSON as dicts, or a table of rb.score with claim_labels",
            "read a file with ragbench.data.read_ragchecker first",
        )
    if not results:
        raise DataError("there are no results", "at least one", "check what made them")
    return results


def label_sets(results: Sequence[RagResult], labels: Mapping[Any, Any]) -> list[dict[str, Sequence | None]]:
    """Return for every result its four sets of labels, those of ``labels`` before the result's own.

    Raises
    ------
    DataError naming result and check for an id that is not there, an unknown word, or a number that does not fit.
    """
    given: dict[tuple[Any, str], Any] = {}
    for key, value in labels.items():
        if isinstance(key, tuple):
            given[key] = value
        else:
            take = value.get if isinstance(value, Mapping) else lambda name, of=value: getattr(of, name, None)
            given |= {(key, check): take(check) for check in CHECKS if take(check) is not None}
    ids = {result.id for result in results}
    for name, check in given:
        if name not in ids or check not in CHECKS:
            raise DataError(
                f"labels for {check!r} of result {name!r}",
                f"an id of the results and one of {', '.join(CHECKS)}",
                "check the keys of labels",
            )
    all_sets = []
    for result in results:
        sets = {check: given.get((result.id, check), getattr(result, check)) for check in CHECKS}
        for side, (one, many) in CHECKS_OF.items():
            claims = getattr(result, f"{side}_claims")
            for check, width in ((one, None), (many, len(result.chunks))):
                _fits(sets[check], claims, width, f"result {result.id!r}: {check}")
        all_sets.append(sets)
    return all_sets


def _fits(labels: Any, claims: Sequence | None, width: int | None, where: str) -> None:
    if labels is None:
        return
    rows = [[label] for label in labels] if width is None else labels
    if claims is not None and len(rows) != len(claims) and (rows or width != 0):
        raise DataError(f"{where} has {len(rows)} labels", f"{len(claims)}, one per claim", "check them again")
    for row in rows:
        if width is not None and len(row) != width:
            raise DataError(f"{where} has a row of {len(row)}", f"{width}, one per chunk", "check them again")
        for label in row:
            if not (label is None or isinstance(label, str)) or label not in SYMBOLS:
                raise DataError(f"{where}: label {label!r}", f"one of {', '.join(LABELS)}, or None", "mend it")


def side_rows(result: RagResult, sets: Mapping[str, Any], side: str) -> list[Row]:
    """List the claims of one side with their labels: against the other answer, then against every chunk."""
    one, many = (sets[check] for check in CHECKS_OF[side])
    claims = getattr(result, f"{side}_claims")
    count = len(claims if claims is not None else one if one is not None else many or ())
    words = [claim_text(c) for c in claims] if claims is not None else ["(no text)"] * count
    one = one if one is not None else [None] * count
    many = many or [[None] * len(result.chunks)] * count
    return [(word, (label, *row)) for word, label, row in zip(words, one, many, strict=True)]


def scores_of(result: RagResult, sets: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str], dict[str, int]]:
    """Compute the metrics of one result.

    Returns
    -------
    (metrics in [0, 1] with NaN where undefined, for each undefined one the reason, counts; no counts where labels lack)
    """
    lacking = [check for check in CHECKS if sets[check] is None]
    unread = [check for check in CHECKS if sets[check] is not None and _has_none(sets[check])]
    if lacking or unread:
        why = [f"{check.replace('_', ' ')} not checked" for check in lacking]
        why += [f"{check.replace('_', ' ')} has unread labels" for check in unread]
        return dict.fromkeys(METRICS, math.nan), dict.fromkeys(METRICS, "; ".join(why)), {}
    four = [sets[check] for check in CHECKS]
    values, counts = claim_metrics(*four), claim_counts(*four)
    # A matrix without rows does not tell how many chunks there were.
    counts["n_chunks"] = len(result.chunks)
    absent = {
        NO_RESPONSE: not counts["n_response_claims"],
        NO_REFERENCE: not counts["n_reference_claims"],
        NO_CHUNKS: not counts["n_chunks"],
        NOTHING_FOUND: not counts["n_recalled_claims"],
    }
    reasons = {
        name: next(reason for reason in _NEEDS[name] if absent[reason])
        for name, value in values.items()
        if math.isnan(value)
    }
    return values, reasons, counts


def _has_none(labels: Sequence) -> bool:
    return any(row is None or (not isinstance(row, str) and None in row) for row in labels)


def best_sentence(claim: str, text: str) -> tuple[int, int, float] | None:
    """Find the sentence of a text that shares most stems with a claim, by weight of the claim's words.

    Returns
    -------
    (start, end, share): where the sentence is in the text, the first of equally good ones, and the weight of the shared
    words as a share of the claim's, in (0, 1]. None where no word is shared.
    """
    from ragbench.text.apart import take_apart

    claimed, searched = take_apart(claim).weight, take_apart(text)
    total = sum(claimed.values())
    start, best, most = 0, None, 0.0
    for sentence, stems in zip(searched.sentences, searched.sentence_stems, strict=True):
        start = text.index(sentence, start)
        shared = sum(weight for stem, weight in claimed.items() if stem in stems)
        if shared > most:
            best, most = (start, start + len(sentence), shared / total), shared
        start += len(sentence)
    return best


def place(side: str, column: int) -> str:
    """Name a column of one side: the other answer, or a chunk from 1."""
    return f"chunk {column}" if column else OTHER[side]


def first_entailing(labels: Sequence[str | None]) -> int:
    """Return the column that entails a claim: the first such chunk, else the other answer, else the first chunk."""
    chunks = [i for i, label in enumerate(labels) if label == ENTAILED and i]
    return chunks[0] if chunks else 0 if labels[0] == ENTAILED else min(1, len(labels) - 1)


def short(text: str, size: int = 60) -> str:
    """Cut a text to one line of at most ``size`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= size else line[: size - 1] + "…"


def number(value: float) -> str:
    """Write a metric with three digits."""
    return "undefined" if math.isnan(value) else f"{value:.3f}"


def texts(result: RagResult, position: int, count: int) -> str:
    """Question, response and reference as HTML."""
    parts = [
        f"<div><h4>{name}</h4><div class='rb-long' tabindex='0'>{escape(text) or '<i>(empty)</i>'}</div></div>"
        for name, text in (("Response", result.response), ("Reference", result.reference))
    ]
    head = f"<span class='rb-quiet'>result {position} of {count}, id {escape(result.id)}</span>"
    question = f"<p style='margin:4px 0'>{head}<br><b>{escape(result.question)}</b></p>"
    return f"{question}<div class='rb-texts'>{''.join(parts)}</div>"


def metrics_html(values: Mapping[str, float], reasons: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """The eleven metrics as an HTML table, the undefined ones with their reasons, and what they rest on."""
    rows = []
    for name, value in values.items():
        shown = f"undefined: {reasons[name]}" if name in reasons else number(value)
        look = "class='rb-quiet'" if name in reasons else "class='rb-number'"
        rows.append(f"<tr><td>{name.replace('_', ' ')}</td><td {look}>{escape(shown)}</td></tr>")
    rest = ", ".join(f"{counts[name]} {name[2:].replace('_', ' ')}" for name in COUNTS) if counts else ""
    return f"<table><tbody>{''.join(rows)}</tbody></table><p class='rb-quiet' style='margin:4px 0'>{rest}</p>"


def detail(result: RagResult, side: str, claim: int, rows: Sequence[Row], column: int) -> str:
    """One claim against one text as HTML: where else it is entailed, and the text with its best sentence marked."""
    words, labels = rows[claim]
    label = labels[column]
    entailing = [place(side, i) for i, given in enumerate(labels) if given == ENTAILED]
    where = "Entailed by " + ", ".join(entailing) if entailing else "No text entails it"
    if column:
        chunk = result.chunks[column - 1]
        text, name = chunk.text, f" ({escape(chunk.doc_id)})" if chunk.doc_id is not None else ""
    else:
        text, name = getattr(result, OTHER[side]), ""
    span = best_sentence(words, text)
    a, b, share = span or (0, 0, 0.0)
    marked, hint = escape(text), NO_HINT.format(share)
    if share >= LEAST_SHARE:
        marked, hint = f"{escape(text[:a])}{mark(1, escape(text[a:b]))}{escape(text[b:])}", escape(HINT.format(share))
    return (
        f"<p style='margin:4px 0'><b>{side.capitalize()} claim {claim + 1}:</b> {escape(words)}<br>"
        f"{escape(where)}.</p><p class='rb-said' style='margin:4px 0'><b>{SYMBOLS[label]} {label or 'no label'}</b> by "
        f"{place(side, column)}{name}</p><div class='rb-long' tabindex='0'>{marked}</div>"
        f"<p class='rb-quiet' style='margin:4px 0'>{hint}</p>"
    )
