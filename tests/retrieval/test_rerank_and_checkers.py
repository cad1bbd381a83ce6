"""Rerankers and checkers of a user's choice:

tiny made classifiers on onnxruntime, and a model on loopback.
"""

import json

import pytest
from fake_ollama import FakeOllama
from onnx_parts import classifier, rows

from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.experiment import Experiment
from ragbench.labelling.checkers import ModelChecker, make_checker
from ragbench.onnx_models import Classifier
from ragbench.records import Chunk
from ragbench.retrieval import BM25, ModelScorer, OnnxScorer, Rerank, make_retriever

CHUNKS = [
    Chunk("a", "sun rain", "d"),
    Chunk("b", "sun snow snow", "d"),
    Chunk("c", "sun moon", "e"),
]
LONG = " ".join(["rain"] * 40)


@pytest.fixture
def cross(tmp_path):
    """A cross-encoder:

    2 for every "snow" of the passage, 1 for every "moon", -1 for every "rain".
    """
    return classifier(tmp_path / "cross", rows(1), rows(1, snow=[2], moon=[1], rain=[-1]), None)


@pytest.fixture
def nli(tmp_path):
    """An NLI model:

    "sun" in the text entails, "not" contradicts, anything else is neutral by a little.
    """
    first = rows(3, sun=[0, 0, 5], **{"not": [5, 0, 0]})
    first[1] = [0, 1, 0]  # [CLS]
    return classifier(tmp_path / "nli", first, rows(3), ["contradiction", "neutral", "entailment"])


def test_rerank_orders_the_candidates_by_the_scorer_and_keeps_ties_in_the_retrievers_order(cross):
    over = BM25(CHUNKS)
    before = [hit.chunk.id for hit in over.search(["sun"], 3)[0]]
    (hits,) = Rerank(over, OnnxScorer(cross)).search(["sun"], 2)
    assert [(hit.chunk.id, hit.score, hit.rank) for hit in hits] == [("b", 4.0, 1), ("c", 1.0, 2)]

    class Same:
        def score(self, pairs):
            return [1.0] * len(pairs)

    assert [hit.chunk.id for hit in Rerank(over, Same()).search(["sun"], 3)[0]] == before
    assert before != ["b", "c", "a"]


def test_only_the_first_depth_candidates_are_scored(cross):
    first = BM25(CHUNKS).search(["sun rain"], 1)[0][0].chunk.id
    (hits,) = Rerank(BM25(CHUNKS), OnnxScorer(cross), depth=1).search(["sun rain"], 1)
    assert [hit.chunk.id for hit in hits] == [first] == ["a"]


def test_queries_keep_their_own_candidates(cross):
    found = Rerank(BM25(CHUNKS), OnnxScorer(cross)).search(
        ["rain", "nothing of it", "snow moon"], 3
    )
    assert [[hit.chunk.id for hit in hits] for hits in found] == [["a"], [], ["b", "c"]]


def test_a_long_passage_is_read_in_windows_and_its_best_one_counts(cross):
    scorer = OnnxScorer(cross, max_tokens=150)
    passage = " ".join(["rain"] * 400 + ["snow"] * 10)
    windows = Classifier(cross, max_tokens=150).logits([("sun", passage)])[0]
    assert len(windows) > 3
    assert scorer.score([("sun", passage)]) == [windows.max()]
    assert windows.max() > windows[0, 0]
    with pytest.raises(DataError, match="leaves no room"):
        scorer.score([("sun " * 200, passage)])


