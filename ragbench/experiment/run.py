"""A run: `Stage` loads, chunks and retrieves, `block` cuts at N, answers and grades, `Live` asks the models.

Every row is written as it comes.
"""

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from ragbench.data.relevance import judgements
from ragbench.errors import ConfigError, DataError, ModelError, RagbenchError
from ragbench.experiment import identity
from ragbench.experiment import manifest as manifests
from ragbench.experiment.rows import Journal, Rows, system_names, without_text
from ragbench.experiment.spec import Experiment
from ragbench.experiment.stage import Stage
from ragbench.experiment.work import Batch, Call, Draft, Item, block
from ragbench.llm import Reply, ask
from ragbench.llm.failures import KINDS, without_address
from ragbench.onnx_models import cores
from ragbench.records import Chunk, Dataset
from ragbench.retrieval.base import before
from ragbench.text.cutoffs import TokenOffsets, joined_cutoffs

AT_ONCE = 500  # questions retrieved together: bounds memory
# Questions per task: in threads one, so that a kill loses little; elsewhere enough to be worth the sending.
IN_THREADS, ELSEWHERE = 1, 50
# Rows in a batch for every call under way at once, where a model grades: enough that waiting for the last reply costs
# little, few enough that rows come soon.
ROUNDS = 16
_POLL_S = 0.2
_JUDGED_FROM = 20  # replies, before a share of failures counts
# A reply that cannot be used is a result; with these a server has not done its part.
_SERVERS = {name for name, kind in KINDS.items() if kind.retry or kind.host_wide} - {"empty"}
_SERVERS |= {"busy", "bad_request", "oversized", "other"}


@dataclass
class Progress:
    """How far a run is. ``failures`` counts failed rows of this run by kind; ``eta_s`` is NaN before the first row."""

    total: int
    there: int
    done: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

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


def run_experiment(
    experiment: Experiment, executor: Executor | None, progress: Any, retry: bool, stop: Any, stop_after: float
) -> pd.DataFrame:
    """Load, chunk and embed, find what is left to do, make its rows, and return all rows; see ``Experiment.run``."""

    def stopped() -> bool:
        return stop is not None and stop.is_set()

    with _alone(experiment), experiment.open_cassette() as cassette:
        stage = Stage(experiment, cassette, manifests.recorded_digests(experiment.folder), ask_server=True)
        with Journal(experiment.path) as journal:
            rows = Rows.read(experiment.path, remember=True)
            plans = {name: stage.left_to_do(name, rows, retry=retry) for name in stage.data}
            left = {name: items for name, (items, _, _) in plans.items() if items}
            stage.embed(left, stopped, show=bool(progress) and not callable(progress))
            every = [key for _, keys, _ in plans.values() for key in keys]
            state = Progress(len(every), sum(there for _, _, there in plans.values()))
            by = "threads" if executor is None else type(executor).__name__
            entry = {"began": manifests.now(), "ended": None, "executor": by, "rows": state.total}
            entry |= {"rows_there": state.there, "by": Path(sys.argv[0]).name if sys.argv else ""}
            manifest, secrets = _manifest(stage, entry), tuple(sorted(stage.secrets, key=len, reverse=True))
            manifests.write_manifest(experiment.folder, manifest, secrets)
            rows = None if left else rows  # of a large run, rows and what is left to do do not fit together
            del plans
            with _bar(progress, state) as tick:

                def emit(row: dict[str, Any]) -> None:
                    journal.write(row)
                    state.count(row)
                    tick()

                try:
                    _make_rows(Live(stage, cassette, emit, stopped, stop_after), left, executor)
                finally:
                    left.clear()
                    entry |= {"ended": manifests.now(), "rows_made": state.done, "failed": dict(state.failures)}
                    manifests.write_manifest(experiment.folder, manifest, secrets)
    frame = (rows or Rows.read(experiment.path, remember=True)).frame(every)
    for warning in without_text(frame):
        warnings.warn(warning, stacklevel=3)  # shown at the line that called run()
    return frame


def _make_rows(live: Live, todo: dict[str, list[Item]], executor: Executor | None) -> None:
    """Make the rows that are left, a few hundred questions at a time."""
    threads = ThreadPoolExecutor(cores(), thread_name_prefix="ragbench") if executor is None else None
    try:
        for name, left in todo.items():
            for start in range(0, len(left), AT_ONCE):
                if live.stopped():
                    return
                items = left[start : start + AT_ONCE]
                live.stage.retrieve(name, items)
                _answer_and_grade(live, items, executor or threads)
                for item in items:
                    item.found.clear()  # the hits of a whole run would be its largest part in memory
    finally:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


