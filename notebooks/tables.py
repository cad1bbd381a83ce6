"""Means with their intervals as a table of a notebook, each number with its interval in small type."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from pandas.io.formats.style import Styler
from pandas.io.formats.style_render import CSSDict

_CELL_STYLE: CSSDict = {"selector": "td, th", "props": "text-align: right; padding: 3px 6px"}


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
    cells = means.assign(cell=[_small_interval(m, low, high, decimals) for m, low, high in numbers])
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
