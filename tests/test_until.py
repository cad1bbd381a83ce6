"""Stop when decided: when a run ends, on which questions, what it says of that, and who refuses its p-values."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from experiment_parts import Named, experiment, people

import ragbench as rb
from ragbench import cli, comparison, stats
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.until import in_blocks
from ragbench.records import Dataset, Question
from ragbench.report.export import export

BETTER = "named > lost in ir_score by 0.95"


class Lost(Named):
    """Finds the named person last."""

    def search(self, queries, k, scope=None):
        return [hits[::-1][:k] for hits in super().search(queries, len(self.chunks))]


def grid(folder, count=40, **changes):
    settings = {"retriever": {"named": Named, "lost": Lost}, "N": (20,), "k": 1, "generator": None, "judge": None}
    return experiment(folder, count, **(settings | changes))


def told(folder):
    return load_manifest(folder)["runs"][-1]["until"]


def test_a_run_ends_at_the_first_look_that_decides_and_says_why(tmp_path):
    rows = grid(tmp_path).run(progress=False, until=BETTER)
    first, second, *_ = in_blocks(people(40), 10)
    assert list(dict.fromkeys(rows["question_id"])) == [question.id for question in (*first, *second)]
    assert set(rows["until"]) == set(load_rows(tmp_path)["until"]) == {BETTER}
    seen = told(tmp_path)
    assert (seen["asked"], seen["of"], seen["unscored"]) == (20, 40, 0)
    assert seen["why"] == "named is shown to be higher than lost"
    wide = rows.pivot(index="question_id", columns="retriever", values="ir_score")
    exact = stats.anytime_interval(wide["named"] - wide["lost"])
    assert [seen["estimate"], seen["low"], seen["high"]] == pytest.approx([exact.estimate, exact.low, exact.high])
    assert seen["low"] > 0
    after_one = wide[wide.index.isin([question.id for question in first])]
    assert stats.anytime_interval(after_one["named"] - after_one["lost"]).low < 0


@pytest.mark.parametrize(
    ("until", "why", "asked"),
    [
        ("lost > named in ir_score by 0.95", "named is shown to be higher than lost", 20),
        ("named > twin in ir_score by 0.95", "all questions were asked", 40),
        ("named > twin in ir_score by 0.9 or within 0.3", "named and twin are shown to differ by less than 0.3", 20),
        ("named > lost in nDCG@10 by 0.95", "named is shown to be higher than lost", 10),
    ],
)
def test_the_other_may_win_or_neither(until, why, asked, tmp_path):
    three = {"named": Named, "lost": Lost, "twin": Named}
    grid(tmp_path, retriever=three, until=until).run(progress=False)
    seen = told(tmp_path)
    assert (seen["why"], seen["asked"]) == (why, asked)


def test_grades_and_lexical_numbers_decide_as_well_and_a_failed_question_is_left_out(tmp_path):
    lost = lambda chunks: Lost(chunks, broken="Person1 ")  # noqa: E731
    both = {"retriever": {"named": Named, "lost": lost}, "generator": {"copier": (lambda q, context: context)}}
    for number in ("fully_right", "token_f1"):
        made = grid(tmp_path / number, 30, **both, judge="embedded")
        rows = made.run(progress=False, until=f"named > lost in {number} by 0.9")
        failed = rows.loc[rows["status"] == "failed", "question_id"].nunique()
        assert told(tmp_path / number)["unscored"] == failed


def looked_at(tmp_path, differences, clusters=None, margin="", **changes):
    """Look at made rows: the first system's IR score is higher by these differences."""
    until = grid(tmp_path).stop(f"{BETTER}{margin}")
    rows = [
        {"question_id": f"q{i}", "status": "ok", "ir_score": 0.5 + side * d / 2}
        | vars_of(cell)
        | changes.get(f"q{i}", {})
        for i, d in enumerate(differences)
        for side, cell in zip((1, -1), until.cells, strict=True)
    ]
    clusters = clusters or range(len(differences))
    return until.look(until.differences(rows), {f"q{i}": cluster for i, cluster in enumerate(clusters)})


def vars_of(cell):
    return {name: getattr(cell, name) for name in ("data", "chunker", "retriever", "k", "N", "generator", "judge")}


