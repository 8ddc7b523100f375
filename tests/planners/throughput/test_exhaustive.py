"""Every split tried: the optimum of brute force, what it refuses, and what it says of no plan."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from placewright.errors import OptionError, ProvedInfeasibleError
from placewright.planners.throughput.exhaustive import groups_of
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import row_of_ops
from tests.naive.throughput import best_split, stages_of
from tests.strategies.throughput import pipelines


@settings(max_examples=30, deadline=None)
@given(pipelines(max_ops=5))
def test_the_optimum_of_brute_force_is_proved(problem):
    check(problem)


@settings(max_examples=20, deadline=None)
@given(pipelines(max_ops=5, replicate=True))
def test_the_optimum_with_replicas_is_proved(problem):
    check(problem)
    assert sorted(map(sorted, groups_of(problem))) == sorted(map(sorted, stages_of(problem)))


def check(problem):
    least, _ = best_split(problem)
    if math.isinf(least):
        with pytest.raises(ProvedInfeasibleError, match="all were tried"):
            solve(problem, "exhaustive")
        return
    found = solve(problem, "exhaustive")
    assert verify(found).violations == ()
    assert np.isclose(found.value, least, rtol=1e-9)
    assert found.status == "optimal"


@pytest.mark.parametrize(("ops", "splits"), [(40, "1e\\+12"), (5_000, "1e\\+300")])
def test_a_large_model_is_left_to_others(ops, splits):
    with pytest.raises(OptionError, match=f"there are about {splits}; leave it to small models"):
        solve(row_of_ops([1.0] * ops), "exhaustive")
