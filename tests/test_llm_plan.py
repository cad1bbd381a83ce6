"""plan(), Usage and fitness(): the thesis's own count, hand-worked sums, and what speaks against a judge."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from fake_ollama import FakeOllama, Fault
from pydantic import BaseModel

from ragbench.errors import ConfigError
from ragbench.llm import Cassette, Plan, Step, Usage, ask, fitness, plan
from ragbench.llm.doctor import _STATEMENTS as STATEMENTS
from ragbench.papers.thesis import steps


class Word(BaseModel):
    word: str


def test_the_thesis_count_is_reproduced():
    """Thesis, section 3.2.1: 7404 x 5 = 37,020 calls and 7404 + 10 x 7404 x 5 = 377,604 iterations."""
    made = plan(steps(questions=7404, retrievers=5, budgets=10))
    assert (made["grading"].calls, made["generation"].calls) == (37_020, 377_604)
    assert made.total.calls == made.total.remaining == 414_624
    assert math.isnan(made.total.seconds)
    assert math.isnan(made.total.prompt_tokens)
    assert "37,020" in str(made)
    assert "377,604" in str(made)


def test_time_and_money_are_worked_out_from_given_speed_and_price():
    steps = [
        Step("a", calls=1000, prompt_tokens=2000, output_tokens=100),
        Step("b", calls=10, prompt_tokens=100, output_tokens=50),
    ]
    made = plan(steps, tokens_per_second=50, prompt_tokens_per_second=1000, price=(0.5, 2.0), concurrency=2)
    assert made["a"].seconds == pytest.approx((1000 * 100 / 50 + 1000 * 2000 / 1000) / 2)
    assert made["a"].hours == pytest.approx(2000 / 3600)
    assert made["a"].cost == pytest.approx(2_000_000 * 0.5 / 1e6 + 100_000 * 2.0 / 1e6)
    assert made.total.seconds == pytest.approx(made["a"].seconds + made["b"].seconds)
    assert (made.total.prompt_tokens, made.total.output_tokens) == (2_001_000, 100_500)
    assert "given" in made["a"].basis


def test_plan_is_a_table_and_can_be_added_and_asked_by_name():
    one = plan(Step("a", calls=3, prompt_tokens=10, output_tokens=1), tokens_per_second=1)
    both = one + plan(Step("b", calls=4))
    frame = both.to_frame()
    assert (list(frame["name"]), list(frame["calls"])) == (["a", "b", "total"], [3, 4, 7])
    assert isinstance(both, Plan)
    assert len(both) == 2
    assert math.isnan(both.total.seconds)
    with pytest.raises(KeyError, match="the plan has: a, b"):
        both["c"]


def test_what_is_on_the_cassette_is_not_planned_again(tmp_path, fake):
    model = fake.model()
    cassette = Cassette(tmp_path / "c.sqlite")
    prompts = [f"question number {n}" for n in range(10)]
    ask(model, prompts[:4], cassette=cassette, progress=False)
    ask(model, prompts[:1], schema=Word, cassette=cassette, progress=False)
    seen = len(fake.calls)
    steps = [Step("plain", [*prompts, prompts[9]]), Step("structured", prompts[:2], schema=Word)]
    made = plan(steps, model, cassette)
    assert len(fake.calls) == seen  # a plan makes no call
    row = made["plain"]
    assert (row.calls, row.cached, row.repeated, row.remaining) == (11, 4, 1, 6)
    assert (made["structured"].cached, made["structured"].remaining) == (1, 1)
    assert "measured on 5 recorded replies" in row.basis


def test_plan_agrees_with_what_the_run_then_takes(tmp_path):
    with FakeOllama(reply=lambda body: "seven words are what this answer has") as fake:
        model = fake.model(price=(1.0, 10.0))
        cassette = Cassette(tmp_path / "c.sqlite")
        prompts = [f"What is the answer to question number {n}?" for n in range(60)]
        ask(model, prompts[:20], cassette=cassette, progress=False)
        made = plan(Step("s", prompts), model, cassette)["s"]
        replies = ask(model, prompts, cassette=cassette, step="s", progress=False)
    spent = sum((reply.usage for reply in replies if not reply.cached), Usage())
    assert made.remaining == spent.calls == 40
    assert made.prompt_tokens == pytest.approx(spent.prompt_tokens, rel=0.05)
    assert (made.output_tokens, made.cost) == (spent.output_tokens, pytest.approx(spent.cost, rel=0.05))
    assert made.seconds == pytest.approx(spent.output_seconds + spent.prompt_seconds, rel=0.05)


@pytest.mark.parametrize("failing", [True, False])
def test_a_failed_reply_on_the_cassette_is_still_to_be_made_and_a_finished_plan_takes_nothing(fake, tmp_path, failing):
    fake.fault = (lambda p, n: Fault("400")) if failing else None
    ask(fake.model(), ["p"], cassette=tmp_path / "c.sqlite", progress=False)
    made = plan(Step("s", ["p"]), fake.model(), Cassette(tmp_path / "c.sqlite", mode="replay"))
    assert (made["s"].cached, made.total.remaining) == ((0, 1) if failing else (1, 0))
    if not failing:
        assert (made.total.prompt_tokens, made.total.seconds) == (0, 0)


def test_a_plan_without_prompts_or_model_says_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match="the chat model as well"):
        plan(Step("s", ["p"]), cassette=Cassette(tmp_path / "c.sqlite"))
    with pytest.raises(ConfigError, match="one of the two"):
        plan(Step("s", ["p"], calls=3))
    with pytest.raises(ConfigError, match="at least 0"):
        plan(Step("s", calls=-3))


# -- usage -------------------------------------------------------------------------------------------------------------


def test_usage_adds_up_and_an_unknown_cost_stays_unknown():
    a = Usage(calls=1, prompt_tokens=10, output_tokens=4, output_seconds=2.0, seconds=3.0, cost=0.5)
    b = Usage(calls=2, prompt_tokens=5, output_tokens=6, uncounted=1, output_seconds=3.0, seconds=4.0, cost=0.25)
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
    reply = ask(fake.model(), ["p"], schema=Word, progress=False)[0]
    assert reply.usage.calls == len(fake.calls) == 2
    assert reply.repairs == 1


# -- fitness -----------------------------------------------------------------------------------------------------------


def judge_reply(always=None):
    """Answer the structured questions rightly (or always the same), everything else with the same words."""

    def reply(body):
        asked = body["messages"][0]["content"]
        right = [truth for _, statement, truth in STATEMENTS if statement in asked]
        return json.dumps({"follows": always or right[0]}) if body.get("format") else "one, two, three"

    return reply


def test_a_good_judge_is_fit_and_its_record_says_why():
    with FakeOllama(reply=judge_reply(), context_length=8192) as fake:
        found = fitness(fake.model())
        sizes = [len(call.body["messages"][0]["content"]) for call in fake.calls]
    assert found.fit
    assert found.problems == ()
    assert (found.deterministic, found.obeyed, found.asked, found.right) == (True, 4, 4, 4)
    assert (found.num_ctx, found.context_length, found.window_works) == (8192, 8192, True)
    assert (found.calls, found.failed, found.tokens_per_second) == (8, 0, pytest.approx(20_000))
    assert 0 < found.latency_s < 5
    assert max(sizes) > 20_000  # the window was really tried
    assert "verdict        fit" in str(found)


NUMBER = itertools.count()


@pytest.mark.parametrize(
    ("reply", "seen", "problem"),
    [
        (
            lambda body: judge_reply()(body) if body.get("format") else f"reply {next(NUMBER)}",
            {"deterministic": False, "window_works": None},
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
def test_a_judge_is_not_fit_that_is_not_deterministic_or_not_obedient_or_not_right(fake, reply, seen, problem):
    fake.reply = reply
    found = fitness(fake.model(), probe_context=False)
    assert {name: getattr(found, name) for name in seen} == seen
    assert not found.fit
    assert any(problem in told for told in found.problems)


def test_a_window_larger_than_the_model_or_cut_by_the_server_is_told():
    with FakeOllama(reply=judge_reply(), context_length=2048) as fake:
        found = fitness(fake.model(), probe_context=False)
    assert "num_ctx=8192 is longer than the model was made for (2048)" in found.problems

    class Deaf(FakeOllama):
        """Reads at most 4096 tokens whatever num_ctx says."""

        async def _speak(self, call, fault, out):
            call.body["options"]["num_ctx"] = 4096
            await super()._speak(call, fault, out)

    for overflow, words in (("error", "fails (context)"), ("half", "the server read 2050 tokens")):
        with Deaf(reply=judge_reply(), overflow=overflow) as fake:
            found = fitness(fake.model())
        assert found.window_works is False
        assert words in found.problems[0]
        assert "num_ctx=8192" in found.problems[0]


def test_a_server_that_is_not_there_is_a_problem_not_an_exception(fake):
    fake.stop()
    found = fitness(fake.model())
    assert not found.fit
    assert "server_down" in found.problems[0]
    assert "NOT FIT" in str(found)
    assert math.isnan(found.latency_s)
