"""Concordance: the same answers scored by the metrics of all four papers; ``agreement`` says how far these agree.

Cases (an answer with its question and context, from the rows of an `Experiment`) -> `Labels` (claims, verdicts, grades:
embedded, or by a model) -> `score_table` (a row per answer, a column per metric).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from langchain_core.embeddings import Embeddings

from ragbench.data.ragchecker import RagResult, RetrievedText
from ragbench.embedding import default_embedder
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.claims import embedded_labels, ragchecker_labels, steps_for_ragchecker
from ragbench.labelling.embedded_checker import EmbeddedChecker, split_claims
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.labelling.embedded_judge import EmbeddedJudge
from ragbench.labelling.embedded_ragas import EmbeddedRagas
from ragbench.labelling.grades import grade, grading_prompts
from ragbench.labelling.keypoints import embedded_keypoint_verdicts, keypoint_verdicts, steps_for_keypoints
from ragbench.labelling.statements import ModelRagas, steps_for_ragas
from ragbench.llm import Step
from ragbench.metrics.claims import COUNTS, LOWER_IS_BETTER, ClaimLabels, claim_metrics_table
from ragbench.metrics.claims import METRICS as CLAIM_METRICS
from ragbench.metrics.cutoffs import as_offsets, joined_cutoffs
from ragbench.metrics.ir_score import ir_score_table
from ragbench.metrics.keypoints import keypoint_table, passage_table
from ragbench.metrics.lexical import bleu, exact_match, idf_overlap, idf_weights, rouge_l, token_f1
from ragbench.records import Answer, Chunk, Question, check_records

RAGAS = ("faithfulness", "answer_relevance", "context_relevance")


@dataclass(frozen=True, slots=True)
class Case:
    """One answer to be scored by every metric.

    Attributes
    ----------
    id : unique among the cases. question : with true answer and references.
    answer : the text to be scored. chunks : the context, in the order it is shown, cut to its budget.
    grade : 1..5, the reference grade, where there is one. system : what made the answer, "" for graded answers.
    """

    id: str
    question: Question
    answer: str
    chunks: tuple[str, ...]
    grade: int | None = None
    system: str = ""

    @property
    def context(self) -> str:
        """The context as one text."""
        return " ".join(self.chunks)

    @property
    def reference(self) -> str:
        """The long true answer: the data set's own, else the short one followed by the supporting sentences."""
        own = str(self.question.meta.get("long_answer", "")).strip()
        if own:
            return own
        return "\n".join([self.question.answer, *dict.fromkeys(self.question.references)])

    @property
    def reference_claims(self) -> tuple[str, ...]:
        """The claims of the true answer: the data set's own, else the supporting sentences."""
        own = tuple(claim["text"] for claim in self.question.meta.get("claims", ()))
        return own or tuple(dict.fromkeys(c for text in self.question.references for c in split_claims(text)))

    @property
    def keypoints(self) -> tuple[str, ...]:
        """RAGEval's keypoints: the data set's own, else the true answer as the only one."""
        return tuple(self.question.meta.get("keypoints", ())) or (self.question.answer,)


def cut_chunks(texts: Sequence[str], N: int, tokenizer: Any = None) -> tuple[str, ...]:
    """Cut chunks to the first N tokens of their join, as separate texts; the last may be a part."""
    left = int(joined_cutoffs(texts, [N], as_offsets(tokenizer))[0])
    pieces = []
    for text in texts:
        pieces.append(text[: max(left, 0)])
        left -= len(text) + 1  # the space they are joined with
    return tuple(piece for piece in pieces if piece.strip())


def system_cases(
    questions: Sequence[Question], rows: pd.DataFrame, chunks: Iterable[Chunk], tokenizer: Any = None
) -> list[Case]:
    """Make cases of the rows of an `Experiment`.

    Parameters
    ----------
    questions : those asked. rows : with documents, N above 0; a row without an answer gives a case without one.
    chunks : those that were searched. tokenizer : of N.

    Returns
    -------
    Cases, row by row; ``system`` is "BM25@300", ``id`` that and the question's. An answer that failed is empty.
    """
    if (rows["N"] < 1).any():
        raise ConfigError("rows with N = 0", "numbers of tokens above 0", "leave them out: a context is what is scored")
    by_id, texts = {q.id: q for q in questions}, {c.id: c.text for c in chunks}
    offsets = as_offsets(tokenizer)
    cases = []
    for row in rows.to_dict("records"):
        system, hits = f"{row['retriever']}@{row['N']}", row["hits"] if isinstance(row["hits"], list) else []
        shown = cut_chunks([texts[name] for name in hits], row["N"], offsets) if hits else ()
        answer = row["answer"] if row["status"] == "ok" and isinstance(row["answer"], str) else ""
        cases.append(Case(f"{row['question_id']} {system}", by_id[row["question_id"]], answer, shown, system=system))
    return cases


