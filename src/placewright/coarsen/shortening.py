"""Shortening: of equal blocks in a row keep few, plan those, and repeat the plan.

A model of forty equal layers hardly wants forty different layers of placement, and a search that
moves one layer at a time has forty times as far to go. The shortened problem keeps three blocks of
a repeat (how it begins, goes on and ends), which move as one: ops in the same place of each are a
unit, with the memory of all the blocks they stand for. What fits there fits the whole. Where so
much memory would leave little choice of a device, the repeat is parted into stretches, each with
blocks of its own.

This is a heuristic: nothing proved of the shortened problem is proved of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.analysis.subproblem import op_columns
from placewright.coarsen.contraction import merged_colocation, projected
from placewright.coarsen.repeats import FEWEST_BLOCKS, Repeat, find_repeats
from placewright.errors import OptionError
from placewright.graph import Floats, Ints, Wide, frozen
from placewright.kernels.common.lifting import lift
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.latency import sequence_of, time_items

BLOCKS_KEPT = 3  # of a repeat that is one stretch: the first, one for all between, the last
BLOCKS_OF_STRETCH = 2  # of several: the first, one for all others
MOST_STRETCHES = 8
LARGEST_UNIT = 0.25  # of the memory of the smallest device that has any


@dataclass(frozen=True, eq=False)
class Series:
    """A repeat and what is kept of it.

    `block[copy]`: which of the kept blocks, in their order, stands for a copy; `stretch[block]`:
    the stretch a kept block is of. The first copy that a block stands for is the one that is kept.
    """

    repeat: Repeat
    block: Wide
    stretch: Wide

    @property
    def grid(self) -> tuple[Wide, Wide]:
        """The copy, and the place in it, of each position."""
        length, count = self.repeat.length, self.repeat.count
        return np.repeat(np.arange(count), length), np.tile(np.arange(length), count)

    @property
    def kept_copies(self) -> Wide:
        """`[block]` the copy that is kept."""
        return np.searchsorted(self.block, np.arange(len(self.stretch)))

    def like(self, copy: Wide, place: Wide) -> Wide:
        """The position of the kept op for that `place` in a block, for a copy."""
        kept: Wide = self.kept_copies[self.block[copy]]
        return self.repeat.start + kept * self.repeat.length + place


@dataclass(frozen=True, eq=False)
class Shortening:
    """`problem` is `original` with few blocks of each repeat.

    `op_group[op]` is the op of `problem` that stands for it, `edge_of[edge]` the edge that is like
    it, or -1. `series` tells what was cut out, in positions of `order`.
    """

    original: Problem
    problem: Problem
    op_group: Ints
    edge_of: Ints
    order: Ints
    series: tuple[Series, ...]

    def expand(self, placement: Placement) -> Placement:
        """Every block placed as the one that stands for it, and in that order."""
        device = placement.device[self.op_group]
        if placement.sequence is None:
            return Placement(device)
        return Placement(device, self._expand_sequence(placement))

    def project(self, placement: Placement) -> Placement | None:
        """A placement of all made one of the few; None where it does not fit then."""
        return projected(self.original, self.problem, self.op_group, placement)

    def _expand_sequence(self, placement: Placement) -> Ints:
        """Ops and transfers by when their likes start, later by what was left out before."""
        original = self.original
        op_start, op_finish, edge_start, edge_finish = time_items(self.problem, placement)
        delay = self._delays(op_finish)
        op_time = op_start[self.op_group] + delay
        sent = np.append(np.where(edge_start >= 0, edge_start, edge_finish), -np.inf)
        # An edge that is like no other, or is not sent, comes when its tensor is there.
        edge_time = sent[self.edge_of] + delay[original.consumers]
        offsets, inputs = original.op_inputs
        lift(
            original.topological_order, offsets, inputs, original.edge_producer, op_time, edge_time
        )
        return sequence_of(original, op_time, op_time, edge_time, edge_time)

    def _delays(self, op_finish: Floats) -> Floats:
        """`[op]` seconds that it comes after its like.

        A block that stands for several comes as long after itself as after the block before it.
        """
        delay = np.zeros(self.original.op_count)
        for series in self.series:
            repeat = series.repeat
            copies, places = series.grid
            kept = self.op_group[self.order[series.like(copies, places)]]
            end = np.zeros(len(series.stretch))
            np.maximum.at(end, series.block[copies], op_finish[kept])
            begin = op_finish[kept[: repeat.length]].min()
            period = np.maximum(np.diff(end, prepend=begin), 0.0)
            again = np.diff(series.block, prepend=-1) == 0
            late = np.cumsum(np.where(again, period[series.block], 0.0))
            delay[repeat.start : repeat.end] += late[copies]
            delay[repeat.end :] += late[-1]
        by_op = np.empty_like(delay)
        by_op[self.order] = delay
        return by_op


def shorten(problem: Problem) -> Shortening:
    """Keep few blocks of each repeat; OptionError where there is none, or not for ``latency``."""
    problem.options.require_latency(
        "coarsening 'repeats' is",
        why=": pipelines and batches load devices by all blocks, not by few; take another",
    )
    order, repeats = find_repeats(problem)
    if not repeats:
        raise OptionError(
            f"coarsening 'repeats' finds no block of ops {FEWEST_BLOCKS} times in a row; "
            "take another, or none"
        )
    stretches = 1
    while True:
        series = tuple(_series(repeat, stretches) for repeat in repeats)
        short = _shortened(problem, order, series)
        if stretches == MOST_STRETCHES or _leaves_choice(problem, short.problem):
            return short
        stretches *= 2


def _leaves_choice(problem: Problem, short: Problem) -> bool:
    """Whether all ops fit one device together, or no unit takes much of any device's memory.

    But for units that did before.
    """
    memory = problem.device_memory[problem.device_memory > 0]
    whole = problem.op_memory.sum() <= memory.max(initial=0.0)
    most = max(LARGEST_UNIT * memory.min(initial=np.inf), problem.unit_memory.max())
    return bool(whole or short.unit_memory.max() <= most)


def _series(repeat: Repeat, stretches: int) -> Series:
    """A repeat in so many stretches, or in as many as leave something out of each."""
    stretches = max(1, min(stretches, repeat.count // (BLOCKS_OF_STRETCH + 1)))
    kept = BLOCKS_KEPT if stretches == 1 else BLOCKS_OF_STRETCH
    block: list[int] = []
    stretch: list[int] = []
    for number, copies in enumerate(np.array_split(np.arange(repeat.count), stretches)):
        blocks = min(kept, len(copies))
        local = np.clip(np.arange(len(copies)), 0, min(1, blocks - 1))
        if blocks == BLOCKS_KEPT:
            local[-1] = BLOCKS_KEPT - 1
        block += (len(stretch) + local).tolist()
        stretch += [number] * blocks
    return Series(repeat, np.array(block), np.array(stretch))


def _shortened(problem: Problem, order: Ints, series: tuple[Series, ...]) -> Shortening:
    like, tie = _likes(problem, series)
    kept, group_at = np.unique(like, return_inverse=True)
    by_op = np.empty(problem.op_count, dtype=np.int32)
    by_op[order] = group_at
    op_group = frozen(by_op, np.int32)
    tensors, offsets, consumers, edge_of = _edges(problem, order, series, like, op_group)
    ops, count = order[kept], len(kept)
    copies = np.bincount(op_group, minlength=count)
    ties = np.full(count, -1, dtype=np.int32)
    ties[group_at] = tie
    time = np.zeros((count, problem.device_count))
    np.add.at(time, op_group, problem.op_time)
    short = replace(
        problem,
        **op_columns(problem, ops)
        | {
            "op_time": time / copies[:, None],
            "op_memory": np.bincount(op_group, problem.op_memory, count).astype(np.float64),
            "colocation": merged_colocation(problem, op_group, count, ties),
        },
        forward_twin=np.full(count, -1),
        tensor_producer=op_group[problem.tensor_producer[tensors]],
        tensor_bytes=problem.tensor_bytes[tensors],
        consumer_offsets=offsets,
        consumers=consumers,
    )
    return Shortening(problem, short, op_group, edge_of, order, series)


def _likes(problem: Problem, series: tuple[Series, ...]) -> tuple[Wide, Wide]:
    """By position: that of the op that stands for it, and a number that ties what moves as one.

    Where nothing is left out, the number is -1.
    """
    like = np.arange(problem.op_count)
    tie = np.full(problem.op_count, -1)
    for each in series:
        repeat = each.repeat
        copies, places = each.grid
        at = slice(repeat.start, repeat.end)
        like[at] = each.like(copies, places)
        first = each.stretch[each.block[copies]] * repeat.length
        tie[at] = tie.max() + 1 + first + places
    return like, tie


def _edges(
    problem: Problem, order: Ints, series: tuple[Series, ...], like: Wide, op_group: Ints
) -> tuple[Wide, Wide, Ints, Ints]:
    """Tensors of the shortened problem (by a tensor like them), its consumers in CSR, `edge_of`.

    An edge between copies of a repeat becomes one between blocks as far apart, or from the first.
    """
    position = np.empty(problem.op_count, dtype=np.int64)
    position[order] = np.arange(problem.op_count)
    source, target = position[problem.edge_producer], position[problem.consumers]
    source_like = like[source]
    for each in series:
        repeat = each.repeat
        within = (source >= repeat.start) & (target >= repeat.start)
        within &= (source < repeat.end) & (target < repeat.end)
        from_copy, place = np.divmod(source[within] - repeat.start, repeat.length)
        to_copy = (target[within] - repeat.start) // repeat.length
        block = np.maximum(each.block[to_copy] - (to_copy - from_copy), 0)
        source_like[within] = each.like(each.kept_copies[block], place)
    tensor = _same_result(problem, order[source_like])
    count = problem.op_count
    key = tensor * count + op_group[problem.consumers]
    # The edges of what is kept; those into copies left out are like one of them, or like none.
    kept = (like[target] == target) & (tensor >= 0)
    keys = np.unique(key[kept])
    at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    found = (tensor >= 0) & (keys[at] == key) if len(keys) else np.zeros(len(key), dtype=np.bool_)
    edge_of = frozen(np.where(found, at, -1), np.int32)
    tensors, readers = np.unique(keys // count, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(readers)])
    return tensors, offsets, frozen(keys % count, np.int32), edge_of


def _same_result(problem: Problem, producer: Ints) -> Wide:
    """`[edge]` the result of `producer[edge]` that comes in the same place as the edge's tensor.

    -1 where it has fewer results.
    """
    offsets, tensors = problem.op_outputs
    place = np.empty(problem.tensor_count, dtype=np.int64)
    place[tensors] = np.arange(problem.tensor_count) - offsets[problem.tensor_producer[tensors]]
    at = offsets[producer] + place[problem.edge_tensor]
    found = at < offsets[producer + 1]
    result: Wide = np.where(found, tensors[np.where(found, at, 0)], -1).astype(np.int64)
    return result
