"""From rows of a run to RAGChecker's metrics, with any way of labelling claims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.diagnosis.grid import Setting
from ragbench.errors import unknown
from ragbench.records import Chunk, Question

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.data.ragchecker import RagResult
    from ragbench.experiment import Experiment
    from ragbench.labelling.claims import Labelled
    from ragbench.llm import Plan

CLAIMS = ("references", "answers")
RETRIEVER = ("claim_recall", "context_precision")
NOISE = ("relevant_noise_sensitivity", "irrelevant_noise_sensitivity")


class Contained:
    """A checker that needs no judgement: a claim is entailed by a text it stands in, white space aside."""

    def check_many(self, claims: Sequence[str], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text: Entailment or Neutral, shape (n_claims, n_texts)."""
        plain, found = [_spaced(text) for text in texts], [_spaced(claim) for claim in claims]
        return [["Entailment" if claim and claim in text else "Neutral" for text in plain] for claim in found]


@functools.lru_cache(maxsize=65536)
def _spaced(text: str) -> str:
    return " ".join(text.split())


def scores(
    experiment: Experiment,
    rows: pd.DataFrame,
    label: Callable[[list[RagResult]], Labelled],
    claims: str = "references",
) -> pd.DataFrame:
    """Score every row of a run with RAGChecker's metrics.

    Parameters
    ----------
    experiment : what `grid` built. rows : what it gave.
    label : extracts and checks claims: ``lambda r: embedded_labels(r, Contained())``, or with a model
        ``lambda r: ragchecker_labels(model, r, cassette=...)``.
    claims : ``"references"``: the retriever's half (claim recall, context precision): a question's references are the
        claims, responses are left out;
        ``"answers"``: claims of the true answer (MiniHop's own where there are any) and of the response.

    Returns
    -------
    DataFrame, one row per row of the run: question_id, kind, domain, cluster (the same number for questions that
    documents tie together), retriever, k, size, overlap, prompt,
    context_tokens, the eleven metrics and noise_sensitivity (the sum of the two kinds), in [0, 1]; NaN where a metric
    is undefined, the row failed or its labels could not be read.

    Source: RAGChecker, section 3.3.
    """
    import pandas as pd

    from ragbench.metrics.claims import METRICS, claim_metrics_table

    results = _results(experiment, rows, claims)
    questions = {q.id: q for data in experiment.grid.data.values() for q in data.questions}
    table = claim_metrics_table(label(results).scored.results)[list(METRICS)]
    table = table.reindex(rows["key"]).reset_index(drop=True)
    if claims == "references":
        table.loc[:, ~table.columns.isin(RETRIEVER)] = float("nan")  # of responses that were left out
    table["noise_sensitivity"] = table[list(NOISE)].sum(axis=1, skipna=False)
    where = [Setting.of(*at) for at in zip(rows["chunker"], rows["k"], rows["generator"], strict=True)]
    place = pd.DataFrame(
        {
            "question_id": rows["question_id"],
            "kind": rows["kind"],
            "domain": [questions[i].meta.get("domain", "") for i in rows["question_id"]],
            "cluster": rows["question_id"].map(_clusters(experiment)),
            "retriever": rows["retriever"],
            "k": [s.k for s in where],
            "size": [s.size for s in where],
            "overlap": [s.overlap for s in where],
            "prompt": rows["generator"].replace("none", "default"),
            "context_tokens": rows["context_tokens"],
        }
    )
    return place.reset_index(drop=True).join(table)


