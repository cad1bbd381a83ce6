"""Memory against context (notebook 15): who is followed, by hand, and the shipped table counted anew."""

import csv
import json
import math
import re
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


def test_the_tables_of_notebook_15_are_counted_anew():
    with packaged_data("recordings", "memory.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    about = json.loads(packaged_data("recordings", "memory.json").read_text(encoding="utf-8"))
    assert set(about["planned"].values()) == {97}
    assert about["answers"] == about["planned"]
    ids, follows, right, alarms, words = {}, {}, {}, {}, []
    for row in rows:
        name, true, false = row["condition"], row["says_true"], row["says_false"]
        ids.setdefault(name, []).append(row["id"])
        for kept, said in (
            (follows, (true, false) == ("False", "True")),
            (right, (true, false) == ("True", "False")),
        ):
            kept.setdefault(name, set())
            if said:
                kept[name].add(row["id"])
        alarms[name] = alarms.get(name, 0) + (row["says_errors"] == "True")
        if name == "false passages" and row["id"] in follows[name]:
            words.append(float(row["words_in_passages"]))
    assert all(of == ids["closed book"] for of in ids.values())
    assert len(set(ids["closed book"])) == 97
    path = project_root() / "notebooks" / "15_thesis_related_protocols.ipynb"
    book = " ".join(
        text
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
        for kind, lines in output.get("data", {}).items()
        if kind != "text/html"
        for text in lines
    )
    known = right["closed book"]
    still = known & follows["false passages"]
    for line in (
        f"Against false passages {len(follows['false passages']) / 97:.2f} [",
        f"Of the {len(known)} questions that the model answers right alone, {len(still)} follow the",
        f"says the false string     {sum(words) / len(words):.2f} [",
        f"Detection {alarms['false passages, warned'] / 97:.2f}, "
        f"false alarms {alarms['true passages, warned'] / 97:.2f}: ",
        f"{len(right['false passages, warned'])} of 97         "
        f"{len(follows['false passages, warned'])} of 97",
    ):
        assert line in book, line
    for name in ("closed book", "true passages", "false passages, warned", "true passages, warned"):
        assert re.search(rf"{name} +{len(right[name]) / 97:.2f} \[", book), name
