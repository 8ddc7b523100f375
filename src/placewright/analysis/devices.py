"""Restriction to fewer devices: the same problem on some of them, or on one of each kind.

A plan on some of the devices is a plan on all of them, and as long. Devices are *alike* where
every op takes as long, and they have as much memory; how they are linked may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from placewright.graph import Floats, Ints, Wide
from placewright.plan import Placement
from placewright.problem import Problem, once_per_problem

T = TypeVar("T")
Classes = tuple[Ints, tuple[tuple[int, ...], ...]]
"""``device_class[device]`` and the devices of each class."""

COLUMNS = 64  # of op_time looked at together


def grouped(items: Iterable[T], same: Callable[[T, T], bool]) -> list[list[T]]:
    """Items with those that are the same as them, in the order in which they first come."""
    groups: list[list[T]] = []
    for item in items:
        home = next((group for group in groups if same(group[0], item)), None)
        if home is None:
            groups.append([item])
        else:
            home.append(item)
    return groups


def swaps_links(link: Floats, one: int, two: int) -> bool:
    """Whether ``link[a, b]`` stays the same when devices `one` and `two` change names."""
    rest = np.ones(len(link), dtype=np.bool_)
    rest[[one, two]] = False
    return bool(
        link[one, two] == link[two, one]
        and link[one, one] == link[two, two]
        and np.array_equal(link[one, rest], link[two, rest])
        and np.array_equal(link[rest, one], link[rest, two])
    )


def channel_uses(problem: Problem, renamed: Ints) -> Counter[frozenset[tuple[int, int]]]:
    """How many channels each set of routes has when device d is called ``renamed[d]``.

    A channel is nothing but the routes that use it.
    """
    offsets, channels, names = problem.active_channels
    routes: list[set[tuple[int, int]]] = [set() for _ in names]
    for pair in range(problem.device_count**2):
        source, target = divmod(pair, problem.device_count)
        for channel in channels[offsets[pair] : offsets[pair + 1]].tolist():
            routes[channel].add((int(renamed[source]), int(renamed[target])))
    return Counter(frozenset(each) for each in routes)


@dataclass(frozen=True, eq=False)
class Restriction:
    """`problem` is `original` on ``devices[k]``, in rising order, which is its device k."""

    original: Problem
    problem: Problem
    devices: Ints

    def expand(self, placement: Placement) -> Placement:
        """The same placement on the original's devices."""
        return replace(placement, device=self.devices[placement.device])

    def restrict(self, placement: Placement) -> Placement | None:
        """The same placement on the restricted problem's devices; None if it uses others."""
        number = np.full(self.original.device_count, -1, dtype=np.int32)
        number[self.devices] = np.arange(len(self.devices))
        device = number[placement.device]
        return None if (device < 0).any() else replace(placement, device=device)


def restricted(problem: Problem, devices: Ints) -> Restriction:
    """`problem` on some `devices`, all of those that ops are pinned to among them.

    For the objectives that know no replicas; channels that no route between two of the devices
    uses are left out.
    """
    devices = np.unique(devices).astype(np.int32)
    number = np.full(problem.device_count + 1, -1, dtype=np.int32)  # the last is: not pinned
    number[devices] = np.arange(len(devices))
    offsets, channels, names = _channels(problem, devices)
    smaller = replace(
        problem,
        **device_columns(problem, devices.tolist()),
        op_pinned=number[problem.op_pinned],
        channel_offsets=offsets,
        channels=channels,
        channel_names=names,
    )
    return Restriction(problem, smaller, devices)


def device_columns(problem: Problem, devices: list[int]) -> dict[str, Any]:
    """The fields of a problem that have an entry per device, of those devices."""
    square = np.ix_(devices, devices)
    return {
        "op_time": problem.op_time[:, devices],
        "device_names": tuple(problem.device_names[device] for device in devices),
        "device_kinds": tuple(problem.device_kinds[device] for device in devices),
        "device_memory": problem.device_memory[devices],
        "link_latency": problem.link_latency[square],
        "link_seconds_per_byte": problem.link_seconds_per_byte[square],
        "is_cpu": problem.is_cpu[devices],
        "host_latency": problem.host_latency[:, devices],
        "host_seconds_per_byte": problem.host_seconds_per_byte[:, devices],
        "batch_time": problem.batch_time[:, devices],
        "op_cost_source": problem.op_cost_source[:, devices] if problem.op_cost_source.size else (),
        "op_cost_spread": problem.op_cost_spread[:, devices] if problem.op_cost_spread.size else (),
        "device_runs": tuple(problem.device_run(device) for device in devices),
        "device_hosts": tuple(problem.device_hosts[device] for device in devices)
        if problem.device_hosts
        else (),
    }


