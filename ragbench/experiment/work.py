"""One question: its hits are cut at every N, the contexts scored and answered, the answers graded; each a `Draft`.

`block` does what needs no model server. It is a task of an executor: it takes and returns plain records, so it may run
in a thread, in another process or on another machine. `answer_calls` and `grade_calls` list the prompts for models on
servers, which are asked from this process: their connections cannot be sent away, and an API key should not be.
"""

from __future__ import annotations

import errno
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.experiment.identity import object_identity
from ragbench.experiment.rows import AXIS_COLUMNS, REPLY_COLUMNS, no_room
from ragbench.experiment.spec import NONE, Cell, Cutting, Experiment
from ragbench.generation.answers import PROMPTS, answer_prompts, as_answer, generate
from ragbench.labelling.grades import grading_prompts, group_answers, read_grades
from ragbench.llm import Reply
from ragbench.llm.context import prompt_tokens
from ragbench.llm.reply import CUT_SHORT
from ragbench.metrics.ir_score import ir_score_table
from ragbench.records import GRADES, Answer, Hit, Question
from ragbench.text.cutoffs import TokenOffsets, joined_cutoffs

Search = tuple[str, str, int]  # chunker, retriever, k
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

    def put(self, row: dict[str, Any]) -> None:
        """Mark a row as failed."""
        row |= {"status": "failed", "error_step": self.step, "error_kind": self.kind, "error": self.message}


@dataclass(slots=True)
class Item:
    """What is to be made of one question.

    Attributes
    ----------
    wanted : cell, key of the row and key of its answer, for the rows that are not there yet, in the order of the grid.
    found : hits by search, or why there are none.
    known : by answer key, the answer columns of a row that another judge has graded already.
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

    @property
    def ok(self) -> bool:
        """Whether no step has failed so far."""
        return self.row["status"] == "ok"

    @property
    def whole(self) -> bool:
        """Whether the row has all that its cell asks for."""
        answered = "answer" in self.row or self.cell.generator == NONE
        return not self.ok or (answered and ("grade" in self.row or self.cell.judge == NONE))


Batch = Sequence[tuple[Item, Sequence[Draft]]]


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
    done = []
    for item in items:
        drafts = _drafts(item, cutting, offsets)
        answer_here(item.question, drafts, readers)
        if truncated == "unscored":
            leave_truncated(drafts)
        grade_here(item.question, drafts, graders)
        done.append(drafts)
    return done


@functools.lru_cache(maxsize=4)
def _kept_offsets(tokenizer: Any) -> TokenOffsets:
    return TokenOffsets(tokenizer)


def _offsets(tokenizer: Any) -> TokenOffsets:
    """Return the token offsets of this process: every chunk is tokenised once in it."""
    try:
        return _kept_offsets(tokenizer)
    except TypeError:  # a tokenizer that cannot be hashed
        return TokenOffsets(tokenizer)


# -- cut at N ----------------------------------------------------------------------------------------------------------


def _drafts(item: Item, cutting: Cutting, offsets: TokenOffsets) -> list[Draft]:
    """Cut the contexts of one question at every N, score all of them in one pass, and begin its rows."""
    budgets: dict[Search, set[int]] = {}
    for cell, _, _ in item.wanted:
        budgets.setdefault(cell.search, set()).add(cell.N)
    contexts = {search: _contexts(item, search, sorted(ns), cutting, offsets) for search, ns in budgets.items()}
    drafts = []
    for cell, key, answer_key in item.wanted:
        axes = (cell.data, item.question.id, *cell.answer, cell.judge)
        row: dict[str, Any] = dict(zip(AXIS_COLUMNS, axes, strict=True)) | {"status": "ok"}
        row |= {"kind": item.question.kind, "level": item.question.level, "answer_key": answer_key, "key": key}
        of_search, context = contexts[cell.search], None
        if isinstance(of_search, Failure):
            of_search.put(row)
        else:
            about, context = of_search[cell.N]
            row |= about | item.known.get(answer_key, {})
        drafts.append(Draft(cell, row, context))
    return drafts


def _contexts(
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
        joined, references = " ".join(texts), list(item.question.references)
        ends = joined_cutoffs(texts, budgets, offsets, cutting.begin_token)
        scores = ir_score_table(
            [references], [joined], budgets, match=cutting.match, positions=ends[None, :], threads=1
        )[0]
        most = offsets.joined_ends(texts, max(budgets)).size
    except Exception as error:
        return Failure.of("retrieve", error)
    about = {"hits": [hit.chunk.id for hit in hits], "zero_hits": sum(hit.score == 0 for hit in hits)}
    tokens = [int(min(max(n - 1, 0) if cutting.begin_token else n, most)) for n in budgets]
    return {
        n: ({"ir_score": score, "context_tokens": count, **about}, joined[:end])
        for n, end, score, count in zip(budgets, ends.tolist(), scores.tolist(), tokens, strict=True)
    }


# -- answer ------------------------------------------------------------------------------------------------------------


def unanswered(drafts: Iterable[Draft], generator: str) -> list[list[Draft]]:
    """Group the drafts that still need this generator's answer: those of one answer (several judges) together."""
    groups: dict[str, list[Draft]] = {}
    for draft in drafts:
        if draft.cell.generator == generator and draft.ok and "answer" not in draft.row:
            groups.setdefault(draft.row["answer_key"], []).append(draft)
    return list(groups.values())


