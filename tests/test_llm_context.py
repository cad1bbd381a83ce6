"""No prompt is cut in silence: estimates before sending, the server's counts after."""

from __future__ import annotations

import pytest
from fake_ollama import FakeOllama
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.llm import ask, estimate_tokens
from ragbench.llm.context import enough, too_long, was_cut
from ragbench.llm.drivers import Driver


def driver(num_ctx):
    model = Driver()
    model.num_ctx, model.num_predict = num_ctx, 100
    return model


def one(prompt, **options):
    server = {name: options.pop(name) for name in ("overflow", "no_counts") if name in options}
    with FakeOllama(**server) as fake:
        return ask(fake.model(**options), [prompt], retries=0, progress=False)[0], len(fake.calls)


def test_estimate_is_four_plain_characters_or_one_other_per_token():
    assert (estimate_tokens(""), estimate_tokens("abcd"), estimate_tokens("abcde")) == (0, 1, 2)
    assert (estimate_tokens("检索增强生成"), estimate_tokens("abcd检")) == (6, 2)


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text())
def test_estimate_never_shrinks_when_text_is_added(a, b):
    assert (
        max(estimate_tokens(a), estimate_tokens(b)) <= estimate_tokens(a + b) <= estimate_tokens(a) + estimate_tokens(b)
    )


def test_estimate_is_within_a_quarter_of_a_real_tokenizer_on_running_english():
    from ragbench.data import load_minihop
    from ragbench.text.wordpiece import default_tokenizer

    tokenizer = default_tokenizer()
    texts = [document.text for document in load_minihop().documents]
    real = sum(len(tokenizer.encode(text).ids) for text in texts)
    assert real > 5000
    assert real * 3 / 4 < sum(map(estimate_tokens, texts)) < real * 5 / 4


def test_a_prompt_that_cannot_fit_is_not_sent_and_the_error_says_with_what_it_was_estimated():
    reply, calls = one("word " * 4000, num_ctx=1024, num_predict=100)
    assert calls == 0
    assert reply.error.kind == "context"
    assert "not sent: the prompt has 5004 tokens (estimated: 4 ASCII characters or 1 other" in str(reply.error)
    assert "num_ctx is 1024" in str(reply.error)
    assert "set num_ctx=5120" in reply.error.do


@pytest.mark.parametrize("overflow", ["error", "half", "fill"])
def test_a_cut_prompt_is_a_failure_that_names_a_num_ctx_that_would_do(overflow):
    text = "some words to fill the window " * 120
    reply, calls = one(text, num_ctx=512, num_predict=200, overflow=overflow)
    assert calls == 1
    assert (reply.ok, reply.error.kind) == (False, "context")
    would_do = int(reply.error.do.split("num_ctx=")[1].split(",")[0])
    again, _ = one(text, num_ctx=would_do, num_predict=200, overflow=overflow)
    assert again.ok, again.error
    assert again.usage.prompt_tokens + 200 <= would_do <= 4 * again.usage.prompt_tokens


def test_the_servers_own_number_decides_when_it_gives_one():
    reply, _ = one("ab " * 500, num_ctx=256, num_predict=60)  # 504 tokens for the server, 379 by our estimate
    assert "504 tokens and exceeds the context length of 256" in str(reply.error)
    assert reply.error.do.startswith("set num_ctx=768")  # 504 + 60, rounded up


def test_without_counts_a_prompt_near_the_window_is_not_trusted():
    reply, _ = one("four" * 600, num_ctx=512, no_counts=True, overflow="half")
    assert "gives no count" in str(reply.error)
    reply, _ = one("four" * 400, num_ctx=512, no_counts=True)
    assert (reply.ok, reply.usage.uncounted) == (True, 1)


@pytest.mark.parametrize(
    ("estimate", "counted", "written", "cut"),
    [
        (100, 90, 20, None),
        (900, 1023, 1, None),
        (900, 1024, 0, "fills the window"),
        (1500, 514, 10, "half of the window"),
        (520, 514, 10, None),  # a prompt that is really that long
        (1500, 1000, 10, "was cut"),  # whole messages left out
        (1100, 1000, 10, None),  # our estimate was a little high
        (900, 900, 200, "ran past the window"),
        (100, 12, 5, None),  # an old server that counts only what was not in its prompt cache
    ],
)
def test_the_servers_count_is_judged_against_window_and_estimate(estimate, counted, written, cut):
    error = was_cut(driver(1024), estimate, counted, written)
    assert (error is None) == (cut is None)
    if cut:
        assert cut in str(error)
        assert error.kind == "context"


def test_an_unknown_window_is_not_checked():
    assert (was_cut(driver(None), 10**6, 10**6, 10), too_long(driver(None), 10**6)) == (None, None)


def test_enough_leaves_room_for_the_reply_in_round_steps():
    assert enough(100, 100) == 256
    assert enough(100, -1) == 768  # no limit on the reply: room for 512
    assert (enough(5000, 2048), enough(5000, 2168), enough(5000, 2169)) == (7168, 7168, 8192)
