"""MILP-SPLIT against the exact planners and brute force, and what its parts promise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.coarsen.modules import split_modules
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.plan import Placement
from placewright.planners.milp.diviml import DivimlMilp
from placewright.planners.milp.incumbent import timed
from placewright.planners.milp.split import MilpSplit
from placewright.planners.milp.split_exact import parts_of
from placewright.planners.milp.subproblem import subproblem
from placewright.planning import make_problem
from placewright.problem import Options
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.naive import shortest_makespan
from tests.strategies import placements, problems

RESIDENT = st.builds(
    Options,
    transfer_unit=st.sampled_from(["tensor", "edge"]),
    contention=st.sampled_from(["none", "port", "link"]),
)


def tiny(options=RESIDENT, **limits):
    any_size = options.flatmap(lambda chosen: problems(5, 3, options=chosen, **limits))
    return any_size.filter(lambda problem: problem.edge_count <= 7)


def rwnn(query, options=None):
    return make_problem(f"zoo:rwnn?{query}", "diviml", {"contention": "none", **(options or {})})[0]


def diamonds(count, **options):
    """`count` diamonds in a row, each sharing an op with the next, on two unlike devices."""
    builder = GraphBuilder("diamonds")
    last = builder.add_op("in", "op", flops=1e9)
    for number in range(count):
        middle = [builder.add_op(f"{side}{number}", "op", flops=3e11) for side in "ab"]
        end = builder.add_op(f"out{number}", "op", flops=1e9)
        tensor = builder.add_tensor(last, 1e6)
        for op in middle:
            builder.connect(tensor, op)
            builder.connect(builder.add_tensor(op, 1e6), end)
        last = end
    return make_problem(builder.build(), "diviml", options)[0]


# -- one channel -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(tiny(memory=False))
def test_with_one_channel_and_ample_memory_it_finds_the_shortest_makespan(problem):
    best = shortest_makespan(problem)
    assume(np.isfinite(best))
    plan = solve(problem, MilpSplit(channels="1"))
    assert verify(plan).ok
    assert plan.value == pytest.approx(best, rel=1e-5, abs=1e-9)
    assert plan.lower_bound <= best * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_chain_of_diamonds_with_any_times_is_solved_to_the_optimum(data):
    problem = diamonds(2, contention="none")
    times = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
    count, devices = problem.op_time.shape
    drawn = data.draw(st.lists(times, min_size=count * devices, max_size=count * devices))
    problem = replace(
        problem,
        op_time=np.array(drawn).reshape(count, devices),
        link_latency=np.where(np.eye(devices), 0.0, data.draw(times)),
    )
    ours, exact = solve(problem, MilpSplit(channels="1")), solve(problem, DivimlMilp())
    assert ours.value == pytest.approx(exact.value, rel=1e-5, abs=1e-9)
    assert ours.lower_bound == pytest.approx(exact.value, rel=1e-4, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(tiny())
def test_where_memory_binds_the_plan_fits_and_the_bound_holds(problem):
    best = shortest_makespan(problem)
    try:
        plan = solve(problem, MilpSplit(channels="1"))
    except InfeasibleError:
        return
    assert verify(plan).ok
    assert plan.lower_bound <= best * (1 + 1e-9)


def test_it_agrees_with_the_exact_planner_on_random_wiring():
    problem = rwnn("modules=2&ops=5&channels=1")
    ours, exact = solve(problem, MilpSplit()), solve(problem, DivimlMilp(), time_limit=30)
    assert ours.value == pytest.approx(exact.value, rel=1e-5)
    assert ours.status == "optimal"
    assert ours.bound_source in ("milp-split", "critical path")


@settings(max_examples=15, deadline=None)
@given(tiny(memory=False), st.data())
def test_pins_are_respected_and_the_pinned_optimum_is_found(problem, data):
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    pinned = problem.with_pins({int(problem.op_unit[op]): device})
    best = shortest_makespan(pinned)
    assume(np.isfinite(best))
    plan = solve(pinned, MilpSplit(channels="1"))
    assert plan.placement.device[op] == device
    assert plan.value == pytest.approx(best, rel=1e-5, abs=1e-9)


def test_equal_modules_are_solved_once_and_few_pairs_of_devices_are_solved(monkeypatch):
    asked = []
    original = DivimlMilp.plan
    monkeypatch.setattr(
        DivimlMilp, "plan", lambda *given: asked.append(given[1]) or original(*given)
    )
    plan = solve(diamonds(30, contention="none"), MilpSplit(channels="1"))
    assert plan.status == "optimal"
    assert 0 < len(asked) <= 3 * 9  # the first, the last and the other diamonds


@pytest.mark.parametrize("channels", ["1", "2"])
def test_the_same_problem_has_the_same_plan_again(channels):
    problem = rwnn(f"modules=3&ops=5&channels={channels}")
    one, two = (solve(problem, MilpSplit(channels=channels)) for _ in range(2))
    assert (one.placement.device == two.placement.device).all()
    assert one.value == two.value


# -- more channels ---------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(tiny(), st.sampled_from(["2", "3", "4"]))
def test_with_more_channels_the_plan_is_valid_and_the_bound_holds(problem, channels):
    try:
        plan = solve(problem, MilpSplit(channels=channels, max_ops="2"))
    except InfeasibleError:
        return
    assert verify(plan).ok
    assert plan.lower_bound <= shortest_makespan(problem) * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_larger_problems_of_every_kind_get_a_plan_the_judge_accepts(data):
    problem = data.draw(problems(10, 3))
    try:
        plan = solve(problem, MilpSplit(max_ops="4", module_seconds="1"), time_limit=2)
    except InfeasibleError:
        return
    assert verify(plan).ok


# -- parts -----------------------------------------------------------------------------------------


@given(problems(), st.data())
def test_a_subproblem_has_the_ops_given_and_the_edges_between_them(problem, data):
    count = data.draw(st.integers(1, problem.op_count))
    ops = np.array(data.draw(st.permutations(range(problem.op_count)))[:count])
    sub = subproblem(problem, ops)
    part = sub.problem
    assert part.op_names == tuple(problem.op_names[op] for op in ops)
    assert (part.op_time == problem.op_time[ops]).all()
    chosen = set(ops.tolist())
    ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    expected = [edge for edge, (a, b) in enumerate(ends) if a in chosen and b in chosen]
    assert sorted(sub.edges.tolist()) == expected
    assert (ops[part.edge_producer] == problem.edge_producer[sub.edges]).all()
    assert (ops[part.consumers] == problem.consumers[sub.edges]).all()
    one, two = part.tensor_bytes[part.edge_tensor], problem.tensor_bytes[problem.edge_tensor]
    assert (one == two[sub.edges]).all()
    tensors = set(zip(part.edge_tensor.tolist(), problem.edge_tensor[sub.edges], strict=True))
    assert len(tensors) == part.tensor_count


@given(problems(), st.data())
def test_a_subproblem_of_all_ops_is_timed_as_the_problem_is(problem, data):
    device = data.draw(placements(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    sub = subproblem(problem, problem.topological_order)
    placed = schedule_placement(sub.problem, device[sub.ops])
    whole = Placement(device, sub.items(placed))
    inside = time_placement(sub.problem, placed).makespan
    assert time_placement(problem, whole).makespan == pytest.approx(inside)


@given(problems(memory=False))
def test_parts_hold_every_op_once_and_keep_units_together(problem):
    parts = parts_of(split_modules(problem))
    ops = np.concatenate([part.ops for part in parts])
    assert sorted(ops.tolist()) == list(range(problem.op_count))
    home = np.empty(problem.op_count, dtype=int)
    for number, part in enumerate(parts):
        home[part.ops] = number
    for unit in range(problem.unit_count):
        assert len(set(home[problem.op_unit == unit])) == 1


# -- limits and options ----------------------------------------------------------------------------


def test_with_no_time_at_all_it_still_gives_a_plan():
    problem = diamonds(5)
    plan = solve(problem, MilpSplit(), time_limit=0.0)
    assert verify(plan).ok


def test_after_ctrl_c_the_best_plan_so_far_is_returned(monkeypatch):
    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(DivimlMilp, "plan", interrupt)
    problem = diamonds(3, contention="none")
    plan = solve(problem, MilpSplit(channels="1"))
    assert verify(plan).ok
    assert plan.value <= timed(problem, Placement(plan.placement.device)).value


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"channels": "5"}, "channels is '5'"),
        ({"max_ops": "0"}, "max_ops is '0'"),
        ({"solver": "abacus"}, "solver is 'abacus'"),
        ({"module_seconds": "soon"}, "module_seconds is 'soon'"),
    ],
)
def test_an_option_out_of_range_is_refused(options, what):
    with pytest.raises(OptionError, match=what):
        MilpSplit(**options)
