"""The command line ``ragbench``: each command is a function, its parameters are its arguments.

Other things are functions: `ragbench.audit_rows`, `ragbench.measure_judge`,
`ragbench.Cassette`.
"""

from __future__ import annotations

import argparse
import inspect
import io
import os
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import ragbench as rb  # its modules load when they are first used
from ragbench.errors import ConfigError, ModelError, RagbenchError
from ragbench.notebooks import SERIES, create_project, find, run_all
from ragbench.paths import project_root, results_dir

if TYPE_CHECKING:
    import pandas as pd

_COMMANDS: dict[str, Callable[..., int | None]] = {}
_DOCTOR_DEADLINE_S = 120.0  # where no option says otherwise
# What an argument is, by its name; one of several commands means the same in all.
_HELP = {
    "answers": "file with a row per answer, see docs/data.md",
    "cassette": "file that records the calls, to go on after a break (default: among the results)",
    "by": "a column of the questions file: one more table has the means by its values",
    "checker": "the model that checks claims in its place: ollama:bespoke-minicheck",
    "code": "a Python file with metrics or labels of your own; it is run",
    "columns": "OURS=YOURS, such as question=query",
    "documents": "folder of texts, or a file",
    "data": "folder of data sets, in place of RAGBENCH_DATA",
    "embedder": "such as ollama:bge-m3 (default: MiniLM)",
    "experiment": "YAML file, or folder with experiment.yaml (default: this one)",
    "folder": "made by ragbench init (default: the checkout, or this folder)",
    "judge": "the model that grades and checks (default: the model)",
    "labels": "the model that makes labels which metrics need: ollama:llama3:8b, smollm2",
    "limit": "first so many questions only; without a model a quick look that no ledger records",
    "metrics": "names such as lexical, ragchecker, faithfulness",
    "min_documents": "documents that evidence must come from (default 1; two-hop: 2)",
    "model": "such as ollama:llama3:8b, or smollm2, which only shows how it works",
    "name": "of the folder; it must not exist yet, or be empty",
    "no_browser": "print the address and open no browser",
    "options": "NAME=VALUE of the model, such as host=gpu1 num_ctx=4096 reasoning=false",
    "out": "folder to make; nothing is overwritten",
    "paper": "one paper's notebooks (default: every notebook)",
    "plan": "say what the model will be asked, and stop",
    "port": "of its server (default: the first free one from 8888)",
    "publish": "write over the checkout's own notebooks, figures and ledger",
    "questions": "JSON in HotpotQA's shape, JSON lines or CSV",
    "run": "name or folder of a run",
    "set_name": "what to fetch",
    "to": "folder or file to write; an earlier export is replaced",
}
_CHOICES = {"paper": [*SERIES], "set_name": ["hotpotqa", "clapnq", "ragchecker"]}


