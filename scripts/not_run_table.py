"""Write the table of docs/not-run.md from the committed ledger: python scripts/not_run_table.py"""

import os
import re

import pandas as pd

from ragbench import papers
from ragbench.paths import packaged_data, project_root


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
    columns = ["paper", "item", "cells", "measured", "beside", "notebook", "needs"]
    return table.sort_values("order", kind="stable", ignore_index=True)[columns]


def table() -> str:
    """Return the items that are not all measured as a table in Markdown."""
    lines = [
        "| paper | item | cells | measured | beside | notebook | needs |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = not_run().fillna("").itertuples(index=False)
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    """Write the table into the page."""
    os.environ["RAGBENCH_FIGURES"] = str(project_root() / "figures")
    page = project_root() / "docs" / "not-run.md"
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"\| paper \| item .*?\n\n", lambda _: table() + "\n\n", text, flags=re.S)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
