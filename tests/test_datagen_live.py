"""Data generation with a model: the prompts that are sent and what is made of the replies (loopback server)."""

import json
import re

import pytest
from fake_ollama import FakeOllama

from ragbench.datagen import (
    KINDS,
    load_schema,
    make_configurations,
    make_model_set,
    make_set,
)
from ragbench.datagen.configuration import model_values
from ragbench.datagen.document import model_documents
from ragbench.datagen.questions import model_keypoints, model_questions, model_references, model_refine
from ragbench.datagen.wording import mentions
from ragbench.errors import ConfigError
from ragbench.llm import chat_model
from ragbench.prompts import load_prompt


class Scripted:
    """A server that answers by the first rule whose words occur in the prompt; keeps the prompts."""

    def __init__(self):
        self.rules, self.prompts = [], []

    def on(self, words, answer):
        self.rules.append((words, answer))

    def __call__(self, body):
        prompt = body["messages"][-1]["content"]
        self.prompts.append(prompt)
        for words, answer in self.rules:
            if words in prompt:
                got = answer(prompt) if callable(answer) else answer
                return got if isinstance(got, str) else json.dumps(got, ensure_ascii=False)
        raise AssertionError(f"no rule for {prompt[:80]}")


@pytest.fixture
def script():
    return Scripted()


@pytest.fixture
def model(script):
    with FakeOllama(reply=script) as server:
        yield chat_model("ollama:llama3:8b", host=server.url)


@pytest.fixture(scope="module")
def schema():
    return load_schema("medicine", "en")


@pytest.fixture(scope="module")
def made(schema):
    return make_set(schema, 2, 3)


@pytest.fixture(scope="module")
def texts(made):
    return {d.id: d for d in made.documents}


@pytest.fixture(scope="module")
def question(made):
    return next(q for q in made.questions if q.kind == "factual")


def section_text(prompt):
    """Write the section as asked: each listed fact in a sentence of its own."""
    facts = re.findall(r"^- (.+?): (.+)$", prompt.split("Facts:")[1], flags=re.M)
    return " ".join(f"The {name} is {value}." for name, value in facts)


def numbered(prompt, title):
    block = prompt.split(f"{title}:\n")[1].split("\n\n")[0]
    return dict(re.findall(r"^(\d+)\. (.*)$", block, flags=re.M))


def test_model_values_replace_marked_fields_and_bad_ones_keep_the_rule(script, model, schema):
    configurations = make_configurations(schema, 3, 1)
    replies = iter(["steady gains in strength.", "recovery by 40 percent", "treatment at the Mayo Clinic"])
    script.on("You make up a value", lambda prompt: {"value": next(replies)})
    done = model_values(model, schema, configurations)
    changed = [c.text["effect"] for c, old in zip(done.made, configurations, strict=True) if c.text != old.text]
    assert changed == ["steady gains in strength"]
    assert len(done.failed) == 2
    reasons = " / ".join(reason for _, reason in done.failed)
    assert "a number or date" in reasons
    assert "a real name: 'mayo clinic'" in reasons
    for c in configurations:
        assert f"- disease: {c.text['disease']}" in next(p for p in script.prompts if c.text["patient"] in p)


def test_a_value_that_repeats_another_fact_is_refused(script, model, schema):
    configuration = make_configurations(schema, 1, 1)[0]
    script.on("You make up a value", {"value": configuration.text["disease"]})
    done = model_values(model, schema, [configuration])
    assert done.made[0].text == configuration.text
    assert "cannot be told apart" in done.failed[0][1]


def test_documents_are_written_section_by_section_from_the_facts(script, model, schema):
    configurations = make_configurations(schema, 2, 1)
    script.on("You write one section", section_text)
    done = model_documents(model, schema, configurations, drop=[["allergy"], []])
    assert done.failed == ()
    assert len(script.prompts) == 2 * len(schema.sections)
    first, second = done.made
    assert first.dropped == ("allergy",)
    assert not mentions(first.text, configurations[0].text["allergy"])
    assert second.dropped == ()
    assert [s.heading for s in first.sections] == [s.heading for s in schema.sections]
    assert first.id == configurations[0].id
    assert not any("allergy" in p for p in script.prompts if configurations[0].text["patient"] in p)


