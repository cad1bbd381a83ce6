"""chat_model, OpenAI-compatible servers, and any other LangChain chat model."""

from __future__ import annotations

import json
import re
from typing import ClassVar

import pytest
from experiment_parts import Copier
from fake_ollama import DIGEST, FakeOllama, Fault
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_ollama import ChatOllama
from pydantic import BaseModel, SecretStr

import ragbench as rb
from ragbench.errors import ConfigError
from ragbench.llm import CallError, Cassette, ask, chat_model, model_name
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.models import not_named
from ragbench.llm.wire import Transport


class Word(BaseModel):
    word: str


@pytest.fixture
def fake():
    with FakeOllama(models={"llama3:8b": DIGEST, "made": DIGEST}) as server:
        yield server


QUESTION = rb.Question("q", "Who built the mill?", "Ada Ruck", ("Ada Ruck built it.",))
ANSWER = rb.Answer("q", "Ada", "x")
STEPS = {
    "a grade": (lambda model: rb.grade(model, [QUESTION], [ANSWER]), 64),
    "many grades": (lambda model: rb.grade(model, [QUESTION], [ANSWER], per_prompt="ten"), 512),
    "an answer": (lambda model: rb.generate(model, [QUESTION], ["It was built."]), 512),
    "claims": (lambda model: rb.extract_claims(model, ["Ada built it."]), 512),
    "one claim": (lambda model: rb.check_claims(model, [["Ada did."]], ["She did."]), 64),
    "sub-questions": (lambda model: rb.llm_decomposer(model)("Who built it?"), 512),
    "anything": (lambda model: ask(model, ["Write a document."]), 2048),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("own", [{}, {"num_predict": 200}])
def test_a_reply_is_as_long_as_its_step_needs_unless_the_model_names_a_bound(step, own, fake):
    call, bound = STEPS[step]
    call({"use": "ollama:llama3:8b", "host": fake.url, **own})
    sent = {seen.body["options"]["num_predict"] for seen in fake.calls}
    assert sent == {own.get("num_predict", bound)}


def test_a_modelfiles_own_bound_is_not_overruled_and_the_key_stays(fake, tmp_path):
    fake.modelfile = 'stop           "<|im_end|>"\nnum_predict    96\n'
    with Cassette(tmp_path / "c.sqlite") as cassette:
        ask(fake.model(), ["hi"], cassette=cassette, num_predict=64)
        assert "num_predict" not in fake.calls[0].body["options"]
        fake.modelfile = ""
        (reply,) = ask(fake.model(), ["hi"], cassette=cassette, num_predict=64)
    assert reply.cached
    fake.modelfile = "num_predict    96"
    ask(fake.model(num_predict=30), ["hi"])
    assert fake.calls[1].body["options"]["num_predict"] == 30


def test_an_embedding_model_cannot_be_asked_to_chat(fake):
    fake.models["all-minilm:latest"] = DIGEST
    (reply,) = ask(fake.model("ollama:all-minilm"), ["hi"])
    assert reply.error.kind == "no_model"
    assert "does not support chat" in str(reply.error)


def test_the_window_in_use_is_known_once_the_model_has_answered(fake, caplog):
    fake.window = 2048  # what /api/ps says; by /api/show the model was made for more
    model = fake.model(num_ctx=8192)
    ask(model, ["hi", "ho"])
    assert caplog.text.count("num_ctx=8192, but Ollama lowers it to 2048") == 1
    endpoint = Endpoint.of(model)
    endpoint.loaded()
    assert endpoint.num_ctx == 2048


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("ollama:llama3:8b", "ollama:llama3:8b"),
        ({"use": "ollama:llama3:8b", "num_predict": 9}, "ollama:llama3:8b"),
        (Copier(), "copier"),
        (chat_model("ollama:SmolLM2"), "ollama:smollm2:latest"),
    ],
)
def test_who_answers_has_a_name(given, name):
    assert model_name(given) == name


