"""Multi-query retrieval (thesis: *mlq*): search for several derived questions and join what they find.

The paper says the derived questions look from different *perspectives*; the published run asked for a *decomposition*
into sub-questions. Both prompts are here, in our own wording. Rules replace the language model where there is none:
their numbers are not the thesis's MLQ, and everything they feed says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import PositiveInt

from ragbench.errors import ModelError
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_hash
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Retriever, Scopes, Searcher, ranked
from ragbench.text.words import STOP_WORDS


class MultiQuery(Retriever):
    """Union of the hits of several derived questions, in order of first appearance.

    A hit's score is the one it had where it first appeared, so scores need not fall with rank.

    Parameters
    ----------
    decompose : question -> list of questions, to which the original one is not added. One with ``batch(questions) ->
        list of lists``, as of ``llm_decomposer``, is called once per search.
    k_each : hits per derived question.
    keep : how many of the union are kept at most, whatever ``k``.

    Source: thesis §2.5.3; as run: 10 hits each, union in order of first appearance, 5 kept.
    """

    k_each: PositiveInt
    keep: PositiveInt
    decompose: Callable[..., Any]
    over: Searcher

    def __init__(
        self, over: Any, decompose: Callable[[str], Sequence[str]], k_each: int = 10, keep: int = 5, *, k: int = 5
    ) -> None:
        super().__init__(over=over, decompose=decompose, k_each=k_each, keep=keep, k=k)

    def settings(self) -> dict[str, Any]:
        named = {"decomposer": getattr(self.decompose, "__name__", type(self.decompose).__name__)}
        return super().settings() | ({} if hasattr(self.decompose, "settings") else {"decompose": named})

    def queries(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the derived questions of each question."""
        batch = getattr(self.decompose, "batch", None)
        derived = batch(list(questions)) if callable(batch) else [self.decompose(q) for q in questions]
        lists = []
        for question, asked in zip(questions, derived, strict=True):
            usable = isinstance(asked, list | tuple) and all(isinstance(q, str) for q in asked)
            lists.append(list(dict.fromkeys(q.strip() for q in asked if q.strip())) if usable else [])
            if not lists[-1]:
                got = f"no derived question for {question!r}: the decomposer returned {asked!r}"
                raise ModelError(got, "a list of at least one question", "check the model's reply, or the prompt")
        return lists

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        derived = self.queries(queries)
        flat = [q for asked in derived for q in asked]
        flat_scopes = None if scopes is None else [s for s, asked in zip(scopes, derived, strict=True) for _ in asked]
        found = iter(self.over.search(flat, self.k_each, flat_scopes))
        hits = []
        for asked in derived:
            first: dict[str, tuple[Chunk, float]] = {}
            for hit in (hit for _ in asked for hit in next(found)):
                first.setdefault(hit.chunk.id, (hit.chunk, hit.score))
            hits.append(ranked(first.values())[: min(k, self.keep)])
        return hits