def test_facts_that_the_model_leaves_out_are_listed_as_dropped(script, model, schema):
    configuration = make_configurations(schema, 1, 1)
    script.on("You write one section", lambda p: section_text(p).replace(configuration[0].text["disease"], "it"))
    assert model_documents(model, schema, configuration).made[0].dropped == ("disease",)


def test_zero_and_one_shot_know_no_configuration(script, model, schema):
    configurations = make_configurations(schema, 1, 1)
    script.on("as an example of kind", "# A case\nIt began. It ended.")
    script.on("Write an invented document", "A title\nOne thing. Another.")
    zero = model_documents(model, schema, configurations, "zero-shot").made[0]
    one = model_documents(model, schema, configurations, "one-shot", sample="SAMPLE TEXT").made[0]
    assert (zero.title, [s.text for s in zero.sentences]) == ("A title", ["One thing.", "Another."])
    assert (one.title, one.writer) == ("A case", "model, one-shot")
    assert "SAMPLE TEXT" in script.prompts[1]
    assert configurations[0].subdomain in script.prompts[0]
    assert not any(configurations[0].text["patient"] in p for p in script.prompts)


def test_modes_that_cannot_work_are_refused(schema):
    with pytest.raises(ConfigError, match="one-shot, zero-shot"):
        model_documents(None, schema, [], "two-shot")
    with pytest.raises(ConfigError, match="without a sample"):
        model_documents(None, schema, [], "one-shot")


def test_questions_of_every_type_are_asked_from_the_facts(script, model, schema, made):
    count = iter(range(1000))
    script.on(
        "You write one question", lambda p: {"question": f"Question {next(count)}?", "statements": ["A.", "B.", "C."]}
    )
    one_each = dict.fromkeys(KINDS, 1) | {"factual": 2}
    done = model_questions(model, schema, made.configurations, made.documents, one_each)
    assert done.failed == ()
    assert len(done.made) == 2 * (len(KINDS) + 1)
    assert {len(q.doc_ids) for q in done.made if q.kind == "temporal sequence"} == {2}
    unanswerable = [p for p in script.prompts if "Missing:" in p]
    assert len(unanswerable) == 2
    for document, configuration in zip(made.documents, made.configurations, strict=True):
        own = [p for p in script.prompts if configuration.text["patient"] in p]
        assert not any(mentions(p, configuration.text[n]) for p in own for n in document.dropped)
    # The second factual question is shown the first.
    shown = [p for p in script.prompts if "Type of question: factual" in p and "none yet" not in p]
    assert len(shown) == 2


def test_types_that_a_document_cannot_have_are_listed(script, model, schema, made):
    script.on("You write one question", {"question": "Q?", "statements": ["A.", "B.", "C."]})
    single = model_questions(model, schema, made.configurations[:1], made.documents[:1], {"temporal sequence": 1})
    assert (single.made, single.failed[0][1]) == ((), "needs a second document")
    with pytest.raises(ConfigError, match="unknown type of question"):
        model_questions(model, schema, made.configurations, made.documents, {"riddle": 1})


def test_references_are_chosen_by_number_and_are_verbatim(script, model, texts, question):
    script.on("You look for evidence", {"sentences": [3, 1, 3]})
    got = model_references(model, [question], texts).made[0]
    sentences = [s.text for s in texts[question.doc_ids[0]].sentences]
    assert [r.text for r in got.references] == [sentences[0], sentences[2]]
    assert numbered(script.prompts[0], "Sentences")["1"] == sentences[0]


def test_unanswerable_questions_pass_in_their_place_without_being_asked(script, model, made, texts, question):
    passed = next(q for q in made.questions if q.kind == "unanswerable")
    script.on("You look for evidence", {"sentences": [1]})
    script.on("You compare an answer", {"unsupported": [], "missing": []})
    for step in (model_references, model_refine):
        first, second = step(model, [passed, question], texts).made
        assert (first, second.id) == (passed, question.id)
    assert len(script.prompts) == 2


