"""Grades 1 to 5, the thesis's five categories (§2.4).

The model's way: `grade`, any number of answers to one question per prompt, and exactly as many grades back. The
embedded way: `ragbench.labelling.embedded_grader`. How good either is: `measure_judge`, on the graded answers over
MiniHop. Those grades are reference labels, assigned by a strong language model under a written guideline; checked by a
person: 0; the second pass measures repeatability, not human agreement. Dev and test share no supporting document.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, create_model, field_validator

from ragbench.data.files import require_text, split_records
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.labelling.asking import one_line
from ragbench.llm import Plan, Reply, Step, ask, chat_model, label_schema, plan
from ragbench.llm.structured import json_values
from ragbench.paths import shipped
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.records import Answer, Grade, Question, check_records
from ragbench.stats import ConfusionMatrix, Interval, bootstrap_ci, confusion_matrix, kappa, paired_bootstrap_difference

# The categories, and what a judge is shown beside an answer

GRADES: Mapping[int, str] = {
    1: "no information",
    2: "partly right, with wrong statements",
    3: "partly right, incomplete",
    4: "wrong",
    5: "fully correct",
}
"""The grades of thesis §2.4. They are categories: 3 is not better than 2, and no mean is taken. 2 and 4 contain
hallucination, 1 and 3 lack information."""
GRADE_COLUMNS = tuple(f"grade {grade}" for grade in GRADES)


def facts_of(question: Question) -> tuple[str, ...]:
    """Return the supporting sentences of a question, each with its document's title before it where that is known.

    The sentences are full of pronouns ("He was born in Bolton"); the title says who is meant, and HotpotQA's own
    supporting facts name it too.
    """
    marks = question.meta.get("supporting_facts", ())
    if len(marks) != len(question.references):
        return tuple(question.references)
    return tuple(f"{mark[0]}: {text}" for mark, text in zip(marks, question.references, strict=True))


def check_grades(values: Sequence[Any], name: str) -> list[int | None]:
    """Return grades as ints, None where there is none.

    Parameters
    ----------
    values : 1..5, None or NaN, or Grade records; DataError for anything else, with its position.
    name : of the argument, for the message.
    """
    grades: list[int | None] = []
    for place, value in enumerate(values):
        value = getattr(value, "value", value)
        if value is None or value != value:
            grades.append(None)
        elif isinstance(value, bool) or value not in GRADES:
            raise DataError(
                f"{name}: grade {value!r} at position {place}", "1, 2, 3, 4, 5, or None", "check the grades"
            )
        else:
            grades.append(int(value))
    return grades


def by_id(questions: Sequence[Question]) -> dict[str, Question]:
    """Return the questions by id; two questions with one id are an error."""
    check_records(questions, Question, "questions")
    known = {question.id: question for question in questions}
    if len(known) != len(questions):
        raise ConfigError(
            f"{len(questions)} questions with {len(known)} ids", "one question per id", "pass each question once"
        )
    return known


def questions_of(answers: Sequence[Answer | GradedAnswer], questions: Sequence[Question]) -> list[Question]:
    """Return the question that each answer belongs to; DataError when it is not among them."""
    known = by_id(questions)
    check_records(answers, GradedAnswer if isinstance(next(iter(answers), None), GradedAnswer) else Answer, "answers")
    for place, name in enumerate(answer.question_id for answer in answers):
        if name not in known:
            raise DataError(
                f"answer {place} belongs to question {name!r}, which is not among the {len(known)} questions",
                "answers to the questions given",
                "pass all questions, or only the answers to these",
            )
    return [known[answer.question_id] for answer in answers]


def grade_shares(rows: pd.DataFrame, by: str = "retriever", *, counts: bool = False) -> pd.DataFrame:
    """Count grades by system or budget (thesis, Tables 3.2 and 3.3).

    Parameters
    ----------
    rows : of an experiment: columns grade (missing when unscored), seconds and ``by``.
    counts : numbers of answers instead of shares of the scored ones.

    Returns
    -------
    DataFrame: ``by``, grade 1 ... grade 5, seconds (mean), n (scored), unscored. Shares of nothing are NaN.
    """
    table = pd.DataFrame({"seconds": rows.groupby(by, sort=False)["seconds"].mean()})
    number = pd.crosstab(rows[by], rows["grade"]).reindex(index=table.index, columns=list(GRADES), fill_value=0)
    scored = number.sum(axis=1)
    number = (number if counts else number.div(scored.where(scored > 0), axis=0)).set_axis(list(GRADE_COLUMNS), axis=1)
    table = number.join(table).assign(n=scored, unscored=rows["grade"].isna().groupby(rows[by], sort=False).sum())
    return table.rename_axis(by).reset_index()


# The graded answers over MiniHop


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """An answer with its grade. ``second_grade`` is that of a second, blind pass, where there is one."""

    id: str
    question_id: str
    text: str
    grade: int
    split: str
    second_grade: int | None = None


def load_graded_answers(path: str | Path | None = None, split: str | None = None) -> tuple[GradedAnswer, ...]:
    """Load graded answers: those over MiniHop, or your own file of the same form.

    Parameters
    ----------
    path : JSON lines with ``id``, ``question_id``, ``answer``, ``grade`` (1..5), ``split`` ("dev" or "test") and
        optionally ``second_grade``; default ``data/minihop/graded_answers.jsonl``.
    split : only this one; default both. Tune a judge on "dev" and open "test" when it is finished.

    Raises
    ------
    DataError that names file and line: a missing field, a grade outside 1..5, a repeated id, or a question whose
    answers are in both splits; ConfigError for an unknown split.
    """
    path = shipped("minihop", "graded_answers.jsonl") if path is None else Path(path)
    return split_records(path, split, _row, lambda row: [f"id {row.id!r}"], lambda row: row.question_id, "question")


def _row(row: dict, where: str) -> GradedAnswer:
    # An empty answer is an answer: a judge must grade it too.
    values = {name: require_text(row, name, where, empty=name == "answer") for name in ("id", "question_id", "answer")}
    for name in ("grade", "second_grade"):
        value = row.get(name)
        if (value is None and name == "grade") or (
            value is not None and (type(value) is not int or value not in GRADES)
        ):
            raise DataError(f"{where}: {name} is {value!r}", "a whole number from 1 to 5", "correct the grade")
    return GradedAnswer(
        values["id"], values["question_id"], values["answer"], row["grade"], row.get("split"), row.get("second_grade")
    )


# Grades from a judge model

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
        """Of the reply: exactly as many grades as there are answers."""
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
    prompt: Prompt = PROMPT,
    max_chars: int = MAX_CHARS,
) -> list[GradingPrompt]:
    """Write the prompts of a grading run: ``len`` of the result is the number of calls.

    Parameters
    ----------
    questions, answers, facts, per_prompt, order, prompt, max_chars : as for `grade`.

    Raises
    ------
    DataError for an answer to none of the questions; ConfigError for arguments that cannot work.
    """
    if order is not None and (isinstance(order, bool) or not isinstance(order, int) or order < 0):
        raise ConfigError(f"order={order!r}", "None (as given) or a seed of at least 0", "choose one of the two")
    if max_chars < 1:
        raise ConfigError(f"max_chars={max_chars}", "at least 1", "leave it out")
    asked, template = questions_of(answers, questions), load_prompt(prompt)
    prompts = []
    for group in group_answers(answers, per_prompt):
        question = asked[group[0]]
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
        cut = frozenset(p for p in places if len(one_line(answers[p].text)) > max_chars)
        prompts.append(GradingPrompt(question.id, places, text, cut))
    return prompts


def grade(
    judge: Any,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    facts: Mapping[str, Sequence[str]] | None = None,
    *,
    per_prompt: str | int = "one",
    order: int | None = None,
    prompt: Prompt = PROMPT,
    max_chars: int = MAX_CHARS,
    **options: Any,
) -> list[Grade]:
    """Grade answers in the thesis's five categories.

    Parameters
    ----------
    judge : a LangChain chat model, a name for ``chat_model``, several hosts of one model, or an ``EmbeddedGrader``
        ("embedded"; for it the options about prompts mean nothing).
    questions, answers : any number of answers per question, in any order.
    facts : question id -> supporting texts; default ``facts_of`` each question.
    per_prompt : "one", "ten", "systems" or a number: which answers share a prompt (see `group_answers`).
    order : None shows answers as given; a seed shuffles them within each prompt, so that order effects show when
        two seeds are compared.
    prompt : id or file of a prompt with the fields question, reference, facts, count and answers.
    max_chars : of one answer in the prompt; a longer one is cut, which ``meta["cut"]`` tells.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency``, ``deadline_s``, ``progress`` ...

    Returns
    -------
    list of Grade in the order of the answers. ``value`` is None when the reply could not be read or had the wrong
    number of grades: no grade of such a prompt is used, ``raw`` keeps the whole reply, ``meta["error"]`` the kind and
    ``meta["detail"]`` the message. ``meta`` also has what the answer's had, its ``generator``, ``position`` in the
    prompt (from 1), ``shown`` (answers in the prompt), ``order``, ``repairs`` (second tries, made when the first
    reply did not fit), ``grades_got`` (how many grades the reply held, None when it held no list) and ``usage``.

    Raises
    ------
    DataError, ConfigError : as for `grading_prompts`; errors of ``ask``.

    Source: thesis §2.4, Figure 2.5 (its criteria; the wording is ours).
    """
    if isinstance(judge, str) and judge == "embedded":
        from ragbench.labelling.embedded_grader import EmbeddedGrader

        judge = EmbeddedGrader()
    if hasattr(judge, "grade_all"):  # the embedded grader, or one of your own that needs no prompt
        return judge.grade_all(questions, answers, facts)
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
    grades = dict(verdict for one, reply in pairs for verdict in read_grades(one, reply, answers, order))
    return [grades[place] for place in range(len(answers))]


def repeated_grades(
    judge: Any, questions: Sequence[Question], answers: Sequence[Answer], *, repeats: int = 3, **options: Any
) -> list[list[int | None]]:
    """Grade the same answers several times, for `ragbench.stats.repeat_changes`: does the judge agree with itself?

    Each repeat has a seed of its own, the first one the judge's, so a cassette that holds the first grading gives it
    back, and asks again for the others. A model at temperature 0 replies alike whatever the seed: measure at the
    temperature that you grade with.

    Parameters
    ----------
    judge, questions, answers : as for `grade`.
    repeats : how often, at least 2.
    options : for `grade`: ``order``, ``cassette``, ``concurrency`` ...

    Returns
    -------
    Grades, shape (answers, repeats); None where a reply could not be read.

    Raises
    ------
    ConfigError for fewer than two repeats, or a model that takes no seed; as `grade`.
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 2:
        raise ConfigError(f"repeats={repeats!r}", "a whole number of at least 2", "use 3")
    runs = [grade(_reseeded(judge, n), questions, answers, **options) for n in range(repeats)]
    return [[one.value for one in grades] for grades in zip(*runs, strict=True)]


