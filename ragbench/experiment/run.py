"""A run is a loop: search, cut at every N, score, answer, grade; rows are appended block by block
of questions.

What costs money or hours is remembered where it is made: replies of models on the cassette, vectors
in the cache. A run that broke off is started again; there is nothing else to resume.
"""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from ragbench.data.relevance import judgements
from ragbench.embedding import NotOnDiskError, only_from_disk
from ragbench.errors import ConfigError, ModelError
from ragbench.experiment import manifest as manifests
from ragbench.experiment.axes import NONE, is_model
from ragbench.experiment.grid import AXES, Cell, Grid
from ragbench.experiment.plan import plan_experiment
from ragbench.experiment.rows import (
    AXIS_COLUMNS,
    REPLY_COLUMNS,
    answers_of,
    as_frame,
    no_room,
    without_text,
    write_rows,
)
from ragbench.generation import PROMPTS, generate
from ragbench.labelling.grades import GRADES, PROMPT, grade, grade_bound
from ragbench.llm import Cassette, Plan
from ragbench.llm.endpoints import ModelFacts, model_facts, window
from ragbench.llm.models import BOUNDS
from ragbench.llm.reply import CUT_SHORT
from ragbench.metrics.ir_score import MATCHES, ir_score_table
from ragbench.onnx_models import cores
from ragbench.prompts import prompt_hash
from ragbench.records import Answer, Dataset, Hit, Question
from ragbench.retrieval.base import check_retriever
from ragbench.retrieval.multiquery import dense_searches, model_calls
from ragbench.text.tokens import TokenOffsets, joined_cutoffs

BLOCK = 500  # questions whose rows are written together
BLOCK_OF_ANSWERS = 200  # the same where models answer or grade, in answers
TASK = 50  # questions that an executor is given at once
LEFT_OUT = "truncated answer"  # kind of a row without a grade, unlike a judge's own truncated reply
STOP_AFTER = 0.5  # share of prompts failed by the servers, above which a run ends
_JUDGED_FROM = 20  # prompts, before that share counts
# With these the model has done its part badly; with all others it is the server that failed.
_UNUSABLE = {LEFT_OUT, "truncated", "unusable", "invalid", "digest", "miss"}
_WITHOUT_DOCUMENTS = {
    0: {"ir_score": None, "context_tokens": 0, "hits": [], "retrieved": [], "context": None}
}

Row = dict[str, Any]
Search = tuple[str, str, int]  # chunker, retriever, k


@dataclass
class _Run:
    """An experiment and what is built for it once:

    data, retrievers, objects that answer or grade, chat models.
    """

    experiment: Grid
    cassette: Cassette | None
    progress: bool = False
    on_miss: str = "raise"
    data: dict[str, Dataset] = field(default_factory=dict)
    retrievers: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    generators: dict[str, Any] = field(default_factory=dict)  # chat models
    judges: dict[str, Any] = field(default_factory=dict)
    own_generators: dict[str, Any] = field(default_factory=dict)  # objects with ``answer``
    own_judges: dict[str, Any] = field(default_factory=dict)  # objects with ``grade_all``
    models: dict[tuple[str, str], ModelFacts] = field(default_factory=dict)  # by axis and name
    # for the manifest
    facts: dict[str, dict[str, Any]] = field(default_factory=lambda: {axis: {} for axis in AXES})
    servers: Counter[str] = field(default_factory=Counter)  # prompts asked, and lost at the servers
    environment: dict[str, Any] = field(default_factory=manifests.environment)

    def options(self) -> dict[str, Any]:
        """Return the options of `ragbench.llm.ask`."""
        asked = {
            "concurrency": self.experiment.concurrency,
            "progress": self.progress,
            **self.experiment.options,
        }
        return asked | {"cassette": self.cassette, "on_miss": self.on_miss}


