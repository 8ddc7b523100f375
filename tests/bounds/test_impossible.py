"""Bounds of problems without any plan: no warning, and infinite where an op has no device."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.bounds import lower_bound
from placewright.bounds.invocation.path import path_bound
from placewright.bounds.latency import paths as latency
from tests.strategies import problems
from tests.strategies.batch import batch_problems
from tests.strategies.invocation import tight_invocation_problems
from tests.strategies.throughput import throughput_problems

PROBLEMS = {
    "latency": problems(max_ops=6),
    "throughput": throughput_problems(contiguous=None),
    "invocation-latency": tight_invocation_problems(),
    "batch-throughput": batch_problems(max_ops=5),
}


def unsupported(draw, problem):
    """One op on no device, or on none of those that it may be on."""
    times = problem.op_time.copy()
    times[draw(st.integers(0, problem.op_count - 1))] = np.inf
    return replace(problem, op_time=times)


def nothing_supported(draw, problem):
    return replace(problem, op_time=np.full(problem.op_time.shape, np.inf))


def no_batch(draw, problem):
    """No batch of all inputs for one op, perhaps none at all."""
    if not len(problem.batch_sizes):
        return problem
    times = problem.batch_time.copy()
    op, size = draw(st.integers(0, problem.op_count - 1)), draw(st.sampled_from([-1, slice(None)]))
    times[op, :, size] = np.inf
    return replace(problem, batch_time=times)


def little_memory(draw, problem):
    capacities = st.lists(
        st.sampled_from([0.0, 0.3, 1.0]),
        min_size=problem.device_count,
        max_size=problem.device_count,
    )
    return problem.with_device_memory(np.array(draw(capacities)))


@pytest.mark.parametrize("objective", PROBLEMS)
@pytest.mark.parametrize("spoil", [unsupported, nothing_supported, no_batch, little_memory])
@given(data=st.data())
def test_bounds_of_the_impossible_come_without_a_warning(objective, spoil, data):
    problem = spoil(data.draw, data.draw(PROBLEMS[objective]))
    bounds = [lower_bound, latency.lower_bound, latency.critical_path, latency.work]
    bounds += [path_bound] if objective == "invocation-latency" else []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = [bound(problem).value for bound in bounds]
    assert all(value >= 0.0 for value in values), values  # NaN is not either
    if not problem.unit_allowed.any(axis=1).all():
        assert set(values) == {math.inf}
    elif objective != "batch-throughput":  # there the sizes may not add up to all inputs
        assert all(map(math.isfinite, values))
