"""Whatever is wrong with a store: one sentence that names the file, and the file as it was."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from placewright.costs.profiles import database
from placewright.costs.profiles.database import APPLICATION, FORMAT
from placewright.costs.profiles.entry import ProfiledProgram
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ProfileError
from tests.costs.profiles.profiles import FOUR, store_of_four


def statements(*statements: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return change


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def undescribed(path: Path) -> None:
    content = path.read_bytes()
    assert b"WITHOUT ROWID" in content
    path.write_bytes(content.replace(b"WITHOUT ROWID", b"WITHOUT \xff\xff\xff\xff\xff"))


def unlike(path: Path) -> None:
    path.unlink()
    statements("CREATE TABLE other (x)")(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "of a newer version": (
        statements(f"PRAGMA user_version = {FORMAT + 1}"),
        f"version {FORMAT + 1}, this version of placewright reads {FORMAT}; update placewright",
    ),
    "with another thing for figures": (
        statements("INSERT INTO figures VALUES ('H200', '[]')"), "damaged"
    ),
    "without a version": (statements("PRAGMA user_version = 0"), "damaged"),
    "without a table": (statements("DROP TABLE measurement"), "damaged"),
    "with impossible figures": (statements("UPDATE measurement SET low = -1"), "damaged"),
    "with text for a number": (statements("UPDATE measurement SET low = 'x'"), "damaged"),
    "with text that is none": (
        statements("UPDATE measurement SET method = CAST(x'ff' AS TEXT)"), "damaged"
    ),
    "with a table described by no text": (undescribed, "damaged"),
    "of another program": (unlike, "no store of profiles"),
    "text": (lambda path: path.write_text("format: none\n" * 100), "no SQLite file"),
    "a few bytes": (lambda path: path.write_bytes(b"SQLite"), "no SQLite file"),
    "cut short": (cut, "damaged"),
    "overwritten": (overwritten, "damaged"),
    "a folder": (folder, "is no file"),
    "a pipe": (pipe, "is no file"),
}  # fmt: skip


@pytest.mark.parametrize("writable", [True, False], ids=["writing", "reading"])
@pytest.mark.parametrize(("change", "what"), BAD.values(), ids=BAD)
def test_a_bad_store_is_refused_and_left_alone(
    tmp_path: Path, change: Callable[[Path], object], what: str, writable: bool
):
    path = store_of_four(tmp_path / "profiles")
    change(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ProfileError) as caught, ProfileStore(path, writable=writable) as store:
        store.groups()
        store.get(FOUR)
        store.figures()
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert what in message
    assert "give another file" in message
    assert "\n" not in message
    assert before is None or path.read_bytes() == before


def test_a_file_to_read_must_be_there(tmp_path: Path):
    with pytest.raises(ProfileError, match="no such file; measure or import"):
        ProfileStore(tmp_path / "none", writable=False)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(ProfileError, match="cannot be written"):
        ProfileStore(tmp_path / "file" / "profiles")


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path):
    for name in ("x" * 1000, "nul\0"):
        for writable in (True, False):
            with pytest.raises(ProfileError, match=r"cannot be (read|written)"):
                ProfileStore(tmp_path / name, writable=writable)


def test_an_empty_file_is_an_empty_store(tmp_path: Path):
    """What a process leaves that ends while it makes one."""
    path = tmp_path / "profiles"
    path.touch()
    with ProfileStore(path, writable=False) as store:
        assert store.get(FOUR) == {}
    assert path.stat().st_size == 0
    with ProfileStore(path) as store:
        assert store.put(FOUR) == 4


def test_a_lock_is_waited_for_and_then_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    path = store_of_four(tmp_path / "profiles")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ProfileStore(path) as store:
        assert store.get(FOUR) == FOUR  # readers need not wait
        with pytest.raises(ProfileError, match=r"keeps it locked for more than 0\.2 s; wait until"):
            store.put(FOUR)
        other.execute("ROLLBACK")
        assert store.put(FOUR) == 0
    other.close()


def test_pruning_does_without_shrinking_where_another_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    path = store_of_four(tmp_path / "profiles")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM measurement").fetchall()
    with ProfileStore(path) as store:
        assert store.prune(op="relu") == 2
        assert len(list(store.entries())) == 2
    other.close()


TO_VERSION_1 = (
    *(f"ALTER TABLE measurement DROP COLUMN {column}"
      for column in ("flops", "bytes_read", "bytes_written", "dtype", "bytes_before")),
    "DROP TABLE figures", "DROP TABLE program", "PRAGMA user_version = 1",
)  # fmt: skip


def test_a_store_of_version_1_is_read_and_becomes_one_of_today(tmp_path: Path):
    path = store_of_four(tmp_path / "profiles")
    statements(*TO_VERSION_1)(path)
    with ProfileStore(path, writable=False) as store:
        assert store.get(FOUR) == FOUR
        assert store.programs() == []
    assert path.read_bytes()[60:64] == (1).to_bytes(4, "big")
    with ProfileStore(path) as store:
        store.put_program(ProfiledProgram("hf:bert", "torch", {"a": 1}))
        assert store.get(FOUR) == FOUR
    assert path.read_bytes()[60:64] == FORMAT.to_bytes(4, "big")


def test_stores_tell_themselves_by_their_header(tmp_path: Path):
    header = store_of_four(tmp_path / "profiles").read_bytes()[:100]
    assert header[68:72] == APPLICATION.to_bytes(4, "big") == b"pwpr"
    assert header[60:64] == FORMAT.to_bytes(4, "big")


def test_a_copy_with_its_log_holds_what_is_in_the_log(tmp_path: Path):
    path = tmp_path / "profiles"
    with ProfileStore(path) as store:
        store.put(FOUR)
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{tmp_path / 'copy'}{suffix}")
    with ProfileStore(tmp_path / "copy", writable=False) as store:
        assert store.get(FOUR) == FOUR
