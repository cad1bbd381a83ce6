"""Embedding is a step of a run: a plan counts the texts and embeds none, a run embeds each once before its rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiment_parts import experiment, people
from langchain_core.embeddings import Embeddings

from ragbench.chunking import semantic_chunks
from ragbench.embedding import CachedEmbeddings, MiniLM
from ragbench.errors import ModelError
from ragbench.llm import Plan, PlannedStep
from ragbench.records import Chunk
from ragbench.retrieval import BM25, MMR, Dense, make_retriever
from ragbench.retrieval.multiquery import dense_searches


class Counting(Embeddings):
    """A vector of a text's letters; keeps what it was asked."""

    model_id = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts):
        self.asked += texts
        return [np.bincount([ord(c) % 32 for c in text], minlength=32).astype(float).tolist() for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


def dense(embedder):
    """Retrievers that share the embedder, and one that has none."""
    return {
        "BM25": BM25,
        "SIM": lambda chunks: make_retriever("SIM", chunks, embedder=embedder),
        "MMR": lambda chunks: make_retriever("MMR", chunks, embedder=embedder),
        "Hybrid": lambda chunks: make_retriever("Hybrid", chunks, embedder=embedder),
    }


def counts(plan):
    return {step.name: (step.calls, step.cached, step.remaining) for step in plan}


def test_a_plan_embeds_nothing_and_the_run_embeds_each_text_once_with_a_bar(tmp_path, capsys):
    model = Counting()
    grid = experiment(tmp_path / "run", 6, retriever=dense(CachedEmbeddings(model, folder=tmp_path)))
    cold = grid.plan()
    assert model.asked == []
    assert counts(cold)["embed"] == (12, 0, 12)  # six chunks and six questions, whatever number of retrievers
    assert "SIM, MMR, Hybrid: texts without vectors, so contexts are estimated" in cold["retrieve"].basis
    assert list(counts(cold)) == ["embed", "retrieve", "generate", "grade"]
    capsys.readouterr()
    rows = grid.run()
    bars = capsys.readouterr().err
    assert "embedding: 100%" in bars
    assert "12/12" in bars
    assert bars.index("embedding") < bars.index("row")
    assert len(model.asked) == len(set(model.asked)) == 12
    assert set(rows["status"]) == {"ok"}
    assert rows.loc[rows["retriever"] == "SIM", "zero_hits"].notna().all()
    again = experiment(tmp_path / "again", 6, retriever=dense(CachedEmbeddings(model, folder=tmp_path)))
    warm = again.plan()
    assert counts(warm) == counts(cold) | {"embed": (12, 12, 0)}
    assert "estimated" not in str(warm)
    again.run()
    assert "embedding" not in capsys.readouterr().err
    assert len(model.asked) == 12


def test_a_plan_has_no_embedding_where_nothing_is_dense_or_nothing_is_left(tmp_path):
    assert "embed" not in counts(experiment(tmp_path / "words", 4, retriever={"BM25": BM25}).plan())
    first = experiment(tmp_path / "run", 4, retriever=dense(CachedEmbeddings(Counting(), folder=tmp_path)))
    first.run(progress=False)
    elsewhere = Counting()
    empty = CachedEmbeddings(elsewhere, folder=tmp_path / "run")  # rows are there, vectors are not
    finished = experiment(tmp_path / "run", 4, retriever=dense(empty))
    assert finished.plan().total.remaining == 0
    assert "embed" not in counts(finished.plan())
    finished.run(progress=False)
    assert elsewhere.asked == []


def test_only_what_waits_for_vectors_has_estimated_contexts(tmp_path):
    seen = []

    def rows(frame):
        seen.append(frame)
        return Plan((PlannedStep("after", 0),))

    embedder = CachedEmbeddings(Counting(), folder=tmp_path)
    experiment(tmp_path / "run", 3, retriever=dense(embedder), N=(20,)).plan(after=rows)
    hits = seen[0].groupby("retriever")["hits"].agg(lambda lists: {hit for one in lists for hit in one})
    assert hits["BM25"] <= {"d0#0", "d1#0", "d2#0"}
    assert hits["SIM"] == hits["MMR"] == hits["Hybrid"] == {"pretended"}


def test_a_chunker_that_embeds_is_planned_without_its_vectors(tmp_path):
    model = Counting()
    embedder = CachedEmbeddings(model, folder=tmp_path)

    def cut(documents):
        return semantic_chunks(documents, embedder, "paper", window=1, stride=1, threshold=0.9)

    grid = experiment(tmp_path / "run", 4, chunker={"by meaning": cut}, retriever={"BM25": BM25})
    plan = grid.plan()
    assert model.asked == []
    assert plan["embed"].remaining == 8  # the two sentences of four documents
    assert "by meaning embeds to cut, so chunks are estimated" in plan["retrieve"].basis
    grid.run(progress=False)
    assert len(model.asked) == 8
    assert grid.plan().total.remaining == 0


def test_an_embedder_without_a_file_for_its_vectors_embeds_in_the_run_only(tmp_path):
    model = Counting()
    grid = experiment(tmp_path, 4, retriever={"SIM": lambda chunks: Dense(chunks, model)})
    assert counts(grid.plan())["embed"] == (8, 0, 8)
    assert model.asked == []
    grid.run(progress=False)
    assert len(model.asked) == 8


def test_an_embedder_that_fails_at_the_chunks_ends_the_run(tmp_path):
    class Broken(Counting):
        def embed_documents(self, texts):
            return [[math.nan]] * len(texts)

    grid = experiment(tmp_path, 4, retriever={"SIM": lambda chunks: Dense(chunks, Broken())})
    with pytest.raises(ModelError, match="not finite"):
        grid.run(progress=False)
    assert not grid.path.read_text()


def test_a_question_that_cannot_be_embedded_is_a_row_that_failed(tmp_path):
    class Refuses(Counting):
        def embed_query(self, text):
            if "Person2" in text:
                raise ValueError("no such word")
            return super().embed_query(text)

    embedder = CachedEmbeddings(Refuses(), folder=tmp_path)
    grid = experiment(tmp_path / "run", 4, N=(20,), retriever={"SIM": lambda chunks: Dense(chunks, embedder)})
    rows = grid.run(progress=False)
    assert rows.loc[rows["status"] == "failed", "question_id"].tolist() == ["q2"]


def test_the_time_of_embedding_is_said_where_the_speed_is_known(tmp_path):
    def planned(model):
        embedder = CachedEmbeddings(model, folder=tmp_path)
        return experiment(tmp_path / "run", 4, retriever={"SIM": lambda chunks: Dense(chunks, embedder)}).plan()

    assert math.isnan(planned(Counting())["embed"].seconds)
    assert "the speed of counting is not known" in planned(Counting())["embed"].basis
    texts = [d.text for d in people(4).documents] + [q.text for q in people(4).questions]
    assert planned(MiniLM())["embed"].seconds == pytest.approx(MiniLM().seconds_for(texts))
    assert MiniLM().seconds_for(["x" * 9_000]) == MiniLM().seconds_for(["x" * 5_000])  # 256 tokens are read of either


def test_rules_say_beforehand_what_a_multi_query_will_search_for():
    chunks = [Chunk("a", "one", "d"), Chunk("b", "two", "e")]
    index = Dense(chunks, Counting())
    question = "Who founded the mill and when did it burn?"
    by_rule = make_retriever("MLQ", chunks, embedder=index.embedder)
    ((_, derived),) = dense_searches(by_rule, [question])
    assert derived == [query for queries in by_rule.queries([question]) for query in queries] != [question]
    by_hand = make_retriever("MLQ", chunks, embedder=index.embedder, decompose=lambda question: [question])
    assert [queries for _, queries in dense_searches(by_hand, [question])] == [[]]
    assert [queries for _, queries in dense_searches(MMR(index), [question])] == [[question]]
