"""Memory against context (notebook 15): who is followed, by hand, and the shipped table counted anew."""

import csv
import json
import math
import sys

import pytest

from ragbench.paths import packaged_data, project_root
from ragbench.records import Answer

sys.path.append(str(project_root() / "scripts"))
import ship_rgb

TRUE = "Ada built the mill in Ely."
ROW = {
    "id": 3,
    "query": "Who built the mill?",
    "answer": [["Ada", "A. Byron"]],
    "fakeanswer": "Bruno",
    "positive": [TRUE, "The mill is Ada's work."],
    "positive_wrong": [TRUE.replace("Ada", "Bruno"), "The mill is Bruno's work."],
}


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("It was A. Byron.", True, False),
        ("bruno built it", False, True),
        ("Bruno, not Ada.", True, True),
        ("Adam did.", False, False),
    ],
)
def test_an_answer_says_the_true_string_the_false_one_both_or_neither(text, true, false):
    found = ship_rgb.numbers(ROW, "false passages", Answer("3", text, ""))
    assert (found["says_true"], found["says_false"]) == (true, false)


def test_numbers_are_of_the_conditions_passages_and_hold_no_text():
    answered = Answer("3", "Bruno. There are factual errors in the provided documents.", "")
    found = ship_rgb.numbers(ROW, "false passages", answered)
    assert (found["says_errors"], found["words"], found["failed"]) == (True, 9, "")
    assert (
        ship_rgb.numbers(ROW, "false passages", Answer("3", "Bruno", ""))["words_in_passages"] == 1
    )
    assert (
        ship_rgb.numbers(ROW, "true passages", Answer("3", "Bruno", ""))["words_in_passages"] == 0
    )
    assert math.isnan(ship_rgb.numbers(ROW, "closed book", answered)["words_in_passages"])
    assert [value for value in found.values() if isinstance(value, str)] == ["false passages", ""]


def test_only_questions_are_asked_whose_strings_tell_who_is_followed():
    assert ship_rgb.tells(ROW)
    for wrong in (
        {"fakeanswer": "Ada Bruno"},  # holds the true one
        {"positive": ["Nobody knows."]},
        {"positive_wrong": ["Bruno or Ada."]},
        {"positive": [TRUE + " Bruno did not."]},
        {"positive_wrong": ["word " * 400 + "Bruno"]},  # after the cut at N
    ):
        assert not ship_rgb.tells(ROW | wrong), wrong


def test_the_table_is_counted_anew():
    with packaged_data("recordings", "memory.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    about = json.loads(packaged_data("recordings", "memory.json").read_text(encoding="utf-8"))
    ids, counts = {}, {}
    for row in rows:
        ids.setdefault(row["condition"], []).append(row["id"])
        follows = row["says_false"] == "True" and row["says_true"] == "False"
        counts[row["condition"]] = counts.get(row["condition"], 0) + follows
    assert {name: len(of) for name, of in ids.items()} == about["answers"]
    assert [len(set(of)) for of in ids.values()] == [*about["answers"].values()]
    assert set(about["planned"].values()) == {97}
    # a condition that is not whole has the first questions of the order
    assert all(of == ids["closed book"][: len(of)] for of in ids.values())
    book = (project_root() / "notebooks" / "15_thesis_related_protocols.ipynb").read_text(
        encoding="utf-8"
    )
    share = counts["false passages"] / len(ids["false passages"])
    assert f"Against false passages {share:.2f} [" in book
