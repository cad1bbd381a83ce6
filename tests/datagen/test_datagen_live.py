"""RAGEval's pipeline step by step: the prompts that are sent, and what is made of the replies (a
loopback server).
"""

import re
from dataclasses import replace

import pytest
from fake_ollama import FakeOllama
from generated_parts import (
    CHAIRMAN,
    CONFIGURATIONS,
    DOCUMENTS,
    FACTUAL,
    LOST,
    SCHEMA,
    TARN,
    TEXTS,
    Script,
)

from ragbench import datagen
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.llm import chat_model

SEEDS = ["Harrow Vale made cheese in 2018."]
RECORD = {
    "about": "company",
    "sections": [
        {"heading": "business_and_results", "keys": ["revenue", "net_profit", "cause", "company"]},
        {"heading": "Events", "keys": ["event", "event_date", "cause", "plan"]},
    ],
    "subdomains": ["fishing", "publishing"] * 5,
}


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def model(script):
    with FakeOllama(reply=script) as server:
        yield chat_model("ollama:llama3:8b", host=server.url)


@pytest.fixture
def writer(model):
    return datagen.Writer(model)


def reasons(writer):
    return [(one.id, one.reason) for one in writer.rejected]


def evidence(question):
    return [reference.text for reference in question.references]


REVENUE = DOCUMENTS[0].sentences[0]
ALL_RIGHT = {"unsupported": [], "missing": []}
WRITE = "You write a question"
LOOK = "You look for evidence"
COMPARE = "You compare an answer"


# Schema


def test_a_schema_is_summed_up_from_the_seeds_and_each_field_stands_once(script, writer):
    script.on("Design a record", RECORD)
    schema = datagen.summarise_schema(writer, "finance", SEEDS)
    fields = "company revenue net_profit cause event event_date plan"
    assert " ".join(schema.fields) == fields
    assert list(schema.sections) == ["Business and results", "Events"]
    assert schema.subdomains == ("fishing", "publishing")
    assert [one.detail for one in writer.rejected] == ["company", "cause"]
    assert SEEDS[0] in script.prompts[0]


def test_a_schema_with_too_few_fields_is_none(script, writer):
    sections = [{"heading": "Events", "keys": ["cause"] * 4}] * 2
    script.on("Design a record", RECORD | {"sections": sections})
    assert datagen.summarise_schema(writer, "finance", SEEDS) is None
    assert reasons(writer)[-1] == ("finance", "too few fields")
    with pytest.raises(ModelError, match="no usable schema"):
        datagen.generate_set(writer.model, "finance", SEEDS, 1)
    with pytest.raises(DataError, match="no seed documents"):
        datagen.summarise_schema(writer, "finance", [])


# Configurations


def filled(prompt):
    """Fill a record in: each value is its field's name, after the industry."""
    industry = re.search(r"^Industry: (.*)$", prompt, re.M)[1]
    return {name: f"{industry} {name.replace('_', ' ')}" for name in SCHEMA.fields}


def test_subdomains_take_turns(script, writer):
    script.on("You fill in a record", filled)
    result = datagen.make_configurations(writer, SCHEMA, 2)
    assert [configuration.subdomain for configuration in result] == ["fishing", "publishing"]
    assert result[1].values["revenue"] == "publishing revenue"
    with pytest.raises(ConfigError, match="documents=0"):
        datagen.make_configurations(writer, SCHEMA, 0)


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (("company",), "the name of its subject was rejected"),
        (("revenue", "net_profit", "cause", "plan"), "more than half of its values were rejected"),
    ],
)
def test_a_configuration_without_a_name_or_with_few_values_is_rejected(
    script, writer, spoilt, reason
):
    script.on("You fill in a record", lambda prompt: filled(prompt) | dict.fromkeys(spoilt, "n/a"))
    assert datagen.make_configurations(writer, SCHEMA, 1) == []
    placeholders = [(f"finance-01/{name}", "a placeholder") for name in spoilt]
    assert reasons(writer) == [*placeholders, ("finance-01", reason)]


