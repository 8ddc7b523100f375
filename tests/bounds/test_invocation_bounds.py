"""No plan for invocation latency is below its bounds."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds import lower_bound
from placewright.bounds.invocation_path import path_bound
from tests.naive_invocation import least_latency
from tests.strategies_invocation import invocation_problems


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_path_bound_is_below_brute_force(data):
    small = data.draw(st.booleans())
    problem = data.draw(
        invocation_problems(4, 2, max_subgraphs=2) if small else invocation_problems(6, 2, False, 1)
    )
    best = least_latency(problem)
    assert path_bound(problem).value <= best * (1 + 1e-9)
    if best < math.inf:
        assert lower_bound(problem).value <= best * (1 + 1e-9)
