"""GPUs that are not there: a driver that computes on the CPU and watches who reads what when.

Each stream has a clock of its own for what it was given, and knows how much of the others it has
waited for. Every operator of torch in an entered stream is noted: it may read a tensor only if its
stream comes after the one that wrote it, and use memory of another stream only if the allocator was
told. What is not so goes to `faults`, in words; on a GPU it would be a race.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from placewright.system.accelerators.cuda import Cuda

HOST = "host"
TICK = 1e-3  # milliseconds that each op takes, by the events of the stand-in


@dataclass(eq=False)
class Stream:
    """`seen[s]` is how much of stream `s` comes before whatever this one is given now."""

    ordinal: int
    name: str
    driver: StandIn
    seen: dict[Any, int] = field(default_factory=dict)

    def given(self) -> int:
        self.after(self.driver.host().seen)  # what the host has waited for comes before
        self.seen[self] = self.seen.get(self, 0) + 1
        return self.seen[self]

    def wait_event(self, event: Event) -> None:
        self.driver.log.append(("wait", self.name, event.stream.name if event.stream else ""))
        self.after(event.seen)

    def after(self, seen: dict[Any, int]) -> None:
        for stream, amount in list(seen.items()):
            self.seen[stream] = max(self.seen.get(stream, 0), amount)

    def synchronize(self) -> None:
        self.driver.log.append(("synchronise", self.name))
        self.driver.host().after(self.seen)


class Event:
    def __init__(self, driver: StandIn) -> None:
        self.driver, self.stream = driver, None
        self.seen: dict[Any, int] = {}

    def record(self, stream: Stream) -> None:
        self.stream = stream
        stream.given()
        self.seen = dict(stream.seen)
        self.driver.log.append(("record", stream.name))

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.driver.log.append(("await", self.stream.name))
        self.driver.host().after(self.seen)

    def elapsed_time(self, end_event: Event) -> float:
        """By what the stream was given between; both must have passed, as the host knows."""
        known = self.driver.host().seen
        for each in (self, end_event):
            if known.get(each.stream, 0) < each.seen[each.stream]:
                self.driver.faults.append("the time of an event that may not have passed is read")
        return TICK * (end_event.seen[self.stream] - self.seen[self.stream])


class StandIn(Cuda):
    """See the module. `gpus` of them; `log` has what was asked of streams and events."""

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.faults: list[str] = []
        self.log: list[tuple[str, ...]] = []
        self.pinned_bytes = 0
        self._count = count()
        self._here = threading.local()
        self._written: dict[int, tuple[Any, Stream, int]] = {}
        self._made: dict[int, Stream] = {}
        self._told: dict[int, set[Stream]] = {}
        self._kept: list[Any] = []  # so that no two storages share a number
        self._lock = threading.RLock()

    # -- the driver ----------------------------------------------------------------------------

    def ordinals(self) -> list[int]:
        return list(range(self.gpus))

    def why_none(self) -> str:
        return "no CUDA GPU is found here"

    def name(self, ordinal: int) -> str:
        return "Stand-in 1"

    def device(self, ordinal: int) -> torch.device:
        return torch.device("cpu")

    def stream(self, ordinal: int) -> Stream:
        return Stream(ordinal, f"gpu{ordinal} stream{next(self._count)}", self)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        streams = self._streams()
        streams.append(stream)
        try:
            with _Watching(self, stream):
                yield
        finally:
            streams.pop()

    def event(self) -> Event:
        return Event(self)

    def used_on(self, value: torch.Tensor, stream: Stream) -> None:
        with self._lock:
            self._told.setdefault(self._number(value), set()).add(stream)

    def pinned(self, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        value = torch.ops.aten.empty.memory_format(list(shape), dtype=dtype)
        self.pinned_bytes += value.nbytes
        with self._lock:
            self._made.pop(self._number(value), None)  # memory of no stream
            self._written.pop(self._number(value), None)
        return value

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.log.append(("copy", self._streams()[-1].name))
        self._meet()
        self.used_on(target, self._streams()[-1])  # the owner's stream waits for the copy
        super().copy(target, source)
        self._meet()

    def empty(self, size: int, ordinal: int) -> torch.Tensor:
        """Of the current stream of that GPU, which need not be the current one."""
        value = torch.empty(size, dtype=torch.uint8)
        own = [each for each in self._streams() if each.ordinal == ordinal]
        with self._lock:
            if own:
                self._made[self._number(value)] = own[-1]
            else:
                self.faults.append(f"memory of GPU {ordinal} is taken in its default stream")
        return value

    def free_memory(self, ordinal: int) -> int:
        return 8 * 2**30

    def allocated(self, ordinal: int) -> int:
        return 100

    def most_allocated(self, ordinal: int) -> int:
        return 164

    def forget_most(self, ordinal: int) -> None:
        self.log.append(("forget",))

    # -- what it watches -----------------------------------------------------------------------

    def host(self) -> Stream:
        """What this thread of the host has waited for."""
        if not hasattr(self._here, "host"):
            self._here.host = Stream(-1, HOST, self)
        return self._here.host

    def read_by_host(self, value: torch.Tensor) -> None:
        """As a CPU rank does: everything that was written must be there."""
        with self._lock:
            self._check(value, self.host())

    def _streams(self) -> list[Stream]:
        if not hasattr(self._here, "streams"):
            self._here.streams = []
        return self._here.streams

    def _meet(self) -> None:
        """A copy between two GPUs: torch lets the current streams of both wait for each other."""
        last = {stream.ordinal: stream for stream in self._streams()}
        for one in last.values():
            for other in last.values():
                one.after(other.seen)

    def _number(self, value: torch.Tensor) -> int:
        storage = value.untyped_storage()
        self._kept.append(storage)
        return storage._cdata

    def ran(self, stream: Stream, inputs: list[Any], made: list[Any], writes: bool) -> None:
        """An op in `stream`, which `writes` into its inputs or not."""
        with self._lock:
            stream.after(self.host().seen)  # it is given this after what the host has waited for
            known = {self._number(each) for each in inputs}
            for each in inputs:
                self._check(each, stream)
            moment = stream.given()
            for each in made:
                number = self._number(each)
                if number not in known:
                    self._made[number] = stream
                if writes or number not in known:  # no view of what was there
                    self._written[number] = each, stream, moment

    def _check(self, value: torch.Tensor, stream: Stream) -> None:
        number = self._number(value)
        _, writer, moment = self._written.get(number, (None, stream, 0))
        if writer is not stream and stream.seen.get(writer, 0) < moment:
            self.faults.append(f"{stream.name} reads what {writer.name} has not written yet")
        owner = self._made.get(number)
        may_use = {owner, self.host(), *self._told.get(number, ())}
        if owner is not None and stream not in may_use:
            self.faults.append(f"{stream.name} uses memory of {owner.name}, which is not told")


class _Watching(TorchDispatchMode):
    def __init__(self, driver: StandIn, stream: Stream) -> None:
        super().__init__()
        self._driver, self._stream = driver, stream

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if self._driver._streams()[-1] is self._stream:  # the innermost one that was entered
            inputs, writes = _tensors((args, kwargs)), func._schema.is_mutable
            self._driver.ran(self._stream, inputs, _tensors(made), writes)
        return made


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
