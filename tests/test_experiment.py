"""The grid runner: which rows there are, what they hold, and that nothing is made twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import pytest
from experiment_parts import Copier, Named, experiment, people, whole, words

from ragbench.chunking import token_chunks
from ragbench.errors import ConfigError, DataError, RagbenchError
from ragbench.experiment import TIMING, Experiment, load_manifest, load_rows
from ragbench.experiment.rows import newly_used
from ragbench.generation import ExtractiveReader
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.metrics.ir_score import ir_score
from ragbench.records import Chunk, Dataset, Hit
from ragbench.retrieval import make_retriever


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    drop = list(TIMING)
    pd.testing.assert_frame_equal(a.drop(columns=drop), b.drop(columns=drop))


@pytest.fixture
def rows(tmp_path):
    return experiment(tmp_path).run(progress=False)


def test_one_row_per_question_and_cell_and_one_without_documents(rows, tmp_path):
    assert len(rows) == 6 * 3
    assert rows["key"].is_unique
    assert set(rows["status"]) == {"ok"}
    alone = rows[rows["N"] == 0]
    assert set(alone["retriever"]) == {"LLM only"}
    assert alone["ir_score"].isna().all()
    assert set(alone["hits"].map(len)) == {0}
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(rows)


def test_two_retrievers_and_depths_share_the_rows_without_documents(tmp_path):
    grid = experiment(tmp_path, 2, retriever={"a": Named, "b": Named}, k={"few": 1, "own": {"a": 1, "b": 3}}, N=(0, 9))
    rows = grid.run(progress=False)
    # a has depth 1 in both; b has 1 and 3.
    assert Counter(rows["retriever"] + " " + rows["k"].astype(str)) == {"LLM only 0": 2, "a 1": 2, "b 1": 2, "b 3": 2}


def test_a_grid_may_keep_some_cells_of_its_product_and_builds_nothing_for_the_others(tmp_path):
    built = []

    def noted(chunks):
        built.append(len(chunks))
        return Named(chunks)

    axes = {"chunker": {"whole": whole, "half": lambda documents: whole(documents)[:1]}, "k": [1, 2, 3], "N": 9}
    around = experiment(
        tmp_path, 2, **axes, retriever={"n": noted}, keep=lambda c: c.chunker == "whole" and (c.k == 2 or c.N == 0)
    )
    rows = around.run(progress=False)
    assert (set(zip(rows["chunker"], rows["k"], strict=True)), len(rows)) == ({("whole", 2)}, 2)
    assert built == [2]
    assert around.plan()["retrieve"].calls == 2
    everything = experiment(tmp_path, 2, **axes, retriever={"n": noted}).run(progress=False)
    assert set(rows["key"]) < set(everything["key"])
    with pytest.raises(ConfigError, match="keep drops every cell"):
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
    assert long["grade"] == EmbeddedGrader().grade(
        "In which town was Person1 Lee born?", long["answer"], "York", [fact]
    )
    assert rows[rows["N"] == 0]["grade"].eq(1).all()


def test_wrapped_documents_lower_only_the_exact_score(tmp_path):
    made = people()
    wrapped = tuple(replace(d, text=d.text.replace(" ", "\n"), sentences=()) for d in made.documents)
    grid = {"data": {"people": replace(made, documents=wrapped)}, "N": (99,), "judge": None}
    usual = experiment(tmp_path / "usual", **grid).run(progress=False)
    exact = experiment(tmp_path / "exact", **grid, match="exact").run(progress=False)
    clean = experiment(tmp_path / "clean", N=(99,), judge=None).run(progress=False)
    assert usual["ir_score"].tolist() == clean["ir_score"].tolist()
    assert exact["ir_score"].mean() < usual["ir_score"].mean()


def test_context_tokens_stop_at_the_end_of_the_text_and_leave_the_begin_token_out(tmp_path):
    one = experiment(tmp_path / "a", 1, k=1, N=(4, 100)).run(progress=False).set_index("N")["context_tokens"]
    assert one.to_dict() == {4: 4, 100: 12}
    begun = experiment(tmp_path / "b", 1, k=1, N=(4, 100), begin_token=True).run(progress=False).set_index("N")
    assert begun["context_tokens"].to_dict() == {4: 3, 100: 12}
    assert begun.loc[4, "answer"] == "Person0 Lee was"


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
    assert [len(engine.searched) for engine in made] == [4, 0]


def test_a_second_run_makes_nothing_and_gives_the_same_rows(tmp_path):
    log = tmp_path / "calls"
    grid = experiment(tmp_path, generator={"copier": Copier(str(log))})
    first = grid.run(progress=False)
    before = (tmp_path / "rows.jsonl").read_bytes(), log.read_bytes()
    pd.testing.assert_frame_equal(first, grid.run(progress=False))
    assert (tmp_path / "rows.jsonl").read_bytes() == before[0]
    assert log.read_bytes() == before[1]
    pd.testing.assert_frame_equal(
        first, load_rows(tmp_path).set_index("key").loc[first["key"]].reset_index()[first.columns]
    )


def test_a_larger_grid_and_another_judge_take_the_answers_that_are_there(tmp_path):
    log = tmp_path / "calls"
    reader = {"copier": Copier(str(log))}
    few = replace(people(), questions=people().questions[:2])
    experiment(tmp_path, generator=reader, data={"people": few}, N=(4,)).run(progress=False)
    rows = experiment(tmp_path, generator=reader, N=(4, 20)).run(progress=False)
    assert len(rows) == len(log.read_text().splitlines()) == 12
    other = experiment(tmp_path, generator=reader, N=(4, 20), judge={"other": EmbeddedGrader()}).run(progress=False)
    assert len(log.read_text().splitlines()) == 12
    assert other["answer"].tolist() == rows["answer"].tolist()
    assert other["grade"].notna().all()
    assert len(load_rows(tmp_path)) == 24


@pytest.mark.parametrize(
    "change",
    [
        {"begin_token": True},
        {"match": "subsequence"},
        {"chunker": {"whole": lambda documents: whole(documents)[::-1][1:]}},
        {"retriever": {"named": lambda chunks: Named(chunks, broken="nobody")}},
        {"data": {"people": replace(people(), questions=tuple(replace(q, answer="Rome") for q in people().questions))}},
        {"tokenizer": lambda text: words(text)[:3]},
    ],
)
def test_whatever_can_change_a_row_changes_its_key(tmp_path, rows, change):
    other = experiment(tmp_path, **change).run(progress=False)
    assert not set(other[other["N"] > 0]["key"]) & set(rows["key"])


def test_a_variable_behind_a_function_is_part_of_the_key(tmp_path):
    def run(suffix):
        return experiment(tmp_path, 1, generator={"f": lambda q, c: c + suffix}, judge=None).run(progress=False)

    a, b = run(" a"), run(" b")
    assert not set(a["key"]) & set(b["key"])
    assert b["answer"].str.endswith(" b").all()


def test_order_of_chunks_changes_no_key(tmp_path, rows):
    same(rows, experiment(tmp_path, chunker={"whole": lambda d: whole(d)[::-1]}).run(progress=False))
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(rows)


def test_failures_are_rows_and_are_made_again_only_when_asked(tmp_path):
    def grid(broken, lost):
        return experiment(
            tmp_path, 4, retriever={"named": lambda c: _Settled(c, lost)}, generator={"copier": Copier(broken=broken)}
        )

    rows = grid("Person1", "Person2").run(progress=False).set_index(["question_id", "N"])
    assert rows.loc["q1", "error_step"].tolist() == ["generate"] * 3
    assert rows.loc[("q1", 4), ["error_kind", "error"]].tolist() == ["ValueError", "cannot answer this"]
    assert rows.loc["q2", "error_step"].tolist() == ["", "retrieve", "retrieve"]
    assert rows.loc[("q2", 4), "error"] == "no index for this one"
    assert (rows["status"] == "failed").sum() == 5
    lines = len((tmp_path / "rows.jsonl").read_text().splitlines())
    assert (grid("", "").run(progress=False)["status"] == "failed").sum() == 5
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == lines
    again = grid("", "").run(progress=False, retry_failed=True)
    assert set(again["status"]) == {"ok"}
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == lines + 5
    assert set(load_rows(tmp_path)["status"]) == {"ok"}


class _Settled(Named):
    def settings(self):
        return {"retriever": "settled"}


def test_a_judge_that_fails_leaves_the_answer_and_the_reason(tmp_path):
    class Broken(EmbeddedGrader):
        def grade_all(self, questions, answers, facts=None):
            raise OverflowError("too much")

    rows = experiment(tmp_path, 1, judge={"b": Broken()}).run(progress=False)
    assert set(rows["status"]) == {"failed"}
    assert rows["answer"].notna().all()
    assert set(rows["error_step"] + rows["error_kind"]) == {"gradeOverflowError"}


def test_an_answer_the_rules_cannot_grade_is_unscored_with_its_reason(tmp_path):
    made = people(2)
    formula = replace(made.questions[0], answer="-(x+1)")
    data = {"people": replace(made, questions=(formula, made.questions[1]))}
    writer = {"writer": lambda question, context: "-(x-1)"}
    rows = experiment(tmp_path, data=data, N=20, generator=writer).run(progress=False)
    assert rows["status"].tolist() == ["failed", "ok"]
    assert (rows["error_step"][0], rows["error_kind"][0]) == ("grade", "unscored")
    assert "the words of the true answer '-(x+1)', but other signs" in rows["error"][0]
    assert (rows["answer"][0], rows["grade"].isna().tolist()) == ("-(x-1)", [True, False])


def test_kill_minus_nine_and_resume_repeats_no_row(tmp_path):
    script = Path(__file__).with_name("experiment_parts.py")
    log, path = tmp_path / "calls.log", tmp_path / "run" / "rows.jsonl"
    environment = os.environ | {"PYTHONPATH": str(script.parent)}
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment)
    end = time.monotonic() + 300  # on a busy machine an interpreter alone takes a minute to start
    while time.monotonic() < end and not (path.exists() and path.read_bytes().count(b"\n") >= 20):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    with open(path, "ab") as file:
        file.write(b'{"key": "half a li')  # what a kill between two writes of a slow disk may leave
    kept = load_rows(path)
    assert 20 <= len(kept) < 120
    before = Counter(log.read_text().splitlines())
    done = experiment(tmp_path / "run", 60, N=(0, 20), generator={"copier": Copier(str(log))}).run(progress=False)
    after = Counter(log.read_text().splitlines())
    assert (len(done), set(done["status"])) == (120, {"ok"})
    assert after.total() - before.total() == 120 - len(kept)
    # Answers in flight at the kill, at most one question per thread, are all that was asked twice.
    assert after.total() - 120 <= 2 * (os.cpu_count() or 1)
    lines = path.read_text().splitlines()
    assert len(lines) == 120
    assert len({json.loads(line)["key"] for line in lines}) == 120


@pytest.mark.slow
def test_threads_and_processes_give_identical_rows(tmp_path):
    grid = {"count": 120, "N": (0, 4, 20)}
    first = experiment(tmp_path / "threads", **grid).run(progress=False)
    with ThreadPoolExecutor(3) as pool:
        same(first, experiment(tmp_path / "pool", **grid).run(pool, progress=False))
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
        same(first, experiment(tmp_path / "processes", **grid).run(pool, progress=False))


class Signed(Copier):
    """Signs every answer in a file with the process that makes it, so that a test knows who is at work."""

    def answer(self, question, context):
        made = Copier().answer(question, context)
        time.sleep(self.seconds)
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()}|{question}|{len(context)}\n")
        return made


@pytest.mark.slow
def test_a_dask_worker_killed_within_a_block_loses_no_row(tmp_path):
    from distributed import Client, LocalCluster

    grid = {"count": 120, "N": (0, 4, 20)}
    here = {"copier": Signed(str(tmp_path / "here"))}
    first = experiment(tmp_path / "threads", **grid, generator=here).run(progress=False)
    log = tmp_path / "calls"
    log.touch()
    killed = []

    def kill_whoever_is_at_work(until):
        while not until.wait(0.005):
            signed = Counter(line.split("|")[0] for line in log.read_text().splitlines())
            # A block is 50 questions of three answers: after five the worker is in the middle of its first.
            busy = [pid for pid, count in signed.items() if count >= 5]
            if busy:
                os.kill(int(busy[0]), signal.SIGKILL)
                killed.append((int(busy[0]), signed[busy[0]]))
                return

    over = threading.Event()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        workers = set(client.run(os.getpid).values())
        death = threading.Thread(target=kill_whoever_is_at_work, args=(over,))
        death.start()
        generator = {"copier": Signed(str(log), seconds=0.005)}
        rows = experiment(tmp_path / "dask", **grid, generator=generator).run(client.get_executor(), progress=False)
        over.set()
        death.join()
    (pid, answers), *_ = killed
    assert pid in workers
    assert answers < 150  # its block was not whole
    assert set(rows["status"]) == {"ok"}
    same(first, rows)
    assert len(load_rows(tmp_path / "dask")) == len((tmp_path / "dask" / "rows.jsonl").read_text().splitlines()) == 360
    asked = Counter(line.split("|", 1)[1] for line in log.read_text().splitlines())
    again = Counter(asked) - Counter(dict.fromkeys(asked, 1))
    # What the dead worker had made of its block, and nothing else, was made a second time.
    dead = {line.split("|", 1)[1] for line in log.read_text().splitlines() if line.startswith(f"{pid}|")}
    assert set(again) == dead
    assert len(dead) >= answers


def test_tasks_for_other_processes_hold_at_least_fifty_questions(tmp_path):
    sizes = []

    class Elsewhere(Executor):
        def submit(self, work, items, *rest):
            sizes.append(len(items))
            future = Future()
            future.set_result(work(items, *rest))
            return future

    experiment(tmp_path, 110, N=(4,), judge=None).run(Elsewhere(), progress=False)
    assert sizes == [50, 50, 10]


def test_what_cannot_be_sent_to_a_process_is_named(tmp_path):
    with ProcessPoolExecutor(1) as pool, pytest.raises(ConfigError, match="cannot be sent to another process"):
        experiment(tmp_path, 2, generator={"f": lambda q, c: c}, judge=None).run(pool, progress=False)


def test_ctrl_c_and_the_stop_button_keep_what_is_done(tmp_path):
    def interrupt(state):
        if state.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment(tmp_path).run(progress=interrupt)
    assert len(load_rows(tmp_path)) == 5
    stop = threading.Event()
    rows = experiment(tmp_path).run(progress=lambda state: state.done == 4 and stop.set(), stop=stop)
    assert 9 <= len(rows) < 18
    assert len(experiment(tmp_path).run(progress=False)) == 18
    assert load_manifest(tmp_path)["runs"][0]["rows_made"] == 5


def test_progress_tells_counts_failures_and_time_to_go(tmp_path):
    seen = []
    grid = experiment(tmp_path, 3, generator={"copier": Copier(broken="Person0")})
    grid.run(progress=lambda s: seen.append((s.done, s.total, s.there, s.failures.total(), s.eta_s)))
    assert [s[0] for s in seen] == list(range(1, 10))
    assert seen[-1][1:] == (9, 0, 3, 0.0)
    assert seen[0][4] > 0


def test_two_processes_cannot_run_one_experiment(tmp_path):
    seen = []

    def inside(state):
        with pytest.raises(ConfigError, match="another process is running 'made'"):
            experiment(tmp_path).run(progress=False)
        seen.append(1)

    experiment(tmp_path, 1, N=(4,)).run(progress=inside)
    assert seen


def test_a_damaged_line_is_named(tmp_path, rows):
    path = tmp_path / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "{no row}\n", *lines[3:]]))
    with pytest.raises(DataError, match=r"rows\.jsonl, line 4 is no row"):
        load_rows(tmp_path)
    with pytest.raises(DataError, match="no run 'nowhere'"):
        load_rows("nowhere")


class Forgetful(Named):
    """Finds nothing for some people, and only blank text for others."""

    def search(self, queries, k, scope=None):
        found = super().search(queries, k, scope)
        nothing = {"Person0": [], "Person1": [Hit(Chunk("blank", " ", ""), 1.0, 1)]}
        return [nothing.get(re.search(r"Person\d+", q)[0], hits) for q, hits in zip(queries, found, strict=True)]


def test_a_retriever_that_finds_no_text_for_over_a_tenth_of_the_questions_is_warned_of(tmp_path, recwarn):
    few = experiment(tmp_path, 8, retriever={"named": Named, "forgetful": Forgetful})
    said = "forgetful (k=2, whole) on people finds no text for 2 of 8 questions"
    assert f"warning: {said}" in str(few.plan())
    few.run(progress=False)
    assert [str(w.message).split(":")[0] for w in recwarn if w.category is UserWarning] == [said]
    assert Path(recwarn.pop(UserWarning).filename).name == "test_experiment.py"
    many = experiment(tmp_path / "many", 20, retriever={"forgetful": Forgetful})  # a tenth, and no more
    assert "warning" not in str(many.plan())
    many.run(progress=False)
    assert [w for w in recwarn if w.category is UserWarning] == []


def test_plan_counts_what_is_there_and_what_remains(tmp_path):
    def counts(plan):
        return {step.name: (step.calls, step.cached, step.remaining) for step in plan}

    grid = experiment(tmp_path, 4, retriever={"a": Named, "b": Named})
    plan = grid.plan()
    assert counts(plan) == {"retrieve": (8, 0, 8), "generate": (20, 0, 20), "grade": (20, 0, 20)}
    assert not (tmp_path / "rows.jsonl").exists()
    experiment(tmp_path, 4, retriever={"a": Named}).run(progress=False)
    assert counts(grid.plan()) == {"retrieve": (8, 4, 4), "generate": (20, 12, 8), "grade": (20, 12, 8)}
    assert plan.total.seconds >= 0
    assert plan["generate"].prompt_tokens == 0


def test_names_and_a_data_set_stand_for_what_dicts_hold(tmp_path):
    data = people(3)
    named = Experiment(
        "made", data=data, chunker="token_chunks", retriever=["BM25", "REO"], N=9, generator="extractive",
        judge={"embedded": "embedded"}, folder=tmp_path / "named",
    ).run(progress=False)  # fmt: skip
    written = Experiment(
        "made", data={"people": data}, chunker={"token_chunks": token_chunks}, N=9,
        retriever={name: partial(make_retriever, name) for name in ("BM25", "REO")},
        generator={"extractive": ExtractiveReader()}, judge={"embedded": EmbeddedGrader()}, folder=tmp_path / "written",
    ).run(progress=False)  # fmt: skip
    assert Counter(named["retriever"]) == {"BM25": 3, "REO": 3}
    assert named["grade"].notna().all()
    columns = ["data", "chunker", "retriever", "generator", "judge", "ir_score", "answer", "grade"]
    pd.testing.assert_frame_equal(named[columns], written[columns])
    asked = experiment(tmp_path, generator=["ollama:llama3:8b", "extractive"]).grid.generator
    assert asked["ollama:llama3:8b"] == "ollama:llama3:8b"
    assert isinstance(asked["extractive"], ExtractiveReader)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retriever": {}}, "retriever is empty"),
        ({"retriever": ["BM25", "BM52"]}, "unknown retriever 'BM52'(?s:.)*did you mean 'BM25'"),
        ({"retriever": {"mine": "BM52"}}, "unknown retriever 'BM52'"),
        ({"generator": "extractiv"}, "unknown generator 'extractiv'(?s:.)*did you mean 'extractive'"),
        ({"data": [people(1)]}, "data is list(?s:.)*a name of what ships"),
        ({"data": pd.DataFrame({"question": ["Who?"]})}, "data is DataFrame(?s:.)*load_questions"),
        ({"data": {"people": list(people(1).questions)}}, "data 'people' is list(?s:.)*a Dataset, or a function"),
        ({"chunker": whole}, "chunker is function"),
        ({"chunker": {"whole": 3}}, "chunker 'whole' is int"),
        ({"k": 0}, "k has 0"),
        ({"k": {"x": {"nobody": 3}}}, "k names the retriever 'nobody'"),
        ({"N": (100, -1)}, "N has -1"),
        ({"N": ()}, "N is empty"),
        ({"generator": None}, "a judge without a generator"),
        ({"generator": None, "judge": None, "N": 0}, "N=0 without a generator"),
        ({"match": "best"}, "unknown match 'best'"),
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
        ({"data": {"people": lambda: 3}}, "data 'people' gives int"),
        ({"data": {"people": Dataset("empty", (), ())}}, "gives no questions"),
        ({"retriever": {"named": lambda chunks: 3}}, "retriever is int"),
    ],
)
def test_values_that_cannot_work_stop_the_run_before_the_first_row(tmp_path, change, message):
    with pytest.raises(RagbenchError, match=message):
        experiment(tmp_path, **change).run(progress=False)
    assert not (tmp_path / "rows.jsonl").exists()


def test_experiment_shows_its_size_and_its_folder(tmp_path, monkeypatch):
    size = "Experiment('made': 1 data x 1 chunker x 1 retriever x 3 N x 1 generator x 1 judge)"
    assert repr(experiment(tmp_path)) == size
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    assert experiment(None, name="here").path == tmp_path / "here" / "rows.jsonl"


def test_an_answer_under_two_judges_is_counted_once_in_tokens():
    row = {"status": "ok", "answer_key": "a", "prompt_tokens": 100, "output_tokens": 7, "cached": False}
    again = row | {"output_tokens": 9}
    rows = (row, row, row | {"answer_key": "b"}, row | {"answer_key": "c", "cached": True}, again)
    counted: dict = {}
    assert [newly_used(each, counted)[:2] for each in rows] == [(100, 7), (0, 0), (100, 7), (0, 0), (100, 9)]