def plan(
    experiment: Experiment,
    checker: Any = None,
    *,
    claims: str = "answers",
    joint: int | None = 5,
    claims_per_text: int = 10,
    cassette: Any = None,
    **speeds: Any,
) -> Plan:
    """Count every call of a run and of its labels, before anything is asked.

    Parameters
    ----------
    experiment : what `grid` built. checker : the model that will take out and check claims; None: the run alone.
    claims : as for `scores`. joint : claims per prompt, as for ``ragchecker_labels``.
    claims_per_text : claims to reckon with in a text that has not been taken apart yet.
    cassette : a Cassette with the checker's replies so far. speeds : for ``ragbench.llm.plan``.

    Returns
    -------
    Plan with the steps of ``Experiment.plan`` and, with a checker, those of ``steps_for_ragchecker``. The chunks are
    those that the retrievers find; answers that are not written yet count as different from each other.
    """
    from ragbench.labelling.claims import steps_for_ragchecker
    from ragbench.llm import plan as plan_steps

    def labels(rows: pd.DataFrame) -> Plan:
        rows = rows.assign(answer=rows.get("answer", rows["answer_key"]))
        rows["answer"] = rows["answer"].fillna(rows["answer_key"])  # stands for an answer to come
        steps = steps_for_ragchecker(_results(experiment, rows, claims), joint=joint, claims_per_text=claims_per_text)
        return plan_steps(steps, checker, cassette, **speeds)

    return experiment.plan(after=None if checker is None else labels, **speeds)


def _results(experiment: Experiment, rows: pd.DataFrame, claims: str) -> list[RagResult]:
    """Turn the rows that did not fail into records whose claims can be checked."""
    if claims not in CLAIMS:
        raise unknown("kind of claims", claims, CLAIMS)
    sets = experiment.grid.data.values()
    questions = {q.id: q for data in sets for q in data.questions}
    made = {name: {c.id: c for data in sets for c in cut(data.documents)}
            for name, cut in experiment.grid.chunker.items()}  # fmt: skip
    good = rows[rows["status"] == "ok"]
    return [result(questions[row.question_id], row, made[row.chunker], claims) for row in good.itertuples()]


def _clusters(experiment: Experiment) -> dict[str, int]:
    """Number the clusters of questions that documents tie together: what one document is like, moves them all."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ties: list[tuple[int, int]] = []
    names: dict[Any, int] = {}
    places: dict[str, int] = {}
    for data in experiment.grid.data.values():
        known = {document.id for document in data.documents}
        for question in data.questions:
            places[question.id] = here = names.setdefault(("question", question.id), len(names))
            own = known.intersection(question.meta.get("doc_ids", ())) or {question.meta.get("topic")} - {None}
            ties += [(here, names.setdefault(("document", name), len(names))) for name in own]
    a, b = np.array(ties, int).reshape(-1, 2).T
    labels = connected_components(coo_array((np.ones(len(a)), (a, b)), (len(names), len(names))), directed=False)[1]
    return {name: int(labels[place]) for name, place in places.items()}


def result(question: Question, row: Any, chunks: Mapping[str, Chunk], claims: str) -> RagResult:
    """Turn one row of a run into a record whose claims can be checked; arguments as in `scores`."""
    from ragbench.data.ragchecker import RagResult, RetrievedText

    found = tuple(RetrievedText(text=chunks[name].text, doc_id=chunks[name].doc_id) for name in row.hits)
    if claims == "references":
        own, reference, response = question.references, "\n".join(question.references), ""
    else:
        given = question.meta.get("claims")
        own = tuple(claim["text"] for claim in given) if given else None
        reference, response = question.meta.get("long_answer") or question.answer, row.answer
    return RagResult(
        row.key, question.text, reference, response, found,
        response_claims=() if claims == "references" else None, reference_claims=own,
    )  # fmt: skip


def reachable(experiment: Experiment) -> pd.DataFrame:
    """Say for every question and chunker which share of the references stands in one chunk, wherever it is.

    An edge that cuts a reference in two puts it out of reach of `Contained`, whatever is retrieved: this is the most
    that claim recall can be. Overlap mends such cuts.

    Returns
    -------
    DataFrame: question_id, size, overlap, reachable (NaN without references).
    """
    import pandas as pd

    made = []
    for data in experiment.grid.data.values():
        wanted = {q.id: [_spaced(r) for r in q.references] for q in data.questions}
        for name, cut in experiment.grid.chunker.items():
            # One text with a separator that no reference has: one search per reference.
            text = "\0".join(_spaced(c.text) for c in cut(data.documents))
            there = {r: r in text for r in {r for some in wanted.values() for r in some}}
            at = Setting.of(name)
            for question, some in wanted.items():
                share = sum(there[r] for r in some) / len(some) if some else float("nan")
                made.append((question, at.size, at.overlap, share))
    return pd.DataFrame(made, columns=["question_id", "size", "overlap", "reachable"])
