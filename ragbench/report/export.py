"""A run, or scores of answers, as a folder to build a thesis from: tables, figures, methods,
references, data.

Reading order: ``export`` -> the tables of a run (``_run_tables``) -> its figures (``_run_figures``)
-> scores -> the folder (``_write``), which is filled aside and moved into place.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment
from matplotlib.figure import Figure

from ragbench import plots
from ragbench.comparison import compare_scores, format_comparison
from ragbench.data.ragchecker import RagResults, to_ragchecker
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.rows import run_folder
from ragbench.labelling.grades import grade_shares
from ragbench.llm import Cassette
from ragbench.metrics.table import readable
from ragbench.metrics.thresholds import fit_thresholds
from ragbench.paths import written_whole
from ragbench.plots import GRADE_NAMES as GRADES
from ragbench.report.audit import (
    ANSWERS,
    CELL,
    IR_SCORE,
    NO_DOCUMENTS,
    RETRIEVED,
    RIGHT,
    audit,
    audit_rows,
    cassette_of,
    name_rows,
    render,
    run_parts,
    varying,
)
from ragbench.report.methods import (
    CLAIMS,
    MOST_COMPARED,
    RESAMPLES,
    Methods,
    are_compared,
    intervals_of,
    methods,
    score_methods,
    with_citations,
)
from ragbench.report.tables import FIT, PREAMBLE, ReportTable, label_of
from ragbench.stats import binomial_ci, means, with_interval
from ragbench.text.escape import from_csv, in_csv, in_latex, in_markdown

MARKER = ".ragbench-export.json"  # lists what an export wrote
_MAX_SYSTEMS = 40  # of one figure
_MAX_STEM = 100  # characters of labels in the name of a file
_BATCH_SIZE = 10_000  # rows written together
_DPI, _CSS = 300, 120  # pixels an inch: of the PNG files, and on the page
_ENOUGH = 0.67  # the thesis's threshold k

_Drawn = tuple[str, Figure, pd.DataFrame, str]  # name, figure, numbers drawn, alt text


@dataclass
class _Exported:
    """What an export wrote."""

    folder: Path
    files: list[str] = field(default_factory=list)  # relative to the folder, in the order written
    notes: list[str] = field(default_factory=list)  # what is missing and why

    def __str__(self) -> str:
        lines = [
            f"{len(self.files)} files in {os.path.relpath(self.folder)}, listed in its README.md"
        ]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def export(
    run: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    cassette: str | os.PathLike[str] | None = None,
    html: bool = False,
) -> _Exported:
    """Write everything a paper or thesis needs of a run into a folder. Two exports of one run
    differ in no byte.

    Parameters
    ----------
    to : folder to make, or an earlier export, whose files are replaced; files of yours beside them
    stay.
    cassette : the run's cassette, when it is not in the run's folder.
    html : also write ``report.html``: tables, figures, the lowest scores, methods and checks on one
    page.

    Written are ``tables/`` (CSV, Markdown, LaTeX; the audit is one of them), ``figures/`` (PDF,
    PNG, CSV, text), ``methods.md`` and ``.tex``, ``references.bib``, ``all.tex`` (all of it as one
    document), ``rows.csv``, ``cassette.jsonl``, ``manifest.json``, ``README.md``.
    """
    tape = cassette_of(run, cassette)
    # first: of a large run, its copy of the rows and that below do not fit together
    checks = audit(run, cassette=tape)
    manifest = load_manifest(run)
    rows = _in_grid_order(load_rows(run), manifest)
    name = str(manifest.get("name", Path(run).name))
    missing = int(checks.loc[checks["check"].eq("missing rows"), "rows"].sum())
    counts = {
        "rows": len(rows),
        "failed": int(rows["status"].eq("failed").sum()),
        "missing": missing,
    }
    tables = [*_run_tables(name_rows(rows), name, checks)]
    paragraphs = methods(manifest, counts, intervals_of(table.frame for table in tables))
    figures = _run_figures({table.stem: table.frame for table in tables})
    notes = (
        [f"the run was stopped: {missing} rows are not made yet; run it again first"]
        if missing
        else []
    )
    if (scores := _load_scores(run_folder(run))) is not None:
        score_tables = [*_score_tables(scores, name)]
        tables += score_tables
        figures = chain(figures, _score_figures(scores, name))
        kinds = intervals_of(table.frame for table in score_tables)
        paragraphs = paragraphs.with_scores(score_methods(scores, kinds))
        if len(scores) != len(rows):
            notes.append(
                f"scores are of {len(scores)} of {len(rows)} rows: run the experiment again"
            )
    read = rows[(rows["N"] > 0) & (rows["status"] == "ok")]
    if len(read) and read["ir_score"].isna().all():
        notes.append("no IR score: none of these questions has references (supporting texts)")
    if tape is None and (rows["digest"].notna().any() or rows["judge_digest"].notna().any()):
        notes.append(
            "no cassette in the run's folder: name the one that recorded it with --cassette"
        )
    facts = f"{rows['question_id'].nunique()} questions, {len(rows)} rows. {_fixed(rows)}."
    as_json = json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    files = {"rows.csv": _csv(rows), "manifest.json": [as_json]}
    parts = {
        "tables": tables,
        "figures": figures,
        "methods": paragraphs,
        "checks": checks,
        "files": files,
    }
    parts |= {"label": f"{label_of(name)}:", "worst": _worst_answers(rows), "cassette": tape}
    return _write(to, html, name, facts, notes, **parts)


def _in_grid_order(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows by cell, in the order in which the grid names its values;

    rows without documents come first.
    """
    places = {
        axis: {name: i for i, name in enumerate(names)}
        for axis, names in manifest.get("grid", {}).items()
    }
    order = rows[list(CELL)].apply(
        lambda column: column.map(places.get(column.name, lambda value: value))
    )
    return rows.loc[order.fillna(-1).sort_values(list(CELL), kind="stable").index].reset_index(
        drop=True
    )


