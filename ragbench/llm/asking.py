"""``ask``: many prompts to one chat model, and one Reply each, whatever happens."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential

from ragbench.errors import ConfigError, check_known
from ragbench.llm.cassette import Cassette, Keys
from ragbench.llm.endpoints import (
    FINISHED,
    LONGEST_PAUSE_S,
    Endpoint,
    Received,
    endpoint_of,
    run,
    served_digest,
)
from ragbench.llm.failures import HOST_FAILURES, TRANSIENT, CallError, printable
from ragbench.llm.models import BOUNDS, DEADLINE_S
from ragbench.llm.reply import CUT_SHORT, Reply, Usage
from ragbench.llm.structured import (
    as_messages,
    json_schema_of,
    json_values,
    read_reply,
    repair_messages,
    repeats,
    without_thinking,
)

log = logging.getLogger("ragbench.llm")
_BAR_FROM = 20
# how long a server that has answered before may be away before its prompts count as failed
OUTAGE_S = 60.0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C (or "Interrupt kernel") during ``ask``.

    ``replies`` holds what was done, the rest as failures.
    """

    def __init__(self, message: str, replies: list[Reply]) -> None:
        super().__init__(message)
        self.replies = replies


def ask(
    model: Any,
    prompts: Sequence[Any],
    schema: Any = None,
    cassette: Cassette | str | os.PathLike[str] | None = None,
    concurrency: int = 4,
    deadline_s: float | None = None,
    retries: int = 3,
    progress: bool | None = None,
    *,
    num_predict: int = BOUNDS["document"],
    ids: Sequence[str] | None = None,
    step: str = "",
    patience_s: float = 3600.0,
    backoff_s: float = 0.5,
    on_miss: str = "raise",
    on_length: str = "fail",
    groups: Sequence[str] | None = None,
) -> list[Reply]:
    """Send many prompts to one chat model; return one Reply each, in the order of the prompts.

    Parameters
    ----------
    model : a LangChain chat model, or a name or mapping for ``chat_model``.
    prompts : str, LangChain messages, ``{"role", "content"}`` dicts, (role, text) pairs, or lists
    of these.
    schema : pydantic model that every reply must fit strictly (or one, or None, per prompt). A
    reply that does not fit
        gets one repair try, which is counted; after that it is a failure that keeps the raw text.
    cassette : where replies are recorded and looked up; a path means record mode. With one, equal
    prompts are asked
        once.
    concurrency : most calls under way at a time.
    deadline_s : seconds for one whole call. Default: the model's own, else 600.
    retries : how often a failure that may pass is tried again; one that ran into its deadline once.
    progress : a bar. Default: from 20 prompts on, when somebody looks.
    num_predict : most tokens of a reply, where neither the model nor its Modelfile names a bound.
    ids : names of the prompts, for messages and the cassette. Default: their numbers.
    step : name of the step ("grading"), for plans and sums by step.
    patience_s : how long one prompt may wait for a server that is busy (HTTP 429, 503).
    backoff_s : first pause before another try; doubles each time, with jitter, up to 30 s.
    on_miss : in replay mode, ``"raise"`` or ``"reply"`` (failures of kind ``miss``).
    on_length : a reply without schema that ended at its limit of tokens is a failure of kind
    ``truncated`` (``"fail"``,
        for labels), or an answer with ``finish == "length"`` (``"keep"``, for generated answers).
    groups : what each prompt belongs to (its question, say). The prompts of one group are asked one
    after another, so that the server's prompt cache helps. Default: each prompt is a group.

    Raises CallError for a prompt that is not on the cassette in replay mode, and for two digests
    under one name; Interrupted (a KeyboardInterrupt) on Ctrl-C: its ``replies`` hold what is done,
    the cassette has it too.
    """
    endpoint = endpoint_of(model, num_predict)
    check_known("on_miss", [on_miss], ("raise", "reply"))
    check_known("on_length", [on_length], ("fail", "keep"))
    if isinstance(cassette, str | os.PathLike):
        cassette = Cassette(cassette)
    tape = None if cassette is None or cassette.mode == "off" else cassette
    tasks = _tasks(prompts, schema, ids, groups, endpoint)
    deadline_s = deadline_s or endpoint.deadline_s or DEADLINE_S
    limits = (concurrency, deadline_s, retries, patience_s, backoff_s)
    job = _Job(endpoint, tasks, tape, step, on_length == "keep", *limits)
    if tape is not None and tape.mode == "replay":
        job.replay(tape, on_miss == "raise")
    elif tasks:
        _run(job, progress)
    replies = job.all_replies()
    _report(step, replies)
    return replies


