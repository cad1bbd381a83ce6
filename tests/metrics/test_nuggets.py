"""Nuggets: the shares by hand, by a slow version, and through `ragbench.score`."""

import math

import pytest
from checks import refused
from hypothesis import given
from hypothesis import strategies as st

import ragbench as rb
from ragbench.errors import DataError
from ragbench.metrics.nuggets import IMPORTANCE, NUGGET_METRICS, SUPPORT, nugget_metrics


def nugget(importance, assignment):
    return {"text": "x", "importance": importance, "assignment": assignment}


EXAMPLE = [
    nugget("vital", "support"),
    nugget("vital", "partial_support"),
    nugget("vital", "not_support"),
    nugget("okay", "support"),
]
lists = st.lists(st.builds(nugget, st.sampled_from(IMPORTANCE), st.sampled_from(list(SUPPORT))))


def test_by_hand():
    assert nugget_metrics(EXAMPLE) == {
        "vital_strict": 1 / 3,
        "all_strict": 2 / 4,
        "vital": 1.5 / 3,
        "all": 2.5 / 4,
    }


@given(lists)
def test_as_counted_one_by_one(nuggets):
    found = nugget_metrics(nuggets)
    for name, wanted in (("vital", ["vital"]), ("all", ["vital", "okay"])):
        chosen = [n for n in nuggets if n["importance"] in wanted]
        if not chosen:
            assert math.isnan(found[name])
            assert math.isnan(found[f"{name}_strict"])
            continue
        points = 0.0
        strict = 0
        for one in chosen:
            if one["assignment"] == "support":
                points += 1
                strict += 1
            elif one["assignment"] == "partial_support":
                points += 0.5
        assert found[name] == pytest.approx(points / len(chosen))
        assert found[f"{name}_strict"] == pytest.approx(strict / len(chosen))


@given(lists)
def test_partial_support_never_lowers_and_more_support_never_hurts(nuggets):
    before = nugget_metrics(nuggets)
    after = nugget_metrics([n | {"assignment": "support"} for n in nuggets])
    for name in NUGGET_METRICS:
        assert math.isnan(before[name]) or 0 <= before[name] <= after[name] == 1
    for name in ("vital", "all"):
        assert math.isnan(before[name]) or before[f"{name}_strict"] <= before[name]


@pytest.mark.parametrize("bad", [nugget("vital", "supported"), nugget("minor", "support"), {}])
def test_an_unknown_word_is_named(bad):
    with refused(DataError, "nugget"):
        nugget_metrics([bad])


def test_score_has_them_by_name():
    rows = {"answer": ["a", "b"], "nuggets": [EXAMPLE, []]}
    scored = rb.score(rows, ["nuggets"])
    assert scored["vital_strict"][0] == 1 / 3
    assert math.isnan(scored["vital_strict"][1])
