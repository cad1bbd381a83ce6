"""A data frame as CSV for machines, Markdown for reading and LaTeX for print.

The LaTeX (booktabs, with caption and label) compiles with pdflatex as it is. Characters outside Latin that have a
command get it; others (Chinese, for instance) stay as they are, which needs lualatex or xelatex: a comment in the first
line says so.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from ragbench.errors import ConfigError
from ragbench.paths import results_dir
from ragbench.stats import MISSING

PREAMBLE = r"\usepackage[T1]{fontenc} \usepackage{booktabs} \usepackage{longtable} \usepackage{graphicx}"
LONG = 45  # rows that still fit on one page
# Shrinks what is wider than the text, and nothing else.
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_WIDE, _WIDER = 90, 125  # characters in a row from which the type gets smaller
_WRAP = 45  # characters of a text column from which its lines are broken

_INTERVAL = re.compile(r"-?[\d.,]+( \[-?[\d.,]+, -?[\d.,]+\])?")  # text to pandas, but its minus is no hyphen
_FORMULA = re.compile(r"[=+\-@\t\r].")
_NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?%?( \[[^\]]*\])?")
_COMMANDS = {character: rf"\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "\u00a0": "~",
    "−": "$-$",
}
_MATH = """
    →rightarrow ←leftarrow ≥geq ≤leq ≠neq ≈approx ∞infty √surd ∈in ΔDelta ΣSigma ΩOmega αalpha βbeta γgamma δdelta
    εvarepsilon ηeta θtheta κkappa λlambda μmu πpi ρrho σsigma τtau φvarphi χchi ωomega
"""
_COMMANDS |= {entry[0]: rf"$\{entry[1:]}$" for entry in _MATH.split()}
_SET_BY_PDFLATEX = re.compile(
    r"[\x20-\x7e\u00a1-\u00ff\u0100-\u017f\u2013\u2014\u2018-\u201e\u2020\u2022\u2026\u20ac\n]*"
)


def escape_latex(text: str) -> str:
    """Write a text so that LaTeX sets it as it is; line breaks and control characters become spaces."""
    plain = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    commanded = "".join(_COMMANDS.get(character, character) for character in plain)
    return re.sub(r"-(?=-)", "-{}", commanded)  # two hyphens would be joined to one dash


def label_of(text: str) -> str:
    """Turn a text into a label that every LaTeX accepts."""
    return re.sub(r"[^A-Za-z0-9:.]+", "-", text).strip("-")


def table(
    df: pd.DataFrame,
    stem: str | os.PathLike[str],
    caption: str,
    label: str = "",
    *,
    shown: pd.DataFrame | None = None,
    digits: int = 3,
    notes: Sequence[str] = (),
) -> dict[str, Path]:
    """Write a table as CSV, Markdown and LaTeX (booktabs, with caption and label).

    Parameters
    ----------
    df : the numbers. An index with a name becomes columns.
    stem : path without an ending; a bare name lies in ``data/results/tables/``.
    label : for ``\\ref``; default the stem's name.
    shown : what Markdown and LaTeX show instead, e.g. "0.51 [0.48, 0.54]" in one cell; default ``df``.
    digits : decimals of the numbers shown. The CSV has six significant digits.
    notes : lines under the table in Markdown and LaTeX.

    Returns
    -------
    Paths by kind: csv, md, tex.
    """
    stem = Path(stem).expanduser()
    base = stem if stem.parent != Path() else results_dir("tables") / stem
    base.parent.mkdir(parents=True, exist_ok=True)
    texts = render_table(df, caption, label or stem.name, shown=shown, digits=digits, notes=notes)
    # Not with_suffix: "table_3.1" has a dot of its own.
    paths = {kind: base.with_name(f"{base.name}.{kind}") for kind in texts}
    for kind, text in texts.items():
        paths[kind].write_text(text, encoding="utf-8", newline="\n")
    return paths


def render_table(
    df: pd.DataFrame,
    caption: str,
    label: str,
    *,
    shown: pd.DataFrame | None = None,
    digits: int = 3,
    notes: Sequence[str] = (),
) -> dict[str, str]:
    """Return the texts that ``table`` writes, by kind: csv, md, tex."""
    if not caption.strip():
        raise ConfigError("an empty caption", "one sentence on what the table shows", "say it")
    plain = _flat(df)
    if not len(plain.columns):
        raise ConfigError("a table without columns", "at least one", "check the data frame")
    seen = plain if shown is None else _flat(shown)
    numeric = [_is_numeric(seen[name]) for name in seen.columns]
    head, body = head_and_body(seen, digits)
    return {
        "csv": no_formulas(plain).to_csv(index=False, float_format="%.6g", lineterminator="\n"),
        "md": _markdown(head, body, numeric, caption, notes),
        "tex": latex_table(head, body, numeric, caption, label, notes),
    }


@dataclass(frozen=True)
class RunTable:
    """A table of a run: ``frame`` for the CSV, ``shown`` for readers (None: the same)."""

    stem: str
    caption: str
    frame: pd.DataFrame
    shown: pd.DataFrame | None = None
    notes: Sequence[str] = ()


def head_and_body(df: pd.DataFrame, digits: int = 3) -> tuple[list[str], list[list[str]]]:
    """Return the texts of a table, numbers rounded."""
    flat = _flat(df)
    body = [[_cell(value, digits) for value in row] for row in flat.itertuples(index=False)]
    return [str(name) for name in flat.columns], body


def _flat(df: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with named index levels as columns and names of columns on one line."""
    # A pivoted table with categories as columns takes no further column.
    flat = df.set_axis([_name(name) for name in df.columns], axis=1)
    if any(name is not None for name in flat.index.names) or not isinstance(flat.index, pd.RangeIndex):
        flat = flat.reset_index(names=[_name(n) if n is not None else "" for n in flat.index.names])
    return flat


