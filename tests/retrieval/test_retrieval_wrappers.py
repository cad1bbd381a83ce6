"""LongContextReorder, MultiQuery, Hybrid, and LangChain's interface on all of them."""

import asyncio
import json

import pytest
from checks import refusals, refused
from experiment_parts import words
from fake_ollama import FakeOllama
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from retrieval_parts import ids, ids_found, ranks_of, scores_of

from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.llm import chat_model
from ragbench.prompts import load_prompt
from ragbench.records import Chunk, Hit
from ragbench.retrieval import (
    BM25,
    Dense,
    FromLangChain,
    Hybrid,
    LongContextReorder,
    MultiQuery,
    llm_decomposer,
    make_retriever,
    reorder,
    to_langchain,
)
from ragbench.retrieval.base import Retriever
from ragbench.retrieval.multiquery import _parse_queries

TEXTS = ["red fox", "red dog", "blue dog", "green cat", "red red bird", "dog and cat"]
CHUNKS = [Chunk(f"c{i}", text, f"d{i % 2}", f"Title {i}") for i, text in enumerate(TEXTS)]


class Listed(Retriever):
    """Answers every query from a table of chunk ids, best first."""

    table: dict[str, list[str]]
    texts: dict[str, str] = {}  # noqa: RUF012
    asked: list = []  # noqa: RUF012 (a pydantic field, copied per instance)

    def _search(self, queries, k):
        self.asked.append((queries, k))
        return [[self.hit(*place) for place in enumerate(self.table[q][:k], 1)] for q in queries]

    def hit(self, rank, name):
        return Hit(Chunk(name, self.texts.get(name, name * 3), f"doc-{name}"), 1 / rank, rank)

    def settings(self):
        return {"retriever": "Listed"}


def ranking(names):
    """Finds these chunks for the query "q"."""
    return Listed(table={"q": names})


def listed(*texts):
    names = [f"t{i}" for i in range(len(texts))]
    return Listed(table={"q": names}, texts=dict(zip(names, texts, strict=True)))


def bm25():
    return BM25(CHUNKS, variant="lucene")


@pytest.mark.parametrize(
    ("k", "published", "best_first"),
    [
        (1, [1], [1]),
        (2, [2, 1], [1, 2]),
        (3, [1, 3, 2], [1, 3, 2]),
        (9, [1, 3, 5, 7, 9, 8, 6, 4, 2], [1, 3, 5, 7, 9, 8, 6, 4, 2]),
        (10, [2, 4, 6, 8, 10, 9, 7, 5, 3, 1], [1, 3, 5, 7, 9, 10, 8, 6, 4, 2]),
    ],
)
def test_reorder_permutations(k, published, best_first):
    assert reorder(range(1, k + 1)) == published
    assert reorder(range(1, k + 1), order="best first") == best_first


def test_reo_reorders_hits_and_numbers_them_anew():
    inner = ranking(list("abcdefghij"))
    hits = LongContextReorder(inner).search(["q"], 10)[0]
    assert ids(hits) == list("bdfhjigeca")
    assert ranks_of(hits) == list(range(1, 11))
    assert hits[-1].score == 1.0  # the best chunk, last
    assert ids_found(LongContextReorder(inner), "q", 3) == ["a", "c", "b"]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (1, ["a1"]),
        (3, ["a1 a2 a3"]),
        (4, ["a1 a2 a3", "b1"]),
        (6, ["a1 a2 a3", "c1", "b1 b2"]),
        (8, ["a1 a2 a3", "c1 c2 c3", "b1 b2"]),
        (9, ["a1 a2 a3", "c1 c2 c3", "d1", "b1 b2"]),
        (99, ["a1 a2 a3", "c1 c2 c3", "d1 d2", "b1 b2"]),
    ],
)
def test_budget_cuts_best_first_then_puts_the_best_at_both_ends(budget, expected):
    inner = listed("a1 a2 a3", "b1 b2", "c1 c2 c3", "d1 d2")
    hits = LongContextReorder(inner, budget=budget, tokenizer=words).search(["q"], 4)[0]
    assert [hit.chunk.text for hit in hits] == expected
    assert ranks_of(hits) == list(range(1, len(expected) + 1))
    assert len(" ".join(expected).split()) == min(budget, 10)


