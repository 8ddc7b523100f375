"""Teams of threads that GNU's OpenMP keeps, by which torch computes on CPUs.

Every thread that computes in parallel has a team of its own, which stays. Between two ops a team
waits by spinning, but only while all teams of the process together are no more threads than there
are cores; else it soon sleeps, and to wake it takes as long as many ops do. (ResNet-50 on a thread
with 16 cores took 34 ms beside a main thread that had computed before, and 22 ms without its team.)
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_LOADED = Path("/proc/self/maps")
_HARD = 2  # omp_pause_hard: OpenMP 5.0, §3.2.43


def release_team() -> None:
    """End the team of the calling thread, which computes nothing now.

    The next op that it computes in parallel makes a new one. Nothing happens where it has none, or
    where another OpenMP is used, or one that cannot be asked to.
    """
    for path in sorted(_libraries()):
        pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)  # since GCC 9
        if pause is not None:
            pause(_HARD)


def _libraries() -> set[str]:
    """The files of GNU's OpenMP in this process: packages bring their own."""
    try:
        lines = _LOADED.read_text().splitlines()
    except OSError:  # macOS
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if "libgomp" in line}
    return {path for path in paths if Path(path).is_file()}
