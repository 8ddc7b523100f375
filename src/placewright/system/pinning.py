"""Running on chosen logical CPUs: this process's affinity, and torch's threads."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from placewright.errors import ClusterError
from placewright.units import listed

_THREADS = Path("/proc/self/task")


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """This process on the logical CPUs `cores`, with as many threads of torch; as it was after.

    Where the system pins no process (macOS), only the threads are set; torch's only if it is
    imported. ClusterError names the cores that are not there for this process.
    """
    wanted = frozenset(cores)
    _refuse(wanted - _possible())
    if not wanted:
        raise ClusterError("no core to run on is given; give at least one")
    before = _affinities()
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    try:
        _refuse(wanted - _moved(wanted))
        if torch:
            torch.set_num_threads(len(wanted))
        yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        own = before.get(threading.get_native_id(), frozenset())
        for thread in _affinities():  # one that began meanwhile goes where this one was
            _set_affinity(thread, before.get(thread, own))


def move_to(cores: Sequence[int]) -> None:
    """Go on on other `cores`, with as many threads of torch: for code that runs under `pinned`."""
    wanted = frozenset(cores)
    _refuse(wanted - _moved(wanted))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(len(wanted))


def pin_thread(cores: Sequence[int]) -> None:
    """This thread, and those that it starts from now on, on the logical CPUs `cores`.

    Nothing happens where the system pins no thread (macOS). ClusterError as of `pinned`.
    """
    wanted = frozenset(cores)
    if hasattr(os, "sched_setaffinity"):
        own = threading.get_native_id()
        with suppress(OSError):
            os.sched_setaffinity(own, wanted)
        _refuse(wanted - os.sched_getaffinity(own))


def refuse_elsewhere(device: str, host: str) -> None:
    """ClusterError if `device` is of another `host` than this machine; empty means this one."""
    if host and host != platform.node():
        raise ClusterError(
            f"device '{device}' is of host '{host}', and this is '{platform.node()}'; "
            "take devices of this machine"
        )


def _refuse(missing: frozenset[int]) -> None:
    if missing:
        several = len(missing) > 1
        raise ClusterError(
            f"{'cores' if several else 'core'} {listed([str(core) for core in sorted(missing)])} "
            f"{'are' if several else 'is'} not there for this process to run on; name cores that "
            "'placewright cluster detect' finds"
        )


def _possible() -> frozenset[int]:
    """Numbers that a logical CPU may have here, whether or not this process may use it."""
    configured = getattr(os, "sysconf_names", {}).get("SC_NPROCESSORS_CONF")
    count = os.sysconf(configured) if configured is not None else os.cpu_count() or 1
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    return frozenset(range(count)) | usable


def _moved(cores: frozenset[int]) -> frozenset[int]:
    """Those of `cores` that all threads of this process are on now.

    The system quietly leaves out cores that are off or kept from this process.
    """
    if not hasattr(os, "sched_setaffinity"):
        return cores
    try:
        os.sched_setaffinity(0, cores)
    except OSError:
        return frozenset()
    for thread in _affinities():
        _set_affinity(thread, cores)
    return frozenset(os.sched_getaffinity(0))


def _affinities() -> dict[int, frozenset[int]]:
    """`[thread]` the cores it may be on, of all threads of this process; empty on macOS."""
    found: dict[int, frozenset[int]] = {}
    if not hasattr(os, "sched_getaffinity"):
        return found
    own = threading.get_native_id()
    threads = [int(each.name) for each in _THREADS.iterdir()] if _THREADS.exists() else [own]
    for thread in threads:
        with suppress(ProcessLookupError):  # it has ended
            found[thread] = frozenset(os.sched_getaffinity(thread))
    return found


def _set_affinity(thread: int, cores: frozenset[int]) -> None:
    with suppress(ProcessLookupError):
        os.sched_setaffinity(thread, cores)
