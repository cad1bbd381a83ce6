"""Shares from few labels and many judge grades: the draw, the estimate, both intervals, and how
often these hold.
"""

from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from checks import refusals
from scipy.stats import beta, norm, t
from stats_parts import bounds, estimate_and_bounds

from ragbench.errors import DataError
from ragbench.stats import interval_text, ppi_mean, ppi_shares, rogan_gladen, stratified_draw

NAN = float("nan")


def hide(truth, drawn):
    """Return labels with NaN where none was drawn."""
    return np.where(np.asarray(drawn)[:, None], truth, NAN)


def test_shares_by_hand():
    # Stratum a: four items, two labelled; stratum b: two items, both labelled. Two categories.
    f = np.array([0.8, 0.6, 0.9, 0.5, 0.3, 0.1])
    y = np.array([1, 0, NAN, NAN, 0, 1])
    # with `of` bounds are symmetric
    first, second = ppi_shares(
        np.stack([y, 1 - y], axis=1),
        np.stack([f, 1 - f], axis=1),
        list("aaaabb"),
        of=[1] * 6,
        weight=0.5,
    )
    # all: 0.5 * 3.2; labelled in a, pi = 1/2: (1 - 0.4) + (0 - 0.3) = 0.3; in b, pi = 1: (0 - 0.15)
    # + (1 - 0.05) = 0.8
    assert first.estimate == pytest.approx((1.6 + 0.3 / 0.5 + 0.8) / 6)
    assert second.estimate == pytest.approx(1 - first.estimate)
    # Only a was sampled: 4^2 (1 - 2/4) / 2 times the variance of 0.6 and -0.3
    half = 1.959964 * np.sqrt(4**2 * 0.5 / 2 * 0.405) / 6
    assert first.high - first.estimate == pytest.approx(half, rel=1e-6)
    assert (first.n, first.n_missing) == (4, 2)


def test_over_all_possible_draws_the_estimate_is_unbiased_and_the_variance_is_right(rng):
    strata = [0] * 5 + [1] * 4
    truth = rng.integers(0, 2, (9, 2)).astype(float)
    f = rng.random((9, 2))
    of = np.array([1, 2, 1, 0, 3, 1, 1, 0, 2])
    estimates = []
    half_widths = []
    for a, b in product(combinations(range(5), 3), combinations(range(5, 9), 2)):
        labels = hide(truth, np.isin(np.arange(9), a + b))
        got = ppi_shares(labels, f, strata, of=of, weight=0.7)[0]
        estimates.append(got.estimate)
        half_widths.append((got.high - got.low) / 2)
    assert np.mean(estimates) == pytest.approx(truth[:, 0].sum() / of.sum())
    variances = (np.array(half_widths) / norm.ppf(0.975)) ** 2
    assert variances.mean() == pytest.approx(np.var(estimates))


def test_all_labels_give_the_share_itself_and_no_doubt_about_these_items():
    truth = np.array([[1.0], [0.0], [0.0], [1.0], [1.0]])
    for weight in ("tuned", 0.0, 1.0):
        (got,) = ppi_shares(truth, np.full((5, 1), 0.3), list("aabbb"), weight=weight)
        assert estimate_and_bounds(got) == pytest.approx((0.6, 0.6, 0.6))


def test_the_tuned_weight_is_that_of_the_narrowest_intervals():
    truth, strata, f, _ = answers(np.random.default_rng(2), 40)
    labels = hide(truth, stratified_draw(strata, 120, least=10, seed=3))

    def width(weight):
        shares = ppi_shares(labels, f, strata, of=np.ones(len(f)), weight=weight)
        return sum((i.high - i.low) ** 2 for i in shares)

    best = min(np.linspace(0, 1, 101), key=width)
    assert 0.05 < best < 0.95
    assert width("tuned") <= width(best)
    assert width("tuned") == pytest.approx(width(best), rel=1e-3)


