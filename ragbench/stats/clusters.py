"""Which questions belong together: one rule for every interval, test, power and plan.

Questions about one topic or document are not independent: they are resampled and left out
as one cluster. `find_clusters` reads from the columns of rows which they are, and says so in words.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ragbench.data.relevance import judgements
from ragbench.errors import DataError, check_known
from ragbench.records import Dataset
from ragbench.stats.paired import holm

KNOWN = "known"  # the default: what the columns of the rows say
ENOUGH = 10  # clusters that are taken without a warning
FEWEST = 5  # clusters that have an interval, where the rows chose them
_WORDS = {
    "topic": "topic",
    "document": "document",
    "relevant": "shared documents of the evidence",
}


@dataclass(frozen=True, slots=True)
class Clusters:
    """The cluster of each row, and the rule that it was found by.

    ``labels`` have the index of the rows; None where each row counts as one. ``rule`` says in words
    which rule was taken. ``column`` is the column that the labels are of; empty where each question
    is on its own. ``named``: the column was named, or is called "cluster".
    """

    labels: pd.Series | None
    rule: str
    column: str = ""
    named: bool = False

    def of_questions(self, rows: pd.DataFrame) -> pd.Series | None:
        """Return the cluster of each question of some of the rows, by question_id; None where each
        question is on its own. DataError for a question in two clusters.
        """
        if self.labels is None or not self.column:
            return None
        labels = self.labels[rows.index].groupby(rows["question_id"].to_numpy(), sort=False)
        values = labels.nunique()
        if (values > 1).any():
            question = values.index[values > 1][0]
            raise DataError(
                f"question {str(question)!r} has {values[question]} values in the column "
                f"{self.column!r}",
                "one value for all rows of a question",
                "name a column such as topic, or add one",
            )
        return labels.first()

    def annotate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Take the intervals and p-values of too few clusters out of a table with low, high and
        clusters, and note the rule in ``attrs["clusters"]``.
        """
        rule = self.rule
        if self.column and not self.named and len(table):
            few = table["clusters"].between(1, FEWEST - 1)
            if few.any():
                without = "interval"
                table.loc[few, ["low", "high"]] = np.nan
                if "p" in table:
                    without = "interval and no p"
                    table.loc[few, "p"] = np.nan
                    table["p_holm"] = holm(table["p"])
                rule += f"; no {without} over fewer than {FEWEST}"
        table.attrs["clusters"] = rule
        if not table["low"].notna().any():
            table.attrs["intervals"] = []
        return table


def find_clusters(
    rows: pd.DataFrame, cluster: str | None = KNOWN, by: Sequence[str] = ()
) -> Clusters:
    """Find the cluster of each row.

    Parameters
    ----------
    cluster : a column; "relevant" for the questions that share a document of their evidence,
        directly or through others. None: each row counts as one. Default, "known": the column
        cluster. Else, in each data set, the coarsest of topic, document and shared documents of
        the evidence that has at least ten groups; where none has ten, the one with the most, with a
        warning, and then no interval and no p over fewer than five. Without any of them the
        question.
    by : columns that a table is divided by: within one topic, topics are no clusters.

    A question is named by data and question_id, else by its text; without both each row counts as
    one. A question without a value is a cluster of its own, with a warning. A column that has one
    value, or several for a question, says nothing and is passed over.

    >>> rows = pd.DataFrame({"question_id": range(40)})
    >>> find_clusters(rows.assign(topic=rows["question_id"] // 2)).rule
    '20 by topic'
    """
    if cluster is None:
        return Clusters(None, "none, each row counts as one")
    found = rows.reset_index(drop=True)
    if cluster == KNOWN:
        found = found.drop(columns=[name for name in by if name in ("cluster", *_WORDS)])
    questions = _number_questions(found)
    if questions is None and cluster == KNOWN:
        return Clusters(None, "none known, each row counts as one")
    if questions is None:
        questions = pd.Series(range(len(found)))
    if cluster == KNOWN and _has_one_value(found, questions, "cluster"):
        cluster = "cluster"
    if cluster == KNOWN:
        labels, rule, column = _known(found, questions)
    else:
        check_known("column", [cluster], rows.columns)
        column = cluster
        labels = found[cluster]
        if cluster == "relevant":
            labels = questions.map(_share_documents(found, questions))
        labels = _complete(labels, questions, cluster)
        rule = f"{labels.nunique()} by {_WORDS.get(cluster, f'the column {cluster!r}')}"
    return Clusters(labels.set_axis(rows.index), rule, column, named=cluster != KNOWN)


def _number_questions(rows: pd.DataFrame) -> pd.Series | None:
    """Number the questions of rows; NaN for a row without one, None where no column names them."""
    for name in ("question_id", "question"):
        if name in rows:
            columns = ["data", name] if "data" in rows else [name]
            numbers = rows.groupby(columns, sort=False).ngroup()
            return numbers.where(numbers >= 0)
    return None


