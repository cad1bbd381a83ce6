"""Planted errors, by hand, and what the table says of a number that sees them all, none, or is fooled."""

import json
import math
import random

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from fake_ollama import FakeOllama

from ragbench import crash
from ragbench.crash import ERRORS, SAME, WRONG, PlantedError, crash_table, crash_test, plant, unnatural
from ragbench.errors import DataError
from ragbench.llm import Cassette
from ragbench.metrics.table import METRICS, Metric
from ragbench.paths import packaged_data
from ragbench.records import Document

SENTENCES = {
    "Ann Lee": ("Ann Lee built a mill in 1841.", "She had three sons.", "Her house is in Ely."),
    "Sue Roe": ("Sue Roe bought the mill of Ann Lee.", "She sold it in 1850."),
    "Eve Low": ("Eve Low wove wool.", "She came from Ulm."),
    "Tom Low": ("Tom Low was a baker.", "He died in 1900."),
    "Ely (city)": ("Ely has a cathedral.", "It is small."),
}
DOCUMENTS = [Document(t.split(" (")[0], t, " ".join(s), s, {"topic": "x"}) for t, s in SENTENCES.items()]
TEXTS = {d.id: d.text for d in DOCUMENTS}


def row(answer="Sue Roe bought it from Ann Lee.", **more):
    ids = ["Ann Lee", "Sue Roe", "Ely"]
    facts = ["Ann Lee built a mill in 1841.", "Sue Roe bought the mill of Ann Lee."]
    made = {"question_id": "q", "question": "Who bought the mill?", "answer": answer, "reference": "Sue Roe"}
    return made | {"references": facts, "retrieved": ids, "chunks": [TEXTS[i] for i in ids], **more}


def planted(error, answer="Sue Roe bought it from Ann Lee.", **more):
    frame = plant([row(answer, **more)], DOCUMENTS, errors=[error])
    return None if frame.empty else frame.iloc[0]


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        ("another date", "It was sold in Ely.", None),
        ("another number", "Toy Story 2 came in 1841.", None),
        ("negation", "The mill was sold.", "The mill was not sold."),
        ("negation", "She died in Ely.", "She did not die in Ely."),
        ("negation", "The mill was never sold.", None),
        ("hops exchanged", "Sue Roe bought it from Ann Lee.", "Ann Lee bought it from Sue Roe."),
        ("hops exchanged", "Roe outlived Lee.", "Lee outlived Roe."),
        ("hops exchanged", "Sue Roe and Ann Lee did.", None),
        ("another name", "Sue Roe did.", "Eve Low did."),
        ("another name", "It was Roe.", "It was Low."),
        ("second half dropped", "The one who bought it was Sue Roe.", "The one who bought"),
        ("second half dropped", "Sue Roe is the one who bought it.", None),
        ("said twice", "It rained. Sue Roe did it", "It rained. Sue Roe did it. Sue Roe did it."),
        ("word order", "The mill opened in May 1841.", "In May 1841, the mill opened."),
        ("word order", "The buyer was Sue Roe.", "Sue Roe was the buyer."),
        ("lower case", "Sue Roe", "sue roe"),
        ("lower case", "she", None),
        ("in German", "It was she.", "Die richtige Antwort lautet: Sue Roe."),
        ("in German", "It was she. It rained.", None),
        ("paraphrase", "It was she.", None),
        ("false sentence", "Sue Roe did.", "Sue Roe did. Ann Lee built"),
    ],
)  # fmt: skip
def test_an_error_is_planted_as_worked_out_by_hand(error, before, after):
    facts = ["Ann Lee built a mill in 1841.", "Sue Roe bought the mill"]
    found = planted(error, before, references=["She had three sons."] if error == "false sentence" else facts)
    if after is None:
        assert found is None
    else:
        assert found["answer"].startswith(after)
        assert found["claim"] == ERRORS[error].claim


