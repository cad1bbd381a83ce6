"""docs/ollama.md from its first block to its last, on a real Ollama."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from ollama import Client

from ragbench import cli
from ragbench.experiment import load_rows
from ragbench.llm import Cassette
from ragbench.paths import project_root

pytestmark = [pytest.mark.ollama, pytest.mark.slow]
PAGE = project_root() / "docs" / "ollama.md"
# The example is cut down: one retriever, one N, few answers in the exams.
SMALLER = {
    "llama3:8b": "week",
    "limit=20": "limit=1",
    "limit: 10": "limit: 2",
}


def set_keys(block):
    """Put the keys of a YAML block into the experiment's file, in place of those of that name."""
    file = Path("experiment.yaml")
    keys = tuple(line.split(" ")[0] for line in block.splitlines())
    kept = [line for line in file.read_text().splitlines() if not line.startswith(keys)]
    file.write_text("\n".join([*kept, block]))


def run_line(line, monkeypatch):
    for command in line.split("#")[0].split("&&"):
        program, *words = shlex.split(command)
        if program == "cd":
            monkeypatch.chdir(words[0])
        if program == "ragbench":
            status = cli.main(words)
            assert status == 0 or words[0] == "doctor", command


def test_the_week_runs_as_it_is_written(ollama, tmp_path, monkeypatch, capsys):
    # This model does not stop by itself.
    short = {"num_predict": 24, "num_thread": 1}
    Client(ollama).create(model="week", from_="smollm2", parameters=short)
    monkeypatch.setenv("OLLAMA_HOST", ollama)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for kind, block in re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        for whole, part in SMALLER.items():
            block = block.replace(whole, part)
        if kind == "sh":
            for line in block.splitlines():
                run_line(line, monkeypatch)
            if "init" in block:
                set_keys("retriever: [BM25]\nN: [60]\n")
        elif kind == "yaml":
            set_keys(block)
        elif kind == "python":
            exec(block, names)
        elif "{query}" in block:
            Path("short.txt").write_text(block)

    assert names["exam"].table["answers"].gt(0).all()
    assert len(names["worst"]) == 2
    assert names["worst"]["question"].iloc[0] in capsys.readouterr().out
    rows = load_rows("results/first-look")
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("generator").size().to_dict() == {"thesis": 2, "short": 2}
    assert (Path("report") / "tables" / "audit.md").is_file()
    # The page says that a second run asks only what is missing: two questions, two prompts.
    (tape,) = Path("results/first-look").glob("*.sqlite")
    with Cassette(tape, mode="replay") as replies:
        assert replies.export(tmp_path / "replies.jsonl") == 4
