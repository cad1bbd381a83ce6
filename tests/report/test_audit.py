"""The audit: every fault is planted, in a real run where a run can have it, and the audit counts
exactly that.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from experiment_parts import (
    Copier,
    Interrupted,
    JudgeDouble,
    Named,
    live_rows,
    people,
    rows_of,
    towns,
)
from fake_ollama import FakeOllama, Fault
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from ragbench.errors import ConfigError, DataError
from ragbench.experiment import load_rows
from ragbench.records import Hit
from ragbench.report.audit import audit, audit_rows, labels_by_place

RIGHT = "share fully right"


RANGE = ["mean", "if_worst", "if_best"]


def found(frame, table, check, *columns):
    """The one row of an audit, in these columns."""
    rows = frame[(frame["table"] == table) & (frame["check"] == check)]
    assert len(rows) == 1, frame[["table", "check"]].to_string()
    return rows.iloc[0][[*columns]].tolist()


def counts(frame, table, check):
    return found(frame, table, check, "rows", "of")


def unscored(frame, table, *columns):
    return found(frame, table, "unscored", *columns)


def run_and_audit(folder, count=2, **changes):
    rows_of(folder, count, **changes)
    return audit(folder)


def run_live_and_audit(folder, fault=None, **changes):
    """With a model that answers and grades."""
    with FakeOllama(reply=towns, fault=fault) as server:
        live_rows(folder, server, **changes)
        return audit(folder)


# -- rows and retrieval


def test_failed_rows_are_counted_by_step_and_kind(tmp_path):
    broken = {"named": lambda c: Named(c, "Person2")}
    copier = {"copier": Copier(broken="Person1")}
    frame = run_and_audit(tmp_path, 4, retriever=broken, generator=copier)
    kinds = "generate: ValueError 3, retrieve: ValueError 2"
    assert found(frame, "rows", "failed", "rows", "of", "detail") == [5, 12, kinds]
    kind = "retrieve: ValueError 2"
    assert unscored(frame, "IR score", "rows", "of", "detail") == [2, 8, kind]


def test_the_mean_is_given_with_the_range_that_the_unscored_rows_allow(tmp_path):
    frame = run_and_audit(tmp_path, 4, N=(20,), retriever={"named": lambda c: Named(c, "Person2")})
    # Three questions have the whole fact in their context; the fourth could have 0 or 1.
    assert unscored(frame, "IR score", *RANGE) == [1.0, 0.75, 1.0]
    right = load_rows(tmp_path)["grade"].eq(5).sum()
    expected = pytest.approx([right / 4, (right + 1) / 4])
    assert unscored(frame, RIGHT, "if_worst", "if_best") == expected


def test_questions_without_references_are_unscored_and_named(tmp_path):
    data = people(3)
    bare = replace(data, questions=(replace(data.questions[0], references=()), *data.questions[1:]))
    frame = run_and_audit(tmp_path, data={"people": bare})
    assert unscored(frame, "IR score", "rows", "of", "detail") == [2, 6, "no references 2"]


class Weightless(Named):
    """Gives every chunk but the best the score 0."""

    def search(self, queries, k):
        found = super().search(queries, k)
        return [[Hit(h.chunk, 1.0 if h.rank == 1 else 0.0, h.rank) for h in hits] for hits in found]


class Empty(Named):
    """Finds nothing for one person."""

    def search(self, queries, k):
        return [
            [] if "Person0" in q else hits
            for q, hits in zip(queries, super().search(queries, k), strict=True)
        ]


def test_hits_without_a_score_and_missing_hits_are_counted(tmp_path):
    retrievers = {"w": Weightless, "e": Empty}
    frame = run_and_audit(tmp_path, 3, N=(20,), k=[1, 9], retriever=retrievers)
    # k = 9 of three chunks: two hits of score 0 for each question; k = 1: none.
    zero = found(frame, "IR score", "zero-score hits", "rows", "of", "most_in")
    assert zero == [3, 12, "w, 9: 3"]
    *empty, most_in = found(frame, "IR score", "empty contexts", "rows", "of", "most_in")
    assert empty == [2, 12]
    assert most_in.startswith("e, ")


def test_rows_of_a_stopped_run_are_counted_those_of_a_data_set_not_begun_too(tmp_path):
    data = {"a": people(2), "b": people(30)}
    with pytest.raises(KeyboardInterrupt):
        rows_of(tmp_path, data=data, judge=None, retriever={"named": Interrupted})
    rows = load_rows(tmp_path)
    assert set(rows["data"]) == {"a"}
    missing, detail = found(audit(tmp_path), "rows", "missing rows", "rows", "detail")
    assert 0 < missing == 96 - len(rows)
    assert "run it again" in detail
    # without the manifest nothing more is known
    assert counts(audit(rows), "rows", "missing rows")[0] == 0
    rows_of(tmp_path, data=data, judge=None)
    assert counts(audit(tmp_path), "rows", "missing rows") == [0, 96]


def test_a_context_is_counted_once_however_many_generators_and_judges_saw_it(tmp_path):
    generators = {"x": Copier(), "y": Copier(broken="Person0")}
    judges = {"a": JudgeDouble(), "b": JudgeDouble()}
    frame = run_and_audit(tmp_path, 3, generator=generators, judge=judges)
    assert counts(frame, "IR score", "unscored") == [0, 6]
    assert counts(frame, RIGHT, "unscored") == [6, 36]
    assert counts(frame, RIGHT, "cells with unequal n") == [6, 12]


# -- answers


@pytest.mark.parametrize("whose", ["", "judge_"])
def test_other_weights_under_the_same_name_are_counted(whose):
    model, check = ("judge", "mixed judges") if whose else ("generator", "mixed models")
    rows = pd.DataFrame({model: list("aaabb"), f"{whose}digest": ["x", "x", "y", "z", None]})
    assert counts(audit_rows(rows), "rows", check) == [1, 4]


@pytest.mark.parametrize(
    ("check", "step"), [("truncated answers", "generate"), ("truncated grades", "grade")]
)
def test_replies_that_failed_at_their_limit_are_counted_by_their_step(check, step):
    rows = pd.DataFrame({"finish": ["stop", ""], "error_step": ["", step]})
    frame = audit_rows(rows.assign(judge_raw="x", error_kind="truncated"))
    assert counts(frame, "rows", check) == [1, 2]
    kinds = ("truncated answers", "truncated grades")
    assert sum(counts(frame, "rows", kind)[0] for kind in kinds) == 1


# -- grades


def test_a_reply_with_too_few_or_too_many_grades_is_unscored(tmp_path):
    def fault(prompt, before):
        if "characters." in prompt and "Person0 Lee born?" in prompt:
            return Fault("answer", '{"grades": [5, 5]}')

    frame = run_live_and_audit(tmp_path, fault)
    assert unscored(frame, RIGHT, "rows", "detail") == [3, "grade: unusable 3"]
    assert unscored(frame, RIGHT, *RANGE) == [1.0, 0.5, 1.0]


def test_answers_shown_to_the_judge_in_part_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("ragbench.labelling.grades.MAX_CHARS", 26)
    frame = run_live_and_audit(tmp_path, N=(0,))
    assert load_rows(tmp_path)["answer"].str.len().gt(26).sum() == 1
    assert counts(frame, RIGHT, "answers cut for the judge") == [1, 2]


def test_grades_that_go_by_the_place_in_the_prompt_are_counted_with_their_shares(tmp_path):
    rows = rows_of(tmp_path, 2)
    rows = rows.loc[rows.index.repeat(20)].reset_index(drop=True)
    rows["question_id"] = rows.index.astype(str)
    rows = rows.assign(judge_shown=2, judge_position=[1, 2] * 60)
    by_place = audit(rows.assign(grade=[5, 4] * 60))
    *all_rows, detail = found(by_place, RIGHT, "labels by place", "rows", "of", "detail")
    assert all_rows == [120, 120]
    assert "place 1: grade 4 0%, grade 5 100%" in detail
    fair = audit(rows.assign(grade=[5, 5, 4, 4] * 30))
    assert counts(fair, RIGHT, "labels by place") == [0, 120]
    alone = audit(rows.assign(judge_shown=1))
    assert "labels by place" not in set(alone["check"])


def test_labels_that_follow_the_place_are_found_by_hand():
    labels = ["Yes"] * 8 + ["No"] * 2 + ["Yes"] * 2 + ["No"] * 8
    p, words = labels_by_place([1] * 10 + [2] * 10, labels)
    # Yates: 20 (|8 * 8 - 2 * 2| - 10)^2 / 10^4 = 5
    assert p == pytest.approx(chi2.sf(5, 1))
    assert words.endswith("(chi-squared); place 1: No 20%, Yes 80%; place 2: No 80%, Yes 20%")
    p, words = labels_by_place([1, 1], ["Yes", "No"])
    assert np.isnan(p)
    assert "one item a prompt" in words


def test_of_several_rows_of_one_context_the_scored_one_counts(tmp_path):
    rows = rows_of(tmp_path, 3, generator={"x": Copier(), "y": Copier()}, judge=None)
    for condition, missing in (
        ("generator == 'x' and question_id == 'q1'", 0),
        ("question_id == 'q1'", 2),
    ):
        rows.loc[rows.query(condition).index, "ir_score"] = np.nan
        assert counts(audit(rows), "IR score", "unscored") == [missing, 6]


# -- frames of one's own


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "question_id": ["q1", "q2", "q3"] * 2,
            "system": ["a"] * 3 + ["b"] * 3,
            "score": [1.0, 0.5, None, 1.0, None, None],
            "error": ["", "", "no_bytes: timed out", "", "no_bytes: timed out", "invalid: no list"],
        }
    )


def test_any_frame_is_audited_by_its_own_columns(frame):
    told = audit_rows(frame, "score", "system")
    kinds = "no_bytes 2, invalid 1"
    assert unscored(told, "score", "rows", "of", "detail") == [3, 6, kinds]
    # b: one of three is scored, with 1; a: two, with 0.75. b is the less certain.
    assert unscored(told, "score", "most_in") == ["b: 2"]
    assert unscored(told, "score", *RANGE) == [1.0, pytest.approx(1 / 3), 1.0]
    assert counts(told, "rows", "failed") == [3, 6]
    unequal = found(told, "score", "cells with unequal n", "rows", "of", "detail")
    assert unequal == [1, 2, "n from 1 to 2 of 2"]
    twice = pd.concat([frame, frame[:1]], ignore_index=True)
    assert counts(audit_rows(twice, "score", "system"), "rows", "duplicates") == [1, 7]
    assert counts(told, "rows", "duplicates") == [0, 6]


def test_a_cell_with_no_scored_row_has_no_mean_and_the_whole_range(frame):
    frame.loc[frame["system"] == "b", "score"] = None
    mean, *bounds = unscored(audit_rows(frame, "score", "system"), "score", *RANGE)
    assert np.isnan(mean)
    assert bounds == [0.0, 1.0]


LANGUAGES = pd.DataFrame(
    {"question_id": ["z1", "z2", "e1"] * 2, "language": ["zh", "zh", "en"] * 2}
).assign(system=list("aaabbb"), score=1.0)
TWO = pd.DataFrame({"question_id": ["q1", "q2"], "system": ["a", "b"], "score": [1.0, 0.0]})
UNNAMED = pd.DataFrame({"system": [*"aabb"], "score": [1, 0.5, 1, None]})


@pytest.mark.parametrize(
    ("rows", "by", "within", "unequal", "of", "detail"),
    [
        (TWO, ["system"], [], 2, 2, "n from 1 to 1 of 2"),  # equal numbers, of different questions
        (TWO.assign(question_id="q1"), ["system"], [], 0, 2, ""),
        # Without names of questions: by how many there are.
        (UNNAMED, ["system"], [], 1, 2, "n from 1 to 2 of 2"),
        (LANGUAGES, ["language", "system"], ["language"], 0, 4, ""),
        (LANGUAGES, ["language", "system"], [], 4, 4, "n from 1 to 2 of 3"),
        (LANGUAGES.drop(index=4), ["language", "system"], ["language"], 1, 4, "n from 1 to 2 of 2"),
        (
            LANGUAGES.assign(score=[1, 1, 1, None, None, None]),
            ["system"],
            [],
            1,
            2,
            "n from 0 to 3 of 3",
        ),
    ],
)
def test_cells_that_rest_on_different_questions_are_counted(rows, by, within, unequal, of, detail):
    audited = audit_rows(rows, "score", by, within=within)
    row = found(audited, "score", "cells with unequal n", "rows", "of", "detail")
    assert row == [unequal, of, detail]


def test_a_frame_without_cells_or_scores_is_audited_as_a_whole(frame):
    told = audit_rows(frame, "score")
    assert unscored(told, "score", "most_in", "rows", "of") == ["", 3, 6]
    assert "unscored" not in set(audit_rows(frame)["check"])


def test_bad_input_is_named(frame):
    with pytest.raises(ConfigError, match="unknown column 'systems'"):
        audit_rows(frame, "score", "systems")
    with pytest.raises(DataError, match="has no rows"):
        audit(frame[:0])
    with pytest.raises(DataError, match="no run 'nowhere'"):
        audit("nowhere")


# -- ranges


def test_ranges_by_hand():
    rows = pd.DataFrame(
        {"s": [1.0, 0.5, None, None, 0.25], "size": list("aaabb"), "d": [1, 1, 1, 2, 2]}
    )

    def told(rows, bounds=(0, 1), by=()):
        return unscored(audit_rows(rows, {"s": bounds}, by), "s", "most_in", *RANGE)

    # An axis may have the name of a count. Half of the second cell is unscored, a third of the
    # first.
    assert told(rows, by=["size", "d"]) == ["b, 2: 1", 0.25, 0.125, 0.625]
    assert told(rows[:3], by="size") == ["a: 1", 0.75, 0.5, pytest.approx(2.5 / 3)]
    assert told(rows, (1, 0)) == ["", pytest.approx(1.75 / 3), 0.75, 0.35]  # less is better


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=12),
    st.lists(st.floats(0, 1), min_size=12),
)
def test_whatever_the_unscored_rows_were_the_mean_lies_in_the_range(values, truth):
    scores = pd.Series(values, dtype=float)
    audited = audit_rows(pd.DataFrame({"s": scores}), "s")
    missing = scores.isna().sum()
    assert counts(audited, "s", "unscored") == [missing, len(scores)]
    mean, worst, best = unscored(audited, "s", *RANGE)
    if missing == 0:
        assert np.isnan([mean, worst, best]).all()
        return
    whole = scores.fillna(pd.Series(truth)).mean()
    assert worst - 1e-9 <= whole <= best + 1e-9
    assert best - worst == pytest.approx(missing / len(values))
    assert mean == pytest.approx(scores.mean(), nan_ok=True)


def test_a_table_that_is_not_of_a_run_is_sent_to_audit_rows():
    with pytest.raises(DataError, match=r"the columns system, f1(?s:.)*audit_rows"):
        audit(pd.DataFrame({"system": ["a"], "f1": [1.0]}))


def test_columns_that_a_csv_holds_as_text_are_checked_as_their_numbers():
    rows = pd.DataFrame(
        {
            "N": [20, 20, 0],
            "zero_hits": [2, 0, 0],
            "context_tokens": [0, 20, 0],
            "judge_answer_cut": [True, False, False],
        }
    )
    for frame in (audit_rows(rows), audit_rows(rows.astype(str))):
        assert counts(frame, "rows", "zero-score hits") == [1, 3]
        assert counts(frame, "rows", "empty contexts") == [1, 3]
        assert counts(frame, "rows", "answers cut for the judge") == [1, 3]


@pytest.mark.parametrize("yes", [True, "TRUE", 1.0])
def test_an_answer_cut_for_the_judge_is_counted_however_a_file_writes_yes(yes):
    rows = pd.DataFrame(
        {"question_id": ["a", "b"], "judge_answer_cut": pd.Series([yes, None], dtype=object)}
    )
    checks = audit_rows(rows).set_index("check")
    assert checks.loc["answers cut for the judge", "rows"] == 1
