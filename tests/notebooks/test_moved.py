"""A judge that is moved (notebook 52): thresholds and intervals by hand, the shipped items again from their texts,
and the shipped draws again by a slow version.
"""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

import moved
import recorded
from ragbench.data.mtrag import load_mtrag
from ragbench.paths import packaged_data, project_root
from ragbench.stats import binomial_ci, ppi_mean, rogan_gladen


@pytest.fixture(scope="module")
def items():
    return pd.read_csv(
        packaged_data("recordings", "judged_items.csv.gz"), dtype={"question_id": str}
    )


@pytest.fixture(scope="module")
def shipped():
    return pd.read_csv(packaged_data("recordings", "moved.csv"))


def pool(right, **judges):
    table = pd.DataFrame({"right": np.array(right, float)})
    return table.assign(**dict.fromkeys(moved.JUDGES, np.nan)).assign(**judges)


def test_a_threshold_is_the_best_of_the_first_pool_and_moves_with_the_judge():
    a = pool([1, 1, 0, 0], **{"claim overlap": [0.9, 0.5, 0.5, 0.1]})
    b = pool([1, 0, 0], **{"claim overlap": [0.6, 0.4, np.nan]})
    said_a, said_b = moved.calls("claim overlap", a, b)
    # 0.5 and 0.9 have the same J of one half: the higher threshold
    assert said_a["said"].tolist() == [1, 0, 0, 0]
    assert said_b["said"].tolist() == [0, 0]  # the item without a score is left out
    short = pool([1, 1, 0, 0], length=[3, 9, 20, 30])
    (said,) = moved.calls("length", short)
    assert said["said"].tolist() == [1, 1, 0, 0]  # at most 9 words
    (said,) = moved.calls("length", short.assign(length=[30, 20, 9, 3]))
    assert said["said"].tolist() == [1, 1, 0, 0]  # at least 20


def table(right_yes, right_no, wrong_yes, wrong_no):
    """Items by counts."""
    right, said = moved.items_of((right_yes, right_no, wrong_yes, wrong_no))
    return pd.DataFrame({"right": right, "said": said})


def test_counts_of_items():
    part = table(3, 1, 2, 4)
    assert (part["right"].sum(), part["said"].sum(), (part["right"] * part["said"]).sum()) == (
        4,
        5,
        3,
    )
    np.testing.assert_allclose(moved.cells(part), [0.3, 0.1, 0.2, 0.4])
    assert moved.rest_of(np.array([[3, 1, 2, 4]])).tolist() == [[5, 5]]


def test_the_corrected_share_of_many_draws_is_that_of_rogan_gladen():
    exam, rest = np.array([[32, 8, 6, 54], [10, 10, 30, 50]]), np.array([[45, 55], [40, 60]])
    rng = np.random.default_rng(0)
    many = moved.corrected(np.repeat(exam, 40, 0), np.repeat(rest, 40, 0), rng, of_all=False)
    assert many[0, 0] == pytest.approx((0.45 - 0.1) / (0.8 - 0.1))
    assert np.isnan(many[40:]).all()  # sensitivity .5, false alarms .375: not shown to tell
    anew = moved.corrected(np.repeat(exam[:1], 40, 0), np.repeat(rest[:1], 40, 0), rng, of_all=True)
    assert anew[0, 0] == pytest.approx((83 / 200 - 0.1) / 0.7)
    y, f = moved.items_of(tuple(exam[0]))
    labels, said = [*y, *[np.nan] * 100], [*f, *[1] * 45, *[0] * 55]
    for of, found in (([0] * 100 + [1] * 100, many[:40]), ([1] * 200, anew)):
        package = rogan_gladen(labels, said, of=of)
        assert found.mean(axis=0) == pytest.approx(
            [package.estimate, package.low, package.high], abs=0.012
        )


def test_ppi_by_hand():
    estimate, low, high = moved.ppi_of_exam((32, 8, 6, 54), (45, 55))
    assert estimate == pytest.approx(0.4 + 0.45 - 0.38)
    assert low < estimate < high
    # a judge that says the same of all is given no weight
    assert moved.ppi_of_labels((6, 0, 4, 0), (90, 0))[0] == pytest.approx(0.6)


