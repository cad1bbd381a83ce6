"""Retrievers, data sets and chunkers by name, and a user's own as docs/extending.md shows it."""

import json
import re
import string

import numpy as np
import pandas as pd
import pytest
from checks import refusals, refused
from experiment_parts import people
from retrieval_parts import ids_found
from word_bags import Bags

import ragbench as rb
from ragbench import cli
from ragbench.chunking import CHUNKERS
from ragbench.data import DATASETS, load_dataset
from ragbench.errors import ConfigError, DataError
from ragbench.experiment import Experiment
from ragbench.papers import ragchecker, thesis
from ragbench.paths import project_root
from ragbench.records import Chunk, Hit
from ragbench.retrieval import RETRIEVERS, Index, make_retriever

CHUNKS = [
    Chunk("c", "the red fox", "d1"),
    Chunk("a", "a red red bird", "d2"),
    Chunk("b", "the fox and a dog", "d1"),
]


def letters():
    return Bags(*string.ascii_lowercase, inside=True)


def page_code(first_line: str) -> str:
    """Return the Python block of the page on one's own parts that begins so."""
    blocks = re.findall(
        r"```python\n(.*?)```",
        (project_root() / "docs" / "extending.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return next(block for block in blocks if block.startswith(first_line))


@pytest.fixture
def own_retriever(monkeypatch):
    """Run the page's example; the table is as before afterwards."""
    code = page_code("from ragbench.retrieval import RETRIEVERS")
    with monkeypatch.context() as patch:
        patch.setitem(RETRIEVERS, "SharedWords", None)
        exec(code, {"__name__": "page"})
        yield code


@pytest.fixture
def experiment_file(put):
    """Writes an experiment with a retriever of one's own, and its data; returns its path."""

    def write(more=""):
        documents = [{"title": d.title, "text": d.text} for d in DATA.documents]
        questions = [{"question": q.text, "answer": "x"} for q in DATA.questions]
        put("d.jsonl", "\n".join(map(json.dumps, documents)))
        put("q.jsonl", "\n".join(map(json.dumps, questions)))
        return put(
            "experiment.yaml",
            "name: own\nfolder: out\ndata: {few: {questions: q.jsonl, documents: d.jsonl}}\n"
            f"chunker: token_chunks\nretriever: [BM25, SharedWords]\nN: 50\n{more}",
        )

    return write


DATA = people(3)


def test_the_pages_retriever_has_under_ten_lines_and_finds_the_chunk_that_shares_most_words(
    own_retriever,
):
    assert len([line for line in own_retriever.splitlines() if line.strip()]) < 10
    found = make_retriever("SharedWords", CHUNKS).search(["the red fox", "a bird", "nothing"], 2)
    assert [[hit.chunk.id for hit in hits] for hits in found] == [["c", "b"], ["a", "b"], []]
    assert [hit.score for hit in found[0]] == [3, 2]


def test_the_pages_retriever_runs_by_name_in_a_file(own_retriever, experiment_file):
    rows = Experiment.from_yaml(experiment_file()).run(progress=False)
    ok = rows.groupby("retriever")["status"].agg(set).to_dict()
    assert ok == {"BM25": {"ok"}, "SharedWords": {"ok"}}
    assert rows.loc[rows["retriever"] == "SharedWords", "hits"].map(len).min() > 0


def test_the_pages_retriever_runs_from_the_command_line(
    tmp_path, put, experiment_file, monkeypatch
):
    put("own_retriever_of_a_test.py", page_code("from ragbench.retrieval import RETRIEVERS"))
    monkeypatch.setitem(RETRIEVERS, "SharedWords", None)
    path = experiment_file("code: own_retriever_of_a_test.py\n")
    assert cli.main(["run", str(path)]) == 0
    rows = pd.read_json(tmp_path / "out" / "rows.jsonl", lines=True)
    assert "SharedWords" in set(rows["retriever"])


@pytest.mark.parametrize("code", ["gone.py", "7", "d.jsonl"])
def test_code_that_cannot_be_run_is_named(experiment_file, code):
    path = experiment_file(f"code: {code}\n")
    with refused(ConfigError, r"experiment\.yaml, line 7: code is .*\n.*Python file"):
        Experiment.from_yaml(path)


class Returns(Index):
    """A retriever of one's own that returns what it was given."""

    found: object

    def _search(self, queries, k):
        return self.found(self, k) if callable(self.found) else self.found


def test_settings_of_a_retriever_of_ones_own_are_its_fields():
    bm25 = rb.BM25(CHUNKS)
    assert Returns(CHUNKS, found=3).settings() == {"retriever": "Returns", "found": 3}
    assert Returns(CHUNKS, found=[bm25, len]).settings()["found"][0] == bm25.settings()


HIT = Hit(CHUNKS[0], 1.0, 1)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "Returns._search returned None(?s:.)*a list of 2 lists, each of at most 1 Hit"),
        ([[HIT]], "a list of 2 lists"),
        ([[HIT, HIT], []], "at most 1 Hit"),
        (lambda self, k: self.best([[1.0], [1.0]], k), r"Returns gave scores of shape \(1,\)"),
        (lambda self, k: self.best([[1.0] * 3, [float("nan")] * 3], k), "one that is NaN"),
    ],
)
def test_what_a_retriever_of_ones_own_returns_is_checked(found, message):
    with refused(DataError, message):
        Returns(CHUNKS, found=found).search(["x", "y"], 1)


