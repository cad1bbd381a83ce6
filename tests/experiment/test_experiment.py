"""The grid runner: which rows there are, what they hold, and that nothing is made twice."""

import math
import warnings
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checks import refused
from experiment_parts import (
    Copier,
    Interrupted,
    JudgeDouble,
    Named,
    experiment,
    people,
    rows_of,
    whole,
)

import ragbench as rb
from ragbench.chunking import token_chunks
from ragbench.data import load_minihop, load_questions
from ragbench.errors import ConfigError, DataError, RagbenchError
from ragbench.experiment import Experiment, load_manifest, load_rows
from ragbench.experiment.axes import GENERATORS, JUDGES
from ragbench.experiment.build import Person
from ragbench.llm import Cassette
from ragbench.llm.failures import CallError
from ragbench.metrics.ir_score import ir_score
from ragbench.records import Answer, Dataset, Failure, Grade
from ragbench.retrieval import make_retriever
from ragbench.rows import AXIS_COLUMNS, answers_of, measure_answers


def same(a, b):
    drop = ["seconds", "judge_seconds", "cached"]  # clocks, and where a reply came from
    pd.testing.assert_frame_equal(a.drop(columns=drop), b.drop(columns=drop))


QUESTIONS = people().questions


@pytest.fixture
def rows(tmp_path):
    return rows_of(tmp_path)


def test_one_row_per_question_and_cell_and_one_without_documents(rows, tmp_path):
    assert len(rows) == 6 * 3
    assert not rows.duplicated(list(AXIS_COLUMNS)).any()
    assert set(rows["status"]) == {"ok"}
    alone = rows[rows["N"] == 0]
    assert set(alone["retriever"]) == {"LLM only"}
    assert alone["ir_score"].isna().all()
    assert set(alone["hits"].map(len)) == {0}
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(rows)


def test_two_retrievers_and_depths_share_the_rows_without_documents(tmp_path):
    retrievers = {"a": Named, "b": Named}
    rows = rows_of(tmp_path, 2, retriever=retrievers, k={"a": 1, "b": [1, 3]}, N=(0, 9))
    # a has depth 1 in both; b has 1 and 3.
    assert Counter(rows["retriever"] + " " + rows["k"].astype(str)) == {
        "LLM only 0": 2,
        "a 1": 2,
        "b 1": 2,
        "b 3": 2,
    }


def test_a_grid_may_keep_some_cells_of_its_product_and_builds_nothing_for_the_others(tmp_path):
    built = []

    def noted(chunks):
        built.append(len(chunks))
        return Named(chunks)

    chunkers = {"whole": whole, "half": lambda documents: whole(documents)[:1]}
    axes = {"chunker": chunkers, "retriever": {"n": noted}, "k": [1, 2, 3], "N": 9}
    around = experiment(tmp_path, 2, **axes, keep=lambda c: (c.chunker, c.k) == ("whole", 2))
    rows = around.run(progress=False)
    assert rows[["chunker", "k"]].to_numpy().tolist() == [["whole", 2]] * 2
    assert built == [2]
    planned = around.plan()["retrieve"]
    assert (planned.calls, planned.seconds) == (2, 0.0)
    with pytest.raises(ConfigError, match="without cells"):
        experiment(tmp_path, 2, keep=lambda cell: False)


def test_a_row_holds_the_score_of_the_text_the_answer_came_from(rows):
    cut = rows[(rows["N"] == 4) & (rows["question_id"] == "q1")].iloc[0]
    fact = "Person1 Lee was born in York."
    assert cut["answer"] == "Person1 Lee was born"
    assert cut["ir_score"] == pytest.approx(ir_score([fact], cut["answer"]))
    assert cut["ir_score"] == pytest.approx(len("Person1 Lee was born") / len(fact))
    assert (cut["context_tokens"], cut["hits"]) == (4, ["d1#0", "d0#0"])
    long = rows[(rows["N"] == 20) & (rows["question_id"] == "q1")].iloc[0]
    assert long["ir_score"] == 1.0
    assert long["grade"] == 5
    assert rows[rows["N"] == 0]["grade"].eq(1).all()


