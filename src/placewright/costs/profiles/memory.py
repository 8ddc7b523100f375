"""What calls need of memory while they run.

On the CPU it is measured by torch's profiler of allocations, on a GPU by torch's own allocator.

The program runs call by call, and the profiler notes every allocation and release in its order (the
older of torch's two profilers, for the newer has only their times, and talks on stderr). What a
library takes from the system by itself, as oneDNN does for scratchpads, it does not see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from placewright.costs.profiles.measure import input_values
from placewright.errors import ExecutionError, reason
from placewright.importers.torch.programs import Executable
from placewright.importers.torch.retarget import on_device
from placewright.system.accelerators.places import CudaPlace

_MARK = "placewright:"  # before the name of a node, in what the profiler notes


def measure_memory(executable: Executable, *, seed: int = 0) -> dict[str, float]:
    """The most bytes each call holds beyond its inputs, by the name of its node.

    That is what it makes, and what it needs on the way and gives back. ExecutionError for a
    program that cannot be run.
    """
    import torch
    from torch.autograd.profiler import record_function

    class Marked(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            with record_function(f"{_MARK}{n.name}"):
                return super().run_node(n)

    program, inputs = Marked(executable.module), input_values(executable, seed)
    try:
        with torch.no_grad():
            held = _most_held(_notes(lambda: program.run(*inputs)))
    except Exception as error:
        raise ExecutionError(
            f"{executable.name} cannot be run here ({type(error).__name__}: {reason(error)})"
        ) from error
    return {node.name: held[node.name] for node in executable.calls}


def gpu_memory(executable: Executable, place: CudaPlace, *, seed: int = 0) -> Mapping[str, float]:
    """The most bytes each call holds beyond its inputs and outputs, by the name of its node.

    The allocator counts what a call asks for when it is made, whether or not the GPU has begun.
    ExecutionError for a program that cannot be run.
    """
    import torch

    driver, ordinal = place.driver, place.ordinal
    needed: dict[str, float] = {}

    class Counted(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            driver.forget_most(ordinal)
            made = super().run_node(n)
            needed[n.name] = float(driver.most_allocated(ordinal) - driver.allocated(ordinal))
            return made

    moved = on_device(executable, place.device)
    inputs = input_values(executable, seed, place.device)
    try:
        with torch.no_grad():
            Counted(moved.module).run(*inputs)
            place.settle()
    except Exception as error:
        raise ExecutionError(
            f"{executable.name} cannot be run here ({type(error).__name__}: {reason(error)})"
        ) from error
    return needed


def _notes(run: Any) -> list[Any]:
    """What the profiler noted of this thread while `run` ran, in its order."""
    from torch import autograd
    from torch.autograd import profiler_legacy

    torch_autograd: Any = autograd  # its annotations leave these two out
    profile: Any = profiler_legacy.profile
    torch_autograd._enable_profiler_legacy(profile(profile_memory=True).config())
    try:
        run()
    finally:
        threads = torch_autograd._disable_profiler_legacy()
    return max(threads, key=len)


def _most_held(notes: Iterable[Any]) -> dict[str, float]:
    """The highest sum of allocations and releases within each marked span."""
    found: dict[str, float] = {}
    spans: list[str] = []  # those that have begun
    name, held, most = "", 0.0, 0.0
    for note in notes:
        kind = note.kind()
        if kind == "push":
            spans.append(note.name())
            if note.name().startswith(_MARK):
                name, held, most = note.name().removeprefix(_MARK), 0.0, 0.0
        elif kind == "pop" and spans.pop().startswith(_MARK):
            found[name] = most
        elif kind == "memory_alloc":
            held += note.cpu_memory_usage()
            most = max(most, held)
    return found
