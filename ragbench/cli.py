"""The command line ``ragbench``: each command is a function of what was given, with its arguments
above it.

What is no command is a function: `ragbench.audit_rows`, `ragbench.measure_judge`,
`ragbench.Cassette`, `ragbench.recordings`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

import ragbench as rb  # its modules load when they are first used
from ragbench.errors import ConfigError, RagbenchError
from ragbench.notebooks import SERIES, create_project, run_all
from ragbench.paths import project_root, published_figures

Argument = tuple[tuple[str, ...], dict[str, Any]]
_Given = argparse.Namespace
_Run = Callable[[_Given], int | None]
_COMMANDS: dict[str, tuple[_Run, tuple[Argument, ...]]] = {}


def _arg(*names: str, **settings: Any) -> Argument:
    return names, settings


def _command(name: str, *arguments: Argument) -> Callable[[_Run], _Run]:
    """Register a function as a command; its docstring is the help. It returns an exit status, or
    None for 0.
    """

    def register(function: _Run) -> _Run:
        _COMMANDS[name] = function, arguments
        return function

    return register


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 a check failed, 2 wrong use or data,
    130 interrupted.
    """
    # Rows are made in several threads; with OpenBLAS's own threads beside them most of the CPU time
    # would be waiting.
    # numpy reads it when it is loaded, kernels inherit it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a label that a console or a file cannot hold
            stream.reconfigure(errors="replace")
    parser = _parser()
    given = parser.parse_args(argv)
    if "run" not in given:
        parser.print_help()
        return 2
    in_yaml = "experiment" in given
    # Without our own line of code.
    warnings.formatwarning = lambda message, *_, **__: f"note: {_as_flags(str(message), in_yaml)}\n"
    try:
        return given.run(given) or 0
    except RagbenchError as error:
        print(f"ragbench: {_as_flags(str(error), in_yaml)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "ragbench: interrupted; what was recorded is kept, run the same command to go on",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk, a file without rights
        print(f"ragbench: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ragbench",
        description="A workbench for evaluating retrieval-augmented generation.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ragbench {rb.__version__}")
    commands = parser.add_subparsers(metavar="command")
    data = commands.add_parser("data", help="fetch a data set, or make one").add_subparsers(
        required=True, metavar="action"
    )
    for name, (function, arguments) in _COMMANDS.items():
        place = data if name.startswith("data ") else commands
        text = function.__doc__ or ""
        words = text[0].lower() + text[1:].rstrip(".")
        command = place.add_parser(name.removeprefix("data "), help=words, allow_abbrev=False)
        command.set_defaults(run=function)
        for names, settings in arguments:
            command.add_argument(*names, **settings)
    return parser


_COLUMNS = _arg(
    "--columns", nargs="*", default=[], metavar="OURS=YOURS", help="such as question=query"
)
_EXPERIMENT = _arg(
    "experiment",
    nargs="?",
    default=".",
    help=(
        "YAML file, or a folder with experiment.yaml (default: this one); its keys are in "
        "docs/experiment.md"
    ),
)
_HOST = _arg("--host", help="address of the model's server (default: OLLAMA_HOST, or this machine)")
_OPTIONS = _arg(
    "--options",
    nargs="*",
    default=[],
    metavar="NAME=VALUE",
    help="of the model, such as num_ctx=4096 num_predict=200 reasoning=false",
)
_TO = _arg("--to", required=True, help="folder to make; an earlier export is replaced")


def _shell_word(text: str) -> str:
    """Quote a word for this system's shell: cmd.exe does not know single quotes."""
    return subprocess.list2cmdline([text]) if os.name == "nt" else shlex.quote(text)


def _as_flags(message: str, in_yaml: bool) -> str:
    """Write what a message says in Python's words as the flags of the command line, or as keys of
    experiment.yaml; name a page of the manual where it lies, in a folder of `init` under help/.
    """

    def page(found: re.Match[str]) -> str:
        return f"help/{found[1]}" if Path("help", found[1]).is_file() else found[0]

    message = re.sub(r"docs/([\w-]+\.md)", page, message)
    pairs = r"\b(?:fields|columns)=\{'([^']*)': (?:'([^']*)'|(\.\.\.))\}"

    def flag(found: re.Match[str]) -> str:
        theirs = found[2] or "YOURS"
        return (
            f"fields: {{{found[1]}: {theirs}}}"
            if in_yaml
            else f"--columns {found[1]}={_shell_word(theirs)}"
        )

    message = re.sub(pairs, flag, message)
    if not in_yaml:
        message = re.sub(r"\b(?:fields|columns)(?= names)|\bcolumns=\{\}", "--columns", message)
    return re.sub(r"\blabels='([^']*)'", r"labels: \1" if in_yaml else r"--labels \1", message)


def _as_mapping(pairs: Sequence[str], flag: str = "--columns") -> dict[str, str]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        example = "reference=gold_answer" if flag == "--columns" else "num_ctx=4096"
        raise ConfigError(f"{flag} {wrong[0]}", "OURS=YOURS", f"write for instance {example}")
    return dict(pair.split("=", 1) for pair in pairs)


def _chat_model(given: _Given, **defaults: Any) -> Any:
    pairs = _as_mapping(given.options, "--options")
    options = {name: yaml.safe_load(value) for name, value in pairs.items()}
    return rb.chat_model(given.model, given.host, **(defaults | options))


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


@_command(
    "init", _arg("folder", metavar="name", help="of the folder; it must not exist yet, or be empty")
)
def _init(given: _Given) -> None:
    """Make a folder for an experiment of your own, with examples that run."""
    project = create_project(given.folder)
    files = ", ".join(path.name + "/" * path.is_dir() for path in sorted(project.iterdir()))
    print(f"{os.path.relpath(project)}: {files}")
    if missing := [check for check in rb.doctor.checks() if not (check.ok or check.optional)]:
        print(f"first:\n{rb.doctor.check_lines(missing)}")
    experiment = _shell_word(os.path.relpath(project / "experiment.yaml"))
    print(
        f"next: ragbench plan {experiment}; ragbench run {experiment}; ragbench lab "
        f"{_shell_word(given.folder)}"
    )


@_command(
    "validate",
    _arg("questions", help="JSON in HotpotQA's shape, JSON lines or CSV"),
    _arg("documents", nargs="?", help="JSON lines, CSV or a folder of text files"),
    _arg(
        "--min-documents",
        type=int,
        default=1,
        help="documents that evidence must come from (default 1; two-hop: 2)",
    ),
    _COLUMNS,
)
def _validate(given: _Given) -> int:
    """Check that every reference of a question file occurs in a document; exit with 1 if not."""
    fields = _as_mapping(given.columns)
    loaded = rb.data.load_questions(given.questions, given.documents, fields=fields)
    problems = rb.data.validate(loaded, min_documents=given.min_documents)
    notes = sum(problem.note for problem in problems)
    print(
        *problems, f"{_count(len(problems) - notes, 'problem')}, {_count(notes, 'note')}", sep="\n"
    )
    return 1 if len(problems) > notes else 0


@_command(
    "plan",
    _EXPERIMENT,
)
def _plan(given: _Given) -> None:
    """Say what an experiment file will take, without asking a model."""
    grid = rb.Experiment.from_yaml(given.experiment)
    planned = grid.plan()
    print(planned, *_evidence_notes(grid), sep="\n")
    if any(step.remaining for step in planned.steps if step.name in ("generation", "grading")):
        for note in _server_notes(grid):
            print(note)


def _evidence_notes(grid: Any) -> Iterator[str]:
    """Say which questions of one's own have no evidence, or some that is in no document."""
    for name, source in grid.data.items():
        if name in rb.data.DATASETS:
            continue
        dataset = source() if callable(source) else source
        problems = [problem for problem in rb.data.validate(dataset) if not problem.note]
        if problems:
            count = _count(len(problems), "problem")
            more = "all of them: ragbench validate QUESTIONS DOCUMENTS"
            yield f"note: {name} has {count}, the first: {problems[0]} ({more})"


def _server_notes(grid: Any) -> Iterator[str]:
    """Say which model of Ollama would not be there."""
    from ragbench.experiment.axes import is_model

    named = {id(model): model for model in [*grid.generator.values(), *grid.judge.values()]}
    for model in named.values():
        try:
            if is_model(model) and rb.llm.model_name(model).startswith("ollama:"):
                rb.llm.model_facts(model)
        except rb.errors.ModelError as error:
            yield f"note: {error}"


@_command("run", _EXPERIMENT)
def _run(given: _Given) -> int:
    """Run an experiment file; run it again to go on: recorded replies and vectors are kept."""
    from ragbench.llm.models import TWO_WAYS

    grid = rb.Experiment.from_yaml(given.experiment)
    numbers = _numbers(grid)
    rows = grid.run()
    folder = os.path.relpath(grid.home)
    failed = rows[rows["status"] == "failed"]
    print(f"{len(rows)} rows, {len(failed)} failed, in {folder}")
    _print_failures(failed, rows)
    print(_run_summary(rows))
    if numbers:
        _print_scores(grid, rows, numbers)
    if not grid.generator:
        print(f"\nretrieval alone: answers need a generator; {TWO_WAYS}\n")
    if len(failed):
        print("run it again to ask the failed prompts once more; the other replies are recorded")
    print(f"next: ragbench export {_shell_word(folder)} --to FOLDER")
    return 1 if len(failed) else 0


def _numbers(grid: Any) -> list[str]:
    """Return the metrics that a run can have with its labels, and warn of the others."""
    from ragbench.scoring import without_labels

    if not grid.metrics:
        return []
    numbers, left_out = without_labels(grid.metrics, ["grade"] if grid.judge else [], grid.labels)
    if left_out:
        warnings.warn(left_out, stacklevel=3)
    return list(numbers)


def _print_failures(failed: Any, rows: Any) -> None:
    from ragbench.llm.reply import CUT_SHORT

    for (step, kind), count in failed[["error_step", "error_kind"]].value_counts().items():
        print(f"  {step}: {kind} {count}")
    if cut := int(rows["finish"].isin(CUT_SHORT).sum()):
        print(f"{cut} rows hold an answer that ended at its limit of tokens")


def _print_scores(grid: Any, rows: Any, metrics: list[str]) -> None:
    from ragbench.report.scores import save_scores, score_means

    with grid.open_cassette() as cassette:
        options = {"cassette": cassette, "concurrency": grid.concurrency, **grid.options}
        scores = rb.score(rows, metrics, grid.labels, checker=grid.checker, **options)
    print(_rounded(score_means(scores)))
    path = os.path.relpath(save_scores(scores, grid.home))
    print(f"{len(scores)} scored answers in {path}\n")


def _rounded(table: Any) -> str:
    return table.round(3).to_string(index=False)


def _run_summary(rows: Any) -> str:
    """Mean IR score and share of grade 5, a line per system and a column per N."""
    from ragbench.stats.tables import fully_right

    right = rows.assign(value=fully_right(rows["grade"]))["value"]
    retrieved = rows[rows["N"] > 0]
    axes = ("data", "chunker", "k", "generator", "judge")
    systems = ["retriever", *(axis for axis in axes if retrieved[axis].nunique() > 1)]
    lines = []
    for name, part, values in (
        ("mean IR score", retrieved, retrieved["ir_score"]),
        ("share of grade 5", rows, right),
    ):
        if values.notna().any():
            table = part.assign(value=values).pivot_table(
                "value", systems, "N", sort=False, dropna=False
            )
            lines.append(f"\n{name} at N tokens ({int(values.isna().sum())} rows without)")
            lines.append(table.to_string(float_format="{:.3f}".format, na_rep="-"))
    return "\n".join([*lines, ""])


@_command(
    "score",
    _arg("answers", help="file with a row per answer, see docs/data.md"),
    _arg(
        "--metrics",
        nargs="+",
        required=True,
        help="names such as lexical, ragchecker, faithfulness",
    ),
    _arg(
        "--labels", help="the model that makes labels which metrics need: ollama:llama3:8b, smollm2"
    ),
    _arg("--checker", help="the model that checks claims in its place: ollama:bespoke-minicheck"),
    _HOST,
    _COLUMNS,
    _arg(
        "--cassette", help="file of the model's replies (default: beside the folder, NAME.sqlite)"
    ),
    _arg("--plan", action="store_true", help="say what the model will be asked, and stop"),
    _arg("--to", help="folder to make; an earlier export is replaced"),
    _arg("--code", help="a Python file with metrics or labels of your own; it is run"),
)
def _score(given: _Given) -> None:
    """Score answers you have: a CSV, JSON or Parquet file, in any tool's columns."""
    from ragbench.experiment.files import import_code
    from ragbench.labelling.checkers import make_checker
    from ragbench.report.export import check_target, export_scores
    from ragbench.report.scores import score_means

    if given.code:
        import_code(Path.cwd(), given.code)
    folder = Path(given.to or "report")
    if not given.plan:
        if given.to is None:
            do = "add for instance --to report/"
            raise ConfigError("no --to", "a folder for tables, figures and labels", do)
        check_target(folder)
    labels = given.labels
    checker = given.checker
    cassette = given.cassette or str(folder.with_name(f"{folder.name}.sqlite"))
    if given.host and checker:
        checker = make_checker(checker, host=given.host, cassette=cassette)
    options = {"checker": checker}
    if labels is not None:
        labels = rb.chat_model(labels, host=given.host)
        options["cassette"] = cassette
    metrics = [name for names in given.metrics for name in names.split(",") if name]
    asked = (given.answers, metrics, labels, _as_mapping(given.columns))
    if given.plan:
        print(rb.plan_score(*asked, **options))
        return
    table = rb.score(*asked, **options)
    print(_rounded(score_means(table)))
    print(export_scores(table, folder, Path(given.answers).name))


@_command(
    "export",
    _arg("name", metavar="run", help="name or folder of a run"),
    _TO,
    _arg("--cassette", help="the run's cassette, when it is not in the run's folder"),
)
def _export(given: _Given) -> None:
    """Write a run as tables, figures, methods, checks and data."""
    from ragbench.report.export import export

    print(export(given.name, given.to, cassette=given.cassette))


@_command(
    "doctor",
    _arg("--model", help="also ask this model two questions, e.g. ollama:llama3:8b or smollm2"),
    _HOST,
    _OPTIONS,
)
def _doctor(given: _Given) -> int:
    """List what is installed, which data and models were found, and what to do about the rest."""
    results = rb.doctor.checks()
    print(rb.doctor.check_lines(results))
    good = all(check.ok or check.optional for check in results)
    if given.model:
        chat = _chat_model(given)
        results = rb.doctor.model_checks(chat)
        print(f"\n{rb.doctor.check_lines(results)}")
        good = good and all(check.ok for check in results)
    return 0 if good else 1


@_command(
    "reproduce",
    _arg(
        "paper",
        nargs="?",
        choices=[*SERIES],
        help="one paper's notebooks (default: every notebook)",
    ),
    _arg(
        "--publish",
        action="store_true",
        help="write over the checkout's own notebooks, figures and ledger",
    ),
    _arg("--limit", type=int, help="first so many questions only, for a quick look"),
)
def _reproduce(given: _Given) -> None:
    """Run the notebooks and rebuild the ledger."""
    if given.publish:
        os.environ["RAGBENCH_FIGURES"] = str(published_figures())
    if given.paper is None:
        rb.papers.begin_ledger()
    limit = {"LIMIT": given.limit} if given.limit else None
    run_all(given.paper, publish=given.publish, parameters=limit)
    path = rb.papers.write_markdown()
    print("\nNumbers beside the papers', by table:")
    print(rb.papers.summary(given.paper if given.paper in rb.papers.PAPERS else None))
    print(f"ledger: {os.path.relpath(path)}")


@_command(
    "lab",
    _arg("folder", nargs="?", help="made by ragbench init (default: the checkout, or this folder)"),
    _arg("--port", type=int, help="of its server (default: the first free one from 8888)"),
    _arg("--no-browser", action="store_true", help="print the address and open no browser"),
)
def _lab(given: _Given) -> int | None:
    """Open JupyterLab on the notebooks."""
    root = project_root()
    if given.folder:
        root = Path(given.folder).resolve()
        os.environ.setdefault("RAGBENCH_RESULTS", str(root / "results"))  # beside the user's files
    if not root.is_dir():
        do = f"ragbench init {given.folder}"
        raise ConfigError(f"there is no folder {root}", "a folder of notebooks", do)
    here = os.path.dirname(sys.executable)
    # of `!ragbench` in a cell
    os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])
    os.chdir(root)
    return _become(_lab_command(root, given.port, given.no_browser))


