"""The thesis's experiment end to end: Table 3.1's retrievers and scores, answers and grades of
Tables 3.2 and 3.3.
"""

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from experiment_parts import Copier
from fake_ollama import FakeOllama

from ragbench.chunking import semantic_chunks
from ragbench.data import load_dataset, load_figure_3_1, load_minihop
from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, NotHereError
from ragbench.labelling.grades import GRADE_COLUMNS, grade_shares
from ragbench.papers import thesis
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.records import Chunk, Dataset, Document, Grade, Hit, Question
from ragbench.text.tokens import default_tokenizer

MODEL = "ollama:llama3:8b"


@pytest.fixture(scope="module")
def minihop_rows(tmp_path_factory):
    data = load_minihop()
    chunks = semantic_chunks(data.documents, make_embedder())
    options = {
        "chunker": {"merged": lambda documents: chunks},
        "folder": tmp_path_factory.mktemp("table_3_1"),
    }
    rows = thesis.experiment("Table 3.1", data, **options).run(progress=False)
    return data, {c.id: c.text for c in chunks}, rows


def test_a_published_mean_is_over_the_questions_whose_own_text_reaches_n():
    tokens = {"a": 99, "b": 100, "c": 250}  # the begin token makes them 100, 101, 251
    rows = pd.DataFrame(
        {"question_id": q, "retriever": "BM25", "N": n, "context_tokens": min(n, t)}
        for q, t in tokens.items()
        for n in (100, 200, 300, 400, 10**6)
    ).assign(chunker="merged", k=5)
    kept = thesis.reaching(rows).groupby("N")["question_id"].agg("".join)
    assert kept.to_dict() == {100: "abc", 200: "bc", 300: "c"}


def test_every_retriever_keeps_the_number_of_chunks_of_the_published_run(minihop_rows):
    _, _, rows = minihop_rows
    longest = rows["hits"].str.len().groupby(rows["retriever"], sort=False).max()
    assert longest.to_dict() == {"BM25": 5, "SIM": 10, "MMR": 10, "MLQ": 5, "REO": 10}
    assert tuple(longest.index) == thesis.RETRIEVER_NAMES


def test_reo_holds_the_chunks_of_sim_with_the_best_one_last(minihop_rows):
    _, _, rows = minihop_rows
    wide = rows[rows["N"] == 100].pivot(index="question_id", columns="retriever", values="hits")
    for sim, reo in zip(wide["SIM"], wide["REO"], strict=True):
        assert reo == [sim[i - 1] for i in (2, 4, 6, 8, 10, 9, 7, 5, 3, 1)]


def test_scores_equal_the_definition_on_every_tenth_question(minihop_rows):
    data, texts, rows = minihop_rows
    tokenizer = default_tokenizer()
    mine = rows.query("retriever == 'MMR' and N == 300").set_index("question_id")
    for question in data.questions[::10]:
        text = " ".join(texts[chunk] for chunk in mine.loc[question.id, "hits"])
        end = tokenizer.encode(text, add_special_tokens=False).offsets[299][1]
        expected = np.mean([longest_common(p, text[:end]) / len(p) for p in question.references])
        assert mine.loc[question.id, "ir_score"] == pytest.approx(expected)


def longest_common(part, text):
    best = 0
    for start in range(len(part)):
        while part[start : start + best + 1] in text and start + best < len(part):
            best += 1
    return best


def test_minihop_tells_retrievers_apart(minihop_rows):
    """The data set's own promise: best at most 0.9 at N = 1000, at least 0.08 between best and
    worst at N = 500.
    """
    by_n = minihop_rows[2].groupby(["N", "retriever"])["ir_score"].mean()
    assert by_n[1000].max() <= 0.9
    assert np.ptp(by_n[500]) >= 0.08


def test_data_sets_and_tables_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    assert load_dataset("auto", thesis.DATA).name == "minihop"
    with pytest.raises(ConfigError, match="did you mean 'hotpotqa'"):
        load_dataset("hotpot", thesis.DATA)
    (tmp_path / "hotpotqa").mkdir(exist_ok=True)
    (tmp_path / "hotpotqa" / "hotpot_dev_distractor_subset.json.gz").touch()
    with pytest.raises(NotHereError, match=r"whole dev set(.|\n)*ragbench data fetch hotpotqa"):
        load_dataset("hotpotqa_all", thesis.DATA)
    with pytest.raises(ConfigError, match="unknown table"):
        thesis.experiment("Table 3.4", TOWNS)


