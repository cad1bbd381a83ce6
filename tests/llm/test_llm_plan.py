"""plan() and Usage: the thesis's own count and hand-worked sums."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import BaseModel

from ragbench.llm import Cassette, Plan, Usage, ask, plan
from ragbench.papers.thesis import steps


class Word(BaseModel):
    word: str


def test_the_thesis_count_is_reproduced():
    """Thesis, section 3.2.1: 7404 x 5 = 37,020 calls and 7404 + 10 x 7404 x 5 = 377,604 iterations."""
    made = plan(steps(questions=7404, retrievers=5, budgets=10))
    assert (made["grading"].calls, made["generation"].calls) == (37_020, 377_604)
    assert made.total.calls == made.total.remaining == 414_624
    assert math.isnan(made.total.seconds)
    assert "377,604" in str(made)


def test_time_is_calls_times_seconds_and_a_sum_with_an_unknown_part_is_unknown():
    made = plan({"a": 1000, "b": 10}, seconds_per_call=2)
    assert (made["a"].seconds, made.total.seconds) == (2000, 2020)
    assert math.isnan((made + plan({"c": 1})).total.seconds)
    assert plan({"c": 0}).total.seconds == 0


def test_plans_are_added_by_step_and_asked_by_name():
    both = plan({"a": 3}, seconds_per_call=1) + plan({"b": 4, "a": 1})
    assert [(step.name, step.calls) for step in (*both, both.total)] == [
        ("a", 4),
        ("b", 4),
        ("total", 8),
    ]
    assert isinstance(both, Plan)
    long = str(plan({"a step with a long name": 3, "b": 4})).splitlines()
    assert len({len(line) for line in long}) == 1  # the columns stand below their heads
    with pytest.raises(KeyError):
        both["c"]


# -- usage
# -------------------------------------------------------------------------------------------------------------


def test_usage_adds_up():
    a = Usage(calls=1, prompt_tokens=10, output_tokens=4, output_seconds=2.0, seconds=3.0)
    b = Usage(2, 5, 6, uncounted=1, output_seconds=3.0, seconds=4.0)
    both = Usage(3, 15, 10, uncounted=1, output_seconds=5.0, seconds=7.0)
    assert a + b == both
    assert Usage() + a == a
    for usage in (a, Usage(), both):
        assert Usage.from_dict(json.loads(json.dumps(usage.to_dict()))) == usage
    assert Usage.from_dict(a.to_dict() | {"cost": None}) == a  # as older cassettes have it


def test_a_plan_makes_no_call_and_an_unrecorded_step_takes_the_time_of_the_others(tmp_path, fake):
    model = fake.model()
    cassette = Cassette(tmp_path / "c.sqlite")
    ask(model, [f"question {n}" for n in range(7)], cassette=cassette, step="grading")
    seen = len(fake.calls)
    made = plan({"grading": 10, "generation": 5, "GRADING": 1, "gradin_": 1}, model, cassette)
    assert len(fake.calls) == seen
    assert [(step.cached, step.remaining) for step in made] == [(7, 3), (0, 5), (0, 1), (0, 1)]
    assert made["generation"].seconds / 5 == pytest.approx(made["grading"].seconds / 3)
    assert plan({"grading": 7}, model, cassette).total.seconds == 0
