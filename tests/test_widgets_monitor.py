"""The run monitor, driven from Python: steps, failures with remedies, stop and resume, runs started elsewhere."""

import json
import math
import re
import threading
import time
from collections import Counter

import pytest
from experiment_parts import QUICK, Copier, Named, experiment
from fake_ollama import FakeOllama, Fault

from ragbench.errors import ConfigError, DataError
from ragbench.experiment import load_rows
from ragbench.llm import chat_model
from ragbench.widgets import RunMonitor
from ragbench.widgets.monitor import AGAIN, RowsSeen, bar, duration, remedy


def watch(run, **options):
    return RunMonitor(run, every_s=0.02, **options)


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def done(monitor):
    monitor.start()
    assert monitor.wait(60)
    return monitor


def bars(monitor):
    rows = re.findall(
        r"<tr><td>([^<]+)</td>.*?aria-valuemax='(\d+)' aria-valuenow='(\d+)'.*?<td>([^<]+)</td></tr>",
        monitor.bars.value,
    )
    return {name: (int(now), int(most), told) for name, most, now, told in rows}


def cells(monitor):
    """The rows of the table of failures."""
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(<td.*?)</tr>", monitor.failures.value)]


def test_a_whole_run_is_shown_by_step(tmp_path):
    monitor = watch(experiment(tmp_path))
    assert "not started" in monitor.state.value
    assert (monitor.start_button.description, monitor.stop_button.disabled) == ("Start", True)
    done(monitor)
    assert "<b>done</b>" in monitor.state.value
    steps = ("all rows", "retrieve, this run", "generate, this run", "grade, this run")
    assert bars(monitor) == dict.fromkeys(steps, (18, 18, "18 of 18"))
    assert len(monitor.rows) == 18
    assert monitor.failures.value == monitor.message.value == ""
    assert "tokens" not in monitor.facts.value


@pytest.mark.parametrize(
    ("without", "steps"), [(("judge",), {"retrieve", "generate"}), (("generator", "judge"), {"retrieve"})]
)
def test_a_run_without_judge_or_generator_has_fewer_steps(tmp_path, without, steps):
    monitor = done(watch(experiment(tmp_path, **dict.fromkeys(without))))
    assert set(bars(monitor)) == {"all rows", *(f"{step}, this run" for step in steps)}


def test_the_kernel_is_free_while_the_run_goes_on(tmp_path):
    go = threading.Event()

    class Waiting(Copier):
        def answer(self, question, context):
            go.wait(20)
            return super().answer(question, context)

    monitor = watch(experiment(tmp_path, 2, generator={"w": Waiting()}))
    begin = time.monotonic()
    monitor.start()
    assert time.monotonic() - begin < 5
    assert monitor.running
    assert monitor.start_button.disabled
    assert not monitor.stop_button.disabled
    until(lambda: "preparing" in monitor.state.value)
    with pytest.raises(ConfigError, match="under way"):
        monitor.start()
    assert not monitor.wait(0.05)
    go.set()
    assert monitor.wait(30)
    assert not monitor.running
    assert monitor.stop_button.disabled
    assert not monitor.start_button.disabled


def test_failures_are_shown_by_step_and_kind_with_what_to_do(tmp_path):
    grid = experiment(
        tmp_path, 4, retriever={"n": lambda c: Named(c, broken="Person2")}, generator={"c": Copier(broken="Person1")}
    )
    monitor = done(watch(grid))
    assert cells(monitor) == [
        ["generate", "<b>ValueError</b>", "3", "cannot answer this", AGAIN],
        ["retrieve", "<b>ValueError</b>", "2", "no index for this one", AGAIN],
    ]
    assert bars(monitor)["retrieve, this run"] == (10, 12, "10 of 12, 2 failed here")
    assert bars(monitor)["generate, this run"] == (7, 12, "7 of 12, 3 failed here")
    assert bars(monitor)["grade, this run"] == (7, 12, "7 of 12")


def reply(request):
    if request.get("format"):
        (name, spec), *_ = request["format"]["properties"].items()
        return json.dumps({name: [5] * spec["minItems"]})
    return f"Ely, after {len(request['messages'][-1]['content'])} characters."


