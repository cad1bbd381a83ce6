"""The part of a run that computes: contexts, IR scores, answers of readers, grades of the embedded grader.

A block of questions is one task of an executor; it takes and returns plain records, so it may run in a thread, in
another process or on another machine. Calls to model servers are not made here (see ``live``).
"""

from __future__ import annotations

import errno
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.experiment.identity import object_identity
from ragbench.experiment.rows import no_room
from ragbench.experiment.spec import NONE, Cell, Cutting
from ragbench.generation import generate
from ragbench.labelling.grades import GRADES
from ragbench.llm.reply import CUT_SHORT
from ragbench.metrics.cutoffs import TokenOffsets, joined_cutoffs
from ragbench.metrics.ir_score import ir_score_table
from ragbench.records import Answer, Hit, Question

Search = tuple[str, str, int]
LEFT_OUT = "truncated answer"  # kind of a row without a grade, unlike a judge's own truncated reply
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that did not work for one question: which, what kind, and the message."""

    step: str
    kind: str
    message: str

    @classmethod
    def of(cls, step: str, error: BaseException) -> Failure:
        """Turn an exception into a failure; a full disk is none of the question's, and ends the run."""
        if isinstance(error, OSError) and error.errno in _FULL:
            raise no_room(error.filename or "a file", error.strerror) from None
        return cls(step, getattr(error, "kind", type(error).__name__), str(error))


@dataclass(slots=True)
class Item:
    """What is to be made of one question.

    Attributes
    ----------
    wanted : cell, key of the row and key of its answer, for the rows that are not there yet, in the order of the grid.
    found : hits by (chunker, retriever, k), or why there are none.
    known : by answer key, the answer fields of a row that another judge has graded already.
    done : rows of this question that are there, for judges that see several answers at once.
    places : place of every row in the grid, by key.
    """

    question: Question
    wanted: list[tuple[Cell, str, str]]
    found: dict[Search, list[Hit] | Failure] = field(default_factory=dict)
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Draft:
    """A row being made. ``context`` is what the generator sees; None: the query alone."""

    cell: Cell
    row: dict[str, Any]
    context: str | None = None


# What a row says of its answer.
ANSWER_FIELDS = ("answer", "abstained", "seconds", "model", "digest", "temperature", "seed", "num_ctx", "prompt_sha256")
ANSWER_FIELDS += ("finish", "prompt_tokens", "prompt_estimate", "output_tokens", "tagged", "cached")


class FunctionReader:
    """A plain function (question, context) -> answer as a reader."""

    def __init__(self, function: Callable[[str, str], str], name: str) -> None:
        self.function, self.name = function, name

    def settings(self) -> dict[str, Any]:
        """Return what is known of the function."""
        return {"reader": object_identity(self.function)}

    def answer(self, question: str, context: str) -> str:
        """Answer one question."""
        return self.function(question, context)


def block(
    items: Sequence[Item],
    cutting: Cutting,
    readers: Mapping[str, Any],
    graders: Mapping[str, Any],
    truncated: str = "score",
) -> list[list[Draft]]:
    """Make the drafts of some questions, in the order wanted, with all that needs no model server."""
    offsets = _offsets(cutting.tokenizer)
    made = [_drafts(item, cutting, offsets) for item in items]
    for item, drafts in zip(items, made, strict=True):
        answer_here(item.question, drafts, readers)
        if truncated == "unscored":
            leave_truncated(drafts)
        grade_here(item.question, drafts, graders)
    return made


@functools.lru_cache(maxsize=4)
def _kept_offsets(tokenizer: Any) -> TokenOffsets:
    return TokenOffsets(tokenizer)


def _offsets(tokenizer: Any) -> TokenOffsets:
    """Return the token offsets of this process: every chunk is tokenised once in it."""
    try:
        return _kept_offsets(tokenizer)
    except TypeError:  # a tokenizer that cannot be hashed
        return TokenOffsets(tokenizer)


def _drafts(item: Item, cutting: Cutting, offsets: TokenOffsets) -> list[Draft]:
    """Cut the contexts of one question at every N, score all of them in one pass, and begin its rows."""
    budgets: dict[Search, list[int]] = {}
    for cell, _, _ in item.wanted:
        budgets.setdefault(cell.search, []).append(cell.N)
    cut = {search: _cut(item, search, sorted(set(ns)), cutting, offsets) for search, ns in budgets.items()}
    drafts = []
    for cell, key, answer_key in item.wanted:
        values = cut[cell.search]
        row: dict[str, Any] = {
            "data": cell.data, "question_id": item.question.id, "chunker": cell.chunker, "retriever": cell.retriever,
            "k": cell.k, "N": cell.N, "generator": cell.generator, "judge": cell.judge, "status": "ok",
            "kind": item.question.kind, "level": item.question.level, "answer_key": answer_key, "key": key,
        }  # fmt: skip
        context = None
        if isinstance(values, Failure):
            fail(row, values)
        else:
            scored, context = values[cell.N]
            row |= scored | item.known.get(answer_key, {})
        drafts.append(Draft(cell, row, context))
    return drafts


