"""Brute force for throughput: every split of the units over devices, stages with replicas too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

import numpy as np
from hypothesis import reject

from placewright.plan import Placement
from placewright.simulate.throughput import loads

MOST_SPLITS = 60_000


def stages_of(problem) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to group the devices into stages; without replication each is its own."""
    devices = range(problem.device_count)
    if not problem.options.replicate:
        yield tuple((device,) for device in devices)
        return
    for labels in itertools.product(devices, repeat=problem.device_count):
        if all(label <= max(labels[:k], default=-1) + 1 for k, label in enumerate(labels)):
            yield tuple(
                tuple(d for d in devices if labels[d] == label) for label in range(max(labels) + 1)
            )


def all_splits(problem) -> Iterator[Placement]:
    """Every placement of the units that the judge would let pass, contiguity aside."""
    allowed = np.isfinite(problem.unit_time)
    for stages in stages_of(problem):
        if len(stages) ** problem.unit_count > MOST_SPLITS:
            reject()
        for chosen in itertools.product(range(len(stages)), repeat=problem.unit_count):
            used = [stages[stage] for stage in sorted(set(chosen))]
            if any(
                not allowed[unit, list(stages[stage])].all() for unit, stage in enumerate(chosen)
            ):
                continue
            unit_device = np.array([stages[stage][0] for stage in chosen])
            device = unit_device[problem.op_unit]
            placement = Placement(device, replicas=tuple(s for s in used if len(s) > 1))
            if _equal(problem, placement) and _fits(problem, used, device):
                yield placement


def with_shares(problem, placement, steps=6) -> Iterator[Placement]:
    """The placement, and where shares may differ that with all shares in `steps` parts of 1."""
    yield placement
    if problem.options.shares == "equal" or not placement.replicas:
        return
    choices = [
        [
            tuple(part / steps for part in parts)
            for parts in itertools.product(range(1, steps + 1), repeat=len(stage))
            if sum(parts) == steps
        ]
        for stage in placement.replicas
    ]
    for shares in itertools.product(*choices):
        yield replace(placement, replica_shares=shares)


def best_shares(problem, placement, steps=12, zooms=8) -> tuple[float, Placement]:
    """The least time per sample of a split whose one stage of replicas shares in any way.

    A grid of shares, then ever finer ones around the best of the one before.
    """
    if not placement.replicas:
        return loads(problem, placement).value, placement
    (stage,) = placement.replicas
    centre, width = np.zeros(len(stage)), 1.0
    best, chosen = math.inf, placement
    for _ in range(zooms):
        found = centre
        for parts in itertools.product(range(-steps, steps + 1), repeat=len(stage) - 1):
            first = centre[:-1] + width * np.array(parts) / steps
            shares = np.append(first, 1.0 - first.sum())
            if shares.min() < 1e-9:
                continue
            shared = replace(placement, replica_shares=(tuple(shares.tolist()),))
            value = loads(problem, shared).value
            if value < best:
                best, chosen, found = value, shared, shares
        centre, width = found, width * 2 / steps
    return best, chosen


def _equal(problem, placement) -> bool:
    for stage in placement.replicas:
        ops = np.flatnonzero(placement.device == stage[0])
        times = problem.op_time[np.ix_(ops, list(stage))]
        differ = (times != times[:, :1]).any() and problem.options.shares == "equal"
        if differ or (problem.op_pinned[ops] >= 0).any():
            return False
    return True


def _fits(problem, stages, device) -> bool:
    for stage in stages:
        needed = problem.op_memory[device == stage[0]].sum()
        if any(needed > problem.device_memory[d] * (1 + 1e-9) for d in stage):
            return False
    return True


def is_contiguous(problem, device) -> bool:
    """Whether stages can be put in a row: forward data up it, backward data all down or all up."""
    backward = problem.is_backward
    for turned in (True, False):
        after: dict[int, set[int]] = {int(d): set() for d in device}
        for edge in range(problem.edge_count):
            producer, consumer = problem.edge_producer[edge], problem.consumers[edge]
            one, two = int(device[producer]), int(device[consumer])
            if one == two or backward[producer] != backward[consumer]:
                continue
            if backward[producer] and turned:
                one, two = two, one
            after[two].add(one)
        try:
            list(TopologicalSorter(after).static_order())
        except CycleError:
            continue
        return True
    return False


def best_split(
    problem, contiguous: bool | None = None, finely: bool = False
) -> tuple[float, Placement | None]:
    """The least time per sample of all splits, infinite if none is allowed, and a split of it.

    Where shares may differ, of all splits with shares of a grid or, `finely`, with the best.
    """
    if contiguous is None:
        contiguous = problem.options.contiguous
    best, best_placement = math.inf, None
    for placement in all_splits(problem):
        if contiguous and not is_contiguous(problem, placement.device):
            continue
        if finely:
            value, shared = best_shares(problem, placement)
            if value < best:
                best, best_placement = value, shared
            continue
        for shared in with_shares(problem, placement):
            value = loads(problem, shared).value
            if value < best:
                best, best_placement = value, shared
    return best, best_placement
