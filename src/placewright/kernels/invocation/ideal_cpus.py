"""Nodes on CPUs beside accelerators, in the table of least latencies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel


class Cpus(NamedTuple):
    """Seconds of nodes on CPUs, where each runs by itself as soon as what it reads is there.

    ``seconds[node]``, infinite where none may run it; `nodes` by level, CSR `offsets`, the quickest
    first, and without cut nodes; ``cut[level]`` seconds of the cut node that ends a level. Of a
    combination of accelerators ``share[number, node]`` as in `Side.share`. `bits[ideal]`.
    """

    bits: NDArray[np.uint64]
    seconds: Floats
    offsets: Wide
    nodes: Wide
    cut: Floats
    share: Floats


@kernel
def relax_on_cpus(value, steps, level, cut, alive):
    """Better values by nodes on CPUs alone, those between two ideals all at once."""
    for low in range(len(value)):
        if value[low] == np.inf:
            continue
        for step in range(steps.offsets[low], steps.offsets[low + 1]):
            high = steps.targets[step]
            if alive[high]:
                value[high] = min(value[high], value[low] + steps.on_cpu[step])
        high = low + 1
        if high < len(value) and level[high] > level[low] and alive[high]:
            value[high] = min(value[high], value[low] + cut[level[low]])


@kernel
def extend_with_cpus(before, number, cpus, side, steps, alive, after):
    """Into `after` the least seconds of subgraphs of a combination with nodes on CPUs beside them.

    Some node at least is on a CPU, so all of them take as long as it does. Those that take longer
    there are on the accelerators, and these are busy with their shares.
    """
    for low in range(len(before)):
        if before[low] == np.inf:
            continue
        for step in range(steps.offsets[low], steps.offsets[low + 1]):
            high = steps.targets[step]
            if alive[high] and steps.nodes[step] > 1:
                since = before[low]
                if since + steps.critical[step] < after[high]:
                    seconds = seconds_with_cpus(cpus, side, number, low, high)
                    seconds = since + max(seconds, steps.critical[step])
                    after[high] = min(after[high], seconds)


@kernel
def fill_with_cpus(cpus, side, number, low, high, found):
    """``found[k]`` seconds between ideal ``low[k]`` and ideal `high`."""
    for k in range(len(low)):
        found[k] = seconds_with_cpus(cpus, side, number, low[k], high)


@inner
def seconds_with_cpus(cpus, side, number, low, high):
    level = side.level[low]
    busy = side.share[number, high] - side.share[number, low]
    least = np.inf
    for i in range(cpus.offsets[level], cpus.offsets[level + 1]):
        node = cpus.nodes[i]
        between = cpus.bits[high, node >> 6] & ~cpus.bits[low, node >> 6]
        if between >> np.uint64(node & 63) & np.uint64(1):
            busy -= cpus.share[number, node]
            least = min(least, max(cpus.seconds[node], busy))
            if cpus.seconds[node] >= busy:
                break
    return least
