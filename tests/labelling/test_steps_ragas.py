"""RAGAS's model steps and its baselines through a loopback server."""

import gzip
import json
import math
import re

import numpy as np
import pytest
from checks import refusals
from fake_ollama import FakeOllama
from hypothesis import given
from hypothesis import strategies as st
from label_replies import verdicts

import recorded
from ragbench.data import load_minihop
from ragbench.datagen.drafts import draft_questions
from ragbench.errors import DataError, ModelError
from ragbench.labelling.claims import extract_claims
from ragbench.labelling.keypoints import extract_keypoints
from ragbench.labelling.preferences import better_of_two
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import Cassette
from ragbench.metrics.reference_free import ExtractedSentences, answer_relevance
from ragbench.paths import packaged_data, project_root
from ragbench.records import Document
from ragbench.retrieval import llm_decomposer
from ragbench.stats import mean_interval

QUIET = {"progress": False, "retries": 0}
OTHER = "steps_questions_unnamed"
DEMONSTRATIONS = packaged_data("recordings", "demonstrations.jsonl.gz")
RANKING = "steps_gpt_ranking_answer_relevance"


def serve(answer):
    """A server whose reply is made of the prompt: JSON, or text as it stands."""

    def reply(body):
        made = answer(body["messages"][0]["content"])
        return made if isinstance(made, str) else json.dumps(made)

    return FakeOllama(reply=reply)


def test_statements_are_judged_one_by_one_against_their_own_context():
    statements = [("a is b", "c is d"), None, (), ("a is b",)]
    contexts = [["a is b.", "e is f."], "x", "x", " "]
    with serve(verdicts) as server:
        judged = ModelRagas(server.model(), **QUIET).verdicts(statements, contexts)
        prompts = [call.prompt for call in server.calls]
    assert judged == [("Yes", "No"), None, (), ("No",)]
    assert all("a is b.\n\ne is f.\n" in prompt for prompt in prompts)
    assert len(prompts) == 2


def test_the_examples_keep_their_names_in_every_step():
    with serve(verdicts) as server:
        ragas = ModelRagas(server.model(), ids=["x1"], **QUIET)
        assert ragas.verdicts([("a is b",)], ["a is b."]) == [("Yes",)]
        with pytest.raises(DataError, match=r"context of x1\[1\] is 3"):
            ragas.sentences(["Q"], [["a", 3]])


@pytest.mark.parametrize(
    ("answer", "question", "is_read"),
    [
        ("It has a lamp.", "Who built the lighthouse at Tarn?", False),
        ("The lighthouse of Tarn has a lamp.", "Who built the lighthouse at Tarn?", True),
        ("It has a lamp.", "What does it have?", True),
        ("It has a lamp.", "Who built it, Ada?", True),  # opens the demonstration: no name told
    ],
)
def test_a_name_of_the_demonstration_that_no_text_has_makes_a_label_unread(
    caplog, answer, question, is_read
):
    with serve(lambda prompt: {"questions": [question]}) as server:
        (made,) = ModelRagas(server.model(), n=1, **QUIET).questions([answer])
    assert made == ((question,) if is_read else None)
    assert ("1 of 1 labels (questions)" in caplog.text) != is_read


