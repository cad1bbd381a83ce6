"""Who a model is: two that can answer differently never share a reply."""

import functools
import types

import pytest
from fake_ollama import FakeOllama
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from ragbench.errors import ConfigError
from ragbench.llm import Cassette, ask, chat_model
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.identity import identity


class Own(BaseChatModel):
    """A model of one's own: its field is what it says."""

    said: str = "a"

    @property
    def _llm_type(self):
        return "own"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        message = AIMessage(content=self.said)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Router(BaseChatModel):
    """The real model is inside, or is named by an address."""

    inner: BaseChatModel | None = None
    endpoint_url: str = ""

    @property
    def _llm_type(self):
        return "router"

    def _generate(self, *args, **kwargs):
        return self.inner._generate(*args, **kwargs)


def cached_after(path, first, second):
    replies = []
    for model in (first, second):
        with Cassette(path) as cassette:
            replies.append(ask(model, ["p"], cassette=cassette, progress=False)[0])
    return replies[1].cached


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (Own(said="a"), Own(said="a"), True),
        (Own(said="a"), Own(said="b"), False),
        (Router(inner=Own(said="a")), Router(inner=Own(said="b")), False),
        (
            Router(inner=Own(), endpoint_url="http://a"),
            Router(inner=Own(), endpoint_url="http://b"),
            False,
        ),
    ],
)
def test_models_within_and_addresses_tell_models_apart(tmp_path, first, second, same):
    assert cached_after(tmp_path / "c.sqlite", first, second) == same


MODULE = """
import own_base
class Mine(own_base.Base):
    def answer(self, question, context):
        return "one"
"""
BASE = """
class Base:
    name = "mine"
    def helper(self):
        return 1
"""


def test_an_edited_class_or_base_is_another_model(tmp_path, monkeypatch):
    import importlib
    import linecache
    import sys

    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    for mine, base in ((MODULE, BASE), (MODULE.replace("one", "two"), BASE),
                       (MODULE, BASE.replace("1", "2"))):  # fmt: skip
        (tmp_path / "own_mine.py").write_text(mine)
        (tmp_path / "own_base.py").write_text(base)
        for name in ("own_mine", "own_base"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        linecache.clearcache()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        seen.append(str(identity(importlib.import_module("own_mine").Mine())))
    assert len(set(seen)) == 3


def test_what_cannot_be_told_apart_is_refused_and_a_model_id_helps():
    class Opaque:
        name = "opaque"

        def __init__(self):
            self.weights = memoryview(b"")

    model = Opaque()
    with pytest.raises(ConfigError, match="give it a model_id"):
        identity(model)
    model.model_id = "weights of May"
    assert identity(model) == {"model_id": "weights of May"}


def test_a_function_is_its_source_and_what_it_holds():
    def made(word):
        return lambda question, context: word

    one, same, other = (str(identity(made(word))) for word in ("a", "a", "b"))
    assert one == same != other


WORD = "a"


def says_word(question, context):
    return WORD


def clean(text):
    return text.strip()


def says_clean(question, context):
    return clean(context)


class Says:
    def __init__(self, word):
        self.word = word

    def answer(self, question, context):
        return self.word


def test_a_text_that_a_function_names_is_part_of_it(monkeypatch):
    before = identity(says_word)
    monkeypatch.setitem(globals(), "WORD", "b")
    assert identity(says_word) != before
    assert "secret" not in str(identity(lambda question, context, key="secret": key))


def test_a_function_of_ones_own_that_a_function_calls_is_part_of_it(monkeypatch):
    before = identity(says_clean)
    assert identity(says_clean) == before
    monkeypatch.setitem(globals(), "clean", lambda text: text)
    assert identity(says_clean) != before


def test_methods_and_partials_are_told_apart_by_what_they_hold():
    kinds = [lambda word: Says(word).answer, lambda word: functools.partial(Says("").answer, word)]
    for kind in kinds:
        one, same, other = (str(identity(kind(word))) for word in ("a", "a", "b"))
        assert one == same != other


def test_an_object_of_a_library_with_parts_that_are_no_models_is_refused():
    with pytest.raises(ConfigError, match="give it a model_id"):
        identity(types.SimpleNamespace(index=memoryview(b"")))


def test_two_servers_without_digests_are_two_models(tmp_path):
    with FakeOllama() as one, FakeOllama() as two:
        models = [chat_model("openai:default", host=f"{fake.url}/v1") for fake in (one, two)]
        assert not cached_after(tmp_path / "a.sqlite", *models)
        pinned = [
            chat_model("openai:default", host=f"{fake.url}/v1", digest="d") for fake in (one, two)
        ]
        assert cached_after(tmp_path / "b.sqlite", *pinned)
        assert one.url not in str(Endpoint.of(models[0]).key_options(""))
