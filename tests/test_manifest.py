"""The manifest says what made the rows, and ``diff`` which of it differs and which cells moved."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
from dataclasses import replace
from functools import partial
from importlib import metadata

import pytest
from experiment_parts import QUICK, Copier, Named, experiment, graded, live, people, whole, words
from fake_ollama import DIGEST, FakeOllama

from ragbench.experiment import diff, load_manifest, manifest
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.llm import chat_model
from ragbench.paths import project_root
from ragbench.prompts import load_prompt, prompt_hash


def reply(request):
    said = f"A reply of {len(request['messages'][-1]['content'])} to seed {request['options']['seed']}."
    return graded(request) or said


def sized(documents, size=3):
    return [replace(chunk, text=" ".join(chunk.text.split()[: 10 * size])) for chunk in whole(documents)]


def run_live(folder, server, **changes):
    live(folder, server, order=7, **changes).run(progress=False)
    return load_manifest(folder)


@pytest.fixture(scope="module")
def server():
    with FakeOllama(reply=reply, window=2048) as fake:  # lowers 4,096 in silence
        yield fake


@pytest.fixture(scope="module")
def told(server, tmp_path_factory):
    axes = {"chunker": {"cut": partial(sized, size=4)}, "retriever": {"b": Named, "a": Named}}
    return run_live(tmp_path_factory.mktemp("run"), server, **axes)


def test_data_are_named_counted_and_hashed(told, tmp_path):
    data = told["axes"]["data"]["people"]
    assert (data["name"], data["questions"], data["documents"], data["excluded"]) == ("people", 2, 2, 0)
    assert {len(data["questions_sha256"]), len(data["documents_sha256"])} == {64}
    other = replace(people(2), documents=tuple(replace(d, text=d.text + " ") for d in people(2).documents))
    experiment(tmp_path, data={"people": other}).run(progress=False)
    changed = load_manifest(tmp_path)["axes"]["data"]["people"]
    assert changed["documents_sha256"] != data["documents_sha256"]
    assert changed["questions_sha256"] == data["questions_sha256"]


def test_chunks_are_hashed_and_the_way_they_were_cut_is_told(told):
    assert told["axes"]["chunker"]["people/cut"]["chunks"] == 2
    assert len(told["axes"]["chunker"]["people/cut"]["sha256"]) == 64
    assert told["chunkers"]["cut"]["keywords"] == {"size": 4}
    assert told["chunkers"]["cut"]["partial"]["function"] == "sized"


def test_packages_python_git_and_machine_are_those_of_this_process(told):
    assert told["python"] == platform.python_version()
    for name in ("numpy", "langchain-core", "ollama"):
        assert told["packages"][name] == metadata.version(name)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project_root(), capture_output=True, text=True)
    if head.returncode == 0:
        assert len(told["git"]["revision"]) == len(head.stdout.strip()) == 40
        assert isinstance(told["git"]["changed"], bool)
    machine = told["machine"]
    assert (machine["system"], machine["cores"]) == (platform.system(), os.cpu_count())
    assert machine["processor"] == platform.machine()
    assert platform.node() not in json.dumps(told) or not platform.node()


def test_git_says_the_revision_and_whether_a_file_of_it_was_changed(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    monkeypatch.setattr(manifest, "project_root", lambda: tmp_path)
    assert manifest.environment()["git"] is None
    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    known = {"revision": git("rev-parse", "HEAD").strip()}
    assert manifest.environment()["git"] == known | {"changed": False}
    (tmp_path / "file").write_text("two")
    assert manifest.environment()["git"] == known | {"changed": True}


def test_models_stand_with_provider_digest_and_options(told):
    for axis in ("generator", "judge"):
        model = told["axes"][axis]["llama"]
        told_of = {name: model[name] for name in ("provider", "model", "digest", "num_ctx")}
        assert told_of == {"provider": "ollama", "model": "llama3:8b", "digest": DIGEST, "num_ctx": 2048}
        assert model["options"]["options"]["temperature"] == 0.0
    assert "127.0.0.1" not in json.dumps(told)


def test_prompts_are_hashed_by_what_they_say(told):
    assert set(told["prompts"]) == {"thesis_with_documents", "thesis_query_only", "thesis_grade"}
    for name, sha in told["prompts"].items():
        assert sha == prompt_hash(name) == hashlib.sha256(load_prompt(name).encode()).hexdigest()


def test_seeds_parameters_and_the_grid_in_its_order_are_there(told):
    assert told["seeds"] == {"generator/llama": 3, "judge/llama": 3, "order": 7}
    parameters = told["parameters"]
    assert (parameters["N"], parameters["k"], parameters["match"]) == ([0, 4, 20], {"a": [2], "b": [2]}, "substring")
    assert (parameters["per_prompt"], parameters["max_chars"], parameters["concurrency"]) == ("one", 4000, 4)
    assert parameters["options"] == QUICK
    assert parameters["tokenizer"] == "words"
    assert (told["grid"]["retriever"], told["grid"]["judge"]) == (["b", "a"], ["llama"])
    (run,) = told["runs"]
    assert run["rows_made"] == run["rows"] == 2 * 5
    assert run["began"] <= run["ended"]


def test_no_folder_no_password_of_a_host_and_no_key_stands_in_it(tmp_path, monkeypatch):
    key = "kx-very-secret-0123456789"
    monkeypatch.setenv("OLLAMA_API_KEY", key)
    with FakeOllama(reply=reply) as server:
        host = server.url.replace("://", "://me:pass-word-77@")
        model = chat_model("ollama:llama3:8b", host=host)
        generators = {"llama": model, "copier": Copier()}
        experiment(tmp_path, 2, generator=generators, options=QUICK).run(progress=False)
        assert server.calls
    assert str(tmp_path) not in (tmp_path / "manifest.json").read_text()
    for path in tmp_path.iterdir():
        assert key.encode() not in path.read_bytes(), path.name
        assert b"pass-word-77" not in path.read_bytes(), path.name


# -- diff --------------------------------------------------------------------------------------------------------------


def test_diff_names_the_seed_and_the_cells_that_moved(server, tmp_path):
    run_live(tmp_path / "a", server)
    run_live(tmp_path / "b", server, seed=4)
    found = diff(tmp_path / "a", tmp_path / "b")
    entries = found.manifest.set_index("what")
    assert entries.loc["seeds.generator/llama"].tolist() == [3, 4]
    assert {"axes.generator.llama.options.options.seed", "seeds.judge/llama"} <= set(entries.index)
    assert (len(found.moved), found.moved["answers"].tolist()) == (3, [2, 2, 2])
    assert found.moved["grades"].tolist() == [0, 0, 0]
    assert "seeds.generator/llama: 3 -> 4" in str(found)


def test_diff_names_other_weights_data_chunks_and_parameters(server, tmp_path):
    run_live(tmp_path / "a", server, chunker={"cut": partial(sized, size=4)})
    server.models["llama3:8b"] = "f" * 64
    try:
        run_live(
            tmp_path / "b", server, chunker={"cut": partial(sized, size=1)}, N=(4, 6), begin_token=True,
            data={"people": replace(people(2), questions=people(3).questions[1:])},
        )  # fmt: skip
    finally:
        server.models["llama3:8b"] = DIGEST
    found = diff(tmp_path / "a", tmp_path / "b")
    what = set(found.manifest["what"])
    assert {
        "axes.generator.llama.digest", "axes.data.people.questions_sha256", "axes.chunker.people/cut.sha256",
        "chunkers.cut.keywords.size", "parameters.N", "parameters.begin_token",
    } <= what  # fmt: skip
    assert not any(name.startswith(("runs", "packages", "machine")) for name in what)
    cells = found.cells.set_index("N")
    # q1 is in both, q0 in a only, q2 in b only; N = 0 and 20 are in a only, 6 in b only.
    assert cells.loc[4, ["n", "only_a", "only_b"]].tolist() == [1, 1, 1]
    assert cells.loc[6, ["n", "only_a", "only_b"]].tolist() == [0, 0, 2]
    assert cells.loc[4, "ir_score_b"] < cells.loc[4, "ir_score_a"]  # with the begin token, one word less is read
    assert math.isnan(cells.loc[20, "ir_score_b"])
    assert cells["moved"].all()


def test_diff_of_a_run_with_itself_is_empty_and_moves_nothing(tmp_path):
    experiment(tmp_path, generator={"c": Copier(broken="Person1")}, judge={"e": EmbeddedGrader()}).run(progress=False)
    found = diff(tmp_path, tmp_path)
    assert (found.manifest.empty, len(found.cells), found.moved.empty) == (True, 3, True)
    assert "0 of 3 cells moved" in str(found)


def test_diff_counts_grades_that_moved_with_the_same_answers(tmp_path):
    class Harsh(EmbeddedGrader):
        def grade_all(self, questions, answers):
            return [replace(grade, value=1) for grade in super().grade_all(questions, answers)]

    for name, judge in (("a", EmbeddedGrader()), ("b", Harsh())):
        experiment(tmp_path / name, 3, judge={"j": judge}, tokenizer=words).run(progress=False)
    moved = diff(tmp_path / "a", tmp_path / "b").moved
    assert (moved["answers"] == 0).all()
    assert (moved["grades"] > 0).all()
    assert (moved["ir_score_a"] == moved["ir_score_b"]).all()
