"""How RAGChecker's benchmark was made from other people's data (appendix A), to do the same with one's own.

`long_answers` turns short answers into long ones with a model and keeps those whose every claim the cited passages
entail (A.2). `downsample` cuts a corpus down to the annotated documents and what retrievers find (A.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from ragbench.data.ragchecker import Claim
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.asking import Request, StepReport, one_line, send_some
from ragbench.labelling.claims import check_claims, extract_claims
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.records import Dataset, Document

_STATUSES = ("accepted", "rejected", "unscored")
_FAULTS = {"Contradiction": "contradicted", "Neutral": "not entailed"}
_COUNTS = {"entailed": "Entailment", "neutral": "Neutral", "contradicted": "Contradiction", "unread": None}


@dataclass(frozen=True, slots=True)
class ShortAnswered:
    """A question with the short answers that people marked, and the passages (id -> text) that hold them."""

    id: str
    question: str
    answers: tuple[str, ...]
    passages: Mapping[str, str]


@dataclass(frozen=True)
class LongAnswers:
    """What became of every question, in order, and what each step took.

    Columns of ``rows``: id, question; answer ("" where none came), cited (ids of the passages it rests on, as the model
    says), claims, labels (how these passages stand to them; None where unread) and their counts; status ("accepted",
    "rejected", or "unscored" where a reply that decides could not be read) and reason, in words.
    """

    rows: pd.DataFrame
    reports: Mapping[str, StepReport]

    def __repr__(self) -> str:
        return f"LongAnswers({', '.join(f'{n} {status}' for status, n in self.counts.items())})"

    @property
    def counts(self) -> dict[str, int]:
        """Questions by status; the three add up to all."""
        return {status: int((self.rows["status"] == status).sum()) for status in _STATUSES}

    @property
    def accepted(self) -> pd.DataFrame:
        """The answers that passed the gate."""
        return self.rows[self.rows["status"] == "accepted"]


def short_answered(dataset: Dataset) -> list[ShortAnswered]:
    """Take a data set's questions with their short answers and gold documents.

    DataError for a question without supporting facts in the documents.

    Parameters
    ----------
    dataset : whose questions have ``meta["supporting_facts"]`` (HotpotQA, MiniHop).
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
    prompt: Prompt = "curation_long_answer",
    **options: Any,
) -> LongAnswers:
    """Write a long answer for each question and let it through if the cited passages entail all of its claims.

    Parameters
    ----------
    model, checker : the one writes, the other extracts and checks claims; default the same model.
    options : for `ragbench.llm.ask`.

    Returns
    -------
    LongAnswers. Rejected: no answer, no passage cited or one that is not there, no claim, a claim that is Neutral or
    Contradiction. Unscored: a reply could not be read, and no other claim decides.

    Source: RAGChecker, appendix A.2 (the wording of the prompt is ours; there GPT-4 writes and RefChecker checks).
    """
    judge = model if checker is None else checker
    drafts, report = send_some(model, "long answers", _requests(items, prompt), options)
    reports = {"long answers": report}
    answers = ["" if draft is None else draft.answer.strip() for draft in drafts]
    cited = [() if d is None else tuple(dict.fromkeys(p.strip().strip("[]") for p in d.passages)) for d in drafts]
    early = [_early(*draft) for draft in zip(items, drafts, answers, cited, strict=True)]
    going = [i for i, verdict in enumerate(early) if verdict is None]
    texts, names = [answers[i] for i in going], [items[i].id for i in going]
    extracted = extract_claims(judge, texts, ids=names, **options)
    sources = ["\n\n".join(items[i].passages[name] for name in cited[i]) for i in going]
    checked = check_claims(judge, extracted.labels, sources, None, ids=names, **options)
    reports |= {"claims": extracted.report, "claim check": checked.report}
    late = dict(zip(going, zip(extracted.labels, checked.labels, strict=True), strict=True))
    rows = []
    for i, item in enumerate(items):
        claims, labels = late.get(i, ((), ()))
        status, reason = early[i] or _late(claims, labels)
        counts = [(labels or ()).count(label) for label in _COUNTS.values()]
        rows.append((item.id, item.question, answers[i], cited[i], claims or (), labels or (), *counts, status, reason))
    columns = ["id", "question", "answer", "cited", "claims", "labels", *_COUNTS, "status", "reason"]
    return LongAnswers(pd.DataFrame(rows, columns=columns), reports)


