"""A table that scores answers has the plainest rules in it, and what *Found* calls good is held
against the best of them.

The cell that shows such a table has the tag ``yardsticks``; its rules, which need no model, are
rows or columns with the names below.
"""

from __future__ import annotations

import json
import re
from io import StringIO

import pandas as pd
import pytest

from ragbench.notebooks import find

CONSTANT = {"a constant", "a constant answer"}
LENGTH = {"shorter", "length", "longer claim", "length in its better direction", "length, AUC"}
LENGTH |= {"answer length alone, nested"}
WORDS = {"words in the passages", "claim overlap", "claim overlap, AUC", "shared words", "stems"}
WORDS |= {"IDF-weighted stem F1", "the question, repeated", "contained", "IDF overlap"}
# Notebooks that score answers, claims or nuggets; the others retrieve, generate or count.
SCORED = ("20", "21", "22", "30", "41", "50", "51")
# An answer may be too long or too short for ROUGE-L: there is no direction in which length is good.
WITHOUT_LENGTH = ("41",)
INTERVAL = re.compile(r"^(-?\d*\.?\d+)\s\[-?\d*\.?\d+,\s-?\d*\.?\d+\]")


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def shown(cell, kind):
    """Return what a cell shows of one kind, "html" or "markdown"."""
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    return ["".join(parts[f"text/{kind}"]) for parts in data if f"text/{kind}" in parts]


def tables(path):
    """Return the tagged tables by name, as lists of text: columns where they are rules, else rows."""
    found = []
    for cell in cells_of(path):
        if "yardsticks" in cell["metadata"].get("tags", []):
            for page in shown(cell, "html"):
                (frame,) = pd.read_html(StringIO(page), keep_default_na=False)
                frame = frame.astype(str)
                frame.columns = [
                    str(name[0] if isinstance(name, tuple) else name) for name in frame
                ]
                by_row = {row[0]: row[1:] for row in frame.itertuples(index=False)}
                columns = frame.to_dict("list")
                found.append(columns if CONSTANT & columns.keys() else by_row)
    return found


def first_value(texts):
    """Return the first number that has an interval; None where there is none."""
    matches = filter(None, map(INTERVAL.match, texts))
    return next((float(match[1]) for match in matches), None)


BOOKS = [path for path in find() if path.stem.startswith(SCORED)]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_table_of_scores_has_a_constant_a_length_and_a_string_rule_with_intervals(path):
    found = tables(path)
    assert found, "no cell is tagged yardsticks"
    for table in found:
        for kind in (CONSTANT, LENGTH, WORDS):
            if kind is LENGTH and path.stem.startswith(WITHOUT_LENGTH):
                continue
            named = kind & table.keys()
            assert named, f"none of {sorted(kind)}"
            for name in named:
                assert first_value(table[name]) is not None, f"{name} has no interval"


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_found_names_the_best_rule_where_it_calls_a_measure_good(path):
    (sentences,) = shown(cells_of(path)[1], "markdown")
    for table in tables(path):
        rules = (CONSTANT | LENGTH | WORDS) & table.keys()
        measures = [name for name in table if name in sentences and name not in rules]
        best = max(rules, key=lambda name: first_value(table[name]))
        assert not measures or best in sentences, f"{measures} without {best}"


def test_the_reader_finds_a_rule_without_interval_and_a_table_without_rules(tmp_path):
    page = pd.DataFrame({"": ["BLEU", "length"], "AUC": ["0.7 [0.6, 0.8]", "0.5"]}).to_html(
        index=False
    )
    cell = {"metadata": {"tags": ["yardsticks"]}, "outputs": [{"data": {"text/html": page}}]}
    (tmp_path / "20_made.ipynb").write_text(json.dumps({"cells": [cell]}))
    (table,) = tables(tmp_path / "20_made.ipynb")
    assert first_value(table["BLEU"]) == 0.7
    assert first_value(table["length"]) is None
    assert not (CONSTANT | WORDS) & table.keys()
