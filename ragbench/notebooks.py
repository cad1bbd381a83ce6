"""The numbered notebooks:

run headless, with parameters and progress; as templates in a folder of one's own.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, DataError, RagbenchError
from ragbench.paths import packaged_data, project_root, results_dir

# the wheel carries these (pyproject.toml)
TEMPLATES = ("91_your_experiment.ipynb", "93_score_your_answers.ipynb")
SERIES = {
    "start": "0",
    "thesis": "1",
    "ragchecker": "2",
    "ragas": "3",
    "rageval": "4",
    "beyond": "9",
}
_LONGEST_FIRST = "924130"  # series: with two at a time, the run ends soonest
# Of every committed notebook, whatever the Python that ran it.
_KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_BAR = "{desc}{percentage:3.0f}%|{bar}| {elapsed} gone, about {remaining} to go"


class NotebookError(RagbenchError):
    """A cell of a notebook raised."""


def find(series: str | None = None) -> list[Path]:
    """Return the notebooks in reading order, all or those of one paper (`SERIES`)."""
    folder = project_root() / "notebooks"
    files = sorted(folder.glob(f"{SERIES[series] if series else '[0-9]'}*.ipynb"))
    if not files:
        do = "run this inside the checkout"
        raise DataError(f"no notebook in {folder}", "the numbered notebooks of the checkout", do)
    return files


def execute(
    path: Path,
    parameters: Mapping[str, Any] | None = None,
    out: Path | None = None,
    timeout_s: int = 1800,
    *,
    moved: Callable[[float], Any] | None = None,
    kernel: Any = None,
) -> Path:
    """Run a notebook from top to bottom, write the executed copy and return its path; NotebookError
    names the cell.

    Parameters
    ----------
    parameters : values that replace those of the cell tagged ``parameters``.
    out : where the executed copy goes; default ``data/results/notebooks/``.
    timeout_s : limit for one cell.
    moved : called after every cell with the share of the notebook that it is.
    kernel : of `_shared_kernel`; default a process of its own.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    book = nbformat.read(path, as_version=4)
    if parameters:
        _insert(book, parameters, path)
    out = out or results_dir("notebooks") / path.name
    cells = sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in book.cells)
    client = NotebookClient(
        book,
        km=kernel,
        timeout=timeout_s,
        kernel_name="python3",
        coalesce_streams=True,  # how a print is cut into messages differs from run to run
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=[
            "--log-level=ERROR"
        ],  # the kernel's own start-up notes would break the progress bar
        on_cell_executed=(lambda **_: moved(1 / cells)) if moved else None,
    )
    failure: Exception | None = None
    try:
        client.execute(env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        failure = error
    if kernel is not None and not isinstance(failure, CellTimeoutError | DeadKernelError):
        clear = 'import pandas; pandas.reset_option("^display[.]"); get_ipython().reset()'
        client.wait_for_reply(client.kc.execute(clear, silent=True))
        client.kc.stop_channels()
    _tidy(book)
    nbformat.write(book, out)
    if failure is not None:
        outputs = [cell.get("outputs", []) for cell in book.cells]
        number = next(
            (i for i, of in enumerate(outputs) if any(o.output_type == "error" for o in of)), None
        )
        what = getattr(failure, "evalue", "") or str(failure).strip().splitlines()[-1]
        raise NotebookError(
            f"{path.name}, cell {number}: {getattr(failure, 'ename', type(failure).__name__)}: "
            f"{what}",
            "a clean run from top to bottom",
            f"open {out} and read the cell's output",
        )
    return out


@contextmanager
def _shared_kernel() -> Iterator[Any]:
    """Keep one process for notebooks that follow each other:

    packages are imported once, names cleared in between.
    """
    from jupyter_client import AsyncKernelManager
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

    place = next(
        i for i, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", [])
    )
    if missing := [name for name in parameters if f"{name} =" not in book.cells[place].source]:
        got = f"{path.name} has no parameter {', '.join(missing)}"
        raise DataError(got, "a name of its parameters cell", "check the spelling")
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    book.cells.insert(place + 1, new_code_cell(source, metadata={"tags": ["injected-parameters"]}))


def before_saving(model: dict[str, Any], **_: Any) -> None:
    """Keep a notebook's kernel as committed:

    JupyterLab would write its own version into each that is opened.
    """
    if (
        model["type"] == "notebook"
        and model["content"]["metadata"].get("kernelspec", {}).get("name") == "python3"
    ):
        model["content"]["metadata"].update(_KERNEL)


def _tidy(book: Any) -> None:
    """Drop what differs from run to run without meaning: timings, kernel version, widget state."""
    book.metadata.pop("widgets", None)
    book.metadata.update(_KERNEL)
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number:02d}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # A widget lives in its kernel only. Its text is kept; JupyterLab would show an error
            # for its view.
            for data in (output.get("data", {}) for output in cell.outputs):
                data.pop("application/vnd.jupyter.widget-view+json", None)
                if "text/plain" in data:
                    data["text/plain"] = re.sub(r" at 0x[0-9a-f]+>", ">", data["text/plain"])
            cell.outputs = [o for o in cell.outputs if not _is_progress(o)]


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
    are made. Otherwise
        all goes to the folder of results, and the checkout stays as it is.
    parameters : passed to every notebook that has them.
    """
    from tqdm.auto import tqdm

    from ragbench.onnx_models import cores

    # Notebooks of one paper build on each other, papers do not: two lanes, each in one process,
    # take the next paper.
    papers = [
        list(books) for _, books in itertools.groupby(find(series), key=lambda path: path.stem[0])
    ]
    papers.sort(key=lambda books: _LONGEST_FIRST.find(books[0].stem[0]))
    seconds: dict[str, float] = {}
    ended = threading.Event()
    kernels: list[Any] = []
    at_once = min(2, cores(), len(papers))

    with (
        tqdm(total=sum(map(len, papers)), bar_format=_BAR) as bar,
        ThreadPoolExecutor(at_once) as pool,
    ):
        waiting = iter(papers)

        def lane() -> None:
            with _shared_kernel() as kernel:
                kernels.append(kernel)
                # of one iterator: each paper is taken once
                for path in itertools.chain.from_iterable(waiting):
                    if ended.is_set():
                        return
                    start = time.perf_counter()
                    bar.set_description(path.stem)
                    given = _known(path, parameters or {})
                    execute(path, given, path if publish else None, moved=bar.update, kernel=kernel)
                    seconds[path.stem] = time.perf_counter() - start

        lanes = [pool.submit(lane) for _ in range(at_once)]
        try:
            for done in as_completed(lanes):
                done.result()
        except BaseException:
            # After Ctrl-C or an error, nobody waits for the other notebook to end; its kernel may
            # be starting just now.
            ended.set()
            while wait(lanes, timeout=0.2).not_done:
                for kernel in kernels:
                    if kernel.has_kernel:
                        kernel.provisioner.process.kill()
            raise
    return seconds


def _known(path: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the parameters that a notebook has."""
    import nbformat

    cells = nbformat.read(path, as_version=4).cells
    source = "\n".join(c.source for c in cells if "parameters" in c.metadata.get("tags", []))
    return {name: value for name, value in parameters.items() if f"{name} =" in source}


def create_project(folder: str | os.PathLike[str]) -> Path:
    """Make a new folder to start from:

    an experiment file, data, template notebooks, the manual in ``help``.
    """
    target = Path(folder).expanduser().resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigError(
            f"{target} is there already", "the name of a new or empty folder", "choose another name"
        )
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        got = f"{target} cannot be made: {error.strerror}"
        raise ConfigError(got, "a folder to write to", "check path and rights") from None
    shutil.copytree(Path(__file__).parent / "template", target, dirs_exist_ok=True)
    shutil.copytree(packaged_data("docs"), target / "help")
    for page in (target / "help").glob("*.md"):
        page.write_text(
            _only_links_within(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8"
        )
    for name in TEMPLATES:
        book = json.loads(packaged_data("notebooks", name).read_text(encoding="utf-8"))
        _set_to_folder(book)
        for cell in book["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = _only_links_within(cell["source"], target)
        (target / name).write_text(
            json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return target


def _only_links_within(text: str, folder: Path) -> str:
    """Turn links and pictures whose file is not in that folder into their words."""

    def kept(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        return (
            found[0]
            if "://" in target or (".." not in target and (folder / target).exists())
            else found[1]
        )

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
