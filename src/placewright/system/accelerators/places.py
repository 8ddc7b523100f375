"""What measuring and running ask of a device: one interface for cores and for GPUs.

An op on a CPU is done when its call returns. One on a GPU is given to a *stream*, which does its
work in order, and the call returns at once: so its times are those of events in the stream, read
when the stream has done everything, and never those of the clock of the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from placewright.errors import ClusterError, reason
from placewright.system.accelerators import cuda
from placewright.system.pinning import pinned

if TYPE_CHECKING:
    import torch

POLL_SECONDS = 2e-5
_UNUSABLE = "that GPU cannot be used now ({}); end what else runs on it"
BUSY_SIDE = 1024  # of the matrices that keep a GPU busy: some ten microseconds to a millisecond


class Moments(Protocol):
    """Moments of a device, in their order. The first marks of many cost more than later ones."""

    mark: Callable[[], None]
    """Now, or when the device has done what it was given so far."""

    def __len__(self) -> int: ...

    def clear(self) -> None: ...

    def intervals(self) -> list[float]:
        """Seconds between each two, once the last has passed."""


class Place(Protocol):
    """A device that ops run on. `queues`: calls return before their ops are done."""

    queues: bool

    @property
    def device(self) -> torch.device: ...

    @property
    def threads(self) -> int:
        """Threads of the CPU that compute."""

    def entered(self) -> Any:
        """A context in which what this thread computes, it computes there."""

    def settle(self) -> None:
        """Until all that it was given is done; raises what failed meanwhile."""

    def keep_busy(self) -> None:
        """Work for the device while it waits for what comes next, where it queues."""

    def now(self) -> float:
        """Seconds of a clock, when all that it was given is done."""

    def moments(self) -> Moments: ...


# -- cores -------------------------------------------------------------------------------------


class CpuPlace:
    """These logical CPUs, with as many threads."""

    queues = False

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores = tuple(cores)

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device("cpu")

    @property
    def threads(self) -> int:
        return len(self._cores)

    def entered(self) -> Any:
        """The whole process is on these cores."""
        return pinned(self._cores)

    def settle(self) -> None:
        pass

    def keep_busy(self) -> None:
        pass

    def now(self) -> float:
        return time.perf_counter()

    def moments(self) -> CpuMoments:
        return CpuMoments()


class CpuMoments:
    """See `Moments`: the clock of this process."""

    def __init__(self) -> None:
        self._ticks: list[int] = []
        ticks, clock = self._ticks, time.perf_counter_ns

        def mark() -> None:  # a function with a name, as programs take it
            ticks.append(clock())

        self.mark = mark

    def __len__(self) -> int:
        return len(self._ticks)

    def clear(self) -> None:
        self._ticks.clear()

    def intervals(self) -> list[float]:
        return [(after - before) * 1e-9 for before, after in pairwise(self._ticks)]


# -- GPUs --------------------------------------------------------------------------------------


def gpu_ordinal(index: int, device: str) -> int:
    """torch's number of the GPU that is the `index`-th of those that this process may use.

    They count as ``nvidia-smi`` has them. ClusterError, which names the `device` of the cluster,
    where it is not there.
    """
    says = f"device '{device}' runs on cuda {index}, but"
    try:
        ordinals = cuda.driver().ordinals()
    except RuntimeError as error:
        raise ClusterError(f"{says} {_UNUSABLE.format(reason(error))}") from error
    if not ordinals:
        raise ClusterError(f"{says} {cuda.driver().why_none()}; take devices that run on cpu")
    if index >= len(ordinals):
        there = "is 1 GPU" if len(ordinals) == 1 else f"are {len(ordinals)} GPUs"
        raise ClusterError(
            f"{says} there {there} here that this process may use; they count from 0"
        )
    return ordinals[index]


def gpu_place(index: int, device: str, patience: float | None = None) -> CudaPlace:
    """The GPU of this number; ClusterError as of `gpu_ordinal`, and where it is not free.

    For `patience` see `CudaPlace`.
    """
    ordinal = gpu_ordinal(index, device)
    try:
        return CudaPlace(cuda.driver(), ordinal, patience)
    except RuntimeError as error:  # another process has it for itself, or all of its memory
        why = _UNUSABLE.format(reason(error))
        raise ClusterError(f"device '{device}' runs on cuda {index}, but {why}") from error


class CudaPlace:
    """A GPU, with a stream to compute in and one for copies.

    With `patience` TimeoutError is raised where work does not end for so many seconds: that of
    other processes may be what it waits for.
    """

    queues = True
    threads = 1

    def __init__(self, driver: cuda.Cuda, ordinal: int, patience: float | None = None) -> None:
        self.driver, self.ordinal, self._patience = driver, ordinal, patience
        self.computing, self.copying = driver.stream(ordinal), driver.stream(ordinal)
        self._square: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        return self.driver.device(self.ordinal)

    @property
    def name(self) -> str:
        return self.driver.name(self.ordinal)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread alone: torch has a current GPU and stream for each thread."""
        with self.driver.on(self.computing):
            yield

    def settle(self) -> None:
        for stream in (self.computing, self.copying):
            if self._patience is None:
                stream.synchronize()
            else:
                self._await(stream, self._patience)

    def _await(self, stream: cuda.Stream, seconds: float) -> None:
        event = self.driver.event()
        event.record(stream)
        end = time.monotonic() + seconds
        while not event.query():
            if time.monotonic() > end:
                raise TimeoutError(f"has waited for its GPU for {seconds:g} s")
            time.sleep(POLL_SECONDS)
        stream.synchronize()

    def keep_busy(self) -> None:
        import torch

        if self._square is None:
            self._square = torch.full((BUSY_SIDE, BUSY_SIDE), 0.5, device=self.device)
        torch.mm(self._square, self._square)

    def now(self) -> float:
        self.settle()
        return time.perf_counter()

    def moments(self) -> CudaMoments:
        return CudaMoments(self.driver, self.computing)

    @property
    def free_memory(self) -> int:
        return self.driver.free_memory(self.ordinal)


class GpuPeak:
    """The most bytes of a GPU that this process takes, beyond what it had when this was made."""

    def __init__(self, place: CudaPlace) -> None:
        self._driver, self._ordinal = place.driver, place.ordinal
        self._driver.forget_most(self._ordinal)
        self._before = self._driver.allocated(self._ordinal)

    @property
    def bytes(self) -> float:
        return float(self._driver.most_allocated(self._ordinal) - self._before)


class CudaMoments:
    """See `Moments`: events of one stream, which are made once and recorded again and again."""

    def __init__(self, driver: cuda.Cuda, stream: cuda.Stream) -> None:
        self._events: list[cuda.Event] = []
        self._count = 0

        def mark() -> None:
            if self._count == len(self._events):
                self._events.append(driver.event())
            self._events[self._count].record(stream)
            self._count += 1

        self.mark = mark

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        self._count = 0

    def intervals(self) -> list[float]:
        events = self._events[: self._count]
        if events:
            events[-1].synchronize()  # those before have passed as well
        return [before.elapsed_time(after) * 1e-3 for before, after in pairwise(events)]