def _answer_and_grade(live: Live, items: Sequence[Item], executor: Any) -> None:
    """Make the rows of some questions; while models answer one batch of them, the next is computed."""
    stage = live.stage
    hosts = max(map(len, (*stage.generators.values(), *stage.judges.values())), default=1)
    # A row that a model grades is whole at the end of its batch, any other one as soon as its answer comes.
    most = ROUNDS * stage.experiment.concurrency * hosts if stage.judges else math.inf
    batch: list[tuple[Item, Sequence[Draft]]] = []
    waiting = 0
    with contextlib.closing(_computed(live, items, executor)) as computed:
        for item, drafts in computed:
            live.put(drafts)
            lacking = sum(not draft.whole for draft in drafts)
            if lacking:
                batch.append((item, drafts))
                waiting += lacking
            if waiting >= most:
                live.finish(batch)
                batch, waiting = [], 0
    live.finish(batch)


def _computed(live: Live, items: Sequence[Item], executor: Any) -> Iterator[tuple[Item, list[Draft]]]:
    """Yield each question with its drafts as the executor is done with it."""
    size = IN_THREADS if isinstance(executor, ThreadPoolExecutor) else ELSEWHERE
    stage, experiment = live.stage, live.stage.experiment
    work = (experiment.cutting, stage.readers, stage.graders, experiment.truncated)
    waiting: dict[Future[Any], Sequence[Item]] = {}
    done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    try:
        for start in range(0, len(items), size):
            some = list(items[start : start + size])
            future = executor.submit(block, some, *work)
            waiting[future] = some
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


@dataclass(slots=True)
class Live:
    """Asks the models of a run: every prompt of a batch goes to one ``ask``; each row is written as its reply comes.

    Rows that a server failed wait until their batch is over: where the run ends with it, they are made by the next one.

    Attributes
    ----------
    emit : takes each row as soon as it is whole. stopped : whether the run is to end.
    stop_after : share of prompts that the servers may fail.
    """

    stage: Stage
    cassette: Any
    emit: Callable[[dict[str, Any]], None]
    stopped: Callable[[], bool]
    stop_after: float
    replies: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    waiting: list[dict[str, Any]] = field(default_factory=list)

    def finish(self, batch: Batch) -> None:
        """Make the answers and grades that a batch lacks.

        Raises
        ------
        ModelError when no host of a model is left, or too large a share of the prompts failed.
        """
        for name, models in self.stage.generators.items():
            self._ask("generate", models, self.stage.answer_calls(batch, name), on_length="keep")
        for name, models in self.stage.judges.items():
            self._ask("grade", models, self.stage.grade_calls(batch, name))
        while self.waiting:
            self.emit(self.waiting.pop(0))

    def put(self, drafts: Sequence[Draft]) -> None:
        """Emit the rows that are whole."""
        for draft in drafts:
            if draft.whole:
                (self.waiting.append if draft.row.get("error_kind") in _SERVERS else self.emit)(draft.row)

    def _ask(self, step: str, models: Sequence[Any], calls: Sequence[Call], **options: Any) -> None:
        def take(place: int, reply: Reply) -> None:
            self._count(reply)
            calls[place].take(reply if reply.error is None else replace(reply, error=without_address(reply.error)))
            self.put(calls[place].drafts)

        if not calls or self.stopped():
            return
        experiment = self.stage.experiment
        options = {"concurrency": experiment.concurrency, "progress": False, **options, **experiment.options}
        ask(
            models,
            [call.text for call in calls],
            schema=[call.schema for call in calls],
            cassette=self.cassette,
            ids=[call.id for call in calls],
            groups=[call.question_id for call in calls],
            step=step,
            on_reply=take,
            stop=self.stopped,
            **options,
        )

    def _count(self, reply: Reply) -> None:
        self.replies += 1
        if reply.error is None or reply.error.kind not in _SERVERS:
            return
        if reply.error.no_host_left:
            raise reply.error
        self.failures[reply.error.kind] += 1
        failed = self.failures.total()
        if self.replies >= _JUDGED_FROM and failed > self.stop_after * self.replies:
            (kind, count), *_ = self.failures.most_common(1)
            raise ModelError(
                f"{failed} of {self.replies} prompts failed at the server, {count} as {kind}; last: {reply.error.got}",
                f"at most {self.stop_after:.0%} (stop_after)",
                f"{reply.error.do}; then run again: what is there is not made again. stop_after=1 goes on regardless",
            )


