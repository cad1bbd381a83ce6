"""Preferences: RAGAS's two baselines, a score from 0 to 10 (GPT Score) and the better of two (GPT
Ranking).

The paper's ranking asks once per pair. Here both orders are asked: a model that prefers whatever
comes first shows it, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from ragbench.errors import ConfigError, check_known
from ragbench.labelling.asking import Context, LabelStep
from ragbench.prompts import load_prompt
from ragbench.stats.inputs import same_length

Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]
DIMENSIONS = ("faithfulness", "answer_relevance", "context_relevance")


@dataclass(frozen=True, slots=True)
class PairRanking:
    """Which of two was better, asked in both orders."""

    # of each pair the place chosen (1 or 2), with the first candidate shown first and shown second;
    # None: unread
    choices: tuple[tuple[int | None, int | None], ...]

    @property
    def preferences(self) -> tuple[float | None, ...]:
        """For each pair 1.0 (the first is better in both orders), 0.0 (the second), 0.5 (it
        varies), None (unread).
        """
        shares: list[float | None] = []
        for shown_first, shown_second in self.choices:
            share = None
            if shown_first is not None and shown_second is not None:
                share = ((shown_first == 1) + (shown_second == 2)) / 2
            shares.append(share)
        return tuple(shares)

    @property
    def position_bias(self) -> float:
        """Share of choices for the place shown first, minus 1/2, over the pairs read in both orders
        (NaN: none).
        """
        read = [pair for pair in self.choices if None not in pair]
        if not read:
            return float("nan")
        return sum(pair.count(1) for pair in read) / (2 * len(read)) - 0.5


def gpt_score(
    model: Any,
    dimension: Dimension,
    questions: Sequence[str],
    candidates: Sequence[Context],
    contexts: Sequence[Context] | None = None,
    **options: Any,
) -> list[int | None]:
    """Let a model score each candidate: whole numbers from 0 to 10.

    ``candidates``: what is scored: answers, or for context relevance contexts. ``contexts``: for
    faithfulness, and only there. ``options``: see `ragbench.labelling.asking`.

    Source: RAGAS, section 5 (GPT Score; the wording of the prompts is ours).
    """
    columns = _columns(dimension, questions, contexts, options, candidate=candidates)
    step = _step("gpt_score", dimension, "candidate", "score", range(11))
    return step.ask(model, options, **columns)


def gpt_ranking(
    model: Any,
    dimension: Dimension,
    questions: Sequence[str],
    first: Sequence[Context],
    second: Sequence[Context],
    contexts: Sequence[Context] | None = None,
    **options: Any,
) -> PairRanking:
    """Let a model choose the better of two candidates, in both orders: two calls per pair.

    ``first``, ``second``: the candidates, shape (n,) each; the others as for `gpt_score`.

    Source: RAGAS, section 5 (GPT Ranking); Wang et al. 2023 on the order of candidates, as cited
    there.
    """
    columns = _columns(dimension, questions, contexts, options, first=first, second=second)
    # a pair's two prompts follow each other: a server reads the context that they share once
    twice = {}
    for field, texts in columns.items():
        twice[field] = list(chain.from_iterable(zip(texts, texts, strict=True)))
    twice["first"][1::2] = second
    twice["second"][1::2] = first
    ids = []
    for name in options.get("ids", range(len(questions))):
        ids += [f"{name} order 1", f"{name} order 2"]
    options["ids"] = ids
    step = _step("gpt_ranking", dimension, "first", "better", range(1, 3))
    chosen = step.ask(model, options, **twice)
    return PairRanking(tuple(zip(chosen[::2], chosen[1::2], strict=True)))


def _step(name: str, dimension: str, needs: str, field: str, numbers: range) -> LabelStep:
    """Return the step that asks for a number: a score, or which is better."""
    return LabelStep(
        f"{name} {dimension}",
        f"steps_{name}_{dimension}",
        _number_schema(field, numbers),
        needs,
        attrgetter(field),
        bound="label",
        empty="(empty)",
    )


def _columns(
    dimension: str,
    questions: Sequence[str],
    contexts: Sequence[Context] | None,
    options: Mapping[str, Any],
    **candidates: Sequence[Context],
) -> dict[str, Sequence[Context]]:
    """Return the texts of the prompt's fields.

    Section 5 shows for faithfulness a context and an answer, for the others the question; a prompt
    of one's own may show it always.
    """
    check_known("dimension", [dimension], DIMENSIONS)
    has_contexts = contexts is not None
    if has_contexts != (dimension == "faithfulness"):
        raise ConfigError(
            f"{'contexts' if has_contexts else 'no contexts'} for {dimension}",
            "contexts for faithfulness; for context relevance they are the candidates",
        )
    same_length(questions=questions, **candidates)
    own = options.get("prompt")
    columns = dict(candidates)
    if not has_contexts or (own and "{question}" in load_prompt(own)):
        columns["question"] = questions
    if has_contexts:
        columns["context"] = contexts
    return columns


@cache
def _number_schema(field: str, numbers: range) -> type[BaseModel]:
    # Some servers' grammars pass over bounds of whole numbers but keep to an enumeration. The type
    # stays int, since pydantic's Literal would take JSON's true for 1.
    listed = {"enum": list(numbers)}
    number = (int, Field(ge=numbers[0], le=numbers[-1], json_schema_extra=listed))
    fields: dict[str, Any] = {field: number}
    return create_model(field.title(), __config__=ConfigDict(extra="forbid"), **fields)