@pytest.mark.parametrize(
    ("begin_token", "tokens", "answer"),
    [(False, 4, "Person0 Lee was born"), (True, 3, "Person0 Lee was")],
)
def test_context_tokens_stop_at_the_end_of_the_text_and_leave_the_begin_token_out(
    tmp_path, begin_token, tokens, answer
):
    rows = rows_of(tmp_path, 1, k=1, N=(4, 100), begin_token=begin_token).set_index("N")
    assert rows["context_tokens"].to_dict() == {4: tokens, 100: 12}
    assert rows.loc[4, "answer"] == answer


def test_retrieval_is_done_once_for_all_budgets_generators_and_judges(tmp_path):
    made = []

    def build(chunks):
        made.append(Named(chunks))
        return made[-1]

    people_twice = {"x": Copier(), "y": Copier()}
    grid = experiment(tmp_path, 4, retriever={"named": build}, generator=people_twice, N=(2, 5, 9))
    assert len(grid.run(progress=False)) == 4 * 3 * 2
    assert [len(engine.searched) for engine in made] == [4]
    grid.run(progress=False)
    # searched again in seconds; nothing is remembered
    assert [len(engine.searched) for engine in made] == [4, 4]


def test_an_answer_is_asked_once_and_graded_by_every_judge(tmp_path):
    log = tmp_path / "log"
    people = {"generator": {"copier": Copier(str(log))}}
    people["judge"] = {"a": JudgeDouble(), "b": JudgeDouble()}
    rows = rows_of(tmp_path / "run", 3, N=(4, 20), **people)
    assert len(log.read_text().splitlines()) == 3 * 2
    assert rows["judge"].tolist() == ["a", "b"] * 6
    assert rows.groupby(["question_id", "N"])["answer"].agg(len).eq(2).all()
    assert rows[["answer", "grade"]].notna().all(axis=None)


BUSY = CallError.of("busy", "later")


class Broken(JudgeDouble):
    """Fails, or leaves an answer unscored."""

    def __init__(self, error=None):
        self.error = error

    def grade_all(self, questions, answers):
        if self.error:
            raise self.error
        why = Failure("unscored", "no")
        return [Grade(a.question_id, None, self.name, failure=why) for a in answers]


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        (Broken(OverflowError("too much")), ["failed", "grade", "OverflowError", "too much"]),
        (Broken(BUSY), ["failed", "grade", "busy", str(BUSY)]),
        (Broken(), ["failed", "grade", "unscored", "no"]),
    ],
)
def test_an_answer_without_a_grade_keeps_the_reason(tmp_path, judge, why):
    (row,) = rows_of(tmp_path, 1, N=20, judge={"b": judge}).to_dict("records")
    assert [row[name] for name in ("status", "error_step", "error_kind", "error")] == why
    assert row["answer"]
    assert pd.isna(row["grade"])


@pytest.mark.slow
def test_threads_and_processes_give_identical_rows(tmp_path):
    grid = {"count": 120, "N": (0, 4, 20)}
    first = rows_of(tmp_path / "threads", **grid)
    with ThreadPoolExecutor(3) as pool:
        same(first, experiment(tmp_path / "pool", **grid).run(pool, progress=False))
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
        same(first, experiment(tmp_path / "processes", **grid).run(pool, progress=False))


def test_a_damaged_line_is_named(tmp_path, rows):
    path = tmp_path / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "{no row}\n", *lines[3:]]))
    with pytest.raises(DataError, match=r"rows\.jsonl, line 4 is not a row"):
        load_rows(tmp_path)
    with pytest.raises(DataError, match="no run 'nowhere'"):
        load_rows("nowhere")


def test_names_mappings_and_a_data_set_stand_for_what_dicts_hold(tmp_path, monkeypatch):
    monkeypatch.setitem(GENERATORS, "copier", Copier)
    monkeypatch.setitem(JUDGES, "double", JudgeDouble)
    named = experiment(
        tmp_path / "named",
        data=people(3),
        chunker={"token_chunks": {"use": "token_chunks", "size": 5, "overlap": 0}},
        retriever=["BM25", "REO"],
        generator="copier",
        judge={"double": "double"},
    )
    written = experiment(
        tmp_path / "written",
        3,
        chunker={"token_chunks": partial(token_chunks, size=5, overlap=0)},
        retriever={name: partial(make_retriever, name) for name in ("BM25", "REO")},
        judge={"double": JudgeDouble()},
    )
    same(named.run(progress=False), written.run(progress=False))
    asked = experiment(
        tmp_path,
        retriever={"mine": {"use": "BM25", "tokenizer": "english"}},
        generator={"small": {"use": "ollama:llama3:8b", "num_predict": 96}, "own": Copier()},
    )
    assert asked.generator["small"].num_predict == 96
    assert asked.retriever["mine"].keywords == {"tokenizer": "english"}


