"""The two ends of a transfer that is measured: a GPU, or cores of a CPU."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from placewright.cluster import CudaRun, Device
from placewright.system.accelerators.places import CudaPlace, gpu_place
from placewright.system.pinning import pin_thread, pinned


@dataclass(frozen=True)
class End:
    """A device of a transfer: a GPU, or the cores of a CPU."""

    place: CudaPlace | None
    cores: tuple[int, ...] = ()

    @classmethod
    def of(cls, device: Device) -> End:
        """ClusterError for a GPU that is not there."""
        if isinstance(device.run, CudaRun):
            return cls(gpu_place(device.run.index, device.name))
        assert device.run is not None
        return cls(None, device.run.cores)

    def computing(self) -> AbstractContextManager[Any]:
        """This thread computes on its GPU, or where it is."""
        return nullcontext() if self.place is None else self.place.entered()

    def entered(self) -> AbstractContextManager[Any]:
        """The same, this process being on the cores of a CPU."""
        return pinned(self.cores) if self.place is None else self.computing()

    @contextmanager
    def joined(self, otherwise: Collection[int]) -> Iterator[None]:
        """The same of this thread alone, for good; that of a GPU is on the cores `otherwise`.

        For a thread is begun on the cores of who begins it.
        """
        if self.place is None:
            torch.set_num_threads(len(self.cores))
        if cores := self.cores if self.place is None else tuple(otherwise):
            pin_thread(cores)
        with self.computing():
            yield

    def ones(self, size: int) -> torch.Tensor:
        """So many bytes of this end, which are there."""
        device = "cpu" if self.place is None else self.place.device
        made = torch.ones(size, dtype=torch.uint8, device=device)
        self.settle()
        return made

    def settle(self) -> None:
        if self.place is not None:
            self.place.settle()