def _command(name: str) -> Callable[[Callable], Callable]:
    """Register a function as a command; its docstring is the help. It returns an exit status, or
    None for 0.

    Its parameters are arguments; those after the star are flags: required without a default,
    switches where it is False.
    """

    def register(function: Callable) -> Callable:
        _COMMANDS[name] = function
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
        if isinstance(stream, io.TextIOWrapper):  # a label that a console or a file cannot hold
            stream.reconfigure(errors="replace")
    parser = _parser()
    arguments = vars(parser.parse_args(argv))
    if "command" not in arguments:
        parser.print_help()
        return 2
    command = arguments.pop("command")
    in_yaml = "experiment" in arguments
    _write_warnings_as_notes(in_yaml)
    try:
        return command(**arguments) or 0
    except RagbenchError as error:
        print(f"ragbench: {_as_flags(str(error), in_yaml)}", file=sys.stderr)
    except KeyboardInterrupt:
        print("ragbench: interrupted; what was recorded is kept, run it again", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk, a file without rights
        print(f"ragbench: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
    return 2


def _write_warnings_as_notes(in_yaml: bool) -> None:
    """Write each warning without our own line of code, and once, though several tables meet it."""

    notes: set[str] = set()

    def note(message: Warning | str, *_: Any, **__: Any) -> str:
        text = f"note: {_as_flags(str(message), in_yaml)}\n"
        if text in notes:
            return ""
        notes.add(text)
        return text

    warnings.formatwarning = note


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
    for name, function in _COMMANDS.items():
        place = data if name.startswith("data ") else commands
        text = function.__doc__ or ""
        words = text[0].lower() + text[1:].rstrip(".")
        command = place.add_parser(name.removeprefix("data "), help=words, allow_abbrev=False)
        command.set_defaults(command=function)
        for parameter in inspect.signature(function).parameters.values():
            _add_argument(command, parameter)
    return parser


def _add_argument(command: argparse.ArgumentParser, parameter: inspect.Parameter) -> None:
    is_required = parameter.default is parameter.empty
    settings: dict[str, Any] = {"help": _HELP[parameter.name]}
    if not is_required:
        settings["default"] = parameter.default
    if parameter.default is False:
        settings["action"] = "store_true"
    else:
        settings["choices"] = _CHOICES.get(parameter.name)
        settings["type"] = int if "int" in parameter.annotation else str
    if "Sequence" in parameter.annotation:
        settings["nargs"] = "+"
    if parameter.kind is parameter.KEYWORD_ONLY:
        flag = f"--{parameter.name.replace('_', '-')}"
        command.add_argument(flag, required=is_required, **settings)
        return
    if not is_required:
        settings["nargs"] = "?"
    command.add_argument(parameter.name, **settings)


def _as_flags(message: str, in_yaml: bool) -> str:
    """Write what a message says in Python's words as the flags of the command line, or as keys of
    experiment.yaml; name a page of the manual where it lies, in a folder of `init` under help/.
    """

    def page(match: re.Match[str]) -> str:
        return f"help/{match[1]}" if Path("help", match[1]).is_file() else match[0]

    message = re.sub(r"docs/([\w-]+\.md)", page, message)
    pairs = r"\b(?:fields|columns)=\{'([^']*)': (?:'([^']*)'|(\.\.\.))\}"

    def flag(match: re.Match[str]) -> str:
        theirs = match[2] or "YOURS"
        if in_yaml:
            return f"fields: {{{match[1]}: {theirs}}}"
        return f"--columns {match[1]}={shlex.quote(theirs)}"

    message = re.sub(pairs, flag, message)
    if in_yaml:
        return re.sub(r"\blabels='([^']*)'", r"labels: \1", message)
    message = re.sub(r"\b(?:fields|columns)(?= names)|\bcolumns=\{\}", "--columns", message)
    return re.sub(r"\blabels='([^']*)'", r"--labels \1", message)


def _pairs(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise ConfigError(
                f"{flag} {pair}",
                "OURS=YOURS, or NAME=VALUE",
                "write for instance reference=gold_answer, num_ctx=4096",
            )
    return dict(pair.split("=", 1) for pair in pairs)


def _chat_model(name: str, options: Sequence[str], **defaults: Any) -> Any:
    pairs = _pairs("--options", options)
    values = {option: yaml.safe_load(value) for option, value in pairs.items()}
    return rb.chat_model(name, **defaults | values)


@_command("init")
def _init(name: str) -> None:
    """Make a folder for an experiment of your own, with examples that run."""
    from ragbench import doctor

    project = create_project(name)
    files = ", ".join(sorted(path.name for path in project.iterdir()))
    print(f"{os.path.relpath(project)}: {files}")
    missing = [check for check in doctor.checks() if not (check.ok or check.optional)]
    if missing:
        print(f"first:\n{_check_lines(missing)}")
    experiment = shlex.quote(os.path.relpath(project / "experiment.yaml"))
    lab = f"ragbench lab {shlex.quote(name)}"
    print(f"next: ragbench plan {experiment}; ragbench run {experiment}; {lab}")


def _check_lines(checks: Sequence[Any]) -> str:
    """Write checks as aligned lines, each missing thing followed by what to do."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "NO"
        if check.ok:
            mark = "ok"
        elif check.optional:
            mark = "--"
        lines.append(f"{mark}  {check.name:<{width}}  {check.what}")
        if not check.ok and check.do:
            lines.append(f"    {'':<{width}}  -> {check.do}")
    return "\n".join(lines)


@_command("validate")
def _validate(
    questions: str,
    documents: str | None = None,
    *,
    min_documents: int = 1,
    columns: Sequence[str] = (),
) -> int:
    """Check that every reference of a question file occurs in a document; exit with 1 if not."""
    fields = _pairs("--columns", columns)
    loaded = rb.data.load_questions(questions, documents, fields=fields)
    findings = rb.data.validate(loaded, min_documents=min_documents)
    notes = sum(problem.note for problem in findings)
    for problem in findings:
        print(problem)
    print(f"{len(findings) - notes} problems, {notes} notes")
    return int(len(findings) > notes)


@_command("plan")
def _plan(experiment: str = ".") -> None:
    """Say what an experiment file will take, without asking a model."""
    grid = rb.Experiment.from_yaml(experiment)
    planned = grid.plan()
    print(planned, *_evidence_notes(grid), sep="\n")
    if any(step.remaining for step in planned.steps if step.name in ("generation", "grading")):
        for note in _server_notes(grid):
            print(note)


def _evidence_notes(grid: rb.Experiment) -> Iterator[str]:
    """Say which questions of one's own have no evidence, or some that is in no document."""
    for name, source in grid.data.items():
        if name in rb.data.DATASETS:
            continue
        dataset = source
        if not isinstance(source, rb.Dataset):
            dataset = source()
        problems = [problem for problem in rb.data.validate(dataset) if not problem.note]
        if problems:
            first = f"{len(problems)} problems, the first: {problems[0]}"
            yield f"note: {name} has {first} (all of them: ragbench validate QUESTIONS DOCUMENTS)"


def _server_notes(grid: rb.Experiment) -> Iterator[str]:
    """Say which model of Ollama would not be there."""
    from ragbench.experiment.axes import is_model

    named = {id(model): model for model in [*grid.generator.values(), *grid.judge.values()]}
    for model in named.values():
        try:
            if is_model(model) and rb.llm.model_name(model).startswith("ollama:"):
                facts = rb.llm.Endpoint.identified(model)
                _check_digest(grid, facts)
                if "run at " in facts.weights:
                    yield f"note: {facts.model} ({facts.weights}): prompts leave this machine"
        except ModelError as error:
            yield f"note: {error}"


def _check_digest(grid: rb.Experiment, model: Any) -> None:
    """CallError where the run would stop: the model was pulled anew since its recording."""
    with grid.open_cassette(make=False) as cassette:
        if cassette is not None:
            with rb.Cassette(cassette.path, "replay") as tape:
                tape.choose_digest(model.provider, model.name, model.digest)


@_command("run")
def _run(experiment: str = ".") -> int:
    """Run an experiment file; run it again to go on: recorded replies and vectors are kept."""
    from ragbench.llm.models import TWO_WAYS

    grid = rb.Experiment.from_yaml(experiment)
    rows = grid.run()
    scores = None
    if grid.metrics:  # saved before a word is printed, which `head -1` would end
        scores = _save_scores(grid, rows)
    folder = os.path.relpath(grid.home)
    failed = rows[rows["status"] == "failed"]
    print(f"{len(rows)} rows, {len(failed)} failed, in {folder}")
    _print_failures(failed, rows)
    print(_run_summary(rows))
    if scores is not None:
        print(scores)
    if not grid.generator:
        print(_as_flags(f"\nretrieval alone: answers need a generator; {TWO_WAYS}\n", True))
    if len(failed):
        print("run it again to ask the failed prompts once more; the other replies are recorded")
    print(f"next: ragbench export {shlex.quote(folder)} --to FOLDER")
    return int(len(failed) > 0)


def _print_failures(failed: pd.DataFrame, rows: pd.DataFrame) -> None:
    from ragbench.llm.reply import CUT_SHORT

    kinds = Counter(zip(failed["error_step"], failed["error_kind"], strict=True))
    for (step, kind), count in kinds.most_common():
        print(f"  {step}: {kind} {count}")
    cut = int(rows["finish"].isin(CUT_SHORT).sum())
    if cut:
        print(f"{cut} rows hold an answer that ended at its limit of tokens")


def _save_scores(grid: rb.Experiment, rows: pd.DataFrame) -> str:
    """Score a run's answers, and return their means in words."""
    with grid.open_cassette() as cassette:
        options = {"cassette": cassette, "concurrency": grid.concurrency, **grid.options}
        scores = rb.score(rows, grid.metrics, grid.labels, checker=grid.checker, **options)
    path = os.path.relpath(scores.save_beside(grid.home))
    return f"{_means_in_words(scores)}\n{len(scores)} scored answers in {path}\n"


def _means_in_words(scores: rb.Scores) -> str:
    averages = rb.means(scores, ["system"] * ("system" in scores), scores.numbers)
    words = averages.round(3).to_string(index=False)
    return f"{words}\nClusters: {averages.attrs['clusters']}"


def _run_summary(rows: pd.DataFrame) -> str:
    """Mean IR score and share of the best grade, a line per system and a column per N."""
    from ragbench.stats.tables import fully_right

    retrieved = rows[rows["N"] > 0]
    axes = ("data", "chunker", "k", "generator", "judge")
    systems = ["retriever", *(axis for axis in axes if retrieved[axis].nunique() > 1)]
    parts = {
        "mean IR score": retrieved.assign(value=retrieved["ir_score"]),
        "share fully right": rows.assign(value=fully_right(rows)),
    }
    lines = []
    for name, part in parts.items():
        if part["value"].notna().any():
            table = part.pivot_table("value", systems, "N", sort=False, dropna=False)
            lines.append(f"\n{name} at N tokens ({int(part['value'].isna().sum())} rows without)")
            lines.append(table.to_string(float_format="{:.3f}".format, na_rep="-"))
    return "\n".join([*lines, ""])


@_command("score")
def _score(
    answers: str,
    *,
    metrics: Sequence[str],
    labels: str | None = None,
    checker: str | None = None,
    columns: Sequence[str] = (),
    to: str | None = None,
    plan: bool = False,
    code: str | None = None,
) -> None:
    """Score answers you have: a CSV, JSON or Parquet file, in any tool's columns."""
    from ragbench.report.export import check_target, export_scores

    if code:
        rb.Experiment.import_code(Path.cwd(), code)
    if to is None and not plan:
        raise ConfigError(
            "no --to", "a folder for tables, figures and labels", "add for instance --to report/"
        )
    folder = Path(to or "report")
    options: dict[str, Any] = {"columns": _pairs("--columns", columns), "checker": checker}
    if labels:
        options |= {"labels": rb.chat_model(labels), "cassette": f"{folder}.sqlite"}
    names = [name for name in ",".join(metrics).split(",") if name]
    if plan:
        print(rb.plan_score(answers, names, **options))
        return
    check_target(folder)
    scores = rb.score(answers, names, **options)
    exported = export_scores(scores, folder, Path(answers).name)
    # last: who reads only the first line, as `head -1` does, has the folder
    print(_means_in_words(scores))
    print(exported)


@_command("export")
def _export(run: str, *, to: str, by: str | None = None) -> None:
    """Write a run as tables, figures, methods, checks and data."""
    from ragbench.report.export import export

    print(export(run, to, by=by))


@_command("doctor")
def _doctor(*, model: str | None = None, options: Sequence[str] = ()) -> int:
    """List what is installed, which data and models were found, and what to do about the rest."""
    from ragbench import doctor

    chat = None
    if model:
        chat = _chat_model(model, options, deadline_s=_DOCTOR_DEADLINE_S)
    results = doctor.checks(chat)
    print(_check_lines(results))
    return int(not all(check.ok or check.optional for check in results))


@_command("reproduce")
def _reproduce(
    paper: str | None = None,
    *,
    publish: bool = False,
    limit: int | None = None,
    model: str | None = None,
    judge: str | None = None,
    embedder: str | None = None,
    cassette: str | None = None,
    data: str | None = None,
    plan: bool = False,
) -> None:
    """Run the notebooks and rebuild the ledger; with a model of your own, one of its own."""
    named = {"MODEL": model, "JUDGE": judge, "EMBEDDER": embedder, "LIMIT": limit}
    parameters: dict[str, Any] = {name: value for name, value in named.items() if value}
    if parameters and publish:
        raise ConfigError(
            "--publish with --limit or a model",
            "published numbers are of all questions, and of recorded models",
            "leave one of them out",
        )
    if data:
        os.environ["RAGBENCH_DATA"] = str(_folder_of_data(data))
    is_live = bool(model or judge or embedder)
    if is_live or plan:
        tape = cassette or results_dir("live") / "cassette.sqlite"
        parameters["CASSETTE"] = str(Path(tape).resolve())
        _print_plan(paper, parameters)
    if not plan:
        _run_notebooks(paper, parameters, publish, is_live)


def _print_plan(paper: str | None, parameters: dict[str, Any]) -> None:
    books = [path.stem for path in find(paper)]
    print(rb.papers.live.plan_notebooks(books, {"MODEL": "no model"} | parameters))


def _folder_of_data(name: str) -> Path:
    folder = Path(name).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", "a folder of data sets", "check it")
    return folder


def _run_notebooks(
    paper: str | None, parameters: dict[str, Any], publish: bool, is_live: bool
) -> None:
    """Run notebooks, and write their ledger: the project's, or one that says whose it is."""
    os.environ.update(_folders(publish, is_live, is_limited="LIMIT" in parameters))
    whose = [f"{name}={value}" for name, value in parameters.items() if name != "CASSETTE"]
    if paper is None:
        rb.papers.begin_ledger()
    run_all(paper, publish=publish, parameters=parameters)
    if whose and not is_live:
        looked = os.path.relpath(results_dir("notebooks"))
        print(f"\na look at {parameters['LIMIT']} questions, which no ledger records: {looked}")
        return
    head = ""
    if whose:
        head = f"Not the project's numbers: a run with {', '.join(whose)}."
    path = rb.papers.write_markdown(head)
    print("\nNumbers beside the papers', by table:")
    print(rb.papers.summary(paper if paper in rb.papers.PAPERS else None))
    print(f"ledger: {os.path.relpath(path)}")


def _folders(publish: bool, is_live: bool, is_limited: bool) -> dict[str, str]:
    """Return where results and ledger go, as environment variables."""
    if is_live:
        live = results_dir("live")
        return {"RAGBENCH_RESULTS": str(live), "RAGBENCH_FIGURES": str(live / "figures")}
    if is_limited:  # a look is not a measurement: it has a ledger of its own
        return {"RAGBENCH_FIGURES": str(results_dir("limited"))}
    if publish:
        return {"RAGBENCH_FIGURES": str(project_root() / "figures")}
    return {}


@_command("lab")
def _lab(folder: str | None = None, *, port: int | None = None, no_browser: bool = False) -> None:
    """Open JupyterLab on the notebooks."""
    root = project_root()
    if folder:
        root = Path(folder).resolve()
        os.environ.setdefault("RAGBENCH_RESULTS", str(root / "results"))  # beside the user's files
    if not root.is_dir():
        raise ConfigError(
            f"there is no folder {root}", "a folder of notebooks", f"ragbench init {folder}"
        )
    here = os.path.dirname(sys.executable)
    # of `!ragbench` in a cell
    os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])
    # what Jupyter starts before a kernel imports from its working directory, too
    os.chdir(here)
    command = _lab_command(root, port, no_browser)
    os.execv(command[0], command)


def _lab_command(root: Path, port: int | None, no_browser: bool) -> list[str]:
    # -P: a json.py of the working directory is not imported in place of Python's
    command = [sys.executable, "-P", "-m", "jupyterlab", "--notebook-dir", str(root)]
    command.append("--ContentsManager.pre_save_hook=ragbench.notebooks.before_saving")
    starts = (*sorted(root.glob("notebooks/00_*.ipynb")), *sorted(root.glob("*.ipynb")))
    if starts:
        command.append(str(starts[0]))
    if port is not None:
        command += ["--port", str(port)]
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return command


@_command("data fetch")
def _data_fetch(set_name: str) -> None:
    """Download a data set, and print the sha256 of each file (needs internet)."""
    from ragbench.data.fetch import fetch_source

    if set_name == "hotpotqa":
        print(rb.data.fetch_hotpotqa())
        return
    for path, digest in fetch_source(set_name).items():
        print(f"{digest}  {path}")


@_command("data draft")
def _data_draft(
    documents: str,
    *,
    model: str,
    to: str,
    options: Sequence[str] = (),
) -> None:
    """Draft questions about documents of your own, with a model, and check each draft."""
    path = Path(to)
    drafts = rb.draft_questions(
        documents,
        _chat_model(model, options, num_predict=256),
        cassette=path.with_suffix(".sqlite"),  # to go on where it broke off
    )
    for row in drafts.rejected.itertuples():
        print(f"left out: {row.id}: {row.reason}\n    {row.question or '(no question)'}")
    print(f"\n{drafts}")
    if drafts.questions:
        print(f"{drafts.write(path)}: drafts, which nobody has read")
        print("next: accept or drop each in rb.widgets.LabellingTool, see docs/data.md")


if __name__ == "__main__":
    sys.exit(main())
