"""A table that says how scores of answers agree with people or labels has the plainest rules in it,
and what *Found* calls good is held against the best of them.

The cell that shows such a table has the tag ``yardsticks``; its rules, which need no model, are
rows or columns with the names below. All notebooks are read: a table of agreement without that tag,
and a notebook without such a table, is named here with the reason.
"""

from __future__ import annotations

import json
import re
from io import StringIO

import pandas as pd
import pytest

from ragbench.notebooks import find

# What the names of rules begin with.
CONSTANT = ("a constant", "never")
LENGTH = ("shorter", "length", "longer claim", "answer length alone", "tokens")
WORDS = ("words in the passages", "claim overlap", "shared words", "stems", "IDF-weighted stem F1")
WORDS += ("the question, repeated", "contained", "IDF overlap", "words in the answer")
# An answer may be too long or too short for ROUGE-L: there is no direction in which length is good.
WITHOUT_LENGTH = "the question, repeated"
INTERVAL = re.compile(r"^(-?\d*\.?\d+)\s\[-?\d*\.?\d+,\s-?\d*\.?\d+\]")
AGREEMENT = re.compile(
    r"\b(auc|balanced|accuracy|pearson|spearman|kendall|rho|tau|kappa|preference|agreement)\b", re.I
)

# Notebooks without a table of how scores of answers agree with people or labels.
NONE = {
    "00": "one question, and IR scores of five retrievers",
    "10": "documents and chunks: nothing is answered",
    "11": "IR scores of retrieved texts: nothing is answered",
    "12": "grades and strings by N; notebook 99 has these answers beside copies and constants",
    "15": "shares by systems, and what a few labels estimate",
    "23": "retrieved gold sentences, and two prompts by labels",
    "24": "printed cells of RAGChecker's metrics beside one another",
    "40": "questions are made: nothing is scored",
    "42": "Recall and EIR of retrieved texts: nothing is answered",
    "43": "printed cells of eight models: their answers are not there",
    "44": "Recall and IR scores in other languages: nothing is answered",
    "91": "the user's own run: two systems, not two measures",
    "92": "the user's own labels",
    "93": "the user's own answers: two systems, not two measures",
    "94": "grades by labels, under other evidence",
    "95": "how many labels *contained* saves: intervals of one share",
    "96": "abstentions by labels",
    "97": "each number before and after an error: the constant is that it stays, and *contained*, "
    "token F1 and ROUGE-L are rules themselves",
    "98": "when to stop: draws of recorded grades",
    "99": "the rows are the rules: constants, copies, longer and shorter answers",
}
# Other tables with a word of agreement, by what stands in them.
OTHER = {
    ("13", "Kendall's tau with the IR score"): "the order of five systems, not answers",
    ("13", "same grade"): "a labeller beside itself",
    ("14", "gain over never"): "a cut of the retrieved text's IR score; *never* is its constant",
    ("14", "its agreement"): "the best cut of the same score",
    ("16", "AUC, shuffled"): "the null: numbers shuffled within questions",
    ("21", "TruLens | Groundedness"): "the printed table",
    ("21", "Table 2"): "one printed cell in two tables",
    ("21", "within one step, %"): "two annotators beside each other",
    ("21", "Human | Annotator"): "rows of the printed table made anew from the authors' files",
    ("21", "MiniLM cosine"): "three aspects of the tagged table, which has the constant",
    ("22", "same of three"): "a labeller beside itself",
    ("23", "same of three"): "a labeller beside itself",
    ("24", "80 cells"): "printed cells of metrics beside printed F1",
    ("25", "fitted - RAGChecker"): "differences of the tagged table's rows",
    ("30", "dimension"): "the tagged table's rows with wins and ties, and under other readings",
    ("43", "Recall with completeness, CN"): "printed cells of settings",
    ("50", "length of the answer held"): "one rule, with length and others held",
    ("51", "tau less the stems'"): "differences of the tagged table's rows",
    ("51", "15 best"): "the tagged table's rules among fewer runs",
    ("51", "share of stems"): "one rule by its cut",
    ("51", "topics"): "labels beside labels",
    ("90", "within"): "the tagged table with bounds in columns of their own, and all metrics",
    ("92", "person"): "a person beside the labels",
}


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def shown(cell, kind):
    """Return what a cell shows of one kind, "html" or "markdown"."""
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    return ["".join(parts[f"text/{kind}"]) for parts in data if f"text/{kind}" in parts]


