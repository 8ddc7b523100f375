"""The best row for throughput where the table of single stages is below it: by search.

What a stage sends takes what the way to its neighbour does, and masks and rotary positions go from
an early stage to each that comes after it. Both are known once the whole row is.
"""

from __future__ import annotations

import numpy as np

from placewright.analysis.devices import Classes
from placewright.exporters.crossing import Crossing
from placewright.exporters.pieces import MOST_STAGES, Pieces
from placewright.exporters.row_costs import RowCosts, compute_seconds, ways
from placewright.exporters.rows import Row
from placewright.graph import Floats, Wide
from placewright.kernels.throughput.arrays import DUPLEX, OVERLAP, SUM
from placewright.kernels.throughput.stage_rows import RowScratch, RowTables, best_stages
from placewright.problem import ROUNDING, Problem

MOST_NODES = 4_000_000  # stages that are looked at: about two seconds
MOST_PIECES = 200  # of which there are cubic tables
LOADS = {"sum": SUM, "overlap": OVERLAP, "duplex": DUPLEX}


def best_of_rows(
    pieces: Pieces, costs: RowCosts, limit: float, most_nodes: int = MOST_NODES
) -> tuple[Row | None, bool]:
    """The best row whose largest load is below `limit`, if any, and whether all were looked at."""
    if pieces.count > MOST_PIECES or pieces.problem.staging == "host":
        return None, False
    tables = row_tables(pieces, costs)
    scratch = row_scratch(tables, pieces.most_stages)
    value, stages, whole = best_stages(tables, scratch, limit, most_nodes)
    if not stages:
        return None, whole
    ends = scratch.best[:stages].tolist()
    firsts = [0, *(last + 1 for _, last in ends)]
    row = tuple((one, first, last) for (one, last), first in zip(ends, firsts, strict=False))
    return Row(float(value), row), whole


def row_tables(pieces: Pieces, costs: RowCosts) -> RowTables:
    """What stages of a problem cost."""
    problem, members = pieces.problem, costs.classes[1]
    devices = [each[0] for each in members]
    room = problem.device_memory[devices] * (1 + ROUNDING)
    may = np.isfinite(costs.seconds) & (costs.memory <= room[:, None, None])
    compute = np.stack([compute_seconds(pieces, device) for device in devices])
    tensors, nbytes = np.zeros((2, pieces.count + 1, pieces.count, pieces.count))
    for phase in pieces.phases:
        counts, amounts = Crossing(phase, pieces.count).from_the_first()
        tensors += phase.repeats * counts
        nbytes += phase.repeats * amounts
    latency, rate = class_ways(problem, costs.classes)
    available, weight = class_counts(costs.classes)
    return RowTables(
        compute=np.where(may, compute, np.inf),
        tensors=tensors,
        nbytes=nbytes,
        latency=latency,
        rate=rate,
        quickest=np.array([ways(problem, device) for device in devices]),
        available=available,
        weight=weight,
        rest=_rest(np.where(may, costs.seconds, np.inf), available, weight),
        load=LOADS[problem.options.load],
    )


def class_counts(classes: Classes) -> tuple[Wide, Wide]:
    """`[class]` its devices, and what one of them adds to the number of a set of used devices."""
    available = np.array([len(members) for members in classes[1]], dtype=np.int64)
    return available, np.concatenate([[1], np.cumprod(available + 1)[:-1]])


def class_ways(problem: Problem, classes: Classes) -> tuple[Floats, Floats]:
    """`[class, class]` latency, and seconds per byte, between two devices."""
    members = classes[1]
    latency, rate = np.zeros((2, len(members), len(members)))
    for one, (device, *_) in enumerate(members):
        for two, others in enumerate(members):
            other = next((each for each in others if each != device), device)
            latency[one, two] = problem.link_latency[device, other]
            rate[one, two] = problem.link_seconds_per_byte[device, other]
    return latency, rate


def _rest(stages: Floats, available: Wide, weight: Wide) -> Floats:
    """`[set of used devices, i]` the least largest load of stages of the pieces from i on."""
    count = stages.shape[1]
    upper = np.triu(np.ones((count, count), dtype=np.bool_))
    stages = np.where(upper, stages, np.inf)
    sets = int(np.prod(available + 1))
    found = np.full((sets, count + 1), np.inf)
    found[:, count] = 0.0
    for used in range(sets - 2, -1, -1):
        for one, step in enumerate(weight.tolist()):
            if used // step % (available[one] + 1) < available[one]:
                after = np.maximum(stages[one], found[used + step, None, 1:]).min(axis=1)
                found[used, :count] = np.minimum(found[used, :count], after)
    return found


def row_scratch(tables: RowTables, most_stages: int = MOST_STAGES) -> RowScratch:
    """Room for rows of as many stages as there are devices, or pieces, or may be."""
    most = min(int(tables.available.sum()), tables.compute.shape[1], most_stages)
    return RowScratch(
        one=np.zeros(most, dtype=np.int64),
        first=np.zeros(most + 1, dtype=np.int64),
        seconds=np.zeros((most, 2, most)),
        left=tables.available.copy(),
        best=np.zeros((most, 2), dtype=np.int64),
    )