def _set_up(experiment: Grid, cassette: Cassette | None, progress: bool = False) -> _Run:
    """Load the data, cut the documents, build the retrievers, and ask the servers of the models who
    they are.
    """
    run = _Run(experiment, cassette, progress)
    models = {"generator": run.generators, "judge": run.judges}
    own = {"generator": run.own_generators, "judge": run.own_judges}
    for axis in models:
        for name, value in getattr(experiment, axis).items():
            if is_model(value):
                models[axis][name] = value
                bound = (
                    BOUNDS["text"] if axis == "generator" else grade_bound(experiment.per_prompt)
                )
                facts = run.models[axis, name] = model_facts(value, cassette, num_predict=bound)
                run.facts[axis][name] = facts.to_dict()
            else:
                own[axis][name] = value
                run.facts[axis][name] = manifests.describe(value)
    for name, value in experiment.data.items():
        data = run.data[name] = value if isinstance(value, Dataset) else value()
        if not isinstance(data, Dataset) or not data.questions:
            what = "no questions" if isinstance(data, Dataset) else type(data).__name__
            raise ConfigError(
                f"data {name!r} gives {what}", "a Dataset with questions", "check its loader"
            )
        if repeated := len(data.questions) - len({question.id for question in data.questions}):
            raise ConfigError(
                f"data {name!r} has {repeated} repeated ids", "each question once", "rename them"
            )
        run.facts["data"][name] = manifests.describe(data)
        searches = [cell.search[:2] for cell in experiment.cells(name) if cell.N]
        chunks = {
            chunker: list(experiment.chunker[chunker](data.documents)) for chunker in dict(searches)
        }
        run.facts["chunker"] |= {
            f"{name}/{chunker}": manifests.describe(made) for chunker, made in chunks.items()
        }
        for chunker, retriever in dict.fromkeys(searches):
            built = check_retriever(experiment.retriever[retriever](chunks[chunker]))
            run.retrievers[name, chunker, retriever] = built
            run.facts["retriever"][f"{name}/{chunker}/{retriever}"] = manifests.describe(built)
            for dense, _ in dense_searches(built, ()):
                _ = dense.vectors  # an embedder that fails at the chunks ends the run here
    return run