def birth(name, person, town, *facts):
    return Question(name, f"In which town was {person} born?", town, facts)


ANN = "Ann Lee was born in Ely."
BOB = "Bob Ray was born in York."
QUESTIONS = (
    birth("q1", "Ann Lee", "Ely", ANN),
    birth("q2", "Bob Ray", "York", BOB),
    birth("q3", "Cy Orr", "Bath"),
)
PAGES = {"Ann Lee": ANN, "Bob Ray": BOB, "Kelp": "Kelp forests grow under cold water."}
DOCUMENTS = tuple(
    Document(f"d{i}", title, text, (text,)) for i, (title, text) in enumerate(PAGES.items())
)
TOWNS = Dataset("towns", QUESTIONS[:2], DOCUMENTS)


class Found:
    """A retriever that returns the documents it is told to, one per question."""

    def __init__(self, *titles):
        self.titles = titles

    def settings(self):
        return {"titles": self.titles}

    def search(self, queries, k):
        by_question = dict(zip((q.text for q in QUESTIONS), self.titles, strict=True))
        titles = [by_question[query] for query in queries]
        return [[Hit(Chunk(title, PAGES[title], "d"), 1.0, 1)] for title in titles]


def found(*titles):
    return lambda chunks: Found(*titles)


GOOD = found("Ann Lee", "Bob Ray", "Kelp")
POOR = found("Kelp", "Bob Ray", "Kelp")


def run(folder, data, who, retriever, N, **options):
    options = {"retriever": retriever, "k": 1, "N": N, "folder": folder} | options
    return thesis.experiment("Table 3.3", data, who, **options).run(progress=False)


class AllRight:
    """A judge that finds every answer right."""

    name = "all right"

    def grade_all(self, questions, answers):
        return [Grade(a.question_id, 5, self.name) for a in answers]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    who = SimpleNamespace(
        decompose=None, generator=Copier(), judge=AllRight(), recording=None, grading=None,
        names={"generator": "copier", "judge": "all right"},
    )  # fmt: skip
    data = Dataset("d", QUESTIONS, DOCUMENTS)
    return run(tmp_path_factory.mktemp("rows"), data, who, {"A": GOOD, "B": POOR}, (0, 3, 1000))


def test_scores_belong_to_the_context_that_was_answered_from(rows):
    table = rows.set_index(["question_id", "retriever", "N"])["ir_score"]
    assert table["q1", "A", 1000] == 1.0
    assert table["q1", "A", 3] == pytest.approx(len("Ann Lee was") / len(ANN))
    assert table["q1", "B", 1000] < 0.3
    assert math.isnan(table["q1", "LLM only", 0])


def test_shares_are_of_the_scored_answers_and_count_the_unscored():
    grades = pd.array([5, 5, 1, None, None], dtype="Int64")
    frame = pd.DataFrame({"system": list("AAAAB"), "grade": grades, "seconds": 1.0})
    table = grade_shares(frame, "system").set_index("system")
    names = ["grade 1", "grade 5", "n", "unscored"]
    assert table.loc["A", names].tolist() == [1 / 3, 2 / 3, 3, 1]
    assert table.loc["B", names].fillna(-1).tolist() == [-1, -1, 0, 1]
    assert len(GRADE_COLUMNS) == 5
    assert {*GRADE_COLUMNS} <= {*table}


def towns_model(request):
    """A model that decomposes every question into one about kelp, answers, and grades 5, 4, 3, 2,
    1, 5.
    """
    if request.get("format"):
        (name, spec), *_ = request["format"]["properties"].items()
        return json.dumps({name: [5, 4, 3, 2, 1, 5][: spec["minItems"]]})
    prompt = request["messages"][-1]["content"]
    return "In Ely." if "Kelp" in prompt or "born" not in prompt else "Where do kelp forests grow?"


