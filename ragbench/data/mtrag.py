"""MTRAG: answers in conversations that two or three people each graded (Katsis et al. 2025,
arXiv 2501.03468).

A task is the last turn of a conversation so far, with the passages that were found for it. Three
answers were given to each: the reference, and those of two large models.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from ragbench.data.files import read_json
from ragbench.paths import packaged_data
from ragbench.records import Dataset, Document, Question

PEOPLES_MEASURES = ("faithfulness", "completeness", "appropriateness", "naturalness")
# Scores that came with the answers -> what they are, by the file's own descriptions. The last three
# are set to 0 or 1 by the question's answerability where an answer declines or should.
RECORDED_SCORES = {
    "RougeL": "ROUGE-L, recorded",
    "Bert-Rec": "BERT recall",
    "Bert-KPrec": "BERT precision in the passages",
    "rl_f": "RAGAS's faithfulness by a model",
    "rb_llm": "judge after RAD-Bench, a model",
    "rb_agg": "BERT and ROUGE-L, harmonic mean",
}
_FILE = "reference_subset_with_human_evaluations.json.gz"


@dataclass(frozen=True)
class PeoplesGrades:
    """Answers, what people said of them, and the texts that they saw.

    Attributes
    ----------
    dataset : the questions (last turns; ``kind`` is their answerability), with ``meta["turns"]``
        (speaker, text), ``meta["doc_ids"]`` and ``meta["topic"]``, the conversation; and the
        passages.
    answers : a row per answer, as `ragbench.score` takes them: question_id, system, question,
        reference, chunks, answer; conversation, answerability, and the scores that came with it
        (`RECORDED_SCORES`).
    grades : a row per grade: question_id, system, measure, rater, grade (1, worst, to 4).
    preferences : a row per answer and rater: question_id, system, rater, win_rate, the share (0,
        0.5, 1) of the other answers to the question that the rater preferred it to; None where
        nobody compared answers.
    """

    dataset: Dataset
    answers: pd.DataFrame
    grades: pd.DataFrame
    preferences: pd.DataFrame | None = None

    def passages(self, question_id: str) -> list[str]:
        """Return the texts of the passages that the answers to a question were to use."""
        texts = {document.id: document.text for document in self.dataset.documents}
        return [texts[name] for name in self.dataset.question(question_id).meta["doc_ids"]]


def load_mtrag() -> PeoplesGrades:
    """Load the part of MTRAG that people graded, which comes with ragbench: 159 tasks of 20
    conversations, 477 answers.

    Source: arXiv 2501.03468, the human evaluation of faithfulness, completeness, appropriateness
    and naturalness, 1 to 4.

    >>> rb.data.load_mtrag().dataset
    Dataset('mtrag', 159 questions, 350 documents)
    """
    content = read_json(packaged_data("mtrag", _FILE))
    questions = {task["task_id"]: _question(task) for task in content["tasks"]}
    documents = {
        page["document_id"]: Document(page["document_id"], page.get("title", ""), page["text"])
        for page in content["documents"]
    }
    answers = []
    grades = []
    preferences = []
    for evaluation in content["evaluations"]:
        question = questions[evaluation["task_id"]]
        chunks = [documents[name].text for name in question.meta["doc_ids"]]
        answers.append(_answer(evaluation, question, chunks))
        grades += _by_people(evaluation, PEOPLES_MEASURES)
        preferences += _by_people(evaluation, ["win-rate"])
    data = Dataset(
        "mtrag", tuple(questions.values()), tuple(documents.values()), meta={"file": _FILE}
    )
    graded = pd.DataFrame(grades).rename(columns={"value": "grade"})
    preferred = pd.DataFrame(preferences).drop(columns="measure")
    preferred["win_rate"] = preferred.pop("value") / 100
    return PeoplesGrades(data, pd.DataFrame(answers), graded, preferred)


def _by_people(evaluation: dict, measures: Iterable[str]) -> list[dict]:
    """Return a row for each value of these measures that a person gave an answer."""
    rows = []
    for measure in measures:
        for rater, given in evaluation["annotations"][measure].items():
            row = {"question_id": evaluation["task_id"], "system": evaluation["model_id"]}
            rows.append(row | {"measure": measure, "rater": rater, "value": int(given["value"])})
    return rows


def _answer(evaluation: dict, question: Question, chunks: list[str]) -> dict:
    answer = {
        "question_id": question.id,
        "system": evaluation["model_id"],
        "question": question.text,
        "reference": question.answer,
        "chunks": chunks,
        "answer": evaluation["model_response"],
        "conversation": question.meta["topic"],
        "answerability": question.kind,
    }
    for score in RECORDED_SCORES:
        (recorded,) = evaluation["annotations"][score].values()
        answer[score] = float(recorded["value"])
    return answer


def _question(task: dict) -> Question:
    """Return the last turn of a conversation, whose name stands before the task's number."""
    name = task["task_id"]
    turns = [(turn["speaker"], turn["text"]) for turn in task["input"]]
    _, question = turns[-1]
    answer = task["targets"][0]["text"]
    meta = {
        "turns": tuple(turns),
        "doc_ids": tuple(passage["document_id"] for passage in task["contexts"]),
        "topic": name.partition("<::>")[0],
    }
    return Question(name, question, answer, kind=" ".join(task["Answerability"]), meta=meta)
