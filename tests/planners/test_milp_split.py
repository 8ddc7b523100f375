"""MILP-SPLIT against the exact planners and brute force, and what its parts promise."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.coarsen.modules import _modules, split_modules
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.base import Budget
from placewright.planners.milp import parallel
from placewright.planners.milp.diviml import DivimlMilp
from placewright.planners.milp.incumbent import timed
from placewright.planners.milp.split import MilpSplit
from placewright.planners.milp.split_bound import channel_bounds
from placewright.planners.milp.split_channels import polished
from placewright.planners.milp.split_exact import parts_of
from placewright.planners.milp.subproblem import subproblem
from placewright.planning import make_problem
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


def bounds_of(modules):
    with parallel.Solvers(parallel.Method(), 1) as solvers:
        return list(channel_bounds(modules, solvers, 10, Budget(), _mute))


def _mute(what, done):
    pass


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
    original = parallel.solve_exactly
    monkeypatch.setattr(
        parallel, "solve_exactly", lambda *given: asked.append(given[0]) or original(*given)
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


@settings(max_examples=40)
@given(tiny(), st.sampled_from([2, 3, 4]), st.sampled_from([1, 2, 3]))
def test_the_bound_of_several_channels_is_never_above_the_optimum(problem, channels, max_ops):
    best = shortest_makespan(problem)
    assume(np.isfinite(best))
    for bound in bounds_of(split_modules(problem, channels, max_ops)):
        assert bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("dependency", ["sdep", "wdep"])
@pytest.mark.parametrize("channels", [2, 3])
def test_bound_optimum_and_value_are_in_order_and_near_on_random_wiring(channels, dependency):
    problem = rwnn(f"modules=2&ops=4&channels={channels}&dependency={dependency}")
    best = parallel.solve_exactly(problem, 60, parallel.Method())
    assert best.is_proved
    plan = solve(problem, MilpSplit(channels=str(channels), max_ops="12"))
    bounds = bounds_of(split_modules(problem, channels, 12))
    assert len(bounds) == 2
    assert 0.7 * best.value < max(bounds) <= best.value * (1 + 1e-9)
    assert plan.lower_bound <= best.value * (1 + 1e-9)
    assert best.lower_bound <= plan.value * (1 + 1e-9)
    assert plan.value <= 1.02 * best.value


@pytest.mark.slow
@pytest.mark.parametrize("dependency", ["sdep", "wdep"])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_the_bound_is_below_what_the_whole_programme_finds(channels, dependency):
    problem = rwnn(f"modules=3&ops=4&channels={channels}&dependency={dependency}")
    exact = solve(problem, DivimlMilp(), time_limit=120)
    plan = solve(problem, MilpSplit(channels=str(channels)))
    assert plan.lower_bound <= exact.value * (1 + 1e-6)
    assert exact.lower_bound <= plan.value * (1 + 1e-6)


def test_ops_that_lead_to_no_later_module_may_run_after_it():
    """Six seconds, four of them beside the next module: two modules in a row would take nine."""
    builder = GraphBuilder("dead end")
    names = ("a", "b", "dead", "c", "d", "end")
    op = {name: builder.add_op(name, "op", flops=1e9) for name in names}
    for source, target in ("ab", "ac"):
        builder.connect(builder.add_tensor(op[source], 0.0), op[target])
    for source, target in (("a", "dead"), ("b", "d"), ("c", "d"), ("d", "end")):
        builder.connect(builder.add_tensor(op[source], 0.0), op[target])
    problem = make_problem(builder.build(), "diviml", {"contention": "none"})[0]
    seconds = np.array([1.0, 1.0, 5.0, 1.0, 3.0, 1.0])
    problem = replace(
        problem,
        op_time=np.repeat(seconds[:, None], problem.device_count, axis=1),
        link_latency=np.zeros_like(problem.link_latency),
    )
    module = np.array([0, 0, 0, 0, 1, 1])
    bounds = bounds_of(_modules(problem, 2, module))
    assert shortest_makespan(problem) == 6.0
    assert bounds == pytest.approx([6.0, 6.0])


def test_placing_two_modules_anew_shortens_a_plan_and_keeps_it_valid():
    problem = rwnn("modules=3&ops=6&channels=2")
    modules = split_modules(problem, 2, 12)
    slowest = int(problem.op_time.sum(axis=0).argmax())
    start = timed(problem, Placement(np.full(problem.op_count, slowest)))
    values = [start.value, *(each.value for each in polished(modules, start, 0, Budget(60), _mute))]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.5 * start.value


@settings(max_examples=25)
@given(tiny())
def test_the_constraint_programme_finds_and_proves_the_optimum(problem):
    best = shortest_makespan(problem)
    answer = parallel.solve_exactly(problem, 30, parallel.Method())
    if np.isfinite(best):
        assert answer.value == pytest.approx(best, rel=1e-5, abs=1e-9)
        assert best * (1 - 2e-5) <= answer.lower_bound <= best * (1 + 1e-9)
    else:
        assert answer.placement is None


# -- processes -------------------------------------------------------------------------------------


def hard_parts():
    problem = rwnn("modules=4&ops=8")
    modules = split_modules(problem)
    return [subproblem(problem, modules.ops(t)) for t in range(1, 5)]


@pytest.fixture
def eager(monkeypatch):
    """Workers start for any two problems."""
    monkeypatch.setattr(parallel, "PATIENCE", 0.0)


def test_workers_find_what_one_process_finds_and_a_killed_one_is_made_up_for(eager):
    method, subs = parallel.Method(), hard_parts()
    with parallel.Solvers(method, 1) as alone:
        expected = alone.solve(subs, 60, Budget())
    with parallel.Solvers(method, 2) as solvers:
        together = solvers.solve(subs[:2], 60, Budget())
        workers = solvers._pool.context.started
        assert workers
        for worker in workers:
            worker.kill()
        with pytest.warns(RuntimeWarning, match="worker process was killed"):
            together += solvers.solve(subs[2:], 60, Budget())
    assert not any(worker.is_alive() for worker in workers)
    for one, other in zip(expected, together, strict=True):
        assert one.value == other.value
        assert one.lower_bound == other.lower_bound
        assert (one.placement.device == other.placement.device).all()


def test_after_ctrl_c_no_worker_is_left(eager, monkeypatch):
    def interrupt(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "wait", interrupt)
    with parallel.Solvers(parallel.Method(), 2) as solvers:
        pool = solvers._pool = parallel._Pool(2)
        with pytest.raises(KeyboardInterrupt):
            solvers.solve(hard_parts(), 60, Budget())
    assert pool.context.started
    assert not any(worker.is_alive() for worker in pool.context.started)


SCRIPT = """
from placewright.planners.milp import parallel
from placewright.planners.milp.split import MilpSplit
from placewright.planning import make_problem
from placewright.solving import solve
print("begun", flush=True)
parallel.PATIENCE = 0.0
options = {"contention": "none"}
problem = make_problem("zoo:rwnn?modules=4&ops=8&channels=2", "diviml", options)[0]
plan = solve(problem, MilpSplit(processes="2"))
print("planned", plan.value, flush=True)
"""


@pytest.mark.slow
def test_workers_do_not_run_the_callers_script_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["begun", "planned"]
    assert not done.stderr


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


@pytest.mark.parametrize("solver", ["cp-sat", "highs"])
def test_a_limit_on_nodes_gives_the_same_plan_again(solver):
    problem = rwnn("modules=2&ops=6&channels=2")
    options = {"channels": "2", "nodes": "5", "solver": solver}
    one, two = (solve(problem, MilpSplit(**options)) for _ in range(2))
    assert (one.placement.device == two.placement.device).all()
    assert (one.value, one.lower_bound) == (two.value, two.lower_bound)


def test_with_no_time_at_all_it_still_gives_a_plan():
    problem = diamonds(5)
    plan = solve(problem, MilpSplit(), time_limit=0.0)
    assert verify(plan).ok


def test_after_ctrl_c_the_best_plan_so_far_is_returned(monkeypatch):
    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "solve_exactly", interrupt)
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
        ({"nodes": "-1"}, "nodes is '-1'"),
        ({"processes": "many"}, "processes is 'many'"),
    ],
)
def test_an_option_out_of_range_is_refused(options, what):
    with pytest.raises(OptionError, match=what):
        MilpSplit(**options)
