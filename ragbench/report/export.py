"""A run, or scores of answers, as a folder to build a thesis from: tables, figures, methods,
references, data.

Reading order: ``export`` -> the tables and figures of a run (``_run_parts``) -> scores
(``export_scores``) -> the folder (``_write``), which is filled aside and moved into place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from ragbench import plots
from ragbench.comparison import compare_scores, format_comparison
from ragbench.data.ragchecker import RagResults, to_ragchecker
from ragbench.errors import ConfigError
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.manifest import check_rows
from ragbench.experiment.rows import run_folder
from ragbench.labelling.grades import grade_shares
from ragbench.llm import Cassette
from ragbench.metrics.table import claim_result
from ragbench.plots import GRADE_NAMES
from ragbench.report.audit import (
    CELL,
    RIGHT,
    audit,
    audit_rows,
    cassette_of,
    name_rows,
    run_parts,
)
from ragbench.report.factors import (
    FACTORS,
    compare_factor,
    comparison_cells,
    draw_factor,
    factor_sentence,
    measured,
    measures_of,
    overview,
    overview_cells,
    worst_questions,
)
from ragbench.report.methods import (
    MOST_COMPARED,
    RESAMPLES,
    Methods,
    are_compared,
    intervals_of,
    methods,
    score_methods,
)
from ragbench.report.scores import load_scores, score_means
from ragbench.report.tables import FIT, PREAMBLE, ReportTable, label_of
from ragbench.stats import with_interval
from ragbench.text.escape import in_csv, in_latex, in_markdown

MARKER = ".ragbench-export.json"  # lists what an export wrote
_MAX_SYSTEMS = 40  # of one figure
_BATCH_SIZE = 10_000  # rows written together
_DPI = 300  # of the PNG files


class _Picture(NamedTuple):
    stem: str
    figure: Figure
    numbers: pd.DataFrame  # that are drawn
    caption: str  # the picture in words


@dataclass
class _Report:
    """What an export writes."""

    name: str
    tables: list[ReportTable]
    pictures: list[_Picture]
    methods: Methods
    files: dict[str, Iterable[str]]  # texts by name
    notes: list[str]  # what is missing and why
    label: str = ""  # begins the labels of LaTeX
    cassette: Path | None = None


@dataclass
class Exported:
    """What an export wrote."""

    folder: Path
    files: list[str] = field(default_factory=list)  # relative to the folder, in the order written
    notes: list[str] = field(default_factory=list)  # what is missing and why

    def __str__(self) -> str:
        place = os.path.relpath(self.folder)
        lines = [f"{len(self.files)} files in {place}, listed in its README.md"]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def export(
    run: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    cassette: str | os.PathLike[str] | None = None,
) -> Exported:
    """Write everything a paper or thesis needs of a run into a folder.

    Two exports of one run differ in no byte.

    Parameters
    ----------
    to : folder to make, or an earlier export, whose files are replaced; files of yours beside them
        stay.
    cassette : the run's cassette, when it is not in the run's folder.

    Written are ``tables/`` (CSV, Markdown, LaTeX; the audit is one of them), ``figures/`` (PDF,
    PNG, CSV, text), ``methods.md`` and ``.tex``, ``references.bib``, ``all.tex`` (all of it as one
    document), ``rows.csv``, ``cassette.jsonl``, ``manifest.json``, ``README.md``.

    Raises DataError where the rows are not those of the manifest beside them.
    """
    replies = cassette_of(run, cassette)
    # first: of a large run, its copy of the rows and that below do not fit together
    checks = audit(run, cassette=replies)
    manifest = load_manifest(run)
    check_rows(run_folder(run), manifest)
    rows = _in_grid_order(load_rows(run), manifest)
    name = str(manifest.get("name", Path(run).name))
    tables, pictures = _run_parts(measured(name_rows(rows)), name)
    tables.append(_audit_table(checks, name))
    missing = int(checks.loc[checks["check"].eq("missing rows"), "rows"].sum())
    counts = {
        "rows": len(rows),
        "failed": int(rows["status"].eq("failed").sum()),
        "missing": missing,
    }
    paragraphs = methods(manifest, counts, intervals_of(table.frame for table in tables))
    notes = _notes(rows, missing, replies)
    scores = load_scores(run_folder(run))
    if scores is not None:
        score_tables = _score_tables(scores, name)
        kinds = intervals_of(table.frame for table in score_tables)
        paragraphs = paragraphs.with_scores(score_methods(scores, kinds))
        tables += score_tables
        pictures += _score_pictures(scores, name)
    elif (run_folder(run) / "scores.csv").exists():
        notes.append("scores.csv is of other rows and left out: run the experiment again")
    as_json = json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    files = {"rows.csv": _csv(rows), "manifest.json": [as_json]}
    label = f"{label_of(name)}:"
    report = _Report(name, tables, pictures, paragraphs, files, notes, label, replies)
    return _write(report, to)


def _notes(rows: pd.DataFrame, missing: int, replies: Path | None) -> list[str]:
    notes = []
    if missing:
        notes.append(f"the run was stopped: {missing} rows are not made yet; run it again first")
    read = rows[(rows["N"] > 0) & (rows["status"] == "ok")]
    if len(read) and read["ir_score"].isna().all():
        notes.append("no IR score: none of these questions has references (supporting texts)")
    by_model = rows["digest"].notna().any() or rows["judge_digest"].notna().any()
    if by_model and replies is None:
        do = "name the one that recorded it with --cassette"
        notes.append(f"no cassette in the run's folder: {do}")
    return notes


def _in_grid_order(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows by cell, in the order of the grid; rows without documents come first."""
    order = rows[list(CELL)].copy()
    for axis, names in manifest.get("grid", {}).items():
        places = {name: place for place, name in enumerate(names)}
        order[axis] = order[axis].map(places).fillna(-1)
    order = order.sort_values(list(CELL), kind="stable")
    return rows.loc[order.index].reset_index(drop=True)


