"""The two ends of a transfer that is measured: a GPU, or cores of a CPU."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This process's cores are those of this end, or this thread computes on its GPU."""
        with pinned(self.cores) if self.place is None else self.place.entered():
            yield

    @contextmanager
    def joined(self, otherwise: Collection[int]) -> Iterator[None]:
        """As `entered`, for this thread alone and for good; that of a GPU on the cores `otherwise`.

        For a thread is begun on the cores of who begins it.
        """
        if self.place is not None:
            if otherwise:
                pin_thread(tuple(otherwise))
            with self.place.entered():
                yield
            return
        pin_thread(self.cores)
        torch.set_num_threads(len(self.cores))
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
