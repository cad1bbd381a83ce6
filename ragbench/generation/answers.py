"""What a generator gets to see, and ``generate``: one Answer per question and context, whatever
happens.

A context is a text or None. None (N = 0) means the query alone. An empty text means that documents
were asked for and none came: the prompt with documents, their section empty. The two are different
experiments and never mixed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragbench import llm
from ragbench.errors import ConfigError, ModelError
from ragbench.llm.context import prompt_tokens
from ragbench.llm.models import BOUNDS, not_named
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_hash
from ragbench.records import Answer, Hit, Question
from ragbench.text.tokens import as_cutoffs, as_offsets, joined_cutoffs

PROMPTS: Mapping[str, str] = {
    "with_documents": "thesis_with_documents",
    "query_only": "thesis_query_only",
}


def contexts_from_hits(
    hits: Sequence[Sequence[Hit]],
    budgets: Sequence[int],
    tokenizer: Any = None,
    begin_token: bool = False,
) -> list[list[str | None]]:
    """Join each question's chunks with one space and cut them to every budget of N tokens.

    Returns lists (questions) of lists (budgets): the text, None for N = 0, ``""`` where nothing was
    retrieved. ``tokenizer`` and ``begin_token`` as in `ragbench.text.tokens.joined_cutoffs`.

    Source: thesis §2.3, §2.4.
    """
    values = as_cutoffs(budgets)
    offsets = as_offsets(tokenizer)
    offsets.warm_chunks(hit.chunk.text for ranking in hits for hit in ranking)
    contexts: list[list[str | None]] = []
    for ranking in hits:
        texts = [hit.chunk.text for hit in ranking]
        joined = " ".join(texts)
        ends = joined_cutoffs(texts, values, offsets, begin_token)
        contexts.append([joined[:end] if n else None for n, end in zip(values, ends, strict=True)])
    return contexts


def generate(
    model: Any,
    questions: Sequence[Question],
    contexts: Sequence[str | None],
    *,
    concurrency: int | None = None,
    with_documents: Prompt = PROMPTS["with_documents"],
    **options: Any,
) -> list[Answer]:
    """Answer each question from its context.

    Parameters
    ----------
    model : a LangChain chat model, a name such as ``"ollama:llama3:8b"``, or an object with
        ``name`` and ``answer(question, context)``, such as a pipeline of your own.
    contexts : one per question; a question that is asked at several budgets is repeated. Such an
        object gets ``""`` for None.
    concurrency : calls under way at once. Default: 1 for Ollama and GGUF files, as the thesis
        measured seconds (Table 3.2), else 4.
    with_documents : prompt id or file, with the fields ``{query}`` and ``{documents}``.
    options : of a chat model, for `ragbench.llm.ask`: ``cassette`` ...

    Returns
    -------
    list of Answer in the order of the questions. A failed call is an Answer with empty text and
    ``meta["error"]``. Where the prompt asks for the tags ``<answer></answer>`` (RAGChecker, App.
    D), the answer is what is between them; a reply without them is an answer as a whole,
    ``meta["tagged"]`` False. ``meta["finish"]`` may be "length".

    Source: thesis §2.4, Figure 2.4 (same inputs and criteria, our own wording).
    """
    _check(questions, contexts)
    if model is None:
        raise not_named("generator", ", or an object with answer(question, context)")
    jobs = list(zip(questions, contexts, strict=True))
    if callable(getattr(model, "answer", None)):
        if given := ", ".join(name for name, value in options.items() if value is not None):
            got = f"{given} for an object that answers"
            raise ConfigError(got, "no options of a chat model", "leave them out")
        return [_answer_of(model, *job) for job in jobs]
    forms = _forms(contexts, with_documents)
    prompts = []
    for question, context in jobs:
        documents = {} if context is None else {"documents": context}
        prompts.append(fill_prompt(forms[context is None].text, query=question.text, **documents))
    defaults: dict[str, Any] = {
        "step": "generation",
        "on_length": "keep",
        "num_predict": BOUNDS["text"],
        "concurrency": concurrency,
        "ids": [f"{q.id}/{'query only' if c is None else 'documents'}" for q, c in jobs],
        "groups": [question.id for question in questions],
    }
    replies = llm.ask(model, prompts, **defaults | options)
    answers = []
    for (question, context), prompt, reply in zip(jobs, prompts, replies, strict=True):
        meta = forms[context is None].meta | {"concurrency": concurrency}
        answers.append(_as_answer(question, prompt, reply, meta))
    return answers


def _forms(contexts: Sequence[str | None], with_documents: Prompt) -> dict[bool, _Form]:
    """Read the prompts that are needed, by whether the query stands alone."""
    prompts = {True: PROMPTS["query_only"], False: with_documents}
    return {alone: _form(prompts[alone]) for alone in {context is None for context in contexts}}


class _Form(NamedTuple):
    """A prompt's text, and what an answer's ``meta`` says of it."""

    text: str
    meta: dict[str, Any]


def _form(prompt: Prompt) -> _Form:
    text = load_prompt(prompt)
    meta: dict[str, Any] = {
        "prompt": os.path.basename(prompt),
        "prompt_sha256": prompt_hash(prompt),
    }
    if "<answer>" in text:
        meta["tagged"] = False
    return _Form(text, meta)


def _as_answer(question: Question, prompt: str, reply: llm.Reply, about: dict[str, Any]) -> Answer:
    about |= {
        "cached": reply.cached,
        "digest": reply.digest,
        "finish": reply.finish,
        "usage": reply.usage.to_dict(),
    }
    about["prompt_estimate"] = prompt_tokens(prompt)  # to be held against the server's own count
    if reply.error is not None:
        about |= {"error": f"{reply.error.kind}: {reply.error.without_address()}", "raw": reply.raw}
    text = reply.text if reply.ok else ""
    if "tagged" in about and (inside := re.search(r"(?si)<answer>(.*?)(?:</answer>|\Z)", text)):
        text = inside[1].strip()
        about["tagged"] = True
    return Answer(question.id, text, reply.model, reply.seconds, about)


def _check(questions: Any, contexts: Any) -> None:
    if isinstance(contexts, str) or isinstance(questions, (str, Question)):
        raise ConfigError(
            "a single question or context",
            "a list of each",
            "generate(model, [question], [context])",
        )
    if len(questions) != len(contexts):
        got = f"{len(contexts)} contexts for {len(questions)} questions"
        raise ConfigError(
            got, "one context (or None) per question", "repeat a question for each of its contexts"
        )
    for question, context in zip(questions, contexts, strict=True):
        if not question.text.strip():
            raise ConfigError(
                f"question {question.id!r} is empty", "some text", "leave empty questions out"
            )
        if not isinstance(context, str | None):
            got = f"the context of question {question.id!r} is {type(context).__name__}"
            raise ConfigError(
                got, "str, or None for the query alone", "take contexts_from_hits(hits, budgets)"
            )


def _answer_of(generator: Any, question: Question, context: str | None) -> Answer:
    """Let an object answer that is no chat model."""
    start = time.perf_counter()
    text = generator.answer(question.text, context or "")
    seconds = time.perf_counter() - start
    if not isinstance(text, str):
        got = f"the generator {generator.name!r} gave {type(text).__name__}"
        raise ModelError(got, "a text", "let it return '' where it has no answer")
    return Answer(question.id, text, generator.name, seconds)