def test_without_a_generator_and_a_judge_an_experiment_is_retrieval_only(tmp_path):
    grid = Experiment(
        "made", data=people(3), chunker="token_chunks", retriever="BM25", N=9, folder=tmp_path
    )
    assert grid.generator == grid.judge == {}
    for nobody in (None, "none", {}, []):
        assert experiment(tmp_path, 1, generator=nobody, judge=nobody).generator == {}
    rows = grid.run(progress=False)
    assert rows["ir_score"].notna().all()
    assert rows[["answer", "grade"]].isna().all(axis=None)


@pytest.mark.parametrize(("axis", "name"), [("generator", "copying"), ("judge", "grader")])
def test_an_unknown_generator_or_judge_is_refused_with_the_two_ways_to_one(tmp_path, axis, name):
    words = rf"unknown {axis} '{name}'(?s:.)*ollama:llama3:8b(?s:.)*smollm2"
    with pytest.raises(ConfigError, match=words):
        experiment(tmp_path, **{axis: name})


def test_the_file_holds_the_rows_of_this_grid_and_no_others(tmp_path):
    assert len(rows_of(tmp_path, retriever={"a": Named, "b": Named})) == 30
    renamed = replace(people(), questions=tuple(replace(q, answer="Rome") for q in QUESTIONS))
    rows_of(tmp_path, data={"people": renamed}, k=3)
    rows = load_rows(tmp_path)
    assert len(rows) == 18
    assert set(rows["reference"]) == {"Rome"}
    assert {*rows["k"]} == {0, 3}


def test_a_second_run_gives_the_same_rows_and_a_run_that_cannot_begin_leaves_them(tmp_path, rows):
    same(rows, rows_of(tmp_path))
    before = (tmp_path / "rows.jsonl").read_bytes()
    with pytest.raises(RagbenchError):
        rows_of(tmp_path, data={"people": lambda: 3})
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_rows_on_disk_are_the_rows_returned(tmp_path, rows):
    same(rows, load_rows(tmp_path))


def test_the_texts_behind_a_row_are_in_it(rows):
    row = answers_of(rows).set_index(["question_id", "N"]).loc[("q1", 20)]
    assert row["question"] == "In which town was Person1 Lee born?"
    assert (row["reference"], row["references"]) == ("York", ["Person1 Lee was born in York."])
    assert (row["retrieved"], row["relevant"]) == (["d1", "d0"], {"d1": 1})
    assert row["chunks"] == [people().documents[1].text, "Person0 Lee was born in Ely. She sang"]
    assert " ".join(row["chunks"]) == row["context"] == row["answer"]
    assert row["system"] == "named@20"


def test_without_a_generator_the_longest_context_alone_is_kept(tmp_path):
    rows = rows_of(tmp_path, generator=None, judge=None, N=(4, 20))
    assert rows.set_index("N")["context"].notna().groupby("N").mean().to_dict() == {4: 0.0, 20: 1.0}


def test_failures_are_rows_with_their_reason(tmp_path):
    broken = {
        "retriever": {"n": partial(Named, broken="Person2")},
        "generator": {"copier": Copier(broken="Person1")},
    }
    rows = rows_of(tmp_path, 4, **broken).set_index(["question_id", "N"])
    assert rows.loc["q1", "error_step"].tolist() == ["generate"] * 3
    assert rows.loc["q2", "error_step"].tolist() == ["", "retrieve", "retrieve"]
    why = rows[["error_kind", "error"]].apply(tuple, axis=1)
    assert why["q1", 4] == ("ValueError", "cannot answer this")
    assert why["q2", 4] == ("ValueError", "no index for this one")
    assert load_manifest(tmp_path)["runs"][-1]["failed"] == {"ValueError": 5}


