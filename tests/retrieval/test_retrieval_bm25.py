"""BM25: worked by hand, against bm25s and a slow definition."""

import json
import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval_parts import chunks_of, ids, ids_found, ranks_of, scores_of, slow_scores

from ragbench.errors import DataError
from ragbench.records import Chunk
from ragbench.retrieval import BM25
from ragbench.retrieval._kernels import BLOCK
from ragbench.retrieval.text import TOKENIZERS

VARIANTS = ["terrier", "lucene"]
WORDS = [*"red blue dog dogs cat the running run 1984 élan 中文 x Red fox.".split()]  # noqa: SIM905


def found(hits):
    return [(hit.chunk.id, pytest.approx(hit.score)) for hit in hits]


def test_lucene_equals_bm25s():
    bm25s = pytest.importorskip("bm25s")
    rng = random.Random(2)
    words = [f"w{int(rng.paretovariate(0.7))}" for _ in range(20_000)]
    texts = [rng.choices(words, k=rng.randint(1, 60)) for _ in range(500)]
    theirs = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    theirs.index(texts, show_progress=False)
    ours = BM25(chunks_of(*map(" ".join, texts)), tokenizer="split")
    for _ in range(20):
        query = rng.choices(words, k=8)
        scores = theirs.get_scores(query)
        hits = ours.search([" ".join(query)], 500)[0]
        expected = [scores[int(hit.chunk.id[1:])] for hit in hits]
        assert scores_of(hits) == pytest.approx(expected, rel=1e-5)
        assert len(hits) == np.count_nonzero(scores)


def test_three_chunks_by_hand():
    # lengths 2, 3, 1, average 2: K = 1.2, 1.65; idf(red) = ln(1 + 1.5 / 2.5), idf(fox) = ln(1 + 2.5
    # / 1.5)
    bm25 = BM25(chunks_of("red fox", "red red dog", "cat"), variant="lucene")
    red = math.log(1.6)
    fox = math.log(8 / 3)
    assert found(bm25.search(["red"], 10)[0]) == [("c00001", red * 2 / 3.65), ("c00000", red / 2.2)]
    assert found(bm25.search(["Fox red"], 10)[0]) == [
        ("c00000", (red + fox) / 2.2),
        ("c00001", red * 2 / 3.65),
    ]
    assert found(bm25.search(["red red"], 1)[0]) == [("c00001", 2 * red * 2 / 3.65)]


def test_terrier_by_hand():
    # one of three chunks holds the stem "run", twice; K = 1.2 * (0.25 + 0.75 * 2 / 1); query term
    # twice: x 9 * 2 / 10
    bm25 = BM25(chunks_of("The running runs", "a dog?", ""), variant="terrier")
    weight = math.log2(2.5 / 1.5) * 2.2 * 2 / (2 + 1.2 * 1.75) * 1.8
    assert found(bm25.search(["Run, which RUNS"], 5)[0]) == [("c00000", weight)]
    assert bm25.search(["the of"], 5) == [[]]


texts_of_words = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
queries_of_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


@settings(max_examples=60)
@given(
    st.lists(texts_of_words, min_size=1, max_size=9),
    queries_of_words,
    st.sampled_from(VARIANTS),
    st.sampled_from(["terrier", "plain", "split", "english", "chinese", "jieba"]),
    st.integers(1, 10),
)
def test_every_variant_equals_its_formula(texts, query, variant, tokenizer, k):
    bm25 = BM25(chunks_of(*texts), k1=0.9, b=0.6, variant=variant, tokenizer=tokenizer)
    scores = slow_scores(texts, query, variant, 0.9, 0.6, TOKENIZERS[tokenizer])
    expected = {f"c{i:05d}": score for i, score in enumerate(scores)}
    hits = bm25.search([query], k)[0]
    assert scores_of(hits) == pytest.approx([expected.pop(name) for name in ids(hits)])
    assert ranks_of(hits) == list(range(1, len(hits) + 1))
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))
    left = [score for score in expected.values() if abs(score) > 1e-12]
    assert len(hits) == min(k, len(hits) + len(left))
    assert all(score <= hits[-1].score + 1e-12 for score in left)


