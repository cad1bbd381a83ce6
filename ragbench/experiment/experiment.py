"""What one does with a grid: plan it, run it, take its answers."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import pandas as pd

from ragbench.experiment.grid import Grid
from ragbench.experiment.plan import plan_experiment
from ragbench.experiment.run import answers_of, run_experiment
from ragbench.llm import Plan


class Experiment(Grid):
    """A grid of data x chunker x retriever x k x N x generator x judge; one row per question and cell.

    ``data``, ``chunker``, ``retriever``, ``generator`` and ``judge`` take what an experiment.yaml has: names of what
    ships (``retriever=["BM25", "SIM"]``), or a dict label -> name, ``{"use": NAME, option: value}`` or object.

    Parameters
    ----------
    name : of the run; its files lie in ``data/results/<name>/``, or in ``folder``.
    data : label -> Dataset, or a function that loads one. A single Dataset goes by its own name.
    chunker : label -> function documents -> chunks.
    retriever : label -> function chunks -> retriever (anything with ``search(queries, k)``).
    k : chunks asked for: an int, several, or a dict retriever -> int, or label -> (dict retriever -> int).
    N : token budgets. N = 0 asks the generator without documents, once per question, as retriever "LLM only".
    generator : label -> reader, function (question, context) -> answer, chat model, ``"ollama:NAME"``, or a list of
        one model on several hosts. Empty: retrieval only.
    judge : label -> ``EmbeddedGrader()``, or a chat model as above. Empty: answers without grades.
    prompts : generator -> id or file of its prompt with documents (fields ``{query}``, ``{documents}``), for chat
        models; one that is not named takes the thesis's. One model under two names is two prompts compared.
    keep : function of a ``Cell``: which cells of the product there are. None: all.
    per_prompt, order, max_chars : answers a judge model sees at once, as in ``ragbench.grade``.
    tokenizer, begin_token, match : how contexts are cut and scored, as in ``ir_score_table``.
    cassette : where replies of models are recorded; default a file beside the rows. False: nowhere.
    concurrency : questions under way at once per host. Keep 1 to measure seconds as the thesis did.
    options : for ``ragbench.llm.ask``: ``retries``, ``deadline_s``, ``patience_s`` ...
    until : ends the run when it is decided, such as ``"BM25 > SIM in fully_right by 0.95 or within 0.05"``; see
        `ragbench.experiment.until`. Then no test for a fixed number of questions holds for its rows.
    truncated : of an answer that ended at its limit of tokens, which is counted either way. ``"score"``: it is graded
        like any other, as in the papers; ``"unscored"``: it gets no grade.
    metrics, labels, checker : for `ragbench.score`, which the command ``ragbench run`` calls after the run.
    embedder, reranker : of the retrievers and chunkers that name none themselves.

    Raises ConfigError for an axis that cannot work.

    Examples
    --------
    >>> Experiment(
    ...     "first look",
    ...     data="minihop",
    ...     chunker={"100 tokens": {"use": "token_chunks", "size": 100}},
    ...     retriever=["BM25", "SIM"],
    ...     N=(0, 100, 1000),
    ...     generator="extractive",
    ...     judge="embedded",
    ... ).run()  # doctest: +SKIP
    """

    def plan(self, until: str | None = None, **speeds: Any) -> Plan:
        """Say what `run` will take, by step; see `ragbench.experiment.plan.plan_experiment`."""
        return plan_experiment(self, until, **speeds)

    def run(self, executor: Executor | None = None, progress: bool = True, until: str | None = None) -> pd.DataFrame:
        """Run the grid and return its rows; see `ragbench.experiment.run.run_experiment`."""
        return run_experiment(self, executor, progress, until)

    @staticmethod
    def answers(rows: pd.DataFrame) -> pd.DataFrame:
        """Add the columns ``system`` and ``chunks`` to rows; see `ragbench.experiment.run.answers_of`."""
        return answers_of(rows)
