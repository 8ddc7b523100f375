"""Plans of batches to start a search from."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from placewright import planners
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.batch.instance import (
    BatchIncumbent,
    chunk_devices,
    chunk_size,
    timed_batches,
)
from placewright.graph import Ints
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.batch.rows import Draft, fill
from placewright.planners.throughput.multilevel import Multilevel, first_plan
from placewright.problem import Problem

HEURISTICS = ("heft", "greedy", "met")
SEARCH = "multilevel"
# Of the search for a split with the least load: the share of the time, seconds and rounds at most.
LOAD_SHARE, LOAD_SECONDS, LOAD_ROUNDS = 0.1, 0.5, 10


def first_plans(
    problem: Problem, seed: int, budget: Budget, names: tuple[str, ...] = HEURISTICS
) -> list[BatchIncumbent]:
    """Whole inputs, and all inputs in one batch, placed simply; and what planners find.

    Shortest first. `names` are those of the planners, which may take as long as the budget says:
    when that has passed there are no more, and no search where it would not get past its start,
    which takes as long as the others together. If the budget has a start, there is nothing else:
    it took longer to find than these would.
    """
    if budget.start is not None:
        return [timed_batches(problem, budget.start)]
    placements = [whole_inputs(problem), one_after_another(problem)]
    for name in names:
        needed = budget.seconds - budget.left if name == SEARCH else 0.0
        if budget.left <= needed and any(each is not None for each in placements):
            break
        if any(row.name == name for row in planners.planners_for("batch-throughput")):
            planner = planners.create(name, objective="batch-throughput")
            try:
                placements.append(planner.plan(problem, budget, seed, no_progress).placement)
            except (InfeasibleError, OptionError):
                continue
    found = [timed_batches(problem, each) for each in placements if each is not None]
    return sorted(found, key=lambda each: each.value)


def in_chunks(problem: Problem, incumbent: BatchIncumbent) -> bool:
    return chunk_devices(incumbent.placement.device, chunk_size(problem)) is not None


def whole_inputs(problem: Problem) -> Placement | None:
    """Each input goes through all ops on one device: data parallelism, as even as sizes allow.

    The shares are those with the least work on the busiest device, by dynamic programming over
    devices and inputs given out. None if memory, sizes or pins allow none. O(D · sizes · L).
    """
    if (problem.op_pinned >= 0).any():
        return None
    fits = np.isfinite(problem.op_time).all(axis=0)
    fits &= problem.op_memory.sum() <= problem.device_memory
    work = np.where(fits[:, None], problem.batch_time.sum(axis=0), np.inf)
    total = problem.options.batch
    least = np.full(total + 1, np.inf)
    least[0] = 0.0
    shares: list[Ints] = []
    for device in range(problem.device_count):
        following, share = least.copy(), np.zeros(total + 1, dtype=np.int32)
        for size, seconds in zip(problem.batch_sizes.tolist(), work[device], strict=True):
            busiest = np.full(total + 1, np.inf)
            busiest[size:] = np.maximum(least[: total + 1 - size], seconds)
            better = busiest < following
            following[better], share[better] = busiest[better], size
        least = following
        shares.append(share)
    if not np.isfinite(least[total]):
        return None
    row = np.empty(total, dtype=np.int32)
    left = total
    for device in reversed(range(problem.device_count)):
        row[left - shares[device][left] : left] = device
        left -= int(shares[device][left])
    return Placement(np.tile(row, (problem.op_count, 1)))


def one_after_another(problem: Problem) -> Placement | None:
    """All inputs in one batch; units in topological order, each device filled before the next.

    Devices by their work for the whole batch, the quickest first. None where a unit fits nowhere.
    """
    whole = np.flatnonzero(problem.batch_sizes == problem.options.batch)
    if not len(whole):
        return None
    time = np.where(np.isfinite(problem.unit_time), 0.0, np.inf)
    np.add.at(time, problem.op_unit, problem.batch_time[:, :, whole[0]])
    held = np.isfinite(time)
    finite = np.where(held, time, time[held].max() if held.any() else 0.0)
    quickest_first = np.argsort(finite.sum(axis=0), kind="stable").tolist()
    unit_device = problem.unit_pinned.copy()
    free = problem.free_memory(unit_device)
    for unit in dict.fromkeys(problem.op_unit[problem.topological_order].tolist()):
        if unit_device[unit] >= 0:
            continue
        able = [d for d in quickest_first if held[unit, d] and problem.unit_memory[unit] <= free[d]]
        if not able:
            return None
        unit_device[unit] = able[0]
        free[able[0]] -= problem.unit_memory[unit]
    if not held[np.arange(problem.unit_count), unit_device].all():
        return None
    device = unit_device[problem.op_unit]
    return Placement(np.repeat(device[:, None], problem.options.batch, axis=1))


def of_least_load(problem: Problem, planner: str, seed: int, budget: Budget) -> Ints:
    """``rows[unit, chunk]`` that have each unit on one device, as `annealing` for throughput does.

    No copies, and the largest load as small as it finds in a moment: where batches are many,
    devices are busy all the time. A unit whose batch must be split, or that has no room there,
    goes where there is. Ctrl-C is the caller's care; InfeasibleError if nothing fits.
    """
    single = replace(problem, options=Options(objective="throughput", contiguous=False))
    part = budget.part(min(LOAD_SHARE * budget.left, LOAD_SECONDS))
    try:
        first = first_plan(single, seed, part)
    except InfeasibleError as error:  # which proves nothing: batches may be split
        raise InfeasibleError(f"planner '{planner}': start=least-load: {error}") from None
    unit_device = Multilevel(single, seed, first).run(part, LOAD_ROUNDS).unit_device
    return fill(problem, planner, partial(_place_on, unit_device)).rows


def _place_on(unit_device: Ints, draft: Draft) -> int:
    """Give each unit without a row the split that has most on its device; -1, or who fails."""
    return draft.place_all(lambda unit: -draft.splits.of(unit)[:, unit_device[unit]])
