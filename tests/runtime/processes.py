"""The processes and files of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def left_in(folder: Path) -> list[Path]:
    """Directories of runs that nobody took away."""
    return list(folder.glob("placewright-*"))


def workers_of(process: Any) -> list[Any]:
    """The ranks that a process (of psutil) has started."""
    children = process.children(recursive=True)
    return [each for each in children if '"worker": "' in " ".join(each.cmdline())]