@settings(max_examples=40)
@given(
    st.lists(texts_of_words, min_size=1, max_size=8),
    st.lists(queries_of_words, min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.integers(1, 5),
)
def test_order_of_chunks_queries_and_k_do_not_change_hits(texts, queries, rng, k):
    chunks = chunks_of(*texts)
    whole = BM25(chunks, variant="lucene").search(queries, len(chunks))
    again = BM25(rng.sample(chunks, len(chunks)), variant="lucene")
    assert again.search(queries, len(chunks)) == whole
    assert again.search(queries[::-1], k) == [hits[:k] for hits in whole[::-1]]


def test_duplicate_texts_tie_and_ids_decide():
    chunks = [Chunk(i, "red dog", i) for i in ("z", "b", "10", "9", "a")]
    chunks += [Chunk("x", "cat", "x"), Chunk("y", "", "y")]
    assert ids_found(BM25(chunks, variant="lucene"), "dog", 4) == ["10", "9", "a", "b"]


@pytest.mark.parametrize("variant", ["lucene", "terrier"])
def test_many_blocks_of_chunks_equal_a_dense_computation(variant):
    rng = np.random.default_rng(0)
    n = 2 * BLOCK + 777
    v = 40
    # The first terms are frequent, as stop words are; two of them weigh less than nothing in
    # Terrier's formula.
    frequent = [2.0] * 6 if variant == "lucene" else [0.5] * 4 + [0.75] * 2
    tf = rng.poisson(frequent + [0.12] * (v - 6), (n, v))
    names = np.array([f"t{j}" for j in range(v)])
    texts = [" ".join(names.repeat(row)) for row in tf]
    bm25 = BM25(chunks_of(*texts), variant=variant, tokenizer="split")
    length = tf.sum(1)
    df = (tf > 0).sum(0)
    odds = (n - df + 0.5) / (df + 0.5)
    idf = np.log(1 + odds) if variant == "lucene" else 2.2 * np.log2(odds)
    weights = tf / (tf + (1.2 * (0.25 + 0.75 * length / length.mean()))[:, None]) * idf
    queries = [
        [*rng.choice(6, 3, replace=False), *rng.choice(range(6, v), 3, replace=False)]
        for _ in range(100)
    ]
    words = [" ".join(names[query]) for query in queries]
    hits = bm25.search(words, 20)
    for of_query, query in zip(hits, queries, strict=True):
        score = weights[:, query].sum(1)
        ours = scores_of(of_query)
        assert ours == pytest.approx(np.sort(score)[::-1][:20])
        assert score[[int(name[1:]) for name in ids(of_query)]] == pytest.approx(ours)
    alone = bm25.search(words[:3], n)
    assert [one[:20] for one in alone] == hits[:3]  # to the last bit, whatever was left unread


def test_a_term_more_than_65535_times_in_one_chunk_is_counted():
    bm25 = BM25(chunks_of("red " * 70_000, "red", "cat"), variant="lucene", b=0.0)
    best = bm25.search(["red"], 1)[0][0]
    assert best.score == pytest.approx(math.log(1.6) * 70_000 / 70_001.2, rel=1e-12)


def test_no_hit_without_evidence():
    bm25 = BM25(chunks_of("red dog", "", "blue"), variant="lucene")
    assert bm25.search(["zebra", "!?", "red"], 10)[:2] == [[], []]
    assert ids_found(bm25, "red", 10) == ["c00000"]
    assert BM25(chunks_of("", "  ")).search(["red"], 3) == [[]]
    assert bm25.search([], 3) == []


def test_a_term_in_most_chunks_has_a_weight_below_zero_in_terriers_formula():
    bm25 = BM25(chunks_of("red dog", "red", "red cat cat"), variant="terrier")
    hits = bm25.search(["red dog"], 5)[0]
    assert ids(hits) == ["c00000", "c00002", "c00001"]
    assert hits[2].score < hits[1].score < 0


# Questions ask in other forms of the words than the texts use: "Häusern" for "Haus", "été" for
# "étés".
GERMAN = {
    "In welcher Straße liegt das Café Möhring?": "Das Café Möhring befindet sich in der "
    "Königsallee, einer Straße mit "
    "vielen Bäumen.",
    "Wer gründete die Mühlen am Fluss?": (
        "Die Mühle am Fluss wurde im Jahr 1841 von Ada Rück gegründet."
    ),
    "Welche Häuser stehen unter Schutz?": (
        "Unter Denkmalschutz steht das alte Haus am Markt, das älteste der Stadt."
    ),
    "Was fürchten die Bäuerinnen?": "Die Bäuerin fürchtet den Frost, der im Mai noch einmal kommt.",
    "Wie heißt der Fußballverein?": (
        "Der Verein für Fußball heißt Grün-Weiß und spielt in der dritten Liga."
    ),
}
FRENCH = {
    "Où se trouvent les forêts protégées ?": (
        "La forêt protégée se trouve au nord de la vallée, près du lac."
    ),
    "Qui a créé l'école d'été ?": "Une école pour les étés chauds fut créée par Hélène Béraud.",
    "Quels élèves ont reçu un prix ?": "L'élève qui reçut le prix était née à Nîmes.",
    "Quand le château brûla-t-il ?": (
        "Les châteaux de la région ont brûlé pendant la guerre de 1870."
    ),
    "Que mangeaient les pêcheurs ?": "Le pêcheur mange du pain et des œufs le matin.",
}
CHINESE = {
    "磨坊是谁建造的？": "这座磨坊由张三于一八四一年建造，位于河边。",
    "哪条街上有咖啡馆？": "咖啡馆位于国王大街，那条街上有很多树。",
    "公司的注册资本是多少？": "该公司注册资本为五千万元，总部设在上海。",
    "法院判了被告几年？": "法院判处被告有期徒刑三年，并处罚金。",
    "患者对什么药物过敏？": "患者自述对青霉素过敏，没有其他病史。",
}


@pytest.mark.parametrize(
    ("texts", "tokenizer", "found_before"),
    [(GERMAN, "german", 3), (FRENCH, "french", 3), (CHINESE, "jieba", 0)],
)
def test_the_default_finds_what_the_thesis_tokenizer_lost_in_other_languages(
    texts, tokenizer, found_before
):
    chunks = chunks_of(*texts.values())

    def found_first(bm25):
        return [
            ids(hits)[:1] == [c.id]
            for hits, c in zip(bm25.search([*texts], 5), chunks, strict=True)
        ]

    bm25 = BM25(chunks)
    assert bm25.settings()["tokenizer"] == tokenizer
    assert all(found_first(bm25))
    assert sum(found_first(BM25(chunks, variant="terrier"))) == found_before


def test_searches_in_many_threads_at_once_agree():
    rng = random.Random(3)
    texts = [" ".join(rng.choices(WORDS, k=20)) for _ in range(3000)]
    queries = [" ".join(rng.choices(WORDS, k=4)) for _ in range(600)]
    bm25 = BM25(chunks_of(*texts), variant="terrier")
    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(lambda _: bm25.search(queries, 7), range(16))
    assert all(hits == first for hits in others)


def test_variant_defaults_and_settings():
    chunks = chunks_of("red")
    shared = {"retriever": "BM25", "k1": 1.2, "b": 0.75, "ties": "id", "chunks": 1}
    terrier = shared | {"variant": "terrier", "k3": 8.0, "tokenizer": "terrier"}
    assert BM25(chunks, variant="terrier").settings() == terrier
    assert BM25(chunks).settings() == shared | {"variant": "lucene", "tokenizer": "words"}
    assert BM25(chunks, 2.0, 0.1, "lucene").settings()["k1"] == 2.0
    json.dumps(BM25(chunks, tokenizer=str.split).settings())


ONE = chunks_of("red")


test_bad_input_is_named = refusals(
    (lambda: BM25([Chunk("a", None, "d")]), "text=None"),
    (lambda: BM25([Chunk(1, "red", "d")]), "id=1"),
    (lambda: BM25(ONE + chunks_of("dog")), DataError, "two chunks share the id 'c00000'"),
    (lambda: BM25(ONE, variant="lucine"), "did you mean 'lucene'"),
    (lambda: BM25(ONE, tokenizer="portr"), "unknown tokenizer 'portr'"),
    (lambda: BM25(ONE, k1=0), "k1=0"),
    (lambda: BM25(ONE, b=1.5), "b=1.5"),
    (lambda: BM25(ONE, k=0), "k=0"),
    (lambda: BM25(ONE).search("red", 3), r"pass \[query\]"),
    (lambda: BM25(ONE).search(["red", None], 3), "query 1 is None"),
    (lambda: BM25(ONE).search(["red"], 0), "k=0"),
    (lambda: BM25(ONE).search(["red"], True), "k=True"),
    (lambda: BM25(ONE, variant="okapi"), "unknown BM25 variant"),
)
