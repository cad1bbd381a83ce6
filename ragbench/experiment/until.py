"""Stop when decided: a run that ends as soon as one system is shown to be better than another.

``until="BM25 > SIM in fully_right by 0.95"``: after each block of questions the interval of `anytime_interval` is
looked at, and the run ends when it lies above or below 0. With ``or within 0.05`` at the end it also ends when the
difference is shown to be smaller than that, either way. Questions are asked in a random order that is fixed in advance.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from ragbench.data.answers import is_missing
from ragbench.data.relevance import document_clusters
from ragbench.errors import ConfigError
from ragbench.experiment.rows import system_names
from ragbench.metrics.table import METRICS, find_numbers
from ragbench.records import Dataset, Question
from ragbench.stats import Interval, anytime_interval, units_until_decided

ORDER_SEED = 0  # of the order in which clusters of questions are asked
LOOK = 10  # questions between two looks, at least; a cluster is asked whole
_FORM = re.compile(r"^(.+?) > (.+?) in ([\w@.]+) by (0?\.\d+)(?: or within (0?\.\d+))?$")
_EXAMPLE = "write for instance BM25 > SIM in fully_right by 0.95 or within 0.05"
_MADE_BY_A_RUN = ("question", "answer", "reference", "references", "context", "retrieved", "relevant", "grade")
_FEW = 20  # clusters, below which only large differences can be shown
_SUPPOSED = (0.1, 0.2, 0.4)  # true differences for which a plan says how long a run is expected to be


@dataclass(frozen=True)
class Until:
    """What ends a run: systems a and b (their cells), a number of `ragbench.metrics.table`, level and margin."""

    text: str
    a: str
    b: str
    cells: tuple[Any, Any]
    number: str
    level: float
    margin: float | None

    def differences(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Score a minus b for each question of some rows, NaN where one of the two is unscored."""
        name, key = find_numbers([self.number])[self.number]
        metric = METRICS[name]

        def score(row: Mapping[str, Any]) -> float:
            cells = [row["ir_score"]] if name == "ir_score" else [row.get(need) for need in metric.needs]
            if row["status"] != "ok" or any(map(is_missing, cells)):
                return math.nan
            value = cells[0] if name == "ir_score" else metric.function(*cells)
            return value[key] if isinstance(value, Mapping) else value

        a, b = (
            {row["question_id"]: score(row) for row in rows if all(row[k] == v for k, v in asdict(cell).items())}
            for cell in self.cells
        )
        return {question: a[question] - b[question] for question in a}

    def look(self, differences: Mapping[str, float], clusters: Mapping[str, int]) -> tuple[Interval, str]:
        """Return the interval of a minus b so far, and in words why the run ends; "" when it goes on."""
        low, high = METRICS[find_numbers([self.number])[self.number][0]].range
        shares = [difference / (high - low) for difference in differences.values()]
        found = anytime_interval(shares, clusters=[clusters[q] for q in differences], level=self.level)
        scaled = [value * (high - low) for value in (found.estimate, found.low, found.high)]
        interval = Interval(*scaled, found.n, found.n_missing, found.level)
        return interval, self._why(interval)

    def _why(self, interval: Interval) -> str:
        if interval.low > 0:
            return f"{self.a} is shown to be higher than {self.b}"
        if interval.high < 0:
            return f"{self.b} is shown to be higher than {self.a}"
        if self.margin is not None and max(-interval.low, interval.high) < self.margin:
            return f"{self.a} and {self.b} are shown to differ by less than {self.margin:g}"
        return ""

    def expected(self, data: Dataset) -> list[str]:
        """Say for a plan after how many questions the run is expected to end."""
        clusters = document_clusters(data)
        units, questions = len(set(clusters.values())), len(data.questions)
        lines = [f"until {self.text}: looked at after every {LOOK} questions or more, in random order"]
        for difference in _SUPPOSED:
            share = units_until_decided(difference, level=self.level, most=units) / units
            asked = f"about {math.ceil(share * questions)} of {questions} questions ({1 - share:.0%} saved)"
            lines.append(f"for a true difference of {difference:g}, if they disagree on half of the questions: {asked}")
        if units < _FEW:
            groups = f"the questions stand in {units} groups that share documents"
            lines.append(f"{groups}: only large differences can be shown")
        return lines


def parse_until(text: Any, cells: Sequence[Any]) -> Until:
    """Read what ends a run; ConfigError for a form, system or metric that cannot be.

    ``cells``: those of the only data set.
    """
    found = _FORM.match(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f"until is {text!r}", "SYSTEM > SYSTEM in METRIC by LEVEL", _EXAMPLE)
    a, b, number, level, margin = found.groups()
    pair = _cell(a, cells), _cell(b, cells)
    if pair[0] == pair[1]:
        raise ConfigError(f"until compares {a!r} with itself", "two systems", _EXAMPLE)
    _check_metric(number, pair)
    return Until(text.strip(), a, b, pair, number, float(level), None if margin is None else float(margin))


def _cell(name: str, cells: Sequence[Any]) -> Any:
    """Return the one cell that a name means: "BM25@300", or "BM25" or "qwen" where that is one alone."""
    full = system_names(pd.DataFrame(map(asdict, cells)))
    shorter = [(own.rpartition("@")[0], cell.retriever, cell.generator) for own, cell in zip(full, cells, strict=True)]
    for names in ([(own,) for own in full], shorter):
        meant = [cell for cell, own in zip(cells, names, strict=True) if name in own]
        if len(meant) == 1:
            return meant[0]
    raise ConfigError(f"until names {name!r}, which is no one system", "one of " + ", ".join(full), "name one in full")


def _check_metric(number: str, cells: Sequence[Any]) -> None:
    needs = METRICS[find_numbers([number]).get(number, (number, ""))[0]].needs
    if number not in find_numbers([number]):
        raise ConfigError(f"until takes {number!r}, several numbers", "one of " + ", ".join(find_numbers([number])), "")
    if later := [need for need in needs if need not in _MADE_BY_A_RUN]:
        got = f"until takes {number!r}, which needs {later[0]}, a label made after the run"
        known = "ir_score, fully_right, exact_match, token_f1, rouge_l, bleu, nDCG@10 ..."
        raise ConfigError(got, f"a metric of what a run holds: {known}", "take one of these")
    for need, axis in (("answer", "generator"), ("grade", "judge")):
        if need in needs and any(getattr(cell, axis) == "none" for cell in cells):
            do = f"add a {axis}, or take ir_score"
            raise ConfigError(f"until takes {number!r} without a {axis}", f"a {axis}", do)


def in_blocks(data: Dataset, size: int) -> list[list[Question]]:
    """Return the questions in blocks, in random order, whole clusters together."""
    clusters = document_clusters(data)
    together: dict[int, list[Question]] = {}
    for question in data.questions:
        together.setdefault(clusters[question.id], []).append(question)
    order = list(together.values())
    random.Random(ORDER_SEED).shuffle(order)
    blocks: list[list[Question]] = [[]]
    for cluster in order:
        if len(blocks[-1]) >= size:
            blocks.append([])
        blocks[-1] += cluster
    return blocks
