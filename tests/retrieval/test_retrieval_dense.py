"""Dense retrieval and MMR: exact, deterministic, and LangChain's own order."""

import hashlib
import math

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from retrieval_parts import chunks_of, hotpot_chunks, ids, ids_found, ranks_of, scores_of

from ragbench.errors import DataError, ModelError
from ragbench.retrieval import BM25, MMR, Dense
from ragbench.retrieval import dense as dense_module
from ragbench.retrieval.dense import _exact, _select_mmr


class Hashed(Embeddings):
    """A text's vector is drawn from its hash: equal texts have equal vectors, others are unrelated."""

    model_id = "hashed-8"

    def __init__(self):
        self.asked = []

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        self.asked.append(text)
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        return (3 * np.random.default_rng(seed).standard_normal(8)).tolist()


class Fixed(Embeddings):
    """Vectors given by text."""

    def __init__(self, **vectors):
        self.vectors = vectors

    def embed_documents(self, texts):
        return [self.vectors[text] for text in texts]

    def embed_query(self, text):
        return self.vectors[text]


class Numbered(Embeddings):
    """Queries are numbers of rows; the chunks' vectors are given in the order of their ids."""

    def __init__(self, queries, vectors):
        self.queries = np.asarray(queries)
        self.vectors = vectors

    def embed_documents(self, texts):
        return np.asarray(self.vectors).tolist()

    def embed_query(self, text):
        return self.queries[int(text)].tolist()


def near(vectors, queries, k):
    """The hits of query vectors among chunks with these vectors."""
    dense = Dense(chunks_of(*"x" * len(vectors)), Numbered(queries, vectors))
    return dense.search([str(i) for i in range(len(queries))], k)


def unit(rows):
    rows = np.asarray(rows, float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


SMALL = {
    "q": [2.0, 0.0],
    "east": [5.0, 0.0],
    "northeast": [1.0, 1.0],
    "north": [0.0, 3.0],
    "west": [-1.0, 0.0],
}


def test_cosines_by_hand():
    dense = Dense(chunks_of("north", "east", "northeast", "west"), Fixed(**SMALL))
    hits = dense.search(["q"], 10)[0]
    # north is orthogonal: score 0 is no evidence; west points away, and says so
    assert ids(hits) == ["c00001", "c00002", "c00003"]
    assert scores_of(hits) == pytest.approx([1.0, math.sqrt(0.5), -1.0])
    assert ranks_of(hits) == [1, 2, 3]


def test_equals_brute_force_over_several_tiles(monkeypatch):
    monkeypatch.setattr(dense_module, "TILE", 20_000)  # 17 queries of 1,150 chunks
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1150, 24))
    queries = rng.standard_normal((110, 24))
    exact = unit(queries) @ unit(vectors).T
    order = np.argsort(-exact, axis=1)[:, :7]
    hits = near(vectors, queries, 7)
    assert [[int(i[1:]) for i in ids(one)] for one in hits] == order.tolist()
    assert scores_of(hits[3]) == pytest.approx(exact[3, order[3]], abs=1e-6)


@pytest.mark.parametrize("n_twins", [3, 12, 500])
def test_equal_vectors_tie_and_ids_decide_however_many_they_are(n_twins):
    rng = np.random.default_rng(n_twins)
    vectors = rng.standard_normal((4400, 33))
    twins = rng.permutation(len(vectors))[:n_twins]
    vectors[twins] = rng.standard_normal(33)
    queries = vectors[twins[:1]] + 0.01 * rng.standard_normal((20, 33))
    for k in (1, 2, 10, 60):
        for hits in near(vectors, queries, k):
            best = [h for h in hits if h.score == hits[0].score]
            assert ids(best) == [f"c{i:05d}" for i in sorted(twins)[:k]]


def test_hits_that_the_rounding_of_the_product_ranked_too_low_are_found():
    vectors = np.full((10, 4), 0.5, np.float32)
    query = np.full(4, 0.5, np.float32)
    rough = np.full(10, 1 - 1e-7, np.float32)
    rough[7:] = 1  # ten equal vectors, of which the product, badly rounded, prefers the last three
    places, scores = _exact(rough, query, vectors, 2)
    assert (places.tolist(), scores.tolist()) == ([0, 1], [1.0, 1.0])
    rough[:7] = 0.9  # further off than rounding: those are not looked at
    assert _exact(rough, query, vectors, 2)[0].tolist() == [7, 8]


