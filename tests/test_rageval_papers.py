"""RAGEval's published cells, which add up where the paper's do, and its generators' table."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from fake_ollama import FakeOllama
from notebook_parts import parts

from ragbench import papers, stats
from ragbench.data import load_dataset
from ragbench.data.dragonball import LANGUAGES
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.checkers import EmbeddedChecker
from ragbench.labelling.keypoints import embedded_keypoint_verdicts
from ragbench.llm import Cassette, chat_model
from ragbench.papers import rageval
from ragbench.paths import packaged_data
from ragbench.prompts import prompt_hash
from ragbench.records import Dataset, Document, Question
from ragbench.text.tokens import default_tokenizer


def wide(item):
    return papers.published("rageval", item).pivot(index="row", columns="column", values="value")


def test_every_table_and_figure_is_there():
    tables = {f"Table {n}" for n in range(1, 7)} | {f"Figure {n}" for n in range(3, 7)}
    assert tables <= set(papers.published_items("rageval"))


def test_table_1_adds_up_to_a_hundred_percent_and_216_documents():
    table = wide("Table 1")
    assert table["documents"].sum() == 216
    assert table["share of questions"].sum() == pytest.approx(100.0)
    assert table["share by reference count"].sum() == pytest.approx(100.0)
    assert table["questions"].dropna().to_dict() == {"All": 6711}


def test_table_3_rows_add_up_to_one_but_for_gpt_4o_in_chinese():
    table = wide("Table 3")
    assert table.shape == (8, 8)
    for language in ("CN", "EN"):
        total = sum(table[f"{m} {language}"] for m in ("Completeness", "Hallucination", "Irrelevance"))
        off = total[(total - 1).abs() > 0.0012].round(4).to_dict()
        assert off == ({"GPT-4o": 0.9956} if language == "CN" else {})
    assert table["Rouge-L CN"].idxmax() == table["Rouge-L EN"].idxmax() == "Baichuan-2-7B-chat"
    assert table[["Rouge-L CN", "Rouge-L EN"]].sum().round(4).to_dict() == {"Rouge-L CN": 1.8539, "Rouge-L EN": 1.9077}


def test_table_4_has_forty_cells_and_the_text_disagrees_with_three_of_them():
    table, text = wide("Table 4"), wide("Section 5.3")
    assert table.size == 40
    generated = ["Completeness CN", "Completeness EN", "Hallucination CN", "Hallucination EN"]
    generated += ["Irrelevance CN", "Irrelevance EN"]
    sums = table.sum().round(4)
    assert sums[["Recall CN", "Recall EN", "EIR CN", "EIR EN"]].tolist() == [2.869, 2.8508, 0.1838, 0.5139]
    assert sums[generated].tolist() == [2.4413, 2.7203, 1.009, 0.4689, 0.5491, 0.8109]
    generation = sum(table[f"{m} CN"] for m in ("Completeness", "Hallucination", "Irrelevance"))
    assert ((generation - 1).abs() < 0.0060).all()
    assert (table.loc["BGE-M3", text.columns] != text.loc["BGE-M3"]).all()


def test_table_5_repeats_retrieval_but_not_generation_where_the_setting_is_the_same():
    table = wide("Table 5")
    assert table.size == 60
    same, again = table.loc["TopK 2"], table.loc["Chunk-TopK 512-2"]
    retrieval = [c for c in table if c.startswith(("Recall", "EIR"))]
    assert (same[retrieval] == again[retrieval]).all()
    assert (same["Completeness CN"], again["Completeness CN"]) == (0.5004, 0.4932)
    for language in ("CN", "EN"):
        total = sum(table[f"{m} {language}"] for m in ("Completeness", "Hallucination", "Irrelevance"))
        assert ((total - 1).abs() < 0.0006).all(), total


def test_table_2_and_table_6():
    assert wide("Table 2").stack().sum() == pytest.approx(29.01)
    assert wide("Table 6")["group"].value_counts().to_dict() == {
        "Single-document QA": 3,
        "Multi-document QA": 3,
        "Unanswerable Questions": 1,
    }


BOOK = parts("43")
POINTS = ("It rose.", "It fell.", "It stayed.")


@pytest.fixture(autouse=True)
def _results(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))


def question(number, language="en", kind="factual", **meta):
    about = {"domain": "finance", "language": language, "doc_ids": ("d1",), "keypoints": POINTS, **meta}
    return Question(f"q{number}", f"Question {number}?", "It rose. It fell.", ("It rose.",), kind, "", about)


def answered(*pairs, error=""):
    """Rows as of `rageval.answers`: (question id, text) each."""
    rows = pd.DataFrame(pairs, columns=["question_id", "answer"])
    return rows.assign(status="failed" if error else "ok", model="gen", setting="TopK 5")


def test_keypoints_come_from_the_data_or_by_rule_and_say_which():
    own, cut = BOOK.with_keypoints([question(1), question(2, keypoints=None)])
    assert (own.meta["keypoints"], own.meta["keypoints_by"]) == (POINTS, "data")
    assert (cut.meta["keypoints"], cut.meta["keypoints_by"]) == (("It rose.", "It fell."), "rule")


def test_a_model_cuts_the_keypoints_and_says_where_it_failed(tmp_path):
    def reply(body):
        points = ["Oil rose.", "Gas fell.", "Coal held."]
        return json.dumps({"keypoints": points[:1] if "Question 2?" in str(body["messages"]) else points})

    asked = [question(1, keypoints=None), question(2, keypoints=None), question(3)]
    with FakeOllama(reply=reply) as server:
        model = chat_model("ollama:llama3:8b", host=server.url)
        tape = Cassette(tmp_path / "tape.sqlite", mode="record")
        cut, failed, own = BOOK.with_keypoints(asked, model, cassette=tape)
        calls = len(server.calls)
        assert BOOK.with_keypoints(asked[:1], model, cassette=tape) == (cut,)
        assert len(server.calls) == calls
        prompts = {call.body["messages"][0]["content"] for call in server.calls}
    assert (cut.meta["keypoints"], cut.meta["keypoints_by"]) == (("Oil rose.", "Gas fell.", "Coal held."), "model")
    assert failed.meta["keypoints"] == ()
    assert failed.meta["keypoints_by"].startswith("failed: ")
    assert own.meta["keypoints_by"] == "data"
    assert any("Question 1?" in p and "It rose. It fell." in p for p in prompts)
    assert not any("Question 3?" in p for p in prompts)
    answers = answered((cut.id, "Oil rose."), (failed.id, "Oil rose."))
    rows = BOOK.score_answers([cut, failed], answers, [["covered", "neither", "neither"], []])
    assert rows["completeness"].isna().tolist() == [False, True]


def corpus(language="en"):
    about = {"domain": "finance", "language": language}
    english = (
        "Marn Works",
        "Marn Works sold apples in May. The mill burned down in June.",
        "When did the mill burn down?",
    )
    chinese = ("鸢屿公司", "鸢屿公司于五月出售苹果。工厂在六月烧毁。", "工厂何时烧毁？")
    title, text, asked = english if language == "en" else chinese
    q = Question("q1", asked, "In June.", (), "factual", "", {**about, "keypoints": ("x",)})
    return Dataset("small", (q,), (Document("d1", title, text, (), about),))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_generator_reads_passages_with_their_title(language):
    def echo(question, context):
        return context

    data = corpus(language)
    answer = rageval.answers(data, echo)["answer"].item()
    assert answer == f"({data.documents[0].title}) {data.documents[0].text}"
    with pytest.raises(ConfigError, match="budget=3") as refused:
        rageval.answers(data, echo, budget=3)
    alone = int(re.search(r"the (\d+) tokens", str(refused.value))[1])
    short = rageval.answers(data, echo, budget=alone + 3)["answer"].item()
    assert 0 < len(short) < len(answer)
    assert answer.startswith(short)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_live_run_sends_its_own_prompt_and_the_limits_of_section_5_1(language):
    data = corpus(language)
    long = replace(data, documents=(replace(data.documents[0], text=data.documents[0].text * 600),))
    with FakeOllama() as server:
        model = BOOK.chat_generator("ollama:llama3:8b", server.url)
        row = rageval.answers(long, model, {"all": (10**6, 5)}).iloc[0]
    assert row["prompt_sha256"] == prompt_hash(f"rageval_answer_{language}")
    (call,) = server.calls
    sent = call.body["messages"][-1]["content"]
    assert data.questions[0].text in sent
    assert f"({data.documents[0].title})" in sent
    assert "single sentence" not in sent
    assert 4090 <= len(default_tokenizer().encode(sent, add_special_tokens=False).ids) <= 4096
    # The model's own temperature and top-p: none is sent.
    assert call.body["options"] == {"num_ctx": 4096 + 256, "num_predict": 256, "seed": 0}


def test_chatgpt_samples_as_section_5_1_says(monkeypatch):
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with FakeOllama(models={"gpt-4o": "x"}) as server:
        model = BOOK.chat_generator("openai:gpt-4o", f"{server.url}/v1")
        rageval.answers(corpus(), model)
    body = server.calls[0].body
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    assert (body["temperature"], body["top_p"], limit) == (0.2, 1.0, 256)


def test_an_answer_that_the_limit_ended_is_kept_and_other_failures_are_not_scored():
    data = corpus()
    with FakeOllama(reply=lambda body: "It burned. " * 400) as server:
        cut = rageval.answers(data, BOOK.chat_generator("ollama:llama3:8b", server.url)).iloc[0]
    assert cut["finish"] == "length"
    assert cut["status"] == "ok"
    assert cut["answer"].startswith("It burned. It burned.")
    q, failed = question(1), answered(("q1", "It rose."), error="server: down")
    rows = BOOK.score_answers([q], failed, BOOK.judge_answers([q], failed))
    assert rows[["completeness", "rouge_l"]].isna().to_numpy().all()
    assert rows["unread"].tolist() == [3]


def test_the_extractive_reader_is_the_default_and_abstains_in_the_language():
    row = rageval.answers(corpus()).iloc[0]
    assert row["model"] == "extractive reader (no LLM)"
    assert "June" in row["answer"]
    data = corpus("zh")
    lost = replace(data, questions=(replace(data.questions[0], text="xyz qrst?"),))
    assert rageval.answers(lost)["answer"].item() == "现有文档不足以回答该问题。"
    mixed = replace(data, questions=(*data.questions, *corpus("en").questions))
    with pytest.raises(DataError, match="one language"):
        rageval.answers(mixed)


def test_embedded_verdicts_cover_what_is_said_and_see_other_numbers(minilm):
    points = [["The mill burned down in June.", "Sales reached 40 crowns.", "A new chairman was elected."]] * 2
    answers = ["The mill burned down in June. Sales reached 90 crowns.", " "]
    found = embedded_keypoint_verdicts(points, answers, checker=EmbeddedChecker(minilm))
    assert found == [["covered", "contradicted", "neither"], ["neither"] * 3]
    with pytest.raises(ConfigError, match="1 keypoints, 2 answers"):
        embedded_keypoint_verdicts(points[:1], answers)
    with pytest.raises(ConfigError, match="'fr'"):
        embedded_keypoint_verdicts(points, answers, "fr")


def test_embedded_verdicts_read_chinese_character_by_character(minilm):
    said = "公司于2023年2月11日并购霂汀服务有限公司，价款为4968万元。工厂在六月烧毁。"
    points = ["公司收购了霂汀服务有限公司。", "价款为1234万元。", "董事会有7名董事，其中3名独立董事。"]
    checker = EmbeddedChecker(minilm)
    assert embedded_keypoint_verdicts([points], [said], "zh", checker) == [["covered", "contradicted", "neither"]]
    assert embedded_keypoint_verdicts([points], [said], "en", checker) == [["neither"] * 3]  # why it is needed
    mixed = embedded_keypoint_verdicts([points, ["It rose."]], [said, "It rose."], ["zh", "en"], checker)
    assert mixed == [["covered", "contradicted", "neither"], ["covered"]]


def test_a_model_judges_keypoints_in_the_place_of_the_stand_in(minilm, tmp_path):
    q = question(1, keypoints=("Oil rose.", "Gas fell."))
    a = answered((q.id, "Oil rose."))
    assert BOOK.judge_answers([q], a) == embedded_keypoint_verdicts([q.meta["keypoints"]], ["Oil rose."])
    with FakeOllama(reply=lambda body: '{"labels": ["contradicted", "neither"]}') as server:
        model = chat_model("ollama:llama3:8b", host=server.url)
        tape = Cassette(tmp_path / "tape.sqlite", mode="record")
        judged = BOOK.judge_answers([q], a, model, cassette=tape)
        assert judged == BOOK.judge_answers([q], a, model, cassette=tape) == [["contradicted", "neither"]]
        assert len(server.calls) == 1
        for text in ("Question 1?", "Oil rose.", "Gas fell."):
            assert text in server.calls[0].prompt
    assert BOOK.score_answers([q], a, judged)["hallucination"].tolist() == [0.5]


def rows_of(*cases):
    questions = [question(i, language=g, kind=k) for i, (g, k, _, _) in enumerate(cases)]
    answers = answered(*((q.id, text) for q, (_, _, text, _) in zip(questions, cases, strict=True)))
    return BOOK.score_answers(questions, answers, [own for *_, own in cases])


def test_rows_and_table_3_by_hand():
    rows = rows_of(
        ("en", "factual", "It rose.", ["covered", "contradicted", "neither"]),
        ("en", "factual", "Nothing here", ["neither", None, "neither"]),
        ("en", "unanswerable", "It rose. It fell.", ["covered"] * 3),
        ("zh", "summary", "It rose. It fell.", ["covered", "covered", "neither"]),
    )
    # English, distinct words: "It rose" of "It rose, It fell", 2 of 2 and of 3 words. Chinese: characters.
    assert rows["rouge_l"].tolist() == pytest.approx([4 / 5, 0, 1, 1])
    assert rows["keypoints"].tolist() == [3] * 4
    assert rows["unread"].tolist() == [0, 1, 0, 0]
    table = BOOK.table_3(rows).set_index("column")
    assert table.loc["Completeness EN", ["value", "n", "unscored"]].tolist() == [pytest.approx(1 / 3), 1, 1]
    assert table.loc["Completeness CN", "value"] == pytest.approx(2 / 3)
    assert table.loc["Rouge-L EN", ["value", "n"]].tolist() == [pytest.approx(2 / 5), 2]
    assert set(table.index) == set(papers.published("rageval", "Table 3")["column"])
    for code in ("CN", "EN"):
        shares = [table.loc[f"{m} {code}", "value"] for m in ("Completeness", "Hallucination", "Irrelevance")]
        assert sum(shares) == pytest.approx(1)


def test_table_3_resamples_documents():
    covered = [1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0]
    rows = rows_of(*(("en", "factual", "It rose.", ["covered" if c else "neither"] * 3) for c in covered))
    rows["document"] = range(len(rows))
    apart = BOOK.table_3(rows).set_index("column").loc["Completeness EN"]
    rows["document"] //= 2
    own = BOOK.table_3(rows).set_index("column").loc["Completeness EN"]
    expected = stats.bootstrap_ci(covered, groups=rows["document"])
    assert own[["low", "high"]].tolist() == pytest.approx([expected.low, expected.high])
    assert own["value"] == apart["value"]
    assert own["low"] < apart["low"]


def test_recorded_scores_of_the_chinese_half_cover_its_questions_and_e5_leads_where_the_docs_say_so():
    recorded = pd.read_csv(packaged_data("recordings", "rageval_dense.csv.gz"))
    assert recorded.groupby(["retriever", "setting"])["question_id"].nunique().eq(2134).all()
    assert recorded["document"].nunique() == 40
    mean = recorded[recorded["setting"] == "TopK 5"].groupby(["kind", "retriever"])["recall"].mean().unstack()
    assert (mean["E5-small"] < mean["BM25"])["numerical comparison"]
    assert (mean["E5-small"] > mean["BM25"]).drop(["numerical comparison", "unanswerable"]).all()


@pytest.mark.data
@pytest.mark.slow
def test_the_recorded_scores_of_bm25_are_those_that_are_measured_now():
    dragonball = load_dataset("dragonball", rageval.DATA, language="zh")
    settings = {"TopK 5": rageval.SETTINGS["TopK 5"]}
    now = rageval.retrieval_rows(dragonball, {"BM25": rageval.bm25("zh")}, settings, prefix=[True])
    recorded = pd.read_csv(packaged_data("recordings", "rageval_dense.csv.gz"))
    then = recorded[(recorded["retriever"] == "BM25") & (recorded["setting"] == "TopK 5")].set_index("question_id")
    now = now.set_index("question_id").loc[then.index]
    pd.testing.assert_frame_equal(now[["recall", "eir"]], then[["recall", "eir"]], atol=1e-6)
