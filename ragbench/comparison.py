"""Which of two systems is better, and how sure: an experiment's rows, compared in pairs over the same questions.

Every comparison has a paired permutation test, corrected by Holm for all that were made, an interval, and the number of
questions that would show the difference.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.experiment.rows import AXIS_COLUMNS
from ragbench.metrics.table import lower_is_better
from ragbench.records import Dataset
from ragbench.stats import PowerAnalysis, compare_pairs, interval_text, power_analysis

Key = tuple[str, str, str]
IR_SCORE, RIGHT = "IR score", "fully right"


def system_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the rows of an experiment (of one data set) into one table: a score per question, system and measure.

    Returns
    -------
    DataFrame in long form: question_id, system, N, measure, value. A system is its retriever, with the other axes that
    take several values ("BM25, k=5"). Measures are "IR score" (NaN without documents or references) and, where there
    are grades, "fully right" (grade 5: 1, else 0; NaN when ungraded).
    """
    if lacking := [name for name in (*AXIS_COLUMNS, "ir_score", "grade") if name not in rows]:
        do = "take ragbench.compare_scores for a table of scores, ragbench.stats.compare for any other"
        raise DataError(f"rows without the column {lacking[0]!r}", "rows of an experiment", do)
    if rows["data"].nunique() > 1:
        names = ", ".join(sorted(rows["data"].unique()))
        raise DataError(
            f"rows of the data sets {names}", "one data set", "compare within one: rows.query('data == ...')"
        )
    base = {"question_id": rows["question_id"], "system": system_names(rows), "N": rows["N"].astype(int)}
    parts = {IR_SCORE: rows["ir_score"].astype(float)}
    if rows["grade"].notna().any():
        parts[RIGHT] = rows["grade"].eq(5).astype(float).where(rows["grade"].notna()).astype(float)
    return pd.concat([pd.DataFrame({**base, "measure": m, "value": v}) for m, v in parts.items()], ignore_index=True)


