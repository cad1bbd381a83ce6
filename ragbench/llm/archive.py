"""A cassette as a thing to keep: JSON Lines out and in, counts, and a check of every row."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Collection
from os import PathLike, fspath
from typing import IO, TYPE_CHECKING, Any, Literal

from ragbench.errors import ConfigError, DataError
from ragbench.llm.keys import checksum, key_of, stored_request

if TYPE_CHECKING:
    from ragbench.llm.cassette import Cassette

COLUMNS = (
    "key", "ok", "step", "prompt_id", "provider", "model", "digest", "request", "answer", "checksum", "recorded_at"
)  # fmt: skip


def export(cassette: Cassette, path: str | PathLike[str], keys: Collection[str] | None = None) -> int:
    """See ``Cassette.export``."""
    rows = cassette.rows(f"SELECT {', '.join(COLUMNS)} FROM replies ORDER BY key")
    if keys is not None:
        rows = [row for row in rows if row[0] in keys]
    with _text(path, "wb") as out:
        for row in rows:
            record: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
            record["ok"] = bool(record["ok"])
            for name in ("request", "answer"):
                record[name] = json.loads(record[name])
            out.write(json.dumps(record, ensure_ascii=True) + "\n")
    return len(rows)


def _text(path: str | PathLike[str], mode: Literal["rb", "wb"]) -> IO[str]:
    """Open JSON Lines; a name that ends in .gz is compressed, the same rows to the same bytes."""
    if not fspath(path).endswith(".gz"):
        return open(path, mode[0], encoding="utf-8", newline="\n")
    file = gzip.GzipFile(path, mode, mtime=0)
    return io.TextIOWrapper(file, encoding="utf-8", newline="\n")


def read_lines(cassette: Cassette, path: str | PathLike[str]) -> tuple[list[tuple], set[tuple[str, str, str]]]:
    """Read and check an export: the rows to insert, and the (provider, model, digest) triples in it."""
    if cassette.mode != "record":
        raise ConfigError(f"import into {cassette!r}", "a cassette in record mode", "open it with mode='record'")
    rows, models = [], set()
    try:
        with _text(path, "rb") as lines:
            for line in lines:
                row, who = _row(json.loads(line))
                rows.append(row)
                models.add(who)
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}, line {len(rows) + 1}: {type(error).__name__}: {error}",
            "an unchanged line written by Cassette.export",
            "take the export again",
        ) from None
    return rows, models


def _row(record: dict[str, Any]) -> tuple[tuple, tuple[str, str, str]]:
    request, answer = record["request"], json.dumps(record["answer"], ensure_ascii=True, separators=(",", ":"))
    if key_of(request) != record["key"]:
        raise ValueError("the key does not belong to the request")
    if checksum(answer) != record["checksum"]:
        raise ValueError("the answer was changed after recording")
    who = (request["provider"], request["model"], request["digest"])
    cells = (record["key"], int(record["ok"]), record["step"], record["prompt_id"], *who, stored_request(request))
    return (*cells, answer, record["checksum"], record["recorded_at"]), who


def stats(cassette: Cassette) -> dict[str, Any]:
    """See ``Cassette.stats``."""
    names = ("calls", "prompt_tokens", "output_tokens", "seconds")
    sums = ", ".join(f"sum(json_extract(answer, '$.usage.{name}'))" for name in names)
    steps = cassette.rows(f"SELECT step, sum(ok), sum(1 - ok), {sums} FROM replies GROUP BY step ORDER BY step")
    kind = "json_extract(answer, '$.error.kind')"
    kinds = cassette.rows(f"SELECT {kind}, count(*) FROM replies WHERE ok = 0 GROUP BY 1 ORDER BY 1")
    models = cassette.rows("SELECT provider, model, digest FROM models ORDER BY 1, 2, 3")
    return {
        "replies": sum(row[1] for row in steps),
        "failures": sum(row[2] for row in steps),
        "by_kind": dict(kinds),
        "by_step": {row[0]: dict(zip(("replies", "failures", *names), row[1:], strict=True)) for row in steps},
        "models": [{"model": f"{provider}:{model}", "digest": digest} for provider, model, digest in models],
        "bytes": cassette.path.stat().st_size,
    }


def verify(cassette: Cassette) -> list[str]:
    """See ``Cassette.verify``."""
    problems = [f"SQLite: {row[0]}" for row in cassette.rows("PRAGMA integrity_check") if row[0] != "ok"]
    rows = cassette.rows("SELECT key, prompt_id, request, answer, checksum FROM replies ORDER BY key")
    for key, prompt_id, request, answer, noted in rows:
        where = f"prompt {prompt_id!r} (key {key[:12]})"
        if key_of(json.loads(request)) != key:
            problems.append(f"{where}: the key does not belong to the request")
        if checksum(answer) != noted:
            problems.append(f"{where}: the answer was changed after recording")
    doubled = "SELECT provider, model, count(*) FROM models GROUP BY 1, 2 HAVING count(*) > 1"
    for provider, model, count in cassette.rows(doubled):
        problems.append(f"{provider}:{model}: {count} digests under one name")
    return problems
