"""What a fit of the judge is worth: tables and the provenance card.

The protocol is RAGChecker's (section 4.2): score differences of pairs, mapped to [-2, 2], against every annotator's
label; intervals from resampling questions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.stats import correlation, preference_difference

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.judge.fit import FitReport

METHODS = ("pearson", "spearman")
_ORDER = ("judge", "judge, no question", "recorded", "judge + recorded")
LIMITS = (
    "English, long-form answers (median reference 118 words in RAGChecker's data); short factual answers were not "
    "among the labels.",
    "Fitted on preferences between two answers to one question: scores of different questions compare less surely.",
    "Sees words, numbers, names and topic, not entailment: a contradiction in the reference's own words scores high.",
    "Features and the candidate sets were designed with these pairs in view; weights, sets and strengths were chosen "
    "without the tested group.",
)


def _points(report: FitReport, criterion: str, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Repeat each pair per annotator: mapped differences, labels, question numbers."""
    labels = [p.labels[criterion] for p in report.pairs]
    times = [len(x) for x in labels]
    _, question = np.unique([f"{p.group}\n{p.question}" for p in report.pairs], return_inverse=True)
    mapped = preference_difference(np.zeros(len(differences)), differences)
    return np.repeat(mapped, times), np.concatenate(labels), np.repeat(question, times)


def table(report: FitReport) -> pd.DataFrame:
    """Correlations with people, x 100.

    Returns
    -------
    DataFrame with columns criterion, score, n, and for pearson and spearman the value and its 95% interval. ``judge``
    is nested; ``judge, no question`` is the same weights without the question; ``recorded`` is the other metric's own
    score; ``judge + recorded`` is nested with its scores as further features; ``annotators`` is one against the other,
    where every pair has two labels.
    """
    import pandas as pd

    rows = []
    for criterion, predicted in report.predictions.items():
        points = {name: _points(report, criterion, predicted[name]) for name in _ORDER if name in predicted}
        labels = [p.labels[criterion] for p in report.pairs]
        if all(len(x) == 2 for x in labels):
            first, second = np.array(labels).T
            points["annotators"] = (first, second, _points(report, criterion, first)[2][::2])
        for name, (x, y, question) in points.items():
            row: dict[str, Any] = {"criterion": criterion, "score": name, "n": len(x)}
            for method in METHODS:
                r = correlation(x, y, method, groups=question, resamples=report.resamples, seed=report.seed)  # type: ignore[arg-type]
                row |= {method: 100 * r.estimate, f"{method}_low": 100 * r.low, f"{method}_high": 100 * r.high}
            rows.append(row)
    return pd.DataFrame(rows)


def comparison(report: FitReport) -> pd.DataFrame:
    """The judge minus the recorded metric, x 100, on the same resampled questions.

    Returns
    -------
    DataFrame with columns criterion, method, difference, low, high (95% interval) and above: the share of resamples in
    which the judge is ahead. Empty without recorded scores.
    """
    import pandas as pd
    from scipy.stats import rankdata

    rows = []
    for criterion, predicted in report.predictions.items():
        if "recorded" not in predicted:
            continue
        ours, y, question = _points(report, criterion, predicted["judge"])
        theirs = _points(report, criterion, predicted["recorded"])[0]
        rng = np.random.default_rng(report.seed)
        members = [np.flatnonzero(question == q) for q in range(question.max() + 1)]
        draws: dict[str, list[float]] = {m: [] for m in METHODS}
        for b in range(report.resamples + 1):  # the first is the sample itself
            chosen = rng.integers(len(members), size=len(members)) if b else range(len(members))
            i = np.concatenate([members[q] for q in chosen])
            for method, form in (("pearson", np.asarray), ("spearman", rankdata)):
                r = np.corrcoef([form(ours[i]), form(theirs[i]), form(y[i])])
                draws[method].append(100 * float(r[0, 2] - r[1, 2]))
        for method, values in draws.items():
            sample = np.array(values[1:])
            low, high = np.percentile(sample, [2.5, 97.5]) if sample.size else (np.nan, np.nan)
            above = float((sample > 0).mean()) if sample.size else np.nan
            rows.append((criterion, method, values[0], low, high, above))
    return pd.DataFrame(rows, columns=["criterion", "method", "difference", "low", "high", "above"])


def card(report: FitReport, **more: Any) -> dict[str, Any]:
    """Provenance card: what was fitted on what, how it was measured, with which numbers, and where it ends."""
    numbers = {}
    for row in table(report).to_dict("records"):
        numbers[f"{row['criterion']}, {row['score']}"] = {
            m: [round(row[m], 2), round(row[f"{m}_low"], 2), round(row[f"{m}_high"], 2)] for m in METHODS
        }
    return {
        "pairs": len(report.pairs),
        "labels": {c: sum(len(p.labels[c]) for p in report.pairs) for c in report.coefficients},
        "groups": dict(Counter(p.group for p in report.pairs)),
        "folds": f"each of {len(report.groups)} groups left out in turn; every choice made inside the others (nested)",
        "chosen_in_folds": {c: {g: list(v) for g, v in x.items()} for c, x in report.choices.items()},
        "numbers_x100": numbers,
        "interval": f"95%, {report.resamples} bootstrap resamples of questions",
        "limits": list(LIMITS),
    } | more


def render(report: FitReport) -> str:
    """The report as text: both tables and the choices."""
    lines = [
        f"{len(report.pairs)} pairs, {len(report.groups)} groups; each number from fits without the pair's group",
        table(report).to_string(index=False, float_format="%.1f"),
    ]
    other = comparison(report)
    if len(other):
        lines += ["judge minus recorded:", other.to_string(index=False, float_format="%.2f")]
    for criterion, chosen in report.choices.items():
        counted = Counter(chosen.values()).most_common()
        lines.append(f"{criterion}: " + ", ".join(f"{f} features, strength {s} ({n} folds)" for (f, s), n in counted))
    return "\n".join(lines)
