"""The thesis's experiment (El Yagouby 2024, §2.5 and §3): its published settings, as an
`Experiment`.

BM25 keeps 5 chunks and MLQ 5 of the union over its sub-questions; SIM, MMR and REO take 10 from
MiniLM's vectors. The IR score is that of the published run (the longest common substring, Eq 2.2).
What the thesis ran stands in its author's repository (`SOURCE`); where the text says something
else, notebooks 10 to 13 say so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.chunking import semantic_chunks
from ragbench.data import load_dataset, load_hotpotqa, load_minihop
from ragbench.data.files import read_jsonl
from ragbench.data.hotpotqa import OFFICIAL_NAME, find_hotpotqa
from ragbench.data.thesis import load_thesis_chunks, load_thesis_documents
from ragbench.errors import ConfigError, NotHereError, check_known
from ragbench.experiment import Experiment
from ragbench.paths import packaged_data
from ragbench.prompts import Prompt
from ragbench.records import Dataset

SOURCE = "github.com/amine-elyagouby/RAG-Evaluation-Framework, commit a98a083"
H, K = 0.105, 0.670  # the published thresholds (§3.3)


def _load_all_of_hotpotqa(limit: int | None = None) -> Dataset:
    """Load the 7,404 questions of the thesis, which the official file has."""
    file = find_hotpotqa()
    if file is None or file.name != OFFICIAL_NAME:
        raise NotHereError(
            "the whole dev set of HotpotQA is not on this machine",
            f"{OFFICIAL_NAME} in RAGBENCH_DATA/hotpotqa, or in the cache",
            'run `ragbench data fetch hotpotqa` (47 MB), or take "hotpotqa", the subset',
        )
    return load_hotpotqa(file, limit)


# For `ragbench.data.load_dataset`. A limited HotpotQA has only the paragraphs of its questions:
# retrieval is easier.
DATA: Mapping[str, Callable[..., Dataset]] = {
    "hotpotqa": load_hotpotqa,
    "minihop": load_minihop,
    "hotpotqa_all": _load_all_of_hotpotqa,
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "BM25": {"variant": "terrier"},
    "SIM": {},
    "MMR": {"fetch_k": 20, "lambda_mult": 0.5},
    "MLQ": {"k_each": 10, "keep": 5},
    "REO": {},
}
RETRIEVER_NAMES = tuple(SETTINGS)
TOP_K: Mapping[str, int] = {"BM25": 5, "SIM": 10, "MMR": 10, "MLQ": 5, "REO": 10}
CUTOFFS = tuple(range(100, 1001, 100))
_AS_GRADED = ("BM25", "SIM", "MMR", "REO", "MLQ")  # in the judge's prompt (`gpt_eval.py`)
# What each table sets apart from `SETTINGS`; all but the first have a generator and a judge.
TABLES: Mapping[str, Mapping[str, Any]] = {
    "Table 3.1": {"N": CUTOFFS},
    "Table 3.2": {"retrievers": ("BM25",), "N": (0, *CUTOFFS), "per_prompt": "ten"},
    "Table 3.3": {"N": (0, 1000), "per_prompt": "systems", "retrievers": _AS_GRADED},
}


def searched(
    name: str = "auto",
    limit: int | None = None,
    corpus: str | Path | None = None,
    profile: str = "merged",
) -> tuple[Dataset, Callable[..., Any]]:
    """Load a data set of `DATA` with what is searched for its questions, and what cuts that.

    ``corpus``: None (the thesis: 100,000 pages) takes the paragraphs of the questions; a folder
    takes its ``corpus_100k.json``, the author's or one that notebook 10 wrote, and the chunks in
    ``corpus_chunks.json``, where it is there. ``profile``: of `semantic_chunks`; the thesis ran
    "as_run".
    """
    cut = partial(semantic_chunks, profile=profile)
    data = load_dataset(name, DATA, limit=limit)
    if corpus is None:
        return data, cut
    pages = load_thesis_documents(corpus)
    meta = {**data.meta, "setting": f"{len(pages):,} pages"}
    data = replace(data, documents=pages, meta=meta)
    try:
        chunks = load_thesis_chunks(corpus)
    except NotHereError:
        return data, cut
    return data, lambda _: chunks


class RecordedSubQuestions:
    """question -> the sub-questions that a model wrote for it when it was asked; for `MultiQuery`.

    The questions are those of MiniHop and of HotpotQA's 1,886. No model is asked; ConfigError for
    another question.
    """

    def __call__(self, question: str) -> list[str]:
        """Return the sub-questions; an empty list where the model wrote none."""
        recorded = _sub_questions()
        if question not in recorded:
            raise ConfigError(
                f"MLQ has no recorded sub-questions for {question!r}",
                "a question of MiniHop or of HotpotQA's subset, or a model that writes them",
                "pass decompose=rb.retrieval.llm_decomposer(model), or leave MLQ out",
            )
        return list(recorded[question]["sub_questions"])

    def settings(self) -> dict[str, Any]:
        """Return who wrote the sub-questions, for the rows."""
        return {"decomposer": self.model_name}

    @property
    def model_name(self) -> str:
        """Who wrote them."""
        return ", ".join(sorted({row["model"] for row in _sub_questions().values()}))


@functools.cache
def _sub_questions() -> dict[str, dict[str, Any]]:
    """Return the recorded rows by the question's text."""
    recorded = {}
    for file in (
        packaged_data("minihop", "sub_questions.jsonl"),
        packaged_data("hotpotqa", "sub_questions.jsonl.gz"),
    ):
        for _, row in read_jsonl(file):
            recorded[row["question"]] = row
    return recorded