def compare_systems(
    rows: pd.DataFrame,
    pairs: Sequence[Any] | None = None,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare systems over the same questions, in pairs, on every measure.

    Parameters
    ----------
    rows : from ``Experiment.run`` or ``load_rows``.
    pairs : ("BM25", "SIM"), or several such pairs; None: every pair. A system alone is compared at every N, "BM25@300"
        at this one; a system that has one N only ("LLM only") is compared with every N of the other. Where several
        chunkers or values of k were run, two retrievers are compared under each. ("BM25",), or None for rows of one
        retriever: its chunkers, values of k, or else of N, with each other.
    power, alpha : of the questions needed. seed : of the permutation test and the interval.

    Returns
    -------
    DataFrame, one row per pair and measure, named a, b, measure: as from `ragbench.stats.compare_pairs`. Comparisons
    without a question scored for both are left out.

    Raises ConfigError for a system that is not there, naming those that are; DataError when there is nothing to
    compare.
    """
    return compare_pairs(_comparable(rows, pairs), ("a", "b", "measure"), power=power, alpha=alpha, seed=seed)


def analyses(
    rows: pd.DataFrame, pairs: Sequence[Any] | None = None, *, power: float = 0.8, alpha: float = 0.05, seed: int = 0
) -> dict[Key, PowerAnalysis]:
    """Analyse the power of every comparison by itself, by (a, b, measure): what `compare_systems` has, and more."""
    scores = _comparable(rows, pairs)
    return {key: power_analysis(a, b, power=power, alpha=alpha, seed=seed) for key, (a, b) in scores.items()}


def _comparable(rows: pd.DataFrame, pairs: Sequence[Any] | None) -> dict[Key, tuple[np.ndarray, np.ndarray]]:
    scores = {key: (a, b) for key, (a, b) in paired_scores(rows, pairs).items() if not np.isnan(a - b).all()}
    if not scores:
        do = "give the questions references, or add a generator and a judge; rows['error'] says why a row failed"
        raise DataError("no pair of systems has a question scored for both", "scores of both", do)
    return scores


def paired_scores(rows: pd.DataFrame, pairs: Sequence[Any] | None = None) -> dict[Key, tuple[np.ndarray, np.ndarray]]:
    """Return what is compared, by (a, b, measure): two arrays of scores over the same questions, NaN where missing."""
    table = system_scores(rows)
    twice = table.duplicated(["measure", "system", "N", "question_id"])
    if twice.any():
        system = table.loc[twice, "system"].iloc[0]
        raise DataError(f"{system} answered a question twice", "one row per question and system", "drop one of them")
    wide = table.pivot(index="question_id", columns=["measure", "system", "N"], values="value")
    wide = wide.reindex(table["question_id"].unique())
    scores = {(measure, f"{system}@{n}"): wide[measure, system, n].to_numpy() for measure, system, n in wide}
    cells = list(dict.fromkeys(zip(table["system"], table["N"].tolist(), strict=True)))
    measures = table["measure"].unique().tolist()
    return {(a, b, m): (scores[m, a], scores[m, b]) for a, b in _matches(pairs, cells) for m in measures}


def printed(table: pd.DataFrame) -> pd.DataFrame:
    """Return what `ragbench.report.tables.table` prints of `compare_systems`: intervals in cells, whole questions."""
    from ragbench.report.tables import with_interval  # reports build on this module

    return pd.DataFrame(
        {
            "first": table["a"],
            "second": table["b"],
            "measure": table["measure"],
            "difference [95%]": with_interval(table, "difference"),
            "p (Holm)": [f"{value:.3f}" if value >= 0.001 else "< 0.001" for value in table["p_holm"]],
            "n": table["n"],
            "questions needed": [f"{n:,.0f}" if np.isfinite(n) else "unlimited" for n in table["needed_all"]],
        }
    )


def verdicts(table: pd.DataFrame, alpha: float = 0.05) -> list[str]:
    """Say each comparison of `compare_systems`, `compare_scores` or `stats.compare` in a sentence, by its corrected p.

    What is significant is said as "higher than", or "lower than" for a measure of which less is better.
    """
    said, lower = [], lower_is_better()
    for row in table.to_dict("records"):
        measure = row.get("measure")  # `ragbench.stats.compare` has one measure and no column of its name
        less = measure in lower
        better, worse = (row["a"], row["b"]) if (row["difference"] >= 0) != less else (row["b"], row["a"])
        gap = f"{interval_text(row['difference'], row['low'], row['high'], '+.3f')}, p = {row['p_holm']:.2g} after Holm"
        if row["p_holm"] < alpha:
            verdict = f"{better} is {'lower' if less else 'higher'} than {worse}: {gap}."
        else:
            needed = row["needed_all"]
            enough = f"about {needed:,.0f}" if np.isfinite(needed) else "no number"
            shown = f"no difference shown between {row['a']} and {row['b']}"
            verdict = f"{shown}: {gap}; {row['n']} questions were asked, {enough} would show it."
        said.append(f"{measure}{' (lower is better)' * less}: {verdict}" if measure else verdict)
    return said


def document_clusters(dataset: Dataset) -> dict[str, int]:
    """Number groups of questions that share relevant documents, directly or through others: question id -> group.

    A question without a relevant document (see `ragbench.data.relevance.judgements`) is a group of its own.
    """
    from ragbench.data.relevance import judgements

    judged = judgements(dataset)
    return linked_questions({question.id: judged.get(question.id, ()) for question in dataset.questions})


def linked_questions(documents: Mapping[str, Iterable[Hashable]]) -> dict[str, int]:
    """Number groups of questions by what names their documents, as `document_clusters` does."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    places = {name: i for i, name in enumerate(dict.fromkeys(d for own in documents.values() for d in own))}
    edges = [(i, len(documents) + places[d]) for i, own in enumerate(documents.values()) for d in own]
    a, b = np.array(edges, int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (a, b)), shape=(len(documents) + len(places),) * 2)
    groups = connected_components(graph, directed=False)[1]
    return dict(zip(documents, groups.tolist(), strict=False))  # the documents' own groups follow


