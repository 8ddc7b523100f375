"""The slow, obvious twin of `kernels.latency.ejection`: lists, the same random draws."""

from __future__ import annotations

import math

from placewright.kernels.latency import ejection


class Chain:
    """What all ejection chains do: `overfull` devices `send_away`, one after another.

    `changes` lists what has been changed, `free` is what a device has left.
    """

    most_links: int

    def make_room(self):
        for _ in range(self.most_links if self.changes else 0):
            overfull = self.overfull()
            if not overfull:
                return
            before = len(self.changes)
            self.send_away(overfull[0])
            if self.free(overfull[0]) < 0 or len(self.changes) == before:
                return

    def below(self, count):
        return int(self.rng.random() * count)


class Ejection(Chain):
    """Where units are, `at[unit]`, and what has been changed: `changes`, (unit, device before)."""

    most_links = ejection.MOST_LINKS

    def __init__(self, problem, at, sequence, rng):
        self.problem, self.rng = problem, rng
        self.at, self.sequence = list(at), list(sequence)
        self.changes = []

    def put(self, unit, device):
        """Put the unit on the device if it may be there and is not."""
        problem = self.problem
        supported = math.isfinite(problem.unit_time[unit, device])
        if not supported or problem.unit_memory[unit] > problem.device_memory[device]:
            return
        if self.at[unit] != device:
            self.changes.append((unit, self.at[unit]))
            self.at[unit] = device

    def free(self, device):
        used = sum(m for m, d in zip(self.problem.unit_memory, self.at, strict=True) if d == device)
        return self.problem.device_memory[device] - used

    def overfull(self):
        reached = [self.at[unit] for unit, _ in self.changes]
        return [device for device in reached if self.free(device) < 0]

    def send_away(self, device):
        problem, length = self.problem, len(self.sequence)
        start, forwards = self.below(length), self.rng.random() < 0.5
        at_border, kind = self.rng.random() < ejection.BORDER, self.rng.random()
        target = beside = None
        if kind < ejection.BACK:
            target = self.changes[self.below(len(self.changes))][1]
        elif kind >= ejection.BESIDE:
            target = self.below(problem.device_count)
        changed = {unit for unit, _ in self.changes}
        for step in range(min(length, ejection.MOST_SCANNED)):
            item = self.sequence[(start + (step if forwards else -step)) % length]
            if item < 0:
                continue
            unit = int(problem.op_unit[item])
            if self.at[unit] != device:
                beside = self.at[unit]
                continue
            if unit in changed or (at_border and beside is None):
                continue
            if target is None:
                target = beside
            if target is None or target == device:
                others = [d for d in range(problem.device_count) if d != device]
                target = others[self.below(len(others))]
            before = len(self.changes)
            self.put(unit, target)
            if len(self.changes) > before:
                changed.add(unit)
                if self.free(device) >= 0:
                    return
