"""A run, or scores of answers, as a folder to build a thesis from: tables, figures, methods,
references, data.

Reading order: ``export`` -> the tables of a run (``_run_tables``) and of scores
(``_score_tables``), each with its picture -> the folder (``_write``), which is filled aside and
moved into place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ragbench import plots
from ragbench.comparison import compare_scores, format_comparison
from ragbench.data.ragchecker import RagResults
from ragbench.errors import ConfigError
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.manifest import check_rows
from ragbench.experiment.rows import folder_name, run_folder
from ragbench.labelling.grades import grade_shares
from ragbench.llm import Cassette
from ragbench.metrics.table import claim_result
from ragbench.report import factors
from ragbench.report.audit import RIGHT, audit, audit_rows, run_parts
from ragbench.report.methods import (
    RESAMPLES,
    Methods,
    are_compared,
    methods,
    score_methods,
)
from ragbench.report.scores import load_scores, score_means
from ragbench.report.tables import ReportTable
from ragbench.stats import with_interval
from ragbench.stats.tables import rows_by_scale
from ragbench.text.escape import in_csv, in_markdown

MARKER = ".ragbench-export.json"  # of a folder that an export wrote
_REPLACED = ("tables", "figures", "cassette.jsonl", "claim_labels.json")  # also by nothing
_MAX_SYSTEMS = 40  # of one figure
_DPI = 300  # of the PNG files


@dataclass
class Exported:
    """What an export wrote: the folder, its files in order of name, and what is missing and why."""

    folder: Path
    files: list[str]
    notes: list[str]

    def __str__(self) -> str:
        place = os.path.relpath(self.folder)
        lines = [f"{len(self.files)} files in {place}, listed in its README.md"]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass
class _Report:
    """What an export writes."""

    name: str
    rows: pd.DataFrame
    tables: list[ReportTable]
    methods: Methods
    notes: list[str]  # what is missing and why
    json: dict[str, object]  # by name of the file
    label: str = ""  # begins the labels of LaTeX
    replies: Path | None = None  # the run's cassette


def export(
    run: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    by: str | None = None,
) -> Exported:
    """Write everything a paper or thesis needs of a run into a folder.

    Two exports of one run differ in no byte.

    Parameters
    ----------
    to : folder to make, or an earlier export: its ``tables`` and ``figures`` are replaced, files of
        yours beside them stay.
    by : a column of the questions file, such as a language: one more table has the means by its
        values.

    Written are ``tables/`` (CSV, Markdown, LaTeX; the audit is one of them), ``figures/`` (PDF,
    PNG, CSV), ``methods.md``, ``references.bib``, ``rows.csv``, ``cassette.jsonl``,
    ``manifest.json``, ``README.md``.

    Raises DataError where the rows are not those of the manifest beside them.
    """
    checks = audit(run)
    manifest = load_manifest(run)
    folder = run_folder(run)
    replies = folder / "cassette.sqlite"
    check_rows(folder, manifest)
    rows = load_rows(run)
    name = manifest["name"]
    tables = [*_run_tables(factors.measured(rows), name, by), _audit_table(checks, name)]
    missing = int(checks.loc[checks["check"].eq("missing rows"), "rows"].sum())
    failed = int(rows["status"].eq("failed").sum())
    counts = {"rows": len(rows), "failed": failed, "missing": missing}
    words = methods(manifest, counts, _intervals(tables))
    notes = []
    if missing:
        notes.append(f"the run was stopped: {missing} rows are not made yet; run it again first")
    if not replies.is_file() and rows[["digest", "judge_digest"]].notna().any(axis=None):
        notes.append("no cassette in the run's folder: copy yours there as cassette.sqlite")
    scores = load_scores(folder)
    if scores is not None:
        of_scores = _score_tables(scores, name)
        words = words.with_scores(score_methods(scores, _intervals(of_scores)))
        tables += of_scores
    elif (folder / "scores.csv").exists():
        notes.append("scores.csv is of other rows and left out: run the experiment again")
    files = {"manifest.json": manifest}
    return _write(_Report(name, rows, tables, words, notes, files, f"{name}:", replies), to)


def _intervals(tables: list[ReportTable]) -> set[str]:
    """Return the kinds of interval that tables of `ragbench.means` have."""
    return {kind for table in tables for kind in table.frame.attrs.get("intervals", ())}


# -- tables and figures of a run


def _run_tables(rows: pd.DataFrame, name: str, by: str | None) -> Iterator[ReportTable]:
    """Yield what notebook 91 shows: means, factor by factor, grades, the ten worst questions."""
    measures = [name for name in factors.MEASURES if rows[name].notna().any()]
    columns = [*measures, "seconds"] if rows["seconds"].notna().any() else measures
    if columns:
        table = factors.overview(rows, columns)
        counts = (
            f"{rows['question_id'].nunique()} questions in {rows['cluster'].nunique()} clusters"
        )
        caption = f"{name}: means over {counts}, with 95% intervals"
        shown = factors.overview_cells(table)
        yield ReportTable("overview", caption, table, shown, _curves(table, name))
        if by is not None:
            parts = factors.overview(rows, columns, [by])
            shown = factors.overview_cells(parts)
            yield ReportTable(f"overview_by_{folder_name(by)}", f"{caption}, by {by}", parts, shown)
    for measure in measures:
        for factor in factors.FACTORS:
            table = factors.compare_factor(rows, factor, measure)
            if len(table):
                yield _factor_table(table, factor, measure, name)
    graded, by = run_parts(rows)[RIGHT]
    for number, (scale, places) in enumerate(rows_by_scale(graded), 1):
        stem = "grades" if number == 1 else f"grades_{number}"
        yield _grades_table(graded[places], by, scale, stem, name)
    if measures and (rows["N"] > 0).any():
        worst = factors.worst_questions(rows, measures[-1])
        caption = f"{name}: the {len(worst)} questions that the best system does worst"
        yield ReportTable("worst", caption, worst)


def _factor_table(table: pd.DataFrame, factor: str, measure: str, name: str) -> ReportTable:
    words = f"{name}, {measure.replace('_', ' ')} by {factors.FACTORS[factor]}"
    caption = (
        f"{words}: differences, with 95% intervals, p corrected by Holm. "
        f"{factors.factor_sentence(factor, table)}."
    )
    shown = factors.comparison_cells(table)
    figure = factors.draw_factor(table, measure)
    return ReportTable(f"{factor}_{measure}", caption, table, shown, figure)


def _curves(table: pd.DataFrame, name: str) -> Figure | None:
    """Draw the IR score against N, one line per system, where several N were run."""
    part = table[table["metric"].eq("ir_score") & table["mean"].notna()]
    if "N" not in part or part["N"].nunique() < 2:
        return None
    axes = part.drop(columns=["N", "generator", "judge"], errors="ignore")
    systems = factors.setting_names(axes).replace("", name)
    drawn = part.assign(retriever=systems).drop_duplicates(["retriever", "N"])
    if drawn["retriever"].nunique() > _MAX_SYSTEMS:
        return None
    return plots.ir_score_curves(drawn, title=name)


def _grades_table(
    graded: pd.DataFrame, by: list[str], scale: Mapping[int, str], stem: str, name: str
) -> ReportTable:
    names = plots.grade_names(scale)
    number = {5: "five"}.get(len(scale), len(scale))
    caption = f"{name}: shares of the {number} grades"
    cell = factors.setting_names(graded[by])
    shares = grade_shares(graded.assign(cell=cell), "cell").drop(columns="seconds")
    axes = graded[by].drop_duplicates().reset_index(drop=True)
    shares = pd.concat([axes, shares], axis=1)
    figure = None
    if len(shares) <= _MAX_SYSTEMS:
        figure = plots.stacked_shares(shares, "cell", names, "Shares of grades")
    shares = shares.drop(columns="cell")
    return ReportTable(stem, caption, shares, shares.rename(columns=names), figure)


def _audit_table(checks: pd.DataFrame, name: str) -> ReportTable:
    shown = checks.dropna(axis="columns", how="all").rename(columns=lambda s: s.replace("_", " "))
    return ReportTable("audit", f"{name}: what could have gone wrong in silence", checks, shown)


# -- scores


def export_scores(table: pd.DataFrame, to: str | os.PathLike[str], name: str) -> Exported:
    """Write a table from `ragbench.score` as a folder like that of `export`.

    ``name`` stands in its captions. Where claims were labelled, ``claim_labels.json`` has them in
    RAGChecker's form, for `ragbench.widgets.ClaimInspector`.
    """
    files = {}
    notes = [*table.attrs.get("repairs", [])]
    if "claim_labels" in table:
        results = map(claim_result, table["claim_labels"].dropna())
        whole = [result for result in results if not result.missing()]
        files["claim_labels.json"] = RagResults(tuple(whole)).to_dict()
        left = len(table) - len(whole)
        if left:
            lacks = f"lacks {left} answers whose labels are missing or unread"
            notes.insert(0, f"claim_labels.json {lacks}")
    systems = ["system"] if "system" in table else []
    tables = _score_tables(table, name)
    words = score_methods(table, _intervals(tables))
    tables.append(_audit_table(audit_rows(table, table.attrs["numbers"], systems), name))
    return _write(_Report(name, table, tables, words, notes, files), to)


def _score_tables(table: pd.DataFrame, name: str) -> list[ReportTable]:
    """Make the means of a table from `ragbench.score`, and its pairs of systems where few."""
    caption = f"{name}: mean of every metric, with 95% intervals"
    if "labelled_by" in table:
        caption += f". Labels: {', '.join(table['labelled_by'].dropna().unique())}"
    averages = score_means(table)
    shown = averages.assign(mean=with_interval(averages)).drop(columns=["low", "high"])
    shown = shown.rename(columns={"mean": "mean [95% interval]"})
    tables = [ReportTable("means", caption, averages, shown, _score_figure(averages))]
    if are_compared(table):
        pairs = compare_scores(table, resamples=RESAMPLES)
        caption = f"{name}: systems compared over the same questions"
        tables.append(ReportTable("comparison", caption, pairs, format_comparison(pairs)))
    return tables


def _score_figure(averages: pd.DataFrame) -> Figure | None:
    """Draw the means between 0 and 1, if there are any."""
    # A mean of floats may be 1.0000000000000004.
    drawn = averages[averages["mean"].between(0, 1 + 1e-9)]
    system = "system" if "system" in drawn else None
    if drawn.empty or (system and drawn[system].nunique() > _MAX_SYSTEMS):
        return None
    return plots.dots(drawn, "metric", "mean", system, xlabel="mean, with its 95% interval")


# -- the folder


def check_target(to: str | os.PathLike[str]) -> Path:
    """Return the path of a folder to write into.

    Raises ConfigError for a file, or a folder with files of somebody else.
    """
    folder = Path(to).expanduser().resolve()
    if folder.is_file():
        raise ConfigError(f"{folder} is a file", "a folder", "choose another name")
    there = sorted(path.name for path in folder.glob("*"))
    if there and not (folder / MARKER).is_file():
        raise ConfigError(
            f"{folder} is not empty (there is {there[0]}) and not made by ragbench export",
            "an empty folder, or one that an export made",
            "choose another folder for --to",
        )
    return folder


def _write(report: _Report, to: str | os.PathLike[str]) -> Exported:
    """Write all parts beside the folder, then move them into it.

    Whatever interrupts the writing, the folder stays as it was.
    """
    target = check_target(to)
    aside = target.with_name(f".{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)  # what an export that was killed has left
    try:
        names = _fill(report, aside)
        for name in _REPLACED:
            shutil.rmtree(target / name, ignore_errors=True)
            if (target / name).is_file():
                (target / name).unlink()
        target.mkdir(parents=True, exist_ok=True)
        for path in aside.iterdir():
            os.replace(path, target / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Exported(Path(to).expanduser(), names, report.notes)


def _fill(report: _Report, folder: Path) -> list[str]:
    """Write the parts of a report into a folder; return their names."""
    (folder / "tables").mkdir(parents=True)
    for name, text in _texts(report):
        # Half of a surrogate pair becomes its escape.
        (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
    place = {"folder": folder / "figures", "dpi": _DPI, "kinds": ("png", "pdf")}
    for table in report.tables:
        if table.figure is not None:
            plots.save_figure(table.figure, table.stem, table.frame, table.caption, **place)
    if report.replies and report.replies.is_file():
        with Cassette(report.replies, mode="replay") as replies:
            count = replies.export(folder / "cassette.jsonl")
        report.notes.append(f"cassette.jsonl holds {count} replies of models, with their prompts")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    names.append("README.md")
    (folder / "README.md").write_text(_readme(report, names), encoding="utf-8")
    (folder / MARKER).write_text(json.dumps(names, indent=1), encoding="utf-8")
    return names


def _texts(report: _Report) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file that holds text."""
    rows = in_csv(report.rows.drop(columns="claim_labels", errors="ignore"))
    yield "rows.csv", rows.to_csv(index=False, lineterminator="\n")
    yield "methods.md", report.methods.markdown
    yield "references.bib", report.methods.bibliography
    for name, content in report.json.items():
        yield name, json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    for table in report.tables:
        for kind, text in table.texts(report.label + table.stem).items():
            yield f"tables/{table.stem}.{kind}", text


def _readme(report: _Report, names: list[str]) -> str:
    head = f"# {in_markdown(report.name)}\n\nWritten by `ragbench export`.\n"
    listed = "\n".join(f"- `{name}`" for name in names)
    notes = "".join(f"\nNote: {in_markdown(note)}.\n" for note in report.notes)
    return f"{head}\n{listed}\n{notes}"
