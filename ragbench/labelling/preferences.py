"""Preferences: which of two answers is better, and how good one is.

People's: RAGChecker's labelled pairs, or your own. The model's way: RAGAS's two baselines, a score from 0 to 10 (GPT
Score) and the better of two (GPT Ranking), per dimension. The paper's ranking asks once per pair; here both orders are
asked, so that a model that takes whatever stands first shows as such, and decides nothing. The embedded way:
`ragbench.labelling.embedded_judge`; how far it agrees with people: `ragbench.labelling.judge_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.asking import (
    Context,
    Request,
    StepReport,
    as_step,
    context_text,
    names_of,
    send_some,
)
from ragbench.llm import Step
from ragbench.prompts import Prompt, fill_prompt, load_prompt

# Pairs of answers that people compared


@dataclass(frozen=True)
class LabelledPair:
    """Two answers to one question, and how people compare them.

    ``labels`` maps a criterion to one label per annotator, -2 (answer 1 much better) .. 2 (answer 2 much better).
    ``group`` names the domain that is left out together; ``recorded`` holds another metric's scores of both answers.
    """

    question: str
    reference: str
    answers: tuple[str, str]
    labels: Mapping[str, tuple[float, ...]]
    group: str = ""
    recorded: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def load_ragchecker_pairs(path: str | Path | None = None) -> list[LabelledPair]:
    """Load RAGChecker's 280 human-labelled pairs with its recorded scores.

    10 groups, two labels for each of three criteria; ``recorded`` is empty where RAGChecker's scores are not beside the
    labels. Path and errors as for `ragbench.data.load_ragchecker_meta`, which reads and checks the files.
    """
    from ragbench.data.ragchecker import load_ragchecker_meta

    pairs = []
    for pair in load_ragchecker_meta(path).pairs:
        first, second = pair.responses
        pairs.append(
            LabelledPair(
                pair.question,
                pair.reference,
                (first.text, second.text),
                {c: tuple(map(float, labels)) for c, labels in pair.labels.items()},
                pair.domain,
                {c: (score, second.scores[c]) for c, score in first.scores.items()},
            )
        )
    return pairs


def read_pairs(path: str | Path) -> list[LabelledPair]:
    """Read a user's labelled pairs from JSON lines.

    Each line: ``question``, ``reference``, ``answer_1``, ``answer_2`` (texts; an answer may be empty), ``labels``: an
    object from criterion to a label or a list of labels in -2..2 (or ``label``, which is ``overall``), and where
    there is one ``group``: the domain, left out together with its fellows when the fit is measured.

    Raises
    ------
    DataError naming file, line and field.
    """
    from ragbench.data.files import read_jsonl, require_text

    pairs = []
    for place, row in read_jsonl(path):
        where = f"{path}, {place}"
        question, reference = (require_text(row, name, where) for name in ("question", "reference"))
        answers = tuple(require_text(row, name, where, empty=True) for name in ("answer_1", "answer_2"))
        raw = row["labels"] if "labels" in row else {"overall": row.get("label")}
        if not isinstance(raw, dict) or not raw:
            raise DataError(
                f"{where}: 'labels' is {type(raw).__name__}", 'an object such as {"overall": [1, 2]}', "mend that line"
            )
        labels = {name: _labels(value, f"{where}: {name!r}") for name, value in raw.items()}
        pairs.append(LabelledPair(question, reference, answers, labels, str(row.get("group") or "")))  # type: ignore[arg-type]
    return pairs


def _labels(value: Any, where: str) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    good = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and -2 <= v <= 2]
    if not values or len(good) != len(values):
        raise DataError(
            f"{where} has the label {value!r}",
            "numbers from -2 (answer 1 much better) to 2 (answer 2 much better)",
            "write for instance 1 or [1, 2], one number per annotator",
        )
    return tuple(float(v) for v in values)


def shared_criteria(pairs: Sequence[LabelledPair]) -> list[str]:
    """Return the criteria that every pair is labelled for, in the order of the first pair; DataError without one."""
    common = [c for c in pairs[0].labels if all(c in p.labels for p in pairs)]
    if not common:
        raise DataError(
            "no criterion is labelled in every pair", "at least one", "label all pairs for 'overall', for instance"
        )
    return common


# A model scores and ranks

DIMENSIONS = ("faithfulness", "answer_relevance", "context_relevance")
Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]


@dataclass(frozen=True, slots=True)
class Scores:
    """Whole numbers from 0 to 10; None where no reply could be read."""

    scores: tuple[int | None, ...]
    report: StepReport


@dataclass(frozen=True, slots=True)
class PairRanking:
    """Which of two was better, asked in both orders.

    Attributes
    ----------
    choices : for each pair the place chosen (1 or 2) with the first candidate shown first, and with it shown second;
        None where no reply could be read.
    """

    choices: tuple[tuple[int | None, int | None], ...]
    report: StepReport

    @property
    def preferences(self) -> tuple[float | None, ...]:
        """For each pair 1.0 (the first is better in both orders), 0.0 (the second), 0.5 (it depends on the order).

        None where one of the two replies could not be read.
        """
        return tuple(None if None in pair else ((pair[0] == 1) + (pair[1] == 2)) / 2 for pair in self.choices)

    @property
    def position_bias(self) -> float:
        """Share of choices for the place shown first, minus 1/2, over the pairs read in both orders.

        0 where the order does not matter, 0.5 where the first place always wins, -0.5 where the second does; NaN
        without a pair.
        """
        read = [choice for pair in self.choices if None not in pair for choice in pair]
        return read.count(1) / len(read) - 0.5 if read else float("nan")

    @property
    def undecided(self) -> float:
        """Share of the pairs whose winner depends on the order; NaN without a pair read in both."""
        known = [p for p in self.preferences if p is not None]
        return known.count(0.5) / len(known) if known else float("nan")


def gpt_score(
    model: Any,
    dimension: Dimension,
    questions: Sequence[str],
    candidates: Sequence[Context],
    contexts: Sequence[Context] | None = None,
    *,
    prompt: Prompt | None = None,
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Scores:
    """Let a model score each candidate from 0 to 10.

    Parameters
    ----------
    model, ids, options : as for `ragbench.labelling.claims.extract_claims`.
    dimension : "faithfulness", "answer_relevance" or "context_relevance".
    questions : shape (n,).
    candidates : what is scored: answers, or for context relevance contexts (a text, or a list of passages).
    contexts : for faithfulness, and only there.
    prompt : id or file with the fields question and candidate (for faithfulness context and candidate); default by
        dimension.

    Raises
    ------
    ConfigError for another dimension, or contexts missing or not wanted.

    Source: RAGAS, section 5 (GPT Score; the wording of the prompts is ours).
    """
    requests = _score_requests(dimension, questions, candidates, contexts, prompt, ids)
    scored, report = send_some(model, f"gpt_score {dimension}", requests, options)
    return Scores(tuple(None if reply is None else reply.score for reply in scored), report)


def gpt_ranking(
    model: Any,
    dimension: Dimension,
    questions: Sequence[str],
    first: Sequence[Context],
    second: Sequence[Context],
    contexts: Sequence[Context] | None = None,
    *,
    prompt: Prompt | None = None,
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> PairRanking:
    """Let a model choose the better of two candidates, in both orders: two calls per pair.

    Parameters
    ----------
    model, dimension, questions, contexts, ids, options : as for `gpt_score`.
    first, second : the candidates, shape (n,) each.
    prompt : id or file with the fields question, first and second (for faithfulness context, first and second);
        default by dimension.

    Source: RAGAS, section 5 (GPT Ranking); Wang et al. 2023 on the order of candidates, as cited there.
    """
    requests = _ranking_requests(dimension, questions, first, second, contexts, prompt, ids)
    ranked, report = send_some(model, f"gpt_ranking {dimension}", requests, options)
    chosen = [None if reply is None else reply.better for reply in ranked]
    choices = tuple(zip(chosen[::2], chosen[1::2], strict=True))
    unscored = sum(None in pair for pair in choices)
    return PairRanking(choices, replace(report, items=len(choices), unscored=unscored))


def steps_for_baselines(
    dimension: Dimension,
    questions: Sequence[str],
    first: Sequence[Context],
    second: Sequence[Context],
    contexts: Sequence[Context] | None = None,
) -> list[Step]:
    """Make the steps of both baselines for `ragbench.llm.plan`, to score and to rank the same pairs.

    Returns
    -------
    [gpt_score, gpt_ranking] of the dimension: two calls per pair each, equal prompts once. To be scored in one run,
    the candidates go to `gpt_score` as one list.
    """
    twice = [*contexts, *contexts] if contexts is not None else None
    scored = _score_requests(dimension, [*questions] * 2, [*first, *second], twice, None, None)
    ranked = _ranking_requests(dimension, questions, first, second, contexts, None, None)
    return [as_step(f"gpt_score {dimension}", scored), as_step(f"gpt_ranking {dimension}", ranked)]


def _score_requests(
    dimension: Dimension,
    questions: Sequence[str],
    candidates: Sequence[Context],
    contexts: Sequence[Context] | None,
    prompt: Prompt | None,
    ids: Sequence[Any] | None,
) -> list[Request]:
    kind, columns = f"steps_gpt_score_{dimension}", {"candidates": candidates}
    template, names, others = _fields(dimension, prompt or kind, questions, columns, contexts, ids)
    schema = _number_schema("score", 0, 10)
    return [
        Request(name, fill_prompt(template, candidate=shown(candidate, name), **other), schema)
        for name, candidate, other in zip(names, candidates, others, strict=True)
    ]


def _ranking_requests(
    dimension: Dimension,
    questions: Sequence[str],
    first: Sequence[Context],
    second: Sequence[Context],
    contexts: Sequence[Context] | None,
    prompt: Prompt | None,
    ids: Sequence[Any] | None,
) -> list[Request]:
    """Two requests per pair, one after the other: as given, and turned round."""
    kind, columns = f"steps_gpt_ranking_{dimension}", {"first": first, "second": second}
    template, names, others = _fields(dimension, prompt or kind, questions, columns, contexts, ids)
    schema = _number_schema("better", 1, 2)
    requests = []
    for name, a, b, other in zip(names, first, second, others, strict=True):
        for order, (one, two) in enumerate(((a, b), (b, a)), 1):
            fields = {"first": shown(one, name), "second": shown(two, name), **other}
            requests.append(Request(f"{name} order {order}", fill_prompt(template, **fields), schema))
    return requests


def shown(candidate: Context, name: str) -> str:
    """Return a candidate as one text; an empty one says so."""
    return context_text(candidate, name) or "(empty)"


def _fields(
    dimension: str,
    prompt: Prompt,
    questions: Sequence[str],
    candidates: Mapping[str, Sequence[Context]],
    contexts: Sequence[Context] | None,
    ids: Sequence[Any] | None,
) -> tuple[str, list[str], list[dict[str, str]]]:
    """Return the prompt's text, and for each example its name and the fields beside the candidates."""
    check_known("dimension", [dimension], DIMENSIONS)
    if (contexts is not None) != (dimension == "faithfulness"):
        got = "no contexts" if contexts is None else "contexts"
        raise ConfigError(
            f"{got} for {dimension}",
            "contexts for faithfulness; for context relevance they are the candidates",
            "pass contexts=..." if contexts is None else "leave contexts out",
        )
    template = load_prompt(prompt)
    names = names_of(ids, questions=questions, **candidates, contexts=contexts)
    # Section 5 shows for faithfulness a context and an answer; a prompt of one's own may show the question too.
    asks = contexts is None or "{question}" in template
    fields = [{"question": question.strip()} if asks else {} for question in questions]
    if contexts is not None:
        fields = [{"context": shown(c, n), **rest} for n, c, rest in zip(names, contexts, fields, strict=True)]
    return template, names, fields


@cache
def _number_schema(field: str, least: int, most: int) -> type[BaseModel]:
    # Some servers' grammars pass over bounds of whole numbers but keep to an enumeration. The type stays int, since
    # pydantic's Literal would take JSON's true for 1.
    bounded = Field(ge=least, le=most, json_schema_extra={"enum": list(range(least, most + 1))})
    return create_model(field.title(), __config__=ConfigDict(extra="forbid"), **{field: (int, bounded)})
