"""Checkers of a user's choice: a model on loopback in MiniCheck's form, and objects."""

import pytest
from fake_ollama import FakeOllama

from ragbench.errors import ConfigError
from ragbench.labelling.checkers import ModelChecker


def test_model_checker_sends_minichecks_form_and_reads_yes_and_no():
    asked = []

    def reply(request):
        asked.append(request["messages"][-1]["content"])
        return "Yes" if "Claim: The mill burnt down." in asked[-1] else " no."

    with FakeOllama(reply=reply) as server:
        checker = ModelChecker(server.model())
        labels = checker.check_many(
            ["The mill burnt down.", "The mill is new."], ["It burnt down.", ""]
        )
    assert labels == [["Entailment", "Neutral"], ["Neutral", "Neutral"]]
    assert sorted(asked) == [
        "Document: It burnt down.\nClaim: The mill burnt down.",
        "Document: It burnt down.\nClaim: The mill is new.",
    ]


def test_a_verdict_that_is_neither_yes_nor_no_is_no_label_and_counted():
    with FakeOllama(reply=lambda request: "Notably, perhaps") as server:
        checker = ModelChecker(server.model())
        with pytest.warns(UserWarning, match=r"1 of 1 claims got no label.*Notably"):
            assert checker.check_many(["It burnt."], ["A text.", " "]) == [[None, "Neutral"]]


def test_a_checker_is_named():
    with pytest.raises(ConfigError, match=r"no checker is named(.|\n)*ollama:llama3:8b.*smollm2"):
        ModelChecker(None)