def test_a_date_and_a_number_become_others_and_nothing_else_changes():
    for seed in range(20):
        year = crash._another_year("It opened in 1841, not in 1850.", random.Random(seed))
        assert year != "It opened in 1841, not in 1850."
        assert year.endswith(", not in 1850.")
        assert 3 <= abs(int(year[13:17]) - 1841) <= 25
        count = crash._another_number("She had three sons.", random.Random(seed)).split()
        assert count[:2] + count[3:] == ["She", "had", "sons."]
        assert count[2] in set(crash._WORDS) - {"three"}


def test_chunks_are_removed_doubled_moved_and_joined_by_a_namesake_and_the_answer_stays():
    ids = {name: planted(name)["retrieved"] for name, error in ERRORS.items() if "gold" in name or "namesake" in name}
    assert ids == {
        "gold chunk removed": ["Ann Lee", "Ely"],
        "gold chunk doubled": ["Ann Lee", "Ann Lee", "Sue Roe", "Ely"],
        "gold chunks last": ["Ely", "Ann Lee", "Sue Roe"],
        "namesake added": ["Ann Lee", "Sue Roe", "Ely", "Eve Low"],  # of the same kind: a she
    }
    moved = planted("gold chunk removed")
    assert (moved["part"], moved["answer"]) == ("chunks", "Sue Roe bought it from Ann Lee.")
    assert moved["chunks"] == [TEXTS["Ann Lee"], TEXTS["Ely"]]
    assert moved["change"] == "Sue Roe -> (nothing)"


def test_what_a_rule_finds_unnatural_is_refused_and_counted(monkeypatch):
    monkeypatch.setitem(ERRORS, "bad", PlantedError(lambda case: case.answer + " An mill.", WRONG, "bad article"))
    frame = plant([row(), row("An mill.", question_id="r")], DOCUMENTS, errors=["bad", "another date"])
    assert frame["row"].tolist() == [1]  # its own fault is not the rule's
    assert frame.attrs == {"refused": {"bad": 1}, "not_planted": {"another date": 2}}
    for text in ("She have it.", "a old mill", "the the mill", "a mill .", "did not opened"):
        assert unnatural(text), text
    assert not unnatural("A unit, an hour, a eulogy: she had it, and they were glad...")


def test_planting_is_the_same_each_time_and_of_each_error_alone():
    rows = [row(), row("Roe had three sons in 1841.", question_id="r")]
    all_of_them = plant(rows, DOCUMENTS)
    pd.testing.assert_frame_equal(all_of_them, plant(rows, DOCUMENTS))
    alone = plant(rows, DOCUMENTS, errors=["another date"])
    same = all_of_them[all_of_them["error"] == "another date"].reset_index(drop=True)
    assert alone["answer"].tolist() == same["answer"].tolist()


def test_an_own_error_goes_through_the_test_and_a_metric_that_sees_it_falls(monkeypatch):
    monkeypatch.setitem(ERRORS, "gone", PlantedError(lambda case: "nothing", WRONG, "all gone"))
    rows = [row("Sue Roe", question_id=i, group=i % 4) for i in range(12)]
    results = crash_test(rows, ["token_f1", "exact_match"], documents=DOCUMENTS, errors=["gone", "lower case"])
    assert len(results) == 12 * 2 * 2
    assert set(results["group"]) == {0, 1, 2, 3}
    f1 = results[(results["number"] == "token_f1") & (results["error"] == "gone")]
    assert (f1["before"].eq(1) & f1["after"].eq(0) & f1["worse"].eq(1)).all()
    verdicts = crash_table(results).set_index(["number", "error"])["verdict"].to_dict()
    assert verdicts["token_f1", "gone"] == "sees"
    assert verdicts["token_f1", "lower case"] == "steady"


def test_a_number_of_which_less_is_better_becomes_worse_by_rising(monkeypatch):
    length = Metric(("answer",), lambda answer: len(answer) / 1000, "mine", lower_is_better=("length",))
    monkeypatch.setitem(METRICS, "length", length)
    results = crash_test([row()], ["length"], documents=DOCUMENTS, errors=["said twice"])
    assert results["worse"].tolist() == [pytest.approx(0.032)]


