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
import logging
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from ragbench.errors import DataError, check_known
from ragbench.llm.failures import CallError
from ragbench.paths import refuse_stream, written_whole

log = logging.getLogger("ragbench.llm")
FORMAT = "ragbench-cassette-1"
MODES = ("record", "replay")
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
_OF_ANSWER = {"ok", "text", "raw", "finish", "seconds", "repairs", "attempts", "usage", "error"}
_MARKS = ",".join("?" * len(_COLUMNS))
_UPDATE = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
# The first answer to a key stays; a failure gives way.
_INSERT = (
    f"INSERT INTO replies VALUES ({_MARKS}) ON CONFLICT (key) DO UPDATE SET {_UPDATE} "
    "WHERE replies.ok = 0"
)
_WAIT_S = 10.0  # for another process that writes
# A forked process must not close the connection it was born with: that would touch its parent's
# log.
_inherited: list[sqlite3.Connection] = []


# -- keys

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


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

    @staticmethod
    def canonical(value: Any) -> str:
        """Write JSON in one way only: sorted names, no spaces, 0.0 as 0."""
        return _ENCODER.encode(_plain(value))

    def key(self, messages: Sequence[dict], schema: Mapping[str, Any] | None = None) -> str:
        """Return the sha256 (hex) for these messages and this JSON schema."""
        schema_text = "" if schema is None else _ENCODER.encode(schema)
        hashed = self._base.copy()
        text = f"{_ENCODER.encode(messages)}\n{schema_text}"
        hashed.update(text.encode("utf-8", "surrogatepass"))
        return hashed.hexdigest()

    def request(self, messages: Sequence[dict], schema: Mapping[str, Any] | None = None) -> str:
        """Return the request as stored: all that the key was made of."""
        if schema is not None:
            schema = json.loads(_ENCODER.encode(schema))  # its names sorted
        whole = {**self.who, "messages": messages, "schema": schema}
        return json.dumps(whole, separators=(",", ":"))


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _answer(text: Any, noted: str) -> dict[str, Any] | None:
    """Read an answer; None for one that was changed, or that `ask` has not written."""
    try:
        answer = json.loads(text)
        if _checksum(text) == noted and answer.keys() >= _OF_ANSWER:
            return answer
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    return None


def _problem(key: str, request: Mapping[str, Any], answer: str, noted: str) -> str:
    """Say what is wrong with a row: its key against its request, its answer against its checksum;
    "" for nothing.
    """
    keys = Keys(request["provider"], request["model"], request["digest"], request["options"])
    if keys.key(request["messages"], request["schema"]) != key:
        return "the key does not belong to the request"
    if _checksum(answer) != noted:
        return "the answer was changed after recording"
    return ""


# -- the file


