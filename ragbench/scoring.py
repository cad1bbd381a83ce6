"""From answers to metrics, by name: for the rows of an experiment, or anybody's own answers.

What a metric needs and the rows lack is made first: a label, by `LABELS`. A label of your own is a
function ``(rows, source, cassette) -> column`` and one entry there:

    def words(rows, source, cassette):
        return [len(answer.split()) for answer in rows["answer"]]

    LABELS["words"] = LabelMethod(("answer",), words)
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ragbench.data.answers import read_answers
from ragbench.data.files import is_missing
from ragbench.data.ragchecker import CHECKS, RagResult
from ragbench.errors import ConfigError, DataError, ModelError, RagbenchError, check_known
from ragbench.labelling.checkers import ModelChecker
from ragbench.labelling.claims import claim_count, ragchecker_calls, ragchecker_labels
from ragbench.labelling.grades import PROMPT, grade
from ragbench.labelling.keypoints import extract_keypoints, keypoint_verdicts
from ragbench.labelling.people import LabelItem, current, load_labels
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import Cassette, Plan, chat_model, plan
from ragbench.llm.asking import AskOptions
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.models import TWO_WAYS
from ragbench.metrics.table import METRICS, Metric, grade_metrics
from ragbench.paths import sha256_of, written_whole
from ragbench.prompts import Prompt
from ragbench.records import GRADES, Answer, Question
from ragbench.rows import MANIFEST, ROWS, answers_of, load_rows
from ragbench.stats.tables import grade_numbers, numbers_of, rows_by_scale

_SCORES = "scores.csv"
_WAYS_TO_LABELS = (
    "name one: labels='ollama:llama3:8b' (docs/models.md says how to install Ollama), or "
    "labels='smollm2', the small model in the box"
)
Numbers = Mapping[str, tuple[str, str]]  # column -> (metric, which of its numbers)
_BAR_AFTER_S = 5.0


class Scores(pd.DataFrame):
    """Rows with their numbers, as `score` returns them: a data frame in every way.

    Which columns are numbers, and who labelled, stands in the rows: it is known after a CSV and
    ``pd.concat``, too. ``Scores(frame)`` makes one of such a table.

    >>> scores = rb.score([{"answer": "Paris", "reference": "Paris, France"}], ["token_f1"])
    >>> scores.numbers
    ['token_f1']
    """

    _metadata: ClassVar[list[str]] = ["facts"]
    # "sources" by number, "model", "checker", "repairs": of one call of `score`, lost in a CSV
    facts: Mapping[str, Any] = MappingProxyType({})

    @property
    def _constructor(self) -> type[Scores]:
        return Scores

    @property
    def table(self) -> pd.DataFrame:
        """The same as a plain data frame."""
        return pd.DataFrame(self)

    @property
    def numbers(self) -> list[str]:
        """The columns that hold a number."""
        return numbers_of(self)

    @property
    def sources(self) -> dict[str, str]:
        """The paper and equation of each number."""
        known = {column: METRICS[name].source for column, (name, _) in Metric.find().items()}
        known |= self.facts.get("sources", {})
        return {column: known.get(column, "of this study") for column in self.numbers}

    @property
    def labelled_by(self) -> list[str]:
        """Who made the labels, in words; "given": they came with the rows."""
        return list(dict.fromkeys(self.get("labelled_by", ())))

    @classmethod
    def read(cls, path: str | Path) -> Scores:
        """Read what ``to_csv(path, index=False)`` wrote; an id may be "NA" or "null"."""
        texts = {"system": str, "question_id": str}
        return cls(pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""]))

    def save_beside(self, folder: Path) -> Path:
        """Write the scores beside the rows that they were computed from.

        ``scores.json`` says how it was made, and holds the sha256 of these rows and of the scores.
        """
        path = folder / _SCORES
        cells = self.drop(columns="claim_labels", errors="ignore").to_csv(index=False)
        facts = {**self.facts, "rows_sha256": sha256_of(folder / ROWS)}
        facts["scores_sha256"] = hashlib.sha256(cells.encode()).hexdigest()
        text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
        for place, content in ((path, cells), (path.with_suffix(".json"), text)):
            with written_whole(place) as part:
                part.write_text(content, encoding="utf-8", newline="")
        return path

    @classmethod
    def beside(cls, folder: Path) -> Scores | None:
        """Read what `save_beside` wrote; None where there is nothing, or it is of other rows."""
        path = folder / _SCORES
        if not path.with_suffix(".json").is_file():
            return None
        try:
            facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            if facts.pop("rows_sha256", None) != sha256_of(folder / ROWS):
                return None
            if facts.pop("scores_sha256", None) not in (None, sha256_of(path)):
                raise ValueError("it was cut or edited")
            scores = cls.read(path)
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
            raise DataError(
                f"{path} or the .json beside it cannot be read: {error}",
                "scores that a run writes",
                "delete both, run it again",
            ) from None
        scores.facts = facts
        return scores


@dataclass(frozen=True, slots=True)
class _LabelSource:
    """The chat model that labels, the checker of its claims (None: the same model), options for
    ``ask``.
    """

    model: Any
    checker: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LabelMethod:
    """How a label is made: from which columns, by which function, and with how many calls of a
    model at most.

    ``calls`` None: no model is ever asked, so none need be named.
    """

    needs: tuple[str, ...]
    make: Callable[[pd.DataFrame, _LabelSource, Any], Sequence[Any]]
    calls: Callable[[pd.DataFrame], Mapping[str, int]] | None = None


def score(
    rows: Any,
    metrics: Sequence[str],
    labels: Any = None,
    columns: Mapping[str, str] | None = None,
    *,
    checker: Any = None,
    cassette: Any = None,
    **options: Any,
) -> Scores:
    """Compute metrics of every answer.

    Parameters
    ----------
    rows : one per answer, from anywhere: see `ragbench.data.answers.read_answers`. Labels in the
        rows are used; only those that a metric needs and the rows lack are made. Or the folder or
        name of a run, with its experiment.yaml beside the rows. Where the claims of RAGChecker
        belong to another true answer than ``reference``, columns ``long_reference`` and
        ``reference_claims`` hold it and its claims.
    metrics : names in `ragbench.metrics.table`: of ``METRICS``, of ``GROUPS``, or of single numbers
        (`metric_table`).
    labels : the chat model that labels, where a metric needs labels that the rows lack, as for
        `ragbench.llm.ask`; its plan (`plan_score`) is printed first. None: what needs no such label
        is computed, and a warning says what the rest needs.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``.
    checker : who checks claims in place of ``labels``: a name or object as for
        `ragbench.labelling.checkers`.
    cassette : file of the model's replies; with one, an interrupted call goes on.
    options : for `ragbench.llm.ask`: ``concurrency``, ``progress`` ...; ``joint=True``: all claims
        (or RAGAS's statements) of a text in one prompt, see `ragbench.labelling.asking`.

    Returns
    -------
    `Scores`, a data frame: the rows in our names; a column per number
    (``keypoints_hallucination`` where RAGChecker's has the name); the labels made
    (`ragbench.widgets.ClaimInspector` opens ``claim_labels``); ``labelled_by``; ``numbers``, which
    were computed; ``unscored``, how many of them are NaN, and ``reason``, why.

    Raises ConfigError for an unknown metric or option, or where every metric needs labels and no
    model is named; DataError for all missing columns, before anything runs.

    >>> rows = [{"answer": "Paris", "reference": "Paris, France"}]
    >>> score(rows, ["token_f1"])["token_f1"].round(2).tolist()
    [0.67]
    """
    _check_options(options)
    table, numbers, left_out = _prepare(rows, metrics, columns, labels)
    if left_out:
        warnings.warn(left_out, stacklevel=2)
    existing = _existing_columns(table)
    needed = _labels_needed(numbers)
    given = ", ".join(label for label in needed if label in existing)
    if labels is not None and given:
        what = f"the rows have labels already, which are used: {given}"
        warnings.warn(f"{what}; drop that column to have them made", stacklevel=2)
    source = _source(labels, checker, cassette, options)
    facts = _label(table, _labels_to_make(numbers, existing), source, cassette)
    table = _with_numbers(table, numbers, quiet=options.get("progress") is False)
    table = _with_reasons(table, numbers)
    if "judge_scale" in table:  # as text, which any file can hold
        table["judge_scale"] = table["judge_scale"].map(str, na_action="ignore")
    if needed:
        table["labelled_by"] = _in_words(facts)
    facts["sources"] = {column: METRICS[name].source for column, (name, _) in numbers.items()}
    facts["repairs"] = table.attrs.pop("repairs")
    scores = Scores(table)
    scores.facts = facts
    return scores


def _check_options(options: Mapping[str, Any]) -> None:
    own = inspect.signature(score).parameters
    check_known("option", options, sorted({*own, *AskOptions.__annotations__, "joint"}))


def _label(
    table: pd.DataFrame, to_make: Sequence[str], source: _LabelSource, cassette: Any
) -> dict[str, Any]:
    """Make labels, in place, after their plan is printed; return the facts of who made them."""
    by_model = _by_model(to_make)
    if by_model and source.options.get("progress") is not False:
        print(_plan(table, to_make, source, _existing(cassette)), file=sys.stderr)
    for label in to_make:
        table[label] = _labelled(label, table, source, cassette)
    makers: dict[str, Any] = {}
    if by_model:
        facts = Endpoint.identified(source.model, _existing(cassette), ask_server=False)
        makers["model"] = facts.to_dict()
    if source.checker is not None and "claim_labels" in to_make:
        makers["checker"] = repr(source.checker)
    return makers


def _labelled(
    label: str,
    table: pd.DataFrame,
    source: _LabelSource,
    cassette: Any,
) -> pd.Series:
    """Make a label of the rows that have all it is made from; None for the others."""
    complete = _complete_rows(label, table)
    labels: Sequence[Any] = ()
    if len(complete):
        labels = LABELS[label].make(complete, source, cassette)
    cells = [_plain(cell) for cell in labels]
    column = pd.Series(cells, complete.index, dtype=object)
    column = column.reindex(table.index)
    return column.where(column.notna(), None)


def _plain(cell: Any) -> Any:
    """Return a label as lists, mappings, texts and numbers, which any file can hold.

    What was written so is read again: from CSV it comes as text, from Parquet in arrays.
    """
    if isinstance(cell, str) and cell.startswith(("{", "[", "(")):
        return ast.literal_eval(cell)
    if isinstance(cell, RagResult):
        record = cell.to_dict()
        for name in cell.missing():
            record[CHECKS[name]] = getattr(cell, name)
        return _plain(record)
    if isinstance(cell, Mapping):
        return {key: _plain(value) for key, value in cell.items()}
    if isinstance(cell, list | tuple | np.ndarray):
        return [_plain(value) for value in cell]
    return cell


def _with_numbers(table: pd.DataFrame, numbers: Numbers, *, quiet: bool) -> pd.DataFrame:
    """Add a column per number, in place of one of its name that was there."""
    names = _metrics_of(numbers)
    total = len(table) * len(names)
    with tqdm(total=total, desc="metrics", delay=_BAR_AFTER_S, leave=False, disable=quiet) as bar:
        values = {name: _values(name, table, bar) for name in names}
    for column, (name, key) in numbers.items():
        table = table.drop(columns=column, errors="ignore")
        table[column] = _column(METRICS[name], key, values[name])
    return table


def _with_reasons(table: pd.DataFrame, numbers: Numbers) -> pd.DataFrame:
    """Add which numbers were computed, how many are NaN, and why."""
    table["numbers"] = "; ".join(numbers)
    table["unscored"] = table[[*numbers]].isna().sum(axis=1)
    table["reason"] = ""
    is_unscored = table["unscored"] > 0
    rows = table[is_unscored].to_dict("records")
    table.loc[is_unscored, "reason"] = [_reason(row, numbers) for row in rows]
    return table


def _column(metric: Metric, key: str, values: pd.Series) -> pd.Series:
    """Return the column of one number of a metric."""
    if metric.names:
        values = values.map(lambda cell: _number(cell, key))
    column = values.astype(float)
    if metric.says_yes_or_no:
        column = column.astype("boolean")
    return column


def _number(cell: Any, key: str) -> float:
    """Return one of the numbers of a metric that has several."""
    if cell is None or isinstance(cell, float):
        return math.nan
    return cell.get(key, math.nan)


def _in_words(makers: Mapping[str, Any]) -> str:
    words = []
    if "model" in makers:
        words.append("{provider}:{model}".format(**makers["model"]))
    if "checker" in makers:
        words.append(f"claims by {makers['checker']}")
    return "; ".join(words) or "given"


def label_items(
    rows: Any, *, scale: Mapping[int, str] | None = None, columns: Mapping[str, str] | None = None
) -> list[LabelItem]:
    """Make of each row an item for the labelling form: question, true answer, what supports it, and
    the answer. Nothing says which system wrote it.

    Parameters
    ----------
    rows, columns : as for `score`: the folder of a run, a data frame, a list of dicts, a file.
    scale : grade -> meaning, of a judge's prompt (`ragbench.prompts.prompt_scale`); default the
        scale in the rows (``judge_scale``), else the thesis's five.

    Returns
    -------
    An item per row with an answer; a warning counts the others. Its id is the row's column
    ``item``, else the question's id and the system. `with_labels` puts the labels back.

    Source: thesis §2.4 (what its judge was shown).

    >>> rows = [{"question": "Who?", "reference": "Ada", "answer": "Ada Ruck"}]
    >>> rb.label_items(rows)[0].texts["True answer"]
    'Ada'
    """
    table = _read_rows(rows, columns)
    missing = [name for name in ("question", "answer") if name not in table]
    if missing:
        raise DataError(
            f"rows without {' and '.join(missing)}",
            "a question and an answer in each row",
            f"name yours: columns={{{missing[0]!r}: ...}}",
        )
    scales = np.empty(len(table), dtype=object)
    for own, places in rows_by_scale(table):
        scales[places] = scale or own
    items = []
    for name, own, row in zip(_item_names(table), scales, table.to_dict("records"), strict=True):
        if not is_missing(row["answer"]):
            items.append(LabelItem(name, _texts(row), labels=_labels_of(own)))
    if len(items) < len(table):
        without = len(table) - len(items)
        warnings.warn(f"{without} of {len(table)} rows have no answer to label", stacklevel=2)
    return items


def _labels_of(scale: Mapping[int, str]) -> dict[str, str]:
    """Return the labels of a scale; none of the thesis's, which the form has."""
    if scale == GRADES:
        return {}
    return {str(grade): meaning for grade, meaning in scale.items()}


def _texts(row: Mapping[Any, Any]) -> dict[str, str]:
    """Return what the form shows of a row."""
    columns = {
        "Question": "question",
        "True answer": "reference",
        "Supporting facts": "references",
        "Answer to be graded": "answer",
    }
    texts = {}
    for heading, column in columns.items():
        cell = row.get(column)
        if isinstance(cell, list):
            cell = "\n".join(map(str, cell))
        if not is_missing(cell) and cell != "":
            texts[heading] = str(cell)
    return {**texts, "Answer to be graded": row["answer"] or "(empty)"}


def _item_names(table: pd.DataFrame) -> list[str]:
    if "item" in table:
        return table["item"].astype(str).tolist()
    names = table["question_id"].astype(str)
    if "system" in table:
        names = names + "/" + table["system"].astype(str)
    return names.tolist()


def with_labels(
    rows: Any,
    labels: str | Path | pd.DataFrame,
    kind: str = "grade",
    *,
    columns: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Add people's labels to the rows that `label_items` made items of.

    Parameters
    ----------
    rows, columns : as for `label_items`.
    labels : a label file, a folder of them, or what `load_labels` returns.
    kind : "grade" or "rubric".

    Returns
    -------
    The rows, with a column per question and person, such as ``grade_me`` (numbers; NaN without a
    label). A warning counts labels of no row; DataError where no label belongs to a row.

    >>> rows = [{"question": "Who?", "reference": "Ada", "answer": "Ada Ruck"}]
    >>> said = {"kind": "grade", "aspect": "grade", "label": "5", "annotator": "me"}
    >>> rb.append_labels("labels.csv", [said | {"item": rb.label_items(rows)[0].id}])
    >>> rb.with_labels(rows, "labels.csv").columns.tolist()
    ['question', 'reference', 'answer', 'question_id', 'grade_me']
    """
    table = _read_rows(rows, columns)
    if not isinstance(labels, pd.DataFrame):
        labels = load_labels(labels)
    labels = current(labels, kind)
    names = pd.Series(_item_names(table), table.index)
    strange = labels.loc[~labels["item"].isin(names), "item"]
    if len(strange) == len(labels):
        raise DataError(
            f"none of {len(labels)} labels of kind {kind} belongs to a row",
            f"items such as {names.iloc[0]!r}" if len(names) else "rows",
            "give the rows that label_items made the items of",
        )
    if len(strange):
        words = f"{len(strange)} labels belong to no row, such as that of {strange.iloc[0]!r}"
        warnings.warn(words, stacklevel=2)
    for (aspect, person), own in labels.groupby(["aspect", "annotator"], sort=False):
        given = names.map(own.set_index("item")["label"])
        table[f"{aspect}_{person}"] = pd.to_numeric(given)
    return table


def plan_score(
    rows: Any,
    metrics: Sequence[str],
    labels: Any = None,
    columns: Mapping[str, str] | None = None,
    cassette: Any = None,
    *,
    checker: Any = None,
    concurrency: int | None = None,
    recorded: bool = True,
) -> Plan:
    """Say about what `score` will ask a chat model: calls and hours. Parameters are as there.

    ``recorded`` : whether replies on the cassette may be of these rows; not of answers that are
    still to be made.

    >>> rows = [{"answer": "Paris", "reference": "Paris, France"}]
    >>> rb.plan_score(rows, ["token_f1"]).total.calls
    0
    """
    table, numbers, _ = _prepare(rows, metrics, columns, labels)
    to_make = _labels_to_make(numbers, _existing_columns(table))
    source = _source(labels, checker, cassette, {"concurrency": concurrency, "progress": False})
    tape = _existing(cassette)
    planned = _plan(table, to_make, source, tape, recorded)
    if tape is not None and planned.total.cached and _are_recorded(table, to_make, source, tape):
        return planned.all_cached()
    return planned


def _existing(cassette: Any) -> Cassette | None:
    """Return a cassette, given it or its file; None without one."""
    if not isinstance(cassette, str | Path):
        return cassette
    return Cassette(cassette) if Path(cassette).is_file() else None


def _are_recorded(
    table: pd.DataFrame, to_make: Sequence[str], source: _LabelSource, cassette: Cassette
) -> bool:
    """Say whether all that the labels ask is on the cassette: calls are counted before it is known
    which texts have how many claims.
    """
    if source.checker is not None:  # it has a cassette of its own
        return False
    with Cassette(cassette.path, "replay") as tape:
        try:
            for label in to_make:
                table[label] = _labelled(label, table, source, tape)
        except ModelError:
            return False
    return True


def metric_table() -> pd.DataFrame:
    """List the numbers there are: metric, columns needed, source, range, and the labels needed,
    with who makes them.

    >>> rb.metric_table().columns.tolist()
    ['number', 'metric', 'needs', 'source', 'range', 'labels']
    """
    lower = Metric.where_lower_is_better()
    rows = []
    for column, (name, _) in Metric.find().items():
        metric = METRICS[name]
        needed = _needed(name, lambda _: False)
        labels = ", ".join(need for need in metric.needs if need in LABELS)
        if labels:
            labels += ": a model" if _by_model(needed) else ": no model"
        ends = "{:g} to {:g}".format(*metric.range)
        row = {
            "number": column,
            "metric": name,
            "needs": ", ".join(need for need in needed if need not in LABELS),
            "source": metric.source,
            "range": f"{ends}, lower is better" if column in lower else ends,
            "labels": labels or "none",
        }
        rows.append(row)
    return pd.DataFrame(rows)


# Existing columns, and what is missing


def _prepare(
    rows: Any, metrics: Sequence[str], columns: Mapping[str, str] | None, labels: Any
) -> tuple[pd.DataFrame, Numbers, str]:
    """Return the rows in our names, the numbers that can be computed, and in words what is left
    out.
    """
    numbers = Metric.find(metrics)
    table = _read_rows(rows, columns)
    if "judge_scale" in table and table["judge_scale"].notna().any():
        numbers = _of_scales(numbers, table)
    try:
        computed, left_out = _without_labels(numbers, _existing_columns(table), labels)
    except ConfigError:
        # a missing column comes first: a model alone would not help
        _require(table, _metrics_of(numbers))
        raise
    _require(table, _metrics_of(computed))
    return table, computed, left_out


def _of_scales(numbers: Numbers, table: pd.DataFrame) -> Numbers:
    """Let the shares of grades be of the grades that the judges of the rows could give, unless
    single ones were asked for.
    """
    if not numbers.keys() >= {*METRICS["grade"].names}:
        return numbers
    numbers_of_rows = {}
    for column, (name, key) in numbers.items():
        if name != "grade":
            numbers_of_rows[column] = (name, key)
            continue
        for scale, _ in rows_by_scale(table):
            for share in grade_metrics(scale)["grade"].names:
                numbers_of_rows[share] = ("grade", share)
    return numbers_of_rows


def _read_rows(rows: Any, columns: Mapping[str, str] | None) -> pd.DataFrame:
    if isinstance(rows, str | Path):
        path = Path(rows).expanduser()
        if path.name == ROWS and (path.parent / MANIFEST).is_file():
            rows = load_rows(path.parent)
        elif not path.suffix and not path.is_file():
            rows = load_rows(rows)
    if isinstance(rows, pd.DataFrame):
        is_of_run = {"hits", "zero_hits"} <= set(rows)
        if is_of_run and "system" not in rows:
            rows = answers_of(rows)
    table = read_answers(rows, columns)
    if "chunks" in table:
        table["context"] = _contexts(table)
    for label in table.columns.intersection([*LABELS, "nuggets"]):
        cells = [_plain(cell) for cell in table[label]]
        table[label] = pd.Series(cells, table.index, dtype=object)
    return table


def _contexts(table: pd.DataFrame) -> pd.Series:
    """Return the texts that were read: as they are, else the chunks joined; None for unknown."""
    cells = [None if is_missing(cell) else " ".join(cell) for cell in table["chunks"]]
    # objects: strings of pyarrow hold no half of a surrogate pair
    joined = pd.Series(cells, table.index, dtype=object)
    contexts = table.get("context", joined)
    # in a CSV a context that is not known is empty too
    is_known = contexts.ne("") | joined.notna()
    if {"hits", "N"} <= {*table}:  # of a run: no context without documents
        is_known &= pd.to_numeric(table["N"], errors="coerce").ne(0)
    return contexts.where(is_known, None)


def _metrics_of(numbers: Numbers) -> list[str]:
    names = [name for name, _ in numbers.values()]
    return list(dict.fromkeys(names))


def _needed(metric: str, is_there: Callable[[str], bool]) -> dict[str, str]:
    """Return column or label -> the label it is for, of all that a metric needs and that is not
    there; a label after what it is made from.
    """
    return dict(_needs(METRICS[metric].needs, is_there, ""))


def _needs(
    needs: Sequence[str], is_there: Callable[[str], bool], label: str
) -> Iterator[tuple[str, str]]:
    for need in needs:
        if is_there(need):
            continue
        if need in LABELS:
            yield from _needs(LABELS[need].needs, is_there, need)
        yield need, label


def _existing_columns(table: pd.DataFrame) -> set[str]:
    has_a_value = table.notna().any()
    return set(table.columns[has_a_value])


def _missing_columns(metric: str, existing: Collection[str]) -> dict[str, str]:
    """Return the columns that a metric needs beside existing ones, and the label each is for."""
    needed = _needed(metric, existing.__contains__)
    return {column: label for column, label in needed.items() if column not in LABELS}


def _require(table: pd.DataFrame, metrics: Sequence[str]) -> None:
    """Say all that is missing, before anything runs."""
    existing = _existing_columns(table)
    users: dict[str, list[str]] = defaultdict(list)  # of a column that is missing
    for name in metrics:
        for column, label in _missing_columns(name, existing).items():
            users[column].append(f"{name!r} (for its {label})" if label else repr(name))
    if not users:
        return
    lines = []
    for column, of in users.items():
        what = "nothing in the column" if column in table else "no column"
        lines.append(f"{what} {column!r}, needed by {', '.join(of)}")
    there = [str(column) for column in table if column in existing - {"question_id"}]
    lines.append(f"there is {', '.join(there)}")
    computable = [name for name in METRICS if not _missing_columns(name, existing)]
    first, *_ = users
    raise DataError(
        got="\n  ".join(lines),
        expected="a column of that name",
        do=f"add it, or name yours: columns={{{first!r}: ...}}; what can be computed as it is: "
        f"{', '.join(computable) or 'none'}",
    )


def _complete_rows(label: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have all a label is made from; a plan leaves out what is still to be
    made.
    """
    present = [need for need in LABELS[label].needs if need in table]
    if "reference" in present and any(isinstance(cell, list) for cell in table["reference"]):
        raise DataError(
            got="several true answers in 'reference'",
            expected=f"one text, for the {label}",
            do="name one: columns={'reference': ...}; exact_match, token_f1, bleu and rouge_l take "
            "several",
        )
    return _complete(table, present)


def _complete(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows in which no cell of these columns is missing."""
    missing = table[list(columns)].map(is_missing)
    return table[~missing.any(axis=1)]


def _values(name: str, table: pd.DataFrame, bar: tqdm) -> pd.Series:
    """Return a metric's value of every row; NaN for one that lacks something.

    A metric of grades takes the scale of each row's judge, where the rows name it.
    """
    if name not in ("fully_right", "grade") or "judge_scale" not in table:
        return _computed(METRICS[name], table, bar)
    values = pd.Series(math.nan, table.index, dtype=object)
    for scale, places in rows_by_scale(table):
        metric = METRICS[name]
        if scale is not GRADES:
            metric = grade_metrics(scale)[name]
        values[places] = _computed(metric, table[places], bar)
    return values


def _computed(metric: Metric, table: pd.DataFrame, bar: tqdm) -> pd.Series:
    needs = list(metric.needs)
    complete = _complete(table, needs)
    cells = complete[needs]
    for setting, default in metric.settings.items():
        column = complete.get(setting, pd.Series(default, complete.index))
        cells = cells.assign(**{setting: column.where(column.notna(), default)})
    values = []
    if metric.all_rows:
        columns = [cells[need].tolist() for need in cells]
        values += _value(metric, "all rows", columns)
    else:
        names = table.loc[complete.index, "question_id"]
        for name, row in zip(names, cells.itertuples(index=False), strict=True):
            values.append(_value(metric, f"question {name!r}", row))
            bar.update()
    return pd.Series(values, complete.index, dtype=object).reindex(table.index)


def _value(metric: Metric, where: str, cells: Iterable[Any]) -> Any:
    """Compute a metric; an error says of which row, and which cells it cannot take."""
    try:
        return metric.function(*cells)
    except RagbenchError as error:
        raise type(error)(f"{where}: {error.got}", error.expected, error.do) from None
    except Exception as error:
        shown = dict(zip((*metric.needs, *metric.settings), cells, strict=True))
        raise DataError(
            f"{where}: no number of {shown!r:.200} ({type(error).__name__}: {error})",
            "cells as docs/metrics.md says, and a function that takes them",
            "correct that row, or leave the cell empty",
        ) from error


def _reason(row: Mapping[Any, Any], numbers: Numbers) -> str:
    columns: dict[str, list[str]] = defaultdict(list)  # by the reason
    for column, (name, _) in numbers.items():
        if is_missing(row[column]):
            why = _why(row, name)
            columns[why].append(column)
    parts = [f"{why}: {', '.join(names)}" for why, names in columns.items()]
    return "; ".join(parts)


def _why(row: Mapping[Any, Any], name: str) -> str:
    """Say why a metric is undefined: the column, or the label, that the row lacks."""
    lacking = _needed(name, lambda need: need not in row or not is_missing(row[need]))
    for need in lacking:
        if need not in LABELS:
            return f"no {need}"
    for label in lacking:
        return f"{label} could not be read"
    if name == "ragchecker" and RagResult.of(row["claim_labels"]).missing():
        return "a label could not be read"
    return "undefined"


# Who labels


def check_metrics(metrics: Sequence[str], labels: Any, are_answered: bool, are_graded: bool) -> str:
    """Return in words which metrics of a run will be left out, and what they need.

    Raises ConfigError where that leaves none, and for metrics of answers where nobody gives any.
    """
    existing = ["grade"] if are_graded else []
    numbers, left_out = _without_labels(Metric.find(metrics), existing, labels)
    for column, (name, _) in numbers.items():
        if not are_answered and "answer" in _missing_columns(name, ()):
            raise ConfigError(
                f"metrics: {column!r} is of answers, and there is no generator",
                "a generator",
                f"{TWO_WAYS}; or take that metric out",
            )
    return left_out


def _without_labels(
    numbers: Numbers, existing: Collection[str], labels: Any
) -> tuple[Numbers, str]:
    """Return the numbers that can be computed beside existing columns, and in words what the others
    need.

    ConfigError where that leaves none: all need labels, and no model is named.
    """
    if labels is not None:
        return numbers, ""
    lacking: dict[str, list[str]] = defaultdict(list)  # numbers by the labels that they need
    computed = {}
    for column, number in numbers.items():
        to_make = _labels_to_make({column: number}, existing)
        by_model = ", ".join(_by_model(to_make))
        if by_model:
            lacking[by_model].append(column)
        else:
            computed[column] = number
    parts = [f"{', '.join(columns)} (needs {label})" for label, columns in lacking.items()]
    words = "; ".join(parts)
    if not computed:
        raise ConfigError(
            got=f"no model is named that labels: {words}",
            expected="a chat model, or the labels as columns of the rows",
            do=_WAYS_TO_LABELS,
        )
    if words:
        words = f"left out, since no model is named that labels: {words}; {_WAYS_TO_LABELS}"
    return computed, words


def _labels_to_make(numbers: Numbers, existing: Collection[str]) -> list[str]:
    """Return the labels to be made beside existing columns, each after what it is made from."""
    needed: dict[str, str] = {}
    for metric in _metrics_of(numbers):
        needed |= _needed(metric, existing.__contains__)
    return [name for name in needed if name in LABELS]


def _by_model(labels: Iterable[str]) -> list[str]:
    """Return those of the labels that a model is asked for."""
    return [label for label in labels if label in LABELS and LABELS[label].calls]


def _labels_needed(numbers: Numbers) -> list[str]:
    """Return the labels that metrics take, whether or not the rows have them."""
    needs: set[str] = set()
    for name in _metrics_of(numbers):
        needs.update(METRICS[name].needs)
    return [label for label in LABELS if label in needs]


def _source(
    labels: Any,
    checker: Any,
    cassette: Any,
    options: Mapping[str, Any],
) -> _LabelSource:
    if isinstance(checker, str):
        checker = ModelChecker(chat_model(checker), cassette=cassette)
    return _LabelSource(labels, checker, options)


def _plan(
    table: pd.DataFrame,
    to_make: Sequence[str],
    source: _LabelSource,
    cassette: Cassette | None,
    recorded: bool = True,
) -> Plan:
    calls: Counter[str] = Counter()
    for label in to_make:
        if count := LABELS[label].calls:
            calls += Counter(count(_complete_rows(label, table)))
    planned = Plan((), tuple(_joint_note(table, calls["claim check"])))
    checks = 0  # that a checker makes in place of the model
    if source.checker is not None:
        checks = calls.pop("claim check", 0)
    if calls:
        at_once = source.options.get("concurrency")
        known = None if recorded else 0
        planned += plan(calls, source.model, cassette, recorded=known, concurrency=at_once)
    if checks and isinstance(source.checker, ModelChecker):
        planned += plan({"claim check": checks}, source.checker.model, cassette)
    return planned


def _joint_note(table: pd.DataFrame, one_by_one: int) -> Iterator[str]:
    if one_by_one:
        results = _results(_complete_rows("claim_labels", table))
        jointly = ragchecker_calls(results, joint=True)["claim check"]
        yield (
            f"claim check: {one_by_one:,} calls with a claim a prompt, {jointly:,} with all claims "
            "of a text in one (joint=True)"
        )


# Labels: how each is made, and the calls that takes


def _results(rows: pd.DataFrame) -> list[RagResult]:
    """Return the rows as RAGChecker's records, an id each."""
    names = rows["question_id"].astype(str)
    if "system" in rows:
        names = names + " " + rows["system"].astype(str)
    if names.duplicated().any():
        count = names.groupby(names).cumcount() + 1
        names = names + " #" + count.astype(str)
    records = zip(names, rows.to_dict("records"), strict=True)
    return [RagResult.of_row(name, row) for name, row in records]


def _claim_labels(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> Sequence[Any]:
    options = {"checker": source.checker, "cassette": cassette, **source.options}
    return ragchecker_labels(source.model, _results(rows), **options)


def _keypoints(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> Sequence[Any]:
    """The key points of the true answer, where the rows have none."""
    texts = (rows["question"].tolist(), rows["reference"].tolist())
    return extract_keypoints(source.model, *texts, cassette=cassette, **source.options)


def _keypoint_verdicts(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> Sequence[Any]:
    return keypoint_verdicts(
        source.model,
        rows["question"].tolist(),
        rows["answer"].tolist(),
        rows["keypoints"].tolist(),
        cassette=cassette,
        **source.options,
    )


def grade_label(prompt: Prompt = PROMPT) -> LabelMethod:
    """Make the label ``grade`` of a grading prompt, whose grades stand in its header.

    ``LABELS["grade"] = grade_label("mine.txt")``, with `ragbench.metrics.table.grade_metrics`.
    """

    def make(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> list[Any]:
        questions = []
        answers = []
        for place, row in enumerate(rows.to_dict("records")):
            name = str(place)
            references = tuple(row["references"])
            questions.append(Question(name, row["question"], row["reference"], references))
            answers.append(Answer(name, row["answer"], ""))
        options = {"prompt": prompt, "cassette": cassette, **source.options}
        options.pop("joint", None)  # of claims
        grades = grade(source.model, questions, answers, **options)
        return [graded.value for graded in grades]

    return LabelMethod(
        ("question", "answer", "reference", "references"),
        make,
        lambda rows: {"grading": len(_different(rows, "question", "answer", "reference"))},
    )


def _abstained(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> list[Any]:
    """Grade 1 is an answer that gives no information."""
    grades = grade_numbers(rows["grade"])
    return [None if math.isnan(grade) else grade == 1 for grade in grades]


def _ragas(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> list[Any]:
    model = ModelRagas(source.model, cassette=cassette, **source.options)
    questions = rows["question"].tolist()
    answers = rows["answer"].tolist()
    contexts = rows["context"].tolist()
    scores = {
        "faithfulness": model.faithfulness(questions, answers, contexts),
        "answer_relevance": model.answer_relevance(questions, answers),
        "context_relevance": model.context_relevance(questions, contexts),
    }
    columns = {name: table["score"].to_numpy() for name, table in scores.items()}
    table = pd.DataFrame(columns)
    cells = table.astype(object).where(table.notna(), None)
    return cells.to_dict("records")


_KEYPOINTS = 4  # of a true answer whose key points are not known yet: three to five


def _keypoint_count(rows: pd.DataFrame) -> int:
    different = _different(rows, "question", "answer", "reference" if "reference" in rows else "")
    if "keypoints" not in rows:
        return _KEYPOINTS * len(different)
    return int(different["keypoints"].map(len).sum())


def _ragas_calls(rows: pd.DataFrame) -> dict[str, int]:
    """Count RAGAS's calls: equal prompts once, none for an empty text."""
    answered = rows[rows["answer"].ne("")]
    with_context = rows[rows["context"].ne("")]
    checked = _different(answered[answered["context"].ne("")], "question", "answer", "context")
    return {
        "statements": len(_different(answered, "question", "answer")),
        "questions": len(_different(answered, "answer")),
        "sentences": len(_different(with_context, "question", "context")),
        "verdicts": int(checked["answer"].map(claim_count).sum()),
    }


def _different(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return the first of the rows that are equal in these columns, as equal prompts are."""
    return rows.drop_duplicates(list(filter(None, columns)))


LABELS: dict[str, LabelMethod] = {
    "claim_labels": LabelMethod(
        ("question", "answer", "reference", "chunks"),
        _claim_labels,
        lambda rows: ragchecker_calls(_results(rows)),
    ),
    "keypoints": LabelMethod(
        ("question", "reference"),
        _keypoints,
        lambda rows: {"key points": len(_different(rows, "question", "reference"))},
    ),
    "keypoint_verdicts": LabelMethod(
        ("question", "answer", "keypoints"),
        _keypoint_verdicts,
        lambda rows: {"keypoints": _keypoint_count(rows)},
    ),
    "grade": grade_label(),
    "abstained": LabelMethod(("grade",), _abstained),
    "ragas": LabelMethod(
        ("question", "answer", "context"),
        _ragas,
        _ragas_calls,
    ),
}
