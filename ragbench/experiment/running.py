"""One run: what is missing is retrieved, answered and graded, and every row is written as it comes."""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pandas as pd

from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiment import manifest as manifests
from ragbench.experiment.identity import object_identity
from ragbench.experiment.live import Live, whole
from ragbench.experiment.rows import Journal, Rows, newly_used, without_text
from ragbench.experiment.spec import Experiment
from ragbench.experiment.stage import Stage, build_stage, embed, left_to_do, retrieve
from ragbench.experiment.work import Draft, Item, block
from ragbench.retrieval.base import cores

AT_ONCE = 500  # questions retrieved together: bounds memory
# Questions per task: in threads one, so that a kill loses little; elsewhere enough to be worth the sending.
IN_THREADS, ELSEWHERE = 1, 50
# Rows in a batch for every call under way at once, where a model grades: enough that waiting for the last reply costs
# little, few enough that rows come soon.
ROUNDS = 16
_POLL_S = 0.2


@dataclass
class Progress:
    """How far a run is. ``failures`` counts failed rows of this run by kind; ``eta_s`` is NaN before the first row."""

    total: int
    there: int
    done: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    output_tokens: int = 0
    began: float = field(default_factory=time.monotonic)
    _answers: dict[Any, tuple] = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> float:
        """Time since the run began."""
        return time.monotonic() - self.began

    @property
    def eta_s(self) -> float:
        """Expected seconds until the end."""
        return self.seconds / self.done * (self.total - self.there - self.done) if self.done else float("nan")

    def count(self, row: dict[str, Any]) -> None:
        """Take a new row into account."""
        self.done += 1
        if row["status"] == "failed":
            self.failures[row["error_kind"]] += 1
        prompt_tokens, output_tokens, _ = newly_used(row, self._answers)
        self.prompt_tokens += prompt_tokens
        self.output_tokens += output_tokens


def run_experiment(
    experiment: Experiment, executor: Executor | None, progress: Any, retry: bool, stop: Any, stop_after: float
) -> pd.DataFrame:
    """Do what ``Experiment.run`` says."""

    def stopped() -> bool:
        return stop is not None and stop.is_set()

    with _alone(experiment), experiment.open_cassette() as cassette:
        digests = manifests.recorded_digests(experiment.folder)
        stage = build_stage(experiment, cassette, digests, ask_server=True)
        with Journal(experiment.path) as journal:
            rows = Rows.read(experiment.path, remember=True)
            plans = {name: left_to_do(stage, experiment, name, rows, retry) for name in stage.data}
            left = {name: todo for name, (todo, _, _) in plans.items() if todo}
            embed(stage, left, stopped, show=bool(progress) and not callable(progress))
            every = [key for _, keys, _ in plans.values() for key in keys]
            state = Progress(len(every), sum(there for _, _, there in plans.values()))
            by = "threads" if executor is None else type(executor).__name__
            entry = {"began": manifests.now(), "ended": None, "executor": by, "rows": state.total}
            entry |= {"rows_there": state.there, "by": Path(sys.argv[0]).name if sys.argv else ""}
            manifest = _manifest(experiment, stage, entry)
            manifests.write_manifest(experiment.folder, manifest, stage.secrets)
            rows = None if left else rows  # of a large run, rows and what is left to do do not fit together
            del plans
            with _shown(progress, state) as tick:

                def emit(row: dict[str, Any]) -> None:
                    journal.write(row)
                    state.count(row)
                    tick()

                try:
                    _make(Live(experiment, stage, cassette, emit, stopped, stop_after), left, executor)
                finally:
                    left.clear()
                    entry |= {"ended": manifests.now(), "rows_made": state.done, "failed": dict(state.failures)}
                    manifests.write_manifest(experiment.folder, manifest, stage.secrets)
    frame = (rows or Rows.read(experiment.path, remember=True)).frame(every)
    for warning in without_text(frame):
        warnings.warn(warning, stacklevel=3)  # shown at the line that called run()
    return frame


def _make(live: Live, todo: dict[str, list[Item]], executor: Executor | None) -> None:
    """Make the rows that are left, a few hundred questions at a time."""
    threads = ThreadPoolExecutor(cores(), thread_name_prefix="ragbench") if executor is None else None
    try:
        for name, left in todo.items():
            for start in range(0, len(left), AT_ONCE):
                if live.stopped():
                    return
                some = left[start : start + AT_ONCE]
                retrieve(live.stage, name, some)
                _window(live, some, executor or threads)
                for item in some:
                    item.found.clear()  # the hits of a whole run would be its largest part in memory
    finally:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


