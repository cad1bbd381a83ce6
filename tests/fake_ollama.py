"""A test double of Ollama: HTTP on loopback, the protocol as documented, and faults on demand.
Never a backend.

Follows Ollama's public documentation (docs.ollama.com and docs/api.md, docs/openapi.yaml of the
repository, as of the
0.12 to 0.40 releases): ``/api/version``, ``/api/tags``, ``/api/show``, ``/api/chat`` streaming
newline-delimited JSON or not, ``format`` as JSON schema, ``/api/embed``, counts and
durations in nanoseconds, 404 for an unknown model, ``{"error": ...}`` bodies, an error line inside
a stream that began with 200, and the OpenAI-compatible ``/v1/chat/completions``. What it does with
a prompt longer than ``num_ctx`` follows measurements reported in Ollama's issues (a 200 that counts
half of the window, or a 400).

As a program: ``python tests/fake_ollama.py`` prints its address and serves until killed.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import math
import os
import random
import re
import signal
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ragbench.llm.wire import OllamaServer

DIGEST = hashlib.sha256(b"made model").hexdigest()
EMBEDDER = "all-minilm:latest"  # the one model that makes vectors and cannot chat
CREATED = "2025-01-01T00:00:00.000000Z"
KINDS = ("object", "array", "string", "number")  # of a schema that it takes


@dataclass
class Call:
    """One request the server saw. ``written`` is None until the whole answer is out."""

    path: str
    body: dict
    headers: dict
    prompt: str
    reader: asyncio.StreamReader
    written: float | None = None


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one call; ``value`` is the fault's own number or text."""

    name: str
    value: Any = None


def default_reply(request):
    """Answer with something that depends on all that should change an answer."""
    if request.get("format"):
        return json.dumps(example(request["format"]))
    options = {k: v for k, v in request.get("options", {}).items() if k != "num_ctx"}
    told = json.dumps([request["model"], request["messages"], options], sort_keys=True)
    return "Answer " + hashlib.sha256(told.encode()).hexdigest()[:8] + "."


def at_call(number, act):
    """Return a reply that answers as usual, and does something beside it when that many calls were
    made.
    """
    seen = itertools.count(1)

    def reply(request):
        if next(seen) == number:
            threading.Thread(target=act).start()
        return default_reply(request)

    return reply


def dies_at(number, server):
    """Return a fault by which a server stops when that many calls have come: it answers none from
    there on, however fast the client is.
    """
    seen = itertools.count(1)

    def fault(prompt, before):
        if next(seen) >= number:
            server.die()
            return Fault("no_bytes", 10)

    return fault


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def example(schema, top=None):
    """Make the smallest value that fits a JSON schema (of the kind pydantic writes)."""
    top = top or schema
    if "$ref" in schema:
        return example(top["$defs"][schema["$ref"].rsplit("/", 1)[1]], top)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], top)
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: example(part, top) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [example(schema.get("items", {}), top) for _ in range(schema.get("minItems", 0))]
    return {"string": "x", "integer": 1, "number": 0.5, "boolean": True, "null": None}[kind]


def count_tokens(text):
    """Count pieces of up to four word characters, and single other characters."""
    return len(re.findall(r"\w{1,4}|[^\w\s]", text))


