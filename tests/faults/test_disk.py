"""What lies on the disk: full disks, edited replies, odd texts, and files that would not fit into
memory.
"""

import contextlib
import errno
import math
import shutil
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pandas as pd
import pytest
from checks import refused
from experiment_parts import JudgeDouble, Named, graded, live_rows, rows_of
from fake_ollama import FakeOllama, Fault

from ragbench import papers
from ragbench.cli import main
from ragbench.errors import DataError
from ragbench.experiment import load_rows
from ragbench.llm import Cassette, ask
from ragbench.llm.cassette import Keys
from ragbench.report import export as exporting
from ragbench.report.audit import audit
from ragbench.report.export import export
from ragbench.rows import Row

resource = pytest.importorskip("resource", reason="Windows has no resource limits")
LIMITS = {"backoff_s": 0.01, "retries": 1, "progress": False}


@contextlib.contextmanager
def disk_with(most):
    """Let no file grow beyond so many bytes: the system refuses the write, as on a full disk."""
    # half a .pyc would outlive the test
    sys.dont_write_bytecode, kept = (True, sys.dont_write_bytecode)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = kept


def exported(folder, answer):
    """Export a run whose reader gives this answer; return the folder of the export."""
    generator = {"f": lambda question, context: answer}
    rows_of(folder / "r", 1, N=(4,), judge=None, generator=generator)
    return export(folder / "r", folder / "o").folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def parts(folder):
    return [path.name for path in folder.rglob("*.part*")]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    monkeypatch.setattr(exporting.plots, "save_figure", lambda *parts, **settings: {})


@pytest.fixture
def run(tmp_path):
    rows_of(tmp_path / "run", 3, N=(4,))
    return tmp_path / "run"


def tape(path, replies, chars=10):
    keys = Keys("ollama", "made:1b", "0" * 64, {"seed": 0})
    with Cassette(path) as cassette:
        for i in range(replies):
            asked = [{"role": "user", "content": f"{i} {'word ' * chars}"}]
            answer = {"ok": True, "text": f"Ely {i}.", "raw": "", "usage": {"calls": 1}}
            cassette.put(keys.key(asked), keys.request(asked), answer, prompt_id=f"q{i}")
    return path


