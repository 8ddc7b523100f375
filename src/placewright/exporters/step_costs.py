"""What stages of consecutive pieces take of a step of micro-batches, as tables.

Transfers are counted once each, over the quickest way that a device has, so a stage takes no less
in any row. Of its passes it shares at most all that it sends with the stage that gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.analysis.devices import Classes, device_classes
from placewright.exporters.crossing import Amounts, Crossing
from placewright.exporters.data_parallel import Groups
from placewright.exporters.engines import Limits
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import finite_seconds, piece_sums, ways, where_supported
from placewright.exporters.rows import Stage
from placewright.exporters.sharing import spared
from placewright.exporters.stretches import within
from placewright.graph import Flags, Floats, Wide
from placewright.outcome import BACKWARD, FORWARD
from placewright.problem import ROUNDING
from placewright.simulate.pipeline_steps import forward_first, in_flight


@dataclass(frozen=True, eq=False)
class Again:
    """Pieces that may run again in the backward pass (`coarsen.recompute`): first those of a stage.

    ``seconds[device, piece]`` that it takes; ``saved[piece]`` bytes of each micro-batch that are
    not kept then; ``room[device]`` bytes, where what a piece makes again has its own. Of a stage as
    few run again as must for it to fit. Or, if given, so many, all where it has fewer: `least` is
    what takes time, and `most` what saves memory.
    """

    seconds: Floats
    saved: Floats
    room: Floats
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, eq=False)
class StepCosts:
    """``passes[k][way, class, i, j]`` seconds of a stage of pieces i … j with k stages after it,
    infinite where it is none, or has no room.

    ``again[k][class, i, j]`` of the backward ones to run pieces again, and before which piece those
    end: ``kept_from[k]``. ``sent[way, class, i, j]`` at the end, when a neighbour may have begun.
    ``exchange[class, i, j]`` seconds at least in which data-parallel pipelines exchange gradients
    of such a stage, and `is_exact` whether it is no more on any device of the class. Of the
    `step_micro_batches` of a step a pipeline does `micro_batches`. `in_flight[k]` micro-batches
    that a stage with k stages after it keeps; `is_gpipe`: a stage does all its forward passes
    first. `least` is what the whole model keeps, at least, with one micro-batch, `least_stash`
    those of it that are activations.
    """

    classes: Classes
    passes: Sequence[Floats]
    again: Sequence[Floats]
    kept_from: Sequence[Wide]
    sent: Floats
    exchange: Floats
    micro_batches: int
    step_micro_batches: int
    in_flight: Floats
    is_gpipe: bool
    least: float
    least_stash: float
    is_exact: bool = True

    @property
    def most_stages(self) -> int:
        return len(self.in_flight)

    @property
    def count(self) -> int:
        """Pieces."""
        return int(self.sent.shape[-1])

    def may(self, after: int) -> Flags:
        """`[class, i, j]` whether it is a stage that so many others can come after."""
        found: Flags = np.isfinite(self.passes[after][FORWARD])
        return found

    def runs_again(self, stages: Sequence[Stage]) -> list[int]:
        """The pieces that run again in a row of these stages."""
        found: list[int] = []
        for after, (one, first, last) in enumerate(reversed(stages)):
            found += range(first, int(self.kept_from[after][one, first, last]))
        return sorted(found)


def step_costs(
    pieces: Pieces, limits: Limits, again: Again | None = None, groups: Groups | None = None
) -> StepCosts:
    """The tables of a problem with option `micro_batches`, for rows that an engine runs.

    With `groups` only devices of the first of them may be used (`Groups.first_alone`).
    """
    problem, options = pieces.problem, pieces.problem.options
    count, total = options.pipeline_micro_batches, options.micro_batches
    assert count is not None and total is not None
    classes = device_classes(problem)
    devices = [members[0] for members in classes[1]]
    is_gpipe = forward_first(problem)
    most = min(sum(map(len, classes[1])), pieces.count)
    if limits.fills_first and not is_gpipe:
        most = min(most, count)
    flying = in_flight(options, most, is_training=bool(problem.is_backward.any()))[::-1]
    passes, sent = _passes(pieces, devices)
    for each in passes:
        where_supported(pieces, devices, each)
    kept = _Kept(pieces, devices, again)
    stages = {int(each): kept.stages(passes, float(each)) for each in flying}
    each_after = [stages[int(each)] for each in flying]
    exchange, is_exact = np.zeros(sent.shape[1:]), True
    if groups is not None:
        exchange, is_exact = groups.exchange(pieces, classes)
    return StepCosts(
        classes=classes,
        passes=[each[0] for each in each_after],
        again=[each[1] for each in each_after],
        kept_from=[each[2] for each in each_after],
        sent=sent,
        exchange=exchange,
        micro_batches=count,
        step_micro_batches=total,
        in_flight=flying.astype(np.float64),
        is_gpipe=is_gpipe,
        least=kept.least,
        least_stash=kept.least_stash,
        is_exact=is_exact,
    )


class _Kept:
    """What stages of pieces i … j keep, and which of them run again for that."""

    def __init__(self, pieces: Pieces, devices: list[int], again: Again | None) -> None:
        problem, count = pieces.problem, pieces.count
        stash = problem.op_stash if problem.op_stash.size else np.zeros(problem.op_count)
        self.memory = piece_sums(pieces, problem.op_memory) - spared(pieces.shared, count)
        self.stash = piece_sums(pieces, stash)
        room = problem.device_memory if again is None else again.room
        self.room = room[devices][:, None, None]
        self.number = (0, 0) if again is None else (again.least, again.most)
        nothing = np.zeros((len(devices), count))
        seconds, saved = nothing, nothing[0]
        if again is not None:
            seconds, saved = again.seconds[devices], again.saved
        self.seconds = np.concatenate([nothing[:, :1], seconds.cumsum(axis=1)], axis=1)
        self.saved = np.concatenate([[0.0], saved.cumsum()])
        self.able = np.concatenate([[0], (saved > 0).cumsum()])
        self.first, self.last = np.arange(count)[:, None], np.arange(count)[None, :]

    @property
    def least(self) -> float:
        return float(self.memory[0, -1] - self.saved[-1])

    @property
    def least_stash(self) -> float:
        return float(self.stash[0, -1] - self.saved[-1])

    def stages(self, passes: Floats, flying: float) -> tuple[Floats, Floats, Wide]:
        """`passes` with what runs again, infinite where there is no room; that; and up to where.

        With so many micro-batches in flight.
        """
        needed = self.memory + (flying - 1) * self.stash
        least, most = self.number
        end = self._end(least, needed - self.room, flying)
        until = end if most == least else self._end(most, needed - self.room, flying)
        saved = flying * (self.saved[until] - self.saved[self.first])
        fits = needed - saved <= self.room * (1 + ROUNDING)
        classes = np.arange(len(self.seconds))[:, None, None]
        again = self.seconds[classes, end] - self.seconds[classes, self.first]
        is_stage = fits & (self.first <= self.last)
        found = np.where(is_stage, passes, np.inf)
        found[BACKWARD] += again
        return found, again, end

    def _end(self, number: int | None, lacking: Floats, flying: float) -> Wide:
        """`[class, i, j]` the first piece of a stage that does not run again, j + 1 for none.

        So many do, or as few as must: so many bytes are `lacking` if none did.
        """
        if number is None:
            saved = self.saved[self.first] + np.maximum(lacking, 0.0) / flying
            end = np.searchsorted(self.saved, saved)
        else:
            able = np.broadcast_to(self.able[self.first] + number, lacking.shape)
            end = np.searchsorted(self.able, able)
        found: Wide = np.clip(end, self.first, np.maximum(self.last + 1, self.first))
        return found


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
