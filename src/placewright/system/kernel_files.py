"""What Linux and its drivers say in files, below /proc and /sys."""

from __future__ import annotations

from pathlib import Path


def text_of(path: str | Path) -> str:
    """The content of a file of the system, empty where there is none."""
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""