def test_blocks_are_mapped_by_the_executor_and_written_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr("ragbench.experiment.run.BLOCK_OF_QUESTIONS", 60)
    sizes = []
    written = []

    class Elsewhere(Executor):
        def submit(self, work, *items):
            sizes.append(len(items[0]))
            path = tmp_path / "rows.jsonl"
            written.append(len(path.read_text().splitlines()) if path.exists() else 0)
            future = Future()
            future.set_result(work(*items))
            return future

    experiment(tmp_path, 110, N=(4,), generator=None, judge=None).run(Elsewhere(), progress=False)
    assert sizes == [50, 10, 50]
    assert written == [0, 0, 60]


def test_two_runs_cannot_share_a_folder(tmp_path):
    class Inside(Copier):
        def answer(self, question, context):
            with pytest.raises(ConfigError, match="another process is running 'made'"):
                rows_of(tmp_path)
            return "tried"

    rows = rows_of(tmp_path, 1, N=(4,), generator={"inside": Inside()}, judge=None)
    assert rows["answer"].tolist() == ["tried"]


def test_ctrl_c_leaves_the_blocks_that_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr("ragbench.experiment.run.BLOCK_OF_ANSWERS", 6)  # two questions

    with pytest.raises(KeyboardInterrupt):
        rows_of(tmp_path, retriever={"named": Interrupted})
    assert len(load_rows(tmp_path)) == 12
    assert load_manifest(tmp_path)["runs"][0]["rows_made"] == 12
    assert len(rows_of(tmp_path)) == 18


def test_a_run_that_is_stopped_leaves_the_earlier_rows_and_their_manifest(tmp_path, rows):
    before = (tmp_path / "rows.jsonl").read_bytes()
    manifest = load_manifest(tmp_path)
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="earlier rows"):
        rows_of(tmp_path, N=(0, 5), retriever={"named": Interrupted})
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    stopped, last = load_manifest(tmp_path)["runs"]  # the last entry is that of the rows
    assert load_manifest(tmp_path) == manifest | {"runs": [stopped, last]}
    assert [last] == manifest["runs"]
    assert (stopped["rows"], stopped["rows_made"] < 12) == (12, True)
    assert not list(tmp_path.glob("*.part"))
    rows_of(tmp_path, N=(0, 5))
    assert load_manifest(tmp_path)["parameters"]["N"] == [0, 5]
    assert set(load_rows(tmp_path)["N"]) == {0, 5}


