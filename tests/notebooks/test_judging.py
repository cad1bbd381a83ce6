"""What a judge's grades follow: numbers of a small case by hand."""

import json
import math

import pandas as pd
import pytest
from fake_ollama import FakeOllama

import judging
from ragbench.data.mtrag import PeoplesGrades, load_mtrag
from ragbench.labelling.exam import SYSTEMS, exam_report
from ragbench.llm import Cassette
from ragbench.records import Dataset, Question
from ragbench.stats import power_analysis, rogan_gladen

COLUMNS = ["question_id", "system", "measure", "rater", "grade"]
GIVEN = {  # question, system -> the grades of rater 1 and rater 2
    ("p", SYSTEMS[0]): (4, 4),
    ("p", SYSTEMS[1]): (2, 3),
    ("q", SYSTEMS[0]): (4, 3),
    ("q", SYSTEMS[1]): (4, 4),
}


def numbers(given, judged, texts=None, **columns):
    """The numbers of a judge's grades beside people's, a conversation a question."""
    grades = [
        (*key, "faithfulness", f"rater {n}", grade)
        for key, both in given.items()
        for n, grade in enumerate(both, 1)
    ]
    answers = pd.DataFrame(list(given), columns=COLUMNS[:2]).assign(answer=texts or "a")
    answers["conversation"] = answers["question_id"]
    questions = tuple(Question(name, f"{name}?", "x") for name in answers["question_id"].unique())
    dataset = Dataset("small", questions, ())
    people = PeoplesGrades(dataset, answers, pd.DataFrame(grades, columns=COLUMNS))
    rows = [(*key, "faithfulness", grade) for key, grade in zip(given, judged, strict=True)]
    graded = pd.DataFrame(rows, columns=[*COLUMNS[:3], "grade"]).assign(judge="it", **columns)
    return judging.numbers(exam_report(graded, people), 4).set_index("grader")


def test_preferences_and_shares_by_hand():
    table = numbers(GIVEN, [4, 3, 4, 3])
    # both persons prefer the first in p, rater 2 the second in q; the judge the first in both
    assert table.loc["it", "preference"] == 2 / 3
    # means 4, 2.5, 3.5, 4, rounded 4, 2, 4, 4
    assert tuple(table.loc["it", ["share_people", "share_judge"]]) == (3 / 4, 2 / 4)
    assert table.loc["always 4", "preference"] == 0.5
    assert math.isnan(table.loc["always 4", "spearman"])
    assert math.isnan(table.loc["it", "ppi"])  # two conversations


def test_a_pair_with_an_unread_grade_has_no_preference():
    assert numbers(GIVEN, [4, 2, 4, None]).loc["it", "preference"] == 1


def test_biases_are_named_and_the_share_is_corrected_by_every_second_conversation():
    # eight conversations, an answer each, of which two people call two wrong
    given = dict.fromkeys([(name, "s") for name in "abcdefgh"], (4, 4))
    given["c", "s"] = given["h", "s"] = (1, 1)
    words = [2, 1, 4, 1, 1, 1, 1, 5]
    texts = [count * "one " for count in words]
    table = numbers(given, [4, 4, 4, 3, 4, 4, 2, 4], texts, position=1)
    row = table.loc["it"]
    assert (row["share_people"], row["share_judge"]) == (6 / 8, 6 / 8)
    # seen: a, c, e, g. The wrong one of them is called right: nothing is corrected
    assert math.isnan(row["rogan_gladen"])
    assert row["refused"].startswith("Youden's J is -")
    assert 0 <= row["ppi_low"] <= row["ppi"] <= row["ppi_high"] <= 1
    miss = pd.Series([0, 0, 3, -1, 0, 0, -2, 3])
    assert row["length_bias"] == pytest.approx(miss.corr(pd.Series(words), "spearman"))
    assert math.isnan(row["position_bias"])


def test_answers_that_separate_two_judges_by_hand():
    # twelve conversations of two answers, one person: the judges differ in every third conversation
    answers = [(c, f"q{c}", system) for c in range(12) for system in "st"]
    pairs = pd.DataFrame(answers, columns=["conversation", "question_id", "system"])
    pairs = pairs.assign(measure="it", rater="p", grade=1)
    always = pairs.assign(grader="always", grade_given=1)
    seldom = always.assign(grader="seldom", grade_given=(pairs["conversation"] % 3 > 0) * 1)
    both = pd.concat([always, seldom])
    by_conversation = [1.0, 0.0, 0.0] * 4
    clusters = power_analysis(by_conversation, difference=0.1).needed
    assert judging.separating(both, "it", "always") == 2 * clusters
    # judges that err on the same answers need none but the least
    same = pd.concat([seldom, seldom.assign(grader="its twin")])
    assert judging.separating(same, "it", "seldom") == 2 * 6
    assert math.isnan(judging.separating(always, "it", "always"))


def test_repeats_ask_again_with_other_seeds_and_are_recorded(tmp_path):
    def reply(body):
        return json.dumps({"grade": 1 + body["options"]["seed"] % 4})

    with FakeOllama(reply=reply) as server, Cassette(tmp_path / "c.sqlite") as cassette:
        options = {"questions": 1, "cassette": cassette, "progress": False}
        once = judging.changes(server.model(seed=3), 1, load_mtrag(), **options)
        assert all(math.isnan(interval.estimate) for interval in once.values())
        thrice = judging.changes(server.model(seed=3), 3, load_mtrag(), **options)
        assert len(server.calls) == 3 * 4  # the first repeat was recorded
    assert {name: interval.estimate for name, interval in thrice.items()} == {
        "faithfulness": 1,
        "completeness": 1,
    }


def test_rogan_and_gladens_share_by_hand_and_refused_for_a_judge_that_tells_nothing():
    # of 20 labelled right ones the judge finds 16, of 20 wrong ones it calls 2 right
    labels = [1] * 20 + [0] * 20 + [math.nan] * 40
    judged = [1] * 16 + [0] * 4 + [1] * 2 + [0] * 18 + [1] * 30 + [0] * 10
    found = rogan_gladen(labels, judged)
    assert found.estimate == pytest.approx((48 / 80 - 0.1) / (0.8 - 0.1))
    assert 0 <= found.low < found.estimate < found.high <= 1
    refused = rogan_gladen(labels, [1, 0] * 40)
    assert math.isnan(refused.estimate)
    assert refused.method.startswith("refused: Youden's J is 0.00 [-")


def test_the_share_of_other_items_by_the_errors_in_the_labelled_ones():
    labels = [1] * 20 + [0] * 20 + [math.nan] * 40
    judged = [1] * 16 + [0] * 4 + [1] * 2 + [0] * 18 + [1] * 30 + [0] * 10
    of = [0] * 40 + [1] * 40
    found = rogan_gladen(labels, judged, of=of)
    assert found.estimate == pytest.approx((30 / 40 - 0.1) / (0.8 - 0.1))
    assert found.low < found.estimate < found.high
    assert rogan_gladen(labels, judged, of=[1] * 80) == rogan_gladen(labels, judged)
