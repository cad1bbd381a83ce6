"""TREC's nugget files; MTRAG as it is shipped."""

import gzip
import json

import pytest

from ragbench.data.answers import read_answers
from ragbench.data.mtrag import PEOPLES_MEASURES, load_mtrag
from ragbench.metrics.nuggets import nugget_metrics
from ragbench.paths import packaged_data, shared_data

LINE = {
    "query": "how long?",
    "qid": "q-1",
    "nuggets": [{"text": "two days", "importance": "vital", "assignment": "support"}],
    "run_id": "run a",
    "answer_text": "Two days.",
    "response_length": 2,
}
TRACK = {"system": "run_id", "answer": "answer_text"}


def test_a_track_file_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(LINE) + "\n")
    rows = read_answers(tmp_path / "a.jsonl", TRACK)
    names = ["question_id", "question", "system", "answer"]
    assert rows.loc[0, names].tolist() == ["q-1", "how long?", "run a", "Two days."]
    assert nugget_metrics(rows.loc[0, "nuggets"])["vital_strict"] == 1


@pytest.mark.data
def test_the_tracks_answers():
    rows = read_answers(shared_data("trec_rag24", "nugget_assignment.20241108.jl.gz"), TRACK)
    assert (len(rows), rows["system"].nunique(), rows["question_id"].nunique()) == (927, 45, 21)
    assert rows["nuggets"].map(len).sum() == 13158


@pytest.fixture(scope="module")
def mtrag():
    return load_mtrag()


def test_mtrag_has_what_its_paper_counts(mtrag):
    assert len(mtrag.dataset.questions) == 159
    assert len({question.meta["topic"] for question in mtrag.dataset.questions}) == 20
    assert len(mtrag.answers) == 477
    grades = mtrag.grades
    assert grades["grade"].isin([1, 2, 3, 4]).all()
    counts = grades["grade"][grades["measure"] == "faithfulness"].value_counts()
    assert counts.to_dict() == {4: 890, 3: 261, 2: 159, 1: 109}


def test_mtrags_raters_share_out_their_preferences_among_three_answers(mtrag):
    by_rater = mtrag.preferences.groupby("question_id")["win_rate"]
    assert len(mtrag.preferences) == 3 * 477
    assert set(mtrag.preferences["win_rate"]) == {0, 0.5, 1}
    # three raters; each orders three answers, and of a tie both may have won
    assert by_rater.sum().between(4.5, 6).all()
    first = mtrag.preferences.iloc[:3]["win_rate"].tolist()
    assert first == [0.5, 0.0, 1.0]


def test_mtrags_grades_are_those_of_the_file(mtrag):
    name = "reference_subset_with_human_evaluations.json.gz"
    raw = json.loads(gzip.decompress(packaged_data("mtrag", name).read_bytes()))
    means = mtrag.grades.groupby(["question_id", "system", "measure"])["grade"].mean()
    for place in (0, 100, 476):
        evaluation = raw["evaluations"][place]
        annotations = evaluation["annotations"]
        (rouge,) = annotations["RougeL"].values()
        answer = {
            "question_id": evaluation["task_id"],
            "system": evaluation["model_id"],
            "answer": evaluation["model_response"],
            "RougeL": rouge["value"],
        }
        assert mtrag.answers.loc[place, [*answer]].to_dict() == answer
        for measure in PEOPLES_MEASURES:
            values = [int(one["value"]) for one in annotations[measure].values()]
            mean = means[answer["question_id"], answer["system"], measure]
            assert mean == pytest.approx(sum(values) / len(values))


def test_a_question_has_its_turns_and_passages(mtrag):
    second = next(q for q in mtrag.dataset.questions if q.id.endswith("::>2"))
    speakers = [speaker for speaker, _ in second.meta["turns"]]
    assert speakers == ["user", "agent", "user"]
    assert second.meta["turns"][-1][1] == second.text
    assert len(mtrag.passages(second.id)) == len(second.meta["doc_ids"])
