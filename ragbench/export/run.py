"""A run as a folder to build a thesis from: tables, figures, methods, references, rows, cassette."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.errors import DataError
from ragbench.export.folder import Exported, Folder
from ragbench.export.latex import FIT, PREAMBLE, escape, label_of
from ragbench.export.tables import render_table

if TYPE_CHECKING:
    import pandas as pd


def export(
    run: str | os.PathLike[str], to: str | os.PathLike[str], *, cassette: str | os.PathLike[str] | None = None
) -> Exported:
    """Write everything a paper or thesis needs of a run into a folder.

    Parameters
    ----------
    run : name or folder of a run.
    to : folder to make. One that is not empty is refused, unless an export made it and nothing in it was changed.
    cassette : the run's cassette, when it does not lie in the run's folder.

    Returns
    -------
    Exported: ``tables/`` (CSV, Markdown, LaTeX), ``figures/`` (PDF, PNG, CSV, text), ``methods.md`` and ``.tex``,
    ``references.bib``, ``all.tex`` (all of it as one document), ``rows.csv``, ``cassette.jsonl``, ``manifest.json``,
    ``README.md``. Two exports of one run differ in no byte.

    Raises
    ------
    DataError for a run that does not exist or has no rows; ConfigError for a folder that is not ours to fill.
    """
    from ragbench.audit import audit, current_rows
    from ragbench.audit.runs import in_grid_order
    from ragbench.experiment import load_manifest, load_rows
    from ragbench.export.cells import RESAMPLES, run_tables
    from ragbench.export.methods import methods

    every = load_rows(run)
    if every.empty:
        raise DataError(f"the run {str(run)!r} has no rows", "at least one", "run the experiment first")
    manifest = load_manifest(run)
    rows = in_grid_order(current_rows(every), manifest)
    name = str(manifest.get("name", Path(run).name))
    tape = _tape(run, cassette)
    folder = Folder(to, f"run {name}")
    tables = {}
    checks = audit(run)
    for made in run_tables(rows, name, checks):
        label = f"tab:{label_of(name)}:{made.stem}"
        tables[made.stem] = made.frame
        write_table(folder, made.stem, made.frame, made.caption, label, made.shown, made.notes)
    figures = _figures(folder, tables)
    counts = {"rows": len(rows), "failed": int(rows["status"].eq("failed").sum()), "missing": _missing(checks)}
    told = methods(manifest, counts, RESAMPLES)
    folder.text("methods.md", told.markdown)
    folder.text("methods.tex", told.latex)
    folder.text("references.bib", told.bibliography)
    folder.text("all.tex", document(name, list(tables), figures, "methods"))
    folder.text("rows.csv", _plain(rows).to_csv(index=False, lineterminator="\n"))
    folder.text("manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    if counts["missing"]:
        folder.done.notes.append(f"the run was stopped: {counts['missing']} rows are not made yet; run it again first")
    if len(rows) < len(every):
        folder.done.notes.append(f"{len(every) - len(rows)} rows of older settings under the same names are left out")
    _cassette(folder, rows, tape)
    folder.text("README.md", _readme(name, folder))
    return folder.finish()


def write_table(
    folder: Folder, stem: str, frame: pd.DataFrame, caption: str, label: str, shown: Any = None, notes: Any = ()
) -> None:
    """Write one table into ``tables/`` of an export."""
    for kind, text in render_table(frame, caption, label, shown=shown, notes=notes).items():
        folder.text(f"tables/{stem}.{kind}", text)


def _figures(folder: Folder, tables: dict[str, pd.DataFrame]) -> list[tuple[str, str]]:
    from ragbench.export.figures import run_figures
    from ragbench.plots import save_figure

    made = []
    for stem, figure, numbers, alt in run_figures(tables):
        for path in save_figure(figure, stem, numbers, alt, folder=folder.path / "figures", dpi=300).values():
            folder.wrote(f"figures/{path.name}")
        made.append((stem, alt))
    return made


def document(title: str, tables: list[str], figures: list[tuple[str, str]], methods: str = "") -> str:
    """Write a LaTeX document that holds every part, to be compiled or copied from."""
    lines = [
        r"% pdflatex all, bibtex all, pdflatex all, pdflatex all", r"\documentclass[a4paper]{article}",
        PREAMBLE, r"\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}", r"\usepackage{url}\urlstyle{same}",
        r"\usepackage[margin=2.2cm]{geometry}",
        rf"\title{{{escape(title)}}}\date{{}}\author{{}}", r"\begin{document}", r"\maketitle",
    ]  # fmt: skip
    lines += [r"\section{Methods}", rf"\input{{{methods}}}"] if methods else []
    lines += [r"\section{Tables}"] + [rf"\input{{tables/{stem}}}" for stem in tables] if tables else []
    lines += [r"\clearpage\section{Figures}"] if figures else []
    for stem, alt in figures:
        # The braces keep a dot in the name from being taken for its ending.
        lines += [
            r"\begin{figure}[htbp]", r"\centering",
            rf"{FIT}{{\includegraphics{{{{figures/{stem}}}.pdf}}}}",
            rf"\caption{{{escape(alt)}}}\label{{fig:{label_of(stem)}}}", r"\end{figure}",
        ]  # fmt: skip
    lines += [r"\bibliographystyle{plain}", r"\bibliography{references}", r"\end{document}"]
    return "\n".join(lines) + "\n"


def _missing(checks: pd.DataFrame) -> int:
    """Return how many rows of the grid the run has not made yet."""
    return int(checks.loc[checks["check"].eq("not made yet"), "rows"].sum())


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with their lists as JSON."""
    made = rows.copy()
    for name in made.columns:
        if made[name].map(lambda value: isinstance(value, list | dict)).any():
            made[name] = made[name].map(lambda value: json.dumps(value) if isinstance(value, list | dict) else value)
    return made


def _tape(run: Any, given: Any) -> Path | None:
    """Return the path of the run's cassette, None where it has none."""
    from ragbench.experiment.rows import run_folder

    path = Path(given).expanduser() if given is not None else run_folder(run) / "cassette.sqlite"
    if given is not None and not path.is_file():
        raise DataError(f"there is no cassette {path}", "the file that recorded the run", "check --cassette")
    return path if path.is_file() else None


def _cassette(folder: Folder, rows: pd.DataFrame, path: Path | None) -> None:
    """Write the recorded replies, or say why there are none."""
    from ragbench.llm import Cassette

    if path is not None:
        part = folder.path / "cassette.jsonl.part"
        with Cassette(path, mode="replay") as cassette:
            count = cassette.export(part)
        folder.put("cassette.jsonl", part.read_bytes())
        part.unlink()
        folder.done.notes.append(f"cassette.jsonl holds {count} replies of models, with their prompts")
    elif rows["digest"].notna().any() or rows["judge_digest"].notna().any():
        folder.done.notes.append("no cassette in the run's folder: name the one that recorded it with --cassette")


def _readme(name: str, folder: Folder) -> str:
    lines = [f"# {name}", "", "Written by `ragbench export`. `all.tex` sets everything: `pdflatex all`, `bibtex all`,"]
    lines += ["twice more `pdflatex all`.", ""]
    lines += [f"- `{file}`" for file in folder.done.files]
    return "\n".join([*lines, *(f"\nNote: {note}." for note in folder.done.notes)]) + "\n"