def put_answer(drafts: Iterable[Draft], answer: Answer, extra: Mapping[str, Any]) -> None:
    """Put one answer, or the failure to get one, into the rows that wait for it."""
    for draft in drafts:
        if error := answer.meta.get("error"):
            kind, _, message = error.partition(": ")
            Failure("generate", kind, message).put(draft.row)
        else:
            draft.row["answer"] = answer.text
        draft.row |= {"seconds": answer.seconds, **extra}


def answer_here(question: Question, drafts: Sequence[Draft], readers: Mapping[str, Any]) -> None:
    """Let the readers answer what is theirs."""
    for name, reader in readers.items():
        for group in unanswered(drafts, name):
            try:
                answer = generate(reader, [question], [group[0].context])[0]
            except Exception as error:
                answer = Answer(question.id, "", name, meta={"error": f"{type(error).__name__}: {error}"})
            put_answer(group, answer, {"model": reader.name, "abstained": answer.meta.get("abstained")})


def leave_truncated(drafts: Iterable[Draft]) -> None:
    """Leave without a grade what was to be graded and ended at its limit of tokens."""
    message = "the answer ended at its limit of tokens; truncated='score' has it graded"
    for draft in drafts:
        if draft.cell.judge != NONE and draft.ok and draft.row.get("finish") in CUT_SHORT:
            Failure("grade", LEFT_OUT, message).put(draft.row)


@dataclass(slots=True)
class Call:
    """One prompt of a run. ``take`` puts its reply into the rows of ``drafts``, which wait for it."""

    question_id: str
    id: str
    text: str
    schema: Any
    drafts: Sequence[Draft]
    take: Callable[[Reply], None]


def answer_calls(
    experiment: Experiment, batch: Batch, name: str, facts: Mapping[str, Any], graders: Mapping[str, Any]
) -> list[Call]:
    """List the prompts of one generator for the answers that are missing; ``facts``: what a row says of its model."""
    waiting = [(item.question, group) for item, drafts in batch for group in unanswered(drafts, name)]
    questions, contexts = [question for question, _ in waiting], [group[0].context for _, group in waiting]
    prompts = answer_prompts(questions, contexts, experiment.prompts.get(name, PROMPTS["with_documents"]))

    def call(question: Question, group: Sequence[Draft], prompt: Any) -> Call:
        def take(reply: Reply) -> None:
            answer = as_answer(question, prompt, reply, {})
            about = {"tagged": None} | answer.meta["usage"] | answer.meta
            put_answer(group, answer, facts | {column: about[column] for column in ("prompt_sha256", *REPLY_COLUMNS)})
            if experiment.truncated == "unscored":
                leave_truncated(group)
            grade_here(question, group, graders)

        place = "/".join(map(str, (question.id, *group[0].cell.answer[:4])))
        return Call(question.id, place, prompt.text, None, group, take)

    return [call(*waits, prompt) for waits, prompt in zip(waiting, prompts, strict=True)]


# -- grade -------------------------------------------------------------------------------------------------------------


