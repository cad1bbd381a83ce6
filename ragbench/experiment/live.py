"""The part of a run that waits: calls to model servers, made from this process, a batch of questions at a time.

Models are not sent to other processes: their connections cannot be, and an API key should not be. Every prompt of a
batch goes to one ``ask``, which puts a question's prompts one after another; every row is written as its reply comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragbench.errors import ModelError
from ragbench.experiment.spec import NONE, Experiment
from ragbench.experiment.stage import Stage
from ragbench.experiment.work import (
    LEFT_OUT,
    Draft,
    Failure,
    Item,
    fail,
    grade_here,
    leave_truncated,
    put_answer,
    unanswered,
)
from ragbench.generation.answers import PROMPTS, answer_prompts, as_answer
from ragbench.labelling.grades import GradingPrompt, grading_prompts, group_answers, read_grades
from ragbench.llm import Reply, ask
from ragbench.llm.context import prompt_tokens
from ragbench.llm.failures import KINDS, without_address
from ragbench.records import Answer

# A reply that cannot be used is a result; with these a server has not done its part.
_SERVERS = {name for name, kind in KINDS.items() if kind.retry or kind.host_wide} - {"empty"}
_SERVERS |= {"busy", "bad_request", "oversized", "other"}
_OF_AN_ANSWER = ("prompt_sha256", "finish", "cached", "prompt_tokens", "output_tokens", "prompt_estimate", "tagged")
_JUDGED_FROM = 20  # replies, before a share of failures counts

Batch = Sequence[tuple[Item, Sequence[Draft]]]


@dataclass(slots=True)
class Call:
    """One prompt of a run. ``take`` puts its reply into the rows of ``drafts``, which wait for it."""

    question_id: str
    id: str
    text: str
    schema: Any
    drafts: Sequence[Draft]
    take: Callable[[Reply], None]


def answer_calls(experiment: Experiment, stage: Stage, batch: Batch, name: str) -> list[Call]:
    """List the prompts of one generator for the answers that are missing."""
    waiting = [(item.question, group) for item, drafts in batch for group in unanswered(drafts, name)]
    questions, contexts = [question for question, _ in waiting], [group[0].context for _, group in waiting]
    prompts = answer_prompts(questions, contexts, experiment.prompts.get(name, PROMPTS["with_documents"]))
    facts = stage.model_facts("generator", name)

    def call(question: Any, group: Sequence[Draft], prompt: Any) -> Call:
        def take(reply: Reply) -> None:
            answer = as_answer(question, prompt, reply, {})
            about = {"tagged": None} | answer.meta["usage"] | answer.meta
            put_answer(group, answer, facts | {name: about[name] for name in _OF_AN_ANSWER})
            if experiment.truncated == "unscored":
                leave_truncated(group)
            grade_here(question, group, stage.graders)

        cell = group[0].cell
        where = f"{cell.chunker}/{cell.retriever}/{cell.k}"
        return Call(question.id, f"{question.id}/{where}/{cell.N}", prompt.text, None, group, take)

    return [call(*waits, prompt) for waits, prompt in zip(waiting, prompts, strict=True)]


def grade_calls(experiment: Experiment, stage: Stage, batch: Batch, name: str) -> list[Call]:
    """List the prompts of one judge for the grades that are missing."""
    facts = stage.judge_facts(name)

    def call(item: Item, answers: Sequence[Answer], mine: Sequence[Draft | None]) -> Call:
        shown = {"per_prompt": len(answers), "order": experiment.order, "max_chars": experiment.max_chars}
        prompt: GradingPrompt = grading_prompts([item.question], answers, **shown)[0]

        def take(reply: Reply) -> None:
            for place, grade in read_grades(prompt, reply, answers, experiment.order):
                draft, about = mine[place], grade.meta
                if draft is None:
                    continue
                used = about["usage"]
                draft.row |= facts | {
                    "grade": grade.value, "judge_seconds": reply.seconds, "judge_shown": about["shown"],
                    "judge_position": about["position"], "judge_answer_cut": about["cut"],
                    "judge_form": reply.form, "judge_repairs": about["repairs"],
                    "judge_grades_got": about["grades_got"],
                    # A sum over the calls: of no use where one of them was not counted (a reply cut early).
                    "judge_prompt_tokens": None if used["uncounted"] else used["prompt_tokens"],
                    "judge_prompt_estimate": prompt_tokens([{"content": prompt.text}]),
                }  # fmt: skip
                if grade.value is None:
                    draft.row["judge_raw"] = grade.raw
                    fail(draft.row, Failure("grade", about["error"], about["detail"]))

        waiting = [draft for draft in mine if draft is not None]
        name_of_it = f"{prompt.question_id} {prompt.places[0]}"
        return Call(prompt.question_id, name_of_it, prompt.text, prompt.schema, waiting, take)

    return [
        call(item, *group)
        for item, drafts in batch
        for group in judge_groups(item, drafts, name, experiment.per_prompt)
    ]


def judge_groups(
    item: Item, drafts: Sequence[Draft], judge: str, per_prompt: str | int
) -> list[tuple[list[Answer], list[Draft | None]]]:
    """Say which answers of one question this judge sees together.

    Answers that were graded before take part, so that a prompt is the same whether or not the run was broken off;
    a prompt of which every grade is there is left out. Beside each answer: the draft that waits for its grade, or None.
    """
    groups: list[tuple[list[Answer], list[Draft | None]]] = []
    for generator in dict.fromkeys(d.cell.generator for d in drafts if d.cell.judge == judge):
        own = [d for d in drafts if d.cell.judge == judge and d.cell.generator == generator]
        rows: list[tuple[dict[str, Any], Draft | None]]
        rows = [(d.row, d) for d in own if d.row["status"] == "ok" and "answer" in d.row]
        if per_prompt != "one":
            alike = [r for r in item.done if r["judge"] == judge and r["generator"] == generator]
            rows += [(r, None) for r in alike if r.get("answer") is not None and r.get("error_kind") != LEFT_OUT]
            rows.sort(key=lambda pair: item.places[pair[0]["key"]])
        answers = []
        for row, _ in rows:
            about = {"retriever": f"{row['chunker']}/{row['retriever']}/{row['k']}", "budget": row["N"]}
            answers.append(Answer(item.question.id, row["answer"], generator, meta=about))
        for places in group_answers(answers, per_prompt):
            waiting = [rows[p][1] for p in places]
            if any(waiting):
                groups.append(([answers[p] for p in places], waiting))
    return groups


def whole(draft: Draft) -> bool:
    """Whether a row has all that its cell asks for."""
    row, cell = draft.row, draft.cell
    if row["status"] != "ok":
        return True
    return ("answer" in row or cell.generator == NONE) and ("grade" in row or cell.judge == NONE)


@dataclass(slots=True)
class Live:
    """Asks the models of a run.

    Rows that a server failed wait until their batch is over: where the run ends with it, they are made by the next one.

    Attributes
    ----------
    cassette : or None. emit : takes each row as soon as it is whole. stopped : whether the run is to end.
    stop_after : share of prompts that the servers may fail.
    """

    experiment: Experiment
    stage: Stage
    cassette: Any
    emit: Callable[[dict[str, Any]], None]
    stopped: Callable[[], bool]
    stop_after: float
    replies: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    waiting: list[dict[str, Any]] = field(default_factory=list)

    def finish(self, batch: Batch) -> None:
        """Make the answers and grades that a batch lacks.

        Raises
        ------
        ModelError when no host of a model is left, or too large a share of the prompts failed.
        """
        for name, models in self.stage.generators.items():
            self._ask("generate", models, answer_calls(self.experiment, self.stage, batch, name), on_length="keep")
        for name, models in self.stage.judges.items():
            self._ask("grade", models, grade_calls(self.experiment, self.stage, batch, name))
        while self.waiting:
            self.emit(self.waiting.pop(0))

    def _ask(self, step: str, models: Sequence[Any], calls: Sequence[Call], **options: Any) -> None:
        def take(place: int, reply: Reply) -> None:
            self._count(reply)
            calls[place].take(reply if reply.error is None else replace(reply, error=without_address(reply.error)))
            self.put(calls[place].drafts)

        if calls and not self.stopped():
            settings = {"step": step, "cassette": self.cassette, "concurrency": self.experiment.concurrency}
            ask(
                models, [call.text for call in calls], schema=[call.schema for call in calls],
                ids=[call.id for call in calls], groups=[call.question_id for call in calls],
                on_reply=take, stop=self.stopped,
                **(settings | {"progress": False} | options | self.experiment.options),
            )  # fmt: skip

    def _count(self, reply: Reply) -> None:
        self.replies += 1
        if reply.error is None or reply.error.kind not in _SERVERS:
            return
        if reply.error.no_host_left:
            raise reply.error
        self.failures[reply.error.kind] += 1
        failed = self.failures.total()
        if self.replies >= _JUDGED_FROM and failed > self.stop_after * self.replies:
            (kind, count), *_ = self.failures.most_common(1)
            raise ModelError(
                f"{failed} of {self.replies} prompts failed at the server, {count} as {kind}; last: {reply.error.got}",
                f"at most {self.stop_after:.0%} (stop_after)",
                f"{reply.error.do}; then run again: what is there is not made again. stop_after=1 goes on regardless",
            )

    def put(self, drafts: Iterable[Draft]) -> None:
        """Emit the rows that are whole."""
        for draft in drafts:
            if whole(draft):
                (self.waiting.append if draft.row.get("error_kind") in _SERVERS else self.emit)(draft.row)
