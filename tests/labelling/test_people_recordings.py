"""What Qwen and SmolLM2 said of answers that people judged: whole, in step with the prompts, and
without a text of TREC's.
"""

import numpy as np
import pandas as pd
import pytest
from checks import load_script, refuse_servers
from notebook_parts import parts

from ragbench.data.mtrag import load_mtrag
from ragbench.labelling.exam import EXAM_PROMPTS, SCALE, SYSTEMS, exam_prompts
from ragbench.paths import packaged_data, shared_data

NOTEBOOK = parts("50")
EXAMS = NOTEBOOK.EXAMS
recorded_exam = NOTEBOOK.recorded_exam

people = load_script("record_people")
ANSWER = ["question_id", "system", "measure"]
LOGS = [f"log_{grade}" for grade in SCALE]
LLAMA_CPP = 20  # questions that llama.cpp answered


@pytest.fixture(scope="module")
def labels():
    return pd.read_csv(packaged_data("mtrag", "qwen_labels.csv.gz"))


@pytest.mark.parametrize("name", EXAMS)
def test_every_prompt_of_a_recorded_exam_has_its_grade_and_no_server_starts(name, monkeypatch):
    monkeypatch.delenv("RAGBENCH_CASSETTE", raising=False)
    refuse_servers(monkeypatch)
    graded = recorded_exam(name)
    assert len(graded) == EXAMS[name] * len(SYSTEMS) * len(EXAM_PROMPTS)
    assert graded["grade"].isin(SCALE).all()
    order = exam_prompts(load_mtrag())["question_id"].unique()
    assert graded["question_id"].unique().tolist() == order[: EXAMS[name]].tolist()
    assert len(recorded_exam(name, 1)) == 4


def test_the_replayed_grade_is_the_likeliest_one_and_llama_cpp_seldom_disagrees(labels):
    asked = labels[labels["asked"] == "exam"]
    asked = asked.assign(likeliest=asked[LOGS].to_numpy().argmax(1) + 1)
    graded = recorded_exam("qwen").merge(asked, on=ANSWER, validate="1:1")
    same = graded["grade"] == graded["likeliest"]
    first = graded["question_id"].isin(graded["question_id"].unique()[:LLAMA_CPP])
    assert same[~first].all()
    assert (~same[first]).sum() == 2


def test_probabilities_of_the_labels_add_up_and_every_answer_was_asked_in_each_way(labels):
    sums = np.exp(labels[LOGS]).sum(axis=1)
    assert sums.to_numpy() == pytest.approx(1, abs=1e-3)
    answers = 159 * len(SYSTEMS)
    assert labels["asked"].value_counts().to_dict() == {
        "exam": answers * 2,
        "reversed": answers * 2,
        "pair": answers,
    }
    assert not labels.duplicated(["asked", *ANSWER]).any()
    # two labels in a pair, four elsewhere
    assert labels[LOGS[2:]].isna().all(axis=1).eq(labels["asked"] == "pair").all()


def test_the_scripts_requests_are_the_exams_prompts_and_turned_grades_keep_every_line():
    requests = [request for _, request in zip(range(6), people.exam_requests(), strict=False)]
    first = exam_prompts(load_mtrag()).iloc[0]
    prompt = first["prompt"]
    assert requests[0]["key"] == ["exam", first["question_id"], SYSTEMS[0], "faithfulness"]
    assert requests[0]["prompt"] == prompt
    turned = requests[1]["prompt"]
    assert sorted(turned.split("\n")) == sorted(prompt.split("\n"))
    grades = [line[0] for line in turned.split("\n")[-7:] if line[1:4] == " - "]
    assert grades == ["4", "3", "2", "1"]
    assert people.reversed_grades(turned) == prompt


def test_recorded_nuggets_have_numbers_and_no_text():
    table = pd.read_csv(packaged_data("recordings", "nuggets.csv.gz"))
    place = ["question_id", "system", "nugget"]
    numbers = ["support", "partial_support", "minilm"]
    assert table.columns.tolist() == [*place, *numbers]
    assert len(table) == 13158
    assert not table.duplicated(place).any()
    assert table[numbers].apply(pd.api.types.is_float_dtype).all()
    assert table["support"].between(0, 1).all()
    assert (table["support"] + table["partial_support"]).max() < 1.001
    assert table["minilm"].between(-1, 1.001).all()
    if shared_data("trec_rag24") is None:
        pytest.skip("TREC RAG 2024 is not here")
    keys = {
        (row.question_id, row.system, number)
        for row in people.track_answers().itertuples()
        for number in range(len(row.nuggets))
    }
    assert keys == set(table[place].itertuples(index=False, name=None))