def test_coverage_is_counted_against_the_pool_and_against_the_items(monkeypatch):
    B = table(4, 0, 0, 6)

    def draws(*_):
        found = np.array([[0.4, 0.3, 0.5], [0.5, 0.45, 0.6], [np.nan] * 3])
        yield moved.EXAM, 0, found, np.array([0.45, 0.5, 0.4])

    monkeypatch.setattr(moved, "draws", draws)
    (row,) = moved.held(B, B, "made", 3).to_dict("records")
    assert (row["draws"], row["refused"], row["covered"], row["covered_items"]) == (3, 1, 1, 2)
    assert (row["truth"], row["width"], row["error"]) == pytest.approx((0.4, 0.175, 0.05))


def test_the_moves_are_those_of_the_plan(items):
    found = moved.moves(items)
    assert len({(move.start, move.end) for move in found}) == len(found) == 22
    assert pd.Series([move.about for move in found]).value_counts().to_dict() == {
        "error": 6,
        "data": 4,
        "model": 4,
        "system": 4,
        "type": 4,
    }
    by_name = {(move.start, move.end): move for move in found}
    alone = by_name["HotpotQA, Qwen: alone", "HotpotQA, Qwen: with passages"]
    assert (len(alone.A), alone.A["question_id"].nunique()) == (60, 60)
    date = by_name["planted: all but another date", "planted: another date"]
    assert set(date.B["part"]) == {moved.ORIGINAL, "another date"}
    assert set(date.A["part"]) == {moved.ORIGINAL, *moved.KINDS} - {"another date"}


def test_items_of_hotpotqa_again(items):
    rows = recorded.thesis_rows("Table 3.3")
    rows = rows[rows["grade"].notna() & (rows["N"] > 0)].drop_duplicates(["question_id", "answer"])
    shipped = items[(items["pool"] == "HotpotQA, Qwen") & (items["part"] == moved.PASSAGES)]
    for (_, row), item in zip(rows.iterrows(), shipped.to_dict("records"), strict=True):
        assert (item["question_id"], item["right"]) == (row["question_id"], row["grade"] == 5)
        assert item["contained"] == row["contained"]
        assert item["length"] == len(row["answer"].split())
        assert item["Qwen"] == (row["model_grade"] == 5)
    assert shipped["claim overlap"].between(0, 1).all()
    assert (shipped["contained"] <= (shipped["claim overlap"] > 0)).all()


def test_items_of_people_again(items):
    mtrag = load_mtrag()
    shipped = items[items["pool"] == "MTRAG, GPT-4o"].set_index("question_id")
    faithful = mtrag.grades.query("measure == 'faithfulness' and system == 'gpt-4o'")
    for name, grades in faithful.groupby("question_id")["grade"]:
        assert shipped.loc[name, "right"] == (round(grades.mean()) == 4)
    assert shipped["SmolLM2"].notna().sum() == 40
    assert shipped["Qwen"].notna().all()
    assert set(shipped["cluster"]) == set(mtrag.answers["conversation"])


def test_the_planted_items_are_wrong_and_their_originals_right(items):
    planted = items[items["pool"] == "planted"]
    assert planted.groupby("part")["right"].mean().to_dict() == {
        **dict.fromkeys(moved.KINDS, 0),
        moved.ORIGINAL: 1,
    }


