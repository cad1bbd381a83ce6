"""Preferences: RAGAS's two baselines, a score from 0 to 10 (GPT Score) and the better of two (GPT
Ranking).

The paper's ranking asks once per pair. Here both orders are asked: a model that prefers whatever
comes first shows it, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from ragbench.errors import ConfigError, check_known
from ragbench.labelling.asking import (
    Context,
    LabelResult,
    LabelStep,
    StepReport,
    context_text,
    names_of,
)
from ragbench.prompts import load_prompt

Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]
DIMENSIONS = ("faithfulness", "answer_relevance", "context_relevance")


@dataclass(frozen=True, slots=True)
class PairRanking:
    """Which of two was better, asked in both orders."""

    # of each pair the place chosen (1 or 2), with the first candidate shown first and shown second;
    # None: unread
    choices: tuple[tuple[int | None, int | None], ...]
    report: StepReport

    @property
    def preferences(self) -> tuple[float | None, ...]:
        """For each pair 1.0 (the first is better in both orders), 0.0 (the second), 0.5 (it
        varies), None (unread).
        """
        return tuple(
            None if None in pair else ((pair[0] == 1) + (pair[1] == 2)) / 2 for pair in self.choices
        )

    @property
    def position_bias(self) -> float:
        """Share of choices for the place shown first, minus 1/2, over the pairs read in both orders
        (NaN: none).
        """
        read = [choice for pair in self.choices if None not in pair for choice in pair]
        return read.count(1) / len(read) - 0.5 if read else float("nan")


def gpt_score(
    model: Any,
    dimension: Dimension,
    questions: Sequence[str],
    candidates: Sequence[Context],
    contexts: Sequence[Context] | None = None,
    **options: Any,
) -> LabelResult:
    """Let a model score each candidate: whole numbers from 0 to 10.

    ``candidates``: what is scored: answers, or for context relevance contexts. ``contexts``: for
    faithfulness, and only there. ``options``: see `ragbench.labelling.asking`.

    Source: RAGAS, section 5 (GPT Score; the wording of the prompts is ours).
    """
    step = _step("score", dimension, options)
    names = names_of(options, questions=questions, candidates=candidates, contexts=contexts)
    fields = _fields(step, dimension, names, questions, contexts, candidate=candidates)
    return step.ask(model, names, fields, options)


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
    step = _step("ranking", dimension, options)
    names = names_of(options, questions=questions, first=first, second=second, contexts=contexts)
    fields = _fields(step, dimension, names, questions, contexts, first=first, second=second)
    turned = {**fields, "first": fields["second"], "second": fields["first"]}
    both_orders = {
        name: list(chain(*zip(fields[name], turned[name], strict=True))) for name in fields
    }
    names = [f"{name} order {order}" for name in names for order in (1, 2)]
    chosen = step.ask(model, names, both_orders, options)
    choices = tuple(zip(chosen.labels[::2], chosen.labels[1::2], strict=True))
    return PairRanking(choices, chosen.report)


def _step(kind: str, dimension: str, options: dict[str, Any]) -> LabelStep:
    check_known("dimension", [dimension], DIMENSIONS)
    prompt = options.pop("prompt", f"steps_gpt_{kind}_{dimension}")
    field, needs, numbers = ("score", "candidate", (0, 10))
    if kind == "ranking":
        field, needs, numbers = ("better", "first", (1, 2))
    schema = _number_schema(field, *numbers)
    name = f"gpt_{kind} {dimension}"
    return LabelStep(name, prompt, schema, needs, attrgetter(field), bound="label")


def _fields(
    step: LabelStep,
    dimension: str,
    names: Sequence[str],
    questions: Sequence[str],
    contexts: Sequence[Context] | None,
    **columns: Sequence[Context],
) -> dict[str, list[str]]:
    """Return the texts of the prompt's fields."""
    if (contexts is not None) != (dimension == "faithfulness"):
        got = f"{'contexts' if contexts is not None else 'no contexts'} for {dimension}"
        expected = "contexts for faithfulness; for context relevance they are the candidates"
        raise ConfigError(got, expected)
    if contexts is not None:
        columns = {"context": contexts, **columns}
    fields = {}
    for field, texts in columns.items():
        named = zip(texts, names, strict=True)
        fields[field] = [context_text(text, name) or "(empty)" for text, name in named]
    # Section 5 shows for faithfulness a context and an answer; a prompt of one's own may show the
    # question too.
    if contexts is None or "{question}" in load_prompt(step.prompt):
        fields["question"] = list(questions)
    return fields


@cache
def _number_schema(field: str, least: int, most: int) -> type[BaseModel]:
    # Some servers' grammars pass over bounds of whole numbers but keep to an enumeration. The type
    # stays int, since pydantic's Literal would take JSON's true for 1.
    bounded = Field(ge=least, le=most, json_schema_extra={"enum": list(range(least, most + 1))})
    fields: dict[str, Any] = {field: (int, bounded)}
    return create_model(field.title(), __config__=ConfigDict(extra="forbid"), **fields)
