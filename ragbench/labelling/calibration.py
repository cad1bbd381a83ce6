"""What a judge's grades are worth, measured with a few human ones: agreement, and a corrected mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ragbench.errors import ConfigError, DataError
from ragbench.labelling.kinds import KINDS, Kind
from ragbench.labelling.store import Label, current
from ragbench.stats import ConfusionMatrix, Interval, binomial_ci, bootstrap_ci, confusion_matrix, kappa, ppi_mean


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
        lines = [
            f"items: {counts}, {self.unscored} unscored by the judge",
            f"agreement {self.agreement}",
            f"kappa     {self.kappa}",
            f"mean: judge alone {self.judge_only:.3f}; people alone {self.human_only}; corrected {self.mean}",
        ]
        return "\n".join(lines)


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
    labels : one person's rows of one kind, from `ragbench.labelling.load_labels`.
    judge : item -> the judge's label on the same scale (``4`` or ``"4"``; None where unscored), for the labelled items
        and for all others the mean should be about. The labelled ones must be a random part of them.
    aspect : which one, for kinds with several.
    value : label -> number whose mean is wanted. Default: 1 for a grade of 5 and else 0 (the share of fully correct
        answers: grades are categories without a mean), the number itself for preferences and the rubric.
    weight, level : as for `ragbench.stats.ppi_mean`.
    resamples, seed : of the bootstrap intervals.

    Returns
    -------
    Calibration. ``mean`` is NaN throughout when no item has both labels, or none the judge's alone.

    Raises
    ------
    DataError for labels of several kinds or people, or a judge's label that the kind does not have; ConfigError for an
    unknown aspect, a kind without numbers and no ``value``, or ranks.

    Source: thesis §1.2 (ARES: 150 to 300 human labels correct a judge); Angelopoulos et al. (2023).
    """
    kind, human = _human(labels, aspect)
    value = value or _value(kind)
    scored = {item: str(label) for item, label in judge.items() if label is not None and label == label}
    for item, label in scored.items():
        if label not in kind.labels:
            raise DataError(
                f"the judge's label {label!r} of item {item!r}", f"one of {', '.join(kind.labels)}, or None"
            )
    both = [item for item in human if item in scored]
    rest = [item for item in scored if item not in human]
    truth, given = [human[item] for item in both], [scored[item] for item in both]
    nan = float("nan")
    mean = Interval(nan, nan, nan, len(both), 0, level)
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
        math.fsum(every) / len(every) if every else nan,
        len(both),
        len(human) - len(both),
        len(rest),
        len(judge) - len(scored),
    )


def _human(labels: Iterable[Label], aspect: str | None) -> tuple[Kind, dict[str, str]]:
    held = current(labels)
    kinds, people = {label.kind for label in held}, {label.annotator for label in held}
    if len(kinds) != 1 or len(people) != 1:
        raise DataError(
            f"labels of kind {', '.join(sorted(kinds)) or 'none'} by {', '.join(sorted(people)) or 'nobody'}",
            "one kind, one person",
            "part the rows with current(labels, kind) and by_annotator(labels)",
        )
    kind = KINDS[kinds.pop()]
    if not kind.labels or not kind.aspects:
        raise ConfigError(
            f"labels of kind {kind.name!r}", "grade, preference or rubric", "see ragbench.papers.rageval.quality"
        )
    aspect = aspect or (next(iter(kind.aspects)) if len(kind.aspects) == 1 else None)
    if aspect not in kind.aspects:
        raise ConfigError(f"aspect={aspect!r} of {kind.name}", f"one of {', '.join(kind.aspects)}", "choose one")
    return kind, {label.item: label.label for label in held if label.aspect == aspect}


def _value(kind: Kind) -> Callable[[str], float]:
    return (lambda label: float(label == "5")) if kind.name == "grade" else float
