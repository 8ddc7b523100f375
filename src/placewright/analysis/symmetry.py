"""Symmetry breaking: devices and hosts that can be exchanged, and rows that order their use.

DiviML §VI: "we introduce additional constraints to our MILP formulation, enforcing a partial
ordering of certain variables (e.g. #batches, #tasks, time utilization) between identical devices
within a node or between nodes".

*No optimum is lost.* A renaming of devices that leaves every column and matrix of the problem as
it was (`is_automorphism`) turns any plan into one that is as long. Let a device's *use* be how
many batches it runs, how many inputs of ops (the paper's tasks), or how long it is busy. Take any
plan. First rename hosts of a group among themselves, so that their use, the sum over their devices,
falls; then rename the equal devices within each host, so that theirs falls. The second step does
not change the use of a host, so the result obeys all rows: each device of a group, and each host
of one, is used no less than the next. The rows order by use alone; where uses are equal, equal
plans remain.

One kind of use at a time: the order by batches and that by time need not agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from placewright.analysis.devices import channel_uses, grouped
from placewright.errors import OptionError
from placewright.graph import Floats, Ints
from placewright.problem import Problem

USES = ("none", "batch", "task", "time")

Key = tuple[int, int, int]
"""A unit, a device and the number of a size: a variable b of the program."""


def check_use(planner: str, use: str) -> str:
    if use not in USES:
        raise OptionError(f"planner '{planner}': symmetry is '{use}'; choose {', '.join(USES)}")
    return use


class Symmetry:
    """Rows for one kind of `use` (one of `USES`), for the devices and hosts of a problem."""

    def __init__(self, problem: Problem, use: str) -> None:
        self.use = use
        self.problem = problem
        self.devices: list[list[int]] = []
        self.hosts: list[list[list[int]]] = []
        if use != "none":
            self.devices = equal_devices(problem)
            self.hosts = equal_hosts(problem)
            if self.hosts:  # devices of two hosts are exchanged with their hosts only
                hosts = [host for group in self.hosts for host in group]
                self.devices = [part for group in self.devices for part in _parts(group, hosts)]

    def rows(self, time: Floats, sizes: list[int]) -> Iterator[dict[Key, float]]:
        """Coefficients of rows Σ coefficient · b ≥ 0; `time[op, device, size]`."""
        for group in self.devices:
            for one, two in pairwise(group):
                yield self._row([one], [two], time, sizes)
        for hosts in self.hosts:
            for host, following in pairwise(hosts):
                yield self._row(host, following, time, sizes)

    def _row(
        self, more: list[int], less: list[int], time: Floats, sizes: list[int]
    ) -> dict[Key, float]:
        weight = self._weights(time, sizes)
        row: dict[Key, float] = {}
        for sign, devices in ((1.0, more), (-1.0, less)):
            for device in devices:
                for unit, k in np.argwhere(np.isfinite(weight[:, device])).tolist():
                    row[unit, device, k] = sign * float(weight[unit, device, k])
        return row

    def _weights(self, time: Floats, sizes: list[int]) -> Floats:
        """`[unit, device, size]` what a batch adds to a device's use; `inf` where not allowed."""
        weight = np.zeros((self.problem.unit_count, *time.shape[1:]))
        np.add.at(weight, self.problem.op_unit, time)
        if self.use == "time":
            return weight
        ops = np.bincount(self.problem.op_unit, minlength=self.problem.unit_count)
        counts = np.ones(len(sizes)) if self.use == "batch" else np.array(sizes, dtype=float)
        return np.where(np.isfinite(weight), ops[:, None, None] * counts, np.inf)

    def renaming(self, device: Ints, time: Floats) -> Ints:
        """`[device]` a new name for each, under which ``device[op, chunk]`` obeys the rows."""
        renamed = np.arange(self.problem.device_count, dtype=np.int32)
        if self.use == "none":
            return renamed
        use = self.use_of(device, time)
        for hosts in self.hosts:
            fullest_first = sorted(hosts, key=lambda host: -use[host].sum())
            for host, new in zip(fullest_first, hosts, strict=True):
                renamed[host] = new
        for group in self.devices:
            # The devices that now bear the names of the group.
            bearers = [int(np.flatnonzero(renamed == name)[0]) for name in group]
            for bearer, name in zip(sorted(bearers, key=lambda d: -use[d]), group, strict=True):
                renamed[bearer] = name
        return renamed

    def use_of(self, device: Ints, time: Floats) -> Floats:
        """`[device]` its use in a placement of chunks."""
        use = np.zeros(self.problem.device_count)
        chunk = self.problem.options.batch // device.shape[1]
        for op, row in enumerate(device):
            for where, count in zip(*np.unique(row, return_counts=True), strict=True):
                if self.use == "time":
                    size = np.searchsorted(self.problem.batch_sizes, count * chunk)
                    use[where] += time[op, where, size]
                else:
                    use[where] += 1 if self.use == "batch" else count
        return use


