"""Claims of a text, and whether other texts entail them (RAGChecker, section 3.2).

The model's way: `extract_claims`, `check_claims`, and both over whole results, `ragchecker_labels`. The embedded way:
`embedded_labels`, whose claims are sentences and whose labels are an `EmbeddedChecker`'s; the result has the same form.
How far a checker agrees with labels by others: `checker_quality`, and on MiniHop `embedded_checker_quality`. Those
labels are reference labels, assigned by a strong language model under a written guideline; checked by a person: 0; the
second pass measures repeatability, not human agreement.

A text is taken apart once, however many results, metrics or papers need its claims: equal prompts are asked once in a
call, a cassette keeps them between runs, and a ``shared`` dict between calls without one.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.data.files import require_text, split_records
from ragbench.data.ragchecker import LABELS, Claim, RagResult, RagResults, claim_text
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.asking import (
    Judged,
    Judgement,
    Request,
    StepReport,
    Unit,
    as_step,
    check_joint,
    judge_items,
    names_of,
    requests_for,
    send_some,
    task_step,
    texts_schema,
)
from ragbench.labelling.embedded_checker import ENTAILMENT, EmbeddedChecker, split_claims
from ragbench.llm import Step
from ragbench.metrics.claims import CHECKS
from ragbench.paths import shipped
from ragbench.prompts import Prompt, load_prompt
from ragbench.records import check_records
from ragbench.stats import Interval, bootstrap_ci, correlation

# Texts taken apart

Form = Literal["sentence", "triple"]
SharedClaims = MutableMapping[str, tuple[Claim, ...]]
FORMS = {"sentence": "steps_claims", "triple": "steps_triples"}
CHECK_PROMPT = "steps_check"


@dataclass(frozen=True, slots=True)
class Extracted:
    """Claims of each text, in the order of the texts; None where no reply could be read (see ``report.failures``)."""

    claims: tuple[tuple[Claim, ...] | None, ...]
    report: StepReport


def extract_claims(
    model: Any,
    texts: Sequence[str],
    form: Form = "sentence",
    *,
    shared: SharedClaims | None = None,
    prompt: Prompt | None = None,
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Extracted:
    """Take texts apart into claims, each different text once.

    Parameters
    ----------
    model : as for `ragbench.llm.ask`.
    texts : responses, reference answers, or any other texts, shape (n,).
    form : "sentence", or "triple" (subject, predicate, object), which is what RAGChecker's recorded files hold.
    shared : claims found before, by prompt hash; filled in place. Use one dict per model.
    prompt : id or file with the field passage; default by form.
    ids : names for messages; default numbers.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency``, ``progress`` ...

    Returns
    -------
    Extracted. An empty text has no claims and needs no call; a text without statements may have none either.

    Raises
    ------
    ConfigError for another form or lists that do not fit; errors of ``ask``.

    Source: RAGChecker, section 3.2 (text-to-claim extractor; the wording of the prompt is ours).
    """
    requests = claim_requests(texts, form, prompt, ids)
    return claims_of_requests(model, "claims", requests, form, shared, options)


def claim_requests(
    texts: Sequence[str], form: Form, prompt: Prompt | None, ids: Sequence[Any] | None = None
) -> list[Request | None]:
    """Make the prompt of each text; None for an empty text."""
    check_known("form of claims", [form], FORMS)
    schema = texts_schema("claims", parts=3 if form == "triple" else 1)
    return requests_for(names_of(ids, texts=texts), prompt or FORMS[form], schema, "passage", passage=texts)


def new_requests(requests: Sequence[Request | None], form: Form, shared: SharedClaims | None) -> dict[str, Request]:
    """Return the requests that have to be made, by hash: each prompt once, without those whose claims are known."""
    new: dict[str, Request] = {}
    for request in requests:
        if request is not None and (key := claims_key(request, form)) not in (shared or {}):
            new.setdefault(key, request)
    return new


def claims_key(request: Request, form: Form) -> str:
    """Hash what decides about the claims: form, wording and text."""
    return hashlib.sha256(f"{form}\0{request.prompt}".encode()).hexdigest()


def claims_of_requests(
    model: Any,
    step: str,
    requests: Sequence[Request | None],
    form: Form,
    shared: SharedClaims | None,
    options: dict[str, Any],
) -> Extracted:
    """Read the claims of each request, asking only for those that ``shared`` lacks; None needs no call."""
    known: SharedClaims = {} if shared is None else shared
    keys = [None if request is None else claims_key(request, form) for request in requests]
    new = new_requests(requests, form, known)
    replies, report = send_some(model, step, list(new.values()), options)
    for key, reply in zip(new, replies, strict=True):
        if reply is not None:
            known[key] = tuple(tuple(claim) if form == "triple" else claim for claim in reply.claims)
    claims = tuple(() if key is None else known.get(key) for key in keys)
    items = len({*keys} - {None}) + keys.count(None)
    return Extracted(claims, replace(report, items=items, settled=items - len(new)))


# Claims checked: Entailment, Neutral and Contradiction kept apart


def check_claims(
    model: Any,
    claims: Sequence[Sequence[Claim] | None],
    references: Sequence[str],
    joint: int | None = 5,
    *,
    prompt: Prompt = CHECK_PROMPT,
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Judged:
    """Check lists of claims, each against its own text.

    Parameters
    ----------
    model, ids, options : as for `extract_claims`.
    claims : for each text its claims (sentences or triples); None where they are not known, as `extract_claims` says.
    references : the texts, shape (n,): a reference answer, a response, a chunk.
    joint : claims per prompt; 1 asks for each singly, None puts all claims of one text into one prompt, so that the
        number of calls does not depend on the number of claims. A joint reply with another number of labels than
        claims is not used: its claims are checked again one by one.
    prompt : id or file with the fields reference, count and claims. What comes before the claims is what the prompts
        of one text share, and what a server's prompt cache saves: keep the text first.

    Returns
    -------
    Judged: for each text one label per claim; None where the reply could not be read, and None in place of the list
    where the claims were None. An empty text entails nothing: Neutral, without a call.

    Raises
    ------
    ConfigError for lists that do not fit, DataError for something that is no claim; errors of ``ask``.

    Source: RAGChecker, section 3.2 (claim-entailment checker; the wording of the prompt is ours).
    """
    return judge_items(model, check_task(prompt), claim_units(claims, references, ids), joint, options)


def check_task(prompt: Prompt) -> Judgement:
    """Make the task of a claim check."""
    return Judgement("claim check", load_prompt(prompt), LABELS, "Neutral", "reference", "claims", "claim")


def claim_units(
    claims: Sequence[Sequence[Claim] | None], references: Sequence[str], ids: Sequence[Any] | None = None
) -> list[Unit | None]:
    """Pair claims with their texts; None where the claims are not known."""
    names = names_of(ids, claims=claims, references=references)
    return [
        None if some is None else Unit(name, text.strip(), checked(some, name), {})
        for name, some, text in zip(names, claims, references, strict=True)
    ]


def checked(claims: Sequence[Claim], name: str, what: str = "claim") -> tuple[str, ...]:
    """Return claims as texts; DataError naming the place of one that is none."""
    if isinstance(claims, str):
        raise ConfigError(f"the {what}s of {name} are one string", f"a list of {what}s", "put it in a list")
    for place, claim in enumerate(claims):
        parts = [claim] if isinstance(claim, str) else claim
        triple = isinstance(parts, (list, tuple)) and len(parts) in (1, 3)
        if not (triple and all(isinstance(part, str) for part in parts) and any(part.strip() for part in parts)):
            raise DataError(
                f"{what} {place + 1} of {name} is {claim!r:.60}",
                "a sentence, or a triple (subject, predicate, object) of texts",
                "mend it, or extract the claims again",
            )
    return tuple(claim_text(claim) for claim in claims)


# The model's way over whole results

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
    """Claims of a result (None where not known), to be checked against one text; ``name`` is for messages."""

    result: int
    check: str
    claims: Any
    text: str
    name: str


def ragchecker_labels(
    model: Any,
    results: RagResults | Sequence[RagResult],
    *,
    joint: int | None = 5,
    form: Form = "sentence",
    shared: SharedClaims | None = None,
    **options: Any,
) -> Labelled:
    """Extract and check the claims of results: everything that RAGChecker's eleven metrics need.

    Parameters
    ----------
    model, form, shared, options : as for `extract_claims`.
    results : from `ragbench.data.ragchecker.read_ragchecker`, or records of your own. Claims and labels that are there
        stay; only what is missing is asked.
    joint : claims per prompt, see `check_claims`.

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
    extracted = extract_claims(
        model,
        [text for _, _, text in sides],
        form,
        shared=shared,
        ids=[f"{given[n].id} {side}" for n, side, _ in sides],
        **options,
    )
    rows = list(given)
    for (n, side, _), claims in zip(sides, extracted.claims, strict=True):
        if claims is not None:
            rows[n] = replace(rows[n], metrics=None, **{side: claims})
    pairs = list(_pairs(rows))
    texts, names = [p.text for p in pairs], [p.name for p in pairs]
    judged = check_claims(model, [p.claims for p in pairs], texts, joint, ids=names, **options)
    return _labelled_results(results, rows, pairs, judged.labels, extracted.report, judged.report)


