"""Published numbers and the ledger: paper | recorded | ours.

``data/papers/<paper>_<item>.csv`` holds the published cells in long form (row, column, value,
unit). Notebooks hand in what they measured with `record`; `ledger` joins both, so a published cell
without a measurement stays visible.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from filelock import FileLock

from ragbench._lazy import lazy
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.paths import figures_dir, packaged_data, project_root, written_whole

if TYPE_CHECKING:
    from ragbench.papers import live, ragchecker, rageval, thesis

PAPERS = {
    "thesis": "El Yagouby 2024, Evaluation Framework for Retrieval-Augmented Generation Systems",
    "ragchecker": "Ru et al. 2024, RAGChecker",
    "ragas": "Es et al. 2023, RAGAS",
    "rageval": "Zhu et al. 2024, RAGEval",
}
_OFFERED = "PAPERS begin_ledger counts ledger published record summary"
__getattr__, __dir__ = lazy(__name__, shown=_OFFERED.split(), path=__path__)
KEY = ["paper", "item", "row", "column"]
LEDGER_COLUMNS = [
    *KEY, "published", "recorded", "recorded_by", "ours", "ours_by", "n", "unscored", "note"
]  # fmt: skip
NOT_COMPARABLE = "not comparable"  # begins the note of a number that no difference is taken of
IDENTITY = "identity: "  # so begins ``recorded_by`` of arithmetic on printed numbers
_READABLE = """# Ledger: the papers' numbers beside ours

Written by `ragbench reproduce`; do not edit. A cell reads *paper -> measured*.
*recorded* was computed here from outputs of others' models, *ours* measured here.
An *identity* is arithmetic on printed numbers: the paper agrees with itself or not, and nothing is
measured.
A number is held against the printed one where data (or a sample of it), measure, kind of grader and
kind of model are the same, or no grader and no model had a part; any other is *not comparable*.
Every published cell, measured or not, is in [`ledger.csv`](ledger.csv).

"""


def _published_items(paper: str) -> dict[str, Path]:
    """Return the published tables and figures of a paper: item name, as the paper calls it, and its
    file.
    """
    check_known("paper", [paper], PAPERS)
    items = {}
    for file in sorted(packaged_data("papers").glob(f"{paper}_*.csv")):
        name = file.stem.removeprefix(f"{paper}_").replace("_", " ")
        items[name[0].upper() + name[1:]] = file
    return items


def published(paper: str, item: str) -> pd.DataFrame:
    """Return the published cells of one item, e.g. ``published("thesis", "Table 3.1")``: row,
    column, value, unit.

    ``value`` is a number where all cells are.
    """
    items = _published_items(paper)
    check_known(f"item of {paper}", [item], items)
    frame = pd.read_csv(items[item], dtype=str, keep_default_na=False)
    numbers = pd.to_numeric(frame["value"], errors="coerce")
    if numbers.notna().all():
        frame["value"] = numbers
    return frame


def record(paper: str, item: str, cells: pd.DataFrame, *, by: str, recorded: bool = False) -> Path:
    """Hand in measured cells of one item; an earlier measurement by the same ``by`` is replaced.

    Parameters
    ----------
    paper, item : as in `published`; an item the paper does not have is kept too.
    cells : columns row, column, value, and optionally n (questions scored), unscored, note. A value
        of NaN says that it could not be measured; its note says which command and model would.
    by : what produced the numbers: data set, retriever, generator, judge.
    recorded : True for numbers computed from outputs that somebody else's models produced, and for
        arithmetic on printed numbers, whose ``by`` begins with ``"identity: "``.

    Returned is the path of ``ledger.csv`` in the folder of figures, rebuilt.
    """
    check_known("paper", [paper], PAPERS)
    kind = "recorded" if recorded else "ours"
    new = _as_rows(cells, kind).assign(paper=paper, item=item, **{f"{kind}_by": by})
    with FileLock(figures_dir() / ".ledger.lock"):
        old = _measured()
        of_item = (old["paper"] == paper) & (old["item"] == item)
        kept = old[~(of_item & (old[f"{kind}_by"] == by))]
        parts = [part.reindex(columns=LEDGER_COLUMNS).astype(object) for part in (kept, new)]
        return _write(pd.concat(parts, ignore_index=True))


def _as_rows(cells: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return measured cells in the ledger's columns; ConfigError for cells that cannot be."""
    lacking = {"row", "column", "value"} - set(cells.columns)
    if lacking:
        raise ConfigError(
            f"cells without {', '.join(sorted(lacking))}",
            "columns row, column, value",
            "rename your columns",
        )
    rows = cells.reindex(columns=["row", "column", "value", "n", "unscored", "note"])
    rows = rows.rename(columns={"value": kind}).astype({"row": str, "column": str})
    twice = rows[rows.duplicated(["row", "column"])]
    if len(twice):
        row, column = twice[["row", "column"]].iloc[0]
        raise ConfigError(
            f"the cell ({row}, {column}) twice", "each cell once", "aggregate before recording"
        )
    return rows


