"""A run is a loop: search, cut at every N, score, answer, grade; rows are appended block by block
of questions.

What costs money or hours is remembered where it is made: replies of models on the cassette, vectors
in the cache, answers of functions beside the rows. A run that broke off is started again; there is
nothing else to resume.
"""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from ragbench.data.relevance import judgements
from ragbench.embedding import NotOnDiskError, only_from_disk
from ragbench.errors import ConfigError, ModelError
from ragbench.experiment import manifest as manifests
from ragbench.experiment.answers import KeptAnswers
from ragbench.experiment.axes import NONE, is_model
from ragbench.experiment.grid import AXES, Cell, Grid
from ragbench.experiment.plan import plan_experiment
from ragbench.experiment.rows import Row, RowsFile, answers_of, as_frame, no_room, without_text
from ragbench.generation import PROMPTS, generate
from ragbench.labelling.grades import GRADES, PROMPT, grade, grade_bound
from ragbench.llm import Cassette, Plan
from ragbench.llm.endpoints import ModelFacts, model_facts, window
from ragbench.llm.models import BOUNDS
from ragbench.llm.reply import CUT_SHORT
from ragbench.metrics.ir_score import MATCHES, ir_score_table
from ragbench.onnx_models import cores
from ragbench.prompts import prompt_hash
from ragbench.records import Answer, Dataset, Grade, Hit, Question
from ragbench.retrieval.base import check_retriever
from ragbench.retrieval.multiquery import dense_searches, model_calls
from ragbench.text.tokens import TokenOffsets, joined_cutoffs

BLOCK = 500  # questions whose rows are written together
BLOCK_OF_ANSWERS = 50  # the same where models or functions answer or grade, in answers
TASK = 50  # questions that an executor is given at once
_TASK_OF_ANSWERS = 10  # answers of a function that are kept together
LEFT_OUT = "truncated answer"  # kind of a row without a grade, unlike a judge's own truncated reply
STOP_AFTER = 0.5  # share of prompts failed by the servers, above which a run ends
_JUDGED_FROM = 20  # prompts, before that share counts
# With these the model has done its part badly; with all others it is the server that failed.
_UNUSABLE = {LEFT_OUT, "truncated", "unusable", "invalid", "digest", "miss"}
_FULL_DISK = (28, 27, 122)  # ENOSPC, EFBIG, EDQUOT
_REPLY = ("prompt_tokens", "prompt_estimate", "output_tokens", "finish", "tagged", "cached")
# What a question brings that is no column of its own in rows.
_NOT_META = ("topic", "relevant", "doc_ids", "supporting_facts", "claims", "long_answer")

Search = tuple[str, str, int]  # chunker, retriever, k


@dataclass
class _Run:
    """An experiment and what is built for it once."""

    experiment: Grid
    cassette: Cassette | None
    progress: bool = False
    on_miss: str = "raise"
    data: dict[str, Dataset] = field(default_factory=dict)
    # by data, chunker, retriever
    retrievers: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    models: dict[tuple[str, str], ModelFacts] = field(default_factory=dict)  # by axis and name
    # for the manifest
    facts: dict[str, dict[str, Any]] = field(default_factory=lambda: {axis: {} for axis in AXES})
    servers: Counter[str] = field(default_factory=Counter)  # prompts asked, and lost at the servers
    environment: dict[str, Any] = field(default_factory=manifests.environment)

    def options(self) -> dict[str, Any]:
        """Return the options of `ragbench.llm.ask`."""
        return {
            "concurrency": self.experiment.concurrency,
            "progress": self.progress,
            "on_miss": self.on_miss,
            **self.experiment.options,
            "cassette": self.cassette,
        }


# -- what is built once