def test_questions_that_share_documents_count_once_at_a_look(tmp_path):
    assert looked_at(tmp_path, [1] * 12)[1] == "named is shown to be higher than lost"
    interval, why = looked_at(tmp_path, [1] * 12, [i // 4 for i in range(12)])
    assert (why, interval.n) == ("", 12)


def test_a_failed_row_is_not_scored_whatever_it_holds(tmp_path):
    interval, _ = looked_at(tmp_path, [1] * 12, q3={"status": "failed"}, q4={"ir_score": None})
    assert (interval.n, interval.n_missing) == (10, 2)


def test_a_margin_is_for_both_ends_of_the_interval(tmp_path):
    interval, why = looked_at(tmp_path, [0.1] * 40, margin=" or within 0.2")
    assert -0.2 < interval.low < 0 < 0.2 < interval.high
    assert why == ""
    assert looked_at(tmp_path, [0.1] * 40, margin=" or within 0.9")[1].endswith("differ by less than 0.9")


def test_without_until_the_rows_and_their_order_are_as_ever(tmp_path):
    rows = grid(tmp_path, 12).run(progress=False)
    assert list(dict.fromkeys(rows["question_id"])) == [f"q{i}" for i in range(12)]
    assert rows["until"].isna().all()
    assert "until" not in load_manifest(tmp_path)["runs"][-1]


def test_blocks_hold_every_question_once_in_a_fixed_random_order_and_whole_clusters():
    asked = [Question(f"q{i}", "?", "a", (), meta={"relevant": {f"d{i // 3}": 1}}) for i in range(60)]
    data = Dataset("made", tuple(asked), ())
    blocks = in_blocks(data, 10)
    names = [question.id for block in blocks for question in block]
    assert sorted(names) == sorted(question.id for question in asked)
    assert names != [question.id for question in asked]
    assert blocks == in_blocks(data, 10)
    assert all(10 <= len(block) <= 12 for block in blocks[:-1])
    homes = [{int(question.id[1:]) // 3 for question in block} for block in blocks]
    assert sum(map(len, homes)) == len(set.union(*homes))


def test_a_plan_says_what_is_expected_to_be_saved_and_how_few_groups_there_are(tmp_path):
    notes = grid(tmp_path, 15).plan(until=BETTER).notes
    assert any("true difference of 0.4, if they disagree on half of the questions: about" in note for note in notes)
    assert any("15 groups" in note for note in notes)
    assert not any("groups" in note for note in grid(tmp_path, 40, until=BETTER).plan().notes)
    assert not any("saved" in note for note in grid(tmp_path).plan().notes)


def test_p_values_of_a_stopped_run_are_refused_and_the_audit_and_the_report_say_so(tmp_path):
    rows = grid(tmp_path / "run").run(progress=False, until=BETTER)
    scored = rb.score(rb.Experiment.answers(rows), ["ir_score"])
    for refused in (
        lambda: comparison.compare_systems(rows),
        lambda: rb.compare_scores(scored),
        lambda: stats.compare(rows, "retriever", "ir_score"),
    ):
        with pytest.raises(DataError, match="looked at until named > lost"):
            refused()
    checks = rb.audit(tmp_path / "run").set_index("check")
    assert checks.loc["looked at while it ran", "rows"] == len(rows)
    assert checks.loc["missing rows", "rows"] == 0
    scored.to_csv(tmp_path / "run" / "scores.csv", index=False)
    (tmp_path / "run" / "scores.json").write_text(json.dumps(scored.attrs))
    export(tmp_path / "run", tmp_path / "out")
    text = (tmp_path / "out" / "methods.md").read_text()
    assert "after 20 of 40 questions: named is shown to be higher than lost" in text
    assert "@waudbysmith2024betting" in text
    assert "permutation" not in text
    assert not (tmp_path / "out" / "tables" / "comparison.csv").exists()


def test_the_command_takes_it_and_prints_the_decision(tmp_path, capsys):
    (tmp_path / "experiment.yaml").write_text(
        "name: made\nfolder: run\ndata: minihop\nchunker: {use: token_chunks, size: 100}\n"
        "retriever: [BM25]\nk: {deep: 10, flat: {BM25: 1}}\nN: [100, 300]\n"
    )
    until = "BM25, k=10@300 > BM25, k=1@100 in ir_score by 0.95"
    assert cli.main(["plan", str(tmp_path), "--until", until]) == 0
    assert "saved" in capsys.readouterr().out
    assert cli.main(["run", str(tmp_path), "--until", until]) == 0
    assert "questions: BM25, k=10@300 is shown to be higher than BM25, k=1@100, +0." in capsys.readouterr().out
    assert told(tmp_path / "run")["asked"] < 180
    assert len(pd.read_json(tmp_path / "run" / "rows.jsonl", lines=True)) == 4 * told(tmp_path / "run")["asked"]


@pytest.mark.parametrize(
    ("until", "words"),
    [
        ("named beats lost", "SYSTEM > SYSTEM in METRIC by LEVEL"),
        ("named > lost in ir_score by 95", "SYSTEM > SYSTEM in METRIC by LEVEL"),
        ("named > gone in ir_score by 0.95", "'gone', which is no one system"),
        ("named > named@20 in ir_score by 0.95", "with itself"),
        ("named > lost in ir_skore by 0.95", "did you mean 'ir_score'"),
        ("named > lost in precision by 0.95", "claim_labels, a label made after the run"),
        ("named > lost in ranking by 0.95", "several numbers"),
        ("named > lost in token_f1 by 0.95", "without a generator"),
        ("named > lost in fully_right by 0.95", "without a judge"),
    ],
)
def test_what_cannot_be_decided_is_told_before_anything_runs(until, words, tmp_path):
    with pytest.raises(ConfigError) as error:
        grid(tmp_path, until=until)
    assert words in str(error.value)


def test_one_name_must_mean_one_system_and_there_is_one_data_set(tmp_path):
    with pytest.raises(ConfigError, match="no one system"):
        grid(tmp_path, N=(10, 20), until=BETTER)
    with pytest.raises(ConfigError, match="until with 2 data sets"):
        grid(tmp_path, data={"a": people(3), "b": people(3)}, until=BETTER)
