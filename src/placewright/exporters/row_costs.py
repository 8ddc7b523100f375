"""What stages of consecutive pieces take on each class of devices, as tables.

For objective ``throughput`` that is a stage's load: its ops, and each tensor that leaves or enters
it, sent at least once. For ``latency`` it is the part of a stage that nothing else can overlap. Let
c(j) be an op of piece j that only later pieces read, with c(j − 1) among its ancestors. The ops of
a stage i … j that come after c(i − 1) and before c(j) run one by one on the stage's device, after
the tensor of c(i − 1) has come there, and before that of c(j) leaves; so a plan takes at least the
sum of these and of these transfers. Where one op at the end of each block leads to all that
follows, as in any stack of layers, the sum is what the plan takes. Ops that wait for nothing before
their stage (a mask, the modulation of a diffusion transformer) may come sooner; but c(j) ends no
sooner than its device has computed all that comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.analysis.devices import Classes, device_classes
from placewright.errors import OptionError
from placewright.exporters.crossing import Crossing
from placewright.exporters.pieces import Phase, Pieces
from placewright.exporters.sharing import spared
from placewright.exporters.spine import Chain, chain_of, handovers
from placewright.exporters.stretches import within
from placewright.graph import Floats, Wide
from placewright.problem import ROUNDING, Problem
from placewright.simulate.throughput import combined


@dataclass(frozen=True, eq=False)
class RowCosts:
    """`seconds[class, first, last]` of a stage, `inf` where the class does not take all its ops, or
    its KV cache is too large.

    `handover[class, class, piece]` seconds from a stage that ends with the piece to the next
    (``latency``; zero for ``throughput``, whose stages count their transfers themselves).
    `work[class, first, last]` seconds from the start before which no stage ends (``latency``).
    `memory[first, last]` bytes, `cache[first, last]` those of them that are a KV cache. `is_bound`:
    no plan of such stages takes less than they say.
    """

    classes: Classes
    seconds: Floats
    work: Floats
    handover: Floats
    memory: Floats
    cache: Floats
    is_bound: bool = True


def row_costs(pieces: Pieces, chains: Sequence[Chain] = ()) -> RowCosts:
    """The tables of all phases; OptionError for an objective that rows are not planned for.

    `chains` are those of the phases, where they are known (``latency``).
    """
    problem, options = pieces.problem, pieces.problem.options
    classes = _classes(pieces)
    first = [members[0] for members in classes[1]]
    held = piece_sums(pieces, problem.op_memory) - spared(pieces.shared, pieces.count)
    cache = piece_sums(pieces, problem.op_cache) if problem.op_cache.size else np.zeros_like(held)
    if options.objective == "throughput":
        if options.schedule != "pipedream" or options.replicate:
            raise OptionError("--for plans stages without replicas, under schedule pipedream")
        seconds = _loads(pieces, first)
        handover = np.zeros((len(first), len(first), pieces.count))
        work, is_bound = np.zeros_like(seconds), True
    else:
        options.require_latency("--for is", " nor throughput")
        chains = chains or chains_of(pieces)
        seconds = work = np.zeros((len(first), pieces.count, pieces.count))
        handover = np.zeros((len(first), len(first), pieces.count))
        for phase, chain in zip(pieces.phases, chains, strict=True):
            serial = _serial(phase, first, chain.first, chain.last, pieces.count)
            place = phase.op_piece.astype(np.int64)
            until = _serial(phase, first, place, chain.last, pieces.count)
            sent = handovers(phase.problem, chain.spine, classes)
            seconds = seconds + phase.repeats * serial
            work = work + phase.repeats * until
            handover = handover + phase.repeats * sent
        is_bound = all(chain.leads for chain in chains)
    seconds = where_supported(pieces, first, seconds)
    seconds[:, cache > pieces.most_cache * (1 + ROUNDING)] = np.inf
    return RowCosts(classes, seconds, work, handover, held, cache, is_bound)


def chains_of(pieces: Pieces) -> list[Chain]:
    """The chain of each phase."""
    return [chain_of(phase.problem, phase.op_piece, pieces.count) for phase in pieces.phases]


def _classes(pieces: Pieces) -> Classes:
    """Devices that are interchangeable in every phase."""
    of = np.stack([device_classes(phase.problem)[0] for phase in pieces.phases])
    if len(of) == 1:
        return device_classes(pieces.problem)
    numbers: dict[tuple[int, ...], int] = {}
    joint = [numbers.setdefault(tuple(each), len(numbers)) for each in of.T.tolist()]
    members = [[d for d, one in enumerate(joint) if one == k] for k in range(len(numbers))]
    return np.array(joint, dtype=np.int32), tuple(map(tuple, members))


def piece_sums(pieces: Pieces, values: Floats) -> Floats:
    """`[i, j]` the sum of a value per op over pieces i … j."""
    each = np.bincount(pieces.op_piece, values, pieces.count)
    total = np.concatenate([[0.0], np.cumsum(each)])
    found: Floats = np.subtract.outer(-total[:-1], -total[1:])
    return found


def where_supported(pieces: Pieces, devices: list[int], seconds: Floats) -> Floats:
    """`inf` for stages of which an op is not supported."""
    problem = pieces.problem
    pinned = problem.op_pinned
    for row, device in enumerate(devices):
        barred = ~np.isfinite(problem.op_time[:, device]) | ((pinned >= 0) & (pinned != device))
        seconds[row][piece_sums(pieces, barred) > 0] = np.inf
    return seconds


def finite_seconds(problem: Problem, device: int) -> Floats:
    time = problem.op_time[:, device]
    return np.where(np.isfinite(time), time, 0.0)


def _loads(pieces: Pieces, devices: list[int]) -> Floats:
    """`[class, i, j]` the load of a stage, each transfer over the quickest way there is."""
    problem, count = pieces.problem, pieces.count
    sent, received = np.zeros((2, 2, count, count))
    for phase in pieces.phases:
        amounts = Crossing(phase, count).tables()
        sent += phase.repeats * np.stack(amounts[0])
        received += phase.repeats * np.stack(amounts[1])
    seconds = np.empty((len(devices), count, count))
    for row, device in enumerate(devices):
        out, into = ways(problem, device)
        outgoing = out[0] * sent[0] + out[1] * sent[1]
        incoming = into[0] * received[0] + into[1] * received[1]
        compute = compute_seconds(pieces, device)
        seconds[row] = combined(problem.options, compute, incoming, outgoing)
    return seconds


def compute_seconds(pieces: Pieces, device: int) -> Floats:
    """`[i, j]` seconds of the ops of pieces i … j that the device supports."""
    total = np.zeros((pieces.count, pieces.count))
    for phase in pieces.phases:
        place = phase.op_piece.astype(np.int64)
        seconds = within(place, place, finite_seconds(phase.problem, device), pieces.count)
        total += phase.repeats * seconds
    return total


def ways(problem: Problem, device: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """`(latency, seconds per byte)` of the quickest way out of a device, and into it."""
    if problem.staging == "host":
        latency, rate = problem.host_latency[:, device], problem.host_seconds_per_byte[:, device]
        return (float(latency[0]), float(rate[0])), (float(latency[1]), float(rate[1]))
    others = np.arange(problem.device_count) != device
    if not others.any():
        return (0.0, 0.0), (0.0, 0.0)

    def least(row: Floats) -> float:
        return float(row[others].min())

    latency, rate = problem.link_latency, problem.link_seconds_per_byte
    return (
        (least(latency[device]), least(rate[device])),
        (least(latency[:, device]), least(rate[:, device])),
    )


def _serial(phase: Phase, devices: list[int], after: Wide, before: Wide, count: int) -> Floats:
    """`[class, i, j]` seconds of the ops with `after` ≥ i and `before` ≤ j, one by one."""
    problem = phase.problem
    return np.stack([within(after, before, finite_seconds(problem, d), count) for d in devices])
