"""What a generator gets to see, and ``generate``: one Answer per question and context, whatever
happens.

A context is a text or None. None (N = 0) means the query alone. An empty text means that documents
were asked for and none came: the prompt with documents, their section empty. The two are different
experiments and never mixed.
"""

from __future__ import annotations

import functools
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
from ragbench.records import Answer, Question

PROMPTS: Mapping[str, str] = {
    "with_documents": "thesis_with_documents",
    "query_only": "thesis_query_only",
}


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
        _refuse_options(options)
        return list(map(functools.partial(_answer_of, model), questions, contexts))
    files = [PROMPTS["query_only"] if context is None else with_documents for context in contexts]
    prompts = _prompts(questions, contexts, files)
    settings: dict[str, Any] = {
        "step": "generation",
        "on_length": "keep",
        "num_predict": BOUNDS["text"],
        "concurrency": concurrency,
    }
    settings |= options
    ids = settings.pop("ids", None)
    if ids is None:
        ids = _names(questions, contexts)
    ids = list(ids)
    if len(ids) != len(prompts):
        raise ConfigError(
            f"{len(ids)} ids for {len(prompts)} prompts", "one per prompt", "check ids"
        )
    replies = _ask_by_question(model, questions, prompts, ids, settings)
    facts = {file: _facts_of(file) | {"concurrency": concurrency} for file in set(files)}
    answers = []
    for question, prompt, file, reply in zip(questions, prompts, files, replies, strict=True):
        answers.append(_as_answer(question, prompt, reply, facts[file]))
    return answers


def _prompts(
    questions: Sequence[Question], contexts: Sequence[str | None], files: Sequence[Prompt]
) -> list[str]:
    texts = {file: load_prompt(file) for file in set(files)}
    prompts = []
    for question, context, file in zip(questions, contexts, files, strict=True):
        fields = {"query": question.text}
        if context is not None:
            fields["documents"] = context
        prompts.append(fill_prompt(texts[file], **fields))
    return prompts


def _names(questions: Sequence[Question], contexts: Sequence[str | None]) -> list[str]:
    names = []
    for question, context in zip(questions, contexts, strict=True):
        shown = "query only" if context is None else "documents"
        names.append(f"{question.id}/{shown}")
    return names


def _ask_by_question(
    model: Any,
    questions: Sequence[Question],
    prompts: Sequence[str],
    ids: Sequence[str],
    settings: Mapping[str, Any],
) -> list[llm.Reply]:
    """Ask the prompts of one question one after another, the shortest first; return the replies in
    the order of the prompts.
    """
    turn = {question.id: place for place, question in enumerate(questions)}
    places = list(range(len(prompts)))
    places.sort(key=lambda place: (turn[questions[place].id], len(prompts[place])))
    in_turn = [prompts[place] for place in places]
    replies = llm.ask(model, in_turn, ids=[ids[place] for place in places], **settings)
    by_place = dict(zip(places, replies, strict=True))
    return [by_place[place] for place in range(len(prompts))]


def _facts_of(file: Prompt) -> dict[str, Any]:
    """Return what an answer's ``meta`` says of its prompt."""
    facts = {"prompt": os.path.basename(file), "prompt_sha256": prompt_hash(file)}
    if "<answer>" in load_prompt(file):
        facts["tagged"] = False
    return facts


def _as_answer(
    question: Question, prompt: str, reply: llm.Reply, facts: Mapping[str, Any]
) -> Answer:
    meta = {
        **facts,
        "prompt_estimate": estimate_tokens(prompt) + 4,  # for the template
        "cached": reply.cached,
        "digest": reply.digest,
        "finish": reply.finish,
        "usage": reply.usage.to_dict(),
    }
    text = reply.text
    if reply.error is not None:
        text = ""
        meta["error"] = f"{reply.error.kind}: {reply.error.without_address()}"
        meta["raw"] = reply.raw
    if "tagged" in meta and (inside := re.search(r"(?si)<answer>(.*?)(?:</answer>|\Z)", text)):
        text = inside[1].strip()
        meta["tagged"] = True
    return Answer(question.id, text, reply.model, reply.seconds, meta)


def _check(questions: Any, contexts: Any) -> None:
    if isinstance(contexts, str) or isinstance(questions, str | Question):
        raise ConfigError(
            "a single question or context",
            "a list of each",
            "generate(model, [question], [context])",
        )
    if len(questions) != len(contexts):
        raise ConfigError(
            f"{len(contexts)} contexts for {len(questions)} questions",
            "one context (or None) per question",
            "repeat a question for each of its contexts",
        )
    for question, context in zip(questions, contexts, strict=True):
        if not isinstance(context, str | None):
            raise ConfigError(
                f"the context of question {question.id!r} is {type(context).__name__}",
                "str, or None for the query alone",
                "join the texts of a question's chunks",
            )


def _refuse_options(options: Mapping[str, Any]) -> None:
    names = [name for name, value in options.items() if value is not None]
    if names:
        raise ConfigError(
            f"{', '.join(names)} for an object that answers",
            "no options of a chat model",
            "leave them out",
        )


def _answer_of(generator: Any, question: Question, context: str | None) -> Answer:
    """Let an object answer that is no chat model."""
    start = time.perf_counter()
    text = generator.answer(question.text, context or "")
    seconds = time.perf_counter() - start
    if not isinstance(text, str):
        raise ModelError(
            f"the generator {generator.name!r} gave {type(text).__name__}",
            "a text",
            "let it return '' where it has no answer",
        )
    return Answer(question.id, text, generator.name, seconds)
