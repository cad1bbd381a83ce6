"""The audit: every fault is planted, in a real run where a run can have it, and the audit counts
exactly that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from experiment_parts import (
    Copier,
    Interrupted,
    JudgeDouble,
    Named,
    experiment,
    live,
    people,
    towns,
)
from fake_ollama import FakeOllama, Fault
from hypothesis import given
from hypothesis import strategies as st

from ragbench.errors import ConfigError, DataError
from ragbench.experiment import load_rows
from ragbench.records import Hit
from ragbench.report.audit import audit, audit_rows, render

RIGHT = "share of grade 5"


def found(frame: pd.DataFrame, table: str, check: str) -> pd.Series:
    """The one row of an audit."""
    rows = frame[(frame["table"] == table) & (frame["check"] == check)]
    assert len(rows) == 1, frame[["table", "check"]].to_string()
    return rows.iloc[0]


def counts(frame: pd.DataFrame, table: str, check: str) -> tuple[int, int]:
    row = found(frame, table, check)
    return int(row["rows"]), int(row["of"])


def run_and_audit(folder, count=2, **changes) -> pd.DataFrame:
    experiment(folder, count, **changes).run(progress=False)
    return audit(folder)


def run_live_and_audit(folder, fault=None, **changes) -> pd.DataFrame:
    """With a model that answers and grades."""
    with FakeOllama(reply=towns, fault=fault) as server:
        live(folder, server, **changes).run(progress=False)
        return audit(folder)


def grading(prompt: str) -> bool:
    return "characters." in prompt


# -- rows and retrieval


def test_failed_rows_are_counted_by_step_and_kind(tmp_path):
    broken = {"named": lambda c: Named(c, "Person2")}
    copier = {"copier": Copier(broken="Person1")}
    frame = run_and_audit(tmp_path, 4, retriever=broken, generator=copier)
    failed = found(frame, "rows", "failed")
    assert (failed["rows"], failed["of"]) == (5, 12)
    assert failed["detail"] == "generate: ValueError 3, retrieve: ValueError 2"
    assert counts(frame, "IR score", "unscored") == (2, 8)
    assert found(frame, "IR score", "unscored")["detail"] == "retrieve: ValueError 2"


def test_the_mean_is_given_with_the_range_that_the_unscored_rows_allow(tmp_path):
    frame = run_and_audit(tmp_path, 4, N=(20,), retriever={"named": lambda c: Named(c, "Person2")})
    row = found(frame, "IR score", "unscored")
    # Three questions have the whole fact in their context; the fourth could have 0 or 1.
    assert (row["mean"], row["if_worst"], row["if_best"]) == (1.0, 0.75, 1.0)
    grades = found(frame, RIGHT, "unscored")
    right = load_rows(tmp_path)["grade"].eq(5).sum()
    assert grades["if_worst"] == pytest.approx(right / 4)
    assert grades["if_best"] == pytest.approx((right + 1) / 4)


def test_questions_without_references_are_unscored_and_named(tmp_path):
    data = people(3)
    bare = replace(data, questions=(replace(data.questions[0], references=()), *data.questions[1:]))
    row = found(run_and_audit(tmp_path, data={"people": bare}), "IR score", "unscored")
    assert (row["rows"], row["of"], row["detail"]) == (2, 6, "no references 2")


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
    row = found(frame, "IR score", "zero-score hits")
    assert (row["rows"], row["of"], row["most_in"]) == (3, 12, "w, 9: 3")
    row = found(frame, "IR score", "empty contexts")
    assert (row["rows"], row["of"]) == (2, 12)
    assert row["most_in"].startswith("e, ")


def test_rows_of_a_stopped_run_are_counted_those_of_a_data_set_not_begun_too(tmp_path):
    data = {"a": people(2), "b": people(30)}
    with pytest.raises(KeyboardInterrupt):
        experiment(tmp_path, data=data, judge=None, retriever={"named": Interrupted}).run(
            progress=False
        )
    grid = experiment(tmp_path, data=data, judge=None)
    rows = load_rows(tmp_path)
    assert set(rows["data"]) == {"a"}
    row = found(audit(tmp_path), "rows", "missing rows")
    assert 0 < row["rows"] == 96 - len(rows)
    assert "run it again" in row["detail"]
    # without the manifest nothing more is known
    assert counts(audit(rows), "rows", "missing rows")[0] == 0
    grid.run(progress=False)
    assert counts(audit(tmp_path), "rows", "missing rows") == (0, 96)


def test_a_context_is_counted_once_however_many_generators_and_judges_saw_it(tmp_path):
    two = {"a": JudgeDouble(), "b": JudgeDouble()}
    frame = run_and_audit(
        tmp_path, 3, generator={"x": Copier(), "y": Copier(broken="Person0")}, judge=two
    )
    assert counts(frame, "IR score", "unscored") == (0, 6)
    assert counts(frame, RIGHT, "unscored") == (6, 36)
    assert counts(frame, RIGHT, "cells with unequal n") == (6, 12)


# -- answers


@pytest.mark.parametrize("whose", ["", "judge_"])
def test_other_weights_under_the_same_name_are_counted(whose):
    model, check = ("judge", "mixed judges") if whose else ("generator", "mixed models")
    rows = pd.DataFrame({model: list("aaabb"), f"{whose}digest": ["x", "x", "y", "z", None]})
    assert counts(audit_rows(rows), "rows", check) == (1, 4)


def test_answers_that_ended_at_their_limit_are_answers_and_counted(tmp_path):
    def fault(prompt, before):
        return Fault("truncated") if "Person1 Lee born?" in prompt and not grading(prompt) else None

    frame = run_live_and_audit(tmp_path, fault, judge=None)
    assert counts(frame, "answers", "truncated answers") == (3, 6)
    assert counts(frame, "rows", "failed")[0] == 0
    rows = load_rows(tmp_path)
    assert rows.loc[rows["finish"] == "length", "answer"].str.len().gt(0).tolist() == [True] * 3


@pytest.mark.parametrize(
    ("check", "step"), [("truncated answers", "generate"), ("truncated grades", "grade")]
)
def test_replies_that_failed_at_their_limit_are_counted_by_their_step(check, step):
    rows = pd.DataFrame(
        {
            "finish": ["stop", ""],
            "judge_raw": "x",
            "error_step": ["", step],
            "error_kind": "truncated",
        }
    )
    frame = audit_rows(rows)
    assert counts(frame, "rows", check) == (1, 2)
    assert (
        sum(counts(frame, "rows", name)[0] for name in ("truncated answers", "truncated grades"))
        == 1
    )


# -- grades


def test_a_reply_with_too_few_or_too_many_grades_is_unscored(tmp_path):
    def fault(prompt, before):
        return (
            Fault("answer", '{"grades": [5, 5]}')
            if grading(prompt) and "Person0 Lee born?" in prompt
            else None
        )

    frame = run_live_and_audit(tmp_path, fault)
    row = found(frame, RIGHT, "unscored")
    assert (row["rows"], row["detail"]) == (3, "grade: unusable 3")
    assert (row["mean"], row["if_worst"], row["if_best"]) == (1.0, 0.5, 1.0)


def test_answers_shown_to_the_judge_in_part_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("ragbench.labelling.grades.MAX_CHARS", 26)
    frame = run_live_and_audit(tmp_path, N=(0,))
    assert load_rows(tmp_path)["answer"].str.len().gt(26).sum() == 1
    assert counts(frame, RIGHT, "answers cut for the judge") == (1, 2)


def test_grades_that_go_by_the_place_in_the_prompt_are_counted_with_their_shares(tmp_path):
    experiment(tmp_path, 2).run(progress=False)
    rows = load_rows(tmp_path)
    rows = rows.loc[rows.index.repeat(20)].reset_index(drop=True)
    rows["question_id"] = [f"q{number}" for number in range(len(rows))]
    rows = rows.assign(judge_shown=2, judge_position=[1, 2] * (len(rows) // 2))
    by_place = audit(rows.assign(grade=rows["judge_position"].map({1: 5, 2: 4})))
    assert counts(by_place, RIGHT, "labels by place") == (len(rows), len(rows))
    assert (
        "place 1: grade 4 0%, grade 5 100%" in found(by_place, RIGHT, "labels by place")["detail"]
    )
    fair = audit(rows.assign(grade=[5, 5, 4, 4] * (len(rows) // 4)))
    assert counts(fair, RIGHT, "labels by place") == (0, len(rows))
    alone = audit(rows.assign(judge_shown=1))
    assert "labels by place" not in set(alone["check"])


def test_of_several_rows_of_one_context_the_scored_one_counts(tmp_path):
    experiment(tmp_path, 3, generator={"x": Copier(), "y": Copier()}, judge=None).run(
        progress=False
    )
    rows = load_rows(tmp_path)
    rows.loc[(rows["generator"] == "x") & (rows["question_id"] == "q1"), "ir_score"] = float("nan")
    assert counts(audit(rows), "IR score", "unscored") == (0, 6)
    rows.loc[rows["question_id"] == "q1", "ir_score"] = float("nan")
    assert counts(audit(rows), "IR score", "unscored") == (2, 6)


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
    row = found(told, "score", "unscored")
    assert (row["rows"], row["of"], row["detail"]) == (3, 6, "no_bytes 2, invalid 1")
    # b: one of three is scored, with 1; a: two, with 0.75. b is the less certain.
    assert row["most_in"] == "b: 2"
    assert (row["mean"], row["if_worst"], row["if_best"]) == (1.0, pytest.approx(1 / 3), 1.0)
    assert counts(told, "rows", "failed") == (3, 6)
    unequal = found(told, "score", "cells with unequal n")
    assert (unequal["rows"], unequal["of"], unequal["detail"]) == (1, 2, "n from 1 to 2 of 2")
    lines = render(told).splitlines()
    assert lines[0] == "score"
    assert "cells with unequal n 1 of 2 (n from 1 to 2 of 2)" in " ".join(" ".join(lines).split())
    said = " ".join(" ".join(lines[1:4]).split())
    assert "3 of 6 mean 1.000, could be 0.333 to 1.000 most in b: 2 (no_bytes 2, invalid 1)" in said
    assert max(map(len, lines)) <= 78
    twice = pd.concat([frame, frame[:1]], ignore_index=True)
    assert counts(audit_rows(twice, "score", "system"), "rows", "duplicates") == (1, 7)
    assert [line.split()[0] for line in lines if "duplicates" in line] == ["none"]


def test_a_cell_with_no_scored_row_has_no_mean_and_the_whole_range(frame):
    frame.loc[frame["system"] == "b", "score"] = None
    row = found(audit_rows(frame, "score", "system"), "score", "unscored")
    assert np.isnan(row["mean"])
    assert (row["if_worst"], row["if_best"]) == (0.0, 1.0)


LANGUAGES = pd.DataFrame(
    {"question_id": ["z1", "z2", "e1"] * 2, "language": ["zh", "zh", "en"] * 2}
)
LANGUAGES = LANGUAGES.assign(system=list("aaabbb"), score=1.0)
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
    row = found(audit_rows(rows, "score", by, within=within), "score", "cells with unequal n")
    assert (row["rows"], row["of"], row["detail"]) == (unequal, of, detail)


def test_a_frame_without_cells_or_scores_is_audited_as_a_whole(frame):
    told = audit_rows(frame, "score")
    assert found(told, "score", "unscored")["most_in"] == ""
    assert counts(told, "score", "unscored") == (3, 6)
    assert "unscored" not in set(audit_rows(frame)["check"])


def test_bad_input_is_named(frame):
    with pytest.raises(ConfigError, match="unknown column 'scor'"):
        audit_rows(frame, "scor")
    with pytest.raises(ConfigError, match="unknown column 'systems'"):
        audit_rows(frame, "score", "systems")
    with pytest.raises(ConfigError, match="within"):
        audit_rows(frame, "score", "system", within=["error"])
    with pytest.raises(DataError, match="has no rows"):
        audit(frame[:0])
    with pytest.raises(DataError, match="no run 'nowhere'"):
        audit("nowhere")


# -- ranges


def test_ranges_by_hand():
    rows = pd.DataFrame(
        {"s": [1.0, 0.5, None, None, 0.25], "size": list("aaabb"), "d": [1, 1, 1, 2, 2]}
    )
    columns = ["most_in", "mean", "if_worst", "if_best"]

    def told(rows, bounds=(0, 1), by=()):
        return found(audit_rows(rows, {"s": bounds}, by), "s", "unscored")[columns].tolist()

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
    row = found(audit_rows(pd.DataFrame({"s": scores}), "s"), "s", "unscored")
    assert (row["rows"], row["of"]) == (scores.isna().sum(), len(scores))
    if scores.notna().all():
        assert row[["mean", "if_worst", "if_best"]].isna().all()
        return
    whole = scores.fillna(pd.Series(truth)).mean()
    assert row["if_worst"] - 1e-9 <= whole <= row["if_best"] + 1e-9
    assert row["if_best"] - row["if_worst"] == pytest.approx(row["rows"] / len(values))
    assert row["mean"] == pytest.approx(scores.mean(), nan_ok=True)
