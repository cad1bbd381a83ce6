"""Statistics against hand-worked cases, scipy, scikit-learn, simulation and published values."""

import numpy as np
import pandas as pd
import pytest
from checks import refusals, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference
from stats_parts import bounds, estimate_and_bounds

import ragbench as rb
from ragbench import stats
from ragbench.data import load_ragchecker_meta
from ragbench.errors import ConfigError, DataError
from ragbench.stats import (
    binomial_ci,
    compare,
    compare_pairs,
    correlation,
    holm,
    kappa,
    mean_interval,
    means,
    paired_difference,
    paired_permutation_test,
    pairwise_agreement,
    power_analysis,
    ppi_difference,
    ppi_mean,
    ppi_shares,
    preference_correlation,
    preference_difference,
)
from ragbench.stats.intervals import t_p_value

NAN = float("nan")


def test_the_mean_of_few_values_has_students_t():
    values = np.random.default_rng(2).normal(5, 1, 12)
    away = values - values.mean()
    effective = (away**2).sum() ** 2 / (away**4).sum()
    error = reference.sem(values) * np.sqrt(1 + 2 / effective)
    expected = reference.t.interval(0.95, 11, values.mean(), error)
    assert bounds(mean_interval(values)) == pytest.approx(expected)
    assert bounds(mean_interval(values, cluster=range(12))) == pytest.approx(expected)


def test_bootstrap_agrees_with_scipy_within_resampling_noise():
    values = np.random.default_rng(5).gamma(2, size=200)
    ours = mean_interval(values, resamples=8000)
    theirs = reference.bootstrap(
        (values,), np.mean, n_resamples=8000, method="percentile", rng=np.random.default_rng(9)
    ).confidence_interval
    assert ours.estimate == pytest.approx(values.mean())
    assert bounds(ours) == pytest.approx(theirs, abs=0.05 * np.ptp(theirs))


def test_a_seed_may_be_a_generator_which_goes_on(rng):
    values = np.arange(60) ** 2
    first, second = (bounds(mean_interval(values, resamples=400, seed=rng)) for _ in range(2))
    assert first == bounds(mean_interval(values, resamples=400, seed=0)) != second


def test_bootstrap_counts_missing_values_and_leaves_them_out():
    got = mean_interval([0.2, NAN, 0.4, None, 0.9])
    assert (got.estimate, got.n, got.n_missing) == (pytest.approx(0.5), 3, 2)
    assert bounds(got) == bounds(mean_interval([0.2, 0.4, 0.9]))
    assert str(got) == f"0.500 [{got.low:.3f}, {got.high:.3f}] (n = 3, 2 missing)"


def test_bootstrap_of_nothing_is_nan_and_of_one_value_has_no_bounds():
    nothing = mean_interval([NAN])
    assert (nothing.n, nothing.n_missing) == (0, 1)
    assert np.isnan(estimate_and_bounds(nothing)).all()
    single = mean_interval([0.7, NAN])
    assert single.estimate == 0.7
    assert np.isnan(bounds(single)).all()


def test_grouped_bootstrap_of_copies_is_as_wide_as_without_the_copies():
    values = np.random.default_rng(1).random(80)
    copies = values.repeat(5)
    grouped = bounds(mean_interval(copies, cluster=np.arange(80).repeat(5)))
    assert grouped == pytest.approx(bounds(mean_interval(values)))
    naive = bounds(mean_interval(copies))
    assert np.ptp(naive) < 0.6 * np.ptp(grouped)


