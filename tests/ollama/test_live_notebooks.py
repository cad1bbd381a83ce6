"""The thesis's notebooks run on a real Ollama with the smallest model, and then from the cassette without it.

SmolLM2's answers are bad on purpose: empty lists, one class alone and unreadable labels must not break a cell.
"""

from __future__ import annotations

import shutil

import pytest
import serve_ollama

from ragbench.llm import Cassette
from ragbench.notebooks import _shared_kernel, execute, find

pytestmark = [pytest.mark.ollama, pytest.mark.slow]
SMALL = {"use": "ollama:smollm2", "num_predict": 96, "num_ctx": 4096}
# One question or two each: a prompt of a thousand tokens takes seconds on one core.
NOTEBOOKS = {
    "11_thesis_ir_score": {"DATA": "minihop", "LIMIT": 2, "MODEL": SMALL},
    "12_thesis_context_budget": {"DATA": "minihop", "LIMIT": 1, "MODEL": SMALL, "JUDGED": 4},
    "13_thesis_grades": {"DATA": "minihop", "LIMIT": 1, "MODEL": SMALL, "JUDGED": 4},
    "14_thesis_thresholds": {"DATA": "minihop", "LIMIT": 1, "MODEL": SMALL, "JUDGED": 4},
}


@pytest.fixture(scope="module")
def places(ollama, tmp_path_factory):
    """For each mode a process, which keeps the environment that it was started with, and that environment."""
    nobody = f"http://127.0.0.1:{serve_ollama.free_port()}"
    with _shared_kernel() as live, _shared_kernel() as replaying:
        kernels, hosts, places = {"record": live, "replay": replaying}, {"record": ollama, "replay": nobody}, {}
        for mode, kernel in kernels.items():
            out = tmp_path_factory.mktemp(mode)
            places[mode] = kernel, out, {"RAGBENCH_FIGURES": out, "RAGBENCH_RESULTS": out, "OLLAMA_HOST": hosts[mode]}
        places["replay"][2]["RAGBENCH_CASSETTE"] = "replay"
        yield places


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_live_and_replays_without_a_server(name, places, tmp_path, monkeypatch):
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    path, numbers = next(path for path in find() if path.stem == name), {}
    given = NOTEBOOKS[name] | {"CASSETTE": str(tmp_path / "replies.sqlite")}
    for mode, (kernel, out, environment) in places.items():
        shutil.rmtree(out)
        out.mkdir()
        for variable, value in environment.items():
            monkeypatch.setenv(variable, str(value))
        execute(path, given, out / path.name, timeout_s=900, kernel=kernel)
        # The data of every figure and table, and the ledger.
        numbers[mode] = {csv.name: csv.read_text(encoding="utf-8") for csv in sorted(out.rglob("*.csv"))}
    assert numbers["record"] == numbers["replay"]
    with Cassette(tmp_path / "replies.sqlite", "replay") as cassette:
        assert len(cassette) > 0
