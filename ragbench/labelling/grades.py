"""Grades 1 to 5, the thesis's five categories (§2.4), by a judge model: several answers to one
question per prompt.

How good a judge is: `ragbench.labelling.graded_answers`.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import BaseModel, create_model, field_validator

from ragbench.errors import ConfigError
from ragbench.labelling.asking import one_line
from ragbench.llm import ask, chat_model, label_schema
from ragbench.llm.context import prompt_tokens
from ragbench.llm.models import BOUNDS, not_named
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.records import GRADES, Answer, Grade, Question, facts_of, questions_of

GRADE_COLUMNS = tuple(f"grade {grade}" for grade in GRADES)


def grade_shares(
    rows: pd.DataFrame, by: str = "retriever", *, counts: bool = False
) -> pd.DataFrame:
    """Count grades by system or budget (thesis, Tables 3.2 and 3.3), of rows with grade, seconds
    and ``by``.

    Returns ``by``, grade 1 ... grade 5 (shares of the scored answers, or with ``counts`` their
    numbers), seconds (mean), n (scored), unscored.
    """
    table = pd.DataFrame({"seconds": rows.groupby(by, sort=False)["seconds"].mean()})
    number = pd.crosstab(rows[by], rows["grade"]).reindex(
        index=table.index, columns=list(GRADES), fill_value=0
    )
    scored = number.sum(axis=1)
    number = (number if counts else number.div(scored.where(scored > 0), axis=0)).set_axis(
        list(GRADE_COLUMNS), axis=1
    )
    table = number.join(table).assign(
        n=scored, unscored=rows["grade"].isna().groupby(rows[by], sort=False).sum()
    )
    return table.rename_axis(by).reset_index()


PROMPT = "thesis_grade"
_MODES = ("one", "ten", "systems")
_MAX_CHARS = 4000  # of one answer in a prompt; a one-sentence answer has 200


class _GradingPrompt(NamedTuple):
    question_id: str
    places: tuple[int, ...]  # positions of its answers in the order shown
    text: str
    cut: frozenset[int]  # of all answers, those shortened


def group_answers(answers: Sequence[Answer], per_prompt: str | int) -> list[tuple[int, ...]]:
    """Say which answers share a prompt, as tuples of positions; never answers to different
    questions.

    ``per_prompt`` : "one"; "ten": the answers of one question and retriever (or ``system``, in
    ``meta``), up to ten; "systems": the answers of one question at one token ``budget`` (those
    without context, budget 0, join the largest one of their question, as in the thesis's Table
    3.3); or a number: that many of one question, in the order given.

    Source: thesis §3.2.1 ("ten": 7,404 x 5 calls), Table 3.3 ("systems").
    """
    if per_prompt not in _MODES and not (isinstance(per_prompt, int) and per_prompt > 0):
        expected = "'one', 'ten', 'systems' or a number of at least 1"
        raise ConfigError(f"per_prompt={per_prompt!r}", expected, "choose one of these")
    largest: dict[str, float] = {}
    for answer in answers:
        largest[answer.question_id] = max(
            answer.meta.get("budget") or 0, largest.get(answer.question_id, 0)
        )
    groups: dict[tuple, list[int]] = {}
    for place, answer in enumerate(answers):
        key: tuple = (answer.question_id,)
        if per_prompt == "ten":
            key += (answer.meta.get("retriever", answer.meta.get("system")),)
        elif per_prompt == "systems":
            key += (answer.meta.get("budget") or largest[answer.question_id],)
        groups.setdefault(key, []).append(place)
    size = {"one": 1, "ten": 10, "systems": max(len(answers), 1)}.get(per_prompt, per_prompt)
    return sorted(
        tuple(group[i : i + size]) for group in groups.values() for i in range(0, len(group), size)
    )


def _grading_prompts(
    questions: Sequence[Question],
    answers: Sequence[Answer],
    per_prompt: str | int,
    order: int | None = None,
    prompt: Prompt = PROMPT,
    max_chars: int = _MAX_CHARS,
) -> list[_GradingPrompt]:
    asked = questions_of(answers, questions)
    template = load_prompt(prompt)
    # on one line, it cannot pass for two numbered ones
    lines = [one_line(answer.text) for answer in answers]
    cut = frozenset(place for place, line in enumerate(lines) if len(line) > max_chars)
    shown = [
        line[:max_chars] + (" [...]" if place in cut else "") or "(empty)"
        for place, line in enumerate(lines)
    ]
    seen: Counter[str] = Counter()
    prompts = []
    for group in group_answers(answers, per_prompt):
        question = asked[group[0]]
        places = group if order is None else _shuffled(group, order, question.id, seen[question.id])
        seen[question.id] += len(group)
        text = fill_prompt(
            template,
            question=question.text,
            reference=question.answer,
            facts="\n".join(f"- {fact}" for fact in facts_of(question)) or "(none given)",
            count=str(len(places)),
            answers="\n".join(
                f"{number}. {shown[place]}" for number, place in enumerate(places, 1)
            ),
        )
        prompts.append(_GradingPrompt(question.id, places, text, cut))
    return prompts


def grade(
    judge: Any,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    *,
    per_prompt: str | int = "one",
    order: int | None = None,
    prompt: Prompt = PROMPT,
    max_chars: int = _MAX_CHARS,
    **options: Any,
) -> list[Grade]:
    """Grade answers in the thesis's five categories: a Grade per answer, in their order.

    Parameters
    ----------
    judge : a LangChain chat model, a name for ``chat_model``, or an object of your own with
        ``grade_all(questions, answers)``, which needs no prompt.
    per_prompt : which answers share a prompt, see `group_answers`.
    order : None shows answers as given; a seed shuffles them within each prompt, so that order
    effects show when
        two seeds are compared.
    prompt : id or file of a prompt with the fields question, reference, facts, count and answers.
    max_chars : of one answer in the prompt; a longer one is cut, which ``meta["cut"]`` tells.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency``, ``deadline_s``, ``progress``
    ...

    ``value`` is None when the reply could not be read or had the wrong number of grades: no grade
    of such a prompt is used, ``raw`` keeps the whole reply, ``meta["error"]`` the kind and
    ``meta["detail"]`` the message. ``meta`` also has what the answer's had, ``generator``,
    ``position`` in the prompt (from 1), ``shown`` (answers in the prompt) ...

    Source: thesis §2.4, Figure 2.5 (its criteria; the wording is ours).
    """
    if judge is None:
        raise not_named("judge", ", or an object with grade_all(questions, answers)")
    if hasattr(judge, "grade_all"):
        return judge.grade_all(questions, answers)
    prompts = _grading_prompts(questions, answers, per_prompt, order, prompt, max_chars)
    ids = [f"{written.question_id} {written.places[0]}" for written in prompts]
    schemas = [_schema(len(written.places)) for written in prompts]
    options = {"step": "grading", "num_predict": grade_bound(per_prompt), **options}
    replies = ask(judge, [p.text for p in prompts], schema=schemas, ids=ids, **options)
    grades: dict[int, Grade] = {}
    for written, reply in zip(prompts, replies, strict=True):
        values = reply.parsed.grades if reply.ok else [None] * len(written.places)
        for position, (place, value) in enumerate(zip(written.places, values, strict=True), 1):
            meta: dict[str, Any] = {
                **answers[place].meta,
                "generator": answers[place].generator,
                "position": position,
                "shown": len(written.places),
                "order": order,
                "cut": place in written.cut,
                "repairs": reply.repairs,
                "usage": reply.usage.to_dict(),
                "seconds": reply.seconds,
                "form": reply.form,
                "prompt_estimate": prompt_tokens(written.text),
            }
            if reply.error is not None:
                meta |= {"error": reply.error.kind, "detail": str(reply.error.without_address())}
            grades[place] = Grade(
                written.question_id, value, reply.model, reply.raw or reply.text, meta
            )
    return [grades[place] for place in range(len(answers))]


def repeated_grades(
    judge: Any,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    *,
    repeats: int = 3,
    **options: Any,
) -> list[list[int | None]]:
    """Grade the same answers several times: shape (answers, repeats).

    Each repeat has a seed of its own, the first one the judge's, so a cassette that holds the first
    grading gives it back. At temperature 0 a model replies alike whatever the seed: measure at the
    temperature that you grade with. None where a reply could not be read; ConfigError for a model
    without a seed.
    """
    if repeats < 2:
        raise ConfigError(f"repeats={repeats!r}", "a whole number of at least 2", "use 3")
    runs = [grade(_reseeded(judge, n), questions, answers, **options) for n in range(repeats)]
    return [[graded.value for graded in grades] for grades in zip(*runs, strict=True)]


def grade_bound(per_prompt: str | int) -> int:
    """Return the most tokens of a judge's reply, where its model names no bound."""
    return BOUNDS["label" if per_prompt in ("one", 1) else "text"]