def graded_cases(contexts: Sequence[Case], answers: Sequence[Any]) -> list[Case]:
    """Make cases of answers that have a reference grade.

    Parameters
    ----------
    contexts : a case per question (`system_cases`), whose context all answers to it are scored with.
    answers : graded answers (`ragbench.load_graded_answers`), any number per question; those to other questions are
        passed over.
    """
    by_question = {c.question.id: c for c in contexts}
    known = [(by_question[a.question_id], a) for a in answers if a.question_id in by_question]
    return [Case(a.id, c.question, a.text, c.chunks, a.grade) for c, a in known]


def check_cases(cases: Sequence[Case]) -> None:
    """DataError without cases, or with an id that two of them have."""
    check_records(cases, Case, "cases")
    if not cases:
        raise DataError("no cases", "at least one answer to score", "raise the limit, or check the question ids")
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise DataError(f"the id {case.id!r} belongs to two cases", "an id used once", "put the system into it")
        seen.add(case.id)


@dataclass(frozen=True)
class Labels:
    """What the metrics are computed from, one entry per case.

    Attributes
    ----------
    claims : what has RAGChecker's four sets of labels; None where a claim or a check could not be read.
    verdicts : RAGEval's verdict per keypoint; None for an unread one.
    ragas : metric -> scores, NaN where undefined or unread.
    right : probability of grade 5 (a model's grade: 1 or 0), NaN when ungraded.
    preference : score of the embedded judge against the long true answer; NaN where a model labelled.
    by : who labelled.
    """

    claims: tuple[RagResult | ClaimLabels | None, ...]
    verdicts: tuple[tuple[str | None, ...], ...]
    ragas: dict[str, np.ndarray]
    right: np.ndarray
    preference: np.ndarray
    by: str


def label_cases(cases: Sequence[Case], embedder: Embeddings | None = None) -> Labels:
    """Label cases without a language model: sentence claims, and the embedded checker, RAGAS, grader and judge.

    Parameters
    ----------
    cases : what is scored. Claims are checked against the chunks as they are cut; equal work is done once.
    embedder : a LangChain ``Embeddings`` with unit vectors; default the embedded MiniLM.

    Returns
    -------
    Labels, ``by`` "embedded".

    Source: stand-ins for the papers' model steps, see `ragbench.labelling`.
    """
    check_cases(cases)
    embedder = embedder or default_embedder()
    checker = EmbeddedChecker(embedder)
    labelled = embedded_labels(results_of(cases), checker)
    ragas = EmbeddedRagas(embedder)
    answers, questions = [c.answer for c in cases], [c.question.text for c in cases]
    contexts = [c.context for c in cases]
    scores = {
        "faithfulness": ragas.faithfulness(answers, contexts),
        "answer_relevance": ragas.answer_relevance(questions, answers),
        "context_relevance": _shared(ragas.context_relevance, questions, contexts),
    }
    graded = EmbeddedGrader().grade_all(*_to_grade(cases))
    right = [np.nan if g.value is None else g.meta["probabilities"][4] for g in graded]
    preference = EmbeddedJudge(embedder=embedder).scores(answers, [c.reference for c in cases], questions)
    return Labels(
        tuple(None if row.missing() else row for row in labelled.results.results),
        tuple(map(tuple, embedded_keypoint_verdicts([c.keypoints for c in cases], answers, "en", checker))),
        {name: table["score"].to_numpy(float) for name, table in scores.items()},
        np.array(right, float),
        preference,
        "embedded",
    )


