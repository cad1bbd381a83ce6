"""A run is a loop: search, cut at every N, score, answer, grade; rows are appended block by block
of questions.

What costs money or hours is remembered where it is made: replies of models and answers of functions
on the cassette, vectors in the cache. A run that broke off is started again; there is nothing else
to resume.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from ragbench.data.relevance import judgements
from ragbench.embedding import NotOnDiskError
from ragbench.errors import ConfigError, ModelError, RagbenchError
from ragbench.experiment.axes import NONE, is_model
from ragbench.experiment.manifest import RunFiles
from ragbench.generation import generate
from ragbench.labelling.grades import GRADES, grade, grade_bound
from ragbench.llm import Cassette
from ragbench.llm.cassette import Keys, canonical
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.identity import identity
from ragbench.llm.models import BOUNDS
from ragbench.metrics.ir_score import ir_score_table
from ragbench.onnx_models import cores
from ragbench.prompts import prompt_hash
from ragbench.records import Answer, Chunk, Dataset, Failure, Grade, Hit, Question, as_id
from ragbench.retrieval.base import check_retriever, inner_searches
from ragbench.rows import Row, as_frame, no_room
from ragbench.text.tokens import TokenOffsets, joined_cutoffs, texts_before

BLOCK = 500  # questions whose rows are written together
BLOCK_OF_ANSWERS = 50  # the same where models or functions answer or grade, in answers
_TASK = 50  # questions that another process is given at once
_ANSWERS = 10  # the same of answers by a function or object
_FULL_DISK = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_STOP_AFTER = 0.5  # share of prompts failed by the servers, above which a run ends
_JUDGED_FROM = 20  # prompts, before that share counts
# Of `ragbench.llm.ask`, that an experiment may set.
OPTIONS = ("retries", "deadline_s", "patience_s", "backoff_s", "num_predict", "on_miss", "progress")
# With these the model has done its part badly; with all others it is the server that failed.
_UNUSABLE = {"truncated", "unusable", "invalid", "digest", "miss"}
# What a row takes over from the record of an answer, and, with "judge_" before it, of a grade.
_OF_ANSWER = (
    "prompt",
    "prompt_sha256",
    "prompt_tokens",
    "prompt_estimate",
    "output_tokens",
    "finish",
    "tagged",
    "cached",
)
_OF_GRADE = ("seconds", "shown", "position", "repairs", "prompt_tokens", "prompt_estimate")
# What a question brings that is no column of its own in rows.
_NOT_META = ("topic", "relevant", "doc_ids", "supporting_facts", "claims", "long_answer")
_LIMITS = ("num_ctx", "num_predict")
_WITHOUT_DOCUMENTS = {"context_tokens": 0, "hits": [], "retrieved": [], "chunks": []}

_Search = tuple[str, str, int]  # chunker, retriever, k
_Hits = list[Hit] | Exception  # of a question; or why its search failed
_Contexts = dict[int, dict[str, Any]]  # of a question: what a row says of its context, by N


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
class _Held:
    """What held while a model's answers or grades were made."""

    servers: Counter[tuple[str, str]] = field(default_factory=Counter)  # by version and day
    limits: dict[str, int] = field(default_factory=dict)  # num_ctx and num_predict, of the latest

    def note(self, made: Sequence[Answer | Grade]) -> None:
        """Count what was made; failures are none."""
        for each in made:
            held = each.meta.get("held")
            if held is not None and each.failure is None:
                self.servers[held.get("server", ""), held.get("at", "")[:10]] += 1
                self.limits |= {name: held[name] for name in _LIMITS if name in held}

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        servers = [[*place, count] for place, count in sorted(self.servers.items())]
        return {"servers": servers, **self.limits}


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
    held: dict[tuple[str, str], _Held] = field(default_factory=dict)  # of each model
    scales: dict[str, dict[int, str]] = field(default_factory=dict)  # of judges, if their own
    pool: Executor | None = None
    only_recorded: bool = False  # of a plan: no function or object is called
    prompts: int = 0  # asked, and how many of them were lost at the servers
    lost: int = 0

    def meet_models(self) -> None:
        """Ask the servers of the models who they are."""
        for axis in ("generator", "judge"):
            for name, value in getattr(self.experiment, axis).items():
                if is_model(value):
                    bound = BOUNDS["text"]
                    if axis == "judge":
                        bound = grade_bound(self.experiment.per_prompt)
                    facts = Endpoint.identified(value, self.cassette, num_predict=bound)
                    self.models[axis, name] = facts
                    self.held[axis, name] = _Held()

    def build(self) -> None:
        """Load the data, cut their documents, and build the retrievers over the chunks."""
        experiment = self.experiment
        for judge in experiment.judge:
            scale = experiment.scale(judge)
            if scale != GRADES:
                self.scales[judge] = scale
        for data, source in experiment.data.items():
            self.data[data] = _load(data, source)
            searches = dict.fromkeys(cell.search[:2] for cell in experiment.cells(data) if cell.N)
            for chunker in dict.fromkeys(chunker for chunker, _ in searches):
                self._cut(data, chunker)
            for chunker, retriever in searches:
                chunks = self.chunks.get((data, chunker))
                if chunks is not None:
                    engine = experiment.retriever[retriever](chunks)
                    self.retrievers[data, chunker, retriever] = check_retriever(engine)

    def _cut(self, data: str, chunker: str) -> None:
        try:
            chunks = self.experiment.chunker[chunker](self.data[data].documents)
            self.chunks[data, chunker] = list(chunks)
        except NotOnDiskError as error:
            self.not_cut[data, chunker] = error

    def embed(self) -> None:
        """Make the vectors of the chunks; an embedder that fails at them ends the run here."""
        for engine in self.retrievers.values():
            for part, _ in inner_searches(engine, ()):
                if hasattr(part, "nearest"):
                    _ = part.vectors  # they are made where they are looked at

    def count(self) -> int:
        """Count the rows of the whole run."""
        cells = self.experiment.cells
        return sum(len(data.questions) * len(cells(name)) for name, data in self.data.items())

    def rows(self) -> Iterator[list[Row]]:
        """Make the rows block by block of questions: search, answer, grade."""
        for name, data in self.data.items():
            cells = self.experiment.cells(name)
            relevant = judgements(data)
            size = _block_size(cells)
            for start in range(0, len(data.questions), size):
                questions = data.questions[start : start + size]
                rows = _retrieve(self, cells, questions)
                for row in rows:
                    row.relevant = relevant.get(row.question_id)
                if self.experiment.generator:
                    by_id = {question.id: question for question in questions}
                    _answer(self, by_id, rows)
                    _grade(self, by_id, rows)
                yield rows