def _csv(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the rows as CSV, some thousands at once; claim labels fit in no cell."""
    rows = rows.drop(columns="claim_labels", errors="ignore")
    for start in range(0, len(rows), _BATCH_SIZE):
        part = in_csv(rows.iloc[start : start + _BATCH_SIZE])
        yield part.to_csv(index=False, header=start == 0, lineterminator="\n")


def _run_tables(rows: pd.DataFrame, name: str, audit: pd.DataFrame) -> Iterator[ReportTable]:
    """Yield the tables that the rows of a run allow; each question is once per cell."""
    notes = (f"Left out here: {_fixed(rows)}.",) if _fixed(rows) else ()
    parts = run_parts(rows)
    contexts, by = parts[IR_SCORE]
    if contexts["ir_score"].notna().any():
        frame = means(contexts, by, "ir_score", resamples=RESAMPLES)
        yield ReportTable(
            "ir_score",
            f"{name}: mean IR score per cell",
            frame,
            _with_intervals(frame, "IR score"),
            notes,
        )
        if "N" in by and len(by) > 1:
            wide = frame.assign(system=_system_names(frame, RETRIEVED))
            wide = wide.pivot(index="N", columns="system", values="mean")[
                [*dict.fromkeys(wide["system"])]
            ]
            caption = f"{name}: mean IR score by the budget of N tokens"
            yield ReportTable("ir_score_by_n", caption, wide.reset_index(), None, notes)
    if len(parts[ANSWERS][0]):
        yield _seconds(*parts[ANSWERS], name, notes)
    marks, by = parts[RIGHT]
    if len(marks):
        yield _grades(marks, by, name, notes)
        judged = (marks["N"] > 0) & marks["ir_score"].notna()
        if judged.any():
            yield _thresholds(marks[judged], name)
    shown = audit.drop(
        columns=[n for n in ("mean", "if_worst", "if_best") if audit[n].isna().all()]
    )
    caption = f"{name}: what could have gone wrong in silence"
    yield ReportTable("audit", caption, audit, _worded(shown))


def _fixed(rows: pd.DataFrame) -> str:
    """Name the axes that have one value in the whole run."""
    fixed = (
        axis
        for axis in CELL
        if rows[axis].nunique(dropna=False) == 1 and rows[axis].iloc[0] != "none"
    )
    return ", ".join(f"{axis} {rows[axis].iloc[0]}" for axis in fixed)


def _cell_names(frame: pd.DataFrame, cell: Sequence[str]) -> pd.Series:
    """Name each row by its values of these columns: "klein, BM25, k = 10, N = 300"."""

    def text(row: pd.Series) -> str:
        alone = row.get("retriever") == NO_DOCUMENTS
        named = {n: f"{n} = {row[n]}" if n in ("k", "N") else str(row[n]) for n in cell}
        named |= dict.fromkeys(("chunker", "k", "N"), "") if alone else {}
        return ", ".join(filter(None, named.values())) or "all"

    return frame.apply(text, axis=1)


def _system_names(frame: pd.DataFrame, cell: Sequence[str]) -> pd.Series:
    """Name each row's system by the columns that vary in the frame, N apart."""
    present = [name for name in cell if name in frame and name != "N"]
    by = (
        varying(frame, present)
        or [name for name in ("retriever", "generator") if name in frame][:1]
    )
    return _cell_names(frame, by)


def _with_intervals(frame: pd.DataFrame, head: str, *columns: str) -> pd.DataFrame:
    """The frame with one column in place of a mean and the ends of its interval."""
    mean, low, high = columns or ("mean", "low", "high")
    shown = frame.assign(**{mean: with_interval(frame, mean, low, high)}).drop(columns=[low, high])
    return shown.rename(columns={mean: f"{head} [95% interval]"})


def _seconds(
    answers: pd.DataFrame, by: list[str], name: str, notes: tuple[str, ...]
) -> ReportTable:
    frame = means(answers, by, "seconds", resamples=RESAMPLES).rename(
        columns={"unscored": "untimed"}
    )
    counts = [
        column for column in ("prompt_tokens", "output_tokens") if answers[column].notna().any()
    ]
    if counts:
        numbers = answers[[*by, *counts]].astype(dict.fromkeys(counts, float))
        groups = numbers.groupby(by or (lambda _: 0), sort=False, dropna=False)
        frame = frame.join(groups[counts].mean().reset_index(drop=True).add_prefix("mean "))
    cached = int(answers["cached"].map(lambda value: value is True).sum())
    notes += (
        (f"{cached} answers came from a cassette: their seconds are those of the recording.",)
        if cached
        else ()
    )
    return ReportTable(
        "seconds",
        f"{name}: seconds per answer",
        frame,
        _worded(_with_intervals(frame, "seconds")),
        notes,
    )


def _grades(marks: pd.DataFrame, by: list[str], name: str, notes: tuple[str, ...]) -> ReportTable:
    cells = marks[by].drop_duplicates().reset_index(drop=True) if by else pd.DataFrame(index=[0])
    key = (
        marks.groupby(by, sort=False, dropna=False).ngroup()
        if by
        else pd.Series(0, index=marks.index)
    )
    frame = pd.concat(
        [cells, grade_shares(marks.assign(cell=key), "cell").drop(columns=["cell", "seconds"])],
        axis=1,
    )
    rights = [
        binomial_ci(round(share * n) if n else 0, n)
        for share, n in frame[["grade 5", "n"]].to_numpy()
    ]
    for end in ("low", "high"):
        frame.insert(
            frame.columns.get_loc("n"),
            f"grade 5 {end}",
            [getattr(interval, end) for interval in rights],
        )
    shown = _with_intervals(frame, "grade 5", "grade 5", "grade 5 low", "grade 5 high")
    shown = shown.rename(
        columns=lambda head: re.sub(r"grade (\d)", lambda m: f"{m[1]} {GRADES[m[0]]}", head)
    )
    return ReportTable("grades", f"{name}: shares of the five grades", frame, shown, notes)


def _thresholds(marks: pd.DataFrame, name: str) -> ReportTable:
    """Fit h and k per data set, chunker, generator and judge, over all retrievers at the largest N
    (section 3.3).
    """
    largest = int(marks["N"].max())
    points = marks[(marks["N"] == largest) & marks["ir_score"].notna() & marks["grade"].notna()]
    by = varying(marks, ("data", "chunker", "generator", "judge"))
    fits: list[dict[str, Any]] = []
    for key, group in points.groupby(by, sort=False, dropna=False) if by else [((), points)]:
        cells = {**dict(zip(by, key, strict=True)), "n": len(group), "note": ""}
        try:
            fitted = fit_thresholds(group["ir_score"].to_numpy(float), group["grade"].to_numpy(int))
        except DataError as error:
            fits.append(cells | {"threshold": "h, k", "note": error.got})
            continue
        for side, fit in (("h", fitted.h), ("k", fitted.k)):
            values = {
                "value": fit.value,
                "plateau_from": fit.low,
                "plateau_to": fit.high,
                "agreement": fit.agreement,
            }
            fits.append(cells | {"threshold": side} | values)
    columns = [*by, "threshold", "value", "plateau_from", "plateau_to", "agreement", "n", "note"]
    frame = pd.DataFrame(fits, columns=columns)
    caption = f"{name}: thresholds of the IR score, all retrievers at N = {largest}"
    under = (
        "h: below it grade 1 is expected; k: above it grade 5.",
        "Plateau: values that agree with the grades equally well; not a confidence interval.",
    )
    shown = frame if frame["note"].any() else frame.drop(columns="note")
    return ReportTable("thresholds", caption, frame, _worded(shown), under)


def _worded(table: pd.DataFrame) -> pd.DataFrame:
    return table.rename(columns=lambda name: name.replace("_", " "))


def _run_figures(tables: Mapping[str, pd.DataFrame]) -> Iterator[_Drawn]:
    """Yield the figures from the frames of ``_run_tables`` by stem."""
    if "ir_score" in tables:
        for name, title, part in _parts(
            tables["ir_score"], "ir_score", "Mean IR score", ("data", "chunker")
        ):
            part = part.assign(retriever=_system_names(part, RETRIEVED))
            high = part.loc[part["mean"].idxmax()] if part["mean"].notna().any() else None
            best = (
                ""
                if high is None
                else f" The highest mean is {high['mean']:.2f}, {high['retriever']}."
            )
            if varying(part, [n for n in ("N",) if n in part]):
                figure = plots.ir_score_curves(part, title=title)
                alt = (
                    f"Mean IR score against N, one line per system: {_names(part)}, with 95% "
                    f"intervals.{best}"
                )
            else:
                drawn = part.assign(
                    retriever=_cell_names(part, [n for n in RETRIEVED if n in part]), all="all"
                )
                figure = plots.grouped_bars(
                    drawn, "retriever", "mean", "all", "mean IR score", title
                )
                alt = f"Mean IR score of {_names(part)} as bars, with 95% intervals.{best}"
            yield name, figure, part, alt
    if "grades" in tables:
        for name, title, part in _parts(
            tables["grades"], "grades", "Shares of grades", ("data", "judge")
        ):
            by = [column for column in CELL if column in part]
            drawn = part.assign(cell=_cell_names(part, by))
            meanings = ", ".join(f"{grade[6:]} {meaning}" for grade, meaning in GRADES.items())
            alt = f"Shares of the grades ({meanings}), one bar per cell, {len(part)} cells."
            yield name, plots.stacked_shares(drawn, "cell", [*GRADES], title), drawn, alt
    if "seconds" in tables:
        timed = tables["seconds"].dropna(subset="mean")
        for name, title, part in _parts(timed, "seconds", "Seconds per answer", ("data",)):
            if len(part) == 1:  # one bar tells nothing
                continue
            budgets = part["N"].astype(str) if "N" in part else "all"
            drawn = part.assign(system=_system_names(part, (*RETRIEVED, "generator")), N=budgets)
            figure = plots.grouped_bars(drawn, "N", "mean", "system", "seconds per answer", title)
            yield (
                name,
                figure,
                drawn,
                f"Mean seconds per answer by N and system, with 95% intervals: {_names(drawn)}.",
            )


def _names(part: pd.DataFrame) -> str:
    return ", ".join(
        dict.fromkeys(part["retriever" if "retriever" in part else "system"].astype(str))
    )


def _parts(
    frame: pd.DataFrame, stem: str, title: str, axes: Sequence[str]
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield name, title and rows of a figure for each value of the axes that vary;

    too many systems have none.
    """
    split = [axis for axis in axes if axis in frame]
    taken = set()
    for key, part in frame.groupby(split, sort=False, dropna=False) if split else [((), frame)]:
        if part.empty or len(set(_system_names(part, CELL))) > _MAX_SYSTEMS:
            continue
        words = ", ".join(map(str, key))
        safe = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")[:_MAX_STEM]
        while safe.casefold() in taken:  # "a/b" and "a-b" are two
            safe += "-2"
        taken.add(safe.casefold())
        yield (
            (f"{stem}_{safe}", f"{title}, {words}", part.drop(columns=split))
            if key
            else (stem, title, part)
        )


def _worst_answers(rows: pd.DataFrame) -> ReportTable:
    """List the ten rows with the lowest IR scores, of equal ones those with the worse grade (4, 2,
    1, 3, 5) first.

    Only rows with documents, and with less of the evidence than the thesis's threshold k asks for.
    """
    low = rows[(rows["N"] > 0) & (rows["ir_score"] < _ENOUGH)]
    order = low["grade"].map({4: 0, 2: 1, 1: 2, 3: 3, 5: 4}).astype(float)
    lowest = low.assign(badness=order).sort_values(["ir_score", "badness"], kind="stable").head(10)
    setting = [f"{row.retriever}, k = {row.k}, N = {row.N}" for row in lowest.itertuples()]
    asked = (
        lowest["question"].fillna(lowest["question_id"])
        if "question" in lowest
        else lowest["question_id"]
    )
    frame = pd.DataFrame(
        {"question": asked, "system": setting, "IR score": lowest["ir_score"].map("{:.2f}".format)}
    )
    frame["grade"] = lowest["grade"].map(
        lambda n: f"{n} {GRADES[f'grade {n}']}", na_action="ignore"
    )
    frame["answer"] = lowest["answer"].astype(object).fillna("")
    caption = f"The {len(frame)} answers with the lowest IR scores, below {_ENOUGH}"
    return ReportTable("worst", caption, frame.reset_index(drop=True))


# -- scores
# ------------------------------------------------------------------------------------------------------------


def export_scores(
    table: pd.DataFrame, to: str | os.PathLike[str], name: str, *, html: bool = False
) -> _Exported:
    """Write a table from `ragbench.score` as a folder like that of `export`; ``name`` stands in its
    captions.

    Where claims were labelled, ``claim_labels.json`` has them in RAGChecker's form, for
    `ragbench.widgets.ClaimInspector`.
    """
    files = {"rows.csv": _csv(table)}
    notes = [*table.attrs.get("repairs", [])]
    if "claim_labels" in table:
        whole = [labels for labels in table["claim_labels"].dropna() if readable(labels)]
        files["claim_labels.json"] = [
            json.dumps(to_ragchecker(RagResults(tuple(whole))), ensure_ascii=False),
            "\n",
        ]
        if left := len(table) - len(whole):
            notes.insert(
                0, f"claim_labels.json lacks {left} answers whose labels are missing or unread"
            )
    checks = audit_rows(table, table.attrs["numbers"], ["system"] if "system" in table else [])
    facts = f"{table['question_id'].nunique()} questions, {len(table)} answers."
    parts = {
        "tables": [*_score_tables(table, name)],
        "figures": _score_figures(table, name),
        "checks": checks,
    }
    paragraphs = score_methods(table, intervals_of(each.frame for each in parts["tables"]))
    return _write(to, html, name, facts, notes, **parts, methods=paragraphs, files=files)


def _score_tables(table: pd.DataFrame, name: str) -> Iterator[ReportTable]:
    """Yield the means of a table from `ragbench.score`, and its systems in pairs where they are
    few.
    """
    systems = table["system"].nunique() if "system" in table else 1
    notes = []
    if "labelled_by" in table:
        notes.append(f"Labels: {', '.join(dict.fromkeys(table['labelled_by'].dropna()))}.")
    if systems > MOST_COMPARED:
        notes.append(
            f"{systems} systems are too many to compare every pair: name yours in "
            "rb.stats.compare(pairs=)."
        )
    averages = score_means(table)
    yield ReportTable(
        "means",
        f"{name}: mean of every metric",
        averages,
        _with_intervals(averages, "mean"),
        tuple(notes),
    )
    if are_compared(table):
        pairs = compare_scores(table, resamples=RESAMPLES)
        yield ReportTable(
            "comparison",
            f"{name}: systems compared over the same questions",
            pairs,
            format_comparison(pairs),
        )


def score_means(table: pd.DataFrame, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Average the numbers of a table from `ragbench.score` by system, with their intervals."""
    by = ["system"] if "system" in table else []
    return means(
        table, by, names or table.attrs["numbers"], groups="question_id", resamples=RESAMPLES
    )


def _score_figures(table: pd.DataFrame, name: str) -> Iterator[_Drawn]:
    """Yield the picture of the metrics between 0 and 1, if there are any."""
    # A sum of floats may be 1.0000000000000004.
    drawn = [
        n
        for n in table.attrs["numbers"]
        if table[n].ge(0).any() and not table[n].gt(1 + 1e-9).any()
    ]
    if not drawn or ("system" in table and table["system"].nunique() > _MAX_SYSTEMS):
        return
    labelled = table if "system" in table else table.assign(system=name)
    long = labelled.melt(["question_id", "system"], drawn, "metric", "value")
    alt = (
        f"{name}: every answer's value of {len(drawn)} metrics, with the mean and its 95% interval."
    )
    yield "scores", plots.score_strips(long, score_means(labelled, drawn)), long, alt


def save_scores(table: pd.DataFrame, folder: Path) -> Path:
    """Write a table from `ragbench.score` beside a run's rows, for `export`:

    a row per answer, and how it was made.
    """
    path = folder / "scores.csv"
    with written_whole(path) as part:
        part.write_text("".join(_csv(table)), encoding="utf-8")
    with written_whole(path.with_suffix(".json")) as part:
        part.write_text(
            json.dumps(table.attrs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return path


def _load_scores(folder: Path) -> pd.DataFrame | None:
    """Read what `save_scores` wrote; None where nothing was scored."""
    path = folder / "scores.csv"
    file = path.with_suffix(".json")
    if not (path.is_file() and file.is_file()):
        return None
    table = pd.read_csv(path, dtype={"question_id": str, "system": str})
    names = [name for name in ("system", "question_id") if name in table]
    table[names] = table[names].map(from_csv)
    table.attrs |= json.loads(file.read_text(encoding="utf-8"))
    return table


# -- the folder
# --------------------------------------------------------------------------------------------------------


def _write(
    to: str | os.PathLike[str],
    html: bool,
    name: str,
    facts: str,
    notes: list[str],
    *,
    tables: Sequence[ReportTable],
    figures: Iterable[_Drawn],
    methods: Methods,
    checks: pd.DataFrame,
    files: Mapping[str, Iterable[str]],
    label: str = "",
    worst: ReportTable | None = None,
    cassette: Path | None = None,
) -> _Exported:
    """Write all parts beside the folder, then move them into it: whatever interrupts it, the folder
    stays as it was.

    ``label`` begins the labels of LaTeX; ``files`` are texts by name; ``facts`` and ``worst`` stand
    on the page alone.
    """
    target = Path(to).expanduser().resolve()
    earlier = check_target(to)
    done = _Exported(Path(to).expanduser())
    folder = target.with_name(f".{target.name}.part")
    shutil.rmtree(folder, ignore_errors=True)  # what an export that was killed has left
    folder.mkdir(parents=True)
    try:

        def new(name: str) -> Path:
            (folder / name).parent.mkdir(exist_ok=True)
            done.files.append(name)
            return folder / name

        def write(name: str, texts: Iterable[str]) -> None:
            # Half of a surrogate pair becomes its escape.
            with open(
                new(name), "w", encoding="utf-8", errors="backslashreplace", newline=""
            ) as file:
                file.writelines(texts)

        for table in tables:
            for kind, text in table.texts(label + table.stem).items():
                write(f"tables/{table.stem}.{kind}", [text])
        alts = {}
        for stem, figure, numbers, alts[stem] in figures:
            paths = plots.save_figure(
                figure,
                stem,
                numbers,
                alts[stem],
                folder=folder / "figures",
                dpi=_DPI,
                kinds=("png", "pdf"),
            )
            done.files += [f"figures/{path.name}" for path in paths.values()]
        write("methods.md", [methods.markdown])
        write("methods.tex", [methods.latex])
        write("references.bib", [methods.bibliography])
        write("all.tex", [_document(name, [table.stem for table in tables], alts)])
        for file, texts in files.items():
            write(file, texts)
        if cassette is not None:
            with Cassette(cassette, mode="replay") as replies:
                count = replies.export(new("cassette.jsonl"))
            notes.append(f"cassette.jsonl holds {count} replies of models, with their prompts")
        done.notes = notes
        if html:
            shown = [table for table in tables if table.stem != "audit"]  # the page ends with it
            shown += [worst] if worst is not None and len(worst.frame) else []
            pictures = [(folder / "figures" / f"{stem}.png", alt) for stem, alt in alts.items()]
            write("report.html", [_page(name, facts, shown, pictures, methods, checks, notes)])
        listed = "\n".join(f"- `{file}`" for file in done.files)
        remarks = [f"\nNote: {in_markdown(note)}.\n" for note in notes]
        write("README.md", [_README.format(name=in_markdown(name), files=listed), *remarks])
        (folder / MARKER).write_text(json.dumps(done.files, indent=1) + "\n", encoding="utf-8")
        for stale in earlier - set(done.files):
            (target / stale).unlink(missing_ok=True)
        for file in (*done.files, MARKER):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / file, target / file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done


def _page(
    title: str,
    facts: str,
    tables: Sequence[ReportTable],
    figures: Sequence[tuple[Path, str]],
    methods: Methods,
    audit: pd.DataFrame,
    notes: Sequence[str] = (),
) -> str:
    """Write a run on one HTML page that loads nothing;

    ``figures`` are PNG files, each with its alt text.
    """
    images = [(alt, file.read_bytes()) for file, alt in figures]
    # The width stands in a PNG's head: by it, letters have one size in all figures.
    drawn = [
        (alt, base64.b64encode(png).decode(), int.from_bytes(png[16:20]) * _CSS // _DPI)
        for alt, png in images
    ]
    texts = [(each, each.cells()[0]) for each in tables]
    parts = {
        "title": title,
        "facts": facts,
        "notes": notes,
        "figures": drawn,
        "tables": texts,
        "checks": render(audit),
    }
    paragraphs = [with_citations(paragraph) for paragraph in methods.paragraphs]
    parts |= {"paragraphs": paragraphs, "heading": CLAIMS, "claims": methods.claims}
    jinja = Environment(autoescape=True)  # escapes every text
    jinja.tests["interval"] = re.compile(r"\S+ \[[^\]]*\]").fullmatch
    return jinja.from_string(
        Path(__file__).with_name("page.jinja").read_text(encoding="utf-8")
    ).render(parts)


def check_target(to: str | os.PathLike[str]) -> set[str]:
    """Return what an earlier export wrote to a folder;

    ConfigError for one with files of somebody else.
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


def _document(title: str, tables: Sequence[str], figures: Mapping[str, str]) -> str:
    """Write a LaTeX document that holds every part, to be compiled or copied from."""
    parts = [_TOP % (PREAMBLE, in_latex(title))]
    if tables:
        parts += [r"\section{Tables}", *(rf"\input{{tables/{stem}}}" for stem in tables)]
    if figures:
        parts.append(r"\clearpage\section{Figures}")
    # The braces keep a dot in the name from being taken for its ending.
    parts += [_FIGURE % (FIT, stem, in_latex(alt), label_of(stem)) for stem, alt in figures.items()]
    return "\n".join(
        [*parts, r"\bibliographystyle{plain}", r"\bibliography{references}", r"\end{document}", ""]
    )