def grade_here(question: Question, drafts: Sequence[Draft], graders: Mapping[str, Any]) -> None:
    """Let the embedded graders grade the answers that are there."""
    for draft in drafts:
        name = draft.cell.judge
        if name not in graders or not draft.ok or "answer" not in draft.row or "grade" in draft.row:
            continue
        start = time.perf_counter()
        try:
            answer = Answer(question.id, draft.row["answer"], draft.cell.generator)
            grade = graders[name].grade_all([question], [answer])[0]
        except Exception as error:
            Failure.of("grade", error).put(draft.row)
            continue
        if grade.value is None:
            Failure("grade", grade.meta["error"], grade.meta["detail"]).put(draft.row)
        elif isinstance(grade.value, bool) or not hasattr(grade.value, "__index__") or grade.value not in GRADES:
            got = f"the grader {name!r} gave {grade.value!r}, not a grade from {min(GRADES)} to {max(GRADES)}"
            Failure("grade", "invalid", got).put(draft.row)
            continue
        draft.row |= {"grade": grade.value, "judge_model": grade.judge, "judge_seconds": time.perf_counter() - start}


def grade_calls(experiment: Experiment, batch: Batch, name: str, facts: Mapping[str, Any]) -> list[Call]:
    """List the prompts of one judge for the grades that are missing; ``facts``: what a row says of its model."""

    def call(item: Item, answers: Sequence[Answer], drafts: Sequence[Draft | None]) -> Call:
        settings = {"per_prompt": len(answers), "order": experiment.order, "max_chars": experiment.max_chars}
        prompt = grading_prompts([item.question], answers, **settings)[0]

        def take(reply: Reply) -> None:
            for place, grade in read_grades(prompt, reply, answers, experiment.order):
                draft, about = drafts[place], grade.meta
                if draft is None:
                    continue
                draft.row |= {f"judge_{key}": about[key] for key in ("shown", "position", "repairs", "grades_got")}
                draft.row |= facts | {"grade": grade.value, "judge_seconds": reply.seconds, "judge_form": reply.form}
                draft.row["judge_answer_cut"] = about["cut"]
                # A sum over the calls: of no use where one of them was not counted (a reply cut early).
                used = about["usage"]
                draft.row["judge_prompt_tokens"] = None if used["uncounted"] else used["prompt_tokens"]
                draft.row["judge_prompt_estimate"] = prompt_tokens([{"content": prompt.text}])
                if grade.value is None:
                    draft.row["judge_raw"] = grade.raw
                    Failure("grade", about["error"], about["detail"]).put(draft.row)

        waiting = [draft for draft in drafts if draft is not None]
        place = f"{prompt.question_id} {prompt.places[0]}"
        return Call(prompt.question_id, place, prompt.text, prompt.schema, waiting, take)

    return [call(item, *g) for item, drafts in batch for g in judge_groups(item, drafts, name, experiment.per_prompt)]


def judge_groups(
    item: Item, drafts: Sequence[Draft], judge: str, per_prompt: str | int
) -> list[tuple[list[Answer], list[Draft | None]]]:
    """Say which answers of one question this judge sees together.

    Answers that were graded before take part, so that a prompt is the same whether or not the run was broken off;
    a prompt of which every grade is there is left out. Beside each answer: the draft that waits for its grade, or None.
    """
    groups: list[tuple[list[Answer], list[Draft | None]]] = []
    mine = [draft for draft in drafts if draft.cell.judge == judge]
    for generator in dict.fromkeys(draft.cell.generator for draft in mine):
        rows: list[tuple[dict[str, Any], Draft | None]]
        rows = [(d.row, d) for d in mine if d.cell.generator == generator and d.ok and "answer" in d.row]
        if per_prompt != "one":
            alike = [r for r in item.done if r["judge"] == judge and r["generator"] == generator]
            rows += [(r, None) for r in alike if r.get("answer") is not None and r.get("error_kind") != LEFT_OUT]
            rows.sort(key=lambda pair: item.places[pair[0]["key"]])
        answers = []
        for row, _ in rows:
            about = {"retriever": f"{row['chunker']}/{row['retriever']}/{row['k']}", "budget": row["N"]}
            answers.append(Answer(item.question.id, row["answer"], generator, meta=about))
        for places in group_answers(answers, per_prompt):
            waiting = [rows[place][1] for place in places]
            if any(waiting):
                groups.append(([answers[place] for place in places], waiting))
    return groups
