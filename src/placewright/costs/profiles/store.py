"""The profile store: what was measured on this machine and others, in one SQLite file.

>>> key = ProfileKey("aten.relu.default(fp32[8])", "NVIDIA H200", "torch 2.13.0")
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, ProfileStore(f"{folder}/profiles") as store:
...     store.put({key: Measured(2e-6, 1e-6, 3e-6, 20, "context")})
...     store.get([key])[key].seconds
1
2e-06
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from platformdirs import user_data_path

from placewright.costs.profiles.database import (
    FORMAT,
    damaged,
    empty_database,
    explained,
    is_locked,
    open_database,
    transaction,
)
from placewright.costs.profiles.entry import (
    DeviceFigures,
    Measured,
    ProfiledProgram,
    ProfileGroup,
    ProfileKey,
    moment_text,
)
from placewright.errors import ProfileError

__all__ = ["FORMAT", "ProfileStore", "default_path"]

VARIABLE = "PLACEWRIGHT_PROFILES"
_AT_ONCE = 500  # signatures in one query; SQLite may be built to take no more than 999
_HALVES = re.compile("[\ud800-\udfff]")  # of characters: what SQLite takes for no text
_COLUMNS = tuple(field.name for field in fields(Measured))
_FIGURES = ", ".join(_COLUMNS)
_ON_CONFLICT = (
    "ON CONFLICT (place, signature) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)
    + " WHERE excluded.method <> 'regressed' OR measurement.method = 'regressed'"
)
_ALL = "measurement JOIN place ON measurement.place = place.id"


def default_path() -> Path:
    """The user's store: what ``PLACEWRIGHT_PROFILES`` says, else in the user's data folder."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else user_data_path("placewright") / "profiles.sqlite"


