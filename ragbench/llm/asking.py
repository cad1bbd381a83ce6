"""``ask``: many prompts to one chat model, and one Reply each, whatever happens."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tenacity import RetryCallState, Retrying, wait_random_exponential

from ragbench.errors import ConfigError, check_known
from ragbench.llm.cassette import Cassette, Keys, canonical
from ragbench.llm.endpoints import Endpoint, Received
from ragbench.llm.failures import HOST_FAILURES, TRANSIENT, CallError
from ragbench.llm.models import BOUNDS
from ragbench.llm.reply import CUT_SHORT, FINISHED, Reply, Usage
from ragbench.llm.structured import read_reply, without_thinking
from ragbench.llm.wire import estimate_tokens

log = logging.getLogger("ragbench.llm")
_BAR_FROM = 20  # prompts
_LONGEST_PAUSE_S = 30.0  # between two tries
# how long a server that has answered before may be away before its prompts count as failed
OUTAGE_S = 60.0
_MOST_UNUSABLE = 20  # replies to schemas, where none was usable before
_MOST_DRAFT = 4000  # characters of a failed draft that its repair shows
_LONG_PROMPT = 200  # tokens of a prompt whose count is looked at
_LOOP_TIMES = 8  # of one piece at the end of a text
_LOOP_PIECE = 400  # characters of that piece, at most
_NOT_YET = "not answered yet"
_RECORDED = ("text", "raw", "finish", "seconds", "repairs", "attempts")  # fields of a Reply


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
    concurrency: int | None = None,
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
) -> list[Reply]:
    """Send many prompts to one chat model; return one Reply each, in the order of the prompts.

    Parameters
    ----------
    model : a LangChain chat model, or a name or mapping for ``chat_model``.
    prompts : str, LangChain messages, ``{"role", "content"}`` dicts, (role, text) pairs, or lists
        of these.
    schema : pydantic model that every reply must fit strictly (or one, or None, per prompt). A
        reply that does not fit gets one repair try, which is counted; after that it is a failure
        that keeps the raw text. Ollama is asked not to think, unless the model says
        ``reasoning=True``.
    cassette : where replies are recorded and looked up; a path means record mode. With one, equal
        prompts are asked once.
    concurrency : most calls under way at a time. Default: 1 for Ollama and a GGUF file, which
        answer one after another unless told otherwise (OLLAMA_NUM_PARALLEL), else 4.
    deadline_s : seconds to wait for the first byte of a reply, and from there to its last.
        Default: the model's own, else 600.
    retries : how often a failure that may pass is tried again; one that ran into its deadline once.
    progress : a bar. Default: from 20 prompts on, when somebody looks.
    num_predict : most tokens of a reply, where neither the model nor its Modelfile names a bound.
    ids : names of the prompts, for messages and the cassette. Default: their numbers.
    step : name of the step ("grading"), for plans and sums by step.
    patience_s : how long one prompt may wait for a server that is busy (HTTP 429, 503).
    backoff_s : first pause before another try; doubles each time, with jitter, up to 30 s.
    on_miss : in replay mode, ``"raise"`` or ``"reply"`` (failures of kind ``miss``).
    on_length : a reply without schema that ended at its limit of tokens is a failure of kind
        ``truncated`` (``"fail"``, for labels), or an answer with ``finish == "length"``
        (``"keep"``, for generated answers).

    Raises CallError for a prompt that is not on the cassette in replay mode, and for two digests
    under one name; Interrupted (a KeyboardInterrupt) on Ctrl-C: its ``replies`` hold what is done,
    the cassette has it too.
    """
    endpoint = Endpoint.of(model, num_predict, deadline_s)
    check_known("on_miss", [on_miss], ("raise", "reply"))
    check_known("on_length", [on_length], ("fail", "keep"))
    if isinstance(cassette, str | os.PathLike):
        cassette = Cassette(cassette)
    tasks = _tasks(prompts, schema, ids)
    job = _Job(endpoint, tasks, cassette, step, on_length == "keep", retries, patience_s, backoff_s)
    if cassette is not None and cassette.mode == "replay":
        job.replay(strict=on_miss == "raise")
    elif tasks:
        job.run(concurrency or endpoint.concurrency, progress)
    replies = job.all_replies()
    _log_failures(replies, step)
    return replies


def _log_failures(replies: Sequence[Reply], step: str) -> None:
    failed = [reply for reply in replies if reply.error and reply.error.kind != "miss"]
    for kind in dict.fromkeys(reply.error.kind for reply in failed):
        of_kind = [reply for reply in failed if reply.error.kind == kind]
        count = f"{len(of_kind)} of {len(replies)}"
        if step:
            count = f"{step}: {count}"
        first = of_kind[0]
        log.warning("%s prompts failed (%s). First (%s): %s", count, kind, first.id, first.error)


@dataclass(slots=True, eq=False)
class _Task:
    """One prompt, what was done for it, and its reply."""

    id: str
    messages: list[dict]
    schema: Any
    key: str = ""
    attempts: int = 0
    usage: Usage = field(default_factory=Usage)
    repaired: bool = False
    reply: Reply | None = None

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema as its key has it."""
        return self.schema and _json_schema(self.schema)

    def sent_schema(self) -> dict[str, Any] | None:
        """Return the schema made anew: a client may change it. Its fields are in their order, in
        which a model must write them (a reason before its verdict).
        """
        return self.schema and self.schema.model_json_schema()


