"""scripts/ollama.sh says how far a build is, and builds no more than it needs."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.posix
SCRIPT = Path(__file__).parents[2] / "scripts" / "ollama.sh"
BUILD = """
set -euo pipefail
source <(sed -n '/^say()/p; /^watch()/,/^}/p' "$1")
(for n in 1 2 3; do echo "package $n"; sleep 0.6; done) >"$2" &
watch $! "building it" "$2"
"""


def test_a_build_says_how_far_it_is(tmp_path):
    command = ["bash", "-c", BUILD, "bash", SCRIPT, tmp_path / "log"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    assert said.startswith("ollama: building it, 0 s")
    assert said.count("\n") == 1  # a line a minute where nobody looks
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0


def test_pip_brings_the_source_of_a_header_and_builds_nothing_for_it():
    lines = "python=echo; work=here; source <(sed -n '/-m pip download/,/miniaudio==/p' \"$1\")"
    command = ["bash", "-c", lines, "bash", SCRIPT]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    # With :all: its build needs cffi, which is then built too: minutes.
    assert "--no-binary miniaudio --dest here miniaudio==" in " ".join(said.split())
