"""The command line ``ragbench``: every command is a function here, with its help and its arguments above it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ragbench as rb  # its modules load when they are first used
from ragbench.errors import ConfigError, RagbenchError
from ragbench.notebooks import SERIES, run_all
from ragbench.paths import project_root, published_figures

_GROUPS = {
    "data": "list, fetch, verify or validate data",
    "judge": "measure a grader or a claim checker",
    "recordings": "replies of real models: record, ship, verify",
}
_COMMANDS: dict[Callable[[argparse.Namespace], int | None], tuple] = {}


def _arg(*names: str, **settings: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return names, settings


def _command(*arguments: tuple[tuple[str, ...], dict[str, Any]]) -> Callable:
    """Make ``_data_fetch`` the command "data fetch", its docstring the help; it returns an exit status, None for 0."""

    def register(function: Callable) -> Callable:
        _COMMANDS[function] = arguments
        return function

    return register


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
    parser.add_argument("--version", action="version", version=f"ragbench {rb.__version__}")
    places = {"": parser.add_subparsers(metavar="command")}
    for run, arguments in _COMMANDS.items():
        *group, name = run.__name__.split("_")[1:]
        if "".join(group) not in places:
            inner = places[""].add_parser(group[0], help=_GROUPS[group[0]])
            places[group[0]] = inner.add_subparsers(required=True, metavar="action")
        told = run.__doc__ or ""
        command = places["".join(group)].add_parser(name, help=told[0].lower() + told[1:].rstrip("."))
        command.set_defaults(run=run)
        for names, settings in arguments:
            command.add_argument(*names, **settings)
    return parser


_HOST = _arg("--host", help="address of its server")
_COLUMNS = _arg("--columns", nargs="*", default=[], metavar="OURS=YOURS", help="such as question=query")
_TO = _arg("--to", required=True, help="folder to make; only one that an export made is written over")
_RUN_OR_LEDGER = _arg("name", metavar="run", help="name or folder of a run, or: ledger")
_RUN_CASSETTE = _arg("--cassette", help="the run's cassette, when it is not in the run's folder")
_RECORDING = _arg("name", help="of the recording: smollm2, qwen")
_EXPERIMENT = _arg(
    "experiment",
    nargs="?",
    default=".",
    help="YAML file, or a folder with experiment.yaml (default: this one); its keys are in docs/experiment.md",
)


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ConfigError(f"--columns {wrong[0]}", "OURS=YOURS", "write for instance reference=gold_answer")
    return dict(pair.split("=", 1) for pair in pairs)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


@_command(_arg("folder", metavar="name", help="of the folder; it must not exist yet, or be empty"))
def _init(arguments: argparse.Namespace) -> None:
    """Make a folder for an experiment of your own, with examples that run."""
    folder = rb.your_experiment.lay_out(arguments.folder)
    files = ", ".join(path.name + "/" * path.is_dir() for path in sorted(folder.iterdir()))
    print(f"{os.path.relpath(folder)}: {files}")
    missing = [check for check in rb.doctor.checks() if not (check.ok or check.optional)]
    if missing:
        print(f"first:\n{rb.doctor.check_lines(missing)}")
    experiment = shlex.quote(os.path.relpath(folder / "experiment.yaml"))
    print(f"next: ragbench plan {experiment}; ragbench run {experiment}; ragbench lab {shlex.quote(arguments.folder)}")


@_command(
    _arg("--model", help="also try whether this model can judge, e.g. ollama:llama3:8b or smollm2"),
    _arg("--host", help="address of its server (default: OLLAMA_HOST, or this machine)"),
    _arg("--num-ctx", type=int, help="context window in tokens (default: the model's own setting)"),
)
def _doctor(arguments: argparse.Namespace) -> int:
    """Say what is installed and there, and what to do about what is not."""
    results = rb.doctor.checks()
    print(rb.doctor.check_lines(results))
    good = all(check.ok or check.optional for check in results)
    if arguments.model:
        model = rb.chat_model(arguments.model, host=arguments.host, num_ctx=arguments.num_ctx)
        report = rb.llm.fitness(model)
        print(f"\n{report}")
        good = good and report.fit
    return 0 if good else 1


@_command()
def _data_list(arguments: argparse.Namespace) -> None:
    """The data sets and where they were found."""
    print(rb.doctor.check_lines(rb.doctor.data_checks()))


@_command(_arg("name", choices=["hotpotqa", "minilm"]))
def _data_fetch(arguments: argparse.Namespace) -> None:
    """Download a data set or the weights (needs internet)."""
    print(rb.embedding.fetch_minilm() if arguments.name == "minilm" else rb.data.fetch_hotpotqa())


@_command(_arg("name", choices=["minilm", "smollm2"]))
def _data_verify(arguments: argparse.Namespace) -> None:
    """Check a file against its published hash."""
    if arguments.name == "minilm":
        rb.embedding.verify_minilm()
        print("all-MiniLM-L6-v2: the published weights")
    else:
        from ragbench.llm.local import verify_smollm2

        verify_smollm2()
        print("SmolLM2-135M-Instruct: the published weights")


@_command(
    _arg("questions", help="JSON in HotpotQA's shape, JSON lines or CSV"),
    _arg("documents", nargs="?", help="JSON lines, CSV or a folder of text files"),
    _arg("--min-documents", type=int, default=1, help="documents that evidence must come from (default 1; two-hop: 2)"),
    _COLUMNS,
)
def _data_validate(arguments: argparse.Namespace) -> int:
    """Check a question file against its own evidence."""
    settings = {"fields": _columns(arguments.columns), "min_documents": arguments.min_documents}
    problems = rb.data.validate_files(arguments.questions, arguments.documents, **settings)
    for problem in problems:
        print(problem)
    notes = sum(problem.note for problem in problems)
    print(f"{_count(len(problems) - notes, 'problem')}, {_count(notes, 'note')}")
    return 1 if len(problems) > notes else 0


@_command(
    _arg("--domain", default="finance", help="finance, law or medicine (default finance)"),
    _arg("--language", default="en", help="en or zh (default en)"),
    _arg("--documents", type=int, default=40, help="how many (default 40)"),
    _arg("--seed", type=int, default=0, help="same seed, same files, bit for bit (default 0)"),
    _arg("--out", required=True, help="folder to make; nothing is overwritten"),
)
def _data_generate(arguments: argparse.Namespace) -> None:
    """Write a made data set of one domain, offline (RAGEval)."""
    settings = (arguments.domain, arguments.language, arguments.documents, arguments.seed, arguments.out)
    folder = rb.datagen.generate_set(*settings)
    dataset = rb.data.load_jsonl(folder)
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(q.kind for q in dataset.questions).items())
    questions = folder / "questions.jsonl"
    print(f"{folder}: {len(dataset.documents)} documents, {len(dataset.questions)} questions ({kinds})")
    print(f"in experiment.yaml: data: {{{arguments.domain}: {{questions: {questions}, documents: {folder}}}}}")


@_command(
    _arg("--model", default="embedded", help="a model such as ollama:llama3:8b (default: the embedded grader)"),
    _arg("--checker", help="measure a claim checker instead: embedded, onnx:FOLDER, or ollama:bespoke-minicheck"),
    _HOST,
    _arg("--split", choices=["dev", "test"], help="one split only (default: both)"),
    _arg("--per-prompt", type=int, default=1, help="answers the model sees at once (default 1)"),
    _arg("--cassette", help="file that records the model's replies"),
)
def _judge_measure(arguments: argparse.Namespace) -> None:
    """Grade MiniHop's graded answers and report the agreement."""
    from ragbench.experiment.config import make_judge
    from ragbench.labelling.checkers import make_checker
    from ragbench.labelling.claims import embedded_checker_quality
    from ragbench.labelling.graded_answers import measure_judge

    host = {"host": arguments.host} if arguments.host else {}
    if arguments.checker:
        tape = {"cassette": arguments.cassette} if arguments.cassette else {}
        checker = make_checker(arguments.checker, **host, **tape)
        for split in [arguments.split] if arguments.split else ["dev", "test"]:
            print(f"MiniHop's labelled claims, {split}: entailed or not")
            print(embedded_checker_quality(split, checker, arguments.checker).round(3).to_string())
        return
    options: dict[str, Any] = {}
    if arguments.model != "embedded":
        options = {"per_prompt": arguments.per_prompt}
        options |= {"cassette": rb.Cassette(arguments.cassette)} if arguments.cassette else {}
    print(measure_judge(make_judge(arguments.model, **host), split=arguments.split, **options))


