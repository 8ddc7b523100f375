"""Consecutive segments of one order, each on an accelerator or op by op on a CPU.

An *atom* is what stays together: ops of one colocation group, and all that contiguity ties to
them. The segments run one after another here, so a split costs the sum of all invocations and of
all ops on a CPU, which is never less than its latency.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.invocation.timing import READS, WRITES

ON_CPU, SKIPPED = -1, -2  # what came before a state, beside the start of a segment


class Atoms(NamedTuple):
    """CSR of the ops of each atom, and where an atom may be."""

    offsets: Wide
    ops: Wide
    of_op: Wide  # [op] its atom
    memory: Floats  # [atom] bytes
    time: Floats  # [atom, device] seconds, inf where it may not be
    cpu: Wide  # [atom] the CPU that is fastest for it, or -1
    cpu_time: Floats  # [atom] seconds there, inf if none
    before: Wide  # CSR of the atoms that must come earlier in an order
    before_offsets: Wide
    after: Wide
    after_offsets: Wide


@kernel(allocates=True)
def random_order(atoms, rng, order):
    """Fill `order` with the atoms, depth first: what became ready last comes next.

    Among atoms that became ready together the order is random.
    """
    count = len(order)
    waiting = np.empty(count, dtype=np.int64)
    stack = np.empty(count, dtype=np.int64)
    size = 0
    for atom in range(count):
        waiting[atom] = atoms.before_offsets[atom + 1] - atoms.before_offsets[atom]
        if waiting[atom] == 0:
            stack[size] = atom
            size += 1
    _shuffle(rng, stack, 0, size)
    for place in range(count):
        size -= 1
        atom = stack[size]
        order[place] = atom
        start = size
        for i in range(atoms.after_offsets[atom], atoms.after_offsets[atom + 1]):
            later = atoms.after[i]
            waiting[later] -= 1
            if waiting[later] == 0:
                stack[size] = later
                size += 1
        _shuffle(rng, stack, start, size)


@inner
def _shuffle(rng, items, start, end):
    for i in range(end - 1, start, -1):
        j = start + int(rng.random() * (i - start + 1))
        items[i], items[j] = items[j], items[i]


@kernel(allocates=True)
def shift_atom(atoms, rng, order):
    """Move a random atom to a random place between its neighbours; whether the order changed."""
    count = len(order)
    rank = np.empty(count, dtype=np.int64)
    for place in range(count):
        rank[order[place]] = place
    old = int(rng.random() * count)
    atom = order[old]
    low, high = 0, count - 1
    for i in range(atoms.before_offsets[atom], atoms.before_offsets[atom + 1]):
        low = max(low, rank[atoms.before[i]] + 1)
    for i in range(atoms.after_offsets[atom], atoms.after_offsets[atom + 1]):
        high = min(high, rank[atoms.after[i]] - 1)
    new = low + int(rng.random() * (high - low + 1))
    step = 1 if new > old else -1
    for place in range(old, new, step):
        order[place] = order[place + step]
    order[new] = atom
    return new != old


@kernel(allocates=True)
def best_segments(net, atoms, order, stops, devices, op_slot):
    """Seconds of the cheapest split of `order`, which is written into `op_slot`.

    `devices` are the accelerators in the order in which segments may use them, each once;
    `stops[place]` whether a segment may begin or end before the atom at `place`. Exact
    for the sum of all costs: best[j, i] is the least for the first i atoms on the first j
    accelerators and CPUs. Infinite (and `op_slot` untouched) where no split fits.
    """
    count, used = len(order), len(devices)
    best = np.full((used + 1, count + 1), math.inf)
    came = np.full((used + 1, count + 1), SKIPPED)
    best[0, 0] = 0.0
    tensors = len(net.tensor_producer)
    sweep = _Sweep(
        np.full(len(net.op_way), -1),
        np.empty(tensors, dtype=np.int64),
        np.empty((tensors, 2), dtype=np.int64),
        np.empty((2, 2)),
    )
    for first in range(count):
        for j in range(used):
            if best[j, first] < best[j + 1, first]:
                best[j + 1, first] = best[j, first]
                came[j + 1, first] = SKIPPED
        seconds = atoms.cpu_time[order[first]]
        for j in range(used + 1):
            if best[j, first] + seconds < best[j, first + 1]:
                best[j, first + 1] = best[j, first] + seconds
                came[j, first + 1] = ON_CPU
        if stops[first]:
            _extend(net, atoms, order, stops, devices, sweep, best, came, first)
    for j in range(used):
        if best[j, count] < best[j + 1, count]:
            best[j + 1, count] = best[j, count]
            came[j + 1, count] = SKIPPED
    if best[used, count] < math.inf:
        _read_back(net, atoms, order, devices, came, op_slot)
    return best[used, count]


class _Sweep(NamedTuple):
    added: Wide  # [op] the place where the last segment that took it starts
    outside: Wide  # [tensor] readers that are not in its producer's slot
    inside: Wide  # [tensor, way] readers in the segment
    crossing: Floats  # [writes or reads, transfers or bytes]


@inner(allocates=True)
def _extend(net, atoms, order, stops, devices, sweep, best, came, first):
    """Try every segment that starts at place `first`, growing it atom by atom."""
    sweep.inside[:] = 0
    sweep.crossing[:] = 0.0
    memory = 0.0
    compute = np.zeros(len(devices))
    for place in range(first, len(order)):
        atom = order[place]
        memory += atoms.memory[atom]
        fits = False
        for j in range(len(devices)):
            compute[j] += atoms.time[atom, devices[j]]
            fits |= compute[j] < math.inf and memory <= net.device_memory[devices[j]]
        if not fits:
            return
        for op in atoms.ops[atoms.offsets[atom] : atoms.offsets[atom + 1]]:
            _add(net, sweep, op, first)
        if not stops[place + 1]:
            continue
        for j in range(len(devices)):
            device = devices[j]
            if memory > net.device_memory[device]:
                continue
            seconds = best[j, first] + compute[j]
            for way in range(2):
                seconds += (
                    sweep.crossing[way, 0] * net.host_latency[way, device]
                    + sweep.crossing[way, 1] * net.host_seconds_per_byte[way, device]
                )
            if seconds < best[j + 1, place + 1]:
                best[j + 1, place + 1] = seconds
                came[j + 1, place + 1] = first


@inner
def _add(net, sweep, op, first):
    """Put the op into the segment that starts at place `first`."""
    way = net.op_way[op]
    sweep.added[op] = first
    for i in range(net.input_offsets[op], net.input_offsets[op + 1]):
        tensor = net.input_tensors[i]
        producer = net.tensor_producer[tensor]
        sweep.inside[tensor, way] += 1
        if sweep.added[producer] == first and net.op_way[producer] == way:
            sweep.outside[tensor] -= 1
            if sweep.outside[tensor] == 0:
                _cross(net, sweep, WRITES, tensor, -1.0)
        elif sweep.inside[tensor, way] == 1:
            _cross(net, sweep, READS, tensor, 1.0)
    for i in range(net.output_offsets[op], net.output_offsets[op + 1]):
        tensor = net.outputs[i]
        readers = net.consumer_offsets[tensor + 1] - net.consumer_offsets[tensor]
        sweep.outside[tensor] = readers - sweep.inside[tensor, way]
        if sweep.inside[tensor, way] > 0:  # read from outside so far
            _cross(net, sweep, READS, tensor, -1.0)
        if sweep.outside[tensor] > 0:
            _cross(net, sweep, WRITES, tensor, 1.0)


@inner
def _cross(net, sweep, way, tensor, sign):
    sweep.crossing[way, 0] += sign
    sweep.crossing[way, 1] += sign * net.tensor_bytes[tensor]


@inner
def _read_back(net, atoms, order, devices, came, op_slot):
    """Write the slots of the cheapest split; a segment is the first of its device and way."""
    j, end = len(devices), len(order)
    per_device = 2 * net.subgraphs
    while end > 0 or j > 0:
        start = came[j, end]
        if start == SKIPPED:
            j -= 1
            continue
        first = end - 1 if start == ON_CPU else start
        for place in range(first, end):
            atom = order[place]
            device = atoms.cpu[atom] if start == ON_CPU else devices[j - 1]
            for op in atoms.ops[atoms.offsets[atom] : atoms.offsets[atom + 1]]:
                op_slot[op] = device * per_device + net.op_way[op] * net.subgraphs
        end = first
        if start != ON_CPU:
            j -= 1
