"""``ask``: many prompts to one chat model, and one Reply each, whatever happens."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypedDict

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
_RECORDED = ("text", "raw", "finish", "seconds", "repairs", "attempts", "held")  # of a Reply
_WITH_NUM_CTX = "name the model ollama:NAME, with a num_ctx that holds the prompt"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C (or "Interrupt kernel") during ``ask``.

    ``replies`` holds what was done, the rest as failures.
    """

    def __init__(self, message: str, replies: list[Reply]) -> None:
        super().__init__(message)
        self.replies = replies


class AskOptions(TypedDict, total=False):
    """The options of `ask` that its callers hand on."""

    cassette: Cassette | str | os.PathLike[str] | None
    concurrency: int | None
    deadline_s: float | None
    retries: int
    progress: bool | None
    num_predict: int
    ids: Sequence[str] | None
    step: str
    patience_s: float
    backoff_s: float
    on_miss: str
    on_length: str


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
    rules = _Rules(step, on_length == "keep", retries, patience_s, backoff_s)
    recorder = _Recorder(endpoint, cassette, rules)
    if cassette is not None and cassette.mode == "replay":
        _replay(recorder, tasks, strict=on_miss == "raise")
    elif tasks:
        _run(recorder, tasks, concurrency, progress)
    replies = _replies(recorder, tasks)
    _log_failures(replies, step)
    return replies


def _log_failures(replies: Sequence[Reply], step: str) -> None:
    by_kind: dict[str, list[Reply]] = {}
    for reply in replies:
        if reply.error is not None and reply.error.kind != "miss":
            by_kind.setdefault(reply.error.kind, []).append(reply)
    for kind, failed in by_kind.items():
        count = f"{len(failed)} of {len(replies)}"
        if step:
            count = f"{step}: {count}"
        first = failed[0]
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
        messages = convert_to_openai_messages(convert_to_messages(prompt))
        _check_texts(messages)
        return messages
    except (ValueError, NotImplementedError, TypeError):
        shown = prompt[0] if isinstance(prompt, list) else prompt
        raise ConfigError(
            f"a prompt of type {type(shown).__name__}",
            "str, or a list of messages (LangChain's, {'role', 'content'} or (role, text))",
            "turn it into one of these",
        ) from None


def _check_texts(messages: Sequence[dict]) -> None:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") != "text":
                raise ConfigError(
                    f"a prompt with a part of type {part.get('type')!r}",
                    "a prompt of texts: images and files are not sent",
                    "leave it out, or describe it in words",
                )


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


# -- one job


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the caller of `ask` wants; ``keep_cut``: a text cut at its limit is an answer."""

    step: str
    keep_cut: bool
    retries: int
    patience_s: float
    backoff_s: float


class _Stop:
    """Why nobody is asked any more, and the event that ends every pause.

    ``error`` is the failure of the prompts that are left; ``broken`` (a full disk) ends the run.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.error: CallError | None = None
        self.broken: Exception | None = None
        self.event = threading.Event()
        self._endpoint = endpoint

    def __call__(self, reason: Exception) -> None:
        """Ask for nothing more, and break off the calls under way."""
        if isinstance(reason, CallError):
            self.error = self.error or reason
        else:
            self.broken = self.broken or reason
        self.event.set()
        self._endpoint.let_go()

    @property
    def is_set(self) -> bool:
        return self.event.is_set() or self._endpoint.dead is not None