def test_budget_counts_with_the_embedded_tokenizer_by_default(minilm):
    from ragbench.text.tokens import joined_cutoffs

    inner = listed(
        "Unbelievable! It works.", "A second text, rather longer than the first one.", "Third."
    )
    for budget in (3, 9, 14):
        hits = LongContextReorder(inner, budget=budget).search(["q"], 3)[0]
        text = " ".join(hit.chunk.text for hit in hits)
        assert joined_cutoffs([text], [budget])[0] == len(text)  # nothing is left to cut
    assert LongContextReorder(inner, budget=3).settings()["tokenizer"] == "default"


def test_multiquery_joins_hits_in_order_of_first_appearance():
    inner = Listed(table={"one": list("abcdef"), "two": list("bxaydz")})
    retriever = MultiQuery(inner, lambda q: ["one", "two"], k_each=4, keep=6)
    hits = retriever.search(["original question"], 10)[0]
    assert ids(hits) == ["a", "b", "c", "d", "x", "y"]
    assert ranks_of(hits) == [1, 2, 3, 4, 5, 6]
    assert scores_of(hits) == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 2, 1 / 4]
    assert inner.asked == [(["one", "two"], 4)]  # the original is not among them
    assert ids_found(retriever, "q", 2) == ["a", "b"]
    assert ids_found(MultiQuery(inner, lambda q: ["one", "two"]), "q", 10) == list("abcde")


def test_multiquery_searches_for_all_queries_at_once_and_drops_repeats():
    inner = Listed(table={"x": ["a"], "y": ["b"], "z": ["c"]})
    derived = {"p": ["x", "y", " x "], "q": ["z"]}
    hits = MultiQuery(inner, derived.__getitem__).search(["p", "q"], 5)
    assert [ids(h) for h in hits] == [["a", "b"], ["c"]]
    assert inner.asked == [(["x", "y", "z"], 10)]


@pytest.mark.parametrize("answer", [[], ["  "], "one string", [3]])
def test_multiquery_refuses_a_decomposition_without_questions(answer):
    with refused(ModelError, "no derived question for 'why'"):
        MultiQuery(bm25(), lambda q: answer).search(["why"], 3)


def test_llm_decomposer_asks_the_model_once_per_question_and_reads_lines(tmp_path):
    def answer(body):
        return "Here are the questions:\n1. red dog?\n2) blue dog\n\n- red dog?"

    with FakeOllama(reply=answer) as fake:
        model = chat_model("ollama:llama3:8b", host=fake.url)
        decompose = llm_decomposer(model, cassette=tmp_path / "tape.sqlite", progress=False)
        retriever = MultiQuery(bm25(), decompose, k_each=1)
        assert retriever.queries(["Who?", "Where?"]) == [["red dog?", "blue dog"]] * 2
        assert ids_found(retriever, "Who?", 5) == ["c1", "c2"]
        assert len(fake.calls) == 2  # the third came from the cassette
        assert decompose("Who?") == ["red dog?", "blue dog"]
        llm_decomposer(model, "perspectives", progress=False)("Who?")
        assert fake.calls[2].prompt == load_prompt("multiquery_perspectives").replace(
            "{question}", "Who?"
        )
    settings = retriever.settings()["decompose"]
    assert (settings["decomposer"], settings["prompt"]) == ("llm", "multiquery_decomposition")
    assert len(settings["prompt_sha256"]) == 64
    json.dumps(settings)


def test_llm_decomposer_never_passes_over_a_failed_reply(monkeypatch):
    from ragbench.llm import Reply

    replies = [Reply(text=t, parsed=None, ok=t != "", error=None) for t in ("fine", "", "  \n")]
    monkeypatch.setattr("ragbench.llm.ask", lambda *a, **k: replies)
    with refused(ModelError, r"2 of 3 questions .* reply to 'b'"):
        llm_decomposer("m").batch(["a", "b", "c"])


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("a b\nc d", ["a b", "c d"]),
        ("1. Who wrote it?\n2. When?", ["Who wrote it?", "When?"]),
        ("(1) one\n- two\n* three\n• four\n10: ten", ["one", "two", "three", "four", "ten"]),
        ("Sure, here they are:\n“quoted”\n**bold**", ["quoted", "bold"]),
        ("1984 was written by whom?", ["1984 was written by whom?"]),
        ("3 Idiots director", ["3 Idiots director"]),
        ("same\nsame\n\n", ["same"]),
        ("", []),
    ],
)
def test_replies_are_read_line_by_line(text, queries):
    assert _parse_queries(text) == queries


