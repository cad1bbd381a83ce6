"""Write a text so that its medium shows it as it is: one function per medium, called where the text
is written.

HTML is escaped by ``html.escape`` (widgets), LaTeX in `ragbench.report.tables`; figures take no
text for a formula, see `ragbench.plots.open_figure`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?%?( \[[-−+\d., ean]*\])?")


def in_markdown(text: str) -> str:
    """Escape for one line of Markdown (Pandoc's too), or a cell of its tables."""
    special = r"([\\|*<`~^$]|\](?=[(\[])|(?<!\w)[_@]|_(?!\w)|&(?=#?\w+;)|^[#>])"
    line = re.sub(r"\s+", " ", text)
    return re.sub(special, r"\\\1", line)


def _is_formula(text: str) -> bool:
    return text.startswith(_FORMULA) and not _NUMBER.fullmatch(text)


def from_csv(cell: str) -> str:
    """Take off the quote that `in_csv` writes before a formula.

    >>> from_csv("'-base"), from_csv("'tis")
    ('-base', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _is_formula(cell.lstrip("'")) else cell


def in_csv(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame in which no cell and no head is a formula to a spreadsheet: before = + - @
    comes a quote, which `from_csv` takes off.

    A carriage return, which ends the row for most readers of CSV, becomes a line feed; lists are
    written as JSON.
    """

    def quoted(value: Any) -> Any:
        if isinstance(value, list | dict):
            return json.dumps(value)
        if not isinstance(value, str):
            return value
        if _is_formula(value.lstrip("'")):
            value = f"'{value}"
        return value.replace("\r\n", "\n").replace("\r", "\n")

    heads = [quoted(name) for name in frame.columns]
    safe = frame.set_axis(heads, axis=1)
    for place, kind in enumerate(frame.dtypes):
        if pd.api.types.is_numeric_dtype(kind):
            continue
        cells = [quoted(value) for value in frame.iloc[:, place]]
        # Objects: strings of pyarrow hold no half of a surrogate pair.
        column = pd.Series(cells, frame.index, dtype=object)
        safe.isetitem(place, column)  # pyright: ignore
    return safe
