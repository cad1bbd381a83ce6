"""A run is a loop: search, cut at every N, score, answer, grade; rows are appended block by block
of questions.

What costs money or hours is remembered where it is made: replies of models and answers of functions
on the cassette, vectors in the cache. A run that broke off is started again; there is nothing else
to resume.
"""

from __future__ import annotations

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
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.experiment.axes import NONE
from ragbench.experiment.build import Built, People, Person
from ragbench.experiment.grid import Cell, Grid
from ragbench.experiment.manifest import RunFiles
from ragbench.generation import generate
from ragbench.labelling.grades import GRADES, grade
from ragbench.llm import Cassette
from ragbench.llm.cassette import Keys
from ragbench.llm.identity import identity
from ragbench.metrics.ir_score import ir_score_table
from ragbench.onnx_models import cores
from ragbench.prompts import prompt_hash
from ragbench.records import Answer, Failure, Grade, Hit, Question, as_id
from ragbench.retrieval.base import inner_searches
from ragbench.rows import Row
from ragbench.text.tokens import TokenOffsets, joined_cutoffs, texts_before

BLOCK_OF_QUESTIONS = 500  # questions whose rows are written together
BLOCK_OF_ANSWERS = 50  # the same where models or functions answer or grade, in answers
_TASK = 50  # questions that another process is given at once
_ANSWERS = 10  # the same of answers by a function or object
_FULL_DISK = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_STOP_AFTER = 0.5  # share of prompts failed by the servers, above which a run ends
_JUDGED_FROM = 20  # prompts, before that share counts
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
# What a question brings that has no column of its own in rows.
_NOT_META = ("topic", "relevant", "doc_ids", "supporting_facts", "claims", "long_answer")
_WITHOUT_DOCUMENTS = {"context_tokens": 0, "hits": [], "retrieved": [], "chunks": []}

_Hits = list[Hit] | Exception  # of a question; or why its search failed
_Contexts = dict[int, dict[str, Any]]  # of a question: what a row says of its context, by N


@dataclass(frozen=True)
class Run:
    """An experiment, what is built for it, and who answers: a plan and a run walk over the same."""

    experiment: Grid
    built: Built
    people: People
    cassette: Cassette | None
    pool: Executor
    options: Mapping[str, Any]  # of `ragbench.llm.ask`
    only_recorded: bool = False  # of a plan: no function or object is called
    prompts: Counter[str] = field(default_factory=Counter)  # "asked", and "lost" at the servers

    def rows(self) -> Iterator[list[Row]]:
        """Make the rows block by block of questions: search, answer, grade."""
        for name, data in self.built.data.items():
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

    @classmethod
    def execute(cls, experiment: Grid, executor: Executor | None, progress: bool) -> pd.DataFrame:
        """Make, write and return the rows of an `Experiment`; see its ``run``."""
        options = {
            "concurrency": experiment.concurrency,
            "progress": progress,
            **experiment.options,
        }
        pool = executor or ThreadPoolExecutor(cores(), thread_name_prefix="ragbench")
        with _alone(experiment), experiment.open_cassette() as cassette:
            try:
                people = Person.meet(experiment, cassette)
                run = cls(experiment, Built.of(experiment), people, cassette, pool, options)
                return Row.frame(_written(run, progress))
            finally:
                if executor is None:
                    pool.shutdown(wait=False, cancel_futures=True)


