"""The command line ``ragbench``: init, doctor, data, plan, run, score, audit, export, reproduce, lab ... Thin."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench import __version__
from ragbench.errors import RagbenchError

_EXPERIMENT = "YAML file, or a folder with experiment.yaml (default: this one); its keys are in docs/experiment.md"

if TYPE_CHECKING:
    import pandas as pd


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 a check failed, 2 wrong use or data, 130 interrupted."""
    # Rows are made in threads of their own; OpenBLAS's threads would take three times the CPU, waiting for a core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy reads it when it is loaded, kernels inherit it
    parser = _parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        parser.print_help()
        return 2
    warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"  # without our own line of code
    try:
        return arguments.run(arguments) or 0
    except RagbenchError as error:
        print(f"ragbench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ragbench: interrupted; what was recorded is kept, run the same command to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk, a file without rights
        print(f"ragbench: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ragbench", description="A workbench for evaluating retrieval-augmented generation."
    )
    parser.add_argument("--version", action="version", version=f"ragbench {__version__}")
    commands = parser.add_subparsers(metavar="command")

    init = commands.add_parser("init", help="make a folder for an experiment of your own, with examples that run")
    init.add_argument("folder", metavar="name", help="of the folder; it must not exist yet, or be empty")
    init.set_defaults(run=_init)
    doctor = commands.add_parser("doctor", help="say what is installed and there, and what to do about what is not")
    doctor.add_argument("--model", help="also try whether this model can judge, e.g. ollama:llama3:8b or smollm2")
    doctor.add_argument("--host", help="address of its server (default: OLLAMA_HOST, or this machine)")
    doctor.add_argument("--num-ctx", type=int, help="context window in tokens (default: the model's own setting)")
    doctor.set_defaults(run=_doctor)

    data = commands.add_parser("data", help="list, fetch, verify or validate data").add_subparsers(
        required=True, metavar="action"
    )
    data.add_parser("list", help="the data sets and where they were found").set_defaults(run=_data_list)
    fetch = data.add_parser("fetch", help="download a data set or the weights (needs internet)")
    fetch.add_argument("name", choices=["hotpotqa", "minilm"])
    fetch.set_defaults(run=_data_fetch)
    verify = data.add_parser("verify", help="check a file against its published hash")
    verify.add_argument("name", choices=["minilm", "smollm2"])
    verify.set_defaults(run=_data_verify)
    validate = data.add_parser("validate", help="check a question file against its own evidence")
    validate.add_argument("questions", help="JSON in HotpotQA's shape, JSON lines or CSV")
    validate.add_argument("documents", nargs="?", help="JSON lines, CSV or a folder of text files")
    validate.add_argument(
        "--min-documents", type=int, default=1, help="documents that evidence must come from (default 1; two-hop: 2)"
    )
    validate.add_argument("--columns", nargs="*", default=[], metavar="OURS=YOURS", help="such as question=query")
    validate.set_defaults(run=_data_validate)
    generate = data.add_parser("generate", help="write a made data set of one domain, offline (RAGEval)")
    generate.add_argument("--domain", default="finance", help="finance, law or medicine (default finance)")
    generate.add_argument("--language", default="en", help="en or zh (default en)")
    generate.add_argument("--documents", type=int, default=40, help="how many (default 40)")
    generate.add_argument("--seed", type=int, default=0, help="same seed, same files, bit for bit (default 0)")
    generate.add_argument("--out", required=True, help="folder to make; nothing is overwritten")
    generate.set_defaults(run=_data_generate)

    judge = commands.add_parser("judge", help="measure a grader, or fit the embedded judge").add_subparsers(
        required=True, metavar="action"
    )
    measure = judge.add_parser("measure", help="grade MiniHop's graded answers and report the agreement")
    measure.add_argument(
        "--model", default="embedded", help="a model such as ollama:llama3:8b (default: the embedded grader)"
    )
    measure.add_argument(
        "--checker", help="measure a claim checker instead: embedded, onnx:FOLDER, or ollama:bespoke-minicheck"
    )
    measure.add_argument("--host", help="address of its server")
    measure.add_argument("--split", choices=["dev", "test"], help="one split only (default: both)")
    measure.add_argument("--per-prompt", type=int, default=1, help="answers the model sees at once (default 1)")
    measure.add_argument("--cassette", help="file that records the model's replies")
    measure.set_defaults(run=_judge_measure)
    fit = judge.add_parser("fit", help="fit the embedded judge on labelled pairs of answers, with a nested report")
    fit.add_argument("--pairs", help="JSON lines of labelled pairs (default: RAGChecker's 280 in RAGBENCH_DATA)")
    fit.add_argument("--out", help="where to save the coefficients and their card")
    fit.set_defaults(run=_judge_fit)

    from ragbench.notebooks import SERIES

    reproduce = commands.add_parser("reproduce", help="run the notebooks and rebuild the ledger")
    reproduce.add_argument(
        "paper", nargs="?", choices=[*SERIES], help="one paper's notebooks (default: every notebook)"
    )
    reproduce.add_argument(
        "--publish", action="store_true", help="write over the checkout's own notebooks, figures and ledger"
    )
    reproduce.add_argument("--limit", type=int, help="first so many questions only, for a quick look")
    reproduce.set_defaults(run=_reproduce)

    plan = commands.add_parser("plan", help="say what an experiment file will take, without asking a model")
    plan.add_argument("experiment", nargs="?", default=".", help=_EXPERIMENT)
    plan.add_argument("--tokens-per-second", type=float, default=float("nan"), help="of the model, for the hours")
    plan.set_defaults(run=_plan)
    run = commands.add_parser("run", help="run an experiment file; run it again to go on where it stopped")
    run.add_argument("experiment", nargs="?", default=".", help=_EXPERIMENT)
    run.add_argument("--retry-failed", action="store_true", help="make failed rows again")
    run.add_argument(
        "--stop-after", type=float, default=0.5, help="end when the servers fail more than this share (default 0.5)"
    )
    run.set_defaults(run=_run)
    diff = commands.add_parser("diff", help="say what differs between two runs, and which cells moved")
    diff.add_argument("run_a", help="name or folder of a run")
    diff.add_argument("run_b", help="name or folder of another")
    diff.set_defaults(run=_diff)
    audit = commands.add_parser("audit", help="check a run: what is missing, and how far it could move each mean")
    audit.add_argument("name", metavar="run", help="name or folder of a run, or: ledger")
    audit.add_argument("--cassette", help="the run's cassette, when it is not in the run's folder")
    audit.set_defaults(run=_audit)
    export = commands.add_parser("export", help="write a run, or the ledger, as tables, figures, methods and data")
    export.add_argument("name", metavar="run", help="name or folder of a run, or: ledger")
    export.add_argument("--to", required=True, help="folder to make; only one that an export made is written over")
    export.add_argument("--cassette", help="the run's cassette, when it is not in the run's folder")
    export.add_argument("--html", action="store_true", help="of a run: also one page with everything, report.html")
    export.set_defaults(run=_export)

    score = commands.add_parser(
        "score", help="score answers you have: a CSV, JSON or Parquet file, in any tool's columns"
    )
    score.add_argument("answers", help="file with a row per answer, see docs/data.md")
    score.add_argument("--metrics", nargs="+", required=True, help="names such as lexical, ragchecker, faithfulness")
    score.add_argument("--labels", default="embedded", help="a model such as ollama:llama3:8b (default: by rules)")
    score.add_argument("--checker", help="who checks claims instead: embedded, onnx:FOLDER, ollama:bespoke-minicheck")
    score.add_argument("--host", help="address of its server")
    score.add_argument("--columns", nargs="*", default=[], metavar="OURS=YOURS", help="such as reference=gold_answer")
    score.add_argument("--cassette", help="file of the model's replies (default: beside the folder, NAME.sqlite)")
    score.add_argument("--plan", action="store_true", help="say what the model will be asked, and stop")
    score.add_argument("--to", required=True, help="folder to make; only one that an export made is written over")
    score.set_defaults(run=_score)

    recordings = commands.add_parser("recordings", help="replies of real models: record, ship, verify").add_subparsers(
        required=True, metavar="action"
    )
    for action, told in (
        ("record", "ask the model; run it again to go on where it stopped"),
        ("export", "write what is recorded to data/recordings, as far as it is whole"),
        ("verify", "look for prompts without a reply, stale replies, other weights; status 1 if there are any"),
        ("again", "ask 100 of the recorded prompts now, and count the replies that are the same"),
    ):
        one = recordings.add_parser(action, help=told)
        one.add_argument("name", help="of the recording: smollm2, qwen")
        if action == "export":
            one.add_argument("--cassette", help="the file that record writes, when it is in another checkout")
        one.set_defaults(run=_recordings, action=action)

    cassette = commands.add_parser("cassette", help="a file of recorded replies: show, verify, export, import")
    cassette.add_argument("action", choices=["show", "verify", "export", "import"])
    cassette.add_argument("file", help="the cassette, such as data/results/NAME/cassette.sqlite")
    cassette.add_argument("lines", nargs="?", help="JSON Lines to write or to read; .gz is compressed")
    cassette.set_defaults(run=_cassette)

    lab = commands.add_parser("lab", help="open JupyterLab on the notebooks")
    lab.add_argument("folder", nargs="?", help="made by ragbench init (default: the checkout, or this folder)")
    lab.add_argument("--port", type=int, help="of its server (default: the first free one from 8888)")
    lab.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    lab.set_defaults(run=_lab)
    return parser


def _init(arguments: argparse.Namespace) -> int:
    from ragbench.doctor import check_lines, checks
    from ragbench.your_experiment import lay_out

    folder = lay_out(arguments.folder)
    files = ", ".join(path.name + "/" * path.is_dir() for path in sorted(folder.iterdir()))
    print(f"{os.path.relpath(folder)}: {files}")
    missing = [check for check in checks() if not (check.ok or check.optional)]
    if missing:
        print(f"first:\n{check_lines(missing)}")
    experiment = shlex.quote(os.path.relpath(folder / "experiment.yaml"))
    print(f"next: ragbench plan {experiment}; ragbench run {experiment}; ragbench lab {shlex.quote(arguments.folder)}")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from ragbench.doctor import check_lines, checks

    results = checks()
    print(check_lines(results))
    good = all(check.ok or check.optional for check in results)
    if arguments.model:
        from ragbench.llm import chat_model, fitness

        report = fitness(chat_model(arguments.model, host=arguments.host, num_ctx=arguments.num_ctx))
        print(f"\n{report}")
        good = good and report.fit
    return 0 if good else 1


def _data_list(arguments: argparse.Namespace) -> int:
    from ragbench.doctor import check_lines, data_checks

    print(check_lines(data_checks()))
    return 0


def _data_fetch(arguments: argparse.Namespace) -> int:
    if arguments.name == "minilm":
        from ragbench.embedding import fetch_minilm as fetch
    else:
        from ragbench.data import fetch_hotpotqa as fetch
    print(fetch())
    return 0


def _data_verify(arguments: argparse.Namespace) -> int:
    if arguments.name == "minilm":
        from ragbench.embedding import verify_minilm as verify
    else:
        from ragbench.llm.local import verify_smollm2 as verify
    verify()
    title = {"minilm": "all-MiniLM-L6-v2", "smollm2": "SmolLM2-135M-Instruct"}[arguments.name]
    print(f"{title}: the published weights")
    return 0


def _data_validate(arguments: argparse.Namespace) -> int:
    from ragbench.data import validate_files

    fields = _columns(arguments.columns)
    problems = validate_files(
        arguments.questions, arguments.documents, fields=fields, min_documents=arguments.min_documents
    )
    for problem in problems:
        print(problem)
    notes = sum(problem.note for problem in problems)
    found = len(problems) - notes
    counts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((found, "problem"), (notes, "note"))]
    print(", ".join(counts))
    return 1 if found else 0


