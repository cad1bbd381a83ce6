"""The thesis's experiment end to end: Table 3.1's retrievers and scores, answers and grades of Tables 3.2 and 3.3."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from experiment_parts import Copier
from fake_ollama import FakeOllama

from ragbench import papers
from ragbench.chunking import semantic_chunks
from ragbench.data import load_dataset, load_minihop
from ragbench.embedding import default_embedder
from ragbench.errors import ConfigError
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.labelling.grades import GRADE_COLUMNS, grade_shares
from ragbench.papers import thesis
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.records import Chunk, Dataset, Document, Hit, Question
from ragbench.text.tokens import default_tokenizer

MODEL = "ollama:llama3:8b"


@pytest.fixture(scope="module")
def minihop_rows(tmp_path_factory):
    data = load_minihop()
    chunks = semantic_chunks(data.documents, default_embedder())
    options = {"chunker": {"as run": lambda documents: chunks}, "folder": tmp_path_factory.mktemp("table_3_1")}
    rows = thesis.experiment("Table 3.1", data, **options).run(progress=False)
    return data, {c.id: c.text for c in chunks}, rows


def test_every_retriever_keeps_the_number_of_chunks_of_the_published_run(minihop_rows):
    _, _, rows = minihop_rows
    longest = rows["hits"].str.len().groupby(rows["retriever"], sort=False).max()
    assert longest.to_dict() == {"BM25": 5, "SIM": 10, "MMR": 10, "MLQ": 5, "REO": 10}
    assert tuple(longest.index) == thesis.RETRIEVERS


def test_reo_holds_the_chunks_of_sim_with_the_best_one_last(minihop_rows):
    _, _, rows = minihop_rows
    wide = rows[rows["N"] == 100].pivot(index="question_id", columns="retriever", values="hits")
    for sim, reo in zip(wide["SIM"], wide["REO"], strict=True):
        assert reo == [sim[i - 1] for i in (2, 4, 6, 8, 10, 9, 7, 5, 3, 1)]


def test_scores_equal_the_definition_on_every_tenth_question(minihop_rows):
    data, texts, rows = minihop_rows
    tokenizer = default_tokenizer()
    mine = rows[(rows["retriever"] == "MMR") & (rows["N"] == 300)].set_index("question_id")
    for question in data.questions[::10]:
        text = " ".join(texts[chunk] for chunk in mine.loc[question.id, "hits"])
        end = tokenizer.encode(text, add_special_tokens=False).offsets[299][1]
        expected = np.mean([longest_common(p, text[:end]) / len(p) for p in question.references])
        assert mine.loc[question.id, "ir_score"] == pytest.approx(expected)


def longest_common(part: str, text: str) -> int:
    best = 0
    for start in range(len(part)):
        while part[start : start + best + 1] in text and start + best < len(part):
            best += 1
    return best


def test_minihop_tells_retrievers_apart(minihop_rows):
    """The data set's own promise: best at most 0.9 at N = 1000, at least 0.08 between best and worst at N = 500."""
    by_n = minihop_rows[2].groupby(["N", "retriever"])["ir_score"].mean().unstack()
    assert by_n.loc[1000].max() <= 0.9
    assert by_n.loc[500].max() - by_n.loc[500].min() >= 0.08


def test_data_sets_and_tables_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    assert load_dataset("auto", thesis.DATA).name == "minihop"
    with pytest.raises(ConfigError, match="did you mean 'hotpotqa'"):
        load_dataset("hotpot", thesis.DATA)
    with pytest.raises(ConfigError, match="unknown table"):
        thesis.experiment("Table 3.4", TOWNS)


QUESTIONS = (
    Question("q1", "In which town was Ann Lee born?", "Ely", ("Ann Lee was born in Ely.",), "bridge"),
    Question("q2", "In which town was Bob Ray born?", "York", ("Bob Ray was born in York.",), "bridge"),
    Question("q3", "In which town was Cy Orr born?", "Bath", (), "bridge"),
)
PAGES = {"Ann Lee": "Ann Lee was born in Ely.", "Bob Ray": "Bob Ray was born in York."}
PAGES["Kelp"] = "Kelp forests grow under cold water."
DOCUMENTS = tuple(Document(f"d{i}", title, text, (text,)) for i, (title, text) in enumerate(PAGES.items()))
TOWNS = Dataset("towns", QUESTIONS[:2], DOCUMENTS)


class Found:
    """A retriever that returns the documents it is told to, one per question."""

    def __init__(self, *titles: str) -> None:
        self.titles = titles

    def settings(self):
        return {"titles": self.titles}

    def search(self, queries, k, scope=None):
        places = [[q.text for q in QUESTIONS].index(query) for query in queries]
        return [[Hit(Chunk(self.titles[i], PAGES[self.titles[i]], "d"), 1.0, 1)] for i in places]


def found(*titles):
    return lambda chunks: Found(*titles)


GOOD, POOR = found("Ann Lee", "Bob Ray", "Kelp"), found("Kelp", "Bob Ray", "Kelp")


