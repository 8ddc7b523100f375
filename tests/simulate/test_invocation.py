"""Invocation latency: the reference evaluator, its kernel twin and a naive recursion agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.slots import placement_of, slot_of
from placewright.errors import GraphError
from placewright.kernels.invocation.timing import latency
from placewright.plan import Placement
from placewright.simulate.invocation import invoke
from tests.naive import invocation as naive_invocation
from tests.strategies.invocation import invocation_problems, invocation_slots


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_reference_kernel_and_naive_recursion_agree(data):
    problem = data.draw(invocation_problems(max_ops=8, max_accelerators=3))
    device, number = data.draw(invocation_slots(problem))
    op_slot = slot_of(problem, device, number)
    found = latency(problem, op_slot)
    placement = placement_of(problem, op_slot)
    slots = [
        None if problem.is_cpu[d] else (int(d), int(k))
        for d, k in zip(placement.device, placement.subgraph, strict=True)
    ]
    assert naive_invocation.latency(problem, device, slots) == pytest.approx(found, rel=1e-9)
    if math.isinf(found):
        with pytest.raises(GraphError, match="circle"):
            invoke(problem, placement)
    else:
        assert invoke(problem, placement).value == pytest.approx(found, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_placement_without_subgraphs_has_one_per_accelerator_and_way(data):
    problem = data.draw(invocation_problems(max_subgraphs=1))
    device, _ = data.draw(invocation_slots(problem))
    op_slot = slot_of(problem, device)
    if math.isfinite(latency(problem, op_slot)):
        plain = invoke(problem, Placement(device))
        assert plain.value == invoke(problem, placement_of(problem, op_slot)).value
        ways = {(int(d), bool(b)) for d, b in zip(device, problem.is_backward, strict=True)}
        used = {each for each in ways if not problem.is_cpu[each[0]]}
        assert len(plain.invocations) == len(used)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_everything_on_one_accelerator_pays_no_transfer(data):
    problem = data.draw(invocation_problems(training=False))
    device = np.zeros(problem.op_count, dtype=np.int64)
    seconds = float(problem.op_time[:, 0].sum())
    assert latency(problem, slot_of(problem, device)) == pytest.approx(seconds)
