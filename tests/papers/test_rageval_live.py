"""The generation half of RAGEval's tables: what the server is sent, and the scores by key points."""

from functools import partial

import pytest
from fake_ollama import FakeOllama, default_reply

import ragbench as rb
from dragonball import with_key_points
from ragbench.papers import rageval
from ragbench.retrieval import make_retriever

DOCUMENTS = (
    rb.Document("d1", "Tarn", "Tarn grew in 1841. It hired in May."),
    rb.Document("d2", "Voss", "Voss shrank in 1850. It sold a mill."),
)
QUESTIONS = (
    rb.Question("q1", "When did Tarn grow?", "In 1841.", meta={"keypoints": ("1841", "It hired")}),
    rb.Question("q2", "What did Voss sell?", "A mill.", meta={"keypoints": None}),
)
DATA = rb.Dataset("dragonball", QUESTIONS, DOCUMENTS)
SHARES = ["completeness", "keypoints_hallucination", "irrelevance"]
BM25 = {"BM25": partial(make_retriever, "BM25", variant="lucene")}


@pytest.fixture
def servers(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    with FakeOllama() as generator, FakeOllama() as judge:
        yield generator, judge


def model(server, **options):
    return rb.chat_model("ollama:llama3:8b", host=server.url, **options)


def run(generator, settings=((512, 1),), language="en", data=DATA):
    models = {"llama3": model(generator, num_predict=256)}
    return rageval.grid("live", data, language, BM25, models, settings).run(progress=False)


def test_passages_come_headed_and_only_the_settings_are_asked(servers):
    generator, judge = servers
    rows = run(generator, settings=((20, 2), (512, 1)))
    assert sorted(set(zip(rows["chunker"], rows["k"], strict=True))) == [
        ("20 characters", 2),
        ("512 characters", 1),
    ]
    assert len(generator.calls) == 4
    prompts = [call.body["messages"][0]["content"] for call in generator.calls]
    assert any("(Tarn) Tarn grew in 1841. It hired in May." in prompt for prompt in prompts)
    assert all("headed by what it is about in brackets" in prompt for prompt in prompts)
    assert {call.body["options"]["num_predict"] for call in generator.calls} == {256}
    assert not judge.calls


def test_chinese_questions_get_a_chinese_prompt(servers):
    generator, _ = servers
    run(generator, language="zh")
    assert "请只根据这些段落回答" in generator.calls[0].body["messages"][0]["content"]


def test_own_key_points_are_judged_and_missing_ones_are_taken_from_the_true_answer(servers):
    generator, judge = servers
    extracted = []

    def reply(body):
        prompt = body["messages"][0]["content"]
        if "A mill." in prompt:
            extracted.append(prompt)
            return '{"keypoints": ["Voss sold it.", "It was a mill.", "In 1850."]}'
        return default_reply(body)

    judge.reply = reply
    data = with_key_points(model(judge), DATA, progress=False)
    assert len(extracted) == len(judge.calls) == 1
    assert [q.meta["keypoints"][0] for q in data.questions] == ["1841", "Voss sold it."]
    scores = rb.score(run(generator, data=data), ["keypoints"], model(judge), progress=False)
    assert len(judge.calls) == 1 + 2 + 3  # q2's key points; then each of q1's and of q2's
    assert scores["question_id"].tolist() == ["q1", "q2"]
    assert scores[SHARES].sum(axis=1).tolist() == [1, 1]


def test_a_verdict_that_is_not_read_leaves_its_answer_unscored(servers):
    generator, judge = servers
    judge.reply = lambda body: "I cannot say."
    scores = rb.score(run(generator), ["keypoints"], model(judge), progress=False)
    assert scores[SHARES].isna().all(axis=None)