def _block_size(cells: Sequence[Cell]) -> int:
    """Return how many questions are asked before their rows are written."""
    answers = {replace(cell, judge=NONE) for cell in cells if cell.generator != NONE}
    if not answers:
        return BLOCK_OF_QUESTIONS
    return max(1, BLOCK_OF_ANSWERS // len(answers))


# -- search, cut and score


def _retrieve(run: Run, cells: Sequence[Cell], questions: Sequence[Question]) -> list[Row]:
    """Search for a block of questions, each search once, and cut what was found at every N."""
    experiment = run.experiment
    scales = {judge: experiment.scale(judge) for judge in experiment.judge}
    contexts = _search_all(run, cells, questions)
    rows = []
    for place, question in enumerate(questions):
        meta = _meta(question)
        for cell in cells:
            by_budget = {0: _WITHOUT_DOCUMENTS}
            if cell.N:
                by_budget = contexts[cell.search][place]
            row = _row(question, meta, cell, by_budget)
            row.match = experiment.match
            scale = scales.get(cell.judge)
            if scale != GRADES:
                row.judge_scale = scale
            rows.append(row)
    return rows


def _search_all(
    run: Run, cells: Sequence[Cell], questions: Sequence[Question]
) -> dict[tuple[str, str, int], list[_Contexts]]:
    """Return the contexts of each question, by what was searched."""
    budgets: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for cell in cells:
        if cell.N:
            budgets[cell.search].add(cell.N)
    contexts = {}
    for search, of_search in budgets.items():
        chunker, retriever, k = search
        engine = run.built.retrievers[cells[0].data, chunker, retriever]
        hits = _search(engine, questions, k)
        contexts[search] = _cut_all(run, questions, hits, sorted(of_search))
    return contexts


def _cut_all(
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
    of_questions = [questions[part] for part in parts]
    of_hits = [hits[part] for part in parts]
    return list(itertools.chain.from_iterable(run.pool.map(work, of_questions, of_hits)))


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
    own: dict[str, Any] = {
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


def _contexts(
    questions: Sequence[Question], hits: Sequence[_Hits], budgets: Sequence[int], **cut: Any
) -> list[_Contexts]:
    """Return what the rows of questions say of their contexts, or of the failure to get them: a
    task of an executor. ``cut`` is for `_cut`.
    """
    contexts = []
    for question, ranking in zip(questions, hits, strict=True):
        try:
            if isinstance(ranking, Exception):
                raise ranking
            contexts.append(_cut(question, ranking, budgets, **cut))
        except Exception as error:
            failed = {"status": "failed", "error_step": "retrieve"}
            failure = _failure(error)
            failed |= {"error_kind": failure.kind, "error": failure.message}
            contexts.append(dict.fromkeys(budgets, failed))
    return contexts


def _failure(error: Exception) -> Failure:
    """Say why one question failed; DataError for a full disk, which ends the run."""
    _end_on_full_disk(error)
    return Failure(getattr(error, "kind", type(error).__name__), str(error))


def _end_on_full_disk(error: Exception) -> None:
    """Raise DataError for a full disk, which is not the fault of a question and ends the run."""
    if isinstance(error, OSError) and error.errno in _FULL_DISK:
        raise DataError.not_written(error.filename or "a file", error.strerror) from None


@functools.lru_cache(maxsize=4)
def _offsets(tokenizer: Any) -> TokenOffsets:
    """Return the token offsets of this process: every chunk is tokenised once in it."""
    return TokenOffsets(tokenizer)


def _cut(
    question: Question,
    hits: list[Hit],
    budgets: Sequence[int],
    *,
    tokenizer: Any,
    begin_token: bool,
    match: Any,
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
        person = run.people.get(("generator", name))
        if person is None:
            answers = _ask_object(run, name, questions, first)
        else:
            answers = _ask_model(run, name, questions, first)
            person.note(answers)
        for same_answer, answer in zip(waiting.values(), answers, strict=True):
            for row in same_answer:
                _take_answer(row, answer, person)
        if person is not None:
            _check_servers(run, "generate", first)


def _ask_model(
    run: Run, name: str, questions: Mapping[str, Question], rows: Sequence[Row]
) -> list[Answer]:
    return generate(
        run.experiment.generator[name],
        [questions[row.question_id] for row in rows],
        [row.context for row in rows],
        with_documents=run.experiment.prompt("generator", name),
        ids=[row.place for row in rows],
        cassette=run.cassette,
        **run.options,
    )


def _take_answer(row: Row, answer: Answer, person: Person | None) -> None:
    row.model = answer.generator
    if person is not None:
        row.take(person.facts.row())
    row.take(answer.meta.get("usage", {}), _OF_ANSWER)
    row.take(answer.meta, _OF_ANSWER)
    row.take(answer.meta.get("held", {}), ["num_ctx"])
    row.seconds = answer.seconds
    if answer.failure is not None:
        row.fail("generate", answer.failure)
    else:
        row.answer = answer.text


# -- answers of functions and objects, recorded as replies of models are

_Prompt = tuple[str, str | None]  # a question and its context


def _ask_object(
    run: Run, name: str, questions: Mapping[str, Question], rows: Sequence[Row]
) -> list[Answer]:
    """Return an answer for each row: the recorded one, else one made now; equal prompts once."""
    generator = run.experiment.generator[name]
    prompts: list[_Prompt] = []
    asked = {}
    for row in rows:
        question = questions[row.question_id]
        prompts.append((question.text, row.context))
        asked[prompts[-1]] = question
    tape = _Tape.of(run.cassette, generator)
    answers = tape.recorded(asked) if tape else {}
    waiting = {prompt: question for prompt, question in asked.items() if prompt not in answers}
    for prompt, answer in _answer_now(run, generator, waiting):
        answers[prompt] = answer
        if tape and answer.failure is None:  # a failure is asked again
            tape.record(prompt, answer)
    return [answers[prompt] for prompt in prompts]


def _answer_now(
    run: Run, generator: Any, waiting: Mapping[_Prompt, Question]
) -> Iterator[tuple[_Prompt, Answer]]:
    """Yield prompts with their answers, as these come."""
    work = functools.partial(_answer_one, generator, run.only_recorded)
    contexts = [context for _, context in waiting]
    answers = run.pool.map(work, waiting.values(), contexts, chunksize=_ANSWERS)
    return zip(waiting, answers, strict=True)


def _answer_one(
    generator: Any, only_recorded: bool, question: Question, context: str | None
) -> Answer:
    """Ask an object: a task of an executor. A failure is an answer that says so."""
    failure = Failure("miss", "not recorded")
    if not only_recorded:
        try:
            return generate(generator, [question], [context])[0]
        except Exception as error:
            _end_on_full_disk(error)
            failure = Failure(type(error).__name__, str(error))
    return Answer(question.id, "", generator.name, failure=failure)


@dataclass(frozen=True)
class _Tape:
    """The cassette, for the answers of one function or object."""

    cassette: Cassette
    name: str
    keys: Keys

    @classmethod
    def of(cls, cassette: Cassette | None, generator: Any) -> _Tape | None:
        """Return None without a cassette, and, with a warning, for what cannot be told from another
        one.
        """
        if cassette is None:
            return None
        owner = generator
        if isinstance(generator, SimpleNamespace):  # around a function
            owner = generator.answer
        try:
            who = Keys.canonical(identity(owner))
        except ConfigError as error:
            warnings.warn(
                f"answers of {generator.name!r} are not recorded: {error.got}; {error.do}",
                stacklevel=2,
            )
            return None
        # as a hash: what a function holds may be a secret
        options = {"identity": hashlib.sha256(who.encode()).hexdigest()}
        return cls(cassette, generator.name, Keys("function", generator.name, "", options))

    @staticmethod
    def _messages(prompt: _Prompt) -> list[dict]:
        question, context = prompt
        return [{"question": question, "context": context}]

    def recorded(self, asked: Mapping[_Prompt, Question]) -> dict[_Prompt, Answer]:
        by_key = {self.keys.key(self._messages(prompt)): prompt for prompt in asked}
        answers = {}
        for key, record in self.cassette.get(by_key).items():
            question = asked[by_key[key]]
            answer = Answer(question.id, record["text"], self.name, record["seconds"])
            answers[by_key[key]] = replace(answer, meta={"cached": True})
        if answers:
            warnings.warn(
                f"answers of {self.name!r} are read from {self.cassette.path.name}; if something "
                "behind it changed that is not in its source, give it another model_id",
                stacklevel=2,
            )
        return answers

    def record(self, prompt: _Prompt, answer: Answer) -> None:
        if self.cassette.mode != "record":
            return
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
        messages = self._messages(prompt)
        self.cassette.put(
            self.keys.key(messages),
            self.keys.request(messages),
            record,
            step="generation",
            prompt_id=answer.question_id,
        )


# -- grades


def _grade(run: Run, questions: Mapping[str, Question], rows: Sequence[Row]) -> None:
    """Let models and objects grade; answers of different generators are not shown together."""
    answered = [row for row in rows if row.status == "ok"]
    experiment = run.experiment
    for judge, generator in itertools.product(experiment.judge, experiment.generator):
        place = (judge, generator)
        waiting = [row for row in answered if (row.judge, row.generator) == place]
        person = run.people.get(("judge", judge))
        if person is not None:
            _grade_by_model(run, judge, person, questions, waiting)
            _check_servers(run, "grade", waiting)
        elif not run.only_recorded:
            work = functools.partial(_grade_one, experiment.judge[judge], judge)
            of_rows = [questions[row.question_id] for row in waiting]
            verdicts = run.pool.map(work, of_rows, map(_as_answer, waiting))
            for row, verdict in zip(waiting, verdicts, strict=True):
                _take_grade(row, verdict)


def _grade_one(judge: Any, name: str, question: Question, answer: Answer) -> Grade:
    """Let an object grade one answer: a task of an executor. A failure is a grade that says so."""
    start = time.perf_counter()
    try:
        (verdict,) = grade(judge, [question], [answer])
    except Exception as error:
        return Grade(question.id, None, name, failure=_failure(error))
    return replace(verdict, meta={"seconds": time.perf_counter() - start, **verdict.meta})


def _grade_by_model(
    run: Run, name: str, person: Person, questions: Mapping[str, Question], rows: Sequence[Row]
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
    person.note(verdicts)
    facts = person.facts.row()
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
    scale = [*(row.judge_scale or GRADES)]
    given = verdict.value
    if given in scale and not isinstance(given, bool):
        row.grade = int(given)
        return
    failure = Failure("invalid", f"the judge {row.judge!r} gave no grade")
    if given is None:
        row.judge_raw = verdict.raw or None
        failure = verdict.failure or failure
    else:
        words = f"the judge {row.judge!r} gave {given!r}, none of the grades {scale}"
        failure = Failure("invalid", words)
    row.fail("grade", failure)


def _check_servers(run: Run, step: str, rows: Sequence[Row]) -> None:
    """End the run where the servers have answered nothing so far, or fail too many prompts."""
    lost = [row.error for row in rows if row.error_kind and row.error_kind not in _UNUSABLE]
    prompts = run.prompts
    prompts.update(asked=len(rows), lost=len(lost))
    too_many = prompts["lost"] == prompts["asked"]
    if prompts["asked"] >= _JUDGED_FROM:
        too_many = prompts["lost"] > _STOP_AFTER * prompts["asked"]
    if lost and too_many:
        last = lost[-1].splitlines()[0]
        share = f"{prompts['lost']} of {prompts['asked']}"
        raise ModelError(
            f"{share} prompts failed at the server ({step}); the last: {last}",
            f"at most {_STOP_AFTER:.0%}",
            "see to the server, then run again: recorded replies are not asked for again",
        )


# -- the whole


def _written(run: Run, progress: bool) -> list[Row]:
    """Make the rows and write each block; whatever ends it, the files are closed."""
    files = RunFiles(run.experiment, run.built, run.people)
    files.begin()
    rows: list[Row] = []
    try:
        # an embedder that fails at the chunks ends the run here
        for engine in run.built.retrievers.values():
            for part, _ in inner_searches(engine, ()):
                if hasattr(part, "nearest"):
                    _ = part.vectors  # they are made where they are looked at
        with tqdm(total=files.rows, unit="row", disable=not progress) as bar:
            for block in run.rows():
                files.write(block)
                rows += block
                bar.update(len(block))
    finally:
        files.close()
    return rows


def _alone(experiment: Grid) -> Any:
    try:
        return FileLock(experiment.home / "rows.lock").acquire(timeout=0)
    except Timeout:
        raise ConfigError(
            f"another process is running {experiment.name!r}",
            "one process per run",
            "wait for it, or rename this one",
        ) from None
