"""How often intervals of 95% hold the true value: few clusters, and shares from few labels with a judge.

    python benchmarks/sim_intervals.py [--runs 2000]

The printed tables stand in docs/metrics.md.
"""

from __future__ import annotations

import argparse
from itertools import product
from statistics import NormalDist

import numpy as np
import pandas as pd

from ragbench.stats import bootstrap_ci, ppi_shares, stratified_draw

SPREAD = np.sqrt(0.8**2 + 0.8**2 + 0.7**2)  # of the scores in `answers`


def right_or_wrong(rng: np.random.Generator, clusters: int, unequal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Make right and wrong answers, 0.6 right, to questions in clusters (documents) that are easier or harder."""
    sizes = rng.geometric(1 / 6, clusters) if unequal else np.full(clusters, 6)
    cluster = np.repeat(np.arange(clusters), sizes)
    ease = rng.normal(0, 0.6, clusters)[cluster] + rng.normal(0, 0.8, cluster.size)
    return (ease < NormalDist().inv_cdf(0.6)).astype(float), cluster


def few_clusters(runs: int) -> pd.DataFrame:
    """Coverage and width of the bootstrap over clusters and of what `bootstrap_ci` gives."""
    rows = []
    for unequal in (False, True):
        for clusters in (5, 8, 12, 20, 29, 40):
            rng, held, width, effective = np.random.default_rng(clusters), np.zeros(2), np.zeros(2), 0.0
            for _ in range(runs):
                values, cluster = right_or_wrong(rng, clusters, unequal)
                sums, sizes = np.bincount(cluster, values), np.bincount(cluster)
                drawn = rng.integers(0, clusters, (500, clusters))
                bounds = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), [0.025, 0.975])
                ours = bootstrap_ci(values, groups=cluster, resamples=500, seed=rng)
                effective += ours.effective / runs
                for i, (low, high) in enumerate((bounds, (ours.low, ours.high))):
                    held[i] += low <= 0.6 <= high
                    width[i] += high - low
            rows.append(("unequal" if unequal else "equal", clusters, effective, *held / runs, *width / runs))
    columns = ["sizes", "clusters", "effective", "bootstrap", "ours", "width (b.)", "width (ours)"]
    return pd.DataFrame(rows, columns=columns)


def few_values(runs: int) -> pd.DataFrame:
    """Coverage of the bootstrap and of what `bootstrap_ci` gives, for shares of values on their own."""
    rows = []
    for share in (0.1, 0.3, 0.6):
        for n in (8, 12, 20, 29):
            rng, held = np.random.default_rng(n), np.zeros(2)
            for _ in range(runs):
                values = (rng.random(n) < share).astype(float)
                bounds = np.quantile(rng.choice(values, (500, n)).mean(axis=1), [0.025, 0.975])
                ours = bootstrap_ci(values, resamples=500)
                held += [low <= share <= high for low, high in (bounds, (ours.low, ours.high))]
            rows.append((share, n, *held / runs))
    return pd.DataFrame(rows, columns=["share", "values", "bootstrap", "ours"])


def answers(
    rng: np.random.Generator, clusters: int, share: float, grades: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make grades from 0 (which has this share) of five systems' answers, a kind judge's grades, and clusters."""
    questions = np.repeat(np.arange(clusters), rng.integers(1, 5, clusters))
    cluster = np.repeat(questions, 5)
    level = rng.normal(0, 0.8, clusters)[cluster] + np.repeat(rng.normal(0, 0.8, len(questions)), 5)
    score = level + rng.normal(0, 0.7, len(cluster))
    cuts = [NormalDist(0, SPREAD).inv_cdf(p) for p in np.linspace(share, 1, grades)[:-1]]
    return np.digitize(score, cuts), np.digitize(score + rng.normal(0.4, 0.8, len(cluster)), cuts), cluster


def rare_grades(runs: int) -> pd.DataFrame:
    """Coverage of `ppi_shares` for these answers and, where it gives an interval, for answers like these."""
    rows = []
    for grades, (labels, least) in product((3, 5), ((250, 25), (150, 20))):
        for share in (0.02, 0.05, 0.11, 0.3, 0.7, 0.9, 0.95, 0.98):
            rng, held, given = np.random.default_rng(1), np.zeros(2), np.zeros(2)
            for run in range(runs):
                truth, judge, cluster = answers(rng, 60, share, grades)
                first = (truth == 0).astype(float)
                drawn = stratified_draw(judge, labels, least=least, seed=run)
                shown, judged = np.where(drawn, first, np.nan)[:, None], (judge == 0).astype(float)[:, None]
                for i, (aim, clusters) in enumerate(((first.mean(), None), (share, cluster))):
                    (got,) = ppi_shares(shown, judged, judge, clusters=clusters)
                    given[i] += not np.isnan(got.low)
                    held[i] += got.low <= aim <= got.high
            rows.append((str(grades), str(labels), share, *held / given, given[1] / runs))
    columns = ["grades", "labels", "share", "these answers", "answers like these", "interval given"]
    return pd.DataFrame(rows, columns=columns)


def few_clusters_with_a_judge(runs: int) -> pd.DataFrame:
    """Coverage of `ppi_shares` over few clusters, for answers like these, where it gives an interval."""
    rows = []
    for clusters in (8, 12, 20, 40):
        for share in (0.1, 0.3):
            rng, held, given, effective = np.random.default_rng(2), 0, 0, 0.0
            for run in range(runs):
                truth, judge, cluster = answers(rng, clusters, share)
                drawn = stratified_draw(judge, min(150, len(truth) // 2), least=5, seed=run)
                shown = np.where(drawn, truth == 0, np.nan)[:, None]
                (got,) = ppi_shares(shown, (judge == 0).astype(float)[:, None], judge, clusters=cluster)
                given += not np.isnan(got.low)
                held += got.low <= share <= got.high
                effective += got.effective / runs
            rows.append((clusters, effective, share, held / given, given / runs))
    return pd.DataFrame(rows, columns=["clusters", "effective", "share", "answers like these", "interval given"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    asked = parser.parse_args()
    for simulation in (few_clusters, few_values, rare_grades, few_clusters_with_a_judge):
        print(simulation(asked.runs).to_markdown(index=False, floatfmt=".3f"), end="\n\n", flush=True)
