"""Region moves: whole regions of a graph to another device at once, and the makespan that gives.

A region is given by a kind and an op: what the op dominates or post-dominates (`TREES` of them),
what is behind it, what is before it, or what is neither and so may run beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Ints, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.moves import fits, mutate, take_back
from placewright.kernels.latency.timing import time_sequence

TREES = 4
BEHIND, BEFORE, BESIDE = TREES, TREES + 1, TREES + 2


class Regions(NamedTuple):
    """Trees of dominators, and what is borrowed to walk through the graph."""

    at: Ints  # [tree, k] ops in preorder
    first: Wide  # [tree, op] where the op's subtree begins in it
    size: Wide  # [tree, op] of the subtree
    order: Ints  # ops, topological
    key: Wide  # [op] random: a sum of them tells regions apart
    met: Flags  # [op] all False between two calls
    found: Ints  # ops of the region of the moment


@kernel
def members(p, regions, kind, op, found):
    """Write the ops of a region to `found`; how many."""
    if kind < TREES:
        first, size = regions.first[kind, op], regions.size[kind, op]
        for k in range(size):
            found[k] = regions.at[kind, first + k]
        return size
    met, count = regions.met, 0
    if kind != BEFORE:
        count = _behind(p, op, met, found)
    if kind != BEHIND:
        count = _before(p, op, met, found, count)
    if kind == BESIDE:
        count = 0
        for other in regions.order:
            if not met[other]:
                found[count] = other
                count += 1
        met[:] = False
        return count
    for k in range(count):
        met[found[k]] = False
    return count


@inner
def _behind(p, op, met, found):
    """`op` and all that reads of it, however indirectly."""
    met[op] = True
    found[0] = op
    done, count = 0, 1
    while done < count:
        one = found[done]
        done += 1
        for k in range(p.output_offsets[one], p.output_offsets[one + 1]):
            tensor = p.outputs[k]
            for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
                other = p.consumers[edge]
                if not met[other]:
                    met[other] = True
                    found[count] = other
                    count += 1
    return count


@inner
def _before(p, op, met, found, count):
    """To the `count` ops found so far: all that `op` reads of, however indirectly, and itself."""
    done = count
    if not met[op]:
        met[op] = True
        found[count] = op
        count += 1
    one = op
    while True:
        for k in range(p.input_offsets[one], p.input_offsets[one + 1]):
            other = p.edge_producer[p.inputs[k]]
            if not met[other]:
                met[other] = True
                found[count] = other
                count += 1
        if done == count:
            return count
        one = found[done]
        done += 1


@kernel
def describe(p, regions, weight, kinds, ops, keys, weights):
    """Of each region the sum of its ops' keys, which tells it from others, and of `weight[op]`."""
    found = regions.found
    for k in range(len(kinds)):
        count = members(p, regions, kinds[k], ops[k], found)
        key, total = np.int64(0), 0.0
        for i in range(count):
            key += regions.key[found[i]]
            total += weight[found[i]]
        keys[k] = key
        weights[k] = total


@kernel
def move_region(p, regions, space, state, scratch, kind, op, device):
    """Put a region on `device`, all of it that may go there; the number of units changed."""
    found = regions.found
    count = 0
    for k in range(members(p, regions, kind, op, found)):
        count = mutate(space, state, scratch, count, space.op_unit[found[k]], device)
    return count


@kernel
def value_of(p, state, scratch, sequences):
    """Seconds: the makespan in the best of the sequences."""
    value = np.inf
    for k in range(len(sequences)):
        value = min(
            value,
            time_sequence(
                p, state.device, sequences[k], scratch.op_ready, scratch.op_finish,
                scratch.edge_finish, scratch.device_free, scratch.channel_free,
                scratch.nothing, scratch.nothing,
            ),
        )  # fmt: skip
    return value


@kernel
def move_values(p, regions, space, state, scratch, sequences, kinds, ops, devices, values):
    """The makespan after each move alone, `inf` if it changes nothing or overflows a memory."""
    for k in range(len(kinds)):
        count = move_region(p, regions, space, state, scratch, kinds[k], ops[k], devices[k])
        values[k] = np.inf
        if count > 0 and fits(state, scratch, count):
            values[k] = value_of(p, state, scratch, sequences)
        take_back(space, state, scratch, count)


@kernel
def descend(p, regions, space, state, scratch, sequences, kinds, ops, devices, gains, value):
    """Make those moves that still help, one after another; the makespan (`value` before).

    One helps if it makes the makespan shorter by at least ``gains[k]`` seconds.
    """
    for k in range(len(kinds)):
        count = move_region(p, regions, space, state, scratch, kinds[k], ops[k], devices[k])
        if count > 0 and fits(state, scratch, count):
            found = value_of(p, state, scratch, sequences)
            if found <= value - gains[k]:
                value = found
                continue
        take_back(space, state, scratch, count)
    return value