def _csv(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the rows as CSV, some thousands at once; claim labels fit in no cell."""
    rows = rows.drop(columns="claim_labels", errors="ignore")
    for start in range(0, len(rows), _BATCH_SIZE):
        part = in_csv(rows.iloc[start : start + _BATCH_SIZE])
        yield part.to_csv(index=False, header=start == 0, lineterminator="\n")


# -- tables and figures of a run


def _run_parts(rows: pd.DataFrame, name: str) -> tuple[list[ReportTable], list[_Picture]]:
    """Make what notebook 91 shows: means, factor by factor, grades, the ten worst questions."""
    tables = []
    pictures = []
    measures = measures_of(rows)
    columns = [*measures, *(["seconds"] if rows["seconds"].notna().any() else [])]
    if columns:
        table = overview(rows, columns)
        questions = rows["question_id"].nunique()
        caption = (
            f"{name}: means over {questions} questions in {rows['cluster'].nunique()} clusters"
        )
        tables.append(ReportTable("overview", caption, table, overview_cells(table), _fixed(rows)))
        pictures += _curves(table, name)
    for measure in measures:
        for factor in FACTORS:
            table = compare_factor(rows, factor, measure)
            if len(table):
                stem = f"{factor}_{measure}"
                caption = f"{name}, {measure.replace('_', ' ')} by {FACTORS[factor]}: differences"
                said = (factor_sentence(factor, table),)
                tables.append(ReportTable(stem, caption, table, comparison_cells(table), said))
                words = f"{caption}, with 95% intervals. {said[0]}."
                pictures.append(_Picture(stem, draw_factor(table, measure), table, words))
    graded, by = run_parts(rows)[RIGHT]
    if len(graded):
        shares = _grades(graded, by)
        caption = f"{name}: shares of the five grades"
        words = shares.rename(columns=lambda head: GRADE_NAMES.get(head, head))
        tables.append(ReportTable("grades", caption, shares, words, _fixed(rows)))
        pictures += _bars(shares, by, caption)
    if measures and (rows["N"] > 0).any():
        worst = worst_questions(rows, measures[-1])
        caption = f"{name}: the {len(worst)} questions that the best system does worst"
        tables.append(ReportTable("worst", caption, worst))
    return tables, pictures


def _fixed(rows: pd.DataFrame) -> tuple[str, ...]:
    """Name, in a note, the axes that have one value in the whole run."""
    fixed = []
    for axis in CELL:
        values = rows[axis].unique()
        if len(values) == 1 and values[0] != "none":
            fixed.append(f"{axis} {values[0]}")
    return (f"Left out here: {', '.join(fixed)}.",) if fixed else ()


def _curves(table: pd.DataFrame, name: str) -> Iterator[_Picture]:
    """Yield the IR score against N, one line per system, where several N were run."""
    part = table[table["metric"].eq("ir_score") & table["mean"].notna()]
    if "N" not in part or part["N"].nunique() < 2:
        return
    axes = [axis for axis in CELL if axis in part and axis not in ("N", "generator", "judge")]
    system = part[axes].astype(str).agg(", ".join, axis=1) if axes else name
    drawn = part.assign(retriever=system).drop_duplicates(["retriever", "N"])
    if drawn["retriever"].nunique() <= _MAX_SYSTEMS:
        names = ", ".join(drawn["retriever"].unique())
        caption = f"Mean IR score against N with 95% intervals, one line per system: {names}."
        yield _Picture("ir_score", plots.ir_score_curves(drawn, title=name), drawn, caption)


def _grades(graded: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    cell = graded.groupby(by, sort=False, dropna=False).ngroup() if by else 0
    shares = grade_shares(graded.assign(cell=cell), "cell").drop(columns=["cell", "seconds"])
    axes = graded[by].drop_duplicates().reset_index(drop=True)
    return pd.concat([axes, shares], axis=1)


def _bars(shares: pd.DataFrame, by: list[str], caption: str) -> Iterator[_Picture]:
    if len(shares) <= _MAX_SYSTEMS:
        cell = shares[by].astype(str).agg(", ".join, axis=1) if by else "all"
        drawn = shares.assign(cell=cell)
        figure = plots.stacked_shares(drawn, "cell", [*GRADE_NAMES], "Shares of grades")
        meanings = ", ".join(f"{grade[6:]} {words}" for grade, words in GRADE_NAMES.items())
        yield _Picture("grades", figure, drawn, f"{caption} ({meanings}), one bar per cell.")


def _audit_table(checks: pd.DataFrame, name: str) -> ReportTable:
    empty = [column for column in checks if checks[column].isna().all()]
    shown = checks.drop(columns=empty).rename(columns=lambda head: head.replace("_", " "))
    return ReportTable("audit", f"{name}: what could have gone wrong in silence", checks, shown)


# -- scores


def export_scores(table: pd.DataFrame, to: str | os.PathLike[str], name: str) -> Exported:
    """Write a table from `ragbench.score` as a folder like that of `export`.

    ``name`` stands in its captions. Where claims were labelled, ``claim_labels.json`` has them in
    RAGChecker's form, for `ragbench.widgets.ClaimInspector`.
    """
    files: dict[str, Iterable[str]] = {"rows.csv": _csv(table)}
    notes = []
    if "claim_labels" in table:
        results = map(claim_result, table["claim_labels"].dropna())
        whole = [result for result in results if not result.missing()]
        text = json.dumps(to_ragchecker(RagResults(tuple(whole))), ensure_ascii=False)
        files["claim_labels.json"] = [text, "\n"]
        if len(whole) < len(table):
            left = len(table) - len(whole)
            lacks = f"lacks {left} answers whose labels are missing or unread"
            notes.append(f"claim_labels.json {lacks}")
    notes += table.attrs.get("repairs", [])
    systems = ["system"] if "system" in table else []
    tables = _score_tables(table, name)
    paragraphs = score_methods(table, intervals_of(each.frame for each in tables))
    tables.append(_audit_table(audit_rows(table, table.attrs["numbers"], systems), name))
    pictures = _score_pictures(table, name)
    return _write(_Report(name, tables, pictures, paragraphs, files, notes), to)


def _score_tables(table: pd.DataFrame, name: str) -> list[ReportTable]:
    """Make the means of a table from `ragbench.score`, and its pairs of systems where few."""
    notes = []
    if "labelled_by" in table:
        notes.append(f"Labels: {', '.join(dict.fromkeys(table['labelled_by'].dropna()))}.")
    systems = table["system"].nunique() if "system" in table else 1
    if systems > MOST_COMPARED:
        do = "name yours in rb.stats.compare(pairs=)"
        notes.append(f"{systems} systems are too many to compare every pair: {do}.")
    averages = score_means(table)
    shown = averages.assign(mean=with_interval(averages, "mean")).drop(columns=["low", "high"])
    shown = shown.rename(columns={"mean": "mean [95% interval]"})
    caption = f"{name}: mean of every metric"
    tables = [ReportTable("means", caption, averages, shown, tuple(notes))]
    if are_compared(table):
        pairs = compare_scores(table, resamples=RESAMPLES)
        caption = f"{name}: systems compared over the same questions"
        tables.append(ReportTable("comparison", caption, pairs, format_comparison(pairs)))
    return tables


def _score_pictures(table: pd.DataFrame, name: str) -> list[_Picture]:
    """Draw the metrics between 0 and 1, if there are any."""
    numbers = table[table.attrs["numbers"]]
    # A sum of floats may be 1.0000000000000004.
    drawn = [*numbers.columns[numbers.ge(0).any() & ~numbers.gt(1 + 1e-9).any()]]
    labelled = table if "system" in table else table.assign(system=name)
    if not drawn or labelled["system"].nunique() > _MAX_SYSTEMS:
        return []
    long = labelled.melt(["question_id", "system"], drawn, "metric", "value")
    figure = plots.score_strips(long, score_means(labelled, drawn))
    words = f"every answer's value of {len(drawn)} metrics, with the mean and its 95% interval"
    return [_Picture("scores", figure, long, f"{name}: {words}.")]


# -- the folder


def _write(report: _Report, to: str | os.PathLike[str]) -> Exported:
    """Write all parts beside the folder, then move them into it.

    Whatever interrupts it, the folder stays as it was.
    """
    earlier = check_target(to)
    target = Path(to).expanduser().resolve()
    aside = target.with_name(f".{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)  # what an export that was killed has left
    aside.mkdir(parents=True)
    try:
        names = _fill(report, aside)
        for stale in earlier - set(names):
            (target / stale).unlink(missing_ok=True)
        for name in (*names, MARKER):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(aside / name, target / name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Exported(Path(to).expanduser(), names, report.notes)


def _fill(report: _Report, folder: Path) -> list[str]:
    """Write the parts of a report into a folder; return their names, in the order written."""
    texts: dict[str, Iterable[str]] = {}
    for table in report.tables:
        for kind, text in table.texts(report.label + table.stem).items():
            texts[f"tables/{table.stem}.{kind}"] = [text]
    texts |= {
        "methods.md": [report.methods.markdown],
        "methods.tex": [report.methods.latex],
        "references.bib": [report.methods.bibliography],
        "all.tex": [_document(report)],
        **report.files,
    }
    for name, parts in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        # Half of a surrogate pair becomes its escape.
        with open(
            folder / name, "w", encoding="utf-8", errors="backslashreplace", newline=""
        ) as file:
            file.writelines(parts)
    names = [*texts]
    for stem, figure, numbers, caption in report.pictures:
        paths = plots.save_figure(
            figure,
            stem,
            numbers,
            caption,
            folder=folder / "figures",
            dpi=_DPI,
            kinds=("png", "pdf"),
        )
        names += [f"figures/{path.name}" for path in paths.values()]
    if report.cassette is not None:
        with Cassette(report.cassette, mode="replay") as replies:
            count = replies.export(folder / "cassette.jsonl")
        names.append("cassette.jsonl")
        report.notes.append(f"cassette.jsonl holds {count} replies of models, with their prompts")
    names.append("README.md")
    (folder / "README.md").write_text(_readme(report, names), encoding="utf-8")
    (folder / MARKER).write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")
    return names


def check_target(to: str | os.PathLike[str]) -> set[str]:
    """Return what an earlier export wrote to a folder.

    Raises ConfigError for a folder with files of somebody else.
    """
    folder = Path(to).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file", "a folder", "choose another name")
    if not folder.exists() or not any(folder.iterdir()):
        return set()
    try:
        names = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return {name for name in names if folder in (folder / name).resolve().parents}
    except (OSError, ValueError, TypeError):
        first = min(path.name for path in folder.iterdir())
        raise ConfigError(
            f"{folder} is not empty (there is {first}) and not made by ragbench export",
            "an empty folder, or one that an export made",
            "choose another folder for --to",
        ) from None


def _readme(report: _Report, names: Sequence[str]) -> str:
    listed = "\n".join(f"- `{name}`" for name in names)
    notes = "".join(f"\nNote: {in_markdown(note)}.\n" for note in report.notes)
    return _README.format(name=in_markdown(report.name), files=listed) + notes


_README = """# {name}

Written by `ragbench export`. `all.tex` sets everything: `pdflatex all`,
`bibtex all`, twice more `pdflatex all`.

{files}
"""
_TOP = r"""%% pdflatex all, bibtex all, pdflatex all, pdflatex all
\documentclass[a4paper]{article}
%s
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage{url}\urlstyle{same}
\usepackage[margin=2.2cm]{geometry}
\title{%s}\date{}\author{}
\begin{document}
\maketitle
\section{Methods}
\input{methods}"""
_FIGURE = r"""\begin{figure}[htbp]
\centering
%s{\includegraphics{{figures/%s}.pdf}}
\caption{%s}\label{fig:%s}
\end{figure}"""
_END = r"""\bibliographystyle{plain}
\bibliography{references}
\end{document}
"""


def _document(report: _Report) -> str:
    """Write a LaTeX document that holds every part, to be compiled or copied from."""
    parts = [_TOP % (PREAMBLE, in_latex(report.name)), r"\section{Tables}"]
    parts += [rf"\input{{tables/{table.stem}}}" for table in report.tables]
    if report.pictures:
        parts.append(r"\clearpage\section{Figures}")
    for stem, _, _, caption in report.pictures:
        # The braces keep a dot in the name from being taken for its ending.
        parts.append(_FIGURE % (FIT, stem, in_latex(caption), label_of(stem)))
    return "\n".join([*parts, _END])