def test_hybrid_by_hand():
    over = [Listed(table={"q": list(names)}) for names in ("abc", "cad")]
    hits = Hybrid(over).search(["q"], 10)[0]
    assert ids(hits) == ["a", "c", "b", "d"]
    fused = [1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62, 1 / 63]
    assert scores_of(hits) == pytest.approx(fused)
    assert ranks_of(hits) == [1, 2, 3, 4]
    first = Hybrid(over, constant=0).search(["q"], 2)[0]
    assert ids(first) == ["a", "c"]
    assert scores_of(first) == pytest.approx([1.5, 4 / 3])


def test_hybrid_ties_fall_by_id_and_depth_limits_what_is_fused():
    one = ranking(["z", "a"])
    two = ranking(["a", "z"])
    assert ids_found(Hybrid([one, two]), "q", 2) == ["a", "z"]
    assert ids_found(Hybrid([two, one]), "q", 2) == ["a", "z"]
    assert one.asked[-1][1] == 100
    assert ids_found(Hybrid([one], depth=1), "q", 1) == ["z"]
    assert one.asked[-1][1] == 1
    # at least k are asked for
    assert ids_found(Hybrid([one], depth=1), "q", 2) == ["z", "a"]


def test_hybrid_refuses_one_id_for_two_texts():
    other = BM25([Chunk("c0", "red herring", "d")], variant="lucene")
    with refused(DataError, "share the id 'c0'"):
        Hybrid([BM25(CHUNKS), other]).search(["red fox herring"], 3)


@pytest.mark.parametrize(
    "build",
    [
        bm25,
        lambda: LongContextReorder(bm25()),
        lambda: MultiQuery(bm25(), lambda q: [q, "cat"]),
        lambda: Hybrid([bm25(), BM25(CHUNKS, variant="terrier")]),
    ],
)
def test_every_retriever_is_a_langchain_retriever(build):
    from langchain_core.retrievers import BaseRetriever

    retriever = build()
    assert isinstance(retriever, BaseRetriever)
    hits = retriever.search(["red dog"], retriever.k)[0]
    documents = retriever.invoke("red dog")
    assert [d.page_content for d in documents] == [h.chunk.text for h in hits]
    first = hits[0].chunk
    metadata = {"title": first.title, "doc_id": first.doc_id, "chunk_id": first.id}
    metadata |= {"score": hits[0].score, "rank": 1}
    assert (documents[0].id, documents[0].metadata) == (first.id, metadata)
    assert len(retriever.invoke("red dog", k=1)) == 1
    assert (retriever | RunnableLambda(len)).invoke("red dog") == len(documents)
    assert asyncio.run(retriever.ainvoke("red dog")) == documents
    assert retriever.batch(["red dog", "cat"])[0] == documents
    json.dumps(retriever.settings())


test_bad_input_is_named = refusals(
    (lambda: reorder([1], order="best"), "unknown order 'best'"),
    (lambda: LongContextReorder("sim"), "retriever is 'sim'"),
    (lambda: LongContextReorder(BM25), "retriever is <class"),
    (lambda: LongContextReorder(bm25(), budget=0), "budget=0"),
    (
        lambda: MultiQuery(bm25()),
        r"no model that writes its sub-questions(.|\n)*llm_decomposer(.|\n)*smollm2",
    ),
    (lambda: MultiQuery(bm25(), ["a"]), r"decompose=\[\'a\'\]"),
    (lambda: MultiQuery(bm25(), str.split, keep=0), "keep=0"),
    (
        lambda: llm_decomposer("m", "decompose"),
        "unknown prompt 'decompose'(?s:.)*multiquery_decomposition",
    ),
    (lambda: Hybrid([]), r"over=\[\]"),
    (lambda: Hybrid([bm25()], constant=-1), "constant=-1"),
    (lambda: Hybrid([bm25(), 3]), "retriever is 3"),
    (lambda: bm25().invoke(" "), "query 0 is ' '"),
)


