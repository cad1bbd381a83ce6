"""A run, or scores of answers, as a folder to build a thesis from: tables, figures, methods,
references, data.

Reading order: ``export`` (a run) and ``export_scores`` -> the folder (``_write``), which is filled
aside and moved into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from filelock import FileLock

from ragbench import plots
from ragbench.data.answers import EMPTY
from ragbench.errors import ConfigError
from ragbench.llm import Cassette
from ragbench.metrics.table import Metric
from ragbench.paths import cache_dir, sha256_of
from ragbench.report.audit import audit, audit_rows
from ragbench.report.factors import measured, run_tables
from ragbench.report.methods import Methods
from ragbench.report.scores import score_tables
from ragbench.report.tables import ReportTable
from ragbench.rows import answers_of, load_run, run_folder
from ragbench.scoring import Scores
from ragbench.text.escape import in_csv, in_markdown

MARKER = ".ragbench-export.json"  # of a folder that an export wrote: its files, with their sha256
_DPI = 300  # of the PNG files


@dataclass
class _Report:
    """What an export writes, ``json`` by name of the file, and what is missing and why."""

    name: str
    rows: pd.DataFrame
    tables: list[ReportTable]
    methods: Methods
    json: dict[str, object]
    notes: list[str]
    label: str = ""  # begins the labels of LaTeX
    cassette: Path | None = None
    folder: Path = Path()
    files: list[str] = field(default_factory=list)  # that were written, in order of name

    def __str__(self) -> str:
        place = os.path.relpath(self.folder)
        lines = [f"{len(self.files)} files in {place}, listed in its README.md"]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def export(
    run: str | os.PathLike[str], to: str | os.PathLike[str], *, by: str | None = None
) -> _Report:
    """Write everything a paper or thesis needs of a run into a folder.

    Two exports of one run differ in no byte.

    Parameters
    ----------
    to : folder to make, or an earlier export: its files are replaced, others stay. ConfigError
        where one of its files was edited since.
    by : a column of the questions file, such as a language: one more table has the means by its
        values.

    Written are ``tables/`` (CSV, Markdown, LaTeX; the audit is one of them), ``figures/`` (PDF,
    PNG, CSV), ``methods.md``, ``references.bib``, ``rows.csv``, ``cassette.jsonl``,
    ``manifest.json``, ``README.md``. Returned is the report: its ``folder``, ``files`` and
    ``notes``; ``print`` shows them.

    Raises DataError where the rows are not those of the manifest beside them.
    """
    rows, manifest = load_run(run)
    folder = run_folder(run)
    name = manifest["name"]
    checks = audit(run, rows)
    counts = _counts(rows, checks)
    tables = [*run_tables(measured(rows), name, by), _audit_table(checks, name)]
    words = Methods.of_run(manifest, counts, tables)
    scores = Scores.beside(folder)
    if scores is not None:
        of_scores = score_tables(scores, name)
        words = words.with_scores(Methods.of_scores(scores, of_scores))
        tables += of_scores
    report = _Report(
        name,
        answers_of(rows),  # named, so that they can be scored again
        tables,
        words,
        {"manifest.json": manifest},
        [*_gaps(folder, rows, counts["missing"], scores)],
        f"{name}:",
        folder / "cassette.sqlite",
    )
    return _write(report, to)


def _counts(rows: pd.DataFrame, checks: pd.DataFrame) -> dict[str, int]:
    failed = rows["status"].eq("failed").sum()
    missing = checks.loc[checks["check"].eq("missing rows"), "rows"].sum()
    return {"rows": len(rows), "failed": int(failed), "missing": int(missing)}


def _gaps(
    folder: Path, rows: pd.DataFrame, missing: int, scores: pd.DataFrame | None
) -> Iterator[str]:
    """Say what the export of a run lacks, and why."""
    if missing:
        yield f"the run was stopped: {missing} rows are not made yet; run it again first"
    by_models = rows[["digest", "judge_digest"]].notna().any(axis=None)
    if by_models and not (folder / "cassette.sqlite").is_file():
        yield "no cassette in the run's folder: copy yours there as cassette.sqlite"
    if scores is None and (folder / "scores.csv").exists():
        yield "scores.csv is of other rows and left out: run the experiment again"


def _audit_table(checks: pd.DataFrame, name: str) -> ReportTable:
    shown = checks.dropna(axis="columns", how="all").rename(columns=lambda s: s.replace("_", " "))
    return ReportTable("audit", f"{name}: what could have gone wrong in silence", checks, shown)


def export_scores(table: pd.DataFrame, to: str | os.PathLike[str], name: str) -> _Report:
    """Write a table from `ragbench.score` as a folder like that of `export`.

    ``name`` stands in its captions.
    """
    if not isinstance(table, Scores):  # read from a file, or joined of others
        table = Scores(table)
    notes = [*table.facts.get("repairs", [])]
    tables = score_tables(table, name)
    words = Methods.of_scores(table, tables)
    cell = ["system"] * ("system" in table)
    checks = audit_rows(table, Metric.ends(table.numbers), cell)
    tables.append(_audit_table(checks, name))
    return _write(_Report(name, table, tables, words, {}, notes), to)


# -- the folder


def check_target(to: str | os.PathLike[str]) -> Path:
    """Return the path of a folder to write into.

    Raises ConfigError for a file, or a folder with files of somebody else.
    """
    folder = Path(to).expanduser().resolve()
    with _alone(folder):
        _written_files(folder)
    return folder


def _alone(folder: Path) -> FileLock:
    """Return a lock: of two exports into one folder one waits while the other moves its files."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return FileLock(cache_dir("exports") / f"{name}.lock")


