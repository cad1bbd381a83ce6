"""``ask``: many prompts to one chat model, and one Reply each, whatever happens."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypedDict, cast

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette, Keys
from ragbench.llm.endpoints import Endpoint, Received
from ragbench.llm.failures import HOST_FAILURES, SILENCE_S, TRANSIENT, CallError
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
_NOT_YET = "not answered yet"
_RECORDED = ("text", "raw", "finish", "seconds", "repairs", "attempts", "held")  # of a Reply
_WITH_NUM_CTX = "name the model ollama:NAME, with a num_ctx that holds the prompt"


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
    on_miss: Literal["raise", "reply"]
    on_length: Literal["fail", "keep"]


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
    on_miss: Literal["raise", "reply"] = "raise",
    on_length: Literal["fail", "keep"] = "fail",
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
    under one name. KeyboardInterrupt, on Ctrl-C or "Interrupt kernel", says how many replies are
    done; the cassette has them.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> model = FakeListChatModel(responses=["Ada"])
    >>> [reply.text for reply in rb.ask(model, ["Who built the mill?"], progress=False)]
    ['Ada']
    """
    endpoint = Endpoint.of(model, num_predict, deadline_s)
    if isinstance(cassette, str | os.PathLike):
        cassette = Cassette(cassette)
    tasks = _tasks(prompts, schema, ids)
    rules = _Rules(step, on_length == "keep", retries, patience_s, backoff_s)
    recorder = _Recorder(endpoint, cassette, rules)
    if cassette is not None and cassette.mode == "replay":
        recorder.replay(tasks, strict=on_miss == "raise")
    elif tasks:
        _run(recorder, tasks, concurrency, progress)
    replies = [cast("Reply", task.reply) for task in tasks]
    _log_failures(replies, step)
    return replies


def _log_failures(replies: Sequence[Reply], step: str) -> None:
    """Warn of failures, with the first; misses are raised or wanted."""
    failed = [(reply.error, reply.id) for reply in replies if reply.error is not None]
    failed = [(error, name) for error, name in failed if error.kind != "miss"]
    if failed:
        kinds = Counter(error.kind for error, _ in failed)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        first, name = failed[0]
        of = f"{step or 'ask'}: {len(failed)} of {len(replies)}"
        log.warning("%s prompts failed (%s). First (%s): %s", of, counts, name, first)


@dataclass(slots=True, eq=False)
class _Task:
    """One prompt, what was done for it, and its reply."""

    id: str
    messages: list[dict]
    schema: Any
    key: str = ""
    attempts: int = 0
    usage: Usage = Usage()  # noqa: RUF009 - it is frozen
    repaired: bool = False
    reply: Reply | None = None


def _tasks(prompts: Any, schema: Any, ids: Any) -> list[_Task]:
    if isinstance(prompts, str):
        raise ConfigError("prompts is one str", "a list of prompts", "ask(model, [prompt])")
    prompts = list(prompts)
    schemas = list(schema) if isinstance(schema, Sequence) else [schema] * len(prompts)
    ids = list(range(len(prompts)) if ids is None else ids)
    for name, values in {"schemas": schemas, "ids": ids}.items():
        if len(values) != len(prompts):
            raise ConfigError(f"{len(values)} {name} for {len(prompts)} prompts", "one per prompt")
    for form in schemas:
        if form is not None and not hasattr(form, "model_json_schema"):
            raise ConfigError(
                f"schema {form!r}",
                "a pydantic BaseModel class (or one per prompt)",
                "write class Verdict(BaseModel): ...",
            )
    parts = zip(prompts, schemas, ids, strict=True)
    return [_Task(str(name), _as_messages(prompt), form) for prompt, form, name in parts]


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
        return json.loads(Keys.canonical(messages))
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


@lru_cache(maxsize=4096)
def _json_schema(schema: Any) -> dict[str, Any] | None:
    return schema and schema.model_json_schema()