@_command(
    _arg("paper", nargs="?", choices=[*SERIES], help="one paper's notebooks (default: every notebook)"),
    _arg("--publish", action="store_true", help="write over the checkout's own notebooks, figures and ledger"),
    _arg("--limit", type=int, help="first so many questions only, for a quick look"),
)
def _reproduce(arguments: argparse.Namespace) -> None:
    """Run the notebooks and rebuild the ledger."""
    if arguments.publish:
        os.environ["RAGBENCH_FIGURES"] = str(published_figures())
    if arguments.paper is None:
        rb.papers.begin_ledger()
    parameters = {"LIMIT": arguments.limit} if arguments.limit else None
    seconds = run_all(arguments.paper, publish=arguments.publish, parameters=parameters)
    path = rb.papers.write_markdown()
    print(rb.papers.summary(arguments.paper if arguments.paper in rb.papers.PAPERS else None))
    for name, s in seconds.items():
        print(f"{s:7.1f} s  {name}")
    print(f"ledger: {os.path.relpath(path)}")


@_command(
    _EXPERIMENT, _arg("--tokens-per-second", type=float, default=float("nan"), help="of the model, for the hours")
)
def _plan(arguments: argparse.Namespace) -> None:
    """Say what an experiment file will take, without asking a model."""
    print(rb.Experiment.from_yaml(arguments.experiment).plan(tokens_per_second=arguments.tokens_per_second))