class Cassette:
    """One file of recorded replies.

    Parameters
    ----------
    path : the file; made when it is not there (not in replay mode).
    mode : ``"record"`` (serve what is recorded, ask and record the rest) or ``"replay"`` (serve what
        is recorded, open no socket, a miss is an error). The environment variable RAGBENCH_CASSETTE
        wins over this argument, so that an unchanged notebook or script can be recorded anew.
    command : the command that records this cassette, named in the error on a miss.

    Notes
    -----
    Each reply is a transaction in SQLite's write-ahead log: a killed process leaves every finished
    reply, and several processes and threads may write at once.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> model = FakeListChatModel(responses=["Ada"])
    >>> with rb.Cassette("replies.sqlite") as cassette:
    ...     _ = rb.ask(model, ["Who?"], cassette=cassette, progress=False)
    ...     print(len(cassette))
    1
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str = "record",
        *,
        command: str = "",
    ) -> None:
        mode = os.environ.get(MODE_VARIABLE) or mode
        check_known("cassette mode", [mode], MODES)
        self.path = Path(path)
        self.mode = mode
        self.command = command
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
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
                self._db.close()
            self._db = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None:
            if self._pid == os.getpid():
                return self._db
            _inherited.append(self._db)
        if self.mode != "record" and not self.path.exists():
            raise DataError(
                f"{self.path}: no such cassette",
                "a recorded cassette (SQLite file)",
                self._how_to_record(),
            )
        refuse_stream(self.path)
        open_it = _open_to_write if self.mode == "record" else _open_to_read
        with self._readable():
            self._db = open_it(self.path)
            self._pid = os.getpid()
            return self._db

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """Read rows by SQL (tables ``replies``, ``models``, ``about``)."""
        with self._lock, self._readable():
            return self._connection().execute(sql, values).fetchall()

    def _each(self, sql: str) -> Iterator[tuple]:
        """Yield rows as they are read: a file of any size needs the memory of one."""
        with self._readable():
            yield from self._connection().execute(sql)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            self._refuse_lock(error)
            raise DataError(
                f"{self.path}: not readable as a cassette ({error})",
                f"a cassette of format {FORMAT}",
                "give another path, or restore the file from its JSONL export",
            ) from None

    def _write(self, sql: str, values: Any) -> int:
        with self._lock:
            try:
                return self._connection().execute(sql, values).rowcount
            except sqlite3.Error as error:
                self._refuse_lock(error)
                raise DataError(
                    f"{self.path}: cannot be written ({error})",
                    "a cassette that can be written",
                    "make room, change the rights or open it in record mode; what is recorded stays",
                ) from None

    def _refuse_lock(self, error: sqlite3.Error) -> None:
        """Raise DataError where another process has not let go of the file in time."""
        if str(error) == "database is locked":
            raise DataError(
                f"{self.path}: another process has kept it locked for {_WAIT_S:g} s",
                "a cassette that others hold for moments only",
                "end that process, then run again; what is recorded stays",
            ) from None

    # -- for ask

    def choose_digest(self, provider: str, model: str, on_server: str | None = None) -> str | None:
        """Say which weights are meant by a model name; None when nothing is recorded and the server
        was not asked.

        ``on_server`` is the digest the server gives now, or None when it was not asked or did not
        answer. Raises CallError where that is not one of those recorded.
        """
        sql = "SELECT digest FROM models WHERE provider = ? AND model = ? ORDER BY digest"
        recorded = [row[0] for row in self.rows(sql, (provider, model))]
        if not recorded or on_server in recorded:
            return on_server
        nothing_to_compare = not on_server or recorded == [""]
        if len(recorded) == 1 and nothing_to_compare:
            return recorded[0]
        shown = " and ".join(digest[:12] for digest in recorded)
        what = f"two digests under one name: {self.path.name} was recorded with {shown}"
        if on_server is not None:
            what += f", the server now has {on_server[:12]}"
        raise CallError.of("digest", what, model=f"{provider}:{model}")

    def register(self, provider: str, model: str, digest: str) -> None:
        """Note the digest of a model beside its name."""
        self._write("INSERT OR IGNORE INTO models VALUES (?, ?, ?)", (provider, model, digest))

    def withdraw(self, keys: Collection[str]) -> None:
        """Take out what was just recorded: the model was replaced under its name meanwhile."""
        sql = "DELETE FROM replies WHERE key IN (SELECT value FROM json_each(?))"
        self._write(sql, (json.dumps(list(keys)),))

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the recorded answers (and failures: ``ok`` False) by key. DataError for a reply
        that was changed.
        """
        return dict(self.answers(keys))

    def answers(self, keys: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what `get` returns, one after the other."""
        sql = (
            "SELECT key, answer, checksum, prompt_id FROM replies "
            "WHERE key IN (SELECT value FROM json_each(?))"
        )
        for key, text, noted, prompt_id in self.rows(sql, (json.dumps(list(keys)),)):
            # its own "ok" counts: the column has no checksum
            answer = _answer(text, noted)
            if answer is None:
                raise DataError(
                    f"{self.path}: the reply to prompt {prompt_id!r} was changed after recording",
                    "replies as they were recorded",
                    f"restore the file, or take out the row with key {key} to ask again",
                )
            yield key, answer

    def put(
        self,
        key: str,
        request: str,
        answer: Mapping[str, Any],
        *,
        step: str = "",
        prompt_id: str = "",
        recorded_at: str = "",
    ) -> bool:
        """Record one answer or failure; False when an answer to this key was there (it stays).

        ``key`` and ``request`` are from ``Keys``; ``answer`` holds ``ok``, ``text``, ``usage`` ...
        """
        body = json.loads(request)
        text = json.dumps(answer, separators=(",", ":"))
        when = recorded_at or datetime.now(UTC).isoformat(timespec="seconds")
        names = (step, prompt_id, body["provider"], body["model"], body["digest"])
        row = (key, answer["ok"], *names, request, text, _checksum(text), when)
        return self._write(_INSERT, row) == 1

    def miss(self, ids: Sequence[str], model: str, of: int) -> CallError:
        """Build the error for prompts that are not on the cassette, in replay mode."""
        shown = f"prompt {', '.join(map(repr, ids[:5]))}{' ...' * (len(ids) > 5)}"
        what = f"{len(ids)} of {of} prompts are not on {self.path.name}: {shown}"
        return CallError.of("miss", what, model=model, do=self._how_to_record())

    def _how_to_record(self) -> str:
        command = self.command or "and the same command again"
        return f"record it, with the model's server running: {MODE_VARIABLE}=record {command}"

    # -- for people

    def export(self, path: str | os.PathLike[str], keys: Collection[str] | None = None) -> int:
        """Write the rows (of these keys, or all) as JSON Lines, ``.gz`` too; return how many.

        They are sorted by key, so that the same rows give the same file.
        """
        written = 0
        with written_whole(path) as part, _lines(part, "w") as out:
            for row in self._each(f"SELECT {', '.join(_COLUMNS)} FROM replies ORDER BY key"):
                record: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
                if keys is not None and record["key"] not in keys:
                    continue
                texts = {name: json.loads(record[name]) for name in ("request", "answer")}
                record |= {"ok": bool(record["ok"]), **texts}
                out.write(f"{json.dumps(record)}\n".encode())
                written += 1
        return written

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Read JSON Lines that ``export`` wrote (``.gz`` too), return how many were new; what is
        here already stays.

        DataError with file and line for a damaged line; nothing of the file is then taken over.
        """
        number = added = 0
        with self._lock, self._connection():  # or what follows would be part of it, and lost
            self._write("BEGIN IMMEDIATE", ())
            try:
                with _lines(path, "r") as lines:
                    for number, line in enumerate(lines, 1):  # noqa: B007
                        added += self._take_over(json.loads(line))
            except Exception as error:
                raise DataError(
                    f"{path}, line {max(number, 1)}: {type(error).__name__}: {error}",
                    "an unchanged line written by Cassette.export",
                    "take the export again",
                ) from None
        return added

    def _take_over(self, record: dict[str, Any]) -> bool:
        """Write one exported line; whether it was new. ValueError for a damaged one."""
        body = record["request"]
        text = json.dumps(record["answer"], separators=(",", ":"))
        if problem := _problem(record["key"], body, text, record["checksum"]):
            raise ValueError(problem)
        self.register(body["provider"], body["model"], body["digest"])
        request = json.dumps(body, separators=(",", ":"))
        names = {name: record[name] for name in ("step", "prompt_id", "recorded_at")}
        return self.put(record["key"], request, record["answer"], **names)

    def verify(self) -> list[str]:
        """Check the file, every key against its request, every answer against its checksum; list
        what is wrong.
        """
        problems = [
            f"SQLite: {row[0]}" for row in self.rows("PRAGMA integrity_check") if row[0] != "ok"
        ]
        sql = "SELECT key, prompt_id, request, answer, checksum FROM replies ORDER BY key"
        for key, prompt_id, request, answer, noted in self._each(sql):
            problem = _problem(key, json.loads(request), answer, noted)
            if problem:
                problems.append(f"prompt {prompt_id!r} (key {key[:12]}): {problem}")
        sql = "SELECT provider || ':' || model, count(*) FROM models GROUP BY 1 HAVING count(*) > 1"
        problems += [f"{model}: {count} digests under one name" for model, count in self.rows(sql)]
        return problems


def _lines(path: str | os.PathLike[str], mode: str) -> IO[bytes]:
    """Open JSON Lines; a name that ends in .gz is compressed, the same rows to the same bytes."""
    refuse_stream(path)
    if os.fspath(path).endswith(".gz"):
        return gzip.GzipFile(path, f"{mode}b", mtime=0)  # type: ignore[return-value]
    return open(path, f"{mode}b")


def _open_to_write(path: Path) -> sqlite3.Connection:
    """Open or make a cassette; several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connect(path.absolute().as_uri())
    _refuse_other_files(db)
    with contextlib.suppress(sqlite3.OperationalError):  # another process is just setting it
        db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.executescript(_TABLES)
    return db


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    if not path.with_name(f"{path.name}-wal").exists():
        uri += "&immutable=1"  # closed, so its folder need not have room for a log's index
    db = _connect(uri)
    _refuse_other_files(db, must_exist=True)
    return db


def _refuse_other_files(db: sqlite3.Connection, *, must_exist: bool = False) -> None:
    """Raise sqlite3.DatabaseError for tables of another kind, before one of them is read: a view
    may never end.
    """
    # an index with SQL is not SQLite's own
    sql = "SELECT name, type FROM sqlite_master WHERE type != 'index' OR sql IS NOT NULL"
    kinds = dict(db.execute(sql))
    if not kinds and not must_exist:
        return
    columns = [row[1] for row in db.execute("PRAGMA table_xinfo(replies)")]
    noted = None
    are_tables = {*kinds.values()} == {"table"}
    if "about" in kinds and are_tables:
        noted = db.execute("SELECT value FROM about WHERE name = 'format'").fetchone()
    if noted != (FORMAT,) or tuple(columns) != _COLUMNS:
        shown = [f"{kind} {name}" for name, kind in kinds.items()] or ["no table"]
        raise sqlite3.DatabaseError(f"{', '.join(shown)}; replies has the columns {columns}")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=True
    )