def _labelled_results(
    results: RagResults | Sequence[RagResult],
    rows: list[RagResult],
    pairs: Sequence[_Pair],
    labels: Sequence[Sequence[str | None] | None],
    *reports: StepReport,
) -> Labelled:
    """Put the labels of each pair into the rows."""
    parts: dict[tuple[int, str], list] = defaultdict(list)
    for pair, of_pair in zip(pairs, labels, strict=True):
        parts[pair.result, pair.check].append(of_pair)
    partial = {}
    for n, row in enumerate(rows):
        for check in row.missing():
            claims = getattr(row, _side(check))
            if claims is None:
                continue
            columns = parts[n, check]
            matrix = check.endswith("chunks")
            table = tuple(tuple(c[i] for c in columns) for i in range(len(claims))) if matrix else columns[0]
            unread = any(None in each for each in table) if matrix else None in table
            if unread:
                partial[row.id, check] = table
            else:
                rows[n] = replace(rows[n], metrics=None, **{check: table})
    whole = replace(results, results=tuple(rows)) if isinstance(results, RagResults) else RagResults(tuple(rows))
    if whole.results != records_of(results):
        whole = replace(whole, metrics=None)  # averages of other labels
    unscored = tuple(row.id for row in rows if row.missing())
    return Labelled(whole, unscored, partial, {report.step: report for report in reports})


