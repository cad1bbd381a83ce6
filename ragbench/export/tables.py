"""Any data frame as CSV for machines, Markdown for reading and LaTeX for print."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.export.latex import latex_table
from ragbench.paths import results_dir

if TYPE_CHECKING:
    import pandas as pd

MISSING = "–"


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
    caption : what the table shows; not empty.
    label : for ``\\ref``; default the stem's name.
    shown : what Markdown and LaTeX show instead, e.g. "0.51 [0.48, 0.54]" in one cell; default ``df``.
    digits : decimals of the numbers shown. The CSV has six significant digits.
    notes : lines under the table in Markdown and LaTeX.

    Returns
    -------
    Paths by kind: csv, md, tex.

    Raises
    ------
    ConfigError for a table without columns or a caption.
    """
    stem = Path(stem).expanduser()
    base = stem if stem.parent != Path() else results_dir("tables") / stem
    base.parent.mkdir(parents=True, exist_ok=True)
    made = render_table(df, caption, label or stem.name, shown=shown, digits=digits, notes=notes)
    paths = {}
    for kind, text in made.items():
        # Not with_suffix: "table_3.1" has a dot of its own.
        paths[kind] = base.with_name(f"{base.name}.{kind}")
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
    head = [str(name) for name in seen.columns]
    numeric = [_is_numeric(seen[name]) for name in seen.columns]
    body = [[_cell(value, digits) for value in row] for row in seen.itertuples(index=False)]
    return {
        "csv": plain.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
        "md": _markdown(head, body, numeric, caption, notes),
        "tex": latex_table(head, body, numeric, caption, label, notes),
    }


def with_interval(
    df: pd.DataFrame, mean: str = "mean", low: str = "low", high: str = "high", digits: int = 3
) -> pd.Series:
    """Return "0.512 [0.480, 0.544]" for each row; the dash of a missing value where there is no mean."""

    def one(row: Any) -> str:
        m, a, b = (float(value) for value in row)
        if math.isnan(m):
            return MISSING
        return f"{m:.{digits}f}" + ("" if math.isnan(a + b) else f" [{a:.{digits}f}, {b:.{digits}f}]")

    return df[[mean, low, high]].astype(float).apply(one, axis=1, result_type="reduce").astype(object)


def _flat(df: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with named index levels as columns and names of columns on one line."""
    import pandas as pd

    # A pivoted table with categories as columns takes no further column.
    made = df.set_axis([_name(name) for name in df.columns], axis=1)
    if any(name is not None for name in made.index.names) or not isinstance(made.index, pd.RangeIndex):
        made = made.reset_index(names=[_name(n) if n is not None else "" for n in made.index.names])
    return made


def _name(name: object) -> str:
    return ", ".join(str(part) for part in name if str(part)) if isinstance(name, tuple) else str(name)


def _is_numeric(values: pd.Series) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _cell(value: Any, digits: int) -> str:
    if value is None or str(value) in ("<NA>", "NaT") or (_is_float(value) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if _is_float(value):
        return f"{value:.{digits}f}" if math.isfinite(value) else ("∞" if value > 0 else "-∞")
    return " ".join(str(value).split())


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (hasattr(value, "dtype") and value.dtype.kind == "f")


def _markdown(
    head: Sequence[str], body: Sequence[Sequence[str]], numeric: Sequence[bool], caption: str, notes: Sequence[str]
) -> str:
    rule = "|" + "|".join("---:" if right else "---" for right in numeric) + "|"
    lines = ["| " + " | ".join(map(_escaped, row)) + " |" for row in [head, *body]]
    return "\n".join([_escaped(caption), "", lines[0], rule, *lines[1:], *(f"\n{_escaped(n)}" for n in notes)]) + "\n"


def _escaped(text: str) -> str:
    made = " ".join(text.split())
    for character in "\\|*<":
        made = made.replace(character, "\\" + character)
    return made
