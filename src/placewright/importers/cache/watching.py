"""What a factory of the user's own is made from: modules that it loads, files that Python opens."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

LARGEST_FILE = 64 * 2**20
"""Bytes of a file beyond which its content is not looked at, and so the import is not kept."""


class Watch:
    """Files that were read in the block that `watched` makes; see `files`."""

    def __init__(self) -> None:
        self.opened: set[str] = set()
        self.began = time.time()
        self.loaded_before = own_modules()

    def files(self) -> list[Path] | None:
        """The sources of one's own modules and the files that were read; installed ones left out.

        None where they do not tell all: a module of one's own was loaded before, and its file
        may have changed since; a file has changed meanwhile, or is too large to look at.
        """
        if self.loaded_before:
            return None
        read = {Path(name) for name in self.opened if not name.endswith(".pyc")}
        found = sorted(own_modules() | {path for path in read if not _is_installed(path)})
        if any(path.is_file() and not self._is_settled(path) for path in found):
            return None
        return [path for path in found if not path.is_dir()]

    def _is_settled(self, path: Path) -> bool:
        facts = path.stat()
        return facts.st_size <= LARGEST_FILE and facts.st_mtime < self.began


@contextmanager
def watched() -> Iterator[Watch]:
    """Take down which files Python opens for reading meanwhile, on any thread."""
    _listen()
    watch = Watch()
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)


def own_modules() -> set[Path]:
    """Sources of the modules that are loaded and are neither Python's, installed nor ours."""
    names = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = {Path(name).absolute() for name in names if isinstance(name, str)}
    return {path for path in paths if not _is_installed(path)}


_watches: list[Watch] = []


@cache
def _listen() -> None:
    """A hook of Python cannot be taken away again, so there is one, which mostly does nothing."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _watches:
        return
    name, _, flags = arguments
    writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if isinstance(name, (str, os.PathLike)) and not writes:
        for watch in _watches:
            watch.opened.add(os.path.abspath(name))  # noqa: PTH100  (Path would be slow here)


def _is_installed(path: Path) -> bool:
    return str(path).startswith(_installed()) or not path.is_absolute()


@cache
def _installed() -> tuple[str, ...]:
    """Folders, with a separator behind, of what has a version of its own, or belongs to none."""
    known = sysconfig.get_paths()
    places = [known[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    places += [str(Path(__file__).parents[2]), "/dev", "/proc", "/sys"]
    resolved = [str(Path(place).resolve()) for place in places]
    return tuple({f"{place}{os.sep}" for place in (*places, *resolved)})