def _data_generate(arguments: argparse.Namespace) -> int:
    from collections import Counter

    from ragbench.data import load_jsonl
    from ragbench.datagen import generate_set

    folder = generate_set(arguments.domain, arguments.language, arguments.documents, arguments.seed, arguments.out)
    dataset = load_jsonl(folder)
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(q.kind for q in dataset.questions).items())
    questions = folder / "questions.jsonl"
    print(f"{folder}: {len(dataset.documents)} documents, {len(dataset.questions)} questions ({kinds})")
    print(f"in experiment.yaml: data: {{{arguments.domain}: {{questions: {questions}, documents: {folder}}}}}")
    return 0


def _judge_measure(arguments: argparse.Namespace) -> int:
    from ragbench.experiment.config import make_judge
    from ragbench.labelling.graded_answers import measure_judge
    from ragbench.llm import Cassette

    options = {}
    if arguments.model != "embedded":
        options = {"per_prompt": arguments.per_prompt}
        options |= {"cassette": Cassette(arguments.cassette)} if arguments.cassette else {}
    host = {"host": arguments.host} if arguments.host else {}
    if arguments.checker:
        from ragbench.labelling.checkers import make_checker
        from ragbench.labelling.claims import embedded_checker_quality

        tape = {"cassette": arguments.cassette} if arguments.cassette else {}
        checker = make_checker(arguments.checker, **host, **tape)
        for split in [arguments.split] if arguments.split else ["dev", "test"]:
            print(f"MiniHop's labelled claims, {split}: entailed or not")
            print(embedded_checker_quality(split, checker, arguments.checker).round(3).to_string())
        return 0
    print(measure_judge(make_judge(arguments.model, **host), split=arguments.split, **options))
    return 0


