"""The audit of ledger cells: how many questions a cell rests on, and how far the unscored ones could move it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragbench.audit.checks import counted
from ragbench.audit.rows import Bounds, as_frame

if TYPE_CHECKING:
    import pandas as pd

# What a value can be, by the unit in which the paper gives it.
_BOUNDS = {"percent": (0.0, 100.0), "share": (0.0, 1.0), "mean IR score": (0.0, 1.0), "accuracy": (0.0, 1.0)}


def audit_ledger(paper: str, item: str, by: str | None = None, *, bounds: Bounds | None = None) -> pd.DataFrame:
    """List what could have gone wrong in silence behind the measured cells of one published item.

    Parameters
    ----------
    paper, item : as in ``ragbench.papers.record``.
    by : only the cells that were recorded under this name; default all measured ones.
    bounds : (worst, best) value of a cell; default by the paper's unit (percent, share ...), else no range is given.

    Returns
    -------
    DataFrame as from ``audit_rows``, one table per ``by``: cells without a number and why, questions unscored (with the
    range of the cell whose value is the least certain), cells that rest on different numbers of questions, cells of
    which nobody said how many questions they rest on (an identity rests on printed numbers, not on questions).

    Raises
    ------
    ConfigError for an item that is neither published nor measured.
    """
    import pandas as pd

    from ragbench.errors import unknown
    from ragbench.papers import items, ledger, published

    cells = ledger(paper, item)
    if cells.empty:
        raise unknown(f"item of {paper}", item, items(paper))
    cells = cells[cells["ours_by"].notna() | cells["recorded_by"].notna()]
    who = cells["ours_by"].fillna(cells["recorded_by"])
    cells = cells.assign(who=who, value=pd.to_numeric(cells["ours"].fillna(cells["recorded"]), errors="coerce"))
    if by is not None:
        cells = cells[cells["who"] == by]
    if bounds is None and item in items(paper):
        known = published(paper, item)
        cells = cells.merge(known[["row", "column", "unit"]], on=["row", "column"], how="left")
        # A row of our own has the unit of its column, where the column has one.
        alike = known.groupby("column")["unit"].agg(lambda units: units.iloc[0] if units.nunique() == 1 else None)
        cells["unit"] = cells["unit"].fillna(cells["column"].map(alike))
    limits = [bounds or _BOUNDS.get(unit) for unit in cells.get("unit", pd.Series(None, index=cells.index))]
    cells = cells.assign(limits=limits)
    made: list[dict[str, Any]] = []
    for name, group in cells.groupby("who", sort=False):
        made += _table(f"{item}: {name}", group)
    return as_frame(made)


def _table(table: str, cells: pd.DataFrame) -> list[dict[str, Any]]:
    import pandas as pd

    from ragbench.papers import IDENTITY

    n, unscored = (pd.to_numeric(cells[name], errors="coerce") for name in ("n", "unscored"))
    names = cells["row"].astype(str) + ", " + cells["column"].astype(str)
    empty, missing = cells["value"].isna(), unscored.fillna(0)
    total = n.fillna(0) + missing
    countless = n.isna() & ~empty & ~cells["who"].str.startswith(IDENTITY)
    why = cells.loc[empty, "note"].fillna("").astype(str).str.slice(0, 80)
    made = [
        _row(table, "cells without a number", int(empty.sum()), len(cells), names[empty], counted(why)),
        _row(table, "cells without n", int(countless.sum()), len(cells), names[countless]),
        _row(table, "unscored", int(missing.sum()), int(total.sum()), names[missing > 0]) | _range(cells, n, missing),
    ]
    sizes = n.dropna()
    fewer = n < sizes.max() if len(sizes) else n.notna()
    told = f"n from {sizes.min():g} to {sizes.max():g}" if fewer.any() else ""
    return [*made, _row(table, "cells with unequal n", int(fewer.sum()), len(sizes), names[fewer], told)]


def _row(table: str, check: str, rows: int, of: int, where: pd.Series, detail: str = "") -> dict[str, Any]:
    first = "" if where.empty else where.iloc[0] + (f" and {len(where) - 1} more" if len(where) > 1 else "")
    return {"table": table, "check": check, "rows": rows, "of": of, "most_in": first, "detail": detail if rows else ""}


def _range(cells: pd.DataFrame, n: pd.Series, missing: pd.Series) -> dict[str, Any]:
    """Return the mean's range of the cell that its unscored questions could move most."""
    found: list[tuple[float, dict[str, Any]]] = []
    for place, limits in cells["limits"].items():
        total = n[place] + missing[place]
        if limits is None or not missing[place] > 0 or cells.loc[place, "value"] != cells.loc[place, "value"]:
            continue
        value = cells.loc[place, "value"]
        low, high = ((value * n[place] + limit * missing[place]) / total for limit in limits)
        name = f"{cells.loc[place, 'row']}, {cells.loc[place, 'column']}: {missing[place]:g}"
        found.append((abs(high - low), {"mean": value, "if_worst": low, "if_best": high, "most_in": name}))
    return max(found, key=lambda pair: pair[0])[1] if found else {}
