"""A run is a loop: search, cut at every N, score, answer, grade; rows are appended block by block
of questions.

What costs money or hours is remembered where it is made: replies of models on the cassette, vectors
in the cache, answers of functions beside the rows. A run that broke off is started again; there is
nothing else to resume.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from ragbench.data.relevance import judgements
from ragbench.embedding import NotOnDiskError
from ragbench.errors import ConfigError, ModelError, RagbenchError
from ragbench.experiment import manifest as manifests
from ragbench.experiment.answers import KeptAnswers, end_on_full_disk
from ragbench.experiment.axes import NONE, is_model
from ragbench.experiment.rows import Row, as_frame
from ragbench.generation import generate
from ragbench.labelling.grades import GRADES, grade, grade_bound
from ragbench.llm import Cassette
from ragbench.llm.endpoints import Endpoint, model_facts
from ragbench.llm.models import BOUNDS
from ragbench.metrics.ir_score import ir_score_table
from ragbench.onnx_models import cores
from ragbench.prompts import prompt_hash
from ragbench.records import Answer, Chunk, Dataset, Grade, Hit, Question
from ragbench.retrieval.base import check_retriever
from ragbench.retrieval.multiquery import dense_searches
from ragbench.text.tokens import TokenOffsets, joined_cutoffs

BLOCK = 500  # questions whose rows are written together
BLOCK_OF_ANSWERS = 50  # the same where models or functions answer or grade, in answers
_TASK = 50  # questions that another process is given at once
_STOP_AFTER = 0.5  # share of prompts failed by the servers, above which a run ends
_JUDGED_FROM = 20  # prompts, before that share counts
# Of `ragbench.llm.ask`, that an experiment may set.
OPTIONS = ("retries", "deadline_s", "patience_s", "backoff_s", "num_predict", "on_miss", "progress")
# With these the model has done its part badly; with all others it is the server that failed.
_UNUSABLE = {"truncated", "unusable", "invalid", "digest", "miss"}
# What a row takes over from the record of an answer, and of a grade: name there -> column.
_REPLY = ("prompt_tokens", "prompt_estimate", "output_tokens", "finish", "tagged", "cached")
_OF_ANSWER = {name: name for name in ("prompt", "prompt_sha256", *_REPLY)}
_GRADED = ("seconds", "shown", "position", "repairs", "prompt_tokens", "prompt_estimate")
_OF_GRADE = {name: f"judge_{name}" for name in _GRADED} | {"cut": "judge_answer_cut"}
# What a question brings that is no column of its own in rows.
_NOT_META = ("topic", "relevant", "doc_ids", "supporting_facts", "claims", "long_answer")
_WITHOUT_DOCUMENTS = {"context_tokens": 0, "hits": [], "retrieved": [], "chunks": []}

_Search = tuple[str, str, int]  # chunker, retriever, k
_Found = list[Hit] | Exception


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of axis values.

    N = 0 asks without documents: chunker "none", retriever "LLM only", k 0.
    """

    data: str
    chunker: str
    retriever: str
    k: int
    N: int
    generator: str = NONE
    judge: str = NONE

    @property
    def search(self) -> _Search:
        """What is retrieved: (chunker, retriever, k)."""
        return (self.chunker, self.retriever, self.k)