def test_one_name_makes_decomposer_generator_and_judge_and_the_rows_name_them(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    with FakeOllama(reply=towns_model) as server:
        who = thesis.Models(MODEL, recording=tmp_path / "c.sqlite", host=server.url)
        rows = thesis.experiment("Table 3.3", TOWNS, who).run(progress=False)
        asked = [call.prompt for call in server.calls]
    decomposition = load_prompt("multiquery_decomposition")
    for question in TOWNS.questions:
        words = fill_prompt(decomposition, question=question.text)
        assert [words in prompt for prompt in asked].count(True) == 1
    # MLQ has read what the model asked for first: kelp, of which the rules know nothing.
    answered = [prompt for prompt in asked if QUESTIONS[0].text in prompt]
    assert any(re.search(f"(?s)Kelp.*{ANN}", prompt) for prompt in answered)
    assert who.names == dict.fromkeys(("decomposer", "generator", "judge"), MODEL)
    assert str(who) == f"decomposer {MODEL}, generator {MODEL}, judge {MODEL}"
    assert rows[["generator", "judge"]].eq(MODEL).all(axis=None)


def test_another_judge_can_be_named():
    mixed = thesis.Models(MODEL, "ollama:llama3:70b")
    assert mixed.names == {"decomposer": MODEL, "generator": MODEL, "judge": "ollama:llama3:70b"}
    assert mixed.recording is None


def test_without_models_a_table_is_retrieval_only(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    data = load_minihop(limit=2)
    rows = thesis.experiment("Table 3.3", data).run(progress=False)
    assert set(rows["N"]) == {1000}
    assert rows["answer"].isna().all()
    assert rows["grade"].isna().all()


# -- what a model wrote for MLQ
# ----------------------------------------------------------------------------------------


def test_recorded_sub_questions_are_those_of_every_question_of_minihop_and_name_their_model():
    decompose = thesis.RecordedSubQuestions()
    written = {q.id: decompose(q.text) for q in load_minihop().questions}
    assert sum(map(bool, written.values())) >= 0.95 * len(written)
    assert decompose.settings()["decomposer"].startswith("gguf:")
    with pytest.raises(
        ConfigError, match=r"no recorded sub-questions for 'Who\?'(.|\n)*llm_decomposer"
    ):
        decompose("Who?")


# -- Figure 3.1 by the thesis's own answers
# ----------------------------------------------------------------------------


def test_the_thesiss_own_answers_agree_with_k_and_not_with_h():
    table = load_figure_3_1()
    assert len(table) == 7400
    below = table["ir_score"] < thesis.H
    above = table["ir_score"] > thesis.K
    five = table["grades"] == "5"
    one = table["grades"] == "1"
    agreed = [(above == five).mean(), 1 - five.mean(), (below == one).mean(), 1 - one.mean()]
    assert agreed == pytest.approx([0.690, 0.576, 0.896, 0.923], abs=5e-4)
    shares = [one[below].mean(), one[~below & ~above].mean(), one[above].mean()]
    assert shares == pytest.approx([0.244, 0.102, 0.018], abs=5e-4)


def test_the_run_of_table_3_3_is_graded_once_and_read_back_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    with FakeOllama(reply=towns_model) as server:
        who = thesis.Models(MODEL, recording=tmp_path / "c.sqlite", host=server.url)
        first = thesis.experiment("Table 3.3", TOWNS, who).run(progress=False)
        made = len(server.calls)
        # decompositions, six answers a question but for one prompt that comes twice, gradings
        assert made == 2 + 2 * 6
        again = thesis.experiment("Table 3.3", TOWNS, who).run(progress=False)
        assert len(server.calls) == made
    pd.testing.assert_frame_equal(first.drop(columns="cached"), again.drop(columns="cached"))
    assert again["grade"].dtype == "Int64"
    # Other questions or another judge are another run.
    fewer = Dataset("towns", QUESTIONS[:1], TOWNS.documents)
    with FakeOllama(reply=towns_model) as server:
        who = thesis.Models(MODEL, recording=tmp_path / "d.sqlite", host=server.url)
        assert len(thesis.experiment("Table 3.3", fewer, who).run(progress=False)) == 6
