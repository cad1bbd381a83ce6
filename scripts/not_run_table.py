"""Write the table of docs/not-run.md from the committed ledger: python scripts/not_run_table.py"""

import os
import re

from ragbench import papers
from ragbench.paths import project_root, published_figures


def table() -> str:
    lines = [
        "| paper | item | cells | measured | beside | notebook | needs |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        "| " + " | ".join(map(str, row)) + " |"
        for row in papers.not_run().fillna("").itertuples(index=False)
    ]
    return "\n".join(lines)


def main() -> None:
    os.environ["RAGBENCH_FIGURES"] = str(published_figures())
    page = project_root() / "docs" / "not-run.md"
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"\| paper \| item .*?\n\n", lambda _: table() + "\n\n", text, flags=re.S)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
