"""Grades by a judge model, by default the thesis's five categories (§2.4).

How good a judge is: `ragbench.measure_judge`.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import BaseModel, create_model, field_validator

from ragbench.data.files import is_missing, read_jsonl
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.llm import Reply, ask, label_schema
from ragbench.llm.models import BOUNDS, not_named
from ragbench.llm.wire import estimate_tokens
from ragbench.paths import packaged_data
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_scale
from ragbench.records import GRADES, Answer, Grade, Question, as_id, check_records
from ragbench.stats.tables import rows_by_scale

GRADE_COLUMNS = tuple(f"grade {grade}" for grade in GRADES)
PROMPT = "thesis_grade"
_SIZES: Mapping[str | int, int] = {
    "one": 1,
    "ten": 10,
    "systems": sys.maxsize,
}  # most answers in a prompt
MAX_CHARS = 4000  # of one answer in a prompt; a one-sentence answer has 200


def grade_shares(
    rows: pd.DataFrame,
    by: str = "retriever",
    scale: Iterable[int] | None = None,
) -> pd.DataFrame:
    """Count grades by system or budget (thesis, Tables 3.2 and 3.3), of rows with grade, seconds
    and ``by``.

    ``scale``: the grades there are, of another prompt: `ragbench.prompts.prompt_scale`. None:
    those that the rows name (``judge_scale``), else the thesis's.

    Returns ``by``, grade 1 ... grade 5 (shares of the scored answers), seconds (mean), n (scored),
    unscored.
    """
    if scale is None:
        scales = [own for own, _ in rows_by_scale(rows)]
        scale = sorted(set().union(*scales))
    groups = rows.groupby(by, sort=False)
    seconds = groups["seconds"].mean()
    counts = pd.crosstab(rows[by], rows["grade"])
    counts = counts.reindex(index=seconds.index, columns=list(scale), fill_value=0)
    scored = counts.sum(axis=1)
    table = counts.div(scored.where(scored > 0), axis=0)
    table.columns = [f"grade {grade}" for grade in scale]
    table["seconds"] = seconds
    table["n"] = scored
    table["unscored"] = groups["grade"].agg(lambda grades: grades.isna().sum())
    return table.rename_axis(by).reset_index()


def group_answers(answers: Sequence[Answer], per_prompt: str | int) -> list[tuple[int, ...]]:
    """Say which answers share a prompt, as tuples of positions; never answers to different
    questions.

    ``per_prompt`` : "one"; "ten": the answers of one question and retriever (or ``system``, in
    ``meta``), up to ten; "systems": the answers of one question at one token ``budget`` (those
    without context, budget 0, join the largest one of their question, as in the thesis's Table
    3.3); or a number: that many of one question, in the order given.

    Source: thesis §3.2.1 ("ten": 7,404 x 5 calls), Table 3.3 ("systems").
    """
    size = _SIZES.get(per_prompt, per_prompt)
    if not isinstance(size, int) or size < 1:
        raise ConfigError(
            f"per_prompt={per_prompt!r}",
            "'one', 'ten', 'systems' or a number of at least 1",
            "choose one of these",
        )
    together: dict[Any, list[int]] = defaultdict(list)
    for place, key in enumerate(_shared(answers, per_prompt)):
        together[key].append(place)
    prompts = []
    for places in together.values():
        starts = range(0, len(places), size)
        prompts += [tuple(places[start : start + size]) for start in starts]
    return sorted(prompts)


def _shared(answers: Sequence[Answer], per_prompt: str | int) -> Iterator[tuple[str, Any]]:
    """Yield of each answer what those of a prompt have in common: the question, and more."""
    largest: dict[str, int] = defaultdict(int)  # budget of each question's answers
    for answer in answers:
        budget = _filled(answer.meta.get("budget")) or 0
        largest[answer.question_id] = max(largest[answer.question_id], budget)
    for answer in answers:
        meta = answer.meta
        shared = None
        if per_prompt == "ten":
            shared = _filled(meta.get("retriever", meta.get("system")))
        elif per_prompt == "systems":
            shared = _filled(meta.get("budget")) or largest[answer.question_id]
        yield answer.question_id, shared


def _filled(value: Any) -> Any:
    """Return a value of ``meta``; None for the empty cell of a table."""
    return None if is_missing(value) else value


def _sheets(
    question_of: Sequence[Question],
    answers: Sequence[Answer],
    per_prompt: str | int,
    order: int | None,
    template: str,
) -> Iterator[_Sheet]:
    """Yield the prompts that show all answers."""
    before: Counter[str] = Counter()  # answers to a question in the prompts before
    for places in group_answers(answers, per_prompt):
        question = question_of[places[0]]
        name = f"{question.id} {places[0]}"
        if order is not None:
            places = _shuffled(places, order, question.id, before[question.id])
        before[question.id] += len(places)
        facts = "\n".join(f"- {fact}" for fact in question.facts())
        shown = [_shown(answers[place].text) for place in places]
        text = fill_prompt(
            template,
            question=question.text,
            reference=question.answer,
            facts=facts or "(none given)",
            count=str(len(places)),
            answers="\n".join(f"{number}. {text}" for number, text in enumerate(shown, 1)),
        )
        yield _Sheet(name, places, order, text)


def _one_line(text: str) -> str:
    """Put an answer on one line, so that it cannot pass for two numbered ones."""
    return " ".join(text.split())


def _shown(text: str) -> str:
    line = _one_line(text)
    if len(line) > MAX_CHARS:
        return line[:MAX_CHARS] + " [...]"
    return line or "(empty)"


def grade(
    judge: Any,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    *,
    per_prompt: str | int = "one",
    order: int | None = 0,
    prompt: Prompt = PROMPT,
    **options: Any,
) -> list[Grade]:
    """Grade answers in the categories of a prompt, by default the thesis's five: a Grade per
    answer, in their order.

    Parameters
    ----------
    judge : a LangChain chat model, a name for ``chat_model``, or an object of your own with
        ``grade_all(questions, answers)``, which needs no prompt.
    per_prompt : which answers share a prompt, see `group_answers`. Small models grade several by
        their place: one is the default.
    order : the seed that shuffles the answers within each prompt; None shows them as given. Order
        effects show when two seeds are compared.
    prompt : id or file of a prompt with the fields question, reference, facts, count and answers.
        Its grades stand in its header, see `ragbench.prompts.prompt_scale`.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency``, ``deadline_s``, ``progress``
        ...

    ``value`` is None when the reply could not be read or had the wrong number of grades: no grade
    of such a prompt is used, ``raw`` keeps the whole reply, ``failure`` says
    why. ``meta`` also has what the answer's had, ``generator``,
    ``position`` in the prompt (from 1), ``shown`` (answers in the prompt), ``cut`` (of more than
    4,000 characters the first are shown) ...

    Source: thesis §2.4, Figure 2.5 (its criteria; the wording is ours).

    >>> from langchain_core.language_models import FakeListChatModel
    >>> questions = [rb.Question("q1", "Who built the mill?", "Ada")]
    >>> judge = FakeListChatModel(responses=['{"grades": [5]}'])
    >>> answers = [rb.Answer("q1", "Ada built it.", generator="mine")]
    >>> rb.grade(judge, questions, answers, progress=False)[0].value
    5
    """
    if judge is None:
        raise not_named("judge", ", or an object with grade_all(questions, answers)")
    if hasattr(judge, "grade_all"):
        return _grades_of(judge, questions, answers)
    scale = tuple(prompt_scale(prompt) or GRADES)
    question_of = _questions_of(answers, questions)
    sheets = [*_sheets(question_of, answers, per_prompt, order, load_prompt(prompt))]
    replies = ask(
        judge,
        [sheet.text for sheet in sheets],
        schema=[_schema(len(sheet.places), scale) for sheet in sheets],
        ids=[sheet.name for sheet in sheets],
        **{"step": "grading", "num_predict": grade_bound(per_prompt), **options},
    )
    grades: dict[int, Grade] = {}
    for sheet, reply in zip(sheets, replies, strict=True):
        grades |= sheet.grades(answers, reply)
    return [grades[place] for place in range(len(answers))]


def _grades_of(judge: Any, questions: Sequence[Question], answers: Sequence[Answer]) -> list[Grade]:
    """Return the grades of an object; ConfigError for anything else."""
    graded = judge.grade_all(questions, answers)
    for one in graded:
        if not isinstance(one, Grade):
            raise ConfigError(
                f"the judge gave {one!r:.60}",
                "a Grade for each answer, of an object with grade_all(questions, answers)",
                "return rb.Grade(answer.question_id, value, name)",
            )
    return graded


class _Sheet(NamedTuple):
    """A prompt for a judge, with the positions of its answers in the order shown."""

    name: str
    places: tuple[int, ...]
    order: int | None
    text: str

    def grades(self, answers: Sequence[Answer], reply: Reply) -> Iterator[tuple[int, Grade]]:
        """Yield position and grade of each answer shown."""
        shown = len(self.places)
        values = reply.parsed.grades if reply.ok else [None] * shown
        facts = {
            "shown": shown,
            "order": self.order,
            "held": reply.held,
            "repairs": reply.repairs,
            "seconds": reply.seconds,
            "prompt_estimate": estimate_tokens(self.text) + 4,  # for the template
            "usage": reply.usage.to_dict(),
        }
        raw = reply.raw or reply.text
        failure = reply.error and reply.error.failure()
        for position, (place, value) in enumerate(zip(self.places, values, strict=True), 1):
            answer = answers[place]
            is_cut = len(_one_line(answer.text)) > MAX_CHARS
            own = {"generator": answer.generator, "position": position, "cut": is_cut}
            meta = {**answer.meta, **own, **facts}
            yield place, Grade(answer.question_id, value, reply.model, raw, meta, failure)


def grade_bound(per_prompt: str | int) -> int:
    """Return the most tokens of a judge's reply, where its model names no bound."""
    return BOUNDS["label" if per_prompt in ("one", 1) else "text"]


