"""How far labels agree: those of two people, and those of a judge with a person's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError
from ragbench.labelling.people import (
    KINDS,
    Label,
    LabelKind,
    by_annotator,
    current,
    is_label_file,
    load_labels,
    ranks_of,
)
from ragbench.stats import (
    ConfusionMatrix,
    Interval,
    annotator_agreement,
    binomial_ci,
    bootstrap_ci,
    confusion_matrix,
    kappa,
    ppi_mean,
)

# Two people: raw agreement, Cohen's kappa, and for ranks Kendall's tau-b

_NAN = float("nan")
# Columns that not every kind of labels has, in their order
_UNDEFINED = dict.fromkeys(("within_one", "kappa", "kappa_low", "kappa_high", "weighted_kappa", "tau_b"), _NAN)
_UNDEFINED["undefined"] = 0


def agreement(a: Iterable[Label], b: Iterable[Label], *, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Compare two annotators' labels of one kind.

    Parameters
    ----------
    a, b : rows of one person each, in order (what holds is found by `ragbench.labelling.people.current`).
    resamples, seed : of kappa's bootstrap interval; 0 resamples for none.

    Returns
    -------
    DataFrame, one row per aspect (keypoints: one for all of them). Columns:

    n, only_a, only_b : labels that both gave (of the same item and aspect), and that only one gave.
    agreement, agreement_low, agreement_high : share of equal labels; for ranks of equal orders. Exact interval.
    within_one : share at most one step apart, where labels have distances; else NaN.
    kappa, kappa_low, kappa_high : Cohen's, unweighted; NaN for ranks.
    weighted_kappa : with quadratic weights, where labels have distances; else NaN.
    tau_b : for ranks the mean over items of Kendall's tau-b; else NaN.
    undefined : items left out of that mean, because somebody put all candidates level.

    Source: Cohen (1960, 1968); Kendall (1945). RAGChecker, section 4.2 (within one step: 90.95%).
    """
    sides = [current(a), current(b)]
    people = [{label.annotator for label in side} for side in sides]
    kind = _kind([*sides[0], *sides[1]], max(map(len, people)) < 2 and not people[0] & people[1], "two people")
    first, second = ({(label.item, label.aspect): label.label for label in side} for side in sides)
    keys = dict.fromkeys([*first, *second])
    table = pd.DataFrame([(aspect, first.get((item, aspect)), second.get((item, aspect))) for item, aspect in keys])
    rows = []
    for aspect in kind.aspects or ("all keypoints",):
        part = table[table[0].eq(aspect) | (not kind.aspects)]
        pairs = list(part[[1, 2]].dropna().itertuples(index=False, name=None))
        row = {"aspect": aspect, "n": len(pairs), "only_a": part[2].isna().sum(), "only_b": part[1].isna().sum()}
        equal, measures = _labels(pairs, kind, resamples, seed) if kind.labels else _ranks(pairs)
        rows.append(row | binomial_ci(equal, len(pairs)).columns("agreement") | _UNDEFINED | measures)
    return pd.DataFrame(rows)


def partners(path: str | Path, kind: str, annotator: str) -> dict[str, list[Label]]:
    """Return other people's labels of one kind that hold, by annotator: in the file, and in label files beside it."""
    files = [file for file in sorted(Path(path).expanduser().parent.glob("*.csv")) if is_label_file(file)]
    people = by_annotator(current(load_labels(*files), kind))
    return {name: labels for name, labels in people.items() if name != annotator}


def _kind(labels: list[Label], fits: bool, people: str) -> LabelKind:
    kinds = {label.kind for label in labels}
    if len(kinds) != 1 or not fits:
        who = ", ".join(sorted({label.annotator for label in labels})) or "nobody"
        raise DataError(
            f"labels of kind {', '.join(sorted(kinds)) or 'none'} by {who}",
            f"one kind, {people}",
            "part the rows with current(labels, kind) and by_annotator(labels)",
        )
    return KINDS[kinds.pop()]


def _labels(pairs: list[tuple[str, str]], kind: LabelKind, resamples: int, seed: int) -> tuple[int, dict[str, float]]:
    """Count equal labels, and measure what is defined of them."""
    first, second = [p[0] for p in pairs], [p[1] for p in pairs]
    names = list(kind.labels)
    options: dict[str, Any] = {"labels": names, "resamples": resamples, "seed": seed}
    measures = kappa(first, second, **options).columns("kappa")
    if kind.ordered:
        measures["weighted_kappa"] = kappa(first, second, weights="quadratic", **options).estimate
        steps = np.array([[names.index(label) for label in pair] for pair in pairs], float).reshape(-1, 2)
        measures["within_one"] = annotator_agreement(steps).estimate
    return sum(a == b for a, b in pairs), measures


