"""The cassette: every reply of a run in one SQLite file, so that the run can be resumed, repeated
and checked.

A reply's key is the sha256 of everything that can change it, and of nothing else. Failed replies
are kept as failures and asked again; they are never served as answers.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.llm.failures import CallError, failure
from ragbench.llm.structured import canonical_schema
from ragbench.paths import written_whole

FORMAT = "ragbench-cassette-1"
MODES = ("record", "replay", "off")
MODE_VARIABLE = "RAGBENCH_CASSETTE"
_COLUMNS = (
    "key", "ok", "step", "prompt_id", "provider", "model", "digest", "request", "answer", "checksum", "recorded_at"
)  # fmt: skip
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
_MARKS = ",".join("?" * len(_COLUMNS))
_UPDATE = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
# The first answer to a key stays; a failure gives way.
_INSERT = (
    f"INSERT INTO replies VALUES ({_MARKS}) ON CONFLICT (key) DO UPDATE SET {_UPDATE} "
    "WHERE replies.ok = 0"
)
_WAIT_S = 60.0
_BATCH_SIZE = 1000  # rows read together
_DAMAGED = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
)
# A forked process must not close the connection it was born with: that would touch its parent's
# log.
_inherited: list[sqlite3.Connection] = []


# -- keys
# --------------------------------------------------------------------------------------------------------------

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: Any) -> str:
    """Write JSON in one way only: sorted names, no spaces, 0.0 as 0."""
    return _ENCODER.encode(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


class Keys:
    """Makes the keys of one model's replies.

    A key is the sha256 of all that can change a reply, and of nothing else: the format of the
    cassette; provider and name of the model; the digest of its weights (it stands for the Modelfile
    too); its options, as the `Endpoint` has them and sends them (temperature, seed, num_ctx, the
    limit of tokens, stop, ...); the messages; the JSON schema. Not in it: address and keys,
    deadline, retries, concurrency, keep_alive, the names of step and prompt, time. What does not
    change from prompt to prompt is hashed once.
    """

    def __init__(self, provider: str, model: str, digest: str, options: Mapping[str, Any]) -> None:
        self.who = {
            "provider": provider,
            "model": model,
            "digest": digest,
            "options": _plain(options),
        }
        self._base = hashlib.sha256(f"{FORMAT}\n{_ENCODER.encode(self.who)}\n".encode())

    def key(self, messages: Sequence[dict], schema: str = "") -> str:
        """Return the sha256 (hex) for these messages and this schema (its canonical JSON text, or
        "").
        """
        hashed = self._base.copy()
        hashed.update(f"{canonical(messages)}\n{schema}".encode("utf-8", "surrogatepass"))
        return hashed.hexdigest()

    def request(self, messages: Sequence[dict], schema: str = "") -> str:
        """Return the request as stored: all that the key was made of."""
        whole = {**self.who, "messages": messages, "schema": json.loads(schema) if schema else None}
        text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        try:
            text.encode()
        except (
            UnicodeEncodeError
        ):  # ASCII escapes keep a lone surrogate, which SQLite's text cannot hold
            return json.dumps(whole, separators=(",", ":"))
        return text


def _rebuilt(request: Mapping[str, Any]) -> tuple[Keys, Sequence[dict], str]:
    keys = Keys(*(request[name] for name in ("provider", "model", "digest", "options")))
    return keys, request["messages"], canonical_schema(request["schema"])


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _problems(key: str, request: str, answer: str, noted: str) -> list[str]:
    """List what is wrong with a row: its key against its request, its answer against its checksum."""
    try:
        keys, *asked = _rebuilt(json.loads(request))
        belongs = keys.key(*asked) == key
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        belongs = False
    problems = [] if belongs else ["the key does not belong to the request"]
    return (
        problems
        if _checksum(answer) == noted
        else [*problems, "the answer was changed after recording"]
    )


# -- the file
# ----------------------------------------------------------------------------------------------------------


class Cassette:
    """One file of recorded replies.

    Parameters
    ----------
    path : the file; made when it is not there (not in replay mode).
    mode : ``"record"`` (serve what is recorded, ask and record the rest), ``"replay"`` (serve what
        is recorded, open no socket, a miss is an error) or ``"off"`` (neither read nor write). The
        environment variable RAGBENCH_CASSETTE wins over this argument, so that an unchanged
        notebook or script can be recorded anew.
    digest : which of several recorded weights of one model name to use.
    command : the command that records this cassette, named in the error on a miss.

    Notes
    -----
    Each reply is a transaction in SQLite's write-ahead log: a killed process leaves every finished
    reply, and several processes and threads may write at once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str = "record",
        *,
        digest: str | None = None,
        command: str = "",
    ) -> None:
        mode = os.environ.get(MODE_VARIABLE) or mode
        check_known("cassette mode", [mode], MODES)
        self.path = Path(path)
        self.mode = mode
        self.digest = digest
        self.command = command
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        if mode != "off":
            self._connection()

    def __repr__(self) -> str:
        return f"Cassette({self.path.name!r}, {self.mode!r})"

    def __len__(self) -> int:
        return int(self.rows("SELECT count(*) FROM replies WHERE ok = 1")[0][0])

    def __bool__(self) -> bool:
        return True  # an empty one is a cassette too: ``cassette or None`` keeps it

    def __enter__(self) -> Cassette:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it; it opens itself again when next
        used.
        """
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                if self.mode == "record":
                    # on a full disk the log stays beside the file, as good
                    with contextlib.suppress(sqlite3.Error):
                        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.close()
            self._db = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None:
            if self._pid == os.getpid():
                return self._db
            _inherited.append(self._db)
        if self.mode != "record" and not self.path.exists():
            expected = "a recorded cassette (SQLite file)"
            raise DataError(f"{self.path}: no such cassette", expected, self._how_to_record())
        try:
            self._db = (
                _open_to_write(self.path) if self.mode == "record" else _open_to_read(self.path)
            )
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from None
        self._pid = os.getpid()
        return self._db

    def _unreadable(self, error: Exception) -> DataError:
        do = "give another path, or restore the file from its JSONL export"
        return DataError(
            f"{self.path}: not readable as a cassette ({error})",
            "a cassette written by ragbench",
            do,
        )

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """Read rows by SQL (tables ``replies``, ``models``, ``about``)."""
        with self._lock:
            try:
                return self._connection().execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._unreadable(error) from None

    def _each(self, columns: Sequence[str]) -> Iterator[tuple]:
        """Yield all rows in the order of their keys, a thousand in memory; the first column is the
        key.
        """
        sql = (
            f"SELECT {', '.join(columns)} FROM replies WHERE key > ? ORDER BY key LIMIT "
            f"{_BATCH_SIZE}"
        )
        some = self.rows(sql, ("",))
        while some:
            yield from some
            some = self.rows(sql, (some[-1][0],))

    def _write(self, sql: str, values: Sequence[Any]) -> int:
        with self._lock:
            try:
                return self._connection().execute(sql, values).rowcount
            except sqlite3.Error as error:
                do = (
                    "make room or change the rights, then run again: what is recorded is not "
                    "asked again"
                )
                what = f"{self.path}: cannot be written ({error})"
                raise DataError(what, "a cassette that can be written", do) from None

    # -- for ask
    # -------------------------------------------------------------------------------------------------------

    def choose_digest(self, provider: str, model: str, on_server: str | None = None) -> str | None:
        """Say which weights are meant by a model name; None when nothing is recorded and the server
        was not asked.

        ``on_server`` is the digest the server gives now, or None when it was not asked or did not
        answer. Raises CallError for two digests under one name, and none chosen.
        """
        sql = "SELECT digest FROM models WHERE provider = ? AND model = ? ORDER BY digest"
        recorded = [row[0] for row in self.rows(sql, (provider, model))]
        of_model = partial(failure, "digest", model=f"{provider}:{model}")
        if self.digest is not None:
            if on_server not in (None, self.digest):
                raise of_model(
                    f"the server has {_short(on_server)}, Cassette(digest=...) says "
                    f"{_short(self.digest)}"
                )
            return self.digest
        if recorded == [""]:
            return (
                ""  # recorded of a server that did not say what it has; there is nothing to compare
            )
        if len(recorded) > 1:
            many = (
                f"{len(recorded)} different models of this name: {', '.join(map(_short, recorded))}"
            )
            raise of_model(f"{self.path.name} holds replies of {many}")
        if recorded and on_server not in (None, recorded[0]):
            what = f"recorded with {_short(recorded[0])}, the server now has {_short(on_server)}"
            do = (
                f"record into a new file, choose with Cassette(..., digest={on_server!r}), or "
                "pull the old model again"
            )
            raise of_model(f"two digests under one name: {self.path.name} was {what}", do=do)
        return next(iter(recorded), on_server)

    def register(self, provider: str, model: str, digest: str) -> None:
        """Note the digest of a model beside its name."""
        self._write("INSERT OR IGNORE INTO models VALUES (?, ?, ?)", (provider, model, digest))

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the recorded answers (and failures: ``ok`` False) by key. DataError for a reply
        that was changed.
        """
        wanted = list(keys)
        answers: dict[str, dict[str, Any]] = {}
        for start in range(0, len(wanted), _BATCH_SIZE):
            some = wanted[start : start + _BATCH_SIZE]
            sql = (
                "SELECT key, answer, checksum, prompt_id FROM replies WHERE key IN "
                f"({','.join('?' * len(some))})"
            )
            for key, answer, noted, prompt_id in self.rows(sql, some):
                if _checksum(answer) != noted:
                    what = (
                        f"{self.path}: the reply to prompt {prompt_id!r} was changed after "
                        "recording"
                    )
                    do = (
                        f"restore the file, or take out the row with key {key} to have the "
                        "prompt asked again"
                    )
                    raise DataError(what, "replies as they were recorded", do)
                answers[key] = json.loads(answer)  # with its own "ok": the column has no checksum
        return answers

    def put(
        self,
        key: str,
        request: str,
        answer: Mapping[str, Any],
        *,
        step: str = "",
        prompt_id: str = "",
    ) -> bool:
        """Record one answer or failure; False when an answer to this key was there (it stays).

        ``key`` and ``request`` are from ``Keys``; ``answer`` holds ``ok``, ``text``, ``usage`` ...
        """
        asked = json.loads(request)
        text = json.dumps(answer, separators=(",", ":"))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        names = (asked["provider"], asked["model"], asked["digest"])
        row = (key, int(answer["ok"]), step, prompt_id, *names, request, text, _checksum(text), now)
        return self._write(_INSERT, row) == 1

    def miss(self, ids: Sequence[str], model: str, of: int) -> CallError:
        """Build the error for prompts that are not on the cassette, in replay mode."""
        shown = ", ".join(map(repr, ids[:5]))
        if len(ids) > 5:
            shown += f" and {len(ids) - 5} more"
        detail = f"{len(ids)} of {of} prompts are not on {self.path.name}: prompt {shown}"
        return failure("miss", detail, "", model, do=self._how_to_record())

    def _how_to_record(self) -> str:
        command = self.command or "and the same command again"
        return f"record it, with the model's server running: {MODE_VARIABLE}=record {command}"

    # -- for people
    # ----------------------------------------------------------------------------------------------------

    def export(self, path: str | os.PathLike[str], keys: Collection[str] | None = None) -> int:
        """Write the rows (of these keys, or all) as JSON Lines, ``.gz`` too; return how many.

        They are sorted by key, so that the same rows give the same file.
        """
        written = 0
        with written_whole(path) as part, _lines(part, "w") as out:
            for row in self._each(_COLUMNS):
                if keys is None or row[0] in keys:
                    record: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
                    parsed = {name: json.loads(record[name]) for name in ("request", "answer")}
                    record |= {"ok": bool(record["ok"]), **parsed}
                    out.write((json.dumps(record) + "\n").encode())
                    written += 1
        return written

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Read JSON Lines that ``export`` wrote (``.gz`` too), return how many were new; what is
        here already stays.

        DataError with file and line for a damaged line; nothing of the file is then taken over.
        """
        if self.mode != "record":
            raise ConfigError(
                f"import into {self!r}", "a cassette in record mode", "open it with mode='record'"
            )
        number = added = 0
        with self._lock:
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                with _lines(path, "r") as lines:
                    for number, line in enumerate(lines, 1):  # noqa: B007
                        row = _row(json.loads(line))
                        added += self._write(_INSERT, row) == 1
                        self.register(*row[4:7])
                db.execute("COMMIT")
            except BaseException as error:
                db.rollback()  # or the replies that follow would be part of it, and lost
                if not isinstance(error, _DAMAGED):
                    raise
                what = f"{path}, line {max(number, 1)}: {type(error).__name__}: {error}"
                expected = "an unchanged line written by Cassette.export"
                raise DataError(what, expected, "take the export again") from None
        return added

    def verify(self) -> list[str]:
        """Check the file, every key against its request, every answer against its checksum; list
        what is wrong.
        """
        problems = [
            f"SQLite: {row[0]}" for row in self.rows("PRAGMA integrity_check") if row[0] != "ok"
        ]
        for key, prompt_id, *row in self._each(
            ("key", "prompt_id", "request", "answer", "checksum")
        ):
            where = f"prompt {prompt_id!r} (key {key[:12]})"
            problems += [f"{where}: {problem}" for problem in _problems(key, *row)]
        doubled = (
            "SELECT provider || ':' || model, count(*) FROM models GROUP BY 1 HAVING count(*) > 1"
        )
        return problems + [
            f"{model}: {count} digests under one name" for model, count in self.rows(doubled)
        ]


def _short(digest: str | None) -> str:
    return f"{digest[:12]}..." if digest and len(digest) > 12 else (digest or "(none)")


def _lines(path: str | os.PathLike[str], mode: str) -> IO[bytes]:
    """Open JSON Lines; a name that ends in .gz is compressed, the same rows to the same bytes."""
    if os.fspath(path).endswith(".gz"):
        return gzip.GzipFile(path, f"{mode}b", mtime=0)  # type: ignore[return-value]
    return open(path, f"{mode}b")


def _row(record: dict[str, Any]) -> tuple:
    """Return the cells of one exported line, checked."""
    answer = json.dumps(record["answer"], separators=(",", ":"))
    keys, *asked = _rebuilt(record["request"])
    request = keys.request(*asked)
    if problems := _problems(record["key"], request, answer, record["checksum"]):
        raise ValueError(problems[0])
    cells = {
        **record,
        **record["request"],
        "request": request,
        "answer": answer,
        "ok": int(record["ok"]),
    }
    return tuple(cells[name] for name in _COLUMNS)


def _open_to_write(path: Path) -> sqlite3.Connection:
    """Open or make a cassette; several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connect(path.absolute().as_uri())
    _refuse_other_files(db, path)
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            # Changing the journal needs the file alone, and SQLite does not wait for that by
            # itself.
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)
    db.execute("PRAGMA synchronous=NORMAL")
    db.executescript(_TABLES)
    return db


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    db = _connect(uri)
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        # A folder that cannot be written to has no room for the log's index; a closed cassette has
        # no log.
        db.close()
        db = _connect(f"{uri}&immutable=1")
    _refuse_other_files(db, path, must_exist=True)
    return db


def _refuse_other_files(db: sqlite3.Connection, path: Path, must_exist: bool = False) -> None:
    """Raise DataError when the file is SQLite, but no cassette of this format."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    noted = (
        db.execute("SELECT value FROM about WHERE name = 'format'").fetchone()
        if "about" in tables
        else None
    )
    if noted != (FORMAT,) and (tables or must_exist):
        found = f"format {noted[0]}" if noted else f"tables {', '.join(sorted(tables)) or 'none'}"
        what = f"{path}: an SQLite file, but no cassette of this version ({found})"
        raise DataError(what, f"a cassette of format {FORMAT}", "give another path")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=True
    )
