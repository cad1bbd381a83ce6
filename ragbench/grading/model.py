"""Grades from a judge model: any number of answers to one question per prompt, and exactly as many grades back."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import ConfigError
from ragbench.grading.categories import GRADES, by_id, facts_of, question_of
from ragbench.grading.embedded import EmbeddedGrader
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.records import Answer, Grade, Question, check_records

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ragbench.llm import Plan, Reply

PROMPT = "thesis_grade"
MODES = ("one", "ten", "systems")
MAX_CHARS = 4000  # of one answer in a prompt; a one-sentence answer has 200


@dataclass(frozen=True, slots=True)
class GradingPrompt:
    """One prompt. ``places``: positions of its answers among all, in the order shown; ``cut``: those shown in part."""

    question_id: str
    places: tuple[int, ...]
    text: str
    cut: frozenset[int]

    @property
    def schema(self) -> type[BaseModel]:
        """The reply it asks for: exactly as many grades as there are answers."""
        return _schema(len(self.places))


def group_answers(answers: Sequence[Answer], per_prompt: str | int) -> list[tuple[int, ...]]:
    """Say which answers share a prompt; never answers to different questions.

    Parameters
    ----------
    answers : ``meta`` may name the ``retriever`` (or ``system``) and the token ``budget`` that each was made with.
    per_prompt : "one"; "ten": the answers of one question and retriever, up to ten; "systems": the answers of one
        question at one budget, whatever the number of systems (those without context, budget 0, join the largest
        budget of their question, as in the thesis's Table 3.3); or a number: that many of one question, in the order
        given.

    Returns
    -------
    list of tuples of positions; groups in the order of their first answer, so that one question's stay together when
    its answers do.

    Raises
    ------
    ConfigError for another ``per_prompt``.

    Source: thesis §3.2.1 ("ten": 7,404 x 5 calls), Table 3.3 ("systems").
    """
    if isinstance(per_prompt, bool) or not (per_prompt in MODES or (isinstance(per_prompt, int) and per_prompt > 0)):
        raise ConfigError(
            f"per_prompt={per_prompt!r}", "'one', 'ten', 'systems' or a number of at least 1", "choose one of these"
        )
    largest: dict[str, float] = {}
    for answer in answers:
        budget = answer.meta.get("budget") or 0
        largest[answer.question_id] = max(budget, largest.get(answer.question_id, 0))
    groups: dict[tuple, list[int]] = {}
    for place, answer in enumerate(answers):
        key: tuple = (answer.question_id,)
        if per_prompt == "ten":
            key += (answer.meta.get("retriever", answer.meta.get("system")),)
        elif per_prompt == "systems":
            key += (answer.meta.get("budget") or largest[answer.question_id],)
        groups.setdefault(key, []).append(place)
    size = {"one": 1, "ten": 10, "systems": max(len(answers), 1)}.get(per_prompt, per_prompt)
    cut = (tuple(group[i : i + size]) for group in groups.values() for i in range(0, len(group), size))
    return sorted(cut, key=lambda group: group[0])


def grading_prompts(
    questions: Sequence[Question],
    answers: Sequence[Answer],
    facts: Mapping[str, Sequence[str]] | None = None,
    *,
    per_prompt: str | int = "one",
    order: int | None = None,
    prompt: str | os.PathLike[str] = PROMPT,
    max_chars: int = MAX_CHARS,
) -> list[GradingPrompt]:
    """Write the prompts of a grading run: ``len`` of the result is the number of calls.

    Parameters
    ----------
    questions, answers, facts, per_prompt, order, prompt, max_chars : as for :func:`grade`.

    Returns
    -------
    list of GradingPrompt.

    Raises
    ------
    DataError for an answer to none of the questions; ConfigError for arguments that cannot work.
    """
    if order is not None and (isinstance(order, bool) or not isinstance(order, int) or order < 0):
        raise ConfigError(f"order={order!r}", "None (as given) or a seed of at least 0", "choose one of the two")
    if max_chars < 1:
        raise ConfigError(f"max_chars={max_chars}", "at least 1", "leave it out")
    known, template = by_id(questions), load_prompt(prompt)
    check_records(answers, Answer, "answers")
    for place, answer in enumerate(answers):
        question_of(answer.question_id, known, place)
    made = []
    for group in group_answers(answers, per_prompt):
        question = known[answers[group[0]].question_id]
        places = group if order is None else _shuffled(group, order, question.id)
        shown = facts_of(question) if facts is None else facts.get(question.id, ())
        text = fill_prompt(
            template,
            question=question.text,
            reference=question.answer,
            facts="\n".join(f"- {fact}" for fact in shown) or "(none given)",
            count=str(len(places)),
            answers="\n".join(_shown(number, answers[p].text, max_chars) for number, p in enumerate(places, 1)),
        )
        cut = frozenset(p for p in places if len(_one_line(answers[p].text)) > max_chars)
        made.append(GradingPrompt(question.id, places, text, cut))
    return made


def grade(
    judge: Any,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    facts: Mapping[str, Sequence[str]] | None = None,
    *,
    per_prompt: str | int = "one",
    order: int | None = None,
    prompt: str | os.PathLike[str] = PROMPT,
    max_chars: int = MAX_CHARS,
    **options: Any,
) -> list[Grade]:
    """Grade answers in the thesis's five categories.

    Parameters
    ----------
    judge : a LangChain chat model, a name for ``chat_model``, several hosts of one model, or an ``EmbeddedGrader``
        (for which the options about prompts mean nothing).
    questions : those the answers belong to, with their true answers.
    answers : any number per question, in any order.
    facts : question id -> supporting texts; default ``facts_of`` each question.
    per_prompt : "one", "ten", "systems" or a number: which answers share a prompt (see :func:`group_answers`).
    order : None shows answers as given; a seed shuffles them within each prompt, so that order effects show when
        two seeds are compared.
    prompt : id or file of a prompt with the fields question, reference, facts, count and answers.
    max_chars : of one answer in the prompt; a longer one is cut, which ``meta["cut"]`` tells.
    options : for :func:`ragbench.llm.ask`: ``cassette``, ``concurrency``, ``deadline_s``, ``progress`` ...

    Returns
    -------
    list of Grade in the order of the answers. ``value`` is None when the reply could not be read or had the wrong
    number of grades: no grade of such a prompt is used, ``raw`` keeps the whole reply, ``meta["error"]`` the kind and
    ``meta["detail"]`` the message. ``meta`` also has what the answer's had, its ``generator``, ``position`` in the
    prompt (from 1), ``shown`` (answers in the prompt), ``order``, ``repairs`` (second tries, made when the first
    reply did not fit), ``grades_got`` (how many grades the reply held, None when it held no list) and ``usage``.

    Raises
    ------
    DataError, ConfigError : as for :func:`grading_prompts`; errors of ``ask``.

    Source: thesis §2.4, Figure 2.5 (its criteria; the wording is ours).
    """
    if isinstance(judge, EmbeddedGrader):
        return judge.grade_all(questions, answers, facts)
    from ragbench.llm import ask

    prompts = grading_prompts(
        questions, answers, facts, per_prompt=per_prompt, order=order, prompt=prompt, max_chars=max_chars
    )
    replies = ask(
        judge,
        [one.text for one in prompts],
        schema=[one.schema for one in prompts],
        ids=[f"{one.question_id} {one.places[0]}" for one in prompts],
        **{"step": "grading", **options},
    )
    pairs = zip(prompts, replies, strict=True)
    grades = dict(verdict for one, reply in pairs for verdict in _verdicts(one, reply, answers, order))
    return [grades[place] for place in range(len(answers))]


def plan_grading(
    judge: Any,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    facts: Mapping[str, Sequence[str]] | None = None,
    *,
    per_prompt: str | int = "one",
    order: int | None = None,
    prompt: str | os.PathLike[str] = PROMPT,
    max_chars: int = MAX_CHARS,
    **options: Any,
) -> Plan:
    """Say what :func:`grade` will take: calls, how many are recorded, tokens, time and money.

    Parameters
    ----------
    judge, questions, answers, facts, per_prompt, order, prompt, max_chars : as for :func:`grade`; None as judge counts
        only.
    options : for :func:`ragbench.llm.plan`: ``cassette`` (a Cassette), ``tokens_per_second``, ``price`` ...

    Returns
    -------
    Plan with one step, ``"grading"``; no calls for an EmbeddedGrader. ``thesis_steps`` counts without any answers.
    """
    from ragbench.llm import Step, plan

    if isinstance(judge, EmbeddedGrader):
        return plan(Step("grading", calls=0))
    prompts = grading_prompts(
        questions, answers, facts, per_prompt=per_prompt, order=order, prompt=prompt, max_chars=max_chars
    )
    texts, schemas = [one.text for one in prompts], [one.schema for one in prompts]
    return plan(Step("grading", prompts=texts, schema=schemas), judge, **options)


@functools.lru_cache(maxsize=256)
def _schema(count: int) -> type[BaseModel]:
    from pydantic import create_model, field_validator

    from ragbench.llm import label_schema

    def no_booleans(values: Any) -> Any:
        # JSON's true equals 1 in Python and would pass for the first category.
        if isinstance(values, list) and any(isinstance(value, bool) for value in values):
            raise ValueError("true and false are no grades")
        return values

    checks = {"no_booleans": field_validator("grades", mode="before")(no_booleans)}
    return create_model(f"Grades{count}", __base__=label_schema(count, tuple(GRADES), "grades"), __validators__=checks)


def _shuffled(group: tuple[int, ...], seed: int, question_id: str) -> tuple[int, ...]:
    # Each prompt has an order of its own, whatever else is graded in the run.
    words = hashlib.sha256(question_id.encode()).digest()[:8] + group[0].to_bytes(8, "big")
    rng = np.random.default_rng([seed, int.from_bytes(words, "big")])
    return tuple(group[i] for i in rng.permutation(len(group)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shown(number: int, text: str, max_chars: int) -> str:
    # On one line, an answer cannot pass for two numbered ones.
    line = _one_line(text)
    return f"{number}. " + (line[:max_chars] + (" [...]" if len(line) > max_chars else "") or "(empty)")


def _verdicts(
    one: GradingPrompt, reply: Reply, answers: Sequence[Answer], order: int | None
) -> Iterator[tuple[int, Grade]]:
    values = reply.parsed.grades if reply.ok else [None] * len(one.places)
    got = _grades_got(reply.raw or reply.text)
    for position, (place, value) in enumerate(zip(one.places, values, strict=True), 1):
        meta: dict[str, Any] = {
            **answers[place].meta,
            "generator": answers[place].generator,
            "position": position,
            "shown": len(one.places),
            "order": order,
            "cut": place in one.cut,
            "repairs": reply.repairs,
            "grades_got": got,
            "usage": reply.usage.to_dict(),
        }
        if not reply.ok:
            meta["error"] = reply.error.kind if reply.error is not None else "unknown"
            meta["detail"] = str(reply.error)
        yield place, Grade(one.question_id, value, reply.model, reply.raw or reply.text, meta)


def _grades_got(raw: str) -> int | None:
    """Count the grades in a reply that may not fit: None when it holds no list of them."""
    import json

    from ragbench.llm.structured import json_values

    for text in json_values(raw):
        value = json.loads(text)
        value = value.get("grades") if isinstance(value, dict) else value
        if isinstance(value, list):
            return len(value)
    return None