def steps_for_ragchecker(
    results: RagResults | Sequence[RagResult],
    *,
    joint: int | None = 5,
    form: Form = "sentence",
    shared: SharedClaims | None = None,
    claims_per_text: int | None = None,
) -> list[Step]:
    """Count the calls of `ragchecker_labels` before the run, for `ragbench.llm.plan`.

    Parameters
    ----------
    results, joint, form, shared : as for `ragchecker_labels`.
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
    ConfigError when the number of claims is needed and not known; DataError for an id that belongs to several results.
    """
    check_joint(joint)
    rows = list(records_of(results))
    sides = _unknown(rows)
    requests = claim_requests([text for _, _, text in sides], form, None)
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
    units = claim_units([p.claims for p in pairs], [p.text for p in pairs])
    exact = task_step(check_task(CHECK_PROMPT), units, joint)
    later = [p for p in pairs if p.claims is None and p.text.strip()]
    waiting = len({(source[p.result, _side(p.check)], p.text.strip()) for p in later})
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
            name, claims = f"{row.id} {check}", getattr(row, _side(check))
            if check.endswith("chunks"):
                yield from (_Pair(n, check, claims, c.text, f"{name}[{j}]") for j, c in enumerate(row.chunks))
            else:
                other = row.reference if _side(check) == _RESPONSE else row.response
                yield _Pair(n, check, claims, other, name)


# The embedded way

_Claims = tuple["Claim", ...]


def embedded_labels(results: RagResults | Sequence[RagResult], checker: Any = None) -> Labelled:
    """Take responses and references apart into sentence claims and check them, without a model server.

    Parameters
    ----------
    results : as for `ragchecker_labels`. Claims and labels that are there stay; only what is missing is made.
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
    rows = list(records_of(results))
    sides = _unknown(rows)
    claims = {text: tuple(split_claims(text)) for text in dict.fromkeys(text for _, _, text in sides)}
    for n, side, text in sides:
        rows[n] = replace(rows[n], metrics=None, **{side: claims[text]})
    pairs = list(_pairs(rows))
    wanted = [(_hashable(p.claims), p.text) for p in pairs]
    labels = _labels_of_pairs(wanted, EmbeddedChecker() if checker is None else checker)
    n_labels = sum(map(len, labels.values()))
    counts = {"claims": len(claims), "claim check": n_labels}
    reports = [StepReport(step, items=count, settled=count) for step, count in counts.items()]
    return _labelled_results(results, rows, pairs, [labels[pair] for pair in wanted], *reports)


def _hashable(claims: Sequence[Claim]) -> _Claims:
    return tuple(tuple(claim) if isinstance(claim, list) else claim for claim in claims)


def _labels_of_pairs(pairs: Sequence[tuple[_Claims, str]], checker: Any) -> dict[tuple[_Claims, str], tuple[str, ...]]:
    """Check each list of claims once against each of its texts."""
    needed: dict[_Claims, dict[str, None]] = {}  # a dict keeps the texts in their order
    for claims, text in pairs:
        needed.setdefault(claims, {})[text] = None
    if hasattr(checker, "warm"):
        every = dict.fromkeys(text for texts in needed.values() for text in texts)
        checker = checker.warm(list(dict.fromkeys(claim for claims in needed for claim in claims)), list(every))
    labels: dict[tuple[_Claims, str], tuple[str, ...]] = {}
    for claims, texts in needed.items():
        table = checker.check_many(claims, list(texts)) if claims else []
        if len(table) != len(claims) or any(len(row) != len(texts) for row in table):
            raise ConfigError(
                f"{checker!r} gave {len(table)} rows of {sorted({len(row) for row in table})} labels",
                f"{len(claims)} rows, one per claim, of {len(texts)} labels, one per text",
                "mend its check_many; do not pad the labels",
            )
        columns = zip(*table, strict=True) if table else ((),) * len(texts)
        labels |= zip(((claims, text) for text in texts), columns, strict=True)
    return labels


# How far a checker agrees with labelled claims (RAGChecker, Table 16)

MEASURES = ("accuracy", "factual f1", "non-factual f1", "accuracy, three labels", "pearson", "spearman")


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim about a document, and its label.

    ``document`` is its title, ``text`` its text. ``first_label`` and ``second_label`` are two labellings of the same
    wording, None for a claim reworded after them; ``label`` is what they led to.
    """

    id: str
    document: str
    text: str
    claim: str
    label: str
    split: str
    first_label: str | None = None
    second_label: str | None = None