@_command(
    _EXPERIMENT,
    _arg("--retry-failed", action="store_true", help="make failed rows again"),
    _arg("--stop-after", type=float, default=0.5, help="end when the servers fail more than this share (default 0.5)"),
)
def _run(arguments: argparse.Namespace) -> int:
    """Run an experiment file; run it again to go on where it stopped."""
    from ragbench.llm.reply import CUT_SHORT

    experiment = rb.Experiment.from_yaml(arguments.experiment)
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


def _score_means(table: Any) -> str:
    by = ["system"] if "system" in table else []
    return rb.means(table, by, table.attrs["numbers"], groups="question_id").round(3).to_string(index=False)


def _run_summary(rows: Any) -> str:
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


@_command(_arg("run_a", help="name or folder of a run"), _arg("run_b", help="name or folder of another"))
def _diff(arguments: argparse.Namespace) -> None:
    """Say what differs between two runs, and which cells moved."""
    print(rb.diff(arguments.run_a, arguments.run_b))


@_command(_RUN_OR_LEDGER, _RUN_CASSETTE)
def _audit(arguments: argparse.Namespace) -> None:
    """Check a run: what is missing, and how far it could move each mean."""
    from ragbench.report.audit import audit, audit_ledger, render

    if arguments.name != "ledger":
        print(render(audit(arguments.name, cassette=arguments.cassette)))
        return
    for paper, title in rb.papers.PAPERS.items():
        measured = rb.papers.ledger(paper).dropna(subset=["ours_by", "recorded_by"], how="all")
        print(f"## {title}")
        for item in measured["item"].unique():
            print(render(audit_ledger(paper, item)))


@_command(
    _RUN_OR_LEDGER,
    _TO,
    _RUN_CASSETTE,
    _arg("--html", action="store_true", help="of a run: also one page with everything, report.html"),
)
def _export(arguments: argparse.Namespace) -> None:
    """Write a run, or the ledger, as tables, figures, methods and data."""
    from ragbench.report.export import export, export_ledger

    if arguments.name == "ledger":
        print(export_ledger(arguments.to))
    else:
        print(export(arguments.name, arguments.to, cassette=arguments.cassette, html=arguments.html))


@_command(
    _arg("answers", help="file with a row per answer, see docs/data.md"),
    _arg("--metrics", nargs="+", required=True, help="names such as lexical, ragchecker, faithfulness"),
    _arg("--labels", default="embedded", help="a model such as ollama:llama3:8b (default: by rules)"),
    _arg("--checker", help="who checks claims instead: embedded, onnx:FOLDER, ollama:bespoke-minicheck"),
    _HOST,
    _COLUMNS,
    _arg("--cassette", help="file of the model's replies (default: beside the folder, NAME.sqlite)"),
    _arg("--plan", action="store_true", help="say what the model will be asked, and stop"),
    _TO,
)
def _score(arguments: argparse.Namespace) -> None:
    """Score answers you have: a CSV, JSON or Parquet file, in any tool's columns."""
    from ragbench.labelling.checkers import asks_model, make_checker
    from ragbench.report.export import export_scores

    columns, to = _columns(arguments.columns), Path(arguments.to)
    options: dict[str, Any] = {"checker": arguments.checker}
    labels: Any = arguments.labels
    if labels != "embedded":
        labels = rb.chat_model(labels, host=arguments.host)
    if labels != "embedded" or arguments.checker:
        options["cassette"] = arguments.cassette or str(to.with_name(f"{to.name}.sqlite"))
    if arguments.host and arguments.checker and asks_model(arguments.checker):
        options["checker"] = make_checker(arguments.checker, host=arguments.host, cassette=options["cassette"])
    if arguments.plan:
        print(rb.plan_score(arguments.answers, arguments.metrics, labels, columns, **options))
        return
    table = rb.score(arguments.answers, arguments.metrics, labels, columns, **options)
    print(_score_means(table))
    print(export_scores(table, to, Path(arguments.answers).name))