def _report(step: str, replies: Sequence[Reply]) -> None:
    """Log one line for each kind of failure, with the words of its first."""
    failed: dict[str, list[Reply]] = {}
    for reply in replies:
        if reply.error is not None:
            failed.setdefault(reply.error.kind, []).append(reply)
    for kind, some in failed.items():
        count = f"{len(some)} of {len(replies)}"
        where = f"{step}: " if step else ""
        log.warning(
            "%s%s prompts failed (%s). First (%s): %s",
            where,
            count,
            kind,
            some[0].id,
            some[0].error,
        )


@dataclass(slots=True, eq=False)
class _Task:
    """One prompt.

    ``places``: where its reply stands; several where equal prompts are asked once.
    """

    places: list[int]
    id: str
    messages: list[dict]
    schema: Any
    json_schema: str
    group: Any
    key: str = ""
    attempts: int = 0
    spent: Usage = field(default_factory=Usage)
    repaired: bool = False


def _tasks(prompts: Any, schema: Any, ids: Any, groups: Any, endpoint: Endpoint) -> list[_Task]:
    if isinstance(prompts, str):
        raise ConfigError("prompts is one str", "a list of prompts", "ask(model, [prompt])")
    prompts = list(prompts)
    schemas = list(schema) if isinstance(schema, Sequence) else [schema] * len(prompts)
    names = list(range(len(prompts)) if ids is None else ids)
    groups = list(range(len(prompts)) if groups is None else groups)
    for what, given in (("schemas", schemas), ("ids", names), ("groups", groups)):
        if len(given) != len(prompts):
            raise ConfigError(
                f"{len(given)} {what} for {len(prompts)} prompts", "one per prompt", f"check {what}"
            )
    tasks = []
    for place, (prompt, one, name, group) in enumerate(
        zip(prompts, schemas, names, groups, strict=True)
    ):
        task = _Task([place], str(name), as_messages(prompt), one, json_schema_of(one), group)
        if any(
            secret in str(message["content"])
            for secret in endpoint.secrets
            for message in task.messages
        ):
            raise endpoint.fail(
                "unusable", f"prompt {task.id!r} holds the API key", do="take the key out of it"
            )
        tasks.append(task)
    return tasks


def _run(job: _Job, progress: bool | None) -> None:
    from tqdm.auto import tqdm

    # None: shown in a terminal
    hidden = (len(job.tasks) < _BAR_FROM or None) if progress is None else not progress
    with tqdm(
        total=len(job.tasks), desc=job.step or "ask", unit="prompt", disable=hidden
    ) as job.bar:
        try:
            run(job.run())
        except KeyboardInterrupt:
            replies = job.all_replies()
            done = sum(
                reply.error is None or reply.error.kind != "interrupted" for reply in replies
            )
            kept = (
                f"recorded on {job.cassette.path.name}, run again to go on"
                if job.cassette
                else "in .replies"
            )
            raise Interrupted(
                f"{done} of {len(replies)} replies are done ({kept})", replies
            ) from None


