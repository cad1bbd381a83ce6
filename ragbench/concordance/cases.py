"""What is scored: an answer with its question, the pieces of context it was to come from, and a grade where known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragbench.errors import ConfigError, DataError
from ragbench.labelling.embedded_checker import split_claims
from ragbench.records import Hit, Question, check_records


@dataclass(frozen=True, slots=True)
class Case:
    """One answer to be scored by every metric.

    Attributes
    ----------
    id : unique among the cases. question : with true answer and references.
    answer : the text to be scored. chunks : the context, in the order it is shown, cut to its budget.
    grade : 1..5, the reference grade, where there is one. system : what made the answer, "" for graded answers.
    """

    id: str
    question: Question
    answer: str
    chunks: tuple[str, ...]
    grade: int | None = None
    system: str = ""

    @property
    def context(self) -> str:
        """The context as one text."""
        return " ".join(self.chunks)

    @property
    def reference(self) -> str:
        """The long true answer: the data set's own, else the short one followed by the supporting sentences."""
        own = str(self.question.meta.get("long_answer", "")).strip()
        if own:
            return own
        return "\n".join([self.question.answer, *dict.fromkeys(self.question.references)])

    @property
    def reference_claims(self) -> tuple[str, ...]:
        """The claims of the true answer: the data set's own, else the supporting sentences."""
        own = tuple(claim["text"] for claim in self.question.meta.get("claims", ()))
        return own or tuple(dict.fromkeys(c for text in self.question.references for c in split_claims(text)))

    @property
    def keypoints(self) -> tuple[str, ...]:
        """RAGEval's keypoints: the data set's own, else the true answer as the only one."""
        return tuple(self.question.meta.get("keypoints", ())) or (self.question.answer,)


def graded_cases(
    questions: Sequence[Question], answers: Sequence[Any], hits: Sequence[Sequence[Hit]], N: int, tokenizer: Any = None
) -> list[Case]:
    """Make cases of answers that have a reference grade.

    Parameters
    ----------
    questions : those asked. answers : graded answers (`ragbench.load_graded_answers`), any number per question; those
        to other questions are passed over.
    hits : one list per question: the context that all its answers are scored with.
    N : tokens of the context. tokenizer : as in `ragbench.metrics.cutoffs.joined_cutoffs`.
    """
    chunks = dict(zip((q.id for q in questions), cut_chunks(hits, N, tokenizer), strict=True))
    by_id = {q.id: q for q in questions}
    return [
        Case(a.id, by_id[a.question_id], a.text, chunks[a.question_id], a.grade)
        for a in answers
        if a.question_id in by_id
    ]


def system_cases(
    questions: Sequence[Question],
    hits: Mapping[str, Sequence[Sequence[Hit]]],
    budgets: Sequence[int],
    generator: Any,
    tokenizer: Any = None,
    **options: Any,
) -> list[Case]:
    """Let a generator answer every question with every retriever's context at every budget.

    Parameters
    ----------
    questions : those asked. hits : by retriever, one list per question.
    budgets : N, above 0. generator : a reader or a chat model. tokenizer : of the budgets.
    options : for a chat model: ``cassette``, ``concurrency`` ...

    Returns
    -------
    Cases, question by question; ``system`` is "BM25@300", ``id`` that and the question's. An answer that failed is not
    scored: its case has an empty answer.
    """
    from ragbench.generation import generate

    if not budgets or min(budgets) < 1:
        raise ConfigError(f"budgets {list(budgets)!r}", "numbers of tokens above 0", "a context is what is scored")
    made: list[Case] = []
    for name, found in hits.items():
        for n in budgets:
            cut = cut_chunks(found, n, tokenizer)
            made += [
                Case(f"{q.id} {name}@{n}", q, "", chunks, system=f"{name}@{n}")
                for q, chunks in zip(questions, cut, strict=True)
            ]
    order = {q.id: i for i, q in enumerate(questions)}
    made.sort(key=lambda case: order[case.question.id])  # stable, and the prefix cache of a server likes it
    live = {} if hasattr(generator, "answer") else options
    answers = generate(generator, [c.question for c in made], [c.context for c in made], **live)
    return [Case(c.id, c.question, a.text, c.chunks, system=c.system) for c, a in zip(made, answers, strict=True)]


def cut_chunks(hits: Sequence[Sequence[Hit]], N: int, tokenizer: Any = None) -> list[tuple[str, ...]]:
    """Cut each question's chunks to the first N tokens of their join, as separate texts; the last may be a part."""
    from ragbench.metrics.cutoffs import as_offsets, joined_cutoffs

    offsets = as_offsets(tokenizer)
    made = []
    for found in hits:
        texts = [hit.chunk.text for hit in found]
        left = int(joined_cutoffs(texts, [N], offsets)[0])
        pieces = []
        for text in texts:
            pieces.append(text[: max(left, 0)])
            left -= len(text) + 1  # the space they are joined with
        made.append(tuple(piece for piece in pieces if piece.strip()))
    return made


def check_cases(cases: Sequence[Case]) -> None:
    """DataError without cases, or with an id that two of them have."""
    check_records(cases, Case, "cases")
    if not cases:
        raise DataError("no cases", "at least one answer to score", "raise the limit, or check the question ids")
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise DataError(f"the id {case.id!r} belongs to two cases", "an id used once", "put the system into it")
        seen.add(case.id)