@functools.lru_cache(maxsize=256)
def _schema(count: int, scale: tuple[int, ...]) -> type[BaseModel]:
    def no_booleans(values: Any) -> Any:
        # JSON's true equals 1 in Python and would pass for the first category.
        if isinstance(values, list) and any(isinstance(value, bool) for value in values):
            raise ValueError("true and false are not grades")
        return values

    checks = {"no_booleans": field_validator("grades", mode="before")(no_booleans)}
    base = label_schema(count, scale, "grades")
    return create_model(f"Grades{count}", __base__=base, __validators__=checks)


def _shuffled(places: tuple[int, ...], seed: int, question_id: str, before: int) -> tuple[int, ...]:
    """Draw the order of one prompt, whatever else is graded in the run.

    ``before``: answers to its question in the prompts before.
    """
    digest = hashlib.sha256(question_id.encode()).digest()
    of_prompt = digest[:8] + before.to_bytes(8, "big")
    draw = np.random.default_rng([seed, int.from_bytes(of_prompt, "big")])
    return tuple(draw.permutation(places).tolist())


# Graded answers, on which `ragbench.measure_judge` measures a judge


def load_graded_answers(split: str | None = None) -> tuple[Answer, ...]:
    """Load the graded answers over MiniHop: two to each question.

    ``meta`` has id, split, grade (a reference label: ``data/minihop/README.md`` says whose) and
    ``second_grade``, that of a second, blind pass (None where there is none). ``split``: tune a
    judge on "dev" and open "test" when it is finished; default both. Dev and test share no
    supporting document.

    >>> len(rb.load_graded_answers())
    360
    """
    check_known("split", [split or "dev"], ("dev", "test"))
    path = packaged_data("minihop", "labels", "answers", "graded_answers.jsonl")
    answers = []
    for _, row in read_jsonl(path):
        if split is None or split == row["split"]:
            meta = {name: row.get(name) for name in ("id", "split", "grade", "second_grade")}
            answers.append(Answer(row["question_id"], row["answer"], "graded answers", meta=meta))
    return tuple(answers)


def _questions_of(answers: Sequence[Any], questions: Sequence[Question]) -> list[Question]:
    """Return the question that each answer belongs to; ``answers`` are any records with a
    ``question_id``.
    """
    check_records(questions, Question, "questions")
    by_id = {as_id(question.id): question for question in questions}
    if len(by_id) != len(questions):
        raise ConfigError(
            f"{len(questions)} questions with {len(by_id)} ids",
            "one question per id",
            "pass each question once",
        )
    if not all(hasattr(answer, "question_id") for answer in answers):
        check_records(answers, Answer, "answers")
    questions_of_rows = []
    for place, answer in enumerate(answers):
        name = as_id(answer.question_id)
        if name not in by_id:
            raise DataError(
                f"answer {place} belongs to question {name!r}, not among the {len(by_id)}",
                "answers to the questions given",
                "pass all questions, or only the answers to these",
            )
        questions_of_rows.append(by_id[name])
    return questions_of_rows
