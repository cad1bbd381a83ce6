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
from ragbench.labelling.asking import Context, LabelStep, context_text, names_of
from ragbench.prompts import load_prompt

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
) -> list[int | None]:
    """Let a model score each candidate: whole numbers from 0 to 10.

    ``candidates``: what is scored: answers, or for context relevance contexts. ``contexts``: for
    faithfulness, and only there. ``options``: see `ragbench.labelling.asking`.

    Source: RAGAS, section 5 (GPT Score; the wording of the prompts is ours).
    """
    columns = {"candidate": candidates}
    names, fields = _fields(dimension, questions, contexts, columns, options)
    step = _step("score", dimension, "candidate", (0, 10))
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
    columns = {"first": first, "second": second}
    names, fields = _fields(dimension, questions, contexts, columns, options)
    turned = {**fields, "first": fields["second"], "second": fields["first"]}
    # a pair's two prompts follow each other: a server reads the context that they share once
    both_orders = {
        name: list(chain(*zip(texts, turned[name], strict=True))) for name, texts in fields.items()
    }
    names = [f"{name} order {order}" for name in names for order in (1, 2)]
    chosen = _step("better", dimension, "first", (1, 2)).ask(model, names, both_orders, options)
    return PairRanking(tuple(zip(chosen[::2], chosen[1::2], strict=True)))


def _step(field: str, dimension: str, needs: str, numbers: tuple[int, int]) -> LabelStep:
    """Return the step that asks for a number: a score, or which is better."""
    kind = {"score": "score", "better": "ranking"}[field]
    prompt = f"steps_gpt_{kind}_{dimension}"
    schema = _number_schema(field, *numbers)
    name = f"gpt_{kind} {dimension}"
    return LabelStep(name, prompt, schema, needs, attrgetter(field), bound="label")


def _fields(
    dimension: str,
    questions: Sequence[str],
    contexts: Sequence[Context] | None,
    columns: dict[str, Sequence[Context]],
    options: dict[str, Any],
) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of the examples, and the texts of the prompt's fields.

    Section 5 shows for faithfulness a context and an answer, for the others the question; a prompt
    of one's own may show it always.
    """
    check_known("dimension", [dimension], DIMENSIONS)
    if (contexts is not None) != (dimension == "faithfulness"):
        got = f"{'contexts' if contexts is not None else 'no contexts'} for {dimension}"
        expected = "contexts for faithfulness; for context relevance they are the candidates"
        raise ConfigError(got, expected)
    names = names_of(options, questions=questions, contexts=contexts, **columns)
    if contexts is not None:
        columns = {"context": contexts, **columns}
    fields = {}
    for field, texts in columns.items():
        named = zip(texts, names, strict=True)
        fields[field] = [context_text(text, name) or "(empty)" for text, name in named]
    own = options.get("prompt")
    if contexts is None or (own and "{question}" in load_prompt(own)):
        fields["question"] = list(questions)
    return names, fields


@cache
def _number_schema(field: str, least: int, most: int) -> type[BaseModel]:
    # Some servers' grammars pass over bounds of whole numbers but keep to an enumeration. The type
    # stays int, since pydantic's Literal would take JSON's true for 1.
    bounded = Field(ge=least, le=most, json_schema_extra={"enum": list(range(least, most + 1))})
    fields: dict[str, Any] = {field: (int, bounded)}
    return create_model(field.title(), __config__=ConfigDict(extra="forbid"), **fields)
