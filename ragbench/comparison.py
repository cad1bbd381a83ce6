"""Which of two systems is better, and how sure, in words and on a page.

Systems are compared in pairs over the same questions by `ragbench.stats.compare_scores`. Every
comparison has an interval and a p-value by one Student's t, corrected by Holm for all that were
made, wins, ties and losses, and the number of questions that would show the difference. Scores are
those of an experiment's rows, or of any table of `ragbench.score`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ragbench.metrics.table import Metric
from ragbench.stats import MISSING, interval_text, with_interval
from ragbench.stats.tables import compare_scores as compare_scores


def format_comparison(table: pd.DataFrame) -> pd.DataFrame:
    """Return what a page shows of a comparison: intervals in cells, whole questions.

    Where no question differs its difference says so.
    """
    differences = with_interval(table, "difference")
    differences = differences.mask(never_differ(table), "equal in every question")
    shown = pd.DataFrame(
        {
            "first": table["a"],
            "second": table["b"],
            "measure": table.get("measure"),
            "difference [95%]": differences,
            "p (Holm)": table["p_holm"].map(_p_value),
            "n": table["n"],
            "wins / ties / losses": _wins_ties_losses(table),
            "could show": table["detectable"].map(_difference),
        }
    )
    return shown.dropna(axis="columns", how="all")  # of one measure it needs no column


def never_differ(table: pd.DataFrame) -> pd.Series:
    """Mark the comparisons in which both have the same score in every question."""
    return table["n"].gt(0) & table["wins"].eq(0) & table["losses"].eq(0)


def _wins_ties_losses(table: pd.DataFrame) -> pd.Series:
    """Return "12 / 3 / 5" for each row: questions in which a is above, equal to, below b."""
    counts = table[["wins", "ties", "losses"]].astype(int).astype(str)
    return counts.agg(" / ".join, axis=1)


def may_be_first(table: pd.DataFrame) -> pd.DataFrame:
    """Say which of three or more systems may be the best: those that no other is shown to beat.

    Parameters
    ----------
    table : of `compare_scores`, or of `ragbench.compare` with a column measure; every pair of
        systems.

    Returns
    -------
    DataFrame: measure, system, may_be_first (boolean). A system is left out where another is
    better by a corrected p below 0.05, so equal systems are all among the first in 95 of 100 tables
    or more (``benchmarks/sim_intervals.py``, beside a bootstrap of ranks). Empty for a measure with
    fewer than three systems, or not every pair of them.
    """
    lower = Metric.where_lower_is_better()
    rows = []
    for measure, part in table.groupby("measure", sort=False):
        systems = list(dict.fromkeys([*part["a"], *part["b"]]))
        pairs = len(systems) * (len(systems) - 1) / 2
        if len(systems) < 3 or len(part) < pairs:
            continue
        is_shown = part["p_holm"] < 0.05
        a_is_better = (part["difference"] > 0) != (measure in lower)
        beaten = {*part["b"][is_shown & a_is_better], *part["a"][is_shown & ~a_is_better]}
        rows += [(measure, system, system not in beaten) for system in systems]
    return pd.DataFrame(rows, columns=["measure", "system", "may_be_first"])


def _difference(value: float) -> str:
    if np.isfinite(value):
        return f"{value:.3f}"
    return MISSING


def _p_value(p: float) -> str:
    if np.isnan(p):
        return MISSING
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}"


def conclusions(table: pd.DataFrame) -> list[str]:
    """Say each comparison of a table of `compare_scores` in a sentence, by its corrected p.

    What is significant at 0.05 is said as "higher than", or "lower than" for a measure of which
    less is better. Else the smallest difference is named that as many questions would show with a
    chance of 0.8, or that too few questions differ for any p below 0.05. Of three or more systems
    the last sentences say which `may_be_first`.
    """
    lower = Metric.where_lower_is_better()
    sentences = []
    for row in table.to_dict("records"):
        measure = row["measure"]
        name = measure
        if measure in lower:
            name += " (lower is better)"
        sentences.append(f"{name}: {_verdict(row, less=measure in lower)}")
    first = may_be_first(table).query("may_be_first")
    for measure, systems in first.groupby("measure", sort=False)["system"]:
        sentences.append(f"{measure}: may be the best: {', '.join(systems)}.")
    return sentences


def _verdict(row: Mapping[Any, Any], *, less: bool) -> str:
    """Say which system is better, or what difference would have been shown."""
    interval = interval_text(row["difference"], row["low"], row["high"], "+.3f")
    if np.isnan(row["p_holm"]):
        return f"{row['a']} and {row['b']}: {interval}; {_asked(row)} are too few to test."
    result = f"{interval}, p = {row['p_holm']:.2g} after Holm"
    if row["p_holm"] >= 0.05:
        return _nothing_shown(row, result)
    systems = [row["a"], row["b"]]
    if (row["difference"] < 0) != less:
        systems.reverse()
    direction = "lower" if less else "higher"
    return f"{systems[0]} is {direction} than {systems[1]}: {result}."


def _asked(row: Mapping[Any, Any]) -> str:
    questions = f"{row['n']} questions"
    if row.get("clusters"):
        questions += f" in {row['clusters']} clusters"
    return questions


def _nothing_shown(row: Mapping[Any, Any], result: str) -> str:
    """Say what difference as many questions would have shown."""
    differ = row["wins"] + row["losses"]
    if not differ:
        return f"{row['a']} and {row['b']} are equal in all {_asked(row)}."
    shown = f"{_asked(row)} were asked"
    if row["smallest p"] >= 0.05:
        shown = f"{differ} of {_asked(row)} differ, so p is at least {row['smallest p']:.2g}"
    elif np.isfinite(row["detectable"]):
        shown = f"{_asked(row)} would show one of {row['detectable']:.3f}"
    return f"no difference shown between {row['a']} and {row['b']}: {result}; {shown}."