def load_labelled_claims(
    path: str | Path | None = None, split: str | None = None, texts: Mapping[str, str] | None = None
) -> tuple[LabelledClaim, ...]:
    """Load labelled claims: those over MiniHop, or your own file of the same form.

    Parameters
    ----------
    path : JSON lines with ``id``, ``document`` (title), ``claim``, ``label``, ``split`` ("dev" or "test"); optionally
        ``second_label``, and ``first_label`` where the label was changed after both. Default
        ``data/minihop/labelled_claims.jsonl``.
    split : only this one; default both. Set a checker's thresholds on "dev", open "test" when they are fixed.
    texts : title -> text of the documents; default MiniHop's.

    Raises
    ------
    DataError that names file and line: a missing field, an unknown label, split or document, a repeated id or claim, or
    a document with claims in both splits.
    """
    if texts is None:
        from ragbench.data import load_minihop

        texts = {d.title: d.text for d in load_minihop().documents}
    path = shipped("minihop", "labelled_claims.jsonl") if path is None else Path(path)
    return split_records(
        path,
        split,
        lambda row, where: _labelled(row, where, texts),
        lambda claim: [f"id {claim.id!r}", f"the claim {claim.claim!r} about {claim.document!r}"],
        lambda claim: claim.document,
        "document",
    )


def _labelled(row: dict, where: str, texts: Mapping[str, str]) -> LabelledClaim:
    named = {name: require_text(row, name, where) for name in ("id", "document", "claim")}
    for name in ("label", "first_label", "second_label"):
        value = row.get(name)
        if value not in LABELS and not (value is None and name != "label"):
            raise DataError(f"{where}: {name} is {value!r}", f"one of {', '.join(LABELS)}", "read claim and text again")
    if named["document"] not in texts:
        raise DataError(f"{where}: no document {named['document']!r}", "a title of the documents", "check the spelling")
    second = row.get("second_label")
    first = row.get("first_label") or (row["label"] if second is not None else None)
    labels = {"label": row["label"], "first_label": first, "second_label": second}
    return LabelledClaim(**named, **labels, text=texts[named["document"]], split=row.get("split"))


def checker_quality(
    human: Sequence[str],
    predicted: Sequence[str | None],
    responses: Sequence[Hashable] | None = None,
) -> dict[str, float]:
    """Measure a checker's labels against reference labels, people's or others.

    Parameters
    ----------
    human : a label per claim: Entailment, Neutral or Contradiction.
    predicted : the checker's; None where it gave none, which is left out and counted.
    responses : the response each claim is from, for the two correlations; None leaves them undefined.

    Returns
    -------
    dict: ``accuracy`` (entailed or not), ``factual f1`` (of Entailment), ``non-factual f1`` (of the other two),
    ``accuracy, three labels``, all in [0, 1]; ``pearson`` and ``spearman`` between the shares of claims not entailed,
    per response, in [-1, 1]; ``n`` claims, ``responses`` and ``unscored`` claims. What is undefined is NaN: an F1
    without such a claim on either side, a correlation of fewer than two responses or of a constant.

    Raises
    ------
    DataError for lists of different length or an unknown label word.

    Source: RAGChecker, appendix G, Table 16. Paper value (Llama3 + Llama3, zero context): accuracy 91.89, F1 83.06 and
    94.67, Pearson 81.77, Spearman 80.83 (x100). That accuracy is of two classes follows from the published numbers:
    accuracy and the two F1 determine each other only then.
    """
    measured = checker_intervals(human, predicted, responses, resamples=0)
    n = measured["accuracy"].n
    counts = {"n": n, "responses": measured["pearson"].n, "unscored": len(predicted) - n}
    return {name: interval.estimate for name, interval in measured.items()} | counts