def _has_one_value(rows: pd.DataFrame, questions: pd.Series, name: str) -> bool:
    return name in rows and rows[name].groupby(questions).nunique().max() == 1


def _complete(labels: pd.Series, questions: pd.Series, name: str) -> pd.Series:
    """Make each question without a label a cluster of its own, with a warning."""
    lacks = labels.isna()
    if not lacks.any():
        return labels
    warnings.warn(
        f"{questions[lacks].nunique()} of {questions.nunique()} questions have no {name!r}: each "
        "is a cluster of its own",
        stacklevel=4,
    )
    return labels.astype(object).where(~lacks, "question " + questions.astype(str))


def _known(rows: pd.DataFrame, questions: pd.Series) -> tuple[pd.Series, str, str]:
    """Find the clusters within each data set: their labels, the rule and the column, empty where
    each question is on its own.
    """
    if "data" not in rows or rows["data"].nunique() < 2:
        return _coarsest(rows, questions)
    labels = []
    rules = {}
    columns = []
    for data, part in rows.groupby("data", sort=False, dropna=False):
        of_part, rules[data], column = _coarsest(part, questions[part.index])
        labels.append(f"{data}/" + of_part.astype(str))
        columns.append(column)
    rule = "; ".join(f"{data}: {words}" for data, words in rules.items())
    return pd.concat(labels).sort_index(), rule, ", ".join(filter(None, dict.fromkeys(columns)))


def _coarsest(rows: pd.DataFrame, questions: pd.Series) -> tuple[pd.Series, str, str]:
    """Choose among what the columns of one data set say, as `find_clusters` does."""
    candidates = dict(_candidates(rows, questions))
    counts = {name: _count(labels, questions) for name, labels in candidates.items()}
    column = _choose({name: count for name, count in counts.items() if count > 1})
    count = counts.get(column, questions.nunique())
    coarser = [f"{n} by {_WORDS[name]}" for name, n in counts.items() if 1 < n < count]
    note = f"; {', '.join(coarser)} are too few to allow for" if coarser else ""
    if count == questions.nunique():
        return questions, f"each question is on its own{note}", ""
    if count < ENOUGH:
        _warn_of_few(f"{count} clusters, by {_WORDS[column]}", count)
    labels = _complete(candidates[column], questions, column)
    return labels, f"{count} by {_WORDS[column]}{note}", column


def _count(labels: pd.Series, questions: pd.Series) -> int:
    """Count groups; a question without a label is one."""
    return labels.nunique() + questions[labels.isna()].nunique()


def _choose(counts: Mapping[str, int]) -> str:
    """Return the column with the fewest groups of those with enough, else with the most."""
    enough = {name: count for name, count in counts.items() if count >= ENOUGH}
    if enough:
        return min(enough, key=enough.__getitem__)
    return max(counts, key=counts.__getitem__, default="")


def _warn_of_few(clusters: str, count: int) -> None:
    what = "an interval over so few is uncertain"
    if count < FEWEST:
        what = "too few for an interval"
    warnings.warn(f"only {clusters}: {what}; name a column that has more", stacklevel=6)


def _candidates(rows: pd.DataFrame, questions: pd.Series) -> Iterator[tuple[str, pd.Series]]:
    """Yield the cluster of each row by every column that may say it, NaN where it does not."""
    for name in ("topic", "document"):
        if _has_one_value(rows, questions, name):
            yield name, rows[name].groupby(questions).transform("first")
    if "relevant" in rows:
        shared = _share_documents(rows, questions)
        if shared:
            yield "relevant", questions.map(shared)


def _share_documents(rows: pd.DataFrame, questions: pd.Series) -> dict[Hashable, int]:
    """Number groups of questions that share relevant documents; nothing where none has any."""
    once = ~questions.duplicated() & questions.notna()
    documents: dict[Hashable, Iterable[Hashable]] = {}
    for question, names in zip(questions[once], rows["relevant"][once], strict=True):
        documents[question] = names if isinstance(names, list | dict) else ()
    if not any(documents.values()):
        return {}
    return _linked_questions(documents)


def document_clusters(dataset: Dataset) -> dict[Hashable, int]:
    """Number groups of questions that share relevant documents, directly or through others:
    question id -> group.

    A question without a relevant document (see `ragbench.data.relevance.judgements`) is a group of
    its own.
    """
    judged = judgements(dataset)
    return _linked_questions({q.id: judged.get(q.id, ()) for q in dataset.questions})


def _linked_questions(documents: Mapping[Hashable, Iterable[Hashable]]) -> dict[Hashable, int]:
    """Number groups of questions by what names their documents, as `document_clusters` does."""
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet()
    for question, own in documents.items():
        groups.add((question,))
        for document in own:
            node = ("document", document)
            groups.add(node)
            groups.merge((question,), node)
    numbers: dict[Hashable, int] = {}
    clusters = {}
    for question in documents:
        root = groups[(question,)]
        clusters[question] = numbers.setdefault(root, len(numbers))
    return clusters
