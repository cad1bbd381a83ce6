"""plan(), Usage and fitness():

the thesis's own count, hand-worked sums, and what speaks against a judge.
"""

from __future__ import annotations

import itertools
import json
import math

import pytest
from fake_ollama import DIGEST, FakeOllama
from pydantic import BaseModel

from ragbench.llm import Cassette, Plan, Usage, ask, fitness, plan
from ragbench.llm.planning import _STATEMENTS as STATEMENTS
from ragbench.papers.thesis import steps


class Word(BaseModel):
    word: str


def test_the_thesis_count_is_reproduced():
    """Thesis, section 3.2.1:

    7404 x 5 = 37,020 calls and 7404 + 10 x 7404 x 5 = 377,604 iterations.
    """
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
    with pytest.raises(KeyError, match="the plan has: a, b"):
        both["c"]


def test_what_is_recorded_of_a_step_is_subtracted_and_its_median_time_is_taken(tmp_path, fake):
    model = fake.model(price=(1.0, 10.0))
    cassette = Cassette(tmp_path / "c.sqlite")
    replies = ask(model, [f"question {n}" for n in range(7)], cassette=cassette, step="grading")
    seen = len(fake.calls)
    made = plan({"grading": 10, "generation": 5}, model, cassette)
    assert len(fake.calls) == seen  # a plan makes no call
    # asked side by side: which five came first is not known
    first = sorted(reply.seconds for reply in replies)
    assert (made["grading"].cached, made["grading"].remaining) == (7, 3)
    assert first[0] <= made["grading"].seconds / 3 <= first[-1]
    assert made["grading"].cost == pytest.approx(
        3 * (replies[0].usage.prompt_tokens + 10 * 2) / 1e6
    )
    # its time is that of the model
    assert (made["generation"].cached, made["generation"].remaining) == (0, 5)
    assert made["generation"].seconds / 5 == pytest.approx(made["grading"].seconds / 3)
    assert plan({"grading": 7}, model, cassette).total.seconds == 0


# -- usage
# -------------------------------------------------------------------------------------------------------------


def test_usage_adds_up_and_an_unknown_cost_stays_unknown():
    a = Usage(calls=1, prompt_tokens=10, output_tokens=4, output_seconds=2.0, seconds=3.0, cost=0.5)
    b = Usage(
        calls=2,
        prompt_tokens=5,
        output_tokens=6,
        uncounted=1,
        output_seconds=3.0,
        seconds=4.0,
        cost=0.25,
    )
    both = a + b
    assert (both.calls, both.prompt_tokens, both.output_tokens, both.uncounted) == (3, 15, 10, 1)
    assert (both.seconds, both.cost, both.tokens_per_second) == (7.0, 0.75, 2.0)
    assert Usage() + a == a
    assert math.isnan((a + Usage(calls=1)).cost)
    assert math.isnan(Usage().tokens_per_second)
    assert Usage(output_tokens=8, seconds=2.0).tokens_per_second == 4.0
    for usage in (a, Usage(), both):
        assert Usage.from_dict(json.loads(json.dumps(usage.to_dict()))) == usage


def test_a_recorded_reply_tells_what_it_once_cost(tmp_path, fake):
    model = fake.model(price=(2.0, 0.0))
    more = {"cassette": tmp_path / "c.sqlite", "progress": False}
    first, again = (ask(model, ["a b c d"], **more)[0] for _ in range(2))
    assert (first.cached, again.cached) == (False, True)
    assert (again.usage, again.usage.calls, again.usage.prompt_tokens) == (first.usage, 1, 8)
    assert again.usage.cost == pytest.approx(8 * 2.0 / 1e6)


def test_usage_of_tries_that_were_not_accepted_is_counted_too(fake):
    script = itertools.chain(["not json"], itertools.repeat('{"word": "x"}'))
    fake.reply = lambda body: next(script)
    reply = ask(fake.model(), ["p"], schema=Word)[0]
    assert reply.usage.calls == len(fake.calls) == 2
    assert reply.repairs == 1


# -- fitness
# -----------------------------------------------------------------------------------------------------------


def judge_reply(always=None):
    """Answer the structured questions rightly (or always the same), everything else with the same
    words.
    """

    def reply(body):
        asked = body["messages"][0]["content"]
        right = [truth for _, statement, truth in STATEMENTS if statement in asked]
        return (
            json.dumps({"follows": always or right[0]}) if body.get("format") else "one, two, three"
        )

    return reply


def test_a_good_judge_is_fit_and_its_record_says_why():
    with FakeOllama(reply=judge_reply(), context_length=8192) as fake:
        found = fitness(fake.model())
        assert {call.body["options"]["num_predict"] for call in fake.calls} == {48}
    assert found.fit
    assert (found.deterministic, found.obeyed, found.asked, found.right) == (True, 4, 4, 4)
    assert found.tokens_per_second == pytest.approx(20_000)
    assert found.about["window"] == "8192 in use, made for 8192"
    assert (found.about["server"], found.digest) == ("Ollama 0.24.0", DIGEST)
    assert "verdict        fit" in str(found)
    # 600 words a millisecond, 20,000 tokens a second; 5 x (5,500 + 800) + 80 + 3,500 are read,
    # 2,750 written
    assert found.grid_seconds == pytest.approx(35_080 / 600_000 + 2_750 / 20_000)
    (step,) = plan({"grading": 112}, fake.model())
    assert step.seconds == pytest.approx(2 * found.grid_seconds)
    assert "`ragbench doctor` measured" in step.basis


NUMBER = itertools.count()


@pytest.mark.parametrize(
    ("reply", "seen", "problem"),
    [
        (
            lambda body: judge_reply()(body) if body.get("format") else f"reply {next(NUMBER)}",
            {"deterministic": False},
            "3 different replies in 3 calls",
        ),
        (
            lambda body: "I think it follows.",
            {"obeyed": 0, "repaired": 0, "asked": 4},
            "4 of 4 structured replies unusable",
        ),
        (judge_reply("yes"), {"right": 2}, "only 2 of 4 plain verdicts are right"),
    ],
    ids=["another answer each time", "no schema obeyed", "wrong"],
)
def test_a_judge_is_not_fit_that_is_not_deterministic_or_not_obedient_or_not_right(
    fake, reply, seen, problem
):
    fake.reply = reply
    found = fitness(fake.model())
    assert {name: getattr(found, name) for name in seen} == seen
    assert not found.fit
    assert any(problem in told for told in found.problems)


def test_a_server_that_is_not_there_is_a_problem_not_an_exception(fake):
    fake.stop()
    found = fitness(fake.model())
    assert not found.fit
    assert "1 of 1 plain calls failed (down)" in found.problems[0]
    assert "NOT FIT" in str(found)
    assert math.isnan(found.latency_s)