class _Recorder:
    """The cassette (or none) of one job: serves what is recorded, records what is made."""

    def __init__(self, endpoint: Endpoint, cassette: Cassette | None, rules: _Rules) -> None:
        self.endpoint = endpoint
        self.cassette = cassette
        self.rules = rules
        self.digest = ""
        self.keys: Keys | None = None

    def missing(self, tasks: list[_Task], on_server: str | None) -> list[_Task]:
        """Serve what is recorded; return the rest. A recorded failure is served in replay mode
        only.
        """
        endpoint = self.endpoint
        if self.cassette is None:
            self.digest = on_server or ""
            return tasks
        digest = self.cassette.choose_digest(endpoint.provider, endpoint.name, on_server)
        if digest is None:
            return tasks
        self.digest = digest
        self.keys = Keys(endpoint.provider, endpoint.name, digest, endpoint.key_options(digest))
        for task in tasks:
            task.key = self.keys.key(task.messages, task.json_schema)
        recorded = self.cassette.get(task.key for task in tasks)
        serves_failures = self.cassette.mode == "replay"
        missing = []
        for task in tasks:
            answer = recorded.get(task.key)
            if answer is not None and (answer["ok"] or serves_failures):
                task.reply = self.recorded_reply(task, answer)
            else:
                missing.append(task)
        return missing

    def recorded_reply(self, task: _Task, answer: Mapping[str, Any]) -> Reply:
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
        elif answer["finish"] in CUT_SHORT and not self.rules.keep_cut:
            what = "the recorded reply was cut off"
            error = self.endpoint.fail("truncated", what, raw=answer["raw"])
        facts = {name: answer[name] for name in _RECORDED if name in answer}
        usage = Usage.from_dict(answer["usage"])
        return self.reply(task, error, parsed=parsed, cached=True, usage=usage, **facts)

    def reply(self, task: _Task, error: CallError | None = None, **fields: Any) -> Reply:
        """Build the reply to a task: an answer, or the failure that ``error`` is."""
        facts = {
            "id": task.id,
            "step": self.rules.step,
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

    def record(self, task: _Task, reply: Reply) -> Reply:
        """Record a reply that was just made; return the one that a replay will give."""
        if self.keys is None or self.cassette is None:
            return reply
        request = self.keys.request(task.messages, task.json_schema)
        answer = _to_answer(reply)
        step = self.rules.step
        if self.cassette.put(task.key, request, answer, step=step, prompt_id=task.id):
            return reply
        # Another process was first: its answer stays.
        answer = self.cassette.get([task.key])[task.key]
        return self.recorded_reply(task, answer)


def _replay(recorder: _Recorder, tasks: list[_Task], strict: bool) -> None:
    """Serve everything from the cassette, without a socket; what is missing is a failure, or raised
    if strict.
    """
    endpoint = recorder.endpoint
    missing = recorder.missing(tasks, endpoint.pinned_digest)
    if not missing or recorder.cassette is None:
        return
    error = recorder.cassette.miss([task.id for task in missing], endpoint.model, len(tasks))
    if strict:
        raise error
    for task in missing:
        task.reply = recorder.reply(task, error)


def _run(
    recorder: _Recorder, tasks: list[_Task], concurrency: int | None, progress: bool | None
) -> None:
    """Serve what is recorded, ask for the rest in some threads, and give every task its reply."""
    from tqdm.auto import tqdm

    hidden = None  # shown in a terminal
    if progress is not None:
        hidden = not progress
    elif len(tasks) < _BAR_FROM:
        hidden = True
    stop = _Stop(recorder.endpoint)
    # leave=None: a bar below another one goes when it is done
    bar_options = {"desc": recorder.rules.step or "ask", "unit": "prompt", "leave": None}
    with tqdm(total=len(tasks), disable=hidden, **bar_options) as bar:
        try:
            _ask_missing(_Worker(recorder, stop, bar), tasks, concurrency)
        except KeyboardInterrupt:
            stop(recorder.endpoint.fail("interrupted", _NOT_YET))
            kept = "in .replies"
            if recorder.cassette is not None:
                kept = f"recorded on {recorder.cassette.path.name}, run again to go on"
            done = sum(task.reply is not None for task in tasks)
            raise Interrupted(
                f"{done} of {len(tasks)} replies are done ({kept})", _replies(recorder, tasks)
            ) from None
    if stop.broken is not None:
        raise stop.broken
    if stop.error is not None:
        log.warning("%s", stop.error)
    for task in tasks:
        if task.reply is None:
            task.reply = recorder.reply(task, stop.error or recorder.endpoint.dead)


def _ask_missing(worker: _Worker, tasks: list[_Task], concurrency: int | None) -> None:
    # As long as everything is on the cassette, no server needs to be there.
    endpoint = worker.endpoint
    recorder = worker.recorder
    on_server = endpoint.meet()
    missing = recorder.missing(tasks, on_server)
    worker.bar.update(len(tasks) - len(missing))
    if not missing or endpoint.dead is not None:
        return
    if recorder.cassette is not None:
        names = (endpoint.provider, endpoint.name, recorder.digest)
        recorder.cassette.register(*names, endpoint.version)
    _work_through(worker, missing, concurrency)
    _check_model(recorder, tasks)


def _work_through(worker: _Worker, missing: list[_Task], concurrency: int | None) -> None:
    """Ask in threads, which end with the process: a call under way holds nobody up.

    With a cassette, equal prompts are asked once.
    """
    first: dict[Any, _Task] = {}
    for task in missing:
        first.setdefault(task.key or id(task), task)
    queue = deque(first.values())
    threads = []
    for _ in range(min(concurrency or worker.endpoint.concurrency, len(queue))):
        thread = threading.Thread(target=worker.work, args=(queue,), daemon=True)
        threads.append(thread)
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(1.0)  # with a limit, or Ctrl-C waits for it on Windows
    for task in missing:
        answered = first[task.key or id(task)]
        if task is not answered and answered.reply is not None:
            reply = answered.reply
            if reply.ok and task.schema is not answered.schema:
                reply = replace(reply, parsed=read_reply(reply.text, task.schema)[0])
            task.reply = replace(reply, id=task.id, cached=True)
            worker.bar.update()


def _check_model(recorder: _Recorder, tasks: list[_Task]) -> None:
    """Ask for the digest again: what lies between two different ones is kept as neither."""
    endpoint = recorder.endpoint
    cassette = recorder.cassette
    try:
        now = endpoint.fetch_digest()
    except Exception:
        return  # away, or the model was deleted
    if not endpoint.digest or now == endpoint.digest:
        if cassette is not None:
            cassette.confirm(endpoint.provider, endpoint.name, recorder.digest)
        return
    what = "the model was replaced under its name in mid-run: "
    what += f"digest {endpoint.digest[:12]}, now {now[:12] or 'unknown'}"
    do = "pull the old one again, or run again with a new cassette file"
    error = endpoint.fail("digest", what, do=do)
    log.warning("%s", error)
    for task in tasks:
        if task.attempts:
            task.reply = recorder.reply(task, error)
    if cassette is not None:
        cassette.withdraw(endpoint.provider, endpoint.name)


def _replies(recorder: _Recorder, tasks: list[_Task]) -> list[Reply]:
    """Return one reply per prompt, a failure of kind ``interrupted`` where there is none."""
    not_yet = recorder.endpoint.fail("interrupted", _NOT_YET)
    return [task.reply or recorder.reply(task, not_yet) for task in tasks]


# -- one prompt


class _Worker:
    """Asks for one reply after the other, in several threads."""

    def __init__(self, recorder: _Recorder, stop: _Stop, bar: Any) -> None:
        self.recorder = recorder
        self.endpoint = recorder.endpoint
        self.rules = recorder.rules
        self.stop = stop
        self.bar = bar
        self._lock = threading.Lock()
        self._unusable: float = 0  # replies to schemas, until the first that can be used
        self._said_cut = False

    def work(self, queue: deque[_Task]) -> None:
        """Ask until there is nothing left, or the server is gone."""
        try:
            while not self.stop.is_set:
                try:
                    task = queue.popleft()
                except IndexError:
                    return
                self._ask(task)
        except Exception as error:  # of the cassette, on a full disk
            self.stop(error)

    def _ask(self, task: _Task) -> None:
        """Ask for one reply, and again where that may help; record it, unless its server is gone
        for every prompt.
        """
        pause = wait_random_exponential(self.rules.backoff_s, max=_LONGEST_PAUSE_S)

        def wait(state: RetryCallState) -> float:
            # What the server asks for, and never less than a pause: 0 is no licence to hammer.
            error = state.outcome and state.outcome.exception()
            return max(pause(state), getattr(error, "retry_after", None) or 0)

        # A pause ends when the run does.
        settings = {"sleep": self.stop.event.wait, "reraise": True}
        endpoint = self.endpoint
        try:
            reply = Retrying(retry=self._may_help, wait=wait, **settings)(self._attempt, task)
        except CallError as error:
            if error.kind in HOST_FAILURES:
                endpoint.dead = endpoint.dead or error
                return
            reply = self.recorder.reply(task, error)
        except Exception as unnamed:  # of a validator, for instance
            what = f"{type(unnamed).__name__} while it was read: {unnamed}"
            reply = self.recorder.reply(task, endpoint.fail("unusable", what))
        with self._lock:
            if self.stop.event.is_set():
                return
            task.reply = self.recorder.record(task, reply)
            self.bar.update()
            if task.schema is not None:
                self._count_unusable(task.reply)

    def _may_help(self, state: RetryCallState) -> bool:
        """Whether another try may help."""
        error = state.outcome and state.outcome.exception()
        if not isinstance(error, CallError) or error.kind not in TRANSIENT:
            return False
        if self.stop.is_set:
            return False
        rules = self.rules
        waited_s = state.seconds_since_start or 0
        if error.kind == "busy":
            return waited_s + (error.retry_after or 0) <= rules.patience_s
        if error.kind == "down":
            # a server that answers with a redirect or a page is no server that is away
            is_away = self.endpoint.spoke and not error.status
            return is_away and waited_s <= OUTAGE_S
        retries = rules.retries
        if error.kind == "timeout":
            retries = min(1, retries)
        return state.attempt_number <= retries

    def _attempt(self, task: _Task) -> Reply:
        """Make one call and, where a structured reply was not good, its repair; judge what comes
        back.
        """
        endpoint = self.endpoint
        messages = task.messages
        is_repair = False
        while not self.stop.event.is_set():
            task.attempts += 1
            received = endpoint.call(messages, task.sent_schema())
            task.usage += received.usage
            self._check_count(messages, received)
            parsed, text, problem = _judge(endpoint, received, task, self.rules.keep_cut)
            if not problem:
                if not endpoint.answered:
                    endpoint.answered = endpoint.spoke = True
                    endpoint.loaded()
                return self.recorder.reply(
                    task,
                    text=text,
                    parsed=parsed,
                    raw=received.raw,
                    finish=received.finish,
                    held=endpoint.held(task.schema),
                )
            if is_repair:
                kind = "truncated" if received.finish in CUT_SHORT else "unusable"
                raise endpoint.fail(kind, f"after one repair try: {problem}", raw=received.text)
            is_repair = task.repaired = True
            messages = _repair_messages(messages, received.text, problem, task.json_schema)
        raise endpoint.fail("interrupted", _NOT_YET)

    def _check_count(self, messages: list[dict], received: Received) -> None:
        """Say once where a server counts far fewer tokens than a prompt has; CallError where it is
        known to have cut it.
        """
        texts = [str(message["content"]) for message in messages]
        estimate = estimate_tokens("".join(texts))
        counted = received.usage.prompt_tokens
        if problem := self.endpoint.cut_prompt(estimate, counted):
            raise self.endpoint.fail("truncated", problem, do=_WITH_NUM_CTX, raw=received.text)
        is_far_fewer = 0 < counted < estimate / 2
        if is_far_fewer and estimate > _LONG_PROMPT and not self._said_cut:
            self._said_cut = True
            log.warning(
                "%s counted %d tokens of a prompt of about %d, and may have cut it: give num_ctx, "
                "and name a model of Ollama ollama:NAME",
                self.endpoint.model,
                counted,
                estimate,
            )

    def _count_unusable(self, reply: Reply) -> None:
        """End a run where none of the first labels can be read: the others would not be either."""
        if reply.error is None:
            self._unusable = -math.inf
        elif reply.error.kind in ("unusable", "truncated"):
            self._unusable += 1
            if self._unusable == _MOST_UNUSABLE:
                what = f"none of the first {_MOST_UNUSABLE} replies could be read. The last: "
                self.stop(self.endpoint.fail(reply.error.kind, what + str(reply.error)))


def _judge(
    endpoint: Endpoint, received: Received, task: _Task, keep_cut: bool
) -> tuple[Any, str, str]:
    """Judge one reply: as ``read_reply``; CallError where it cannot even be repaired."""
    text = received.text
    schema = task.schema
    if problem := _broken(received, endpoint.num_ctx):
        kind, what = problem
        raise endpoint.fail(kind, what, raw=text)
    if received.finish in CUT_SHORT:
        what = _cut_off(endpoint, received)
        if schema is not None:
            return read_reply(text, schema, cut_off=what)
        if not keep_cut:
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
        prompt = " ".join(str(message["content"]) for message in task.messages)
        return read_reply(text, schema, prompt=prompt)
    return None, answer, ""


def _cut_off(endpoint: Endpoint, received: Received) -> str:
    limits = f"num_predict={endpoint.num_predict}, num_ctx={endpoint.num_ctx}"
    what = f"the reply was cut off after {received.usage.output_tokens} tokens ({limits})"
    if received.thinking.strip() and not received.text.strip():
        what += ", all of them thinking: switch it off (reasoning=False)"
    return what


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
