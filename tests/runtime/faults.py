"""What makes runs fail: programs that take memory, and signals to a rank; what runs leave."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch

from placewright.runtime import RunOptions, RunReport
from placewright.runtime.execution import Assignment, run_assignments
from tests.runtime.models import Made, dawdling
from tests.runtime.processes import workers_of
from tests.runtime.programs import Case, case_of

HERE = "tests.runtime.models"
SHARED = Path("/dev/shm")
DAWDLING = {"linear": 0, "dawdle": 0, "linear_1": 1, "relu": 1}
GROWING = {"linear": 0, "repeat": 1, "relu": 1}
ROW = 2 * 8 * 4  # bytes of a row of `Growing`, before it is repeated


class Growing(torch.nn.Module):
    """A little layer, `copies` of its output one below the other, and relu of all."""

    def __init__(self, copies: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 8)
        self.copies = copies

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.first(x).repeat(self.copies, 1))


def growing() -> Made:
    """Takes 128 MiB, and as much again."""
    return Growing(1 << 21), (torch.ones(2, 8),), {}


@cache
def dawdling_case() -> Case:
    return case_of(*dawdling())


@cache
def growing_case(copies: int) -> Case:
    return case_of(Growing(copies), (torch.ones(2, 8),))


def run(
    case: Case, device_of: dict[str, int], on_progress: Any = None, **options: Any
) -> RunReport:
    (report,) = run_assignments(
        case.program,
        case.values,
        [Assignment(device_of)],
        2,
        options=RunOptions(repeats=1, clocked=0, threads=1, **options),
        on_progress=on_progress,
        modules=[HERE],
    )
    return report


@contextmanager
def nothing_left(temporary: Path) -> Iterator[None]:
    """After this no process, file, shared memory or open file is there that was not before.

    Shared memory that another process has is its own.
    """
    before = {folder: set(folder.iterdir()) for folder in (temporary, SHARED)}
    opened = _opened()
    yield
    gc.collect()  # a traceback may hold an open file
    assert workers_of(psutil.Process()) == []
    for folder, known in before.items():
        assert _left(set(folder.iterdir()) - known) == []
    assert _opened() <= opened


def _left(files: set[Path]) -> list[Path]:
    """Those that no process of others has mapped or open; they may be gone by now."""
    if not files:
        return []
    own = psutil.Process()
    mine = {own.pid, *(child.pid for child in own.children(recursive=True))}
    held = ""
    for process in psutil.process_iter():
        with suppress(OSError):
            if process.pid not in mine:
                folder = Path(f"/proc/{process.pid}")
                held += (folder / "maps").read_text()
                held += "".join(str(each.readlink()) for each in (folder / "fd").iterdir())
    return [each for each in files if each.exists() and str(each) not in held]


def _opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def blow_at(
    rank: int, number: int, after: float, ranks: int = 2
) -> tuple[threading.Thread, list[float]]:
    """A thread that sends a signal to one rank, so many seconds after all `ranks` are there.

    When it did is put into the list.
    """
    when: list[float] = []

    def strike() -> None:
        parent = psutil.Process()
        while len(found := workers_of(parent)) < ranks:
            time.sleep(0.02)
        time.sleep(after)
        for each in found:
            if each.cmdline()[-3] == str(rank):
                each.send_signal(number)
        when.append(time.monotonic())

    thread = threading.Thread(target=strike, daemon=True)
    thread.start()
    return thread, when


def repeated(count: int, once: Callable[[int], None]) -> None:
    """`once` so many times; the message says which of them failed."""
    for number in range(count):
        try:
            once(number)
        except AssertionError as error:
            raise AssertionError(f"repetition {number}: {error}") from error
