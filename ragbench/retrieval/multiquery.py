"""Multi-query retrieval (thesis: *mlq*): search for several derived questions and join what they
find.

The paper says the derived questions look from different *perspectives*; the published run asked for
a *decomposition* into sub-questions. Both prompts are here, in our own wording.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import PositiveInt

from ragbench.errors import ConfigError, ModelError
from ragbench.llm.models import TWO_WAYS
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_hash
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Retriever, Searcher, ranked


class MultiQuery(Retriever):
    """Union of the hits of several derived questions, in order of first appearance.

    A hit's score is the one it had where it first appeared, so scores need not fall with rank.

    Parameters
    ----------
    decompose : question -> list of questions, to which the original one is not added; see
        `llm_decomposer`. One with ``batch(questions) -> list of lists``, as it has, is called once
        per search.
    k_each : hits per derived question.
    keep : how many of the union are kept at most, whatever ``k``.

    Source: thesis §2.5.3; as run: 10 hits each, union in order of first appearance, 5 kept.
    """

    k_each: PositiveInt
    keep: PositiveInt
    decompose: Callable[..., Any]
    over: Searcher

    def __init__(
        self,
        over: Any,
        decompose: Callable[[str], Sequence[str]] | None = None,
        k_each: int = 10,
        keep: int = 5,
        *,
        k: int = 5,
    ) -> None:
        if decompose is None:
            raise no_decomposer()
        super().__init__(over=over, decompose=decompose, k_each=k_each, keep=keep, k=k)

    def settings(self) -> dict[str, Any]:
        named = {"decomposer": getattr(self.decompose, "__name__", type(self.decompose).__name__)}
        return super().settings() | (
            {} if hasattr(self.decompose, "settings") else {"decompose": named}
        )

    def queries(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the derived questions of each question."""
        batch = getattr(self.decompose, "batch", lambda some: [self.decompose(q) for q in some])
        lists = []
        for question, derived in zip(questions, batch(list(questions)), strict=True):
            usable = isinstance(derived, list | tuple) and all(isinstance(q, str) for q in derived)
            queries = [q.strip() for q in derived if q.strip()] if usable else []
            if not queries:
                got = f"no derived question for {question!r}: the decomposer returned {derived!r}"
                do = "check the model's reply, or the prompt"
                raise ModelError(got, "a list of at least one question", do)
            lists.append(list(dict.fromkeys(queries)))
        return lists

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        derived = self.queries(queries)
        hit_lists = iter(self.over.search(list(itertools.chain(*derived)), self.k_each))
        hits = []
        for of_query in derived:
            first: dict[str, tuple[Chunk, float]] = {}
            for hit in itertools.chain.from_iterable(itertools.islice(hit_lists, len(of_query))):
                first.setdefault(hit.chunk.id, (hit.chunk, hit.score))
            hits.append(ranked(first.values())[: min(k, self.keep)])
        return hits


def model_calls(retriever: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield what a retriever, or one inside it, asks a model of: its step, calls a question, what
    has the model.
    """
    if hasattr(decompose := getattr(retriever, "decompose", None), "model"):
        yield "decompose", 1, decompose
    for inner in _inner(retriever):
        yield from model_calls(inner)


def dense_searches(retriever: Any, queries: Sequence[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yield every retriever with vectors that one is, or has inside, with its queries as far as
    they are known.
    """
    if hasattr(retriever, "nearest"):
        yield retriever, list(queries)
    if hasattr(retriever, "decompose"):
        queries = []  # what a model derives costs, and is known only when it is asked
    for inner in _inner(retriever):
        yield from dense_searches(inner, queries)


def _inner(retriever: Any) -> list[Any]:
    over = getattr(retriever, "over", [])
    return over if isinstance(over, list) else [over]


class _LLMDecomposer:
    """question -> derived questions by a chat model, for ``MultiQuery``; arguments as of
    `ragbench.llm.ask`.

    ``prompt`` is ``"decomposition"`` (as the thesis was run), ``"perspectives"`` (as it says), or
    the path of a text file with the field ``{question}``.
    """

    def __init__(
        self, model: Any, prompt: Prompt = "decomposition", cassette: Any = None, **options: Any
    ) -> None:
        self.model = model
        self.cassette = cassette
        self.options = options
        self.prompt = (
            f"multiquery_{prompt}" if prompt in ("perspectives", "decomposition") else prompt
        )
        self._text = load_prompt(self.prompt)

    def settings(self) -> dict[str, Any]:
        """Return what can change the derived questions, ready for JSON."""
        from ragbench.llm import model_name

        settings = {"decomposer": "llm", "model": model_name(self.model)}
        return settings | {
            "prompt": os.path.basename(self.prompt),
            "prompt_sha256": prompt_hash(self.prompt),
        }

    def __call__(self, question: str) -> list[str]:
        return self.batch([question])[0]

    def batch(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the derived questions of many questions; ModelError where the reply to one failed
        or held no line.
        """
        from ragbench.llm import ask
        from ragbench.llm.models import BOUNDS

        options = {"num_predict": BOUNDS["text"], **self.options}
        prompts = [fill_prompt(self._text, question=question) for question in questions]
        replies = ask(self.model, prompts, cassette=self.cassette, step="decompose", **options)
        lists = [_parse_queries(reply.text) if reply.ok else [] for reply in replies]
        if failed := [i for i, derived in enumerate(lists) if not derived]:
            reply = replies[failed[0]]
            reason = f"holds no question: {reply.text!r}" if reply.ok else f"failed: {reply.error}"
            got = (
                f"{len(failed)} of {len(questions)} questions got no derived questions; the reply "
                f"to {questions[failed[0]]!r} {reason}"
            )
            do = "run again with the same cassette: only the failed ones are asked again"
            raise ModelError(got, "one derived question per line", do)
        return lists


llm_decomposer = _LLMDecomposer


def make_decomposer(name: str, cassette: Any = None, **options: Any) -> _LLMDecomposer:
    """Make a decomposer of a chat model by its name; ``options`` are of
    `ragbench.llm.chat_model`.
    """
    from ragbench.llm import chat_model

    return _LLMDecomposer(chat_model(name, **options), cassette=cassette)


def no_decomposer() -> ConfigError:
    """Build the error of multi-query retrieval without a model that writes its queries, with the
    ways to one.
    """
    expected = "decompose=rb.llm_decomposer(model), or decompose: NAME in an experiment.yaml"
    return ConfigError("MLQ has no model that writes its sub-questions", expected, TWO_WAYS)


def _parse_queries(text: str) -> list[str]:
    """Read one query per line, without numbers, bullets, quotes, and lines that end with a colon.

    >>> _parse_queries('Here they are:\\n1. Who wrote Emma?\\n- "When was she born?"')
    ['Who wrote Emma?', 'When was she born?']
    """
    queries = []
    for line in text.splitlines():
        line = (
            re.sub(r"^\s*(?:[-*•–]\s+|\(?\d{1,2}[.):]\s*)?", "", line)
            .strip()
            .strip("\"'“”`*")
            .strip()
        )
        if line and not line.endswith(":"):
            queries.append(line)
    return list(dict.fromkeys(queries))
