"""Write the tables of docs/not-run.md from the committed ledger: python scripts/not_run_table.py"""

import os
import re

import numpy as np
import pandas as pd

from ragbench import papers
from ragbench.errors import DataError
from ragbench.paths import packaged_data, project_root

ROADS = ("exact", "comparable", "one command", "people", "in words")


def not_run() -> pd.DataFrame:
    """List the items whose published cells are not all measured, and what they need
    (``data/papers/not_run.csv``).

    Columns: paper, item, cells (printed), measured (with a number that compares), beside (only with
    one that does not), notebook, needs. An item without cells prints no numbers.
    """
    frame = papers.ledger().dropna(subset="published")
    cells = frame.groupby(papers.KEY)[["measured", "compares"]].any()
    items = cells.groupby(["paper", "item"]).agg(
        cells=("compares", "size"), measured=("compares", "sum"), number=("measured", "sum")
    )
    needs = pd.read_csv(packaged_data("papers", "not_run.csv"), dtype=str)
    needs["order"] = range(len(needs))
    table = needs.merge(
        items[items["measured"] < items["cells"]].reset_index(), how="outer", on=["paper", "item"]
    )
    table[list(items)] = table[list(items)].fillna(0).astype(int)
    table = table.assign(beside=table["number"] - table["measured"])
    columns = ["paper", "item", "cells", "measured", "beside", "notebook", "road", "needs"]
    return table.sort_values("order", kind="stable", ignore_index=True)[columns]


def roads() -> pd.DataFrame:
    """Count the printed cells of each item by road: a column of `ROADS` each.

    A cell is exact where a number that compares is the printed one in the printed digits, else
    comparable where there is one that compares. The others have their item's road in
    ``data/papers/not_run.csv``; DataError where that has none.
    """
    frame = papers.ledger().dropna(subset="published")
    printed = frame["published"].astype(str)
    digits = printed.str.partition(".")[2].str.len()
    number = pd.to_numeric(printed, errors="coerce")
    exact = pd.Series(False, index=frame.index)
    for column in ("recorded", "ours"):
        exact |= (frame[column] - number).abs() <= 0.5 * 10.0**-digits + 1e-9
    frame = frame.assign(exact=frame["compares"] & exact)
    cells = frame.groupby(papers.KEY, sort=False)[["exact", "compares"]].any().reset_index()
    needs = pd.read_csv(packaged_data("papers", "not_run.csv"), dtype=str)
    cells = cells.merge(needs[["paper", "item", "road"]], how="left", on=["paper", "item"])
    filled = [cells["exact"], cells["compares"]]
    road = np.select(filled, ["exact", "comparable"], cells["road"].fillna("none"))
    counted = pd.crosstab([cells["paper"], cells["item"]], road)
    if set(counted) - set(ROADS):
        lost = cells[~np.isin(road, ROADS)].drop_duplicates("item")
        raise DataError(
            f"cells without a road in {', '.join(lost['item'])}",
            f"one of {', '.join(ROADS[2:])}",
            "add the item to data/papers/not_run.csv",
        )
    order = cells[["paper", "item"]].drop_duplicates()
    of_item = counted.reindex(pd.MultiIndex.from_frame(order))
    return of_item.reindex(columns=[*ROADS], fill_value=0)


def _markdown(table: pd.DataFrame) -> str:
    lines = ["| " + " | ".join(table) + " |", "|" + "---|" * table.shape[1]]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in table.itertuples(index=False)]
    return "\n".join(lines)


def table() -> str:
    """Return the items that are not all measured as a table in Markdown."""
    return _markdown(not_run().fillna(""))


def road_table() -> str:
    """Return the cells of each paper by road as a table in Markdown, with their sum."""
    of_paper = roads().groupby("paper", sort=False).sum()
    of_paper.loc["all"] = of_paper.sum()
    return _markdown(of_paper.assign(cells=of_paper.sum(axis=1)).reset_index())


def main() -> None:
    """Write the tables into the page."""
    os.environ["RAGBENCH_FIGURES"] = str(project_root() / "figures")
    page = project_root() / "docs" / "not-run.md"
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"\| paper \| item .*?\n\n", lambda _: table() + "\n\n", text, flags=re.S)
    text = re.sub(r"\| paper \| exact .*?\n\n", lambda _: road_table() + "\n\n", text, flags=re.S)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
