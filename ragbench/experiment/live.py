"""The part of a run that waits: calls to model servers, made from this process, one question after another per host.

Models are not sent to other processes: their connections cannot be, and an API key should not be. All prompts of one
question go to one host, each one after the one whose beginning it shares, so that the server's prompt cache is used;
as many questions are under way per host as ``concurrency`` allows.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.experiment.work import Draft, Failure, Item, fail, grade_here, put_answer, unanswered
from ragbench.records import Answer, Question


@dataclass
class Live:
    """The models of a run and how they are asked.

    Attributes
    ----------
    generators, judges : by name, the chat model once per host. facts : what goes into every row they make.
    graders : embedded graders, for the answers of models.
    per_prompt, order, max_chars : for judges, as in ``ragbench.grade``.
    cassette, options : for ``ragbench.llm.ask``.
    prompts : with documents, by generator; one that is not named takes the thesis's.
    """

    generators: Mapping[str, Sequence[Any]]
    judges: Mapping[str, Sequence[Any]]
    facts: Mapping[str, Mapping[str, Any]]
    judge_facts: Mapping[str, Mapping[str, Any]]
    graders: Mapping[str, Any]
    per_prompt: str | int = "one"
    order: int | None = None
    max_chars: int = 4000
    cassette: Any = None
    concurrency: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        """How many questions are under way at once."""
        hosts = max((len(models) for models in (*self.generators.values(), *self.judges.values())), default=1)
        return self.concurrency * hosts

    def finish(self, item: Item, drafts: Sequence[Draft], lane: int, emit: Callable, stopped: Callable) -> None:
        """Make the answers and grades that are still missing, and emit every row as soon as it is whole."""
        waiting = list(drafts)

        def flush() -> None:
            for draft in [d for d in waiting if self._whole(d)]:
                emit(draft.row)
                waiting.remove(draft)

        flush()
        for name, models in self.generators.items():
            groups = unanswered(drafts, name)
            for place in _by_prefix(item.question, groups):
                if stopped():
                    return
                self._answer(item.question, groups[place], name, models, lane)
                grade_here(item.question, groups[place], self.graders)
                flush()
        for name, models in self.judges.items():
            for answers, mine in judge_groups(item, drafts, name, self.per_prompt):
                if stopped():
                    return
                self._grade(item.question, answers, mine, name, models, lane)
                flush()

    def _whole(self, draft: Draft) -> bool:
        row, cell = draft.row, draft.cell
        if row["status"] != "ok":
            return True
        return ("answer" in row or cell.generator == "none") and ("grade" in row or cell.judge == "none")

    def _ask_options(self, step: str) -> dict[str, Any]:
        return {"cassette": self.cassette, "concurrency": self.concurrency, "progress": False, "step": step} | {
            **self.options
        }

    def _answer(self, question: Question, group: Sequence[Draft], name: str, models: Sequence[Any], lane: int) -> None:
        from ragbench.generation import generate

        cell = group[0].cell
        meta = [{"system": f"{cell.chunker}/{cell.retriever}/{cell.k}", "n_tokens": cell.N}]

        def ask(model: Any) -> Answer:
            options = self._ask_options("generate")
            if name in self.prompts:
                options["with_documents"] = self.prompts[name]
            return generate(model, [question], [group[0].context], meta=meta, **options)[0]

        answer = _on_a_host(ask, models, lane, lambda a: a.meta.get("error", "").partition(":")[0])
        used = answer.meta["usage"]
        extra = dict(self.facts[name]) | {
            "prompt_sha256": answer.meta["prompt_sha256"], "finish": answer.meta["finish"],
            "cached": answer.meta["cached"], "prompt_tokens": used["prompt_tokens"],
            "output_tokens": used["output_tokens"], "prompt_estimate": answer.meta["prompt_estimate"],
            "tagged": answer.meta.get("tagged"),
        }  # fmt: skip
        put_answer(group, answer, extra)

    def _grade(
        self, question: Question, answers: Sequence[Answer], mine: Sequence[Draft | None], name: str,
        models: Sequence[Any], lane: int,
    ) -> None:  # fmt: skip
        from ragbench.labelling.grades import grade, grading_prompts
        from ragbench.llm.context import prompt_tokens

        shown = {"per_prompt": len(answers), "order": self.order, "max_chars": self.max_chars}
        estimate = prompt_tokens([{"content": grading_prompts([question], answers, **shown)[0].text}])

        def ask(model: Any) -> list[Any]:
            return grade(model, [question], answers, **shown, **self._ask_options("grade"))

        begin = time.perf_counter()
        grades = _on_a_host(ask, models, lane, lambda found: found[0].meta.get("error", ""))
        seconds = time.perf_counter() - begin
        for draft, one in zip(mine, grades, strict=True):
            if draft is None:
                continue
            told = one.meta
            draft.row |= dict(self.judge_facts[name]) | {
                "grade": one.value, "judge_seconds": seconds, "judge_shown": told["shown"],
                "judge_position": told["position"], "judge_answer_cut": told["cut"], "judge_repairs": told["repairs"],
                "judge_grades_got": told["grades_got"], "judge_prompt_tokens": told["usage"]["prompt_tokens"],
                "judge_prompt_estimate": estimate,
            }  # fmt: skip
            if one.value is None:
                draft.row["judge_raw"] = one.raw
                fail(draft.row, Failure("grade", told["error"], told["detail"]))


def _on_a_host(ask: Callable, models: Sequence[Any], lane: int, kind_of: Callable) -> Any:
    """Ask the lane's own host; where that cannot answer anybody, let the others share the work."""
    from ragbench.llm.failures import HOST_WIDE

    own = lane % len(models)
    result, others = ask(models[own]), [model for place, model in enumerate(models) if place != own]
    return ask(others) if others and kind_of(result) in HOST_WIDE else result


