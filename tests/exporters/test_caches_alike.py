"""Rows for SGLang have room for KV caches of one size: beside every row, one by one."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from placewright.errors import InfeasibleError
from placewright.exporters import caches_alike
from placewright.exporters.engines import find_engine
from placewright.exporters.pieces import pieces_for
from placewright.exporters.planning import plan_row
from placewright.plan import Placement
from placewright.planning import make_problem
from placewright.serving.capacity import cache_capacity
from placewright.simulate import evaluate
from placewright.verify import verify
from tests.exporters.test_rows import held_once

SGLANG = find_engine("sglang")
SOURCES = {
    "zoo:llama-7b?layers=5&phase=decode&context=1024&batch=24": 5e9,
    "zoo:gpt2?layers=6&phase=decode&context=1000&batch=8": 0.4e9,  # tied
}
UNEVEN = {"4090+3060": [0.65, 0.55], "3090+2x3060": [0.5, 0.4, 0.35, 1.0]}
"""Of the bytes above, the memory of each device."""


def problem_of(source, cluster, objective, more=1.0):
    problem = make_problem(source, cluster, {"objective": objective})[0]
    return problem.with_device_memory(np.array(UNEVEN[cluster]) * SOURCES[source] * more)


def pool(memory, weights):
    """What SGLang gives the cache of each stage: what is free where least is, less its slack."""
    free = [size - held for size, held in zip(memory, weights, strict=True)]
    return min(free) - 0.1 * min(memory)


def every_row(problem):
    """`(value, devices)` of each row of stages of which SGLang's pool holds the largest cache."""
    pieces = pieces_for(problem, SGLANG)
    inner, whole = pieces.problem, problem.device_memory
    for number in range(1, min(inner.device_count, pieces.count) + 1):
        for cuts in combinations(range(1, pieces.count), number - 1):
            for devices in permutations(range(inner.device_count), number):
                device = np.zeros(pieces.count, dtype=np.int32)
                for each, (first, end) in zip(
                    devices, pairwise([0, *cuts, pieces.count]), strict=True
                ):
                    device[first:end] = each
                placed = device[pieces.op_piece]
                cache = np.bincount(placed, inner.op_cache, inner.device_count)
                held = np.bincount(placed, inner.op_memory, inner.device_count) - cache
                held -= held_once(pieces.shared, device, inner.device_count)
                used = list(devices)
                times = inner.op_time[np.arange(inner.op_count), placed]
                # No GPU gives more than 0.9 of its memory, whichever has least.
                within = (held + cache.max() <= 0.9 * whole)[used].all()
                if within and np.isfinite(times).all():
                    assert pool(whole[used], held[used]) >= cache.max() * (1 - 1e-9)
                    yield evaluate(inner, Placement(placed)).value


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("cluster", UNEVEN)
@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("more", [1.0, 1.15, 2.5])
def test_the_plan_is_the_best_row_whose_caches_have_room(source, cluster, objective, more):
    problem = problem_of(source, cluster, objective, more)
    values = list(every_row(problem))
    if not values:
        with pytest.raises(InfeasibleError):
            plan_row(problem, SGLANG)
        return
    plan = plan_row(problem, SGLANG)
    assert plan.value == pytest.approx(min(values), rel=1e-9)
    assert plan.status == "optimal" and verify(plan).ok


def test_a_row_is_refused_where_the_pool_of_all_would_be_too_small():
    source = next(iter(SOURCES))
    problem = problem_of(source, "3090+2x3060", "latency", 1.15)
    free, plan = plan_row(problem, find_engine("vllm")), plan_row(problem, SGLANG)
    assert plan.value > free.value

    def has_room(found):
        used = np.unique(found.placement.device)
        kept = cache_capacity(found)
        left = pool(problem.device_memory[used], kept.weights[used])
        return left >= kept.cache.max()

    assert has_room(plan) and not has_room(free)
    room, used = cache_capacity(plan), np.unique(plan.placement.device)
    left = (0.9 * problem.device_memory - room.weights)[used].min()
    assert room.fit == int(left / (room.cache.max() / 24)) >= 24


def test_where_not_all_sizes_are_tried_the_bound_is_that_of_any_row(monkeypatch):
    source = next(iter(SOURCES))
    problem = problem_of(source, "3090+2x3060", "latency", 1.15)
    exact = plan_row(problem, SGLANG)
    monkeypatch.setattr(caches_alike, "MOST_SIZES", 1)
    plan = plan_row(problem, SGLANG)
    assert plan.value >= exact.value > plan.lower_bound and verify(plan).ok
