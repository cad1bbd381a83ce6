"""all-MiniLM-L6-v2 behind a real Ollama beside ours on onnxruntime: vectors, IR scores, and what
the server refuses.
"""

import numpy as np
import pytest
from ollama import Client

import ragbench as rb
from ragbench.embedding import CachedEmbeddings, MiniLM, make_embedder
from ragbench.errors import ModelError
from ragbench.retrieval import Dense

pytestmark = pytest.mark.ollama


@pytest.fixture(scope="module")
def questions():
    """MiniHop's first questions whose documents are ASCII: Ollama 0.24 keeps accents that MiniLM's
    tokeniser drops.
    """
    data = rb.data.load_dataset("minihop")
    plain = {document.id: document for document in data.documents if document.text.isascii()}
    kept = [q for q in data.questions if all(name in plain for name in q.meta["doc_ids"])][:12]
    wanted = {name for question in kept for name in question.meta["doc_ids"]}
    return rb.Dataset("plain", tuple(kept), tuple(plain[name] for name in plain if name in wanted))


def test_vectors_and_ir_scores_are_ours(questions, ollama, tmp_path):
    chunks = rb.token_chunks(questions.documents, 100, 0.2)
    ours = CachedEmbeddings(MiniLM(), folder=tmp_path)
    theirs = CachedEmbeddings(
        make_embedder("ollama:All-MiniLM", host=ollama).embedder, folder=tmp_path
    )
    texts = [chunk.text for chunk in chunks]
    cosines = (ours.embed_array(texts) * theirs.embed_array(texts)).sum(axis=1)
    assert cosines.min() > 0.999
    assert "all-minilm:latest@" in theirs.model_id
    scores = []
    for embedder in (ours, theirs):
        hits = Dense(chunks, embedder).search([q.text for q in questions.questions], 5)
        texts = [" ".join(hit.chunk.text for hit in ranking) for ranking in hits]
        contexts = [[rb.truncate(text, budget) for budget in (100, 300)] for text in texts]
        scores.append(
            [
                rb.ir_score(list(q.references), context)
                for q, row in zip(questions.questions, contexts, strict=True)
                for context in row
            ]
        )
    assert np.mean(scores[0]) == pytest.approx(np.mean(scores[1]), abs=0.005)


def test_a_text_that_is_too_long_is_named_and_none_is_cut(ollama, tmp_path):
    embedder = CachedEmbeddings(
        make_embedder("ollama:all-minilm", host=ollama).embedder, folder=tmp_path
    )
    with pytest.raises(ModelError, match=r"'word word(?s:.)*smaller chunks"):
        embedder.embed_array(["fine", "word " * 600])
    long = rb.Chunk("the-long-one", "word " * 600, "d")
    with pytest.raises(ModelError, match=r"the-long-one(?s:.)*smaller chunks"):
        Dense([rb.Chunk("a", "fine", "d"), long], embedder).search(["fine"], 1)


def test_a_new_pull_never_mixes_with_old_vectors(ollama, tmp_path):
    client = Client(ollama)
    client.copy("all-minilm", "own")
    first = CachedEmbeddings(make_embedder("ollama:own", host=ollama).embedder, folder=tmp_path)
    first.embed_array(["a mill"])
    client.create(model="own", from_="all-minilm", parameters={"top_k": 7})
    second = CachedEmbeddings(make_embedder("ollama:own", host=ollama).embedder, folder=tmp_path)
    second.embed_array(["a mill"])
    assert first.model_id != second.model_id
    assert second.computed == 1
    client.delete("own")