def _judge_fit(arguments: argparse.Namespace) -> int:
    from ragbench.labelling.judge_fit import fit_judge
    from ragbench.labelling.preferences import read_pairs

    report = fit_judge(read_pairs(arguments.pairs) if arguments.pairs else None)
    print(report)
    if arguments.out:
        report.save(arguments.out)
        print(f"saved: {arguments.out}")
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    from ragbench.notebooks import run_all
    from ragbench.papers import PAPERS, begin_ledger, summary, write_markdown
    from ragbench.paths import published_figures

    if arguments.publish:
        os.environ["RAGBENCH_FIGURES"] = str(published_figures())
    if arguments.paper is None:
        begin_ledger()
    parameters = {"LIMIT": arguments.limit} if arguments.limit else None
    seconds = run_all(arguments.paper, publish=arguments.publish, parameters=parameters)
    path = write_markdown()
    print(summary(arguments.paper if arguments.paper in PAPERS else None))
    for name, s in seconds.items():
        print(f"{s:7.1f} s  {name}")
    print(f"ledger: {os.path.relpath(path)}")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from ragbench.experiment import Experiment

    print(Experiment.from_yaml(arguments.experiment).plan(tokens_per_second=arguments.tokens_per_second))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from ragbench.experiment import Experiment
    from ragbench.llm.reply import CUT_SHORT

    experiment = Experiment.from_yaml(arguments.experiment)
    rows = experiment.run(retry_failed=arguments.retry_failed, stop_after=arguments.stop_after)
    failed = int((rows["status"] == "failed").sum())
    cut = int(rows["finish"].isin(CUT_SHORT).sum())
    folder = os.path.relpath(experiment.folder)
    print(f"{len(rows)} rows, {failed} failed, in {folder}")
    if cut:
        print(f"{cut} rows hold an answer that ended at its limit of tokens (truncated: {experiment.truncated})")
    print(_run_summary(rows))
    if experiment.metrics:
        from ragbench.report.export import save_scores

        scores = experiment.score(rows)
        print(_score_means(scores))
        print(f"{len(scores)} scored answers in {os.path.relpath(save_scores(scores, experiment.folder))}\n")
    if failed:
        print("failed rows: ragbench audit says why; ragbench run --retry-failed makes them again")
    run = shlex.quote(str(folder))
    print(f"next: ragbench audit {run}; ragbench export {run} --to FOLDER")
    return 1 if failed else 0


