"""Changes to an `incremental.Timeline`, devices or order.

Each change is told as an extent ``(first, last, reach)``, see `incremental.retime`; `NONE` if it
came to nothing. `moves.take_back` and `passing.undo_order` take it back. Ops to change are drawn
from all, or from those that were on a longest path when tails were last found: the others alone
cannot make the makespan shorter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Ints, Wide
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.incremental import STAMP, edge_place, op_place
from placewright.kernels.latency.moves import below, geometric, mutate
from placewright.kernels.latency.passing import FIRST, LENGTH, move_item, move_op

# Changes of devices, each up to its share of the draws.
ANYWHERE = 0.25  # one unit to any device
BESIDE = 0.50  # one unit to the device of an op it exchanges a tensor with
RUN = 0.65  # consecutive ops of a device to another
CLUSTER = 0.80  # connected ops of a device to another
REGION = 0.90  # all that an op dominates, or post-dominates, to one device
RELABEL = 0.95  # a stretch of the sequence: what is on two devices swapped
# beyond: two units, near each other in time, change places
MEAN_RUN = 5.0
MEAN_PASSED = 2.0  # ops or transfers of the same resource that one moves past
MOST_SCANNED = 256
NONE = (-1, -1, -1)


class Structure(NamedTuple):
    """What does not change: the trees of dominators and post-dominators, stacked.

    `tree_at[tree, k]` ops in preorder; op's subtree is `tree_first[tree, op]` and
    `tree_size[tree, op]` of them; `tree_parent[tree, op]` or -1.
    """

    tree_at: Ints
    tree_first: Wide
    tree_size: Wide
    tree_parent: Wide
    edge_share: float  # of the changes of order: transfers rather than ops


@kernel
def redevice(p, space, structure, t, rng, op):
    """Give the unit of `op`, perhaps with others, another device; the number of units changed."""
    kind = rng.random()
    unit = space.op_unit[op]
    here = t.device[op]
    if kind < ANYWHERE:
        return mutate(space, t, t, 0, unit, below(rng, len(t.free)))
    if kind < BESIDE:
        return mutate(space, t, t, 0, unit, t.device[_neighbour(p, rng, op)])
    device = below(rng, len(t.free))
    if device == here:
        device = t.device[_neighbour(p, rng, op)]
    if kind < RUN:
        return _redevice_run(space, t, rng, op, device)
    if kind < CLUSTER:
        return _redevice_cluster(p, space, t, rng, op, device)
    if kind < REGION:
        return _redevice_region(space, structure, t, rng, op, device)
    if kind < RELABEL:
        return _relabel(space, t, rng, op, device)
    return _swap_devices(space, t, rng, op)


@inner
def _relabel(space, t, rng, op, device):
    """All ops of a stretch of the sequence from `op` on: those of its device and of another swap.

    How long the stretch is, is drawn on a log scale.
    """
    here, place = t.device[op], op_place(t, op)
    if device == here:
        return 0
    t.counts[STAMP] += 1
    length = int(math.exp(rng.random() * math.log(0.5 * len(t.sequence) + 1.0))) + 1
    count = 0
    for k in range(place, min(place + length, len(t.sequence))):
        item = t.sequence[k]
        if item >= 0:
            unit = space.op_unit[item]
            if t.mark[unit] == t.counts[STAMP]:
                continue  # colocated with an op before
            t.mark[unit] = t.counts[STAMP]
            if t.device[item] == here:
                count = mutate(space, t, t, count, unit, device)
            elif t.device[item] == device:
                count = mutate(space, t, t, count, unit, here)
    return count


@inner
def _neighbour(p, rng, op):
    """A random op that exchanges a tensor with `op`; itself if there is none."""
    inputs = p.input_offsets[op + 1] - p.input_offsets[op]
    outputs = p.output_offsets[op + 1] - p.output_offsets[op]
    if inputs + outputs == 0:
        return op
    k = below(rng, inputs + outputs)
    if k < inputs:
        return p.edge_producer[p.inputs[p.input_offsets[op] + k]]
    tensor = p.outputs[p.output_offsets[op] + k - inputs]
    first, last = p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]
    return p.consumers[first + below(rng, last - first)] if last > first else op


@inner
def _redevice_run(space, t, rng, op, device):
    here = t.device[op]
    place, wanted, count = op_place(t, op), geometric(rng, MEAN_RUN), 0
    for k in range(place, min(place + MOST_SCANNED, len(t.sequence))):
        item = t.sequence[k]
        if item >= 0 and t.device[item] == here and device != here:
            count = mutate(space, t, t, count, space.op_unit[item], device)
            wanted -= 1
            if wanted == 0:
                break
    return count


@inner
def _redevice_cluster(p, space, t, rng, op, device):
    here = t.device[op]
    if device == here:
        return 0
    count = mutate(space, t, t, 0, space.op_unit[op], device)
    if count == 0:
        return 0
    for _ in range(2 * geometric(rng, MEAN_RUN)):
        other = _neighbour(p, rng, op)
        if t.device[other] == here:
            count = mutate(space, t, t, count, space.op_unit[other], device)
        elif t.device[other] != device:
            continue
        op = other if rng.random() < 0.7 else op
    return count


@inner
def _redevice_region(space, structure, t, rng, op, device):
    """From `op` up its tree while the subtree is no larger than a size drawn on a log scale."""
    tree = below(rng, 2)
    most = math.exp(rng.random() * math.log(0.5 * len(t.device) + 1.0))
    parent = structure.tree_parent[tree, op]
    while parent >= 0 and structure.tree_size[tree, parent] <= most:
        op = parent
        parent = structure.tree_parent[tree, op]
    first = structure.tree_first[tree, op]
    count = 0
    for k in range(first, first + structure.tree_size[tree, op]):
        unit = space.op_unit[structure.tree_at[tree, k]]
        count = mutate(space, t, t, count, unit, device)
    return count


@inner
def _swap_devices(space, t, rng, op):
    """`op` and one of the next ops in time on another device."""
    here, place = t.device[op], op_place(t, op)
    passed = geometric(rng, MEAN_PASSED)
    for k in range(place, min(place + MOST_SCANNED, len(t.sequence))):
        other = t.sequence[k]
        if other >= 0 and t.device[other] != here:
            passed -= 1
            if passed == 0:
                there, unit = t.device[other], space.op_unit[op]
                if not space.allowed[unit, there] or not space.allowed[space.op_unit[other], here]:
                    return 0
                count = mutate(space, t, t, 0, unit, there)
                return mutate(space, t, t, count, space.op_unit[other], here)
    return 0


@kernel
def extent(p, space, t, count):
    """The extent of `count` changes of devices."""
    first, last, reach = len(t.sequence), np.int64(0), np.int64(0)  # 0 has a type of its own
    for k in range(count):
        unit, old = t.undo_unit[k], t.undo_device[k]
        for i in range(space.unit_offsets[unit], space.unit_offsets[unit + 1]):
            op = space.unit_ops[i]
            place = op_place(t, op)
            first, last = min(first, place), max(last, place)
            for j in range(p.input_offsets[op], p.input_offsets[op + 1]):
                edge = p.inputs[j]
                first = min(first, edge_place(t, edge))
                shared = p.edge_ends[edge, 2]
                if shared >= 0:
                    last, reach = _extent_beside(p, t, shared, old, t.device[op], last, reach)
            for j in range(p.output_offsets[op], p.output_offsets[op + 1]):
                tensor = p.outputs[j]
                for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
                    last = max(last, edge_place(t, edge))
                    reach = max(reach, op_place(t, p.consumers[edge]))
    return first, last, reach


@inner
def _extent_beside(p, t, tensor, old, new, last, reach):
    """Other readers of a tensor that is sent once: who brings it to `old` or `new` may change."""
    for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
        there = t.device[p.consumers[edge]]
        if there in (old, new):
            last = max(last, edge_place(t, edge))
            reach = max(reach, op_place(t, p.consumers[edge]))
    return last, reach


# -- order -----------------------------------------------------------------------------------


@kernel
def reorder_op(p, t, rng, op):
    """Move `op` past a few ops of its device, as far as its producers and consumers let it.

    Its edges are taken along where they are in the way.
    """
    passed = geometric(rng, MEAN_PASSED)
    step = 1 if rng.random() < 0.5 else -1
    move_op(p, t, t, op, step, passed, MOST_SCANNED)
    return _moved(t)


@kernel
def reorder_edge(p, t, rng, edge):
    """Move a transfer past a few others that it shares a channel with."""
    source, target = t.device[p.edge_ends[edge, 0]], t.device[p.edge_ends[edge, 1]]
    if source == target:
        return NONE
    place, found = edge_place(t, edge), -1
    passed = geometric(rng, MEAN_PASSED)
    step = 1 if rng.random() < 0.5 else -1
    end = op_place(t, p.edge_ends[edge, 1] if step > 0 else p.edge_ends[edge, 0])
    k = place + step
    while k != end and abs(k - place) < MOST_SCANNED:
        item = t.sequence[k]
        if item < 0:
            other = -1 - item
            a, b = t.device[p.edge_ends[other, 0]], t.device[p.edge_ends[other, 1]]
            if a != b and _meet(p, len(t.free), source, target, a, b):
                found = k
                passed -= 1
                if passed == 0:
                    break
        k += step
    if found < 0:
        return NONE
    move_item(t, t, place, found)
    return _moved(t)


@inlined
def _moved(t):
    """The extent of a change of order."""
    first, length = t.saved[FIRST], t.saved[LENGTH]
    last = first + length - 1
    return (first, last, last) if length > 0 else NONE


@inlined
def _meet(p, device_count, source, target, a, b):
    """Whether two routes share a channel."""
    one, two = source * device_count + target, a * device_count + b
    for i in range(p.channel_offsets[one], p.channel_offsets[one + 1]):
        for j in range(p.channel_offsets[two], p.channel_offsets[two + 1]):
            if p.channels[i] == p.channels[j]:
                return True
    return False
