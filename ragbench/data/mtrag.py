"""MTRAG: answers in conversations that two or three people each graded (Katsis et al. 2025,
arXiv 2501.03468).

A task is the last turn of a conversation so far, with the passages that were found for it. Three
answers were given to each: the reference, and those of two large models.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ragbench.data.files import read_json
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


@dataclass(frozen=True)
class PeoplesGrades:
    """Answers, what people said of them, and the texts that they saw.

    Attributes
    ----------
    dataset : the questions (last turns), with ``meta["turns"]`` (speaker, text),
        ``meta["doc_ids"]`` and ``meta["topic"]``, the conversation; and the passages.
    answers : a row per answer, as `ragbench.score` takes them: question_id, system, question,
        reference, chunks, answer; conversation, answerability, and the scores that came with it
        (`RECORDED_SCORES`).
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


def load_mtrag() -> PeoplesGrades:
    """Load the part of MTRAG that people graded, which comes with ragbench: 159 tasks of 20
    conversations, 477 answers.

    Source: arXiv 2501.03468, the human evaluation of faithfulness, completeness, appropriateness
    and naturalness, 1 to 4.
    """
    content = read_json(packaged_data("mtrag", _FILE))
    tasks = {task["task_id"]: task for task in content["tasks"]}
    questions = tuple(_question(task) for task in content["tasks"])
    documents = tuple(
        Document(page["document_id"], page.get("title", ""), page["text"])
        for page in content["documents"]
    )
    texts = {document.id: document.text for document in documents}
    asked = {
        question.id: {
            "question": question.text,
            "reference": question.answer,
            "chunks": [texts[name] for name in question.meta["doc_ids"]],
        }
        for question in questions
    }
    answers = []
    grades = []
    for evaluation in content["evaluations"]:
        name = evaluation["task_id"]
        key = {"question_id": name, "system": evaluation["model_id"]}
        answer = key | asked[name]
        answer |= {
            "answer": evaluation["model_response"],
            "conversation": _conversation(name),
            "answerability": " ".join(tasks[name]["Answerability"]),
        }
        for score in RECORDED_SCORES:
            (recorded,) = evaluation["annotations"][score].values()
            answer[score] = float(recorded["value"])
        answers.append(answer)
        for measure in MEASURES:
            for rater, grade in evaluation["annotations"][measure].items():
                value = int(grade["value"])
                grades.append(key | {"measure": measure, "rater": rater, "grade": value})
    data = Dataset("mtrag", questions, documents, meta={"file": _FILE})
    return PeoplesGrades(data, pd.DataFrame(answers), pd.DataFrame(grades))


def _conversation(task_id: str) -> str:
    return task_id.partition("<::>")[0]


def _question(task: dict) -> Question:
    meta = {
        "turns": tuple((turn["speaker"], turn["text"]) for turn in task["input"]),
        "doc_ids": tuple(passage["document_id"] for passage in task["contexts"]),
        "topic": _conversation(task["task_id"]),
    }
    return Question(
        task["task_id"], task["input"][-1]["text"], task["targets"][0]["text"], meta=meta
    )
