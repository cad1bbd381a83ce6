"""``generate``: one Answer per question and context, by a chat model or a reader, whatever happens."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, ModelError
from ragbench.generation.reader import ExtractiveReader
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_hash
from ragbench.records import Answer, Question

if TYPE_CHECKING:  # slow import
    from ragbench.llm import Reply

PROMPTS: Mapping[str, str] = {"with_documents": "thesis_with_documents", "query_only": "thesis_query_only"}


def generate(
    model: Any,
    questions: Sequence[Question],
    contexts: Sequence[str | None],
    *,
    meta: Sequence[Mapping[str, Any]] | None = None,
    cassette: Any = None,
    concurrency: int = 1,
    with_documents: Prompt = PROMPTS["with_documents"],
    query_only: Prompt = PROMPTS["query_only"],
    **options: Any,
) -> list[Answer]:
    """Answer each question from its context.

    Parameters
    ----------
    model : a reader (an object with ``name`` and ``answer(question, context)``; ``ExtractiveReader`` is "extractive"),
        a LangChain chat model, a name such as ``"ollama:llama3:8b"``, or a sequence of one model on several hosts.
    questions : one per answer; a question that is asked at several budgets is repeated.
    contexts : one per question. None: the query alone. ``""``: nothing was retrieved, which is the prompt with an
        empty documents section (a reader abstains on both).
    meta : what each answer's ``meta`` should also hold, e.g. ``{"system": "BM25", "n_tokens": 300}``.
    cassette, options : for a chat model, passed to ``ragbench.llm.ask``.
    concurrency : calls under way at once. Keep 1 to measure time as the thesis did (Table 3.2: wall-clock seconds of
        each single answer): with more, an answer's seconds include waiting for the others.
    with_documents, query_only : prompt ids or files, with the fields ``{query}`` and ``{documents}``.

    Returns
    -------
    list of Answer in the order of the questions. ``seconds`` is the wall-clock time of that answer. A failed call is
    an Answer with empty text and the reason in ``meta["error"]``; none is dropped. Where the prompt asks for the tags
    ``<answer></answer>`` (RAGChecker, App. D), the answer is what stands between them; a reply without them is an
    answer as a whole, and ``meta["tagged"]`` is False. One that ended at the limit
    of tokens is an answer with ``meta["finish"] == "length"``.

    Raises
    ------
    ConfigError : an empty question, lengths that differ, contexts of another type, a prompt without its fields; and
    whatever ``ask`` raises before the first call; ModelError for a reader that gives no text.

    Source: thesis §2.4, Figure 2.4 (same inputs and criteria, our own wording).
    """
    questions, contexts = _checked(questions, contexts)
    model = ExtractiveReader() if isinstance(model, str) and model == "extractive" else model
    extra = [dict(m) for m in meta] if meta is not None else [{} for _ in questions]
    if len(extra) != len(questions):
        raise ConfigError(f"{len(extra)} meta for {len(questions)} questions", "one per question", "check meta")
    if callable(getattr(model, "answer", None)):
        if cassette is not None or options:
            given = ", ".join([*(["cassette"] if cassette is not None else []), *options])
            raise ConfigError(f"{given} with a reader", "no options of a chat model", "leave them out")
        return [_read(model, *job) for job in zip(questions, contexts, extra, strict=True)]
    from ragbench.llm import ask

    prompts = answer_prompts(questions, contexts, with_documents, query_only)
    ids = [_call_id(*job) for job in zip(questions, contexts, extra, strict=True)]
    options = {"step": "generation", "on_length": "keep", "ids": ids, "groups": [q.id for q in questions]} | options
    replies = ask(model, [p.text for p in prompts], cassette=cassette, concurrency=concurrency, **options)
    return [
        as_answer(question, prompt, reply, {**m, "concurrency": concurrency})
        for question, prompt, reply, m in zip(questions, prompts, replies, extra, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class AnswerPrompt:
    """What a chat model is asked for one answer. ``about``: name and hash of the prompt, for the answer's ``meta``."""

    text: str
    about: Mapping[str, Any]