def live(folder, server, count=2, **changes):
    model = chat_model("ollama:llama3:8b", host=server.url, seed=3, num_ctx=4096)
    return experiment(folder, count, **({"generator": {"llama": model}, "judge": None, "options": QUICK} | changes))


def test_a_failing_model_appears_with_its_kind_and_its_own_remedy(tmp_path):
    def fault(prompt, before):
        return Fault("400") if "Person1" in prompt else Fault("answer", "") if "Person0" in prompt else None

    with FakeOllama(reply=reply, fault=fault) as server:
        monitor = done(watch(live(tmp_path, server, 3, N=(0, 4))))
    told = {row[1]: row for row in cells(monitor)}
    assert set(told) == {"<b>bad_request</b>", "<b>empty</b>"}
    assert told["<b>bad_request</b>"][0] == "generate"
    assert told["<b>bad_request</b>"][2] == "2"
    assert "mirostat" in told["<b>bad_request</b>"][3]
    assert told["<b>bad_request</b>"][4].startswith("read the server&#x27;s words above")
    assert told["<b>empty</b>"][4].startswith("raise num_predict")


def test_tokens_are_those_of_the_answers_each_counted_once(tmp_path):
    from ragbench.labelling.embedded_grader import EmbeddedGrader

    with FakeOllama(reply=reply, latency_s=0.01) as server:
        judges = {"a": EmbeddedGrader(), "b": EmbeddedGrader()}
        monitor = done(watch(live(tmp_path, server, 2, judge=judges)))
        assert len(server.calls) == 6
    rows = load_rows(tmp_path).drop_duplicates("answer_key")
    assert len(monitor.rows) == 12
    assert (len(rows), rows["prompt_tokens"].gt(0).all()) == (6, True)
    read, written = rows["prompt_tokens"].sum(), rows["output_tokens"].sum()
    assert f"tokens of answers: {read:,} in, {written:,} out" in monitor.facts.value
    speed = f"{written / rows['seconds'].sum():,.1f} out per second of a call"
    assert speed in monitor.facts.value
    assert re.search(r"[\d.]+ per second in all", monitor.facts.value)
    # Rows made again from the cassette cost nothing.
    (tmp_path / "rows.jsonl").unlink()
    with FakeOllama(reply=reply) as server:
        again = done(watch(live(tmp_path, server, 2, judge=judges)))
    assert len(again.rows) == 12
    assert "tokens" not in again.facts.value


def test_stop_ends_between_questions_and_resume_asks_nothing_twice(tmp_path):
    with FakeOllama(reply=reply, latency_s=0.05) as server:
        monitor = watch(live(tmp_path, server, 12, N=(0, 4), concurrency=1))
        monitor.start()
        until(lambda: monitor.progress and monitor.progress.done >= 3)
        monitor.stop_button.click()
        assert monitor.stop_button.disabled
        assert monitor.wait(20)
        kept, asked = len(load_rows(tmp_path)), len(server.calls)
        assert 3 <= kept < 24
        assert asked <= kept + 1
        assert f"stopped, {24 - kept} rows to go" in monitor.state.value
        time.sleep(0.2)
        assert len(server.calls) == asked
        assert monitor.start_button.description == "Resume"
        monitor.start_button.click()
        assert monitor.wait(20)
        assert "<b>done</b>" in monitor.state.value
        assert bars(monitor)["all rows"][:2] == (24, 24)
        assert bars(monitor)["generate, this run"][:2] == (24 - kept, 24 - kept)
        assert set(Counter(call.prompt for call in server.calls).values()) == {1}
        assert len(server.calls) == 24
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 24


def test_rows_of_a_stopped_run_are_not_computed_again(tmp_path):
    log = tmp_path / "calls"
    grid = experiment(tmp_path / "run", 40, N=(20,), generator={"c": Copier(str(log), seconds=0.01)})
    monitor = watch(grid)
    monitor.start()
    until(lambda: monitor.progress and monitor.progress.done >= 5)
    monitor.stop()
    assert monitor.wait(20)
    kept = set(load_rows(tmp_path / "run")["question_id"])
    assert 5 <= len(kept) < 40
    before = len(log.read_text().splitlines())
    done(monitor)
    again = log.read_text().splitlines()[before:]
    assert len(again) == 40 - len(kept)
    assert not {"q" + re.search(r"Person(\d+)", line)[1] for line in again} & kept