def checker_intervals(
    human: Sequence[str],
    predicted: Sequence[str | None],
    responses: Sequence[Hashable] | None = None,
    *,
    resamples: int = 2000,
) -> dict[str, Interval]:
    """Measure a checker as `checker_quality` does, with percentile intervals over responses.

    Parameters
    ----------
    human, predicted, responses : as for `checker_quality`. A response (or document) is drawn with all its claims, since
        claims about one text are not independent.
    resamples : as in `ragbench.stats.bootstrap_ci`.

    Returns
    -------
    dict: an Interval for each of `MEASURES`; n counts claims, and responses for the two correlations.

    Raises
    ------
    DataError as for `checker_quality`.
    """
    sizes = {len(human), len(predicted), len(predicted if responses is None else responses)}
    if len(sizes) > 1:
        raise DataError(f"lists of {' and '.join(map(str, sorted(sizes)))} items", "one item per claim in each")
    for who, labels in (("human", human), ("predicted", [p for p in predicted if p is not None])):
        strange = [label for label in labels if label not in LABELS]
        if strange:
            raise DataError(f"{who} label {strange[0]!r}", f"one of {', '.join(LABELS)}", "check that claim again")
    kept = [i for i, label in enumerate(predicted) if label is not None]
    truth, guess = (np.array([labels[i] for i in kept], str) for labels in (human, predicted))
    true, said = truth == ENTAILMENT, guess == ENTAILMENT
    both = 2 * true + said  # 0: neither says entailed, 1: the checker alone, 2: the reference alone, 3: both
    index, correlations = None, [Interval(math.nan, math.nan, math.nan, 0)] * 2
    if responses is not None and kept:
        place: dict[Hashable, int] = {}
        index = np.array([place.setdefault(responses[i], len(place)) for i in kept])
        shares = [np.bincount(index, ~entailed) / np.bincount(index) for entailed in (true, said)]
        correlations = [correlation(*shares, method, resamples=resamples) for method in ("pearson", "spearman")]  # type: ignore[arg-type]
    values = ((true == said, "mean"), (both, _f1), (3 - both, _f1), (truth == guess, "mean"))
    rows = [bootstrap_ci(v, statistic, groups=index, resamples=resamples) for v, statistic in values]  # type: ignore[arg-type]
    return dict(zip(MEASURES, rows + correlations, strict=True))


def embedded_checker_quality(split: str = "test", checker: Any = None, name: str = "embedded checker") -> pd.DataFrame:
    """Measure the embedded checker, or another, on MiniHop's labelled claims, beside calling every claim not entailed.

    Parameters
    ----------
    split : "dev" or "test"; nothing of the checker was set on either.
    checker : with ``check(claims, text)``, see `ragbench.labelling.checkers`; default `ragbench.EmbeddedChecker`.
    name : of the checker in the table.

    Returns
    -------
    DataFrame, index who labels: accuracy (entailed or not, in [0, 1]), low and high (95%, over documents), n claims.
    The labels are reference labels by a strong language model; people checked none.
    """
    claims = load_labelled_claims(split=split)
    checker = checker or EmbeddedChecker()
    true, documents = [c.label for c in claims], [c.document for c in claims]
    said: list[str] = []
    for text, about in itertools.groupby(claims, key=lambda c: c.text):  # the claims about a document stand together
        said += checker.check([c.claim for c in about], text)
    sources = {name: said, "always 'not entailed'": ["Neutral"] * len(claims)}
    accuracy = {name: checker_intervals(true, labels, documents)["accuracy"] for name, labels in sources.items()}
    rows = {name: (i.estimate, i.low, i.high, i.n) for name, i in accuracy.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["accuracy", "low", "high", "n"])


def _f1(codes: np.ndarray, axis: int) -> np.ndarray:
    both, one = (codes == 3).sum(axis), ((codes == 1) | (codes == 2)).sum(axis)
    with np.errstate(invalid="ignore"):
        return np.true_divide(2 * both, 2 * both + one)