WHY = {"why": "The context calls her a Welsh engineer.", "verdict": "Yes"}
OWN = """Take the text apart. Question: {question}

Example. "The mill stands at Tarn." gives:
{"claims": ["It stands at Tarn."]}

Text: {passage}"""
LEAKING = {  # what a model copies from the demonstration of each step, and a call of the step
    "statements": (
        {"claims": ["It has a lamp.", "Ada Brook moved to Bath."]},
        lambda model, tmp_path: ModelRagas(model, **QUIET).statements(["Q?"], [LAMP]),
    ),
    "questions": (
        {"questions": ["Who built the bridge at Tarn?"]},
        lambda model, tmp_path: ModelRagas(model, n=1, **QUIET).questions([LAMP]),
    ),
    "sentences": (
        {"sentences": ["She built the bridge at Tarn."]},
        lambda model, tmp_path: ModelRagas(model, **QUIET).sentences(["Q?"], [LAMP]),
    ),
    "verdicts": (
        {"labels": [WHY]},
        lambda model, tmp_path: ModelRagas(model, **QUIET).verdicts([["a"]], [LAMP])[0],
    ),
    "key points": (
        {"keypoints": ["It has a lamp.", "b", "Brant earned 7 million in 2021."]},
        lambda model, tmp_path: extract_keypoints(model, ["Q?"], [LAMP], **QUIET),
    ),
    "claims": (
        {"claims": ["It stands at Tarn."]},
        lambda model, tmp_path: extract_claims(
            model, [LAMP], prompt=write(tmp_path / "own.txt", OWN), **QUIET
        ),
    ),
}
LAMP = "It has a lamp."


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("step", LEAKING)
def test_each_step_with_a_demonstration_leaves_what_is_copied_from_it_unread(
    caplog, tmp_path, step
):
    copied, label = LEAKING[step]
    with serve(lambda prompt: copied) as server:
        assert label(server.model(), tmp_path) in ([None], (None,))
    assert f"1 of 1 labels ({step}) name what only the demonstration" in caplog.text


@pytest.mark.parametrize(
    ("answer", "is_read"),
    [("张某因盗窃罪被判刑。", False), ("李林某因盗窃罪被判刑。", True), ("被告人为林某。", True)],
)
def test_a_chinese_name_of_the_demonstration_is_told_as_well(answer, is_read):
    keypoints = {"keypoints": ["被判刑。", "罪名为盗窃罪。", "被告人林某自首。"]}
    with serve(lambda prompt: keypoints) as server:
        (label,) = extract_keypoints(server.model(), ["谁？"], [answer], **QUIET)
    assert (label is not None) == is_read


def test_a_derived_question_that_is_copied_from_an_example_is_left_out(caplog):
    derived = "How high is it?\nHow long is the river Orle?\nWhere does Otto Brisk live?"
    with serve(lambda prompt: derived) as server:
        decompose = llm_decomposer(server.model(), "multiquery_released", **QUIET)
        assert decompose("How high is the house of Otto Brisk?") == [
            "How high is it?",
            "Where does Otto Brisk live?",
        ]
        assert "1 derived questions name what only the examples" in caplog.text
        server.reply = lambda body: "How long is the river Orle?"
        with pytest.raises(ModelError, match="holds no question"):
            decompose("Who?")


def test_a_draft_that_is_copied_from_the_example_is_left_out_with_the_reason():
    asked = {"question": "In what year did Ada Brook build the mill?", "answer": "1902"}
    documents = [Document("mill", "Mill", "The mill burnt down in 1902.")]
    with serve(lambda prompt: asked if "Type of" in prompt else {"sentences": [1]}) as server:
        drafts = draft_questions(documents, server.model(), **QUIET)
        assert drafts.questions == ()
        assert "only the example of its prompt has" in drafts.rows["reason"][0]
        documents = [Document("mill", "Mill", "Ada Brook built the mill in 1902.")]
        assert len(draft_questions(documents, server.model(), **QUIET).questions) == 1