class Mended(Named):
    def settings(self):
        return {"retriever": "mended"}


def test_failed_rows_are_kept_until_the_box_is_ticked(tmp_path):
    broken = [""]
    grid = experiment(tmp_path, 3, retriever={"n": lambda c: Mended(c, broken[0])}, N=(4,))
    broken[0] = "Person1"
    monitor = done(watch(grid))
    assert "1 failed here" in monitor.bars.value
    broken[0] = ""
    done(monitor)
    assert "done, every row was there" in monitor.state.value
    assert "1 rows failed in earlier runs and are kept" in monitor.failures.value
    monitor.retry.value = True
    done(monitor)
    assert "kept" not in monitor.failures.value
    assert bars(monitor)["all rows"][:2] == (3, 3)
    assert bars(monitor)["generate, this run"][:2] == (1, 1)
    assert set(load_rows(tmp_path)["status"]) == {"ok"}


def test_an_error_that_ends_the_run_is_shown_and_stays_after_a_refresh(tmp_path):
    with FakeOllama() as server:
        grid = live(tmp_path, server)
    monitor = done(watch(grid))
    assert "broken off before the first row" in monitor.state.value
    for _ in range(2):
        assert 'role="alert"' in monitor.message.value
        assert "ollama serve" in monitor.message.value
        monitor.refresh_button.click()
    assert "ollama serve" in str(monitor.error)
    assert not monitor.start_button.disabled


def test_an_unexpected_error_in_the_thread_is_shown_with_its_type(tmp_path):
    def broken(documents):
        raise OverflowError("<b>too many</b> chunks")

    monitor = done(watch(experiment(tmp_path, chunker={"whole": broken})))
    assert "OverflowError: &lt;b&gt;too many" in monitor.message.value
    assert isinstance(monitor.error, OverflowError)
    assert monitor.error.__traceback__ is not None


def test_two_monitors_of_one_experiment_do_not_run_it_twice(tmp_path):
    slow = {"generator": {"c": Copier(seconds=0.05)}}
    one, two = watch(experiment(tmp_path, **slow)), watch(experiment(tmp_path, **slow))
    one.start()
    until(lambda: one.progress)
    done(two)
    assert "another process is running" in two.message.value
    one.stop()
    assert one.wait(20)


def test_a_run_started_elsewhere_is_read_and_never_started(tmp_path):
    grid = experiment(tmp_path, 4, generator={"c": Copier(broken="Person1")})
    stop = threading.Event()
    grid.run(progress=lambda state: state.done == 5 and stop.set(), stop=stop)
    monitor = watch(tmp_path)
    assert [c.description for c in monitor.controls.children] == ["Refresh"]
    there = len(load_rows(tmp_path))
    assert 5 <= there < 12
    assert f"{12 - there} rows to go" in monitor.state.value
    assert bars(monitor)["retrieve"] == (there, 12, f"{there} of 12")
    with pytest.raises(ConfigError, match="pass the Experiment itself"):
        monitor.start()
    grid.run(progress=False)
    assert bars(monitor)["retrieve"][0] == there
    monitor.refresh_button.click()
    assert bars(monitor)["retrieve"] == (12, 12, "12 of 12")
    assert bars(monitor)["generate"] == (9, 12, "9 of 12, 3 failed here")
    assert "all rows there" in monitor.state.value
    assert cells(monitor)[0][:3] == ["generate", "<b>ValueError</b>", "3"]