@dataclass
class Run:
    """An experiment and what is built for it once: a plan and a run walk over the same."""

    experiment: Any  # an `Experiment`
    cassette: Cassette | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of `ragbench.llm.ask`
    data: dict[str, Dataset] = field(default_factory=dict)
    chunks: dict[tuple[str, str], list[Chunk]] = field(default_factory=dict)  # by data and chunker
    # of a plan: chunks that need vectors which are not on disk
    not_cut: dict[tuple[str, str], NotOnDiskError] = field(default_factory=dict)
    # by data, chunker and retriever
    retrievers: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    models: dict[tuple[str, str], Endpoint] = field(default_factory=dict)  # by axis and name
    scales: dict[str, dict[int, str]] = field(default_factory=dict)  # of judges, if their own
    pool: Executor | None = None
    kept: KeptAnswers | None = None
    asked: int = 0  # prompts, and how many of them were lost at the servers
    lost: int = 0

    def meet_models(self) -> None:
        """Ask the servers of the models who they are."""
        bounds = {"generator": BOUNDS["text"], "judge": grade_bound(self.experiment.per_prompt)}
        for axis, bound in bounds.items():
            for name, value in getattr(self.experiment, axis).items():
                if is_model(value):
                    facts = model_facts(value, self.cassette, num_predict=bound)
                    self.models[axis, name] = facts

    def build(self) -> None:
        """Load the data, cut their documents, and build the retrievers over the chunks."""
        experiment = self.experiment
        scales = {judge: experiment.scale(judge) for judge in experiment.judge}
        self.scales = {judge: scale for judge, scale in scales.items() if scale != GRADES}
        for name, value in experiment.data.items():
            data = value if isinstance(value, Dataset) else value()
            self.data[name] = _checked(name, data)
            cells = [cell for cell in experiment.cells(name) if cell.N]
            for chunker in dict.fromkeys(cell.chunker for cell in cells):
                try:
                    chunks = list(experiment.chunker[chunker](data.documents))
                    self.chunks[name, chunker] = chunks
                except NotOnDiskError as error:
                    self.not_cut[name, chunker] = error
            for chunker, retriever in dict.fromkeys(cell.search[:2] for cell in cells):
                if (name, chunker) in self.chunks:
                    engine = experiment.retriever[retriever](self.chunks[name, chunker])
                    self.retrievers[name, chunker, retriever] = check_retriever(engine)

    def embed(self) -> None:
        """Make the vectors of the chunks; an embedder that fails at them ends the run here."""
        for engine in self.retrievers.values():
            for dense, _ in dense_searches(engine, ()):
                _ = dense.vectors

    def count(self) -> int:
        """Count the rows of the whole run."""
        cells = self.experiment.cells
        return sum(len(data.questions) * len(cells(name)) for name, data in self.data.items())


def _checked(name: str, data: Any) -> Dataset:
    ids = {question.id for question in getattr(data, "questions", ())}
    if not ids or len(ids) < len(data.questions):
        expected = "a Dataset with questions, each with an id of its own"
        raise ConfigError(f"data {name!r} gives {str(data)[:60]}", expected, "check its loader")
    return data


def make_rows(run: Run) -> Iterator[list[Row]]:
    """Make the rows block by block of questions: search, answer, grade."""
    for name, data in run.data.items():
        judges: dict[Cell, list[str]] = {}  # of each answer
        for cell in run.experiment.cells(name):
            judges.setdefault(replace(cell, judge=NONE), []).append(cell.judge)
        relevant = judgements(data)
        for questions in _blocks(data, run.experiment.cells(name)):
            rows = _retrieve(run, list(judges), list(questions.values()))
            _answer(run, questions, rows)
            graded = []
            for row, names in zip(rows, itertools.cycle(judges.values()), strict=False):
                row.relevant = relevant.get(row.question_id)
                graded += _for_judges(row, names, run.scales)
            _grade(run, questions, graded)
            yield graded


def _for_judges(row: Row, names: Sequence[str], scales: Mapping[str, dict[int, str]]) -> list[Row]:
    """Return the row of each judge of an answer."""
    rows = [row, *(replace(row) for _ in names[1:])]
    for each, name in zip(rows, names, strict=True):
        each.judge = name
        each.judge_scale = scales.get(name)
    return rows