def test_a_retriever_is_shown_in_one_line_with_what_changes_its_hits():
    assert repr(bm25()).startswith("BM25(variant='lucene', k1=")
    assert "chunks=6" in repr(bm25())
    over = LongContextReorder(Hybrid([bm25(), Listed(table={})], depth=7), budget=50)
    assert (
        repr(over)
        == "LongContextReorder(Hybrid, order='best first', budget=50, tokenizer='default')"
    )
    assert repr(over.over).startswith("Hybrid(BM25, Listed, fusion='reciprocal rank', ")
    assert "depth=7" in str(over.over)
    assert all("\n" not in repr(one) and len(repr(one)) < 200 for one in (bm25(), over, over.over))


def answering(*documents):
    return RunnableLambda(lambda query: list(documents))


def test_a_vector_store_of_langchain_ranks_as_our_dense_retriever_does():
    store = InMemoryVectorStore(make_embedder())
    store.add_documents(to_langchain(CHUNKS))
    theirs = FromLangChain(store.as_retriever(), CHUNKS, label="in memory, MiniLM")
    queries = ["a fox", "cats and dogs", "red bird"]
    ours = Dense(CHUNKS, make_embedder())
    found = theirs.search(queries, 4)
    assert [*map(ids, found)] == [*map(ids, ours.search(queries, 4))]
    assert all(hit.chunk in CHUNKS for hits in found for hit in hits)
    # a store alone gives four
    assert [len(ids_found(theirs, "a fox", k)) for k in (1, 4, 6, 9)] == [1, 4, 6, 6]
    other = FromLangChain(bm25(), CHUNKS, "BM25")
    assert [len(ids_found(other, "red", k)) for k in (1, 3)] == [1, 3]
    assert scores_of(theirs.search(["a fox"], 3)[0]) == [1, 1 / 2, 1 / 3]
    assert theirs.invoke("a fox")[0].metadata["chunk_id"] == ids_found(ours, "a fox", 1)[0]


def test_documents_of_langchain_are_found_again_by_id_then_by_text_each_once():
    def over(*documents, chunks=CHUNKS):
        return FromLangChain(answering(*documents), chunks, label="x")

    by_id = Document("cut", metadata={"chunk_id": "c2"})
    by_text = Document("red dog", id="own")
    found = over(by_id, by_text, by_id, Document("", id="c5"))
    assert ids_found(found, "?", 9) == ["c2", "c1", "c5"]
    assert ranks_of(found.search(["?"], 2)[0]) == [1, 2]
    assert over().search(["?"], 3) == [[]]
    twins = [Chunk(name, "same", "d") for name in ("b", "a")]
    assert ids_found(over(Document("same"), chunks=twins), "?", 9) == ["a"]
    with refused(DataError, "x found a text that is none of the chunks: 'pink pig'"):
        over(Document("pink pig")).search(["?"], 3)


def test_the_label_of_a_langchain_retriever_makes_the_rows_its_own():
    one, other = (FromLangChain(answering(), CHUNKS, label=label) for label in ("k=5", "k=9"))
    assert one.settings() != other.settings()
    assert repr(one) == "FromLangChain(label='k=5')"
    with refused(ConfigError, r"InMemoryVectorStore(?s:.)*as_retriever"):
        FromLangChain(InMemoryVectorStore(make_embedder()), CHUNKS, label="x")


@pytest.mark.parametrize("name", ["BM25", "SIM", "MMR", "MLQ", "REO", "Hybrid"])
def test_a_fact_of_the_title_alone_is_found_where_titles_are_searched(name, minilm):
    chunks = [
        Chunk("a", "It was built in 1841.", "a", "Ely"),
        Chunk("b", "It was built in 1841.", "b", "Stump Mill"),
    ]
    models = {} if name == "BM25" else {"embedder": minilm}
    if name == "MLQ":
        models["decompose"] = lambda question: [question]
    without = make_retriever(name, chunks, **models)
    titled = make_retriever(name, chunks, title=True, **models)
    # as it was given, without the title
    assert titled.search(["Stump Mill"], 1)[0][0].chunk is chunks[1]
    assert ids_found(without, "Stump Mill", 1) in (["a"], [])
    assert '"title": true' not in json.dumps(without.settings())
    said = json.dumps(titled.settings()).count('"title": true')
    assert said == (2 if name == "Hybrid" else 1)