def test_the_host_comes_from_the_argument_or_the_environment(monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "gpu7:9999")
    assert chat_model("ollama:m").base_url == "http://gpu7:9999"
    assert chat_model("ollama:m", host="https://other/").base_url == "https://other"
    assert chat_model("ollama:m", base_url="https://other/").base_url == "https://other"
    assert chat_model("openai:m", base_url="gpu1:8000").openai_api_base == "http://gpu1:8000/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://vllm:8000/v1")
    assert chat_model("openai:m").openai_api_base == "http://vllm:8000/v1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", "http://localhost:11434"),
        ("gpu:8080", "http://gpu:8080"),
        ("http://gpu", "http://gpu"),
        ("https://gpu/ollama/", "https://gpu/ollama"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::1]:11434", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        (":11500", "http://127.0.0.1:11500"),
        ("http://h?x=1", "http://h"),
        ("http://h/v2#part", "http://h/v2"),
        ("fe80::1%eth0", "http://[fe80::1%eth0]:11434"),
        ("http://[fe80::1%25eth0]:11434", "http://[fe80::1%25eth0]:11434"),
        ("::ffff:1.2.3.4", "http://[::ffff:1.2.3.4]:11434"),
    ],
)
def test_addresses_are_completed(host, expected):
    assert Transport.address(host, 11434) == expected


def test_keywords_hold_beside_a_mapping_and_the_mapping_before_them():
    spec = {"use": "ollama:x", "num_ctx": 2048}
    model = chat_model(spec, host="gpu7", num_ctx=4096, deadline_s=5, top_p=0.5)
    assert model.base_url == "http://gpu7:11434"
    assert (model.num_ctx, model.deadline_s, model.top_p) == (2048, 5, 0.5)


def test_a_model_may_wait_for_ever():
    assert chat_model("ollama:x", deadline_s=None).deadline_s is None


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("llama3:8b", {}, "unknown model provider 'llama3'(?s:.)*write 'ollama:llama3:8b'"),
        ("ollama:x:cloud", {}, "sends prompts to ollama.com(?s:.)*cloud=True"),
        ("ollama:x:120b-cloud", {}, "sends prompts to ollama.com(?s:.)*cloud=True"),
        ("olama:llama3", {}, "did you mean 'ollama:NAME'"),
        ("smollm", {}, "did you mean 'smollm2'"),
        ("ollama:", {}, "ollama:NAME"),
        ("gguf:", {}, "gguf:FILE"),
        ("smollm2", {"host": "gpu1:8000"}, "unknown option of ChatOpenAI 'host'"),
        ("ollama:m", {"temprature": 1}, "did you mean 'temperature'"),
        ("openai:m", {"host": "h", "num_gpu": 1}, "unknown option of ChatOpenAI 'num_gpu'"),
        ("openai:gpt-4o-mini", {}, "OPENAI_API_KEY"),
        ("ollama:m", {"deadline_s": 0}, "deadline_s(?s:.)*greater than 0"),
        ("ollama:m", {"num_ctx": 0}, "num_ctx(?s:.)*greater than 0"),
        ("ollama:m", {"num_ctx": "big"}, "num_ctx(?s:.)*valid integer"),
        ("openai:m", {"host": "h", "temperature": "hot"}, "temperature(?s:.)*valid number"),
        ("openai:m", {"host": "h", "api_key": ["secretpw"]}, "^api_key"),
        ("openai:m", {"host": "h", "n": 0}, "the options of OpenAIChat"),
        ("openai:m", {"host": "h", "default_headers": "Bearer secretpw123"}, "default_headers"),
        ("ollama:m", {"host": "http://h:70000"}, "an address such as"),
        ("ollama:m", {"host": "ftp://x"}, "an address such as"),
        ("ollama:m", {"host": "http://u:secretpw@h:99999999"}, "host='h:99999999'"),
        ("ollama:m", {"host": "http://u:secretpw@h"}, "host='h'(?s:.)*goes into a header"),
        ("openai:m", {"host": "http://u:secretpw@h/v1"}, "without user and password"),
    ],
)
def test_what_cannot_work_is_named(spec, options, words, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=words) as caught:
        chat_model(spec, **options)
    assert "secretpw" not in str(caught.value)