@pytest.mark.parametrize("number", [0, 999])
def test_a_number_that_does_not_exist_is_a_failure(script, model, texts, question, number):
    script.on("You look for evidence", {"sentences": [number]})
    done = model_references(model, [question], texts)
    assert (done.made, done.failed[0][0]) == ((), question.id)
    assert str(number) in done.failed[0][1]


def test_refinement_applies_the_papers_rules_to_what_the_model_reports(script, model, texts, question):
    sentences = [s.text for s in texts[question.doc_ids[0]].sentences]
    spare = next(i for i, s in enumerate(sentences, 1) if s not in [r.text for r in question.references])
    report = {
        "unsupported": [{"statement": 1, "sentence": spare}, {"statement": 2, "sentence": 0}],
        "missing": ["One more thing."],
    }
    script.on("You compare an answer", report)
    got = model_refine(model, [question], texts).made[0]
    assert got.statements == (question.statements[0], *question.statements[2:], "One more thing.")
    assert sentences[spare - 1] in [r.text for r in got.references]
    assert len(got.references) == len(question.references) + 1
    changes = [c.split(":")[0] for c in got.changes[len(question.changes) :]]
    assert changes == ["reference added", "removed", "supplemented"]


def test_keypoints_come_from_the_model_and_two_are_a_failure(script, model, made):
    good, bad = made.questions[:2]
    script.on(good.question, {"keypoints": ["a", "b", "c"]})
    script.on(bad.question, {"keypoints": ["a", "b"]})
    done = model_keypoints(model, [good, bad])
    assert [(q.id, q.keypoints) for q in done.made] == [(good.id, ("a", "b", "c"))]
    assert [name for name, _ in done.failed] == [bad.id]


def test_every_step_sends_a_prompt_of_ones_own(script, model, schema, made, texts, tmp_path):
    first, pair = made.questions[:1], (made.configurations[:1], made.documents[:1])
    steps = {
        "rageval_values": lambda prompt: model_values(model, schema, pair[0], prompt=prompt),
        "rageval_document": lambda prompt: model_documents(model, schema, pair[0], prompt=prompt),
        "rageval_question": lambda prompt: model_questions(model, schema, *pair, {"factual": 1}, prompt=prompt),
        "rageval_references": lambda prompt: model_references(model, first, texts, prompt=prompt),
        "rageval_refine": lambda prompt: model_refine(model, first, texts, prompt=prompt),
        "rageval_keypoints": lambda prompt: model_keypoints(model, first, prompt=prompt),
    }
    script.on("", "no JSON")
    for name, step in steps.items():
        mine = tmp_path / f"{name}.txt"
        mine.write_text(f"In verse. {load_prompt(name)}")
        script.prompts.clear()
        step(mine)
        assert script.prompts[0].startswith("In verse. "), name


def answer_every_step(script):
    script.on("You write one section", section_text)
    script.on("You write one question", ask_and_answer)
    script.on("You look for evidence", lambda p: {"sentences": supporting(p)})
    script.on("You compare an answer", {"unsupported": [], "missing": []})
    script.on("You take the key points", lambda p: {"keypoints": ["one", "two", "three"]})


def test_the_whole_way_with_a_model(script, model, schema):
    script.on("You make up a value", {"value": "slow gains"})
    answer_every_step(script)
    generated, failed = make_model_set(model, schema, 2, 1, {"factual": 2, "information integration": 1})
    assert len(generated.documents) == 2
    assert len(generated.questions) == 6
    assert all(q.references for q in generated.questions)
    assert [name for name, _ in failed] == []
    assert generated.problems() == []
    assert all(c.text["effect"] == "slow gains" for c in generated.configurations)


def ask_and_answer(prompt):
    """Ask about the first three facts of the list that are no context."""
    facts = re.findall(r"^- (?!hospital|patient|category)(.+?): (.+)$", prompt, flags=re.M)[:3]
    return {"question": "What is said?", "statements": [f"The {name} is {value}." for name, value in facts]}


def supporting(prompt):
    answer = prompt.split("Answer: ")[1].split("\n")[0]
    return [int(n) for n, s in numbered(prompt, "Sentences").items() if s in answer]
