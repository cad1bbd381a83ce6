"""Recordings: replies of real models that are shipped, and replayed without a server.

A recording is two files in ``data/recordings/``: the replies, ``NAME.jsonl.gz``, and a manifest,
``NAME.json``, which says who was asked what. ``scripts/ship_recording.py`` asks the model, makes
the two files and checks them. A prompt that no longer has its reply is an error. Rows have no
grade; `with_reference_grades` adds the labels.

A grid that was broken off is shipped as far as it is whole: the first questions of its order. The
order is random, so they are a random sample, except for the shipped evidence grids, which were
asked with the longest prompts first.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock

from ragbench.chunking import semantic_chunks
from ragbench.data import load_minihop
from ragbench.errors import DataError, check_known
from ragbench.experiment import Experiment
from ragbench.experiment.axes import QUERY_ONLY
from ragbench.labelling.grades import GRADE_COLUMNS, grade
from ragbench.llm import Cassette, chat_model
from ragbench.metrics.lexical import contained, exact_match, token_f1
from ragbench.papers import NOT_COMPARABLE, ragchecker, thesis
from ragbench.paths import cache_dir, packaged_data, results_dir, sha256_of, written_whole
from ragbench.records import Answer, Chunk, Dataset, Document, Grade, Hit, Question
from ragbench.retrieval import Gold, llm_decomposer
from ragbench.rows import Row, measure_answers
from ragbench.stats import Interval, ppi_shares
from ragbench.stats.clusters import document_clusters

# of the order in which questions are asked; drawn before any answer was labelled
ORDER_SEED = 20261122
GOLD = "gold documents"
# Conditions of the evidence experiment: what of a two-hop question's evidence is shown.
NEITHER = "neither hop"
FIRST = "first hop"
SECOND = "second hop"
BOTH = "both hops"
EVIDENCE = (NEITHER, FIRST, SECOND, BOTH)
DISTRACTED = tuple(f"{name} and namesakes" for name in EVIDENCE[1:])
ALL_OF_GOLD = 1000  # more tokens than the gold documents of any question have together
FOLDER = "recordings"
WITHOUT_MLQ = tuple(name for name in thesis.RETRIEVER_NAMES if name != "MLQ")
# of its numbers in the ledger
NOTE = f"{NOT_COMPARABLE}: a small model's answers to other questions"


# -- who is asked what


@dataclass
class _Assigned:
    """Finds what a table says: for each query text, ids of documents in their order."""

    chunks: Sequence[Chunk]
    documents: Mapping[str, Sequence[str]]

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Return the documents of each query, the first k."""
        chunks = {chunk.doc_id: chunk for chunk in self.chunks}
        hits = []
        for query in queries:
            first = self.documents[query][:k]
            hits.append(Hit.ranked((chunks[name], 1.0) for name in first))
        return hits


def _whole_documents(documents: Iterable[Document]) -> list[Chunk]:
    """Make one chunk of every document."""
    return [Chunk(d.id, d.text, d.id, d.title) for d in documents]


def _of_thesis(_: Dataset, names: Sequence[str], N: Sequence[int]) -> dict[str, Any]:
    """Return the settings of the thesis's retrievers."""
    every = thesis.retrievers()
    return {
        "chunker": {"semantic": semantic_chunks},
        "retriever": {name: every[name] for name in names},
        "k": {name: thesis.TOP_K[name] for name in names},
        "N": N,
    }


def _with_gold(data: Dataset) -> dict[str, Any]:
    """Return the settings of the thesis's retrievers at N = 300, and of whole gold documents."""
    settings = _of_thesis(data, WITHOUT_MLQ, (0, 300, ALL_OF_GOLD))
    settings["chunker"]["documents"] = _whole_documents
    settings["retriever"][GOLD] = partial(Gold, unit="documents")
    kept = {("none", QUERY_ONLY, 0), ("documents", GOLD, ALL_OF_GOLD)}
    for name in WITHOUT_MLQ:
        kept.add(("semantic", name, 300))
    settings["keep"] = lambda cell: (cell.chunker, cell.retriever, cell.N) in kept
    return settings