def test_reranking_by_name_in_an_experiment_file(cross, tmp_path):
    (tmp_path / "e.yaml").write_text(
        "name: t\ndata: minihop\nchunker: token_chunks\nreranker: 'onnx:cross'\n"
        "retriever: {words: BM25, reranked: {use: Rerank, over: BM25, depth: 7}}\n"
    )
    made = Experiment.from_yaml(tmp_path / "e.yaml").retriever["reranked"](CHUNKS)
    assert [hit.chunk.id for hit in made.search(["sun"], 3)[0]] == ["b", "c", "a"]
    settings = made.settings()
    assert (settings["depth"], settings["over"]["retriever"]) == (7, "BM25")
    other = classifier(tmp_path / "other" / "cross", rows(1), rows(1, moon=[1]), None)
    assert settings["scorer"] != Rerank(BM25(CHUNKS), OnnxScorer(other)).settings()["scorer"]
    with pytest.raises(ConfigError, match="reranker: onnx:FOLDER"):
        make_retriever("Rerank", CHUNKS, over="BM25")


def relevance(request):
    prompt = request["messages"][-1]["content"]
    return json.dumps({"score": 9 if "Passage:\nsun moon" in prompt else 2})


def test_a_chat_model_scores_each_passage_and_a_plan_counts_the_calls_without_making_them(tmp_path):
    with FakeOllama(reply=relevance) as server:
        (tmp_path / "questions.jsonl").write_text(
            '{"question": "sun?", "answer": "x", "references": ["sun moon"]}\n'
        )
        lines = [f'{{"id": "{c.id}", "title": "{c.id}", "text": "{c.text}"}}\n' for c in CHUNKS]
        (tmp_path / "documents.jsonl").write_text("".join(lines))
        (tmp_path / "e.yaml").write_text(
            "name: t\nfolder: out\ndata: {mine: {questions: questions.jsonl, documents: "
            "documents.jsonl}}\n"
            "chunker: token_chunks\nretriever: {r: {use: Rerank, over: BM25, depth: 3}}\nk: "
            "2\nN: 3\n"
            f"reranker: {{use: 'ollama:llama3:8b', host: '{server.url}'}}\n"
        )
        experiment = Experiment.from_yaml(tmp_path / "e.yaml")
        planned = experiment.plan()
        assert not [call for call in server.calls if call.path == "/api/chat"]
        assert planned["rerank"].calls == 3
        assert "decompose" not in [step.name for step in planned]
        rows = experiment.run(progress=False)
        assert rows["ir_score"].tolist() == [1.0]
        asked = len([call for call in server.calls if call.path == "/api/chat"])
        assert asked == 3
        Experiment.from_yaml(tmp_path / "e.yaml").retriever["r"](CHUNKS).search(["sun?"], 1)
        # kept beside the file
        assert len([call for call in server.calls if call.path == "/api/chat"]) == asked


def test_a_reply_that_is_no_score_is_an_error_and_not_a_zero():
    with FakeOllama(reply=lambda request: '{"score": "high"}') as server:
        scorer = ModelScorer(server.model(), retries=0)
        with pytest.raises(ModelError, match="2 of 2 passages got no score"):
            scorer.score([("sun", "rain"), ("sun", "snow")])


def test_model_checker_sends_minichecks_form_and_reads_yes_and_no():
    asked = []

    def reply(request):
        asked.append(request["messages"][-1]["content"])
        return "Yes" if "Claim: The mill burnt down." in asked[-1] else " no."

    with FakeOllama(reply=reply) as server:
        checker = make_checker("ollama:llama3:8b", host=server.url)
        labels = checker.check_many(
            ["The mill burnt down.", "The mill is new."], ["It burnt down.", ""]
        )
    assert labels == [["Entailment", "Neutral"], ["Neutral", "Neutral"]]
    document = "Document: It burnt down.\nClaim: The mill "
    assert sorted(asked) == [f"{document}burnt down.", f"{document}is new."]


def test_a_verdict_that_is_neither_yes_nor_no_is_an_error():
    with FakeOllama(reply=lambda request: "Notably, perhaps") as server:
        checker = ModelChecker(server.model())
        with pytest.raises(ModelError, match=r"1 of 1 claims got no label.*Notably"):
            checker.check_many(["It burnt."], ["A text."])


def test_a_checker_is_named():
    with pytest.raises(ConfigError, match=r"no checker is named(.|\n)*ollama:llama3:8b.*smollm2"):
        make_checker(None)