def _lab_command(root: Path, port: int | None, no_browser: bool) -> list[str]:
    command = [sys.executable, "-m", "jupyter", "lab", "--notebook-dir", str(root)]
    command.append("--ContentsManager.pre_save_hook=ragbench.notebooks.before_saving")
    starts = (*sorted(root.glob("notebooks/00_*.ipynb")), *sorted(root.glob("*.ipynb")))
    if starts:
        command.append(str(starts[0].relative_to(root)))
    if port is not None:
        command += ["--port", str(port)]
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return command


def _become(command: list[str]) -> int | None:
    """Go on as another program; Windows knows no such thing and waits for it."""
    if os.name != "nt":
        os.execv(command[0], command)
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for that program
    return process.wait()


@_command("data fetch", _arg("name", choices=["hotpotqa", "minilm"]))
def _data_fetch(given: _Given) -> None:
    """Download a data set or the weights (needs internet)."""
    from ragbench.text.tokens import fetch_minilm

    print(fetch_minilm() if given.name == "minilm" else rb.data.fetch_hotpotqa())


@_command(
    "data draft",
    _arg("documents", help="folder of texts, or a file of documents"),
    _arg(
        "--model",
        required=True,
        help="who writes, e.g. ollama:llama3:8b; smollm2 only shows how it works",
    ),
    _arg("--to", required=True, help="file of questions to write, such as questions.jsonl"),
    _arg(
        "--per-document",
        type=int,
        default=1,
        help="drafts of each type about each document (default 1)",
    ),
    _arg(
        "--types",
        nargs="+",
        help='such as "single fact" unanswerable (default: all)',
    ),
    _HOST,
    _OPTIONS,
    _arg(
        "--cassette",
        help=(
            "file of the model's replies, to go on where it broke off (default: NAME.sqlite "
            "beside it)"
        ),
    ),
)
def _data_draft(given: _Given) -> None:
    """Draft questions about documents of your own, with a model, and check each draft."""
    path = Path(given.to)
    model = _chat_model(given, num_predict=256)
    options = {"cassette": given.cassette or str(path.with_suffix(".sqlite"))}
    options |= {"types": given.types} if given.types else {}
    drafts = rb.draft_questions(given.documents, model, given.per_document, **options)
    for row in drafts.rejected.itertuples():
        print(f"left out: {row.id}: {row.reason}\n    {row.question or '(no question)'}")
    print(f"\n{drafts.table().round(2).to_string()}\n\n{drafts}")
    if drafts.questions:
        print(f"{drafts.write(path)}: drafts, which nobody has read")
        print("next: accept, edit or drop each in rb.widgets.LabellingTool, see docs/data.md")