def _set_up(experiment: Grid, cassette: Cassette | None, progress: bool = False) -> _Run:
    """Ask the servers of the models who they are; load, cut and index the data."""
    run = _Run(experiment, cassette, progress)
    bounds = {"generator": BOUNDS["text"], "judge": grade_bound(experiment.per_prompt)}
    for axis, bound in bounds.items():
        for name, value in getattr(experiment, axis).items():
            if is_model(value):
                facts = model_facts(value, cassette, num_predict=bound)
                run.models[axis, name] = facts
                run.facts[axis][name] = facts.to_dict()
            else:
                run.facts[axis][name] = manifests.describe(value)
    for name, value in experiment.data.items():
        data = value if isinstance(value, Dataset) else value()
        _check_data(name, data)
        run.data[name] = data
        run.facts["data"][name] = manifests.describe(data)
        _index(run, name)
    return run


def _check_data(name: str, data: Any) -> None:
    if not isinstance(data, Dataset) or not data.questions:
        what = "no questions" if isinstance(data, Dataset) else type(data).__name__
        expected = "a Dataset with questions"
        raise ConfigError(f"data {name!r} gives {what}", expected, "check its loader")
    repeated = len(data.questions) - len({question.id for question in data.questions})
    if repeated:
        got = f"data {name!r} has {repeated} repeated ids"
        raise ConfigError(got, "each question once", "rename them")


def _index(run: _Run, data: str) -> None:
    """Cut the documents of a data set, and build the retrievers over the chunks."""
    experiment = run.experiment
    searches = dict.fromkeys(cell.search[:2] for cell in experiment.cells(data) if cell.N)
    chunks = {}
    for chunker in dict.fromkeys(chunker for chunker, _ in searches):
        chunks[chunker] = list(experiment.chunker[chunker](run.data[data].documents))
        run.facts["chunker"][f"{data}/{chunker}"] = manifests.describe(chunks[chunker])
    for chunker, retriever in searches:
        built = check_retriever(experiment.retriever[retriever](chunks[chunker]))
        run.retrievers[data, chunker, retriever] = built
        run.facts["retriever"][f"{data}/{chunker}/{retriever}"] = manifests.describe(built)
        for dense, _ in dense_searches(built, ()):
            _ = dense.vectors  # an embedder that fails at the chunks ends the run here