def test_a_name_that_is_taken_makes_no_second_document(script, writer):
    script.on("You fill in a record", lambda prompt: filled(prompt) | {"company": "Tarn Trawlers"})
    assert len(datagen.make_configurations(writer, SCHEMA, 2)) == 1
    assert reasons(writer) == [("finance-02", "the name of its subject is taken")]


# Documents


def section_text(prompt):
    """Write the section as it is asked for: each fact in a sentence of its own."""
    facts = re.findall(r"^- (.+?): (.+)$", prompt.split("Facts:")[1], flags=re.M)
    return " ".join(f"The {name} is {value}." for name, value in facts)


def test_a_document_is_written_section_by_section_from_its_facts(script, writer):
    script.on("You write one section", section_text)
    first, _ = datagen.write_documents(writer, SCHEMA, CONFIGURATIONS)
    assert (first.title, first.lost) == ("Tarn Trawlers", ())
    assert list(first.sections) == ["Results", "Events"]
    assert first.sections["Events"][0] == "The company is Tarn Trawlers."
    assert len(script.prompts) == 4
    assert not any("Vole" in prompt for prompt in script.prompts[:2])


def test_facts_that_the_model_leaves_out_are_lost_and_too_many_reject_the_document(script, writer):
    script.on("You write one section", lambda prompt: section_text(prompt).replace("80", "eighty"))
    assert datagen.write_documents(writer, SCHEMA, [TARN])[0].lost == ("revenue",)
    script.rules.clear()
    script.on("You write one section", "All went well. It sold 700 books.")
    assert datagen.write_documents(writer, SCHEMA, [TARN]) == []
    invented = ("finance-01", "a sentence with an invented number")
    few = ("finance-01", "states fewer than half of its values")
    assert reasons(writer) == [invented, invented, few]


def test_a_document_lacks_no_section_that_has_values_and_has_no_other(script, writer):
    script.on("Section: Results", section_text)
    script.on("Section: Events", "")
    assert datagen.write_documents(writer, SCHEMA, [TARN]) == []
    assert reasons(writer) == [("finance-01/Events", "no readable reply")]
    of_results = ("company", "revenue", "net_profit", "cause")
    partial = replace(TARN, values={name: TARN.values[name] for name in of_results})
    (document,) = datagen.write_documents(writer, SCHEMA, [partial])
    assert list(document.sections) == ["Results"]
    assert datagen.write_documents(writer, SCHEMA, [replace(TARN, values={})]) == []


# Questions


def asked(prompt):
    ((kind, names),) = re.findall(
        r'^Write one (.*) question\..* with the words "For (.*),"', prompt, re.M
    )
    return asking(f"For {names}, what {kind} plan or profit?")


def asking(question):
    return {"question": question, "statements": [" A. ", "B.", "C."]}


def test_a_question_of_each_kind_is_asked_from_what_the_documents_state(script, writer):
    script.on(WRITE, asked)
    result = datagen.ask_questions(writer, DOCUMENTS)
    assert len(result) == 7 + 4
    assert reasons(writer) == [
        (f"finance-02 {kind}", "needs a second document")
        for kind in ("information integration", "numerical comparison", "temporal sequence")
    ]
    by_id = {question.id: question for question in result}
    both = by_id["finance-01 temporal sequence"]
    assert both.doc_ids == ("finance-01", "finance-02")
    names = "Tarn Trawlers and Vole Books"
    assert both.question == f"For {names}, what temporal sequence plan or profit?"
    assert both.statements == ("A.", "B.", "C.")
    assert by_id["finance-01 unanswerable"].lost == ("plan",)
    (missing,) = [prompt for prompt in script.prompts if "Missing: plan" in prompt]
    assert "a second harbour" not in missing
    assert "- revenue: 80 million crowns" in missing