def _score_means(table: pd.DataFrame) -> str:
    from ragbench.stats import means

    by = ["system"] if "system" in table else []
    return means(table, by, table.attrs["numbers"], groups="question_id").round(3).to_string(index=False)


def _run_summary(rows: pd.DataFrame) -> str:
    """Mean IR score and share of grade 5, a line per system and a column per N."""
    retrieved = rows[rows["N"] > 0]
    axes = ("data", "chunker", "k", "generator", "judge")
    systems = ["retriever", *(axis for axis in axes if retrieved[axis].nunique() > 1)]
    right = rows["grade"].eq(5).where(rows["grade"].notna()).astype(float)
    parts = {
        "mean IR score": retrieved.assign(value=retrieved["ir_score"]),
        "share of grade 5": rows.assign(value=right),
    }
    lines = []
    for name, scored in parts.items():
        if scored["value"].notna().any():
            table = scored.pivot_table(index=systems, columns="N", values="value", sort=False, dropna=False)
            lines += [f"\n{name} at N tokens ({int(scored['value'].isna().sum())} rows without)"]
            lines += [table.to_string(float_format="{:.3f}".format, na_rep="-")]
    return "\n".join([*lines, ""])


def _diff(arguments: argparse.Namespace) -> int:
    from ragbench.experiment import diff

    print(diff(arguments.run_a, arguments.run_b))
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    from ragbench.report.audit import audit, audit_ledger, render

    if arguments.name == "ledger":
        from ragbench.papers import PAPERS, ledger

        for paper in PAPERS:
            measured = ledger(paper).dropna(subset=["ours_by", "recorded_by"], how="all")
            print(f"## {PAPERS[paper]}")
            for item in measured["item"].unique():
                print(render(audit_ledger(paper, item)))
    else:
        print(render(audit(arguments.name, cassette=arguments.cassette)))
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from ragbench.report.export import export, export_ledger

    if arguments.name == "ledger":
        print(export_ledger(arguments.to))
    else:
        print(export(arguments.name, arguments.to, cassette=arguments.cassette, html=arguments.html))
    return 0


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    from ragbench.errors import ConfigError

    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ConfigError(f"--columns {wrong[0]}", "OURS=YOURS", "write for instance reference=gold_answer")
    return dict(pair.split("=", 1) for pair in pairs)


