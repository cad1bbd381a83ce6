"""The numbered notebooks: run headless with parameters; as templates in a folder of one's own."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, DataError, RagbenchError
from ragbench.paths import packaged_data, project_root, refuse_stream, results_dir

# the wheel carries these (pyproject.toml)
TEMPLATES = ("91_your_experiment.ipynb", "92_workbench.ipynb", "93_score_your_answers.ipynb")
# What of the manual a student needs beside her files.
HELP = ("data.md", "experiment.md", "models.md", "ollama.md", "study.md", "writing.md")
SERIES = {
    "start": "0",
    "thesis": "1",
    "ragchecker": "2",
    "ragas": "3",
    "rageval": "4",
    "people": "5",
    "beyond": "9",
}
# Of every committed notebook, whatever the Python that ran it.
_KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


# Between notebooks that share a kernel.
_CLEAR = 'import pandas; pandas.reset_option("^display[.]"); get_ipython().reset()'


def find(series: str | None = None) -> list[Path]:
    """Return the notebooks in reading order, all or those of one paper (`SERIES`)."""
    folder = project_root() / "notebooks"
    first_digit = "[0-9]"
    if series:
        first_digit = SERIES[series]
    files = sorted(folder.glob(f"{first_digit}*.ipynb"))
    if not files:
        raise DataError(
            f"no notebook in {folder}",
            "the numbered notebooks of the checkout",
            "run this inside the checkout",
        )
    return files


def execute(
    path: Path,
    parameters: Mapping[str, Any] | None = None,
    out: Path | None = None,
    timeout_s: int = 1800,
    *,
    kernel: Any = None,
) -> Path:
    """Run a notebook from top to bottom, write the executed copy and return its path; RagbenchError
    names the cell.

    Parameters
    ----------
    parameters : values that replace those of the cell tagged ``parameters``.
    out : where the executed copy goes; default ``data/results/notebooks/``.
    timeout_s : limit for one cell.
    kernel : of `_shared_kernel`; default a process of its own.
    """
    import nbformat
    from nbclient import NotebookClient

    refuse_stream(path)
    book = nbformat.read(path, as_version=4)
    if parameters:
        _insert(book, parameters, path)
    out = out or results_dir("notebooks") / path.name
    # a kernel that notebooks share stays where it was started
    folder = path.parent if kernel is None else project_root() / "notebooks"
    client = NotebookClient(
        book,
        km=kernel,
        timeout=timeout_s,
        kernel_name="python3",
        coalesce_streams=True,  # how a print is cut into messages differs from run to run
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],  # without the kernel's own start-up notes
    )
    failure = _run_cells(client, is_shared=kernel is not None)
    _tidy(book)
    nbformat.write(book, out)
    if failure is not None:
        raise RagbenchError(
            f"{path.name}, {_what_failed(book, failure)}",
            "a clean run from top to bottom",
            f"open {out} and read the cell's output",
        )
    return out


def _run_cells(client: Any, is_shared: bool) -> Exception | None:
    """Run all cells, and return what ended them; names are cleared from a shared kernel."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    failure: Exception | None = None
    try:
        client.execute(env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        failure = error
    if is_shared and not isinstance(failure, CellTimeoutError | DeadKernelError):
        client.wait_for_reply(client.kc.execute(_CLEAR, silent=True))
        client.kc.stop_channels()
    return failure


def _what_failed(book: Any, failure: Exception) -> str:
    """Name the cell that raised, and its error."""
    kind = getattr(failure, "ename", type(failure).__name__)
    words = getattr(failure, "evalue", "") or str(failure).strip().splitlines()[-1]
    failed = None
    for number, cell in enumerate(book.cells):
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            failed = number
    return f"cell {failed}: {kind}: {words}"


@contextmanager
def _shared_kernel() -> Iterator[Any]:
    """Keep one process for notebooks that follow each other: packages are imported once, names
    cleared in between.
    """
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync

    manager = AsyncKernelManager(kernel_name="python3")
    try:
        yield manager
    finally:
        if manager.has_kernel:
            run_sync(manager.shutdown_kernel)(now=True)


def _insert(book: Any, parameters: Mapping[str, Any], path: Path) -> None:
    """Put the given values right after the cell tagged ``parameters``."""
    from nbformat.v4 import new_code_cell

    unknown = set(parameters) - set(_parameters_of(book, parameters))
    if unknown:
        raise DataError(
            f"{path.name} has no parameter {', '.join(sorted(unknown))}",
            "a name of its parameters cell",
            "check the spelling",
        )
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    injected = new_code_cell(source, metadata={"tags": ["injected-parameters"]})
    place = [_has_parameters(cell) for cell in book.cells].index(True)
    book.cells.insert(place + 1, injected)


def _parameters_of(book: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the parameters that a notebook has."""
    source = "\n".join(cell.source for cell in book.cells if _has_parameters(cell))
    return {name: value for name, value in parameters.items() if f"{name} =" in source}


def _has_parameters(cell: Any) -> bool:
    return "parameters" in cell.metadata.get("tags", [])


def before_saving(model: dict[str, Any], **_: Any) -> None:
    """Keep a notebook's kernel as committed: JupyterLab would write its own version into each that
    is opened.
    """
    if model["type"] == "notebook":
        metadata = model["content"]["metadata"]
        if metadata.get("kernelspec", {}).get("name") == "python3":
            metadata.update(_KERNEL)


def _tidy(book: Any) -> None:
    """Drop what differs from run to run without meaning: timings, kernel version, widget state,
    random ids of styled tables.
    """
    book.metadata.pop("widgets", None)
    book.metadata.update(_KERNEL)
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number:02d}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
            for place, output in enumerate(cell.outputs):
                _tidy_data(output.get("data", {}), f"T_{number:02d}_{place}")


def _tidy_data(data: dict[str, Any], table_id: str) -> None:
    # A widget lives in its kernel only. Its text is kept; JupyterLab would show an error for its
    # view.
    data.pop("application/vnd.jupyter.widget-view+json", None)
    if "text/plain" in data:
        data["text/plain"] = re.sub(r" at 0x[0-9a-f]+>", ">", data["text/plain"])
    if "text/html" in data:
        data["text/html"] = re.sub(r"\bT_[0-9a-f]{5}(?![0-9a-f])", table_id, data["text/html"])


def _is_progress(output: Any) -> bool:
    bar = "%|" in output.get("data", {}).get("text/plain", "")  # tqdm's widget, without its view
    return bar or (output.output_type == "stream" and output.name == "stderr")


def run_all(
    series: str | None = None, *, publish: bool = False, parameters: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Run the notebooks of one paper (`SERIES`), or all; return the seconds of each.

    Parameters
    ----------
    publish : write notebooks, figures and ledger over those of the checkout, as the committed ones
        are made. Otherwise all goes to the folder of results, and the checkout stays as it is.
    parameters : passed to every notebook that has them.
    """
    from ragbench.onnx_models import cores

    books = find(series)
    shares = _shares(books, publish)
    run = _Run(len(books), publish, parameters or {}, iter(shares))
    count = min(2, cores(), len(shares))
    with ThreadPoolExecutor(count) as pool:
        lanes = [pool.submit(run.lane) for _ in range(count)]
        try:
            for finished in as_completed(lanes):
                finished.result()
        except BaseException:
            run.end(lanes)
            raise
    return run.seconds


def _shares(books: Sequence[Path], publish: bool) -> list[list[Path]]:
    """Part the notebooks by paper: those of one share vectors, and run in one process."""
    by_paper = itertools.groupby(books, key=lambda path: path.stem[0])
    shares = [list(group) for _, group in by_paper]
    if len(shares) == 1 and not publish:
        shares = [[path] for path in books]  # of one paper alone each notebook may be next
    return sorted(shares, key=len, reverse=True)


@dataclass
class _Run:
    """Notebooks that are run in lanes, each in one process, which take the next share."""

    books: int
    publish: bool
    parameters: Mapping[str, Any]
    waiting: Iterator[list[Path]]  # one for all lanes: each share is taken once
    seconds: dict[str, float] = field(default_factory=dict)
    kernels: list[Any] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def lane(self) -> None:
        with _shared_kernel() as kernel:
            self.kernels.append(kernel)
            for path in itertools.chain.from_iterable(self.waiting):
                if self.ended.is_set():
                    return
                self.execute(path, kernel)

    def execute(self, path: Path, kernel: Any) -> None:
        import nbformat

        start = time.perf_counter()
        parameters = _parameters_of(nbformat.read(path, as_version=4), self.parameters)
        out = path if self.publish else None
        execute(path, parameters, out, kernel=kernel)
        seconds = time.perf_counter() - start
        self.seconds[path.stem] = seconds
        left = self.books - len(self.seconds)
        print(
            f"{path.stem}: {seconds:.0f} s; {f'{left} to go' if left else 'all done'}", flush=True
        )

    def end(self, lanes: Sequence[Future]) -> None:
        """Stop what runs: after Ctrl-C or an error nobody waits for the other notebook to end.

        A kernel may be starting just now.
        """
        self.ended.set()
        while wait(lanes, timeout=0.2).not_done:
            for kernel in self.kernels:
                if kernel.has_kernel:
                    kernel.provisioner.process.kill()


def create_project(folder: str | os.PathLike[str]) -> Path:
    """Make a new folder to start from: an experiment file, data, template notebooks, and of the
    manual in ``help`` the pages `HELP`.
    """
    target = Path(folder).expanduser().resolve()
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise ConfigError(
            f"{target} is there already", "the name of a new or empty folder", "choose another name"
        )
    try:
        target.mkdir(exist_ok=True)
        shutil.copytree(Path(__file__).parent / "template", target, dirs_exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{target} cannot be made: {error}", "a folder to write to", "check path and rights"
        ) from None
    _copy_manual(target / "help")
    for name in TEMPLATES:
        _copy_template(name, target)
    return target


def _copy_manual(folder: Path) -> None:
    """Copy the pages of the manual; a link to a page that is not among them becomes words."""
    folder.mkdir()
    for name in HELP:
        (folder / name).touch()
    for name in HELP:
        text = packaged_data("docs", name).read_text(encoding="utf-8")
        (folder / name).write_text(_only_links_within(text, folder), encoding="utf-8")


def _copy_template(name: str, folder: Path) -> None:
    book = json.loads(packaged_data("notebooks", name).read_text(encoding="utf-8"))
    _set_to_folder(book)
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = _only_links_within(cell["source"], folder)
    text = json.dumps(book, indent=1, ensure_ascii=False) + "\n"
    (folder / name).write_text(text, encoding="utf-8")


def _only_links_within(text: str, folder: Path) -> str:
    """Turn links and pictures whose file is not in that folder into their words."""

    def kept(match: re.Match[str]) -> str:
        words = match[1]
        target = match[2].partition("#")[0]
        if "://" in target:
            return match[0]
        if ".." not in target and (folder / target).exists():
            return match[0]
        return words

    return re.sub(r"!?\[([^\]]*)\]\(([^)\s]+)\)", kept, text)


def _set_to_folder(book: dict[str, Any]) -> None:
    """Take the results out of a template notebook, and set it to the files beside it."""
    for cell in book["cells"]:
        cell["source"] = (
            "".join(cell["source"])
            .replace("](../docs/", "](help/")
            .replace("data/results/", "results/")
        )
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
            if "parameters" in cell["metadata"].get("tags", []):
                cell["source"] = cell["source"].replace('"91_experiment.yaml"', '"experiment.yaml"')
