"""The SQLite file of a store: opening it, and what is wrong with it in one sentence.

``place`` holds devices and libraries, ``measurement`` a row per op measured there, ``figures``
what a device is said to reach, and ``program`` which calls a source makes, how often. Writers use a
log beside the file (WAL): readers never wait, and whatever ends a process leaves what it committed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placewright.costs.profiles.entry import op_name
from placewright.errors import ProfileError, reason

FORMAT = 2
APPLICATION = int.from_bytes(b"pwpr", "big")
PATIENCE = 10.0  # seconds that another process may hold the lock
ANOTHER = "give another file (--profiles, or PLACEWRIGHT_PROFILES)"
WRITABLE = f"see that there is space and that file and folder can be written, or {ANOTHER}"
_ADDED_BY_2 = (
    *(
        f"ALTER TABLE measurement ADD COLUMN {column}"
        for column in (
            "flops REAL NOT NULL DEFAULT 0",
            "bytes_read REAL NOT NULL DEFAULT 0",
            "bytes_written REAL NOT NULL DEFAULT 0",
            "dtype TEXT NOT NULL DEFAULT ''",
            "bytes_before REAL NOT NULL DEFAULT 0",
        )
    ),
    "CREATE TABLE figures (device TEXT PRIMARY KEY, figures TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE program (
        name TEXT NOT NULL, library TEXT NOT NULL, signature TEXT NOT NULL, calls INTEGER NOT NULL,
        PRIMARY KEY (name, library, signature)
    ) WITHOUT ROWID""",
    f"PRAGMA user_version = {FORMAT}",
)
_TABLES = (
    """CREATE TABLE place (
        id INTEGER PRIMARY KEY, device TEXT NOT NULL, library TEXT NOT NULL,
        UNIQUE (device, library)
    )""",
    """CREATE TABLE measurement (
        place INTEGER NOT NULL REFERENCES place, signature TEXT NOT NULL,
        seconds REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL, samples INTEGER NOT NULL,
        method TEXT NOT NULL, memory REAL NOT NULL, measured_at TEXT NOT NULL,
        PRIMARY KEY (place, signature)
    ) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION}",
    *_ADDED_BY_2,
)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNWRITABLE = (
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
)  # fmt: skip


def open_database(path: Path, writable: bool) -> sqlite3.Connection:
    """The store at `path`, made if it is `writable` and not there; ProfileError names the fault."""
    _check_file(path, writable)
    with explained(path):
        connection = _connect(path, writable)
        try:
            version = _version(connection, path)
            if version == 0 and not writable:  # whoever made it has not come further
                connection.close()
                connection = empty_database()
            elif writable:
                _prepare(connection, path)
            elif version < FORMAT:
                connection = _in_memory(connection)
                _run(connection, _ADDED_BY_2)
        except BaseException:
            connection.close()
            raise
    return _with_functions(connection)


def empty_database() -> sqlite3.Connection:
    """A store that holds nothing, and is not kept."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _run(connection, _TABLES)
    return _with_functions(connection)


def _run(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(statement)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What SQLite has against the store at `path` is a ProfileError."""
    try:
        yield
    except sqlite3.ProgrammingError:  # no fault of the file
        raise
    except sqlite3.Error as error:
        raise ProfileError(f"{path}: {_fault(error)}") from None
    except UnicodeDecodeError as error:  # of a text in it, or of SQLite's words on one
        raise ProfileError(f"{path}: {damaged(reason(error))}") from None


def is_locked(error: sqlite3.Error) -> bool:
    return _code(error) in _LOCKED


def _code(error: sqlite3.Error) -> int:
    """The kind of error, without what SQLite's extended codes add; 0 if it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _fault(error: sqlite3.Error) -> str:
    code = _code(error)
    if code in _LOCKED:
        return (
            f"another process keeps it locked for more than {PATIENCE:g} s; wait until that has "
            f"ended, or {ANOTHER}"
        )
    if code in _UNWRITABLE:
        return f"cannot be opened or written ({reason(error)}); {WRITABLE}"
    if code == sqlite3.SQLITE_NOTADB:
        return f"is no SQLite file, so no store of profiles; {ANOTHER}"
    return damaged(reason(error))


def damaged(why: str) -> str:
    return f"is damaged ({why}); delete it or put a copy in its place, or {ANOTHER}"


def _check_file(path: Path, writable: bool) -> None:
    """ProfileError unless there is a file to open, or a folder to make it in."""
    try:
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.stat()  # `exists` and SQLite take names that no file can have for others
        if not path.exists() and not writable:
            raise ProfileError(
                f"{path}: no such file; measure or import profiles first, or {ANOTHER}"
            )
        if path.exists() and not path.is_file():  # SQLite would wait for a pipe for ever
            raise ProfileError(f"{path}: is no file; {ANOTHER}")
        if not writable:
            with path.open("rb"):
                return
        if not all(os.access(each, os.W_OK) for each in (path, path.parent) if each.exists()):
            raise ProfileError(f"{path}: cannot be written; {WRITABLE}")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        what = "written" if writable else "read"
        raise ProfileError(f"{path}: cannot be {what} ({why}); {ANOTHER}") from None


def _connect(path: Path, writable: bool) -> sqlite3.Connection:
    if writable:
        return _connection(path, "rwc")
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        connection = _connection(path, "rw")  # else what SQLite makes beside it would be left there
        connection.execute("PRAGMA query_only = ON")
        return connection
    if Path(f"{path}-shm").exists():  # somebody may be writing to it
        connection = _connection(path, "ro")
        try:
            connection.execute("SELECT * FROM sqlite_master").fetchall()
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            if _code(error) not in _UNWRITABLE:
                raise
    return _copied(path)


def _copied(path: Path) -> sqlite3.Connection:
    """A store in memory with what is in that at `path`, where SQLite could make no files."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "profiles"
        for suffix in ("-wal", ""):
            if (part := Path(f"{path}{suffix}")).exists():
                shutil.copyfile(part, f"{copy}{suffix}")
        return _in_memory(_connection(copy, "rw"))


def _in_memory(source: sqlite3.Connection) -> sqlite3.Connection:
    """A copy of a store that is not kept; `source` is closed."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        source.backup(connection)
    finally:
        source.close()
    return connection


def _connection(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, timeout=PATIENCE, isolation_level=None, uri=True)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Its version, 0 if nothing is in it yet; ProfileError if it is no store that we can read."""
    application, version, tables = (
        connection.execute(f"{what}").fetchone()[0]
        for what in (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_master",
        )
    )
    if application == version == tables == 0:
        return 0
    if application != APPLICATION:
        raise ProfileError(f"{path}: is a SQLite file, but no store of profiles; {ANOTHER}")
    if version > FORMAT:
        raise ProfileError(
            f"{path}: is a store of version {version}, this version of placewright reads {FORMAT}; "
            f"update placewright, or {ANOTHER}"
        )
    if version < 1 or tables == 0:
        raise ProfileError(f"{path}: {damaged(f'version {version}, {tables} tables')}")
    return int(version)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or what an older store lacks, and have it keep a log."""
    if _version(connection, path) < FORMAT:
        with transaction(connection):  # another process may have just done so
            version = _version(connection, path)
            _run(connection, () if version == FORMAT else _ADDED_BY_2 if version else _TABLES)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if not is_locked(error):  # else whoever opens it alone next does this
            raise


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written in here, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _with_functions(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.create_function("op_name", 1, op_name, deterministic=True)
    connection.create_function("contains", 2, _contains, deterministic=True)
    return connection


def _contains(text: str, part: str) -> bool:
    return part.casefold() in text.casefold()