def test_what_a_missing_or_unknown_model_needs_stands_in_its_place():
    error = not_named("judge", ", or a mouse")
    assert (error.got, error.expected) == ("no judge is named", "a chat model, or a mouse")
    with pytest.raises(ConfigError) as caught:
        chat_model("lama:m")
    assert caught.value.got.startswith("unknown model provider 'lama'")
    assert caught.value.expected.endswith("or a provider of LangChain's init_chat_model")
    assert "write 'ollama:lama:m' for Ollama, 'openai:lama:m'" in caught.value.do


def test_a_plain_chat_ollama_gets_the_same_protection(fake):
    headers = {"x-team": "rag"}
    plain = ChatOllama(model="llama3:8b", base_url=fake.url, client_kwargs={"headers": headers})
    fake.fault = lambda prompt, before: Fault("no_end_mark") if prompt == "p1" else None
    replies = ask(plain, ["p0", "p1", "p2"], retries=0)
    assert [reply.error and reply.error.kind for reply in replies] == [None, "server", None]
    assert fake.calls[0].headers["x-team"] == "rag"


def test_a_copy_of_a_model_is_asked_with_its_own_options(fake):
    model = fake.model()
    ask(model, ["p"])
    ask(model.model_copy(update={"seed": 5}), ["p"])
    assert [call.body["options"]["seed"] for call in fake.calls] == [0, 5]


# -- the OpenAI protocol
# -----------------------------------------------------------------------------------------------


def test_an_openai_server_is_asked_with_explicit_options_and_counted(fake):
    more = {"temperature": 0.5, "seed": 3}
    (reply,) = ask(fake.model("openai:made", num_predict=50, digest="d" * 9, **more), ["a b"])
    sent = more | {"max_tokens": 50, "model": "made"}
    assert sent.items() <= fake.calls[0].body.items()
    assert (reply.ok, reply.usage.prompt_tokens, reply.finish) == (True, 6, "stop")
    assert reply.digest == "d" * 9


def test_a_server_that_refuses_the_form_of_a_schema_gets_the_one_that_its_model_names():
    form = {"response_format": {"type": "json_object"}}
    with FakeOllama(openai_schema="json_object", models={"made": "d"}) as fake:
        (refused,) = ask(fake.model("openai:made"), ["a"], schema=Word, retries=0)
        (taken,) = ask(fake.model("openai:made", extra_body=form), ["a"], schema=Word)
    assert "extra_body={'response_format'" in refused.error.do
    assert taken.parsed == Word(word="x")
    assert fake.calls[-1].body["response_format"]["type"] == "json_object"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("html"), "server"),
        (Fault("garbage"), "server"),
        (Fault("no_reply"), "server"),
        (Fault("dropped"), "server"),
        (Fault("500"), "server"),
        (Fault("401"), "auth"),
        (Fault("finish", "length"), "truncated"),
        (Fault("finish", "content_filter"), "unusable"),
        (Fault("no_bytes", 9), "timeout"),
    ],
)
def test_failures_of_openai_servers_have_the_same_names(fault, kind):
    deadline_s = 0.5 if kind == "timeout" else 10
    with FakeOllama(fault=lambda p, n: fault, models={"made": "d"}) as fake:
        (reply,) = ask(fake.model("openai:made"), ["p"], retries=0, deadline_s=deadline_s)
    assert reply.error.kind == kind
    assert reply.error.got.startswith(f"openai:made at {fake.url}/v1")


def test_num_ctx_of_an_openai_server_is_checked_and_part_of_the_key(fake, tmp_path):
    fine, small = (
        ask(fake.model("openai:made", **window), ["word " * 300], cassette=tmp_path / "c.sqlite")[0]
        for window in ({}, {"num_ctx": 304})
    )
    assert fine.ok
    assert "fills the window: 304 tokens" in str(small.error)


