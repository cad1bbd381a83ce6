"""Each number of docs/findings.md stands, at its printed precision, in what its row or paragraph
names: a notebook's committed outputs, its CSVs, or a file. Each interval of the other pages, and of
the data sets' own, stands in some notebook.
"""

from __future__ import annotations

import html
import json
import re
from functools import cache

import pytest

from ragbench.notebooks import find
from ragbench.paths import project_root

DOCS = project_root() / "docs"
FINDINGS = (DOCS / "findings.md").read_text(encoding="utf-8")
# What has digits and is no finding: addresses, names of items, models, measures and settings.
NAMES = re.compile(
    r"\]\([^)]*\)|`[^`]*`|\*512\*|95%|nDCG@10|GPT-\w+|Llama-3-8B|E5\b|\b\d+-[48]\b|p < \.05"
    r"|\b(?:[Tt]ables?|[Ff]igures?|Eq|[Ss]ections?|notebooks?|grades?|k|N) (?:= )?\d[\d.]*"
    r"(?:(?:,| and| to| \+) \d[\d.]*)*"
)
NUMBER = re.compile(r"(?<![\w.–-])([-+]?)(\d[\d,]*\d|\d|(?=\.\d))(\.\d+)?(%?)(?![\w-])")
INTERVAL = re.compile(r"[-+]?[\d.]+ \[[-+]?[\d.]+, [-+]?[\d.]+\]")
NOTEBOOKS = re.compile(r"\((\d\d(?:(?:, | to | and )\d\d)*)\)|\bnotebooks? (\d\d)\b")
LAST_COLUMN = re.compile(r"\| (\d\d(?:, \d\d)*) \|$")


def numbers(text: str) -> list[tuple[float, int, bool]]:
    """Return value, decimals and whether it is a percentage, of each number of a text."""
    found = []
    for sign, whole, part, percent in NUMBER.findall(text):
        value = float(f"{sign}{whole.replace(',', '') or 0}{part}")
        found.append((value, max(len(part) - 1, 0), bool(percent)))
    return found


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z][a-z0-9]{2,}", text.lower())) - {"and", "the", "for", "with"}


# -- where a block's numbers come from: (numbers, words) of rows, those of a table with its head


def row(text: str, head: str = "") -> tuple[list, frozenset[str]]:
    return numbers(text), words(f"{head} {text}")


def rows_of_table(table: str) -> list:
    plain = html.unescape(re.sub(r"<(?!/?t[rh])[^>]*>", " ", table))
    lines = re.findall(r"<tr[^>]*>(.*?)</tr>", plain, re.S)
    lines = [re.sub(r"<[^>]*>", " ", line) for line in lines]
    return [row(line, " ".join(lines[:3])) for line in lines]


def rows_of_csv(text: str) -> list:
    head, *lines = text.replace(",", " , ").splitlines()
    return [row(line, head) for line in lines]


@cache
def rows_of_notebook(number: str) -> list:
    (path,) = (path for path in find() if path.stem.startswith(f"{number}_"))
    lines = []
    rows = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            lines += "".join(cell["source"]).splitlines()
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            lines += "".join(output.get("text", [])).splitlines()
            lines += "".join(data.get("text/markdown", [])).splitlines()
            for table in re.findall(r"<table.*?</table>", "".join(data.get("text/html", [])), re.S):
                rows += rows_of_table(table)
    for file in (project_root() / "figures").glob(f"{number}_*.csv"):
        rows += rows_of_csv(file.read_text(encoding="utf-8"))
    return [*map(row, lines), *rows]


@cache
def rows_of_ledger(paper: str) -> list:
    ledger = (project_root() / "figures" / "ledger.csv").read_text(encoding="utf-8")
    lines = [line for line in ledger.splitlines() if line.startswith(("paper", paper.lower()))]
    return rows_of_csv("\n".join(lines))


def named_notebooks(block: str) -> list[str]:
    """Return the notebooks that a block names in brackets, or in its last column."""
    names = []
    texts = [one or other for one, other in NOTEBOOKS.findall(block)]
    for text in (*texts, *LAST_COLUMN.findall(block)):
        if " to " in text:
            first, last = text.split(" to ")
            names += [path.stem[:2] for path in find() if first <= path.stem[:2] <= last]
        else:
            names += re.findall(r"\d\d", text)
    return names