def paired_labels(rows: pd.DataFrame, a: str, b: str, path: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Put grades of two systems side by side: the judge's of all questions, a person's of some.

    Parameters
    ----------
    rows : graded, with a column ``system``. Both answers to a question are to be labelled, or neither.
    path : a label file, as `ragbench.widgets.LabellingTool` writes it for grades; an item is named
        "question id/system". None: nothing is labelled yet.

    Returns
    -------
    DataFrame by question_id, of the questions with both grades: ``judge a``, ``judge b``, ``label a``, ``label b``
    (NaN without a label), ``stratum`` (by which systems the judge says are right), for `ragbench.stats.ppi_shares`,
    ``ppi_difference`` and ``label_next``.

    Raises DataError for a label file that cannot be read, or a label of no answer here.
    """
    from ragbench.labelling.people import current, load_labels

    said = {one.item: float(one.label) for one in current(load_labels(path), "grade")} if path is not None else {}
    known = set(rows["question_id"] + "/" + rows["system"])
    if strangers := [item for item in said if item not in known]:
        raise DataError(f"{path}: the item {strangers[0]!r} is no answer of this run", "question id/system", "mend it")
    wide = rows.pivot(index="question_id", columns="system", values="grade")[[a, b]].astype(float).dropna()
    table = wide.set_axis(["judge a", "judge b"], axis=1)
    for side, system in (("a", a), ("b", b)):
        table[f"label {side}"] = [said.get(f"{name}/{system}", np.nan) for name in table.index]
    half = table[["label a", "label b"]].isna().any(axis=1)
    table.loc[half, ["label a", "label b"]] = np.nan
    right = table[["judge a", "judge b"]].eq(5).astype(int).astype(str)
    return table.assign(stratum=right["judge a"] + right["judge b"])


def system_names(rows: pd.DataFrame) -> list[str]:
    """Name the system of each row: its retriever, and the other axes that take several values ("BM25, k=5")."""
    with_documents = [a for a in ("chunker", "k") if rows.loc[rows["N"] > 0, a].nunique() > 1]
    always = [a for a in ("generator", "judge") if rows[a].nunique() > 1]
    names = []
    for row in rows[["retriever", "N", *with_documents, *always]].to_dict("records"):
        axes = [*(with_documents if row["N"] else ()), *always]  # without documents there is no chunker and no k
        parts = [f"k={row[a]}" if a == "k" else str(row[a]) for a in axes]
        names.append(", ".join([str(row["retriever"]), *parts]))
    return names


def _matches(pairs: Sequence[Any] | None, cells: Sequence[tuple[str, int]]) -> list[tuple[str, str]]:
    """Resolve the systems asked for into pairs of ``system@N``."""
    depths: dict[str, list[int]] = {}
    for system, n in cells:
        depths.setdefault(system, []).append(n)
    if isinstance(pairs, str):
        raise ConfigError(f"COMPARE is {pairs!r}", "two systems", f'write ("{pairs}", "SIM"), or a list of such pairs')
    names = pairs is not None and all(isinstance(name, str) for name in pairs)
    if pairs is None or (names and len(pairs) == 1):
        alone = pairs[0] if pairs else None
        among = [s for s in depths if alone is None or s == alone or s.startswith(f"{alone}, ")]
        if len(among) < 2:
            name, budgets = _resolve(among[0] if among else str(alone), depths)
            among = [f"{name}@{n}" for n in budgets]
        pairs = list(combinations(among, 2))
    elif names and len(pairs) == 2:
        pairs = [pairs]
    matches: list[tuple[str, str]] = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2:
            raise ConfigError(f"COMPARE has {pair!r}", "two systems", 'write ("BM25", "SIM"), or a list of such pairs')
        for first, second in _alike(*pair, depths):
            (a, at_a), (b, at_b) = _resolve(first, depths), _resolve(second, depths)
            every = len(at_a) == 1 or len(at_b) == 1
            matches += [(f"{a}@{n}", f"{b}@{m}") for n in at_a for m in at_b if every or n == m]
        if any(a == b for a, b in matches):
            raise ConfigError(f"COMPARE pairs {pair[0]} with itself", "two different systems", "change one of the two")
    if not matches:
        raise DataError("nothing to compare", "at least two systems, or two budgets", "add a retriever, or an N")
    return list(dict.fromkeys(matches))


def _alike(a: str, b: str, depths: Mapping[str, list[int]]) -> list[tuple[str, str]]:
    """Pair two bare retrievers under each chunker, k, generator and judge that both were run with."""
    rests = [system.removeprefix(a) for system in depths if system.startswith(f"{a}, ")]
    return [(a + rest, b + rest) for rest in rests if b + rest in depths] or [(a, b)]


def _resolve(name: str, depths: Mapping[str, list[int]]) -> tuple[str, list[int]]:
    system, _, n = name.rpartition("@")
    if system in depths and n.isdigit() and int(n) in depths[system]:
        return system, [int(n)]
    if name not in depths:
        known = [*depths, *(f"{s}@{n}" for s, ns in depths.items() for n in ns)]
        raise unknown("system", name, known)
    return name, depths[name]
