"""Schedules that wait for memory (option ``peak``)."""

import math
from dataclasses import replace
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
from placewright.simulate.latency import schedule_placement, sequence_of, time_placement
from placewright.simulate.peak import peak_excess
from placewright.verify import verify
from tests import naive
from tests.builders import chain
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


@settings(max_examples=50)
@given(st.data())
def test_the_best_schedule_of_brute_force_is_as_short_in_the_order_of_its_starts(data):
    problem = data.draw(short_of_peaks(max_ops=4, max_devices=2))
    is_free = data.draw(st.lists(st.booleans(), min_size=4, max_size=4))
    times = np.where(np.array(is_free[: problem.op_count])[:, None], 0.0, problem.op_time)
    problem = replace(problem, op_time=times)
    best = naive_peak.best_course(problem)
    assume(best is not None)
    sent = [best.sent.get(best.key(edge), (-1.0, -1.0)) for edge in range(problem.edge_count)]
    local = [not best.crosses(edge) for edge in range(problem.edge_count)]
    begin, end = np.where(local, -1.0, np.array(sent).reshape(-1, 2).T)
    start, finish = (
        np.array([times[op] for op in range(problem.op_count)])
        for times in (best.start, best.finish)
    )
    sequence = sequence_of(problem, start, finish, begin, end)
    device = np.array(best.device, dtype=np.int32)
    value = value_within_memory(arrays_with_memory(problem), device, sequence)
    assert value <= finish.max() * (1 + 1e-9)


def test_views_of_a_tensor_take_its_place_at_one_instant():
    """No view has room while the tensor lives, which is gone when the last of them is made."""
    builder = GraphBuilder("views")
    for name in ("whole", "view", "other view", "sum"):
        builder.add_op(name, "op")
    for size, producer, readers in ((4.0, 0, (1, 2)), (2.0, 1, (3,)), (2.0, 2, (3,))):
        tensor = builder.add_tensor(producer, size)
        for reader in readers:
            builder.connect(tensor, reader)
    problem = replace(
        chain([0.0] * 4, [4.0, 4.0]),
        **graph_columns(builder.build()),
        op_time=np.repeat([[1.0], [0.0], [0.0], [1.0]], 2, axis=1),
        options=Options(memory="peak"),
    )
    sequence = np.array([0, -1, 1, -2, 2, -3, -4, 3], dtype=np.int32)
    where = np.zeros(4, dtype=np.int32)
    assert value_within_memory(arrays_with_memory(problem), where, sequence) == 2.0


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


def test_a_copy_waits_for_the_last_of_those_that_are_read_with_it():
    """The copies of both tensors have room on x while they are read at once: not before 3 s.

    No life is known to end at that time, for the op that ends the first has not begun.
    """
    problem = replace(
        chain([0.0, 0.0, 2.0], [4.0, math.inf], tensor_bytes=3.0),
        consumers=np.array([2, 2]),
        op_time=np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]),
        options=Options(memory="peak"),
        link_latency=np.zeros((2, 2)),
        link_seconds_per_byte=np.zeros((2, 2)),
    )
    where = np.array([1, 1, 0], dtype=np.int32)
    sequence = np.array([0, 1, -1, -2, 2], dtype=np.int32)
    assert naive_peak.gated(problem, where, sequence) is not None
    assert value_within_memory(arrays_with_memory(problem), where, sequence) == 3.0