def _reseeded(judge: Any, by: int) -> Any:
    if hasattr(judge, "grade_all"):
        return judge
    if isinstance(judge, Sequence) and not isinstance(judge, str):
        return [_reseeded(host, by) for host in judge]
    model = chat_model(judge) if isinstance(judge, str) else judge
    if not hasattr(model, "seed"):
        raise ConfigError(f"a judge of the class {type(model).__name__}", "a model with a seed", "use rb.chat_model")
    return model.model_copy(update={"seed": (model.seed or 0) + by})


def plan_grading(
    judge: Any,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    facts: Mapping[str, Sequence[str]] | None = None,
    *,
    per_prompt: str | int = "one",
    order: int | None = None,
    prompt: Prompt = PROMPT,
    max_chars: int = MAX_CHARS,
    **options: Any,
) -> Plan:
    """Say what `grade` will take: calls, how many are recorded, tokens, time and money.

    Parameters
    ----------
    judge, questions, answers, facts, per_prompt, order, prompt, max_chars : as for `grade`; None as judge counts only.
    options : for `ragbench.llm.plan`: ``cassette`` (a Cassette), ``tokens_per_second``, ``price`` ...

    Returns
    -------
    Plan with one step, ``"grading"``; no calls for an EmbeddedGrader. See also `ragbench.papers.thesis.steps`.

    Raises
    ------
    DataError, ConfigError : as for `grading_prompts`.
    """
    if hasattr(judge, "grade_all"):
        return plan(Step("grading", calls=0))
    prompts = grading_prompts(
        questions, answers, facts, per_prompt=per_prompt, order=order, prompt=prompt, max_chars=max_chars
    )
    texts, schemas = [one.text for one in prompts], [one.schema for one in prompts]
    return plan(Step("grading", prompts=texts, schema=schemas), judge, **options)


