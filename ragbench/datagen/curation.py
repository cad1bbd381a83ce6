"""How RAGChecker's benchmark was made from other people's data (appendix A.2), to do the same with one's own.

A model turns short answers into long ones; those are kept whose every claim the cited passages entail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from ragbench.data.ragchecker import Claim
from ragbench.errors import DataError
from ragbench.labelling.asking import LabelStep, one_line
from ragbench.labelling.claims import check_claims, extract_claims
from ragbench.llm.structured import MOST_ITEMS
from ragbench.records import Dataset

_FAULTS = {"Contradiction": "contradicted", "Neutral": "not entailed"}
_COUNTS = {"entailed": "Entailment", "neutral": "Neutral", "contradicted": "Contradiction", "unread": None}


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", title="LongAnswer")  # the title is a part of recorded requests

    answer: str
    passages: list[str] = Field(max_length=MOST_ITEMS)


def long_answers(model: Any, dataset: Dataset, *, checker: Any = None, **options: Any) -> pd.DataFrame:
    """Write a long answer for each question and let it through if the cited passages entail all of its claims.

    Parameters
    ----------
    model, checker : the one writes, the other extracts and checks claims; default the same model.
    dataset : questions with short answers, whose ``meta["doc_ids"]`` name the documents they rest on.
    options : for `ragbench.llm.ask`; ``prompt``, the id or file of another prompt for the long answers.

    Returns
    -------
    DataFrame, a row per question: id, question, answer, cited (ids of the passages it rests on, as the model says),
    claims, labels (None where unread) and their counts; status and reason. "accepted": all claims are entailed.
    "rejected": no answer, no claim, no passage cited or a strange one, a claim that is not entailed. "unscored": a
    reply could not be read, and no other claim decides. ``attrs["reports"]`` says what each step took.

    Source: RAGChecker, appendix A.2 (the wording of the prompt is ours; there GPT-4 writes and RefChecker checks).
    """
    judge = model if checker is None else checker
    passages = _passages(dataset)
    fields = {
        "question": [question.text for question in dataset.questions],
        "answers": [f"- {one_line(question.answer)}" for question in dataset.questions],
        "passages": ["\n\n".join(f"[{name}]\n{text.strip()}" for name, text in p.items()) for p in passages],
    }
    prompt = options.pop("prompt", "curation_long_answer")
    step = LabelStep("long answers", prompt, _Reply, "question", lambda reply: reply)
    written = step.ask(model, [question.id for question in dataset.questions], fields, options)
    drafts = written.labels
    answers = ["" if draft is None else draft.answer.strip() for draft in drafts]
    cited = [() if d is None else tuple(dict.fromkeys(p.strip().strip("[]") for p in d.passages)) for d in drafts]
    verdicts = [_without_claims(*draft) for draft in zip(drafts, answers, cited, passages, strict=True)]
    going = [i for i, verdict in enumerate(verdicts) if verdict is None]
    names = [dataset.questions[i].id for i in going]
    asked = [dataset.questions[i].text for i in going]
    extracted = extract_claims(judge, [answers[i] for i in going], questions=asked, ids=names, **options)
    sources = ["\n\n".join(passages[i][name] for name in cited[i]) for i in going]
    checked = check_claims(judge, extracted.labels, sources, None, asked, ids=names, **options)
    by_place = dict(zip(going, zip(extracted.labels, checked.labels, strict=True), strict=True))
    rows = []
    for i, question in enumerate(dataset.questions):
        claims, labels = by_place.get(i, ((), ()))
        status, reason = verdicts[i] or _by_claims(claims, labels)
        row = {"id": question.id, "question": question.text, "answer": answers[i], "cited": cited[i]}
        row |= {"claims": claims or (), "labels": labels or ()}
        row |= {name: (labels or ()).count(label) for name, label in _COUNTS.items()}
        rows.append(row | {"status": status, "reason": reason})
    frame = pd.DataFrame(rows)
    frame.attrs["reports"] = {"long answers": written.report, "claims": extracted.report, "claim check": checked.report}
    return frame


def _passages(dataset: Dataset) -> list[dict[str, str]]:
    """Return for each question the texts of its gold documents by id."""
    texts = {document.id: document.text for document in dataset.documents}
    for question in dataset.questions:
        named = question.meta.get("doc_ids") or ()
        missing = [name for name in named if name not in texts]
        if missing or not named or not question.answer:
            what = f"rests on {missing[0]!r}" if missing else "has no gold documents" if not named else "has no answer"
            do = "leave it out, or name its documents in meta['doc_ids']"
            raise DataError(f"question {question.id!r} {what}", "an answer and its documents for every question", do)
    return [{name: texts[name] for name in question.meta["doc_ids"]} for question in dataset.questions]


def _without_claims(draft: Any, answer: str, cited: Sequence[str], passages: dict[str, str]) -> tuple[str, str] | None:
    """Return status and reason of what needs no claims; None where they decide."""
    if draft is None:
        return "unscored", "the long answer could not be read"
    strange = [name for name in cited if name not in passages]
    if answer and cited and not strange:
        return None
    reason = f"cites {strange[0]!r}, which is no passage of the question" if strange else "no passage cited"
    return "rejected", reason if answer else "no answer"


def _by_claims(claims: Sequence[Claim] | None, labels: Sequence[str | None] | None) -> tuple[str, str]:
    if claims is None or labels is None:
        return "unscored", "the claims could not be read"
    if not claims:
        return "rejected", "no claims"
    wrong = [f"{labels.count(label)} {word}" for label, word in _FAULTS.items() if label in labels]
    if wrong:
        return "rejected", f"of {len(claims)} claims {' and '.join(wrong)}"
    unread = list(labels).count(None)
    return ("unscored", f"{unread} labels could not be read") if unread else ("accepted", "all claims entailed")