def frames(path, cells=None):
    """Return each table of a notebook, or of some cells, and whether its cell is tagged."""
    for cell in cells or cells_of(path):
        tagged = "yardsticks" in cell["metadata"].get("tags", [])
        for page in shown(cell, "html"):
            if "<table" in page:
                (frame,) = pd.read_html(StringIO(page), keep_default_na=False)
                yield frame.astype(str), tagged


def tables(path, cells=None):
    """Return the tagged tables by name, as lists of text: columns where they are rules, else rows."""
    for frame, tagged in frames(path, cells):
        if tagged:
            first = [str(name[0] if isinstance(name, tuple) else name) for name in frame]
            columns = dict(zip(first, frame.T.to_numpy().tolist(), strict=True))
            by_row = {
                row[0].removeprefix("balanced: ").removesuffix(", judge"): row[1:]
                for row in frame.itertuples(index=False)
            }
            yield columns if rules(columns, CONSTANT) else by_row


def rules(table, kind):
    return [name for name in table if name.startswith(kind)]


def first_value(texts):
    """Return the first number that has an interval; None where there is none."""
    matches = filter(None, map(INTERVAL.match, texts))
    return next((float(match[1]) for match in matches), None)


def names_of(frame):
    """Return what heads rows and columns, as one text."""
    heads = [part for name in frame for part in (name if isinstance(name, tuple) else (name,))]
    heads = [str(head) for head in heads if not str(head).startswith("Unnamed")]
    return " ; ".join([*heads, *frame.iloc[:, 0].astype(str)])


BOOKS = {path.stem[:2]: path for path in find()}
SCORED = BOOKS.keys() - NONE


@pytest.mark.parametrize("number", sorted(SCORED))
def test_a_table_of_scores_has_a_constant_a_length_and_a_string_rule_with_intervals(number):
    found = [*tables(BOOKS[number])]
    assert found, "no cell is tagged yardsticks"
    for table in found:
        for kind in (CONSTANT, LENGTH, WORDS):
            if kind is LENGTH and WITHOUT_LENGTH in table:
                continue
            named = rules(table, kind)
            assert named, f"none of {sorted(kind)} in {[*table]}"
            for name in named:
                assert first_value(table[name]) is not None, f"{name} has no interval"
                assert not {"NaN", "nan", "–"} & set(table[name]), f"{name} is undefined"


@pytest.mark.parametrize("number", sorted(SCORED))
def test_found_names_the_best_rule_of_the_table_below_it_and_beside_a_measure(number):
    (sentences,) = shown(cells_of(BOOKS[number])[1], "markdown")
    first = len([*tables(BOOKS[number], cells=cells_of(BOOKS[number])[:2])])
    for place, table in enumerate(tables(BOOKS[number])):
        named = rules(table, CONSTANT + LENGTH + WORDS)
        measures = [
            name
            for name in table
            if name not in named and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentences)
        ]
        best = max(named, key=lambda name: first_value(table[name]))
        is_needed = place < first or measures
        assert not is_needed or best in sentences, f"{measures} without {best}"


def test_notebooks_without_a_table_of_scores_are_there_and_have_none_tagged():
    assert NONE.keys() <= BOOKS.keys()
    assert [number for number in NONE if any(tables(BOOKS[number]))] == []


def untagged_tables_of_agreement():
    for number, path in BOOKS.items():
        for frame, tagged in frames(path):
            text = names_of(frame)
            if not tagged and AGREEMENT.search(text):
                yield number, text


def test_each_table_of_agreement_has_its_rules_or_a_reason():
    left = [
        (number, text)
        for number, text in untagged_tables_of_agreement()
        if not any(number == of and words in text for of, words in OTHER)
    ]
    assert left == []


def test_each_reason_is_of_a_table_that_is_there():
    there = [*untagged_tables_of_agreement()]
    unused = [
        (number, words)
        for number, words in OTHER
        if not any(number == of and words in text for of, text in there)
    ]
    assert unused == []


def test_the_reader_finds_a_rule_without_interval_and_a_table_without_rules(tmp_path):
    page = pd.DataFrame({"": ["BLEU", "length"], "AUC": ["0.7 [0.6, 0.8]", "0.5"]}).to_html(
        index=False
    )
    cell = {"metadata": {"tags": ["yardsticks"]}, "outputs": [{"data": {"text/html": page}}]}
    (tmp_path / "20_made.ipynb").write_text(json.dumps({"cells": [cell]}))
    (table,) = tables(tmp_path / "20_made.ipynb")
    assert first_value(table["BLEU"]) == 0.7
    assert first_value(table["length"]) is None
    assert not rules(table, CONSTANT + WORDS)
    ((frame, _),) = frames(tmp_path / "20_made.ipynb")
    assert AGREEMENT.search(names_of(frame))
