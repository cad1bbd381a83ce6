"""How far labels agree: those of two people, and those of a judge with a person's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.errors import ConfigError, DataError
from ragbench.labelling.people import KINDS, Label, LabelKind, by_annotator, current, is_label_file, load_labels
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

_NAN = float("nan")


def agreement(a: Iterable[Label], b: Iterable[Label], *, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Compare two annotators' labels of one kind.

    Parameters
    ----------
    a, b : rows of one person each (what holds is found by `ragbench.labelling.people.current`).
    resamples, seed : of kappa's bootstrap interval; 0 resamples for none.

    Returns
    -------
    DataFrame, one row per aspect (keypoints: one for all of them; ranks: one per criterion). Columns:

    n, only_a, only_b : labels that both gave (of the same item and aspect), and that only one gave.
    agreement, agreement_low, agreement_high : share of equal labels, with an exact interval.
    kappa, kappa_low, kappa_high : Cohen's, unweighted.
    weighted_kappa, within_one : with quadratic weights, and the share at most one step apart, where labels have
        distances; else NaN.

    Source: Cohen (1960, 1968). RAGChecker, section 4.2 (within one step: 90.95%).
    """
    sides = [current(a), current(b)]
    people = [{label.annotator for label in side} for side in sides]
    kind = _kind([*sides[0], *sides[1]], max(map(len, people)) < 2 and not people[0] & people[1], "two people")
    first, second = ({(label.item, label.aspect): label.label for label in side} for side in sides)
    keys = dict.fromkeys([*first, *second])
    table = pd.DataFrame([(aspect, first.get((item, aspect)), second.get((item, aspect))) for item, aspect in keys])
    about = table[0].str.partition("/")[0] if kind.each else table[0]
    rows = []
    for aspect in kind.aspects or ("all keypoints",):
        part = table[about.eq(aspect) | (not kind.aspects)]
        both = part.dropna()
        counts = {"n": len(both), "only_a": part[2].isna().sum(), "only_b": part[1].isna().sum()}
        shares = binomial_ci(int((both[1] == both[2]).sum()), len(both)).columns("agreement")
        options: dict[str, Any] = {"labels": list(kind.labels), "resamples": resamples, "seed": seed}
        row = {"aspect": aspect} | counts | shares | kappa(both[1], both[2], **options).columns("kappa")
        row |= {"weighted_kappa": _NAN, "within_one": _NAN}
        if kind.ordered:
            row["weighted_kappa"] = kappa(both[1], both[2], weights="quadratic", **options).estimate
            row["within_one"] = annotator_agreement(both[[1, 2]].to_numpy(float)).estimate
        rows.append(row)
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
    labels: Iterable[Label], judge: Mapping[str, Any], *, aspect: str | None = None, resamples: int = 2000
) -> Calibration:
    """Measure a judge with one person's labels, and correct its mean by them.

    Parameters
    ----------
    labels : one person's rows of one kind: grades (the mean is the share of grade 5, since grades are categories
        without a mean), preferences or rubric scores.
    judge : item -> the judge's label on the same scale (``4`` or ``"4"``; None where unscored), for the labelled items
        and for all others the mean should be about. The labelled ones must be a random part of them.
    aspect : which one, for kinds with several.

    Returns
    -------
    Calibration. ``mean`` is NaN throughout when no item has both labels, or none the judge's alone.

    Raises DataError for labels of several kinds or people, or a judge's label that the kind does not have.

    Source: thesis §1.2 (ARES: 150 to 300 human labels correct a judge); Angelopoulos et al. (2023).
    """
    held = current(labels)
    kind = _kind(held, len({label.annotator for label in held}) == 1, "one person")
    aspect = aspect or (next(iter(kind.aspects)) if len(kind.aspects) == 1 else None)
    if kind.each or aspect not in kind.aspects:
        expected = f"one of {', '.join(kind.aspects)}" if not kind.each else "grade, preference or rubric"
        raise ConfigError(f"aspect={aspect!r} of {kind.name}", expected, "choose one")
    human = {label.item: label.label for label in held if label.aspect == aspect}

    def value(label: str) -> float:
        return float(label == "5") if kind.name == "grade" else float(label)

    scored = {item: str(label) for item, label in judge.items() if not pd.isna(label)}
    for item, label in scored.items():
        if label not in kind.labels:
            raise DataError(
                f"the judge's label {label!r} of item {item!r}", f"one of {', '.join(kind.labels)}, or None"
            )
    both = [item for item in human if item in scored]
    rest = [value(label) for item, label in scored.items() if item not in human]
    truth, given = [human[item] for item in both], [scored[item] for item in both]
    mean = Interval(_NAN, _NAN, _NAN, len(both))
    if both and rest:
        mean = ppi_mean([value(x) for x in truth], [value(x) for x in given], rest, weight=1.0)
    every = [value(label) for label in scored.values()]
    return Calibration(
        binomial_ci(sum(t == g for t, g in zip(truth, given, strict=True)), len(both)),
        kappa(truth, given, labels=list(kind.labels), resamples=resamples),
        confusion_matrix(truth, given, list(kind.labels)),
        mean,
        bootstrap_ci([value(label) for label in human.values()], resamples=resamples),
        math.fsum(every) / len(every) if every else _NAN,
        len(both),
        len(human) - len(both),
        len(rest),
        len(judge) - len(scored),
    )
