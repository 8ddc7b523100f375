"""Dynamic programming over ideals for invocation latency."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.kernels.invocation.timing import equal_accelerators
from placewright.options import Options
from placewright.planners.invocation.ideal_dp import IdealDP
from placewright.planners.invocation.ideals.blocks import blocks_of
from placewright.planners.invocation.ideals.floors import Floors
from placewright.planners.invocation.ideals.kinds import Kinds
from placewright.planners.invocation.ideals.listing import ideals_of
from placewright.planners.invocation.ideals.table import Table
from placewright.simulate import evaluate
from placewright.solving import solve
from placewright.verify import verify
from tests.bounds.invocation.test_chain import SECONDS, fork_problems, forks, problem_of
from tests.builders import invocation_chain
from tests.naive.invocation import latency, least_latency, least_row
from tests.strategies.invocation import BYTES, invocation_problems


@st.composite
def problems(draw, cpus=True):
    """Without backward ops, some of them with little memory on accelerators."""
    kind = draw(st.integers(0, 2))
    drawn = (
        fork_problems(cpus=cpus),
        invocation_problems(5, 3, training=False, max_subgraphs=1),
        invocation_problems(6, 2, training=False, max_subgraphs=1),
    )[kind]
    problem = draw(drawn if cpus else drawn.filter(lambda problem: not problem.is_cpu.any()))
    if draw(st.booleans()):
        share = draw(st.sampled_from([0.35, 0.5, 0.7]))
        memory = max(problem.op_memory.sum() * share, 0.1)
        problem = problem.with_device_memory(np.where(problem.is_cpu, np.inf, memory))
    return problem


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_no_plan_is_below_its_bound_and_its_row_is_the_best(problem):
    best, row = least_latency(problem), least_row(problem)
    if reason := IdealDP().supports(problem):
        assert "colocated" in reason
        return
    if math.isinf(row):
        with pytest.raises(InfeasibleError):
            IdealDP().plan(problem, Budget(), 0, no_progress)
        return
    plan = solve(problem, "ideal-dp")
    assert verify(plan).ok
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= plan.value <= row * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(problem=problems(cpus=False))
def test_the_table_of_rows_is_exact_and_floors_are_below_it(problem):
    kinds = Kinds(problem, equal_accelerators(problem))
    seconds = np.where(np.isfinite(problem.op_time), problem.op_time, np.inf).min(axis=1)
    ideals = ideals_of(problem, seconds, 1000)
    assert ideals is not None
    table = Table(ideals, kinds, np.zeros(len(kinds)))
    everywhere = np.ones(ideals.count, dtype=bool)
    for code in range(1, kinds.codes):
        table.fill(code, everywhere)
    least, row = float(table.value[:, -1].min()), least_row(problem)
    never = 5 * np.where(np.isfinite(problem.op_time), problem.op_time, 0.0).max(axis=1).sum()
    if math.isinf(row):
        assert least == math.inf or least > never
        return
    assert least == pytest.approx(row)
    code = int(table.value[:, -1].argmin())
    pieces = table.pieces(code)
    assert pieces[0].high == ideals.count - 1
    assert pieces[-1].low == 0
    floors = Floors(ideals, kinds, blocks_of(ideals, kinds), Budget())
    assert floors.proved <= least_latency(problem) * (1 + 1e-9)
    for piece in pieces:  # what the best row has still to do is no less than the floor
        code -= int(kinds.step[piece.kind])
        floor = np.broadcast_to(floors.at(code), ideals.count)[piece.low]
        assert table.value[code, piece.low] + floor <= row * (1 + 1e-9)


@st.composite
def trained(draw):
    """Forks with a backward pass, the forward one turned round; each op with its twin or not.

    A backward op reads what its twin reads, or what it makes.
    """
    builder = GraphBuilder("trained")
    together, reads_output = draw(st.booleans()), draw(st.booleans())
    widths = draw(st.sampled_from([[2], [1, 1], [3]]))
    forward = forks(widths)
    count = forward.op_count
    outputs = []
    for op in range(count):
        number = builder.add_op(f"op{op}", "op", parameter_bytes=draw(BYTES),
                                colocate=f"op{op}" if together else None)  # fmt: skip
        outputs.append(builder.add_tensor(number, draw(BYTES)))
    pairs = sorted({(int(forward.tensor_producer[t]), int(forward.consumers[e]))
                    for t in range(forward.tensor_count)
                    for e in range(*forward.consumer_offsets[t : t + 2])})  # fmt: skip
    for producer, consumer in pairs:
        builder.connect(outputs[producer], consumer)
    gradients = {}
    for op in reversed(range(count)):
        number = builder.add_op(f"op{op}.grad", "op", backward=True, twin=op,
                                colocate=f"op{op}" if together else None)  # fmt: skip
        gradients[op] = builder.add_tensor(number, draw(BYTES))
        for reader in [consumer for producer, consumer in pairs if producer == op]:
            builder.connect(gradients[reader], number)
        read = [outputs[op]] if reads_output else [outputs[p] for p, c in pairs if c == op]
        for tensor in read or [outputs[op]]:
            builder.connect(tensor, number)
    graph = builder.build()
    accelerators = draw(st.integers(2, 3 if together else 2))
    seconds = st.lists(SECONDS, min_size=graph.op_count, max_size=graph.op_count)
    times = np.array([draw(seconds) for _ in range(accelerators)]).T
    room = draw(st.sampled_from([0.5, 0.7, 2.0])) * graph.op_parameter_bytes.sum()
    memory = np.full(accelerators, max(room, 0.1))
    host = draw(st.sampled_from([0.0, 0.1]))
    problem = problem_of(graph, times, memory, host)
    pace = np.full((2, accelerators), draw(st.sampled_from([0.0, 0.2])))
    return replace(problem, host_seconds_per_byte=pace)


@settings(max_examples=40, deadline=None)
@given(problem=trained())
def test_no_plan_of_both_passes_is_below_its_bound(problem):
    best = min(
        (
            latency(problem, device, slots)
            for device in itertools.product(range(problem.device_count), repeat=problem.op_count)
            if (slots := _slots(problem, device))
        ),
        default=math.inf,
    )
    if IdealDP().supports(problem):  # a lone op that nothing of the backward pass depends on
        return
    try:
        plan = solve(problem, "ideal-dp")
    except InfeasibleError:
        return
    assert verify(plan).ok
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert best <= plan.value * (1 + 1e-9)
    if (problem.colocation >= 0).any() and plan.status == "optimal":
        assert plan.value == pytest.approx(best)


def _slots(problem, device):
    """One subgraph of each pass per accelerator; None if a unit is torn apart or does not fit."""
    for unit in range(problem.unit_count):
        if len({device[op] for op in np.flatnonzero(problem.op_unit == unit)}) > 1:
            return None
    kept = np.bincount(device, problem.op_memory, problem.device_count)
    if (kept > problem.device_memory * (1 + 1e-12)).any():
        return None
    return [(d, int(back)) for d, back in zip(device, problem.is_backward, strict=True)]


def test_branches_at_the_same_time():
    """Two forks of two ops, a second each, on four accelerators: one fork at once, one in a row."""
    graph = forks([2, 2])
    problem = problem_of(graph, np.ones((graph.op_count, 4)), np.full(4, np.inf), 0.0)
    plan = solve(problem, "ideal-dp")
    assert (plan.value, plan.status) == (pytest.approx(6.0), "optimal")


def test_slower_and_smaller_accelerators():
    """The quick ones hold half of what the slow ones do; 8 of 14 bytes must go to these."""
    graph = forks([1] * 6)
    assert graph.op_count == 13
    times = np.ones((13, 4)) * np.array([1.0, 2.2, 1.0, 2.2])
    problem = problem_of(graph, times, np.array([3.0, 4.0, 2.0, 5.0]), 0.1)
    plan = solve(problem, "ideal-dp")
    assert plan.status == "optimal"
    assert plan.value == pytest.approx(5 * 1.0 + 8 * 2.2 + 3 * 0.2)


def test_all_branches_of_two_forks_at_once():
    """Nine accelerators: three for what forks and joins, three for each fork."""
    graph = forks([3, 3])
    problem = problem_of(graph, np.ones((graph.op_count, 9)), np.full(9, np.inf), 0.0)
    plan = solve(problem, "ideal-dp")
    assert (plan.value, plan.status) == (pytest.approx(5.0), "optimal")
    again = solve(problem, "ideal-dp", start=plan.placement)
    assert (again.value, again.status) == (plan.value, "optimal")


def test_what_accelerators_have_no_room_for_is_on_cpus():
    """One op fits each accelerator: a takes 2 s with its output, another 3 s, the others 5 s."""
    problem = invocation_chain(Options("invocation-latency"))
    problem = problem.with_device_memory(np.array([1.0, 1.0, np.inf]))
    plan = solve(problem, "ideal-dp")
    assert (plan.value, plan.status) == (2.0 + 3.0 + 2 * 5.0, "optimal")


def test_on_cpus_branches_run_at_the_same_time():
    """All three on CPUs take 2 s, on the accelerator 3 s, one after another with all others."""
    graph = forks([3])
    times = np.ones((5, 2)) * np.array([1.0, 2.0])
    plan = solve(problem_of(graph, times, np.full(2, np.inf), 0.0, cpus=1), "ideal-dp")
    assert (plan.value, plan.status) == (5.0, "optimal")
    several = times.copy()
    several[0, 0] = several[4, 0] = 9.0
    plan = solve(problem_of(graph, several, np.full(2, np.inf), 0.0, cpus=1), "ideal-dp")
    assert (plan.value, plan.status) == (6.0, "optimal")


def test_what_it_does_not_take():
    graph = forks([2])
    twice = problem_of(graph, np.ones((4, 2)), np.full(2, np.inf), 0.0)
    with_cpu = problem_of(graph, np.ones((4, 2)), np.full(2, np.inf), 0.0, cpus=1)
    colocated = replace(with_cpu, colocation=np.array([0, 0, -1, -1]))
    with pytest.raises(OptionError, match="ops of a pass are not colocated"):
        solve(colocated, "ideal-dp")
    cpus_alone = replace(with_cpu, is_cpu=np.ones(with_cpu.device_count, dtype=np.bool_))
    with pytest.raises(OptionError, match="there are CPUs alone; take annealing"):
        solve(cpus_alone, "ideal-dp")
    several = replace(twice, options=Options("invocation-latency", subgraphs=2))
    assert "one subgraph" in str(IdealDP().supports(several))
    wide = forks([20])
    many = problem_of(wide, np.ones((22, 2)), np.full(2, np.inf), 0.0)
    assert "more ideals than the 60,000" in str(IdealDP().supports(many))
    assert "than the 3" in str(IdealDP(ideals=3).supports(twice))
    with pytest.raises(OptionError, match="ideals is 'no'"):
        IdealDP(ideals="no")


def test_without_time_it_keeps_the_start():
    graph = forks([2, 2])
    problem = problem_of(graph, np.ones((graph.op_count, 3)), np.full(3, np.inf), 0.0)
    start = solve(problem, "linear-dp")
    budget = Budget(0.0, start=start.placement)
    kept = IdealDP().plan(problem, budget, 0, no_progress)
    assert evaluate(problem, kept.placement).value == start.value
    assert kept.lower_bound == 0.0