def _blocks(data: Dataset, cells: Sequence[Cell]) -> Iterator[Sequence[Question]]:
    answers = sum(cell.generator != NONE for cell in cells)
    size = max(1, BLOCK_OF_ANSWERS // answers) if answers else BLOCK
    for start in range(0, len(data.questions), size):
        yield data.questions[start : start + size]


# -- search, cut and score


def _retrieve(
    run: _Run, data: str, cells: Sequence[Cell], questions: Sequence[Question], pool: Executor
) -> list[Row]:
    """Search for a block of questions, each search once, and let the executor make their rows."""
    hits = {}
    for search in dict.fromkeys(cell.search for cell in cells if cell.N):
        chunker, retriever, k = search
        hits[search] = _search(run.retrievers[data, chunker, retriever], questions, k)
    experiment = run.experiment
    cut = (experiment.tokenizer, experiment.begin_token, experiment.match)
    work = functools.partial(_rows_of, cells=tuple(cells), cut=cut)
    parts = [slice(start, start + TASK) for start in range(0, len(questions), TASK)]
    tasks = [questions[part] for part in parts]
    hits_of_tasks = [{search: found[part] for search, found in hits.items()} for part in parts]
    return [row for rows in pool.map(work, tasks, hits_of_tasks) for row in rows]


def _search(engine: Any, questions: Sequence[Question], k: int) -> list[list[Hit] | Exception]:
    """Return hits by question, or the error of one whose search fails: the others have hits."""
    try:
        return list(engine.search([question.text for question in questions], k))
    except Exception as error:
        _end_on_full_disk(error)
        if len(questions) == 1:
            return [error]
        return [_search(engine, [question], k)[0] for question in questions]


def _rows_of(
    questions: Sequence[Question],
    hits: Mapping[Search, Sequence[list[Hit] | Exception]],
    *,
    cells: Sequence[Cell],
    cut: tuple[Any, bool, str],
) -> list[Row]:
    """Make the rows of some questions as far as their search goes: a task of an executor.

    ``hits`` : by search, those of each question. ``cut`` : tokenizer of N, whether its begin token
    counts, match.
    """
    budgets = {
        search: sorted({cell.N for cell in cells if cell.search == search}) for search in hits
    }
    rows = []
    for place, question in enumerate(questions):
        contexts = {
            search: _contexts(question, found[place], budgets[search], cut)
            for search, found in hits.items()
        }
        for cell in cells:
            row = _row(question, cell)
            rows.append(row)
            if cell.N == 0:
                row.update({"context_tokens": 0, "hits": [], "retrieved": [], "chunks": []})
                continue
            of_search = contexts[cell.search]
            if isinstance(of_search, Exception):
                _fail(row, "retrieve", of_search)
                continue
            row.update(of_search[cell.N])
            if cell.generator == NONE and budgets[cell.search][-1] > cell.N:
                # Nobody reads it, and it is the beginning of the largest one.
                row.chunks = None
    return rows


def _row(question: Question, cell: Cell) -> Row:
    own = {
        name: value
        for name, value in question.meta.items()
        if name not in _NOT_META and isinstance(value, str | int | float)
    }
    return Row(
        cell.data,
        question.id,
        cell.chunker,
        cell.retriever,
        cell.k,
        cell.N,
        cell.generator,
        cell.judge,
        kind=question.kind,
        level=question.level,
        topic=question.meta.get("topic"),
        question=question.text,
        reference=question.answer,
        references=list(question.references),
        meta=own,
    )


@functools.lru_cache(maxsize=4)
def _offsets(tokenizer: Any) -> TokenOffsets:
    """Return the token offsets of this process: every chunk is tokenised once in it."""
    return TokenOffsets(tokenizer)


def _contexts(
    question: Question,
    hits: list[Hit] | Exception,
    budgets: Sequence[int],
    cut: tuple[Any, bool, str],
) -> dict[int, dict[str, Any]] | Exception:
    """Cut the joined hits at every N and score all contexts in one pass.

    Return by N what a row says of its context.
    """
    if isinstance(hits, Exception):
        return hits
    tokenizer, begin_token, match = cut
    offsets = _offsets(tokenizer)
    try:
        texts = [hit.chunk.text for hit in hits]
        ends = joined_cutoffs(texts, budgets, offsets, begin_token)
        references = [list(question.references)]
        joined = [" ".join(texts)]
        positions = ends[None, :]
        (scores,) = ir_score_table(
            references, joined, budgets, match=match, positions=positions, threads=1
        )
        all_tokens = offsets.joined_ends(texts, max(budgets)).size
    except Exception as error:
        return error
    of_search = {
        "hits": [hit.chunk.id for hit in hits],
        "retrieved": [hit.chunk.doc_id for hit in hits],
        "zero_hits": sum(hit.score == 0 for hit in hits),
    }
    # one space stands between two chunks
    starts = [0, *accumulate(len(text) + 1 for text in texts)]
    by_budget = {}
    for n, end, score in zip(budgets, ends.tolist(), scores.tolist(), strict=True):
        tokens = max(n - 1, 0) if begin_token else n
        chunks = [
            text[: end - start] for text, start in zip(texts, starts, strict=False) if start < end
        ]
        by_budget[n] = {
            **of_search,
            "ir_score": score,
            "context_tokens": int(min(tokens, all_tokens)),
            "chunks": chunks,
        }
    return by_budget


# -- answers


def _cells_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Group the rows that share an answer: they differ in their judge alone."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        key = (row.data, row.question_id, row.chunker, row.retriever, row.k, row.N)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _answer(
    run: _Run, questions: Sequence[Question], rows: Sequence[Row], pool: Executor, kept: KeptAnswers
) -> None:
    """Let models, functions and objects answer, once for rows that differ in their judge alone."""
    known = {question.id: question for question in questions}
    for name, generator in run.experiment.generator.items():
        waiting = [row for row in rows if row.generator == name and row.status == "ok"]
        groups = _cells_of(waiting)
        firsts = [group[0] for group in groups]
        jobs = [(known[row.question_id], row.context) for row in firsts]
        if ("generator", name) in run.models:
            answered = _by_model(run, name, firsts, jobs)
        else:
            answered = _by_object(name, generator, jobs, pool, kept)
        for group, values in zip(groups, answered, strict=True):
            for row in group:
                _take_answer(run, row, values)
        if ("generator", name) in run.models:
            _count(run, "generate", firsts)