def test_a_question_that_was_asked_before_is_rejected_and_the_first_stays(script, writer):
    script.on(WRITE, asking("For Tarn Trawlers, what is the plan?"))
    result = datagen.ask_questions(writer, DOCUMENTS[:1], ["factual", "summary"])
    assert [made.kind for made in result] == ["factual"]
    assert reasons(writer) == [("finance-01 summary", "the question was asked before")]


def test_a_document_that_lost_nothing_has_no_unanswerable_question(writer):
    whole = replace(DOCUMENTS[0], lost=())
    assert datagen.ask_questions(writer, [whole], ["unanswerable"]) == []
    assert reasons(writer) == [("finance-01 unanswerable", "the document lost no fact")]
    with pytest.raises(ConfigError, match="unknown type of question"):
        datagen.ask_questions(writer, DOCUMENTS, ["riddle"])


# References, refinement, key points


def test_references_are_chosen_by_number_and_are_copies(script, writer):
    script.on(LOOK, {"sentences": [3, 1, 3]})
    (found,) = datagen.find_references(writer, [FACTUAL], TEXTS)
    assert evidence(found) == [REVENUE, CHAIRMAN]
    assert f"3. {CHAIRMAN}" in script.prompts[0]


def test_references_to_more_than_half_of_the_sentences_are_no_choice_but_for_a_summary(
    script, writer
):
    script.on(COMPARE, ALL_RIGHT)
    references = tuple(datagen.Reference("finance-01", text) for text in DOCUMENTS[0].sentences[:2])
    factual = replace(FACTUAL, references=references)
    summary = replace(factual, id="finance-01 summary", kind="summary")
    result = datagen.refine_answers(writer, [factual, summary], TEXTS)
    assert [question.kind for question in result] == ["summary"]
    assert reasons(writer) == [(FACTUAL.id, "references to more than half of the sentences")]


def test_answers_are_refined_by_the_papers_rules(script, writer):
    statements = ("It is rich.", "Ada Ruck is chairman.", "It had revenue of 80 million crowns.")
    draft = replace(FACTUAL, statements=statements)
    report = {
        "unsupported": [{"statement": 1, "sentence": 0}, {"statement": 2, "sentence": 3}],
        "missing": [
            "The net profit was 6 million crowns. ",
            " ",
            "The net profit was 700 million crowns.",  # words of the source, another number
            "Weather stayed pleasant.",
        ],
    }
    script.on(COMPARE, report)
    (refined,) = datagen.refine_answers(writer, [draft], TEXTS)
    assert refined.statements == (*draft.statements[1:], "The net profit was 6 million crowns.")
    assert evidence(refined) == [REVENUE, CHAIRMAN]
    assert refined.changes == (
        "removed: It is rich.",
        f"reference added: {CHAIRMAN}",
        "supplemented: The net profit was 6 million crowns.",
    )
    assert "2. Ada Ruck is chairman." in script.prompts[0]


def test_a_sentence_that_the_model_overlooked_is_looked_up(script, writer):
    draft = replace(FACTUAL, statements=(*FACTUAL.statements, CHAIRMAN))
    script.on(COMPARE, ALL_RIGHT)
    (refined,) = datagen.refine_answers(writer, [draft], TEXTS)
    assert refined.changes == (f"reference looked up: {CHAIRMAN}",)
    assert evidence(refined) == [REVENUE, CHAIRMAN]


def test_unanswerable_questions_keep_their_place_without_being_asked(script, writer):
    script.on(LOOK, {"sentences": [1]})
    script.on(COMPARE, ALL_RIGHT)
    for step in (datagen.find_references, datagen.refine_answers):
        ids = [question.id for question in step(writer, [LOST, FACTUAL], TEXTS)]
        assert ids == [LOST.id, FACTUAL.id]
    assert len(script.prompts) == 2


