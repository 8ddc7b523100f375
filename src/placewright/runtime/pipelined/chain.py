"""A placement as a chain of runs: pieces of one device each, in an order in which they can go.

A contiguous placement whose devices form a pipeline gives one run per device. Any other is cut
into more: a device then has several, and what it has no input for yet waits for its next one.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Ops of one device, in a topological order."""

    device: int
    ops: tuple[str, ...]


def chain_of(needs: Mapping[str, Collection[str]], device_of: Mapping[str, int]) -> list[Run]:
    """Few runs that hold every op once, each op in a run after or with those it needs.

    `needs` has the ops in the program's order, which is topological, each with the ops whose
    output it reads. A run goes on as long as its device has an op that is ready. The next is that
    of a device which can do all that is left of it, else the longest.

    >>> chain_of({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, dict(a=0, b=1, c=0, d=0))
    [Run(device=0, ops=('a', 'c')), Run(device=1, ops=('b',)), Run(device=0, ops=('d',))]
    """
    state = _State(needs, device_of)
    runs = []
    while state.left:
        best = max(map(state.run, sorted(state.left)), key=state.merit)
        runs.append(best)
        state.take(best)
    return runs


class _State:
    """What has run, and so which ops are ready."""

    def __init__(self, needs: Mapping[str, Collection[str]], device_of: Mapping[str, int]) -> None:
        self._device_of = device_of
        self._position = {op: position for position, op in enumerate(needs)}
        self._missing = {op: len(set(sources)) for op, sources in needs.items()}
        self._readers: dict[str, list[str]] = {op: [] for op in needs}
        for op, sources in needs.items():
            for source in set(sources):
                self._readers[source].append(op)
        self.left: dict[int, int] = {}
        self._ready: dict[int, set[str]] = {}
        for op in needs:
            device = device_of[op]
            self.left[device] = self.left.get(device, 0) + 1
            ready = self._ready.setdefault(device, set())
            if not self._missing[op]:
                ready.add(op)

    def run(self, device: int) -> Run:
        """As much as the device can do now, without what others have still to do."""
        waiting = [(self._position[op], op) for op in self._ready[device]]
        heapq.heapify(waiting)
        missing: dict[str, int] = {}
        ops = []
        while waiting:
            _, op = heapq.heappop(waiting)
            ops.append(op)
            for reader in self._readers[op]:
                if self._device_of[reader] == device:
                    missing[reader] = missing.get(reader, self._missing[reader]) - 1
                    if not missing[reader]:
                        heapq.heappush(waiting, (self._position[reader], reader))
        return Run(device, tuple(ops))

    def merit(self, run: Run) -> tuple[bool, int, int]:
        """Whether it is all that is left of its device, how long it is, and how early it begins."""
        if not run.ops:
            return False, 0, 0
        ends = len(run.ops) == self.left[run.device]
        return ends, len(run.ops), -self._position[run.ops[0]]

    def take(self, run: Run) -> None:
        for op in run.ops:
            self._ready[run.device].discard(op)
            for reader in self._readers[op]:
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    self._ready[self._device_of[reader]].add(reader)
        self._ready[run.device] -= set(run.ops)
        self.left[run.device] -= len(run.ops)
        if not self.left[run.device]:
            del self.left[run.device]
