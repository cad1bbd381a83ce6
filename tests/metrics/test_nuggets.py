"""Nuggets: the shares by hand, by a slow version, and through `ragbench.score`."""

import math

import pytest
from checks import refused
from hypothesis import given
from hypothesis import strategies as st

import ragbench as rb
from ragbench.errors import DataError
from ragbench.metrics.nuggets import IMPORTANCE, SUPPORT, nugget_metrics


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
    points = {"support": 1, "partial_support": 0.5, "not_support": 0}
    for name, wanted in (("vital", ["vital"]), ("all", ["vital", "okay"])):
        chosen = [n["assignment"] for n in nuggets if n["importance"] in wanted]
        share = strict = math.nan
        if chosen:
            share = sum(points[assignment] for assignment in chosen) / len(chosen)
            strict = chosen.count("support") / len(chosen)
        assert found[name] == pytest.approx(share, nan_ok=True)
        assert found[f"{name}_strict"] == pytest.approx(strict, nan_ok=True)


@pytest.mark.parametrize("bad", [nugget("vital", "supported"), nugget("minor", "support"), {}])
def test_an_unknown_word_is_named(bad):
    with refused(DataError, "nugget"):
        nugget_metrics([bad])


def test_score_has_them_by_name():
    rows = {"answer": ["a", "b"], "nuggets": [EXAMPLE, []]}
    scored = rb.score(rows, ["nuggets"])
    assert scored["vital_strict"][0] == 1 / 3
    assert math.isnan(scored["vital_strict"][1])
