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
from typing import Any

from ragbench import llm
from ragbench.errors import ConfigError, ModelError
from ragbench.llm.models import BOUNDS, not_named
from ragbench.llm.wire import estimate_tokens
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_hash
from ragbench.records import Answer, Hit, Question
from ragbench.text.tokens import TokenOffsets, as_cutoffs, joined_cutoffs

PROMPTS: Mapping[str, str] = {
    "with_documents": "thesis_with_documents",
    "query_only": "thesis_query_only",
}


_SEEN = {True: "query only", False: "documents"}  # by whether the query stands alone


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
    offsets = TokenOffsets.of(tokenizer)
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

    The prompts of one question are asked one after another, the shortest first: a server that has
    read one need not read its beginning again.

    Source: thesis §2.4, Figure 2.4 (same inputs and criteria, our own wording).
    """
    _check(questions, contexts)
    if model is None:
        raise not_named("generator", ", or an object with answer(question, context)")
    if callable(getattr(model, "answer", None)):
        if options_set := ", ".join(name for name, value in options.items() if value is not None):
            got = f"{options_set} for an object that answers"
            raise ConfigError(got, "no options of a chat model", "leave them out")
        return [_answer_of(model, *job) for job in zip(questions, contexts, strict=True)]
    kinds = [PROMPTS["query_only"] if context is None else with_documents for context in contexts]
    prompts = _prompts(questions, contexts, kinds)
    order = _in_order(questions, prompts)
    defaults: dict[str, Any] = {
        "step": "generation",
        "on_length": "keep",
        "num_predict": BOUNDS["text"],
        "concurrency": concurrency,
        "ids": [f"{questions[n].id}/{_SEEN[contexts[n] is None]}" for n in order],
    }
    replies = llm.ask(model, [prompts[n] for n in order], **defaults | options)
    facts = {kind: _facts_of(kind) for kind in set(kinds)}
    answers = {}
    for place, reply in zip(order, replies, strict=True):
        meta = facts[kinds[place]] | {"concurrency": concurrency}
        meta["prompt_estimate"] = estimate_tokens(prompts[place]) + 4  # for the template
        answers[place] = _as_answer(questions[place], reply, meta)
    return [answers[place] for place in range(len(questions))]


def _prompts(
    questions: Sequence[Question], contexts: Sequence[str | None], kinds: Sequence[Prompt]
) -> list[str]:
    texts = {kind: load_prompt(kind) for kind in set(kinds)}
    prompts = []
    for question, context, kind in zip(questions, contexts, kinds, strict=True):
        documents = {} if context is None else {"documents": context}
        prompts.append(fill_prompt(texts[kind], query=question.text, **documents))
    return prompts


def _in_order(questions: Sequence[Question], prompts: Sequence[str]) -> list[int]:
    """Return the places of the prompts, those of one question together, the shortest first."""
    turn = {question.id: place for place, question in enumerate(questions)}
    places = range(len(questions))
    return sorted(places, key=lambda n: (turn[questions[n].id], len(prompts[n])))


def _facts_of(kind: Prompt) -> dict[str, Any]:
    """Return what an answer's ``meta`` says of its prompt."""
    facts = {"prompt": os.path.basename(kind), "prompt_sha256": prompt_hash(kind)}
    return facts | ({"tagged": False} if "<answer>" in load_prompt(kind) else {})


def _as_answer(question: Question, reply: llm.Reply, meta: dict[str, Any]) -> Answer:
    meta |= {
        "cached": reply.cached,
        "digest": reply.digest,
        "finish": reply.finish,
        "usage": reply.usage.to_dict(),
    }
    if reply.error is not None:
        meta |= {"error": f"{reply.error.kind}: {reply.error.without_address()}", "raw": reply.raw}
    text = reply.text if reply.ok else ""
    if "tagged" in meta and (inside := re.search(r"(?si)<answer>(.*?)(?:</answer>|\Z)", text)):
        text = inside[1].strip()
        meta["tagged"] = True
    return Answer(question.id, text, reply.model, reply.seconds, meta)


def _check(questions: Any, contexts: Any) -> None:
    if isinstance(contexts, str) or isinstance(questions, str | Question):
        do = "generate(model, [question], [context])"
        raise ConfigError("a single question or context", "a list of each", do)
    if len(questions) != len(contexts):
        got = f"{len(contexts)} contexts for {len(questions)} questions"
        do = "repeat a question for each of its contexts"
        raise ConfigError(got, "one context (or None) per question", do)
    for question, context in zip(questions, contexts, strict=True):
        if not isinstance(context, str | None):
            got = f"the context of question {question.id!r} is {type(context).__name__}"
            do = "take contexts_from_hits(hits, budgets)"
            raise ConfigError(got, "str, or None for the query alone", do)


def _answer_of(generator: Any, question: Question, context: str | None) -> Answer:
    """Let an object answer that is no chat model."""
    start = time.perf_counter()
    text = generator.answer(question.text, context or "")
    seconds = time.perf_counter() - start
    if not isinstance(text, str):
        got = f"the generator {generator.name!r} gave {type(text).__name__}"
        raise ModelError(got, "a text", "let it return '' where it has no answer")
    return Answer(question.id, text, generator.name, seconds)
