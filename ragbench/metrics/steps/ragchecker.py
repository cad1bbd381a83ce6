"""RAGChecker's two model steps over whole results: claims of response and reference, and all four sets of labels."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ragbench.data.ragchecker import RagResult, RagResults
from ragbench.errors import ConfigError, DataError
from ragbench.llm import Step
from ragbench.metrics.claims import CHECKS
from ragbench.metrics.steps.checking import check_claims, check_task, claim_units
from ragbench.metrics.steps.engine import as_step, task_step
from ragbench.metrics.steps.extraction import (
    Form,
    Prompt,
    SharedClaims,
    claim_requests,
    claims_key,
    extract_claims,
    new_requests,
)
from ragbench.metrics.steps.inputs import check_joint
from ragbench.records import check_records

if TYPE_CHECKING:
    from ragbench.metrics.steps.report import StepReport

_RESPONSE, _REFERENCE = "response_claims", "reference_claims"


@dataclass(frozen=True, slots=True)
class Labelled:
    """Results with the claims and labels that could be had.

    Attributes
    ----------
    results : all results. Claims and checks that could not be read stay None there, also a check of which one label
        is unread: RAGChecker's format and its metrics have no fourth label.
    unscored : ids of the results that lack a check for this reason; ``scored`` are the others.
    partial : (id, check) -> the labels of such a check, as in the results, with None for the unread ones.
    reports : "claims" and "claim check" -> what the step took.
    """

    results: RagResults
    unscored: tuple[str | int, ...]
    partial: Mapping[tuple[str | int, str], tuple]
    reports: Mapping[str, StepReport]

    @property
    def scored(self) -> RagResults:
        """The results with all labels, which `ragbench.metrics.claims.claim_metrics_table` takes."""
        out = set(self.unscored)
        return replace(self.results, results=tuple(r for r in self.results.results if r.id not in out))


@dataclass(frozen=True, slots=True)
class _Pair:
    """The claims of one side of a result, to be checked against one text (a chunk, if ``chunk`` is not None)."""

    result: int
    check: str
    side: str
    text: str
    chunk: int | None = None


def ragchecker_labels(
    model: Any,
    results: RagResults | Sequence[RagResult],
    *,
    joint: int | None = 5,
    form: Form = "sentence",
    shared: SharedClaims | None = None,
    claims_prompt: Prompt | None = None,
    check_prompt: Prompt = "steps_check",
    **options: Any,
) -> Labelled:
    """Extract and check the claims of results: everything that RAGChecker's eleven metrics need.

    Parameters
    ----------
    model : as for `ragbench.llm.ask`.
    results : from `ragbench.data.ragchecker.read_ragchecker`, or records of your own. Claims and labels that are there
        stay; only what is missing is asked.
    joint : claims per prompt, see `check_claims`.
    form, shared, claims_prompt : see `extract_claims`.
    check_prompt : id or file, see `check_claims`.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency``, ``progress`` ...

    Returns
    -------
    Labelled. The same claims against the same chunk (the reference's claims under two generators) are checked once.

    Raises
    ------
    ConfigError for arguments that cannot work, DataError for an id used twice; errors of ``ask``.

    Source: RAGChecker, section 3.2 and appendix B.
    """
    check_joint(joint)
    given = records_of(results)
    sides = _unknown(given)
    found = extract_claims(
        model,
        [text for _, _, text in sides],
        form,
        shared=shared,
        prompt=claims_prompt,
        ids=[f"{given[n].id} {side}" for n, side, _ in sides],
        **options,
    )
    rows = list(given)
    for (n, side, _), claims in zip(sides, found.claims, strict=True):
        if claims is not None:
            rows[n] = replace(rows[n], metrics=None, **{side: claims})
    pairs = list(_pairs(rows))
    judged = check_claims(
        model,
        [getattr(rows[p.result], p.side) for p in pairs],
        [p.text for p in pairs],
        joint,
        prompt=check_prompt,
        ids=[_name(rows[p.result], p) for p in pairs],
        **options,
    )
    parts: dict[tuple[int, str], list] = defaultdict(list)
    for pair, labels in zip(pairs, judged.labels, strict=True):
        parts[pair.result, pair.check].append(labels)
    partial = {}
    for n, row in enumerate(rows):
        for check in row.missing():
            claims = getattr(row, _side(check))
            if claims is None:
                continue
            columns = parts[n, check]
            matrix = check.endswith("chunks")
            labels = tuple(tuple(c[i] for c in columns) for i in range(len(claims))) if matrix else columns[0]
            unread = any(None in each for each in labels) if matrix else None in labels
            if unread:
                partial[row.id, check] = labels
            else:
                rows[n] = replace(rows[n], metrics=None, **{check: labels})
    whole = replace(results, results=tuple(rows)) if isinstance(results, RagResults) else RagResults(tuple(rows))
    if whole.results != given:
        whole = replace(whole, metrics=None)  # averages of other labels
    unscored = tuple(row.id for row in rows if row.missing())
    return Labelled(whole, unscored, partial, {r.step: r for r in (found.report, judged.report)})


def steps_for_ragchecker(
    results: RagResults | Sequence[RagResult],
    *,
    joint: int | None = 5,
    form: Form = "sentence",
    shared: SharedClaims | None = None,
    claims_prompt: Prompt | None = None,
    check_prompt: Prompt = "steps_check",
    claims_per_text: int | None = None,
) -> list[Step]:
    """Count the calls of `ragchecker_labels` before the run, for `ragbench.llm.plan`.

    Parameters
    ----------
    results, joint, form, shared, claims_prompt, check_prompt : as for `ragchecker_labels`.
    claims_per_text : claims to reckon with in a text that has not been taken apart yet. Needed only when ``joint`` is a
        number and some claims are not known.

    Returns
    -------
    [claims, claim check]. The first has its prompts, so its count is exact. So has the second once all claims are
    known (after extraction, call this again). Before that it counts: with ``joint=None`` one call per text and text it
    is checked against (1 + chunks, for each side), of which texts without claims will need none; with a number, what
    ``claims_per_text`` makes of it, as the step's name says. Joint replies with a wrong number of labels cost one more
    call per claim; calls repeated after a failure come on top, too.

    Raises
    ------
    ConfigError when the number of claims is needed and not known.
    """
    check_joint(joint)
    rows = list(records_of(results))
    sides = _unknown(rows)
    requests = claim_requests([text for _, _, text in sides], form, claims_prompt)
    new = new_requests(requests, form, shared)
    first = as_step("claims", list(new.values()))
    source: dict[tuple[int, str], str] = {}
    for (n, side, _), request in zip(sides, requests, strict=True):
        if request is None:
            rows[n] = replace(rows[n], **{side: ()})
        elif (key := claims_key(request, form)) in new:
            source[n, side] = key
        else:
            assert shared is not None
            rows[n] = replace(rows[n], **{side: shared[key]})
    pairs = list(_pairs(rows))
    known = [p for p in pairs if (p.result, p.side) not in source]
    units = claim_units([getattr(rows[p.result], p.side) for p in known], [p.text for p in known])
    exact = task_step(check_task(check_prompt), [unit for unit in units if unit is not None], joint)
    unknown = {(source[p.result, p.side], p.text.strip()) for p in pairs if (p.result, p.side) in source}
    waiting = sum(bool(text) for _, text in unknown)
    if not waiting:
        return [first, exact]
    each, name = 1, "claim check, at most"
    if joint is not None:
        if claims_per_text is None or claims_per_text < 0:
            raise ConfigError(
                f"claims_per_text={claims_per_text} with joint={joint}, and texts not taken apart yet",
                "a number of claims to reckon with",
                "pass claims_per_text=10, or joint=None, whose calls do not depend on it",
            )
        each, name = math.ceil(claims_per_text / joint), f"claim check, if {claims_per_text} claims per text"
    return [first, Step(name, calls=len(exact.prompts) + waiting * each)]


def records_of(results: RagResults | Sequence[RagResult]) -> tuple[RagResult, ...]:
    """Return the records of results; DataError for anything else, or an id used twice."""
    rows = tuple(results.results if isinstance(results, RagResults) else results)
    check_records(rows, RagResult, "results to label")
    twice = [name for name, count in Counter(str(row.id) for row in rows).items() if count > 1]
    if twice:
        raise DataError(
            f"the id {twice[0]!r} belongs to several results",
            "an id used once",
            "put the system's name into the ids, or make one call per system",
        )
    return rows


def _side(check: str) -> str:
    return _RESPONSE if check.startswith("response") else _REFERENCE


def _unknown(rows: Sequence[RagResult]) -> list[tuple[int, str, str]]:
    """List (number of the result, side, text) of the texts whose claims are needed and not known."""
    wanted = []
    for n, row in enumerate(rows):
        for side, text in ((_RESPONSE, row.response), (_REFERENCE, row.reference)):
            if getattr(row, side) is None and any(_side(check) == side for check in row.missing()):
                wanted.append((n, side, text))
    return wanted


def _pairs(rows: Sequence[RagResult]) -> Iterator[_Pair]:
    for n, row in enumerate(rows):
        for check in CHECKS:
            if getattr(row, check) is not None:
                continue
            if check.endswith("chunks"):
                yield from (_Pair(n, check, _side(check), chunk.text, j) for j, chunk in enumerate(row.chunks))
            else:
                text = row.reference if check == CHECKS[0] else row.response
                yield _Pair(n, check, _side(check), text)


def _name(row: RagResult, pair: _Pair) -> str:
    return f"{row.id} {pair.check}" + ("" if pair.chunk is None else f"[{pair.chunk}]")
