"""Each paper's model steps with the small model: what it says means little, but every step runs and
nothing is lost.
"""

import pytest

from ragbench.data import load_minihop
from ragbench.data.ragchecker import RagResult, RetrievedText
from ragbench.experiment import Experiment
from ragbench.labelling.claims import ragchecker_calls, ragchecker_labels
from ragbench.labelling.keypoints import extract_keypoints, keypoint_verdicts
from ragbench.labelling.preferences import better_of_two
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import chat_model
from ragbench.metrics.claims import claim_metrics_table
from ragbench.retrieval import llm_decomposer

pytestmark = pytest.mark.live


def small(num_predict=60):
    return chat_model("smollm2", num_ctx=2048, num_predict=num_predict)


EXPERIMENT = """
name: small
data: {minihop: {use: minihop, limit: 1}}
chunker: {s: {use: token_chunks, size: 100, overlap: 0.2}}
retriever: BM25
k: 5
N: [0, 100]
generator: {small: {use: smollm2, num_ctx: 2048, num_predict: 24}}
judge: {small: {use: smollm2, num_ctx: 2048, num_predict: 24}}
folder: run
"""


def test_the_thesis_grid_answers_and_grades_with_as_many_calls_as_planned(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(EXPERIMENT)
    planned = Experiment.from_yaml(path).plan()
    rows = Experiment.from_yaml(path).run(progress=False)
    assert len(rows) == 2
    assert set(rows["model"]) == set(rows["judge_model"]) == {"gguf:SmolLM2-135M-Instruct.Q4_1"}
    assert rows["digest"].str.startswith("b179c952").all()
    assert rows["answer"].str.len().gt(0).all()
    assert rows["finish"].isin(["stop", "length"]).all()
    graded = rows["grade"].between(1, 5)
    assert (graded | rows["error_kind"].isin(["unusable", "truncated"])).all()
    assert {step.name: step.calls for step in planned.steps} == {
        "retrieve": 1,
        "generation": 2,
        "grading": 2,
    }
    again = Experiment.from_yaml(path).run(progress=False)
    assert again["answer"].tolist() == rows["answer"].tolist()


def test_a_question_is_taken_apart_for_mlq_or_its_failure_is_told():
    lists = llm_decomposer(small(200)).batch([load_minihop().questions[0].text])
    assert len(lists) == 1
    assert all(text.strip() for text in lists[0])


def test_ragchecker_labels_a_whole_result_with_as_many_calls_as_planned():
    row = RagResult(
        "a", "Where?", "On the hill.", "In the town.", (RetrievedText(text="It stands on the hill."),),
        response_claims=("It is in the town.", "It is old."), reference_claims=("It is on the hill.",),
    )  # fmt: skip
    done = ragchecker_labels(small(), [row], progress=False)
    assert ragchecker_calls([row])["claim check"] == 6
    assert 0 <= claim_metrics_table(done)["precision"].iloc[0] <= 1


def test_a_pair_is_ranked_in_both_orders():
    prompt = "steps_gpt_ranking_answer_relevance"
    ranked = better_of_two(small(), prompt, ["a"], ["b"], questions=["Where?"], progress=False)
    assert ranked[["shown_first", "shown_second"]].isin([1, 2]).all(axis=None)


def test_ragas_cuts_statements_judges_them_and_writes_questions():
    answer = "The bridge is at mile four. It was built in 1928."
    ragas = ModelRagas(small(200), n=2, progress=False)
    assert len(ragas.statements(["Where is it?"], [answer])) == 1
    judged = ragas.verdicts([("The bridge is at mile four.",)], ["A bridge at mile four."])
    assert judged[0][0] in ("Yes", "No", None)
    (asked,) = ragas.questions([answer])
    assert asked is None or len(asked) == 2


def test_rageval_takes_a_true_answer_apart_and_judges_its_keypoints():
    question = ["Where is it?"]
    answer = ["It is at mile four."]
    (points,) = extract_keypoints(small(), question, answer, progress=False)
    assert points is None or 3 <= len(points) <= 5
    listed = [("It is at mile four.", "It is old.")]
    judged = keypoint_verdicts(small(), question, answer, listed, progress=False)
    assert len(judged[0]) == 2
