"""Contraction and the way back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.cluster import CpuRun
from placewright.coarsen.contraction import acyclic_groups, contract
from placewright.errors import GraphError, InfeasibleError
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import row_of_ops, throughput_chain
from tests.strategies import placements, problems


def colocation_groups(problem):
    """Colocated ops of one side together, then every cycle that makes."""
    return acyclic_groups(problem, problem.colocation)


@given(problem=problems(memory=False))
def test_colocation_groups_contract_to_a_dag_and_hold_colocated_ops(problem):
    group = colocation_groups(problem)
    contract(problem, group)  # a cycle would be a GraphError
    for op in range(problem.op_count):
        for other in range(op):
            if problem.colocation[op] == problem.colocation[other] >= 0:
                assert group[op] == group[other]


@given(problem=problems(memory=False))
def test_ops_of_one_group_are_colocated_or_on_a_cycle_of_groups(problem):
    """Contracting less is always possible where nothing is colocated."""
    if (problem.colocation < 0).all():
        assert len(set(colocation_groups(problem).tolist())) == problem.op_count


@given(st.data())
def test_times_memory_and_bytes_add_up(data):
    problem = data.draw(problems(memory=False))
    contracted = contract(problem, colocation_groups(problem)).problem
    assert np.allclose(contracted.op_memory.sum(), problem.op_memory.sum())
    finite = np.isfinite(problem.op_time).all(axis=0)
    assert np.allclose(contracted.op_time.sum(axis=0)[finite], problem.op_time.sum(axis=0)[finite])


@pytest.mark.parametrize(("planner", "coarsening"), [("pipedream", "none"), ("ideal-dp", "units")])
def test_devices_that_differ_op_by_op_are_no_replicas_of_a_group(planner, coarsening):
    """Two ops that are together take 3 s on each device, one 1 and 2 s, the other 2 and 1 s."""
    times = np.array([[1.0, 2.0], [2.0, 1.0], [0.5, 0.5]])
    problem = replace(
        row_of_ops([1.0, 1.0, 1.0], options=Options("throughput", replicate=True)),
        op_time=times,
        colocation=np.array([0, 0, -1]),
    )
    plan = solve(problem, planner, coarsening=coarsening)
    assert plan.value == solve(problem, "exhaustive").value
    assert not plan.placement.replicas
    doubled = replace(problem, op_time=times[:, [0, 0]])  # equal devices still are
    assert solve(doubled, planner, coarsening=coarsening).placement.replicas == ((0, 1),)


def test_what_devices_are_stays():
    problem = throughput_chain(device_runs=(None, None, CpuRun((1,))))
    assert contract(problem, [0, 0, 1, 1]).problem.device_runs == problem.device_runs


@given(st.data())
def test_an_expanded_plan_holds_and_never_ends_later(data):
    problem = data.draw(problems(memory=False))
    contraction = contract(problem, colocation_groups(problem))
    device = data.draw(placements(contraction.problem))
    if np.isinf(contraction.problem.op_time[np.arange(len(device)), device]).any():
        return
    placement = schedule_placement(contraction.problem, device)
    coarse = time_placement(contraction.problem, placement)
    expanded = contraction.expand(placement)
    fine = time_placement(problem, expanded)
    assert fine.makespan <= coarse.makespan + 1e-9
    plan = Plan(problem, Placement(expanded.device), fine, fine.makespan, 0.0, "", "test")
    assert verify(plan).violations == ()
    bare = contraction.expand(Placement(device))
    assert (bare.device == expanded.device).all() and bare.sequence is None


@given(problem=problems(max_ops=6, memory=False))
def test_groups_that_would_leave_a_cycle_are_refused(problem):
    order = problem.topological_order.tolist()
    paths = [
        (a, b, c)
        for a in order
        for b in problem.consumers[problem.edge_producer == a].tolist()
        for c in problem.consumers[problem.edge_producer == b].tolist()
    ]
    if not paths:
        return
    a, _, c = paths[0]
    group = np.arange(problem.op_count)
    group[c] = group[a]
    with pytest.raises(GraphError, match="cycle"):
        contract(problem, np.unique(group, return_inverse=True)[1])


@given(st.data())
def test_a_placement_made_coarser_fits_and_comes_back_where_it_was_whole(data):
    problem = data.draw(problems())
    contraction = contract(problem, colocation_groups(problem))
    coarse = contraction.problem
    try:
        whole = solve(coarse, "greedy").placement
    except InfeasibleError:
        return
    again = contraction.project(contraction.expand(whole))
    assert again is not None
    assert again.device.tolist() == whole.device.tolist()
    anywhere = contraction.project(Placement(data.draw(placements(problem))))
    if anywhere is not None:
        assert np.isfinite(coarse.op_time[np.arange(coarse.op_count), anywhere.device]).all()
        used = np.bincount(anywhere.device, coarse.op_memory, coarse.device_count)
        assert (used <= coarse.device_memory * (1 + 1e-12)).all()
