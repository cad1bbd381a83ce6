"""Do two people agree? By kind: raw agreement, Cohen's kappa, and for ranks Kendall's tau-b."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import DataError
from ragbench.labelling.kinds import KINDS, Kind, ranks_of
from ragbench.labelling.store import Label, by_annotator, current, is_label_file, load_labels
from ragbench.stats import Interval, annotator_agreement, binomial_ci, kappa

if TYPE_CHECKING:
    import pandas as pd

_NOTHING = Interval(float("nan"), float("nan"), float("nan"), 0)


def agreement(a: Iterable[Label], b: Iterable[Label], *, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Compare two annotators' labels of one kind.

    Parameters
    ----------
    a, b : rows of one person each, in order (what holds is found by `ragbench.labelling.current`).
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

    NaN where nothing is defined, with n beside it.

    Raises
    ------
    DataError for labels of several kinds, of several people on one side, of the same person on both, or ranks of
    different candidates.

    Source: Cohen (1960, 1968); Kendall (1945). RAGChecker, section 4.2 (within one step: 90.95%).
    """
    import pandas as pd

    own, other, kind = _sides(a, b)
    by_aspect: dict[str, list[tuple[str, str]]] = {}
    for aspect in kind.aspects or ("all keypoints",):
        by_aspect[aspect] = [k for k in {**own, **other} if not kind.aspects or k[1] == aspect]
    rows = []
    for aspect, keys in by_aspect.items():
        both = [k for k in keys if k in own and k in other]
        row = {"aspect": aspect, "n": len(both)}
        row |= {"only_a": sum(k not in other for k in keys), "only_b": sum(k not in own for k in keys)}
        pairs = [(own[k], other[k]) for k in both]
        rows.append(row | (_labels(pairs, kind, resamples, seed) if kind.labels else _ranks(pairs)))
    return pd.DataFrame(rows)


def partners(path: str | Path, kind: str, annotator: str) -> dict[str, list[Label]]:
    """Find other people's labels of one kind: in the same file, and in the label files beside it (``*.csv``).

    Returns
    -------
    Rows that hold, by annotator; empty when nobody else has labelled.

    Raises
    ------
    DataError for bad rows in any of the files.
    """
    path = Path(path).expanduser()
    files = [file for file in sorted(path.parent.glob("*.csv")) if is_label_file(file)]
    people = by_annotator(current(load_labels(*files), kind))
    return {name: labels for name, labels in people.items() if name != annotator}


def _sides(a: Iterable[Label], b: Iterable[Label]) -> tuple[dict, dict, Kind]:
    sides = [current(a), current(b)]
    kinds = {label.kind for side in sides for label in side}
    people = [{label.annotator for label in side} for side in sides]
    if len(kinds) != 1 or any(len(p) > 1 for p in people) or people[0] & people[1]:
        who = " and ".join("+".join(sorted(p)) or "nobody" for p in people)
        raise DataError(
            f"labels of kind {', '.join(sorted(kinds)) or 'none'} by {who}",
            "one kind, two people",
            "part the rows with current(labels, kind) and by_annotator(labels)",
        )
    own, other = ({(label.item, label.aspect): label.label for label in side} for side in sides)
    return own, other, KINDS[kinds.pop()]


def _labels(pairs: list[tuple[str, str]], kind: Kind, resamples: int, seed: int) -> dict[str, Any]:
    first, second = [p[0] for p in pairs], [p[1] for p in pairs]
    names = list(kind.labels)
    options = {"labels": names, "resamples": resamples, "seed": seed}
    plain = kappa(first, second, **options)
    near = weighted = float("nan")
    if kind.ordered:
        weighted = kappa(first, second, weights="quadratic", **options).estimate
        steps = np.array([[names.index(p[0]), names.index(p[1])] for p in pairs], float).reshape(-1, 2)
        near = annotator_agreement(steps).estimate
    return _row(binomial_ci(sum(p[0] == p[1] for p in pairs), len(pairs)), near, plain, weighted, float("nan"), 0)


def _ranks(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    from scipy.stats import kendalltau

    same, taus = 0, []
    for label, second in pairs:
        left, right = ranks_of(label), ranks_of(second)
        if left.keys() != right.keys():
            raise DataError(f"ranks of {', '.join(left)} beside ranks of {', '.join(right)}", "the same candidates")
        same += left == right
        level = len(set(left.values())) == 1 or len(set(right.values())) == 1
        names = sorted(left)
        taus.append(
            float("nan") if level else kendalltau([left[n] for n in names], [right[n] for n in names]).statistic
        )
    defined = [tau for tau in taus if tau == tau]
    mean = float(np.mean(defined)) if defined else float("nan")
    return _row(
        binomial_ci(same, len(pairs)), float("nan"), _NOTHING, float("nan"), mean, len(taus) - len(defined)
    )  # fmt: skip


def _row(same: Interval, near: float, plain: Interval, weighted: float, tau: float, undefined: int) -> dict[str, Any]:
    return {
        "agreement": same.estimate,
        "agreement_low": same.low,
        "agreement_high": same.high,
        "within_one": near,
        "kappa": plain.estimate,
        "kappa_low": plain.low,
        "kappa_high": plain.high,
        "weighted_kappa": weighted,
        "tau_b": tau,
        "undefined": undefined,
    }