def model_labels(model: Any, cases: Sequence[Case], embedder: Embeddings | None = None, **options: Any) -> Labels:
    """Label cases by a chat model: the papers' own way. Reply by reply through `ragbench.llm.ask`.

    An answer is taken apart once: RAGChecker's claims are the statements that RAGAS's faithfulness judges, too.

    Parameters
    ----------
    model, options : as for `ragbench.llm.ask` (``cassette``, ``concurrency`` ...).
    cases : what is scored.
    embedder : of answer relevance; default the embedded MiniLM.

    Returns
    -------
    Labels; what could not be read is None or NaN.
    """
    check_cases(cases)
    answers, questions = [c.answer for c in cases], [c.question.text for c in cases]
    contexts = [c.context for c in cases]
    labelled = ragchecker_labels(model, results_of(cases), **options)
    # Taken apart once: RAGAS's statements are RAGChecker's claims here.
    claims = [row.response_claims for row in labelled.results.results]
    ragas = ModelRagas(model, embedder, **options)
    scores = {
        "faithfulness": ragas.faithfulness(answers, contexts, claims=claims),
        "answer_relevance": ragas.answer_relevance(questions, answers),
        "context_relevance": ragas.context_relevance(questions, contexts),
    }
    verdicts = keypoint_verdicts(model, questions, answers, [c.keypoints for c in cases], **options)
    grades = grade(model, *_to_grade(cases), **options)
    return Labels(
        tuple(None if row.missing() else row for row in labelled.results.results),
        tuple((None,) if judged is None else tuple(judged) for judged in verdicts.labels),
        {name: table["score"].to_numpy(float) for name, table in scores.items()},
        np.array([np.nan if g.value is None else float(g.value == 5) for g in grades]),
        np.full(len(cases), np.nan),
        str(getattr(model, "model", None) or model),
    )


def model_steps(cases: Sequence[Case], claims_per_text: int = 5) -> list[Step]:
    """Count the calls of `model_labels` before the run, for `ragbench.llm.plan`.

    Parameters
    ----------
    cases : what is scored. claims_per_text : claims to reckon with in an answer that has not been taken apart.
    """
    answers, questions = [c.answer for c in cases], [c.question.text for c in cases]
    prompts = grading_prompts(*_to_grade(cases))
    return [
        *steps_for_ragchecker(results_of(cases), claims_per_text=claims_per_text),
        *steps_for_ragas(questions, answers, [c.context for c in cases])[1:],  # its statements are the claims above
        *steps_for_keypoints(questions, answers, [c.keypoints for c in cases]),
        Step("grades", prompts=[p.text for p in prompts], schema=[p.schema for p in prompts]),
    ]


def results_of(cases: Sequence[Case]) -> list[RagResult]:
    """Turn cases into RAGChecker's records, with the claims of the true answer where the data set has them."""
    results = []
    for c in cases:
        chunks = tuple(RetrievedText(text=text) for text in c.chunks)
        asked = (c.id, c.question.text, c.reference, c.answer, chunks)
        results.append(RagResult(*asked, reference_claims=c.reference_claims))
    return results


def _to_grade(cases: Sequence[Case]) -> tuple[list[Question], list[Answer]]:
    """Return the questions, each once, and the answers."""
    questions = list({c.question.id: c.question for c in cases}.values())
    return questions, [Answer(c.question.id, c.answer, "") for c in cases]


def _shared(score: Any, questions: Sequence[str], contexts: Sequence[str]) -> Any:
    """Score each different (question, context) once: the answers to a question share them."""
    pairs = list(zip(questions, contexts, strict=True))
    place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    table = score([q for q, _ in place], [c for _, c in place])
    return table.iloc[[place[pair] for pair in pairs]].reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """A metric of the table: whose it is, what it looks at, and whether more of it is better.

    ``reads`` is "answer" (with the true answer), "answer and context", or "context".
    """

    name: str
    paper: str
    reads: str
    higher: bool = True


_OF_ANSWER = {"precision", "recall", "f1"}
_OF_CONTEXT = {"claim_recall", "context_precision"}


def _claim_metric(name: str) -> ComparedMetric:
    reads = "answer" if name in _OF_ANSWER else "context" if name in _OF_CONTEXT else "answer and context"
    return ComparedMetric(f"RAGChecker {name.replace('_', ' ')}", "RAGChecker", reads, name not in LOWER_IS_BETTER)


METRICS: tuple[ComparedMetric, ...] = (
    ComparedMetric("IR score", "thesis", "context"),
    ComparedMetric("grader: fully right", "thesis", "answer"),
    *(_claim_metric(name) for name in CLAIM_METRICS),
    ComparedMetric("RAGAS faithfulness", "RAGAS", "answer and context"),
    ComparedMetric("RAGAS answer relevance", "RAGAS", "answer"),
    ComparedMetric("RAGAS context relevance", "RAGAS", "context"),
    ComparedMetric("RAGEval completeness", "RAGEval", "answer"),
    ComparedMetric("RAGEval hallucination", "RAGEval", "answer", higher=False),
    ComparedMetric("RAGEval irrelevance", "RAGEval", "answer", higher=False),
    ComparedMetric("RAGEval recall", "RAGEval", "context"),
    ComparedMetric("RAGEval EIR", "RAGEval", "context"),
    ComparedMetric("exact match", "lexical", "answer"),
    ComparedMetric("token F1", "lexical", "answer"),
    ComparedMetric("ROUGE-L", "lexical", "answer"),
    ComparedMetric("BLEU", "lexical", "answer"),
    ComparedMetric("IDF overlap", "lexical", "answer"),
    ComparedMetric("judge: preference", "ragbench", "answer"),
)