def no_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose texts no spreadsheet takes for a formula: before = + - @ at the beginning stands a quote.

    A carriage return, which ends the row for most readers of CSV, becomes a line feed.
    """
    safe = frame.copy()
    for place in range(frame.shape[1]):
        values = frame.iloc[:, place]
        if not _is_numeric(values):
            # Objects: strings of pyarrow hold no half of a surrogate pair.
            safe.isetitem(place, pd.Series([_quoted(value) for value in values], values.index, dtype=object))
    return safe


def _quoted(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    quote = "'" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else ""
    return quote + value.replace("\r\n", "\n").replace("\r", "\n")


def _name(name: object) -> str:
    return ", ".join(str(part) for part in name if str(part)) if isinstance(name, tuple) else str(name)


def _is_numeric(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _cell(value: Any, digits: int) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return MISSING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_float(value):
        return f"{value:.{digits}f}" if math.isfinite(value) else ("∞" if value > 0 else "-∞")
    return " ".join(str(value).split())


def _markdown(
    head: Sequence[str], body: Sequence[Sequence[str]], numeric: Sequence[bool], caption: str, notes: Sequence[str]
) -> str:
    rule = "|" + "|".join("---:" if right else "---" for right in numeric) + "|"
    lines = ["| " + " | ".join(map(in_markdown, row)) + " |" for row in [head, *body]]
    under = [f"\n{in_markdown(note)}" for note in notes]
    return "\n".join([in_markdown(caption), "", lines[0], rule, *lines[1:], *under, ""])


def in_markdown(text: str) -> str:
    """Write a text on one line so that Markdown shows it as it is."""
    return re.sub(r"([\\|*<`~]|\](?=[(\[])|(?<!\w)_|_(?!\w)|^[#>])", r"\\\1", " ".join(text.split()))


def latex_table(
    head: Sequence[str],
    body: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    caption: str,
    label: str,
    notes: Sequence[str] = (),
) -> str:
    """Write one table: a ``tabular`` in a ``table``, or a ``longtable`` above 45 rows. Needs ``PREAMBLE``.

    Columns that are ``numeric`` are set to the right; the label gets "tab:" before it unless it has it.
    """
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    spec = "".join(_column(width, right, widths) for width, right in zip(widths, numeric, strict=True))
    total = sum(min(width, _WRAP) for width in widths) + 2 * len(widths)
    size = r"\scriptsize" if total > _WIDER else r"\footnotesize" if total > _WIDE else r"\small"
    set_size = rf"{size}\setlength{{\tabcolsep}}{{4pt}}"
    frame = pd.DataFrame([_row(row, numeric) for row in body], columns=[escape_latex(name) for name in head])
    styler = frame.style.hide(axis="index")
    under = [rf"\par\smallskip\footnotesize {escape_latex(note)}" for note in notes]
    text, label = escape_latex(caption), label_of(label if label.startswith("tab:") else f"tab:{label}")
    options: dict[str, Any] = {"column_format": spec, "hrules": True}
    if len(body) > LONG:
        long = styler.to_latex(**options, environment="longtable", caption=text, label=label)
        parts = [rf"\begingroup{set_size}", long.rstrip(), *under, r"\par\endgroup"]
    else:
        tabular = styler.to_latex(**options).rstrip()
        fitted = rf"{FIT}{{%{chr(10)}{tabular}}}" if total > _WIDE else tabular
        top = [r"\begin{table}[htbp]", r"\centering", set_size, rf"\caption{{{text}}}\label{{{label}}}"]
        parts = [*top, fitted, *under, r"\end{table}"]
    table = "\n".join(parts)
    return f"{first_line(table)}\n{table}\n"


def first_line(text: str) -> str:
    """Return the comment that says what a text needs to compile."""
    if _SET_BY_PDFLATEX.fullmatch(text):
        return f"% needs {PREAMBLE}"
    return f"% compile with lualatex or xelatex and a font that has all characters below; needs {PREAMBLE}"


def _column(width: int, right: bool, widths: Sequence[int]) -> str:
    if right:
        return "r"
    if width <= _WRAP:
        return "l"
    share = min(0.6, max(0.2, width / max(sum(widths), 1)))
    return rf"p{{{share:.2f}\linewidth}}"


def _row(row: Sequence[str], numeric: Sequence[bool]) -> list[str]:
    cells = [
        _number(cell) if right or _INTERVAL.fullmatch(cell) else escape_latex(cell)
        for cell, right in zip(row, numeric, strict=True)
    ]
    # After the \\ of the row before, a bracket or star would be taken for its argument.
    if cells and cells[0][:1] in ("[", "*"):
        cells[0] = "{" + cells[0][0] + "}" + cells[0][1:]
    return cells


def _number(cell: str) -> str:
    return re.sub(r"(?<![\w.)])-(?=\d)", "$-$", escape_latex(cell))


def interval_table(
    means: pd.DataFrame, rows: str | Sequence[str], columns: str | Sequence[str], *, scale: float = 1, decimals: int = 2
) -> Styler:
    """Lay means out for a notebook: short numbers times ``scale``, each with its interval in small type below it.

    The values of ``rows`` and ``columns``, columns of the means, head the table in the order of their first appearance.
    Put what is many (metrics, say) into the rows.
    """
    places = [[name] if isinstance(name, str) else list(name) for name in (rows, columns)]
    texts = []
    for mean, low, high in scale * means[["mean", "low", "high"]].to_numpy(float):
        small = f"<br><small>{low:.{decimals}f} to {high:.{decimals}f}</small>"
        texts.append("-" if math.isnan(mean) else f"{mean:.{decimals}f}{'' if math.isnan(low) else small}")
    table = means.assign(cell=texts).pivot(index=places[0], columns=places[1], values="cell")
    heads = [means[names].drop_duplicates() for names in places]
    order = [pd.MultiIndex.from_frame(head) if head.shape[1] > 1 else pd.Index(head.iloc[:, 0]) for head in heads]
    look = {"selector": "td, th", "props": "text-align: right; padding: 3px 6px"}
    laid = table.reindex(index=order[0], columns=order[1]).fillna("")
    return laid.style.set_uuid("intervals").set_table_styles([look])  # a random id would change the file at every run
