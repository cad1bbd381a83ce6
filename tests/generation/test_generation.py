"""Generation: contexts, the two prompts, chat models through the fake server, and objects that
answer.
"""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from checks import refused
from experiment_parts import NOTHING, Copier
from fake_ollama import Fault

from ragbench.errors import ConfigError
from ragbench.generation import generate
from ragbench.llm import Cassette
from ragbench.prompts import load_prompt
from ragbench.records import Question

CONTEXT = "The Battle of Fell was fought in 1702. The Duke of Orm won it."


def question(text, qid="q1"):
    return Question(qid, text, "")


# generate


def test_an_object_gives_one_timed_answer_per_question_and_context(monkeypatch):
    clock = iter([0, 0.5, 2, 2.25])
    monkeypatch.setattr("ragbench.generation.answers.time.perf_counter", lambda: next(clock))
    answers = generate(Copier(), [question("Who won the Battle of Fell?")] * 2, [CONTEXT, None])
    # the time of each is its own, not the first one's too
    assert [(a.question_id, a.text, a.generator, a.seconds) for a in answers] == [
        ("q1", CONTEXT, "copier", 0.5),
        ("q1", NOTHING, "copier", 0.25),
    ]


def test_without_a_generator_the_two_ways_to_one_are_named():
    with refused(ConfigError, r"no generator is named(.|\n)*ollama:llama3:8b.*smollm2"):
        generate(None, [question("a")], [CONTEXT])


@pytest.mark.parametrize(
    ("asked", "contexts", "options_", "message"),
    [
        ([question("a")], [], {}, "0 contexts for 1 questions"),
        ([question("a")], "text", {}, "single question or context"),
        (
            [question("a")],
            [""],
            {"retries": 2, "cassette": None},
            "^retries for an object that answers",
        ),
    ],
)
def test_bad_input_to_generate_is_named(asked, contexts, options_, message):
    with refused(ConfigError, message):
        generate(Copier(), asked, contexts, **options_)


def test_the_prompts_carry_their_fields_and_end_with_what_varies():
    documents = load_prompt("thesis_with_documents")
    alone = load_prompt("thesis_query_only")
    # or the levels would share no prefix
    assert documents.index("{query}") < documents.index("{documents}")
    assert len(documents) - documents.index("{documents}") < 50
    assert "{query}" in alone
    assert "{documents}" not in alone


def sent(call):
    return call.body["messages"][-1]["content"]


def test_each_context_gets_its_own_prompt_and_answers_come_back_in_our_order(fake):
    fake.reply = lambda body: "said " + str(len(body["messages"][-1]["content"]))
    asked = [question("A?", "a"), question("B?", "b"), question("A?", "a"), question("A?", "a")]
    contexts = ["one two three", "", "one", None]
    answers = generate(fake.model(), asked, contexts, progress=False)

    def filled(query, context):
        if context is None:
            return load_prompt("thesis_query_only").replace("{query}", query)
        prompt = load_prompt("thesis_with_documents").replace("{query}", query)
        return prompt.replace("{documents}", context)

    expected = [filled(q.text, context) for q, context in zip(asked, contexts, strict=True)]
    assert sorted(map(sent, fake.calls)) == sorted(expected)
    assert [a.text for a in answers] == [f"said {len(prompt)}" for prompt in expected]
    assert [a.question_id for a in answers] == ["a", "b", "a", "a"]
    names = ["thesis_with_documents"] * 3 + ["thesis_query_only"]
    assert [a.meta["prompt"] for a in answers] == names
    for answer in answers:
        assert (answer.generator, "error" in answer.meta) == ("ollama:llama3:8b", False)
        assert answer.seconds > 0
    assert len({a.meta["prompt_sha256"] for a in answers}) == 2