# -- what is recorded


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the caller of `ask` wants; ``keep_cut``: a text cut at its limit is an answer."""

    step: str
    keep_cut: bool
    retries: int
    patience_s: float
    backoff_s: float


class _Recorder:
    """The cassette (or none) of one `ask`: serves what is recorded, records what is made."""

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
            task.key = self.keys.key(task.messages, _json_schema(task.schema))
        self._serve(tasks, self.cassette)
        return [task for task in tasks if task.reply is None]

    def _serve(self, tasks: list[_Task], cassette: Cassette) -> None:
        of_key = {task.key: task for task in tasks}
        serves_failures = cassette.mode == "replay"
        for key, answer in cassette.answers(of_key):
            if answer["ok"] or serves_failures:
                of_key[key].reply = self.recorded_reply(of_key[key], answer)
        for task in tasks:
            twin = of_key[task.key].reply
            if task.reply is None and twin is not None:
                task.reply = replace(twin, id=task.id)

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
        return Reply(
            **{name: answer[name] for name in _RECORDED if name in answer},
            ok=error is None,
            error=error,
            parsed=parsed,
            usage=Usage.from_dict(answer["usage"]),
            cached=True,
            **self._names(task),
        )

    def _names(self, task: _Task) -> dict[str, Any]:
        return {
            "id": task.id,
            "step": self.rules.step,
            "model": self.endpoint.model,
            "digest": self.digest,
            "key": task.key,
        }

    def reply(self, task: _Task, error: CallError | None = None, **fields: Any) -> Reply:
        """Build the reply to a task: an answer, or the failure that ``error`` is."""
        facts = {
            "attempts": task.attempts,
            "repairs": int(task.repaired),
            "usage": task.usage,
            "seconds": task.usage.seconds,
        }
        if error is not None:
            facts |= {"text": error.raw, "raw": error.raw}
        return Reply(ok=error is None, error=error, **self._names(task), **facts | fields)

    def record(self, task: _Task, reply: Reply) -> Reply:
        """Record a reply that was just made; return the one that a replay will give."""
        if self.keys is None or self.cassette is None:
            return reply
        request = self.keys.request(task.messages, _json_schema(task.schema))
        step = self.rules.step
        if self.cassette.put(task.key, request, _to_answer(reply), step=step, prompt_id=task.id):
            return reply
        # Another process was first: its answer stays.
        return self.recorded_reply(task, self.cassette.get([task.key])[task.key])

    def replay(self, tasks: list[_Task], strict: bool) -> None:
        """Serve everything from the cassette, without a socket; what is missing is a failure, or
        raised if strict.
        """
        missing = self.missing(tasks, self.endpoint.pinned_digest)
        if not missing or self.cassette is None:
            return
        error = self.cassette.miss([task.id for task in missing], self.endpoint.model, len(tasks))
        if strict:
            raise error
        for task in missing:
            task.reply = self.reply(task, error)

    def check_model(self, tasks: list[_Task]) -> None:
        """Ask for the digest again: what was asked between two different ones is kept as neither
        of them.
        """
        endpoint = self.endpoint
        try:
            now = endpoint.fetch_digest()
        except Exception:
            return  # away, or the model was deleted
        if not endpoint.digest or now == endpoint.digest:
            return
        what = "the model was replaced under its name in mid-run: "
        what += f"digest {endpoint.digest[:12]}, now {now[:12] or 'unknown'}"
        do = "pull the old one again, or run again with a new cassette file"
        error = endpoint.fail("digest", what, do=do)
        log.warning("%s", error)
        asked = [task for task in tasks if task.attempts]
        for task in asked:
            task.reply = self.reply(task, error)
        if self.cassette is not None:
            self.cassette.withdraw([task.key for task in asked])

    def how_far(self, tasks: list[_Task]) -> str:
        """Say what is done at a Ctrl-C."""
        kept = "no cassette has them"
        if self.cassette is not None:
            kept = f"recorded on {self.cassette.path.name}, run again to go on"
        done = sum(task.reply is not None for task in tasks)
        return f"{done} of {len(tasks)} replies are done ({kept})"


# -- a run


def _run(
    recorder: _Recorder, tasks: list[_Task], concurrency: int | None, progress: bool | None
) -> None:
    """Serve what is recorded, ask for the rest in some threads, and give every task its reply."""
    from tqdm.auto import tqdm

    hidden = True if len(tasks) < _BAR_FROM else None  # None: shown in a terminal
    if progress is not None:
        hidden = not progress
    # leave=None: a bar below another one goes when it is done
    bar_options = {"desc": recorder.rules.step or "ask", "unit": "prompt", "leave": None}
    with tqdm(total=len(tasks), disable=hidden, **bar_options) as bar:
        worker = _Worker(recorder, bar)
        try:
            _ask_missing(worker, tasks, concurrency)
        except KeyboardInterrupt:
            worker.stop(recorder.endpoint.fail("interrupted", _NOT_YET))
            raise KeyboardInterrupt(recorder.how_far(tasks)) from None
    if worker.broken is not None:
        raise worker.broken
    if worker.error is not None:
        log.warning("%s", worker.error)
    for task in tasks:
        if task.reply is None:
            task.reply = recorder.reply(task, worker.error or recorder.endpoint.dead)


def _ask_missing(worker: _Worker, tasks: list[_Task], concurrency: int | None) -> None:
    """Ask for what is not recorded. As long as everything is, no server needs to be there."""
    recorder = worker.recorder
    endpoint = worker.endpoint
    on_server = endpoint.meet()
    missing = recorder.missing(tasks, on_server)
    worker.bar.update(len(tasks) - len(missing))
    if not missing or endpoint.dead is not None:
        return
    if recorder.cassette is not None:
        recorder.cassette.register(endpoint.provider, endpoint.name, recorder.digest)
    _ask_each_once(worker, missing, concurrency or endpoint.concurrency)
    recorder.check_model(tasks)


def _ask_each_once(worker: _Worker, tasks: list[_Task], concurrency: int) -> None:
    """Ask for replies; with a cassette, for those to equal prompts once."""
    first: dict[Any, _Task] = {}
    for task in tasks:
        first.setdefault(task.key or id(task), task)
    worker.work_through(list(first.values()), concurrency)
    for task in tasks:
        answered = first[task.key or id(task)].reply
        if task.reply is None and answered is not None:
            task.reply = replace(answered, id=task.id, cached=True)
            worker.bar.update()


class _Worker:
    """Asks for one reply after the other, in several threads.

    ``error`` is the failure of the prompts that are left once it has stopped; ``broken`` (a full
    disk) ends the run.
    """

    def __init__(self, recorder: _Recorder, bar: Any) -> None:
        self.recorder = recorder
        self.endpoint = recorder.endpoint
        self.rules = recorder.rules
        self.bar = bar
        self.error: CallError | None = None
        self.broken: Exception | None = None
        self._stopped = threading.Event()  # ends every pause
        self._lock = threading.Lock()
        self._unusable: float = 0  # replies to schemas, until the first that can be used

    def stop(self, reason: Exception) -> None:
        """Ask for nothing more, and break off the calls under way."""
        if isinstance(reason, CallError):
            self.error = self.error or reason
        else:
            self.broken = self.broken or reason
        self._stopped.set()
        self.endpoint.let_go()

    @property
    def _is_over(self) -> bool:
        return self._stopped.is_set() or self.endpoint.dead is not None

    def work_through(self, tasks: Sequence[_Task], concurrency: int) -> None:
        """Ask in threads, which end with the process: a call under way holds nobody up."""
        queue = deque(tasks)
        threads = []
        for _ in range(min(concurrency, len(queue))):
            thread = threading.Thread(target=self._work, args=(queue,), daemon=True)
            threads.append(thread)
            thread.start()
        began = time.monotonic()
        is_said = False
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)  # with a limit, or Ctrl-C waits for it on Windows
                if not is_said and time.monotonic() - began > SILENCE_S:
                    is_said = True
                    self._say_silence(tasks)

    def _say_silence(self, tasks: Sequence[_Task]) -> None:
        if all(task.reply is None for task in tasks):
            log.warning(
                "%s: no reply after %g s; each call ends after deadline_s=%g",
                self.endpoint.model,
                SILENCE_S,
                self.endpoint.deadline_s,
            )

    def _work(self, queue: deque[_Task]) -> None:
        """Ask until there is nothing left, or the server is gone."""
        try:
            while queue and not self._is_over:
                self._ask(queue.popleft())
        except IndexError:
            return  # another thread took the last
        except Exception as error:  # of the cassette, on a full disk
            self.stop(error)

    def _ask(self, task: _Task) -> None:
        """Ask for one reply; record it, unless its server is gone for every prompt."""
        endpoint = self.endpoint
        try:
            reply = self._try(task)
        except CallError as error:
            if error.kind in HOST_FAILURES:
                endpoint.dead = endpoint.dead or error
                return
            reply = self.recorder.reply(task, error)
        except Exception as unnamed:  # of a validator, for instance
            what = f"{type(unnamed).__name__} while it was read: {unnamed}"
            reply = self.recorder.reply(task, endpoint.fail("unusable", what))
        with self._lock:
            if self._stopped.is_set():
                return
            task.reply = self.recorder.record(task, reply)
            self.bar.update()
            if task.schema is not None:
                self._count_unusable(task.reply)

    def _try(self, task: _Task) -> Reply:
        """Ask for one reply, and again where that may help, after a pause that doubles."""
        began = time.monotonic()
        for tries in itertools.count(1):
            try:
                return self._attempt(task)
            except CallError as error:
                if not self._may_help(error, tries, time.monotonic() - began):
                    raise
                longest = min(self.rules.backoff_s * 2 ** min(tries, 9), _LONGEST_PAUSE_S)
                self._stopped.wait(random.uniform(longest / 2, longest))
        raise AssertionError

    def _may_help(self, error: CallError, tries: int, waited_s: float) -> bool:
        """Whether another try may help."""
        if error.kind not in TRANSIENT or self._is_over:
            return False
        if error.kind == "busy":
            return waited_s <= self.rules.patience_s
        if error.kind == "down":
            # a server that answers with a redirect or a page is not away
            return self.endpoint.spoke and not error.status and waited_s <= OUTAGE_S
        retries = self.rules.retries
        if error.kind == "timeout":
            retries = min(1, retries)
        return tries <= retries

    def _attempt(self, task: _Task) -> Reply:
        """Make one call and, where a structured reply was not good, its repair; judge what comes
        back.
        """
        endpoint = self.endpoint
        messages = task.messages
        problem = ""
        while not self._stopped.is_set():
            task.attempts += 1
            # made anew, since a client may change it; a model writes its fields in their order
            schema = task.schema and task.schema.model_json_schema()
            received = endpoint.call(messages, schema)
            task.usage += received.usage
            is_repair = bool(problem)
            parsed, text, problem = _judge(endpoint, received, task, self.rules.keep_cut)
            if not problem:
                endpoint.has_answered()
                facts: dict[str, Any] = {"raw": received.raw, "finish": received.finish}
                held = endpoint.held(task.schema)
                return self.recorder.reply(task, text=text, parsed=parsed, held=held, **facts)
            if is_repair:
                kind = "truncated" if received.finish in CUT_SHORT else "unusable"
                raise endpoint.fail(kind, f"after one repair try: {problem}", raw=received.text)
            task.repaired = True
            messages = _repair_messages(task, received.text, problem)
        raise endpoint.fail("interrupted", _NOT_YET)

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
    prompt = " ".join(str(message["content"]) for message in task.messages)
    if problem := endpoint.cut_prompt(estimate_tokens(prompt), received.usage.prompt_tokens):
        raise endpoint.fail("truncated", problem, do=_WITH_NUM_CTX, raw=text)
    if problem := _broken(received, endpoint.num_ctx):
        kind, what = problem
        raise endpoint.fail(kind, what, raw=text)
    cut_off = _cut_off(endpoint, received)
    if cut_off and task.schema is None and not keep_cut:
        raise endpoint.fail("truncated", cut_off, raw=text)
    answer = without_thinking(text)
    if not answer and not (cut_off and task.schema):
        raise _empty(endpoint, received, only_thinking=answer is None)
    if task.schema is None:
        return None, answer or "", ""
    return read_reply(text, task.schema, cut_off, prompt)


def _empty(endpoint: Endpoint, received: Received, only_thinking: bool) -> CallError:
    what = "an empty answer"
    if only_thinking or received.thinking.strip():
        what = "nothing but thinking, no answer after it"
    do = "raise num_predict, or switch thinking off (reasoning=False)"
    return endpoint.fail("unusable", what, raw=received.text or received.thinking, do=do)


def _cut_off(endpoint: Endpoint, received: Received) -> str:
    if received.finish not in CUT_SHORT:
        return ""
    limits = f"num_predict={endpoint.num_predict}, num_ctx={endpoint.num_ctx}"
    what = f"the reply was cut off after {received.usage.output_tokens} tokens ({limits})"
    if received.thinking.strip() and not received.text.strip():
        what += ", all of them thinking: switch it off (reasoning=False)"
    return what


def _broken(received: Received, num_ctx: int | None) -> tuple[str, str] | None:
    """Say what is wrong with a prompt that filled the window, or a reply without its end."""
    counted = received.usage.prompt_tokens
    if num_ctx and counted >= num_ctx:
        what = f"the prompt fills the window: {counted} tokens, num_ctx is {num_ctx}"
        return "truncated", what
    if received.finish in FINISHED | CUT_SHORT:
        return None
    if received.finish:
        return "unusable", f"the server stopped for the reason {received.finish!r}"
    length = len(received.text)
    return "server", f"the stream ended after {length} characters, without its end mark"


def _to_answer(reply: Reply) -> dict[str, Any]:
    """Return what is stored of a reply; what the key says already (model, options ...) is not
    repeated.
    """
    answer = {name: getattr(reply, name) for name in ("ok", *_RECORDED)}
    answer["usage"] = reply.usage.to_dict()
    answer["error"] = reply.error and reply.error.to_dict()
    return answer


def _repair_messages(task: _Task, written: str, problem: str) -> list[dict]:
    """Build the one second try: the conversation so far (a long draft in part), what was wrong, and
    the schema.
    """
    if len(written) > _MOST_DRAFT:
        written = written[:_MOST_DRAFT] + " [...]"
    ask = (
        f"Your last message cannot be used: {problem}.\n"
        "Answer the same task again. Write one complete JSON value that fits the JSON schema "
        "below, and nothing before "
        f"or after it.\n\nJSON schema:\n{Keys.canonical(_json_schema(task.schema))}"
    )
    draft = {"role": "assistant", "content": written}
    return [*task.messages, draft, {"role": "user", "content": ask}]