# -- a full disk
# -------------------------------------------------------------------------------------------------------


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_on_a_full_disk_ends_with_a_message_and_goes_on_later(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    path = tmp_path / "e.yaml"
    axes = (
        "data: {m: {use: minihop, limit: 12}}\nchunker: token_chunks\nretriever: BM25\nN: [100]\n"
    )
    path.write_text(f"name: before\n{axes}")
    # compiled kernels are files too, and not the ones meant here
    assert main(["run", str(path)]) == 0
    path.write_text(f"name: full\n{axes}")
    with disk_with(8_000):
        assert main(["run", str(path)]) == 2
    with monkeypatch.context() as context:
        context.setattr("pathlib.Path.write_text", lambda *_, **__: full())
        assert main(["run", str(path)]) == 2
    told = capsys.readouterr().err
    assert "rows.jsonl cannot be written: File too large" in told
    assert "manifest.json cannot be written: No space left on device" in told
    assert parts(tmp_path) == []
    assert main(["run", str(path)]) == 0
    assert len(load_rows("full")) == 12


def test_a_disk_that_is_full_while_a_question_is_computed_ends_the_run(tmp_path):
    class Caching(Named):
        def search(self, queries, k):
            full()

    with pytest.raises(DataError, match=r"(?s)cannot be written: No space left.*make room"):
        rows_of(tmp_path, 3, retriever={"caching": Caching})
    assert not (tmp_path / "rows.jsonl").exists()


def test_an_export_on_a_full_disk_leaves_the_earlier_one_as_it_was(run, tmp_path, capsys):
    out = tmp_path / "out"
    export(run, out)
    before = contents(out)
    rows_of(run, 30, N=(4,))
    with disk_with(6000):
        assert main(["export", str(run), "--to", str(out)]) == 2
        assert main(["export", str(run), "--to", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err.startswith("ragbench: ")
    assert contents(out) == before
    assert not (tmp_path / "new").exists()
    assert parts(tmp_path) == []


def test_of_two_exports_into_one_folder_one_waits_while_the_other_moves_its_files(
    run, tmp_path, monkeypatch
):
    target = tmp_path / "out"
    export(run, target)
    move = shutil.copytree
    others = []

    def while_another_begins(*places, **options):
        if not others:  # the earlier files are gone, the new ones not there
            others.append(pool.submit(export, run, target))
            assert wait(others, timeout=1).not_done
        return move(*places, **options)

    monkeypatch.setattr(exporting.shutil, "copytree", while_another_begins)
    with ThreadPoolExecutor(1) as pool:
        export(run, target)
        assert others[0].result().folder == target
    exporting.check_target(target)  # each file is as it was written
    assert parts(tmp_path) == []


def test_a_ledger_on_a_full_disk_says_so_and_stays_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    cells = pd.DataFrame({"row": ["h"], "column": ["value"], "value": [0.1]})
    path = papers.record("thesis", "Equation 3.1", cells, by="one")
    before = path.read_bytes()
    with (
        disk_with(len(before)),
        refused(DataError, r"ledger\.csv cannot be written: File too large"),
    ):
        papers.record("thesis", "Equation 3.1", cells, by="another")
    assert path.read_bytes() == before
    assert parts(tmp_path) == []


def test_a_cassette_that_cannot_be_exported_leaves_no_file(tmp_path):
    path = tape(tmp_path / "c.sqlite", 100, 200)
    with (
        disk_with(40_000),
        Cassette(path) as cassette,
        pytest.raises(OSError, match="File too large"),
    ):
        cassette.export(tmp_path / "c.jsonl")
    assert not (tmp_path / "c.jsonl").exists()
    assert parts(tmp_path) == []


# -- edited replies
# ----------------------------------------------------------------------------------------------------


def test_the_audit_of_a_run_finds_a_reply_that_was_edited(tmp_path):
    run = tmp_path / "r"
    tape = run / "cassette.sqlite"
    with FakeOllama(reply=lambda body: "Ely.") as server:
        live_rows(run, server, 3, N=(4,), judge=None)
    checks = audit(run).set_index(["table", "check"])
    assert checks.loc[("cassette", "changed or damaged"), ["rows", "of"]].tolist() == [0, 3]
    with Cassette(tape) as cassette:
        cassette.rows(
            "UPDATE replies SET answer = replace(answer, 'Ely.', 'Bath.') WHERE prompt_id LIKE "
            "'q1%'"
        )
    changed = audit(run).set_index("check").loc["changed or damaged"]
    assert changed[["rows", "of"]].tolist() == [1, 3]
    assert "the answer was changed after recording" in changed["detail"]
    tape.unlink()
    assert "changed or damaged" not in set(audit(run)["check"])


def test_a_failure_that_is_marked_as_an_answer_is_not_served_as_one(tmp_path):
    with FakeOllama(fault=lambda prompt, before: Fault("400")) as server:
        model = server.model()
        path = tmp_path / "c.sqlite"
        failed = ask(model, ["p"], cassette=path, **LIMITS)[0]
        with Cassette(path) as cassette:
            cassette.rows("UPDATE replies SET ok = 1")
            assert cassette.get([failed.key])[failed.key]["ok"] is False
            assert not ask(model, ["p"], cassette=cassette, **LIMITS)[0].ok


# -- exports
# -----------------------------------------------------------------------------------------------------------


def test_half_of_a_surrogate_pair_in_a_reply_is_exported_as_its_escape(tmp_path):
    said = "Ely \ud83d!"
    assert pd.read_csv(exported(tmp_path, said) / "rows.csv")["answer"].tolist() == ["Ely \\ud83d!"]
    assert load_rows(tmp_path / "r")["answer"].tolist() == [said]


def test_an_export_that_breaks_off_leaves_nothing(run, tmp_path, monkeypatch):
    write = Path.write_text

    def break_at_the_last_file(path, *text, **options):
        return 1 / 0 if path.name == "README.md" else write(path, *text, **options)

    monkeypatch.setattr(Path, "write_text", break_at_the_last_file)
    with pytest.raises(ZeroDivisionError):
        export(run, tmp_path / "o")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# -- archives and names
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_no_run(name):
    with pytest.raises(DataError, match="no run '"):
        load_rows(name)


# -- answers that ended at their limit of tokens
# -----------------------------------------------------------------------


@pytest.mark.parametrize("judge", [{}, {"judge": {"double": JudgeDouble()}}])
def test_a_truncated_answer_is_an_answer_and_graded(tmp_path, judge):
    def fault(prompt, before):
        if "Person1 Lee born?" in prompt and "categories" not in prompt:
            return Fault("truncated")

    def reply(body):
        return graded(body) or "Ely and then"

    with FakeOllama(reply=reply, fault=fault) as server:
        rows = live_rows(tmp_path, server, 3, N=(4,), **judge).sort_values("question_id")
    assert rows["finish"].tolist() == ["stop", "length", "stop"]
    assert rows["answer"].str.len().gt(0).all()
    assert rows["status"].tolist() == ["ok"] * 3
    assert rows["grade"].notna().all()
    checks = audit(rows).set_index(["table", "check"])
    assert checks.loc[("answers", "truncated answers"), ["rows", "of"]].tolist() == [1, 3]


def test_the_command_line_counts_truncated_answers(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    path = tmp_path / "e.yaml"
    axes = "data: {m: {use: minihop, limit: 2}}\nchunker: token_chunks\nretriever: BM25\nN: [100]\n"
    with FakeOllama(fault=lambda prompt, before: Fault("truncated")) as server:
        model = f"generator: {{l: {{use: 'ollama:llama3:8b', host: '{server.url}'}}}}\n"
        path.write_text(f"name: cut\n{axes}{model}")
        assert main(["run", str(path)]) == 0
    told = capsys.readouterr().out
    assert "2 rows, 0 failed" in told
    assert "2 rows hold an answer that ended at its limit of tokens" in told


# -- size
# --------------------------------------------------------------------------------------------------------------


def peak(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_export_import_and_verify_of_a_cassette_hold_a_part_of_it_whatever_its_size(tmp_path):
    peaks = []
    for replies in (60, 600):
        path = tape(tmp_path / f"{replies}.sqlite", replies, 400)
        lines = tmp_path / f"{replies}.jsonl"
        with (
            Cassette(path, "replay") as cassette,
            Cassette(tmp_path / f"{replies}b.sqlite") as other,
        ):
            steps = (cassette.verify, lambda: cassette.export(lines), lambda: other.import_(lines))  # noqa: B023
            peaks.append([peak(step) for step in steps])
            assert (len(other), other.verify()) == (replies, [])
        assert lines.stat().st_size > 2000 * replies
    for small, large in zip(*peaks, strict=True):
        assert large < small + 200_000


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3, 4], [3, 4]), ([3, None, math.nan], [3, pd.NA, pd.NA]), ([math.nan, math.nan], [pd.NA, pd.NA]),
     ([3.0, math.nan], [3, pd.NA]), ([], []), ([2**62 + 1], [2**62 + 1])],
)  # fmt: skip
def test_whole_numbers_stay_whole_and_missing_ones_missing(values, expected):
    frame = Row.frame([Row("d", "q", "c", "r", 1, 4, "g", "j", seed=value) for value in values])
    assert (frame["seed"].dtype, frame["seed"].tolist()) == ("Int64", expected)