@pytest.mark.parametrize(
    ("reply", "text", "tagged"),
    [
        ("<answer>Ely.</answer>", "Ely.", True),
        ("Let me see.\n<Answer>\nEly,\nin 1901.\n</Answer> Done.", "Ely,\nin 1901.", True),
        ("<answer>Ely.", "Ely.", True),
        ("Ely.", "Ely.", False),
    ],
)
def test_where_the_prompt_asks_for_tags_the_answer_is_what_stands_between_them(
    fake, reply, text, tagged
):
    fake.reply = lambda body: reply
    asked = [question("A?", "a")]
    options = {"progress": False}
    (made,) = generate(fake.model(), asked, ["one"], with_documents="ragchecker_default", **options)
    assert (made.text, made.meta["tagged"]) == (text, tagged)
    (made,) = generate(fake.model(), asked, ["<answer>"], **options)
    assert made.text == reply
    assert "tagged" not in made.meta


def test_failed_calls_become_empty_answers_with_the_reason(fake):
    fake.fault = lambda prompt, _: Fault("400") if "B?" in prompt else None
    asked = [question("A?", "a"), question("B?", "b")]
    whole, failed = generate(fake.model(), asked, [None, None], progress=False, retries=0)
    assert whole.text
    assert "error" not in whole.meta
    assert (failed.question_id, failed.text) == ("b", "")
    assert "mirostat" in failed.failure.message


def test_what_a_failed_call_wrote_is_no_answer(fake):
    fake.fault = lambda prompt, _: Fault("no_end_mark")
    (failed,) = generate(fake.model(), [question("A?")], [None], progress=False, retries=0)
    assert (failed.text, failed.failure.kind == "server") == ("", True)
    assert failed.meta["raw"]


def test_calls_to_a_model_run_as_its_server_works_unless_a_number_is_given(fake, monkeypatch):
    from ragbench.llm import Reply

    ask = Mock(
        side_effect=lambda model, prompts, **_: [Reply("yes", ok=True, seconds=0.5)] * len(prompts)
    )
    monkeypatch.setattr("ragbench.llm.ask", ask)
    generate("ollama:m", [question("A?")] * 2, ["one two", "one"])
    _, prompts = ask.call_args.args
    assert ask.call_args.kwargs["ids"] == ["q1/documents"] * 2
    assert [len(prompt) for prompt in prompts] == sorted(map(len, prompts))
    (answer,) = generate("ollama:m", [question("A?")], ["text"], cassette="c")
    options = ask.call_args.kwargs
    assert (options.get("concurrency"), options["step"], options["cassette"]) == (
        None,
        "generation",
        "c",
    )
    assert (answer.seconds, answer.meta["concurrency"]) == (0.5, None)


def test_each_prompt_is_recorded_under_its_own_name(fake, tmp_path):
    names = {"ids": ["a at 300", "a at 100"], "progress": False}
    asked = [question("A?", "a")] * 2
    with Cassette(tmp_path / "c.sqlite") as cassette:
        generate(fake.model(), asked, ["one two three", "one"], cassette=cassette, **names)
        recorded = cassette.rows("SELECT prompt_id, request FROM replies ORDER BY prompt_id")
    assert [(name, "three" in request) for name, request in recorded] == [
        ("a at 100", False),
        ("a at 300", True),
    ]


def test_braces_in_documents_are_not_filled_in(fake):
    generate(fake.model(), [question("A?")], ["see {query}"], progress=False)
    assert "see {query}" in sent(fake.calls[0])


def test_names_of_prompts_are_one_a_prompt_or_those_of_the_questions(fake):
    asked = [question("Who won?"), question("Where is Fell?", "q2")]
    contexts = [CONTEXT, CONTEXT]
    for names in (None, ["a", "b"]):
        answers = generate(fake.model(), asked, contexts, ids=names, progress=False)
        assert [answer.question_id for answer in answers] == ["q1", "q2"]


class Unnamed:
    def answer(self, question, context):
        return "x"


@pytest.mark.parametrize("model", [lambda question, context: "x", Unnamed()])
def test_a_function_or_an_object_without_a_name_is_refused_with_what_is_needed(model):
    with refused(ConfigError, r"object with name and answer\(question, context\)"):
        generate(model, [question("A?")], ["one"])