def _by_model(
    run: _Run, name: str, rows: Sequence[Row], jobs: Sequence[tuple[Question, str | None]]
) -> list[dict[str, Any]]:
    experiment = run.experiment
    options = run.options()
    options["with_documents"] = experiment.prompts.get(name, PROMPTS["with_documents"])
    options["ids"] = [
        f"{row.question_id}/{row.chunker}/{row.retriever}/{row.k}/{row.N}" for row in rows
    ]
    questions = [question for question, _ in jobs]
    contexts = [context for _, context in jobs]
    answered = []
    for answer in generate(experiment.generator[name], questions, contexts, **options):
        facts = {"tagged": None} | answer.meta["usage"] | answer.meta
        values = _answer_values(answer) | run.models["generator", name].row()
        values |= {column: facts[column] for column in ("prompt", "prompt_sha256", *_REPLY)}
        answered.append(values)
    return answered


def _by_object(
    name: str,
    generator: Any,
    jobs: Sequence[tuple[Question, str | None]],
    pool: Executor,
    kept: KeptAnswers,
) -> list[dict[str, Any]]:
    """Let a function or object answer what it has not answered before, in small tasks."""
    answers = kept.get(name, generator, jobs)
    open_ = [place for place, answer in enumerate(answers) if answer is None]
    tasks = [
        open_[start : start + _TASK_OF_ANSWERS] for start in range(0, len(open_), _TASK_OF_ANSWERS)
    ]
    work = functools.partial(_ask_object, generator)
    for places, made in zip(
        tasks, pool.map(work, [[jobs[place] for place in task] for task in tasks]), strict=True
    ):
        for place, answer in zip(places, made, strict=True):
            answers[place] = answer
            kept.put(name, generator, *jobs[place], answer)
    return [_answer_values(answer) | {"model": generator.name} for answer in answers]


def _ask_object(generator: Any, jobs: Sequence[tuple[Question, str | None]]) -> list[Answer]:
    """Ask an object: a task of an executor. A failure is an answer that says so."""
    answers = []
    for question, context in jobs:
        try:
            answers += generate(generator, [question], [context])
        except Exception as error:
            _end_on_full_disk(error)
            meta = {"error": f"{type(error).__name__}: {error}"}
            answers.append(Answer(question.id, "", generator.name, meta=meta))
    return answers


def _answer_values(answer: Answer) -> dict[str, Any]:
    """Return what a row says of its answer, or of the failure to get one."""
    error = answer.meta.get("error")
    if not error:
        return {"seconds": answer.seconds, "answer": answer.text}
    kind, _, message = error.partition(": ")
    failed = {"status": "failed", "error_step": "generate", "error_kind": kind, "error": message}
    return {"seconds": answer.seconds, **failed}


def _take_answer(run: _Run, row: Row, values: Mapping[str, Any]) -> None:
    row.update(values)
    drop_cut = run.experiment.truncated == "unscored"
    if drop_cut and row.finish in CUT_SHORT and row.judge != NONE and row.status == "ok":
        why = "the answer ended at its limit of tokens; truncated='score' has it graded"
        row.fail("grade", LEFT_OUT, why)


def _fail(row: Row, step: str, error: Exception) -> None:
    """Mark a row as failed; a full disk is none of the question's, and ends the run."""
    _end_on_full_disk(error)
    row.fail(step, getattr(error, "kind", type(error).__name__), str(error))


def _end_on_full_disk(error: BaseException) -> None:
    if isinstance(error, OSError) and error.errno in _FULL_DISK:
        raise no_room(error.filename or "a file", error.strerror) from None