def test_a_folder_of_another_experiment_is_refused_and_stays(tmp_path, rows):
    before = (tmp_path / "rows.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="'made', not 'other'"):
        rows_of(tmp_path, name="other")
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def answered_by(folder, generator, **changes):
    """The rows of twelve questions at three N, asked one after another."""
    grid = experiment(folder, 12, generator={"mine": generator}, judge=None, **changes)
    with ThreadPoolExecutor(1) as pool:
        return grid.run(pool, progress=False)


def test_a_run_that_was_stopped_at_25_of_36_answers_of_a_function_asks_the_other_eleven(tmp_path):
    calls = []
    stop_at = [25]

    def mine(question, context):
        if len(calls) == stop_at[0]:
            raise KeyboardInterrupt
        calls.append(question)
        return f"{question} {len(context)}"

    mine.model_id = "mine"
    with pytest.raises(KeyboardInterrupt):
        answered_by(tmp_path, mine)
    stop_at[0] = None
    grid = experiment(tmp_path, 12, generator={"mine": mine}, judge=None)
    with pytest.warns(UserWarning, match="'mine' are read from cassette.sqlite"):
        planned = grid.plan()["generation"]
    assert (planned.calls, planned.cached, planned.remaining) == (36, 25, 11)
    with pytest.warns(UserWarning, match="'mine' are read from cassette.sqlite"):
        rows = answered_by(tmp_path, mine)
    assert len(calls) == 36
    assert rows["cached"].sum() == 25
    assert rows["answer"].str.startswith("In which town").all()
    with pytest.warns(UserWarning, match="'mine' are read from cassette.sqlite"):
        again = answered_by(tmp_path, mine)
    assert len(calls) == 36
    assert again["answer"].equals(rows["answer"])
    assert Cassette(tmp_path / "cassette.sqlite").verify() == []


def test_what_cannot_be_told_apart_is_asked_each_time_and_said(tmp_path):
    calls = []

    class Opaque:
        name = "mine"

        def __init__(self):
            self.weights = memoryview(b"")

        def answer(self, question, context):
            calls.append(question)
            return "York"

    for count in (36, 72):
        with pytest.warns(UserWarning, match=r"are not recorded: .*Opaque.weights.* model_id"):
            answered_by(tmp_path, Opaque())
        assert len(calls) == count


def test_a_replayed_run_of_a_function_records_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_CASSETTE", "replay")
    rows = answered_by(tmp_path, lambda question, context: "York")
    assert set(rows["answer"]) == {"York"}
    assert not (tmp_path / "cassette.sqlite").exists()


@pytest.mark.parametrize(
    ("change", "count"), [({}, 36), ({"seconds": 1e-9}, 72), ({"broken": "x"}, 72)]
)
def test_an_object_with_another_setting_is_asked_anew(tmp_path, change, count):
    log = str(tmp_path / "log")
    answered_by(tmp_path, Copier(log))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        answered_by(tmp_path, Copier(log, **change))
    assert len(Path(log).read_text().splitlines()) == count


def test_the_failed_answers_of_an_object_are_asked_again(tmp_path):
    log = str(tmp_path / "log")
    broken = Copier(log, broken="Person0")
    broken.model_id = "copier"
    assert answered_by(tmp_path, broken)["status"].eq("failed").sum() == 3
    broken.broken = ""
    with pytest.warns(UserWarning, match="are read from"):
        assert answered_by(tmp_path, broken)["status"].eq("ok").all()
    assert len(Path(log).read_text().splitlines()) == 36


def test_rows_with_fractions_of_relevance_and_ids_that_are_numbers_are_read_again(tmp_path):
    data = people(2)
    first = replace(data.questions[0], meta={"relevant": {"d0": 0.5}})
    data = replace(data, questions=(first, data.questions[1]))

    def numbered(documents):
        return [replace(chunk, doc_id=7) for chunk in whole(documents)]

    rows_of(tmp_path, data=data, chunker={"mine": numbered}, N=20, generator=None, judge=None)
    row = load_rows(tmp_path).iloc[0]
    assert (row["relevant"], row["retrieved"]) == ({"d0": 0.5}, ["7", "7"])


def systems_of(rows):
    texts = {"context": None, "chunks": None}
    return answers_of(rows.assign(**texts, data=rows.get("data", "d")))["system"].tolist()


def test_systems_of_two_data_sets_are_told_apart():
    row = {"retriever": "BM25", "k": 5, "generator": "none", "judge": "none", "N": 9}
    rows = pd.DataFrame([row | {"chunker": "c", "data": name} for name in "ab"])
    assert systems_of(rows) == ["BM25@9 on a", "BM25@9 on b"]


def test_systems_whose_labels_are_numbers_have_names():
    row = {"retriever": "BM25", "k": 5, "generator": "none", "judge": "none", "N": 9}
    rows = pd.DataFrame([row | {"chunker": size} for size in (256, 512)])
    assert systems_of(rows) == ["BM25, 256@9", "BM25, 512@9"]


def test_every_column_of_the_questions_file_is_one_of_the_rows(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text("question,answer,Sprache,year\nWhere?,York,de,0\nWhere was it?,York,en,1\n")
    with pytest.warns(UserWarning, match="no question has supporting texts"):
        data = load_questions(path, people(2).documents)
    axes = {"chunker": "token_chunks", "retriever": "BM25", "N": 4}
    rows = rows_of(tmp_path / "r", data=data, generator=None, judge=None, **axes)
    assert rows["Sprache"].tolist() == ["de", "en"]
    assert load_rows(tmp_path / "r")["year"].tolist() == rows["year"].tolist()


def test_a_long_true_answer_and_its_claims_travel_in_the_rows(tmp_path):
    axes = {"data": "minihop", "chunker": "token_chunks", "retriever": "BM25"}
    rows = rows_of(tmp_path, **axes, N=[100], judge=None)
    questions = {question.id: question.meta for question in load_minihop().questions}
    long = rows[rows["long_reference"].notna()]
    assert len(long) == 65
    for row in load_rows(tmp_path)[rows["long_reference"].notna()].itertuples():
        meta = questions[row.question_id]
        assert row.long_reference == meta["long_answer"]
        assert row.reference_claims == [claim["text"] for claim in meta["claims"]]
    planned = rb.plan_score(long.head(1), ["recall"], rb.chat_model("ollama:x", host="127.0.0.1:9"))
    assert planned["claims"].calls == 1  # the answer's alone


def test_key_points_travel_in_the_rows_and_into_the_plan(tmp_path):
    data = people(2)
    points = ("She is Ann.", "She lives in York.")
    questions = [replace(q, meta={**q.meta, "keypoints": points}) for q in data.questions]
    data = replace(data, questions=tuple(questions))
    axes = {"chunker": "token_chunks", "retriever": "BM25", "N": 4}
    rows_of(tmp_path, data=data, **axes, judge=None)
    rows = load_rows(tmp_path)
    assert rows["keypoints"].tolist() == [[*points]] * 2
    planned = rb.plan_score(rows, ["keypoints"], rb.chat_model("ollama:x", host="127.0.0.1:9"))
    assert {step.name: step.calls for step in planned} == {"keypoints": 4}


def test_a_system_is_named_by_what_differs_and_without_documents_by_no_chunker_and_no_k():
    cells = {"retriever": ["LLM only", "BM25", "BM25"], "N": [0, 9, 9], "k": [0, 5, 10]}
    rows = pd.DataFrame(cells).assign(chunker=["none", "a", "b"], generator="g", judge="none")
    assert systems_of(rows) == [
        "LLM only@0",
        "BM25, a, k=5@9",
        "BM25, b, k=10@9",
    ]


def test_a_prompt_that_was_not_asked_is_not_named():
    cells = {"retriever": ["LLM only", "BM25"] * 2, "N": [0, 9] * 2, "k": [0, 5] * 2}
    alone, usual = "thesis_query_only", "thesis_with_documents"
    rows = pd.DataFrame(cells).assign(chunker=["none", "c"] * 2, judge="none")
    rows = rows.assign(
        generator=["kurz", "kurz", "lang", "lang"], prompt=[alone, "kurz.txt", alone, usual]
    )
    assert systems_of(rows) == [
        "LLM only, kurz, prompt thesis_query_only@0",
        "BM25, kurz@9",
        "LLM only, lang@0",
        "BM25, lang@9",
    ]


def test_a_plan_counts_searches_answers_and_grades_and_makes_nothing(tmp_path):
    plan = experiment(tmp_path, 4, retriever={"a": Named, "b": Named}).plan()
    calls = {step.name: step.calls for step in plan}
    assert calls == {"retrieve": 8, "generation": 20, "grading": 20}
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retriever": {}}, "retriever is dict"),
        ({"retriever": ["BM25", "BM52"]}, "unknown retriever 'BM52'(?s:.)*did you mean 'BM25'"),
        ({"data": [3]}, "data '3' is int"),
        ({"data": pd.DataFrame({"question": ["Who?"]})}, "data is DataFrame"),
        (
            {"data": {"people": list(people(1).questions)}},
            "data 'people' is list(?s:.)*a Dataset, or a function",
        ),
        ({"chunker": whole}, "chunker is function"),
        ({"chunker": {"whole": 3}}, "chunker 'whole' is int"),
        ({"k": {"nobody": 3}}, "unknown retriever in k 'nobody'"),
        ({"N": (100, -1)}, "N is -1"),
        ({"N": ()}, r"N is \(\)"),
        ({"generator": None}, "a judge without a generator"),
        ({"generator": None, "judge": None, "N": 0}, "without cells"),
        ({"match": "best"}, "match is 'best'(?s:.)*'subsequence'"),
        ({"concurrency": 0}, "concurrency is 0\n.*greater than 0"),
        ({"per_prompt": "all"}, "per_prompt is 'all'\n.*'one', 'ten' or 'systems' or"),
        ({"name": "../up"}, "the name '../up'"),
        ({"data": {"none": people}}, "data has the name 'none'"),
    ],
)
def test_axes_that_cannot_work_are_told_at_once(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        experiment(tmp_path, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"generator": {"copier": 3}}, "generator 'copier' is int"),
        ({"judge": {"e": Copier()}}, "judge 'e' is Copier"),
        ({"data": {"people": lambda: 3}}, "data .people. gives 3"),
        ({"data": {"people": Dataset("empty", (), ())}}, "an id of its own"),
        ({"retriever": {"named": lambda chunks: 3}}, "retriever is 3"),
    ],
)
def test_values_that_cannot_work_stop_the_run_before_the_first_row(tmp_path, change, message):
    with pytest.raises(RagbenchError, match=message):
        rows_of(tmp_path, **change)
    assert not (tmp_path / "rows.jsonl").exists()


