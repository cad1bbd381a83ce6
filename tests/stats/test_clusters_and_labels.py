"""Questions that belong together, and differences from few labels."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from ragbench.errors import DataError
from ragbench.stats import (
    compare,
    paired_permutation_test,
    ppi_difference,
    stratified_draw,
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


def test_compare_takes_a_column_of_clusters_and_refuses_a_question_in_two():
    rng = np.random.default_rng(4)
    difference, cluster = clustered(rng, clusters=6, size=3, effect=0.2)
    asked = {
        "question_id": [*range(18)] * 2,
        "topic": [*cluster] * 2,
        "system": ["b"] * 18 + ["a"] * 18,
    }
    rows = pd.DataFrame(asked | {"score": [*difference, *([0.0] * 18)]})
    table = compare(rows, "system", "score", cluster="topic")
    together = paired_permutation_test(difference, 0 * difference, cluster=cluster)
    assert table["p"].tolist() == [together.p_value]
    assert table["p"].tolist() == compare(rows, "system", "score")["p"].tolist()
    assert table["p"].tolist() != compare(rows, "system", "score", cluster=None)["p"].tolist()
    rows.loc[0, "topic"] = 99
    with pytest.raises(DataError, match=r"question '0' has 2 values in the column 'topic'"):
        compare(rows, "system", "score", cluster="topic")


def test_a_difference_from_few_labels_by_hand():
    # Judge: mean difference 0.5 over four questions. On the two labelled ones it says 1 and 1, the
    # labels say 1 and 0.
    labels = ([1, 0, NAN, NAN], [0, 0, NAN, NAN])
    judged = ([1, 1, 1, 0], [0, 0, 1, 0])
    assert ppi_difference(*labels, *judged, weight=1.0).estimate == pytest.approx(0.5 + (0 - 1) / 2)
    assert ppi_difference(*labels, *judged, weight=0.0).estimate == pytest.approx(0.5)
    assert ppi_difference(*labels, *judged, weight=0.0).n == 2


def two_systems(rng, clusters):
    """Right or wrong answers of two systems, a judge that favours b, and labels of a quarter of the
    questions.
    """
    cluster = np.repeat(np.arange(clusters), rng.integers(1, 6, clusters))
    hard = rng.normal(0, 0.8, clusters)[cluster] + rng.normal(0, 0.6, cluster.size)
    truth = [
        (hard + rng.normal(shift, 0.6, cluster.size) > 0).astype(float) for shift in (0.3, 0.0)
    ]
    judged = [np.where(rng.random(cluster.size) < 0.12, 1 - t, t) for t in truth]
    judged[1] = np.maximum(judged[1], rng.random(cluster.size) < 0.15)
    drawn = stratified_draw(
        np.zeros(cluster.size), cluster.size // 4, least=1, seed=int(rng.integers(1 << 31))
    )
    labels = [np.where(drawn, t, NAN) for t in truth]
    return truth, labels, judged, cluster


def test_intervals_of_a_difference_hold_what_they_say_are_narrower_than_labels_alone_and_undo_a_favour():
    rng = np.random.default_rng(5)
    runs = 400
    truth, _, judged, _ = two_systems(np.random.default_rng(6), 200_000)
    true = (truth[0] - truth[1]).mean()
    assert (
        judged[0] - judged[1]
    ).mean() < true - 0.05  # the judge alone is wrong however many questions there are
    held = np.zeros(2)
    width = np.zeros(2)
    for _ in range(runs):
        _, labels, judged, cluster = two_systems(rng, 80)
        for i, weight in enumerate(("tuned", 0.0)):
            got = ppi_difference(*labels, *judged, cluster=cluster, weight=weight)
            held[i] += got.low <= true <= got.high
            width[i] += got.high - got.low
    assert 0.92 <= held[0] / runs <= 0.98, held / runs
    assert width[0] < 0.9 * width[1], width / runs
