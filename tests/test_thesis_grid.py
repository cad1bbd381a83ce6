"""Answers and grades for a grid of systems and budgets: every row is there, live and embedded."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from ragbench import papers, thesis_grid
from ragbench.errors import ConfigError
from ragbench.grading import EmbeddedGrader
from ragbench.records import Chunk, Dataset, Document, Hit, Question

QUESTIONS = (
    Question("q1", "In which town was Ann Lee born?", "Ely", ("Ann Lee was born in Ely.",), "bridge"),
    Question("q2", "In which town was Bob Ray born?", "York", ("Bob Ray was born in York.",), "bridge"),
)
DATA = Dataset("d", QUESTIONS, ())


def hits(*texts):
    return [[Hit(Chunk(f"c{i}", text, f"d{i}"), 1.0, 1)] for i, text in enumerate(texts)]


GOOD = hits("Ann Lee was born in Ely.", "Bob Ray was born in York.")
POOR = hits("Nothing of the kind is said here.", "Bob Ray was born in York.")


class Copier:
    """A generator that returns its context."""

    name = "copier"

    def answer(self, question, context):
        return context or "There is not enough information."


@pytest.fixture(scope="module")
def rows():
    return thesis_grid.graded_answers(DATA, {"A": GOOD, "B": POOR}, Copier(), EmbeddedGrader(), (0, 3, 1000))


def test_one_row_per_question_system_and_budget_and_one_without_documents(rows):
    assert len(rows) == 2 * (1 + 2 * 2)
    assert not rows.duplicated(["question_id", "system", "N"]).any()
    assert (rows.groupby("system").size()).to_dict() == {"LLM only": 2, "A": 4, "B": 4}
    assert set(rows["generator"]) == {"copier"}
    assert set(rows["judge"]) == {"embedded grader"}


def test_scores_belong_to_the_context_that_was_answered_from(rows):
    table = rows.set_index(["question_id", "system", "N"])["ir_score"]
    assert table["q1", "A", 1000] == 1.0
    assert table["q1", "A", 3] == pytest.approx(len("Ann Lee was") / len("Ann Lee was born in Ely."))
    assert table["q1", "B", 1000] < 0.3
    assert math.isnan(table["q1", "LLM only", 0])


def test_copied_evidence_is_fully_right_and_an_abstention_has_no_information(rows):
    grades = rows.set_index(["question_id", "system", "N"])["grade"]
    assert grades["q1", "A", 1000] == 5
    assert grades["q1", "LLM only", 0] == 1
    assert grades["q1", "B", 1000] != 5


def test_shares_are_of_the_scored_answers_and_count_the_unscored():
    frame = pd.DataFrame(
        {"system": ["A"] * 4 + ["B"], "grade": pd.array([5, 5, 1, None, None], dtype="Int64"), "seconds": [1.0] * 5}
    )
    table = thesis_grid.grade_shares(frame).set_index("system")
    assert table.loc["A", ["grade 1", "grade 5", "n", "unscored"]].tolist() == [1 / 3, 2 / 3, 3, 1]
    assert math.isnan(table.loc["B", "grade 5"])
    assert table.loc["B", "unscored"] == 1
    counts = thesis_grid.grade_shares(frame, counts=True).set_index("system")
    assert counts.loc["A", ["grade 1", "grade 5"]].tolist() == [1, 2]
    cells = papers.cells(counts.reset_index(), "system", thesis_grid.GRADE_COLUMNS)
    assert cells[(cells["row"] == "A") & (cells["column"] == "grade 5")]["value"].item() == 2
    assert len(cells) == 10


def test_a_model_server_answers_and_grades_and_a_recording_replays_without_it(tmp_path):
    from fake_ollama import FakeOllama

    def reply(request):
        if request.get("format"):
            (name, spec), *_ = request["format"]["properties"].items()
            return json.dumps({name: [5] * spec["minItems"]})
        return f"Ely, {len(request['messages'][-1]['content'])}."  # every prompt has an answer of its own

    def run(server):
        model = thesis_grid.generator("ollama:llama3:8b", host=server.url)
        judge = thesis_grid.judge("ollama:llama3:8b", host=server.url)
        recording = thesis_grid.cassette(tmp_path / "c.sqlite")
        options = {"recording": recording, "progress": False, "per_prompt": "systems"}
        return thesis_grid.graded_answers(DATA, {"A": GOOD}, model, judge, (0, 50), **options)

    with FakeOllama(reply=reply) as server:
        first = run(server)
        made = len(server.calls)
        again = run(server)
        assert len(server.calls) == made == 4 + 2  # two answers to each question, one prompt for both of them
    assert first["answer"].tolist() == again["answer"].tolist()
    assert first["answer"].str.startswith("Ely, ").all()
    assert first["grade"].tolist() == again["grade"].tolist() == [5] * 4
    assert first["error"].eq("").all()


def test_names_of_the_parameter_cells_give_the_embedded_defaults():
    assert "extractive" in thesis_grid.generator().name
    assert thesis_grid.judge().name == "embedded grader"
    assert thesis_grid.cassette(None) is None
    with pytest.raises(ConfigError):
        thesis_grid.generator("extractiv")
    with pytest.raises(ConfigError, match="no questions"):
        thesis_grid.graded_answers(Dataset("d", (), ()), {"A": []}, Copier(), EmbeddedGrader())


TOWNS = Dataset(
    "towns",
    QUESTIONS,
    tuple(
        Document(f"d{i}", title, text, (text,))
        for i, (title, text) in enumerate(
            [
                ("Ann Lee", "Ann Lee was born in Ely."),
                ("Bob Ray", "Bob Ray was born in York."),
                ("Kelp", "Kelp forests grow under cold water."),
            ]
        )
    ),
)


def towns_model(request):
    """A model that decomposes every question into one about kelp, answers, and grades 5, 4, 3, 2, 1, 5."""
    if request.get("format"):
        (name, spec), *_ = request["format"]["properties"].items()
        return json.dumps({name: [5, 4, 3, 2, 1, 5][: spec["minItems"]]})
    if "born" in request["messages"][-1]["content"] and "Kelp" not in request["messages"][-1]["content"]:
        return "Where do kelp forests grow?"
    return "In Ely."


def test_one_name_makes_decomposer_generator_and_judge_and_the_rows_name_all_three(tmp_path, monkeypatch):
    from fake_ollama import FakeOllama

    from ragbench.prompts import fill_prompt, load_prompt

    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    with FakeOllama(reply=towns_model) as server:
        who = thesis_grid.models("ollama:llama3:8b", recording=tmp_path / "c.sqlite", host=server.url)
        rows = thesis_grid.table_3_3(TOWNS, who, progress=False)
        asked = [call.prompt for call in server.calls]
        decomposition = load_prompt("multiquery_decomposition")
        for question in QUESTIONS:
            assert sum(fill_prompt(decomposition, question=question.text) in prompt for prompt in asked) == 1
        # MLQ has read what the model asked for first: kelp, of which the rules know nothing.
        answered = [prompt for prompt in asked if "In which town was Ann Lee born?" in prompt]
        assert any(prompt.find("Kelp") < prompt.find("Ann Lee was born") for prompt in answered if "Kelp" in prompt)
    named = {"decomposer": "ollama:llama3:8b", "generator": "ollama:llama3:8b", "judge": "ollama:llama3:8b"}
    assert who.names == named
    assert str(who) == "decomposer ollama:llama3:8b, generator ollama:llama3:8b, judge ollama:llama3:8b"
    assert {column: rows[column].unique().tolist() for column in named} == {c: [n] for c, n in named.items()}


def test_without_a_name_no_part_is_a_language_model_and_another_judge_can_be_named():
    who = thesis_grid.models()
    assert str(who) == (
        "decomposer rules (stand-in, no LLM), generator extractive reader (no LLM), judge embedded grader"
    )
    assert who.recording is None
    mixed = thesis_grid.models("ollama:llama3:8b", "ollama:llama3:70b").names
    assert mixed == {"decomposer": "ollama:llama3:8b", "generator": "ollama:llama3:8b", "judge": "ollama:llama3:70b"}
    assert thesis_grid.models("ollama:llama3:8b", "embedded").names["judge"] == "embedded grader"


def test_the_run_of_table_3_3_is_graded_once_and_read_back_unchanged(tmp_path, monkeypatch):
    from fake_ollama import FakeOllama

    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    with FakeOllama(reply=towns_model) as server:
        who = thesis_grid.models("ollama:llama3:8b", host=server.url)
        first = thesis_grid.table_3_3(TOWNS, who, again=True, progress=False)
        made = len(server.calls)
        assert made == 2 + 2 * 6 + 2  # decompositions, six answers a question, one grading of all six
        again = thesis_grid.table_3_3(TOWNS, who)
        assert len(server.calls) == made
    pd.testing.assert_frame_equal(first, again, check_dtype=False)
    assert again["grade"].dtype == "Int64"
    # Other questions or another judge are another run.
    fewer = Dataset("towns", QUESTIONS[:1], TOWNS.documents)
    assert len(thesis_grid.table_3_3(fewer, thesis_grid.models())) == 6
    assert len(thesis_grid.table_3_3(TOWNS, thesis_grid.models())) == 12
    assert len(list((tmp_path / "thesis").glob("table_3.3_towns_*.jsonl"))) == 3
