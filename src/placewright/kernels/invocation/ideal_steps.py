"""Steps from one ideal to a larger one, listed, with what crosses their two ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Flags, Floats, Wide
from placewright.kernels.compiled import inner, kernel

FORWARD, BACKWARD, AGAIN = range(3)


class Lattice(NamedTuple):
    """Ideals, a subset never after a superset, by rising `level`: see `planners.invocation.ideals`.

    `bits` (64 nodes a word); the nets that each cuts, CSR `net_offsets` and `nets`; of each net its
    `producer`, its `readers` as bits, its `flow` and whether it is `written`. `leaders` CSR: nodes
    that come right before a node, ``seconds[node]`` what it takes at least, and ``on_cpu[node]`` on
    a CPU; empty if there is none.
    """

    bits: NDArray[np.uint64]
    level: Wide
    net_offsets: Wide
    nets: Wide
    producer: Wide
    readers: NDArray[np.uint64]
    flow: Wide
    written: Flags
    leader_offsets: Wide
    leaders: Wide
    seconds: Floats
    on_cpu: Floats


class Steps(NamedTuple):
    """Steps from each ideal, CSR `offsets` and `targets`.

    `nodes[step]` are so many between the two, and `critical[step]` seconds the longest path through
    them, of steps within a level; 0 of others. ``on_cpu[step]`` seconds of these on CPUs, infinite
    of others; empty if there are none. ``crossing[host, step]`` seconds for the tensors
    that cross their ends and are read or written, by how fast an accelerator does so; without a
    row where transfers take no time.
    """

    offsets: Wide
    targets: NDArray[np.int32]
    nodes: NDArray[np.int16]
    critical: Floats
    on_cpu: Floats
    crossing: Floats


@kernel
def count_steps(lattice, within, offsets):
    """Fill `offsets`: how many steps there are from each ideal, `within` a level or all."""
    bits, level = lattice.bits, lattice.level
    total = 0
    for low in range(len(bits)):
        offsets[low] = total
        for high in range(low + 1, len(bits)):
            if within and level[high] != level[low]:
                break
            total += _is_part(bits, low, high)
    offsets[len(bits)] = total


@kernel
def fill_steps(lattice, within, read, write, steps, nodes, longest):
    """Fill `steps`, whose offsets are known; `nodes` and `longest` by node are to work with.

    ``read[host, net]`` and ``write[host, net]`` seconds.
    """
    bits, level = lattice.bits, lattice.level
    step = 0
    for low in range(len(bits)):
        for high in range(low + 1, len(bits)):
            if within and level[high] != level[low]:
                break
            if not _is_part(bits, low, high):
                continue
            steps.targets[step] = high
            if len(read):
                _count_crossing(lattice, low, high, read, write, steps.crossing, step)
            if level[high] == level[low]:
                count = nodes_between(bits[low], bits[high], nodes)
                between = nodes[:count]
                steps.nodes[step] = count
                steps.critical[step] = _critical(lattice, low, between, lattice.seconds, longest)
                if len(steps.on_cpu):
                    steps.on_cpu[step] = _critical(lattice, low, between, lattice.on_cpu, longest)
            elif len(steps.on_cpu):
                steps.on_cpu[step] = np.inf
            step += 1


@kernel
def turn_round(offsets, targets, place, turned_targets, order):
    """Fill the steps from the other end, and which of these each is.

    Ideal i is then the i-th from the last. `place` has a number for each ideal and one more: there
    it is filled with where the steps from each begin.
    """
    last = len(offsets) - 2
    place[:] = 0
    for step in range(len(targets)):
        place[last - targets[step] + 1] += 1
    for ideal in range(last + 1):
        place[ideal + 1] += place[ideal]
    for low in range(last, -1, -1):  # so that targets rise
        for step in range(offsets[low], offsets[low + 1]):
            ideal = last - targets[step]
            turned_targets[place[ideal]] = last - low
            order[place[ideal]] = step
            place[ideal] += 1
    for ideal in range(last, -1, -1):
        place[ideal + 1] = place[ideal]
    place[0] = 0


@inner
def _is_part(bits, low, high):
    for word in range(bits.shape[1] - 1, -1, -1):  # noqa: SIM110
        if bits[low, word] & ~bits[high, word]:
            return False
    return True


@inner
def _count_crossing(lattice, low, high, read, write, crossing, step):
    for i in range(lattice.net_offsets[low], lattice.net_offsets[low + 1]):
        net = lattice.nets[i]
        if lattice.flow[net] == BACKWARD:
            _count_output(lattice, low, high, net, write, crossing, step)
        else:
            _count_input(lattice, low, high, net, read, crossing, step)
    for i in range(lattice.net_offsets[high], lattice.net_offsets[high + 1]):
        net = lattice.nets[i]
        if lattice.flow[net] == BACKWARD:
            _count_input(lattice, low, high, net, read, crossing, step)
        elif lattice.flow[net] == FORWARD:
            _count_output(lattice, low, high, net, write, crossing, step)


@inner
def _count_input(lattice, low, high, net, read, crossing, step):
    """If some reader is between the two ideals."""
    bits = lattice.bits
    for word in range(bits.shape[1]):
        if lattice.readers[net, word] & bits[high, word] & ~bits[low, word]:
            for host in range(len(crossing)):
                crossing[host, step] += read[host, net]
            break


@inner
def _count_output(lattice, low, high, net, write, crossing, step):
    """If the producer is between the two ideals."""
    bits, node = lattice.bits, lattice.producer[net]
    between = bits[high, node >> 6] & ~bits[low, node >> 6]
    if lattice.written[net] and between >> np.uint64(node & 63) & np.uint64(1):
        for host in range(len(crossing)):
            crossing[host, step] += write[host, net]


@inner
def nodes_between(low, high, nodes):
    """List the nodes of an ideal that another has not, rising; how many they are."""
    count = 0
    for word in range(len(low)):
        left, node = high[word] & ~low[word], 64 * word
        while left:
            if left & np.uint64(1):
                nodes[count] = node
                count += 1
            left >>= np.uint64(1)
            node += 1
    return count


@inner
def _critical(lattice, low, between, seconds, longest):
    """The longest path through the nodes between ideal `low` and another."""
    bits, critical = lattice.bits, 0.0
    for node in between:
        before = 0.0
        for k in range(lattice.leader_offsets[node], lattice.leader_offsets[node + 1]):
            leader = lattice.leaders[k]
            if not bits[low, leader >> 6] >> np.uint64(leader & 63) & np.uint64(1):
                before = max(before, longest[leader])
        longest[node] = before + seconds[node]
        critical = max(critical, longest[node])
    return critical
