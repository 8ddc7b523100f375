"""Compiled kernels on disk, shared by processes: each is compiled by one of them.

Numba keeps what it compiles. But processes that begin at the same time find nothing there yet, and
each of them compiles all that it needs: the workers of a first run, say, or those of the tests.
Here a process that needs a kernel while another compiles it waits, and takes what that one made.

What is kept counts for the source it was made from. Numba knows the file of the kernel alone; a
part of the kernel may be in another, which a new version of the package changes by itself.
"""

from __future__ import annotations

import hashlib
import re
import time
from functools import cache
from pathlib import Path
from typing import IO, Any

MOST_SECONDS = 120.0  # to wait for a process: it may have been stopped
LISTENING = 0.02  # seconds between two looks

FOLDER = Path(__file__).parent
IMPORTED = re.compile(r"^from placewright\.kernels\.([\w.]+) import", re.MULTILINE)


def keep(compiled: Any, function: Any) -> None:
    """Give a kernel its cache, and have it compiled by one process at a time."""
    from numba.core.compiler_lock import global_compiler_lock

    kept, compile_now = _kept(function), compiled.compile

    def compile_alone(signature: Any) -> Any:
        with global_compiler_lock:  # of the threads of this process
            outermost = not kept.turn.held  # a kernel may call itself
            try:
                return compile_now(signature)
            finally:
                if outermost:
                    kept.turn.release()

    compiled._cache, compiled.compile = kept, compile_alone


def _kept(function: Any) -> Any:
    """Numba's cache of a kernel: who finds nothing in it has its turn to compile.

    Numba numbers what it keeps by what the index holds: two processes that add to it at the same
    time may give theirs the same number, and one is taken for the other afterwards.
    """
    from numba.core.caching import FunctionCache, IndexDataCacheFile

    class Files(IndexDataCacheFile):
        """Files that cannot be read count as none: cut short, or written by another version.

        What stands in them are pickles, which fail in many ways.
        """

        def _load_index(self) -> dict[Any, str]:
            try:
                return dict(super()._load_index())
            except Exception:
                return {}

        def _load_data(self, name: str) -> Any:
            try:
                return super()._load_data(name)
            except Exception as error:
                raise OSError(f"{name} cannot be read") from error

    class Kept(FunctionCache):
        def __init__(self, function: Any) -> None:
            super().__init__(function)
            folder = Path(self.cache_path)
            file = Path(function.__code__.co_filename)
            # In an archive numba's own stamp is that of all that is in it.
            stamp = stamp_of(file) if file.exists() else self._impl.locator.get_source_stamp()
            self._cache_file = Files(self.cache_path, self._impl.filename_base, stamp)
            self.turn = Lock(folder / f"{self._impl.filename_base}.lock")
            self._adding = Lock(folder / "lock")

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            found = super().load_overload(sig, target_context)
            if found is not None or self.turn.held:
                return found
            self.turn.take()
            return super().load_overload(sig, target_context)

        def save_overload(self, sig: Any, data: Any) -> None:
            self._adding.take()
            try:
                super().save_overload(sig, data)
            finally:
                self._adding.release()

    return Kept(function)


@cache
def stamp_of(file: Path, folder: Path = FOLDER) -> str:
    """Changes with a file's source, and that of all files of the `folder` whose kernels it uses."""
    source = file.read_text("utf-8")
    stamp = hashlib.sha256(source.encode())
    for module in sorted(set(IMPORTED.findall(source))):
        imported = folder.joinpath(*module.split(".")).with_suffix(".py")
        if imported.exists():  # not a folder of them, whose first file holds none
            stamp.update(stamp_of(imported, folder).encode())
    return stamp.hexdigest()


class Lock:
    """A file that one process at a time holds; when that process ends, it is free.

    Where the system has no such locks, or the folder cannot be written, nobody waits.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._file is not None

    def take(self) -> None:
        """Hold it once no other process does; if that takes too long, do without."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("w")
        except OSError:
            return
        try:
            taken = _locked(file) or _locked_in_time(file)
        except BaseException:
            file.close()
            raise
        if taken:
            self._file = file
        else:
            file.close()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _locked_in_time(file: IO[str]) -> bool:
    """To wait for a kernel is to compile, for those who measure that or tell of it."""
    from numba.core import event

    until = time.monotonic() + MOST_SECONDS
    with event.trigger_event("numba:compile"):
        while time.monotonic() < until:
            time.sleep(LISTENING)
            if _locked(file):
                return True
    return False


def _locked(file: IO[str]) -> bool:
    """Whether nobody else holds the file, which this process then does."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # no such locks here
        return True
    return True
