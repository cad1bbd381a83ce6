"""The tables of a report: measures by factors, with n, clusters, mean and interval, as CSV for
machines, Markdown for reading and LaTeX (booktabs) for print.

Reading order: ``ReportTable``, its ``means`` and ``differences`` (what readers see of
`ragbench.means` and `ragbench.compare`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from tabulate import tabulate

from ragbench.comparison import format_comparison
from ragbench.stats import MISSING, with_interval
from ragbench.text.escape import in_csv, in_markdown

MOST_DRAWN = 40  # systems in one figure
FIRST = "¹"  # marks what may be the best
_SIDE_BY_SIDE = 4  # measures, whose means stand in one row
_LONG = 45  # rows that still fit on one page


_LATEX = {character: rf"\{character}" for character in "&%$#_"} | {
    "{": r"\textbraceleft{}",  # BibTeX counts the braces of \{ too
    "}": r"\textbraceright{}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "−": "$-$",
    "¹": r"\textsuperscript{1}",
}


def _in_latex(text: str) -> str:
    """Escape for LaTeX; line breaks and control characters become spaces."""
    plain = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    escaped = "".join(_LATEX.get(character, character) for character in plain)
    return re.sub(r"-(?=-)", "-{}", escaped)


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
        clusters = self.frame.attrs.get("clusters", "")
        notes = [note for note in (self.finding, clusters and f"Clusters: {clusters}") if note]
        return " ".join([self.title + "." * bool(notes), *(f"{note}." for note in notes)])

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
        place: dict[str, Any] = {"position": "htbp", "position_float": "centering"}
        if len(shown) > _LONG:
            place = {"environment": "longtable"}
        heads = shown.set_axis([_in_latex(str(name)) for name in shown], axis=1)
        rows = heads.style.hide(axis="index").format(_latex_cell)
        return rows.to_latex(hrules=True, caption=_in_latex(self.caption), label=label, **place)

    @classmethod
    def means(cls, frame: pd.DataFrame, by: Sequence[str], stem: str, title: str) -> ReportTable:
        """Lay out means: the table of `ragbench.means` for the CSV, and for readers a row per cell
        with its measures side by side, of more than four measures a row each.

        ``by``: the columns that make the cells. Where ``may_be_first`` is true the mean is marked.
        """
        cells = with_interval(frame)
        if "may_be_first" in frame:
            cells += frame["may_be_first"].map({True: FIRST, False: ""})
        if frame["metric"].nunique() > _SIDE_BY_SIDE:
            shown = frame.drop(columns=["mean", "low", "high", "may_be_first"], errors="ignore")
            shown.insert(len(by) + 1, "mean [95%]", cells)
            return cls(stem, title, frame, shown)
        shown = frame.loc[frame["metric"].eq(frame["metric"][0]), [*by]]
        for metric, part in frame.groupby("metric", sort=False):
            words = str(metric).replace("_", " ")
            shown[f"{words} [95%]"] = cells[part.index].to_numpy()
            shown[f"n, {words}"] = part["n"].to_numpy()
        return cls(stem, title, frame, shown)

    @classmethod
    def differences(
        cls, frame: pd.DataFrame, by: Sequence[str], stem: str, title: str, finding: str = ""
    ) -> ReportTable:
        """Lay out differences: the table of `ragbench.stats.compare_pairs` for the CSV, and for
        readers who is compared within which values of ``by``, differences with intervals, and p.
        """
        shown = pd.concat([frame[[*by]], format_comparison(frame)], axis=1)
        return cls(stem, title, frame, shown, finding=finding)


def _markdown(shown: pd.DataFrame) -> str:
    heads = [in_markdown(str(name)) for name in shown]
    # Lists: strings of pyarrow hold no half of a surrogate pair.
    rows = [_markdown_row(row) for row in shown.astype(object).to_numpy()]
    return tabulate(rows, heads, tablefmt="pipe", disable_numparse=True)


def _markdown_row(row: Iterable[Any]) -> list[str]:
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
    text = _in_latex(_cell(value))
    text = re.sub(r"^-(?=\d)", "$-$", text)
    # After the \\ of the row before, a bracket or star would be taken for its argument.
    return re.sub(r"^([\[*])", r"{\1}", text)