def sources(block: str) -> list:
    rows = []
    for number in named_notebooks(block):
        rows += rows_of_notebook(number)
    for place in re.findall(r"\]\(([^)#]+\.md)\)", block):
        rows += map(row, (DOCS / place).read_text(encoding="utf-8").splitlines())
    if paper := re.match(r"\| (thesis|RAGChecker|RAGAS|RAGEval), (?:Table|Eq|Figure)", block):
        rows += rows_of_ledger(paper[1])
    return rows


# -- what a block says


def blocks() -> list[str]:
    return [block.strip() for block in re.split(r"\n\s*\n|\n(?=[-|])", FINDINGS)]


def clauses(block: str) -> list[str]:
    text = LAST_COLUMN.sub("", NOTEBOOKS.sub(" ", block))
    if block.startswith("|"):
        return [text]
    return re.split(r";|\.\s", text)


def stands_in(number: tuple[float, int, bool], there: list) -> bool:
    """Whether a row has the number, rounded as it is printed; a share also in percent."""
    value, decimals, percent = number
    near = 0.5 * 10**-decimals + 1e-9
    for other, _, _ in there:
        forms = [other, other / 100, 100 * other]
        if not (percent or decimals == 0):
            forms.pop()
        if value > 0:
            forms += [-form for form in forms]  # "loses .066"
        if any(abs(value - form) <= near for form in forms):
            return True
    return False


def missing(block: str) -> list[str]:
    """Return the numbers, and the intervals with their estimate, that no row of a source has which
    shares a word with their clause.
    """
    rows = sources(block)
    lost = []
    for clause in clauses(block):
        near = [there for there, of_row in rows if words(clause) & of_row]
        values = NAMES.sub(" ", clause)
        parts = INTERVAL.findall(values)
        parts += [match[0] for match in NUMBER.finditer(INTERVAL.sub(" ", values))]
        for part in parts:
            found = numbers(part)
            if not any(all(stands_in(number, there) for number in found) for there in near):
                lost.append(part)
    return lost


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block[:40])
def test_each_number_stands_in_what_its_row_names(block):
    assert missing(block) == []


ROOT = project_root()
# counted again from the shipped replies by tests/labelling/test_steps_ragas.py
RECOUNTED = {".413 [.350, .478]", ".400 [.369, .431]"}
PAGES = [
    str(path.relative_to(ROOT)) for path in (*DOCS.glob("*.md"), *ROOT.glob("data/*/README.md"))
]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_each_interval_of_a_page_stands_in_a_notebook(page):
    there = [of_row for path in find() for of_row, _ in rows_of_notebook(path.stem[:2])]
    lost = [
        part
        for part in INTERVAL.findall((ROOT / page).read_text(encoding="utf-8"))
        if not any(all(stands_in(number, of_row) for number in numbers(part)) for of_row in there)
    ]
    assert [part for part in lost if part not in RECOUNTED] == []


def test_a_number_or_an_interval_that_its_row_does_not_name_is_found():
    assert missing("| thesis, Table 3.3 | 42% | BM25 35%, .000 [-.126, .126] | 13 |") == []
    assert missing("| thesis, Table 3.3 | 42% | BM25 35%, .000 [-.126, .127] | 13 |") == [
        ".000 [-.126, .127]"
    ]
    assert missing("BM25 has .7237 at every N (13).") == [".7237"]


def not_reproduced() -> list[list[str]]:
    section = FINDINGS.split("## What did not reproduce")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in rows[1:]]


@pytest.mark.parametrize("cells", not_reproduced(), ids=lambda cells: cells[0])
def test_what_did_not_reproduce_has_an_interval_without_the_printed_value(cells):
    _, printed, here, _ = cells
    ((value, _, _), *_) = numbers(printed)
    _, (low, _, _), (high, _, _) = numbers(INTERVAL.search(here)[0])
    assert not low <= value <= high
    if printed.startswith("> "):
        assert high < value