def score_table(cases: Sequence[Case], labels: Labels) -> pd.DataFrame:
    """Score every case by every metric.

    Parameters
    ----------
    cases : what is scored. labels : of the same cases, in their order.

    Returns
    -------
    DataFrame, one row per case: case, question_id, kind, system, grade (missing where nobody graded), the names of
    `METRICS` (NaN where undefined or unread), and the counts they rest on: response claims, reference claims, chunks,
    keypoints.

    Raises
    ------
    DataError when labels and cases differ in number, or an id is used twice.

    Source: thesis Eq 2.2 and §2.4; RAGChecker §3.3; RAGAS §3; RAGEval Eq 1-5.
    """
    check_cases(cases)
    if len(labels.claims) != len(cases):
        raise DataError(f"{len(labels.claims)} labels for {len(cases)} cases", "one of each", "label these cases")
    claims = _claim_scores(labels)
    keypoints = keypoint_table(labels.verdicts)
    references = [c.question.references for c in cases]
    passages = passage_table(references, [c.chunks for c in cases], variant="paper")
    columns = {
        "IR score": _ir_scores(cases),
        "grader: fully right": labels.right,
        **{f"RAGChecker {name.replace('_', ' ')}": claims[name] for name in CLAIM_METRICS},
        **{f"RAGAS {name.replace('_', ' ')}": labels.ragas[name] for name in RAGAS},
        **{f"RAGEval {name}": keypoints[name] for name in ("completeness", "hallucination", "irrelevance")},
        "RAGEval recall": passages["recall"],
        "RAGEval EIR": passages["eir"],
        **_lexical(cases),
        "judge: preference": labels.preference,
    }
    about = {
        "case": [c.id for c in cases],
        "question_id": [c.question.id for c in cases],
        "kind": [c.question.kind for c in cases],
        "system": [c.system for c in cases],
        "grade": pd.array([c.grade for c in cases], dtype="Int64"),
    }
    counts = {name[2:].replace("_", " "): claims[name] for name in COUNTS[:3]}
    counts["keypoints"] = keypoints["n"]
    scores = {m.name: np.asarray(columns[m.name], float) for m in METRICS}
    return pd.DataFrame({**about, **scores, **{k: np.asarray(v, float) for k, v in counts.items()}})


def defined(table: pd.DataFrame) -> pd.DataFrame:
    """Count, per metric, the answers that have a value.

    Returns
    -------
    DataFrame: metric, paper, reads, n (with a value), undefined, distinct (different values), mean.
    """
    rows = []
    for metric in METRICS:
        values = table[metric.name]
        n = int(values.notna().sum())
        distinct = values.round(6).nunique()
        rows.append((metric.name, metric.paper, metric.reads, n, len(values) - n, distinct, values.mean()))
    return pd.DataFrame(rows, columns=["metric", "paper", "reads", "n", "undefined", "distinct", "mean"])


def _claim_scores(labels: Labels) -> pd.DataFrame:
    """RAGChecker's metrics and counts; a row of NaN where there are no labels."""
    known = {i: label for i, label in enumerate(labels.claims) if label is not None}
    return claim_metrics_table(known.values()).set_axis(list(known)).reindex(range(len(labels.claims)))


def _ir_scores(cases: Sequence[Case]) -> np.ndarray:
    texts = [c.context for c in cases]
    ends = np.array([[len(text)] for text in texts], dtype=np.int64)
    longest = max(1, max(len(text) for text in texts))
    references = [list(c.question.references) for c in cases]
    return ir_score_table(references, texts, [longest], match="exact", positions=ends)[:, 0]


def _lexical(cases: Sequence[Case]) -> dict[str, list[float]]:
    idf = idf_weights({c.question.id: f"{c.question.answer} {c.question.text}" for c in cases}.values())
    pairs = [(c.answer, c.question.answer) for c in cases]
    return {
        "exact match": [exact_match(a, r) for a, r in pairs],
        "token F1": [token_f1(a, r) for a, r in pairs],
        "ROUGE-L": [rouge_l(a, r) for a, r in pairs],
        "BLEU": [bleu(a, r) for a, r in pairs],
        "IDF overlap": [idf_overlap(a, r, idf) for a, r in pairs],
    }