def _blocks(run: _Run, data: Dataset, cells: Sequence[Cell]) -> list[Sequence[Question]]:
    asked = sum(cell.generator in run.generators or cell.judge in run.judges for cell in cells)
    size = max(1, BLOCK_OF_ANSWERS // asked) if asked else BLOCK
    return [data.questions[start : start + size] for start in range(0, len(data.questions), size)]


# -- search, cut and score
# ---------------------------------------------------------------------------------------------


def _retrieve(
    run: _Run, data: str, cells: Sequence[Cell], questions: Sequence[Question], pool: Executor
) -> list[Row]:
    """Search for a block of questions, each search once, and let the executor make their rows."""
    hits = {
        search: _search(run.retrievers[data, *search[:2]], questions, search[2])
        for search in dict.fromkeys(cell.search for cell in cells if cell.N)
    }
    cut = (run.experiment.tokenizer, run.experiment.begin_token, run.experiment.match)
    parts = [slice(start, start + TASK) for start in range(0, len(questions), TASK)]
    tasks = ((questions[p], {search: found[p] for search, found in hits.items()}) for p in parts)
    work = functools.partial(
        _rows_of, cells=tuple(cells), cut=cut, generators=run.own_generators, judges=run.own_judges
    )
    return [row for of_task in pool.map(work, *zip(*tasks, strict=True)) for row in of_task]


def _search(engine: Any, questions: Sequence[Question], k: int) -> list[list[Hit] | Exception]:
    """Return hits by question, or the error of one whose search fails:

    the others are searched without it.
    """
    try:
        return list(engine.search([question.text for question in questions], k))
    except Exception as error:
        _full_disk(error)
        if len(questions) == 1:
            return [error]
        return [_search(engine, [question], k)[0] for question in questions]


def _rows_of(
    questions: Sequence[Question],
    hits: Mapping[Search, Sequence[list[Hit] | Exception]],
    *,
    cells: Sequence[Cell],
    cut: tuple[Any, bool, str],
    generators: Mapping[str, Any],
    judges: Mapping[str, Any],
) -> list[Row]:
    """Make the rows of some questions with all that needs no model server: a task of an executor.

    ``hits`` : by search, those of each question. ``cut`` : tokenizer of N, whether its begin token
    counts, match.
    """
    budgets = {
        search: sorted({cell.N for cell in cells if cell.search == search}) for search in hits
    }
    rows = []
    for place, question in enumerate(questions):
        about = {
            "kind": question.kind,
            "level": question.level,
            "topic": question.meta.get("topic"),
        }
        about |= {
            "question": question.text,
            "reference": question.answer,
            "references": list(question.references),
        }
        contexts = {
            search: _contexts(question, found[place], budgets[search], cut)
            for search, found in hits.items()
        }
        answers: dict[tuple, Row] = {}
        for cell in cells:
            axes = (cell.data, question.id, *cell.answer, cell.judge)
            row: Row = dict(zip(AXIS_COLUMNS, axes, strict=True)) | {"status": "ok", **about}
            rows.append(row)
            of_search = contexts[cell.search] if cell.N else _WITHOUT_DOCUMENTS
            if isinstance(of_search, Exception):
                _fail(row, "retrieve", of_search)
                continue
            row |= of_search[cell.N]
            if cell.generator in generators:
                if cell.answer not in answers:
                    own = generators[cell.generator]
                    answers[cell.answer] = _answer_here(
                        own, cell.generator, question, row["context"]
                    )
                row |= answers[cell.answer]
                if cell.judge in judges and row["status"] == "ok":
                    _grade_here(row, cell.judge, judges[cell.judge], question)
            elif cell.generator == NONE and budgets[cell.search][-1] > cell.N:
                # Nobody reads it, and it is the beginning of the largest one.
                row |= {"context": None, "chunk_ends": None}
    return rows


@functools.lru_cache(maxsize=4)
def _offsets(tokenizer: Any) -> TokenOffsets:
    """Return the token offsets of this process: every chunk is tokenised once in it."""
    return TokenOffsets(tokenizer)


def _contexts(
    question: Question,
    hits: list[Hit] | Exception,
    budgets: Sequence[int],
    cut: tuple[Any, bool, str],
) -> dict[int, Row] | Exception:
    """Cut the joined hits at every N and score all contexts in one pass;

    return by N what a row says of its context.
    """
    if isinstance(hits, Exception):
        return hits
    offsets, begin_token, match = _offsets(cut[0]), *cut[1:]
    try:
        texts = [hit.chunk.text for hit in hits]
        joined = " ".join(texts)
        ends = joined_cutoffs(texts, budgets, offsets, begin_token)
        references = [list(question.references)]
        scores = ir_score_table(
            references, [joined], budgets, match=match, positions=ends[None, :], threads=1
        )[0]
        most = offsets.joined_ends(texts, max(budgets)).size
    except Exception as error:
        return error
    about = {
        "hits": [hit.chunk.id for hit in hits],
        "zero_hits": sum(hit.score == 0 for hit in hits),
    }
    about["retrieved"] = [hit.chunk.doc_id for hit in hits]
    # one space stands between two chunks
    starts = [0, *accumulate(len(text) + 1 for text in texts)]
    rows = {}
    for n, end, score in zip(budgets, ends.tolist(), scores.tolist(), strict=True):
        tokens = int(min(max(n - 1, 0) if begin_token else n, most))
        chunk_ends = [min(after - 1, end) for start, after in pairwise(starts) if start < end]
        rows[n] = about | {"ir_score": score, "context_tokens": tokens}
        rows[n] |= {"context": joined[:end], "chunk_ends": chunk_ends}
    return rows


# -- answer and grade
# --------------------------------------------------------------------------------------------------


def _answer_here(generator: Any, name: str, question: Question, context: str | None) -> Row:
    try:
        answer = generate(generator, [question], [context])[0]
    except Exception as error:
        answer = Answer(question.id, "", name, meta={"error": f"{type(error).__name__}: {error}"})
    return _answered(answer) | {"model": generator.name}


def _answered(answer: Answer) -> Row:
    """Return what a row says of its answer, or of the failure to get one."""
    row: Row = {"seconds": answer.seconds}
    if error := answer.meta.get("error"):
        kind, _, message = error.partition(": ")
        _fail(row, "generate", kind, message)
        return row
    return row | {"answer": answer.text}


def _fail(row: Row, step: str, error: BaseException | str, message: str = "") -> None:
    """Mark a row as failed; a full disk is none of the question's, and ends the run."""
    if isinstance(error, BaseException):
        _full_disk(error)
        error, message = getattr(error, "kind", type(error).__name__), str(error)
    row |= {"status": "failed", "error_step": step, "error_kind": error, "error": message}


def _full_disk(error: BaseException) -> None:
    if isinstance(error, OSError) and error.errno in (28, 27, 122):  # ENOSPC, EFBIG, EDQUOT
        raise no_room(error.filename or "a file", error.strerror) from None


def _grade_here(row: Row, name: str, judge: Any, question: Question) -> None:
    """Let an object that is no chat model grade the answer of a row."""
    start = time.perf_counter()
    try:
        given = judge.grade_all([question], [Answer(question.id, row["answer"], row["generator"])])[
            0
        ]
    except Exception as error:
        _fail(row, "grade", error)
        return
    if given.value is None:
        _fail(row, "grade", given.meta["error"], given.meta["detail"])
    elif (
        isinstance(given.value, bool)
        or not hasattr(given.value, "__index__")
        or given.value not in GRADES
    ):
        got = (
            f"the judge {name!r} gave {given.value!r}, not a grade from {min(GRADES)} to "
            f"{max(GRADES)}"
        )
        _fail(row, "grade", "invalid", got)
        return
    row |= {
        "grade": given.value,
        "judge_model": given.judge,
        "judge_seconds": time.perf_counter() - start,
    }


def _answer(run: _Run, questions: Sequence[Question], rows: Sequence[Row]) -> None:
    """Let the models answer, once for rows that differ in their judge alone."""
    known = {question.id: question for question in questions}
    drop_cut = run.experiment.truncated == "unscored"
    for name, model in run.generators.items():
        waiting: dict[tuple, list[Row]] = {}
        for row in rows:
            if row["generator"] == name and row["status"] == "ok":
                waiting.setdefault(tuple(row[axis] for axis in AXIS_COLUMNS[:-1]), []).append(row)
        groups = list(waiting.values())
        firsts = [group[0] for group in waiting.values()]
        ids = ["/".join(str(row[axis]) for axis in AXIS_COLUMNS[1:6]) for row in firsts]
        prompt = run.experiment.prompts.get(name, PROMPTS["with_documents"])
        asked = [known[row["question_id"]] for row in firsts]
        contexts = [row["context"] for row in firsts]
        answers = generate(
            model, asked, contexts, **run.options() | {"ids": ids, "with_documents": prompt}
        )
        for group, answer in zip(groups, answers, strict=True):
            about = {"tagged": None} | answer.meta["usage"] | answer.meta
            answered = _answered(answer) | run.models["generator", name].row()
            answered |= {column: about[column] for column in ("prompt_sha256", *REPLY_COLUMNS)}
            for row in group:
                row |= answered
                if drop_cut and row.get("finish") in CUT_SHORT and row["judge"] != NONE:
                    why = "the answer ended at its limit of tokens; truncated='score' has it graded"
                    _fail(row, "grade", LEFT_OUT, why)
                elif row["judge"] in run.own_judges and row["status"] == "ok":
                    _grade_here(
                        row, row["judge"], run.own_judges[row["judge"]], known[row["question_id"]]
                    )
        _count(run, "generate", firsts)


def _grade(run: _Run, questions: Sequence[Question], rows: Sequence[Row]) -> None:
    """Let the judge models grade; answers of different generators are not shown together."""
    shown = {name: getattr(run.experiment, name) for name in ("per_prompt", "order", "max_chars")}
    for name, judge in run.judges.items():
        facts = {f"judge_{key}": value for key, value in run.models["judge", name].row().items()}
        facts["judge_prompt_sha256"] = prompt_hash(PROMPT)
        for generator in run.experiment.generator:
            ungraded = [
                r
                for r in rows
                if (r["judge"], r["generator"]) == (name, generator) and r["status"] == "ok"
            ]
            answers = []
            for row in ungraded:
                place = {
                    "retriever": f"{row['chunker']}/{row['retriever']}/{row['k']}",
                    "budget": row["N"],
                }
                answers.append(Answer(row["question_id"], row["answer"], generator, meta=place))
            for row, given in zip(
                ungraded, grade(judge, questions, answers, **shown, **run.options()), strict=True
            ):
                about = given.meta
                used = given.meta["usage"]
                row |= {
                    f"judge_{key}": about[key] for key in ("shown", "position", "repairs", "form")
                }
                row |= facts | {"grade": given.value, "judge_seconds": about["seconds"]}
                row |= {
                    "judge_answer_cut": about["cut"],
                    "judge_prompt_estimate": about["prompt_estimate"],
                }
                # A sum over the calls: of no use where one of them was not counted.
                row["judge_prompt_tokens"] = None if used["uncounted"] else used["prompt_tokens"]
                if given.value is None:
                    row["judge_raw"] = given.raw
                    _fail(row, "grade", about["error"], about["detail"])
            _count(run, "grade", ungraded)


def _count(run: _Run, step: str, asked: Sequence[Row]) -> None:
    """End the run where the servers have answered nothing so far, or fail too many prompts."""
    lost = [row["error"] for row in asked if row.get("error_kind") not in (None, *_UNUSABLE)]
    run.servers += Counter(asked=len(asked), lost=len(lost))
    sent = run.servers["asked"]
    if lost and run.servers["lost"] > (STOP_AFTER * sent if sent >= _JUDGED_FROM else sent - 1):
        counts = f"{run.servers['lost']} of {sent} prompts failed at the server ({step})"
        do = "see to the server, then run again: recorded replies are not asked for again"
        raise ModelError(
            f"{counts}; the last: {lost[-1].splitlines()[0]}", f"at most {STOP_AFTER:.0%}", do
        )


# -- what a plan counts
# ------------------------------------------------------------------------------------------------


def _recorded_calls(experiment: Grid) -> Counter[tuple[str, str, str]] | None:
    """Count the calls of a run that are recorded under its own keys, by data set, axis and model.

    Rows are made as the run makes them, from the cassette alone. None where that would ask a model
    or an object of the user's, or needs vectors that are not on disk.
    """
    with experiment.open_cassette(make=False) as tape, contextlib.ExitStack() as stack:
        if tape is None or tape.mode == "off":
            return Counter()
        if tape.mode == "record":
            tape = stack.enter_context(Cassette(tape.path, "replay", digest=tape.digest))
        stack.enter_context(only_from_disk())
        pool = stack.enter_context(ThreadPoolExecutor(cores()))
        try:
            run = _set_up(experiment, tape)
        except NotOnDiskError:
            return None
        run.on_miss = "reply"
        asking = any(list(model_calls(engine)) for engine in run.retrievers.values())
        if tape.mode != "replay" or run.own_generators or run.own_judges or asking:
            return None
        calls: Counter[tuple[str, str, str]] = Counter()
        for name, data in run.data.items():
            rows = _retrieve(run, name, experiment.cells(name), data.questions, pool)
            if any(row.get("error_kind") == NotOnDiskError.__name__ for row in rows):
                return None
            _answer(run, data.questions, rows)
            _grade(run, data.questions, rows)
            calls += _answered_calls(name, rows)
    return calls


def _answered_calls(data: str, rows: Sequence[Row]) -> Counter[tuple[str, str, str]]:
    """Count the calls behind rows: one an answer, and one for the answers that share a grading."""
    answered = [row for row in rows if row.get("cached")]
    prompts = {tuple(row[axis] for axis in AXIS_COLUMNS[:-1]) for row in answered}
    calls = Counter((data, "generator", prompt[-1]) for prompt in prompts)
    shares: Counter[str] = Counter()
    for row in answered:
        if row.get("grade") is not None:
            shares[row["judge"]] += 1 / row["judge_shown"]
    return calls + Counter({(data, "judge", judge): round(n) for judge, n in shares.items()})


# -- manifest and texts
# ------------------------------------------------------------------------------------------------


def _write_manifest(run: _Run, runs: Sequence[Mapping[str, Any]]) -> None:
    experiment = run.experiment
    prompts = {PROMPT} if run.judges else set()
    for name in run.generators:
        prompts |= {experiment.prompts.get(name, PROMPTS["with_documents"]), PROMPTS["query_only"]}
    options = {
        name: value
        for name, value in experiment.options.items()
        if isinstance(value, bool | int | float | str)
    }
    names = ("per_prompt", "order", "max_chars", "begin_token", "match", "concurrency", "truncated")
    parameters = {name: getattr(experiment, name) for name in names} | {
        "options": options,
        "N": list(experiment.N),
    }
    parameters |= {"k": {name: list(values) for name, values in experiment.k.items()}}
    tokenizer = (
        "all-MiniLM-L6-v2 WordPiece" if experiment.tokenizer is None else experiment.tokenizer
    )
    named = (
        tokenizer
        if isinstance(tokenizer, str)
        else getattr(tokenizer, "__name__", type(tokenizer).__name__)
    )
    parameters |= {"tokenizer": named, "form": MATCHES[experiment.match][1]}
    seeds = {f"{axis}/{name}": facts.row()["seed"] for (axis, name), facts in run.models.items()}
    secrets = tuple(
        sorted({s for facts in run.models.values() for s in facts.secrets}, key=len, reverse=True)
    )
    manifest = {
        "format": manifests.FORMAT,
        "name": experiment.name,
        "axes": run.facts,
        "grid": {axis: list(getattr(experiment, axis)) for axis in AXES},
        "chunkers": {name: manifests.describe(cut) for name, cut in experiment.chunker.items()},
        "parameters": parameters,
        "prompts": {str(prompt).rpartition("/")[2]: prompt_hash(prompt) for prompt in prompts},
        "seeds": seeds | {"order": experiment.order},
        "runs": runs,
    }
    manifests.write_manifest(experiment.home, manifest | run.environment, secrets)


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
    retriever (anything with
        ``search(queries, k)``).
    k : chunks asked for: an int, several, or a dict retriever -> int, or label -> (dict retriever
    -> int).
    N : token budgets. N = 0 asks the generator without documents, once per question, as retriever
    "LLM only".
    generator : a chat model's name (``"ollama:llama3:8b"``, ``"smollm2"``), or label -> name, chat
    model, function (question, context) -> answer, or object with ``answer``,
        such as a pipeline of your own. None: retrieval only.
    judge : the same for grades; an object of your own has ``grade_all``. None: answers without
    grades.
    prompts : generator -> id or file of its prompt with documents (fields ``{query}``,
    ``{documents}``), for chat
        models; one that is not named takes the thesis's. One model under two names is two prompts
        compared.
    keep : function of a ``Cell``: which cells of the product there are. None: all.
    per_prompt, order, max_chars : answers a judge model sees at once, as in ``ragbench.grade``.
    tokenizer, begin_token, match : how contexts are cut and scored, as in ``ir_score_table``.
    cassette : where replies of models are recorded; default a file beside the rows. False: nowhere.
    concurrency : calls under way at once. Default: 1 for Ollama and GGUF files, else 4.
    options : for ``ragbench.llm.ask``: ``retries``, ``deadline_s``, ``patience_s`` ...
    truncated : an answer that ended at its limit of tokens is counted either way. ``"score"``: it
    is graded like any
        other, as in the papers; ``"unscored"``: it gets no grade.
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
        or stopped by Ctrl-C, is started again and soon where it was. The file of rows grows block
        by block, and holds those of this grid alone. A failure of one question is a row with
        ``status`` "failed".

        Parameters
        ----------
        executor : any ``concurrent.futures`` executor for what computes: threads (default), a
        process pool, dask's
            ``client.get_executor()``. Calls to models are made from this process, whatever the
            executor.
        progress : show a bar.

        Raises ConfigError, DataError or ModelError for what stops the whole run: no server of a
        model, too many prompts failed by the servers, two processes on one run, a full disk.
        """
        with _alone(self), self.open_cassette() as cassette:
            run = _set_up(self, cassette, progress)
            executor_name = type(executor).__name__ if executor else "threads"
            entry = {"began": manifests.now(), "ended": None, "executor": executor_name}
            rows: list[Row] = []
            total = sum(
                len(data.questions) * len(self.cells(name)) for name, data in run.data.items()
            )
            runs = manifests.earlier_runs(self.home)
            _write_manifest(run, [*runs, entry | {"rows": total}])
            pool = executor or ThreadPoolExecutor(cores(), thread_name_prefix="ragbench")
            try:
                with tqdm(total=total, unit="row", disable=not progress) as bar:
                    for name, data in run.data.items():
                        cells = self.cells(name)
                        relevant = judgements(data)
                        for questions in _blocks(run, data, cells):
                            block = _retrieve(run, name, cells, questions, pool)
                            for row in block:
                                row["relevant"] = relevant.get(row["question_id"])
                            _answer(run, questions, block)
                            _grade(run, questions, block)
                            write_rows(self.path, block, first=not rows)
                            rows += block
                            bar.update(len(block))
            finally:
                if cassette is None or cassette.mode != "replay":
                    for (
                        axis,
                        name,
                    ), facts in run.models.items():  # what the servers made of num_ctx
                        used = window(getattr(self, axis)[name])
                        run.facts[axis][name]["num_ctx"] = min(
                            filter(None, (used, facts.num_ctx)), default=None
                        )
                if executor is None:
                    pool.shutdown(wait=False, cancel_futures=True)
                failed = Counter(row["error_kind"] for row in rows if row["status"] == "failed")
                entry |= {"ended": manifests.now(), "rows_made": len(rows), "failed": dict(failed)}
                _write_manifest(run, [*runs, entry | {"rows": total}])
        frame = as_frame(rows)
        for warning in without_text(frame):
            warnings.warn(warning, stacklevel=2)  # shown at the line that called run()
        return frame
