"""Stages by depth: how they are cut, and what they are good for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.graph import GraphBuilder
from placewright.planners.latency.construct.depth_split import DepthSplit, Line, row_lengths
from placewright.planners.latency.construct.simple import SingleDevice
from placewright.planning import make_problem
from placewright.solving import solve
from tests.naive.rows import longest_stage, shortest_longest_stage
from tests.planners.judging import judged
from tests.strategies import problems, tight


@given(problem=problems() | tight(problems(8)))
def test_its_plan_passes_the_judge_or_nothing_fits(problem):
    judged(problem, DepthSplit())


@given(problem=problems(memory=False), data=st.data())
def test_it_respects_pins(problem, data):
    unit = data.draw(st.integers(0, problem.unit_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    assume(np.isfinite(problem.unit_time[unit, device]))
    plan = solve(problem.with_pins({unit: device}), DepthSplit())
    assert (plan.placement.device[problem.op_unit == unit] == device).all()


@given(problem=problems(10) | tight(problems(10)))
def test_the_longest_stage_of_a_row_is_as_short_as_it_can_be(problem):
    line = Line(problem, "depth-split")
    time = problem.unit_time[line.units][:, line.devices]
    time = np.where(np.isfinite(time), time, 0.0)
    memory = problem.unit_memory[line.units], problem.device_memory[line.devices]
    for count in range(1, problem.device_count + 1):
        least = shortest_longest_stage(time[:, :count], *memory)
        assume(least is not None)
        cuts = line.balanced(line.devices[:count])
        assert cuts[-1] == problem.unit_count
        assert longest_stage(time, cuts) == pytest.approx(least, rel=1e-9, abs=1e-12)


@given(problem=problems(memory=False))
def test_units_stand_in_the_order_of_the_longest_way_to_the_end(problem):
    line = Line(problem, "depth-split")
    way = np.zeros(problem.op_count)
    for op in problem.topological_order[::-1].tolist():
        readers = problem.consumers[problem.edge_producer == op]
        way[op] = problem.op_time[op].min() + way[readers].max(initial=0.0)
    deepest = [way[problem.op_unit == unit].max() for unit in line.units]
    assert (np.diff(deepest) <= 1e-9).all()


@given(problem=problems(memory=False))
def test_it_is_no_worse_than_one_device(problem):
    assume(np.isfinite(problem.unit_time).all())
    alone = solve(problem, SingleDevice())
    assert solve(problem, DepthSplit()).value <= alone.value * (1 + 1e-9)


def chunks_through_layers(chunks, layers):
    """Each layer takes a second and is of one unit, whatever the chunk that goes through it."""
    builder = GraphBuilder("chunks")
    for chunk in range(chunks):
        data = []
        for layer in range(layers):
            op = builder.add_op(f"{chunk}.{layer}", "matmul", data, colocate=f"layer{layer}")
            data = [builder.add_tensor(op, 0.0)]
    problem = make_problem(builder.build(), "2x3090")[0]
    return replace(
        problem,
        op_time=np.ones_like(problem.op_time),
        link_latency=np.zeros_like(problem.link_latency),
    )


@pytest.mark.parametrize(("chunks", "layers"), [(2, 4), (4, 4), (3, 6)])
def test_chunks_of_a_batch_go_through_its_stages_as_through_a_pipeline(chunks, layers):
    plan = solve(chunks_through_layers(chunks, layers), DepthSplit())
    assert plan.value == pytest.approx((chunks + 1) * layers / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("devices", "lengths"),
    [(1, [1]), (3, [1, 2, 3]), (9, [*range(1, 9), 9]), (64, [*range(1, 9), 16, 32, 64])],
)
def test_rows_of_many_devices_are_not_all_tried(devices, lengths):
    assert row_lengths(devices) == lengths