def test_few_clusters_get_the_t_of_a_jackknife_by_hand():
    # Groups (0, 0, 0), (1) and (1, 0): without each the mean is 2/3, 1/5, 1/4; sizes 3, 1, 2: 36 /
    # 14 = 2.57 effective.
    values = [0, 0, 0, 1, 1, 0]
    got = mean_interval(values, cluster=list("aaabcc"))
    without = [2 / 3, 1 / 5, 1 / 4]
    t = reference.t.ppf(0.975, 36 / 14 - 1)
    # exact binomial, for as many values as have the variance of the jackknife
    n = 1 / 3 * 2 / 3 / (2 * np.var(without)) * (reference.norm.ppf(0.975) / t) ** 2
    low = reference.beta.ppf(0.025, n / 3, n * 2 / 3 + 1)
    high = reference.beta.ppf(0.975, n / 3 + 1, n * 2 / 3)
    assert estimate_and_bounds(got) == pytest.approx((1 / 3, low, high))
    assert (got.clusters, got.effective) == (3, pytest.approx(36 / 14))
    assert str(got).endswith("(n = 6 in 3 clusters, effectively 2.6)")
    grades = mean_interval(3 * np.array(values), cluster=list("aaabcc"))
    away = without - np.mean(without)
    two_more = 1 + 2 * (away**4).sum() / (away**2).sum() ** 2
    half = 3 * t * np.sqrt(2 * np.var(without) * two_more)
    assert half > 1  # grades of at least 0 have no mean below it
    assert estimate_and_bounds(grades) == pytest.approx((1, 0, 1 + half))
    around = mean_interval(3 * np.array(values) - 1, cluster=list("aaabcc"))
    assert estimate_and_bounds(around) == pytest.approx((0, -half, half))
    many = mean_interval(np.arange(90) % 2, cluster=np.arange(90) // 3)
    assert (many.clusters, many.effective) == (30, 30)


def test_the_p_value_of_an_interval_by_hand_and_as_the_t_test_of_clusters_of_one():
    # Two clusters: one degree of freedom, the Cauchy distribution. t = 1 has p = 1/2, t = tan(45/2
    # degrees) has 3/4.
    for t, p in ((1, 0.5), (np.tan(np.pi / 8), 0.75)):
        half = np.tan(np.pi / 2 * 0.95)
        assert t_p_value(-3 * t, 3 * half, 2) == pytest.approx(p)
    rng = np.random.default_rng(8)
    for shift in (0.1, 0.3, 0.6):
        a = rng.normal(shift, 1, 23)
        b = rng.normal(0, 1, 23)
        got = ppi_difference(a, b, a, b, weight=0)
        expected = reference.ttest_rel(a, b).pvalue
        assert got.p == pytest.approx(expected)
        assert (got.low <= 0 <= got.high) == (expected > 0.05)
    nothing = ppi_difference([1, 1], [1, 1], [1, 0], [0, 0])
    assert np.isnan([nothing.low, nothing.p]).all()


def paired_by_hand(a, b, groups):
    """Slow: every group is left out in turn; then t with two more differences in the spread."""
    data = pd.DataFrame({"d": np.subtract(a, b), "group": groups})
    names = data["group"].unique()
    left = [data.loc[data["group"] != name, "d"].mean() for name in names]
    away = [mean - np.mean(left) for mean in left]
    second = sum(u**2 for u in away)
    fourth = sum(u**4 for u in away)
    size_of_one = fourth / second  # the square of the size that makes the spread
    G = len(names)
    error = np.sqrt((G - 1) / G * (second + 2 * size_of_one))
    sizes = data["group"].value_counts()
    df = sizes.sum() ** 2 / (sizes**2).sum() - 1
    mean = data["d"].mean()
    half = reference.t.ppf(0.975, df) * error
    return mean, mean - half, mean + half, 2 * reference.t.sf(abs(mean) / error, df)


@pytest.mark.parametrize("size", [1, 3])
def test_a_paired_difference_is_the_slow_version_of_it(rng, size):
    for n in (4, 30, 200):
        a, b = rng.normal(0.2, 1, (2, n))
        groups = np.arange(n) // size
        got = paired_difference(a, b, cluster=groups)
        assert (*estimate_and_bounds(got), got.p) == pytest.approx(paired_by_hand(a, b, groups))


def test_two_wins_of_four_by_hand():
    # deviations of a half: 4 effective, so (1 + 2 / 4) * 1 / 12 is the squared error
    got = paired_difference([4, 4, 2, 2], [2, 2, 2, 2])
    half = reference.t.ppf(0.975, 3) * np.sqrt(1.5 * 4 / 12)
    assert bounds(got) == pytest.approx((1 - half, 1 + half))
    cut = paired_difference([1, 1, 0, 0], [0, 0, 0, 0])
    assert (cut.low, cut.high) == (pytest.approx(0.5 - half / 2), 1)  # 1.06 is impossible
    assert cut.p == got.p == pytest.approx(2 * reference.t.sf(np.sqrt(2), 3))


def test_equal_differences_have_a_p_value_and_without_a_difference_it_is_one():
    # two more of their size are the whole spread: t is sqrt(n (n - 1) / 2)
    for n in (2, 6, 20):
        p = 2 * reference.t.sf(np.sqrt(n * (n - 1) / 2), n - 1)
        for size in (0.1, 3):
            assert paired_difference([size] * n, [0] * n).p == pytest.approx(p)
    same = paired_difference([1, 2, 3], [1, 2, 3])
    assert (same.p, same.method) == (1, "")
    assert np.isnan(paired_difference([1], [0]).p)
    assert np.isnan(mean_interval([1, 2, 4]).p)


@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 2), min_size=2, max_size=40),
    st.integers(1, 5),
)
def test_p_is_below_5_percent_exactly_where_the_interval_excludes_0(pairs, size):
    a, b = np.transpose(pairs)
    got = paired_difference(a, b, cluster=np.arange(len(a)) // size)
    if not np.isnan(got.low):
        assert (got.p < 0.05) == (got.low > 0 or got.high < 0)


def test_intervals_of_sparse_differences_hold_and_their_tests_do_not_err(rng):
    held = []
    wrong = []
    for _ in range(400):
        differs = rng.random(40) < 0.1
        won = paired_difference(differs * rng.random(40), np.zeros(40))  # mean 0.05
        held.append(won.low <= 0.05 <= won.high)
        rare = paired_difference(np.where(differs, 0.9, -0.1), np.zeros(40))  # mean 0
        wrong.append(rare.p < 0.05)
    assert np.mean(held) > 0.9
    assert np.mean(wrong) < 0.07


def test_a_mean_of_mostly_zeros_has_an_interval_that_holds(rng):
    held = []
    for _ in range(300):
        values = (rng.random(60) < 0.1) * rng.random(60)
        got = mean_interval(values)
        held.append(got.low <= 0.05 <= got.high)
    assert got.method == "exact binomial for the effective number of values"
    assert np.mean(held) > 0.92
    assert mean_interval(3 * values).method == "Student's t"
    assert mean_interval(rng.random(60)).method == "percentile bootstrap"


def test_equal_values_have_the_exact_interval_of_a_share_or_none():
    for value in (0, 1):
        exact = bounds(binomial_ci(10 * value, 10))
        assert bounds(mean_interval([value] * 10, share=True)) == exact
        assert bounds(mean_interval([bool(value)] * 10)) == exact
    without = [
        mean_interval([0] * 20),
        mean_interval([1] * 20),  # a metric from 0 to 3, perhaps
        mean_interval([0.3] * 10),
        paired_difference([1] * 9, [1] * 9),
        correlation([1, 2, 3], [2, 4, 6]),
        kappa([1, 1], [1, 1]),
        ppi_mean([1] * 5, [1] * 5, [1] * 100),
        ppi_difference([0, 0, None], [0, 0, None], [1] * 3, [1] * 3),
    ]
    assert np.isnan([bounds(i) for i in without]).all()
    rows = pd.DataFrame({"x": [1.0] * 10, "fully_right": True, "system": "a", "y": True})
    assert np.isnan(means(rows, [], "x")["low"].item())
    assert means(rows, [], "fully_right")["low"].item() == pytest.approx(0.692, abs=1e-3)
    both = pd.concat([rows, rows.assign(system="b", y=False)])
    assert means(both, "system", "y")["low"].tolist() == pytest.approx([0.692, 0], abs=1e-3)


def test_kappa_of_copies_in_groups_is_little_wider_than_that_of_the_items(rng):
    a = rng.integers(0, 3, 40)
    b = np.where(rng.random(40) < 0.7, a, rng.integers(0, 3, 40))
    copies = kappa(a.repeat(4), b.repeat(4), cluster=np.arange(40).repeat(4))
    alone = kappa(a, b)
    assert 1 < (copies.high - copies.low) / (alone.high - alone.low) < 1.1  # t of 39
    assert bounds(copies) == pytest.approx(bounds(alone), abs=0.05)
    assert (copies.n, copies.clusters) == (160, 40)


def test_a_constant_judge_of_many_conversations_agrees_as_by_chance_within_a_small_interval(rng):
    conversations = np.repeat(np.arange(40), 8)
    person = rng.integers(0, 4, 320)
    constant = kappa(
        person, np.full(320, 2), weights="quadratic", labels=range(4), cluster=conversations
    )
    assert constant.estimate == 0
    assert -0.06 < constant.low < 0 < constant.high < 0.06


def test_the_interval_of_quadratic_kappa_over_conversations_holds(rng):
    true = 0.661  # of 1,000,000 items made in the same way
    held = []
    width = []
    for _ in range(120):
        conversation = np.repeat(np.arange(30), rng.integers(2, 8, 30))
        level = rng.normal(0, 0.7, 30)[conversation] + rng.normal(0, 0.7, len(conversation))
        people = [level + rng.normal(0, 0.6, len(level)) for _ in range(2)]
        grades = [np.digitize(person, (-1, 0, 1)) for person in people]
        got = kappa(
            *grades, weights="quadratic", cluster=conversation, labels=range(4), resamples=400
        )
        held.append(got.low <= true <= got.high)
        width.append(got.high - got.low)
    assert 0.9 <= np.mean(held) <= 0.99
    assert np.mean(width) < 0.25


def test_weighted_kappa_takes_the_distance_of_numbers_and_the_order_that_is_given():
    def weighted(a, b, **order):
        return kappa(a, b, weights="quadratic", **order).estimate

    words = "lmhlmhlm", "lmhmmhhm"
    with refused(ConfigError, r"labels without a given order: \['h', 'l', 'm'\]"):
        weighted(*map(list, words))
    numbers = [["lmh".index(word) for word in judge] for judge in words]
    assert weighted(*map(list, words), labels=("l", "m", "h")) == weighted(*numbers)
    # Grades 2 to 4 that nobody gave: 5 is as far from 1 as with them.
    grades = [1, 5, 1, 4, 4], [1, 5, 5, 5, 1]
    assert weighted(*grades) == pytest.approx(weighted(*grades, labels=(1, 2, 3, 4, 5)))


def test_pairs_with_a_missing_side_are_left_out_and_counted():
    got = paired_difference([1, 2, NAN, 4], [0, 1, 1, NAN])
    assert (got.estimate, got.n, got.n_missing) == (1, 2, 2)
    got = correlation([1, 2, NAN, 4], [2, 4, 6, NAN])
    assert (got.estimate, got.n, got.n_missing) == (pytest.approx(1), 2, 2)
    got = paired_permutation_test([1, NAN, 3], [0, 0, None])
    assert (got.n, got.n_missing, got.p_value) == (1, 2, 1)
    assert np.isnan(paired_permutation_test([NAN], [1]).p_value)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (47, 50), (1, 1)])