def test_a_run_under_way_elsewhere_says_when_the_last_row_came_and_how_long_to_go(tmp_path):
    seen = []

    def look(state):
        if state.done == 9:
            told = json.loads((tmp_path / "manifest.json").read_text())
            told["runs"][-1]["began"] = "2020-01-01T00:00:00+00:00"
            (tmp_path / "manifest.json").write_text(json.dumps(told))
            monitor = watch(tmp_path)
            seen.append((monitor.state.value, bars(monitor)["grade"][:2], monitor.facts.value))

    experiment(tmp_path).run(progress=look)
    (state, grade, facts), *_ = seen
    assert re.search(r"under way, or killed: the last row came \d s ago", state)
    assert grade == (9, 18)
    spent, left = (int(h) for h in re.findall(r"([\d]+) h", facts))
    assert spent > 50_000
    assert left == pytest.approx(spent, abs=1)  # half of the rows are there


def test_a_run_that_does_not_exist_is_an_error_that_names_those_there(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    experiment(tmp_path / "mine", 1).run(progress=False)
    with pytest.raises(DataError, match="known runs: mine"):
        RunMonitor("yours")
    assert "Run monitor: mine" in watch("mine").children[0].value
    with pytest.raises(ConfigError, match="every_s=0"):
        RunMonitor("mine", every_s=0)


def test_a_damaged_file_is_told_with_its_line_and_does_not_break_the_widget(tmp_path):
    experiment(tmp_path, 1).run(progress=False)
    with open(tmp_path / "rows.jsonl", "a") as file:
        file.write("{no row}\n")
    monitor = watch(tmp_path)
    assert "rows.jsonl, line 4 is no row" in monitor.message.value


def test_hostile_messages_are_shown_and_not_run(tmp_path):
    class Evil(Copier):
        def answer(self, question, context):
            raise ValueError("<img src=x onerror=alert(1)>")

    monitor = done(watch(experiment(tmp_path, 1, generator={"e": Evil()})))
    assert "<img" not in monitor.failures.value
    assert "&lt;img" in monitor.failures.value


def rows_file(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_are_read_on_from_the_last_whole_line(tmp_path):
    path = rows_file(tmp_path / "rows.jsonl", {"key": "a", "status": "ok"})
    seen = RowsSeen(path)
    assert (seen.read(), seen.read()) == (1, 0)
    failed = {"key": "b", "status": "failed", "error_step": "grade", "error_kind": "k", "error": "m\n  do: this"}
    line = json.dumps(failed) + "\n"
    with open(path, "a") as file:
        file.write(line[:20])
    assert (seen.read(), seen.failed) == (0, 0)
    with open(path, "a") as file:
        file.write(line[20:])
    assert (seen.read(), seen.failed) == (1, 1)
    assert seen.passed() == {"retrieve": (2, 0), "generate": (2, 0), "grade": (1, 1)}
    assert seen.failures() == [("grade", "k", 1, "m", "this")]
    rows_file(path, {"key": "c", "status": "ok"})  # another run in its place
    assert (seen.read(), list(seen.rows)) == (1, ["c"])
    assert RowsSeen(tmp_path / "none").read() == 0


def test_a_later_failure_never_hides_a_success_and_a_success_ends_a_failure(tmp_path):
    ok, bad = ({"key": "a", "status": s, "error_step": "generate", "error_kind": "x"} for s in ("ok", "failed"))
    for rows, failed in (((ok, bad), 0), ((bad, ok), 0), ((bad, bad), 1)):
        seen = RowsSeen(rows_file(tmp_path / "rows.jsonl", *rows))
        seen.read()
        assert seen.failed == failed


def test_remedies_come_from_the_error_then_from_its_kind():
    assert remedy("no_model", "404\n  expected: a model\n  do: ollama pull x") == "ollama pull x"
    assert remedy("context", "too long") == "raise num_ctx, or shorten the prompt"
    assert remedy("ZeroDivisionError", "by zero") == AGAIN


def test_durations_and_bars_read_well():
    spoken = ["0 s", "42 s", "3 min 20 s", "2 h 5 min", "unknown"]
    assert [duration(s) for s in (0, 42.4, 200, 7500, math.nan)] == spoken
    assert "width:50.00%" in bar("x", 5, 0, 10)
    assert "5 of 10, 2 failed here" in bar("x", 5, 2, 10)
    assert "<td>5</td>" in bar("x", 5, 0, None)