@dataclass
class FakeOllama:
    """The server, in a thread of its own: ``with FakeOllama() as fake: ... fake.url ...
    fake.calls``.

    Parameters
    ----------
    models : name -> digest.
    reply : request body -> text of the answer.
    fault : (prompt, how many calls with this prompt came before) -> Fault or None.
    latency_s : time for each answer.
    overflow : what happens to a prompt longer than num_ctx: "error" (400 when asked not to
        truncate) or "fill" (an old server: 200, and the whole window counted).
    api_key : refuse requests without it.
    no_counts : leave the token counts out.
    embed : texts -> status and body of ``/api/embed``; its models make vectors and cannot chat.
    thinks : take ``think: true``; else refuse it.
    counted : what ``/v1/chat/completions`` counts, where it is not the prompt's tokens.
    remote_host : where its models really run, as a name for a model of the cloud says.
    window : of a loaded model, where it is not num_ctx.
    modelfile, template, system, parent_model : the parameters, the chat template and the system
        text of each model, and what it was made of, as ``/api/show`` says them.
    openai_schema : the one form of ``response_format`` that ``/v1/chat/completions`` takes; others
        get the 500 that llama.cpp's Python server gives.
    silent : paths that never get an answer.
    tls : with a certificate, for https.
    """

    models: dict = field(default_factory=lambda: {"llama3:8b": DIGEST})
    reply: Callable = default_reply
    fault: Callable | None = None
    latency_s: float = 0.0
    overflow: str = "error"
    api_key: str | None = None
    no_counts: bool = False
    embed: Callable | None = None
    context_length: int = 131072
    openai_schema: str = "json_schema"
    version: str = "0.24.0"
    modelfile: str = ""
    template: str = ""
    system: str = ""
    parent_model: str = ""
    window: int | None = None
    thinks: bool = True
    remote_host: str = ""
    counted: int | None = None
    silent: tuple = ()
    port: int = 0
    tls: ssl.SSLContext | None = None

    def __post_init__(self):
        self.calls = []
        self.other = []
        self.most_at_once = self.under_way = 0
        self.others = {
            "/api/version": lambda _: (200, {"version": self.version}),
            "/api/tags": self._tags,
            "/api/ps": self._ps,
            "/api/show": self._show,
            "/api/embed": self._embed,
        }
        self._prompts = Counter()
        self._ready = threading.Event()
        self._writers = set()

    def model(self, spec="ollama:llama3:8b", **options):
        """Return the chat model of ragbench that asks this server."""
        from ragbench.llm import chat_model

        return chat_model(spec, host=self.url, **options)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url(self):
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    def start(self):
        self._ready.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10), "the fake server did not start"

    def stop(self):
        """Stop listening and break every connection, as a killed server does."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    def die(self):
        """Stop, from within a call."""
        self._stop.set()

    def wait_for_quiet(self, seconds=30):
        """Wait until every client is gone: no call of theirs can arrive after that."""
        end = time.monotonic() + seconds
        time.sleep(0.05)  # a connection may just be made
        while self._writers and time.monotonic() < end:
            time.sleep(0.01)

    async def serve(self):
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        about = {"host": "127.0.0.1", "port": self.port, "ssl": self.tls}
        server = await asyncio.start_server(self._connection, **about)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        # a connection just accepted is not among the writers yet, and would hang its client
        await asyncio.sleep(0.02)
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connection(self, reader, writer):
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ", 2)
                pairs = (line.partition(":") for line in head[1:] if line)
                headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                asked = json.loads(body) if body else {}
                prompt = str((asked.get("messages") or [{}])[0].get("content", ""))
                await self._answer(
                    method, Call(path.partition("?")[0], asked, headers, prompt, reader), writer
                )
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError, Hangup):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, method, call, out):
        sent = call.headers.get("authorization", "none")
        chat = method == "POST" and call.path in ("/api/chat", "/v1/chat/completions")
        refused = self.api_key and sent != f"Bearer {self.api_key}"
        (self.calls if chat or refused else self.other).append(call)
        if refused:
            await send_json(out, {"error": f"unauthorized: {sent}"}, 401)
        elif call.path in self.silent:
            await call.reader.read(1)  # until the client goes away
            raise Hangup
        elif chat:
            await self._chat(call, out)
        elif (handler := self.others.get(call.path)) is not None:
            status, said = handler(call.body)
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            await send(out, status, content, "application/json; charset=utf-8")
        else:
            await send(out, 404, b"404 page not found", "text/plain")

    def _tags(self, _):
        details = {"family": "llama", "parameter_size": "8.0B", "quantization_level": "Q4_0"}
        same = {"modified_at": CREATED, "size": 4661224676, "details": details}
        same["remote_host"] = self.remote_host
        models = self.models.items()
        rows = [same | {"name": name, "model": name, "digest": digest} for name, digest in models]
        return 200, {"models": rows}

    def _ps(self, _):
        bodies = [call.body for call in self.calls if call.path == "/api/chat"]
        if not bodies:
            return 200, {"models": []}
        name = OllamaServer.full_name(bodies[-1]["model"])
        asked = bodies[-1].get("options", {}).get("num_ctx", 4096)
        window = self.window or min(asked, self.context_length)
        row = {"name": name, "model": name, "size": 100, "digest": "", "context_length": window}
        return 200, {"models": [row]}

    def _show(self, body):
        name = body.get("model", "")
        if not self._knows(name):
            return 404, {"error": f"model '{name}' not found"}
        embeds = self.embed or OllamaServer.full_name(name) == EMBEDDER
        return 200, {
            "parameters": self.modelfile,
            "template": self.template,
            "system": self.system,
            "details": {"family": "llama", "parent_model": self.parent_model},
            "model_info": {"llama.context_length": self.context_length},
            "capabilities": ["embedding" if embeds else "completion"],
        }

    def _embed(self, body):
        name = body.get("model", "")
        given = body.get("input")
        if not self._knows(name):
            return 404, {"error": f'model "{name}" not found, try pulling it first'}
        if self.embed:
            return self.embed(given)
        if not isinstance(given, str | list):
            return 400, {"error": "invalid input type"}
        texts = [given] if isinstance(given, str) else given
        counts = [count_tokens(text) for text in texts]
        if body.get("truncate") is False and max(counts, default=0) > 512:
            return 400, {"error": "the input length exceeds the context length"}
        vectors = [unit_vector(text) for text in texts if text or given is texts]
        return 200, {"model": name, "embeddings": vectors, "prompt_eval_count": sum(counts)}

    async def _chat(self, call, out):
        before = self._prompts[call.prompt]
        self._prompts[call.prompt] += 1
        fault = (self.fault and self.fault(call.prompt, before)) or Fault("")
        refusal = self._refusal(call.body) if call.path == "/api/chat" else None
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await asyncio.sleep(self.latency_s)
            if fault.name in REFUSALS:
                status, words = REFUSALS[fault.name]
                wait = f"Retry-After: {fault.value}\r\n" if status == 429 else ""
                await send_json(out, {"error": words or fault.value}, status, wait)
            elif fault.name in BODIES:
                await send(out, *BODIES[fault.name])
            elif fault.name in ("no_bytes", "hang_up"):
                with contextlib.suppress(TimeoutError):  # say nothing, until the client goes away
                    await asyncio.wait_for(call.reader.read(1), fault.value or 0)
                raise Hangup
            elif refusal is not None:
                await send_json(out, {"error": refusal[1]}, refusal[0])
            elif call.path == "/api/chat":
                await self._speak(call.body, fault, out)
            else:
                await self._speak_openai(call.body, fault, out)
        finally:
            self.under_way -= 1
        call.written = time.monotonic()

    def _knows(self, name):
        return OllamaServer.full_name(name) in map(OllamaServer.full_name, self.models)

    def _refusal(self, body):
        """Status and words for a chat that Ollama refuses (0.24.0)."""
        name = body["model"]
        form = body.get("format")
        if not name:
            return 400, "model is required"
        if " " in name:
            return 400, "invalid model name"
        if not self._knows(name):
            return 404, f"model '{name}' not found"
        if OllamaServer.full_name(name) == EMBEDDER:
            return 400, f'"{name}" does not support chat'
        if body.get("think") and not self.thinks:
            return 400, f'"{name}" does not support thinking'
        for option, value in body.get("options", {}).items():
            if option in ("num_ctx", "num_predict", "seed") and isinstance(value, str):
                return 500, f'option "{option}" must be of type integer'
        if isinstance(form, str) and form not in ("", "json"):
            return 500, f'invalid format: "{form}"; expected "json" or a valid JSON Schema object'
        if isinstance(form, dict) and form.get("type", "object") not in KINDS:
            return 500, "invalid JSON schema in format"
        return None

    async def _speak(self, body, fault, out):
        options = body.get("options", {})
        read = self._read(body)
        window = options.get("num_ctx", 4096)
        if read > window:
            if self.overflow == "error" and body.get("truncate") is False:
                words = f"the prompt has {read} tokens and exceeds the context length of {window}"
                return await send_json(out, {"error": f"{words} tokens"}, 400)
            read = window
        text = fault.value if fault.name == "answer" else self.reply(body)
        words = re.findall(r"\s*\S+|\s+$", text)
        limit = options.get("num_predict", -1)
        if fault.name == "truncated":
            limit = max(1, len(words) // 2)
        cut = 0 < limit < len(words) or fault.name == "truncated"
        words = words[:limit] if cut else words
        part = {"model": body["model"], "created_at": CREATED}
        final = part | {"done": True, "done_reason": "length" if cut else "stop"}
        final |= {"prompt_eval_duration": 1_000_000, "eval_duration": 50_000 * len(words)}
        if not self.no_counts:
            final |= {"prompt_eval_count": read, "eval_count": len(words)}
        if fault.name == "finish":
            final["done_reason"] = fault.value
        if not body["messages"]:
            words = []
            final["done_reason"] = "load"
        if not body.get("stream", True):
            return await send_json(out, final | {"message": message_of("".join(words))})
        parts = [part | {"message": message_of(word), "done": False} for word in words]
        parts.append(final | {"message": message_of("")})
        return await stream(out, [json.dumps(part) + "\n" for part in parts], fault)

    def _read(self, body):
        return sum(count_tokens(message.get("content", "")) + 4 for message in body["messages"])

    async def _speak_openai(self, body, fault, out):
        form = body.get("response_format", {"type": self.openai_schema})
        if form["type"] != self.openai_schema:
            words = f"1 validation error: response_format.type should be '{self.openai_schema}'"
            return await send_json(out, {"error": {"message": words, "type": "server_error"}}, 500)
        schema = form.get("schema") or form.get("json_schema", {}).get("schema")
        text = fault.value if fault.name == "answer" else self.reply({**body, "format": schema})
        finish = fault.value if fault.name == "finish" else "stop"
        read = self.counted or self._read(body)
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": message_of(text), "finish_reason": finish}],
            "usage": {"prompt_tokens": read, "completion_tokens": count_tokens(text)},
        }
        answer["usage"]["total_tokens"] = 0
        if fault.name == "dropped":
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
            )
            return await drop(out, head + json.dumps(answer).encode()[:40])
        if fault.name == "error_line":
            answer = {"error": {"message": fault.value}}
        return await send_json(out, answer)


def unit_vector(text):
    """Eight numbers drawn for a text."""
    draw = random.Random(text)
    vector = [draw.gauss(0, 1) for _ in range(8)]
    length = math.hypot(*vector)
    return [number / length for number in vector]


def message_of(text):
    return {"role": "assistant", "content": text}


class Hangup(Exception):
    """The connection is broken off on purpose."""


async def send(out, status, body, kind, extra=""):
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    )
    out.write(head.encode() + body)
    await out.drain()


async def send_json(out, value, status=200, extra=""):
    await send(out, status, json.dumps(value).encode(), "application/json; charset=utf-8", extra)


def _chunk(text):
    data = text.encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def drop(out, data):
    out.write(data)
    await out.drain()
    out.transport.abort()
    raise Hangup


async def stream(out, lines, fault):
    """Send lines as chunks, broken in the way the fault says."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
    out.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
    if fault.name == "dropped":
        await drop(out, _chunk(lines[0]) + b"ff\r\n" + lines[0][:9].encode())
    if fault.name == "drip":
        for character in "".join(lines):
            out.write(_chunk(character))
            await out.drain()
            await asyncio.sleep(fault.value)
    sent = {
        "drip": [],
        "no_end_mark": lines[:-1],
        "half_line": [lines[0], lines[-1][: len(lines[-1]) // 2]],
        "error_line": [lines[0], json.dumps({"error": fault.value}) + "\n"],
    }.get(fault.name, lines)
    out.write(b"".join(map(_chunk, sent)) + b"0\r\n\r\n")
    await out.drain()


_PAGE = (
    b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Corporate proxy</body></html>"
)
# Status and words of a refusal.
REFUSALS = {
    "500": (500, "an error was encountered while running the model: EOF"),
    "oom": (500, "model requires more system memory (9.3 GiB) than is available (3.1 GiB)"),
    "429": (429, "too many requests"),
    "503": (503, "server busy, please try again.  maximum pending requests exceeded"),
    "404": (404, "model 'llama3:8b' not found"),
    "402": (402, "insufficient balance"),
    "401": (401, "unauthorized"),
    "400": (400, "invalid options: mirostat"),
    "refused": (400, ""),  # with the fault's own words
}
BODIES = {
    "garbage": (200, b"\x00\x01 not json at all", "application/x-ndjson"),
    "no_reply": (200, b'{"hello": "world"}\n', "application/x-ndjson"),
    "html": (200, _PAGE, "text/html"),
    "html_502": (502, _PAGE, "text/html"),
}


def main():
    with FakeOllama() as fake:
        print(fake.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