def test_binomial_interval_is_clopper_pearson(k, n):
    got = binomial_ci(k, n)
    expected = reference.binomtest(k, n).proportion_ci(0.95, "exact")
    assert estimate_and_bounds(got) == pytest.approx((k / n, expected.low, expected.high))


def test_ppi_mean_by_hand():
    # Of values 0 and 2, which are no shares: 1 + (1 - .5) = 1.5. Leaving out an item at a time:
    y = np.array([2, 0, 2, 0])
    f = np.array([2, 0, 0, 0])
    rest = [0, 2, 2, 0]
    judged = np.append(f, rest)
    got = ppi_mean(y, f, rest)
    again = [
        2 * np.delete(judged, i).mean() + (y - 2 * f)[np.arange(4) != i].mean() for i in range(8)
    ]
    half = reference.t.ppf(0.975, 7) * np.sqrt(7 * np.var(again))
    assert estimate_and_bounds(got) == pytest.approx((1.5, 1.5 - half, 1.5 + half))
    assert ppi_mean(y, f, rest, weight=0).estimate == 1
    short = ppi_mean([2, NAN, 0], [2, 2, NAN], [0, NAN, 2])
    assert (short.n, short.n_missing) == (1, 3)
    assert np.isnan(bounds(short)).all()


def test_ppi_mean_of_many_items_has_the_published_interval(rng):
    # w^2 var(judge) / N + var(human - w judge) / n
    human = rng.normal(size=300)
    judged = human + rng.normal(size=300)
    others = rng.normal(size=900) * 2**0.5
    many = ppi_mean(human, judged, others, weight=0.6)
    variance = 0.36 * others.var() / 900 + (human - 0.6 * judged).var() / 300
    assert many.high - many.low == pytest.approx(2 * 1.96 * variance**0.5, rel=0.02)
    assert many.method == "Student's t"


def test_ppi_mean_of_a_share_is_that_of_all_items():
    share = ppi_mean([1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0])
    labels = np.array([1, 0, 1, 0, *[NAN] * 4])
    judged = np.array([1, 0, 0, 0, 0, 1, 1, 0])
    (same,) = ppi_shares(labels[:, None], judged[:, None], [0] * 8, cluster=range(8), weight=2.0)
    assert estimate_and_bounds(share) == (0.75, *bounds(same))
    assert (share.n, share.n_missing, share.clusters) == (4, 0, 0)


def test_permutation_test_by_hand():
    # Differences 1, 2, 3: of the 8 sign patterns only +++ and --- reach |6|.
    got = paired_permutation_test([1, 2, 3], [0, 0, 0])
    assert (got.difference, got.p_value, got.exact) == (2, 2 / 8, True)


def test_a_test_of_random_patterns_is_never_zero_and_ties_in_the_last_bit_count():
    sampled = paired_permutation_test([1] * 40, [0] * 40, resamples=999)
    assert (sampled.p_value, sampled.exact) == (2 / 1000, False)
    # 0.1 + 0.2 and 0.3 differ in the last bit: all eight patterns of (.1, .2, -.3) with |sum| >= 0
    # count.
    assert paired_permutation_test([0.1, 0.2, 0.0], [0.0, 0.0, 0.3]).p_value == 1


def test_holm_by_hand_and_missing_tests_do_not_count():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, NAN, 0.04]) == pytest.approx([0.02, NAN, 0.04], nan_ok=True)
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    assert holm([]).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.01, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(p, alpha):
    rejected = set()
    for step, i in enumerate(np.argsort(p, kind="stable")):
        if p[i] * (len(p) - step) > alpha:
            break
        rejected.add(int(i))
    assert set(np.flatnonzero(holm(p) <= alpha).tolist()) == rejected