def test_experiment_shows_its_size_and_its_folder(tmp_path, monkeypatch):
    size = "Experiment('made': 1 data x 1 chunker x 1 retriever x 3 N x 1 generator x 1 judge)"
    assert repr(experiment(tmp_path)) == size
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    assert experiment(None, name="here").home == tmp_path / "here"


def test_an_answer_that_failed_has_no_string_metric_and_keeps_its_row():
    texts = {"answer": ["Ely", None, "York"], "reference": ["Ely", "Ely", None]}
    rows = pd.DataFrame(texts, index=[4, 2, 0])
    measured = measure_answers(rows, lambda answer, reference: float(answer == reference))
    assert measured.to_dict() == pytest.approx({4: 1.0, 2: math.nan, 0: math.nan}, nan_ok=True)


def test_the_bar_of_rows_is_shown_where_it_is_asked_for(tmp_path, capsys):
    made = experiment(tmp_path, 2, N=(4,), generator=None, judge=None)
    made.run(progress=False)
    assert "row" not in capsys.readouterr().err
    (tmp_path / "rows.jsonl").unlink()  # or they would be read, and none be made
    made.run(progress=True)
    assert "2/2" in capsys.readouterr().err


@pytest.mark.parametrize("match", ["substring", "subsequence", "exact", "exact_subsequence"])
def test_score_computes_the_ir_score_that_the_run_has(tmp_path, match):
    fact = "Person0 was BORN in York."  # " in York.", or "Person0 was  in York."
    questions = tuple(replace(question, references=(fact,)) for question in QUESTIONS)
    data = replace(people(), questions=questions)
    rows = rows_of(tmp_path, data=data, match=match, retriever={"a": Named}, judge=None)
    run = rows["ir_score"].dropna()
    path = tmp_path / "rows.csv"
    answers_of(rows).to_csv(path, index=False)
    for again in (rows, path):
        scored = rb.score(again, ["ir_score"])["ir_score"]
        assert scored.dropna().tolist() == pytest.approx(run.tolist(), abs=1e-12)
    of_first = run.iloc[1]
    expected = {"substring": 9, "subsequence": 21, "exact": 9, "exact_subsequence": 21}
    assert of_first == pytest.approx(expected[match] / len(fact))


