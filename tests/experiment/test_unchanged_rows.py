"""Rows whose inputs are those of the manifest are read; whatever could change them makes them anew."""

import json
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from experiment_parts import Copier, Named, live_rows, people, towns, whole
from fake_ollama import FakeOllama

from ragbench.chunking import token_chunks
from ragbench.experiment import Experiment, load_manifest
from ragbench.report.export import export
from ragbench.retrieval import make_retriever
from ragbench.retrieval.text import TOKENIZERS
from ragbench.weights import MINILM

BM25 = {"BM25": partial(make_retriever, "BM25", tokenizer="english")}


def rows_of(folder, **changes):
    settings = {
        "data": {"people": people(3)},
        "chunker": {"whole": whole},
        "retriever": BM25,
        "k": 2,
        "N": (4, 20),
        "folder": folder,
    }
    return Experiment("made", **(settings | changes)).run(progress=False)


def runs(folder):
    return len(load_manifest(folder)["runs"])


@pytest.fixture
def first(tmp_path):
    """The rows of a run, and that a second one of the same inputs made none."""
    rows = rows_of(tmp_path)
    assert rows_of(tmp_path).equals(rows)
    assert runs(tmp_path) == 1
    return rows


def with_first(field, **changes):
    """The data with another first question or document."""
    data = people(3)
    first, *others = getattr(data, field)
    return {"people": replace(data, **{field: (replace(first, **changes), *others)})}


CHANGES = {
    "a question": {"data": with_first("questions", text="Where was Person1 Lee born?")},
    "a column of a question": {"data": with_first("questions", meta={"Sprache": "de"})},
    "a reference": {"data": with_first("questions", references=("Another fact.",))},
    "a document": {"data": with_first("documents", text="Person0 Lee was born in Ely and York.")},
    "the chunker": {"chunker": {"whole": partial(token_chunks, size=4)}},
    "N": {"N": (4, 21)},
    "fewer N": {"N": 4},
    "k": {"k": 1},
    "the words of a retriever": {"retriever": {"BM25": partial(BM25["BM25"], tokenizer="plain")}},
    "another retriever": {"retriever": {"SIM": partial(make_retriever, "SIM")}},
    "how tokens count": {"begin_token": True},
    "how texts are matched": {"match": "subsequence"},
    "the cells": {"keep": lambda cell: cell.N == 4},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_rows_of_other_inputs_are_made_anew(tmp_path, first, change):
    rows = rows_of(tmp_path, **change)
    assert runs(tmp_path) == 2
    assert rows.equals(rows_of(tmp_path / "elsewhere", **change))


def test_a_rerun_and_an_export_read_the_rows_once(tmp_path, first, monkeypatch):
    opened = []
    really = open

    def noted(file, *args, **options):
        opened.append(Path(str(file)).name)
        return really(file, *args, **options)

    for place in ("builtins.open", "io.open"):
        monkeypatch.setattr(place, noted)
    rows_of(tmp_path)
    assert opened.count("rows.jsonl") == 1
    opened.clear()
    export(tmp_path, tmp_path / "out")
    assert opened.count("rows.jsonl") == 1


def test_as_many_other_cells_are_made_anew(tmp_path):
    for count, n in enumerate((4, 20), 1):
        rows = rows_of(tmp_path, keep=lambda cell, n=n: n == cell.N)
        assert (set(rows["N"]), runs(tmp_path)) == ({n}, count)


def test_a_tokenizer_file_that_changed_makes_rows_anew(tmp_path, first):
    file = tmp_path / "tokenizer.json"
    text = (MINILM.folder() / "tokenizer.json").read_text()
    for content, expected in ((text, 2), (text, 2), (text + "\n", 3)):
        file.write_text(content)
        rows_of(tmp_path, tokenizer=file)
        assert runs(tmp_path) == expected


OWN = {
    "a retriever": {"retriever": {"named": Named}},
    "a generator": {"generator": {"copier": Copier()}},
    "a tokenizer": {"retriever": {"own": partial(BM25["BM25"], tokenizer=str.split)}},
    "a tokenizer's name": {"retriever": {"own": partial(BM25["BM25"], tokenizer="mine")}},
}


@pytest.mark.parametrize("axes", OWN.values(), ids=OWN)
def test_what_the_users_own_code_makes_is_made_anew(tmp_path, monkeypatch, axes):
    monkeypatch.setitem(TOKENIZERS, "mine", str.split)
    for count in (1, 2):
        rows_of(tmp_path, **axes)
        assert runs(tmp_path) == count


def test_rows_that_are_damaged_or_not_all_there_are_made_anew(tmp_path, first):
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text().replace("Ely", "Bly"))
    assert rows_of(tmp_path).equals(first)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert rows_of(tmp_path).equals(first)
    assert runs(tmp_path) == 3


def rows_of_models(folder, server, **changes):
    return live_rows(folder, server, retriever=BM25, tokenizer=None, **changes)


def test_rows_of_models_are_read_while_prompts_judges_and_replies_are_the_same(tmp_path):
    with FakeOllama(reply=towns) as server:
        rows = rows_of_models(tmp_path, server)
        again = rows_of_models(tmp_path, server)
        assert again.drop(columns="cached").equals(rows.drop(columns="cached"))
        assert again["cached"].all()
        assert runs(tmp_path) == 1
        mine = tmp_path / "mine.txt"
        for count, text in ((2, "From {documents}: {query}"), (3, "By {documents}: {query}")):
            mine.write_text(text)
            changed = rows_of_models(tmp_path, server, prompts={"llama": mine})
            assert runs(tmp_path) == count
            assert changed.loc[changed["N"] > 0, "prompt"].eq("mine.txt").all()
        other = {"judge": {"llama": server.model(seed=9, num_ctx=4096)}}
        changed = rows_of_models(tmp_path, server, **other)
        assert set(changed["judge_seed"]) == {9}
        assert runs(tmp_path) == 4


def test_a_changed_reply_and_a_failed_row_are_never_answered_by_old_rows(tmp_path):
    with FakeOllama(reply=towns) as server:
        rows_of_models(tmp_path, server, judge=None)
        with sqlite3.connect(tmp_path / "cassette.sqlite") as db:
            db.execute("DELETE FROM replies WHERE key = (SELECT min(key) FROM replies)")
        asked = len(server.calls)
        rows_of_models(tmp_path, server, judge=None)
        assert (len(server.calls) - asked, runs(tmp_path)) == (1, 2)
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        manifest["runs"][-1]["failed"] = {"timeout": 1}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        rows_of_models(tmp_path, server, judge=None)
        assert runs(tmp_path) == 3
