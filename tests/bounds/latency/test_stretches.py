"""The bound over stretches of a chain against brute force, and where it is the optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds import lower_bound
from placewright.bounds.latency.stretches import prove, stretches
from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.graph import GraphBuilder
from placewright.plan import Placement
from placewright.planning import make_problem
from placewright.simulate import evaluate
from tests import naive
from tests.builders import chain as made_chain
from tests.strategies import problems
from tests.strategies.common import BYTES

SHARES = st.sampled_from([0.4, 0.5, 0.7, 1.0, 9.0])


@st.composite
def forks(draw):
    """Ops that fork and join again, some of them to be together."""
    builder, most = GraphBuilder("forks"), draw(st.integers(2, 6))

    def op(reads):
        group = draw(st.sampled_from([None, None, "a", "b"]))
        name, kept = f"op{builder.op_count}", draw(BYTES)
        number = builder.add_op(name, "op", reads, parameter_bytes=kept, colocate=group)
        return builder.add_tensor(number, draw(BYTES))

    last = op([])
    while builder.op_count < most:
        width = min(draw(st.integers(1, 3)), most - builder.op_count)
        past = [last] if draw(st.booleans()) else []
        ends = [op([last]) for _ in range(width)]
        last = op([*ends, *past]) if builder.op_count < most else ends[0]
    return builder.build()


def with_room(problem, shares):
    """Devices have memory for such a share of all ops each; None if these do not fit."""
    room = np.array(shares[: problem.device_count]) * problem.op_memory.sum()
    problem = problem.with_device_memory(room)
    try:
        problem.check_feasible()
    except InfeasibleError:
        return None
    return problem


@settings(max_examples=60, deadline=None)
@given(
    problem=problems(max_devices=3, graph=forks()), shares=st.lists(SHARES, min_size=3, max_size=3)
)
def test_no_placement_is_below_the_bound(problem, shares):
    problem = with_room(problem, shares)
    if problem is None:
        return
    best = naive.shortest_makespan(problem)
    assert stretches(problem).value <= best + 1e-9
    assert lower_bound(problem).value <= best + 1e-9  # with the memory that units can fill


@settings(max_examples=40, deadline=None)
@given(
    problem=problems(max_devices=3, graph=forks()),
    shares=st.lists(SHARES, min_size=3, max_size=3),
    above=st.sampled_from([1.0, 1.2, 3.0]),
)
def test_no_placement_is_below_the_program_of_the_chain(problem, shares, above):
    problem = with_room(problem, shares)
    if problem is None:
        return
    best = naive.shortest_makespan(problem)
    assert prove(problem, Budget(20.0), above * best).value <= best + 1e-9


@settings(max_examples=30, deadline=None)
@given(problem=problems(max_ops=6, max_devices=3))
def test_no_placement_of_any_graph_is_below_the_bound(problem):
    try:
        problem.check_feasible()
    except InfeasibleError:
        return
    assert stretches(problem).value <= naive.shortest_makespan(problem) + 1e-9


def chain(memory, per_byte=1.0, ops=4):
    """Equal devices, so many ops in a row of a second, a byte kept and a byte made each."""
    from placewright.cluster import Cluster, Device, Link

    builder = GraphBuilder("chain")
    tensors = []
    for number in range(ops):
        op = builder.add_op(f"op{number}", "op", tensors[-1:], parameter_bytes=1.0)
        tensors.append(builder.add_tensor(op, 1.0))
    builder.times = {"d": [1.0] * ops}
    devices = [Device(f"d{each}", "d", memory=room) for each, room in enumerate(memory)]
    links = [Link("d0", f"d{each}", bandwidth=1 / per_byte) for each in range(1, len(memory))]
    cluster = Cluster("equal", tuple(devices), tuple(links))
    return make_problem(builder.build(), cluster, {"contention": "none"})[0]


@pytest.mark.parametrize(("room", "seconds"), [(4.0, 4.0), (2.0, 5.0), (1.0, 7.0)])
def test_a_chain_changes_device_as_often_as_memory_makes_it(room, seconds):
    """Of four equal devices each holds so many of four ops; a change takes a second."""
    assert stretches(chain([room] * 4)).value == pytest.approx(seconds)


def test_whole_ops_leave_memory_over_that_prices_do_not_see():
    """Of three ops that fill 0.6 of the fast device each one is there, and a change takes 0.5 s."""
    problem = made_chain([0.6] * 3, [1.0, 9.0])
    assert stretches(problem).value < 5.2
    assert prove(problem, Budget(20.0), 9.0).value == pytest.approx(5.5, rel=1e-4)


def test_ops_that_are_together_take_their_times_one_after_another():
    """Blocks of a language model on equal devices that have room: nothing is faster than one."""
    options = {"objective": "latency"}
    problem, _ = make_problem("zoo:llama-7b?layers=2", "2x3090", options, granularity="block")
    alone = float(problem.op_time[:, 0].sum())
    bound = lower_bound(problem)
    assert bound.source == "stretches of a chain of ops"
    assert bound.value == pytest.approx(alone, rel=0.02)
    assert bound.value <= alone


def test_what_a_decoder_block_makes_of_the_encoder_takes_its_time_in_the_block():
    """Blocks of T5: keys and values of the encoder's output could be made at any time after it."""
    problem, _ = make_problem(
        "zoo:t5-small?layers=2", "2x3090", {"objective": "latency"}, granularity="block"
    )
    alone = float(problem.op_time[:, 0].sum())
    assert 0.85 * alone <= stretches(problem).value <= alone


@pytest.mark.parametrize("fast", [0.3, 0.5, 0.8])
def test_blocks_keep_what_lies_beside_their_chain_where_the_chain_is(fast):
    """Heads of BERT's blocks lie beside the chain: their bytes are no burden to a slow device."""
    options = {"objective": "latency", "contention": "none"}
    problem, _ = make_problem("zoo:bert-base?layers=6", "4090+3060", options, granularity="block")
    need = problem.op_memory.sum()
    problem = problem.with_device_memory(np.array([fast * need, (1.02 - fast) * need + 1e7]))
    best = np.inf
    for unit_device in itertools.product(range(2), repeat=problem.unit_count):
        used = np.bincount(unit_device, problem.unit_memory, 2)
        if (used <= problem.device_memory).all():
            device = np.array(unit_device, dtype=np.int32)[problem.op_unit]
            best = min(best, evaluate(problem, Placement(device)).value)
    assert 0.9 * best <= lower_bound(problem).value <= best