@dataclass
class _Job:
    """The state of one ``ask``; ``keep_cut``: a text cut at its limit is an answer."""

    endpoint: Endpoint
    tasks: list[_Task]
    cassette: Cassette | None
    step: str
    keep_cut: bool
    concurrency: int
    deadline_s: float
    retries: int
    patience_s: float
    backoff_s: float
    digest: str = ""
    keys: Keys | None = None
    replies: dict[int, Reply] = field(default_factory=dict)  # by place
    replaced: CallError | None = None
    bar: Any = None

    # -- from the cassette
    # ---------------------------------------------------------------------------------------------

    def replay(self, tape: Cassette, strict: bool) -> None:
        """Serve everything from the cassette, without a socket;

        what is missing is a failure, or raised if strict.
        """
        first = self.endpoint
        of = len(self.tasks)
        missing = self._look_up(tape, first.pinned_digest)
        if missing and strict:
            raise tape.miss(
                [self.tasks[place].id for task in missing for place in task.places], first.model, of
            )
        for task in missing:
            self._settle(task, self._reply(task, first, tape.miss([task.id], first.model, of)))

    def _look_up(self, tape: Cassette, on_server: str | None) -> list[_Task]:
        """Serve what is recorded;

        return the rest. A recorded failure is served in replay mode only.
        """
        first = self.endpoint
        digest = tape.choose_digest(first.provider, first.name, on_server)
        if digest is None:
            return self.tasks
        self.digest = digest
        self.keys = Keys(first.provider, first.name, digest, first.options)
        for task in self.tasks:
            task.key = self.keys.key(task.messages, task.json_schema)
        recorded = tape.get(task.key for task in self.tasks)
        missing: dict[str, _Task] = {}
        for task in self.tasks:
            answer = recorded.get(task.key)
            if answer is not None and (answer["ok"] or tape.mode == "replay"):
                self._settle(task, self._served(task, answer))
            elif task.key in missing:
                # The same request twice: asked once, as a second run would find it on the cassette.
                missing[task.key].places += task.places
            else:
                missing[task.key] = task
        return list(missing.values())

    def _served(self, task: _Task, answer: dict[str, Any]) -> Reply:
        """Rebuild a reply;

        a structured one is validated again, so that new validators hold for old replies.
        """
        first = self.endpoint
        error = None
        parsed = None
        if not answer["ok"]:
            stored = {
                name: printable(v) if isinstance(v, str) else v
                for name, v in answer["error"].items()
            }
            error = CallError(**stored, model=first.model)
        elif task.schema is not None:
            parsed, _, problem = read_reply(answer["text"], task.schema)
            if problem:
                what = f"the recorded reply does not fit the schema: {problem}"
                error = first.fail("unusable", what, do="record anew")
        elif answer["finish"] in CUT_SHORT and not self.keep_cut:
            error = first.fail("truncated", "the recorded reply was cut off", raw=answer["raw"])
        kept = {name: answer[name] for name in _KEPT}
        kept |= {"usage": Usage.from_dict(answer["usage"]), "form": answer.get("form", "")}
        return self._reply(task, first, error, parsed=parsed, cached=True, host="", **kept)

    # -- from the servers
    # ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve what is recorded, ask for the rest, and settle every task."""
        # As long as everything is on the cassette, no server needs to be there.
        on_server = await served_digest(self.endpoint, self.patience_s, self.backoff_s)
        first = self.endpoint
        missing = self.tasks
        if self.cassette is None:
            self.digest = on_server or ""
        else:
            missing = self._look_up(self.cassette, on_server)
            if missing and on_server is not None:
                self.cassette.register(first.provider, first.name, self.digest)
        groups: dict[Any, list[_Task]] = {}
        for task in missing:
            groups.setdefault(task.group, []).append(task)
        # Each prompt before those that continue it, which is what a server's prompt cache likes.
        queue = deque(
            deque(sorted(group, key=lambda task: len(str(task.messages))))
            for group in groups.values()
        )
        workers = max(1, min(self.concurrency, first.slots or self.concurrency))
        await asyncio.gather(*(self._work(first, queue) for _ in range(workers)))
        reason = self.replaced or first.dead
        for task in (task for group in queue for task in group):
            self._settle(task, self._reply(task, first, reason))
        if self.replaced:
            log.warning("%s", self.replaced)

    async def _work(self, endpoint: Endpoint, queue: deque[deque[_Task]]) -> None:
        """Ask for one group after the other, until there is none, or the server is gone."""
        while queue and endpoint.dead is None and self.replaced is None:
            group = queue.popleft()
            while group:
                task = group[0]
                try:
                    reply = await self._answer(endpoint, task)
                except CallError as error:
                    if error.kind in HOST_FAILURES:
                        endpoint.dead = endpoint.dead or error
                        queue.appendleft(group)
                        break
                    reply = self._reply(task, endpoint, error)
                except Exception as unnamed:
                    # of a validator, for instance
                    said = f"{type(unnamed).__name__} while it was read: {unnamed}"
                    reply = self._reply(task, endpoint, endpoint.fail("unusable", said))
                if not await self._same_model(endpoint):
                    queue.appendleft(group)
                    return
                group.popleft()
                self._finish(task, reply)

    async def _same_model(self, endpoint: Endpoint) -> bool:
        """Ask for the digest again: what lies between two different ones is recorded as neither."""
        if not (endpoint.changes and endpoint.found and endpoint.pinned_digest is None):
            return True
        try:
            now = await endpoint.digest()
        except CallError:
            return True  # away, or the model was deleted: the next call says so
        if now == endpoint.found:
            return True
        digests = f"digest {endpoint.found[:12]}, now {now[:12] or 'not told'}"
        what = f"the model was replaced under its name in mid-run: {digests}"
        do = "pull the old one again, or run again with a new cassette file"
        self.replaced = self.replaced or endpoint.fail("digest", what, do=do)
        return False

    async def _answer(self, endpoint: Endpoint, task: _Task) -> Reply:
        """Ask for one reply, and again where that may help. Raises CallError."""

        def again(state: RetryCallState) -> bool:
            error, waited = state.outcome.exception(), state.seconds_since_start  # type: ignore[union-attr]
            if (
                not isinstance(error, CallError)
                or error.kind not in TRANSIENT
                or endpoint.dead is not None
            ):
                return False
            if error.kind == "busy":
                return waited + (error.retry_after or 0) <= self.patience_s
            if error.kind == "down":
                return endpoint.spoke and waited <= OUTAGE_S
            return state.attempt_number <= (
                min(1, self.retries) if error.kind == "timeout" else self.retries
            )

        pause = wait_random_exponential(self.backoff_s, max=LONGEST_PAUSE_S)

        def wait(state: RetryCallState) -> float:
            asked = state.outcome.exception().retry_after  # type: ignore[union-attr]
            return pause(state) if asked is None else asked

        reply = await AsyncRetrying(retry=again, wait=wait, reraise=True)(
            self._attempt, endpoint, task
        )
        if not endpoint.answered:
            endpoint.answered = True
            await endpoint.loaded()
        endpoint.spoke = True
        return reply

    async def _attempt(self, endpoint: Endpoint, task: _Task) -> Reply:
        """Make one call and, where a structured reply was not good, its repair;

        judge what comes back.
        """
        messages = task.messages
        schema = json.loads(task.json_schema) if task.json_schema else None
        is_repair = False
        while True:
            task.attempts += 1
            start = time.perf_counter()
            received = await endpoint.call(messages, schema, self.deadline_s)
            task.spent += received.usage(time.perf_counter() - start)
            if any(secret in received.text for secret in endpoint.secrets):
                do = "ask another server"
                raise endpoint.fail(
                    "unusable", "the reply holds the API key", raw=received.text, do=do
                )
            parsed, text, problem = _judge(endpoint, received, task.schema, self.keep_cut)
            if not problem:
                about = {"raw": received.text, "finish": received.finish, "form": received.form}
                return self._reply(task, endpoint, text=text, parsed=parsed, **about)
            if is_repair:
                kind = "truncated" if received.finish in CUT_SHORT else "unusable"
                raise endpoint.fail(kind, f"after one repair try: {problem}", raw=received.text)
            is_repair = task.repaired = True
            messages = repair_messages(messages, received.text, problem, task.json_schema)

    def _reply(
        self, task: _Task, endpoint: Endpoint, error: CallError | None = None, **fields: Any
    ) -> Reply:
        """Build the reply to a task: an answer, or the failure that ``error`` is."""
        about = {
            "id": task.id,
            "step": self.step,
            "model": endpoint.model,
            "digest": self.digest,
            "key": task.key,
        }
        about |= {"usage": task.spent, "seconds": task.spent.seconds, "host": endpoint.host}
        about |= {"repairs": int(task.repaired), "attempts": task.attempts}
        if error is not None:
            about |= {"text": error.raw, "raw": error.raw}
        return Reply(ok=error is None, error=error, **about | fields)

    # -- settling
    # ------------------------------------------------------------------------------------------------------

    def _finish(self, task: _Task, reply: Reply) -> None:
        """Record a reply that was just made, then settle it."""
        if self.cassette is not None and self.keys is not None:
            request = self.keys.request(task.messages, task.json_schema)
            if not self.cassette.put(
                task.key, request, _to_answer(reply), step=self.step, prompt_id=task.id
            ):
                # Another process was first: its answer stays, and is what a replay will give.
                reply = self._served(task, self.cassette.get([task.key])[task.key])
        self._settle(task, reply)

    def _settle(self, task: _Task, reply: Reply) -> None:
        for number, place in enumerate(task.places):
            self.replies[place] = (
                replace(reply, cached=True, id=self.tasks[place].id) if number else reply
            )
        if self.bar is not None:
            self.bar.update(len(task.places))

    def all_replies(self) -> list[Reply]:
        """Return one reply per prompt, a failure of kind ``interrupted`` where there is none."""
        first = self.endpoint
        late = first.fail("interrupted", "not answered yet")
        return [
            self.replies.get(n) or self._reply(task, first, late)
            for n, task in enumerate(self.tasks)
        ]