@_command(
    "data generate",
    _arg("seeds", help="folder or file of two or three short documents of the domain"),
    _arg("--domain", required=True, help="its name, such as finance"),
    _arg("--model", required=True, help="who writes, e.g. ollama:llama3:8b"),
    _arg("--documents", type=int, default=10, help="how many (default 10)"),
    _HOST,
    _OPTIONS,
    _arg(
        "--cassette",
        help=(
            "file of the model's replies, to go on where it broke off (default: OUT.sqlite "
            "beside it)"
        ),
    ),
    _arg("--out", required=True, help="folder to make; nothing is overwritten"),
)
def _data_generate(given: _Given) -> None:
    """Let a model write documents and questions of a domain, and check them (RAGEval)."""
    seeds = [document.text for document in rb.data.load_documents(given.seeds)]
    model = _chat_model(given, num_predict=640)
    cassette = given.cassette or str(Path(given.out).with_suffix(".sqlite"))
    generated = rb.datagen.generate_set(
        model, given.domain, seeds, given.documents, cassette=cassette
    )
    counts = generated.rejections().groupby(["step", "reason"], sort=False).size()
    for (step, reason), count in counts.items():
        print(f"rejected: {step}: {reason}: {count}")
    folder = rb.datagen.write_set(generated, given.out)
    print(f"{folder}: {len(generated.documents)} documents, {len(generated.questions)} questions")
    files = f"{{questions: {folder / 'questions.jsonl'}, documents: {folder}}}"
    print(f"in experiment.yaml: data: {{{given.domain}: {files}}}")


if __name__ == "__main__":
    sys.exit(main())
