"""Embedding is a step of a run: a plan counts the texts and embeds none, a run embeds each once
before its rows.
"""

import math

import pytest
from experiment_parts import Counting, experiment

from ragbench.embedding import CachedEmbeddings
from ragbench.errors import ModelError
from ragbench.records import Chunk
from ragbench.retrieval import MMR, Dense, make_retriever
from ragbench.retrieval.base import inner_searches


def searching(folder, embedder, **changes):
    """A grid whose retriever is dense."""
    return experiment(
        folder, 4, retriever={"SIM": lambda chunks: Dense(chunks, embedder)}, **changes
    )


def test_an_embedder_without_a_file_for_its_vectors_embeds_in_the_run_only(tmp_path):
    model = Counting()
    grid = searching(tmp_path, model)
    step = grid.plan()["embed"]
    assert (step.calls, step.cached, step.remaining) == (8, 0, 8)
    assert model.asked == []
    grid.run(progress=False)
    assert len(model.asked) == 8


def test_an_embedder_that_fails_at_the_chunks_ends_the_run(tmp_path):
    class Broken(Counting):
        def embed_documents(self, texts):
            return [[math.nan]] * len(texts)

    with pytest.raises(ModelError, match="finite numbers"):
        searching(tmp_path, Broken()).run(progress=False)
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_slip_in_an_embedder_ends_the_run_too(tmp_path):
    class Slip(Counting):
        def embed_documents(self, texts):
            return self.vectors_of(texts)

    with pytest.raises(AttributeError, match="vectors_of"):
        searching(tmp_path, Slip()).run(progress=False)


def test_a_question_that_cannot_be_embedded_is_a_row_that_failed(tmp_path):
    class Refuses(Counting):
        def embed_query(self, text):
            if "Person2" in text:
                raise ValueError("no such word")
            return super().embed_query(text)

    embedder = CachedEmbeddings(Refuses(), folder=tmp_path)
    rows = searching(tmp_path / "run", embedder, N=(20,)).run(progress=False)
    assert rows.loc[rows["status"] == "failed", "question_id"].tolist() == ["q2"]


def test_what_a_multi_query_will_search_for_is_not_known_beforehand():
    chunks = [Chunk("a", "one", "d"), Chunk("b", "two", "e")]
    index = Dense(chunks, Counting())
    question = "Who founded the mill and when did it burn?"
    by_hand = make_retriever(
        "MLQ", chunks, embedder=index.embedder, decompose=lambda question: [question]
    )
    for retriever, queries in ((by_hand, [[question], []]), (MMR(index), [[question]] * 2)):
        assert [searched for _, searched in inner_searches(retriever, [question])] == queries