def evidence_passages(question: Question, data: Dataset) -> dict[str, list[Document]]:
    """Return the passages of each condition of the evidence experiment (notebook 94).

    A hop is the title of one of the question's two documents and its supporting sentences; a
    namesake is the beginning of another document (``data/minihop/namesakes.json``).
    """
    documents = {document.id: document for document in data.documents}
    sentences: dict[str, set[int]] = {title: set() for title in question.meta["doc_ids"]}
    for title, place in question.meta["supporting_facts"]:
        sentences[title].add(place)
    hops = []
    for title, places in sentences.items():
        hops.append(_passage(documents[title], sorted(places)))
    before, after = [_passage(documents[title], [0, 1]) for title in _namesakes()[question.id]]
    first, second = hops
    return {
        NEITHER: [before, after],
        FIRST: [first],
        SECOND: [second],
        BOTH: hops,
        DISTRACTED[0]: [before, first, after],
        DISTRACTED[1]: [before, second, after],
        DISTRACTED[2]: [before, *hops, after],
    }


@functools.cache
def _namesakes() -> dict[str, list[str]]:
    return json.loads(packaged_data("minihop", "namesakes.json").read_text(encoding="utf-8"))


def _passage(document: Document, places: Sequence[int]) -> Document:
    sentences = [document.sentences[place].strip() for place in places]
    text = " ".join([f"{document.title}.", *sentences])
    numbers = ",".join(map(str, places))
    return Document(f"{document.id}#{numbers}", document.title, text)


