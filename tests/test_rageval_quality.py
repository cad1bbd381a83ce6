"""RAGEval's quality assessment from label files made here, and its generators' table."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fake_ollama import FakeOllama
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench import datagen, papers
from ragbench.data import load_dragonball
from ragbench.data.dragonball import DOMAINS, LANGUAGES, QUESTION_TYPES
from ragbench.datagen import parts
from ragbench.embedding import default_tokenizer
from ragbench.errors import ConfigError, DataError
from ragbench.labelling import agreement, people
from ragbench.labelling.checkers import EmbeddedChecker
from ragbench.labelling.keypoints import embedded_keypoint_verdicts
from ragbench.llm import Cassette, Reply, chat_model
from ragbench.papers import rageval
from ragbench.papers.rageval import quality
from ragbench.prompts import prompt_hash
from ragbench.records import Dataset, Document, Question


@pytest.fixture(autouse=True)
def _results(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))


AT = "2026-11-21T10:00:00+00:00"
POINTS = ("It rose.", "It fell.", "It stayed.")


def question(number, domain="finance", language="en", kind="factual", **meta):
    about = {"domain": domain, "language": language, "doc_ids": ("d1",), "keypoints": POINTS, **meta}
    return Question(f"q{number}", f"Question {number}?", "It rose. It fell.", ("It rose.",), kind, "", about)


def answered(*pairs, error=""):
    """Rows as of `rageval.answers`: (question id, text) each."""
    rows = pd.DataFrame(pairs, columns=["question_id", "answer"])
    return rows.assign(status="failed" if error else "ok", model="gen", setting="TopK 5")


def everywhere(n):
    cells = itertools.product(DOMAINS, LANGUAGES, QUESTION_TYPES, range(n))
    return [question(f"{d}{g}{t}{i}", d, g, t) for d, g, t, i in cells]


def score(item, label, annotator="ana"):
    return people.Label("rubric", item, "quality", str(label), annotator, AT)


def ranked(item, aspect="safety", annotator="ana", **ranks):
    names = {f"{aspect}/{name.replace('_', '-')}": str(rank) for name, rank in ranks.items()}
    return [people.Label("ranks", item, name, rank, annotator, AT) for name, rank in names.items()]


# the samples


def test_the_protocol_takes_420_questions_ten_of_each_cell():
    sample, cells = quality.question_sample(everywhere(13))
    assert len(sample) == 420 == papers.published("rageval", "Section 4")["value"].iloc[0]
    kinds = Counter((q.meta["domain"], q.meta["language"], q.kind) for q in sample)
    assert set(kinds.values()) == {10}
    assert len(kinds) == len(cells) == 42
    assert cells["available"].unique().tolist() == [13]
    assert cells["short"].sum() == 0


def test_the_choice_goes_by_seed_and_not_by_order_or_by_what_else_there_is():
    questions = everywhere(13)
    first, _ = quality.question_sample(questions)
    assert quality.question_sample(questions[::-1])[0] == first
    assert quality.question_sample(questions, seed=1)[0] != first
    english = [q for q in questions if q.meta["language"] == "en"]
    assert quality.question_sample(english)[0] == tuple(q for q in first if q.meta["language"] == "en")


def test_a_cell_with_too_few_questions_is_reported_short():
    sample, cells = quality.question_sample([question(i) for i in range(4)])
    assert len(sample) == 4
    assert cells["short"].sum() == 416


def test_twenty_twenty_and_nineteen_documents_per_language():
    documents = [
        Document(f"{d}{g}{i}", "t", "text", (), {"domain": d, "language": g})
        for d, g, i in itertools.product(DOMAINS, LANGUAGES, range(25))
    ]
    counts = Counter((d.meta["domain"], d.meta["language"]) for d in quality.document_sample(documents))
    assert counts == {(d, g): n for d, n in (("finance", 20), ("law", 20), ("medicine", 19)) for g in LANGUAGES}


def test_documents_are_chosen_by_seed_and_not_by_name():
    about = {"domain": "finance", "language": "en"}
    documents = [Document(f"d{i:02d}", "", "x", (), about) for i in range(60)]
    chosen = {seed: [d.id for d in quality.document_sample(documents, seed)] for seed in (0, 1)}
    assert chosen[0] == [d.id for d in quality.document_sample(documents[::-1], 0)]
    assert chosen[0] != chosen[1]
    assert {d.id for d in documents[:20]} not in (set(chosen[0]), set(chosen[1]))


def test_items_show_what_annotators_are_given_and_not_who_wrote_it():
    document = Document("d1", "Report", "It rose. It fell.", (), {"domain": "finance", "language": "en"})
    item = quality.question_items([question(1)], [document])[0]
    assert item.id == "finance/en/factual/q1"
    assert item.texts["Question"] == "Question 1?\n(factual)"
    assert item.texts["References"] == "- It rose."
    assert item.texts["Documents"] == "Report\nIt rose. It fell."

    headed = Document("d1", "Report", "Report\nIt rose.", (), {"domain": "finance", "language": "en"})
    assert quality.question_items([question(1)], [headed])[0].texts["Documents"] == headed.text

    texts = {"zero-shot": {"d1": "Z"}, "one-shot": {"d1": "N"}}
    items, left_out = quality.document_items([document], texts)
    assert items[0].candidates == {"RAGEval": document.text, "zero-shot": "Z", "one-shot": "N"}
    assert left_out == ()
    items, left_out = quality.document_items([document], {"zero-shot": {"d1": "Z"}, "one-shot": {}})
    assert (items, left_out) == ([], (("finance/en/d1", "no text by one-shot"),))
    assert quality.document_items([document], {})[1] == (("finance/en/d1", "no text by another writer"),)

    point = quality.keypoint_items([question(1)], [""])[0]
    assert point.aspects == {"1": "It rose.", "2": "It fell.", "3": "It stayed."}
    assert point.texts == {"Question": "Question 1?", "Answer": "(empty)"}


def test_the_writer_makes_both_baselines_and_reports_failures(monkeypatch):
    seen = []

    def ask(model, prompts, schema, **options):
        seen.extend(prompts)
        return [Reply(text=f"Title {n}\nText {n}.", ok=n != 1, error="late" if n == 1 else None) for n in range(2)]

    monkeypatch.setattr(parts, "ask", ask)
    schema = datagen.load_schema("finance", "en")
    configurations = datagen.make_configurations(schema, 2, 1)
    texts, failed = quality.write_baselines("model", schema, configurations, "A SAMPLE DOCUMENT")
    ids = [c.id for c in configurations]
    assert {w: list(own) for w, own in texts.items()} == {"zero-shot": ids[:1], "one-shot": ids[:1]}
    assert [name for name, _ in failed] == [f"{ids[1]} zero-shot", f"{ids[1]} one-shot"]
    assert ["A SAMPLE DOCUMENT" in p for p in seen] == [False, False, True, True]


# Table 2


def test_scores_are_averaged_by_hand():
    given = {"finance/en/factual/a": 5, "finance/en/factual/b": 3, "finance/en/summary/c": 4, "law/zh/summary/d": 2}
    labels = [*(score(item, label) for item, label in given.items()), score("law/zh/summary/d", 4, "bo")]
    means = quality.quality_means(labels)
    rows = means[["language", "domain", "mean", "n", "annotators"]].to_numpy().tolist()
    assert rows == [["zh", "law", 3.0, 1, 2], ["en", "finance", 4.0, 3, 1]]
    assert means["share_4_5"].tolist() == [0.0, pytest.approx(2 / 3)]
    by_type = quality.quality_means(labels, ("type",)).set_index("type")
    assert list(by_type.index) == ["factual", "summary"]
    assert by_type.loc["summary", "mean"] == 3.5  # (4 + (2 + 4) / 2) / 2


def test_table_2_has_the_papers_cells_and_counts_what_is_missing():
    table = quality.table_2([score("finance/zh/factual/a", 5), score("finance/zh/factual/a", 4)])
    printed = papers.published("rageval", "Table 2")
    assert table[["row", "column"]].to_numpy().tolist() == printed[["row", "column"]].to_numpy().tolist()
    first = table.iloc[0]
    assert (first["row"], first["column"], first["value"], first["n"], first["unscored"]) == ("CN", "Finance", 4, 1, 69)
    assert table["value"].isna().sum() == 5
    assert table["unscored"].sum() == 419
    assert (table.loc[1:, ["n", "unscored"]] == [0, 70]).all(axis=None)
    assert quality.table_2([])["value"].isna().all()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 5)), min_size=1, max_size=30))
def test_the_mean_is_over_items_whatever_was_labelled_before(given_scores):
    labels = [score(f"law/en/factual/{name}", s) for name, s in given_scores]
    held = dict(given_scores)
    row = quality.quality_means(labels, resamples=0).iloc[0]
    assert row["mean"] == pytest.approx(np.mean(list(held.values())))
    assert row["n"] == len(held)


# Figure 5


def test_shares_of_first_ranks_by_hand_with_ties():
    labels = [
        *ranked("finance/en/d1", RAGEval=1, zero_shot=2, one_shot=3),
        *ranked("finance/en/d2", RAGEval=2, zero_shot=2, one_shot=3),  # only the order counts
        *ranked("finance/en/d9", RAGEval=1, zero_shot=2),  # half done: no order
        *ranked("finance/en/d3", RAGEval=2, zero_shot=3, one_shot=1),
        *ranked("finance/en/d3", "clarity", RAGEval=2, zero_shot=1, one_shot=1),
    ]
    table = quality.rank_shares(labels, ("criterion", "writer")).set_index(["criterion", "writer"])
    assert table.loc[("safety", "RAGEval"), "first"] == pytest.approx(2 / 3)
    assert table.loc[("safety", "zero-shot"), "first"] == pytest.approx(1 / 3)
    assert table.loc[("safety", "one-shot"), "first"] == pytest.approx(1 / 3)
    assert table.loc[("safety", "RAGEval"), "mean_rank"] == pytest.approx(4 / 3)
    assert table.loc[("safety", "RAGEval"), "n"] == 3
    assert table.loc[("clarity", "RAGEval"), ["first", "mean_rank"]].tolist() == [0, 2]
    assert list(table.index) == [(c, w) for c in ("safety", "clarity") for w in ("RAGEval", "zero-shot", "one-shot")]


def test_two_peoples_ranks_of_one_document_count_once():
    labels = [
        *ranked("law/zh/d1", annotator="ana", RAGEval=1, zero_shot=2),
        *ranked("law/zh/d1", annotator="bo", RAGEval=2, zero_shot=1),
        *ranked("law/zh/d2", annotator="ana", RAGEval=1, zero_shot=2),
    ]
    own = quality.rank_shares(labels).query("writer == 'RAGEval'").iloc[0]
    assert (own["first"], own["n"]) == (0.75, 2)


def test_figure_5_has_the_papers_rows_in_percent():
    table = quality.figure_5(ranked("law/zh/d1", "richness", RAGEval=1, zero_shot=2)).set_index("row")
    assert set(papers.published("rageval", "Figure 5")["row"]) <= set(table.index)
    assert table.loc["Richness CN", ["value", "n"]].tolist() == [100, 1]
    assert math.isnan(table.loc["Richness EN", "value"])
    assert len(table) == 8


# Figure 6


def verdicts(rows, judge):
    questions = [question(i, language=language) for i, (language, _) in enumerate(rows)]
    return quality.verdict_labels(questions, [own for _, own in rows], judge)


def test_people_and_judge_are_compared_by_hand():
    ana = [("en", ["covered", "covered", "neither"]), ("zh", ["contradicted", "neither", "covered"])]
    bot = [("en", ["covered", "neither", "neither"]), ("zh", ["contradicted", "neither", "covered"])]
    table = quality.figure_6(verdicts(ana, "ana"), verdicts(bot, "bot")).set_index(["language", "measure"])
    both = table.loc["all"]
    assert both["people"].tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 3])
    assert both["judge"].tolist() == pytest.approx([1 / 3, 1 / 6, 1 / 2])
    assert both["difference"].tolist() == pytest.approx([1 / 6, 0, -1 / 6])
    assert both["within"].tolist() == [False, True, False]
    assert table.loc[("zh", "completeness"), "difference"] == 0
    assert table["n"].tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2]
    assert (table["unscored"] == 0).all()
    agreed = agreement.agreement(verdicts(ana, "ana"), verdicts(bot, "bot")).iloc[0]
    assert (agreed["n"], agreed["agreement"]) == (6, pytest.approx(5 / 6))


def test_the_tolerance_is_the_papers_and_exclusive():
    assert papers.published("rageval", "Figure 6")["value"].unique().tolist() == [quality.TOLERANCE]
    ana, bot = ([("en", ["covered"] * 3)], [("en", ["covered", "covered", "neither"])])
    table = quality.figure_6(verdicts(ana, "ana"), verdicts(bot, "bot"), tolerance=0.34)
    assert table[table["language"] == "all"]["within"].tolist() == [True, True, True]
    assert not quality.figure_6(verdicts(ana, "a"), verdicts(bot, "b"), tolerance=0.33)["within"].iloc[3]


def test_answers_that_were_not_judged_in_full_by_both_are_counted_apart():
    ana = verdicts([("en", ["covered", "covered", "neither"]), ("en", ["covered", "covered"])], "ana")
    bot = verdicts([("en", ["covered", "covered", "neither"]), ("en", ["covered", "covered", None]),
                    ("en", ["neither"])], "bot")  # fmt: skip
    table = quality.figure_6(ana, bot)
    assert table.query("language == 'all'")[["n", "unscored"]].to_numpy().tolist() == [[2, 1]] * 3
    partly = [label for label in ana if not (label.item.endswith("q0") and label.aspect == "3")]
    assert quality.figure_6(partly, bot).query("language == 'all'")["n"].tolist() == [1, 1, 1]


def test_figure_6_without_labels_is_undefined_and_with_two_annotators_refused():
    table = quality.figure_6([], verdicts([("en", ["covered"])], "bot"))
    assert table["people"].isna().all()
    assert not table["within"].any()
    assert table.query("language == 'all'")["unscored"].tolist() == [1, 1, 1]
    with pytest.raises(DataError, match="verdicts by ana, bo"):
        quality.figure_6(verdicts([("en", ["covered"])], "ana") + verdicts([("en", ["covered"])], "bo"), [])


@pytest.mark.parametrize("name", ["q1", "sport/en/factual/q1", "law/fr/factual/q1", "law/en"])
def test_labels_of_other_items_are_refused_by_name(name):
    with pytest.raises(DataError, match="domain/language/type/id"):
        quality.table_2([score(name, 5)])


def test_a_session_over_the_items_fills_table_2_from_the_file(tmp_path):
    questions = everywhere(1)
    session = people.Session(quality.question_items(questions, []), "rubric", "ana", tmp_path / "ana.csv")
    while session.done < len(session.items):
        session.press("5" if session.item.id.startswith("finance") else "4")
    table = quality.table_2(people.load_labels(tmp_path / "ana.csv"), per_cell=1)
    assert table["value"].tolist() == [5, 4, 4, 5, 4, 4]
    assert table["n"].tolist() == [7] * 6
    assert table["unscored"].tolist() == [0] * 6


# the generators


def test_keypoints_come_from_the_data_or_by_rule_and_say_which():
    own, cut = rageval.with_keypoints([question(1), question(2, keypoints=None)])
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
        cut, failed, own = rageval.with_keypoints(asked, model, cassette=tape)
        calls = len(server.calls)
        assert rageval.with_keypoints(asked[:1], model, cassette=tape) == (cut,)
        assert len(server.calls) == calls
        prompts = {call.body["messages"][0]["content"] for call in server.calls}
    assert (cut.meta["keypoints"], cut.meta["keypoints_by"]) == (("Oil rose.", "Gas fell.", "Coal held."), "model")
    assert failed.meta["keypoints"] == ()
    assert failed.meta["keypoints_by"].startswith("failed: ")
    assert own.meta["keypoints_by"] == "data"
    assert any("Question 1?" in p and "It rose. It fell." in p for p in prompts)
    assert not any("Question 3?" in p for p in prompts)
    answers = answered((cut.id, "Oil rose."), (failed.id, "Oil rose."))
    rows = rageval.score_answers([cut, failed], answers, [["covered", "neither", "neither"], []])
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
        model = rageval.chat_generator("ollama:llama3:8b", server.url)
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


def test_a_prompt_of_ones_own_is_sent_in_place_of_ours(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("In verse. {documents} {query}")
    with FakeOllama() as server:
        rageval.answers(corpus("en"), rageval.chat_generator("ollama:llama3:8b", server.url), prompt=mine)
        assert all(call.prompt.startswith("In verse. ") for call in server.calls)
        assert server.calls


def test_chatgpt_samples_as_section_5_1_says(monkeypatch):
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with FakeOllama(models={"gpt-4o": "x"}) as server:
        model = rageval.chat_generator("openai:gpt-4o", f"{server.url}/v1")
        rageval.answers(corpus(), model)
    body = server.calls[0].body
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    assert (body["temperature"], body["top_p"], limit) == (0.2, 1.0, 256)


def test_an_answer_that_the_limit_ended_is_kept_and_other_failures_are_not_scored():
    data = corpus()
    with FakeOllama(reply=lambda body: "It burned. " * 400) as server:
        cut = rageval.answers(data, rageval.chat_generator("ollama:llama3:8b", server.url)).iloc[0]
    assert cut["finish"] == "length"
    assert cut["status"] == "ok"
    assert cut["answer"].startswith("It burned. It burned.")
    q, failed = question(1), answered(("q1", None), error="server: down")
    rows = rageval.score_answers([q], failed, rageval.judge_answers([q], failed))
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
    assert rageval.judge_answers([q], a) == embedded_keypoint_verdicts([q.meta["keypoints"]], ["Oil rose."])
    with FakeOllama(reply=lambda body: '{"labels": ["contradicted", "neither"]}') as server:
        model = chat_model("ollama:llama3:8b", host=server.url)
        tape = Cassette(tmp_path / "tape.sqlite", mode="record")
        judged = rageval.judge_answers([q], a, model, cassette=tape)
        assert judged == rageval.judge_answers([q], a, model, cassette=tape) == [["contradicted", "neither"]]
        assert len(server.calls) == 1
        for text in ("Question 1?", "Oil rose.", "Gas fell."):
            assert text in server.calls[0].prompt
    assert rageval.score_answers([q], a, judged)["hallucination"].tolist() == [0.5]


def rows_of(*cases):
    questions = [question(i, language=g, kind=k) for i, (g, k, _, _) in enumerate(cases)]
    answers = answered(*((q.id, text) for q, (_, _, text, _) in zip(questions, cases, strict=True)))
    return rageval.score_answers(questions, answers, [own for *_, own in cases])


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
    table = rageval.table_3(rows).set_index("column")
    assert table.loc["Completeness EN", ["value", "n", "unscored"]].tolist() == [pytest.approx(1 / 3), 1, 1]
    assert table.loc["Completeness CN", "value"] == pytest.approx(2 / 3)
    assert table.loc["Rouge-L EN", ["value", "n"]].tolist() == [pytest.approx(2 / 5), 2]
    assert set(table.index) == set(papers.published("rageval", "Table 3")["column"])
    for code in ("CN", "EN"):
        shares = [table.loc[f"{m} {code}", "value"] for m in ("Completeness", "Hallucination", "Irrelevance")]
        assert sum(shares) == pytest.approx(1)


def test_table_3_can_be_made_by_setting():
    rows = rows_of(("en", "factual", "x", ["covered"] * 3), ("en", "factual", "x", ["neither"] * 3))
    table = rageval.table_3(rows.assign(setting=["TopK 4", "TopK 2"]), by="setting", resamples=0)
    complete = table[table["column"] == "Completeness EN"]
    assert complete[["row", "value"]].to_numpy().tolist() == [["TopK 4", 1.0], ["TopK 2", 0.0]]


def test_what_the_embedded_checker_judged_never_stands_in_a_row_of_the_paper():
    columns = ["Completeness EN", "Hallucination CN", "Rouge-L EN", "Rouge-L CN"]
    cells = pd.DataFrame({"row": "BM25", "column": columns, "value": 0.5})
    index = pd.MultiIndex.from_product([LANGUAGES, ["its references"]], names=["language", "text"])
    sight = pd.DataFrame({"completeness": [0.52 if g == "en" else 0.71 for g in LANGUAGES]}, index)
    own = quality.apart(cells, None, sight)
    assert not set(own["row"]) & set(papers.published("rageval", "Table 4")["row"])
    assert "0.52" in own["note"][0]
    assert "0.71" in own["note"][1]
    assert own["note"][2] == "ROUGE-L of the released code"
    assert "characters" in own["note"][3]
    judged = quality.apart(cells, "ollama:llama3:70b", sight)
    assert judged["row"].tolist() == ["BM25"] * 4
    assert judged["note"].isna().tolist() == [True, True, False, False]


def test_rows_that_do_not_pair_up_are_refused():
    with pytest.raises(DataError, match="no rows"):
        rageval.table_3(rageval.score_answers([], answered(), []))
    q, a = question(1), answered(("q1", "x"))
    with pytest.raises(DataError, match="as many of each"):
        rageval.score_answers([q], a, [])
    with pytest.raises(DataError, match="an answer to 'q9'"):
        rageval.score_answers([q], answered(("q9", "x")), [["covered"] * 3])
    with pytest.raises(DataError, match="with 2 verdicts"):
        rageval.score_answers([q], a, [["covered"] * 2])


@pytest.mark.data
def test_dragonball_has_questions_for_every_cell_of_the_protocol(data_mirror):
    sample, cells = quality.question_sample(load_dragonball().questions)
    assert len(sample) + cells["short"].sum() == 420
    assert cells["short"].sum() == 0
