"""Devices that a placement fills to the last byte: sums are rounded, and bounds must not mind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placewright.bounds import lower_bound
from placewright.plan import Placement
from placewright.planning import make_problem
from placewright.simulate import evaluate

CASES = {
    "latency": {},
    "throughput": {"contiguous": False},
    "batch-throughput": {"contention": "none", "batch": 2},
}


@pytest.mark.parametrize("objective", CASES)
def test_a_placement_that_fills_its_devices_is_not_below_the_bound(objective):
    options = {"objective": objective, **CASES[objective]}
    source = "zoo:rwnn?modules=3&ops=8" if "batch" in objective else "zoo:gpt2?layers=2"
    problem, _ = make_problem(source, "3090+2x3060", options)
    for seed in range(25):
        draw = np.random.default_rng(seed)
        problem = replace(problem, op_memory=draw.uniform(0, 1e9, problem.op_count))
        place = np.sort(draw.integers(0, problem.device_count, problem.unit_count))
        device = place[problem.op_unit].astype(np.int32)
        kept = [problem.op_memory[device == each].tolist() for each in range(problem.device_count)]
        full = problem.with_device_memory(np.array([sum(each) for each in kept]))
        if "batch" in objective:
            device = np.repeat(device[:, None], 2, axis=1)
        value = evaluate(full, Placement(device)).value
        assert lower_bound(full).value <= value * (1 + 1e-9)
