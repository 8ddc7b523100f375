"""What a launcher is given to run, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.system.accelerators.places import CudaPlace, gpu_place

if TYPE_CHECKING:
    from placewright.runtime.ranks.calls import Calls
    from placewright.runtime.stages.cutting import Stage
    from placewright.runtime.values import Values

Event = Mapping[str, Any]
"""What a rank tells, see `calls.Heard`."""


@dataclass(frozen=True)
class Own:
    """What each rank has for itself: threads, the logical CPUs it is pinned to, and a GPU.

    `gpus` has the number of each rank's, None for a rank that computes on the CPU; as all do where
    none are given.
    """

    threads: tuple[int, ...]
    cores: tuple[tuple[int, ...], ...]
    gpus: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        if not self.gpus:
            object.__setattr__(self, "gpus", (None,) * len(self.threads))

    @classmethod
    def of(
        cls,
        ranks: int,
        threads: int | Sequence[int],
        cores: Sequence[Sequence[int]],
        gpus: Sequence[int | None] = (),
    ) -> Own:
        each = (threads,) * ranks if isinstance(threads, int) else tuple(threads)
        pinned = tuple(map(tuple, cores)) or ((),) * ranks
        return cls(each, pinned, tuple(gpus))

    def place(self, rank: int, patience: float | None = None) -> CudaPlace | None:
        """The rank's GPU; ClusterError where it is not there. For `patience` see `CudaPlace`."""
        gpu = self.gpus[rank]
        return None if gpu is None else gpu_place(gpu, f"of rank {rank}", patience)


@dataclass(frozen=True)
class Job:
    """What is to be run: `cuts[assignment][rank]`, one assignment after the other.

    `modules` are imported by a process of its own for operators that torch does not define. A
    rank may take so many bytes as its `memory_limits` say, beyond what torch itself takes.
    `interface` is the network interface between hosts, by default the loopback one.
    """

    cuts: Sequence[Sequence[Stage]]
    values: Values
    own: Own
    calls: Calls
    timeout: float
    modules: Sequence[str] = ()
    memory_limits: Sequence[float] = ()
    interface: str = ""

    @property
    def ranks(self) -> int:
        return len(self.own.threads)

    def weights_of(self, rank: int) -> set[str]:
        """Names of the weights that a rank reads."""
        return {name for stages in self.cuts for name in stages[rank].weights.values()}


Hear = Callable[[int, Event], None]
"""Is told of every call of a rank, see `calls.Heard`."""
Results = list[list[list[list[Any]]]]
"""`[rank][assignment][call]`: a stage's own results in each call that is kept."""
Launcher = Callable[[Job, Hear], Results | None]
"""Gives no results where another process reports."""