def test_an_openai_server_has_a_window_of_its_own(fake):
    endpoint = Endpoint.of(fake.model("openai:made"))
    assert (endpoint.num_ctx, "num_ctx" in endpoint.options) == (None, False)


def test_another_model_behind_the_same_port_is_known_by_the_digest_that_is_given(fake, tmp_path):
    cassette = tmp_path / "c.sqlite"
    ask(fake.model("openai:made", digest="small"), ["p"], cassette=cassette)
    with pytest.raises(CallError, match="two digests under one name"):
        ask(fake.model("openai:made", digest="large"), ["p", "q"], cassette=cassette)
    assert len(fake.calls) == 1
    assert ask(fake.model("openai:made"), ["p"])[0].digest == ""


# -- any LangChain model
# -----------------------------------------------------------------------------------------------


class Scripted(BaseChatModel):
    """A chat model of somebody else: answers, or raises what it is told to."""

    temperature: float = 0.0
    token: SecretStr = SecretStr("hf_secret_token")
    service_url: str = "http://somewhere"
    seen: ClassVar[list] = []

    @property
    def _llm_type(self):
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.seen.append([message.type for message in messages])
        text = messages[-1].content
        if text == "raise":
            raise RuntimeError("boom with hf_secret_token")
        if text == "refuse":
            raise ConnectionRefusedError(111, "Connection refused")
        message = AIMessage(
            content=json.dumps({"word": text}) if "json" in text.lower() else text.upper(),
            response_metadata={"finish_reason": "length" if text == "long" else "stop"},
            usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_any_langchain_chat_model_can_be_asked():
    listed = ask(FakeListChatModel(responses=["same"]), ["a", "b"])
    assert [reply.text for reply in listed] == ["same"] * 2
    model = Scripted()
    replies = ask(model, ["one", [("system", "s"), ("user", "two")], "long", "raise"], retries=0)
    assert [reply.text for reply in replies[:2]] == ["ONE", "TWO"]
    assert ["system", "human"] in model.seen
    assert (replies[0].usage.prompt_tokens, replies[0].model) == (3, "scripted:Scripted")
    assert (replies[2].error.kind, replies[3].error.kind) == ("truncated", "server")
    assert "boom" in str(replies[3].error)
    assert "hf_secret" not in str(replies[3].error)


def test_other_models_are_recorded_by_their_options_without_secrets_and_addresses(tmp_path):
    other_key = {"token": "other-token"}
    elsewhere = {"service_url": "http://else"}
    path = tmp_path / "c.sqlite"
    with Cassette(path) as tape:
        for options in ({}, elsewhere, {"temperature": 0.7}):
            assert not ask(Scripted(**options), ["p"], cassette=tape)[0].cached
            assert ask(Scripted(**options, **other_key), ["p"], cassette=tape)[0].cached
    assert not re.search(b"hf_secret|somewhere|//else", path.read_bytes())


def test_structured_replies_of_other_models_are_validated_all_the_same():
    good, bad = ask(Scripted(), ["json please", "plain"], schema=Word)
    assert good.parsed == Word(word="json please")
    # the repair prompt asks for JSON, and Scripted obeys that
    assert (bad.error, bad.repairs) == (None, 1)


def test_a_model_that_knows_structured_output_is_told_of_the_schema():
    told = []

    class Knowing(Scripted):
        def with_structured_output(self, schema, *, include_raw=False, **kwargs):
            told.append(dict(schema))
            schema.clear()  # what a client does with it is its own affair
            call = {"name": "Word", "args": {"word": "by tool"}, "id": "1", "type": "tool_call"}
            raw = AIMessage(content="", tool_calls=[call])
            return RunnableLambda(lambda _: {"raw": raw, "parsed": None})

    replies = ask(Knowing(), ["a", "b"], schema=Word)
    assert [reply.parsed for reply in replies] == [Word(word="by tool")] * 2
    assert told == [Word.model_json_schema()] * 2