def _manifest(stage: Stage, entry: dict[str, Any]) -> dict[str, Any]:
    """Put together the manifest; the entries of earlier runs stay."""
    experiment = stage.experiment
    grid = experiment.grid
    try:
        runs = manifests.load_manifest(experiment.folder)["runs"]
    except (RagbenchError, KeyError):
        runs = []
    seeds = {f"generator/{name}": stage.facts("generator", name)["seed"] for name in stage.generators}
    seeds |= {f"judge/{name}": stage.facts("judge", name)["judge_seed"] for name in stage.judges}
    return {
        "format": manifests.FORMAT,
        "name": experiment.name,
        "axes": stage.identity,
        "grid": {axis: list(getattr(grid, axis)) for axis in stage.identity},
        # Chunks are known by what they hold; a reader also wants to know how they were cut.
        "chunkers": {name: identity.object_identity(cut) for name, cut in grid.chunker.items()},
        "parameters": experiment.parameters(),
        "prompts": {prompt: sha for hashes in stage.prompts.values() for prompt, sha in hashes.items()},
        "seeds": seeds | {"order": experiment.order},
        **manifests.environment(),
        "runs": [*runs, entry],
    }


def _alone(experiment: Experiment) -> contextlib.AbstractContextManager:
    try:
        return FileLock(experiment.folder / "rows.lock").acquire(timeout=0)
    except Timeout:
        raise ConfigError(
            f"another process is running {experiment.name!r}", "one process per run", "wait for it, or rename this one"
        ) from None


@contextlib.contextmanager
def _bar(progress: Any, state: Progress) -> Iterator[Callable[[], None]]:
    """Yield what is to be called after every row: it moves the bar, or calls the user's function."""
    if callable(progress):
        yield lambda: progress(state)
        return
    off = not progress or state.there == state.total
    with tqdm(total=state.total, initial=state.there, unit="row", disable=off) as bar:

        def tick() -> None:
            bar.set_postfix(failed=state.failures.total(), refresh=False)
            bar.update(state.there + state.done - bar.n)

        yield tick


def with_texts(experiment: Experiment, rows: pd.DataFrame) -> pd.DataFrame:
    """Find the chunks of each row again and cut them at its N; see ``Experiment.answers``."""
    grid, cutting = experiment.grid, experiment.cutting
    offsets = TokenOffsets(cutting.tokenizer)
    if strangers := set(rows["data"]) - set(grid.data):
        raise _stranger("the data set", strangers.pop())
    data = {name: grid.data[name] for name in dict.fromkeys(rows["data"])}
    data = {name: value if isinstance(value, Dataset) else value() for name, value in data.items()}
    questions = {name: {question.id: question for question in loaded.questions} for name, loaded in data.items()}
    relevant = {name: judgements(loaded) for name, loaded in data.items()}
    chunks: dict[tuple[str, str], dict[str, Chunk]] = {}
    texts = []
    for row in rows.itertuples():
        question = questions[row.data].get(row.question_id)
        if question is None:
            raise _stranger(f"the question {row.question_id!r}", row.data)
        read: list[Chunk] | None = None if row.N else []
        retrieved, context = read, None
        if row.N and isinstance(row.hits, list):
            place = (row.data, row.chunker)
            if place not in chunks:
                cut = grid.chunker.get(row.chunker)
                chunks[place] = {chunk.id: chunk for chunk in cut(data[row.data].documents)} if cut else {}
            if strangers := [name for name in row.hits if name not in chunks[place]]:
                raise _stranger(f"the chunk {strangers[0]!r} of {row.chunker!r}", row.data)
            retrieved = [chunks[place][name] for name in row.hits]
            listed = [chunk.text for chunk in retrieved]
            context = " ".join(listed)[: joined_cutoffs(listed, [row.N], offsets, cutting.begin_token)[0]]
            read = before(len(context), retrieved)
        texts.append(
            {
                "question": question.text,
                "reference": question.answer,
                "references": list(question.references),
                "chunks": None if read is None else [chunk.text for chunk in read],
                "context": context,
                "retrieved": None if retrieved is None else [chunk.doc_id for chunk in retrieved],
                "relevant": relevant[row.data].get(row.question_id),
            }
        )
    names = [f"{name}@{n}" for name, n in zip(system_names(rows), rows["N"], strict=True)]
    if len(data) > 1:
        names = [f"{name} on {where}" for name, where in zip(names, rows["data"], strict=True)]
    columns = {name: [text[name] for text in texts] for name in (texts[0] if texts else ())}
    return rows.assign(system=names, **columns)


def _stranger(what: str, data: str) -> DataError:
    return DataError(
        f"a row names {what} of {data!r}, which this experiment does not have",
        "rows of this experiment, as its data and chunkers are now",
        "take those that its run() returns",
    )
