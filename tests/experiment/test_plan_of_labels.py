"""The plan of a run and its metrics, beside what both then ask."""

import json
import math
import re
import zlib
from dataclasses import replace

import pytest
from experiment_parts import TOWNS, Counting, live, live_rows, people, towns
from fake_ollama import FakeOllama, example

import ragbench as rb
from ragbench.chunking import token_chunks
from ragbench.cli import main
from ragbench.embedding import CachedEmbeddings
from ragbench.llm import Cassette
from ragbench.retrieval import Dense


def sentences(request):
    """Answer in a sentence; take a text apart into two sentences, or three key points, of it."""
    prompt = request["messages"][-1]["content"]
    form = request.get("format")
    if not form:
        number = zlib.crc32(prompt.encode())
        return f"It was the town of {TOWNS[number % 8]}, as one of {number} texts says."
    ((name, _),) = [*form["properties"].items()][:1]
    count = {"claims": 2, "statements": 2, "keypoints": 3}.get(name)
    if count:
        return json.dumps({name: [f"Part {i} of {len(prompt)} is so." for i in range(count)]})
    return json.dumps(example(form))


EXPERIMENTS = {
    "RAGChecker": (["ragchecker"], {}),
    "RAGAS": (["ragas"], {}),
    "RAGEval": (["rageval"], {}),
    "grades and claims": (["fully_right", "precision"], {"N": (0, 20)}),
    "two metrics of few chunks": (["faithfulness", "claim_recall"], {"k": 1, "N": (20,)}),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_plan_is_within_a_factor_of_two_of_what_is_asked(tmp_path, name, record_property):
    metrics, changes = EXPERIMENTS[name]
    with FakeOllama(reply=sentences) as server:
        model = server.model()
        grid = live(tmp_path, server, 4, judge=None, metrics=metrics, labels=model, **changes)
        planned = remaining(grid)
        assert not server.calls
        rows = grid.run(progress=False)
        with Cassette(tmp_path / "cassette.sqlite") as tape:
            rb.score(rows, metrics, model, cassette=tape, progress=False)
            steps = tape.rows("SELECT step, count(*) FROM replies GROUP BY 1")
        for step, asked in steps:  # a row of the table: experiment, step, plan, asked
            record_property(
                "plan", f"{name}, {step}: {planned.get(step, 0)} planned, {asked} asked"
            )
            assert 1 / 2 <= planned[step] / asked <= 2, (step, planned[step], asked)
        assert sum(asked for _, asked in steps) == len(server.calls)
        assert set(remaining(grid).values()) == {0}


def remaining(grid):
    """Return the calls that a plan says are left, by step."""
    return {step.name: step.remaining for step in grid.plan() if step.name != "retrieve"}


def test_a_plan_says_that_the_run_will_stop_after_a_new_pull(tmp_path, capsys, monkeypatch):
    text = "name: made\ndata: minihop\nchunker: token_chunks\nretriever: BM25\nN: 50\n"
    (tmp_path / "experiment.yaml").write_text(f"{text}generator: ollama:llama3:8b\n")
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    with FakeOllama() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        grid = rb.Experiment.from_yaml(tmp_path)
        with Cassette(grid.home / "cassette.sqlite") as tape:
            rb.ask(server.model(), ["a"], cassette=tape, progress=False)
        server.models = {"llama3:8b": "f" * 64}
        main(["plan", str(tmp_path)])
    said = capsys.readouterr().out
    assert "two digests under one name" in said
    assert "cassette: NAME.sqlite" in said


def test_hours_are_divided_by_the_calls_under_way(tmp_path, fake):
    with Cassette(tmp_path / "c.sqlite") as tape:
        rb.ask(fake.model(), ["a", "b"], cassette=tape, step="x", progress=False)
        one, four = (
            rb.llm.plan({"x": 12}, fake.model(), tape, concurrency=count) for count in (None, 4)
        )
    assert one.total.seconds == pytest.approx(4 * four.total.seconds)


def edited_document(embedder):
    return {"data": {"people": replace(people(2), documents=people(3).documents[1:])}}


def smaller_chunks(embedder):
    return {"chunker": {"small": lambda documents: token_chunks(documents, size=3)}}


def empty_folder_of_vectors(embedder):
    folder = embedder.path.parent / "other"
    folder.mkdir()
    other = CachedEmbeddings(Counting(), folder=folder)
    return {"retriever": {"SIM": lambda chunks: Dense(chunks, other)}}


@pytest.mark.parametrize("change", [edited_document, smaller_chunks, empty_folder_of_vectors])
def test_what_is_recorded_is_not_known_while_vectors_are_missing(tmp_path, change):
    embedder = CachedEmbeddings(Counting(), folder=tmp_path)
    axes = {"retriever": {"SIM": lambda chunks: Dense(chunks, embedder)}, "judge": None, "N": 20}
    with FakeOllama(reply=towns) as server:
        live_rows(tmp_path, server, **axes)
        asked = len(server.calls)
        same = live(tmp_path, server, **axes).plan()
        assert (same["generation"].cached, same["generation"].remaining) == (2, 0)
        plan = live(tmp_path, server, **axes | change(embedder)).plan()
        assert len(server.calls) == asked
    assert plan["embed"].calls >= 1
    step = plan["generation"]
    assert step.calls == 2
    assert math.isnan(step.cached)
    assert math.isnan(step.remaining)
    assert re.search(r"generation +2 +\? +\? +\?", str(plan))
    assert "generation: what of it is recorded is known once vectors" in str(plan)