@_command(_RECORDING)
def _recordings_record(arguments: argparse.Namespace) -> None:
    """Ask the model; run it again to go on where it stopped."""
    print(rb.recordings.record_replies(arguments.name))


@_command(_RECORDING, _arg("--cassette", help="the file that record writes, when it is in another checkout"))
def _recordings_export(arguments: argparse.Namespace) -> None:
    """Write what is recorded to data/recordings, as far as it is whole."""
    print(rb.recordings.ship(arguments.name, arguments.cassette))


@_command(_RECORDING)
def _recordings_verify(arguments: argparse.Namespace) -> int:
    """Look for prompts without a reply, stale replies, other weights; status 1 if there are any."""
    return _tell(rb.recordings.verify(arguments.name))


@_command(_RECORDING)
def _recordings_again(arguments: argparse.Namespace) -> None:
    """Ask 100 of the recorded prompts now, and count the replies that are the same."""
    fresh = rb.recordings.ask_again(arguments.name)
    print(f"{fresh['same'].sum()} of {len(fresh)} fresh replies are the recorded ones, character by character")


def _tell(problems: Sequence[str]) -> int:
    """Print problems and their count; status 1 if there are any."""
    print("\n".join([*problems, _count(len(problems), "problem")]))
    return 1 if problems else 0


@_command(
    _arg("action", choices=["show", "verify", "export", "import"]),
    _arg("file", help="the cassette, such as data/results/NAME/cassette.sqlite"),
    _arg("lines", nargs="?", help="JSON Lines to write or to read; .gz is compressed"),
)
def _cassette(arguments: argparse.Namespace) -> int | None:
    """A file of recorded replies: show, verify, export, import."""
    if arguments.action in ("export", "import") and not arguments.lines:
        raise ConfigError(f"{arguments.action} without a second file", "JSON Lines", "name it after the cassette")
    with rb.Cassette(arguments.file, "record" if arguments.action == "import" else "replay") as cassette:
        if arguments.action == "verify":
            return _tell(cassette.verify())
        if arguments.action == "export":
            print(f"{cassette.export(arguments.lines)} rows written")
        elif arguments.action == "import":
            print(f"{cassette.import_(arguments.lines)} rows added")
        else:
            print("\n".join(f"{name}: {value}" for name, value in cassette.stats().items()))
    return None


@_command(
    _arg("folder", nargs="?", help="made by ragbench init (default: the checkout, or this folder)"),
    _arg("--port", type=int, help="of its server (default: the first free one from 8888)"),
    _arg("--no-browser", action="store_true", help="print the address and open no browser"),
)
def _lab(arguments: argparse.Namespace) -> None:
    """Open JupyterLab on the notebooks."""
    folder = Path(arguments.folder).resolve() if arguments.folder else project_root()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", "a folder of notebooks", f"ragbench init {arguments.folder}")
    if arguments.folder:
        os.environ.setdefault("RAGBENCH_RESULTS", str(folder / "results"))  # beside the user's files
    command = [sys.executable, "-m", "jupyter", "lab", "--notebook-dir", str(folder)]
    starts = (*sorted(folder.glob("notebooks/00_*.ipynb")), *sorted(folder.glob("*.ipynb")))
    command += [str(path.relative_to(folder)) for path in starts[:1]]
    command += [] if arguments.port is None else ["--port", str(arguments.port)]
    command += ["--no-browser"] * arguments.no_browser
    command += ["--allow-root"] * (hasattr(os, "geteuid") and os.geteuid() == 0)
    here = os.path.dirname(sys.executable)
    os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])  # of `!ragbench` in a cell
    os.chdir(folder)
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main())