def test_hits_below_zero_come_after_chunks_that_are_none():
    vectors = [[1.0, 0.0], *[[0.0, 1.0]] * 3, [-1.0, 1.0], [-1.0, 0.0]]
    assert ids(near(vectors, [[1.0, 0.0]], 2)[0]) == ["c00000", "c00004"]


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_order_of_chunks_does_not_change_hits(texts, rng):
    chunks = chunks_of(*texts)
    queries = ["one", "two"]
    dense, shuffled = (Dense(some, Hashed()) for some in (chunks, rng.sample(chunks, len(chunks))))
    hits = dense.search(queries, 5)
    assert shuffled.search(queries, 5) == hits
    assert MMR(shuffled).search(queries, 5) == MMR(dense).search(queries, 5)
    keys = [(-h.score, h.chunk.id) for h in hits[0]]
    assert keys == sorted(keys)


def test_scores_have_the_rounding_of_a_query_scaled_twice_as_in_recorded_runs():
    def scaled(rows):
        return rows / np.linalg.norm(rows, axis=1)[:, None]

    queries = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    once = scaled(queries)
    twice = scaled(scaled(queries))
    scores = [hits[0].score for hits in near(np.eye(8)[:1], queries, 1)]
    assert scores == twice[:, 0].tolist() != once[:, 0].tolist()


def test_a_zero_vector_is_never_a_hit_and_a_zero_query_finds_nothing():
    embedder = Fixed(q=[1.0, 0.0], empty=[0.0, 0.0], a=[1.0, 2.0], null=[0.0, 0.0])
    dense = Dense(chunks_of("empty", "a"), embedder)
    for retriever in (dense, MMR(dense)):
        assert ids_found(retriever, "q", 5) == ["c00001"]
        assert ids_found(retriever, "null", 5) == []


def test_queries_go_through_embed_query_unless_the_embedder_takes_them_all_at_once():
    class Batched(Hashed):
        def embed_array(self, texts):
            self.batches = [*getattr(self, "batches", []), list(texts)]
            return np.array(super().embed_documents(texts), np.float32)

    plain = Hashed()
    batched = Batched()
    one = Dense(chunks_of("a", "b"), plain)
    two = Dense(chunks_of("a", "b"), batched)
    assert one.search(["q", "r"], 2) == two.search(["q", "r"], 2)
    assert plain.asked[-2:] == ["q", "r"]
    assert batched.batches == [["a", "b"], ["q", "r"]]


@pytest.mark.parametrize(("numbers", "products"), [(5, [1, 1, 1]), (20, [2, 1]), (99, [3])])
def test_as_many_queries_are_multiplied_at_once_as_fit_into_a_tile(monkeypatch, numbers, products):
    sizes = []

    class Counted(np.ndarray):
        def __matmul__(self, other):
            sizes.append(len(self))
            return np.asarray(self) @ np.asarray(other)

    monkeypatch.setattr("ragbench.retrieval.dense.TILE", numbers)
    queries = unit(np.eye(3, 10)).astype(np.float32)
    dense = Dense(chunks_of(*"x" * 10), Numbered(queries, np.eye(10)))
    nearest = dense.nearest(queries.view(Counted), 1)
    assert [places.tolist() for places, _ in nearest] == [[0], [1], [2]]
    assert sizes == products


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
def test_mmr_selects_what_langchain_selects(rng, weight):
    # candidates in clusters, so that novelty matters
    centres = rng.standard_normal((6, 16))
    vectors = centres[rng.integers(0, 6, 400)] + 0.4 * rng.standard_normal((400, 16))
    queries = rng.standard_normal((50, 16)) + centres[0]
    dense = Dense(chunks_of(*"x" * 400), Numbered(queries, vectors))
    nearest = dense.nearest(unit(queries).astype(np.float32), 20)
    chosen = []
    for query, (places, scores) in zip(queries, nearest, strict=True):
        candidates = dense.vectors[places]
        chosen.append(_select_mmr(candidates, scores, 10, weight))
        vectors = candidates.astype(float).tolist()
        assert chosen[-1] == maximal_marginal_relevance(query, vectors, weight, 10)
    assert weight != 0.5 or any(one != list(range(10)) for one in chosen)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 12), st.floats(0, 1))
