"""A data frame as CSV for machines, Markdown for reading and LaTeX (booktabs) for print."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from ragbench.errors import ConfigError
from ragbench.stats import MISSING
from ragbench.text.escape import in_csv, in_latex, in_markdown

PREAMBLE = (
    r"\usepackage[T1]{fontenc} \usepackage{booktabs} \usepackage{longtable} \usepackage{graphicx}"
)
NEEDS = (
    f"% needs {PREAMBLE}; for characters beyond Latin lualatex or xelatex, and a font that has them"
)
# Shrinks what is wider than the text, and nothing else.
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_LONG = 45  # rows that still fit on one page


@dataclass(frozen=True)
class ReportTable:
    """A table: ``frame`` for the CSV, ``shown`` for readers (None: the same), ``notes`` under
    it.
    """

    stem: str
    caption: str
    frame: pd.DataFrame
    shown: pd.DataFrame | None = None
    notes: Sequence[str] = ()

    def texts(self, label: str) -> dict[str, str]:
        """Return the table as CSV (six digits), Markdown and LaTeX (three decimals), by kind.

        ``label`` is LaTeX's.
        """
        if not self.caption.strip():
            raise ConfigError("an empty caption", "one sentence on what the table shows", "say it")
        numbers = _flat(self.frame)
        if not len(numbers.columns):
            raise ConfigError("a table without columns", "at least one", "check the data frame")
        shown = numbers if self.shown is None else _flat(self.shown)
        right = [_holds_numbers(shown.iloc[:, place]) for place in range(shown.shape[1])]
        # Lists: strings of pyarrow hold no half of a surrogate pair.
        lines = [list(shown.columns)]
        lines += [[_cell(value) for value in row] for row in shown.astype(object).to_numpy()]
        return {
            "csv": in_csv(numbers).to_csv(index=False, float_format="%.6g", lineterminator="\n"),
            "md": self._markdown(lines, right),
            "tex": self._latex(lines, right, label),
        }

    def _markdown(self, lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
        head, *body = map(_markdown_row, lines)
        rule = ["---:" if number else "---" for number in right]
        notes = [f"\n{in_markdown(note)}" for note in self.notes]
        rows = [head, f"| {' | '.join(rule)} |", *body]
        return "\n".join([in_markdown(self.caption), "", *rows, *notes, ""])

    def _latex(self, lines: Sequence[Sequence[str]], right: Sequence[bool], label: str) -> str:
        columns = "".join("r" if number else "l" for number in right)
        caption = rf"\caption{{{in_latex(self.caption)}}}"
        named = rf"\label{{{label_of(f'tab:{label}')}}}"
        first, *body = map(_latex_row, lines)
        head = [r"\toprule", first, r"\midrule"]
        notes = [rf"\par\smallskip\footnotesize {in_latex(note)}" for note in self.notes]
        if len(body) > _LONG:
            begin = [rf"\begin{{longtable}}{{{columns}}}", caption, named + r" \\"]
            end = [r"\bottomrule", r"\end{longtable}", *notes]
            lines = [*begin, *head, r"\endhead", *body, *end]
        else:
            begin = [r"\begin{table}[htbp]", r"\centering", caption, named]
            begin.append(rf"{FIT}{{\begin{{tabular}}{{{columns}}}")
            end = [r"\bottomrule", r"\end{tabular}}", *notes, r"\end{table}"]
            lines = [*begin, *head, *body, *end]
        return "\n".join([NEEDS, *lines, ""])


def _holds_numbers(column: pd.Series) -> bool:
    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    return numeric and not pd.api.types.is_bool_dtype(column.dtype)


def _cell(value: Any) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return MISSING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_float(value):
        # adding 0.0 makes 0 of -0
        return f"{round(value, 3) + 0.0:.3f}"
    return " ".join(str(value).split())


def _flat(df: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with named index levels as columns, and names of columns on one line."""
    flat = df.set_axis([_joined(column) for column in df.columns], axis=1)
    named = any(level is not None for level in flat.index.names)
    if named or not isinstance(flat.index, pd.RangeIndex):
        levels = ["" if level is None else _joined(level) for level in flat.index.names]
        flat = flat.reset_index(names=levels)
    return flat


def _joined(name: Any) -> str:
    if isinstance(name, tuple):
        return ", ".join(str(part) for part in name if str(part))
    return str(name)


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(in_markdown(text) for text in texts)} |"


def _latex_row(texts: Sequence[str]) -> str:
    return " & ".join(_latex_cell(text) for text in texts) + r" \\"


def _latex_cell(text: str) -> str:
    minus = re.sub(r"^-(?=\d)", "$-$", in_latex(text))
    # After the \\ of the row before, a bracket or star would be taken for its argument.
    return re.sub(r"^([\[*])", r"{\1}", minus)


def label_of(text: str) -> str:
    """Turn a text into a label that every LaTeX accepts."""
    return re.sub(r"[^A-Za-z0-9:.]+", "-", text).strip("-")


def interval_table(
    means: pd.DataFrame,
    rows: str | Sequence[str],
    columns: str | Sequence[str],
    *,
    scale: float = 1,
    decimals: int = 2,
) -> Styler:
    """Lay means out for a notebook: numbers times ``scale``, each with its interval in small type.

    The values of ``rows`` and ``columns``, columns of the means, head the table in the order of
    their first appearance. Put what is many (metrics, say) into the rows: five columns fit a page.
    """
    across = [rows] if isinstance(rows, str) else list(rows)
    down = [columns] if isinstance(columns, str) else list(columns)
    numbers = scale * means[["mean", "low", "high"]].to_numpy(float)
    cells = [_small_interval(*each, decimals) for each in numbers]
    heads = means[across + down].map(lambda name: escape(name) if isinstance(name, str) else name)
    laid = heads.assign(cell=cells).pivot(index=across, columns=down, values="cell")
    laid = laid.reindex(index=_first_seen(heads[across]), columns=_first_seen(heads[down]))
    look = {"selector": "td, th", "props": "text-align: right; padding: 3px 6px"}
    # a random id would change the file at every run
    return laid.fillna("").style.set_uuid("intervals").set_table_styles([look])


def _small_interval(mean: float, low: float, high: float, decimals: int) -> str:
    if math.isnan(mean):
        return "-"
    text = f"{mean:.{decimals}f}"
    if not math.isnan(low):
        text += f" <small>[{low:.{decimals}f}, {high:.{decimals}f}]</small>"
    # a notebook that is not trusted has no styles
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _first_seen(names: pd.DataFrame) -> pd.Index:
    distinct = names.drop_duplicates()
    if distinct.shape[1] > 1:
        return pd.MultiIndex.from_frame(distinct)
    return pd.Index(distinct.iloc[:, 0])