def _channels(problem: Problem, devices: Ints) -> tuple[Wide, Ints, tuple[str, ...]]:
    pairs = (devices.astype(np.int64)[:, None] * problem.device_count + devices).ravel()
    first, last = problem.channel_offsets[pairs], problem.channel_offsets[pairs + 1]
    offsets = np.concatenate([[0], np.cumsum(last - first)])
    places = np.repeat(first - offsets[:-1], last - first) + np.arange(offsets[-1])
    used, channels = np.unique(problem.channels[places], return_inverse=True)
    names = tuple(problem.channel_names[channel] for channel in used.tolist())
    return offsets, channels.astype(np.int32), names


@once_per_problem
def kinds(problem: Problem) -> tuple[Ints, Ints]:
    """`(first, class_of)`: per class of alike devices its first, and `[device]` its class.

    A device that an op is pinned to is like no other. It looks at all times of all devices.

    >>> first, class_of = kinds(problem)     # doctest: +SKIP
    >>> np.bincount(class_of)                # doctest: +SKIP
    array([600, 400])
    """
    keys: dict[tuple[bytes, float, int], int] = {}
    pinned = np.isin(np.arange(problem.device_count), problem.op_pinned)
    class_of = np.empty(problem.device_count, dtype=np.int32)
    first: list[int] = []
    for begin in range(0, problem.device_count, COLUMNS):
        columns = np.ascontiguousarray(problem.op_time[:, begin : begin + COLUMNS].T)
        for device, column in enumerate(columns, start=begin):
            key = (
                _digest(column),
                float(problem.device_memory[device]),
                device if pinned[device] else -1,
            )
            if key not in keys:
                keys[key] = len(first)
                first.append(device)
            class_of[device] = keys[key]
    return np.array(first, dtype=np.int32), class_of


def alike_classes(problem: Problem) -> Classes:
    """The classes of `kinds`: links and ways to host memory are left out of it."""
    first, device_class = kinds(problem)
    members = [np.flatnonzero(device_class == each).tolist() for each in range(len(first))]
    return device_class, tuple(tuple(each) for each in members)


def device_classes(problem: Problem) -> Classes:
    """Classes of devices that nothing tells apart.

    They may be exchanged in any placement: they have equal times, memory and transfers, no op is
    pinned to one of them, and no device tells them apart.
    """
    pinned = set(problem.op_pinned[problem.op_pinned >= 0].tolist())

    def same(one: int, two: int) -> bool:
        return not pinned.intersection((one, two)) and _exchangeable(problem, one, two)

    members = grouped(range(problem.device_count), same)
    device_class = np.empty(problem.device_count, dtype=np.int32)
    for number, devices in enumerate(members):
        device_class[devices] = number
    return device_class, tuple(tuple(each) for each in members)


def _exchangeable(problem: Problem, one: int, two: int) -> bool:
    if problem.device_memory[one] != problem.device_memory[two]:
        return False
    if problem.staging == "host":
        for transfer in (problem.host_latency, problem.host_seconds_per_byte):
            if not np.array_equal(transfer[:, one], transfer[:, two]):
                return False
    else:
        for link in (problem.link_latency, problem.link_seconds_per_byte):
            if not swaps_links(link, one, two):
                return False
    return np.array_equal(problem.op_time[:, one], problem.op_time[:, two])


def one_of_each(problem: Problem) -> tuple[Problem, Floats]:
    """The problem on the first device of each kind, and `[kind]` how many there are of it."""
    first, class_of = kinds(problem)
    count = np.bincount(class_of).astype(np.float64)
    if len(first) == problem.device_count:
        return problem, count
    return restricted(problem, first).problem, count  # kinds are numbered by their first device


def _digest(column: Floats) -> bytes:
    """Different in practice where the times are."""
    import hashlib

    return hashlib.blake2b(column.tobytes(), digest_size=16).digest()