def _blocks(data: Dataset, cells: Sequence[Cell]) -> Iterator[dict[str, Question]]:
    """Yield the questions of each block, by id."""
    answers = sum(cell.generator != NONE for cell in cells)
    size = max(1, BLOCK_OF_ANSWERS // answers) if answers else BLOCK
    for start in range(0, len(data.questions), size):
        yield {question.id: question for question in data.questions[start : start + size]}


# -- search, cut and score


def _retrieve(run: Run, cells: Sequence[Cell], questions: Sequence[Question]) -> list[Row]:
    """Search for a block of questions, each search once, and cut what was found at every N."""
    contexts = {}
    for search in dict.fromkeys(cell.search for cell in cells if cell.N):
        chunker, retriever, k = search
        hits = _search(run.retrievers[cells[0].data, chunker, retriever], questions, k)
        budgets = sorted({cell.N for cell in cells if cell.search == search})
        contexts[search] = _at_budgets(run, questions, hits, budgets)
    rows = []
    for place, question in enumerate(questions):
        meta = _meta(question)
        for cell in cells:
            context = contexts[cell.search][place] if cell.N else {0: _WITHOUT_DOCUMENTS}
            rows.append(_row(question, meta, cell, context))
    return rows


def _at_budgets(
    run: Run, questions: Sequence[Question], found: Sequence[_Found], budgets: Sequence[int]
) -> list[dict[int, dict[str, Any]]]:
    """Cut what was found at every N, a part of the questions a task of the executor."""
    experiment = run.experiment
    cut = (budgets, experiment.tokenizer, experiment.begin_token, experiment.match)
    work = functools.partial(_contexts, cut=cut)
    # not by map's chunksize, which dask's executor does not know
    starts = range(0, len(questions), _TASK)
    question_parts = [questions[start : start + _TASK] for start in starts]
    hits = [found[start : start + _TASK] for start in starts]
    return [*itertools.chain.from_iterable(run.pool.map(work, question_parts, hits))]


def _search(engine: Any, questions: Sequence[Question], k: int) -> list[_Found]:
    """Return hits by question, or the error of one whose search fails: the others have hits."""
    try:
        return list(engine.search([question.text for question in questions], k))
    except Exception as error:
        end_on_full_disk(error)
        if len(questions) == 1:
            return [error]
        return [_search(engine, [question], k)[0] for question in questions]


def _meta(question: Question) -> dict[str, Any]:
    """Return what a question brings beside the columns of every row."""
    own = {
        name: value
        for name, value in question.meta.items()
        if name not in _NOT_META and isinstance(value, str | int | float)
    }
    claims = question.meta.get("claims")
    if claims and question.meta.get("long_answer"):  # as MiniHop has them
        own["long_reference"] = question.meta["long_answer"]
        own["reference_claims"] = [
            claim["text"] if isinstance(claim, Mapping) else str(claim) for claim in claims
        ]
    return own


def _row(
    question: Question, meta: dict[str, Any], cell: Cell, context: Mapping[int, dict[str, Any]]
) -> Row:
    row = Row(
        cell.data,
        question.id,
        *cell.search,
        cell.N,
        cell.generator,
        cell.judge,
        kind=question.kind,
        level=question.level,
        topic=question.meta.get("topic"),
        question=question.text,
        reference=question.answer,
        references=list(question.references),
        meta=meta,
    )
    row.update(context[cell.N])
    if cell.generator == NONE and max(context) > cell.N:
        row.chunks = None  # nobody reads it, and it is the beginning of the largest one
    return row


@functools.lru_cache(maxsize=4)
def _offsets(tokenizer: Any) -> TokenOffsets:
    """Return the token offsets of this process: every chunk is tokenised once in it."""
    return TokenOffsets(tokenizer)


def _contexts(
    questions: Sequence[Question],
    hits: Sequence[_Found],
    *,
    cut: tuple[Sequence[int], Any, bool, str],
) -> list[dict[int, dict[str, Any]]]:
    """Return of each question by N what a row says of its context, or of the failure to get one: a
    task of an executor.

    ``cut`` : values of N, tokenizer, whether its begin token counts, match.
    """
    return [_context(*each, cut) for each in zip(questions, hits, strict=True)]


def _context(
    question: Question, hits: _Found, cut: tuple[Sequence[int], Any, bool, str]
) -> dict[int, dict[str, Any]]:
    try:
        if isinstance(hits, Exception):
            raise hits
        return _cut(question, hits, *cut)
    except Exception as error:
        end_on_full_disk(error)
        failed = {"status": "failed", "error_step": "retrieve", "error_kind": _kind(error)}
        return dict.fromkeys(cut[0], failed | {"error": str(error)})


def _kind(error: Exception) -> str:
    return getattr(error, "kind", type(error).__name__)


def _cut(
    question: Question,
    hits: list[Hit],
    budgets: Sequence[int],
    tokenizer: Any,
    begin_token: bool,
    match: str,
) -> dict[int, dict[str, Any]]:
    """Cut the joined hits at every N and score all contexts in one pass."""
    texts = [hit.chunk.text for hit in hits]
    offsets = _offsets(tokenizer)
    ends = joined_cutoffs(texts, budgets, offsets, begin_token)
    scoring = {"match": match, "positions": ends[None, :], "threads": 1}
    (scores,) = ir_score_table([[*question.references]], [" ".join(texts)], budgets, **scoring)
    all_tokens = offsets.joined_ends(texts, max(budgets)).size
    of_search = {
        "hits": [hit.chunk.id for hit in hits],
        "retrieved": [hit.chunk.doc_id for hit in hits],
        "zero_hits": sum(hit.score == 0 for hit in hits),
    }
    # one space stands between two chunks
    starts = [0, *itertools.accumulate(len(text) + 1 for text in texts)]
    placed = list(zip(texts, starts, strict=False))
    contexts = {}
    for n, end, score in zip(budgets, ends.tolist(), scores.tolist(), strict=True):
        contexts[n] = {
            **of_search,
            "ir_score": score,
            "context_tokens": int(min(n - begin_token, all_tokens)),
            "chunks": [text[: end - start] for text, start in placed if start < end],
        }
    return contexts


# -- answers


def _answer(run: Run, questions: Mapping[str, Question], rows: Sequence[Row]) -> None:
    """Let models, functions and objects answer."""
    for name, generator in run.experiment.generator.items():
        waiting = [row for row in rows if row.generator == name and row.status == "ok"]
        questions_asked = [questions[row.question_id] for row in waiting]
        contexts = [row.context for row in waiting]
        model = run.models.get(("generator", name))
        if model is None:
            answers = run.kept.ask(name, generator, questions_asked, contexts, run.pool)
        else:
            answers = generate(
                generator,
                questions_asked,
                contexts,
                with_documents=run.experiment.prompt("generator", name),
                ids=[row.place for row in waiting],
                cassette=run.cassette,
                **run.options,
            )
        for row, answer in zip(waiting, answers, strict=True):
            row.update({"model": answer.generator} if model is None else model.row())
            _take_answer(row, answer)
        if model is not None:
            _count(run, "generate", waiting)


def _take_answer(row: Row, answer: Answer) -> None:
    facts = {**answer.meta.get("usage", {}), **answer.meta}
    row.take(facts, _OF_ANSWER)
    row.seconds = answer.seconds
    if "error" in facts:
        kind, _, message = facts["error"].partition(": ")
        row.fail("generate", kind, message)
    else:
        row.answer = answer.text


# -- grades


def _grade(run: Run, questions: Mapping[str, Question], rows: Sequence[Row]) -> None:
    """Let models and objects grade; answers of different generators are not shown together."""
    for name, generator in itertools.product(run.experiment.judge, run.experiment.generator):
        place = (name, generator, "ok")
        prompt = run.experiment.prompt("judge", name)
        waiting = [row for row in rows if (row.judge, row.generator, row.status) == place]
        model = run.models.get(("judge", name))
        ask = _grade_by_objects if model is None else _grade_by_model
        for row, verdict in zip(waiting, ask(run, name, questions, waiting), strict=True):
            _take_grade(row, verdict)
            if model is not None:
                row.take(model.row(), {key: f"judge_{key}" for key in model.row()})
                row.judge_prompt = Path(prompt).name
                row.judge_prompt_sha256 = prompt_hash(prompt)
        if model is not None:
            _count(run, "grade", waiting)


def _grade_by_objects(
    run: Run, name: str, questions: Mapping[str, Question], rows: Sequence[Row]
) -> Iterable[Grade]:
    questions_asked = [questions[row.question_id] for row in rows]
    work = functools.partial(_grade_by_object, name, run.experiment.judge[name])
    return run.pool.map(work, questions_asked, map(_as_answer, rows))


def _grade_by_model(
    run: Run, name: str, questions: Mapping[str, Question], rows: Sequence[Row]
) -> Iterable[Grade]:
    names = ("per_prompt", "order")
    options = {key: getattr(run.experiment, key) for key in names} | run.options
    answers = [_as_answer(row) for row in rows]
    distinct = list(questions.values())
    judge = run.experiment.judge[name]
    options |= {"prompt": run.experiment.prompt("judge", name), "cassette": run.cassette}
    return grade(judge, distinct, answers, **options)


def _as_answer(row: Row) -> Answer:
    place = {"retriever": f"{row.chunker}/{row.retriever}/{row.k}", "budget": row.N}
    return Answer(row.question_id, row.answer or "", row.generator, meta=place)


def _grade_by_object(name: str, judge: Any, question: Question, answer: Answer) -> Grade:
    """Let an object grade one answer: a task of an executor. A failure is a grade that says so."""
    start = time.perf_counter()
    try:
        (verdict,) = judge.grade_all([question], [answer])
    except Exception as error:
        end_on_full_disk(error)
        failed = {"error": _kind(error), "detail": str(error)}
        return Grade(question.id, None, name, meta=failed)
    return replace(verdict, meta={"seconds": time.perf_counter() - start, **verdict.meta})


def _take_grade(row: Row, verdict: Grade) -> None:
    scale = row.judge_scale or GRADES
    usage = verdict.meta.get("usage", {})
    # The tokens are a sum over the calls: of no use where one of them was not counted.
    tokens = None if usage.get("uncounted") else usage.get("prompt_tokens")
    row.take({"prompt_tokens": tokens} | verdict.meta, _OF_GRADE)
    row.judge_model = verdict.judge
    if verdict.value is None:
        row.judge_raw = verdict.raw or None
        row.fail("grade", verdict.meta["error"], verdict.meta["detail"])
    elif isinstance(verdict.value, bool) or verdict.value not in tuple(scale):
        got = f"the judge {row.judge!r} gave {verdict.value!r}, none of the grades {[*scale]}"
        row.fail("grade", "invalid", got)
    else:
        row.grade = int(verdict.value)


def _count(run: Run, step: str, rows: Sequence[Row]) -> None:
    """End the run where the servers have answered nothing so far, or fail too many prompts."""
    lost = [row.error for row in rows if row.error_kind and row.error_kind not in _UNUSABLE]
    run.asked += len(rows)
    run.lost += len(lost)
    bearable = _STOP_AFTER * run.asked if run.asked >= _JUDGED_FROM else run.asked - 1
    if lost and run.lost > bearable:
        got = f"{run.lost} of {run.asked} prompts failed at the server ({step})"
        do = "see to the server, then run again: recorded replies are not asked for again"
        last = lost[-1].splitlines()[0]
        raise ModelError(f"{got}; the last: {last}", f"at most {_STOP_AFTER:.0%}", do)


# -- the whole


def run_experiment(experiment: Any, executor: Executor | None, progress: bool) -> pd.DataFrame:
    """Make, write and return the rows of an `Experiment`; see its ``run``."""
    with _alone(experiment), experiment.open_cassette() as cassette:
        options = {"concurrency": experiment.concurrency, "progress": progress}
        run = Run(experiment, cassette, options | experiment.options)
        run.meet_models()
        run.build()
        described = manifests.describe_run(run)
        inputs = manifests.inputs_sha256(run, described)
        earlier = manifests.unchanged_rows(experiment.home, inputs, run.count(), cassette)
        if earlier is not None:
            return earlier
        run.embed()
        described["inputs_sha256"] = inputs
        executor_name = type(executor).__name__ if executor else "threads"
        files = manifests.RunFiles(experiment.home, described, run.count(), executor_name)
        run.pool = executor or ThreadPoolExecutor(cores(), thread_name_prefix="ragbench")
        try:
            return as_frame(_written(run, files, progress))
        except Exception as error:
            if isinstance(error, RagbenchError) or "pickle" not in str(error):
                raise
            got = f"{executor_name} cannot send a part of the experiment to its processes: {error}"
            do = "define it in a file that is imported, without locks and open files, or run()"
            raise ConfigError(got, "functions and objects that can be pickled", do) from error
        finally:
            if executor is None:
                run.pool.shutdown(wait=False, cancel_futures=True)


def _written(run: Run, files: manifests.RunFiles, progress: bool) -> list[Row]:
    """Make the rows and write each block; whatever ends it, the files are closed."""
    run.kept = KeptAnswers(files.folder)
    rows: list[Row] = []
    try:
        with tqdm(total=files.rows, unit="row", disable=not progress) as bar:
            for block in make_rows(run):
                files.write(block)
                rows += block
                bar.update(len(block))
    finally:
        run.kept.close(whole=len(rows) == files.rows)
        _note_windows(run, files.manifest["axes"])
        files.close(run.cassette)
    return rows


def _alone(experiment: Any) -> Any:
    try:
        return FileLock(experiment.home / "rows.lock").acquire(timeout=0)
    except Timeout:
        got = f"another process is running {experiment.name!r}"
        raise ConfigError(got, "one process per run", "wait for it, or rename this one") from None


def _note_windows(run: Run, axes: dict[str, dict[str, Any]]) -> None:
    """Note what the servers made of num_ctx."""
    if run.cassette is not None and run.cassette.mode == "replay":
        return
    for (axis, name), facts in run.models.items():
        facts.loaded()
        axes[axis][name]["num_ctx"] = facts.num_ctx