def _ranks(pairs: list[tuple[str, str]]) -> tuple[int, dict[str, float]]:
    """Count equal orders, and measure what is defined of them."""
    from scipy.stats import kendalltau

    same, taus = 0, []
    for pair in pairs:
        left, right = map(ranks_of, pair)
        if left.keys() != right.keys():
            raise DataError(f"ranks of {', '.join(left)} beside ranks of {', '.join(right)}", "the same candidates")
        same += left == right
        if len(set(left.values())) > 1 and len(set(right.values())) > 1:
            taus.append(kendalltau(list(left.values()), [right[name] for name in left]).statistic)
    return same, {"tau_b": float(np.mean(taus)) if taus else _NAN, "undefined": len(pairs) - len(taus)}


# A judge beside a person: agreement, and the judge's mean corrected by a few human labels


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge beside a person.

    Attributes
    ----------
    agreement, kappa : over the items that both labelled (kappa unweighted); ``confusion`` has the counts, rows human.
    mean : prediction-powered mean over all items: the judge's, corrected by where a person disagreed.
    human_only : the mean of the human labels alone, with a bootstrap interval: what the judge's labels save.
    judge_only : the judge's mean over all items it scored, uncorrected.
    n_both, n_human_only, n_judge_only : items by who labelled them. unscored : items for which the judge gave None.
    """

    agreement: Interval
    kappa: Interval
    confusion: ConfusionMatrix
    mean: Interval
    human_only: Interval
    judge_only: float
    n_both: int
    n_human_only: int
    n_judge_only: int
    unscored: int

    def __str__(self) -> str:
        counts = f"{self.n_both} both, {self.n_judge_only} judge only, {self.n_human_only} human only"
        return (
            f"items: {counts}, {self.unscored} unscored by the judge\n"
            f"agreement {self.agreement}\n"
            f"kappa     {self.kappa}\n"
            f"mean: judge alone {self.judge_only:.3f}; people alone {self.human_only}; corrected {self.mean}"
        )


def calibrate_judge(
    labels: Iterable[Label],
    judge: Mapping[str, Any],
    *,
    aspect: str | None = None,
    value: Callable[[str], float] | None = None,
    weight: float | Literal["tuned"] = 1.0,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Calibration:
    """Measure a judge with one person's labels, and correct its mean by them.

    Parameters
    ----------
    labels : one person's rows of one kind, from `ragbench.labelling.people.load_labels`.
    judge : item -> the judge's label on the same scale (``4`` or ``"4"``; None where unscored), for the labelled items
        and for all others the mean should be about. The labelled ones must be a random part of them.
    aspect : which one, for kinds with several.
    value : label -> number whose mean is wanted. Default: 1 for a grade of 5 and else 0 (the share of fully correct
        answers: grades are categories without a mean), the number itself for preferences and the rubric.
    weight, level : as for `ragbench.stats.ppi_mean`. resamples, seed : of the bootstrap intervals.

    Returns
    -------
    Calibration. ``mean`` is NaN throughout when no item has both labels, or none the judge's alone.

    Raises
    ------
    DataError for labels of several kinds or people, or a judge's label that the kind does not have.

    Source: thesis §1.2 (ARES: 150 to 300 human labels correct a judge); Angelopoulos et al. (2023).
    """
    kind, human = _human(labels, aspect)
    if value is None:
        value = (lambda label: float(label == "5")) if kind.name == "grade" else float
    scored = {item: str(label) for item, label in judge.items() if label is not None and label == label}
    for item, label in scored.items():
        if label not in kind.labels:
            raise DataError(
                f"the judge's label {label!r} of item {item!r}", f"one of {', '.join(kind.labels)}, or None"
            )
    both = [item for item in human if item in scored]
    rest = [item for item in scored if item not in human]
    truth, given = [human[item] for item in both], [scored[item] for item in both]
    mean = Interval(_NAN, _NAN, _NAN, len(both), 0, level)
    if both and rest:
        sides = ([value(x) for x in truth], [value(x) for x in given], [value(scored[item]) for item in rest])
        mean = ppi_mean(*sides, level=level, weight=weight)
    every = [value(label) for label in scored.values()]
    return Calibration(
        binomial_ci(sum(t == g for t, g in zip(truth, given, strict=True)), len(both), level),
        kappa(truth, given, labels=list(kind.labels), resamples=resamples, level=level, seed=seed),
        confusion_matrix(truth, given, list(kind.labels)),
        mean,
        bootstrap_ci([value(label) for label in human.values()], resamples=resamples, level=level, seed=seed),
        math.fsum(every) / len(every) if every else _NAN,
        len(both),
        len(human) - len(both),
        len(rest),
        len(judge) - len(scored),
    )


def _human(labels: Iterable[Label], aspect: str | None) -> tuple[LabelKind, dict[str, str]]:
    held = current(labels)
    kind = _kind(held, len({label.annotator for label in held}) == 1, "one person")
    if not kind.labels or not kind.aspects:
        raise ConfigError(
            f"labels of kind {kind.name!r}", "grade, preference or rubric", "see ragbench.papers.rageval.quality"
        )
    aspect = aspect or (next(iter(kind.aspects)) if len(kind.aspects) == 1 else None)
    if aspect not in kind.aspects:
        raise ConfigError(f"aspect={aspect!r} of {kind.name}", f"one of {', '.join(kind.aspects)}", "choose one")
    return kind, {label.item: label.label for label in held if label.aspect == aspect}
