"""How far the labels of two people agree."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.errors import DataError
from ragbench.labelling.people import KINDS, Label, by_annotator, current, is_label_file, load_labels
from ragbench.stats import annotator_agreement, binomial_ci, kappa

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
    kinds = {label.kind for side in sides for label in side}
    if len(kinds) != 1 or max(map(len, people)) > 1 or people[0] & people[1]:
        got = f"labels of kind {', '.join(sorted(kinds))} by {', '.join(sorted(people[0] | people[1]))}"
        do = "part the rows with current(labels, kind) and by_annotator(labels)"
        raise DataError(got, "one kind, two people", do)
    kind = KINDS[kinds.pop()]
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
