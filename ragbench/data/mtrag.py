"""MTRAG: answers in conversations that two or three people each graded (Katsis et al. 2025,
arXiv 2501.03468).

A task is the last turn of a conversation so far, with the passages that were found for it. Three
answers were given to each: the reference, and those of two large models.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, Field

from ragbench.data.files import as_record, read_json
from ragbench.errors import DataError
from ragbench.paths import packaged_data
from ragbench.records import Dataset, Document, Question

MEASURES = ("faithfulness", "completeness", "appropriateness", "naturalness")
# Scores that came with the answers -> what they are.
RECORDED_SCORES = {
    "RougeL": "ROUGE-L, recorded",
    "Bert-Rec": "BERT recall",
    "Bert-KPrec": "BERT precision in the passages",
    "rl_f": "RAGAS's faithfulness by a model",
    "rb_llm": "RAD-Bench's judge, a model",
    "rb_agg": "RAD-Bench's overlap and vectors",
}
_FILE = "reference_subset_with_human_evaluations.json.gz"


class _Turn(BaseModel):
    speaker: str
    text: str


class _Passage(BaseModel):
    document_id: str
    title: str = ""
    text: str = ""


class _Task(BaseModel):
    task_id: str
    input: list[_Turn] = Field(min_length=1)
    contexts: list[_Passage]
    targets: list[_Turn] = Field(min_length=1)
    answerability: list[str] = Field(alias="Answerability")


class _Evaluation(BaseModel):
    task_id: str
    model_id: str
    model_response: str
    annotations: dict[str, dict[str, Any]]


class _File(BaseModel):
    documents: list[_Passage]
    tasks: list[_Task]
    evaluations: list[_Evaluation]


@dataclass(frozen=True)
class PeoplesGrades:
    """Answers, what people said of them, and the texts that they saw.

    Attributes
    ----------
    dataset : the questions (last turns), with ``meta["turns"]`` (speaker, text),
        ``meta["doc_ids"]`` and ``meta["topic"]``, the conversation; and the passages.
    answers : a row per answer: question_id, system, answer, conversation, answerability, and the
        scores that came with it (`RECORDED_SCORES`).
    grades : a row per grade: question_id, system, measure, rater, grade (1, worst, to 4).
    """

    dataset: Dataset
    answers: pd.DataFrame
    grades: pd.DataFrame

    def mean_grades(self) -> pd.DataFrame:
        """Return people's mean grade: a row per answer, in the order of ``answers``, a column per
        measure.
        """
        mean = self.grades.pivot_table(
            index=["question_id", "system"], columns="measure", values="grade"
        )
        return mean.loc[pd.MultiIndex.from_frame(self.answers[mean.index.names])].reset_index()

    def passages(self, question_id: str) -> list[str]:
        """Return the texts of the passages that the answers to a question were to use."""
        texts = {document.id: document.text for document in self.dataset.documents}
        return [texts[name] for name in self.dataset.question(question_id).meta["doc_ids"]]


def load_mtrag(path: str | Path | None = None) -> PeoplesGrades:
    """Load the part of MTRAG that people graded: 159 tasks of 20 conversations, 477 answers.

    Parameters
    ----------
    path : MTRAG's ``reference_subset_with_human_evaluations.json``; default the copy that comes
        with ragbench.

    Source: arXiv 2501.03468, the human evaluation of faithfulness, completeness, appropriateness
    and naturalness, 1 to 4.
    """
    path = packaged_data("mtrag", _FILE) if path is None else Path(path)
    content = as_record(_File, read_json(path), str(path))
    questions = tuple(_question(task) for task in content.tasks)
    documents = tuple(
        Document(passage.document_id, passage.title, passage.text) for passage in content.documents
    )
    conversation = {question.id: question.meta["topic"] for question in questions}
    answerability = {task.task_id: " ".join(task.answerability) for task in content.tasks}
    answers = []
    grades = []
    for evaluation in content.evaluations:
        if evaluation.task_id not in conversation:
            got = f"{path}: an answer to {evaluation.task_id!r}, which is no task of the file"
            raise DataError(got, "answers to tasks of the file", "load the whole file")
        key = {"question_id": evaluation.task_id, "system": evaluation.model_id}
        answer = key | {
            "answer": evaluation.model_response,
            "conversation": conversation[evaluation.task_id],
            "answerability": answerability[evaluation.task_id],
        }
        for name in RECORDED_SCORES:
            (score,) = evaluation.annotations[name].values()
            answer[name] = float(score["value"])
        answers.append(answer)
        for measure in MEASURES:
            for rater, given in evaluation.annotations[measure].items():
                grade = {"measure": measure, "rater": rater, "grade": int(given["value"])}
                grades.append(key | grade)
    data = Dataset("mtrag", questions, documents, meta={"file": path.name})
    return PeoplesGrades(data, pd.DataFrame(answers), pd.DataFrame(grades))


def _question(task: _Task) -> Question:
    conversation, _, _ = task.task_id.partition("<::>")
    meta = {
        "turns": tuple((turn.speaker, turn.text) for turn in task.input),
        "doc_ids": tuple(passage.document_id for passage in task.contexts),
        "topic": conversation,
    }
    return Question(task.task_id, task.input[-1].text, task.targets[0].text, meta=meta)