def _reseeded(judge: Any, by: int) -> Any:
    if hasattr(judge, "grade_all"):
        return judge
    if isinstance(judge, Sequence) and not isinstance(judge, str):
        return [_reseeded(host, by) for host in judge]
    model = chat_model(judge) if isinstance(judge, str | Mapping) else judge
    if not hasattr(model, "seed"):
        raise ConfigError(
            f"a judge of the class {type(model).__name__}",
            "a model with a seed",
            "use rb.chat_model",
        )
    return model.model_copy(update={"seed": (model.seed or 0) + by})


@functools.lru_cache(maxsize=256)
def _schema(count: int) -> type[BaseModel]:
    def no_booleans(values: Any) -> Any:
        # JSON's true equals 1 in Python and would pass for the first category.
        if isinstance(values, list) and any(isinstance(value, bool) for value in values):
            raise ValueError("true and false are no grades")
        return values

    checks = {"no_booleans": field_validator("grades", mode="before")(no_booleans)}
    return create_model(
        f"Grades{count}",
        __base__=label_schema(count, tuple(GRADES), "grades"),
        __validators__=checks,
    )


def _shuffled(group: tuple[int, ...], seed: int, question_id: str, before: int) -> tuple[int, ...]:
    # Each prompt has an order of its own, whatever else is graded in the run; ``before``: answers
    # to it shown before.
    words = hashlib.sha256(question_id.encode()).digest()[:8] + before.to_bytes(8, "big")
    rng = np.random.default_rng([seed, int.from_bytes(words, "big")])
    return tuple(group[i] for i in rng.permutation(len(group)))
