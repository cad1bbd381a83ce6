"""RAGAS's model steps and its baselines through a loopback server."""

import json
import math

import pytest
from checks import refusals
from fake_ollama import FakeOllama
from hypothesis import given
from hypothesis import strategies as st
from label_replies import verdicts

from ragbench.errors import DataError
from ragbench.labelling.preferences import PairRanking, gpt_ranking, gpt_score
from ragbench.labelling.statements import ModelRagas
from ragbench.metrics.reference_free import ExtractedSentences

QUIET = {"progress": False, "retries": 0}


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
    (lambda: gpt_score("ollama:x", "faithfulness", ["Q"], ["a"]), "no contexts for faithfulness"),
    (
        lambda: gpt_ranking("ollama:x", "answer_relevance", ["Q"], ["a"], ["b"], ["c"]),
        "contexts for answer_relevance",
    ),
    (lambda: gpt_score("ollama:x", "faithfullness", ["Q"], ["a"]), "did you mean 'faithfulness'"),
)


def test_scores_are_whole_numbers_from_0_to_10_and_others_are_unscored():
    replies = {"a": 0, "b": 10, "c": 11, "d": -1, "e": 7.5, "f": True, "g": "8"}
    with serve(lambda p: {"score": replies[p.split("Answer:\n")[1][0]]}) as server:
        got = gpt_score(
            server.model(), "answer_relevance", ["Q"] * 7, list(replies), ids=list(replies), **QUIET
        )
    assert got == [0, 10, None, None, None, None, None]


@pytest.mark.parametrize("dimension", ["faithfulness", "answer_relevance", "context_relevance"])
def test_every_dimension_shows_what_it_needs_and_nothing_else(dimension):
    contexts = ["THE CONTEXT"] if dimension == "faithfulness" else None
    with serve(lambda p: {"score": 5} if "score" in p else {"better": 1}) as server:
        model = server.model()
        assert gpt_score(model, dimension, ["QU"], ["CAND"], contexts, **QUIET) == [5]
        gpt_ranking(model, dimension, ["QU"], ["CAND"], ["OTHER"], contexts, **QUIET)
        score, *rankings = [call.prompt for call in server.calls]
    assert "CAND" in score
    for prompt in (score, *rankings):
        # Section 5: faithfulness is judged from context and answer, the other two from the
        # question.
        assert ("THE CONTEXT" in prompt) == (dimension == "faithfulness")
        assert ("QU" in prompt) == (dimension != "faithfulness")
    word = "Context" if dimension == "context_relevance" else "Answer"
    for shown in (("CAND", "OTHER"), ("OTHER", "CAND")):
        pair = f"{word} 1:\n{shown[0]}\n\n{word} 2:\n{shown[1]}\n"
        assert [pair in prompt for prompt in rankings].count(True) == 1


def test_a_score_is_asked_for_in_a_prompt_of_ones_own_that_may_show_the_question(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("In verse: {question} {context} {candidate}")
    with serve(lambda p: {"score": 5}) as server:
        gpt_score(
            server.model(), "faithfulness", ["Why?"], ["So."], ["It is."], prompt=own, **QUIET
        )
        assert [call.prompt for call in server.calls] == ["In verse: Why? It is. So."]


def longer(prompt):
    one, two = (prompt.split(f"Answer {n}:\n")[1].split("\n\n")[0] for n in (1, 2))
    return {"better": 1 if len(one) >= len(two) else 2}


def test_a_pair_read_in_one_order_only_is_unscored_and_outside_the_bias():
    def one_way(prompt):
        return "Neither." if "Answer 1:\nc\n" in prompt else longer(prompt)

    with serve(one_way) as server:
        got = gpt_ranking(
            server.model(), "answer_relevance", ["Q", "R"], ["aa", "b"], ["c", "ddd"], **QUIET
        )
        first = [call.prompt.split("Answer 1:\n")[1][0] for call in server.calls]
    assert list(dict.fromkeys(first)) == ["a", "c", "b", "d"]  # one pair after the other
    assert got.choices == ((1, None), (2, 1))
    assert got.preferences == (None, 0.0)
    assert got.position_bias == 0.0
    assert math.isnan(PairRanking(((None, 1),)).position_bias)
