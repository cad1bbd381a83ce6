"""The manifest says what made the rows."""

import json
import os
import platform
import subprocess
from dataclasses import replace
from functools import partial
from importlib import metadata

import pytest
from experiment_parts import QUICK, Named, graded, live_rows, people, rows_of, whole
from fake_ollama import DIGEST, FakeOllama

from ragbench.errors import DataError
from ragbench.experiment import load_manifest, manifest
from ragbench.llm import chat_model
from ragbench.prompts import prompt_hash
from ragbench.report.export import export


def reply(request):
    length = len(request["messages"][-1]["content"])
    return graded(request) or f"A reply of {length} to seed {request['options']['seed']}."


def sized(documents, size=3):
    return [
        replace(chunk, text=" ".join(chunk.text.split()[: 10 * size])) for chunk in whole(documents)
    ]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    axes = {"chunker": {"cut": partial(sized, size=4)}, "retriever": {"b": Named, "a": Named}}
    folder = tmp_path_factory.mktemp("run")
    with FakeOllama(reply=reply, window=2048) as server:  # lowers 4,096 in silence
        live_rows(folder, server, order=7, **axes)
    return load_manifest(folder)


def test_data_are_named_counted_and_hashed(told, tmp_path):
    data = told["axes"]["data"]["people"]
    assert (data["name"], data["questions"], data["documents"]) == ("people", 2, 2)
    assert {len(data["questions_sha256"]), len(data["documents_sha256"])} == {64}
    longer = tuple(replace(d, text=d.text + " ") for d in people(2).documents)
    rows_of(tmp_path, data=replace(people(2), documents=longer))
    changed = load_manifest(tmp_path)["axes"]["data"]["people"]
    assert changed["documents_sha256"] != data["documents_sha256"]
    assert changed["questions_sha256"] == data["questions_sha256"]


def test_chunks_are_hashed_and_the_way_they_were_cut_is_told(told):
    assert told["axes"]["chunker"]["people/cut"]["chunks"] == 2
    assert len(told["axes"]["chunker"]["people/cut"]["sha256"]) == 64
    assert told["chunkers"]["cut"]["keywords"] == {"size": 4}
    assert told["chunkers"]["cut"]["partial"]["function"] == "sized"


def test_packages_python_and_machine_are_those_of_this_process(told):
    assert told["python"] == platform.python_version()
    for name in ("numpy", "langchain-core", "ollama"):
        assert told["packages"][name] == metadata.version(name)
    facts = {"system": platform.system(), "cores": os.cpu_count(), "processor": platform.machine()}
    assert facts.items() <= told["machine"].items()
    assert platform.node() not in told["machine"].values()


def said_of_git(folder):
    rows_of(folder)
    return load_manifest(folder)["git"]


def test_git_says_the_revision_and_whether_a_file_of_it_was_changed(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    monkeypatch.setattr(manifest, "CHECKOUT", tmp_path)
    assert said_of_git(tmp_path / "first") is None
    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    known = {"revision": git("rev-parse", "HEAD").strip()}
    assert said_of_git(tmp_path / "second") == known | {"changed": False}
    (tmp_path / "file").write_text("two")
    assert said_of_git(tmp_path / "third") == known | {"changed": True}


@pytest.mark.posix
def test_no_program_that_a_folder_names_runs_for_the_manifest(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    program = tmp_path / "monitor"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    for command in (["init"], ["config", "core.fsmonitor", str(program)]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)
    assert said_of_git(tmp_path / "first") != {}
    monkeypatch.setattr(manifest, "CHECKOUT", tmp_path)
    said_of_git(tmp_path / "second")
    assert not ran.exists()


def test_models_stand_with_provider_digest_and_options(told):
    expected = {"provider": "ollama", "model": "llama3:8b", "digest": DIGEST, "num_ctx": 2048}
    for axis in ("generator", "judge"):
        model = told["axes"][axis]["llama"]
        assert expected.items() <= model.items()
        assert model["options"]["options"]["temperature"] == 0.0
    assert "127.0.0.1" not in json.dumps(told)


def test_prompts_are_hashed_by_what_they_say(told):
    assert set(told["prompts"]) == {"thesis_with_documents", "thesis_query_only", "thesis_grade"}
    for name, sha in told["prompts"].items():
        assert sha == prompt_hash(name)


def test_seeds_parameters_and_the_grid_in_its_order_are_there(told):
    assert told["seeds"] == {"generator/llama": 3, "judge/llama": 3, "order": 7}
    expected = {
        "N": [0, 4, 20],
        "k": {"a": [2], "b": [2]},
        "match": "substring",
        "per_prompt": "one",
        "concurrency": None,
        "options": QUICK,
        "tokenizer": "words",
    }
    assert {name: told["parameters"][name] for name in expected} == expected
    assert (told["grid"]["retriever"], told["grid"]["judge"]) == (["b", "a"], ["llama"])
    (run,) = told["runs"]
    assert run["rows_made"] == run["rows"] == 2 * 5
    assert run["began"] <= run["ended"]


def test_no_folder_no_password_of_a_host_and_no_key_stands_in_it(tmp_path, monkeypatch):
    secrets = ("kx-very-secret-0123456789", "pass-word-77")
    monkeypatch.setenv("OLLAMA_API_KEY", secrets[0])
    with FakeOllama(reply=reply) as server:
        client = {"headers": {"x-password": secrets[1]}}
        model = chat_model("ollama:llama3:8b", host=server.url, client_kwargs=client)
        rows_of(tmp_path, 2, generator={"llama": model}, options=QUICK)
        assert server.calls
    assert str(tmp_path) not in (tmp_path / "manifest.json").read_text()
    for path in tmp_path.iterdir():
        assert not any(secret.encode() in path.read_bytes() for secret in secrets), path.name


@pytest.mark.parametrize(("name", "value"), [("match", "best"), ("match", None), ("N", "many")])
def test_a_parameter_that_no_run_has_is_named_with_the_manifest(tmp_path, name, value):
    rows_of(tmp_path, 2, N=(4,), generator=None, judge=None)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parameters"][name] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=rf"manifest\.json cannot be read: parameters\.{name}: "):
        export(tmp_path, tmp_path / "out")
