"""Opening a cassette's SQLite file: for writing (write-ahead log), or for reading only."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from ragbench.errors import DataError
from ragbench.llm.keys import FORMAT

_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS models (provider TEXT, model TEXT, digest TEXT, PRIMARY KEY (provider, model, digest));
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, ok INTEGER NOT NULL, step TEXT NOT NULL, prompt_id TEXT NOT NULL, provider TEXT NOT NULL,
    model TEXT NOT NULL, digest TEXT NOT NULL, request TEXT NOT NULL, answer TEXT NOT NULL, checksum TEXT NOT NULL,
    recorded_at TEXT NOT NULL
);
INSERT OR IGNORE INTO about VALUES ('format', '{FORMAT}');
COMMIT;
"""
_WAIT_S = 60.0


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open or make a cassette; several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connect(path.as_posix())
    refuse_other_files(db, path)
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            # Changing the journal needs the file alone, and SQLite does not wait for that by itself.
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)
    db.execute("PRAGMA synchronous=NORMAL")
    db.executescript(_TABLES)
    return db


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a cassette that must be there, without the right to change it."""
    uri = path.resolve().as_uri()
    db = _connect(f"{uri}?mode=ro", uri=True)
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        # A folder that cannot be written to has no room for the log's index; a closed cassette has no log.
        db.close()
        db = _connect(f"{uri}?mode=ro&immutable=1", uri=True)
    refuse_other_files(db, path, must_exist=True)
    return db


def refuse_other_files(db: sqlite3.Connection, path: Path, must_exist: bool = False) -> None:
    """Raise DataError when the file is SQLite, but no cassette of this format."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and not must_exist:
        return
    found = db.execute("SELECT value FROM about WHERE name = 'format'").fetchone() if "about" in tables else None
    if found != (FORMAT,):
        held = f"format {found[0]}" if found else f"tables {', '.join(sorted(tables)) or 'none'}"
        raise DataError(
            f"{path}: an SQLite file, but no cassette of this version ({held})",
            f"a cassette of format {FORMAT}",
            "give another path",
        )


def _connect(path: str, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=uri)
