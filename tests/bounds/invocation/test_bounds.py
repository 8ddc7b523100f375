"""No plan for invocation latency is below its bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds import lower_bound
from placewright.bounds.invocation.path import path_bound, prove
from placewright.budget import Budget
from placewright.options import Options
from tests.builders import invocation_chain as chain
from tests.naive.invocation import least_latency
from tests.strategies.invocation import invocation_problems


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_path_bound_is_below_brute_force_where_accelerators_cannot_hold_the_model(data):
    small = data.draw(st.booleans())
    problem = data.draw(
        invocation_problems(4, 2, max_subgraphs=2) if small else invocation_problems(6, 2, False, 1)
    )
    share = data.draw(st.sampled_from([0.2, 0.35, 0.5, 0.7]))
    memory = np.where(problem.is_cpu, np.inf, problem.op_memory.sum() * share)
    problem = problem.with_device_memory(memory)
    assert path_bound(problem).value <= least_latency(problem) * (1 + 1e-9)


def test_ops_that_accelerators_have_no_room_for_take_their_time_on_cpus():
    """One op fits each accelerator: a takes 2 s with its output, another 3 s, the others 5 s."""
    options = Options("invocation-latency")
    problem = chain(options).with_device_memory(np.array([1.0, 1.0, np.inf]))
    best = least_latency(problem)
    assert best == 2.0 + 3.0 + 2 * 5.0
    assert path_bound(problem).value == pytest.approx(best)


@pytest.mark.parametrize("seed", range(10))
def test_transfers_far_longer_than_any_plan_takes_do_not_round_the_bound_up(seed):
    """Everything on one accelerator sends nothing; what is not sent must not leave its rounding."""
    drawn = np.random.default_rng(seed)
    seconds = drawn.random(4)
    problem = replace(
        chain(Options("invocation-latency")),
        op_time=np.column_stack([seconds, seconds, 9 * seconds]),
        tensor_bytes=drawn.random(3) * 1e11,
    )
    assert lower_bound(problem).value <= seconds.sum()


class Heard:
    def __init__(self):
        self.bounds = []

    def found(self, placement):
        raise AssertionError("nobody plans here")

    def proved(self, lower_bound, source):
        self.bounds.append(lower_bound)


def test_a_prover_tells_of_each_better_bound_and_stops_at_what_is_known():
    problem = chain(Options("invocation-latency"), memory=2.0)
    best = least_latency(problem)
    heard = Heard()
    proved = prove(problem, Budget(10.0, listener=heard))
    assert heard.bounds == sorted(set(heard.bounds))
    assert heard.bounds[-1] == proved.value <= best
    half = Heard()
    assert prove(problem, Budget(10.0, listener=half), best / 2).value >= best / 2
    assert half.bounds[-1] == best / 2
