"""How often intervals of 95% hold the true value, tests at 5% err, and plans for a power of 0.8
have it.

    python benchmarks/sim_intervals.py [--runs 40] [few_clusters ...]

The printed tables stand in docs/metrics.md, which says how many runs they had.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from itertools import combinations, product
from statistics import NormalDist

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from scipy.stats import rankdata, spearmanr

from ragbench.comparison import may_be_first
from ragbench.stats import (
    correlation,
    find_clusters,
    holm,
    kappa,
    mean_interval,
    paired_difference,
    paired_permutation_test,
    power_analysis,
    ppi_mean,
    ppi_shares,
    stratified_draw,
)

SPREAD = np.sqrt(0.8**2 + 0.8**2 + 0.7**2)  # of the scores in `answers`


def right_or_wrong(
    rng: np.random.Generator, clusters: int, share: float, unequal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Make right and wrong answers to questions in clusters (documents) that are easier or harder."""
    sizes = rng.geometric(1 / 6, clusters) if unequal else np.full(clusters, 6)
    cluster = np.repeat(np.arange(clusters), sizes)
    ease = rng.normal(0, 0.6, clusters)[cluster] + rng.normal(0, 0.8, cluster.size)
    return (ease < NormalDist().inv_cdf(share)).astype(float), cluster


def few_clusters(runs: int) -> pd.DataFrame:
    """Coverage and width of the bootstrap over clusters, and of what `mean_interval` gives: of
    numbers, and of a share.
    """
    rows = []
    for unequal, share, clusters in product((False, True), (0.05, 0.1, 0.6), (8, 12, 20, 40)):
        rng = np.random.default_rng(clusters)
        held = np.zeros(3)
        width = np.zeros(3)
        for _ in range(runs):
            values, cluster = right_or_wrong(rng, clusters, share, unequal)
            sums = np.bincount(cluster, values)
            sizes = np.bincount(cluster)
            drawn = rng.integers(0, clusters, (500, clusters))
            plain = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), [0.025, 0.975])
            jackknife, ours = (
                mean_interval(values, cluster=cluster, share=kind) for kind in (False, True)
            )
            bounds = (plain, (jackknife.low, jackknife.high), (ours.low, ours.high))
            held += [low <= share <= high for low, high in bounds]
            width += np.nan_to_num([high - low for low, high in bounds])
        kind = "unequal" if unequal else "equal"
        rows.append((kind, share, clusters, *held / runs, width[0] / runs, width[2] / runs))
    columns = [
        "sizes",
        "share",
        "clusters",
        "bootstrap",
        "no share",
        "ours",
        "width (b.)",
        "width (ours)",
    ]
    return pd.DataFrame(rows, columns=columns)


def few_values(runs: int) -> pd.DataFrame:
    """Coverage of the bootstrap and of what `mean_interval` gives, for shares of values on their
    own.
    """
    rows = []
    for share in (0.05, 0.1, 0.6):
        for n in (8, 20, 60):
            rng = np.random.default_rng(n)
            held = np.zeros(2)
            for _ in range(runs):
                values = (rng.random(n) < share).astype(float)
                bounds = np.quantile(rng.choice(values, (500, n)).mean(axis=1), [0.025, 0.975])
                ours = mean_interval(values, share=True)
                held += [low <= share <= high for low, high in (bounds, (ours.low, ours.high))]
            rows.append((share, n, *held / runs))
    return pd.DataFrame(rows, columns=["share", "values", "bootstrap", "ours"])


