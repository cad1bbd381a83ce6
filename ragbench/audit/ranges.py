"""How far a mean could be off: the mean over the scored rows, and if all unscored ones had been worst or best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragbench.errors import ConfigError, unknown

if TYPE_CHECKING:
    import pandas as pd


def ranges(
    rows: pd.DataFrame, score: str, by: Sequence[str] = (), bounds: tuple[float, float] = (0.0, 1.0)
) -> pd.DataFrame:
    """Say per cell what the mean is, and what it would be with every unscored row at its worst or best.

    Parameters
    ----------
    rows : one row per question and cell.
    score : column of the score; missing or NaN is unscored.
    by : columns that make the cells of the table; none: one cell.
    bounds : (worst, best) value the score can have. For a score of which less is better: (1, 0).

    Returns
    -------
    DataFrame, one row per cell in the order of the rows: the columns of ``by``, ``n`` (scored), ``unscored``, ``mean``
    (over the scored; NaN when there is none), ``if_worst``, ``if_best``. The true mean of all rows lies between the
    last two, whatever the reason rows are unscored.

    Raises
    ------
    ConfigError for a column that is not there, or bounds that are equal.

    Source: Manski (1990), worst-case bounds for missing outcomes.
    """
    import pandas as pd

    require(rows, [score, *by])
    worst, best = bounds
    if worst == best:
        raise ConfigError(f"bounds {bounds}", "the worst and the best value of the score", "e.g. (0, 1)")
    values = pd.to_numeric(rows[score], errors="coerce").astype(float)
    keys = [rows[name] for name in by] or [pd.Series(0, index=rows.index, name="")]
    grouped = values.groupby(keys, sort=False, dropna=False, observed=True)
    made = pd.DataFrame({"n": grouped.count(), "total": grouped.size(), "sum": grouped.sum()}).reset_index()
    unscored = made["total"] - made["n"]
    cells = made[list(by)].copy()
    cells["n"], cells["unscored"] = made["n"], unscored
    cells["mean"] = made["sum"] / made["n"].where(made["n"] > 0)
    for name, value in (("if_worst", worst), ("if_best", best)):
        cells[name] = (made["sum"] + value * unscored) / made["total"]
    return cells


def require(rows: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise the error for the first of the names that is no column."""
    for name in names:
        if name not in rows.columns:
            raise unknown("column", name, rows.columns)


def cell_name(values: object) -> str:
    """Write the values that name a cell on one line."""
    return ", ".join(map(str, values)) if isinstance(values, tuple) else str(values)