def test_a_difference_of_two_systems_is_a_share_with_signs():
    # two right answers of one system, one right and one wrong of the other
    signed = np.array([[1], [1], [-1], [0]])
    (difference,) = ppi_shares(
        signed, 0 * signed, ["a"] * 4, of=[1, 1, 0, 0], cluster=[0, 1, 0, 1], weight=0
    )
    # without one cluster the difference is 1 - 0 and 1 - 1: t of one degree is 12.7
    half = 12.706 * np.sqrt(1 / 2 * (0.5**2 + 0.5**2))
    assert estimate_and_bounds(difference) == pytest.approx((0.5, 0.5 - half, 0.5 + half), rel=1e-4)


def test_the_jackknife_leaves_out_one_cluster_at_a_time():
    truth, strata, f, clusters = answers(np.random.default_rng(4), 12)
    labels = hide(truth, stratified_draw(strata, len(truth) // 2, least=3, seed=5))
    got = ppi_shares(labels, f, strata, of=np.ones(len(f)), cluster=clusters, weight=0.6)
    assert (got[0].clusters, got[0].n) == (12, len(truth) // 2)
    again = []
    for left_out in range(12):
        keep = clusters != left_out
        shares = ppi_shares(labels[keep], f[keep], strata[keep], weight=0.6)
        again.append([i.estimate for i in shares])
    half = t.ppf(0.975, 11) * np.sqrt(11 * np.var(again, axis=0))
    assert [i.high - i.estimate for i in got] == pytest.approx(half)


def answers(rng, clusters):
    """Make answers of five systems to clustered questions: grades as 0 and 1, strata,
    probabilities, clusters.
    """
    cluster, score = latent_scores(rng, clusters)
    truth = np.digitize(score, [-0.9, 0.1, 1.2])
    guess = score + rng.normal(0, 0.8, len(cluster)) + 0.4  # a judge that is too kind
    odds = np.exp(-((guess[:, None] - [-1.4, -0.4, 0.6, 1.8]) ** 2))
    f = odds / odds.sum(axis=1, keepdims=True)
    return np.eye(4)[truth], f.argmax(axis=1), f, cluster


def latent_scores(rng, clusters):
    """Return the cluster and the score of five answers each to one to four questions a cluster."""
    questions = np.repeat(np.arange(clusters), rng.integers(1, 5, clusters))
    cluster = questions.repeat(5)
    level = rng.normal(0, 0.8, clusters)[cluster] + rng.normal(0, 0.8, len(questions)).repeat(5)
    return cluster, level + rng.normal(0, 0.7, len(cluster))


def share_held(intervals, shares):
    """How many of the intervals hold their share."""
    return np.mean([i.low <= share <= i.high for i, share in zip(intervals, shares, strict=True)])


def test_intervals_hold_what_they_say(rng):
    true = answers(np.random.default_rng(7), 60_000)[0].mean(axis=0)
    held = []
    for run in range(700):
        truth, strata, f, clusters = answers(rng, 60)
        drawn = stratified_draw(strata, 250, seed=run)
        labels = hide(truth, drawn)
        these = ppi_shares(labels, f, strata)
        alike = ppi_shares(labels, f, strata, cluster=clusters)
        independent = map(
            partial(ppi_mean, weight="tuned"), truth[drawn].T, f[drawn].T, f[~drawn].T
        )
        held.append(
            (
                share_held(these, truth.mean(axis=0)),
                share_held(alike, true),
                share_held(independent, true),
            )
        )
    these, alike, independent = np.mean(held, axis=0)
    assert 0.93 <= these <= 0.97
    assert 0.93 <= alike <= 0.97
    assert independent < 0.90  # as if the labels were independent samples


def one_category(ones, labelled=20, items=40):
    """Labels of one category: the first of the items have one, the first of these have it."""
    place = np.arange(items)[:, None]
    return np.where(place < labelled, place < ones, NAN)


NO_JUDGE = np.zeros((40, 1))


def binomial(p, variance):
    """Clopper-Pearson for as many labels as have this variance."""
    n = p * (1 - p) / variance
    return beta.ppf(0.025, p * n, (1 - p) * n + 1), beta.ppf(0.975, p * n + 1, (1 - p) * n)


def test_the_interval_of_a_share_joins_jeffreys_bounds_of_its_strata():
    # Two strata of 40, 20 labelled in each: 8 and none have the category. Half of each has no
    # label.
    truth = np.vstack([one_category(8), one_category(0)])
    arguments = np.zeros((80, 1)), [0] * 40 + [1] * 40
    (got,) = ppi_shares(truth, *arguments, weight=0.0)
    below = (0.4 - beta.ppf(0.025, 8.5, 12.5)) ** 2  # the other stratum's lower bound is 0
    above = (beta.ppf(0.975, 8.5, 12.5) - 0.4) ** 2 + beta.ppf(0.975, 0.5, 20.5) ** 2
    low = 0.2 - (0.25 * 0.5 * below) ** 0.5
    high = 0.2 + (0.25 * 0.5 * above) ** 0.5
    assert estimate_and_bounds(got) == pytest.approx((0.2, low, high))
    # where all of a stratum have it, its upper bound is 1
    (other,) = ppi_shares(1 - truth, *arguments, weight=0.0)
    assert bounds(other) == pytest.approx((1 - high, 1 - low))
    # of two labels: Jeffreys' own upper bound of 1 would be .9998
    few = np.array([[1], [1], [NAN], [NAN], [1], [0], [NAN], [NAN]])
    half = (0.25 * 0.5) ** 0.5 * (beta.ppf(0.975, 1.5, 1.5) - 0.5)
    predicted = np.zeros((8, 1)), list("aaaabbbb")
    (most,) = ppi_shares(few, *predicted, weight=0.0)
    (least,) = ppi_shares(1 - few, *predicted, weight=0.0)
    assert most.high - 0.75 == pytest.approx(half, rel=1e-9)
    assert 0.25 - least.low == pytest.approx(half, rel=1e-9)


def test_a_judge_who_is_always_wrong_widens_both_sides_of_a_share_alike():
    place = np.arange(40)[:, None]
    wrong = np.where(place < 20, place >= 8, place % 2)
    (got,) = ppi_shares(one_category(8), wrong, [0] * 40, weight=1.0)
    low, high = beta.ppf([0.025, 0.975], 8.5, 12.5)
    below = (got.estimate - got.low) ** 2 - 0.5 * (0.4 - low) ** 2  # half has its label
    above = (got.high - got.estimate) ** 2 - 0.5 * (high - 0.4) ** 2
    assert below == pytest.approx(above)
    assert above > 0.05


def test_a_judge_who_knows_narrows_the_interval_of_a_share():
    place = np.arange(40)[:, None]
    truth = np.where(place % 2 == 0, place < 12, NAN)
    (guided,) = ppi_shares(truth, place < 12, [0] * 40)
    (alone,) = ppi_shares(truth, NO_JUDGE, [0] * 40)
    # The judge leaves no doubt about the 6 labels of the rarer kind; 3 more count as if there were
    # none.
    narrower = (3 / 9) ** 0.5
    assert np.ptp(bounds(guided)) == pytest.approx(np.ptp(bounds(alone)) * narrower)


def test_the_interval_of_a_share_over_clusters_is_exact_for_the_effective_number_of_labels():
    truth, _, f, clusters = answers(np.random.default_rng(3), 12)
    one_stratum = np.zeros(len(truth))
    drawn = stratified_draw(one_stratum, len(truth) // 2, least=3, seed=5)
    arguments = hide(truth, drawn), f, one_stratum
    share = ppi_shares(*arguments, cluster=clusters)[1]
    symmetric = ppi_shares(*arguments, of=np.ones(len(f)), cluster=clusters)[1]
    p = share.estimate
    n = drawn.sum()
    sizes = np.bincount(clusters[drawn])
    ones = truth[drawn, 1].sum()
    rarer = min(ones, n - ones)
    quantile = t.ppf(0.975, 11)
    measured = ((symmetric.high - p) / quantile) ** 2 / (p * (1 - p) / n)
    # as if all labels of a cluster were alike: one more label is so
    worst = (sizes**2).sum() / n
    effect = (rarer * measured + worst) / (rarer + 1)
    variance = p * (1 - p) * effect / n * (quantile / norm.ppf(0.975)) ** 2
    assert bounds(share) == pytest.approx(binomial(p, variance))
    assert share.method == "exact binomial for the effective number of values"


def test_a_share_over_clusters_has_an_interval_however_few_labels_of_it_there_are():
    def over_clusters(truth, size):
        (got,) = ppi_shares(truth, NO_JUDGE, [0] * 40, cluster=np.arange(40) // size)
        return got

    # 20 labels, each in a cluster of its own: none has the category. Clopper-Pearson with t for 40
    # clusters. The same labels in ten pairs count as ten.
    for size, labels in ((1, 20), (2, 10)):
        n = labels * (norm.ppf(0.975) / t.ppf(0.975, 40 / size - 1)) ** 2
        none = over_clusters(one_category(0), size)
        assert bounds(none) == pytest.approx((0, 1 - 0.025 ** (1 / n)))
    assert str(over_clusters(1 - one_category(0), 1)).startswith("1.000 [0.8")


@pytest.mark.parametrize("share", [0.03, 0.1])
def test_shares_of_answers_like_these_hold_where_they_are_rare(rng, share):
    # Latent grades, 44 documents, five answers a question, 250 labels: no luck of the draw decides
    # what is given.
    cut = norm.ppf(share, scale=(0.8**2 + 0.8**2 + 0.7**2) ** 0.5)
    held = []
    for run in range(150):
        cluster, score = latent_scores(rng, 44)
        truth = score < cut
        judge = score + rng.normal(0.4, 0.8, cluster.size) < cut
        drawn = stratified_draw(judge, min(250, len(truth) // 2), least=1, seed=run)
        labels = hide(truth[:, None], drawn)
        (got,) = ppi_shares(labels, judge[:, None], judge, cluster=cluster)
        assert not np.isnan(got.low)
        held.append(got.low <= share <= got.high)
    assert np.mean(held) >= 0.92


@pytest.mark.parametrize(("labels", "share"), [(20, 0.02), (20, 0.05), (150, 0.02), (150, 0.05)])
def test_the_mean_of_a_share_holds_with_few_labels(labels, share):
    rng = np.random.default_rng(labels)
    held = []
    for weight in ("tuned", 1.0) * 150:
        truth = rng.random(labels + 1000) < share
        judge = truth ^ (rng.random(truth.size) < 0.05)
        got = ppi_mean(truth[:labels], judge[:labels], judge[labels:], weight=weight)
        held.append(got.low <= share <= got.high)
        assert got.low >= 0
    assert np.mean(held) >= 0.92


def test_a_count_of_zero_has_an_interval_for_these_items():
    (none,) = ppi_shares(one_category(0), NO_JUDGE, [0] * 40)
    assert (none.estimate, none.low) == (0, 0)
    assert 0.05 < none.high < 0.2
    (all_of_them,) = ppi_shares(1 - one_category(0), NO_JUDGE, [0] * 40)
    assert bounds(all_of_them) == pytest.approx((1 - none.high, 1))
    # three labels of four, two with the category: Jeffreys' upper bound alone is .97
    (few,) = ppi_shares(one_category(2, labelled=3, items=4), np.zeros((4, 1)), [0] * 4)
    high = 2 / 3 + 0.25**0.5 * (beta.ppf(0.975, 2.5, 1.5) - 2 / 3)
    assert few.high == pytest.approx(high)


def test_intervals_of_rare_categories_hold(rng):
    held = []
    for run in range(300):
        truth, strata, f, _ = answers(rng, 60)
        rare = truth[:, :1] * (rng.random((len(truth), 1)) < 0.3)  # about 4 in 100
        (got,) = ppi_shares(hide(rare, stratified_draw(strata, 200, seed=run)), f[:, :1], strata)
        held.append(got.low <= rare.mean() <= got.high)
    assert 0.92 <= np.mean(held) <= 0.98


def test_a_draw_takes_the_floor_and_shares_the_rest_and_can_be_repeated():
    strata = np.repeat([1, 2, 3, 4, 5], [400, 200, 100, 30, 10])
    drawn = stratified_draw(strata, 250, seed=9)
    # 25 each but 10 of the last: 110; the other 140 by what is left: 375, 175, 75, 5, 0 of 630
    assert np.bincount(strata[drawn]).tolist() == [0, 25 + 83, 25 + 39, 25 + 17, 25 + 1, 10]
    assert (stratified_draw(strata, 250, seed=9) == drawn).all()
    assert (stratified_draw(strata, 250, seed=10) != drawn).any()
    assert stratified_draw(strata, 10_000, seed=9).all()
    draws = [stratified_draw([0] * 6 + [1] * 2, 5, least=1, seed=s) for s in range(2000)]
    assert np.mean(draws, axis=0) == pytest.approx([4 / 6] * 6 + [1 / 2] * 2, abs=0.04)


def test_one_label_of_two_items_says_little_of_a_share_and_nothing_of_a_difference():
    assert ppi_shares(*PAIR, ["a", "a"])[0].low < 0.5
    assert np.isnan(ppi_shares(*PAIR, ["a", "a"], of=np.ones(2))[0].low)


PAIR = np.array([[1.0], [NAN]]), np.array([[0.5], [0.5]])  # one item labelled, two predicted
test_bad_input_says_what_is_wrong = refusals(
    (lambda: ppi_shares(*PAIR, ["a", "b"]), DataError, "no label in stratum 'b'"),
    (
        lambda: ppi_shares(PAIR[0], np.array([[0.5], [NAN]]), ["a", "a"]),
        DataError,
        "a missing prediction",
    ),
    (
        lambda: ppi_shares([[1, NAN], [0, 1]], np.zeros((2, 2)), ["a", "a"]),
        DataError,
        "half a label",
    ),
    (lambda: ppi_shares([1, 0], [0.5, 0.5], ["a", "a"]), DataError, "the same two dimensions"),
    (lambda: ppi_shares(*PAIR, ["a", "a"], cluster=["c", "c"]), DataError, "1 cluster"),
    (lambda: stratified_draw([0] * 30 + [1] * 30, 40, seed=0), "2 strata of at least 25"),
)


def test_the_share_corrected_by_a_judges_errors_is_that_of_a_slow_bootstrap(rng):
    truth = (rng.random(60) < 0.4).astype(float)
    judged = np.where(rng.random(60) < 0.1, 1 - truth, truth)
    labels = np.where(np.arange(60) % 2, truth, np.nan)
    random = (rng.random(60) < 0.5).astype(float)

    def share(items):
        of = {kind: judged[items][labels[items] == kind].mean() for kind in (0, 1)}
        return (judged[items].mean() - of[0]) / (of[1] - of[0])

    def youden(items):
        return np.diff([random[items][labels[items] == kind].mean() for kind in (0, 1)])[0]

    slow = np.random.default_rng(0)
    resamples = slow.integers(0, 60, (2000, 60))
    drawn = [share(items) for items in resamples]
    seed = np.random.default_rng(0)
    got = rogan_gladen(labels, judged, seed=seed)
    assert got.estimate == pytest.approx(share(np.arange(60)))
    assert (got.low, got.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]).clip(0, 1))
    assert seed.random() == slow.random()  # the interval of Youden's J is of the same resamples
    pairs = rogan_gladen(labels, judged, cluster=np.arange(60) // 2)
    assert (pairs.clusters, pairs.method) == (30, "percentile bootstrap over clusters")
    refused = rogan_gladen(labels, random)
    informed = np.quantile([youden(items) for items in resamples], [0.025, 0.975])
    text = interval_text(youden(np.arange(60)), *informed, ".2f")
    assert refused.method == f"refused: Youden's J is {text}"
    assert np.isnan([refused.estimate, refused.low, refused.high]).all()
