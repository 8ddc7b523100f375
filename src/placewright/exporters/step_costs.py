"""What stages of consecutive pieces take of a step of micro-batches, as tables.

Transfers are counted once each, over the quickest way that a device has, so a stage takes no less
in any row. Of its passes it shares at most all that it sends with the stage that gets it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.analysis.devices import Classes, device_classes
from placewright.exporters.crossing import Amounts, Crossing
from placewright.exporters.engines import Limits
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import finite_seconds, piece_sums, ways, where_supported
from placewright.exporters.sharing import spared
from placewright.exporters.stretches import within
from placewright.graph import Flags, Floats
from placewright.outcome import BACKWARD, FORWARD
from placewright.problem import ROUNDING
from placewright.simulate.pipeline_steps import forward_first, in_flight


@dataclass(frozen=True, eq=False)
class StepCosts:
    """``passes[way, class, i, j]`` seconds of a stage of pieces i … j, infinite where it is none.

    ``sent[way, class, i, j]`` of these at the end, when a neighbour may have begun. `memory[i, j]`
    bytes with the activations of one micro-batch, which are `stash[i, j]`; `room[class]` bytes.
    `in_flight[k]` micro-batches that a stage with k stages after it keeps; `is_gpipe`: a stage does
    all its forward passes first.
    """

    classes: Classes
    passes: Floats
    sent: Floats
    memory: Floats
    stash: Floats
    room: Floats
    micro_batches: int
    in_flight: Floats
    is_gpipe: bool

    @property
    def most_stages(self) -> int:
        return len(self.in_flight)

    def may(self, after: int) -> Flags:
        """`[class, i, j]` whether it is a stage that so many others can come after."""
        needed = self.memory + (self.in_flight[after] - 1) * self.stash
        upper = np.triu(np.ones(needed.shape, dtype=np.bool_))
        fits = needed <= self.room[:, None, None] * (1 + ROUNDING)
        found: Flags = np.isfinite(self.passes[FORWARD]) & fits & upper
        return found


def step_costs(pieces: Pieces, limits: Limits) -> StepCosts:
    """The tables of a problem with option `micro_batches`, for rows that an engine runs."""
    problem, options = pieces.problem, pieces.problem.options
    count = options.micro_batches
    assert count is not None
    classes = device_classes(problem)
    devices = [members[0] for members in classes[1]]
    is_training = bool(problem.is_backward.any())
    is_gpipe = forward_first(problem)
    most = min(sum(map(len, classes[1])), pieces.count)
    if limits.fills_first and not is_gpipe:
        most = min(most, count)
    passes, sent = _passes(pieces, devices)
    for each in passes:
        where_supported(pieces, devices, each)
    stash = problem.op_stash
    return StepCosts(
        classes=classes,
        passes=passes,
        sent=sent,
        memory=piece_sums(pieces, problem.op_memory) - spared(pieces.shared, pieces.count),
        stash=piece_sums(pieces, stash if stash.size else np.zeros(problem.op_count)),
        room=problem.device_memory[devices],
        micro_batches=count,
        in_flight=in_flight(options, most, is_training=is_training)[::-1].astype(np.float64),
        is_gpipe=is_gpipe,
    )


def _passes(pieces: Pieces, devices: list[int]) -> tuple[Floats, Floats]:
    """`(passes, sent)` of `StepCosts`, where every op is supported."""
    problem, count = pieces.problem, pieces.count
    place, backward = pieces.op_piece.astype(np.int64), problem.is_backward
    out, into = _amounts(pieces)
    passes = np.empty((2, len(devices), count, count))
    sent = np.zeros_like(passes)
    for row, device in enumerate(devices):
        leaving, arriving = ways(problem, device)
        for way in (FORWARD, BACKWARD):
            ops = finite_seconds(problem, device) * (backward == (way == BACKWARD))
            outgoing = leaving[0] * out[way][0] + leaving[1] * out[way][1]
            incoming = arriving[0] * into[way][0] + arriving[1] * into[way][1]
            passes[way, row] = within(place, place, ops, count) + incoming + outgoing
            if problem.staging == "direct":
                sent[way, row] = outgoing
    return passes, sent


def _amounts(pieces: Pieces) -> tuple[list[Amounts], list[Amounts]]:
    """What a stage sends and receives in its forward and in its backward pass.

    A tensor comes in the forward pass where a forward op reads it, in the backward pass else.
    """
    problem, own = pieces.problem, pieces.phases[-1]
    makes = problem.is_backward[problem.edge_producer]
    reads = problem.is_backward[problem.consumers]
    sent = [Crossing(own, pieces.count, makes == way).tables()[0] for way in (False, True)]
    all_received = Crossing(own, pieces.count).tables()[1]
    forward = Crossing(own, pieces.count, ~reads).tables()[1]
    backward = tuple(
        np.maximum(every - some, 0.0) for every, some in zip(all_received, forward, strict=True)
    )
    return sent, [forward, (backward[0], backward[1])]
