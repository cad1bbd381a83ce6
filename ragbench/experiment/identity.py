"""Who made a result: everything that can change it, as plain JSON, and the hashes that go into row keys.

Content before names: data and chunks are hashed by what they hold, retrievers and readers say their settings, models
are their provider, name, digest and options. An object that cannot say its settings is known by its code.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ragbench.errors import ConfigError, check_known
from ragbench.generation import PROMPTS
from ragbench.llm import chat_model, loop
from ragbench.llm.cassette import canonical
from ragbench.llm.drivers import Driver, agreed_digest, driver_for
from ragbench.llm.failures import AWAY, CallError, sounds_secret
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_hash
from ragbench.records import Chunk, Dataset, Question

_KEY_CHARS = 32


def digest_of(value: Any) -> str:
    """Return the sha256 (hex) of a plain JSON value, written in one way only."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def row_keys(kind: str, *parts: Any) -> Callable[[str], str]:
    """Return what makes the keys of one cell: of a question's hash, 32 hex digits of that of (kind, hash, *parts)."""
    head, tail = f'["{kind}","'.encode(), f'",{canonical(parts)[1:]}'.encode("utf-8", "surrogatepass")
    return lambda sha: hashlib.sha256(head + sha.encode() + tail).hexdigest()[:_KEY_CHARS]


def question_hash(question: Question) -> str:
    """Return the hash of what a question asks and of what its answer is judged by."""
    marks = [list(mark) for mark in question.meta.get("supporting_facts", ())]
    return digest_of([question.id, question.text, question.answer, list(question.references), marks])


def _hash_all(rows: Iterable[Sequence[str]]) -> str:
    # One running hash: a corpus as one JSON text would be in memory twice.
    total = hashlib.sha256()
    for row in rows:
        total.update(canonical(list(row)).encode("utf-8", "surrogatepass") + b"\n")
    return total.hexdigest()


def data_identity(data: Dataset, question_hashes: Sequence[str]) -> dict[str, Any]:
    """Return name, counts and hashes of a data set, given those of its questions."""
    return {
        "name": data.name,
        "questions": len(data.questions),
        "documents": len(data.documents),
        "excluded": len(data.excluded),
        "questions_sha256": _hash_all([sha] for sha in question_hashes),
        "documents_sha256": _hash_all([d.id, d.title, d.text] for d in data.documents),
    }


