"""The thesis's experiment (El Yagouby 2024, §2.5 and §3): its published settings, as an `Experiment`.

BM25 keeps 5 chunks and MLQ 5 of the union over its sub-questions; SIM, MMR and REO take 10 from MiniLM's vectors. The
IR score is that of the published run (the longest common substring, Eq 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragbench.data import load_hotpotqa, load_minihop
from ragbench.errors import check_known
from ragbench.experiment import Experiment
from ragbench.papers import NOT_COMPARABLE
from ragbench.records import Dataset

# For `ragbench.data.load_dataset`. A limited HotpotQA has only the paragraphs of its questions: retrieval is easier.
DATA: Mapping[str, Callable[..., Dataset]] = {"hotpotqa": load_hotpotqa, "minihop": load_minihop}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "BM25": {"variant": "terrier"},
    "SIM": {},
    "MMR": {"fetch_k": 20, "lambda_mult": 0.5},
    "MLQ": {"k_each": 10, "keep": 5},
    "REO": {},
}
RETRIEVERS = tuple(SETTINGS)
TOP_K: Mapping[str, int] = {"BM25": 5, "SIM": 10, "MMR": 10, "MLQ": 5, "REO": 10}
CUTOFFS = tuple(range(100, 1001, 100))
# What each table sets apart from `SETTINGS`; all but the first have a generator and a judge.
TABLES: Mapping[str, Mapping[str, Any]] = {
    "Table 3.1": {"N": CUTOFFS},
    "Table 3.2": {"retrievers": ("BM25",), "N": (0, *CUTOFFS), "per_prompt": "ten"},
    "Table 3.3": {"N": (0, 1000), "per_prompt": "systems"},
}


def retrievers(
    decompose: Callable[[str], Sequence[str]] | None = None, embedder: Any = None
) -> dict[str, Callable[[Sequence[Any]], Any]]:
    """Return what builds each of the five retrievers from chunks; the dense ones share an index (§2.5.3).

    ``decompose`` makes sub-questions for MLQ; default rules, no language model. ``embedder`` is MiniLM by default.
    """
    from ragbench.retrieval import make_retriever, rule_decomposer

    build = {}
    for name, settings in SETTINGS.items():
        more = {} if name == "BM25" else {"embedder": embedder}
        more |= {"decompose": decompose or rule_decomposer} if name == "MLQ" else {}
        build[name] = partial(make_retriever, name, **settings, **more)
    return build


@dataclass(frozen=True, slots=True)
class Models:
    """Everything in a run of the thesis that may be a language model, and the cassette (or None) they use."""

    decompose: Any  # question -> sub-questions, for MLQ
    generator: Any
    judge: Any
    recording: Any

    @property
    def names(self) -> dict[str, str]:
        """Who took part, by part: the names that stand in rows and in the ledger."""
        from ragbench.llm import model_name

        model = getattr(self.decompose, "model", None)
        decomposer = self.decompose.settings()["decomposer"] if model is None else model_name(model)
        return {"decomposer": decomposer, "generator": model_name(self.generator), "judge": model_name(self.judge)}

    def note(self, *parts: str) -> str | None:
        """Return the ledger's note of numbers that these parts made: not comparable where one is no language model."""
        names = {part: self.names[part] for part in parts}
        rules = [f"{p} {name}" for p, name in names.items() if "no LLM" in name or name.startswith("embedded")]
        return f"{NOT_COMPARABLE}: {', '.join(rules)}" if rules else None

    def __str__(self) -> str:
        return ", ".join(f"{part} {name}" for part, name in self.names.items())


def models(
    model: str | Mapping[str, Any] | None = None,
    judge_model: str | Mapping[str, Any] | None = None,
    recording: Any = None,
    **options: Any,
) -> Models:
    """Return all that take part in a run.

    ``model``, such as ``"ollama:llama3:8b"`` or ``{"use": "ollama:llama3:8b", "num_predict": 200}``, decomposes MLQ's
    questions, answers and grades; None: rules, the extractive reader and the embedded grader. ``judge_model``: another
    chat model for the grades (the thesis: GPT-4o), or ``"embedded"``; None: ``model``. ``recording``: a file that
    records the calls of all three. ``options``: of `ragbench.llm.chat_model`.

    Source: thesis §2.5.3 (MLQ asks a language model for its queries), §2.4 (answers and grades).
    """
    from ragbench.experiment import make_generator, make_judge
    from ragbench.llm import Cassette
    from ragbench.retrieval import llm_decomposer, rule_decomposer

    tape = None if recording is None else Cassette(recording)
    generator = make_generator(model, **options) if model else make_generator()
    graded_by = judge_model or model or "embedded"
    judge = make_judge() if graded_by == "embedded" else make_judge(graded_by, **options)
    return Models(llm_decomposer(generator, cassette=tape) if model else rule_decomposer, generator, judge, tape)


def experiment(table: str, data: Dataset, who: Models | None = None, **options: Any) -> Experiment:
    """Set up the run behind a table of the thesis.

    "Table 3.1" is retrieval only, "Table 3.2" BM25 at eleven budgets, "Table 3.3" six systems (Figures 3.1 and 3.2
    count its rows too); N = 0 asks without documents, as "LLM only". Without ``who``, from `models`, no language model
    takes part. ``options`` are for `Experiment`, in place of what the table sets.

    Source: thesis §2.4, §2.5.3, §3.1, §3.2.
    """
    from ragbench.chunking import semantic_chunks

    check_known("table", [table], TABLES)
    who = who or models()
    settings = dict(TABLES[table])
    wanted = settings.pop("retrievers", RETRIEVERS)
    build = retrievers(who.decompose)
    tape = False if who.recording is None else who.recording
    settings |= {"match": "exact", "cassette": tape, "chunker": {"as run": semantic_chunks}}
    settings |= {"retriever": {name: build[name] for name in wanted}}
    settings |= {"k": {name: TOP_K[name] for name in wanted}}
    if table != "Table 3.1":
        settings |= {"generator": {who.names["generator"]: who.generator}, "judge": {who.names["judge"]: who.judge}}
    name = f"thesis_{table.lower().replace(' ', '_')}_{data.name}"
    return Experiment(**{"name": name, "data": {data.name: data}, **settings, **options})


def steps(questions: int = 7404, retrievers: int = 5, budgets: int = 10) -> dict[str, int]:
    """Count the calls of the thesis's grid by step, for `ragbench.llm.plan`; the judge sees all N at once.

    Source: thesis, section 3.2.1: 7,404 x 5 = 37,020 and 7,404 + 10 x 7,404 x 5 = 377,604.

    >>> steps()
    {'grading': 37020, 'generation': 377604}
    """
    return {"grading": questions * retrievers, "generation": questions + budgets * questions * retrievers}
