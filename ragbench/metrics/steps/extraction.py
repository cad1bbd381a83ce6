"""Texts taken apart: claims of a text (RAGChecker), statements of an answer to a question (RAGAS).

A text is taken apart once, however many results, metrics or papers need its claims: equal prompts are asked once in a
call, a cassette keeps them between runs, and a ``shared`` dict between calls without one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ragbench.data.ragchecker import Claim
from ragbench.errors import unknown
from ragbench.metrics.steps.engine import Request, send, texts_schema
from ragbench.metrics.steps.inputs import names_of, same_length
from ragbench.metrics.steps.report import StepReport, unread
from ragbench.prompts import fill_prompt, load_prompt

if TYPE_CHECKING:
    from ragbench.llm import Reply

Form = Literal["sentence", "triple"]
Prompt = str | os.PathLike[str]
SharedClaims = MutableMapping[str, tuple[Claim, ...]]
FORMS = {"sentence": "steps_claims", "triple": "steps_triples"}
_PARTS = {"sentence": 1, "triple": 3}


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
    return _extract(model, "claims", requests, form, shared, options)


def extract_statements(
    model: Any,
    questions: Sequence[str],
    answers: Sequence[str],
    *,
    shared: SharedClaims | None = None,
    prompt: Prompt = "steps_statements",
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Extracted:
    """Take answers apart into statements, with their questions in view.

    Parameters
    ----------
    model, shared, ids, options : as for `extract_claims`, whose claims do as well where the answer is to be taken apart
        once for RAGChecker and RAGAS together.
    questions, answers : shape (n,) each.
    prompt : id or file with the fields question and answer.

    Returns
    -------
    Extracted.

    Source: RAGAS, section 3 (faithfulness, first step: one call per answer).
    """
    requests = statement_requests(questions, answers, prompt, ids)
    return _extract(model, "statements", requests, "sentence", shared, options)


def claim_requests(
    texts: Sequence[str], form: Form, prompt: Prompt | None, ids: Sequence[Any] | None = None
) -> list[Request | None]:
    """Make the prompt of each text; None for an empty text."""
    if form not in FORMS:
        raise unknown("form of claims", form, FORMS)
    names, template = names_of(ids, same_length(texts=texts)), load_prompt(prompt or FORMS[form])
    return [
        Request(name, fill_prompt(template, passage=text.strip()), texts_schema("claims", parts=_PARTS[form]))
        if text.strip()
        else None
        for name, text in zip(names, texts, strict=True)
    ]


def statement_requests(
    questions: Sequence[str], answers: Sequence[str], prompt: Prompt, ids: Sequence[Any] | None = None
) -> list[Request | None]:
    """Make the prompt of each answer; None for an empty answer."""
    names, template = names_of(ids, same_length(questions=questions, answers=answers)), load_prompt(prompt)
    return [
        Request(name, fill_prompt(template, question=q.strip(), answer=a.strip()), texts_schema("claims"))
        if a.strip()
        else None
        for name, q, a in zip(names, questions, answers, strict=True)
    ]


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


def _read(reply: Reply, form: Form) -> tuple[Claim, ...]:
    found = reply.parsed.claims
    return tuple(found) if form == "sentence" else tuple((s, p, o) for s, p, o in found)


def _extract(
    model: Any,
    step: str,
    requests: Sequence[Request | None],
    form: Form,
    shared: SharedClaims | None,
    options: dict[str, Any],
) -> Extracted:
    known: SharedClaims = {} if shared is None else shared
    wanted = {claims_key(request, form) for request in requests if request is not None}
    new = new_requests(requests, form, known)
    replies, report = send(model, step, list(new.values()), options)
    failures = []
    for (key, request), reply in zip(new.items(), replies, strict=True):
        if reply.ok:
            known[key] = _read(reply, form)
        else:
            failures.append(unread(request.id, reply))
    claims = tuple(() if request is None else known.get(claims_key(request, form)) for request in requests)
    empty = sum(request is None for request in requests)
    counts = {"items": len(wanted) + empty, "settled": len(wanted) - len(new) + empty, "unscored": len(failures)}
    return Extracted(claims, replace(report, **counts, failures=tuple(failures)))