# -- grades


def _grade(run: _Run, questions: Sequence[Question], rows: Sequence[Row], pool: Executor) -> None:
    """Let models and objects grade; answers of different generators are not shown together."""
    known = {question.id: question for question in questions}
    for name, judge in run.experiment.judge.items():
        for generator in run.experiment.generator:
            ungraded = [
                row
                for row in rows
                if (row.judge, row.generator, row.status) == (name, generator, "ok")
            ]
            if ("judge", name) in run.models:
                _grade_by_model(run, name, questions, ungraded)
                _count(run, "grade", ungraded)
                continue
            jobs = [(known[row.question_id], _as_answer(row)) for row in ungraded]
            work = functools.partial(_grade_by_object, judge)
            for row, verdict in zip(ungraded, pool.map(work, jobs), strict=True):
                _take_verdict(row, name, *verdict)


def _as_answer(row: Row) -> Answer:
    place = {"retriever": f"{row.chunker}/{row.retriever}/{row.k}", "budget": row.N}
    return Answer(row.question_id, row.answer or "", row.generator, meta=place)


def _grade_by_model(
    run: _Run, name: str, questions: Sequence[Question], rows: Sequence[Row]
) -> None:
    experiment = run.experiment
    options = run.options()
    options |= {key: getattr(experiment, key) for key in ("per_prompt", "order", "max_chars")}
    facts = {f"judge_{key}": value for key, value in run.models["judge", name].row().items()}
    facts["judge_prompt_sha256"] = prompt_hash(PROMPT)
    answers = [_as_answer(row) for row in rows]
    grades = grade(experiment.judge[name], questions, answers, **options)
    for row, verdict in zip(rows, grades, strict=True):
        meta = verdict.meta
        used = meta["usage"]
        row.update(facts)
        row.grade = verdict.value
        row.judge_seconds = meta["seconds"]
        row.judge_answer_cut = meta["cut"]
        row.judge_prompt_estimate = meta["prompt_estimate"]
        row.update({f"judge_{key}": meta[key] for key in ("shown", "position", "repairs", "form")})
        # A sum over the calls: of no use where one of them was not counted.
        row.judge_prompt_tokens = None if used["uncounted"] else used["prompt_tokens"]
        if verdict.value is None:
            row.judge_raw = verdict.raw
            row.fail("grade", meta["error"], meta["detail"])


def _grade_by_object(judge: Any, job: tuple[Question, Answer]) -> tuple[Grade | Exception, float]:
    """Let an object grade one answer: a task of an executor; return the grade and its seconds."""
    question, answer = job
    start = time.perf_counter()
    try:
        (verdict,) = judge.grade_all([question], [answer])
    except Exception as error:
        return error, 0.0
    return verdict, time.perf_counter() - start


def _take_verdict(row: Row, name: str, verdict: Grade | Exception, seconds: float) -> None:
    if isinstance(verdict, Exception):
        _fail(row, "grade", verdict)
        return
    value = verdict.value
    if value is None:
        row.fail("grade", verdict.meta["error"], verdict.meta["detail"])
    elif isinstance(value, bool) or not hasattr(value, "__index__") or value not in GRADES:
        got = f"the judge {name!r} gave {value!r}, not a grade from {min(GRADES)} to {max(GRADES)}"
        row.fail("grade", "invalid", got)
    else:
        row.grade = value
        row.judge_model = verdict.judge
        row.judge_seconds = seconds


def _count(run: _Run, step: str, rows: Sequence[Row]) -> None:
    """End the run where the servers have answered nothing so far, or fail too many prompts."""
    lost = [row.error for row in rows if row.error_kind and row.error_kind not in _UNUSABLE]
    run.servers += Counter(asked=len(rows), lost=len(lost))
    sent = run.servers["asked"]
    bearable = STOP_AFTER * sent if sent >= _JUDGED_FROM else sent - 1
    if lost and run.servers["lost"] > bearable:
        counts = f"{run.servers['lost']} of {sent} prompts failed at the server ({step})"
        do = "see to the server, then run again: recorded replies are not asked for again"
        last = lost[-1].splitlines()[0]
        raise ModelError(f"{counts}; the last: {last}", f"at most {STOP_AFTER:.0%}", do)