def run(folder, data, who, retriever, N, **options):
    options = {"retriever": retriever, "k": 1, "N": N, "folder": folder} | options
    return thesis.experiment("Table 3.3", data, who, **options).run(progress=False)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    who = thesis.Models(thesis.models().decompose, Copier(), EmbeddedGrader(), None)
    data = Dataset("d", QUESTIONS, DOCUMENTS)
    return run(tmp_path_factory.mktemp("rows"), data, who, {"A": GOOD, "B": POOR}, (0, 3, 1000))


def test_scores_belong_to_the_context_that_was_answered_from(rows):
    table = rows.set_index(["question_id", "retriever", "N"])["ir_score"]
    assert table["q1", "A", 1000] == 1.0
    assert table["q1", "A", 3] == pytest.approx(len("Ann Lee was") / len("Ann Lee was born in Ely."))
    assert table["q1", "B", 1000] < 0.3
    assert math.isnan(table["q1", "LLM only", 0])


def test_shares_are_of_the_scored_answers_and_count_the_unscored():
    grades = pd.array([5, 5, 1, None, None], dtype="Int64")
    frame = pd.DataFrame({"system": list("AAAAB"), "grade": grades, "seconds": 1.0})
    table = grade_shares(frame, "system").set_index("system")
    assert table.loc["A", ["grade 1", "grade 5", "n", "unscored"]].tolist() == [1 / 3, 2 / 3, 3, 1]
    assert math.isnan(table.loc["B", "grade 5"])
    assert table.loc["B", "unscored"] == 1
    counts = grade_shares(frame, "system", counts=True).set_index("system")
    assert counts.loc["A", ["grade 1", "grade 5"]].tolist() == [1, 2]
    cells = papers.cells(counts.reset_index(), "system", GRADE_COLUMNS)
    assert cells[(cells["row"] == "A") & (cells["column"] == "grade 5")]["value"].item() == 2
    assert len(cells) == 10


def towns_model(request):
    """A model that decomposes every question into one about kelp, answers, and grades 5, 4, 3, 2, 1, 5."""
    if request.get("format"):
        (name, spec), *_ = request["format"]["properties"].items()
        return json.dumps({name: [5, 4, 3, 2, 1, 5][: spec["minItems"]]})
    if "born" in request["messages"][-1]["content"] and "Kelp" not in request["messages"][-1]["content"]:
        return "Where do kelp forests grow?"
    return "In Ely."


def test_one_name_makes_decomposer_generator_and_judge_and_the_rows_name_them(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    with FakeOllama(reply=towns_model) as server:
        who = thesis.models(MODEL, recording=tmp_path / "c.sqlite", host=server.url)
        rows = thesis.experiment("Table 3.3", TOWNS, who).run(progress=False)
        asked = [call.prompt for call in server.calls]
        decomposition = load_prompt("multiquery_decomposition")
        for question in TOWNS.questions:
            assert sum(fill_prompt(decomposition, question=question.text) in prompt for prompt in asked) == 1
        # MLQ has read what the model asked for first: kelp, of which the rules know nothing.
        answered = [prompt for prompt in asked if "In which town was Ann Lee born?" in prompt]
        assert any(prompt.find("Kelp") < prompt.find("Ann Lee was born") for prompt in answered if "Kelp" in prompt)
    assert who.names == {"decomposer": MODEL, "generator": MODEL, "judge": MODEL}
    assert str(who) == f"decomposer {MODEL}, generator {MODEL}, judge {MODEL}"
    assert [rows[column].unique().tolist() for column in ("generator", "judge")] == [[MODEL], [MODEL]]


def test_without_a_name_no_part_is_a_language_model_and_another_judge_can_be_named():
    who = thesis.models()
    parts = ["rules (stand-in, no LLM)", "extractive reader (no LLM)", "embedded grader"]
    assert str(who) == "decomposer {}, generator {}, judge {}".format(*parts)
    assert who.recording is None
    mixed = thesis.models(MODEL, "ollama:llama3:70b").names
    assert mixed == {"decomposer": MODEL, "generator": MODEL, "judge": "ollama:llama3:70b"}
    assert thesis.models(MODEL, "embedded").names["judge"] == "embedded grader"


def test_the_run_of_table_3_3_is_graded_once_and_read_back_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    with FakeOllama(reply=towns_model) as server:
        who = thesis.models(MODEL, recording=tmp_path / "c.sqlite", host=server.url)
        first = thesis.experiment("Table 3.3", TOWNS, who).run(progress=False)
        made = len(server.calls)
        assert made == 2 + 2 * 6  # decompositions, six answers a question but for one prompt that comes twice, gradings
        again = thesis.experiment("Table 3.3", TOWNS, who).run(progress=False)
        assert len(server.calls) == made
    pd.testing.assert_frame_equal(first.drop(columns="cached"), again.drop(columns="cached"))
    assert again["grade"].dtype == "Int64"
    # Other questions or another judge are another run.
    fewer = Dataset("towns", QUESTIONS[:1], TOWNS.documents)
    assert len(thesis.experiment("Table 3.3", fewer).run(progress=False)) == 6
    assert len(thesis.experiment("Table 3.3", TOWNS).run(progress=False)) == 12
