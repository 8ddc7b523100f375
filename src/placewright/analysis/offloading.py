"""Weights that wait in host memory, and an accelerator that fetches them for each use.

So Accelerate runs what a device_map has on ``cpu`` where it names a GPU as well: hooks bring the
weights of each such module to the first GPU, which computes it and keeps its KV cache. In a problem
the CPU then stands for that GPU and the way to it: an op on the CPU takes what it takes on the GPU
and what its weights take to come from memory that is not pinned, and tensors go where they would
for the GPU. The two are taken for devices that could work at once, which they are not; rows of
blocks never do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from placewright.analysis.shared_weights import held_weights, units_across
from placewright.graph import Flags, Floats
from placewright.problem import Problem

PAGEABLE_BANDWIDTH = 6e9
"""Bytes per second of weights that come, where the link has more: their memory is not pinned.

As `benchmarks/accelerate_accuracy.py` measured on an H100 whose pinned memory comes at 50 GB/s.
"""


def fetched_bytes(problem: Problem) -> Floats:
    """`[op]` bytes of weights that it would fetch. Of weights that modules share, each does all."""
    weights = held_weights(problem)
    fetched = weights.copy()
    module = np.unique(np.array(problem.op_modules, dtype=object), return_inverse=True)[1]
    for unit in units_across(problem, module.astype(np.int32)):
        most = float(weights[unit].max())
        names, first = np.unique(module[unit], return_index=True)
        for name, op in zip(names, unit[first].tolist(), strict=True):
            if not weights[unit[module[unit] == name]].any():
                fetched[op] += most
    return fetched


def fetching(problem: Problem, cpu: int, helper: int, fetched: Floats) -> Problem:
    """`problem` where device `helper` computes what is on `cpu`, each op after its weights came."""
    time = problem.op_time.copy()
    rate = max(float(problem.link_seconds_per_byte[cpu, helper]), 1 / PAGEABLE_BANDWIDTH)
    comes = np.where(fetched > 0, problem.link_latency[cpu, helper] + fetched * rate, 0.0)
    time[:, cpu] = time[:, helper] + comes
    found = replace(problem, op_time=time, **_routes(problem, cpu, helper))
    if problem.op_cost_source.size:
        found = replace(found, op_cost_source=_as(problem.op_cost_source, cpu, helper))
    if problem.op_cost_spread.size:
        found = replace(found, op_cost_spread=_as(problem.op_cost_spread, cpu, helper))
    return found


def helper_bytes(problem: Problem, fetched: Floats, waiting: Flags) -> float:
    """Bytes of the accelerator for ops that wait: their KV cache, and the largest weights."""
    cache = float(problem.op_cache[waiting].sum()) if problem.op_cache.size else 0.0
    return cache + float(fetched[waiting].max(initial=0.0))


def without_memory(problem: Problem, device: int, taken: float) -> Problem:
    """`problem` with so many bytes of a device taken."""
    memory = problem.device_memory.copy()
    memory[device] = max(memory[device] - taken, 0.0)
    return problem.with_device_memory(memory)


def _as(columns: Any, cpu: int, helper: int) -> Any:
    found = columns.copy()
    found[:, cpu] = columns[:, helper]
    return found


def _routes(problem: Problem, cpu: int, helper: int) -> dict[str, Any]:
    """Ways to and from `cpu` are those of `helper`; between the two nothing moves."""
    count = problem.device_count
    stands = np.arange(count)
    stands[cpu] = helper
    square = np.ix_(stands, stands)
    source, target = np.divmod(np.arange(count * count), count)
    pairs = stands[source] * count + stands[target]
    first, end = problem.channel_offsets[pairs], problem.channel_offsets[pairs + 1]
    offsets = np.concatenate([[0], np.cumsum(end - first)])
    places = np.repeat(first - offsets[:-1], end - first) + np.arange(offsets[-1])
    return {
        "link_latency": problem.link_latency[square],
        "link_seconds_per_byte": problem.link_seconds_per_byte[square],
        "channel_offsets": offsets,
        "channels": problem.channels[places],
    }
