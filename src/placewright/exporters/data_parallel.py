"""Which devices are in which of several data-parallel pipelines, and what their stages exchange.

The pipelines have equal stages, so the devices are parted into groups that are alike: the first
device of one group is as fast, as large and as far from the others of its group as the first of
another. There are two ways to do that. Each group has as many devices of each class of
interchangeable ones: then stages that are equal are near each other, on one host, and pipelines go
over all hosts. Or each has devices that follow one another, host by host: pipelines are within
hosts, and gradients go between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placewright.analysis.devices import Classes, device_classes
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import piece_sums
from placewright.graph import Floats
from placewright.problem import Problem
from placewright.simulate.pipeline_steps import ring_seconds

Group = tuple[int, ...]
"""Devices of a pipeline; in equal places of groups they are alike."""


@dataclass(frozen=True)
class Groups:
    """The devices of each pipeline."""

    members: tuple[Group, ...]

    def replicas(self, row: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Of each stage of a row of the first group its device in each pipeline."""
        place = {device: number for number, device in enumerate(self.members[0])}
        return tuple(tuple(group[place[device]] for group in self.members) for device in row)

    def first_alone(self, pieces: Pieces) -> Pieces:
        """The pieces where only devices of the first group may be used."""
        own = np.isin(np.arange(pieces.problem.device_count), self.members[0])
        time = np.where(own, pieces.problem.op_time, np.inf)
        return replace(pieces, problem=replace(pieces.problem, op_time=time))

    def exchange(self, pieces: Pieces, classes: Classes) -> tuple[Floats, bool]:
        """``[class, i, j]`` seconds at least in which stages of pieces i … j exchange gradients.

        And whether it is so many on every device of a class.
        """
        problem = pieces.problem
        trains = bool(problem.is_backward.any())
        weights = piece_sums(pieces, problem.op_sync_bytes * trains)
        found, is_exact = np.zeros((len(classes[1]), *weights.shape)), True
        for number, members in enumerate(classes[1]):
            own = [device for device in members if device in self.members[0]]
            each = [ring_seconds(problem, weights, stage) for stage in self.replicas(own)]
            if each:  # else no device of the class may be used
                found[number] = np.min(each, axis=0)
                is_exact &= bool((np.max(each, axis=0) == found[number]).all())
        return found, is_exact


def groupings(problem: Problem, count: int) -> list[Groups]:
    """The ways to part the devices that may be used into so many groups that are alike."""
    usable: list[int] = np.flatnonzero(np.isfinite(problem.op_time).any(axis=0)).tolist()
    found = [*_by_class(problem, usable, count), *_by_host(problem, usable, count)]
    return [each for number, each in enumerate(found) if each not in found[:number]]


def _by_class(problem: Problem, usable: Sequence[int], count: int) -> Iterator[Groups]:
    """As many devices of each class in each group; what is left over is in none."""
    members = [
        [device for device in each if device in usable] for each in device_classes(problem)[1]
    ]
    sizes = [len(each) // count for each in members]
    if any(sizes):
        yield Groups(
            tuple(
                tuple(
                    device
                    for each, size in zip(members, sizes, strict=True)
                    for device in each[number * size : (number + 1) * size]
                )
                for number in range(count)
            )
        )


def _by_host(problem: Problem, usable: Sequence[int], count: int) -> Iterator[Groups]:
    """Devices that follow one another, host by host, if such groups are alike."""
    if len(usable) % count:
        return
    kinds = problem.device_kinds
    hosts = {host: number for number, host in enumerate(map(problem.device_host, usable))}
    ordered = sorted(usable, key=lambda each: (hosts[problem.device_host(each)], kinds[each], each))
    size = len(ordered) // count
    groups = tuple(tuple(ordered[k * size : (k + 1) * size]) for k in range(count))
    if all(_are_alike(problem, groups[0], other) for other in groups[1:]):
        yield Groups(groups)


def _are_alike(problem: Problem, one: Group, other: Group) -> bool:
    """Whether a pipeline takes as long on the devices of the one as on those of the other."""
    mine, theirs = np.ix_(one, one), np.ix_(other, other)
    tables = [problem.link_latency, problem.link_seconds_per_byte]
    own = [problem.op_time, problem.device_memory[None]]
    if problem.staging == "host":
        own += [problem.host_latency, problem.host_seconds_per_byte]
    return all(np.array_equal(each[mine], each[theirs]) for each in tables) and all(
        np.array_equal(each[:, list(one)], each[:, list(other)]) for each in own
    )