STEPS = {
    WRITE: lambda writer: datagen.ask_questions(writer, DOCUMENTS[:1], ["unanswerable"]),
    LOOK: lambda writer: datagen.find_references(writer, [FACTUAL], TEXTS),
    COMPARE: lambda writer: datagen.refine_answers(writer, [FACTUAL], TEXTS),
}
NO_SENTENCE = "a sentence that does not exist"
NO_STATEMENT = "a statement that does not exist"


def unsupported(statement, sentence):
    return {"unsupported": [{"statement": statement, "sentence": sentence}], "missing": []}


@pytest.mark.parametrize(
    ("step", "reply", "reason"),
    [
        (WRITE, asking("What is the plan?"), "the question does not name its document"),
        (
            WRITE,
            asking("For Tarn Trawlers, what is the revenue?"),
            "the question asks for no fact that was lost",
        ),
        (LOOK, {"sentences": [0]}, NO_SENTENCE),
        (LOOK, {"sentences": [4]}, NO_SENTENCE),
        (COMPARE, unsupported(0, 0), NO_STATEMENT),
        (COMPARE, unsupported(3, 0), NO_STATEMENT),
        (COMPARE, unsupported(1, 4), NO_SENTENCE),
        (COMPARE, unsupported(1, -1), NO_SENTENCE),
    ],
)
def test_a_reply_that_cannot_be_used_is_rejected_with_its_reason(
    script, writer, step, reply, reason
):
    script.on(step, reply)
    assert STEPS[step](writer) == []
    rejected = LOST if step == WRITE else FACTUAL
    assert reasons(writer) == [(rejected.id, reason)]


def test_key_points_are_three_to_five_or_the_question_is_rejected(script, writer):
    script.on(FACTUAL.question, {"keypoints": [" One.", "Two.", "Three."]})
    script.on(LOST.question, {"keypoints": ["One.", "Two."]})
    result = datagen.extract_keypoints(writer, [FACTUAL, LOST])
    assert [question.keypoints for question in result] == [("One.", "Two.", "Three.")]
    assert reasons(writer) == [(LOST.id, "no readable reply")]


# All of it


def test_the_whole_way_ends_in_a_checked_set_and_resumes_from_its_cassette(
    script, writer, tmp_path
):
    for words, answer in {
        "Design a record": RECORD,
        "You fill in a record": filled_from,
        "You write one section": section_text,
        WRITE: answered,
        LOOK: {"sentences": [1, 2]},
        COMPARE: ALL_RIGHT,
        "take the key points": {"keypoints": ["A revenue.", "A company.", "A point."]},
    }.items():
        script.on(words, answer)

    def generate():
        kinds = ("factual", "numerical comparison", "unanswerable")
        tape = tmp_path / "set.sqlite"
        return datagen.generate_set(writer.model, "finance", SEEDS, 2, kinds, cassette=tape)

    made = generate()
    assert len(made.documents) == 2
    ids = [question.id for question in made.questions]
    assert ids == ["finance-01 factual", "finance-02 factual"]
    steps = made.rejections().groupby(["step", "reason"]).size()
    assert steps["question", "the document lost no fact"] == 2
    assert steps["question", "needs a second document"] == 1
    assert steps["refine", "no reference of a document"] == 1
    sent = len(script.prompts)
    assert generate() == made
    assert len(script.prompts) == sent


def filled_from(prompt):
    industry = re.search(r"^Industry: (.*)$", prompt, re.M)[1]
    names = re.search(r"Its fields: (.*)\.$", prompt, re.M)[1].split(", ")
    return {name.replace(" ", "_"): f"{industry} {name}" for name in names}


def answered(prompt):
    (names,) = re.findall(r'with the words "For (.*),"', prompt)
    first = names.split(" and ")[0]
    statement = f"The company is {first}."
    return {"question": f"What is the revenue of {names}?", "statements": [statement] * 3}