def _parts(group: list[int], hosts: list[list[int]]) -> list[list[int]]:
    """The group's devices host by host (those on no host together), two or more at a time."""
    home = {device: number for number, host in enumerate(hosts) for device in host}
    parts: dict[int, list[int]] = {}
    for device in group:
        parts.setdefault(home.get(device, -1), []).append(device)
    return [part for part in parts.values() if len(part) > 1]


# -- finding them ----------------------------------------------------------------------------------


def is_automorphism(problem: Problem, renamed: Ints) -> bool:
    """Whether the problem stays the same when device d is called ``renamed[d]``."""
    names = np.arange(problem.device_count, dtype=np.int32)
    moved = np.flatnonzero(renamed != names)
    if not _look_alike(problem, moved, renamed[moved]):
        return False
    for matrix in (problem.link_latency, problem.link_seconds_per_byte):
        if not np.array_equal(matrix, matrix[np.ix_(renamed, renamed)]):
            return False
    if np.isin(problem.op_pinned, moved).any():
        return False
    return channel_uses(problem, names) == channel_uses(problem, renamed)


def equal_devices(problem: Problem) -> list[list[int]]:
    """Groups of two or more devices any two of which can be exchanged alone."""
    groups = grouped(
        range(problem.device_count), lambda one, two: _exchangeable(problem, [one], [two])
    )
    return [group for group in groups if len(group) > 1]


def equal_hosts(problem: Problem) -> list[list[list[int]]]:
    """Groups of hosts any two of which can be exchanged as wholes, device by device.

    A problem names no hosts. They are taken to be devices that are closer to one another than to
    all others: of the latencies and speeds that routes have, one parts the devices into sets with
    shorter routes inside only. The largest such sets that can be exchanged are the hosts.
    """
    best: list[list[list[int]]] = []
    for blocks in _blocks(problem):
        groups: list[list[list[int]]] = []
        for block in blocks:
            for group in groups:
                matched = _matched(problem, group[0], block)
                if matched is not None:
                    group.append(matched)
                    break
            else:
                groups.append([block])
        groups = [group for group in groups if len(group) > 1 and len(group[0]) > 1]
        if sum(len(host) for group in groups for host in group) and (
            not best or len(groups[0][0]) > len(best[0][0])
        ):
            best = groups
    return best


def _blocks(problem: Problem) -> Iterator[list[list[int]]]:
    """Partitions of the devices by routes no slower than some limit."""
    for matrix in (problem.link_latency, problem.link_seconds_per_byte):
        for limit in np.unique(matrix):
            close = np.maximum(matrix, matrix.T) <= limit
            np.fill_diagonal(close, True)
            rows = [tuple(np.flatnonzero(row).tolist()) for row in close]
            blocks = list(dict.fromkeys(rows))
            if sum(len(block) for block in blocks) == problem.device_count and len(blocks) > 1:
                yield [list(block) for block in blocks]


def _matched(problem: Problem, one: list[int], two: list[int]) -> list[int] | None:
    """The devices of `two` in the order of those of `one` that they can be exchanged with."""
    if len(one) != len(two):
        return None
    left = list(two)
    order = []
    for device in one:
        alike = [other for other in left if _look_alike(problem, device, other)]
        if not alike:
            return None
        order.append(alike[0])
        left.remove(alike[0])
    return order if _exchangeable(problem, one, order) else None


def _look_alike(problem: Problem, one: Any, two: Any) -> bool:
    """Whether devices, or rows of devices one by one, have as much memory and the same times."""
    times = (problem.op_time, problem.unit_time, problem.batch_time)
    return np.array_equal(problem.device_memory[one], problem.device_memory[two]) and all(
        np.array_equal(time[:, one], time[:, two]) for time in times
    )


def _exchangeable(problem: Problem, one: list[int], two: list[int]) -> bool:
    renamed = np.arange(problem.device_count, dtype=np.int32)
    renamed[one], renamed[two] = two, one
    return is_automorphism(problem, renamed)