def few_labels(runs: int) -> pd.DataFrame:
    """Coverage of the normal interval of a prediction-powered mean, and of what `ppi_mean` gives,
    for shares.
    """
    rows = []
    for labels, share, weight in product((20, 50, 150), (0.02, 0.05, 0.3), (1.0, "tuned")):
        rng = np.random.default_rng(labels)
        held = np.zeros(2)
        for _ in range(runs):
            truth = (rng.random(labels + 1000) < share).astype(float)
            judge = np.where(rng.random(truth.size) < 0.05, 1 - truth, truth)
            samples = truth[:labels], judge[:labels], judge[labels:]
            ours = ppi_mean(*samples, weight=weight)
            # 0 and 2 are no share
            shifted = ppi_mean(*(2 * sample for sample in samples), weight=weight)
            held += [shifted.low / 2 <= share <= shifted.high / 2, ours.low <= share <= ours.high]
        rows.append((labels, share, str(weight), *held / runs))
    return pd.DataFrame(rows, columns=["labels", "share", "weight", "normal", "ours"])


def rare_agreement(runs: int) -> pd.DataFrame:
    """Coverage of the plain bootstrap of kappa, and of what `kappa` gives, where a label has a
    share of 5%.
    """
    rows = []
    for n, true, size in product((50, 150), (0.3, 0.6, 0.85), (1, 5)):
        rng = np.random.default_rng(n)
        held = np.zeros(2)
        defined = 0
        for _ in range(runs):
            cluster = np.arange(n) // size
            # In a cluster of 5 the judges copy their labels of the one before in half of the cases.
            copied = (rng.random(n) < 0.5) & (np.arange(n) % size > 0)
            source = np.where(copied, np.arange(n) - 1, np.arange(n))
            for _ in range(size):
                source = source[source]
            a = (rng.random(n) < 0.05)[source]
            b = np.where((rng.random(n) < true)[source], a, (rng.random(n) < 0.05)[source])
            ours = kappa(a, b, labels=[True, False], cluster=cluster, resamples=400, seed=rng)
            if np.isnan(ours.estimate):
                continue
            table = np.bincount(2 * a + b, minlength=4) / n
            draws = rng.multinomial(n, table, 400) / n
            chance = (draws[:, 2] + draws[:, 3]) * (draws[:, 1] + draws[:, 3])
            chance += (draws[:, 0] + draws[:, 1]) * (draws[:, 0] + draws[:, 2])
            with np.errstate(invalid="ignore"):
                kappas = np.where(
                    chance < 1, (draws[:, 0] + draws[:, 3] - chance) / (1 - chance), np.nan
                )
            low, high = np.nanquantile(kappas, [0.025, 0.975])
            held += [low <= true <= high, ours.low <= true <= ours.high]
            defined += 1
        rows.append((n, true, size, *held / defined))
    return pd.DataFrame(rows, columns=["items", "kappa", "in a cluster", "bootstrap", "ours"])