def model_calls(retriever: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield what a retriever, or one inside it, asks a model of: its step, calls a question, what has the model."""
    if hasattr(decompose := getattr(retriever, "decompose", None), "model"):
        yield "decompose", 1, decompose
    if hasattr(scorer := getattr(retriever, "scorer", None), "model"):
        yield "rerank", retriever.depth, scorer
    for inner in _inner(retriever):
        yield from model_calls(inner)


def dense_searches(retriever: Any, queries: Sequence[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yield every retriever with vectors that one is, or has inside, with its queries as far as they are known."""
    if hasattr(retriever, "nearest"):
        yield retriever, list(queries)
    if decompose := getattr(retriever, "decompose", None):
        # The rules can be asked beforehand; what a model or a function of one's own derives costs, and may differ.
        by_rule = decompose is rule_decomposer
        queries = [query for derived in retriever.queries(queries) for query in derived] if by_rule else []
    for inner in _inner(retriever):
        yield from dense_searches(inner, queries)


def _inner(retriever: Any) -> list[Any]:
    over = getattr(retriever, "over", [])
    return over if isinstance(over, list) else [over]


class _LLMDecomposer:
    """question -> derived questions by a chat model, for ``MultiQuery``; arguments as of `ragbench.llm.ask`.

    ``prompt`` is ``"decomposition"`` (as the thesis was run), ``"perspectives"`` (as it says), or the path of a text
    file with the field ``{question}``.
    """

    def __init__(self, model: Any, prompt: Prompt = "decomposition", cassette: Any = None, **options: Any) -> None:
        self.model, self.cassette, self.options = model, cassette, options
        self.prompt = f"multiquery_{prompt}" if prompt in ("perspectives", "decomposition") else prompt
        self._text = load_prompt(self.prompt)

    def settings(self) -> dict[str, Any]:
        """Return what can change the derived questions, ready for JSON."""
        from ragbench.llm import model_name

        about = {"decomposer": "llm", "model": model_name(self.model)}
        return about | {"prompt": os.path.basename(self.prompt), "prompt_sha256": prompt_hash(self.prompt)}

    def __call__(self, question: str) -> list[str]:
        return self.batch([question])[0]

    def batch(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the derived questions of many questions; ModelError where the reply to one failed or held no line."""
        from ragbench.llm import ask
        from ragbench.llm.models import BOUNDS

        options = {"cassette": self.cassette, "step": "decompose", "num_predict": BOUNDS["text"], **self.options}
        replies = ask(self.model, [fill_prompt(self._text, question=q) for q in questions], **options)
        lists = [_parse_queries(reply.text) if reply.ok else [] for reply in replies]
        if failed := [i for i, asked in enumerate(lists) if not asked]:
            reply = replies[failed[0]]
            reason = f"holds no question: {reply.text!r}" if reply.ok else f"failed: {reply.error}"
            got = f"{len(failed)} of {len(questions)} questions got no derived questions; the reply to "
            do = "run again with the same cassette: only the failed ones are asked again"
            raise ModelError(f"{got}{questions[failed[0]]!r} {reason}", "one derived question per line", do)
        return lists


llm_decomposer = _LLMDecomposer


def _parse_queries(text: str) -> list[str]:
    """Read one query per line, without numbers, bullets, quotes, and lines that end with a colon.

    >>> _parse_queries('Here they are:\\n1. Who wrote Emma?\\n- "When was she born?"')
    ['Who wrote Emma?', 'When was she born?']
    """
    queries = []
    for line in text.splitlines():
        line = re.sub(r"^\s*(?:[-*•–]\s+|\(?\d{1,2}[.):]\s*)?", "", line).strip().strip("\"'“”`*").strip()
        if line and not line.endswith(":"):
            queries.append(line)
    return list(dict.fromkeys(queries))


_QUOTED = re.compile(r"[\"“]([^\"”]{2,80})[\"”]")
_NAME = re.compile(r"[^\W\d_a-z][\w.'’&-]*(?:\s+(?:(?:of|the|de|la|von|van|du|and)\s+){0,2}[A-Z0-9][\w.'’&-]*)*")
_CLAUSE = re.compile(r",\s+|\s+(?:that|which|who|whom|whose|where|when|while|by the|and is|and was)\s+")
_COMPARES = re.compile(r"\b(?:both|same|older|younger|earlier|first|more|larger|longer|or)\b", re.IGNORECASE)


def rule_decomposer(question: str) -> list[str]:
    """Derive up to four queries of an English question by rules; no substitute for the model of the thesis.

    A question that compares named things gives one query per name, with the question's other content words; any other
    is cut at relative pronouns and commas, and its names are added.
    """
    text = question.strip().rstrip("?.! ")
    names = _names(text)
    parts = [part for name in names for part in re.split(r"\s+and\s+", name)]
    if len(parts) >= 2 and _COMPARES.search(text):
        rest = text
        for part in parts:
            rest = rest.replace(part, " ")
        topic = " ".join(_content(rest))
        return [f"{part} {topic}".strip() for part in dict.fromkeys(parts)][:4]
    clauses = [clause.strip() for clause in _CLAUSE.split(text) if len(_content(clause)) >= 2]
    if len(clauses) < 2:
        clauses = [*names, " ".join(_content(text))]
    return list(dict.fromkeys(c for c in clauses if c))[:4] or [text or question]


rule_decomposer.settings = lambda: {"decomposer": "rules (stand-in, no LLM)"}  # type: ignore[attr-defined]


def _content(text: str) -> list[str]:
    return [w for w in re.findall(r"\w[\w'’-]*", text) if w.lower() not in STOP_WORDS]


def _names(text: str) -> list[str]:
    """Return quoted titles and runs of capitalised words, in order, without the function words that open a question."""
    names = [m.group(1) for m in _QUOTED.finditer(text)]
    for match in _NAME.finditer(_QUOTED.sub(" ; ", text)):
        words = match.group().split()
        while match.start() == 0 and words and words[0].lower() in STOP_WORDS:
            words = words[1:]
        name = " ".join(words).strip(".'’&-")
        if name and not name.isdigit():
            names.append(name)
    return list(dict.fromkeys(names))