def ledger(paper: str | None = None, item: str | None = None) -> pd.DataFrame:
    """Return the ledger, one row per published cell and measurement, columns `LEDGER_COLUMNS`; of
    one paper, of one item.

    ``measured`` says whether there is a number, ``compares`` whether it is of the same thing as the
    printed one: the rule is in the head of ``ledger.md``, and where it does not hold the note
    begins with `NOT_COMPARABLE`.
    """
    frame = _join(_measured())
    frame["measured"] = frame[["recorded", "ours"]].notna().any(axis=1)
    differs = frame["note"].astype("string").str.startswith(NOT_COMPARABLE).fillna(False)
    frame["compares"] = frame["measured"] & ~differs.astype(bool)
    if paper:
        check_known("paper", [paper], PAPERS)
        frame = frame[frame["paper"] == paper]
    if item:
        frame = frame[frame["item"] == item]
    return frame.reset_index(drop=True)


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Count the cells with a number, by item, in rows of the `ledger`.

    Columns: published (different printed cells), recorded (from outputs of others' models),
    identities (arithmetic on printed numbers) and ours.
    """
    identity = frame["recorded_by"].str.startswith(IDENTITY, na=False)
    marks = {
        "published": frame["published"].notna() & ~frame.duplicated(KEY),
        "recorded": frame["recorded"].notna() & ~identity,
        "identities": frame["recorded"].notna() & identity,
        "ours": frame["ours"].notna(),
    }
    return pd.DataFrame(marks).groupby(frame["item"], sort=False).sum()


def side_by_side(paper: str, item: str, by: str | None = None) -> pd.DataFrame:
    """Return paper | recorded | ours | difference | n | unscored for one item: the cell that ends a
    notebook.

    ``difference`` is measured minus published, taken from *ours* where there is a number, else from
    *recorded*; there is none where the note begins with `NOT_COMPARABLE`. ``by`` keeps what it
    names, with row and column as the index; without it all is there, with the column ``by``.
    """
    frame = ledger(paper, item)
    if frame.empty:
        raise ConfigError.unknown(f"item of {paper}", item, _published_items(paper))
    printed = pd.to_numeric(frame["published"], errors="coerce")
    recorded = pd.to_numeric(frame["recorded"], errors="coerce")
    ours = pd.to_numeric(frame["ours"], errors="coerce")
    difference = ours.fillna(recorded) - printed
    table = frame[["row", "column", "published", "recorded", "ours"]].assign(
        difference=difference.where(frame["compares"]),
        n=pd.to_numeric(frame["n"]).astype("Int64"),
        unscored=pd.to_numeric(frame["unscored"]).astype("Int64"),
        by=frame["ours_by"].fillna(frame["recorded_by"]).fillna(""),
    )
    table = table.rename(columns={"published": "paper"})
    if by is None:
        return table
    return table[table["by"] == by].drop(columns="by").set_index(["row", "column"])


def begin_ledger() -> None:
    """Empty the ledger in the folder of figures: what it holds afterwards was measured since."""
    _write(pd.DataFrame(columns=LEDGER_COLUMNS, dtype=object))


def write_markdown(whose: str = "") -> Path:
    """Write ``ledger.md``, the readable form of the ledger, beside it, and return its path.

    ``whose``: a line under its title, of a ledger that is not the project's.
    """
    path = figures_dir() / "ledger.md"
    sections = ["\n".join(_section(name)) for name in PAPERS]
    head = _READABLE
    if whose:
        head += f"**{whose}**\n\n"
    path.write_text(head + "\n\n".join(sections) + "\n", encoding="utf-8")
    return path


def summary(paper: str | None = None) -> str:
    """Return a line a paper, or one: of its tables the printed cells with a number that compares,
    and those that only have one that does not.
    """
    names = [*PAPERS]
    if paper:
        names = [paper]
    lines = []
    for name in names:
        frame = ledger(name).dropna(subset="published")
        cells = frame.groupby(KEY, sort=False)[["measured", "compares"]].any()
        words = []
        for item, of_item in cells.groupby("item", sort=False):
            compared = of_item["compares"].sum()
            only = of_item["measured"].sum() - compared
            parts = [f"{compared} of {len(of_item)} cells"] * bool(compared)
            parts += [f"{only} {NOT_COMPARABLE}"] * bool(only)
            if parts:
                words.append(f"{item} ({', '.join(parts)})")
        lines.append(f"{name}: {'; '.join(words) or 'nothing measured'}")
    return "\n".join(lines)


def _section(paper: str) -> Iterator[str]:
    frame = ledger(paper)
    totals = [f"{count:,} {kind}" for kind, count in counts(frame).sum().items()]
    yield f"## {PAPERS[paper]}\n"
    yield f"Cells: {', '.join(totals)}."
    for item, cells in frame.groupby("item", sort=False):
        for kind in ("recorded", "ours"):
            for by, measured in cells.groupby(f"{kind}_by", sort=False):
                maker = str(by)
                if not maker.startswith(IDENTITY):
                    maker = f"{kind}: {by}"
                yield f"\n### {item}, {maker}\n"
                yield from _item_table(measured, kind)
                yield from _notes(measured)
    unmeasured = frame[frame["ours_by"].isna() & frame["recorded_by"].isna()]
    left = unmeasured.groupby("item", sort=False).size()
    if len(left):
        listed = ", ".join(f"{item} ({count})" for item, count in left.items())
        yield f"\nPublished cells not measured yet: {listed}."


def _item_table(cells: pd.DataFrame, kind: str) -> Iterator[str]:
    """One item measured in one way, in the item's own rows and columns."""
    printed = cells["published"].map(_digits)
    measured = cells[kind].map(_digits)
    text = measured.where(printed == "", printed + " -> " + measured)
    wide = cells.assign(text=text).pivot(index="row", columns="column", values="text")
    wide = wide.loc[cells["row"].unique(), cells["column"].unique()].fillna("")
    heads = " | ".join(map(_digits, wide))
    yield f"| | {heads} |"
    yield "|" + "---|" * (wide.shape[1] + 1)
    for row, *texts in wide.itertuples():
        yield f"| {_digits(row)} | {' | '.join(texts)} |"


def _notes(cells: pd.DataFrame) -> Iterator[str]:
    """Say of how many questions cells are, and what their notes say."""
    notes = cells["note"].dropna().astype(str).unique().tolist()
    n = pd.to_numeric(cells["n"], errors="coerce")
    if n.notna().any():
        notes.insert(0, _counted(n, cells))
    if notes:
        yield "\n" + "; ".join(notes) + "."


def _counted(n: pd.Series, cells: pd.DataFrame) -> str:
    words = f"n = {n.min():.0f}"
    if n.nunique() > 1:
        words += f" to {n.max():.0f}"
    unscored = pd.to_numeric(cells["unscored"], errors="coerce").max()
    if unscored > 0:
        return f"{words}, up to {unscored:.0f} unscored"
    return f"{words}, none unscored"


def _digits(value: object) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    if not isinstance(value, float):
        return str(value).replace("|", r"\|")
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _measured() -> pd.DataFrame:
    """The measured cells of the ledger; before a first measurement of one's own, those that came
    with the checkout.
    """
    path = figures_dir() / "ledger.csv"
    own_folder = os.environ.get("RAGBENCH_FIGURES", "").strip()
    if not path.is_file() and not own_folder:
        path = project_root() / "figures" / "ledger.csv"
    if not path.is_file():
        return pd.DataFrame(columns=LEDGER_COLUMNS, dtype=object)
    numbers = {"published", "recorded", "ours", "n", "unscored"}
    texts = dict.fromkeys(set(LEDGER_COLUMNS) - numbers, str)
    frame = pd.read_csv(path, dtype=texts).reindex(columns=LEDGER_COLUMNS)
    return frame.dropna(subset=["ours_by", "recorded_by"], how="all")


@functools.cache
def _every_published() -> pd.DataFrame:
    """Return all published cells with the columns `KEY`, published, and cell, their place in the
    papers' order.
    """
    parts = []
    for paper in PAPERS:
        for item in _published_items(paper):
            cells = published(paper, item).rename(columns={"value": "published"})
            parts.append(cells.assign(paper=paper, item=item).astype(object))
    table = pd.concat(parts, ignore_index=True)[[*KEY, "published"]]
    return table.assign(cell=range(len(table)))


def _join(measured: pd.DataFrame) -> pd.DataFrame:
    """Put every published cell beside its measurements, in the papers' order."""
    frame = _every_published().merge(measured.drop(columns="published"), on=KEY, how="outer")
    frame["by_paper"] = frame["paper"].map({name: i for i, name in enumerate(PAPERS)})
    frame["by_item"] = frame.groupby(["paper", "item"])["cell"].transform("min")
    order = ["by_paper", "by_item", "item", "cell", "ours_by", "recorded_by"]
    frame = frame.sort_values(order, kind="stable", na_position="last")
    return frame.reindex(columns=LEDGER_COLUMNS).reset_index(drop=True)


def _write(measured: pd.DataFrame) -> Path:
    path = figures_dir() / "ledger.csv"
    frame = _join(measured)
    for name in ("n", "unscored"):
        frame[name] = pd.to_numeric(frame[name]).astype("Int64")
    try:
        with written_whole(path) as part:
            frame.to_csv(part, index=False, float_format="%.6g", lineterminator="\n")
    except OSError as error:
        raise DataError.not_written(path, error.strerror) from None
    return path
