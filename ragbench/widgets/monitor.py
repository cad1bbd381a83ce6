"""Run monitor: a running experiment by step, its failures with their remedies, tokens and time to go; stop and resume.

The run goes on in a thread of its own, so the kernel stays free. All but the number of rows and the time to go is read
from the file of rows, so a run started elsewhere is shown the same way.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets as w
import pandas as pd

from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiment import Experiment, load_manifest
from ragbench.experiment.rows import MANIFEST, ROWS, newly_used, read_rows, run_folder
from ragbench.widgets.base import Panel, escape, row

STEPS = ("retrieve", "generate", "grade")
AGAIN = "mend what the message names, tick “Try failed rows again”, and resume"
_KEPT = "rows failed in earlier runs and are kept; tick “Try failed rows again” to make them anew"
_STYLE = """<style>
.rb-widget .rb-bar { display: flex; height: 12px; background: var(--rb-shade); border: 1px solid var(--rb-rule); }
.rb-widget .rb-bar-done { background: var(--rb-good); }
.rb-widget .rb-bar-failed {
  background: repeating-linear-gradient(45deg, var(--rb-bad) 0 4px, var(--rb-paper) 4px 7px);
}
</style>"""


class _Now(NamedTuple):
    """Where a run stands: in words, rows there, rows in all and of this run, seconds gone and to go."""

    state: str
    there: int
    total: int | None = None
    of_run: int | None = None
    elapsed: float = math.nan
    eta: float = math.nan


class RunMonitor(Panel):
    """Watch an experiment, stop it and let it go on.

    Parameters
    ----------
    run : an `Experiment`, which *Start* runs in the background; or the name, folder or file of rows of a run started
        elsewhere (``ragbench run`` in a terminal), which is only read, anew with each *Refresh*.
    executor : for ``Experiment.run``: what computes; threads by default.
    every_s : seconds between two drawings while the run goes on.

    Attributes
    ----------
    rows : the table that ``Experiment.run`` returned last, or None.
    error : what ended the last run early, or None; it is shown, and kept here with its traceback.
    progress : the run's ``Progress``, None before its first row.

    Raises DataError for a run that does not exist; ConfigError for an argument that cannot work.
    """

    def __init__(
        self, run: Experiment | str | os.PathLike[str], executor: Executor | None = None, every_s: float = 0.5
    ) -> None:
        if not every_s > 0:
            raise ConfigError(f"every_s={every_s!r}", "seconds above 0", "leave it out for 0.5")
        self.experiment = run if isinstance(run, Experiment) else None
        self.folder = self.experiment.folder if self.experiment else run_folder(run)  # type: ignore[arg-type]
        self.executor, self._every_s = executor, every_s
        self.rows: pd.DataFrame | None = None
        self.error: BaseException | None = None
        self.progress: Any = None
        self.seen = RowsSeen(self.folder / ROWS)
        self._halt, self._ended = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._drawing, self._kept = threading.Lock(), 0
        make, end = "Make the rows that are not there yet", "End the run; what is done is kept"
        self.start_button = self.button("Start", self.start, icon="play", tooltip=make)
        self.stop_button = self.button("Stop", self.stop, icon="stop", tooltip=end)
        again = {"icon": "refresh", "tooltip": "Read the rows on disk again"}
        self.refresh_button = self.button("Refresh", self.refresh, **again)
        self.retry = w.Checkbox(description="Try failed rows again", indent=False, layout=w.Layout(width="auto"))
        self.state, self.bars, self.facts, self.failures = w.HTML(), w.HTML(), w.HTML(), w.HTML()
        mine = [self.start_button, self.stop_button, self.retry] if self.experiment else []
        self.controls = row([*mine, self.refresh_button], align_items="center")
        name = self.experiment.name if self.experiment else self.folder.name
        children = [self.state, self.controls, self.bars, self.facts, self.failures]
        super().__init__(children, f"Run monitor: {name}", _STYLE)
        with self.guarded():
            self.refresh()

    @property
    def running(self) -> bool:
        """Whether this monitor's run is under way."""
        return bool(self._threads) and not self._ended.is_set()

    def start(self, retry_failed: bool | None = None) -> None:
        """Start or resume the run in the background: what is there is not made again.

        ``retry_failed``: make failed rows again; None: as the tick box says. Raises ConfigError when the run is under
        way, or was started elsewhere.
        """
        if self.experiment is None:
            raise ConfigError("a run started elsewhere", "an Experiment to start", "pass the Experiment itself")
        if self.running:
            raise ConfigError("this run is under way", "a run that has ended", "stop it first")
        again = self.retry.value if retry_failed is None else retry_failed
        self.wait()  # for the last drawing of the run before
        earlier = RowsSeen(self.folder / ROWS)
        earlier.read()
        self.seen, self._kept = RowsSeen(earlier.path, earlier.next), 0 if again else earlier.failed
        self.rows = self.error = self.progress = None
        self._halt, self._ended = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, args=args, daemon=True)
            for work, args in ((self._work, (again, self._halt, self._ended)), (self._watch, (self._ended,)))
        ]
        self.message.clear()
        for thread in self._threads:
            thread.start()
        self.refresh()

    def stop(self) -> None:
        """Ask the run to end: no further question is begun, calls under way have two seconds, all rows are kept."""
        self._halt.set()
        self.refresh()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the run and its last drawing; whether it has ended."""
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if timeout_s is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, again: bool, halt: threading.Event, ended: threading.Event) -> None:
        try:
            self.rows = self.experiment.run(self.executor, self._tick, retry_failed=again, stop=halt)
        except BaseException as error:  # a thread has nobody to raise it to: it is shown
            self.error = error
        finally:
            ended.set()

    def _tick(self, state: Any) -> None:
        self.progress = state  # drawn by the other thread: a row must not wait for the browser

    def _watch(self, ended: threading.Event) -> None:
        over = False
        while not over:
            over = ended.wait(self._every_s)
            try:
                self.refresh()
            except Exception as error:
                self.message.error(error)

    def refresh(self) -> None:
        """Read the new rows and draw them; DataError for a damaged file."""
        with self._drawing:
            self.seen.read()
            under_way, ours = self.running, bool(self._threads)
            now = self._own(under_way) if ours else self._elsewhere()
            self.state.value = f"<div role='status'><b>{escape(now.state)}</b></div>"
            lines = [bar("all rows", now.there, 0, now.total)] if ours and now.total is not None else []
            for step, (done, failed) in self.seen.passed(self._steps()).items():
                lines.append(bar(f"{step}, this run" if ours else step, done, failed, now.of_run))
            self.bars.value = f"<table><tbody>{''.join(lines)}</tbody></table>"
            self.facts.value = self._facts(now.elapsed, now.eta)
            kept = f"<p>{self._kept:,} {_KEPT}.</p>" if self._kept else ""
            self.failures.value = _failure_table(self.seen.failures()) + kept
            self.start_button.disabled = under_way
            self.start_button.description = "Resume" if now.there else "Start"
            self.stop_button.disabled = not under_way or self._halt.is_set()
            if self.error is not None:
                self.message.error(self.error)

    def _own(self, under_way: bool) -> _Now:
        """Where this monitor's run stands."""
        p = self.progress
        if p is None and self.rows is None:
            preparing = "preparing: data, chunks, retrievers, models"
            return _Now(preparing if under_way else "broken off before the first row", 0)
        total, there, done = (p.total, p.there, p.done) if p else (len(self.rows), len(self.rows), 0)
        left = total - there - done
        if under_way:
            state = "stopping" if self._halt.is_set() else "running"
        elif self.error is not None:
            state = "broken off"
        else:
            state = f"stopped, {left:,} rows to go" if left else "done"
        if there and not left and not done:
            state += ", every row was there"
        times = (p.seconds, p.eta_s if left else math.nan) if p else ()
        return _Now(state, there + done, total, total - there, *times)

    def _elsewhere(self) -> _Now:
        """Where a run stands that is known from its files alone."""
        there, eta = len(self.seen.rows), math.nan
        if not (self.folder / MANIFEST).is_file():
            return _Now("rows without a manifest" if there else "not started", there)
        entry = load_manifest(self.folder)["runs"][-1]
        total = entry["rows"]
        until = datetime.fromisoformat(entry["ended"]) if entry["ended"] else datetime.now(UTC)
        elapsed = (until - datetime.fromisoformat(entry["began"])).total_seconds()
        if entry["ended"]:
            left = total - entry["rows_there"] - entry["rows_made"]
            state = f"ended {entry['ended'][:16].replace('T', ' ')} UTC"
            state += f", {left:,} rows to go" if left else ", all rows there"
        else:
            path = self.folder / ROWS
            quiet = time.time() - path.stat().st_mtime if path.exists() else elapsed
            state = f"under way, or killed: the last row came {duration(quiet)} ago"
            added = there - entry["rows_there"]
            eta = elapsed / added * (total - there) if added > 0 and elapsed > 0 and there < total else math.nan
        if there > total:
            state += f" (the file holds {there:,} rows, also of other grids)"
        return _Now(state, there, total, total, elapsed, eta)

    def _steps(self) -> list[str]:
        """The steps this run has: without a generator there is retrieval alone."""
        if self.experiment:
            axes: Any = {"generator": self.experiment.grid.generator, "judge": self.experiment.grid.judge}
        else:
            try:
                axes = load_manifest(self.folder)["axes"]
            except (RagbenchError, KeyError):
                return list(STEPS)
        return ["retrieve", *(["generate"] if axes["generator"] else []), *(["grade"] if axes["judge"] else [])]

    def _facts(self, elapsed: float, eta: float) -> str:
        seen = self.seen
        parts = [] if math.isnan(elapsed) else [f"time {duration(elapsed)}"]
        parts += [] if math.isnan(eta) else [f"to go about {duration(eta)}"]
        if seen.prompt_tokens or seen.output_tokens:
            parts.append(f"tokens of answers: {seen.prompt_tokens:,} in, {seen.output_tokens:,} out")
            if seen.seconds:
                parts.append(f"{seen.output_tokens / seen.seconds:,.1f} out per second of a call")
            if self._threads and elapsed > 0:
                parts.append(f"{seen.output_tokens / elapsed:,.1f} per second in all")
        return f"<p style='margin:4px 0'>{escape(' · '.join(parts))}</p>" if parts else ""


