"""Schedules that wait for memory (option ``peak``)."""

import math
from itertools import product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.graph import GraphBuilder, lent
from placewright.kernels.common.arrays import arrays_with_memory
from placewright.kernels.latency import within_memory
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.simulate.peak import peak_excess
from placewright.verify import verify
from tests import naive
from tests.naive import peak as naive_peak
from tests.strategies import graph_columns, placements, sequences, short_of_peaks

OVERFULL = within_memory.OVERFULL


def value_within_memory(arrays, device, sequence):
    """Of arrays that the kernel may write: for others it would be compiled once more."""
    return within_memory.value_within_memory(arrays, lent(device), lent(sequence))


@given(st.data())
def test_a_sequence_that_fits_is_a_schedule_the_judge_accepts(data):
    problem = data.draw(short_of_peaks())
    device = data.draw(placements(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    placement = Placement(device, data.draw(sequences(problem)))
    value = value_within_memory(arrays_with_memory(problem), placement.device, placement.sequence)
    schedule = time_placement(problem, placement)
    fits = value < OVERFULL
    assert fits == (not (peak_excess(problem, placement, schedule) > 0).any())
    if fits:
        assert schedule.makespan == value
        plan = Plan(problem, Placement(device), schedule, value, 0.0, "", "test")
        assert verify(plan).violations == ()


@given(st.data())
def test_it_is_the_better_of_two_orders_timed_step_by_step(data):
    problem = data.draw(short_of_peaks())
    device = data.draw(placements(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    sequence = data.draw(sequences(problem))
    values = [
        max(course.finish.values()) if course else math.inf
        for course in (
            naive_peak.gated(problem, device, each)
            for each in (sequence, _by_start(problem, device, sequence))
        )
    ]
    value = value_within_memory(
        arrays_with_memory(problem), np.array(device, dtype=np.int32), sequence
    )
    assert (value if value < OVERFULL else math.inf) == min(values)


def _by_start(problem, device, sequence):
    """The items by start, then finish, as timed without regard to memory."""
    starts, finishes, sent, there = naive.time_sequence(problem, device, sequence.tolist())

    def when(item):
        if item >= 0:
            return starts[item], finishes[item]
        edge = -1 - item
        arrival = there.get(edge, finishes[problem.edge_producer[edge]])
        return sent.get(edge, arrival), arrival

    return sorted(sequence.tolist(), key=when)


@settings(max_examples=20)
@given(short_of_peaks(max_ops=4, max_devices=2))
def test_no_schedule_that_fits_is_shorter_than_the_best_order_of_brute_force(problem):
    """Brute force finds a schedule where gating its own order does, and never a longer one."""
    best = naive_peak.shortest_makespan(problem)
    found = [
        value_within_memory(arrays_with_memory(problem), placement.device, placement.sequence)
        for placement in (
            schedule_placement(problem, np.array(device, dtype=np.int32))
            for device in product(range(problem.device_count), repeat=problem.op_count)
            if np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all()
            and (problem.unit_device(np.array(device))[problem.op_unit] == device).all()
        )
    ]
    assert best <= min([each for each in found if each < OVERFULL], default=math.inf) * (1 + 1e-9)


def test_a_transfer_waits_until_there_is_room_for_it():
    """The consumer's device is full until its first op is over, so the copy arrives after that."""
    builder = GraphBuilder("waits")
    for name in "abc":
        builder.add_op(name, "op")
    builder.connect(builder.add_tensor(0, 4.0), 2)
    builder.add_tensor(1, 4.0)
    graph = builder.build()
    one = np.ones((2, 2)) - np.eye(2)
    problem = Problem(
        name="waits", **graph_columns(graph),
        op_time=np.array([[1.0, 1.0], [5.0, 5.0], [1.0, 1.0]]),
        op_memory=np.zeros(3), op_pinned=np.array([0, 1, 1]),
        device_names=("x", "y"), device_kinds=("k", "k"), device_memory=np.array([4.0, 4.0]),
        link_latency=one * 0.5, link_seconds_per_byte=one * 0.0,
        channel_offsets=np.zeros(5, dtype=int), channels=np.zeros(0, dtype=int), channel_names=(),
        options=Options(memory="peak", contention="none"),
    )  # fmt: skip
    schedule = time_placement(problem, Placement(np.array([0, 1, 1]), np.array([1, 0, -1, 2])))
    assert schedule.transfers.start.tolist() == [5.0]
    assert schedule.makespan == 6.5
