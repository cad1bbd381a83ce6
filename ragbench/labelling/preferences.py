"""The better of two texts by a model, asked in both orders: a model that prefers whatever comes
first shows it, and decides nothing.

RAGAS's GPT Ranking asks once a pair, see notebook 30.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pandas as pd
from pydantic import BaseModel, Field

from ragbench.labelling.asking import Context, LabelStep
from ragbench.prompts import Prompt
from ragbench.stats.inputs import same_length


# Some servers' grammars pass over bounds of whole numbers but keep to an enumeration. The type
# stays int, since pydantic's Literal would take JSON's true for 1.
class _Choice(BaseModel, extra="forbid", title="Better"):
    better: int = Field(ge=1, le=2, json_schema_extra={"enum": [1, 2]})


def better_of_two(
    model: Any,
    prompt: Prompt,
    first: Sequence[Context],
    second: Sequence[Context],
    *,
    questions: Sequence[str] | None = None,
    contexts: Sequence[Context] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Let a model choose the better of two texts, in both orders: two calls a pair.

    Parameters
    ----------
    prompt : id or file, with the fields ``{first}`` and ``{second}``, and ``{question}`` or
        ``{context}`` where these are given; its reply is JSON with the field ``better``, 1 or 2.
        Such as ``"steps_gpt_ranking_answer_relevance"`` (RAGAS, section 5).
    first, second : the texts, shape (n_pairs,) each.
    options : see `ragbench.labelling.asking`.

    Returns
    -------
    DataFrame with a row a pair: ``shown_first`` and ``shown_second``, the place chosen (1 or 2)
    where the first text was shown first and second; ``preference``, 1 where the first is better in
    both orders, 0 where the second is, 0.5 where it varies. NaN: unread.

    Source: RAGAS, section 5 (GPT Ranking); Wang et al. 2023 on the order of candidates, as cited
    there.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> model = FakeListChatModel(responses=['{"better": 1}', '{"better": 2}'])
    >>> prompt = "steps_gpt_ranking_answer_relevance"
    >>> asked = {"questions": ["Who?"], "progress": False}
    >>> rb.better_of_two(model, prompt, ["Ada"], ["A man"], **asked)["preference"].tolist()
    [1.0]
    """
    columns = {"first": first, "second": second, "question": questions, "context": contexts}
    columns = {field: texts for field, texts in columns.items() if texts is not None}
    same_length(**columns)
    both = _both_orders(pd.DataFrame(columns, dtype=object))
    ids = []
    for name in options.get("ids", range(len(first))):
        ids += [f"{name} order 1", f"{name} order 2"]
    step = LabelStep(
        "better of two",
        prompt,
        _Choice,
        "first",
        attrgetter("better"),
        bound="label",
        empty="(empty)",
    )
    chosen = step.ask(
        model, {**options, "ids": ids}, **{field: both[field].tolist() for field in columns}
    )
    return _preferences(chosen)


def _both_orders(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return each pair in both orders. A pair's two prompts follow each other: a server reads the
    context that they share once.
    """
    turned = pairs.rename(columns={"first": "second", "second": "first"})
    return pd.concat([pairs, turned]).sort_index(kind="stable")


def _preferences(chosen: Sequence[int | None]) -> pd.DataFrame:
    table = pd.DataFrame({"shown_first": chosen[::2], "shown_second": chosen[1::2]}, dtype=float)
    wins = (table["shown_first"] == 1) * 1.0 + (table["shown_second"] == 2)
    table["preference"] = wins.div(2).where(table.notna().all(axis=1))
    return table
