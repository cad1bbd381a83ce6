"""What an editor knows of ``rb.``: each name, its signature and its docstring."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ragbench

ROOT = Path(__file__).parents[2]


def test_a_stub_says_what_its_table_of_names_says():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "write_stubs.py", "--check"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture(scope="module")
def diagnostics(tmp_path_factory):
    """What the type checker says of a few lines: (line, severity, text)."""
    pytest.importorskip("basedpyright")
    lines = [
        "import ragbench as rb",
        "rb.ir_scroe('a', 'b')",
        "reveal_type(rb.Experiment('mine').run())",
        "reveal_type(rb.stats.means)",
        "reveal_type(rb.papers.thesis)",
        "rb.metrics.claims.claim_metrcis",
    ]
    path = tmp_path_factory.mktemp("types") / "mine.py"
    path.write_text("\n".join(lines))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "basedpyright",
            "--pythonpath",
            sys.executable,
            "--outputjson",
            path,
        ],
        capture_output=True,
        text=True,
        cwd=path.parent,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(d["range"]["start"]["line"], d["severity"], d["message"]) for d in found]


def test_a_misspelt_name_is_an_error_in_an_editor(diagnostics):
    errors = {line: text for line, severity, text in diagnostics if severity == "error"}
    assert set(errors) == {1, 5}
    assert '"ir_scroe" is not a known attribute' in errors[1]


def test_a_name_has_its_type_in_an_editor(diagnostics):
    types = {line: text for line, severity, text in diagnostics if severity == "information"}
    assert "DataFrame" in types[2]
    assert "rows: DataFrame" in types[3]
    assert "ragbench.papers.thesis" in types[4]


def test_every_public_name_is_in_the_stub():
    text = (ROOT / "ragbench" / "__init__.pyi").read_text()
    missing = [name for name in ragbench.__all__ if f" {name} as {name}" not in text]
    assert missing == ["__version__"]
