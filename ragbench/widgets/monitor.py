"""Run monitor: a running experiment by step, its failures with their remedies, tokens and time to go; stop and resume.

The run goes on in a thread of its own, so the kernel stays free. All but the number of rows and the time to go is read
from the file of rows, so a run started elsewhere is shown the same way.
"""

from __future__ import annotations

import math
import os
import threading
import time
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any

import ipywidgets as w
import pandas as pd

from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiment import Experiment, load_manifest
from ragbench.experiment.rows import MANIFEST, ROWS, run_folder
from ragbench.widgets import monitor_view as view
from ragbench.widgets.base import Panel, escape

_STYLE = """<style>
.rb-widget .rb-bar { display: flex; height: 12px; background: var(--rb-shade); border: 1px solid var(--rb-rule); }
.rb-widget .rb-bar-done { background: var(--rb-good); }
.rb-widget .rb-bar-failed {
  background: repeating-linear-gradient(45deg, var(--rb-bad) 0 4px, var(--rb-paper) 4px 7px);
}
</style>"""


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

    Raises
    ------
    DataError for a run that does not exist; ConfigError for an argument that cannot work.
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
        self.seen = view.RowsSeen(self.folder / ROWS)
        self._halt, self._ended = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._drawing, self._kept = threading.Lock(), 0
        self.start_button = w.Button(description="Start", icon="play", tooltip="Make the rows that are not there yet")
        self.stop_button = w.Button(description="Stop", icon="stop", tooltip="End the run; what is done is kept")
        self.refresh_button = w.Button(description="Refresh", icon="refresh", tooltip="Read the rows on disk again")
        self.retry = w.Checkbox(description="Try failed rows again", indent=False, layout=w.Layout(width="auto"))
        self.state, self.bars, self.facts, self.failures = w.HTML(), w.HTML(), w.HTML(), w.HTML()
        self.start_button.on_click(lambda _: self._pressed(self.start))
        self.stop_button.on_click(lambda _: self._pressed(self.stop))
        self.refresh_button.on_click(lambda _: self._pressed(self.refresh))
        mine = [self.start_button, self.stop_button, self.retry] if self.experiment else []
        controls = w.HBox([*mine, self.refresh_button], layout=w.Layout(flex_flow="row wrap", align_items="center"))
        super().__init__(
            [w.HTML(_STYLE), self.state, controls, self.bars, self.facts, self.failures],
            f"Run monitor: {self.experiment.name if self.experiment else self.folder.name}",
        )
        with self.guarded():
            self.refresh()

    @property
    def running(self) -> bool:
        """Whether this monitor's run is under way."""
        return bool(self._threads) and not self._ended.is_set()

    def start(self, retry_failed: bool | None = None) -> None:
        """Start or resume the run in the background: what is there is not made again.

        Parameters
        ----------
        retry_failed : make failed rows again; None: as the tick box says.

        Raises
        ------
        ConfigError when the run is under way, or was started elsewhere.
        """
        if self.experiment is None:
            raise ConfigError("a run started elsewhere", "an Experiment to start", "pass the Experiment itself")
        if self.running:
            raise ConfigError("this run is under way", "a run that has ended", "stop it first")
        again = self.retry.value if retry_failed is None else retry_failed
        self.wait()  # for the last drawing of the run before
        earlier = view.RowsSeen(self.folder / ROWS)
        earlier.read()
        self.seen, self._kept = view.RowsSeen(earlier.path, earlier.next), 0 if again else earlier.failed
        self.rows = self.error = self.progress = None
        self._halt, self._ended = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, args=args, daemon=True)
            for work, args in ((self._work, (again, self._halt, self._ended)), (self._watch, (self._ended,)))
        ]
        self.message.clear()
        for thread in self._threads:
            thread.start()
        self._draw()

    def stop(self) -> None:
        """Ask the run to end: no further question is begun, calls under way have two seconds, all rows are kept."""
        self._halt.set()
        self._draw()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the run and its last drawing; whether it has ended."""
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if timeout_s is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def refresh(self) -> None:
        """Read the new rows and draw them; DataError for a damaged file."""
        self._draw()

    def _pressed(self, action: Any) -> None:
        with self.guarded():
            action()

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
                self._draw()
            except Exception as error:
                self.message.error(error)

    def _draw(self) -> None:
        with self._drawing:
            self.seen.read()
            under_way = self.running
            state, there, total, here, elapsed, eta = self._own(under_way) if self._threads else self._elsewhere()
            self.state.value = f"<div role='status'><b>{escape(state)}</b></div>"
            lines = [view.bar("all rows", there, 0, total)] if self._threads and total is not None else []
            of_run = ", this run" if self._threads else ""
            lines += [
                view.bar(step + of_run, done, failed, here)
                for step, (done, failed) in self.seen.passed(self._steps()).items()
            ]
            self.bars.value = f"<table><tbody>{''.join(lines)}</tbody></table>"
            self.facts.value = self._told(elapsed, eta)
            words = "rows failed in earlier runs and are kept; tick “Try failed rows again” to make them anew"
            kept = f"<p>{self._kept:,} {words}.</p>" if self._kept else ""
            self.failures.value = view.failure_table(self.seen.failures()) + kept
            if self.experiment:
                self.start_button.disabled = under_way
                self.start_button.description = "Resume" if there else "Start"
                self.stop_button.disabled = not under_way or self._halt.is_set()
            if self.error is not None:
                self.message.error(self.error)

    def _own(self, under_way: bool) -> tuple[str, int, int | None, int | None, float, float]:
        """State, rows there, rows in all, rows of this run, seconds and time to go of this monitor's run."""
        p = self.progress
        if p is None and self.rows is None:
            state = "preparing: data, chunks, retrievers, models" if under_way else "broken off before the first row"
            return state, 0, None, None, math.nan, math.nan
        total, there = (p.total, p.there) if p else (len(self.rows), len(self.rows))
        done = p.done if p else 0
        left = total - there - done
        if under_way:
            state = "stopping" if self._halt.is_set() else "running"
        elif self.error is not None:
            state = "broken off"
        else:
            state = f"stopped, {left:,} rows to go" if left else "done"
        if there and not left and not done:
            state += ", every row was there"
        return (
            state,
            there + done,
            total,
            total - there,
            p.seconds if p else math.nan,
            p.eta_s if p and left else math.nan,
        )

    def _elsewhere(self) -> tuple[str, int, int | None, int | None, float, float]:
        """The same of a run known from its files alone."""
        there, total = len(self.seen.rows), None
        elapsed = eta = math.nan
        if not (self.folder / MANIFEST).is_file():
            return ("not started" if not there else "rows without a manifest"), there, None, None, elapsed, eta
        entry = load_manifest(self.folder)["runs"][-1]
        total = entry["rows"]
        began = datetime.fromisoformat(entry["began"])
        until = datetime.fromisoformat(entry["ended"]) if entry["ended"] else datetime.now(UTC)
        elapsed = (until - began).total_seconds()
        if entry["ended"]:
            left = total - entry["rows_there"] - entry["rows_made"]
            state = f"ended {entry['ended'][:16].replace('T', ' ')} UTC"
            state += f", {left:,} rows to go" if left else ", all rows there"
        else:
            path = self.folder / ROWS
            quiet = time.time() - path.stat().st_mtime if path.exists() else elapsed
            state = f"under way, or killed: the last row came {view.duration(quiet)} ago"
            added = there - entry["rows_there"]
            eta = elapsed / added * (total - there) if added > 0 and elapsed > 0 and there < total else math.nan
        if there > total:
            state += f" (the file holds {there:,} rows, also of other grids)"
        return state, there, total, total, elapsed, eta

    def _steps(self) -> list[str]:
        """The steps this run has: without a generator there is retrieval alone."""
        if self.experiment:
            axes: Any = {"generator": self.experiment.grid.generator, "judge": self.experiment.grid.judge}
        else:
            try:
                axes = load_manifest(self.folder)["axes"]
            except (RagbenchError, KeyError):
                return list(view.STEPS)
        return ["retrieve", *(["generate"] if axes["generator"] else []), *(["grade"] if axes["judge"] else [])]

    def _told(self, elapsed: float, eta: float) -> str:
        seen = self.seen
        parts = [] if math.isnan(elapsed) else [f"time {view.duration(elapsed)}"]
        parts += [] if math.isnan(eta) else [f"to go about {view.duration(eta)}"]
        if seen.prompt_tokens or seen.output_tokens:
            parts.append(f"tokens of answers: {seen.prompt_tokens:,} in, {seen.output_tokens:,} out")
            if seen.seconds:
                parts.append(f"{seen.output_tokens / seen.seconds:,.1f} out per second of a call")
            if self._threads and elapsed > 0:
                parts.append(f"{seen.output_tokens / elapsed:,.1f} per second in all")
        return f"<p style='margin:4px 0'>{escape(' · '.join(parts))}</p>" if parts else ""