# -- what a plan counts


def _recorded_calls(experiment: Grid) -> Counter[tuple[str, str, str]] | None:
    """Count the calls of a run that are recorded under its own keys, by data set, axis and model.

    Rows are made as the run makes them, from the cassette alone. None where that would ask a model
    or an object of the user's, or needs vectors that are not on disk.
    """
    people = [*experiment.generator.values(), *experiment.judge.values()]
    with experiment.open_cassette(make=False) as tape, contextlib.ExitStack() as stack:
        if tape is None or tape.mode == "off":
            return Counter()
        if tape.mode == "record":
            tape = stack.enter_context(Cassette(tape.path, "replay", digest=tape.digest))
        if tape.mode != "replay" or not all(is_model(person) for person in people):
            return None
        stack.enter_context(only_from_disk())
        pool = stack.enter_context(ThreadPoolExecutor(cores()))
        try:
            run = _set_up(experiment, tape)
        except NotOnDiskError:
            return None
        run.on_miss = "reply"
        if any(list(model_calls(engine)) for engine in run.retrievers.values()):
            return None
        calls: Counter[tuple[str, str, str]] = Counter()
        for name, data in run.data.items():
            rows = _retrieve(run, name, experiment.cells(name), data.questions, pool)
            if any(row.error_kind == NotOnDiskError.__name__ for row in rows):
                return None
            _answer(run, data.questions, rows, pool, KeptAnswers(experiment.home))
            _grade(run, data.questions, rows, pool)
            calls += _answered_calls(name, rows)
    return calls


def _answered_calls(data: str, rows: Sequence[Row]) -> Counter[tuple[str, str, str]]:
    """Count the calls behind rows: one an answer, and one for the answers that share a grading."""
    answered = [row for row in rows if row.cached]
    calls: Counter[tuple[str, str, str]] = Counter()
    for group in _cells_of(answered):
        for generator in {row.generator for row in group}:
            calls[data, "generator", generator] += 1
    shares: Counter[str] = Counter()
    for row in answered:
        if row.grade is not None:
            shares[row.judge] += 1 / (row.judge_shown or 1)
    return calls + Counter({(data, "judge", judge): round(n) for judge, n in shares.items()})


# -- the manifest


