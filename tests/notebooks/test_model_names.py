"""A recorded model has one short name in tables, figures and sentences; its full name says once who
it is.
"""

import re

import nbformat
import pytest

import recorded
from ragbench.notebooks import find
from ragbench.paths import project_root

ROOT = project_root()
# The names of weights go on after the full name: "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M".
FULL = "|".join(rf"{re.escape(name)}(?!-Instruct)" for name in recorded.FULL_NAMES.values())
KEYS = r"\b(?:qwen|smollm2)\b"  # names of recordings and of `chat_model`
IN_PART = r"Qwen2\.5-Coder(?!-1\.5B)|SmolLM2-(?!135M)"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def shown(cell):
    """What a reader sees below a cell: printed lines, tables and sentences."""
    for output in cell.get("outputs", []):
        yield output.get("text", "")
        yield from (text for kind, text in output.get("data", {}).items() if "text" in kind)


@pytest.mark.parametrize("path", find(), ids=lambda path: path.stem)
def test_a_notebook_shows_short_names_and_has_the_full_one_in_its_text(path):
    cells = nbformat.read(path, as_version=4).cells
    outputs = "\n".join(text for cell in cells for text in shown(cell))
    assert re.findall(f"{FULL}|{KEYS}", outputs) == []
    source = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert re.findall(IN_PART, source) == []
    for recording, name in recorded.SHORT_NAMES.items():
        if re.search(rf"\b{name}\b(?![\d.-])", outputs):
            assert recorded.FULL_NAMES[recording] in source, name


@pytest.mark.parametrize(
    "path", sorted((ROOT / "figures").glob("[0-9]*.csv")), ids=lambda p: p.stem
)
def test_a_figure_has_short_names(path):
    assert re.findall(f"{FULL}|{KEYS}", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_of_a_page_has_short_names(page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(IN_PART, text) == []
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    assert re.findall(FULL, rows) == []
