"""The best row of steps of micro-batches where the table of single stages is below it: by search.

As `row_search` for pipelines that are kept full: what a stage sends takes what the way to its
neighbour does, and what it waits for is known once all stages after it are.
"""

from __future__ import annotations

import numpy as np

from placewright.exporters.crossing import Crossing
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import finite_seconds, ways
from placewright.exporters.row_search import class_counts, class_ways
from placewright.exporters.rows import Stage
from placewright.exporters.step_costs import StepCosts
from placewright.exporters.step_rows import StageTables
from placewright.exporters.stretches import within
from placewright.graph import Floats, Wide
from placewright.kernels.throughput.step_rows import StepScratch, StepTables, best_steps
from placewright.kernels.throughput.steps import Passes
from placewright.outcome import BACKWARD, FORWARD

MOST_PASSES = 400_000_000  # that are timed: about two seconds
MOST_PIECES = 100  # of which there are cubic tables


def best_of_steps(
    pieces: Pieces, costs: StepCosts, limit: float, most_passes: int = MOST_PASSES
) -> tuple[tuple[Stage, ...] | None, bool]:
    """Stages of the best row whose step is below `limit`, if any; whether all were looked at."""
    if pieces.count > MOST_PIECES or pieces.problem.staging == "host":
        return None, False
    tables = step_tables(pieces, costs)
    scratch = step_scratch(tables, costs.most_stages)
    _, stages, whole = best_steps(tables, scratch, limit, most_passes)
    if not stages:
        return None, whole
    found, last = [], pieces.count - 1
    for one, first in scratch.best[:stages].tolist():
        found.append((one, first, last))
        last = first - 1
    return tuple(found[::-1]), whole


def step_tables(pieces: Pieces, costs: StepCosts) -> StepTables:
    """What stages of a problem cost."""
    problem = pieces.problem
    devices = [members[0] for members in costs.classes[1]]
    latency, rate = class_ways(problem, costs.classes)
    available, weight = class_counts(costs.classes)
    return StepTables(
        compute=_compute(pieces, costs, devices),
        in_flight=costs.in_flight,
        amounts=_amounts(pieces),
        latency=latency,
        rate=rate,
        quickest=np.array([ways(problem, device) for device in devices]),
        available=available,
        weight=weight,
        rest=_rest(costs, available, weight),
        exchange=costs.exchange,
        micro_batches=costs.micro_batches,
        is_gpipe=costs.is_gpipe,
    )


def _compute(pieces: Pieces, costs: StepCosts, devices: list[int]) -> Floats:
    place, backward = pieces.op_piece.astype(np.int64), pieces.problem.is_backward
    table = np.array([
        [
            within(place, place, finite_seconds(pieces.problem, device) * (backward == way),
                   pieces.count)
            for device in devices
        ]
        for way in (FORWARD, BACKWARD)
    ])  # fmt: skip
    found = np.where(np.isfinite(costs.passes), table, np.inf)
    found[:, BACKWARD] += costs.again
    return found


def _amounts(pieces: Pieces) -> Floats:
    """Made forward, of these read by forward ops, and made backward; by `Crossing`."""
    problem = pieces.problem
    made, read = problem.is_backward[problem.edge_producer], problem.is_backward[problem.consumers]
    return np.array(
        [
            Crossing(pieces.phases[-1], pieces.count, some).from_the_first()
            for some in (~made, ~made & ~read, made)
        ]
    )


def _rest(costs: StepCosts, available: Wide, weight: Wide) -> Floats:
    """`[sums, peaks or loads, set of used devices, e]` the least of stages of pieces before e.

    Loads for all micro-batches. As many stages as there are used devices come after them.
    """
    stages, count = StageTables(costs), costs.count
    sets = int(np.prod(available + 1))
    found = np.full((3, sets, count + 1), np.inf)
    found[:, :, 0] = 0.0
    for used in range(sets - 1, 0, -1):
        taken = [used // step % (each + 1) for step, each in zip(weight, available, strict=True)]
        if (after := sum(taken)) >= costs.most_stages:
            continue
        for one, step in enumerate(weight.tolist()):
            if taken[one] == available[one]:
                continue
            peaks = stages.peaks[after][one]
            before = found[:, used + step, :count, None]
            load = costs.passes[after][:, one].sum(axis=0) * costs.micro_batches
            each = (
                stages.sums[after][one] + before[0],
                np.maximum(peaks, before[1]),
                np.maximum(load, before[2]),
            )
            for kind, total in enumerate(each):
                found[kind, used, 1:] = np.minimum(found[kind, used, 1:], total.min(axis=0))
    return found


def step_scratch(tables: StepTables, most: int) -> StepScratch:
    """Room for rows of so many stages."""
    none = np.zeros(most)
    return StepScratch(
        one=np.zeros(most, dtype=np.int64),
        begin=np.zeros(most + 1, dtype=np.int64),
        seconds=np.zeros((most, 4, most)),
        passes=Passes(
            none, none.copy(), none.copy(), none.copy(), none.copy(),
            np.zeros((most, tables.micro_batches)),
        ),
        left=tables.available.copy(),
        best=np.zeros((most, 2), dtype=np.int64),
    )  # fmt: skip
