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
from dataclasses import dataclass
from typing import Any, Unpack

from langchain_core.language_models.chat_models import BaseChatModel

from ragbench import llm
from ragbench.errors import ConfigError, ModelError
from ragbench.llm.asking import AskOptions
from ragbench.llm.models import BOUNDS, not_named
from ragbench.llm.wire import estimate_tokens
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_hash
from ragbench.records import Answer, Question

PROMPTS: Mapping[str, str] = {
    "with_documents": "thesis_with_documents",
    "query_only": "thesis_query_only",
}


@dataclass(frozen=True, slots=True)
class _Request:
    """One prompt to a chat model, and what it is of."""

    question: Question
    file: Prompt
    text: str
    id: str


def generate(
    model: Any,
    questions: Sequence[Question],
    contexts: Sequence[str | None],
    *,
    with_documents: Prompt = PROMPTS["with_documents"],
    **options: Unpack[AskOptions],
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
    a ``failure``. Where the prompt asks for the tags ``<answer></answer>`` (RAGChecker, App.
    D), the answer is what is between them; a reply without them is an answer as a whole,
    ``meta["tagged"]`` False. ``meta["finish"]`` may be "length".

    The prompts of one question are asked one after another, the shortest first: a server that has
    read one need not read its beginning again.

    Source: thesis §2.4, Figure 2.4 (same inputs and criteria, our own wording).

    >>> from langchain_core.language_models import FakeListChatModel
    >>> questions = [rb.Question("q1", "Who built the mill?", "Ada")]
    >>> model = FakeListChatModel(responses=["Ada built it."])
    >>> rb.generate(model, questions, ["Ada built the mill."], progress=False)[0].text
    'Ada built it.'
    """
    _check(questions, contexts)
    if model is None:
        raise not_named("generator", ", or an object with answer(question, context)")
    if not isinstance(model, str | Mapping | BaseChatModel):
        if not (hasattr(model, "answer") and isinstance(getattr(model, "name", None), str)):
            raise ConfigError(
                f"the generator {model!r:.60}",
                "a chat model, its name, or an object with name and answer(question, context)",
                "give it both, for instance class Mine: name = 'mine'; def answer(self, ...)",
            )
        _refuse_options(options)
        return list(map(functools.partial(_answer_of, model), questions, contexts))
    requests = _requests(questions, contexts, with_documents, options.get("ids"))
    settings: AskOptions = {
        "step": "generation",
        "on_length": "keep",
        "num_predict": BOUNDS["text"],
        **options,
    }
    replies = _ask_by_question(model, requests, settings)
    shared = {"concurrency": options.get("concurrency")}
    return [
        _as_answer(request, reply, shared) for request, reply in zip(requests, replies, strict=True)
    ]


def _requests(
    questions: Sequence[Question],
    contexts: Sequence[str | None],
    with_documents: Prompt,
    ids: Sequence[str] | None,
) -> list[_Request]:
    requests = []
    for place, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        file = with_documents
        kind = "documents"
        fields = {"query": question.text}
        if context is None:
            file = PROMPTS["query_only"]
            kind = "query only"
        else:
            fields["documents"] = context
        name = f"{question.id}/{kind}" if ids is None else ids[place]
        requests.append(_Request(question, file, fill_prompt(load_prompt(file), **fields), name))
    return requests


def _ask_by_question(
    model: Any, requests: Sequence[_Request], settings: AskOptions
) -> list[llm.Reply]:
    """Ask the prompts of one question one after another, the shortest first; return the replies in
    the order of the requests.
    """
    turn = {request.question.id: place for place, request in enumerate(requests)}
    in_turn = sorted(requests, key=lambda each: (turn[each.question.id], len(each.text)))
    settings["ids"] = [request.id for request in in_turn]
    replies = llm.ask(model, [request.text for request in in_turn], **settings)
    of_request = dict(zip(map(id, in_turn), replies, strict=True))
    return [of_request[id(request)] for request in requests]


@functools.lru_cache(maxsize=64)
def _facts_of(file: Prompt) -> dict[str, Any]:
    """Return what an answer's ``meta`` says of its prompt."""
    facts: dict[str, Any] = {"prompt": os.path.basename(file), "prompt_sha256": prompt_hash(file)}
    if "<answer>" in load_prompt(file):
        facts["tagged"] = False
    return facts


def _as_answer(request: _Request, reply: llm.Reply, shared: Mapping[str, Any]) -> Answer:
    meta = {
        **_facts_of(request.file),
        **shared,
        "held": reply.held,
        "prompt_estimate": estimate_tokens(request.text) + 4,  # for the template
        "cached": reply.cached,
        "digest": reply.digest,
        "finish": reply.finish,
        "usage": reply.usage.to_dict(),
    }
    text = reply.text
    failure = None
    if reply.error is not None:
        text = ""
        failure = reply.error.failure()
        meta["raw"] = reply.raw
    if "tagged" in meta and (inside := re.search(r"(?si)<answer>(.*?)(?:</answer>|\Z)", text)):
        text = inside[1].strip()
        meta["tagged"] = True
    return Answer(request.question.id, text, reply.model, reply.seconds, meta, failure)


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


def _refuse_options(options: Mapping[str, Any]) -> None:
    names = [name for name, value in options.items() if value is not None]
    if names:
        raise ConfigError(
            f"{', '.join(names)} for an object that answers",
            "no options of a chat model",
            "leave them out",
        )


def _answer_of(generator: Any, question: Question, context: str | None) -> Answer:
    """Let an object answer that is not a chat model."""
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
