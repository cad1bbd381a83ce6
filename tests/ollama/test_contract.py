"""One contract, two servers: what the double says is what a real Ollama says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from fake_ollama import FakeOllama, example

LONG = "The mill was founded in 1841 and closed in 1902. " * 400
OBJECT = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}


@dataclass(frozen=True)
class Situation:
    """A request, the status of its answer, and words or fields that the answer holds."""

    path: str
    body: dict[str, Any]
    status: int = 200
    words: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


def chat(status=200, words="", fields=None, **body):
    asked = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "Say hello."}],
        "stream": False,
    } | body
    asked["options"] = {"num_predict": 8, "num_ctx": 512} | body.get("options", {})
    return Situation("/api/chat", asked, status, words, fields or {})


def embed(status=200, words="", fields=None, **body):
    return Situation("/api/embed", {"model": "all-minilm"} | body, status, words, fields or {})


def of_user(text):
    return [{"role": "user", "content": text}]


SITUATIONS = {
    "a model that is not there": chat(404, "model 'nope' not found", model="nope"),
    "a name in other letters": chat(model="SmolLM2", fields={"model": "SmolLM2", "done": True}),
    "a name with its library": chat(model="library/smollm2", fields={"model": "library/smollm2"}),
    "a whole name": chat(model="registry.ollama.ai/library/smollm2:latest", fields={"done": True}),
    "a tag in other letters": chat(model="smollm2:LATEST", fields={"done": True}),
    "a name with a blank": chat(400, "invalid model name", model="a b"),
    "no name": chat(400, "model is required", model=""),
    "a prompt that is too long is cut": chat(
        messages=of_user(LONG), fields={"prompt_eval_count": 512}
    ),
    "cut where asked for": chat(
        messages=of_user(LONG), truncate=True, fields={"prompt_eval_count": 512}
    ),
    "refused where asked for": chat(
        400, "exceeds the context length", messages=of_user(LONG), truncate=False
    ),
    "an end at the limit": chat(fields={"done_reason": "length", "eval_count": 8}),
    "an option of another type": chat(
        500, 'option "num_ctx" must be of type integer', options={"num_ctx": "many"}
    ),
    "a schema of no type": chat(500, "invalid JSON schema in format", format={"type": "nonsense"}),
    "another format": chat(500, "invalid format", format="xml"),
    "a schema": chat(format=OBJECT, options={"num_predict": 60}, fields={"done": True}),
    "an option that is not known": chat(options={"nonsense": 1}, fields={"done": True}),
    "a model that cannot think": chat(400, '"smollm2" does not support thinking', think=True),
    "no messages": chat(messages=[], fields={"done_reason": "load"}),
    "a chat with an embedder": chat(400, '"all-minilm" does not support chat', model="all-minilm"),
    "texts": embed(input=["a mill", "a book"]),
    "one text": embed(input="a mill"),
    "a text that is too long is cut": embed(input=LONG),
    "a long text refused": embed(
        400, "exceeds the context length", input=["a", LONG], truncate=False
    ),
    "an empty text": embed(input="", fields={"embeddings": []}),
    "no text": embed(input=[], fields={"embeddings": []}),
    "a number": embed(400, "invalid input type", input=5),
    "an embedder that is not there": embed(
        404, 'model "nope" not found, try pulling it first', model="nope", input="a"
    ),
}


# What 0.30, with llama.cpp's server inside, answers otherwise; its count leaves out what its cache
# had.
FROM_0_30 = {
    "a prompt that is too long is cut": {"fields": {"done": True}},
    "cut where asked for": {"fields": {"done": True}},
    "refused where asked for": {"words": "exceed_context_size_error"},
    "a schema of no type": {"status": 400, "words": "JSON schema conversion failed"},
}


@pytest.fixture(scope="module")
def double():
    models = {"smollm2:latest": "a" * 64, "all-minilm:latest": "b" * 64}

    def reply(body):
        return json.dumps(example(body["format"])) if body.get("format") else "Hello, mill! " * 50

    with FakeOllama(models=models, reply=reply, thinks=False, context_length=8192) as server:
        yield server.url


@pytest.fixture(params=["double", pytest.param("ollama", marks=pytest.mark.ollama)])
def server(request):
    """The address of the double, and of a real Ollama."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("name", SITUATIONS)
def test_answer(server, name):
    situation = SITUATIONS[name]
    version = httpx.get(f"{server}/api/version").json()["version"]
    if tuple(map(int, version.split(".")[:2])) >= (0, 30):
        situation = replace(situation, **FROM_0_30.get(name, {}))
    answer = httpx.post(f"{server}{situation.path}", json=situation.body, timeout=120)
    assert answer.status_code == situation.status, answer.text
    said = answer.json()
    assert situation.words in said.get("error", "")
    assert {key: said.get(key) for key in situation.fields} == situation.fields


def test_one_vector_of_unit_length_for_each_text(server):
    vectors = httpx.post(f"{server}/api/embed", json=SITUATIONS["texts"].body, timeout=60).json()[
        "embeddings"
    ]
    assert len(vectors) == 2
    assert len(vectors[0]) == len(vectors[1])
    assert sum(x * x for x in vectors[0]) == pytest.approx(1, abs=1e-3)


def test_a_schema_is_obeyed(server):
    said = httpx.post(f"{server}/api/chat", json=SITUATIONS["a schema"].body, timeout=60).json()
    assert json.loads(said["message"]["content"])["a"] in ("x", "y")


def test_a_stream_ends_with_its_end_mark(server):
    body = SITUATIONS["an end at the limit"].body | {"stream": True}
    lines = [
        json.loads(line)
        for line in httpx.post(f"{server}/api/chat", json=body, timeout=60).text.splitlines()
    ]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1]["done_reason"] == "length"


def test_tags_have_digests_and_show_has_capabilities(server):
    tags = httpx.get(f"{server}/api/tags").json()["models"]
    digests = {model["model"]: model["digest"] for model in tags}
    assert {"smollm2:latest", "all-minilm:latest"} <= set(digests)
    assert all(len(digest) == 64 for digest in digests.values())
    capabilities = {
        name: httpx.post(f"{server}/api/show", json={"model": name}).json()["capabilities"]
        for name in ("smollm2", "all-minilm")
    }
    assert "completion" in capabilities["smollm2"]
    assert capabilities["all-minilm"] == ["embedding"]


def test_a_loaded_model_tells_its_window_which_is_what_it_was_made_for_at_most(server):
    body = SITUATIONS["an end at the limit"].body | {
        "options": {"num_ctx": 100_000, "num_predict": 1}
    }
    httpx.post(f"{server}/api/chat", json=body, timeout=60)
    (loaded,) = [
        model
        for model in httpx.get(f"{server}/api/ps").json()["models"]
        if model["model"] == "smollm2:latest"
    ]
    assert loaded["context_length"] == 8192
