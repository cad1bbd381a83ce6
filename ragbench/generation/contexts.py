"""What a generator gets to see: the first N tokens of the joined chunks, for every N.

A context is a text or None. None (N = 0) means the query alone. An empty text means that documents were asked for and
none came: the prompt with documents, their section empty. The two are different experiments and never mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragbench.errors import ConfigError
from ragbench.metrics.cutoffs import as_cutoffs, as_offsets, joined_cutoffs
from ragbench.records import Hit, Question

BUDGETS = tuple(range(0, 1001, 100))
QUERY_ONLY = "query only"


@dataclass(frozen=True, slots=True)
class Task:
    """One answer to be made: a question, what the generator sees, and where that came from."""

    question: Question
    context: str | None
    system: str
    n_tokens: int


def contexts_from_hits(
    hits: Sequence[Sequence[Hit]],
    budgets: Sequence[int] = BUDGETS,
    tokenizer: Any = None,
    begin_token: bool = False,
) -> list[list[str | None]]:
    """Join each question's chunks with one space and cut them to every budget.

    Parameters
    ----------
    hits : one list of hits per question, in the order they are joined.
    budgets : N, whole numbers of tokens >= 0.
    tokenizer, begin_token : as in ``ragbench.metrics.cutoffs.joined_cutoffs``; a kept ``TokenOffsets`` is reused.

    Returns
    -------
    list (questions) of lists (budgets): the text, None for N = 0, ``""`` where nothing was retrieved.

    Raises
    ------
    ConfigError for budgets that are no whole numbers >= 0.

    Source: thesis §2.3, §2.4; Table 3.2 has N = 0, 100, ..., 1000.
    """
    values = as_cutoffs(budgets)
    offsets = as_offsets(tokenizer)
    offsets.warm_chunks(hit.chunk.text for ranking in hits for hit in ranking)
    contexts: list[list[str | None]] = []
    for ranking in hits:
        texts = [hit.chunk.text for hit in ranking]
        joined = " ".join(texts)
        ends = joined_cutoffs(texts, values, offsets, begin_token)
        contexts.append([joined[:end] if n else None for n, end in zip(values, ends, strict=True)])
    return contexts


def generation_tasks(
    questions: Sequence[Question],
    hits: Mapping[str, Sequence[Sequence[Hit]]],
    budgets: Sequence[int] = BUDGETS,
    tokenizer: Any = None,
    begin_token: bool = False,
) -> list[Task]:
    """List every answer of a grid of systems and budgets.

    Parameters
    ----------
    hits : by system, one list of hits per question.
    budgets, tokenizer, begin_token : as in ``contexts_from_hits``.

    Returns
    -------
    list of Task, question by question. N = 0 does not depend on the system: one task each, named ``"query only"``;
    with 5 systems and 11 budgets that is 51 per question, the 7,404 + 10 x 7,404 x 5 of thesis §3.2.1.

    Raises
    ------
    ConfigError when the lists of hits and the questions differ in number.
    """
    for system, rankings in hits.items():
        if len(rankings) != len(questions):
            raise ConfigError(
                f"{len(rankings)} lists of hits of {system!r} for {len(questions)} questions",
                "one list per question",
                "search with the texts of the same questions",
            )
    values = [int(n) for n in as_cutoffs(budgets)]
    offsets = as_offsets(tokenizer)
    above = [n for n in values if n]
    ranked = hits.items() if above else ()
    cut = {name: contexts_from_hits(rankings, above, offsets, begin_token) for name, rankings in ranked}
    tasks = []
    for i, question in enumerate(questions):
        if 0 in values:
            tasks.append(Task(question, None, QUERY_ONLY, 0))
        for system, contexts in cut.items():
            tasks += [Task(question, text, system, n) for n, text in zip(above, contexts[i], strict=True)]
    return tasks