def _cut(
    item: Item, search: Search, budgets: Sequence[int], cutting: Cutting, offsets: TokenOffsets
) -> dict[int, tuple[dict[str, Any], str | None]] | Failure:
    """Return by N what the row says of the context, and the context."""
    if search[0] == NONE:
        return {0: ({"ir_score": None, "context_tokens": 0, "hits": []}, None)}
    hits = item.found[search]
    if isinstance(hits, Failure):
        return hits
    try:
        texts = [hit.chunk.text for hit in hits]
        joined = " ".join(texts)
        ends = joined_cutoffs(texts, budgets, offsets, cutting.begin_token)
        counted = offsets.joined_ends(texts, max(budgets)).size
        scores = ir_score_table(
            [list(item.question.references)], [joined], budgets, match=cutting.match, positions=ends[None, :], threads=1
        )[0]
    except Exception as error:
        return Failure.of("retrieve", error)
    found = {"hits": [hit.chunk.id for hit in hits], "zero_hits": sum(hit.score == 0 for hit in hits)}
    made = {}
    for n, end, score in zip(budgets, ends.tolist(), scores.tolist(), strict=True):
        tokens = min(max(n - 1, 0) if cutting.begin_token else n, counted)
        made[n] = ({"ir_score": score, "context_tokens": int(tokens), **found}, joined[:end])
    return made


def fail(row: dict[str, Any], failure: Failure) -> None:
    """Mark a row as failed, with the reason."""
    row |= {"status": "failed", "error_step": failure.step, "error_kind": failure.kind, "error": failure.message}


def unanswered(drafts: Iterable[Draft], generator: str) -> list[list[Draft]]:
    """Group the drafts that still need this generator's answer: those of one answer (several judges) together."""
    groups: dict[str, list[Draft]] = {}
    for draft in drafts:
        if draft.cell.generator == generator and draft.row["status"] == "ok" and "answer" not in draft.row:
            groups.setdefault(draft.row["answer_key"], []).append(draft)
    return list(groups.values())


def put_answer(drafts: Iterable[Draft], answer: Answer, extra: Mapping[str, Any]) -> None:
    """Put one answer, or the failure to get one, into the rows that wait for it."""
    for draft in drafts:
        if error := answer.meta.get("error"):
            kind, _, message = error.partition(": ")
            fail(draft.row, Failure("generate", kind, message))
        else:
            draft.row["answer"] = answer.text
        draft.row |= {"seconds": answer.seconds, **extra}


def leave_truncated(drafts: Iterable[Draft]) -> None:
    """Leave without a grade what was to be graded and ended at its limit of tokens."""
    for draft in drafts:
        if draft.cell.judge != NONE and draft.row["status"] == "ok" and draft.row.get("finish") in CUT_SHORT:
            message = "the answer ended at its limit of tokens; truncated='score' has it graded"
            fail(draft.row, Failure("grade", LEFT_OUT, message))


def answer_here(question: Question, drafts: Sequence[Draft], readers: Mapping[str, Any]) -> None:
    """Let the readers answer what is theirs."""
    for name, reader in readers.items():
        for group in unanswered(drafts, name):
            try:
                answer = generate(reader, [question], [group[0].context])[0]
            except Exception as error:
                answer = Answer(question.id, "", name, meta={"error": f"{type(error).__name__}: {error}"})
            put_answer(group, answer, {"model": reader.name, "abstained": answer.meta.get("abstained")})


def grade_here(question: Question, drafts: Sequence[Draft], graders: Mapping[str, Any]) -> None:
    """Let the embedded graders grade the answers that are there."""
    for name, grader in graders.items():
        for draft in drafts:
            waits = draft.row["status"] == "ok" and "answer" in draft.row and "grade" not in draft.row
            if draft.cell.judge != name or not waits:
                continue
            start = time.perf_counter()
            try:
                answer = Answer(question.id, draft.row["answer"], draft.cell.generator)
                grade = grader.grade_all([question], [answer])[0]
            except Exception as error:
                fail(draft.row, Failure.of("grade", error))
                continue
            if grade.value is None:
                fail(draft.row, Failure("grade", grade.meta["error"], grade.meta["detail"]))
            elif isinstance(grade.value, bool) or not hasattr(grade.value, "__index__") or grade.value not in GRADES:
                told = f"the grader {name!r} gave {grade.value!r}, not a grade from {min(GRADES)} to {max(GRADES)}"
                fail(draft.row, Failure("grade", "invalid", told))
                continue
            draft.row |= {"grade": grade.value, "judge_model": grade.judge}
            draft.row["judge_seconds"] = time.perf_counter() - start