def _manifest(run: _Run, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    experiment = run.experiment
    prompts = {PROMPT} if any(axis == "judge" for axis, _ in run.models) else set()
    for axis, name in run.models:
        if axis == "generator":
            prompts.add(experiment.prompts.get(name, PROMPTS["with_documents"]))
            prompts.add(PROMPTS["query_only"])
    seeds = {f"{axis}/{name}": facts.row()["seed"] for (axis, name), facts in run.models.items()}
    return {
        "format": manifests.FORMAT,
        "name": experiment.name,
        "axes": run.facts,
        "grid": {axis: list(getattr(experiment, axis)) for axis in AXES},
        "chunkers": {name: manifests.describe(cut) for name, cut in experiment.chunker.items()},
        "parameters": _parameters(experiment),
        "prompts": {str(prompt).rpartition("/")[2]: prompt_hash(prompt) for prompt in prompts},
        "seeds": seeds | {"order": experiment.order},
        "runs": list(runs),
        **run.environment,
    }


def _parameters(experiment: Grid) -> dict[str, Any]:
    names = ("per_prompt", "order", "max_chars", "begin_token", "match", "concurrency", "truncated")
    tokenizer = experiment.tokenizer
    if tokenizer is None:
        tokenizer = "all-MiniLM-L6-v2 WordPiece"
    elif not isinstance(tokenizer, str):
        tokenizer = getattr(tokenizer, "__name__", type(tokenizer).__name__)
    options = {
        name: value
        for name, value in experiment.options.items()
        if isinstance(value, bool | int | float | str)
    }
    return {
        **{name: getattr(experiment, name) for name in names},
        "options": options,
        "N": list(experiment.N),
        "k": {name: list(depths) for name, depths in experiment.k.items()},
        "tokenizer": tokenizer,
        "form": MATCHES[experiment.match][1],
    }


def _secrets(run: _Run) -> tuple[str, ...]:
    """Return what must not stand in the manifest, the longest first."""
    secrets = {secret for facts in run.models.values() for secret in facts.secrets}
    return tuple(sorted(secrets, key=len, reverse=True))


def _note_windows(run: _Run) -> None:
    """Note what the servers made of num_ctx."""
    if run.cassette is not None and run.cassette.mode == "replay":
        return
    for (axis, name), facts in run.models.items():
        used = window(getattr(run.experiment, axis)[name])
        sizes = [size for size in (used, facts.num_ctx) if size]
        run.facts[axis][name]["num_ctx"] = min(sizes, default=None)


def _alone(experiment: Grid) -> Any:
    try:
        return FileLock(experiment.home / "rows.lock").acquire(timeout=0)
    except Timeout:
        got = f"another process is running {experiment.name!r}"
        raise ConfigError(got, "one process per run", "wait for it, or rename this one") from None


class Experiment(Grid):
    """A grid of data x chunker x retriever x k x N x generator x judge; one row per question and
    cell.

    ``data``, ``chunker``, ``retriever``, ``generator`` and ``judge`` take what an experiment.yaml
    has: names of what ships (``retriever=["BM25", "SIM"]``), or a dict label -> name, ``{"use":
    NAME, option: value}`` or object.

    Parameters
    ----------
    name : of the run; its files lie in ``data/results/<name>/``, or in ``folder``.
    data : label -> Dataset, or a function that loads one. A single Dataset goes by its own name.
    chunker, retriever : label -> function documents -> chunks; label -> function chunks ->
        retriever (anything with ``search(queries, k)``).
    k : chunks asked for: an int, several, or a dict retriever -> int or several.
    N : token budgets. N = 0 asks the generator without documents, once per question, as retriever
        "LLM only".
    generator : a chat model's name (``"ollama:llama3:8b"``, ``"smollm2"``), or label -> name, chat
        model, function (question, context) -> answer, or object with ``answer``, such as a pipeline
        of your own. None: retrieval only.
    judge : the same for grades; an object of your own has ``grade_all``. None: answers without
        grades.
    prompts : generator -> id or file of its prompt with documents (fields ``{query}``,
        ``{documents}``), for chat models; one that is not named takes the thesis's. One model under
        two names is two prompts compared.
    keep : function of a ``Cell``: which cells of the product there are. None: all.
    per_prompt, order, max_chars : answers a judge model sees at once, as in ``ragbench.grade``.
    tokenizer, begin_token, match : how contexts are cut and scored, as in ``ir_score_table``.
    cassette : where replies of models are recorded; default a file beside the rows. False: nowhere.
    concurrency : calls under way at once. Default: 1 for Ollama and GGUF files, else 4.
    options : for ``ragbench.llm.ask``: ``retries``, ``deadline_s``, ``patience_s`` ...
    truncated : an answer that ended at its limit of tokens is counted either way. ``"score"``: it
        is graded like any other, as in the papers; ``"unscored"``: it gets no grade.
    metrics, labels, checker : for `ragbench.score`, which the command ``ragbench run`` calls after
        the run.
    embedder, scorer, decompose : of the retrievers and chunkers that name none themselves.

    Raises ConfigError for an axis that cannot work.

    Examples
    --------
    >>> Experiment(
    ...     "first look",
    ...     data="minihop",
    ...     chunker={"100 tokens": {"use": "token_chunks", "size": 100}},
    ...     retriever=["BM25", "SIM"],
    ...     N=(0, 100, 1000),
    ...     generator="ollama:llama3:8b",
    ...     judge="ollama:llama3:70b",
    ... ).run()  # doctest: +SKIP
    """

    def plan(self, **speeds: Any) -> Plan:
        """Count what a run will embed, search, ask and grade, see `plan_experiment`."""
        return plan_experiment(self, _recorded_calls(self), **speeds)

    answers = staticmethod(answers_of)

    def run(self, executor: Executor | None = None, progress: bool = True) -> pd.DataFrame:
        """Run a grid from its beginning and return its rows, as `load_rows` does.

        Recorded replies are not asked for again, known vectors not computed: a run that was killed,
        or stopped by Ctrl-C, is started again and soon where it was. The file of rows holds those
        of this grid alone: a first run's grow block by block; later ones are written beside the
        earlier ones and take their place, with the manifest, at the end. A failure of one question
        is a row with ``status`` "failed".

        Parameters
        ----------
        executor : any ``concurrent.futures`` executor for what computes: threads (default), a
            process pool, dask's ``client.get_executor()``. Calls to models are made from this
            process, whatever the executor.
        progress : show a bar.

        Raises ConfigError, DataError or ModelError for what stops the whole run: no server of a
        model, too many prompts failed by the servers, two processes on one run, a full disk.
        """
        with _alone(self), self.open_cassette() as cassette:
            runs = manifests.earlier_runs(self.home, self.name)
            run = _set_up(self, cassette, progress)
            executor_name = type(executor).__name__ if executor else "threads"
            total = sum(
                len(data.questions) * len(self.cells(name)) for name, data in run.data.items()
            )
            entry = {"began": manifests.now(), "ended": None, "rows": total}
            entry["executor"] = executor_name
            file = RowsFile(self.home)
            if file.path == file.place:  # the first run: what it writes may be read meanwhile
                begun = _manifest(run, [*runs, entry])
                manifests.write_manifest(self.home, begun, _secrets(run))
            pool = executor or ThreadPoolExecutor(cores(), thread_name_prefix="ragbench")
            rows: list[Row] = []
            try:
                with tqdm(total=total, unit="row", disable=not progress) as bar:
                    _make_rows(run, pool, file, rows, bar.update)
            finally:
                if executor is None:
                    pool.shutdown(wait=False, cancel_futures=True)
                failed = Counter(row.error_kind for row in rows if row.status == "failed")
                entry |= {"ended": manifests.now(), "rows_made": len(rows), "failed": dict(failed)}
                _finish(run, file, [*runs, entry], whole=len(rows) == total)
        frame = as_frame(rows)
        for warning in without_text(frame):
            warnings.warn(warning, stacklevel=2)  # shown at the line that called run()
        return frame


def _make_rows(
    run: _Run, pool: Executor, file: RowsFile, rows: list[Row], advance: Callable[[int], Any]
) -> None:
    """Make the rows block by block, write them, and add them to ``rows``."""
    kept = KeptAnswers(run.experiment.home)
    whole = False
    try:
        for name, data in run.data.items():
            cells = run.experiment.cells(name)
            relevant = judgements(data)
            for questions in _blocks(data, cells):
                block = _retrieve(run, name, cells, questions, pool)
                for row in block:
                    row.relevant = relevant.get(row.question_id)
                _answer(run, questions, block, pool, kept)
                _grade(run, questions, block, pool)
                file.write(block)
                rows += block
                advance(len(block))
        whole = True
    finally:
        kept.close(whole=whole)


def _finish(run: _Run, file: RowsFile, runs: Sequence[Mapping[str, Any]], *, whole: bool) -> None:
    """Let rows and manifest take the place of the earlier ones together, or neither."""
    if not file.replaces(whole):
        file.discard()
        warnings.warn(
            f"stopped after {file.count} rows: the earlier rows and their manifest stay; "
            "run again to replace them",
            stacklevel=3,
        )
        return
    _note_windows(run)
    manifest = _manifest(run, runs) | {"rows_sha256": file.sha256}
    try:
        manifests.write_manifest(run.experiment.home, manifest, _secrets(run))
        file.take_place()
    finally:
        file.discard()