def _requests(items: Sequence[ShortAnswered], prompt: Prompt) -> list[Request]:
    template, seen = load_prompt(prompt), set()
    requests = []
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


def _early(item: ShortAnswered, draft: Any, answer: str, cited: tuple[str, ...]) -> tuple[str, str] | None:
    """Say what can be said without the claims; None where they decide."""
    if draft is None:
        return "unscored", "the long answer could not be read"
    if not answer:
        return "rejected", "no answer"
    if not cited:
        return "rejected", "no passage cited"
    strange = [name for name in cited if name not in item.passages]
    return ("rejected", f"cites {strange[0]!r}, which is no passage of the question") if strange else None


def _late(claims: Sequence[Claim] | None, labels: Sequence[str | None] | None) -> tuple[str, str]:
    if claims is None or labels is None:
        return "unscored", "the claims could not be read"
    if not claims:
        return "rejected", "no claims"
    wrong = [f"{labels.count(label)} {word}" for label, word in _FAULTS.items() if label in labels]
    if wrong:
        return "rejected", f"of {len(claims)} claims {' and '.join(wrong)}"
    unread = list(labels).count(None)
    return ("unscored", f"{unread} labels could not be read") if unread else ("accepted", "all claims entailed")


# A corpus cut down (A.3)


@dataclass(frozen=True)
class Downsampled:
    """A smaller corpus, of ``size`` documents before.

    ``by_source`` says who kept what: bool frame, kept ids in the order of the corpus x "annotated" and the retrievers.
    """

    by_source: pd.DataFrame
    size: int

    def __repr__(self) -> str:
        return f"Downsampled({len(self.kept)} of {self.size} documents)"

    @property
    def kept(self) -> tuple[str, ...]:
        """The ids that are kept."""
        return tuple(self.by_source.index)

    def table(self) -> pd.DataFrame:
        """Return one row per source: documents kept, kept by it alone, and the share of annotated ones it has."""
        kept = self.by_source
        columns = {
            "documents": kept.sum(),
            "alone": kept[kept.sum(axis=1) == 1].sum(),
            "annotated": kept[kept["annotated"]].mean(),
        }
        return pd.DataFrame(columns).rename_axis("source")


def downsample(
    corpus: Sequence[Document],
    queries: Sequence[str],
    annotated: Sequence[Collection[str]],
    retrievers: Mapping[str, tuple[Any, int]],
) -> Downsampled:
    """Cut a corpus down to its annotated documents and what retrievers find; the same for any order of the queries.

    DataError for queries without annotations, or ids that are not in the corpus.

    Parameters
    ----------
    annotated : for each query the ids of its annotated documents.
    retrievers : name -> (retriever over whole documents, one chunk each; documents per query), e.g.
        ``{"bm25": (bm25, 200), "dense": (dense, 200)}``.

    Source: RAGChecker, appendix A.3: BM25's top 400 per question for the biomedical corpus; the top 200 of BM25 and of
    a dense retriever (400 before duplicates are removed) for science.
    """
    if len(queries) != len(annotated):
        got = f"{len(queries)} queries and {len(annotated)} annotations"
        raise DataError(got, "annotated ids for each query", "pass [] for a query without any")
    lists = {"annotated": [list(ids) for ids in annotated]}
    for source, (retriever, k) in retrievers.items():
        lists[source] = [[hit.chunk.doc_id for hit in hits] for hits in retriever.search(list(queries), k)]
    ids = pd.Index([document.id for document in corpus])
    known = set(ids)
    for source, by_query in lists.items():
        for query, names in zip(queries, by_query, strict=True):
            if strange := [name for name in names if name not in known]:
                do = "check that index and corpus belong together"
                raise DataError(f"{source}: {strange[0]!r} for {query!r:.60}", "an id of the corpus", do)
            if source != "annotated" and len(set(names)) < len(names):
                raise ConfigError(
                    f"{source}: several chunks of one document for {query!r:.60}",
                    "k documents per query, so one chunk per document",
                    "index the documents whole",
                )
    marks = {source: ids.isin(list(chain.from_iterable(by_query))) for source, by_query in lists.items()}
    by_source = pd.DataFrame(marks, index=ids)
    return Downsampled(by_source[by_source.any(axis=1)], len(ids))
