"""No prompt is cut in silence: Ollama is asked to refuse one that does not fit; a window that is
full is no answer.
"""

import json

import httpx
import pytest
from fake_ollama import FakeOllama
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.llm import ask, chat_model, estimate_tokens


def one(prompt, **options):
    server = {
        name: options.pop(name) for name in ("overflow", "no_counts", "version") if name in options
    }
    with FakeOllama(**server) as fake:
        return ask(fake.model(**options), [prompt], retries=0)[0], fake.calls


def test_estimate_is_four_plain_characters_or_one_other_per_token():
    assert (estimate_tokens(""), estimate_tokens("abcd"), estimate_tokens("abcde")) == (0, 1, 2)
    assert (estimate_tokens("检索增强生成"), estimate_tokens("abcd检")) == (6, 2)


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text())
def test_estimate_never_shrinks_when_text_is_added(a, b):
    assert (
        max(estimate_tokens(a), estimate_tokens(b))
        <= estimate_tokens(a + b)
        <= estimate_tokens(a) + estimate_tokens(b)
    )


def test_a_prompt_that_does_not_fit_is_refused_in_the_servers_words_and_asked_once():
    reply, calls = one("ab " * 500, num_ctx=256, num_predict=60)
    assert (reply.error.kind, len(calls)) == ("truncated", 1)
    assert "504 tokens and exceeds the context length of 256" in str(reply.error)
    assert "num_ctx" in reply.error.do
    assert calls[0].body["truncate"] is False


def test_a_full_window_is_no_answer_on_a_server_that_does_not_know_truncate():
    reply, _ = one("ab " * 500, num_ctx=256, num_predict=60, overflow="fill")
    assert "the prompt fills the window: 256 tokens, num_ctx is 256" in str(reply.error)


def test_from_ollama_0_30_on_the_count_of_a_prompt_is_not_taken_for_its_length():
    assert one("a b c")[0].usage.prompt_tokens == 7
    reply, _ = one("a b c", version="0.30.0")
    assert (reply.ok, reply.usage.prompt_tokens, reply.usage.uncounted) == (True, 0, 1)
    assert one("a b c", no_counts=True)[0].usage.uncounted == 1


@pytest.mark.parametrize(
    ("words", "options", "sent"),
    [
        (10, {"num_ctx": 512, "num_predict": 64}, None),
        (300, {"num_ctx": 512, "num_predict": 64}, False),
        (1, {"num_ctx": 512, "num_predict": -1}, False),
        (1, {"num_ctx": 4096, "num_predict": 5000}, False),
    ],
)
def test_shift_is_sent_only_where_prompt_and_answer_could_reach_the_window(words, options, sent):
    _, (call,) = one("word " * words, **options)
    assert call.body.get("shift") is sent


def test_a_server_below_a_path_is_asked_to_refuse_what_does_not_fit_too():
    bodies = {}

    def handle(request):
        bodies[request.url.path] = b"".join(request.stream)
        return httpx.Response(404)

    wire = {"transport": httpx.MockTransport(handle)}
    model = chat_model("ollama:x", host="http://h/ollama", digest="d", client_kwargs=wire)
    ask(model, ["p"], retries=0)
    assert json.loads(bodies["/ollama/api/chat"])["truncate"] is False
