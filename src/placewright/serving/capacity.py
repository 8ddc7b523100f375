"""How many sequences fit: the memory that weights leave, over what the KV cache of one takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from placewright.graph import WINDOWS, Floats, Graph
from placewright.plan import Plan
from placewright.problem import ROUNDING

LONGEST = 10  # digits
GPU_MEMORY_UTILIZATION = 0.9
"""The share of a GPU's memory that vLLM takes, and SGLang by about as much, unless told."""

SEQUENCES = "sequences"
"""What a plan says of itself where its memory has the KV cache of several batches."""

ALIKE = "caches_alike"
"""What a plan says of itself where each device has room for the largest cache of any."""

REQUESTS = "requests"
"""The attribute of a graph of one phase of requests: nobody serves other sequences beside it."""


@dataclass(frozen=True, eq=False)
class CacheCapacity:
    """Per device, bytes: `weights[device]` and all else but the KV cache, and `cache[device]`.

    `cache` is for the `samples` sequences of the plan. `sequences[device]` is how many fit there
    beside the weights, `inf` where the device keeps no cache or its memory has no limit.
    """

    samples: int
    weights: Floats
    cache: Floats
    sequences: Floats

    @property
    def fit(self) -> int | None:
        """Sequences that fit on every device; None if nothing limits them."""
        least = float(self.sequences.min())
        return None if math.isinf(least) else int(least)

    def at_device(self, device: int) -> int | None:
        number = float(self.sequences[device])
        return None if math.isinf(number) else int(number)


def cache_capacity(plan: Plan) -> CacheCapacity | None:
    """The capacity of a plan; None where its ops keep no KV cache. Activations are not counted."""
    problem = plan.problem
    if not problem.op_cache.any():
        return None
    samples = told_number(plan, SEQUENCES) or problem.input_samples or 1
    cache = np.array([float(problem.op_cache[ops].sum()) for ops in plan.device_ops])
    weights = np.maximum(plan.device_memory - cache, 0.0)
    pool = cache.max() if ALIKE in plan.planner_options else cache
    with np.errstate(divide="ignore", invalid="ignore"):
        fit = (problem.device_memory - weights) / (pool / samples)
    whole = np.floor(np.where(cache > 0, fit, np.inf) * (1 + ROUNDING))
    return CacheCapacity(samples, weights, cache, np.maximum(whole, 0.0))


def windows(graph: Graph) -> Floats:
    """`[op]` the tokens of a sequence that its KV cache keeps at most: `inf`, or 0 of a state."""
    known = graph.attributes.get(WINDOWS)
    given = known if isinstance(known, Mapping) else {}
    told = (given.get(name) for name in graph.op_names)
    return np.array([float(each) if isinstance(each, int) else math.inf for each in told])


def tokens_kept(graph: Graph, context: int) -> Floats:
    """`[op]` the tokens of a sequence so long that its KV cache keeps; 1 of a state."""
    most = windows(graph)
    return np.where(most > 0, np.minimum(most, context), 1.0)


def told_number(plan: Plan, name: str) -> int:
    """A number above 0 that a plan says of itself, such as its `SEQUENCES`; 0 if it says none."""
    said = str(plan.planner_options.get(name, ""))
    return int(said) if said.isascii() and said.isdecimal() and len(said) < LONGEST else 0