def _by_prefix(question: Question, groups: Sequence[Sequence[Draft]]) -> list[int]:
    from ragbench.generation import order_for_prefix_cache

    return order_for_prefix_cache([question] * len(groups), [group[0].context for group in groups])


def judge_groups(
    item: Item, drafts: Sequence[Draft], judge: str, per_prompt: str | int
) -> list[tuple[list[Answer], list[Draft | None]]]:
    """Say which answers of one question this judge sees together.

    Answers that were graded before take part, so that a prompt is the same whether or not the run was broken off;
    a prompt of which every grade is there is left out.

    Returns
    -------
    list of (answers of one prompt, and for each the draft that waits for its grade, or None).
    """
    from ragbench.labelling.grades import group_answers

    made: list[tuple[list[Answer], list[Draft | None]]] = []
    generators = dict.fromkeys(d.cell.generator for d in drafts if d.cell.judge == judge)
    for generator in generators:
        rows: list[tuple[dict[str, Any], Draft | None]] = [
            (d.row, d) for d in drafts
            if d.cell.judge == judge and d.cell.generator == generator and d.row["status"] == "ok" and "answer" in d.row
        ]  # fmt: skip
        if per_prompt != "one":
            alike = [r for r in item.done if r["judge"] == judge and r["generator"] == generator]
            rows += [(r, None) for r in alike if r.get("answer") is not None]
            rows.sort(key=lambda pair: item.places[pair[0]["key"]])
        answers = [
            Answer(item.question.id, row["answer"], generator, meta={
                "retriever": f"{row['chunker']}/{row['retriever']}/{row['k']}", "budget": row["N"]
            }) for row, _ in rows
        ]  # fmt: skip
        for places in group_answers(answers, per_prompt):
            mine = [rows[p][1] for p in places]
            if any(mine):
                made.append(([answers[p] for p in places], mine))
    return made


class Lanes:
    """Threads that finish questions. They are daemons: a call that hangs cannot hold up the end of the program."""

    def __init__(self, count: int, work: Callable[[Any, int], None]) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._work, self.error = work, None
        self.open, self._lock = 0, threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def put(self, job: Any) -> None:
        """Add a question."""
        with self._lock:
            self.open += 1
        self._jobs.put(job)

    def close(self, grace_s: float) -> None:
        """Let the threads end, and wait a moment for them."""
        for _ in self._threads:
            self._jobs.put(None)
        end = time.monotonic() + grace_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _run(self, lane: int) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self.error is None:
                    self._work(job, lane)
            except BaseException as error:
                self.error = error
            finally:
                with self._lock:
                    self.open -= 1