def _score(arguments: argparse.Namespace) -> int:
    from ragbench import scoring
    from ragbench.labelling.checkers import asks_model, make_checker
    from ragbench.llm import chat_model
    from ragbench.report.export import export_scores

    columns = _columns(arguments.columns)
    to = Path(arguments.to)
    options: dict[str, Any] = {}
    labels: Any = arguments.labels
    if labels != "embedded":
        labels = chat_model(labels, host=arguments.host)
    if labels != "embedded" or arguments.checker:
        options["cassette"] = arguments.cassette or str(to.with_name(f"{to.name}.sqlite"))
    options["checker"] = arguments.checker
    if arguments.host and arguments.checker and asks_model(arguments.checker):
        options["checker"] = make_checker(arguments.checker, host=arguments.host, cassette=options["cassette"])
    if arguments.plan:
        print(scoring.plan_score(arguments.answers, arguments.metrics, labels, columns, **options))
        return 0
    table = scoring.score(arguments.answers, arguments.metrics, labels, columns, **options)
    print(_score_means(table))
    print(export_scores(table, to, Path(arguments.answers).name))
    return 0


def _recordings(arguments: argparse.Namespace) -> int:
    from ragbench import recordings

    if arguments.action == "record":
        print(recordings.record_replies(arguments.name))
        return 0
    if arguments.action == "export":
        print(recordings.ship(arguments.name, arguments.cassette))
        return 0
    if arguments.action == "again":
        fresh = recordings.ask_again(arguments.name)
        print(f"{fresh['same'].sum()} of {len(fresh)} fresh replies are the recorded ones, character by character")
        return 0
    return _tell(recordings.verify(arguments.name))


def _tell(problems: Sequence[str]) -> int:
    """Print problems and their count; status 1 if there are any."""
    print("\n".join([*problems, f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"]))
    return 1 if problems else 0


def _cassette(arguments: argparse.Namespace) -> int:
    from ragbench.errors import ConfigError
    from ragbench.llm import Cassette

    if arguments.action in ("export", "import") and not arguments.lines:
        raise ConfigError(f"{arguments.action} without a second file", "JSON Lines", "name it after the cassette")
    with Cassette(arguments.file, "record" if arguments.action == "import" else "replay") as cassette:
        if arguments.action == "export":
            print(f"{cassette.export(arguments.lines)} rows written")
        elif arguments.action == "import":
            print(f"{cassette.import_(arguments.lines)} rows added")
        elif arguments.action == "show":
            for name, value in cassette.stats().items():
                print(f"{name}: {value}")
        else:
            return _tell(cassette.verify())
    return 0


def _lab(arguments: argparse.Namespace) -> int:
    from ragbench.errors import ConfigError
    from ragbench.paths import project_root

    folder = Path(arguments.folder).resolve() if arguments.folder else project_root()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", "a folder of notebooks", f"ragbench init {arguments.folder}")
    if arguments.folder:
        os.environ.setdefault("RAGBENCH_RESULTS", str(folder / "results"))  # beside the user's files
    command = [sys.executable, "-m", "jupyter", "lab", "--notebook-dir", str(folder)]
    starts = (*sorted(folder.glob("notebooks/00_*.ipynb")), *sorted(folder.glob("*.ipynb")))
    command += [str(path.relative_to(folder)) for path in starts[:1]]
    if arguments.port is not None:
        command += ["--port", str(arguments.port)]
    if arguments.no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    here = os.path.dirname(sys.executable)
    os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])  # of `!ragbench` in a cell
    os.chdir(folder)
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main())
