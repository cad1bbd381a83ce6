"""Multi-query retrieval (thesis: *mlq*): search for several derived questions and join what they
find.

The paper says the derived questions look from different *perspectives*; the published run asked for
a *decomposition* into sub-questions. Both prompts are here, in our own wording.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import PositiveInt

from ragbench.errors import ConfigError, ModelError
from ragbench.llm.models import TWO_WAYS
from ragbench.prompts import (
    Prompt,
    fill_prompt,
    load_prompt,
    names_demonstration,
    prompt_hash,
)
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Retriever, Searcher

log = logging.getLogger(__name__)
_BULLET = re.compile(r"^\s*(?:[-*•–]\s+|\(?\d{1,2}[.):]\s*)?")  # or a number
_QUOTES = "\"'“”`*"


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

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> mlq = rb.MultiQuery(rb.BM25(chunks), lambda question: question.split(" and "))
    >>> hits = mlq.search(["Who built the mill and how deep is the lake?"], k=2)[0]
    >>> [hit.chunk.id for hit in hits]
    ['1', '2']
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
        self.check_decomposer(decompose)
        super().__init__(over=over, decompose=decompose, k_each=k_each, keep=keep, k=k)

    @staticmethod
    def check_decomposer(decompose: Any) -> None:
        """Refuse to go without a model that writes queries, with the ways to one."""
        if decompose is None:
            raise ConfigError(
                "MLQ has no model that writes its sub-questions",
                "decompose=rb.llm_decomposer(model), or decompose: NAME in an experiment.yaml",
                TWO_WAYS,
            )

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        if not hasattr(self.decompose, "settings"):
            name = getattr(self.decompose, "__name__", type(self.decompose).__name__)
            settings["decompose"] = {"decomposer": name}
        return settings

    def queries(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the derived questions of each question."""
        if hasattr(self.decompose, "batch"):
            lists = self.decompose.batch(list(questions))
        else:
            lists = [self.decompose(question) for question in questions]
        return [_usable(*pair) for pair in zip(questions, lists, strict=True)]

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        lists = self.queries(queries)
        every = list(itertools.chain.from_iterable(lists))
        hits_of_each = iter(self.over.search(every, self.k_each))
        hits = []
        for derived in lists:
            first: dict[str, tuple[Chunk, float]] = {}  # by chunk: where it first appeared
            for of_one in itertools.islice(hits_of_each, len(derived)):
                for hit in of_one:
                    first.setdefault(hit.chunk.id, (hit.chunk, hit.score))
            hits.append(Hit.ranked(first.values())[: min(k, self.keep)])
        return hits


def _usable(question: str, derived: Any) -> list[str]:
    """Return each different derived question once; ModelError where there is none, or no list."""
    queries: list[str] = []
    if isinstance(derived, list | tuple) and all(isinstance(query, str) for query in derived):
        stripped = (query.strip() for query in derived)
        queries = [query for query in dict.fromkeys(stripped) if query]
    if not queries:
        raise ModelError(
            f"no derived question for {question!r}: the decomposer returned {derived!r}",
            "a list of at least one question",
            "check the model's reply, or the prompt",
        )
    return queries


class llm_decomposer:  # noqa: N801 (called as a function is)
    """question -> derived questions by a chat model, for ``MultiQuery``; arguments as of
    `ragbench.llm.ask`.

    ``prompt`` is ``"decomposition"`` (as the thesis was run), ``"perspectives"`` (as it says), or
    the path of a text file with the field ``{question}``.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> model = FakeListChatModel(responses=["Who built it?\\nWhen did it burn?"])
    >>> rb.llm_decomposer(model, progress=False)("Who built it, and when did it burn?")
    ['Who built it?', 'When did it burn?']
    """

    def __init__(
        self, model: Any, prompt: Prompt = "decomposition", cassette: Any = None, **options: Any
    ) -> None:
        if prompt in ("perspectives", "decomposition"):
            prompt = f"multiquery_{prompt}"
        self.model = model
        self.cassette = cassette
        self.options = options
        self.prompt = prompt
        self._text = load_prompt(prompt)

    def settings(self) -> dict[str, Any]:
        """Return what can change the derived questions, ready for JSON."""
        from ragbench.llm import model_name

        return {
            "decomposer": "llm",
            "model": model_name(self.model),
            "prompt": os.path.basename(self.prompt),
            "prompt_sha256": prompt_hash(self.prompt),
        }

    def __call__(self, question: str) -> list[str]:
        return self.batch([question])[0]

    def batch(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the derived questions of many questions; ModelError where the reply to one failed
        or held no line.

        A derived question with a name that only the prompt's examples have is left out, counted in
        the log.
        """
        from ragbench.llm import ask
        from ragbench.llm.models import BOUNDS

        options = {"num_predict": BOUNDS["text"], **self.options}
        prompts = [fill_prompt(self._text, question=question) for question in questions]
        replies = ask(self.model, prompts, cassette=self.cassette, step="decompose", **options)
        lists = []
        failures = []
        leaked = 0
        for question, prompt, reply in zip(questions, prompts, replies, strict=True):
            derived = []
            for query in _parse_queries(reply.text):
                if names_demonstration(query, self._text, prompt):
                    leaked += 1
                else:
                    derived.append(query)
            lists.append(derived)
            if not reply.ok:
                failures.append(f"{question!r} failed: {reply.error}")
            elif not derived:
                failures.append(f"{question!r} holds no question: {reply.text!r}")
        if leaked:
            log.warning(
                "%s derived questions name what only the examples of their prompt name, and are "
                "left out",
                leaked,
            )
        if failures:
            raise ModelError(
                f"{len(failures)} of {len(questions)} questions got no derived questions; "
                f"the reply to {failures[0]}",
                "one derived question per line",
                "run again with the same cassette: only the failed ones are asked again",
            )
        return lists


def _parse_queries(text: str) -> list[str]:
    """Read one query per line, without numbers, bullets, quotes, and lines that end with a colon.

    >>> _parse_queries('Here they are:\\n1. Who wrote Emma?\\n- "When was she born?"')
    ['Who wrote Emma?', 'When was she born?']
    """
    queries = []
    for line in text.splitlines():
        line = _BULLET.sub("", line).strip().strip(_QUOTES).strip()
        if line and not line.endswith(":"):
            queries.append(line)
    return list(dict.fromkeys(queries))
