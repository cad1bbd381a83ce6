"""A data frame as CSV for machines, Markdown for reading and LaTeX (booktabs) for print."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from ragbench.errors import ConfigError
from ragbench.paths import results_dir
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
    """A table:

    ``frame`` for the CSV, ``shown`` for readers (None: the same), ``notes`` to stand under it.
    """

    stem: str
    caption: str
    frame: pd.DataFrame
    shown: pd.DataFrame | None = None
    notes: Sequence[str] = ()

    def cells(self) -> tuple[pd.DataFrame, set[str]]:
        """Return the cells as readers see them, and the names of the columns of numbers."""
        flat = _flat(self.frame if self.shown is None else self.shown)
        numbers = (
            pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)
            for kind in flat.dtypes
        )
        return flat.astype(object).map(_text), {
            name for name, number in zip(flat, numbers, strict=True) if number
        }

    def texts(self, label: str) -> dict[str, str]:
        """Return what `table` writes, by kind; ``label`` is LaTeX's."""
        if not self.caption.strip():
            raise ConfigError("an empty caption", "one sentence on what the table shows", "say it")
        plain = _flat(self.frame)
        if not len(plain.columns):
            raise ConfigError("a table without columns", "at least one", "check the data frame")
        cells, right = self.cells()
        lines = [
            map(in_markdown, cells.columns),
            ["---:" if name in right else "---" for name in cells],
        ]
        lines += [map(in_markdown, row) for row in cells.to_numpy()]
        under = [f"\n{in_markdown(note)}" for note in self.notes]
        rows = [f"| {' | '.join(line)} |" for line in lines]
        return {
            "csv": in_csv(plain).to_csv(index=False, float_format="%.6g", lineterminator="\n"),
            "md": "\n".join([in_markdown(self.caption), "", *rows, *under, ""]),
            "tex": _latex(cells, right, self.caption, label, self.notes),
        }


def table(
    df: pd.DataFrame,
    stem: str | os.PathLike[str],
    caption: str,
    *,
    shown: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Path]:
    """Write a table as CSV (six digits), Markdown and LaTeX (three decimals); return the paths by
    kind: csv, md, tex.

    Parameters
    ----------
    df : the numbers. An index with a name becomes columns.
    stem : path without an ending; a bare name lies in ``data/results/tables/``.
    shown : what Markdown and LaTeX show instead, e.g. "0.51 [0.48, 0.54]" in one cell; default
    ``df``.
    notes : lines under the table in Markdown and LaTeX.
    """
    stem = Path(stem).expanduser()
    base = stem if stem.parent != Path() else results_dir("tables") / stem
    base.parent.mkdir(parents=True, exist_ok=True)
    texts = ReportTable(stem.name, caption, df, shown, notes).texts(stem.name)
    # Not with_suffix: "table_3.1" has a dot of its own.
    paths = {kind: base.with_name(f"{base.name}.{kind}") for kind in texts}
    for kind, text in texts.items():
        paths[kind].write_text(text, encoding="utf-8", newline="\n")
    return paths


def _text(value: Any) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return MISSING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    return f"{value:.3f}" if pd.api.types.is_float(value) else " ".join(str(value).split())


def _flat(df: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with named index levels as columns and names of columns on one line."""

    def name(parts: Any) -> str:
        return (
            ", ".join(str(part) for part in parts if str(part))
            if isinstance(parts, tuple)
            else str(parts)
        )

    flat = df.set_axis([name(column) for column in df.columns], axis=1)
    if any(level is not None for level in flat.index.names) or not isinstance(
        flat.index, pd.RangeIndex
    ):
        flat = flat.reset_index(
            names=["" if level is None else name(level) for level in flat.index.names]
        )
    return flat


def _latex(
    texts: pd.DataFrame, right: set[str], caption: str, label: str, notes: Sequence[str]
) -> str:
    def cell(text: str) -> str:
        # After the \\ of the row before, a bracket or star would be taken for its argument.
        return re.sub(r"^([\[*])", r"{\1}", re.sub(r"^-(?=\d)", "$-$", in_latex(text)))

    styler = texts.map(cell).rename(columns=in_latex).style.hide(axis="index")
    spec = "".join("r" if name in right else "l" for name in texts)
    options: dict[str, Any] = {"column_format": spec, "hrules": True, "caption": in_latex(caption)}
    options["label"] = label_of(f"tab:{label}")
    under = "".join(rf"\par\smallskip\footnotesize {in_latex(note)}" + "\n" for note in notes)
    if len(texts) > _LONG:
        tex = styler.to_latex(**options, environment="longtable") + under
    else:
        tex = styler.to_latex(**options, position="htbp", position_float="centering")
        tex = tex.replace(r"\begin{tabular}", rf"{FIT}{{\begin{{tabular}}").replace(
            r"\end{tabular}", r"\end{tabular}}"
        )
        tex = tex.replace(r"\end{table}", rf"{under}\end{{table}}")
    return f"{NEEDS}\n{tex}"


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
    """Lay means out for a notebook: short numbers times ``scale``, each with its interval in small
    type beside it.

    The values of ``rows`` and ``columns``, columns of the means, head the table in the order of
    their first appearance. Put what is many (metrics, say) into the rows: five columns fit a page.
    """
    places = [[name] if isinstance(name, str) else list(name) for name in (rows, columns)]
    texts = []
    for mean, low, high in scale * means[["mean", "low", "high"]].to_numpy(float):
        small = (
            "" if math.isnan(low) else f" <small>[{low:.{decimals}f}, {high:.{decimals}f}]</small>"
        )
        text = "-" if math.isnan(mean) else f"{mean:.{decimals}f}{small}"
        # a notebook that is not trusted has no styles
        texts.append(text.replace(" ", "\N{NO-BREAK SPACE}"))
    means = means[places[0] + places[1]].map(
        lambda name: escape(name) if isinstance(name, str) else name
    )
    table = means.assign(cell=texts).pivot(index=places[0], columns=places[1], values="cell")
    heads = [means[names].drop_duplicates() for names in places]
    order = [
        pd.MultiIndex.from_frame(head) if head.shape[1] > 1 else pd.Index(head.iloc[:, 0])
        for head in heads
    ]
    look = {"selector": "td, th", "props": "text-align: right; padding: 3px 6px"}
    laid = table.reindex(index=order[0], columns=order[1]).fillna("")
    # a random id would change the file at every run
    return laid.style.set_uuid("intervals").set_table_styles([look])