class ProfileStore:
    """Measurements by key, in the file `path`, or the user's store where none is given.

    One that is not there is made if it is `writable`. Otherwise the user's counts as empty, and a
    given one is a ProfileError, as is every fault of the file. Many processes may use a file at
    once; a store goes on in a process that is forked off.
    """

    def __init__(self, path: str | Path | None = None, *, writable: bool = True) -> None:
        self.path = default_path() if path is None else Path(path)
        self.writable = writable
        self._may_be_absent = path is None
        self._inherited: list[sqlite3.Connection] = []  # to close them is for the other process
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def get(self, keys: Iterable[ProfileKey]) -> dict[ProfileKey, Measured]:
        """What there is of `keys`."""
        by_place: dict[tuple[str, str], dict[str, ProfileKey]] = {}
        for key in keys:
            by_place.setdefault((key.device, key.library), {})[key.signature] = key
        found: dict[ProfileKey, Measured] = {}
        with self._used() as connection:
            for place, wanted in by_place.items():
                number = _place(connection, *place)
                for some in _portions(list(wanted)) if number is not None else ():
                    rows = connection.execute(
                        f"SELECT signature, {_FIGURES} FROM measurement WHERE place = ? "
                        f"AND signature IN ({', '.join('?' * len(some))})",
                        (number, *some),
                    )
                    for signature, *figures in rows:
                        found[wanted[signature]] = self._measured(figures)
        return found

    def put(self, measured: Mapping[ProfileKey, Measured]) -> int:
        """Keep all of these or, if it fails, none; how many of them were new.

        A key that is there already is given the new figures, but what was measured goes before
        what was regressed, and is new in its place.
        """
        self._check_writable()
        now = moment_text(datetime.now(UTC))
        with self._used() as connection, transaction(connection):
            known = sum(
                measured[key].method == "regressed" or there.method != "regressed"
                for key, there in self.get(measured).items()
            )
            places: dict[tuple[str, str], int] = {}
            rows = []
            for key, each in measured.items():
                place = (key.device, key.library)
                if place not in places:
                    places[place] = _make_place(connection, *place)
                if not each.measured_at:
                    each = replace(each, measured_at=now)
                figures = (getattr(each, name) for name in _COLUMNS)
                rows.append((places[place], key.signature, *figures))
            connection.executemany(
                f"INSERT INTO measurement (place, signature, {_FIGURES}) "
                f"VALUES (?, ?{', ?' * len(_COLUMNS)}) {_ON_CONFLICT}",
                rows,
            )
        return len(measured) - known

    def groups(
        self,
        *,
        device: str | None = None,
        library: str | None = None,
        op: str | None = None,
        before: datetime | None = None,
    ) -> list[ProfileGroup]:
        """What there is, by device and library; chosen as for `entries` and `prune`."""
        where, values = _where(device, library, op, before)
        with self._used() as connection:
            rows = connection.execute(
                f"SELECT device, library, count(*), min(measured_at), max(measured_at) FROM {_ALL} "
                f"{where} GROUP BY device, library ORDER BY device, library",
                values,
            )
            return [ProfileGroup(*row) for row in rows]

    def entries(
        self, *, device: str | None = None, library: str | None = None, op: str | None = None
    ) -> Iterator[tuple[ProfileKey, Measured]]:
        """The slowest first: those whose device, library and op's name contain the texts given.

        Upper and lower case are the same.
        """
        where, values = _where(device, library, op, None)
        with self._used() as connection:
            rows = connection.execute(
                f"SELECT signature, device, library, {_FIGURES} FROM {_ALL} {where} "
                "ORDER BY seconds DESC, signature, device, library",
                values,
            )
            for signature, of_device, of_library, *figures in rows:
                yield ProfileKey(signature, of_device, of_library), self._measured(figures)

    def prune(
        self,
        *,
        device: str | None = None,
        library: str | None = None,
        op: str | None = None,
        before: datetime | None = None,
    ) -> int:
        """Delete what `entries` would give of that, measured before a moment; how many it was.

        The file shrinks, unless another process is using it.
        """
        self._check_writable()
        where, values = _where(device, library, op, before)
        with self._used() as connection:
            with transaction(connection):
                deleted = connection.execute(
                    "DELETE FROM measurement WHERE (place, signature) IN "
                    f"(SELECT place, signature FROM {_ALL} {where})",
                    values,
                ).rowcount
                connection.execute(
                    "DELETE FROM place WHERE id NOT IN (SELECT place FROM measurement)"
                )
                connection.execute(
                    "DELETE FROM figures WHERE device NOT IN (SELECT device FROM place)"
                )
                # What lacks a call is no whole program any more.
                connection.execute(
                    "DELETE FROM program WHERE (name, library) IN (SELECT name, library "
                    "FROM program WHERE signature NOT IN (SELECT signature FROM measurement))"
                )
            try:
                connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                if not is_locked(error):
                    raise
        return deleted

    # -- what measurements are about ---------------------------------------------------------

    def put_figures(self, device: str, figures: DeviceFigures) -> None:
        """Keep what a device is said to reach; the newest counts."""
        self._check_writable()
        with self._used() as connection, transaction(connection):
            connection.execute(
                "INSERT OR REPLACE INTO figures VALUES (?, ?)", (device, figures.to_json())
            )

    def figures(self) -> dict[str, DeviceFigures]:
        """What is known of the devices, by their names."""
        with self._used() as connection:
            rows = connection.execute("SELECT device, figures FROM figures").fetchall()
        try:
            return {device: DeviceFigures.from_json(text) for device, text in rows}
        except ProfileError as error:
            raise ProfileError(f"{self.path}: {damaged(str(error))}") from None

    def put_program(self, program: ProfiledProgram) -> None:
        """Keep which calls a program makes, in the place of what was known of its name."""
        self._check_writable()
        named = (program.name, program.library)
        with self._used() as connection, transaction(connection):
            connection.execute("DELETE FROM program WHERE name = ? AND library = ?", named)
            connection.executemany(
                "INSERT INTO program VALUES (?, ?, ?, ?)",
                [(*named, signature, count) for signature, count in program.calls.items()],
            )

    def programs(self) -> list[ProfiledProgram]:
        """The programs that were profiled, in the order of their names."""
        calls: dict[tuple[str, str], dict[str, int]] = {}
        with self._used() as connection:
            for name, library, signature, count in connection.execute(
                "SELECT name, library, signature, calls FROM program ORDER BY name, library"
            ):
                calls.setdefault((name, library), {})[signature] = count
        return [ProfiledProgram(*named, found) for named, found in calls.items()]

    def _check_writable(self) -> None:
        if not self.writable:
            raise ProfileError(f"{self.path}: was opened for reading; open it as writable")

    def _open(self) -> None:
        self._process = os.getpid()
        if self._may_be_absent and not self.writable and not self.path.exists():
            self._connection = empty_database()
        else:
            self._connection = open_database(self.path, self.writable)

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """This process's connection; what SQLite has against the file is a ProfileError."""
        if self._process != os.getpid():
            self._inherited.append(self._connection)
            self._open()
        with explained(self.path):
            yield self._connection

    def _measured(self, figures: list[Any]) -> Measured:
        try:
            return Measured(*figures)
        except (ProfileError, TypeError) as error:
            raise ProfileError(f"{self.path}: {damaged(str(error))}") from None


def _portions(signatures: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(signatures), _AT_ONCE):
        yield signatures[start : start + _AT_ONCE]


def _place(connection: sqlite3.Connection, device: str, library: str) -> int | None:
    row = connection.execute(
        "SELECT id FROM place WHERE device = ? AND library = ?", (device, library)
    ).fetchone()
    return None if row is None else int(row[0])


def _make_place(connection: sqlite3.Connection, device: str, library: str) -> int:
    connection.execute("INSERT OR IGNORE INTO place (device, library) VALUES (?, ?)",
                       (device, library))  # fmt: skip
    place = _place(connection, device, library)
    assert place is not None
    return place


def _where(
    device: str | None, library: str | None, op: str | None, before: datetime | None
) -> tuple[str, list[str]]:
    """A condition on the rows of all, and its values."""
    given = {
        "contains(device, ?)": device,
        "contains(library, ?)": library,
        "contains(op_name(signature), ?)": op,
        "measured_at < ?": None if before is None else moment_text(before),
    }
    conditions = [condition for condition, value in given.items() if value is not None]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    values = [value for value in given.values() if value is not None]
    return where, [_HALVES.sub("\ufffd", value) for value in values]
