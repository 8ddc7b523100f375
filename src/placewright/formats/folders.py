"""Writing folders so that one is there whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placewright.errors import FormatError
from placewright.formats.files import umask, writing


def check_new_folder(path: Path) -> None:
    """FormatError if `path` is there, unless as an empty folder, or has no directory to be in."""
    with writing(path):
        if not path.parent.is_dir():
            raise FormatError(f"{path}: there is no directory {path.parent}; make it first")
        if path.is_dir() and any(path.iterdir()):
            raise FormatError(f"{path}: is a folder with files in it; name a new folder")
        if path.exists() and not path.is_dir():
            raise FormatError(f"{path}: is a file; name a new folder")


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to write into, which is at `path` once the ``with`` block has ended well.

    It is beside `path` until then, and gone if the block fails.
    """
    target = Path(path)
    check_new_folder(target)
    with writing(target):
        target = target.resolve()
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        with writing(path):
            yield temporary
            temporary.chmod(0o777 & ~umask())
            temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
