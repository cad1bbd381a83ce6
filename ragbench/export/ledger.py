"""The ledger for print: per paper and item one table, paper | recorded | ours | difference | n | unscored."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ragbench.export.folder import Exported, Folder
from ragbench.export.references import ENTRIES, bibtex, ragbench_entry
from ragbench.export.references import PAPERS as KEYS
from ragbench.export.run import document, write_table

if TYPE_CHECKING:
    import pandas as pd


def export_ledger(to: str | os.PathLike[str], paper: str | None = None) -> Exported:
    """Write the ledger as CSV, Markdown and LaTeX, one table per paper and item.

    Parameters
    ----------
    to : folder to make, as for ``export``.
    paper : one paper only; default all four.

    Returns
    -------
    Exported: ``tables/<paper>_<item>``, ``references.bib``, ``all.tex``. An item that was measured in several ways has
    a letter per way, named under the table; one that was not measured shows the paper's cells alone.

    Raises
    ------
    ConfigError for an unknown paper or a folder that is not ours to fill.
    """
    from ragbench import __version__
    from ragbench.errors import unknown
    from ragbench.papers import PAPERS, beside, ledger

    if paper is not None and paper not in PAPERS:
        raise unknown("paper", paper, PAPERS)
    folder = Folder(to, "ledger")
    papers = [paper] if paper else list(PAPERS)
    stems = []
    for one in papers:
        for item, cells in ledger(one).groupby("item", sort=False):
            frame = beside(cells)
            shown, notes = _shown(frame)
            stem = re.sub(r"[^a-z0-9.]+", "_", f"{one}_{item}".lower()).strip("_")
            caption = f"{item} of {PAPERS[one]}: published, and measured here"
            write_table(folder, stem, frame, caption, f"tab:{one}:{item}", shown, notes)
            stems.append(stem)
    entries = {KEYS[one]: ENTRIES[KEYS[one]] for one in papers} | {"ragbench": ragbench_entry(__version__)}
    folder.text("references.bib", bibtex(entries))
    text = document("The papers' numbers beside ours", stems, [])
    folder.text("all.tex", text.replace(r"\bibliographystyle", "\\nocite{*}\n\\bibliographystyle"))
    return folder.finish()


def _shown(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the table as it is printed: a few digits, a letter for who measured, and the notes that say who."""
    from ragbench.papers import IDENTITY

    shown = frame.drop(columns="by").copy()
    for name in ("paper", "recorded", "ours", "difference"):
        shown[name] = frame[name].map(_short)
    for name in ("n", "unscored"):
        shown[name] = frame[name].map(lambda value: "" if value != value else f"{float(value):g}")
    names = [by for by in dict.fromkeys(frame["by"]) if by]
    letters = {by: _letters(i) for i, by in enumerate(names)}
    if len(names) > 1:
        shown["by"] = frame["by"].map(lambda by: letters.get(by, ""))
        return shown, [f"{letter}: {by}" for by, letter in letters.items()]
    return shown, [name if name.startswith(IDENTITY) else f"Measured: {name}" for name in names]


def _letters(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else _letters(number // 26 - 1) + chr(ord("a") + number % 26)


def _short(value: Any) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value) if value is not None else ""
    if number != number:
        return ""
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.4g}"
