"""The experiment.yaml of `ragbench init`, its commented lines with the names of pulled models, on a real Ollama."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from ollama import Client

from ragbench import cli

pytestmark = pytest.mark.ollama


def test_the_commented_lines_work_with_pulled_names(ollama, tmp_path, monkeypatch, capsys):
    # A Modelfile's own bound, which is not overruled: this model does not stop by itself.
    Client(ollama).create(model="short", from_="smollm2", parameters={"num_predict": 24, "num_thread": 1})
    monkeypatch.setenv("OLLAMA_HOST", ollama)
    assert cli.main(["init", str(tmp_path / "study")]) == 0
    monkeypatch.chdir(tmp_path / "study")
    lines = []
    file = Path("experiment.yaml")
    for line in file.read_text(encoding="utf-8").splitlines():
        key = line.removeprefix("# ").partition(":")[0]
        name = {"embedder": "ollama:all-minilm", "generator": "ollama:short", "judge": "ollama:short"}.get(key)
        name = {"labels": "ollama:short", "retriever": "[SIM]", "N": "[60]", "metrics": "[claim_recall]"}.get(key, name)
        lines.append(f"{key}: {name}" if name else line)
    file.write_text("\n".join(lines), encoding="utf-8")
    for command in ("plan", "run"):
        assert cli.main([command, "experiment.yaml"]) == 0, capsys.readouterr().err
    assert "remaining" in capsys.readouterr().out
    folder = tmp_path / "study" / "results" / "first-look"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["model"] for row in rows} == {"ollama:short:latest"}
    assert {row["status"] for row in rows} == {"ok"}
    assert max(row["output_tokens"] for row in rows) <= 24
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert "all-minilm:latest@" in json.dumps(manifest["axes"]["retriever"])
    assert len(pd.read_csv(folder / "scores.csv")) == len(rows)
