"""The cassette: every reply of a run in one SQLite file, so that the run can be resumed, repeated and checked.

Replies that failed are kept as failures and asked again; they are never served as answers.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ragbench.errors import DataError, unknown
from ragbench.llm import archive
from ragbench.llm.failures import CallError, failure
from ragbench.llm.keys import checksum
from ragbench.llm.store import open_to_read, open_to_write

MODES = ("record", "replay", "off")
MODE_VARIABLE = "RAGBENCH_CASSETTE"
# A forked process must not close the connection it was born with: that would touch its parent's log.
_inherited: list[sqlite3.Connection] = []


class Cassette:
    """One file of recorded replies.

    Parameters
    ----------
    path : the file; made when it is not there (not in replay mode).
    mode : ``"record"`` (serve what is there, ask and record the rest), ``"replay"`` (serve what is there, open no
        socket, a miss is an error) or ``"off"`` (neither read nor write). The environment variable RAGBENCH_CASSETTE,
        when set, wins over this argument: so an unchanged notebook or script can be recorded anew.
    digest : which of several recorded weights of one model name to use; only needed when there is more than one.
    command : the command that records this cassette, named in the error on a miss.

    Raises
    ------
    ConfigError : unknown mode. DataError : the file is missing (replay), or is no cassette.

    Notes
    -----
    SQLite's write-ahead log: each reply is a transaction of its own, so a process killed in the middle leaves every
    finished reply; several processes may write at once (the first answer to a key stays). The object may be shared
    between threads, and is opened anew in a child process.
    """

    def __init__(
        self, path: str | os.PathLike[str], mode: str = "record", *, digest: str | None = None, command: str = ""
    ) -> None:
        mode = os.environ.get(MODE_VARIABLE) or mode
        if mode not in MODES:
            raise unknown("cassette mode", mode, MODES)
        self.path, self.mode, self.digest, self.command = Path(path), mode, digest, command
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        if mode != "off":
            self._connection()

    def __repr__(self) -> str:
        return f"Cassette({self.path.name!r}, {self.mode!r})"

    def __reduce__(self) -> tuple:
        return partial(Cassette, digest=self.digest, command=self.command), (str(self.path), self.mode)

    def __len__(self) -> int:
        return int(self.rows("SELECT count(*) FROM replies WHERE ok = 1")[0][0])

    def __enter__(self) -> Cassette:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it; it opens itself again when next used."""
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                if self.mode == "record":
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.close()
            self._db = None

    def _connection(self) -> sqlite3.Connection:
        with self._lock:
            if self._db is None or self._pid != os.getpid():
                if self._db is not None:
                    _inherited.append(self._db)
                self._db, self._pid = self._open(), os.getpid()
            return self._db

    def _open(self) -> sqlite3.Connection:
        if self.mode != "record" and not self.path.exists():
            raise DataError(f"{self.path}: no such cassette", "a recorded cassette (SQLite file)", how_to_record(self))
        try:
            return open_to_write(self.path) if self.mode == "record" else open_to_read(self.path)
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{self.path}: not readable as a cassette ({error})",
                "a cassette written by ragbench (SQLite file)",
                "give another path, or restore the file from its JSONL export",
            ) from None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """Read rows by SQL (tables ``replies``, ``models``, ``about``)."""
        with self._lock:
            return self._connection().execute(sql, values).fetchall()

    # -- what ask() uses ---------------------------------------------------------------------------------------------

    def digests(self, provider: str, model: str) -> list[str]:
        """Return the digests under which replies of this model name are recorded, sorted."""
        sql = "SELECT digest FROM models WHERE provider = ? AND model = ? ORDER BY digest"
        return [row[0] for row in self.rows(sql, (provider, model))]

    def choose_digest(self, provider: str, model: str, on_server: str | None = None) -> str | None:
        """Say which weights are meant by a model name.

        Parameters
        ----------
        provider, model : the name.
        on_server : the digest the server gives now, or None when it was not asked or did not answer.

        Returns
        -------
        the digest; None when nothing is recorded and the server was not asked.

        Raises
        ------
        CallError of kind ``digest`` : two digests under one name, and none chosen.
        """
        recorded = self.digests(provider, model)
        name = f"{provider}:{model}"
        if self.digest is not None:
            if on_server is not None and on_server != self.digest:
                raise failure(
                    "digest",
                    f"the server has {_short(on_server)}, Cassette(digest=...) says {_short(self.digest)}",
                    "",
                    name,
                )
            return self.digest
        if len(recorded) > 1:
            many = ", ".join(_short(digest) for digest in recorded)
            raise failure(
                "digest",
                f"{self.path.name} holds replies of {len(recorded)} different models of this name: {many}",
                "",
                name,
            )
        if on_server is not None and recorded and recorded[0] != on_server:
            told = f"recorded with {_short(recorded[0])}, the server now has {_short(on_server)}"
            do = f"record into a new file, choose with Cassette(..., digest={on_server!r}), or pull the old model again"
            raise failure("digest", f"two digests under one name: {self.path.name} was {told}", "", name, do=do)
        if on_server is None:
            return recorded[0] if recorded else None
        return on_server

    def register(self, provider: str, model: str, digest: str) -> None:
        """Note the digest of a model beside its name."""
        with self._lock:
            self._connection().execute("INSERT OR IGNORE INTO models VALUES (?, ?, ?)", (provider, model, digest))

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the recorded answers (and failures: ``ok`` False) for those keys that are there."""
        wanted = list(keys)
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            marks = ",".join("?" * len(some))
            for key, ok, answer in self.rows(f"SELECT key, ok, answer FROM replies WHERE key IN ({marks})", some):
                found[key] = {**json.loads(answer), "ok": bool(ok)}
        return found

    def put(self, key: str, request: str, answer: Mapping[str, Any], *, step: str = "", prompt_id: str = "") -> bool:
        """Record one answer or failure, at once and for good.

        Parameters
        ----------
        key, request : from ``Keys``.
        answer : what ``ask`` stores: ``ok``, ``text``, ``usage`` ...
        step, prompt_id : for ``stats`` and for reading the file.

        Returns
        -------
        bool : False when an answer to this key was there already (it stays).
        """
        who = json.loads(request)
        text = json.dumps(answer, ensure_ascii=True, separators=(",", ":"))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        names = (who["provider"], who["model"], who["digest"])
        row = (key, int(answer["ok"]), step, prompt_id, *names, request, text, checksum(text), now)
        return self._insert(row)

    def _insert(self, row: tuple) -> bool:
        marks = ",".join("?" * len(archive.COLUMNS))
        update = ", ".join(f"{name} = excluded.{name}" for name in archive.COLUMNS[1:])
        with self._lock:
            try:
                done = self._connection().execute(
                    f"INSERT INTO replies VALUES ({marks})"
                    f" ON CONFLICT (key) DO UPDATE SET {update} WHERE replies.ok = 0",
                    row,
                )
            except sqlite3.Error as error:
                raise DataError(
                    f"{self.path}: cannot be written ({error})",
                    "a cassette that can be written",
                    "make room or change the rights, then run again: what is recorded is not asked again",
                ) from None
            return done.rowcount == 1

    # -- what a person uses ------------------------------------------------------------------------------------------

    def export(self, path: str | os.PathLike[str], keys: Collection[str] | None = None) -> int:
        """Write the rows as JSON Lines, sorted by key (the same rows give the same file).

        Parameters
        ----------
        path : compressed when it ends in ``.gz``.
        keys : of the rows to write; None: all.

        Returns
        -------
        int : lines written.
        """
        return archive.export(self, path, keys)

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Read JSON Lines that ``export`` wrote (``.gz`` too); an answer that is already here stays.

        Returns
        -------
        int : rows added.

        Raises
        ------
        DataError : with file and line, when a line is damaged or its key does not belong to its request. Nothing of
            the file is then taken over.
        """
        rows, models = archive.read_lines(self, path)
        with self._lock:
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            added = sum(self._insert(row) for row in rows)
            db.executemany("INSERT OR IGNORE INTO models VALUES (?, ?, ?)", sorted(models))
            db.execute("COMMIT")
        return added

    def stats(self) -> dict[str, Any]:
        """Count what is on the cassette.

        Returns
        -------
        dict : ``replies`` and ``failures`` (counts), ``by_kind`` (failures), ``by_step`` (replies, failures, calls,
        prompt_tokens, output_tokens, seconds), ``models`` (name and digest), ``bytes``.
        """
        return archive.stats(self)

    def verify(self) -> list[str]:
        """Check the file, every key against its request, and every answer against its checksum.

        Returns
        -------
        list of str : what is wrong, with the prompt's id; empty when all is well.
        """
        return archive.verify(self)


def how_to_record(cassette: Cassette) -> str:
    """Say how a missing reply gets onto the cassette: a command, where one is known."""
    command = cassette.command
    if not command:
        script = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else ""
        in_notebook = "ipykernel" in sys.modules or not script
        command = "jupyter nbconvert --execute --to notebook NOTEBOOK" if in_notebook else f"python {script} ..."
    return f"record it, with the model's server running: {MODE_VARIABLE}=record {command}"


def miss(cassette: Cassette, ids: Sequence[str], model: str, of: int) -> CallError:
    """Build the error for prompts that are not on a cassette in replay mode."""
    shown = ", ".join(repr(name) for name in ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    detail = f"{len(ids)} of {of} prompts are not on {cassette.path.name}: prompt {shown}"
    return failure("miss", detail, "", model, do=how_to_record(cassette))


def _short(digest: str) -> str:
    return f"{digest[:12]}..." if len(digest) > 12 else (digest or "(none)")