@pytest.mark.parametrize(
    ("start", "end", "judge"),
    [
        ("MiniHop, Qwen", "HotpotQA, Qwen", "contained"),
        ("MTRAG, GPT-4o", "MTRAG, Llama 3.1 405B", "words in the passages"),
        ("planted: all but negation", "planted: negation", "claim overlap"),
    ],
)
def test_draws_of_a_move_again(items, shipped, start, end, judge):
    """Items drawn one by one, and the package's own intervals of them."""
    (move,) = [move for move in moved.moves(items) if (move.start, move.end) == (start, end)]
    A, B = moved.calls(judge, move.A, move.B)
    truth, times = B["right"].mean(), 60
    rng = np.random.default_rng(0)
    held = {moved.EXAM: [], moved.AS_IT_IS: [], moved.EXAM_PPI: []}
    for _ in range(times):
        a = A.iloc[rng.integers(len(A), size=100)]
        b = B.iloc[rng.integers(len(B), size=100)]
        labels = [*a["right"], *[np.nan] * 100]
        found = {
            moved.EXAM: rogan_gladen(labels, [*a["said"], *b["said"]], of=[0] * 100 + [1] * 100),
            moved.AS_IT_IS: binomial_ci(b["said"].sum(), 100),
            moved.EXAM_PPI: ppi_mean(a["right"], a["said"], b["said"], weight=1.0),
        }
        for way, interval in found.items():
            if not np.isnan(interval.low):
                held[way].append(interval.low <= truth <= interval.high)
    rows = shipped[
        (shipped["start"] == start) & (shipped["end"] == end) & (shipped["judge"] == judge)
    ]
    for way, covered in held.items():
        row = rows[rows["way"] == way].iloc[0]
        share = row["covered"] / (row["draws"] - row["refused"])
        assert row["truth"] == pytest.approx(truth, abs=1e-6)
        spread = np.sqrt(max(share * (1 - share), 0.02) * (1 / 200 + 1 / len(covered)))
        assert abs(np.mean(covered) - share) < 3.5 * spread, way


def test_the_notebooks_shares_by_all_labels_again(items):
    book = json.loads(
        (project_root() / "notebooks" / "52_judge_moved.ipynb").read_text(encoding="utf-8")
    )
    shown = " ".join(str(cell.get("outputs")) for cell in book["cells"])
    for move in moved.moves(items):
        if move.about in ("data", "model") and move.A["contained"].notna().any():
            right, wrong = move.A[move.A["right"] == 1], move.A[move.A["right"] == 0]
            false_alarms = wrong["contained"].mean()
            share = (move.B["contained"].mean() - false_alarms) / (
                right["contained"].mean() - false_alarms
            )
            assert f"{min(max(share, 0), 1):.2f} [" in shown, (move.start, move.end)


def test_the_figures_numbers_again(shipped):
    shown = pd.read_csv(project_root() / "figures" / "52_moved.csv").set_index(
        ["start", "end", "judge"]
    )
    rows = shipped[(shipped["about"] != "same pool") & (shipped["way"] == moved.EXAM)]
    null = shipped[(shipped["about"] == "same pool") & (shipped["way"] == moved.EXAM)]
    tells = {(row.start, row.judge) for row in null.itertuples() if row.refused < 0.05 * row.draws}
    told = [row for row in rows.itertuples() if (row.start, row.judge) in tells]
    assert len(told) == len(shown) == 27
    for row in told:
        drawn = shown.loc[row.start, row.end, row.judge]
        given = row.draws - row.refused
        assert drawn["coverage"] == pytest.approx(row.covered / given, abs=1e-6)
        high = beta.ppf(0.975, row.covered + 1, given - row.covered)
        assert drawn["carries"] == (high >= 0.93)


def test_without_a_move_the_corrected_share_holds_as_often_as_it_says(shipped):
    null = shipped[(shipped["about"] == "same pool") & (shipped["way"] == moved.EXAM)]
    tell = null[null["refused"] < 0.05 * null["draws"]]
    given = tell["draws"] - tell["refused"]
    assert len(tell) >= 10
    assert 0.93 <= tell["covered"].sum() / given.sum() <= 0.97


def test_a_judge_that_says_yes_to_all_is_refused_in_every_draw(shipped):
    qwen = shipped[
        (shipped["judge"] == "Qwen")
        & (shipped["start"] == "HotpotQA, Qwen")
        & (shipped["way"] == moved.EXAM)
    ]
    assert len(qwen)
    assert (qwen["refused"] == qwen["draws"]).all()
    assert qwen["width"].isna().all()