def answer_prompts(
    questions: Sequence[Question],
    contexts: Sequence[str | None],
    with_documents: Prompt = PROMPTS["with_documents"],
    query_only: Prompt = PROMPTS["query_only"],
) -> list[AnswerPrompt]:
    """Write the prompt of each answer; see :func:`generate`."""
    questions, contexts = _checked(questions, contexts)
    # Only the prompts that are needed must be readable.
    needed = {c is None for c in contexts}
    source = {True: query_only, False: with_documents}
    text = {alone: load_prompt(source[alone]) for alone in needed}
    about = {
        alone: {"prompt": os.path.basename(source[alone]), "prompt_sha256": prompt_hash(source[alone])}
        | ({"tagged": False} if "<answer>" in text[alone] else {})
        for alone in needed
    }
    return [
        AnswerPrompt(
            fill_prompt(text[c is None], query=q.text, **({} if c is None else {"documents": c})), about[c is None]
        )
        for q, c in zip(questions, contexts, strict=True)
    ]


def as_answer(question: Question, prompt: AnswerPrompt, reply: Reply, meta: Mapping[str, Any]) -> Answer:
    """Make the Answer of a reply; a failed one is an answer without text and with ``meta["error"]``."""
    from ragbench.llm.context import prompt_tokens

    about: dict[str, Any] = {
        **meta,
        **prompt.about,
        "cached": reply.cached,
        "digest": reply.digest,
        "finish": reply.finish,
        "usage": reply.usage.to_dict(),
        # To be held against the server's own count.
        "prompt_estimate": prompt_tokens([{"content": prompt.text}]),
    }
    if reply.error is not None:
        about |= {"error": f"{reply.error.kind}: {reply.error}", "raw": reply.raw}
    text = reply.text if reply.ok else ""
    if reply.ok and "tagged" in about:
        text, about["tagged"] = _untagged(text)
    return Answer(question.id, text, reply.model, reply.seconds, about)


def _checked(questions: Any, contexts: Any) -> tuple[list[Question], list[str | None]]:
    if isinstance(contexts, str) or isinstance(questions, (str, Question)):
        raise ConfigError("a single question or context", "a list of each", "generate(model, [question], [context])")
    questions, contexts = list(questions), list(contexts)
    if len(questions) != len(contexts):
        raise ConfigError(
            f"{len(contexts)} contexts for {len(questions)} questions",
            "one context (or None) per question",
            "repeat a question for each of its contexts, as generation_tasks does",
        )
    for question, context in zip(questions, contexts, strict=True):
        if not question.text.strip():
            raise ConfigError(f"question {question.id!r} is empty", "some text", "leave empty questions out")
        if not (context is None or isinstance(context, str)):
            raise ConfigError(
                f"the context of question {question.id!r} is {type(context).__name__}",
                "str, or None for the query alone",
                "build contexts with contexts_from_hits(hits, budgets)",
            )
    return questions, contexts


def _read(reader: Any, question: Question, context: str | None, extra: dict[str, Any]) -> Answer:
    start = time.perf_counter()
    text = reader.answer(question.text, context or "")
    seconds = time.perf_counter() - start
    if not isinstance(text, str):
        raise ModelError(
            f"the reader {reader.name!r} gave {type(text).__name__}",
            "a text",
            "let it return '' where it has no answer",
        )
    abstains = getattr(reader, "abstains", None)
    if callable(abstains):
        extra = extra | {"abstained": abstains(text)}
    return Answer(question.id, text, reader.name, seconds, extra)


def _untagged(reply: str) -> tuple[str, bool]:
    """Return what stands between the answer tags, and whether they were there; the end tag may be missing."""
    inside = re.search(r"<answer>(.*?)(?:</answer>|\Z)", reply, flags=re.DOTALL | re.IGNORECASE)
    return (inside[1].strip(), True) if inside else (reply, False)


def _call_id(question: Question, context: str | None, extra: Mapping[str, Any]) -> str:
    n = extra.get("n_tokens", 0 if context is None else "all")
    return f"{question.id}/{extra.get('system', 'query only' if context is None else 'documents')}/{n}"