@dataclass
class RowsSeen:
    """The rows of a growing file, which need not be there yet, read on from where the last reading ended."""

    path: Path
    next: int = 0  # byte at which the next reading begins
    # Key -> (step at which it failed or "", kind, message) of the last try, never a failure over a success.
    rows: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    prompt_tokens: int = 0  # these three of the answers read, each once, without replies from a cassette
    output_tokens: int = 0
    seconds: float = 0.0
    _answers: dict[Any, tuple] = field(default_factory=dict)

    def read(self) -> int:
        """Take in the whole lines that are new, and return how many; DataError naming a line that is no row."""
        if not self.path.exists():
            return 0
        if os.path.getsize(self.path) < self.next:  # another file took its place
            self.__init__(self.path)
        with open(self.path, "rb") as file:
            file.seek(self.next)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        try:
            rows = [json.loads(line) for line in whole.splitlines()]
            for row in rows:
                self._count(row)
        except (ValueError, KeyError, TypeError):
            for _ in read_rows(self.path):  # says which line it is
                pass
            raise
        self.next += len(whole)
        return len(rows)

    def _count(self, row: Mapping[str, Any]) -> None:
        failed = row["status"] != "ok"
        if not failed or self.rows.get(row["key"], ("?",))[0]:
            failure = (row.get("error_step"), row.get("error_kind"), row.get("error")) if failed else ("", "", "")
            self.rows[row["key"]] = tuple(str(part or "") for part in failure)
        prompt_tokens, output_tokens, seconds = newly_used(row, self._answers)
        self.prompt_tokens += prompt_tokens
        self.output_tokens += output_tokens
        self.seconds += seconds

    @property
    def failed(self) -> int:
        """Rows whose last try failed."""
        return sum(bool(step) for step, _, _ in self.rows.values())

    def passed(self, steps: Iterable[str] = STEPS) -> dict[str, tuple[int, int]]:
        """Count by step the rows that passed it and those that failed at it."""
        failed = Counter(step for step, _, _ in self.rows.values() if step)
        left, by_step = len(self.rows), {}
        for step in steps:
            left -= failed[step]
            by_step[step] = (left, failed[step])
        return by_step

    def failures(self) -> list[tuple[str, str, int, str, str]]:
        """List (step, kind, rows, message, remedy), most frequent first; the message is that of the last such row."""
        groups = Counter((step, kind) for step, kind, _ in self.rows.values() if step)
        last = {(step, kind): message for step, kind, message in self.rows.values() if step}
        return [
            (*place, count, last[place].split("\n")[0], remedy(place[1], last[place]))
            for place, count in groups.most_common()
        ]