def retrievers(
    decompose: Callable[[str], Sequence[str]] | None = None, embedder: Any = None
) -> dict[str, Callable[[Sequence[Any]], Any]]:
    """Return what builds each of the five retrievers from chunks; the dense ones share an index
    (§2.5.3).

    ``decompose`` makes sub-questions for MLQ; default `RecordedSubQuestions`. ``embedder`` is
    MiniLM by default.
    """
    from ragbench.retrieval import make_retriever

    build = {}
    for name, settings in SETTINGS.items():
        options = {**settings}
        if name != "BM25":
            options["embedder"] = embedder
        if name == "MLQ":
            options["decompose"] = decompose or RecordedSubQuestions()
        build[name] = partial(make_retriever, name, **options)
    return build


class Models:
    """The models of a live run of the thesis, and the cassette (or None) that they use.

    ``model``, such as ``"ollama:llama3:8b"`` or ``{"use": "ollama:llama3:8b", "num_predict":
    200}``, decomposes MLQ's questions and answers; ``judge`` (the thesis: GPT-4o) grades, by
    default the same one. ``recording``: a file that records the calls. ``decomposition``: the
    prompt of `ragbench.retrieval.llm_decomposer`; ``grading``: that of `ragbench.grade`, None for
    Figure 2.5's. ``options``: of `ragbench.llm.chat_model`.

    Source: thesis §2.5.3 (MLQ asks a language model for its queries), §2.4 (answers and grades);
    "multiquery_released" and "thesis_grade_as_run" have the method of the published run.
    """

    def __init__(
        self,
        model: str | Mapping[str, Any],
        judge: str | Mapping[str, Any] | None = None,
        recording: Any = None,
        decomposition: Prompt = "decomposition",
        grading: Prompt | None = None,
        **options: Any,
    ) -> None:
        from ragbench.llm import Cassette, chat_model
        from ragbench.retrieval import llm_decomposer

        self.recording = None
        if recording is not None:
            self.recording = Cassette(recording)
        self.generator = chat_model(model, **options)
        self.judge = chat_model(judge or model, **options)
        self.grading = grading
        self.decompose = llm_decomposer(self.generator, decomposition, self.recording)

    @property
    def names(self) -> dict[str, str]:
        """The models by part: the names that stand in rows and in the ledger.

        A judge with a grading prompt of its own is named with it: rows and ledger tell its grades
        from those by another prompt, also where the same model answers.
        """
        from ragbench.llm import model_name

        judge = model_name(self.judge)
        if self.grading:
            judge += f" ({Path(self.grading).stem})"
        return {
            "decomposer": model_name(self.decompose.model),
            "generator": model_name(self.generator),
            "judge": judge,
        }

    def __str__(self) -> str:
        return ", ".join(f"{part} {name}" for part, name in self.names.items())


def experiment(
    table: str, data: Dataset, models: Models | None = None, **options: Any
) -> Experiment:
    """Set up the run behind a table of the thesis.

    "Table 3.1" is retrieval only, "Table 3.2" BM25 at eleven budgets, "Table 3.3" six systems
    (Figures 3.1 and 3.2 count its rows too); N = 0 asks without documents, as "LLM only". Without
    ``models`` it is retrieval only and needs no model. ``options`` are for
    `Experiment`, in place of what the table sets; ``prompts`` join the models' own.

    Source: thesis §2.4, §2.5.3, §3.1, §3.2.
    """
    check_known("table", [table], TABLES)
    settings = dict(TABLES[table])
    wanted = settings.pop("retrievers", RETRIEVER_NAMES)
    build = retrievers(models and models.decompose)
    settings |= {
        "match": "exact",
        "chunker": {"merged": semantic_chunks},
        "retriever": {name: build[name] for name in wanted},
        "k": {name: TOP_K[name] for name in wanted},
        "cassette": models and models.recording,
    }
    if models and table != "Table 3.1":
        settings["generator"] = {models.names["generator"]: models.generator}
        settings["judge"] = {models.names["judge"]: models.judge}
        prompts = {models.names["judge"]: models.grading} if models.grading else {}
        options["prompts"] = prompts | options.get("prompts", {})
    name = f"thesis_{table.lower().replace(' ', '_')}_{data.name}"
    return Experiment(**{"name": name, "data": {data.name: data}, **settings, **options})


def reaching(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows that the published means of Table 3.1 are over: at N those questions whose own
    retrieved text has more than N - 100 tokens, the begin token counted.

    ``rows`` are of `experiment` with the same N for every question, the largest above the length of
    any text. Figures 3.1 and 3.2, h and k are over all questions.

    Source: the notebook of the thesis's repository, in which the scores of a text end at the first
    N that holds all of it.
    """
    own = rows.groupby(["question_id", "chunker", "retriever", "k"])["context_tokens"]
    return rows[own.transform("max") + 1 > rows["N"] - 100]


def steps(questions: int = 7404, retrievers: int = 5, budgets: int = 10) -> dict[str, int]:
    """Count the calls of the thesis's grid by step, for `ragbench.llm.plan`; the judge sees all N
    at once.

    Source: thesis, section 3.2.1: 7,404 x 5 = 37,020 and 7,404 + 10 x 7,404 x 5 = 377,604.

    >>> steps()
    {'grading': 37020, 'generation': 377604}
    """
    return {
        "grading": questions * retrievers,
        "generation": questions + budgets * questions * retrievers,
    }