def test_every_mmr_pick_is_the_best_one_left_and_the_earlier_of_equals(seed, k, fetch_k, weight):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (12, 3)).astype(float)  # many equal and opposite vectors
    vectors[~vectors.any(axis=1)] = 1.0
    dense = Dense(chunks_of(*"x" * 12), Numbered([[1.0, 0.5, 0.25]], vectors))
    rows = dict(zip((c.id for c in dense.chunks), dense.vectors.astype(float), strict=True))
    left = dense.search(["0"], fetch_k)[0]
    hits = MMR(dense, fetch_k=fetch_k, lambda_mult=weight).search(["0"], k)[0]
    assert len(hits) == min(k, len(left))
    picked = []

    def gain(hit):
        if not picked:
            return hit.score
        return weight * hit.score - (1 - weight) * max(rows[hit.chunk.id] @ row for row in picked)

    for pick in hits:
        vector = rows[pick.chunk.id]
        equals = [hit for hit in left if np.array_equal(rows[hit.chunk.id], vector)]
        assert pick.chunk == equals[0].chunk
        assert gain(equals[0]) >= max(map(gain, left)) - 1e-9
        left = [hit for hit in left if hit.chunk != pick.chunk]
        picked.append(vector)


def test_mmr_by_hand():
    vectors = {"q": [1.0, 0.0], "a": [1.0, 0.2], "a2": [1.0, 0.21], "b": [1.0, -0.8]}
    dense = Dense(chunks_of("a", "a2", "b"), Fixed(**vectors))
    assert ids_found(dense, "q", 3) == ["c00000", "c00001", "c00002"]
    hits = MMR(dense).search(["q"], 3)[0]
    assert ids(hits) == ["c00000", "c00002", "c00001"]
    assert ranks_of(hits) == [1, 2, 3]
    assert hits[1].score == pytest.approx(1 / math.sqrt(1.64))
    assert ids_found(MMR(dense, fetch_k=2), "q", 3) == ["c00000", "c00001"]
    assert ids_found(MMR(dense, lambda_mult=1), "q", 2) == ["c00000", "c00001"]


def test_settings_name_the_model_and_every_parameter():
    dense = Dense(chunks_of("a"), Hashed())
    about = {"retriever": "Dense", "embedder": "hashed-8", "similarity": "cosine", "chunks": 1}
    assert dense.settings() == about
    mmr = {"retriever": "MMR", "fetch_k": 7, "lambda_mult": 0.25, "over": about}
    assert MMR(dense, 7, 0.25).settings() == mmr


@pytest.mark.data
def test_recorded_minilm_rankings_agree_on_the_first_places(recorded, minilm):
    paragraphs = hotpot_chunks(recorded)
    rows = pd.DataFrame(recorded("hotpotqa/first500_dense_minilm_results.csv.gz"))
    rows = rows[(rows["setting"] == "per_question") & rows["example_id"].isin(paragraphs)][:12]
    agree = [
        ids_found(Dense(paragraphs[row.example_id], minilm), row.question, 10)
        == row.retrieved_titles.split(" | ")
        for row in rows.itertuples()
    ]
    assert np.mean(agree) > 0.9


ONE = chunks_of("a", "b")


test_bad_input_is_named = refusals(
    (lambda: Dense([], Hashed()), DataError, "no chunks to index"),
    (lambda: Dense(ONE, "minilm"), "embedder is .minilm."),
    (
        lambda: Dense(ONE, Fixed(a=[1.0], b=[1.0, 2.0])).vectors,
        ModelError,
        "Fixed returned for 2 texts",
    ),
    (
        lambda: Dense(ONE, Fixed(a=[1.0], b=[2.0], q=[1.0, 2.0])).search(["q"], 1),
        ModelError,
        "dimension 2",
    ),
    (lambda: MMR(BM25(ONE)), "over is BM25"),
    (lambda: MMR(Dense(ONE, Hashed()), fetch_k=0), "fetch_k=0"),
    (lambda: MMR(Dense(ONE, Hashed()), lambda_mult=1.1), "lambda_mult=1.1"),
)
