"""A schedule as neighbourhoods see it: its order, its longest paths, what lies beside what."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide, lent
from placewright.kernels.common.arrays import NOT_SENT, arrays_with_memory
from placewright.kernels.latency.within_memory import OVERFULL, value_within_memory
from placewright.plan import Placement
from placewright.problem import LONG_ROUNDING, Problem
from placewright.simulate.latency import schedule_placement, sequence_of, time_items


class State:
    """A placement with its schedule, and the order of its items by their starts.

    `position[op]`, `edge_position[edge]` in `sequence`; an edge that another's transfer serves has
    the position of that. `edge_start` is `NOT_SENT` where an edge has no transfer of its own, and
    `arrival[edge]` when the tensor is there, on whatever device. `value` is `inf` where the peak of
    memory counts and does not fit.
    """

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        if placement.sequence is None:
            placement = schedule_placement(problem, placement.device)
        assert placement.sequence is not None
        self.device = placement.device
        self._time(placement.sequence)
        self.sequence: Ints = sequence_of(
            problem, self.op_start, self.op_finish, self.edge_start, self._edge_finish
        )
        self._time(self.sequence)
        self.value = float(self.op_finish.max())
        if problem.options.memory == "peak" and not self._fits():
            self.value = math.inf

    @property
    def placement(self) -> Placement:
        return Placement(self.device, self.sequence)

    def _time(self, sequence: Ints) -> None:
        problem = self.problem
        times = time_items(problem, Placement(self.device, sequence))
        self.op_start, self.op_finish, self.edge_start, self._edge_finish = times

    def _fits(self) -> bool:
        value = value_within_memory(
            arrays_with_memory(self.problem), lent(self.device), self.sequence
        )
        return bool(value < OVERFULL)

    @cached_property
    def arrival(self) -> Floats:
        ready = self.op_finish[self.problem.edge_producer]
        return np.where(self._edge_finish == NOT_SENT, ready, self._edge_finish)

    @cached_property
    def crosses(self) -> Flags:
        """`[edge]` whether its ends are on two devices."""
        problem = self.problem
        flags: Flags = self.device[problem.edge_producer] != self.device[problem.consumers]
        return flags

    @cached_property
    def carrier(self) -> Ints:
        """`[edge]` the edge whose transfer brings its tensor; itself if it does not cross."""
        problem = self.problem
        carrier = np.arange(problem.edge_count)
        if problem.options.transfer_unit == "edge":
            return carrier.astype(np.int32)
        key = problem.edge_tensor.astype(np.int64) * problem.device_count
        key += self.device[problem.consumers]
        sent = np.flatnonzero(self.edge_start != NOT_SENT)
        by_key = sent[np.argsort(key[sent])]
        served = np.flatnonzero(self.crosses)
        carrier[served] = by_key[np.searchsorted(key[by_key], key[served])]
        return carrier.astype(np.int32)

    @cached_property
    def position(self) -> Wide:
        return self._positions[: self.problem.op_count]

    @cached_property
    def edge_position(self) -> Wide:
        return self._positions[: self.problem.op_count - 1 : -1][self.carrier]

    @cached_property
    def _positions(self) -> Wide:
        """`[op]`, and from the end back `[-1 - edge]`, the position of each item."""
        items = np.empty(len(self.sequence), dtype=np.int64)
        items[self.sequence] = np.arange(len(self.sequence))
        return items

    @cached_property
    def tails(self) -> tuple[Floats, Floats]:
        """`([op], [edge])`: the longest path from an item's start to the end, in this order."""
        return _tails(self)

    @cached_property
    def is_critical(self) -> Flags:
        """`[op]` whether it is on a longest path."""
        flags: Flags = self.op_start + self.tails[0] >= self.value * (1 - LONG_ROUNDING)
        return flags

    @cached_property
    def op_order(self) -> Ints:
        """The ops by their starts."""
        return self.sequence[self.sequence >= 0]

    @cached_property
    def width(self) -> Ints:
        """`[k]` tensors made by the first k ops of `op_order` that others are still to read."""
        problem, count = self.problem, self.problem.op_count
        rank = np.empty(count, dtype=np.int64)
        rank[self.op_order] = np.arange(count)
        last = rank[problem.tensor_producer]
        np.maximum.at(last, problem.edge_tensor, rank[problem.consumers])
        made = np.bincount(rank[problem.tensor_producer] + 1, minlength=count + 2)
        done = np.bincount(last + 1, minlength=count + 2)
        width: Ints = np.cumsum(made - done)[: count + 1]
        return width

    def neighbours(self, op: int) -> list[int]:
        """Ops that the op exchanges a tensor with, and those beside it on its device."""
        problem = self.problem
        input_offsets, inputs = problem.op_inputs
        offsets, tensors = problem.op_outputs
        found = problem.edge_producer[inputs[input_offsets[op] : input_offsets[op + 1]]].tolist()
        for tensor in tensors[offsets[op] : offsets[op + 1]].tolist():
            found += problem.consumers[
                slice(*problem.consumer_offsets[tensor : tensor + 2])
            ].tolist()
        found += [int(other) for other in self._beside[op] if other >= 0]
        return list(dict.fromkeys(found))

    @cached_property
    def _beside(self) -> Ints:
        """`[op, 2]` the op before and the op after it on its device, or -1."""
        beside = np.full((self.problem.op_count, 2), -1, dtype=np.int32)
        for device in range(self.problem.device_count):
            row = self.op_order[self.device[self.op_order] == device]
            beside[row[1:], 0], beside[row[:-1], 1] = row[:-1], row[1:]
        return beside

    @cached_property
    def channel_uses(self) -> tuple[Ints, Ints]:
        """`(edges, channels)`: each transfer as often as it has channels, with one of them."""
        problem = self.problem
        offsets, channels, _ = problem.active_channels
        sent = np.flatnonzero(self.edge_start != NOT_SENT)
        pair = self.device[problem.edge_producer[sent]].astype(np.int64) * problem.device_count
        pair += self.device[problem.consumers[sent]]
        count = offsets[pair + 1] - offsets[pair]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        used = channels[np.repeat(offsets[pair], count) + within]
        return np.repeat(sent, count).astype(np.int32), used


