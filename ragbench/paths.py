"""Where things are on this machine: shipped data, the folder RAGBENCH_DATA, the cache, the
results.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ragbench.errors import DataError

_ROOT = Path(__file__).resolve().parent.parent
_CHECKOUT = (_ROOT / "pyproject.toml").is_file()


def project_root() -> Path:
    """Return the repository's folder for a checkout, else the current folder (for an installed
    wheel).
    """
    if _CHECKOUT:
        return _ROOT
    return Path.cwd()


def packaged_data(*parts: str) -> Path:
    """Return the path of what comes with ragbench, such as ``packaged_data("minihop",
    "questions.jsonl")``.
    """
    places = [Path(__file__).resolve().parent / "_shipped"]
    if _CHECKOUT:
        places = [_ROOT / "data", _ROOT]
    for base in places:
        if base.joinpath(*parts).exists():
            return base.joinpath(*parts)
    raise DataError(
        f"{'/'.join(parts)}, which comes with ragbench, is missing",
        "a complete checkout or installation",
        "run `git status` in the checkout, or install ragbench again",
    )


def shared_data(*parts: str) -> Path | None:
    """Return the path of a data set in the folder ``RAGBENCH_DATA``; None when it is not there."""
    base = _named("RAGBENCH_DATA")
    if base is None or not base.joinpath(*parts).exists():
        return None
    return base.joinpath(*parts)


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, which is not imported; None without it."""
    package = importlib.util.find_spec(name)
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent


def sha256_of(path: Path, *, remembered: bool = False) -> str:
    """Return the sha256 of a file; a remembered one of the same size and time of change is not read
    again.
    """
    if not remembered:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    state = path.stat()
    mark = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
    try:
        note = cache_dir("sha256") / hashlib.sha256(mark.encode()).hexdigest()[:16]
        if not note.is_file():
            with written_whole(note) as part:
                part.write_text(sha256_of(path))
        digest = note.read_text()
        if len(digest) != 64:  # a note that was cut
            note.unlink()
            return sha256_of(path, remembered=True)
        return digest
    except OSError:  # nothing may be written here
        return sha256_of(path)


def cache_dir(*parts: str) -> Path:
    """Return (and make) a folder of the cache: ``RAGBENCH_CACHE``, else ``data/cache`` of the
    checkout.

    An installed wheel without a checkout uses the platform's own cache folder.
    """
    base = _named("RAGBENCH_CACHE")
    if base is None and _CHECKOUT:
        base = _ROOT / "data" / "cache"
    if base is None:
        import platformdirs

        base = Path(platformdirs.user_cache_dir("ragbench"))
    return _made(base.joinpath(*parts))


def results_dir(*parts: str) -> Path:
    """Return (and make) a folder for per-question rows: ``RAGBENCH_RESULTS``, else
    ``data/results``.
    """
    base = _named("RAGBENCH_RESULTS") or project_root() / "data" / "results"
    return _made(base.joinpath(*parts))


def figures_dir() -> Path:
    """Return (and make) the folder that figures and the ledger are written to.

    ``RAGBENCH_FIGURES``, else ``figures`` among the results: a run of one's own leaves the
    published figures alone.
    """
    return _made(_named("RAGBENCH_FIGURES") or results_dir("figures"))


def _named(variable: str) -> Path | None:
    base = os.environ.get(variable, "").strip()
    if not base:
        return None
    return Path(base).expanduser()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def refuse_stream(path: str | os.PathLike[str]) -> None:
    """Raise DataError for a pipe or device under the name of a file: it may never end."""
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(
            f"{path} is a pipe or a device", "a file", "save what it gives to a file, and name that"
        )


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path to write to.

    The file takes its name when all is written; after an error nothing is left of it.
    """
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=path.parent) as folder:
        part = Path(folder) / path.name
        yield part
        os.replace(part, path)
