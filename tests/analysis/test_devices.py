"""The same problem on fewer devices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright import bounds
from placewright.analysis.devices import kinds, restricted
from placewright.analysis.subproblem import subproblem
from placewright.cluster import CpuRun, CudaRun
from placewright.errors import InfeasibleError
from placewright.plan import Placement
from placewright.simulate.latency import schedule_placement, time_placement
from tests import naive
from tests.builders import throughput_chain
from tests.strategies import problems


@given(problem=problems(max_devices=4, memory=False), data=st.data())
def test_a_plan_on_some_devices_is_as_long_on_all(problem, data):
    count = problem.device_count
    devices = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=count))
    some = restricted(problem, np.array(devices))
    choice = st.sampled_from(range(some.problem.device_count))
    units = data.draw(st.lists(choice, min_size=problem.unit_count, max_size=problem.unit_count))
    placement = Placement(np.array(units)[problem.op_unit])
    if np.isinf(some.problem.op_time[np.arange(problem.op_count), placement.device]).any():
        return
    scheduled = schedule_placement(some.problem, placement.device)
    there = some.expand(scheduled)
    assert np.isin(there.device, devices).all()
    assert time_placement(problem, there).makespan == pytest.approx(
        time_placement(some.problem, scheduled).makespan, rel=1e-12
    )
    back = some.restrict(there)
    assert back is not None and back.device.tolist() == scheduled.device.tolist()


@given(problem=problems(max_devices=3), data=st.data())
def test_pins_and_channels_keep_their_names(problem, data):
    pinned = problem.with_pins({0: data.draw(st.integers(0, problem.device_count - 1))})
    kept = np.unique([int(pinned.op_pinned.max()), problem.device_count - 1])
    some = restricted(pinned, kept).problem
    for op, device in enumerate(pinned.op_pinned.tolist()):
        if device < 0:
            assert some.op_pinned[op] == -1
        else:
            assert some.device_names[some.op_pinned[op]] == problem.device_names[device]
    for a, one in enumerate(kept.tolist()):
        for b, two in enumerate(kept.tolist()):
            assert _channels(some, a, b) == _channels(problem, one, two)


def test_what_devices_are_goes_with_them():
    runs = (CpuRun((0,)), CudaRun(0), None)
    problem = throughput_chain(device_runs=runs, device_hosts=("a", "b", "b"))
    assert restricted(problem, np.array([0, 2])).problem.device_runs == (runs[0], None)
    assert restricted(problem, np.array([0, 2])).problem.device_hosts == ("a", "b")
    assert restricted(problem, np.array([1, 2])).problem.device_hosts == ()
    assert restricted(problem, np.array([2])).problem.device_runs == ()
    for same in (problem.with_pins({0: 1}), subproblem(problem, np.array([1, 2])).problem):
        assert same.device_runs == runs


def _channels(problem, source, target):
    pair = source * problem.device_count + target
    first, last = problem.channel_offsets[pair : pair + 2]
    return [problem.channel_names[channel] for channel in problem.channels[first:last]]


@given(problem=problems(max_devices=3))
def test_devices_with_equal_times_and_memory_are_alike_unless_pinned_to(problem):
    twice = _doubled(problem)
    first, class_of = kinds(twice)
    count = problem.device_count
    assert class_of[:count].tolist() == class_of[count:].tolist()
    assert len(first) <= count
    for device in range(2 * count):
        model = first[class_of[device]]
        assert np.array_equal(twice.op_time[:, model], twice.op_time[:, device])
        assert twice.device_memory[model] == twice.device_memory[device]
    _, pinned_class = kinds(twice.with_pins({0: 0}))
    assert (pinned_class == pinned_class[0]).sum() == 1


@settings(max_examples=20)
@given(problem=problems(max_ops=4, max_devices=2))
def test_no_bound_that_counts_a_class_once_is_above_the_optimum(problem):
    twice = replace(_doubled(problem), options=replace(problem.options, memory="resident"))
    try:
        twice.check_feasible()
    except InfeasibleError:
        return
    assert len(kinds(twice)[0]) < twice.device_count
    assert bounds.lower_bound(twice).value <= naive.shortest_makespan(twice) + 1e-9


def _doubled(problem):
    """Each device twice, all of them linked as the first and the last are."""
    count = 2 * problem.device_count
    latency = np.full((count, count), float(problem.link_latency[0, -1]))
    np.fill_diagonal(latency, 0.0)
    return replace(
        problem,
        op_time=np.tile(problem.op_time, 2),
        device_names=tuple(f"device{k}" for k in range(count)),
        device_kinds=("kind",) * count,
        device_memory=np.tile(problem.device_memory, 2),
        link_latency=latency,
        link_seconds_per_byte=np.zeros((count, count)),
        channel_offsets=np.zeros(count * count + 1),
        channels=np.zeros(0, dtype=np.int32),
        channel_names=(),
        is_cpu=np.zeros(count),
        host_latency=np.zeros((2, count)),
        host_seconds_per_byte=np.zeros((2, count)),
        batch_time=np.zeros((problem.op_count, count, 0)),
    )
