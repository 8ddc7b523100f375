"""What memory this process takes, and a limit on it."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

from placewright.errors import ExecutionError

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


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
        return max((_status("VmHWM") or _largest()) - self._before, 0.0)


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