def _written_files(folder: Path) -> list[Path]:
    """Return the files of an earlier export that are still there.

    Raises ConfigError where the folder is none of an export's, and where a file was edited since.
    """
    if folder.is_file():
        raise ConfigError(f"{folder} is a file", "a folder", "choose another name")
    there = sorted(path.name for path in folder.glob("*"))
    if there and not (folder / MARKER).is_file():
        raise ConfigError(
            f"{folder} is not empty (there is {there[0]}) and not made by ragbench export",
            "an empty folder, or one that an export made",
            "choose another folder for --to",
        )
    recorded = {}
    with contextlib.suppress(OSError, ValueError, TypeError):
        recorded = dict(json.loads((folder / MARKER).read_text(encoding="utf-8")))
    files = {name: folder / name for name in recorded if (folder / name).is_file()}
    edited = [name for name, path in files.items() if sha256_of(path) != recorded[name]]
    if edited:
        raise ConfigError(
            f"edited since the export into {folder}: {', '.join(edited)}",
            "files as the export wrote them, which the next one replaces",
            "rename or move what you edited, or choose another folder for --to",
        )
    return [*files.values()]


def _refuse_others(folder: Path, new: Iterable[Path], earlier: Sequence[Path]) -> None:
    """Raise ConfigError where a new file would take the place of one that no export wrote."""
    others = [str(path.relative_to(folder)) for path in new if path.exists()]
    others = [name for name in others if folder / name not in earlier]
    if others:
        raise ConfigError(
            f"in {folder} stand files of your own under names of the export: {', '.join(others)}",
            "names that no file of yours has",
            "rename or move them, or choose another folder for --to",
        )


def _write(report: _Report, to: str | os.PathLike[str]) -> _Report:
    """Write all parts beside the folder, then move them into it.

    Whatever interrupts the writing, the folder stays as it was.
    """
    target = check_target(to)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(".part", f".{target.name}.", target.parent) as parts:
        new = Path(parts, target.name)
        _fill(new, report)
        report.files = _sign(new, report)
        with _alone(target):
            earlier = _written_files(target)
            _refuse_others(target, [target / name for name in report.files], earlier)
            for path in earlier:
                path.unlink()
            target.mkdir(exist_ok=True)
            os.replace(new / MARKER, target / MARKER)  # first: a kill leaves no file that it lacks
            shutil.copytree(new, target, dirs_exist_ok=True, copy_function=os.replace)
    report.folder = Path(to).expanduser()
    return report


def _fill(folder: Path, report: _Report) -> None:
    """Write the parts of a report into a folder."""
    (folder / "tables").mkdir(parents=True)
    _write_text(folder / "rows.csv", _rows_as_csv(report.rows))
    _write_text(folder / "methods.md", report.methods.markdown)
    _write_text(folder / "references.bib", report.methods.bibliography)
    for name, content in report.json.items():
        text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)
        _write_text(folder / name, text + "\n")
    for table in report.tables:
        _write_table(folder, table, report.label + table.stem)
    if report.cassette is not None and report.cassette.is_file():
        with Cassette(report.cassette, mode="replay") as cassette:
            count = cassette.export(folder / "cassette.jsonl")
        report.notes.append(f"cassette.jsonl holds {count} replies of models, with their prompts")


def _rows_as_csv(rows: pd.DataFrame) -> str:
    rows = rows.drop(columns="claim_labels", errors="ignore")
    if "answer" in rows and rows["answer"].eq("").any():  # a missing one is an empty cell too
        rows = rows.assign(**{EMPTY: rows["answer"].eq("")})
    return in_csv(rows).to_csv(index=False, lineterminator="\n")


def _write_table(folder: Path, table: ReportTable, label: str) -> None:
    """Write a table as CSV, Markdown and LaTeX, and its picture."""
    for kind, text in table.texts(label).items():
        _write_text(folder / "tables" / f"{table.stem}.{kind}", text)
    if table.figure is not None:
        plots.save_figure(
            table.figure,
            table.stem,
            table.frame,
            table.caption,
            folder=folder / "figures",
            dpi=_DPI,
            kinds=("png", "pdf"),
        )


def _write_text(path: Path, text: str) -> None:
    # Half of a surrogate pair becomes its escape.
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def _sign(folder: Path, report: _Report) -> list[str]:
    """Write a list of the files, for readers and for the next export; return their names."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    names.append("README.md")
    lines = [f"# {in_markdown(report.name)}\n", "Written by `ragbench export`.\n"]
    lines += [f"- `{name}`" for name in names]
    lines += [f"\nNote: {in_markdown(note)}." for note in report.notes]
    _write_text(folder / "README.md", "\n".join(lines).rstrip("\n") + "\n")
    digests = {name: sha256_of(folder / name) for name in names}
    _write_text(folder / MARKER, json.dumps(digests, indent=1))
    return names