def two_people(
    rng: np.random.Generator, conversations: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make two people's grades from 0 to 3 of the answers of conversations, and which each is of."""
    cluster = np.repeat(np.arange(conversations), rng.integers(2, 8, conversations))
    level = rng.normal(0, 0.7, conversations)[cluster] + rng.normal(0, 0.7, cluster.size)
    people = level + rng.normal(0, 0.6, (2, cluster.size))
    return *np.digitize(people, (-1, 0, 1)), cluster


def kappa_over_conversations(runs: int) -> pd.DataFrame:
    """Coverage of quadratic kappa by a bootstrap over conversations and by `kappa`, and the width
    for a judge who gives one grade to all.
    """
    options = {"weights": "quadratic", "labels": range(4)}
    one, other, _ = two_people(np.random.default_rng(0), 200_000)
    true = kappa(one, other, resamples=0, **options).estimate
    rows = []
    for conversations in (5, 10, 20, 40):
        rng = np.random.default_rng(conversations)
        held = np.zeros(2)
        width = np.zeros(2)
        for _ in range(runs):
            a, b, cluster = two_people(rng, conversations)
            places = [np.flatnonzero(cluster == number) for number in range(conversations)]
            drawn = []
            for times in rng.integers(0, conversations, (100, conversations)):
                chosen = np.concatenate([places[number] for number in times])
                drawn.append(quadratic(a[chosen], b[chosen]))
            low, high = np.nanquantile(drawn, [0.025, 0.975])
            ours, constant = (
                kappa(a, other, cluster=cluster, resamples=400, seed=rng, **options)
                for other in (b, np.full(a.size, 2))
            )
            held += [low <= true <= high, ours.low <= true <= ours.high]
            width += [ours.high - ours.low, constant.high - constant.low]
        rows.append((conversations, true, *held / runs, *width / runs))
    columns = ["conversations", "kappa", "bootstrap", "ours", "width (ours)", "one grade: width"]
    return pd.DataFrame(rows, columns=columns)


def quadratic(a: np.ndarray, b: np.ndarray) -> float:
    """Quadratic kappa, by its definition; NaN where both give one grade to all."""
    by_chance = a.var() + b.var() + (a.mean() - b.mean()) ** 2
    with np.errstate(invalid="ignore"):
        return 1 - ((a - b) ** 2).mean() / by_chance


def tied_ranks(runs: int) -> pd.DataFrame:
    """Coverage of Spearman's correlation with ties over clusters of 5: by percentiles of resampled
    clusters, and by `correlation`.
    """
    true = spearmanr(*tied_scores(np.random.default_rng(0), 200_000)[:2]).statistic
    rows = []
    for clusters in (10, 20, 60):
        rng = np.random.default_rng(clusters)
        held = np.zeros(2)
        for _ in range(runs):
            x, y, cluster = tied_scores(rng, clusters)
            drawn = rng.integers(0, clusters, (100, clusters, 1)) * 5 + np.arange(5)
            chosen = drawn.reshape(100, -1)
            ranks = rankdata(x[chosen], axis=1), rankdata(y[chosen], axis=1)
            x_ranks, y_ranks = (each - each.mean(axis=1, keepdims=True) for each in ranks)
            spread = np.sqrt((x_ranks**2).sum(axis=1) * (y_ranks**2).sum(axis=1))
            low, high = np.quantile((x_ranks * y_ranks).sum(axis=1) / spread, [0.025, 0.975])
            ours = correlation(x, y, "spearman", cluster=cluster, resamples=200, seed=rng)
            held += [low <= true <= high, ours.low <= true <= ours.high]
        rows.append((clusters, true, *held / runs))
    return pd.DataFrame(rows, columns=["clusters", "spearman", "bootstrap", "ours"])


def tied_scores(
    rng: np.random.Generator, clusters: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a score of four values, people's of three, and clusters of five."""
    cluster = np.repeat(np.arange(clusters), 5)
    x = rng.normal(0, 0.7, clusters)[cluster] + rng.normal(0, 1, cluster.size)
    y = 0.6 * x + rng.normal(0, 0.3, clusters)[cluster] + rng.normal(0, 0.8, cluster.size)
    return np.digitize(x, [-0.8, 0, 0.8]), np.digitize(y, [-0.5, 0.7]), cluster


def sparse(rng: np.random.Generator, kind: str, n: int) -> tuple[np.ndarray, float]:
    """Make differences of n questions of a kind, and their true mean."""
    differs = rng.random(n) < 0.1
    if kind == "10% are 1, others 0":
        return differs.astype(float), 0.1
    if kind == "10% are 0 to 1, others 0":
        return differs * rng.random(n), 0.05
    if kind == "10% are 1 or -1, others 0":
        return differs * rng.choice([1.0, 1.0, 1.0, -1.0], n), 0.05
    if kind == "10% are .9, others -.1":
        return np.where(differs, 0.9, -0.1), 0.0
    if kind == "the same, with noise":
        return np.where(differs, 0.9, -0.1) + rng.normal(0, 0.05, n), 0.0
    if kind == "exponential":
        return rng.exponential(1, n) - 1, 0.0
    return rng.normal(0, 1, n), 0.0


SPARSE = (
    "10% are 1, others 0",
    "10% are 0 to 1, others 0",
    "10% are 1 or -1, others 0",
    "10% are .9, others -.1",
    "the same, with noise",
    "exponential",
    "normal",
)


def sparse_differences(runs: int) -> pd.DataFrame:
    """Coverage of three intervals of a paired difference, among the runs that have one, and how
    often the bootstrap and the sign-flip test contradict each other.

    *Inverted* is the interval of the differences that the sign-flip test does not reject: the
    percentiles of the means of random subsets (Hartigan 1969).
    """
    rows = []
    for kind, n in product(SPARSE, (10, 20, 30, 50, 100)):
        rng = np.random.default_rng(n)
        held = np.zeros(4)
        width = np.zeros(3)
        contradict = given = 0
        for _ in range(runs):
            values, mean = sparse(rng, kind, n)
            if np.ptp(values) == 0:
                continue
            given += 1
            resampled = np.quantile(rng.choice(values, (500, n)).mean(axis=1), [0.025, 0.975])
            subset = rng.random((500, n)) < 0.5
            chosen = subset[subset.any(axis=1)]
            inverted = np.quantile(chosen @ values / chosen.sum(axis=1), [0.025, 0.975])
            half = -stdtrit(n - 1, 0.025) * values.std(ddof=1) / np.sqrt(n)
            plain = values.mean() - half, values.mean() + half
            ours = paired_difference(values, 0 * values)
            bounds = resampled, inverted, plain, (ours.low, ours.high)
            held += [low - 1e-12 <= mean <= high + 1e-12 for low, high in bounds]
            width += [high - low for low, high in (resampled, inverted, (ours.low, ours.high))]
            test = paired_permutation_test(values, 0 * values, resamples=499, seed=rng)
            excludes = resampled[0] > 0 or resampled[1] < 0
            contradict += excludes != (test.p_value < 0.05)
        rows.append((kind, n, *held / given, contradict / given, *width / given))
    columns = ["differences", "n", "bootstrap", "inverted", "t", "ours", "contradict"]
    columns += ["width (b.)", "width (inverted)", "width (ours)"]
    return pd.DataFrame(rows, columns=columns)


def skewed_differences(runs: int) -> pd.DataFrame:
    """False positives at 0.05 of the sign-flip test, of the studentised bootstrap and of
    `paired_difference`, where the true mean is 0.
    """
    rows = []
    for kind, n in product(SPARSE[3:], (10, 20, 30, 50, 100)):
        rng = np.random.default_rng(n)
        wrong = np.zeros(3)
        for _ in range(runs):
            values, _ = sparse(rng, kind, n)
            test = paired_permutation_test(values, 0 * values, resamples=499, seed=rng)
            ours = paired_difference(values, 0 * values)
            wrong += [test.p_value < 0.05, studentised(rng, values) < 0.05, ours.p < 0.05]
        rows.append((kind, n, *wrong / runs))
    columns = ["differences", "n", "sign-flip test", "studentised bootstrap", "ours"]
    return pd.DataFrame(rows, columns=columns)


def studentised(rng: np.random.Generator, values: np.ndarray) -> float:
    """P-value of a mean of 0 by the studentised bootstrap; 1 where all values are equal."""
    n = len(values)
    error = values.std(ddof=1) / np.sqrt(n)
    if not error > 1e-12:
        return 1.0
    drawn = rng.choice(values, (500, n))
    errors = drawn.std(axis=1, ddof=1) / np.sqrt(n)
    away = np.abs(drawn.mean(axis=1) - values.mean())
    # a resample of equal values is as far as any
    far = away >= abs(values.mean()) / error * errors
    return (far.sum() + 1) / 501


def sparse_means(runs: int) -> pd.DataFrame:
    """Coverage of the bootstrap, of Student's t and of `mean_interval`, for a metric from 0 to 1 that
    is mostly 0, and for one with a spread.
    """
    rows = []
    for zeros, n in product((0.9, 0.7, 0.0), (20, 30, 50, 100, 200)):
        rng = np.random.default_rng(n)
        held = np.zeros(3)
        width = np.zeros(2)
        given = 0
        true = (1 - zeros) / 2
        for _ in range(runs):
            values = (rng.random(n) >= zeros) * rng.random(n)
            if np.ptp(values) == 0:
                continue
            given += 1
            resampled = np.quantile(rng.choice(values, (500, n)).mean(axis=1), [0.025, 0.975])
            half = -stdtrit(n - 1, 0.025) * values.std(ddof=1) / np.sqrt(n)
            ours = mean_interval(values, resamples=500, seed=rng)
            bounds = (
                resampled,
                (values.mean() - half, values.mean() + half),
                (ours.low, ours.high),
            )
            held += [low <= true <= high for low, high in bounds]
            width += [resampled[1] - resampled[0], ours.high - ours.low]
        rows.append((zeros, n, *held / given, *width / given))
    columns = ["zeros", "n", "bootstrap", "t", "ours", "width (b.)", "width (ours)"]
    return pd.DataFrame(rows, columns=columns)


def equal_systems(runs: int) -> pd.DataFrame:
    """How often all of several equal systems may be first, and the best of unequal ones: by a
    bootstrap of ranks over clusters, and by `may_be_first`.
    """
    rows = []
    for systems, clusters, ahead in product((3, 6), (12, 40), (0.0, 0.3)):
        rng = np.random.default_rng(systems + clusters)
        all_first = np.zeros(2)
        best_is_first = np.zeros(2)
        for _ in range(runs):
            cluster = np.repeat(np.arange(clusters), 4)
            scores = rng.normal(0, 0.5, (clusters, systems))[cluster]
            scores += rng.normal(0, 0.5, scores.shape) + rng.normal(0, 1, (len(cluster), 1))
            scores[:, 0] += ahead
            means = scores.reshape(clusters, 4, systems).mean(axis=1)
            drawn = means[rng.integers(0, clusters, (1000, clusters))].mean(axis=1)
            share_first = np.bincount(drawn.argmax(axis=1), minlength=systems) / 1000
            pairs = [*combinations(range(systems), 2)]
            compared = [paired_difference(*scores[:, pair].T, cluster=cluster) for pair in pairs]
            table = pd.DataFrame(pairs, columns=["a", "b"]).assign(measure="it")
            table["difference"] = [difference.estimate for difference in compared]
            table["p_holm"] = holm([difference.p for difference in compared])
            ours = may_be_first(table)["may_be_first"].to_numpy()
            for i, first in enumerate((share_first >= 0.05 / systems, ours)):
                all_first[i] += first.all()
                best_is_first[i] += first[0]
        told = all_first if not ahead else best_is_first
        rows.append((systems, clusters, ahead, *told / runs))
    columns = ["systems", "clusters", "the first is ahead by", "bootstrap of ranks", "ours"]
    return pd.DataFrame(rows, columns=columns)


def skewed_tests(runs: int) -> pd.DataFrame:
    """False positives at 0.05 of the sign-flip test, by questions and by clusters, and of
    `paired_difference` by clusters: differences skewed or not.
    """
    rows = []
    for skewed, clusters in product((False, True), (12, 30, 80)):
        rng = np.random.default_rng(clusters)
        wrong = np.zeros(3)
        for _ in range(runs):
            cluster = np.repeat(np.arange(clusters), rng.integers(1, 8, clusters))
            draw = rng.exponential(1, clusters) - 1 if skewed else rng.normal(0, 1, clusters)
            difference = draw[cluster] + rng.normal(0, 1, cluster.size)
            for i, groups in enumerate((None, cluster)):
                test = paired_permutation_test(
                    difference, 0 * difference, cluster=groups, resamples=199, seed=rng
                )
                wrong[i] += test.p_value <= 0.05
            wrong[2] += paired_difference(difference, 0 * difference, cluster=cluster).p < 0.05
        rows.append(("skewed" if skewed else "symmetric", clusters, *wrong / runs))
    return pd.DataFrame(
        rows, columns=["differences", "clusters", "by questions", "by clusters", "ours"]
    )


def power_by_clusters(runs: int) -> pd.DataFrame:
    """Power of the clustered test where a pilot of so many clusters planned for 0.8, by questions
    and by clusters.

    The last columns are the shares of plans by clusters with a power below 0.6: for the difference
    that is true, and for the one that the pilot happened to show.
    """
    rows = []
    sd = np.sqrt(0.4**2 + 0.4**2 / 4)  # of the clusters' means
    enough = power_analysis([-sd / np.sqrt(2), sd / np.sqrt(2)], difference=0.2, power=0.6).needed
    for pilot in (30, 100):
        rng = np.random.default_rng(pilot)
        found = np.zeros(2)
        low = np.zeros(2)
        for _ in range(runs):
            difference, cluster = paired_run(rng, pilot)
            by_questions = power_analysis(difference, difference=0.2).needed / 4
            by_clusters = power_analysis(difference, difference=0.2, cluster=cluster).needed
            observed = power_analysis(
                difference, difference=difference.mean(), cluster=cluster
            ).needed
            # A plan has the power of a run in which the clusters' means have their true sd.
            low += [plan < enough for plan in (by_clusters, observed)]
            for i, needed in enumerate((by_questions, by_clusters)):
                new, groups = paired_run(rng, int(np.ceil(max(needed, 6))))
                found[i] += paired_difference(new, 0 * new, cluster=groups).p < 0.05
        rows.append((pilot, *found / runs, *low / runs))
    columns = [
        "pilot's clusters",
        "by questions",
        "by clusters",
        "below 0.6",
        "below 0.6, pilot's difference",
    ]
    return pd.DataFrame(rows, columns=columns)


def paired_run(rng: np.random.Generator, clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Make differences of two systems with a mean of 0.2, 4 questions a cluster."""
    cluster = np.repeat(np.arange(clusters), 4)
    return 0.2 + rng.normal(0, 0.4, clusters)[cluster] + rng.normal(0, 0.4, cluster.size), cluster


def answers(
    rng: np.random.Generator, clusters: int, share: float, grades: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make grades from 0 (which has this share) of five systems' answers, a kind judge's grades,
    and clusters.
    """
    questions = np.repeat(np.arange(clusters), rng.integers(1, 5, clusters))
    cluster = np.repeat(questions, 5)
    level = rng.normal(0, 0.8, clusters)[cluster] + np.repeat(rng.normal(0, 0.8, len(questions)), 5)
    score = level + rng.normal(0, 0.7, len(cluster))
    cuts = [NormalDist(0, SPREAD).inv_cdf(p) for p in np.linspace(share, 1, grades)[:-1]]
    return (
        np.digitize(score, cuts),
        np.digitize(score + rng.normal(0.4, 0.8, len(cluster)), cuts),
        cluster,
    )


def rare_grades(runs: int) -> pd.DataFrame:
    """Coverage of `ppi_shares` for these answers and for answers like these."""
    rows = []
    for grades, (labels, least) in product((3, 5), ((250, 25), (150, 20))):
        for share in (0.02, 0.05, 0.11, 0.3, 0.9, 0.98):
            rng = np.random.default_rng(1)
            held = np.zeros(2)
            for run in range(runs):
                truth, judge, cluster = answers(rng, 60, share, grades)
                first = (truth == 0).astype(float)
                drawn = stratified_draw(judge, labels, least=least, seed=run)
                shown = np.where(drawn, first, np.nan)[:, None]
                judged = (judge == 0).astype(float)[:, None]
                for i, (aim, clusters) in enumerate(((first.mean(), None), (share, cluster))):
                    (got,) = ppi_shares(shown, judged, judge, cluster=clusters)
                    held[i] += got.low <= aim <= got.high
            rows.append((str(grades), str(labels), share, *held / runs))
    return pd.DataFrame(
        rows, columns=["grades", "labels", "share", "these answers", "answers like these"]
    )


def few_clusters_with_a_judge(runs: int) -> pd.DataFrame:
    """Coverage of `ppi_shares` over few clusters, for answers like these."""
    rows = []
    for clusters in (8, 12, 20, 44):
        for share in (0.03, 0.1, 0.3):
            rng = np.random.default_rng(2)
            held = 0
            width = 0.0
            for run in range(runs):
                truth, judge, cluster = answers(rng, clusters, share)
                drawn = stratified_draw(judge, min(250, len(truth) // 2), least=1, seed=run)
                shown = np.where(drawn, truth == 0, np.nan)[:, None]
                (got,) = ppi_shares(
                    shown, (judge == 0).astype(float)[:, None], judge, cluster=cluster
                )
                held += got.low <= share <= got.high
                width += (got.high - got.low) / runs
            rows.append((clusters, share, held / runs, width))
    return pd.DataFrame(rows, columns=["clusters", "share", "answers like these", "width"])


def questions_about(
    rng: np.random.Generator, topics: int, documents: int, spread: float, crossing: float
) -> pd.DataFrame:
    """Make scores of questions about documents of topics, ``spread`` by topic; a share of the
    questions needs a document of another topic too.
    """
    per_document = 60 // documents + 2
    first = np.repeat(np.arange(documents), per_document)
    second = rng.integers(0, documents, first.size)
    second = np.where(rng.random(first.size) < crossing, second, first)
    topic = first * topics // documents
    of_document = rng.normal(0, 0.6, documents)
    score = rng.normal(0, spread, topics)[topic] + rng.normal(0, 0.8, first.size)
    score += (of_document[first] + of_document[second]) / 2
    evidence = [[*pair] for pair in zip(first, second, strict=True)]
    table = {"question_id": range(first.size), "topic": topic, "relevant": evidence}
    return pd.DataFrame({**table, "score": score, "right": score > 0})


def clusters_by_the_rule(runs: int) -> pd.DataFrame:
    """Coverage of means and shares by `find_clusters`, beside those of single questions."""
    warnings.simplefilter("ignore")
    designs = [(20, 60, 0.6, 0.0), (20, 60, 0.6, 0.1), (20, 60, 0.6, 0.3), (20, 60, 0.0, 0.1)]
    designs += [(3, 15, 0.0, 0.0), (3, 15, 0.6, 0.0)]
    rows = []
    for topics, documents, spread, crossing in designs:
        rng = np.random.default_rng(topics)
        held = np.zeros(4)
        taken = Counter()
        for _ in range(runs):
            table = questions_about(rng, topics, documents, spread, crossing)
            rule = find_clusters(table)
            taken[rule.column] += 1
            labels = (rule.labels, None)
            for place, (measure, groups) in enumerate(product(("score", "right"), labels)):
                got = mean_interval(table[measure], cluster=groups)
                held[place] += got.low <= (measure == "right") / 2 <= got.high
        by = ", ".join(f"{name} {count / runs:.2f}" for name, count in taken.most_common())
        rows.append((f"{topics} of {documents}", spread, crossing, by, *held / runs))
    names = ["topics of documents", "spread by topic", "crossing", "taken"]
    names += ["mean", "mean, by questions", "share", "share, by questions"]
    return pd.DataFrame(rows, columns=names)


SIMULATIONS = (
    few_clusters,
    few_values,
    few_labels,
    rare_agreement,
    kappa_over_conversations,
    tied_ranks,
    sparse_means,
    sparse_differences,
    skewed_differences,
    equal_systems,
    skewed_tests,
    power_by_clusters,
)
SIMULATIONS += (rare_grades, few_clusters_with_a_judge, clusters_by_the_rule)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40, help="of each cell")
    parser.add_argument("names", nargs="*", help="simulations; default: all")
    asked = parser.parse_args()
    for simulation in SIMULATIONS:
        if not asked.names or simulation.__name__ in asked.names:
            print(f"{simulation.__name__}, {asked.runs} runs\n")
            table = simulation(asked.runs).astype(object)
            print(table.to_markdown(index=False, floatfmt=".3f"), end="\n\n", flush=True)
