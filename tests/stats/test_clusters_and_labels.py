"""Questions that belong together, and differences from few labels."""

import numpy as np
import pandas as pd
import pytest
from checks import refused

from ragbench.errors import DataError
from ragbench.stats import (
    compare,
    paired_difference,
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
    test = paired_permutation_test([1, 2, 1, -1, -1], [0] * 5, cluster=list("aabcc"))
    assert (test.p_value, test.exact, test.n) == (6 / 8, True, 5)
    assert test.difference == pytest.approx(0.4)


def test_a_cluster_of_one_question_each_changes_nothing_and_missing_pairs_leave_theirs():
    a, b = np.random.default_rng(1).random((2, 40))
    assert paired_permutation_test(a, b, cluster=range(40)) == paired_permutation_test(a, b)
    a[:3] = NAN
    cluster = np.arange(40) // 4
    whole = paired_permutation_test(a, b, cluster=cluster)
    part = paired_permutation_test(a[3:], b[3:], cluster=cluster[3:])
    assert (whole.p_value, whole.n, whole.n_missing) == (part.p_value, 37, 3)
    with refused(DataError, "2 group labels for 40 points"):
        paired_permutation_test(a, b, cluster=[1, 2])


def test_of_two_equal_systems_the_clustered_test_is_wrong_as_often_as_it_says_and_the_plain_one_is_not(
    rng,
):
    wrong = []
    for _ in range(400):
        difference, cluster = clustered(rng)
        sides = difference, np.zeros(len(difference))
        by_cluster = paired_permutation_test(*sides, cluster=cluster, resamples=199)
        plain = paired_permutation_test(*sides, resamples=199)
        wrong.append([by_cluster.p_value <= 0.05, plain.p_value <= 0.05])
    with_clusters, without = np.mean(wrong, axis=0)
    assert 0.02 <= with_clusters <= 0.08
    assert without > 0.2


def test_compare_takes_a_column_of_clusters_and_refuses_a_question_in_two():
    difference, topic = clustered(np.random.default_rng(4), clusters=6, size=3, effect=0.2)
    one = pd.DataFrame({"topic": topic, "score": difference}).assign(system="b")
    rows = pd.concat([one, one.assign(system="a", score=0.0)]).reset_index(names="question_id")
    together = paired_difference(difference, [0] * 18, cluster=topic).p
    assert compare(rows, "system", "score", cluster="topic")["p"].tolist() == [together]
    assert compare(rows, "system", "score")["p"].tolist() == [together]
    assert compare(rows, "system", "score", cluster=None)["p"].tolist() != [together]
    rows.loc[0, "topic"] = 99
    with refused(DataError, r"question '0' has 2 values in the column 'topic'"):
        compare(rows, "system", "score", cluster="topic")


def test_a_difference_from_few_labels_by_hand():
    # Judge: mean difference 0.5 over four questions. On the two labelled ones it says 1 and 1, the
    # labels say 1 and 0.
    sides = [1, 0, NAN, NAN], [0, 0, NAN, NAN], [1, 1, 1, 0], [0, 0, 1, 0]
    assert ppi_difference(*sides, weight=1.0).estimate == pytest.approx(0.5 + (0 - 1) / 2)
    by_labels = ppi_difference(*sides, weight=0.0)
    assert (by_labels.estimate, by_labels.n) == (pytest.approx(0.5), 2)


def two_systems(rng, clusters):
    """Right or wrong answers of two systems, a judge that favours b, and labels of a quarter of the
    questions.
    """
    cluster = np.repeat(np.arange(clusters), rng.integers(1, 6, clusters))
    size = cluster.size
    hard = rng.normal(0, 0.8, clusters)[cluster] + rng.normal(0, 0.6, size)
    truth = hard + rng.normal([[0.3], [0]], 0.6, (2, size)) > 0
    judged = truth ^ (rng.random((2, size)) < 0.12)
    judged[1] |= rng.random(size) < 0.15
    seed = int(rng.integers(1 << 31))
    drawn = stratified_draw(np.zeros(size), size // 4, least=1, seed=seed)
    return truth.astype(float), np.where(drawn, truth, NAN), judged.astype(float), cluster


def test_intervals_of_a_difference_hold_what_they_say_are_narrower_than_labels_alone_and_undo_a_favour(
    rng,
):
    truth, _, judged, _ = two_systems(np.random.default_rng(6), 200_000)
    true = (truth[0] - truth[1]).mean()
    # the judge alone is wrong however many questions there are
    assert (judged[0] - judged[1]).mean() < true - 0.05
    held = []
    widths = []
    for _ in range(400):
        _, labels, judged, cluster = two_systems(rng, 80)
        tuned = ppi_difference(*labels, *judged, cluster=cluster, weight="tuned")
        labels_alone = ppi_difference(*labels, *judged, cluster=cluster, weight=0.0)
        held.append(tuned.low <= true <= tuned.high)
        widths.append([tuned.high - tuned.low, labels_alone.high - labels_alone.low])
    assert 0.92 <= np.mean(held) <= 0.98
    with_judge, without = np.mean(widths, axis=0)
    assert with_judge < 0.9 * without