def _window(live: Live, some: Sequence[Item], executor: Any) -> None:
    """Make the rows of some questions; while models answer one batch of them, the next is computed."""
    stage = live.stage
    hosts = max(map(len, (*stage.generators.values(), *stage.judges.values())), default=1)
    # A row that a model grades is whole at the end of its batch, any other one as soon as its answer comes.
    most = ROUNDS * live.experiment.concurrency * hosts if stage.judges else math.inf
    batch: list[tuple[Item, Sequence[Draft]]] = []
    waiting = 0
    with contextlib.closing(_computed(live, some, executor)) as computed:
        for item, drafts in computed:
            live.put(drafts)
            lacking = sum(not whole(draft) for draft in drafts)
            if lacking:
                batch.append((item, drafts))
                waiting += lacking
            if waiting >= most:
                live.finish(batch)
                batch, waiting = [], 0
    live.finish(batch)


def _computed(live: Live, some: Sequence[Item], executor: Any) -> Iterator[tuple[Item, list[Draft]]]:
    """Yield each question with its drafts as the executor is done with it."""
    size = IN_THREADS if isinstance(executor, ThreadPoolExecutor) else ELSEWHERE
    work = (live.experiment.cutting, live.stage.readers, live.stage.graders, live.experiment.truncated)
    waiting: dict[Future[Any], Sequence[Item]] = {}
    done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    try:
        for start in range(0, len(some), size):
            items = list(some[start : start + size])
            future = executor.submit(block, items, *work)
            waiting[future] = items
            future.add_done_callback(done.put)
        while waiting and not live.stopped():
            with contextlib.suppress(queue.Empty):
                future = done.get(timeout=_POLL_S)
                yield from zip(waiting.pop(future), future.result(), strict=True)
    except BrokenExecutor as error:
        raise RagbenchError(
            f"a worker of the executor died: {error or type(error).__name__}",
            "workers that live until the end",
            "run again (rows are kept); with too little memory use fewer workers",
        ) from None
    except (TypeError, AttributeError, ImportError, PicklingError) as error:
        # How an executor says that something cannot go to its workers differs from one to the next.
        if not any(word in str(error).lower() for word in ("pickle", "can't get", "serialize", "no module")):
            raise
        raise ConfigError(
            f"a generator or judge cannot be sent to another process: {error}",
            "classes and functions from an importable module",
            "move it from the notebook into a module, or run with threads (executor=None)",
        ) from None
    finally:
        for future in waiting:
            future.cancel()


def _manifest(experiment: Experiment, stage: Stage, entry: dict[str, Any]) -> dict[str, Any]:
    """Put together the manifest; the entries of earlier runs stay."""
    try:
        runs = manifests.load_manifest(experiment.folder)["runs"]
    except (RagbenchError, KeyError):
        runs = []
    seeds = {
        f"{axis}/{name}": stage.model_facts(axis, name)["seed"]
        for axis, names in (("generator", stage.generators), ("judge", stage.judges))
        for name in names
    }
    return {
        "format": manifests.FORMAT,
        "name": experiment.name,
        "axes": stage.identity,
        "grid": {
            axis: list(getattr(experiment.grid, axis))
            for axis in ("data", "chunker", "retriever", "generator", "judge")
        },
        # Chunks are known by what they hold; a reader also wants to know how they were cut.
        "chunkers": {name: object_identity(cut) for name, cut in experiment.grid.chunker.items()},
        "parameters": experiment.parameters(),
        "prompts": {prompt: sha for hashes in stage.prompts.values() for prompt, sha in hashes.items()},
        "seeds": seeds | {"order": experiment.order},
        **manifests.environment(),
        "runs": [*runs, entry],
    }


def _alone(experiment: Experiment) -> contextlib.AbstractContextManager:
    from filelock import FileLock, Timeout

    try:
        return FileLock(experiment.folder / "rows.lock").acquire(timeout=0)
    except Timeout:
        raise ConfigError(
            f"another process is running {experiment.name!r}", "one process per run", "wait for it, or rename this one"
        ) from None


@contextlib.contextmanager
def _shown(progress: Any, state: Progress) -> Iterator[Callable[[], None]]:
    if callable(progress):
        yield lambda: progress(state)
        return
    from tqdm.auto import tqdm

    off = not progress or state.there == state.total
    with tqdm(total=state.total, initial=state.there, unit="row", disable=off) as bar:

        def tick() -> None:
            bar.set_postfix(failed=state.failures.total(), refresh=False)
            bar.update(state.there + state.done - bar.n)

        yield tick