def test_the_page_counts_what_a_real_model_copied_from_two_demonstrations(tmp_path, minilm):
    answers, replies = {}, {}
    with gzip.open(DEMONSTRATIONS, "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            prompt = record["request"]["messages"][0]["content"]
            answer = prompt.split("Answer:\n")[1].split("\n\nReply")[0]
            answers[record["prompt_id"]] = answer
            asked = "steps_questions" if "Ada Brook" in prompt else "steps_questions_unnamed"
            replies[asked, answer] = json.loads(record["answer"]["text"])["questions"]
    texts = {q.id: q.text for q in load_minihop().questions}
    topics = [name.rsplit("-", 1)[0] for name in answers]
    vectors = minilm.embed_documents([texts[name] for name in answers])
    model = recorded.RECORDINGS["qwen"].chat_model()
    with Cassette(tmp_path / "replies.sqlite") as cassette:
        cassette.import_(DEMONSTRATIONS)
        for prompt, shown in (("steps_questions", "Tarn|Brook"), (OTHER, "bridge|spring")):
            ragas = ModelRagas(model, minilm, prompt=prompt, cassette=cassette, progress=False)
            unread = ragas.questions([*answers.values()]).count(None)
            copied = nearest = 0
            relevance = []
            for place, answer in enumerate(answers.values()):
                made = replies[prompt, answer]
                copied += {*re.findall(shown, " ".join(made))} > {*re.findall(shown, answer)}
                of_made = minilm.embed_documents(made)
                scores = [answer_relevance(vector, of_made) for vector in vectors]
                nearest += int(np.argmax(scores) == place)
                relevance.append(scores[place])
            interval = mean_interval(relevance, share=False, cluster=topics).text()
            cells = f"| {copied} of {len(answers)} | {unread} | {nearest} | {interval} |"
            assert re.sub(r"\b0\.", ".", cells) in row_of(prompt)


def row_of(prompt):
    page = (project_root() / "docs" / "models.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{prompt}`.*", page, re.M)
    return row


@pytest.mark.parametrize("joint", [False, True])
def test_statements_are_judged_together_where_that_is_asked_for(joint):
    def judged(prompt):
        if "There are 1 statements" in prompt:
            return verdicts(prompt)
        return {"labels": [{"number": 2, "label": "No"}, {"number": 1, "label": "Yes"}]}

    with serve(judged) as server:
        ragas = ModelRagas(server.model(), joint=joint, **QUIET)
        assert ragas.verdicts([("a is b", "c is d")], ["a is b."]) == [("Yes", "No")]
        assert len(server.calls) == 2 - joint


@pytest.mark.parametrize("n", [1, 3])
def test_n_questions_come_from_one_call_per_different_answer(n):
    with serve(lambda prompt: {"questions": [f"Q{i}?" for i in range(n)]}) as server:
        made = ModelRagas(server.model(), n=n, **QUIET).questions(["a", "b", "a", ""])
        assert len(server.calls) == 2
        assert f"Write {n} questions" in server.calls[0].prompt
    assert made == [*[tuple(f"Q{i}?" for i in range(n))] * 3, ()]


@pytest.mark.parametrize("questions", [["Q?"], ["Q?"] * 4, ["Q?", "", "R?"], ["Q?", " ", "R?"]])
def test_too_few_too_many_or_blank_questions_are_unscored(questions):
    with serve(lambda prompt: {"questions": questions}) as server:
        made = ModelRagas(server.model(), ids=["e7"], **QUIET).questions(["a"])
    assert made == [None]


INSUFFICIENT = "Insufficient Information"
SENTENCES = ("The sky is blue.", "Yes.", "Dr. Vance  measured it.", "Yes.", "It was late.")


@pytest.mark.parametrize(
    ("items", "sentences", "altered"),
    [
        (["It was late.", "The sky is blue."], (0, 4), ()),
        (["Dr. Vance measured\nit."], (2,), ()),  # white space is not looked at
        (["The sky is blue. Yes."], (0, 1), ()),
        (["The sky is blue.", "The sky is blue."], (0,), ()),
        (["Yes.", "Yes."], (1, 3), ()),  # a sentence that stands there twice may be copied twice
        (["Yes.", "Yes.", "Yes."], (1, 3), ()),
        (["The sky is blue"], (), ("The sky is blue",)),  # no whole sentence
        (["the sky is blue."], (), ("the sky is blue.",)),
        (["The sky is grey.", "It was late."], (4,), ("The sky is grey.",)),
        (["is blue. Yes. Dr."], (1,), ()),
        (["It was late.", INSUFFICIENT], (4,), (INSUFFICIENT,)),
    ],
)
def test_only_whole_sentences_of_the_context_count(items, sentences, altered):
    got = ExtractedSentences.of(items, SENTENCES)
    assert got.sentences == tuple(SENTENCES[i] for i in sentences)
    assert got.altered == altered
    assert (got.total, got.insufficient) == (5, False)


@pytest.mark.parametrize(
    "items", [[], [INSUFFICIENT], ["insufficient information."], [f'"{INSUFFICIENT}"']]
)
def test_nothing_copied_is_insufficient(items):
    got = ExtractedSentences.of(items, SENTENCES)
    assert (got.sentences, got.altered, got.total, got.insufficient) == ((), (), 5, True)


@given(st.lists(st.sampled_from(SENTENCES), min_size=1), st.data())
def test_any_copied_sentences_are_found_and_never_more_than_there_are(context, data):
    copied = data.draw(st.lists(st.sampled_from(sorted(set(context))), min_size=1, unique=True))
    got = ExtractedSentences.of(copied, context)
    assert sorted(got.sentences) == sorted(copied)
    assert got.altered == ()
    everything = ExtractedSentences.of([" ".join(context)], context)
    assert everything.sentences == tuple(context)
    assert ExtractedSentences.of(context * 2, context).sentences == tuple(context)


def test_sentences_are_asked_for_once_per_question_and_context_and_checked():
    def answer(prompt):
        copied = ["One is one.", "Three is 3."]
        return {"sentences": copied if "Question: Q1" in prompt else [INSUFFICIENT]}

    text = "One is one. Two is two."
    contexts = [text, ["One is one.", "Two is two."], text, ""]
    with serve(answer) as server:
        ragas = ModelRagas(server.model(), **QUIET)
        first, second, again, nothing = ragas.sentences(["Q1", "Q2", "Q1", "Q1"], contexts)
        assert len(server.calls) == 2
    assert first == again == ExtractedSentences(("One is one.",), ("Three is 3.",), 2, False)
    assert second == ExtractedSentences((), (), 2, True)
    assert nothing == ExtractedSentences((), (), 0, True)


test_input_that_does_not_fit_is_named = refusals(
    (
        lambda: ModelRagas("ollama:x").statements(["Q"], ["a", "b"]),
        DataError,
        "questions 1, answers 2",
    ),
    (lambda: ModelRagas("ollama:x").questions("a"), DataError, "answers is one text"),
    (
        lambda: better_of_two("ollama:x", RANKING, ["a"], ["b", "c"], questions=["Q"]),
        DataError,
        "first 1, second 2",
    ),
)


@pytest.mark.parametrize("field", ["questions", "contexts"])
def test_a_prompt_of_ones_own_shows_a_pair_in_both_orders(tmp_path, field):
    own = tmp_path / "own.txt"
    own.write_text(f"{{{field.removesuffix('s')}}}: {{first}} or {{second}}?")
    with serve(lambda p: {"better": 1}) as server:
        table = better_of_two(server.model(), own, ["a"], ["b"], **{field: ["Q"]}, **QUIET)
        assert [call.prompt for call in server.calls] == ["Q: a or b?", "Q: b or a?"]
    assert table.to_dict("records") == [
        {"shown_first": 1, "shown_second": 1, "preference": 0.5},
    ]


def longer(prompt):
    one, two = (prompt.split(f"Answer {n}:\n")[1].split("\n\n")[0] for n in (1, 2))
    return {"better": 1 if len(one) >= len(two) else 2}


def test_a_pair_read_in_one_order_only_has_no_preference():
    def one_way(prompt):
        return "Neither." if "Answer 1:\nc\n" in prompt else longer(prompt)

    with serve(one_way) as server:
        table = better_of_two(
            server.model(), RANKING, ["aa", "b"], ["c", "ddd"], questions=["Q", "R"], **QUIET
        )
        first = [call.prompt.split("Answer 1:\n")[1][0] for call in server.calls]
    assert list(dict.fromkeys(first)) == ["a", "c", "b", "d"]  # one pair after the other
    assert table["shown_first"].tolist() == [1, 2]
    assert math.isnan(table["shown_second"][0])
    assert table["shown_second"][1] == 1
    assert math.isnan(table["preference"][0])
    assert table["preference"][1] == 0
