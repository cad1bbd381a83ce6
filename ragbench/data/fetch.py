"""Published files at a fixed public address: ``ragbench data fetch NAME`` puts them into the folder
RAGBENCH_DATA, where the loaders look.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.paths import sha256_of


class _Source(NamedTuple):
    """A repository at one commit, the folder below RAGBENCH_DATA that its files go to, and their
    sha256 by path; None where it is not known.
    """

    repository: str
    commit: str
    folder: str
    files: Mapping[str, str | None]


_META = "data/meta_evaluation"
SOURCES: Mapping[str, _Source] = {
    "clapnq": _Source(
        "primeqa/clapnq",
        "c995327b9a628431290d47157ab2d536dfb7ccd5",
        "clapnq",
        {
            "annotated_data/dev/clapnq_dev_answerable.jsonl": (
                "8d9a6115e29b338f1938dcec9c9860910b6e0eb43225be1276b9e3402d4446b6"
            )
        },
    ),
    "ragchecker": _Source(
        "amazon-science/RAGChecker",
        "657d54ba07ace0fe545ed0e9905032b5b73c5278",
        "ragchecker/meta_evaluation",
        {
            f"{_META}/human_labeled_data.json": None,
            f"{_META}/baseline_ragchecker.json": (
                "1fce14cc54bf276c3ed2bb48976ba42e85159651b64c181bc19795152db6e3d6"
            ),
            f"{_META}/baseline_trulens_llama3.json": None,
            f"{_META}/baseline_ares_llama3.json": None,
            f"{_META}/baseline_ragas_llama3.json": None,
            f"{_META}/baseline_crud_llama3.json": None,
        },
    ),
}


def fetch_source(name: str, host: str = "https://raw.githubusercontent.com") -> dict[Path, str]:
    """Download the files of one of `SOURCES`; return the sha256 of each by its path.

    A file that is there is not asked for again. ConfigError without RAGBENCH_DATA; DataError for a
    file that cannot be had, or has another sha256.
    """
    check_known("data set", [name], SOURCES)
    base = os.environ.get("RAGBENCH_DATA", "").strip()
    if not base:
        raise ConfigError("no RAGBENCH_DATA", "the folder of your data sets", "set it, then fetch")
    source = SOURCES[name]
    digests = {}
    for path, sha256 in source.files.items():
        url = f"{host}/{source.repository}/{source.commit}/{path}"
        target = Path(base).expanduser() / source.folder
        wanted = ("the published file", f"it into {target}")
        file = download(url, sha256, target / Path(path).name, *wanted)
        digests[file] = sha256_of(file)
    return digests


def download(
    url: str, sha256: str | None, file: Path, expected: str, copy: str, **options: Any
) -> Path:
    """Download a file, unless it is there with that sha256 (None: any); return its path.

    DataError for one that cannot be had, or has another sha256, says what was ``expected``, and
    that the user may ``copy`` what where. ``options`` are those of pooch's ``retrieve``.
    """
    import pooch

    known = sha256 and f"sha256:{sha256}"
    try:
        return Path(pooch.retrieve(url, known, file.name, file.parent, **options))
    except (OSError, ValueError) as error:  # requests' errors; pooch's, which names both hashes
        raise DataError(
            f"{url}: {error}", expected, f"try again, or copy {copy}; a proxy may have answered"
        ) from None