def remedy(kind: str, message: str) -> str:
    """Say what to do about a failure: what its error said, else what its kind calls for."""
    from ragbench.llm.failures import KINDS, failure

    _, divider, advice = message.rpartition("\n  do: ")
    if divider:
        return advice
    return failure(kind, "").do if kind in KINDS and not message.count("do: ") else AGAIN


def duration(seconds: float) -> str:
    """Write seconds as a person would: 42 s, 3 min 20 s, 2 h 5 min. Less than none (a clock was set back) is 0 s."""
    if math.isnan(seconds):
        return "unknown"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def bar(name: str, done: int, failed: int, total: int | None) -> str:
    """One step as HTML: a bar, and in words how many rows passed it and how many failed at it."""
    words = f"{done:,} of {total:,}" if total is not None else f"{done:,}"
    words += f", {failed:,} failed here" if failed else ""
    whole = max(total or 0, done + failed, 1)
    return (
        f"<tr><td>{escape(name)}</td><td style='width:320px'><div class='rb-bar' role='progressbar' "
        f"aria-label='{escape(name)}' aria-valuemin='0' aria-valuemax='{whole}' aria-valuenow='{done}'>"
        f"<div class='rb-bar-done' style='width:{100 * done / whole:.2f}%'></div>"
        f"<div class='rb-bar-failed' style='width:{100 * failed / whole:.2f}%'></div></div></td>"
        f"<td>{words}</td></tr>"
    )


def _failure_table(failures: Iterable[tuple[str, str, int, str, str]]) -> str:
    rows = [
        f"<tr><td>{escape(step)}</td><td><b>{escape(kind)}</b></td><td class='rb-number'>{count:,}</td>"
        f"<td>{escape(message[:300])}</td><td>{escape(advice)}</td></tr>"
        for step, kind, count, message, advice in failures
    ]
    head = "<tr><th>step</th><th>failure</th><th class='rb-number'>rows</th><th>last one said</th><th>do</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>" if rows else ""