def _load(name: str, source: Any) -> Dataset:
    data = source
    if not isinstance(source, Dataset):
        data = source()
    ids = {question.id for question in getattr(data, "questions", ())}
    if not ids or len(ids) < len(data.questions):
        raise ConfigError(
            f"data {name!r} gives {str(data)[:60]}",
            "a Dataset with questions, each with an id of its own",
            "check its loader",
        )
    return data


def _block_size(cells: Sequence[Cell]) -> int:
    """Return how many questions are asked before their rows are written."""
    answers = {replace(cell, judge=NONE) for cell in cells if cell.generator != NONE}
    if not answers:
        return BLOCK
    return max(1, BLOCK_OF_ANSWERS // len(answers))


# -- search, cut and score


def _retrieve(run: Run, cells: Sequence[Cell], questions: Sequence[Question]) -> list[Row]:
    """Search for a block of questions, each search once, and cut what was found at every N."""
    contexts = _search_all(run, cells, questions)
    rows = []
    for place, question in enumerate(questions):
        meta = _meta(question)
        for cell in cells:
            by_budget = {0: _WITHOUT_DOCUMENTS}
            if cell.N:
                by_budget = contexts[cell.search][place]
            row = _row(question, meta, cell, by_budget)
            row.match = run.experiment.match
            row.judge_scale = run.scales.get(cell.judge)
            rows.append(row)
    return rows


def _search_all(
    run: Run, cells: Sequence[Cell], questions: Sequence[Question]
) -> dict[_Search, list[_Contexts]]:
    """Return the contexts of each question, by what was searched."""
    budgets: dict[_Search, set[int]] = defaultdict(set)
    for cell in cells:
        if cell.N:
            budgets[cell.search].add(cell.N)
    contexts = {}
    for search in budgets:
        chunker, retriever, k = search
        engine = run.retrievers[cells[0].data, chunker, retriever]
        hits = _search(engine, questions, k)
        contexts[search] = _at_budgets(run, questions, hits, sorted(budgets[search]))
    return contexts


def _at_budgets(
    run: Run, questions: Sequence[Question], hits: Sequence[_Hits], budgets: Sequence[int]
) -> list[_Contexts]:
    """Cut what was found at every N, a part of the questions a task of the executor."""
    work = functools.partial(
        _contexts,
        budgets=budgets,
        tokenizer=run.experiment.tokenizer,
        begin_token=run.experiment.begin_token,
        match=run.experiment.match,
    )
    # not by map's chunksize, which dask's executor does not know
    parts = [slice(start, start + _TASK) for start in range(0, len(questions), _TASK)]
    question_parts = [questions[part] for part in parts]
    hit_parts = [hits[part] for part in parts]
    contexts = []
    for of_part in run.pool.map(work, question_parts, hit_parts):
        contexts += of_part
    return contexts


def _search(engine: Any, questions: Sequence[Question], k: int) -> list[_Hits]:
    """Return hits by question, or the error of one whose search fails: the others have hits."""
    try:
        return list(engine.search([question.text for question in questions], k))
    except Exception as error:
        _end_on_full_disk(error)
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
    if question.meta.get("keypoints"):  # as DRAGONBall has them
        own["keypoints"] = list(question.meta["keypoints"])
    claims = question.meta.get("claims")
    if claims and question.meta.get("long_answer"):  # as MiniHop has them
        own["long_reference"] = question.meta["long_answer"]
        own["reference_claims"] = [
            claim["text"] if isinstance(claim, Mapping) else str(claim) for claim in claims
        ]
    return own


def _row(question: Question, meta: dict[str, Any], cell: Cell, contexts: _Contexts) -> Row:
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
    row.take(contexts[cell.N])
    if cell.generator == NONE and max(contexts) > cell.N:
        row.chunks = None  # nobody reads it, and it is the beginning of the largest one
    return row


def _contexts(questions: Sequence[Question], hits: Sequence[_Hits], **cut: Any) -> list[_Contexts]:
    """Cut and score for several questions: a task of an executor. ``cut`` is for `_cut`."""
    pairs = zip(questions, hits, strict=True)
    return [_context(question, ranking, **cut) for question, ranking in pairs]


def _context(question: Question, hits: _Hits, budgets: Sequence[int], **cut: Any) -> _Contexts:
    """Return what the rows of a question say of its contexts, or of the failure to get them."""
    try:
        if isinstance(hits, Exception):
            raise hits
        return _cut(question, hits, budgets, **cut)
    except Exception as error:
        _end_on_full_disk(error)
        failed = {"status": "failed", "error_step": "retrieve", "error_kind": _kind(error)}
        return dict.fromkeys(budgets, failed | {"error": str(error)})


def _kind(error: Exception) -> str:
    return getattr(error, "kind", type(error).__name__)


@functools.lru_cache(maxsize=4)
def _offsets(tokenizer: Any) -> TokenOffsets:
    """Return the token offsets of this process: every chunk is tokenised once in it."""
    return TokenOffsets(tokenizer)


def _cut(
    question: Question,
    hits: list[Hit],
    budgets: Sequence[int],
    tokenizer: Any,
    begin_token: bool,
    match: str,
) -> _Contexts:
    """Cut the joined hits at every N and score all contexts in one pass."""
    texts = [hit.chunk.text for hit in hits]
    offsets = _offsets(tokenizer)
    ends = joined_cutoffs(texts, budgets, offsets, begin_token)
    (scores,) = ir_score_table(
        [[*question.references]],
        [" ".join(texts)],
        budgets,
        match=match,
        positions=ends[None, :],
        threads=1,
    )
    all_tokens = offsets.joined_ends(texts, max(budgets)).size
    own_tokens = int(begin_token)  # of the N, that hold no text
    of_search = _hit_facts(hits)
    contexts = {}
    for n, end, score in zip(budgets, ends.tolist(), scores.tolist(), strict=True):
        contexts[n] = {
            **of_search,
            "ir_score": score,
            "context_tokens": int(min(n - own_tokens, all_tokens)),
            "chunks": texts_before(end, texts),
        }
    return contexts


def _hit_facts(hits: Sequence[Hit]) -> dict[str, Any]:
    return {
        "hits": [hit.chunk.id for hit in hits],
        "retrieved": [as_id(hit.chunk.doc_id) for hit in hits],
        "zero_hits": sum(hit.score == 0 for hit in hits),
    }


# -- answers


def _answer(run: Run, questions: Mapping[str, Question], rows: Sequence[Row]) -> None:
    """Let models, functions and objects answer, once for all judges."""
    for name in run.experiment.generator:
        waiting: dict[str, list[Row]] = defaultdict(list)  # the rows of each answer, one a judge
        for row in rows:
            if row.generator == name and row.status == "ok":
                waiting[row.place].append(row)
        first = [same_answer[0] for same_answer in waiting.values()]
        answers = _ask(run, name, questions, first)
        model = run.models.get(("generator", name))
        if model is not None:
            run.held["generator", name].note(answers)
        for same_answer, answer in zip(waiting.values(), answers, strict=True):
            for row in same_answer:
                _take_answer(row, answer, model)
        if model is not None:
            _check_servers(run, "generate", first)


def _ask(
    run: Run, name: str, questions: Mapping[str, Question], rows: Sequence[Row]
) -> Sequence[Answer]:
    generator = run.experiment.generator[name]
    of_rows = [questions[row.question_id] for row in rows]
    contexts = [row.context for row in rows]
    if ("generator", name) not in run.models:
        return _ask_object(run, generator, of_rows, contexts)
    return generate(
        generator,
        of_rows,
        contexts,
        with_documents=run.experiment.prompt("generator", name),
        ids=[row.place for row in rows],
        cassette=run.cassette,
        **run.options,
    )


def _take_answer(row: Row, answer: Answer, model: Endpoint | None) -> None:
    row.model = answer.generator
    if model is not None:
        row.take(model.row())
    row.take(answer.meta.get("usage", {}), _OF_ANSWER)
    row.take(answer.meta, _OF_ANSWER)
    row.take(answer.meta.get("held", {}), ["num_ctx"])
    row.seconds = answer.seconds
    if answer.failure is not None:
        row.fail("generate", answer.failure.kind, answer.failure.message)
    else:
        row.answer = answer.text


# -- answers of functions and objects, recorded as replies of models are

_Job = tuple[Question, str | None]  # a question and its context
_Prompt = tuple[str, str | None]  # the same as texts


def _ask_object(
    run: Run, generator: Any, questions: Sequence[Question], contexts: Sequence[str | None]
) -> list[Answer]:
    """Return an answer to each question and context: the recorded one, else one made now."""
    prompts = []
    jobs = {}
    for question, context in zip(questions, contexts, strict=True):
        prompt = (question.text, context)
        prompts.append(prompt)
        jobs[prompt] = (question, context)
    keys = _keys_of(generator) if run.cassette is not None else None
    answers = _recorded_answers(run, generator, keys, jobs)
    waiting = {prompt: job for prompt, job in jobs.items() if prompt not in answers}
    work = functools.partial(_answer_one, generator)
    if run.only_recorded:
        work = functools.partial(_not_recorded, generator)
    new_answers = run.pool.map(work, waiting.values(), chunksize=_ANSWERS)
    for prompt, answer in zip(waiting, new_answers, strict=True):
        answers[prompt] = answer
        is_kept = answer.failure is None  # a failure is asked again
        if is_kept and keys is not None and run.cassette.mode == "record":
            _record(run.cassette, keys, prompt, answer)
    return [answers[prompt] for prompt in prompts]


def _keys_of(generator: Any) -> Keys | None:
    """Return what makes the keys of its answers; None, with a warning, where it cannot be told
    from another one.
    """
    owner = generator
    if isinstance(generator, SimpleNamespace):  # around a function
        owner = generator.answer
    try:
        who = canonical(identity(owner))
    except ConfigError as error:
        warnings.warn(
            f"answers of {generator.name!r} are not recorded: {error.got}; {error.do}",
            stacklevel=3,
        )
        return None
    # as a hash: what a function holds may be a secret
    options = {"identity": hashlib.sha256(who.encode()).hexdigest()}
    return Keys("function", generator.name, "", options)


def _recorded_answers(
    run: Run, generator: Any, keys: Keys | None, jobs: Mapping[_Prompt, _Job]
) -> dict[_Prompt, Answer]:
    if keys is None:
        return {}
    by_key = {keys.key(_messages(prompt)): prompt for prompt in jobs}
    answers = {}
    for key, record in run.cassette.get(by_key).items():
        prompt = by_key[key]
        question, _ = jobs[prompt]
        meta = {"cached": True}
        name = generator.name
        answers[prompt] = Answer(question.id, record["text"], name, record["seconds"], meta)
    if answers:
        warnings.warn(
            f"answers of {generator.name!r} are read from {run.cassette.path.name}; if something "
            "behind it changed that is not in its source, give it another model_id",
            stacklevel=3,
        )
    return answers


def _record(cassette: Cassette, keys: Keys, prompt: _Prompt, answer: Answer) -> None:
    messages = _messages(prompt)
    record = {
        "ok": True,
        "text": answer.text,
        "raw": answer.text,
        "finish": "stop",
        "seconds": answer.seconds,
        "repairs": 0,
        "attempts": 1,
        "usage": {},
        "error": None,
    }
    cassette.put(
        keys.key(messages),
        keys.request(messages),
        record,
        step="generation",
        prompt_id=answer.question_id,
        confirmed=True,
    )


def _messages(prompt: _Prompt) -> list[dict[str, str | None]]:
    question, context = prompt
    return [{"question": question, "context": context}]


def _end_on_full_disk(error: BaseException) -> None:
    """Raise DataError for a full disk, which is no question's fault and ends the run."""
    if isinstance(error, OSError) and error.errno in _FULL_DISK:
        raise no_room(error.filename or "a file", error.strerror) from None


def _not_recorded(generator: Any, job: _Job) -> Answer:
    question, _ = job
    failure = Failure("miss", "not recorded")
    return Answer(question.id, "", generator.name, failure=failure)


def _answer_one(generator: Any, job: _Job) -> Answer:
    """Ask an object: a task of an executor. A failure is an answer that says so."""
    question, context = job
    try:
        (answer,) = generate(generator, [question], [context])
    except Exception as error:
        _end_on_full_disk(error)
        failure = Failure(type(error).__name__, str(error))
        return Answer(question.id, "", generator.name, failure=failure)
    return answer


# -- grades


def _grade(run: Run, questions: Mapping[str, Question], rows: Sequence[Row]) -> None:
    """Let models and objects grade; answers of different generators are not shown together."""
    answered = [row for row in rows if row.status == "ok"]
    experiment = run.experiment
    for judge, generator in itertools.product(experiment.judge, experiment.generator):
        place = (judge, generator)
        waiting = [row for row in answered if (row.judge, row.generator) == place]
        if ("judge", judge) in run.models:
            _grade_by_model(run, judge, questions, waiting)
            _check_servers(run, "grade", waiting)
        else:
            _grade_by_object(run, judge, questions, waiting)


def _grade_by_object(
    run: Run, name: str, questions: Mapping[str, Question], rows: Sequence[Row]
) -> None:
    judge = run.experiment.judge[name]
    work = functools.partial(_grade_one, name, judge)
    of_rows = [questions[row.question_id] for row in rows]
    answers = [_as_answer(row) for row in rows]
    verdicts = run.pool.map(work, of_rows, answers)
    for row, verdict in zip(rows, verdicts, strict=True):
        _take_grade(row, verdict)


def _grade_one(name: str, judge: Any, question: Question, answer: Answer) -> Grade:
    """Let an object grade one answer: a task of an executor. A failure is a grade that says so."""
    start = time.perf_counter()
    try:
        (verdict,) = judge.grade_all([question], [answer])
    except Exception as error:
        _end_on_full_disk(error)
        failure = Failure(_kind(error), str(error))
        return Grade(question.id, None, name, failure=failure)
    return replace(verdict, meta={"seconds": time.perf_counter() - start, **verdict.meta})


def _grade_by_model(
    run: Run, name: str, questions: Mapping[str, Question], rows: Sequence[Row]
) -> None:
    experiment = run.experiment
    prompt = experiment.prompt("judge", name)
    verdicts = grade(
        experiment.judge[name],
        list(questions.values()),
        [_as_answer(row) for row in rows],
        prompt=prompt,
        per_prompt=experiment.per_prompt,
        order=experiment.order,
        cassette=run.cassette,
        **run.options,
    )
    run.held["judge", name].note(verdicts)
    facts = run.models["judge", name].row()
    sha256 = prompt_hash(prompt)
    for row, verdict in zip(rows, verdicts, strict=True):
        row.take(facts, prefix="judge_")
        _take_grade(row, verdict)
        row.judge_prompt = Path(prompt).name
        row.judge_prompt_sha256 = sha256


def _as_answer(row: Row) -> Answer:
    place = {"retriever": f"{row.chunker}/{row.retriever}/{row.k}", "budget": row.N}
    return Answer(row.question_id, row.answer or "", row.generator, meta=place)


def _take_grade(row: Row, verdict: Grade) -> None:
    usage = verdict.meta.get("usage", {})
    if not usage.get("uncounted"):  # of calls of which one was not counted the sum is of no use
        row.take(usage, ["prompt_tokens"], "judge_")
    row.take(verdict.meta, _OF_GRADE, "judge_")
    row.take(verdict.meta.get("held", {}), ["num_ctx"], "judge_")
    row.judge_answer_cut = verdict.meta.get("cut")
    row.judge_model = verdict.judge
    scale = row.judge_scale or GRADES
    if verdict.value is None:
        row.judge_raw = verdict.raw or None
        failure = verdict.failure or Failure("invalid", f"the judge {row.judge!r} gave no grade")
        row.fail("grade", failure.kind, failure.message)
    elif isinstance(verdict.value, bool) or verdict.value not in [*scale]:
        row.fail(
            "grade",
            "invalid",
            f"the judge {row.judge!r} gave {verdict.value!r}, none of the grades {[*scale]}",
        )
    else:
        row.grade = int(verdict.value)


def _check_servers(run: Run, step: str, rows: Sequence[Row]) -> None:
    """End the run where the servers have answered nothing so far, or fail too many prompts."""
    failed = [row for row in rows if row.error_kind]
    lost = [row.error for row in failed if row.error_kind not in _UNUSABLE]
    run.prompts += len(rows)
    run.lost += len(lost)
    too_many = run.lost == run.prompts
    if run.prompts >= _JUDGED_FROM:
        too_many = run.lost > _STOP_AFTER * run.prompts
    if lost and too_many:
        last = lost[-1].splitlines()[0]
        raise ModelError(
            f"{run.lost} of {run.prompts} prompts failed at the server ({step}); the last: {last}",
            f"at most {_STOP_AFTER:.0%}",
            "see to the server, then run again: recorded replies are not asked for again",
        )


# -- the whole


def run_experiment(experiment: Any, executor: Executor | None, progress: bool) -> pd.DataFrame:
    """Make, write and return the rows of an `Experiment`; see its ``run``."""
    with _alone(experiment), experiment.open_cassette() as cassette:
        options = {"concurrency": experiment.concurrency, "progress": progress}
        run = Run(experiment, cassette, options | experiment.options)
        run.meet_models()
        run.build()
        files = RunFiles(run)
        with _pool(executor) as run.pool:
            return as_frame(_written(run, files, progress))


@contextlib.contextmanager
def _pool(executor: Executor | None) -> Iterator[Executor]:
    """Yield the executor, or threads of our own; say what cannot be sent to other processes."""
    pool = executor or ThreadPoolExecutor(cores(), thread_name_prefix="ragbench")
    try:
        yield pool
    except Exception as error:
        is_ours = executor is None or isinstance(error, RagbenchError)
        if is_ours or "pickle" not in str(error):
            raise
        name = type(executor).__name__
        raise ConfigError(
            f"{name} cannot send a part of the experiment to its processes: {error}",
            "functions and objects that can be pickled",
            "define it in a file that is imported, without locks and open files, or run()",
        ) from error
    finally:
        if executor is None:
            pool.shutdown(wait=False, cancel_futures=True)


def _written(run: Run, files: RunFiles, progress: bool) -> list[Row]:
    """Make the rows and write each block; whatever ends it, the files are closed."""
    files.begin()
    rows: list[Row] = []
    try:
        run.embed()
        with tqdm(total=files.rows, unit="row", disable=not progress) as bar:
            for block in run.rows():
                files.write(block)
                rows += block
                bar.update(len(block))
    finally:
        for (axis, name), held in run.held.items():
            files.manifest["axes"][axis][name] |= held.to_dict()
        files.close()
    return rows


def _alone(experiment: Any) -> Any:
    try:
        return FileLock(experiment.home / "rows.lock").acquire(timeout=0)
    except Timeout:
        raise ConfigError(
            f"another process is running {experiment.name!r}",
            "one process per run",
            "wait for it, or rename this one",
        ) from None
