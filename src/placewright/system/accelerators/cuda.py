"""`torch.cuda`, as this project uses it. No other file names it.

Tests put a driver of their own in the place of `driver`, which notes what it is asked and computes
on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

ORDER = "CUDA_DEVICE_ORDER"
_BUS = ("pci_domain_id", "pci_bus_id", "pci_device_id")


class Event(Protocol):
    """A moment of a stream: that at which it has done what it was given before."""

    def record(self, stream: Any) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this one to `end_event`, both having passed."""


class Stream(Protocol):
    """Work that a GPU does in its order."""

    def wait_event(self, event: Any) -> None: ...

    def synchronize(self) -> None: ...


class Cuda:
    """The GPUs that this process may use; `ordinal` is torch's number of one."""

    def ordinals(self) -> list[int]:
        """torch's numbers of the GPUs, by their PCI bus: in the order of ``nvidia-smi``.

        CUDA itself puts the fastest first unless it is told otherwise before its first use.
        """
        import torch

        os.environ.setdefault(ORDER, "PCI_BUS_ID")
        if not torch.cuda.is_available():
            return []
        return sorted(range(torch.cuda.device_count()), key=self._bus)

    def why_none(self) -> str:
        """Why there are no GPUs, in words."""
        import torch

        if torch.version.cuda is None:
            return f"the torch installed here ({torch.__version__}) is built without CUDA"
        return "no CUDA GPU is found here"

    def name(self, ordinal: int) -> str:
        """Such as ``NVIDIA H100 80GB HBM3``."""
        import torch

        return str(torch.cuda.get_device_name(ordinal))

    def device(self, ordinal: int) -> torch.device:
        import torch

        return torch.device("cuda", ordinal)

    def stream(self, ordinal: int) -> Stream:
        """A new one, which waits for no other by itself."""
        import torch

        kind: Any = torch.cuda.Stream
        made: Stream = kind(device=ordinal)
        return made

    def on(self, stream: Any) -> AbstractContextManager[object]:
        """This thread's work goes to `stream`, and its GPU is the current one."""
        import torch

        return torch.cuda.stream(stream)

    def event(self) -> Event:
        """One that keeps its time."""
        import torch

        kind: Any = torch.cuda.Event
        made: Event = kind(enable_timing=True)
        return made

    def used_on(self, value: torch.Tensor, stream: Any) -> None:
        """Memory of `value` is free again only when `stream` has done what it has by then."""
        value.record_stream(stream)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor in memory of the host that GPUs copy from and to by themselves.

        torch keeps the memory of one that is let go until copies that were begun have ended.
        """
        import torch

        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def empty(self, size: int, ordinal: int) -> torch.Tensor:
        """So many bytes of that GPU, which are its current stream's."""
        import torch

        return torch.empty(size, dtype=torch.uint8, device=self.device(ordinal))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """In the current stream; the call returns at once.

        Between two GPUs it is that of the `source`, and the current streams of both wait for each
        other, before and after.
        """
        target.copy_(source, non_blocking=True)

    def free_memory(self, ordinal: int) -> int:
        """Bytes of the GPU that nobody has; what torch keeps for later counts as free."""
        import torch

        free, _ = torch.cuda.mem_get_info(ordinal)
        kept = torch.cuda.memory_reserved(ordinal) - torch.cuda.memory_allocated(ordinal)
        return int(free + kept)

    def allocated(self, ordinal: int) -> int:
        """Bytes of this process's tensors on the GPU, by torch's allocator."""
        import torch

        return int(torch.cuda.memory_allocated(ordinal))

    def most_allocated(self, ordinal: int) -> int:
        """The most of these since the last `forget_most`."""
        import torch

        return int(torch.cuda.max_memory_allocated(ordinal))

    def forget_most(self, ordinal: int) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats(ordinal)

    def _bus(self, ordinal: int) -> list[int]:
        """Where a GPU sits; nothing where this version of torch does not tell."""
        import torch

        about = torch.cuda.get_device_properties(ordinal)
        return [int(getattr(about, name, 0)) for name in _BUS]


@cache
def driver() -> Cuda:
    return Cuda()