def shared_letters(pairs):
    return [len(set(query) & set(text)) for query, text in pairs]


@pytest.mark.parametrize("name", [name for name in RETRIEVERS if name != "Gold"])  # no search
def test_every_name_builds_a_retriever_that_finds_the_nearest_chunk(name):
    parts = {} if name == "BM25" else {"embedder": letters()}
    if name == "Rerank":
        parts["scorer"] = shared_letters
    if name == "MLQ":
        parts["decompose"] = lambda question: [question]
    assert "b" in ids_found(make_retriever(name, CHUNKS, **parts), "fox dog", 3)


def test_dense_retrievers_share_an_index_until_chunks_or_embedder_change():
    mine = letters()
    chunks = list(CHUNKS)
    sim = make_retriever("SIM", chunks, embedder=mine)
    assert make_retriever("MMR", chunks, embedder=mine).over is sim
    assert make_retriever("SIM", chunks, embedder=letters()) is not sim
    sim = make_retriever("SIM", chunks, embedder=mine)
    chunks.append(Chunk("new", "zebra", "d3"))
    assert make_retriever("SIM", chunks, embedder=mine).search(["zebra"], 1)[0][0].chunk.id == "new"
    assert len(sim.chunks) == 3


def test_the_papers_retrievers_are_settings_of_the_table():
    systems = {name: build(CHUNKS) for name, build in thesis.retrievers(embedder=letters()).items()}
    assert systems["BM25"].settings() == rb.BM25(CHUNKS, variant="terrier").settings()
    assert {name: system.settings().get("over") == systems["SIM"].settings() for name, system in systems.items()} == {
        "BM25": False, "SIM": False, "MMR": True, "MLQ": True, "REO": True,
    }  # fmt: skip
    assert (systems["MLQ"].k_each, systems["MLQ"].keep, systems["MMR"].fetch_k) == (10, 5, 20)
    plain = rb.BM25(CHUNKS, variant="lucene", tokenizer="plain").settings()
    assert ragchecker.PAPER_RETRIEVERS["BM25"](CHUNKS).settings() == plain
    assert ragchecker.PAPER_RETRIEVERS["hybrid"](CHUNKS).settings()["over"][0] == plain


def test_best_orders_by_score_then_chunk_id_and_leaves_zeros_out():
    class Table(Index):
        def _search(self, queries, k):
            return self.best(np.array([[1.0, 0.0, 1.0], [0.5, 2.0, -1.0]]), k)

    found = Table(CHUNKS).search(["x", "y"], 3)
    assert [[(hit.chunk.id, hit.score, hit.rank) for hit in hits] for hits in found] == [
        [("a", 1.0, 1), ("c", 1.0, 2)],
        [("b", 2.0, 1), ("a", 0.5, 2), ("c", -1.0, 3)],
    ]


test_a_wrong_name_or_setting_is_told_with_those_there_are = refusals(
    (lambda: make_retriever("BM26", CHUNKS), "unknown retriever 'BM26'\n.*\n.*mean 'BM25'"),
    (lambda: make_retriever("BM25", CHUNKS, k2=3), "unknown option of BM25 'k2'"),
    (lambda: make_retriever("SIM", CHUNKS, keep=3), "unknown option of SIM 'keep'"),
    (lambda: load_dataset("minihob"), r"unknown data set 'minihob'\n.*\n.*mean 'minihop'"),
    (lambda: load_dataset("mine.csv"), r"unknown data set 'mine\.csv'\n.*\n.*load_questions"),
)


def test_a_data_set_and_a_chunker_of_ones_own_run_by_name_in_a_file(put, monkeypatch):
    def whole(documents, prefix=""):
        return [Chunk(f"{prefix} {d.id}", d.text, d.id, d.title) for d in documents]

    monkeypatch.setitem(DATASETS, "mine", lambda limit=None: people(limit or 5))
    monkeypatch.setitem(CHUNKERS, "whole", whole)
    text = (
        "name: t\nfolder: out\ndata: {few: {use: mine, limit: 4}}\nchunker: {w: {use: whole, "
        "prefix: So}}\nretriever: BM25\nk: 1\nN: 50\n"
    )
    rows = Experiment.from_yaml(put("e.yaml", text)).run(progress=False)
    assert rows["question_id"].tolist() == ["q0", "q1", "q2", "q3"]
    assert rows["hits"].str[0].str.startswith("So d").all()
    with refused(ConfigError, r"data\.few: unknown option of mine 'prefix'\n.*limit"):
        Experiment.from_yaml(put("e.yaml", text.replace("limit", "prefix")))


def test_the_papers_data_sets_come_from_the_table(monkeypatch):
    monkeypatch.setitem(DATASETS, "minihop", lambda limit=None: people(limit or 2))
    assert load_dataset("minihop", limit=3).name == "people"
