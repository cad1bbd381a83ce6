"""The experiment.yaml of `ragbench init` and the commands of README and docs, on a real Ollama."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pandas as pd
import pytest
import serve_ollama
from ollama import Client
from test_docs import commands

from ragbench import cli

pytestmark = pytest.mark.ollama


def test_the_commented_lines_work_with_pulled_names(ollama, tmp_path, monkeypatch, capsys):
    # A Modelfile's own bound, which is not overruled: this model does not stop by itself.
    Client(ollama).create(
        model="short", from_="smollm2", parameters={"num_predict": 24, "num_thread": 1}
    )
    monkeypatch.setenv("OLLAMA_HOST", ollama)
    assert cli.main(["init", str(tmp_path / "study")]) == 0
    monkeypatch.chdir(tmp_path / "study")
    lines = []
    file = Path("experiment.yaml")
    for line in file.read_text(encoding="utf-8").splitlines():
        if line == "# generator: smollm2":
            continue  # the other way to a generator
        key = line.removeprefix("# ").partition(":")[0]
        name = {
            "embedder": "ollama:all-minilm",
            "generator": "ollama:short",
            "judge": "ollama:short",
        }.get(key)
        name = {
            "labels": "ollama:short",
            "retriever": "[SIM]",
            "N": "[60]",
            "metrics": "[claim_recall]",
        }.get(key, name)
        lines.append(f"{key}: {name}" if name else line)
    file.write_text("\n".join(lines), encoding="utf-8")
    for command in ("plan", "run"):
        assert cli.main([command, "experiment.yaml"]) == 0, capsys.readouterr().err
    assert "remaining" in capsys.readouterr().out
    folder = tmp_path / "study" / "results" / "first-look"
    rows = [
        json.loads(line)
        for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert {row["model"] for row in rows} == {"ollama:short:latest"}
    assert {row["status"] for row in rows} == {"ok"}
    assert max(row["output_tokens"] for row in rows) <= 24
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert "all-minilm:latest@" in json.dumps(manifest["axes"]["retriever"])
    assert len(pd.read_csv(folder / "scores.csv")) == len(rows)


@pytest.mark.costly
@pytest.mark.parametrize("command", [command for command in commands() if "ollama:" in command])
def test_a_command_of_the_docs_runs_as_it_stands(command, ollama, tmp_path, monkeypatch, capsys):
    """The model that it names is SmolLM2 here."""
    Client(ollama).create(
        model="llama3:8b", from_="smollm2", parameters={"num_predict": 48, "num_thread": 1}
    )
    monkeypatch.setenv("OLLAMA_HOST", ollama)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mill.txt").write_text(
        "Ada Ruck founded the mill in 1841. It burnt down in 1902."
    )
    (tmp_path / "answers.csv").write_text(
        "question,answer,reference,chunks\nWho?,Ada,Ada,Ada did it.\n"
    )
    assert cli.main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_an_end_by_sigterm_leaves_no_server_running(program, models):
    port = serve_ollama.free_port()
    script = Path(serve_ollama.__file__)
    command = [sys.executable, script, "--port", str(port), "--folder", models]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert "smollm2:latest" in serving.stdout.readline()
        serving.terminate()
        assert serving.wait(30) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/api/version", timeout=2)