def chunks_identity(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return number and hash of the chunks, in an order of their own: an index does not depend on theirs."""
    rows = sorted((c.id, c.doc_id, c.title, c.text) for c in chunks)
    return {"chunks": len(chunks), "sha256": _hash_all(rows)}


def tokenizer_identity(tokenizer: Any) -> str:
    """Name the tokenizer that counts N."""
    if tokenizer is None:
        return "all-MiniLM-L6-v2 WordPiece"
    if hasattr(tokenizer, "to_str"):
        return "tokenizer.json " + hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    if isinstance(tokenizer, str | os.PathLike):
        with open(tokenizer, "rb") as file:
            return "tokenizer.json " + hashlib.file_digest(file, "sha256").hexdigest()
    return "function " + digest_of(object_identity(tokenizer))


def object_identity(thing: Any) -> dict[str, Any]:
    """Return what is known of a retriever, reader, judge or function, ready for JSON.

    ``settings()`` where there is one; a function's code with a hash of the plain values it refers to; else the class
    and a hash of its plain attributes. Never an address in memory, never a value whose name sounds secret.
    """
    if callable(getattr(thing, "settings", None)):
        return {"class": _name(type(thing)), **_plain(thing.settings())}
    if isinstance(thing, functools.partial):
        inner = object_identity(thing.func)
        return {"partial": inner, "args": _plain([*thing.args]), "keywords": _plain(thing.keywords)}
    if inspect.isroutine(thing):
        return _function_identity(thing)
    known = {name: _plain(value) for name in ("name", "card") if (value := getattr(thing, name, None)) is not None}
    return {"class": _name(type(thing)), **known, "state": digest_of(_plain(getattr(thing, "__dict__", {})))}


def _name(thing: Any) -> str:
    # A user's class is "__main__" in a notebook and something else when imported; it is the same class.
    module, name = str(getattr(thing, "__module__", "")), getattr(thing, "__qualname__", type(thing).__qualname__)
    return f"{module}.{name}" if module.partition(".")[0] == "ragbench" else name


def _function_identity(function: Any) -> dict[str, Any]:
    name, inner = _name(function), getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    if code is None:
        return {"function": name}
    if name.startswith("ragbench."):
        # The package's own version and revision are in the manifest; its results must survive a new comment.
        source = "ragbench"
    else:
        try:
            source = hashlib.sha256(inspect.getsource(inner).encode()).hexdigest()
        except (OSError, TypeError):
            source = hashlib.sha256(code.co_code).hexdigest()
    cells = getattr(inner, "__closure__", None) or ()
    refers = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
    refers |= {name: inner.__globals__[name] for name in code.co_names if name in inner.__globals__}
    refers |= {f"default {i}": value for i, value in enumerate(inner.__defaults__ or ())}
    refers |= inner.__kwdefaults__ or {}
    # Values of a user's own variables: their hash, since one of them may be nobody's business.
    return {"function": name, "code": source, "refers": digest_of(_plain(refers))}


_NOTHING = object()


def _plain(value: Any) -> Any:
    """Keep numbers, texts and lists and dicts of them; anything else is left out, and so is what sounds secret."""
    if isinstance(value, Mapping):
        pairs = ((str(k), _plain(v)) for k, v in value.items() if not sounds_secret(str(k)))
        return {k: v for k, v in pairs if v is not _NOTHING}
    if isinstance(value, list | tuple):
        return [v for v in map(_plain, value) if v is not _NOTHING]
    return value if value is None or isinstance(value, bool | int | float | str) else _NOTHING


def is_model(thing: Any) -> bool:
    """Say whether an axis value is a chat model (or a name of one, or one model on several hosts)."""
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        return bool(thing) and all(map(is_model, thing))
    return isinstance(thing, str) or hasattr(thing, "ainvoke")


def hosts_of(model: Any) -> list[Any]:
    """Return the chat models behind an axis value, one per host."""
    models = [model] if isinstance(model, str) or not isinstance(model, Sequence) else model
    return [chat_model(each) if isinstance(each, str) else each for each in models]


def as_prompts(prompts: Mapping[str, Prompt], generators: Mapping[str, Any]) -> dict[str, Prompt]:
    """Return the prompts by generator that were asked for; ConfigError for one that cannot be used."""
    check_known("generator in prompts", prompts, generators)
    for name, prompt in prompts.items():
        if not is_model(generators[name]):
            raise ConfigError(f"a prompt for {name!r}, a reader", "prompts for chat models only", "leave it out")
        fill_prompt(load_prompt(prompt), query="", documents="")
    return dict(prompts)


def prompt_hashes(with_documents: Prompt | None) -> dict[str, str]:
    """Return the hashes of a generator's prompts by name; None: the thesis's prompt with documents."""
    used = (with_documents or PROMPTS["with_documents"], PROMPTS["query_only"])
    return {os.path.basename(prompt): prompt_hash(prompt) for prompt in used}


def model_identity(hosts: Sequence[Any], cassette: Any, recorded: str | None, *, ask_server: bool) -> dict[str, Any]:
    """Return provider, name, digest and options of a chat model; never its address or key.

    ``recorded`` is the digest in an earlier manifest of this run, used when no server answers. None is asked without
    ``ask_server`` (for a plan), and where the cassette is in replay mode.

    Raises
    ------
    ModelError when no server answers and nothing tells which weights are meant, or the hosts have different ones.
    """
    drivers = [driver_for(model) for model in hosts]
    first = drivers[0]
    if len({canonical([d.provider, d.name, d.options()]) for d in drivers}) > 1:
        raise ConfigError(
            f"several hosts with different models or options: {', '.join(d.model for d in drivers)}",
            "one model with the same options on every host",
            "give the other model a name of its own on the axis",
        )
    replay = cassette is not None and cassette.mode == "replay"
    digest, away = _from_servers(drivers) if ask_server and not replay else (None, None)
    if digest is None:
        digest = first.pinned_digest or recorded
    if digest is None and cassette is not None and cassette.mode != "off":
        digest = cassette.choose_digest(first.provider, first.name, None)
    if digest is None and away is not None:
        raise away
    return {
        "provider": first.provider,
        "model": first.name,
        "digest": digest,
        "options": _plain(first.options()),
        "num_ctx": first.num_ctx,
        "hosts": len(drivers),
    }


def _from_servers(drivers: Sequence[Driver]) -> tuple[str | None, CallError | None]:
    """Return the digest that the servers agree on, and the error of one that is away."""
    digests: list[str | None] = []
    away: CallError | None = None
    for driver in drivers:
        try:
            digests.append(loop.run(driver.digest()))
        except CallError as error:
            if error.kind not in AWAY:
                raise
            digests.append(None)
            away = error
    return agreed_digest(drivers, digests), away