def _judge(
    endpoint: Endpoint, received: Received, schema: Any, keep_cut: bool
) -> tuple[Any, str, str]:
    """Judge one reply: as ``read_reply``; CallError where it cannot even be repaired."""
    text = received.text
    finish = received.finish
    num_ctx = endpoint.num_ctx
    if num_ctx and received.prompt_tokens is not None and received.prompt_tokens >= num_ctx:
        what = f"the prompt fills the window: {received.prompt_tokens} tokens, num_ctx is {num_ctx}"
        raise endpoint.fail("truncated", what, raw=text, do="raise num_ctx, or shorten the prompt")
    limits = f"num_predict={endpoint.num_predict}, num_ctx={num_ctx}"
    if not finish:
        if repeats(text):
            what = f"the reply repeats itself, and ends after {len(text)} characters"
            raise endpoint.fail("truncated", what, raw=text)
        raise endpoint.fail(
            "server",
            f"the stream ended after {len(text)} characters, without its end mark",
            raw=text,
        )
    if finish in CUT_SHORT and not (keep_cut and schema is None):
        values = json_values(text) if schema is not None else []
        # a whole value, and white space up to the limit
        if len(values) == 1 and text.strip() == values[0]:
            return read_reply(text, schema)
        what = f"the reply was cut off after {received.output_tokens} tokens ({limits})"
        if schema is None:
            raise endpoint.fail("truncated", what, raw=text)
        return None, "", what
    if finish not in FINISHED | CUT_SHORT:
        raise endpoint.fail("unusable", f"the server stopped for the reason {finish!r}", raw=text)
    if schema is not None and json_values(text)[:1] == [text.strip()]:
        return read_reply(text, schema)  # nothing but JSON: a "<think>" inside is a word of it
    said = without_thinking(text)
    if not said:
        what = "an empty answer"
        if received.thinking.strip() or said is None:
            what = "nothing but thinking, no answer after it"
        do = "raise num_predict, or switch thinking off (reasoning=False)"
        raise endpoint.fail("unusable", what, raw=text or received.thinking, do=do)
    return (None, said, "") if schema is None else read_reply(text, schema)


_KEPT = ("text", "raw", "finish", "seconds", "repairs", "attempts")


def _to_answer(reply: Reply) -> dict[str, Any]:
    """Return what is stored of a reply;

    what the key says already (model, options ...) is not repeated.
    """
    names = ("ok", *_KEPT, *(("form",) if reply.form else ()))
    answer = {name: getattr(reply, name) for name in names} | {
        "usage": reply.usage.to_dict(),
        "error": None,
    }
    if reply.error is not None:
        stored = reply.error.without_address()
        answer["error"] = {
            name: getattr(stored, name) for name in ("kind", "got", "expected", "do", "status")
        }
    return answer
