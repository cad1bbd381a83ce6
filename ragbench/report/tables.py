"""A data frame as CSV for machines, Markdown for reading and LaTeX (booktabs) for print."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler
from tabulate import tabulate

from ragbench.stats import MISSING
from ragbench.text.escape import in_csv, in_latex, in_markdown

MOST_DRAWN = 40  # systems in one figure
_LONG = 45  # rows that still fit on one page
_CELL_STYLE = {"selector": "td, th", "props": "text-align: right; padding: 3px 6px"}


@dataclass(frozen=True)
class ReportTable:
    """A table: ``frame`` for the CSV, ``shown`` for readers (None: the same), its picture, and what
    was found in a sentence.
    """

    stem: str
    title: str
    frame: pd.DataFrame
    shown: pd.DataFrame | None = None
    figure: Figure | None = None
    finding: str = ""

    @property
    def caption(self) -> str:
        """The title, what was found, and which questions were taken as one cluster."""
        parts = [self.title]
        if self.finding:
            parts.append(self.finding)
        if "clusters" in self.frame.attrs:
            parts.append(f"Clusters: {self.frame.attrs['clusters']}")
        if len(parts) == 1:
            return self.title
        return ". ".join(parts) + "."

    def texts(self, label: str) -> dict[str, str]:
        """Return the table as CSV (six digits), Markdown and LaTeX (three decimals), by kind.

        LaTeX's ``label`` follows ``tab:``; its text needs the packages booktabs and longtable.
        """
        shown = self.shown
        if shown is None:
            shown = self.frame
        csv = in_csv(self.frame)
        return {
            "csv": csv.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
            "md": f"{in_markdown(self.caption)}\n\n{_markdown(shown)}\n",
            "tex": self._latex(shown, re.sub(r"[^A-Za-z0-9:.]+", "-", f"tab:{label}")),
        }

    def _latex(self, shown: pd.DataFrame, label: str) -> str:
        place = {"position": "htbp", "position_float": "centering"}
        if len(shown) > _LONG:
            place = {"environment": "longtable"}
        rows = shown.style.hide(axis="index").format(_latex_cell).format_index(in_latex, axis=1)
        return rows.to_latex(hrules=True, caption=in_latex(self.caption), label=label, **place)


def _markdown(shown: pd.DataFrame) -> str:
    heads = [in_markdown(name) for name in shown]
    # Lists: strings of pyarrow hold no half of a surrogate pair.
    rows = [_markdown_row(row) for row in shown.astype(object).to_numpy()]
    return tabulate(rows, heads, tablefmt="pipe", disable_numparse=True)


def _markdown_row(row: Sequence[Any]) -> list[str]:
    return [in_markdown(_cell(value)) for value in row]


def _cell(value: Any) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return MISSING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_float(value):
        # adding 0.0 makes 0 of -0
        return f"{round(value, 3) + 0.0:.3f}"
    return " ".join(str(value).split())


def _latex_cell(value: Any) -> str:
    text = in_latex(_cell(value))
    text = re.sub(r"^-(?=\d)", "$-$", text)
    # After the \\ of the row before, a bracket or star would be taken for its argument.
    return re.sub(r"^([\[*])", r"{\1}", text)


def interval_table(
    means: pd.DataFrame,
    rows: str | Sequence[str],
    columns: str | Sequence[str],
    *,
    decimals: int = 2,
) -> Styler:
    """Lay means out for a notebook, each number with its interval in small type.

    The values of ``rows`` and ``columns``, columns of the means, head the table in the order of
    their first appearance. Put what is many (metrics, say) into the rows: five columns fit a page.
    """
    across = [columns] if isinstance(columns, str) else list(columns)
    down = [rows] if isinstance(rows, str) else list(rows)
    numbers = means[["mean", "low", "high"]].to_numpy(float)
    cells = means.assign(cell=[_small_interval(*each, decimals) for each in numbers])
    table = cells.set_index(down + across)["cell"].unstack(across, sort=False).fillna("")
    # a random id would change the file at every run
    styler = table.style.set_uuid("intervals").set_table_styles([_CELL_STYLE])
    return styler.format_index(escape="html").format_index(escape="html", axis=1)


def _small_interval(mean: float, low: float, high: float, decimals: int) -> str:
    if math.isnan(mean):
        return "-"
    text = f"{mean:.{decimals}f}"
    if not math.isnan(low):
        text += f" <small>[{low:.{decimals}f}, {high:.{decimals}f}]</small>"
    # a notebook that is not trusted has no styles
    return text.replace(" ", "\N{NO-BREAK SPACE}")