def _tasks(prompts: Any, schema: Any, ids: Any) -> list[_Task]:
    if isinstance(prompts, str):
        raise ConfigError("prompts is one str", "a list of prompts", "ask(model, [prompt])")
    prompts = list(prompts)
    schemas = list(schema) if isinstance(schema, Sequence) else [schema] * len(prompts)
    ids = list(range(len(prompts)) if ids is None else ids)
    for name, values in {"schemas": schemas, "ids": ids}.items():
        if len(values) != len(prompts):
            raise ConfigError(
                f"{len(values)} {name} for {len(prompts)} prompts",
                "one per prompt",
                f"check {name}",
            )
    tasks = []
    for prompt, form, name in zip(prompts, schemas, ids, strict=True):
        if form is not None:
            _check_schema(form)
        tasks.append(_Task(str(name), _as_messages(prompt), form))
    return tasks


def _as_messages(prompt: Any) -> list[dict]:
    """Turn one prompt into a list of ``{"role": ..., "content": ...}``.

    Parameters
    ----------
    prompt : str, a LangChain prompt value, a LangChain message, a dict with role and content, or a
        list of messages (LangChain's, dicts, or (role, text) pairs). Further fields of a message
        (tool calls ...) are kept.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    from langchain_core.messages import convert_to_messages, convert_to_openai_messages
    from langchain_core.prompt_values import PromptValue

    if not isinstance(prompt, Sequence | PromptValue):
        prompt = [prompt]
    try:
        return convert_to_openai_messages(convert_to_messages(prompt))
    except (ValueError, NotImplementedError, TypeError):
        raise ConfigError(
            f"a prompt of type {type(prompt[0]).__name__}",
            "str, or a list of messages (LangChain's, {'role', 'content'} or (role, text))",
            "turn it into one of these",
        ) from None


def _check_schema(schema: Any) -> None:
    if not (isinstance(schema, type) and hasattr(schema, "model_json_schema")):
        raise ConfigError(
            f"schema {schema!r}",
            "a pydantic BaseModel class (or one per prompt)",
            "write class Verdict(BaseModel): ...",
        )


@lru_cache(maxsize=4096)
def _json_schema(schema: Any) -> dict[str, Any]:
    return schema.model_json_schema()


@dataclass
class _Job:
    """The state of one ``ask``.

    ``keep_cut``: a text cut at its limit is an answer. ``stopped_by``: why nobody is asked any
    more. ``unusable``: replies to schemas, until the first that can be used.
    """

    endpoint: Endpoint
    tasks: list[_Task]
    cassette: Cassette | None
    step: str
    keep_cut: bool
    retries: int
    patience_s: float
    backoff_s: float
    digest: str = ""
    keys: Keys | None = None
    stopped_by: Exception | None = None
    bar: Any = None
    cut_prompt_said: bool = False
    unusable: float = 0
    lock: Any = field(default_factory=threading.RLock)
    stopped: threading.Event = field(default_factory=threading.Event)

    # -- from the cassette

    def replay(self, strict: bool) -> None:
        """Serve everything from the cassette, without a socket; what is missing is a failure, or
        raised if strict.
        """
        missing = self._look_up(self.endpoint.pinned_digest)
        if not missing:
            return
        ids = [task.id for task in missing]
        error = self.cassette.miss(ids, self.endpoint.model, len(self.tasks))
        if strict:
            raise error
        for task in missing:
            self._settle(task, self._reply(task, error))

    def _look_up(self, on_server: str | None) -> list[_Task]:
        """Serve what is recorded; return the rest. A recorded failure is served in replay mode
        only.
        """
        endpoint = self.endpoint
        digest = self.cassette.choose_digest(endpoint.provider, endpoint.name, on_server)
        if digest is None:
            return self.tasks
        self.digest = digest
        self.keys = Keys(endpoint.provider, endpoint.name, digest, endpoint.options)
        for task in self.tasks:
            task.key = self.keys.key(task.messages, task.json_schema)
        recorded = self.cassette.get(task.key for task in self.tasks)
        missing = []
        for task in self.tasks:
            answer = recorded.get(task.key)
            if answer is not None and (answer["ok"] or self.cassette.mode == "replay"):
                self._settle(task, self._recorded_reply(task, answer))
            else:
                missing.append(task)
        return missing

    def _recorded_reply(self, task: _Task, answer: dict[str, Any]) -> Reply:
        """Rebuild a reply; a structured one is validated again, so that new validators hold for old
        replies.
        """
        error = None
        parsed = None
        if not answer["ok"]:
            error = CallError(**answer["error"], model=self.endpoint.model)
        elif task.schema is not None:
            parsed, _, problem = read_reply(answer["text"], task.schema)
            if problem:
                what = f"the recorded reply does not fit the schema: {problem}"
                error = self.endpoint.fail("unusable", what, do="record anew")
        elif answer["finish"] in CUT_SHORT and not self.keep_cut:
            what = "the recorded reply was cut off"
            error = self.endpoint.fail("truncated", what, raw=answer["raw"])
        facts = {name: answer[name] for name in _RECORDED}
        usage = Usage.from_dict(answer["usage"])
        return self._reply(task, error, parsed=parsed, cached=True, usage=usage, **facts)

    # -- from the server

    def run(self, concurrency: int, progress: bool | None) -> None:
        """Serve what is recorded, ask for the rest in some threads, and settle every task."""
        from tqdm.auto import tqdm

        hidden = None  # shown in a terminal
        if progress is not None:
            hidden = not progress
        elif len(self.tasks) < _BAR_FROM:
            hidden = True
        # leave=None: a bar below another one goes when it is done
        bar_options = {"desc": self.step or "ask", "unit": "prompt", "leave": None}
        with tqdm(total=len(self.tasks), disable=hidden, **bar_options) as self.bar:
            try:
                self._ask_missing(concurrency)
            except KeyboardInterrupt:
                self.stop(self.endpoint.fail("interrupted", _NOT_YET))
                kept = "in .replies"
                if self.cassette is not None:
                    kept = f"recorded on {self.cassette.path.name}, run again to go on"
                done = sum(task.reply is not None for task in self.tasks)
                raise Interrupted(
                    f"{done} of {len(self.tasks)} replies are done ({kept})", self.all_replies()
                ) from None
            finally:
                if self.cassette is not None:
                    self.cassette.release()

    def _ask_missing(self, concurrency: int) -> None:
        # As long as everything is on the cassette, no server needs to be there.
        endpoint = self.endpoint
        on_server = endpoint.meet()
        missing = self.tasks
        if self.cassette is None:
            self.digest = on_server or ""
        else:
            missing = self._look_up(on_server)
            if missing and on_server is not None:
                version = endpoint.version
                self.cassette.register(endpoint.provider, endpoint.name, self.digest, version)
        if endpoint.dead is None and missing:
            self._work_through(deque(missing), concurrency)
            self._check_model()
        if self.stopped_by is not None:
            if not isinstance(self.stopped_by, CallError):
                raise self.stopped_by  # a full disk ends the run
            log.warning("%s", self.stopped_by)
        for task in missing:
            if task.reply is None:
                self._settle(task, self._reply(task, self.stopped_by or endpoint.dead))

    def _work_through(self, queue: deque[_Task], concurrency: int) -> None:
        """Ask in threads, which end with the process: a call under way holds nobody up."""
        threads = []
        for _ in range(min(concurrency, len(queue))):
            thread = threading.Thread(target=self._work, args=(queue,), daemon=True)
            threads.append(thread)
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)  # with a limit, or Ctrl-C waits for it on Windows
                if self.cassette is not None:
                    self.cassette.renew()

    def _work(self, queue: deque[_Task]) -> None:
        """Ask for one reply after the other, until there is none, or the server is gone."""
        try:
            while self.stopped_by is None and self.endpoint.dead is None:
                try:
                    task = queue.popleft()
                except IndexError:
                    return
                if self.keys is None or self.cassette.claim(task.key):
                    self._ask(task)
                elif not self._is_recorded_by_others(task):
                    queue.append(task)  # under way there: to be looked at again
                    self.stopped.wait(0.05)
        except Exception as error:  # of the cassette, on a full disk
            self.stop(error)

    def _is_recorded_by_others(self, task: _Task) -> bool:
        """Take the reply that an equal prompt or another process has recorded, if there is one."""
        answer = self.cassette.get([task.key]).get(task.key)
        if answer is None or not answer["ok"]:
            return False
        self._settle(task, self._recorded_reply(task, answer))
        return True

    def stop(self, reason: Exception) -> None:
        """Ask for nothing more, and let go of what is under way."""
        with self.lock:
            self.stopped_by = self.stopped_by or reason
        self.stopped.set()
        self.endpoint.let_go()

    def _check_model(self) -> None:
        """Ask for the digest again: what lies between two different ones is kept as neither."""
        endpoint = self.endpoint
        try:
            now = endpoint.fetch_digest()
        except Exception:
            return  # away, or the model was deleted
        if not endpoint.digest or now == endpoint.digest:
            if self.cassette is not None:
                self.cassette.confirm(endpoint.provider, endpoint.name, self.digest)
            return
        what = "the model was replaced under its name in mid-run: "
        what += f"digest {endpoint.digest[:12]}, now {now[:12] or 'not told'}"
        do = "pull the old one again, or run again with a new cassette file"
        error = endpoint.fail("digest", what, do=do)
        log.warning("%s", error)
        for task in self.tasks:
            if task.attempts:
                self._settle(task, self._reply(task, error))
        if self.cassette is not None:
            self.cassette.withdraw(endpoint.provider, endpoint.name)

    def _ask(self, task: _Task) -> None:
        """Ask for one reply, and again where that may help; settle it, unless its server is gone
        for every prompt.
        """
        pause = wait_random_exponential(self.backoff_s, max=_LONGEST_PAUSE_S)

        def wait(state: RetryCallState) -> float:
            # What the server asks for, and never less than a pause: 0 is no licence to hammer.
            return max(pause(state), state.outcome.exception().retry_after or 0)  # type: ignore[union-attr]

        # A pause ends when the run does.
        settings = {"sleep": self.stopped.wait, "reraise": True}
        endpoint = self.endpoint
        try:
            reply = Retrying(retry=self._may_help, wait=wait, **settings)(self._attempt, task)
        except CallError as error:
            if error.kind in HOST_FAILURES:
                endpoint.dead = endpoint.dead or error
                return
            reply = self._reply(task, error)
        except Exception as unnamed:  # of a validator, for instance
            what = f"{type(unnamed).__name__} while it was read: {unnamed}"
            reply = self._reply(task, endpoint.fail("unusable", what))
        self._finish(task, reply)

    def _may_help(self, state: RetryCallState) -> bool:
        """Whether another try may help."""
        error = state.outcome.exception()  # type: ignore[union-attr]
        if not isinstance(error, CallError) or error.kind not in TRANSIENT:
            return False
        if self.stopped_by is not None or self.endpoint.dead is not None:
            return False
        if error.kind == "busy":
            return state.seconds_since_start + (error.retry_after or 0) <= self.patience_s
        if error.kind == "down":
            return self.endpoint.spoke and state.seconds_since_start <= OUTAGE_S
        retries = self.retries
        if error.kind == "timeout":
            retries = min(1, retries)
        return state.attempt_number <= retries

    def _attempt(self, task: _Task) -> Reply:
        """Make one call and, where a structured reply was not good, its repair; judge what comes
        back.
        """
        messages = task.messages
        is_repair = False
        while self.stopped_by is None:
            task.attempts += 1
            received = self.endpoint.call(messages, task.sent_schema())
            task.usage += received.usage
            self._check_count(messages, received)
            parsed, text, problem = self._judge(received, task.schema)
            if not problem:
                if not self.endpoint.answered:
                    self.endpoint.answered = self.endpoint.spoke = True
                    self.endpoint.loaded()
                return self._reply(
                    task, text=text, parsed=parsed, raw=received.text, finish=received.finish
                )
            if is_repair:
                kind = "truncated" if received.finish in CUT_SHORT else "unusable"
                raise self.endpoint.fail(
                    kind, f"after one repair try: {problem}", raw=received.text
                )
            is_repair = task.repaired = True
            messages = _repair_messages(messages, received.text, problem, task.json_schema)
        raise self.endpoint.fail("interrupted", _NOT_YET)

    def _check_count(self, messages: list[dict], received: Received) -> None:
        """Say once where a server counts far fewer tokens than a prompt has."""
        texts = [str(message["content"]) for message in messages]
        estimate = estimate_tokens("".join(texts))
        counted = received.usage.prompt_tokens
        is_far_fewer = 0 < counted < estimate / 2
        if is_far_fewer and estimate > _LONG_PROMPT and not self.cut_prompt_said:
            self.cut_prompt_said = True
            log.warning(
                "%s counted %d tokens of a prompt of about %d, and may have cut it: give num_ctx, "
                "and name a model of Ollama ollama:NAME",
                self.endpoint.model,
                counted,
                estimate,
            )

    def _judge(self, received: Received, schema: Any) -> tuple[Any, str, str]:
        """Judge one reply: as ``read_reply``; CallError where it cannot even be repaired."""
        endpoint = self.endpoint
        text = received.text
        if problem := _broken(received, endpoint.num_ctx):
            kind, what = problem
            raise endpoint.fail(kind, what, raw=text)
        if received.finish in CUT_SHORT:
            what = self._cut_off(received)
            if schema is not None:
                return read_reply(text, schema, cut_off=what)
            if not self.keep_cut:
                raise endpoint.fail("truncated", what, raw=text)
        answer = without_thinking(text)
        if not answer:
            what = "an empty answer"
            if answer is None or received.thinking.strip():
                what = "nothing but thinking, no answer after it"
            raise endpoint.fail(
                "unusable",
                what,
                raw=text or received.thinking,
                do="raise num_predict, or switch thinking off (reasoning=False)",
            )
        if schema is not None:
            return read_reply(text, schema)
        return None, answer, ""

    def _cut_off(self, received: Received) -> str:
        limits = f"num_predict={self.endpoint.num_predict}, num_ctx={self.endpoint.num_ctx}"
        what = f"the reply was cut off after {received.usage.output_tokens} tokens ({limits})"
        if received.thinking.strip() and not received.text.strip():
            what += ", all of them thinking: switch it off (reasoning=False)"
        return what

    def _reply(self, task: _Task, error: CallError | None = None, **fields: Any) -> Reply:
        """Build the reply to a task: an answer, or the failure that ``error`` is."""
        facts = {
            "id": task.id,
            "step": self.step,
            "model": self.endpoint.model,
            "digest": self.digest,
            "key": task.key,
            "usage": task.usage,
            "seconds": task.usage.seconds,
            "repairs": int(task.repaired),
            "attempts": task.attempts,
        }
        if error is not None:
            facts |= {"text": error.raw, "raw": error.raw}
        return Reply(ok=error is None, error=error, **facts | fields)

    # -- settling

    def _finish(self, task: _Task, reply: Reply) -> None:
        """Record a reply that was just made, then settle it."""
        with self.lock:
            if self.stopped_by is not None:
                return
            if self.keys is not None:
                request = self.keys.request(task.messages, task.json_schema)
                answer = _to_answer(reply)
                names = {"step": self.step, "prompt_id": task.id}
                if not self.cassette.put(task.key, request, answer, **names):
                    # Another process was first: its answer stays, and is what a replay will give.
                    answer = self.cassette.get([task.key])[task.key]
                    reply = self._recorded_reply(task, answer)
            self._settle(task, reply)
            if task.schema is not None:
                self._count_unusable(reply)

    def _count_unusable(self, reply: Reply) -> None:
        """End a run where none of the first labels can be read: the others would not be either."""
        if reply.ok:
            self.unusable = -math.inf
        elif reply.error.kind in ("unusable", "truncated"):
            self.unusable += 1
            if self.unusable == _MOST_UNUSABLE:
                what = f"none of the first {_MOST_UNUSABLE} replies could be read. The last: "
                self.stop(self.endpoint.fail(reply.error.kind, what + str(reply.error)))

    def _settle(self, task: _Task, reply: Reply) -> None:
        if self.bar is not None and task.reply is None:
            self.bar.update()
        task.reply = reply

    def all_replies(self) -> list[Reply]:
        """Return one reply per prompt, a failure of kind ``interrupted`` where there is none."""
        replies = []
        for task in self.tasks:
            reply = task.reply
            if reply is None:
                reply = self._reply(task, self.endpoint.fail("interrupted", _NOT_YET))
            replies.append(reply)
        return replies


def _broken(received: Received, num_ctx: int | None) -> tuple[str, str] | None:
    """Say what is wrong with a prompt that filled the window, or a reply without its end."""
    length = len(received.text)
    counted = received.usage.prompt_tokens
    if num_ctx and counted >= num_ctx:
        what = f"the prompt fills the window: {counted} tokens, num_ctx is {num_ctx}"
        return "truncated", what
    if not received.finish and _repeats(received.text):
        return "truncated", f"the reply repeats itself, and ends after {length} characters"
    if not received.finish:
        return "server", f"the stream ended after {length} characters, without its end mark"
    if received.finish not in FINISHED | CUT_SHORT:
        return "unusable", f"the server stopped for the reason {received.finish!r}"
    return None


def _repeats(text: str) -> bool:
    """Whether a text ends in one piece, over and over; white space counts."""
    pieces = (text[-size:] for size in range(1, _LOOP_PIECE + 1))
    return bool(text) and any(text.endswith(piece * _LOOP_TIMES) for piece in pieces)


def _to_answer(reply: Reply) -> dict[str, Any]:
    """Return what is stored of a reply; what the key says already (model, options ...) is not
    repeated.
    """
    answer = {name: getattr(reply, name) for name in ("ok", *_RECORDED)}
    answer["usage"] = reply.usage.to_dict()
    answer["error"] = None
    if reply.error is not None:
        error = reply.error.without_address()
        names = ("kind", "got", "expected", "do", "status")
        answer["error"] = {name: getattr(error, name) for name in names}
    return answer


def _repair_messages(
    messages: Sequence[dict], written: str, problem: str, json_schema: dict | None
) -> list[dict]:
    """Build the one second try: the conversation so far (a long draft in part), what was wrong, and
    the schema.
    """
    if len(written) > _MOST_DRAFT:
        written = written[:_MOST_DRAFT] + " [...]"
    ask = (
        f"Your last message cannot be used: {problem}.\n"
        "Answer the same task again. Write one complete JSON value that fits the JSON schema "
        "below, and nothing before "
        f"or after it.\n\nJSON schema:\n{canonical(json_schema)}"
    )
    return [*messages, {"role": "assistant", "content": written}, {"role": "user", "content": ask}]
