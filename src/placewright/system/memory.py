"""What memory this process takes, and a limit on it."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

from placewright.errors import ExecutionError
from placewright.units import format_bytes

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
# How torch, CUDA, NumPy, C++ and the threads of OpenMP say that there is no memory.
_SHORTAGE = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|can't allocate memory|not enough memory|"
    r"Cannot allocate memory|Unable to allocate|"
    r"bad_alloc|can't start new thread|Thread creation failed|Resource temporarily unavailable"
)
_AMOUNT = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class ShortageError(MemoryError):
    """`amount` bytes of memory are not there."""

    def __init__(self, amount: float) -> None:
        super().__init__(f"{format_bytes(amount)} more are not there")
        self.amount = amount


class Peak:
    """The most bytes of memory that this process takes, beyond what it had when this was made.

    Where the system does not forget an old peak (macOS), one from before may hide the newer.
    """

    def __init__(self) -> None:
        with suppress(OSError):
            _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
        self._before = _status("VmRSS") or _largest()

    @property
    def bytes(self) -> float:
        return max(peak_memory() - self._before, 0.0)


def peak_memory() -> int:
    """The most bytes of memory that this process has had.

    The kernel's own figure: getrusage counts what the parent had when it started this process.
    """
    return int(_status("VmHWM") or _largest())


def limit_memory(amount: float) -> None:
    """Let this process take `amount` bytes beyond what it has now; more fails to be allocated.

    Counted are the memory it may write to, shared libraries and files aside. ExecutionError on a
    system that does not count that (macOS).
    """
    if not sys.platform.startswith("linux"):
        raise ExecutionError("memory of a rank can only be limited on Linux")
    limit = int(_status("VmData") + amount)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def lift_limit() -> None:
    """Let this process take as much as it may again."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def missing_memory(error: BaseException | None) -> str | None:
    """If memory that is not there made `error`, how much is missing, in words; else None."""
    while error is not None:
        if isinstance(error, ShortageError):
            return str(error)
        if isinstance(error, MemoryError) or is_shortage(str(error)):
            amount = _AMOUNT.search(str(error))
            if amount is None:
                return "no more is there"
            return str(ShortageError(float(amount[1]) * _UNITS[amount[2]]))
        error = error.__cause__
    return None


def is_shortage(message: str) -> bool:
    """Whether these are the words of a library that found no memory."""
    return _SHORTAGE.search(message) is not None


def _status(field: str) -> float:
    """Bytes by the kernel's name for them; 0 where there are none."""
    try:
        found = re.search(rf"^{field}:\s*(\d+)\s*kB", _STATUS.read_text(encoding="ascii"), re.M)
    except OSError:
        return 0.0
    return 1024.0 * int(found.group(1)) if found else 0.0


def _largest() -> float:
    amount = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(amount if sys.platform == "darwin" else 1024 * amount)
