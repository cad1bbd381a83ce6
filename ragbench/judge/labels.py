"""RAGChecker's labels without a language model: the embedded counterpart of ``metrics.steps.ragchecker_labels``.

Claims are sentences (`split_claims`), labels those of an `EmbeddedChecker`; the result has the same form, so metrics,
tables and RAGChecker's JSON do not care which of the two made it. Tables must: name the checker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.judge.checker import EmbeddedChecker, split_claims

if TYPE_CHECKING:
    from ragbench.data.ragchecker import Claim, RagResult, RagResults
    from ragbench.metrics.steps import Labelled

_SIDES = ("response", "reference")
_Claims = tuple["Claim", ...]
_Needed = dict[_Claims, dict[str, None]]  # texts that a list of claims is checked against, in order


def embedded_labels(results: RagResults | Sequence[RagResult], checker: Any = None) -> Labelled:
    """Take responses and references apart into sentence claims and check them, without a model server.

    Parameters
    ----------
    results : results as for `ragbench.metrics.steps.ragchecker_labels`. Claims and labels that are there stay; only
        what is missing is made.
    checker : an `EmbeddedChecker`, or any object whose ``check_many(claims, texts)`` gives a label per claim and text;
        default EmbeddedChecker().

    Returns
    -------
    Labelled, as from ``ragchecker_labels``; nothing is unscored. Its reports count calls (none) and items: texts taken
    apart, and labels made. Each text is embedded once, and each list of claims is checked once against each text,
    however many results share them: the reference's claims against a chunk that three retrievers found, for instance.

    Raises
    ------
    DataError for an id used twice; ConfigError for a checker whose labels do not fit the claims.

    Source: RAGChecker, section 3.2 (extraction and checking; the paper's are language models, these are not).
    """
    from ragbench.data.ragchecker import RagResults
    from ragbench.metrics.steps import Labelled, StepReport
    from ragbench.metrics.steps.ragchecker import records_of

    given = records_of(results)
    texts: dict[str, _Claims] = {}
    rows = [_with_claims(row, texts) for row in given]
    labels, made = _checked(rows, EmbeddedChecker() if checker is None else checker)
    rows = [_labelled(row, labels) for row in rows]
    whole = replace(results, results=tuple(rows)) if isinstance(results, RagResults) else RagResults(tuple(rows))
    if whole.results != given:
        whole = replace(whole, metrics=None)  # averages of other labels
    reports = {
        "claims": StepReport("claims", items=len(texts), settled=len(texts)),
        "claim check": StepReport("claim check", items=made, settled=made),
    }
    return Labelled(whole, (), {}, reports)


def _with_claims(row: RagResult, texts: dict[str, _Claims]) -> RagResult:
    """Split the sides whose claims are needed and not known; ``texts`` remembers what has been split."""
    for side in _SIDES:
        name = f"{side}_claims"
        if getattr(row, name) is None and any(check.startswith(side) for check in row.missing()):
            text = getattr(row, side)
            if text not in texts:
                texts[text] = tuple(split_claims(text))
            row = replace(row, metrics=None, **{name: texts[text]})
    return row


def _jobs(row: RagResult) -> dict[str, tuple[_Claims, tuple[str, ...]]]:
    """List each missing check: the claims, and the texts they are checked against."""
    chunks = tuple(chunk.text for chunk in row.chunks)
    other = {"response_in_reference": (row.reference,), "reference_in_response": (row.response,)}
    claims = {side: _hashable(getattr(row, f"{side}_claims")) for side in _SIDES}
    return {check: (claims[check.split("_")[0]], other.get(check, chunks)) for check in row.missing()}


def _hashable(claims: Sequence[Claim] | None) -> _Claims:
    return tuple(tuple(c) if isinstance(c, list) else c for c in claims or ())


def _checked(rows: Sequence[RagResult], checker: Any) -> tuple[Mapping[_Claims, Mapping[str, Sequence[str]]], int]:
    """Labels by list of claims and text, and how many there are."""
    needed: _Needed = {}
    for row in rows:
        for claims, texts in _jobs(row).values():
            needed.setdefault(claims, {}).update(dict.fromkeys(texts))
    if isinstance(checker, EmbeddedChecker):
        every = dict.fromkeys(text for texts in needed.values() for text in texts)
        checker = checker.warm(list(dict.fromkeys(c for claims in needed for c in claims)), list(every))
    labels, made = {}, 0
    for claims, texts in needed.items():
        table = checker.check_many(claims, list(texts)) if claims and texts else [[] for _ in claims]
        if len(table) != len(claims) or any(len(row) != len(texts) for row in table):
            raise ConfigError(
                f"{checker!r} gave {len(table)} rows of {sorted({len(row) for row in table})} labels",
                f"{len(claims)} rows, one per claim, of {len(texts)} labels, one per text",
                "mend its check_many; do not pad the labels",
            )
        columns = zip(*table, strict=True) if table else ((),) * len(texts)
        labels[claims] = dict(zip(texts, columns, strict=True))
        made += len(claims) * len(texts)
    return labels, made


def _labelled(row: RagResult, labels: Mapping[_Claims, Mapping[str, Sequence[str]]]) -> RagResult:
    found: dict[str, tuple] = {}
    for check, (claims, texts) in _jobs(row).items():
        columns = [labels[claims][text] for text in texts]
        if check.endswith("chunks"):
            found[check] = tuple(tuple(column[i] for column in columns) for i in range(len(claims)))
        else:
            found[check] = tuple(columns[0])
    return replace(row, metrics=None, **found) if found else row
