"""Order-Place and Celeritas: groups, where they go, and what they promise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.analysis.orders import ORDERS, order_named
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.adjusting import adjusting_schedule
from placewright.planners.base import NoRoomError
from placewright.planners.latency.construct.celeritas import (
    Celeritas,
    OrderPlace,
    busy_with_transfers,
)
from placewright.planning import make_problem
from placewright.solving import solve
from placewright.verify import verify
from tests.conftest import WORKLOADS
from tests.naive import celeritas as naive_celeritas
from tests.planners.judging import judged, judged_twice
from tests.strategies import problems, tight

PLANNERS = (OrderPlace, Celeritas)
FILES = sorted(WORKLOADS.glob("moirai/*.json")) + sorted(WORKLOADS.glob("tarnawski/[lt]*/*.json"))


@st.composite
def options(draw):
    return {
        "order": draw(st.sampled_from(sorted(ORDERS))),
        "reach": str(draw(st.integers(1, 6))),
        "memory_fraction": draw(st.sampled_from(["0.1", "0.25", "1"])),
        "measure": draw(st.sampled_from(["", "edge", "tensor"])),
        "group_order": draw(st.sampled_from(["same", *sorted(ORDERS)])),
    }


@pytest.mark.parametrize("planner", PLANNERS)
@given(problem=problems() | tight(problems(8)), chosen=options())
def test_its_plan_passes_the_judge_or_nothing_fits(planner, problem, chosen):
    judged(problem, planner(**chosen))


@pytest.mark.parametrize("planner", PLANNERS)
@given(problem=problems(memory=False), data=st.data())
def test_it_respects_pins(planner, problem, data):
    unit = data.draw(st.integers(0, problem.unit_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    assume(np.isfinite(problem.unit_time[unit, device]))
    plan = solve(problem.with_pins({unit: device}), planner())
    assert (plan.placement.device[problem.op_unit == unit] == device).all()


@pytest.mark.parametrize("planner", PLANNERS)
@given(problem=problems() | tight(problems(8)))
def test_it_gives_the_same_plan_again(planner, problem):
    judged_twice(problem, planner())


@pytest.mark.parametrize("planner", PLANNERS)
def test_groups_with_pinned_ops_do_not_take_others_where_they_have_no_room(planner):
    """a and d are pinned to one device; a with b and c with d would be groups, too large for it."""
    ops = [(name, 1.0, 2e9) for name in "abcd"]
    problem = build(ops, [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)], memory=4e9)
    plan = solve(problem.with_pins({0: 0, 3: 0}), planner(memory_fraction="1"))
    assert plan.placement.device.tolist() == [0, 1, 1, 0]


@given(
    problem=problems(), chosen=options(), transfers=st.sampled_from(["work", "channels", "both"])
)
def test_celeritas_is_never_later_than_order_place(problem, chosen, transfers):
    problem = replace(problem, options=replace(problem.options, memory="resident"))
    plans = {}
    for planner in (OrderPlace(**chosen), Celeritas(transfers=transfers, **chosen)):
        try:
            plans[planner.name] = proposed_value(problem, planner)
        except NoRoomError:
            return
    assert plans["celeritas"] <= plans["order-place"]


def proposed_value(problem, planner):
    """The makespan of what the planner proposes when asked once, with groups as large as asked."""
    from placewright.simulate.latency import time_placement

    contraction = planner._contract(problem, planner.memory_fraction)
    planner.place(contraction.problem, planner._line(contraction.problem))  # NoRoomError if none
    proposal = planner.plan(problem, Budget(), 0, no_progress)
    return time_placement(problem, proposal.placement).makespan


@given(problem=problems(), work=st.booleans(), data=st.data())
def test_kernel_adjusts_exactly_as_its_twin(problem, work, data):
    order = order_named(data.draw(st.sampled_from(sorted(ORDERS))), problem)
    previous = data.draw(st.integers(0, problem.device_count - 1))
    unit_device = np.full(problem.unit_count, -1, dtype=np.int32)
    busy = busy_with_transfers(problem, "work" if work else "channels")
    expected = naive_celeritas.adjusting_schedule(problem, order, unit_device, previous, work)
    op_start, op_finish = np.zeros(problem.op_count), np.zeros(problem.op_count)
    edge_start, edge_finish = np.empty(problem.edge_count), np.empty(problem.edge_count)
    failed = adjusting_schedule(
        arrays_of(problem), *busy, order, problem.op_unit, unit_device,
        problem.unit_memory, np.isfinite(problem.unit_time), problem.device_memory.copy(),
        previous, op_start, op_finish, edge_start, edge_finish,
    )  # fmt: skip
    assert failed == expected[4]
    if failed < 0:
        assert unit_device.tolist() == expected[0]
        assert op_start.tolist() == [expected[1][op] for op in range(problem.op_count)]
        assert op_finish.tolist() == [expected[2][op] for op in range(problem.op_count)]
        assert {e: t for e, t in enumerate(edge_start) if t >= 0} == expected[3]


def build(ops, edges, *, devices="2x3090", memory=None):
    """Ops (name, seconds, bytes) on equal devices, tensors of `edges` (from, to, seconds)."""
    builder = GraphBuilder("small")
    for name, _, size in ops:
        builder.add_op(name, "op", parameter_bytes=size)
    cluster_problem, _ = make_problem(builder.build(), devices)
    route = float(cluster_problem.link_seconds_per_byte[0, 1])
    for source, target, seconds in edges:
        builder.connect(builder.add_tensor(source, seconds / route), target)
    problem, _ = make_problem(builder.build(), devices, {"contention": "none"})
    count = problem.device_count
    return replace(
        problem,
        op_time=np.tile([[seconds] for _, seconds, _ in ops], (1, count)),
        link_latency=np.zeros((count, count)),
        device_memory=np.full(count, np.inf if memory is None else memory),
    )


def test_order_place_fills_one_device_after_another_in_order():
    ops = [(f"op{k}", 1.0, 1e9) for k in range(8)]
    problem = build(ops, [(k, k + 1, 1.0) for k in range(7)], memory=4e9)
    plan = solve(problem, OrderPlace(memory_fraction="0.5"))
    assert plan.placement.device.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


FORK = (
    [("in", 1.0, 0.0), ("a", 5.0, 0.0), ("b", 5.0, 0.0), ("out", 1.0, 0.0)],
    [(0, 1, 0.5), (0, 2, 0.5), (1, 3, 0.5), (2, 3, 0.5)],
)


@pytest.mark.parametrize("transfers", ["channels", "both"])
def test_celeritas_moves_a_branch_where_waiting_costs_more_than_sending(transfers):
    problem = build(*FORK)
    plan = solve(problem, Celeritas(reach="1", transfers=transfers))
    assert len(set(plan.placement.device[1:3].tolist())) == 2
    assert plan.value == pytest.approx(1 + 0.5 + 5 + 1)


def test_sending_that_is_work_of_a_busy_device_has_to_wait():
    """Device 0 computes branch a from 1 s to 6 s, so b could start elsewhere at 6.5 s only."""
    plan = solve(build(*FORK), Celeritas(reach="1", transfers="work"))
    assert set(plan.placement.device.tolist()) == {0}
    assert plan.value == pytest.approx(12.0)


def test_celeritas_stays_where_sending_costs_more_than_waiting():
    ops, edges = FORK
    problem = build(ops, [(a, b, 20.0) for a, b, _ in edges])
    plan = solve(problem, Celeritas(reach="1"))
    assert len(set(plan.placement.device.tolist())) == 1
    assert plan.value == pytest.approx(12.0)


@pytest.mark.parametrize("planner", PLANNERS)
def test_groups_that_fit_nowhere_are_made_smaller(planner):
    """Groups of two (6 GB) would leave room for neither on two devices of 9 GB."""
    ops = [(f"op{k}", 1.0, 3e9) for k in range(6)]
    problem = build(ops, [(k, k + 1, 1.0) for k in range(5)], memory=9.1e9)
    plan = solve(problem, planner(memory_fraction="0.7"))
    assert np.bincount(plan.placement.device).tolist() == [3, 3]


@pytest.mark.parametrize("planner", PLANNERS)
def test_it_never_overflows_a_device_for_best_effort(planner):
    ops = [(f"op{k}", 1.0, 3e9) for k in range(3)]
    problem = build(ops, [(0, 1, 1.0), (1, 2, 1.0)], memory=5e9)
    with pytest.raises(NoRoomError, match="op2"):
        planner().plan(problem, Budget(), 0, no_progress)
    with pytest.raises(InfeasibleError):
        solve(problem, planner())


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"order": "zfs"}, "order is 'zfs'"),
        ({"group_order": "zfs"}, "group_order is 'zfs'; choose same, cpd"),
        ({"measure": "byte"}, "measure is 'byte'"),
        ({"reach": "0"}, "option reach is '0'; give a whole number of at least 1"),
        ({"reach": "2.5"}, "option reach is '2.5'"),
        ({"memory_fraction": "0"}, "option memory_fraction is '0'"),
        ({"memory_fraction": "nan"}, "option memory_fraction is 'nan'"),
        ({"memory_fraction": "much"}, "option memory_fraction is 'much'"),
    ],
)
@pytest.mark.parametrize("planner", PLANNERS)
def test_an_option_out_of_range_is_refused(planner, given_options, message):
    with pytest.raises(OptionError, match=message):
        planner(**given_options)


def test_an_unknown_way_to_count_transfers_is_refused():
    with pytest.raises(OptionError, match="transfers is 'none'; choose both, work, channels"):
        Celeritas(transfers="none")


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_plan_of_a_published_workload_passes_the_judge(planner, file, workloads):
    problem, _ = make_problem(file)
    plan = solve(problem, planner())
    assert verify(plan).violations == ()
    assert 0 < plan.lower_bound <= plan.value


@pytest.mark.parametrize("planner", PLANNERS)
def test_the_plan_also_holds_under_peak_memory(planner):
    problem, _ = make_problem("zoo:gpt2", "2x3090", {"memory": "peak"})
    problem = problem.with_device_memory(np.full(2, 1.1 * problem.op_memory.sum()))
    plan = solve(problem, planner())
    assert verify(plan).violations == ()
    assert len(set(plan.placement.device.tolist())) == 2