@functools.lru_cache(maxsize=256)
def _schema(count: int) -> type[BaseModel]:
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


def _shown(number: int, text: str, max_chars: int) -> str:
    # On one line, an answer cannot pass for two numbered ones.
    line = one_line(text)
    return f"{number}. " + (line[:max_chars] + (" [...]" if len(line) > max_chars else "") or "(empty)")


def read_grades(
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
    for text in json_values(raw):
        value = json.loads(text)
        value = value.get("grades") if isinstance(value, dict) else value
        if isinstance(value, list):
            return len(value)
    return None


# How good a judge is

_LABELS = tuple(GRADES)


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One judge on one split.

    Attributes
    ----------
    accuracy : share of scored answers with the right grade, with a bootstrap interval over questions.
    kappa : Cohen's, unweighted, since the grades are categories; interval over answers.
    confusion : rows the gold grades, columns the judge's, 1..5.
    n : answers. unscored : of these, the ones without a grade; they count in neither accuracy nor kappa.
    """

    split: str
    accuracy: Interval
    kappa: Interval
    confusion: ConfusionMatrix
    n: int
    unscored: int


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """One judge on each split, and the agreement of two blind passes of grading, where there are any."""

    judge: str
    splits: tuple[SplitReport, ...]
    second_grading: Interval

    def __getitem__(self, split: str) -> SplitReport:
        for one in self.splits:
            if one.split == split:
                return one
        raise KeyError(f"{split!r}; there is: {', '.join(one.split for one in self.splits)}")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per split."""
        rows = []
        for one in self.splits:
            counts = {"judge": self.judge, "split": one.split, "n": one.n, "unscored": one.unscored}
            rows.append(counts | one.accuracy.columns("accuracy") | one.kappa.columns("kappa"))
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = []
        for one in self.splits:
            lines += [
                f"{self.judge}, {one.split}: {one.n} answers, {one.unscored} unscored",
                f"  accuracy {one.accuracy}",
                f"  kappa    {one.kappa}",
                "  gold \\ judge    " + "".join(f"{label:>5}" for label in one.confusion.labels),
            ]
            rows = zip(one.confusion.labels, one.confusion.counts.tolist(), strict=True)
            lines += [f"  {label:<16}" + "".join(f"{count:>5}" for count in counts) for label, counts in rows]
        if not math.isnan(self.second_grading.estimate):
            lines.append(f"two blind passes of grading: kappa {self.second_grading}")
        return "\n".join(lines)


def judge_report(predicted: Sequence[Any], gold: Sequence[GradedAnswer], judge: str = "") -> JudgeReport:
    """Measure a judge on graded answers.

    Parameters
    ----------
    predicted : the judge's grades (Grade records, 1..5, or None where unscored), in the order of ``gold``.
    judge : its name; default the name in the Grade records.

    Returns
    -------
    JudgeReport, one part per split that occurs.

    Raises
    ------
    DataError for lengths that differ, no answers, or a grade outside 1..5.
    """
    if len(predicted) != len(gold) or not gold:
        raise DataError(
            f"{len(predicted)} grades for {len(gold)} graded answers",
            "one or more, one grade each",
            "grade all answers in the order of load_graded_answers()",
        )
    judge = judge or next((p.judge for p in predicted if getattr(p, "judge", "")), "judge")
    values = check_grades(predicted, "predicted")
    parts = []
    for split in dict.fromkeys(answer.split for answer in gold):
        rows = [(v, g) for v, g in zip(values, gold, strict=True) if g.split == split]
        truth, given = [g.grade for _, g in rows], [v for v, _ in rows]
        right = [math.nan if v is None else float(v == g.grade) for v, g in rows]
        parts.append(
            SplitReport(
                split,
                bootstrap_ci(right, groups=[g.question_id for _, g in rows]),
                kappa(truth, given, labels=_LABELS),
                confusion_matrix(truth, given, _LABELS),
                len(rows),
                sum(v is None for v in given),
            )
        )
    return JudgeReport(judge, tuple(parts), second_grading_kappa(gold))


def second_grading_kappa(gold: Sequence[GradedAnswer]) -> Interval:
    """Return the unweighted kappa of the two blind passes of grading, over the answers that were graded twice."""
    twice = [g for g in gold if g.second_grade is not None]
    return kappa([g.grade for g in twice], [g.second_grade for g in twice], labels=_LABELS)


def as_answers(gold: Sequence[GradedAnswer]) -> list[Answer]:
    """Return graded answers as the Answer records that ``grade`` takes."""
    return [
        Answer(one.question_id, one.text, "graded answers", meta={"id": one.id, "split": one.split}) for one in gold
    ]


def measure_judge(
    judge: Any = None,
    questions: Sequence[Question] | None = None,
    gold: Sequence[GradedAnswer] | None = None,
    *,
    split: str | None = None,
    **options: Any,
) -> JudgeReport:
    """Grade the graded answers with a judge and report how good it is: what ``ragbench judge`` does.

    Parameters
    ----------
    judge : as for `grade`; default the embedded grader.
    questions, gold : default MiniHop and its graded answers.
    split : only this split of ``gold``.
    options : for ``grade``: ``per_prompt``, ``order``, ``cassette`` ...

    Raises
    ------
    ModelError when the judge graded none of the answers (no server, no such model ...), with the first reason;
    ConfigError for a question that comes twice; DataError as `judge_report`.
    """
    from ragbench.labelling.embedded_grader import EmbeddedGrader  # it builds on this module

    if questions is None:
        from ragbench.data import load_minihop

        questions = load_minihop().questions
    gold = load_graded_answers() if gold is None else gold
    gold = [one for one in gold if split in (None, one.split)]
    asked = {one.question_id for one in gold}
    kept = [question for question in by_id(questions).values() if question.id in asked]
    grades = grade(judge or EmbeddedGrader(), kept, as_answers(gold), **options)
    if grades and all(one.value is None for one in grades):
        raise ModelError(
            f"none of {len(grades)} answers was graded; the first reason: {grades[0].meta.get('detail', 'unknown')}",
            "a judge that replies with grades",
            "see ragbench doctor --model, then run again",
        )
    return judge_report(grades, gold)


# What a judge must beat, each tuned on dev


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Grades by a score: ``grades[i]`` for scores from ``cuts[i - 1]`` up to below ``cuts[i]``."""

    cuts: tuple[float, ...]
    grades: tuple[int, ...]

    def __call__(self, scores: Sequence[float]) -> list[int]:
        """Return the grade of each score."""
        return [self.grades[i] for i in np.searchsorted(self.cuts, scores, side="right")]


def fit_cutoffs(scores: Sequence[float], grades: Sequence[int], most: int = 4) -> Cutoffs:
    """Find the cut-offs, and a grade for each range between them, with the most right grades.

    Parameters
    ----------
    scores, grades : shape (n,), n at least 1.
    most : cut-offs at most.

    Returns
    -------
    The best of all partitions into ``most + 1`` ranges or fewer (dynamic programming), the fewest among equals, cuts
    half-way between neighbouring scores.

    Raises
    ------
    DataError for no scores, lengths that differ, or scores that are not finite.
    """
    x, labels = np.asarray(scores, float), check_grades(grades, "grades")
    if not len(x) or len(x) != len(labels) or not np.isfinite(x).all() or None in labels:
        raise DataError(f"{len(x)} scores, {len(labels)} grades", "as many finite scores as grades", "check the rows")
    levels, where = np.unique(x, return_inverse=True)
    counts = np.zeros((len(levels) + 1, len(GRADES)), int)
    np.add.at(counts, (where + 1, np.array(labels) - 1), 1)
    total = counts.cumsum(0)
    # best[j]: most right among the first j levels with the ranges used so far.
    best, back = total.max(1), [np.zeros(len(levels) + 1, int)]
    used, top = 0, best[-1]
    for ranges in range(1, most + 1):
        gain = np.max(total[None, :, :] - total[:, None, :], axis=2)
        allowed = np.where(np.tri(len(levels) + 1, k=-1, dtype=bool).T, best[:, None] + gain, -1)
        back.append(allowed.argmax(0))
        best = allowed.max(0)
        if best[-1] > top:
            used, top = ranges, best[-1]
    ends = [len(levels)]
    for ranges in range(used, 0, -1):
        ends.append(int(back[ranges][ends[-1]]))
    edges = [0, *reversed(ends)]
    pieces = [total[b] - total[a] for a, b in itertools.pairwise(edges)]
    cuts = tuple(float((levels[e - 1] + levels[e]) / 2) for e in edges[1:-1])
    return Cutoffs(cuts, tuple(int(piece.argmax()) + 1 for piece in pieces))


def baseline_grades(
    questions: Sequence[Question], dev: Sequence[GradedAnswer], answers: Sequence[GradedAnswer]
) -> dict[str, list[int]]:
    """Grade answers in four ways that know nothing of grading.

    Parameters
    ----------
    dev : for tuning. answers : those to be graded; their grades are not looked at.

    Returns
    -------
    dict from name to grades: ``majority class`` (the commonest on dev), ``exact match`` (5, else the commonest of the
    rest), ``ROUGE-L cut-offs`` (up to four, on the F1 against the true answer), ``words and length`` (multinomial
    naive Bayes, add-one, on the answer alone: how far the way it is written gives its grade away).
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    from ragbench.metrics.lexical import exact_match, rouge_l

    def scores(metric: Any, rows: Sequence[GradedAnswer]) -> list[float]:
        return [
            metric(a.text, question.answer) for a, question in zip(rows, questions_of(rows, questions), strict=True)
        ]

    truth = [a.grade for a in dev]
    matches = scores(exact_match, dev)
    rest = Counter(g for g, match in zip(truth, matches, strict=True) if not match).most_common(1)[0][0]
    rouge = fit_cutoffs(scores(rouge_l, dev), truth)
    words = make_pipeline(CountVectorizer(analyzer=_words_and_length), MultinomialNB()).fit(
        [a.text for a in dev], truth
    )
    return {
        "majority class": [Counter(truth).most_common(1)[0][0]] * len(answers),
        "exact match": [5 if match else rest for match in scores(exact_match, answers)],
        "ROUGE-L cut-offs": rouge(scores(rouge_l, answers)),
        "words and length": words.predict([a.text for a in answers]).tolist() if answers else [],
    }


def _words_and_length(text: str) -> list[str]:
    """Return the words, and the length as one more: it doubles from one "<...>" to the next."""
    words = re.findall(r"\w+", text.casefold())
    return [*words, f"<{len(words).bit_length()}>"]


def accuracy_gain(judge: Sequence[Any], other: Sequence[Any], gold: Sequence[GradedAnswer]) -> Interval:
    """Return how much more often one judge is right than another; unscored is not right. Interval over questions."""
    pairs = [
        [float(v == g.grade) for v, g in zip(check_grades(values, name), gold, strict=True)]
        for name, values in (("judge", judge), ("other", other))
    ]
    return paired_bootstrap_difference(*pairs, groups=[g.question_id for g in gold])