THEIRS = {
    "pearson": reference.pearsonr,
    "spearman": reference.spearmanr,
    "kendall": reference.kendalltau,
}


@pytest.mark.parametrize("method", THEIRS)
def test_two_points_have_a_correlation(method):
    for y, expected in (([3, 4], 1), ([4, 3], -1)):
        assert correlation([1, 2], y, method, resamples=0).estimate == pytest.approx(expected)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 0.7]), min_size=4, max_size=12),
    st.sampled_from([-3.3, 0.1, 7.0]),
    st.sampled_from([*THEIRS]),
)
def test_a_correlation_and_its_interval_stay_within_minus_1_and_1(x, slope, method):
    got = correlation(x, slope * np.array(x) + 1e-17, method, resamples=50)
    for number in estimate_and_bounds(got):
        assert np.isnan(number) or -1 <= number <= 1


@pytest.mark.parametrize("method", THEIRS)
@pytest.mark.parametrize("per_group", [1, 4])
def test_correlation_interval_is_of_the_percentiles_over_resampled_points(rng, method, per_group):
    x = rng.integers(0, 9, 40)
    y = x + rng.integers(0, 9, 40)
    n_groups = 40 // per_group
    points = np.arange(40).reshape(n_groups, per_group)
    slow_rng = np.random.default_rng(0)
    slow = []
    for _ in range(600):
        drawn = points[slow_rng.integers(0, n_groups, n_groups)].ravel()
        slow.append(THEIRS[method](x[drawn], y[drawn]).statistic)
    got = correlation(x, y, method, cluster=np.arange(40) // per_group, resamples=600, seed=0)
    low, high = np.quantile(slow, [0.025, 0.975])
    if (
        n_groups < 30
    ):  # of Fisher's z, wider by t of 9 over the normal's, and by the unbiased variance
        wider = reference.t.ppf(0.975, 9) / reference.norm.ppf(0.975) * np.sqrt(10 / 9)
        z = np.arctanh(got.estimate)
        low, high = np.tanh(z + (np.arctanh([low, high]) - z) * wider)
    assert bounds(got) == pytest.approx((low, high), abs=1e-3)


@pytest.mark.parametrize("method", THEIRS)
def test_correlation_of_a_constant_is_nan_and_constant_resamples_are_left_out(method):
    for x, y in (([1, 1, 1], [1, 2, 3]), ([0.1] * 7, range(7)), ([1], [2])):
        assert np.isnan(correlation(x, y, method).estimate)
    got = correlation([0.1, 0.1, 0.1, 0.7], [1, 2, 3, 4], method, resamples=300)
    assert -1 <= got.low <= got.estimate <= got.high <= 1


@settings(max_examples=150)
@pytest.mark.filterwarnings("ignore:An input array is constant")
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=30),
    st.sampled_from([*THEIRS]),
)
def test_correlation_agrees_with_scipy_ties_included(points, method):
    x, y = np.array(points).T
    expected = THEIRS[method](x, y).statistic
    ours = correlation(x, y, method, resamples=0).estimate
    assert ours == pytest.approx(expected, nan_ok=True)


def test_preference_difference_maps_the_extremes_to_two():
    mapped = preference_difference([0.5, 0.2, 0.4], [0.4, 0.5, 0.5])
    assert mapped == pytest.approx([-2, 2, 0])
    assert np.isnan(preference_difference([0, 0], [1, 1])).all()


def test_a_missing_difference_takes_the_median_of_the_others_where_asked():
    second = [0.0, NAN, 0.25, 1.0]  # differences 0, -, .25, 1: median .25, so 4 * .25 - 2
    assert preference_difference([0] * 4, second, "median").tolist() == [-2, -1, -1, 2]
    kept = preference_difference([0] * 4, second)
    assert np.array_equal(kept, [-2, NAN, -1, 2], equal_nan=True)
    assert np.isnan(preference_difference([0, 0, NAN], [1, 1, 1], "median")).all()
    labels = np.array([[-2.0, -1], [0, 0], [1, 0], [2, 2]])
    got = preference_correlation([0] * 4, second, labels, missing="median")
    expected = reference.pearsonr(np.repeat([-2, -1, -1, 2], 2), labels.ravel()).statistic
    assert (got.estimate, got.n) == (pytest.approx(expected), 8)


@pytest.mark.filterwarnings("error")
def test_preference_correlation_counts_each_pair_once_per_annotator():
    s1 = np.array([0.1, 0.5, 0.9, 0.4])
    s2 = np.array([0.8, 0.5, 0.2, 0.5])
    labels = np.array([[2.0, 1], [0, 0], [-2, -1], [1, -1]])
    got = preference_correlation(s1, s2, labels)
    expected = reference.pearsonr((s2 - s1).repeat(2), labels.ravel()).statistic
    assert (got.estimate, got.n) == (pytest.approx(expected), 8)
    labels[0, 1] = NAN
    assert preference_correlation(s1, s2, labels).n_missing == 1


@pytest.mark.data
@pytest.mark.parametrize(
    ("aspect", "pearson", "spearman", "human_pearson", "human_spearman", "within_one"),
    [
        ("correctness", 49.66, 46.95, 63.67, 59.19, 90.71),
        ("completeness", 60.67, 58.11, 71.91, 68.36, 91.79),
        ("overall", 61.93, 60.90, 70.09, 68.89, 90.36),
    ],
)
def test_ragchecker_table_2_rows_are_reproduced(
    data_mirror, aspect, pearson, spearman, human_pearson, human_spearman, within_one
):
    def percent(interval):
        return round(100 * interval.estimate, 2)

    meta = load_ragchecker_meta()
    labels = np.stack(meta[aspect])
    scores = np.stack(meta[f"recorded {aspect}"]).T
    got = preference_correlation(*scores, labels)
    assert got.n == 560
    # 49.655 and 61.925 before rounding
    assert percent(got) in (pearson, round(pearson - 0.01, 2))
    assert got.estimate == pytest.approx(pearson / 100, abs=6e-5)
    assert percent(preference_correlation(*scores, labels, "spearman")) == spearman
    assert percent(correlation(*labels.T)) == human_pearson
    assert percent(correlation(*labels.T, "spearman")) == human_spearman
    within = np.abs(np.diff(labels)[:, 0]) <= 1
    assert percent(mean_interval(within, resamples=0)) == within_one
    assert got.low < got.estimate < got.high < 0.75