def test_numbers_of_an_axis_are_whole_each_once_and_in_their_order(tmp_path):
    def axis(value):
        return experiment(tmp_path, 1, N=value).N

    assert axis(9) == axis(np.int64(9)) == axis([9, 9]) == (9,)
    assert axis(range(3, 0, -1)) == axis(n for n in (3, 2, 3, 1)) == (3, 2, 1)
    assert axis(np.array([30, 9])) == (30, 9)
    assert {type(number) for number in axis(np.array([30, 9]))} == {int}
    with refused(ConfigError, "N"):
        axis("9")


def test_who_answered_is_counted_by_server_and_day_without_failures():
    person = Person(None)
    held = {"server": "Ollama 0.24.0", "at": "2026-11-27T10:00:00", "num_ctx": 4096}
    later = held | {"at": "2026-11-28T09:00:00", "num_ctx": 8192, "num_predict": 24}
    answered = [Answer("q", "a", "m", meta={"held": each}) for each in (held, held, later, {})]
    failed = Answer("q", "", "m", meta={"held": later}, failure=Failure("down", "gone"))
    person.note([*answered, failed, Answer("q", "a", "m")])
    assert person.servers == {
        ("Ollama 0.24.0", "2026-11-27"): 2,
        ("Ollama 0.24.0", "2026-11-28"): 1,
        ("", ""): 1,
    }
    assert person.limits == {"num_ctx": 8192, "num_predict": 24}
