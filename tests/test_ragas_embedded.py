"""RAGAS's dimensions without a language model: what counts, what is undefined, and how well it does."""

import numpy as np
import pytest

from ragbench import data
from ragbench.datagen import ragas_pairs
from ragbench.errors import ConfigError
from ragbench.labelling.checkers import EmbeddedChecker
from ragbench.labelling.statements import EmbeddedRagas, _answer_parts, _asked_for, _backing
from ragbench.papers import ragas


class Words:
    """Unit vectors from the words of a text: equal words, equal direction; no model to load."""

    calls = 0

    def embed_documents(self, texts):
        self.calls += 1
        vectors = np.zeros((len(texts), 64))
        for row, text in zip(vectors, texts, strict=True):
            for word in text.lower().replace(".", "").replace("?", "").split():
                row[sum(map(ord, word)) % 64] += 1
        return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).tolist()


@pytest.fixture
def scorer():
    return EmbeddedRagas(Words())


CONTEXT = ["The tower was built by Ann Carter in 1896.", "Trams stopped beside it. It has four clocks."]


def test_what_a_question_asks_for_is_read_from_its_question_words():
    assert _asked_for("Who built the tower, and when?") == ("when", "who")
    assert _asked_for("In which small town was it built, and how many clocks has it?") == ("number", "where")
    assert _asked_for("Why was it built?") == ("what",)
    assert _asked_for("Was it built of stone?") == ("what",)
    assert _asked_for("In which year did it open?") == ("when",)


def test_needs_are_met_by_new_names_numbers_and_dates_not_by_the_questions_own():
    question = "When was the tower in Vadodara built, and by whom?"
    told = _answer_parts(question, "It was built in 1896 by Ann Carter.")
    vague = _answer_parts(question, "The tower in Vadodara was built long ago by somebody.")
    assert (told.needs, told.met) == (("when", "who"), 1.0)
    assert vague.met == 0.0
    assert told.added > vague.added > 0
    assert _answer_parts("How many clocks has it?", "It has four of them.").met == 1.0
    assert _answer_parts("How many clocks has it?", "It has some of them.").met == 0.0
    assert _answer_parts("When did it open?", "It opened in the spring.").met == 1.0
    assert _answer_parts("Where is it?", "Vadodara").met == 1.0


def test_evasive_sentences_count_for_nothing():
    parts = _answer_parts("Who built it?", "Ann Carter built it. The year is not known.")
    assert parts.committed == 0.5
    assert parts.text == "Ann Carter built it."
    nothing = _answer_parts("Who built it?", "That is not known.")
    assert (nothing.committed, nothing.met, nothing.added) == (0.0, 0.0, 0.0)


def test_a_bare_name_is_an_answer_and_an_evasion_is_zero(scorer):
    table = scorer.answer_relevance(["Who built it?"] * 2, ["Ann", "Sorry, I do not know."])
    assert table["score"].iloc[0] > 0.5
    assert table["score"].iloc[1] == 0.0
    assert table["status"].tolist() == ["scored", "scored"]


def test_an_answer_to_something_else_scores_below_the_same_facts_on_the_subject(scorer):
    question = "Who built the old tower beside the river?"
    on = "The old tower beside the river was the work of Ann Carter."
    off = "Ferns and mosses thrive under Cornish oaks, says Ann Carter."
    table = scorer.answer_relevance([question] * 2, [on, off])
    assert table["score"].iloc[0] > 1.5 * table["score"].iloc[1]


def test_made_up_names_and_numbers_lower_faithfulness(scorer):
    makers = ("Ann Carter in 1896", "Ann Carter in 1901", "Rob Miller in 1901")
    answers = [f"The tower was built by {maker}." for maker in makers]
    scores = scorer.faithfulness(answers, [CONTEXT] * 3)["score"].tolist()
    assert scores[0] > 0.9
    assert scores[0] > 1.2 * scores[1] > 1.2 * 1.2 * scores[2]