def _tails(state: State) -> tuple[Floats, Floats]:
    problem, device = state.problem, state.device.tolist()
    offsets, channels, names = problem.active_channels
    input_offsets, inputs = problem.op_inputs
    time = problem.op_time[np.arange(problem.op_count), state.device].tolist()
    source, target = state.device[problem.edge_producer], state.device[problem.consumers]
    move = (
        problem.link_latency[source, target]
        + problem.tensor_bytes[problem.edge_tensor] * problem.link_seconds_per_byte[source, target]
    ).tolist()
    pair = (source.astype(np.int64) * problem.device_count + target).tolist()
    crosses, carrier = state.crosses.tolist(), state.carrier.tolist()
    sent = (state.edge_start != NOT_SENT).tolist()
    producer = problem.edge_producer.tolist()
    after_op, after_edge = [0.0] * problem.op_count, [0.0] * problem.edge_count
    next_on, next_over = [0.0] * problem.device_count, [0.0] * len(names)
    op_tail, edge_tail = np.zeros(problem.op_count), np.zeros(problem.edge_count)
    for item in state.sequence[::-1].tolist():
        if item >= 0:
            tail = time[item] + max(next_on[device[item]], after_op[item])
            op_tail[item] = next_on[device[item]] = tail
            for edge in inputs[input_offsets[item] : input_offsets[item + 1]].tolist():
                if crosses[edge]:
                    after_edge[carrier[edge]] = max(after_edge[carrier[edge]], tail)
                else:
                    after_op[producer[edge]] = max(after_op[producer[edge]], tail)
            continue
        edge = -1 - item
        if not sent[edge]:
            continue
        over = channels[offsets[pair[edge]] : offsets[pair[edge] + 1]].tolist()
        tail = move[edge] + max([after_edge[edge], *(next_over[c] for c in over)])
        edge_tail[edge] = tail
        for channel in over:
            next_over[channel] = tail
        after_op[producer[edge]] = max(after_op[producer[edge]], tail)
    return op_tail, edge_tail[state.carrier]