def test_an_interval_of_another_statistic_than_the_mean_is_of_its_resamples():
    found = mean_interval(np.arange(9.0), np.median, cluster=[0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert (found.estimate, found.low, found.high) == (4.0, 1.0, 7.0)  # three groups, whole


def test_pairwise_agreement_counts_a_tie_as_half():
    better = [0.9] * 46 + [0.5] * 2 + [0.1] * 2 + [NAN]
    got = pairwise_agreement(better, [0.5] * 51)
    assert (got.wins, got.ties, got.losses) == (46, 2, 2)
    assert (got.expected.estimate, got.expected.n, got.expected.n_missing) == (0.94, 50, 1)
    exact = reference.binomtest(47, 50).proportion_ci()
    assert bounds(got.expected) == pytest.approx(exact)
    won = {pairwise_agreement([1, 0, 0], [0, 0, 0], seed=s).random for s in range(40)}
    assert won == {1 / 3, 2 / 3, 1}
    assert np.isnan(pairwise_agreement([], []).random)


# 20 both yes, 5 yes/no, 10 no/yes, 15 both no
JUDGES = list("y" * 25 + "n" * 25), list("y" * 20 + "n" * 5 + "y" * 10 + "n" * 15)


def test_kappa_by_hand():
    # observed 0.7, by chance 0.5 -> 0.4
    assert kappa(*JUDGES).estimate == pytest.approx(0.4)


@pytest.mark.parametrize("weights", [None, "quadratic"])
def test_kappa_agrees_with_scikit_learn(weights):
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    a = rng.integers(1, 6, 120)
    b = np.where(rng.random(120) < 0.5, a, rng.integers(1, 6, 120))
    theirs = cohen_kappa_score(a, b, weights=weights)
    assert kappa(a, b, weights=weights).estimate == pytest.approx(theirs)


def test_kappa_interval_is_that_of_the_posterior_of_the_table():
    # Two labels, items on their own: Jeffreys' prior, half an item in each of the four cells.
    slow = []
    for p in np.random.default_rng(5).dirichlet([20.5, 5.5, 10.5, 15.5], 4000).reshape(-1, 2, 2):
        by_chance = p.sum(axis=1) @ p.sum(axis=0)
        slow.append((p.trace() - by_chance) / (1 - by_chance))
    expected = np.quantile(slow, [0.025, 0.975])
    assert bounds(kappa(*JUDGES, resamples=4000)) == pytest.approx(tuple(expected), abs=0.02)
    same = kappa([1, 2] * 10, [1, 2] * 10)  # that nothing differed in 20 items is no proof
    assert (same.estimate, same.high) == (1, 1)
    assert 0.5 < same.low < 0.95


@pytest.mark.parametrize(("n", "true"), [(50, 0.3), (50, 0.85), (150, 0.6)])
def test_the_interval_of_kappa_holds_where_a_label_is_rare(n, true):
    rng = np.random.default_rng(n)
    held = []
    for _ in range(200):
        a = rng.random(n) < 0.05
        # the same label, or one by chance
        b = np.where(rng.random(n) < true, a, rng.random(n) < 0.05)
        got = kappa(a, b, labels=[True, False], resamples=400)
        if not np.isnan(got.estimate):
            held.append(got.low <= true <= got.high)
    assert np.mean(held) >= 0.9


def test_kappa_of_one_shared_label_is_nan_and_unscored_items_are_counted():
    assert np.isnan(kappa([1, 1, 1], [1, 1, 1]).estimate)
    assert np.isnan(kappa([], []).estimate)
    got = kappa([1, 2, None, 1, NAN], [1, 2, 2, None, 1])
    assert (got.estimate, got.n, got.n_missing) == (1, 2, 3)


test_bad_input_says_what_was_wrong = refusals(
    (lambda: mean_interval(range(40), resamples=0.5), "resamples 0.5"),
    (lambda: mean_interval([1, float("inf")]), DataError, "first at position 1"),
    (lambda: mean_interval(["a"]), DataError, "not numbers"),
    (lambda: mean_interval([[1, 2]]), DataError, r"shape \(1, 2\)"),
    (lambda: mean_interval([1, 2], cluster=[1]), DataError, "1 group labels for 2 points"),
    (lambda: paired_permutation_test([1], [1, 2]), DataError, "a 1, b 2"),
    (lambda: paired_permutation_test([1], [2], resamples=0), "resamples 0"),
    (lambda: correlation([1], [1], "rank"), "kendall, pearson, spearman"),
    (lambda: preference_correlation([0, 1], [1, 0], [1]), DataError, "scores 2, labels 1"),
    (lambda: preference_correlation([0, 1], [1, 0], [1, 3]), DataError, r"outside \[-2, 2\]"),
    (lambda: kappa([1], [1, 2]), DataError, "a 1, b 2"),
    (lambda: kappa([1], [1], weights="cubic"), "quadratic"),
    (lambda: kappa([1, 6], [1, 1], labels=[1, 5]), DataError, r"\[6, 1\] at position 1"),
    (lambda: binomial_ci(3, 2), "0 <= successes <= n"),
    (lambda: ppi_mean([1], [1, 2], [1]), DataError, "labelled 1, judged_labelled 2"),
    (lambda: ppi_mean([1], [1], []), DataError, "0 with the judge's alone"),
    (lambda: ppi_mean([1, 2], [1, 2], [1, 2], weight="auto"), "auto"),
)


def test_means_average_each_group_with_its_counts_worked_by_hand():
    rows = pd.DataFrame(
        [["a", 1.0, 0.0], ["b", 0.0, 1], ["a", 0.5, 1], ["b", NAN, 1]], columns=["system", "x", "y"]
    ).assign(question=[1, 1, 2, 2])
    rows["y"] = rows["y"].astype(bool)
    table = means(rows, ["system"], ["x", "y"])
    assert table.columns.tolist() == ["system", "metric", "mean", "low", "high", "n", "unscored"]
    assert table[["system", "metric", "mean", "n", "unscored"]].to_numpy().tolist() == [
        ["a", "x", 0.75, 2, 0], ["a", "y", 0.5, 2, 0], ["b", "x", 0.0, 1, 1], ["b", "y", 1.0, 2, 0],
    ]  # fmt: skip
    # as much as an effective 3 * (1.96 / 12.7)^2 values of a share: nearly nothing
    assert table.loc[0, ["low", "high"]].tolist() == pytest.approx([0, 1])
    assert table.attrs["intervals"] == [
        "exact binomial",
        "exact binomial for the effective number of values",
    ]
    alone = means(rows, [], "y", cluster="system")
    expected = bounds(mean_interval(rows["y"], cluster=rows["system"]))
    assert alone.to_numpy().tolist() == [[0.75, *expected, 4, 0, 2, 2]]
    assert "metric" not in alone


def grid(questions=20, seed=3, **named):
    """Rows of a grid of eight settings: what a question is like counts for more than the setting."""
    rng = np.random.default_rng(seed)
    number = np.arange(8 * questions) // 8
    names = [f"q{n}" for n in number]
    hard = rng.random(questions)[number]
    score = np.clip(hard + rng.normal(0, 0.05, number.size), 0, 1)
    settings = [*range(8)] * questions
    return pd.DataFrame(
        {"question_id": names, "question": names, "setting": settings, "ir_score": score} | named
    )


def test_rows_of_one_question_are_no_independent_questions():
    rows = grid()
    by_hand = mean_interval(rows["ir_score"], cluster=rows["question_id"])
    table = means(rows, [], "ir_score")
    assert table[["mean", "low", "high", "n", "clusters"]].to_numpy().tolist() == [
        [*estimate_and_bounds(by_hand), 160, 20]
    ]
    each = means(rows, [], "ir_score", cluster=None)
    assert "clusters" not in each
    assert (each["high"] - each["low"]).item() < 0.5 * (by_hand.high - by_hand.low)
    # each question once a setting: as on their own
    once = means(rows, ["setting"], "ir_score")
    assert "clusters" not in once
    plain = mean_interval(rows[rows["setting"] == 0]["ir_score"])
    assert tuple(once.loc[0, ["low", "high"]]) == bounds(plain)


def test_both_counts_stand_there_where_one_system_has_each_question_once_and_another_twice():
    rows = grid()
    once = rows[rows["setting"] == 0].assign(setting="once")
    twice = rows[rows["setting"].isin([1, 2])].assign(setting="twice")
    table = stats.means(pd.concat([once, twice]), ["setting"], "ir_score")
    assert table[["n", "clusters"]].to_numpy().tolist() == [[20, 20], [40, 20]]


def test_questions_without_ids_are_told_apart_by_their_texts_and_those_of_two_data_sets_by_its_name():
    rows = grid(questions=10)
    by_text = means(rows.drop(columns="question_id"), [], "ir_score")
    pd.testing.assert_frame_equal(by_text, means(rows, [], "ir_score"))
    # nothing says what belongs together
    assert "clusters" not in means(rows[["ir_score"]], [], "ir_score")
    two = pd.concat([grid(10, data="one"), grid(10, seed=4, data="two")])
    assert means(two, [], "ir_score")["clusters"].item() == 20


def test_a_value_without_a_group_is_one_of_its_own_with_a_warning():
    values = np.random.default_rng(5).random(40)
    groups = [*range(10)] * 2 + [None] * 19 + [NAN]
    own = [*range(10)] * 2 + [*range(100, 120)]
    with pytest.warns(UserWarning, match="20 of 40 values have no group"):
        got = mean_interval(values, cluster=groups)
    assert got == mean_interval(values, cluster=own)
    with pytest.warns(UserWarning, match="1 of 3 values have no group"):
        test = paired_permutation_test([1, 2, 1], [0, 0, 0], cluster=["a", None, "a"])
    assert test.p_value == 2 / 4
    rows = compared_rows().assign(topic=["x", "x", None, None] * 3)
    with pytest.warns(UserWarning, match="2 of 4 questions have no 'topic'") as warned:
        table = compare(rows, "system", "score", cluster="topic")
    assert table["clusters"].tolist() == [3, 2, 2]
    assert len(warned) == 1


def test_grades_have_no_mean_but_a_share_that_is_right():
    grades = [5, 5, 4, 1, "5", "4", 5.0, 7, 5, 4, 3, None]
    rows = compared_rows().rename(columns={"score": "grade"}).assign(grade=grades)
    for function in (means, compare):
        with refused(ConfigError, "'fully_right'"):
            function(rows, "system", "grade")
    table = means(rows, "system", "fully_right")
    assert table[["mean", "n", "unscored"]].to_numpy().tolist() == [
        [0.5, 4, 0],
        [2 / 3, 3, 1],
        [1 / 3, 3, 1],
    ]
    assert compare(rows, "system", "fully_right")["n"].tolist() == [3, 3, 3]


def test_questions_that_share_what_the_rows_know_are_compared_together_unless_that_is_refused():
    rows = compared_rows()
    together = {
        "topic": ["x", "x", "y", "y"],
        "relevant": [["d1"], {"d1": 1, "d2": 2}, ["d2"], ["d3"]],
    }
    for column, values in together.items():
        known = rows.assign(**{column: values * 3})
        assert compare(known, "system", "score")["clusters"][0] == 2
        assert "clusters" not in compare(known, "system", "score", cluster=None)
    # One cluster for all, or one for each question: nothing is known that divides them.
    for nothing in (["x"] * 4, list("abcd"), [None] * 4):
        assert "clusters" not in compare(rows.assign(topic=nothing * 3), "system", "score")


def compared_rows() -> pd.DataFrame:
    """Three systems over four questions; B is always wrong, C lacks a score."""
    systems = {"question_id": list("abcd") * 3, "system": list("AAAABBBBCCCC")}
    return pd.DataFrame(systems).assign(score=[1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 3, NAN])


def test_columns_that_are_not_there_and_several_rows_for_a_question_are_told():
    rows = pd.DataFrame(
        {"question_id": ["a", "b"] * 2, "system": list("xxyy"), "N": 9, "f1": [0.0, 1.0, 1.0, 0.5]}
    )
    pd.testing.assert_frame_equal(means(rows, "system", "f1"), means(rows, ["system"], "f1"))
    unknown = [
        lambda: means(rows, "sytem", "f1"),
        lambda: means(rows, ["system"], ["f1", "f2"]),
        lambda: compare(rows.drop(columns="question_id"), "system", "f1", by="N"),
        lambda: compare(rows[:0].drop(columns="f1"), "system", "f1", by="N"),
        lambda: compare(rows, "system", "f1", by="k"),
        lambda: compare(rows, "system", "f1", cluster="topic"),
    ]
    for call in unknown:
        with refused(ConfigError, "unknown column"):
            call()
    with refused(ConfigError, "unknown column 'topic'"):
        means(rows, "system", "f1", cluster="topic")
    assert len(compare(rows, "system", "f1", by="N")) == 1
    named = pd.concat([rows.assign(method=name) for name in ("m1", "m2")])
    assert compare(named, "system", "f1", by="method")["method"].tolist() == ["m1", "m2"]
    twice = pd.concat([rows, rows.assign(N=20)])
    assert len(compare(twice, "system", "f1", by=["N"])) == 2
    with refused(DataError, r"x has several rows for the question 'a'(?s:.)*by="):
        compare(twice, "system", "f1")


def test_compare_tests_every_pair_on_its_shared_questions_and_corrects_over_the_table():
    table = compare(compared_rows(), "system", "score")
    worked = pd.DataFrame(
        [
            ["A", "B", 2.5, 2.5, 0, 4, 4, 0, 0, 0],
            ["A", "C", 0, 2, 2, 3, 0, 3, 0, 1],
            ["B", "C", -2, 0, 2, 3, 0, 0, 3, 1],
        ],
        columns=[
            "a",
            "b",
            "difference",
            "mean a",
            "mean b",
            "n",
            "wins",
            "ties",
            "losses",
            "missing",
        ],
    )
    assert table[worked.columns].to_dict("records") == worked.to_dict("records")
    p = paired_difference([1, 2, 3, 4], [0] * 4).p, 1, paired_difference([0] * 3, [1, 2, 3]).p
    assert table["p"].tolist() == [*p]
    assert table["p_holm"].tolist() == [*holm(p)]
    assert table["needed"].isna().all()
    need = power_analysis([1, 2, 3, 4], [0, 0, 0, 0], difference=0.5, alpha=0.05 / 3)
    asked = compare(compared_rows(), "system", "score", difference=0.5)
    assert asked.loc[0, ["detectable", "needed"]].tolist() == [need.detectable, need.needed]
    # Below 7 pairs no pattern of signs reaches 0.05 / 3.
    assert compare(compared_rows(), "system", "score", difference=99).loc[0, "needed"] == 7


def test_compare_within_groups_takes_the_pairs_it_is_given():
    rows = compared_rows().assign(data="d")
    both = pd.concat([rows, rows.assign(data="e", score=1.0)])
    table = compare(both, "system", "score", by=["data"], pairs=[("C", "B")])
    assert table[["data", "a", "b", "difference"]].to_numpy().tolist() == [
        ["d", "C", "B", 2],
        ["e", "C", "B", 0],
    ]


def test_questions_of_one_group_count_as_one_cluster():
    sides = [1, 2, 3, 4, NAN], [0, 0, 0, 0, 0]
    documents = list("ddeef")
    table = compare_pairs({("x",): sides}, ["name"], cluster={("x",): documents})
    interval = paired_difference(*sides, cluster=documents)
    detectable = power_analysis([1.5, 3.5], difference=1).detectable
    expected = {
        "p": interval.p,
        "wins": 4,
        "ties": 0,
        "losses": 0,
        "low": interval.low,
        "high": interval.high,
        "clusters": 2,
        "effective": 2,
        "n": 4,
        "missing": 1,
        "detectable": detectable,
    }
    assert table[[*expected]].to_dict("records") == [expected]
    undefined = compare_pairs({("x",): ([NAN], [1])}, ["name"])
    assert undefined[["mean a", "p", "p_holm"]].isna().all(axis=None)


def test_what_public_functions_return_has_a_public_class():
    functions = [getattr(stats, name) for name in dir(stats)]
    returned = [
        function.__annotations__["return"]
        for function in functions
        if callable(function) and not isinstance(function, type)
    ]
    assert len(returned) > 20
    assert not [kind for kind in returned if "_" in kind]


def test_no_rows_have_no_means():
    rows = pd.DataFrame({"system": [], "x": []})
    assert stats.means(rows, ["system"], "x").columns.tolist()[:4] == [
        "system",
        "mean",
        "low",
        "high",
    ]
    assert stats.means(rows, ["system"], "x").empty


@pytest.mark.parametrize("kind", ["boolean", object, "Int64"])
def test_an_empty_cell_of_pandas_is_a_missing_value(kind):
    rows = pd.DataFrame({"question_id": np.repeat(range(6), 2), "system": ["a", "b"] * 6})
    rows["right"] = pd.Series([1, 0, pd.NA, 1, 0, 0, 1, 0, 1, 1, 0, 1], dtype=kind)
    assert stats.means(rows, "system", "right")["unscored"].tolist() == [1, 0]
    assert stats.compare(rows, "system", "right")[["n", "missing"]].to_numpy().tolist() == [[5, 1]]
    with refused(DataError, "system that are not numbers"):
        stats.compare(rows, "system", "system")


def test_columns_may_be_numbers():
    rows = pd.DataFrame({"question_id": [0, 0, 1, 1], "system": ["a", "b"] * 2, 0: [1, 0, 1, 1.0]})
    assert stats.means(rows, "system", [0])["mean"].tolist() == [1.0, 0.5]
    assert stats.compare_scores(rows, [0])["difference"].tolist() == [0.5]


def test_a_pair_of_systems_needs_one_question_scored_for_both():
    rows = pd.DataFrame({"question_id": [1, 1, 2, 3], "system": list("abbc"), "m": 1.0})
    table = stats.compare_scores(rows, ["m"])
    assert table[["a", "b", "n"]].to_numpy().tolist() == [["a", "b", 1]]


@pytest.mark.parametrize("resamples", [-1, 2.5])
def test_resamples_are_a_whole_number(resamples):
    with pytest.raises(ConfigError, match=f"resamples {resamples}"):
        stats.mean_interval(np.arange(40.0), resamples=resamples)


@pytest.mark.parametrize(
    ("labels", "grades", "n", "missing"),
    [
        (["5", "4", "5", "1"], [5, 4, 5, 1], 4, 0),
        (["5", "4", "5", "1"], np.array([5.0, 4.0, 5.0, 1.0]), 4, 0),
        (["5", "", "4"], [5, "", 4], 2, 1),  # a blank on both sides is no agreement
        (["5", " ", "4"], [5, 5, 4], 2, 1),
        (["covered", None, "neither"], ["covered", "covered", "neither"], 2, 1),
        ([10, 2, 9], ["10", "2", "9"], 3, 0),
    ],
)
def test_labels_of_two_types_are_equal_as_ids_are_and_a_blank_leaves_a_pair_out(
    labels, grades, n, missing
):
    agreed = rb.kappa(labels, grades)
    assert (agreed.estimate, agreed.n, agreed.n_missing) == (1.0, n, missing)


def test_kappa_of_texts_is_that_of_numbers_with_its_bounds():
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 11, 40)
    b = np.where(rng.random(40) < 0.6, a, rng.integers(-2, 11, 40))
    for weights in (None, "quadratic"):
        assert rb.kappa(a.astype(str), b, weights=weights) == rb.kappa(a, b, weights=weights)
    ordered = rb.kappa([1, 2, 2], ["1", "2", "1"], labels=(1, 2))
    assert ordered.estimate == rb.kappa([1, 2, 2], [1, 2, 1]).estimate


def test_questions_1_and_text_1_are_one_question():
    scores = [0.1, 0.2, 0.3, 0.2, 0.3, 0.5]
    ids = [1, 2, 3, "1", 2.0, "3"]
    rows = pd.DataFrame({"question_id": ids, "system": list("aaabbb"), "m": scores})
    as_text = rows.assign(question_id=list("123123"))
    compared = rb.compare(rows, "system", "m")
    assert compared["n"].tolist() == [3]
    pd.testing.assert_frame_equal(compared, rb.compare(as_text, "system", "m"))
    by_id = rows.set_index("question_id", drop=False)
    pd.testing.assert_frame_equal(
        rb.compare_scores(by_id, ["m"]), rb.compare_scores(as_text, ["m"])
    )
    means = [rb.means(table, [], "m", cluster="question_id") for table in (rows, as_text)]
    pd.testing.assert_frame_equal(*means)


@pytest.mark.parametrize(
    ("numbers", "spec", "text"),
    [
        ((-0.0001, -0.0004, 0.1), ".3f", "0.000 [0.000, 0.100]"),
        ((-0.001, -0.0006, 0.0), ".3f", "-0.001 [-0.001, 0.000]"),
        ((-0.0, -0.04, 0.04), ".1f", "0.0 [0.0, 0.0]"),
        ((-0.0001, -0.002, 0.1), "+.3f", "+0.000 [-0.002, +0.100]"),
        ((-0.0001, float("nan"), float("nan")), ".3f", "0.000"),
        ((-0.0001, -0.1, 0.1), ".1%", "0.0% [-10.0%, 10.0%]"),
    ],
)
def test_zero_has_no_sign(numbers, spec, text):
    assert stats.interval_text(*numbers, spec) == text


def test_means_say_how_many_questions_of_the_others_a_system_missed():
    rows = pd.DataFrame({"question_id": list("abcdab"), "system": list("xxxxyy"), "s": 1.0})
    assert means(rows, "system", ["s"])["missed"].tolist() == [0, 2]
    # kinds of questions share none: nobody missed those of another kind
    assert "missed" not in means(rows.assign(kind=list("112211")), ["kind", "system"], "s")
    by_kind = means(rows[1:].assign(kind=list("12211")), ["kind", "system"], "s")
    assert by_kind.set_index(["kind", "system"])["missed"].to_dict() == {
        ("1", "x"): 1,
        ("2", "x"): 0,
        ("1", "y"): 0,
    }


def test_the_interval_of_a_rank_correlation_of_few_clusters_with_ties_holds(rng):
    true = 0.55  # of 300,000 clusters made in the same way
    held = []
    for _ in range(150):
        cluster = np.repeat(np.arange(10), 5)
        x = rng.normal(0, 0.7, 10)[cluster] + rng.normal(0, 1, 50)
        y = 0.6 * x + rng.normal(0, 0.3, 10)[cluster] + rng.normal(0, 0.8, 50)
        ties = np.digitize(x, [-0.8, 0, 0.8]), np.digitize(y, [-0.5, 0.7])
        got = correlation(*ties, "spearman", cluster=cluster, resamples=200)
        held.append(got.low <= true <= got.high)
    assert np.mean(held) > 0.91  # the plain percentiles: .88


def test_bounds_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(5)
    values = rng.beta(0.4, 0.6, 200)
    groups = rng.integers(0, 25, 200)
    plain = stats.mean_interval(values, cluster=groups)
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(200)
        moved = stats.mean_interval(values[order], cluster=groups[order])
        assert (moved.low, moved.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


def test_the_interval_of_a_column_follows_its_type_and_neither_name_nor_values():
    values = [0.5, 0.25, 2.0, 0.0] * 3
    rows = pd.DataFrame({"mine": values, "contained": values, "fully right": values})
    table = means(rows, [], ["mine", "contained", "fully right"])
    assert table["low"].nunique() == 1
    assert table.attrs["intervals"] == ["Student's t"]
    right = pd.Series([1.0, 0.0] * 6)
    kinds = {
        mean_interval([0.5, *right]).method: [right, right.to_numpy(), right.astype(int)],
        "exact binomial": [
            right.astype(bool),
            right.astype("boolean"),
            right.astype(bool).tolist(),
            [True, None, False],
            pd.Series([True, NAN, False], dtype=object),
            pd.Series([True, pd.NA], dtype="boolean"),
        ],
    }
    for method, several in kinds.items():
        for values in several:
            (got,) = means(pd.DataFrame({"x": values}), [], "x").attrs["intervals"] or [""]
            assert got in (method, "" if len(pd.Series(values).dropna()) < 2 else method)
    assert len(kinds) == 2
    assert mean_interval(right, share=True) == mean_interval(right.astype(bool))


def test_seconds_are_not_below_0_in_an_interval_and_other_numbers_may_be():
    seconds = mean_interval([0.1, 0.2, 60.0])
    assert (seconds.low, seconds.method) == (0.0, "Student's t")
    assert mean_interval([-0.1, 0.2, 60.0]).low < -30


def test_a_difference_of_two_shares_lies_between_minus_1_and_1():
    few = stats.paired_difference([1, 0, 1], [0, 1, 0])
    assert (few.low, few.high) == (-1, 1)
    assert stats.paired_difference([9, 0, 9], [0, 9, 0]).low < -1  # no shares
