"""The evidence experiment: the same question with none, half or all of its evidence.

The thesis's section 3.3 infers from Figure 3.1 that a generator which gets part of the evidence
hallucinates more. That figure compares different questions. Here each question is asked in every
condition, so that only the evidence differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ragbench.records import Chunk, Dataset, Document, Hit, Question
from ragbench.retrieval.base import Index, Scopes
from ragbench.retrieval.bm25 import BM25

NEITHER = "neither hop"
FIRST = "first hop"
SECOND = "second hop"
BOTH = "both hops"
EVIDENCE = (NEITHER, FIRST, SECOND, BOTH)
DISTRACTED = tuple(f"{name} and namesakes" for name in EVIDENCE[1:])
_NAMESAKE_SENTENCES = 2


class Assigned(Index):
    """Finds what a table says: for each query text, ids of documents in their order."""

    documents: Mapping[str, Sequence[str]]

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        by_document = {chunk.doc_id: chunk for chunk in self.chunks}
        return [
            [
                Hit(by_document[name], 1.0, rank)
                for rank, name in enumerate(self.documents[query][:k], 1)
            ]
            for query in queries
        ]


def whole_documents(documents: Iterable[Document]) -> list[Chunk]:
    """Make one chunk of every document."""
    return [Chunk(d.id, d.text, d.id, d.title) for d in documents]


def two_hop_questions(questions: Iterable[Question]) -> list[Question]:
    """Keep the questions whose supporting facts lie in exactly two documents."""
    return [q for q in questions if len(q.meta["doc_ids"]) == 2]


def passages(
    questions: Sequence[Question], data: Dataset
) -> tuple[list[Document], dict[str, dict[str, list[str]]]]:
    """Lay out the passages of every condition.

    A hop is the title of its document, since its sentences seldom name what they are about, and the
    document's supporting sentences. A namesake is the beginning of another document: the first in
    BM25's order for the title of the hop's document that does not hold the true answer. Between two
    namesakes stands what evidence there is.

    Parameters
    ----------
    questions : of two documents each (`two_hop_questions`).
    data : the documents they are asked over.

    Returns
    -------
    The passages as documents, and condition -> text of the question -> ids of its passages.
    """
    documents = {document.id: document for document in data.documents}
    folded = {document.id: document.text.casefold() for document in data.documents}
    index = BM25(
        [Chunk(d.id, f"{d.title}. {d.text}", d.id, d.title) for d in data.documents],
        variant="terrier",
    )
    laid_out: dict[str, Document] = {}
    assigned: dict[str, dict[str, list[str]]] = {name: {} for name in (*EVIDENCE, *DISTRACTED)}

    def lay_out(document: Document, sentences: Iterable[int]) -> str:
        places = sorted(set(sentences))
        name = f"{document.id}#{','.join(map(str, places))}"
        text = " ".join(
            [f"{document.title}.", *(document.sentences[place].strip() for place in places)]
        )
        laid_out[name] = Document(name, document.title, text)
        return name

    for question in questions:
        titles = question.meta["doc_ids"]
        facts = {
            title: [place for name, place in question.meta["supporting_facts"] if name == title]
            for title in titles
        }
        hops = [lay_out(documents[title], facts[title]) for title in titles]
        answer = question.answer.casefold()
        telling = (
            {name for name, text in folded.items() if answer in text}
            if answer not in ("yes", "no")
            else set()
        )
        others: list[str] = []
        for title in titles:
            by_title, by_question = index.search(
                [documents[title].title, question.text], len(documents)
            )
            ranked = [hit.chunk.doc_id for hit in (*by_title, *by_question)]
            others.append(
                next(name for name in ranked if name not in telling.union(titles, others))
            )
        before, after = (lay_out(documents[title], range(_NAMESAKE_SENTENCES)) for title in others)
        plain = dict(zip(EVIDENCE, ([before, after], hops[:1], hops[1:], hops), strict=True))
        distracted = dict(
            zip(DISTRACTED, ([before, *plain[name], after] for name in EVIDENCE[1:]), strict=True)
        )
        for name, ids in (plain | distracted).items():
            assigned[name][question.text] = ids
    return list(laid_out.values()), assigned