def _of_evidence(data: Dataset, conditions: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the evidence experiment: a condition is a retriever that finds what is
    assigned.
    """
    documents: dict[str, Document] = {}
    assigned: dict[str, dict[str, list[str]]] = {name: {} for name in conditions}
    for question in data.questions:
        for name, passages in evidence_passages(question, data).items():
            for passage in passages:
                documents[passage.id] = passage
            if name in conditions:
                assigned[name][question.text] = [passage.id for passage in passages]
    return {
        "data": {"minihop": replace(data, documents=tuple(documents.values()))},
        "chunker": {"documents": _whole_documents},
        "retriever": {name: partial(_Assigned, documents=assigned[name]) for name in conditions},
        "k": 4,
        "N": (0, ALL_OF_GOLD),
    }


def _two_hops() -> list[Question]:
    ordered = load_minihop().shuffled(ORDER_SEED)
    return [question for question in ordered if len(question.meta["doc_ids"]) == 2]


@dataclass(frozen=True)
class _RecordedGrid:
    """One grid of a recording: how many questions of an order, and the settings of its Experiment
    for a data set of them.
    """

    questions: int
    settings: Callable[[Dataset], dict[str, Any]]
    order: Callable[[], list[Question]] = lambda: load_minihop().shuffled(ORDER_SEED)
    decomposes: bool = False  # the model derives MLQ's questions; it answers none
    # each is asked under its name; none: the thesis's
    prompts: Mapping[str, str] = field(default_factory=dict)


_BM25 = partial(_of_thesis, names=["BM25"])
_MLQ = partial(_of_thesis, names=["MLQ"])
GRIDS = {
    "retrievers": _RecordedGrid(180, _with_gold),
    # the published N
    "thesis": _RecordedGrid(60, partial(_of_thesis, names=WITHOUT_MLQ, N=(0, 1000))),
    "budgets": _RecordedGrid(100, partial(_BM25, N=(0, *thesis.CUTOFFS))),
    "evidence": _RecordedGrid(100, partial(_of_evidence, conditions=EVIDENCE), _two_hops),
    "distracted": _RecordedGrid(100, partial(_of_evidence, conditions=DISTRACTED), _two_hops),
    "probes": _RecordedGrid(80, partial(_BM25, N=(0, 300)), lambda: load_minihop(probes=True).shuffled(ORDER_SEED)),
    "mlq": _RecordedGrid(60, partial(_MLQ, N=(300, 1000))),
    "decompositions": _RecordedGrid(180, partial(_MLQ, N=thesis.CUTOFFS), decomposes=True),
    "prompts": _RecordedGrid(50, partial(_BM25, N=(1000,)), prompts=ragchecker.ANSWER_PROMPTS),
}


@dataclass(frozen=True)
class _Recording:
    """Who is recorded: a name for ``chat_model`` and its options, and the grids in the order of
    asking.

    A model file without a folder lies in ``data/cache/models``; a replay does not need it.
    """

    model: str
    licence: str  # of the weights
    options: Mapping[str, Any]
    grids: tuple[str, ...]

    def chat_model(self, **options: Any) -> Any:
        """Return the model; it starts no server before its first call."""
        provider, _, file = self.model.partition(":")
        name = f"gguf:{cache_dir('models') / file}" if provider == "gguf" else self.model
        return chat_model(name, **{**self.options, **options})


_QWEN = _Recording(
    "gguf:Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
    "Apache-2.0",
    {
        "num_ctx": 2048,
        "num_predict": 128,
        "digest": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    },
    ("retrievers", "evidence", "distracted", "probes", "thesis", "mlq"),
)
RECORDINGS = {
    # The prompts ask for one sentence, and 128 tokens hold one; what goes on after that is mostly a
    # loop.
    "smollm2": _Recording(
        "smollm2",
        "Apache-2.0",
        {"num_ctx": 2048, "num_predict": 128},
        # "budgets" has N = 1000 for BM25
        ("retrievers", "budgets", "evidence", "distracted", "probes", "decompositions"),
    ),
    "qwen": _QWEN,
    # RAGChecker's prompts do not ask for one sentence.
    "qwen_prompts": replace(_QWEN, options={**_QWEN.options, "num_predict": 512}, grids=("prompts",)),
}

# What a recorded model is called in tables, figures and sentences. The full name is said once, where
# a notebook names its data, and in the conditions of the ledger.
SHORT_NAMES = {"qwen": "Qwen", "smollm2": "SmolLM2"}
FULL_NAMES = {"qwen": "Qwen2.5-Coder-1.5B", "smollm2": "SmolLM2-135M"}


def grid_experiment(name: str, grid: str, questions: Sequence[str] | None = None, **settings: Any) -> Experiment:
    """Build the experiment of one grid (of `GRIDS`) of one recording (of `RECORDINGS`).

    ``questions``: ids of those to ask; default all that the grid plans. ``settings``: of
    ``Experiment``, such as ``cassette``, ``judge``, ``folder``, or another ``generator``.
    """
    check_known("grid", [grid], GRIDS)
    plan = GRIDS[grid]
    planned = plan.order()[: plan.questions]
    if questions is not None:
        planned = [question for question in planned if question.id in questions]
    data = replace(load_minihop(), questions=tuple(planned))
    options = {
        "data": {"minihop": data},
        "match": "exact",
        "concurrency": 1,
        "generator": {name: _recording(name).chat_model()},
        **plan.settings(data),
        **settings,
    }
    (model,) = options["generator"].values()
    if plan.prompts:
        options["generator"] = dict.fromkeys(plan.prompts, model)
        options["prompts"] = dict(plan.prompts)
    if plan.decomposes:
        del options["generator"]
        decompose = llm_decomposer(
            model,
            concurrency=1,
            on_length="keep",  # a list of questions that ended by length is still a list
            cassette=options.get("cassette"),
        )
        options["retriever"] = {"MLQ": partial(options["retriever"]["MLQ"], decompose=decompose)}
    return Experiment(f"{name}-{grid}", **options)


def _recording(name: str) -> _Recording:
    check_known("recording", [name], RECORDINGS)
    return RECORDINGS[name]


# -- what is shipped


def manifest(name: str, folder: Path | None = None) -> dict[str, Any]:
    """Return the manifest of a recording; ``folder`` instead of ``data/recordings``."""
    _recording(name)
    return json.loads(_file(f"{name}.json", folder).read_text(encoding="utf-8"))


def _file(name: str, folder: Path | None) -> Path:
    return packaged_data(FOLDER, name) if folder is None else folder / name


def replay(recording: str | Path, folder: Path | None = None) -> Cassette:
    """Open a recording, or a shipped file of replies, in replay mode, imported once into the cache.

    DataError when a recording is not its manifest's.
    """
    file = Path(recording)
    expected = ""
    command = ""
    if isinstance(recording, str):
        facts = manifest(recording, folder)["file"]
        file = _file(facts["name"], folder)
        expected = facts["sha256"]
        command = f"python scripts/ship_recording.py {recording} --record"
    sha256 = sha256_of(file)
    if expected and sha256 != expected:
        raise DataError(
            f"{file.name} has sha256 {sha256}",
            f"{expected}, as {recording}.json says",
            "restore both files",
        )
    stem, _, _ = file.name.partition(".")
    kept = cache_dir(FOLDER) / f"{stem}-{sha256[:16]}.sqlite"
    with FileLock(f"{kept}.lock"):  # an open file is not replaced by another process
        if not kept.exists():
            with written_whole(kept) as part, Cassette(part) as cassette:
                cassette.import_(file)
    return Cassette(kept, "replay", command=command)


def recorded_grades(questions: Sequence[Question], answers: Sequence[Answer]) -> list[Grade]:
    """Return Qwen's grades of answers to MiniHop: its replies to the thesis's grading prompt, one
    answer a prompt.

    Recorded are all answers that have a reference grade; another one is a CallError.
    """
    judge = _recording("qwen").chat_model()
    with replay(packaged_data(FOLDER, "qwen_grades.jsonl.gz")) as cassette:
        return grade(judge, questions, answers, cassette=cassette, progress=False)


def rows(name: str, grid: str) -> pd.DataFrame:
    """Return the replayed rows of the questions that a recording covers of a grid; no answer has a
    grade.

    Several processes may replay one grid at once: each waits for the one before it. A prompt
    without a recorded reply is a CallError. Another model is asked by
    ``grid_experiment(name, grid, generator={"mine": model}).run()``.
    """
    facts = manifest(name)
    covered = facts["grids"][grid]["questions"]
    if not covered:
        return Row.frame([])
    folder = results_dir(FOLDER, f"{name}-{grid}-{facts['file']['sha256'][:8]}")
    # notebooks that run side by side replay the same grid into the same folder
    with FileLock(f"{folder}.lock"), replay(name) as cassette:
        experiment = grid_experiment(name, grid, covered, folder=folder, cassette=cassette)
        return experiment.run(progress=False)


def evidence_rows() -> pd.DataFrame:
    """Return the replayed rows of the evidence experiment, for the questions that all its models
    cover in full.

    Column condition: "question alone", or one of `EVIDENCE` and `DISTRACTED`; each question once a
    model and condition.
    """
    parts = []
    for name in ("smollm2", "qwen"):
        for grid in ("evidence", "distracted"):
            part = rows(name, grid)
            if len(part):
                parts.append(part)
    covered_by_all = set.intersection(*(set(part["question_id"]) for part in parts))
    joined = pd.concat(parts, ignore_index=True)
    joined["condition"] = joined["retriever"].replace(QUERY_ONLY, "question alone")
    joined = joined.drop_duplicates(["model", "question_id", "condition"])
    joined = joined[joined["question_id"].isin(covered_by_all)]
    return joined.reset_index(drop=True)


# -- the thesis's own data

_HOTPOTQA_NOTE = "another model and grader than the paper's"  # of its numbers in the ledger
STRING_METRICS = {"exact_match": exact_match, "token_f1": token_f1, "contained": contained}
YES_OR_NO = {"exact_match": "boolean", "contained": "boolean"}


def _hotpotqa_rows() -> pd.DataFrame:
    """Return Qwen's recorded answers to 200 questions of HotpotQA, the thesis's data; no data set
    is needed.

    One row a question, retriever and N: BM25 at eleven N, the other retrievers at N = 1000, "LLM
    only" at N = 0.
    """
    questions = _hotpotqa("questions.jsonl").rename(columns={"answer": "reference"})
    labels = _hotpotqa("grades.jsonl")[["question_id", "answer", "grade"]]
    # seconds were measured for many prompts together
    rows = _hotpotqa("answers.jsonl.gz").drop(columns="seconds")
    rows = rows.merge(questions, on="question_id", how="left")
    rows = rows.merge(labels, on=["question_id", "answer"], how="left")
    rows = rows.assign(status="ok", data="hotpotqa")
    # At an N outside the plan some texts have a label from another one: those cells would be a
    # choice.
    counts = rows.groupby(["retriever", "N"])["grade"].transform("count")
    rows["grade"] = rows["grade"].where(counts == counts.max())
    text = packaged_data("hotpotqa", "answers.json").read_text(encoding="utf-8")
    rows["model"] = json.loads(text)["model"]
    return rows.astype({"grade": "Int64", "model_grade": "Int64", **YES_OR_NO})


def _hotpotqa(name: str) -> pd.DataFrame:
    return pd.read_json(packaged_data("hotpotqa", name), lines=True, dtype={"question_id": str, "answer": str})


def thesis_rows(
    table: str,
    model: str | Mapping[str, Any] | None = None,
    judge: str | Mapping[str, Any] | None = None,
    cassette: Any = None,
    *,
    data: str = "auto",
    limit: int | None = None,
    corpus: str | Path | None = None,
    profile: str = "merged",
    prompt: str | Path | None = None,
    decomposition: str | Path = "decomposition",
    grading: str | Path | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Return the answers behind Table 3.2 or 3.3: Qwen's recorded ones to HotpotQA, or those of a
    model asked now.

    Parameters
    ----------
    model, judge, cassette : as for `ragbench.papers.thesis.Models`; without ``model`` nothing is
        asked.
    data, limit : of a live run: a name in `ragbench.papers.thesis.DATA`, and the first so many
        questions.
    corpus, profile : of a live run, as for `ragbench.papers.thesis.searched`.
    prompt : of a live run: a file of the prompt with documents; None: the thesis's.
    decomposition, grading : of a live run, as for `ragbench.papers.thesis.Models`.
    settings : of a live run, for `ragbench.Experiment`: ``tokenizer`` (a file); ``per_prompt``,
        answers that the judge sees at once, by default one; ``order``, the seed of their places.
        The thesis: "ten" (Table 3.2), "systems" (Table 3.3), None; small models then grade by
        place.

    Columns: question_id, question, reference, kind, cluster (questions that share a supporting
    document), retriever, N, answer, model, prompt_tokens, output_tokens, finish, ir_score,
    exact_match, token_f1, contained, model_grade (Qwen's own), grade (the reference label, for the
    first 60 questions of the order), status. ``attrs``: "data", "decomposer", "generator", "graded"
    (who graded), "note": as the ledger has them.
    """
    check_known("table", [table], ("Table 3.2", "Table 3.3"))
    if model is not None:
        models = thesis.Models(model, judge, cassette, decomposition, grading)
        dataset, cut = thesis.searched(data, corpus=corpus, profile=profile)
        dataset = replace(dataset, questions=dataset.questions[:limit])
        settings = {"per_prompt": "one", "chunker": {profile: cut}, **settings}
        if prompt:
            settings["prompts"] = {models.names["generator"]: prompt}
        return _live_thesis_rows(table, models, dataset, settings)
    rows = _hotpotqa_rows()
    kept = {
        "Table 3.2": rows["retriever"].isin([QUERY_ONLY, "BM25"]),
        "Table 3.3": rows["N"].isin([0, 1000]),
    }
    rows = rows[kept[table]].reset_index(drop=True)
    model = rows["model"].iloc[0]
    rows.attrs = {
        "data": f"hotpotqa ({rows['question_id'].nunique()} questions)",
        "decomposer": model,
        "generator": model,
        "graded": "reference labels",
        "note": _HOTPOTQA_NOTE,
    }
    return rows


def _live_thesis_rows(table: str, models: thesis.Models, dataset: Dataset, settings: Mapping[str, Any]) -> pd.DataFrame:
    rows = thesis.experiment(table, dataset, models, **settings).run(progress=False)
    rows["cluster"] = rows["question_id"].map(document_clusters(dataset))
    for name, metric in STRING_METRICS.items():
        rows[name] = measure_answers(rows, metric)
    rows = rows.astype(YES_OR_NO)
    names = models.names
    words = [dataset.meta["setting"], f"{len(dataset.questions)} questions"]
    if settings.get("tokenizer"):
        words.append(f"tokens of {Path(settings['tokenizer']).name}")
    rows.attrs = {
        "data": f"{dataset.name} ({', '.join(words)})",
        "decomposer": names["decomposer"],
        "generator": names["generator"],
        "graded": f"judge {names['judge']}",
        "note": note_of_data(dataset),
    }
    return rows


def note_of_data(dataset: Dataset) -> str | None:
    """Return the ledger's note of a live run of the thesis: questions that are not HotpotQA's do
    not compare.
    """
    if dataset.name == "hotpotqa":
        return None
    return f"{NOT_COMPARABLE}: questions of {dataset.name}"


def _shares(rows: pd.DataFrame, values: np.ndarray, of: np.ndarray | None = None) -> list[Interval]:
    """Return the means of columns of rows that all have their label, over clusters; below five of
    them there is no interval.
    """
    clusters = rows["cluster"].nunique()
    if clusters < 5:
        counted = len(rows) if of is None else of.sum()
        means = values.sum(axis=0) / counted
        return [Interval(mean, np.nan, np.nan, len(rows), clusters=clusters) for mean in means]
    no_judge = np.zeros_like(values)
    one_stratum = np.zeros(len(rows))
    return ppi_shares(values, no_judge, one_stratum, of=of, cluster=rows["cluster"], weight=0)


def grade_intervals(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the shares of the five grades with intervals over clusters, for rows of which each has
    its label.

    Columns: ``by``, grade ("grade 1" ...), share, low, high, n.
    ``rows`` need the columns grade and cluster. The interval is that of `ragbench.stats.ppi_shares`
    without a judge.
    """
    intervals = []
    for name, part in rows.groupby(by, sort=False):
        is_grade = part["grade"].to_numpy(int)[:, None] == np.arange(1, 6)
        shares = _shares(part, is_grade.astype(float))
        for column, share in zip(GRADE_COLUMNS, shares, strict=True):
            bounds = (share.estimate, share.low, share.high)
            intervals.append((name, column, *bounds, len(part)))
    return pd.DataFrame(intervals, columns=[by, "grade", "share", "low", "high", "n"])


def grade_difference(rows: pd.DataFrame, grades: Sequence[int], plus: pd.Series, minus: pd.Series) -> Interval:
    """Return the difference of the share of some grades between two sets of rows, paired by
    cluster.

    ``plus`` and ``minus`` say which rows are on either side. The interval is a jackknife over
    clusters, with Student's t; its ``p`` is the p-value.
    """
    kept = rows[plus | minus]
    in_plus = plus[kept.index]
    in_minus = minus[kept.index]
    sign = in_plus.astype(int) - in_minus.astype(int)
    has_grade = kept["grade"].isin(grades)
    values = (sign * has_grade).to_numpy(float)
    (difference,) = _shares(kept, values[:, None], of=(sign > 0).to_numpy())
    return difference


# -- reference labels

# In the order of their plans in docs/preregistration/minihop.md: an answer that two of them have
# keeps its first label.
_LABEL_FILES = ("model", "evidence", "probe", "alone", "thesis", "budget", "mlq")


def every_label() -> pd.DataFrame:
    """Return every reference grade of the recorded answers to MiniHop, as its plan drew it.

    Columns: question_id, answer, grade, second_grade, inclusion_probability, file.
    """
    columns = ["question_id", "answer", "grade", "second_grade", "inclusion_probability"]
    folder = packaged_data("minihop", "labels", "answers")
    parts = []
    for name in _LABEL_FILES:
        labels = pd.read_json(folder / f"{name}_answers.jsonl", lines=True)
        parts.append(labels.reindex(columns=columns).assign(file=name))
    return pd.concat(parts, ignore_index=True)


def with_reference_grades(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the reference grade of each answer as ``grade``: the first label of each;
    none where it was not labelled.
    """
    pair = ["question_id", "answer"]
    first_labels = every_label().drop_duplicates(pair)
    joined = rows.drop(columns="grade").merge(first_labels[[*pair, "grade"]], on=pair, how="left")
    return joined.astype({"grade": "Int64"})
