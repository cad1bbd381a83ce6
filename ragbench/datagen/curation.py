"""How RAGChecker's benchmark was made from other people's data (appendix A), to do the same with one's own.

`long_answers` turns short answers into long ones with a model and keeps those whose every claim the cited passages
entail (A.2). `downsample` cuts a corpus down to the annotated documents and what retrievers find (A.3).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from ragbench.data.ragchecker import Claim
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.asking import Request, StepReport, as_step, check_joint, one_line, send_some
from ragbench.labelling.claims import check_claims, extract_claims
from ragbench.llm import Step
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.records import Dataset, Document

Status = Literal["accepted", "rejected", "unscored"]
STATUSES = ("accepted", "rejected", "unscored")
_FAULTS = {"Contradiction": "contradicted", "Neutral": "not entailed"}


@dataclass(frozen=True, slots=True)
class ShortAnswered:
    """A question with the short answers that people marked, and the passages (id -> text) that hold them."""

    id: str
    question: str
    answers: tuple[str, ...]
    passages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """What became of one question.

    Attributes
    ----------
    answer : the long answer, "" where none came. cited : ids of the passages it rests on, as the model says.
    claims, labels : its claims and how the cited passages stand to them; labels are None where unread.
    status : "accepted", "rejected", or "unscored" where a reply that decides could not be read. reason : why, in words.
    """

    id: str
    question: str
    answer: str
    cited: tuple[str, ...]
    claims: tuple[Claim, ...]
    labels: tuple[str | None, ...]
    status: Status
    reason: str


@dataclass(frozen=True)
class LongAnswers:
    """One `LongAnswer` per question, in order, and what each step took."""

    items: tuple[LongAnswer, ...]
    reports: Mapping[str, StepReport]

    def __repr__(self) -> str:
        return f"LongAnswers({', '.join(f'{n} {status}' for status, n in self.counts.items())})"

    @property
    def counts(self) -> dict[str, int]:
        """Questions by status; the three add up to all."""
        return {status: sum(item.status == status for item in self.items) for status in STATUSES}

    @property
    def accepted(self) -> tuple[LongAnswer, ...]:
        """The answers that passed the gate."""
        return tuple(item for item in self.items if item.status == "accepted")

    def table(self) -> pd.DataFrame:
        """Return one row per question: id, status, reason, claims, entailed, neutral, contradicted, unread."""
        labels = ("Entailment", "Neutral", "Contradiction", None)
        rows = [(i.id, i.status, i.reason, len(i.claims), *(i.labels.count(x) for x in labels)) for i in self.items]
        columns = ["id", "status", "reason", "claims", "entailed", "neutral", "contradicted", "unread"]
        return pd.DataFrame(rows, columns=columns)


def short_answered(dataset: Dataset) -> list[ShortAnswered]:
    """Take a data set's questions with their short answers and gold documents.

    Parameters
    ----------
    dataset : whose questions have ``meta["supporting_facts"]`` (HotpotQA, MiniHop).

    Raises
    ------
    DataError for a question without supporting facts, or whose documents are not there.
    """
    documents = {d.title: d for d in dataset.documents}
    items = []
    for question in dataset.questions:
        titles = list(dict.fromkeys(title for title, _ in question.meta.get("supporting_facts") or ()))
        lacking = [title for title in titles if title not in documents]
        if lacking or not titles:
            raise DataError(
                f"question {question.id!r} " + (f"rests on {lacking[0]!r}" if lacking else "has no supporting facts"),
                "gold documents for every question",
                "make ShortAnswered records by hand, or leave it out",
            )
        passages = {documents[title].id: documents[title].text for title in titles}
        items.append(ShortAnswered(question.id, question.text, (question.answer,), passages))
    return items


def long_answers(
    model: Any,
    items: Sequence[ShortAnswered],
    *,
    checker: Any = None,
    joint: int | None = None,
    keep_short: bool = False,
    prompt: Prompt = "curation_long_answer",
    **options: Any,
) -> LongAnswers:
    """Write a long answer for each question and let it through if the cited passages entail all of its claims.

    Parameters
    ----------
    model : writes; as for `ragbench.llm.ask`. checker : extracts and checks claims; default the same model.
    items : from `short_answered`, or made by hand.
    joint : claims per prompt, as for `check_claims`; None: all of one answer.
    keep_short : also ask that the long answer entails one of the short ones, which the paper does not.
    prompt : id or file with the fields question, answers and passages.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...

    Returns
    -------
    LongAnswers. Rejected: no answer, no passage cited or one that is not there, no claim, a claim that is Neutral or
    Contradiction. Unscored: a reply could not be read, and no other claim decides.

    Raises
    ------
    DataError for a question without short answers or passages, or an id used twice; errors of ``ask``.

    Source: RAGChecker, appendix A.2 (the wording of the prompt is ours; there GPT-4 writes and RefChecker checks).
    """
    check_joint(joint)
    judge = model if checker is None else checker
    requests = _requests(items, prompt)
    written, report = send_some(model, "long answers", requests, options)
    reports = {"long answers": report}
    answers = ["" if w is None else w.answer.strip() for w in written]
    cited = [() if w is None else tuple(dict.fromkeys(p.strip().strip("[]") for p in w.passages)) for w in written]
    early = [_early(item, w, passages) for item, w, passages in zip(items, written, cited, strict=True)]
    going = [i for i, verdict in enumerate(early) if verdict is None]
    names = [items[i].id for i in going]
    extracted = extract_claims(judge, [answers[i] for i in going], ids=names, **options)
    sources = ["\n\n".join(items[i].passages[name] for name in cited[i]) for i in going]
    checked = check_claims(judge, extracted.claims, sources, joint, ids=names, **options)
    reports |= {"claims": extracted.report, "claim check": checked.report}
    short: list[tuple[str | None, ...] | None] = [None] * len(going)
    if keep_short:
        wanted = [[f"The answer to “{items[i].question}” is: {a}" for a in items[i].answers] for i in going]
        again = check_claims(
            judge, wanted, [answers[i] for i in going], None, ids=names, **{**options, "step": "short answers"}
        )
        reports["short answers"] = again.report
        short = list(again.labels)
    late = {i: (c, x, s) for i, c, x, s in zip(going, extracted.claims, checked.labels, short, strict=True)}
    long = []
    for i, (item, verdict) in enumerate(zip(items, early, strict=True)):
        claims, labels, kept = late.get(i, ((), (), None))
        status, reason = verdict or _gate(claims, labels, kept)
        long.append(
            LongAnswer(item.id, item.question, answers[i], cited[i], claims or (), labels or (), status, reason)
        )
    return LongAnswers(tuple(long), reports)


def steps_for_long_answers(
    items: Sequence[ShortAnswered],
    *,
    joint: int | None = None,
    claims_per_answer: int | None = None,
    keep_short: bool = False,
    prompt: Prompt = "curation_long_answer",
) -> list[Step]:
    """Count the calls of `long_answers` before the run, for `ragbench.llm.plan`.

    Parameters
    ----------
    items, joint, keep_short, prompt : as for `long_answers`.
    claims_per_answer : claims to reckon with, needed when ``joint`` is a number.

    Returns
    -------
    [long answers, claims, claim check] and short answers if kept. The first has its prompts. The others count one call
    per question at most (of check ``claims_per_answer / joint``): an answer that is rejected early needs none. Joint
    replies with a wrong number of labels cost one more call per claim.

    Raises
    ------
    ConfigError when ``claims_per_answer`` is needed and missing; DataError for a question without answers or passages,
    or one that comes twice.
    """
    check_joint(joint)
    if joint is not None and (claims_per_answer is None or claims_per_answer < 0):
        raise ConfigError(
            f"claims_per_answer={claims_per_answer} with joint={joint}",
            "a number of claims to reckon with",
            "pass claims_per_answer=10, or joint=None, whose calls do not depend on it",
        )
    first = as_step("long answers", [r for r in _requests(items, prompt) if r is not None])
    each = 1 if joint is None else math.ceil((claims_per_answer or 0) / joint)
    steps = [first, Step("claims, at most", calls=len(items)), Step("claim check, at most", calls=each * len(items))]
    return [*steps, Step("short answers, at most", calls=len(items))] if keep_short else steps


def _requests(items: Sequence[ShortAnswered], prompt: Prompt) -> list[Request | None]:
    template, seen = load_prompt(prompt), set()
    requests: list[Request | None] = []
    for item in items:
        lacking = [name for name in ("answers", "passages") if not getattr(item, name)]
        if lacking or item.id in seen:
            raise DataError(
                f"question {item.id!r} " + (f"without {lacking[0]}" if lacking else "twice"),
                "short answers and passages for every question, each question once",
                "leave it out, or give it an id of its own",
            )
        seen.add(item.id)
        passages = "\n\n".join(f"[{name}]\n{text.strip()}" for name, text in item.passages.items())
        answers = "\n".join(f"- {one_line(answer)}" for answer in item.answers)
        filled = fill_prompt(template, question=item.question.strip(), answers=answers, passages=passages)
        requests.append(Request(item.id, filled, _Reply))
    return requests


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", title="LongAnswer")  # the title is a part of recorded requests

    answer: str
    passages: list[str] = Field(max_length=MOST_ITEMS)


def _early(item: ShortAnswered, written: Any, cited: tuple[str, ...]) -> tuple[Status, str] | None:
    """Say what can be said without the claims; None where they decide."""
    if written is None:
        return "unscored", "the long answer could not be read"
    if not written.answer.strip():
        return "rejected", "no answer"
    if not cited:
        return "rejected", "no passage cited"
    strange = [name for name in cited if name not in item.passages]
    return ("rejected", f"cites {strange[0]!r}, which is no passage of the question") if strange else None


def _gate(
    claims: Sequence[Claim] | None, labels: Sequence[str | None] | None, short: Sequence[str | None] | None
) -> tuple[Status, str]:
    if claims is None or labels is None:
        return "unscored", "the claims could not be read"
    if not claims:
        return "rejected", "no claims"
    wrong = [f"{labels.count(label)} {word}" for label, word in _FAULTS.items() if label in labels]
    if wrong:
        return "rejected", f"of {len(claims)} claims {' and '.join(wrong)}"
    if short is not None and "Entailment" not in short and None not in short:
        return "rejected", "does not give a short answer"
    unread = list(labels).count(None) + (short is not None and "Entailment" not in short)
    return ("unscored", f"{unread} labels could not be read") if unread else ("accepted", "all claims entailed")


# A corpus cut down (A.3)

# Retriever -> documents per question, as in appendix A.3.
BIOMEDICAL = {"bm25": 400}
SCIENCE = {"bm25": 200, "dense": 200}


@dataclass(frozen=True)
class Downsampled:
    """A smaller corpus.

    Attributes
    ----------
    kept : ids in the order of the corpus. kept_by : id -> who kept it ("annotated", names of retrievers).
    annotated : the annotated ids. size : documents before.
    """

    kept: tuple[str, ...]
    kept_by: Mapping[str, tuple[str, ...]]
    annotated: frozenset[str]
    size: int

    def __repr__(self) -> str:
        return f"Downsampled({len(self.kept)} of {self.size} documents)"

    def table(self) -> pd.DataFrame:
        """Return one row per source: documents kept, kept by it alone, and the share of annotated ones it has."""
        sources = dict.fromkeys(name for by in self.kept_by.values() for name in by)
        rows = []
        for source in sources:
            documents = {name for name, by in self.kept_by.items() if source in by}
            alone = sum(self.kept_by[name] == (source,) for name in documents)
            share = len(documents & self.annotated) / len(self.annotated) if self.annotated else float("nan")
            rows.append((source, len(documents), alone, share))
        return pd.DataFrame(rows, columns=["source", "documents", "alone", "annotated"]).set_index("source")


def downsample(
    corpus: Sequence[Document],
    queries: Sequence[str],
    annotated: Sequence[Collection[str]],
    retrievers: Mapping[str, tuple[Any, int]],
) -> Downsampled:
    """Cut a corpus down to its annotated documents and what retrievers find.

    Parameters
    ----------
    corpus : documents with ids.
    queries : shape (n,). annotated : for each query the ids of its annotated documents.
    retrievers : name -> (retriever over whole documents, one chunk each; documents per query), e.g.
        ``{"bm25": (bm25, 200), "dense": (dense, 200)}``; see `BIOMEDICAL` and `SCIENCE` for the paper's numbers.

    Returns
    -------
    Downsampled; the same for any order of the queries.

    Raises
    ------
    DataError for an annotated or retrieved id that the corpus lacks, or lists of different length; ConfigError for a
    k below 1, the name "annotated", or a retriever that returns several chunks of one document.

    Source: RAGChecker, appendix A.3: BM25's top 400 per question for the biomedical corpus; the top 200 of BM25 and of
    a dense retriever (400 before duplicates are removed) for science.
    """
    ids = [document.id for document in corpus]
    if len(queries) != len(annotated) or isinstance(queries, str):
        got = "one string" if isinstance(queries, str) else f"{len(queries)} queries and {len(annotated)} annotations"
        raise DataError(got, "a list of queries, and annotated ids for each", "pass [] for a query without any")
    kept_by: dict[str, dict[str, None]] = {name: {} for name in ids}

    def keep(name: str, source: str, query: str) -> None:
        if name not in kept_by:
            raise DataError(
                f"{source}: {name!r} for {query!r:.60}",
                "an id of the corpus",
                "check that index and corpus belong together",
            )
        kept_by[name][source] = None

    for query, gold in zip(queries, annotated, strict=True):
        for name in [gold] if isinstance(gold, str) else gold:
            keep(name, "annotated", query)
    marked = frozenset(name for name, by in kept_by.items() if by)
    for source, (retriever, k) in retrievers.items():
        if k < 1 or source == "annotated":
            raise ConfigError(f"{source!r}: k={k}", "a name of its own and k of at least 1", "choose others")
        for query, hits in zip(queries, retriever.search(list(queries), k), strict=True):
            doc_ids = [hit.chunk.doc_id for hit in hits]
            if len(set(doc_ids)) < len(doc_ids):
                raise ConfigError(
                    f"{source}: several chunks of one document for {query!r:.60}",
                    "k documents per query, so one chunk per document",
                    "index the documents whole",
                )
            for name in doc_ids:
                keep(name, source, query)
    kept = {name: tuple(by) for name, by in kept_by.items() if by}
    return Downsampled(tuple(kept), kept, marked, len(ids))
