"""Resumable download of the official HotpotQA file, accepted only when it is the known one."""

from __future__ import annotations

import os
from pathlib import Path

from ragbench.data.files import read_json, sha256
from ragbench.data.hotpotqa import OFFICIAL_IDS, OFFICIAL_NAME, is_official
from ragbench.errors import DataError
from ragbench.paths import cache_dir

OFFICIAL_URL = f"http://curtis.ml.cmu.edu/datasets/hotpot/{OFFICIAL_NAME}"


def fetch_hotpotqa(folder: str | Path | None = None, url: str = OFFICIAL_URL, *, timeout_s: float = 60) -> Path:
    """Download the official dev set (distractor setting), continuing a download that broke off.

    Parameters
    ----------
    folder : where to put it; default the cache, where `load_hotpotqa` looks.
    url : the official address, or a mirror of the same file.
    timeout_s : seconds without a byte after which the server is given up.

    Returns
    -------
    Path of the file. Its sha256 is remembered beside it, in ``<name>.sha256``, and checked the next time.

    Raises
    ------
    DataError when the server fails (what has come so far is kept), when the file lacks the 7,405 known ids in their
    order, or when it changed since it was accepted.
    """
    target = Path(folder).expanduser() / OFFICIAL_NAME if folder else cache_dir("hotpotqa") / OFFICIAL_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    remembered = target.with_name(f"{OFFICIAL_NAME}.sha256")
    if target.is_file():
        known = remembered.read_text().split()[0] if remembered.is_file() else None
        if known in (None, sha256(target)):
            return _accept(target, target, remembered)
        raise DataError(
            f"{target} changed since it was downloaded",
            f"sha256 {known}",
            "delete it and run `ragbench data fetch hotpotqa` again",
        )
    part = target.with_name(f"{OFFICIAL_NAME}.part")
    _download(url, part, timeout_s)
    return _accept(part, target, remembered)


def _download(url: str, part: Path, timeout_s: float) -> None:
    import httpx
    from tqdm.auto import tqdm

    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with httpx.stream("GET", url, headers=headers, timeout=timeout_s, follow_redirects=True) as reply:
            if reply.status_code == 416:  # nothing after what is here: complete
                return
            if reply.status_code not in (200, 206):
                raise DataError(
                    f"{url} answered {reply.status_code}", "200 or 206", "try again later, or pass url= of a mirror"
                )
            have = have if reply.status_code == 206 else 0
            total = have + int(reply.headers.get("Content-Length", 0)) or None
            with (
                open(part, "ab" if have else "wb") as file,
                tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=OFFICIAL_NAME) as bar,
            ):
                for block in reply.iter_raw():
                    file.write(block)
                    bar.update(len(block))
    except httpx.HTTPError as error:
        size = part.stat().st_size if part.exists() else 0
        raise DataError(
            f"{url}: {type(error).__name__} {error} after {size:,} bytes",
            "a complete download",
            "run it again: it continues where it stopped. Without internet, copy the file into RAGBENCH_DATA/hotpotqa",
        ) from None


def _accept(path: Path, target: Path, remembered: Path) -> Path:
    """Check the ids, move the file to its name and remember its hash."""
    try:
        rows = read_json(path)
        ids = [r["_id"] for r in rows]
    except (DataError, TypeError, KeyError):
        ids = []
    if not is_official(ids):
        path.unlink()
        raise DataError(
            f"what was downloaded has {len(ids):,} questions and is not the official dev set",
            f"the {OFFICIAL_IDS:,} known ids in their order",
            "it was deleted; run the download again, and check for a proxy that answers in the server's place",
        )
    remembered.write_text(f"{sha256(path)}  {target.name}\n")
    os.replace(path, target)
    return target
