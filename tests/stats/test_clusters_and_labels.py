"""Questions that belong together, and differences from few labels."""

from itertools import product

import numpy as np
import pytest

from ragbench.errors import DataError
from ragbench.stats import (
    paired_permutation_test,
    ppi_difference,
)

NAN = float("nan")


def clustered(rng, clusters=30, size=6, effect=0.0):
    """Two systems over questions in clusters: a difference of each cluster, and one of each
    question.
    """
    cluster = np.repeat(np.arange(clusters), size)
    difference = effect + rng.normal(0, 0.5, clusters)[cluster] + rng.normal(0, 0.5, cluster.size)
    return difference, cluster


def test_clusters_are_flipped_together_by_hand():
    # Sums of the clusters: 3, 1, -2; of the 8 sign patterns, 6 have a sum at least as far from 0 as
    # 2.
    test = paired_permutation_test([1, 2, 1, -1, -1], [0] * 5, cluster=["a", "a", "b", "c", "c"])
    sums = [
        abs(sum(s * v for s, v in zip(signs, (3, 1, -2), strict=True)))
        for signs in product((1, -1), repeat=3)
    ]
    assert test.p_value == np.mean(np.array(sums) >= 2) == 0.75
    assert (test.exact, test.resamples, test.n) == (True, 8, 5)
    assert test.difference == pytest.approx(0.4)


def test_a_cluster_of_one_question_each_changes_nothing_and_missing_pairs_leave_theirs():
    rng = np.random.default_rng(1)
    a, b = rng.random((2, 40))
    assert paired_permutation_test(a, b, cluster=np.arange(40)) == paired_permutation_test(a, b)
    a[:3] = NAN
    whole = paired_permutation_test(a, b, cluster=np.repeat(np.arange(10), 4))
    part = paired_permutation_test(a[3:], b[3:], cluster=np.repeat(np.arange(10), 4)[3:])
    assert (whole.p_value, whole.n, whole.n_missing) == (part.p_value, 37, 3)
    with pytest.raises(DataError, match="2 group labels for 40 points"):
        paired_permutation_test(a, b, cluster=[1, 2])


def test_of_two_equal_systems_the_clustered_test_is_wrong_as_often_as_it_says_and_the_plain_one_is_not():
    rng = np.random.default_rng(2)
    runs = 400
    wrong = np.zeros(2)
    for _ in range(runs):
        difference, cluster = clustered(rng)
        for i, groups in enumerate((cluster, None)):
            test = paired_permutation_test(
                difference, 0 * difference, cluster=groups, resamples=199
            )
            wrong[i] += test.p_value <= 0.05
    with_clusters, without = wrong / runs
    assert 0.02 <= with_clusters <= 0.08
    assert without > 0.2


def test_a_difference_from_few_labels_by_hand():
    # Judge: mean difference 0.5 over four questions. On the two labelled ones it says 1 and 1, the
    # labels say 1 and 0.
    labels = ([1, 0, NAN, NAN], [0, 0, NAN, NAN])
    judged = ([1, 1, 1, 0], [0, 0, 1, 0])
    assert ppi_difference(*labels, *judged, weight=1.0).estimate == pytest.approx(0.5 + (0 - 1) / 2)
    assert ppi_difference(*labels, *judged, weight=0.0).estimate == pytest.approx(0.5)
    assert ppi_difference(*labels, *judged, weight=0.0).n == 2