def test_backing_is_support_times_the_share_of_names_and_numbers_that_the_context_has():
    checker = EmbeddedChecker(Words())
    statement = "In 1896 it was built by Rob Carter, they say."
    support = checker.support([statement], [CONTEXT[0]]).item()
    assert 0 < support < 1
    # 1896 and Carter are there, Rob is not.
    assert _backing(checker, [statement], CONTEXT[0]) == pytest.approx([support * 2 / 3])
    assert _backing(checker, [], CONTEXT[0]) == []


def test_faithfulness_is_the_mean_over_statements(scorer):
    one, other = "The tower was built by Ann Carter in 1896.", "Whales sing in winter near Norway."
    scores = scorer.faithfulness([one, other, f"{one} {other}"], [CONTEXT] * 3)
    assert scores["score"].iloc[2] == pytest.approx(scores["score"].iloc[:2].mean())
    assert scores["n"].tolist() == [1, 1, 2]


def test_needed_sentences_are_those_near_the_best_and_score_is_their_share(scorer):
    question = "Who built the tower?"
    (found,) = scorer.needed([question], [CONTEXT])
    assert (found.sentences, found.total) == ((CONTEXT[0],), 3)
    assert scorer.context_relevance([question], [CONTEXT])["score"].tolist() == [pytest.approx(1 / 3)]
    assert scorer.context_relevance([question], [CONTEXT[:1]])["score"].tolist() == [1.0]


def test_a_context_on_something_else_has_insufficient_information(scorer):
    asked = ["Who painted Guernica?"], ["Ferns grow. Moss thrives."]
    assert scorer.needed(*asked)[0].insufficient
    assert scorer.context_relevance(*asked)["score"].tolist() == [0.0]


def test_empty_texts_have_defined_values_and_a_reason(scorer):
    f = scorer.faithfulness(["", "It has four clocks."], [CONTEXT, ""])
    assert f["status"].tolist() == ["no statements", "scored"]
    assert np.isnan(f["score"].iloc[0])
    assert f["score"].iloc[1] == 0.0
    a = scorer.answer_relevance(["Who?", " "], ["...", "Ann"])
    assert a["status"].tolist() == ["empty answer", "empty question"]
    assert a["score"].isna().all()
    c = scorer.context_relevance(["Who?", "..."], [[], CONTEXT])
    assert c["status"].tolist() == ["empty context", "empty question"]
    assert c["score"].isna().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EmbeddedRagas(Words()).faithfulness(["a", "b"], ["c"]), "2 answers, 1 contexts"),
        (lambda: EmbeddedRagas(Words()).faithfulness(["a", float("nan")], ["c", "d"]), "answer 1 is nan"),
        (lambda: EmbeddedRagas(Words()).answer_relevance([None], ["b"]), "question 0 is None"),
        (lambda: EmbeddedRagas(Words()).answer_relevance("a", ["b"]), "questions is one string"),
        (lambda: EmbeddedRagas(Words()).context_relevance(["Who?"], [None]), "context of 0 holds something else than"),
    ],
)
def test_bad_parameters_and_lists_are_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.fixture(scope="module")
def embedded():
    return EmbeddedRagas()


@pytest.mark.parametrize(
    ("dimension", "least"), [("faithfulness", 29), ("answer_relevance", 28), ("context_relevance", 24)]
)
def test_pairs_built_from_minihop_are_mostly_ordered_rightly(embedded, dimension, least):
    pairs = ragas_pairs.minihop_ragas_set(limit=30).pairs(dimension)
    row = ragas.agreement_row(ragas.score_pairs(embedded, pairs, dimension))
    assert row["n"] == 30
    assert row["wins"] >= least


@pytest.mark.data
@pytest.mark.slow
def test_wikieval_agreement_is_at_or_above_the_papers_in_all_three_dimensions(embedded):
    rows = data.load_wikieval()
    found = {d: ragas.agreement_row(ragas.score_pairs(embedded, rows.pairs(d), d)) for d in ragas.DIMENSIONS}
    assert {d: row["wins"] for d, row in found.items()} == {
        "faithfulness": 50, "answer_relevance": 47, "context_relevance": 49,
    }  # fmt: skip
    assert all(row["n"] == 50 and row["unscored"] == 0 for row in found.values())