def test_labels_of_the_answer_as_it_was_are_not_used_for_the_changed_one():
    rows = [row("It was Sue Roe, in 1841.", grade=5, question_id=i) for i in range(2)]
    results = crash_test(rows, ["fully_right"], "embedded", documents=DOCUMENTS, errors=["abstention"])
    assert results["after"].tolist() == [0, 0]


def test_a_model_that_is_named_grades_before_and_after_and_is_asked_once_for_each_answer(tmp_path):
    def reply(body):
        right = "Sue Roe bought it from Ann Lee" in body["messages"][-1]["content"]
        return json.dumps({"grades": [5 if right else 2]})

    with FakeOllama(reply=reply) as server, Cassette(tmp_path / "c.sqlite") as cassette:
        how = {"labels": server.model(), "documents": DOCUMENTS, "errors": ["hops exchanged"], "cassette": cassette}
        results = crash_test([row()], ["fully_right"], progress=False, **how)
        again = crash_test([row()], ["fully_right"], progress=False, **how)
        assert len(server.calls) == 2
    assert results[["before", "after", "worse"]].to_numpy().tolist() == [[1, 0, 1]]
    pd.testing.assert_frame_equal(results, again)


def test_the_shipped_grades_of_a_real_model_are_whole(tmp_path):
    with Cassette(tmp_path / "grades.sqlite") as tape:
        assert tape.import_(packaged_data("recordings", "grades.jsonl.gz")) == 215
        assert tape.verify() == []


def frame(changes, claim=WRONG, number="token_f1"):
    table = pd.DataFrame({"worse": changes, "error": "e", "claim": claim, "number": number})
    return table.assign(group=np.arange(len(table)) // 2)


@pytest.mark.parametrize(
    ("changes", "claim", "verdict", "fell", "rose"),
    [
        ([0.5] * 12, WRONG, "sees", 1, 0),
        ([0.01] * 12, WRONG, "hardly", 1, 0),
        ([-0.5] * 12, WRONG, "fooled", 0, 1),
        ([0.5, -0.5] * 6, WRONG, "blind", 0.5, 0.5),
        ([0.0] * 12, WRONG, "blind", 0, 0),
        ([0.5] * 12, SAME, "false alarm", 1, 0),
        ([-0.5] * 12, SAME, "false alarm", 0, 1),
        ([0.01] * 12, SAME, "steady", 1, 0),
        ([math.nan] * 12, WRONG, "undefined", math.nan, math.nan),
    ],
)
def test_the_verdict_follows_the_changes(changes, claim, verdict, fell, rose):
    found = crash_table(frame(changes, claim), "group").iloc[0]
    assert found["verdict"] == verdict
    np.testing.assert_equal([found["fell"], found["rose"]], [fell, rose])


def test_clusters_widen_and_holm_counts_the_errors_of_one_number_alone():
    # Six answers of three clusters: 2 of 8 sign patterns are as extreme, p = 0.25; on their own 2 of 64.
    assert crash_table(frame([0.5] * 6), "group")["p_holm"].tolist() == [0.25]
    assert crash_table(frame([0.5] * 6))["p_holm"].tolist() == [2 / 64]
    two = pd.concat([frame([0.5] * 6), frame([0.0] * 6).assign(error="f"), frame([0.5] * 6, number="bleu")])
    assert crash_table(two)["p_holm"].tolist() == [4 / 64, 1.0, 2 / 64]


test_bad_input_is_named = refusals(
    (lambda: plant([row()], DOCUMENTS, errors=["negtion"]), "unknown error 'negtion'"),
    (lambda: crash_test([row("she")], ["token_f1"], errors=["lower case"]), DataError, "no error could be planted"),
    (lambda: crash_table(frame([0.1] * 3), "clster"), "unknown column 'clster'"),
)
