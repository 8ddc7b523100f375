"""The exact planners against brute force and against each other, and their ways of stopping."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from placewright.analysis.precedence import END, START, Precedence
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError, PlacewrightError
from placewright.formulations import formulation as formulations
from placewright.formulations.latency.incumbent import interchangeable_devices
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.sequence import sequence_by_time
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planners.exact import crowded
from placewright.planners.latency.exact import outline as milp_planner
from placewright.planners.latency.exact.diviml import DivimlMilp
from placewright.planners.latency.exact.moirai import MoiraiMilp
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solvers import mathopt as milp_solver
from placewright.solvers.mathopt import Program, solve_program
from placewright.solving import solve
from placewright.verify import verify
from tests.interrupting import interrupted_after
from tests.naive import shortest_makespan
from tests.strategies import graph_columns, problems, tiny

PLANNERS = {"moirai-milp": MoiraiMilp, "diviml-milp": DivimlMilp}
RESIDENT = st.builds(
    Options,
    transfer_unit=st.sampled_from(["tensor", "edge"]),
    contention=st.sampled_from(["none", "port", "link"]),
)
NO_CONTENTION = st.builds(
    Options, transfer_unit=st.sampled_from(["tensor", "edge"]), contention=st.just("none")
)


def is_optimal(problem, planner):
    best = shortest_makespan(problem)
    assume(np.isfinite(best))  # the planner's refusal is tested below
    plan = solve(problem, planner)
    assert verify(plan).ok
    assert plan.value == pytest.approx(best, rel=1e-5, abs=1e-9)
    assert plan.value >= best * (1 - 1e-9)
    assert plan.lower_bound <= best * (1 + 1e-9)


@settings(max_examples=25)
@given(tiny(RESIDENT))
def test_moirai_finds_the_shortest_makespan(problem):
    is_optimal(problem, MoiraiMilp())


@settings(max_examples=15)
@given(tiny(NO_CONTENTION))
def test_diviml_finds_the_shortest_makespan(problem):
    is_optimal(problem, DivimlMilp())


@settings(max_examples=15)
@given(tiny(NO_CONTENTION))
def test_the_two_formulations_agree_without_contention(problem):
    try:
        one, two = (solve(problem, planner()) for planner in PLANNERS.values())
    except InfeasibleError:
        assert not np.isfinite(shortest_makespan(problem))
        return
    assert one.value == pytest.approx(two.value, rel=1e-5, abs=1e-9)


@settings(max_examples=15)
@given(tiny(RESIDENT), st.data())
def test_pins_are_respected_and_the_pinned_optimum_is_found(problem, data):
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    pinned = problem.with_pins({int(problem.op_unit[op]): device})
    best = shortest_makespan(pinned)
    assume(np.isfinite(best))
    plan = solve(pinned, MoiraiMilp())
    assert plan.placement.device[op] == device
    assert plan.value == pytest.approx(best, rel=1e-5, abs=1e-9)


@settings(max_examples=15)
@given(tiny(st.just(Options(memory="peak", contention="port"))))
def test_under_peak_memory_its_bound_is_below_a_plan_that_the_judge_accepts(problem):
    try:
        plan = solve(problem, MoiraiMilp())
    except InfeasibleError:
        return
    assert verify(plan).ok
    assert plan.lower_bound <= plan.value


@settings(max_examples=10)
@given(tiny(RESIDENT, memory=False))
def test_scip_finds_what_highs_finds(problem):
    assume(np.isfinite(shortest_makespan(problem)))
    one, two = solve(problem, MoiraiMilp()), solve(problem, MoiraiMilp(solver="scip"))
    assert one.value == pytest.approx(two.value, rel=1e-5, abs=1e-9)
    assert two.lower_bound <= one.value * (1 + 1e-9)


def program_of(problem, planner):
    incumbent, _ = first_incumbent(problem, 0, None, Budget())
    if incumbent is None or incumbent.value == 0:
        reject()
    return planner.formulate(Instance(problem, incumbent), Budget()), incumbent


def violation(program, values):
    columns, rows = np.array(program.column_of), np.array(program.row_of)
    products = np.array(program.coefficient) * values[columns]
    activity = np.bincount(rows, products, program.row_count)
    excess = [np.array(program.row_lower) - activity, activity - np.array(program.row_upper)]
    excess += [np.array(program.lower) - values, values - np.array(program.upper)]
    integer = np.array(program.integer, dtype=bool)
    excess.append(np.abs(values - np.round(values))[integer])
    return max(each.max(initial=0.0) for each in excess)


@pytest.mark.parametrize("name", PLANNERS)
@given(data=st.data())
def test_the_warm_start_obeys_every_row(name, data):
    options = RESIDENT if name == "moirai-milp" else NO_CONTENTION
    problem = data.draw(options.flatmap(lambda chosen: problems(12, 4, options=chosen)))
    formulation, incumbent = program_of(problem, PLANNERS[name]())
    assert violation(formulation.program, formulation.hint(incumbent)) <= 1e-9


@given(RESIDENT.flatmap(lambda chosen: problems(12, 4, options=chosen)))
def test_decoding_the_warm_start_gives_a_plan_no_longer_than_it(problem):
    formulation, incumbent = program_of(problem, MoiraiMilp())
    decoded = formulation.decode(formulation.hint(incumbent))
    assert (decoded.device == incumbent.placement.device).all()
    plan = solve(problem, Fixed(decoded))
    assert plan.value <= incumbent.value * (1 + 1e-9)


class Fixed:
    """A planner that knows its answer."""

    name, objective = "fixed", "latency"

    def __init__(self, placement):
        self.placement = placement

    def supports(self, problem):
        return None

    def plan(self, problem, budget, seed, on_progress):
        return Proposal(self.placement)


@given(RESIDENT.flatmap(lambda chosen: problems(12, 4, options=chosen)))
def test_the_size_guard_never_counts_too_few(problem):
    formulation, _ = program_of(problem, MoiraiMilp())
    assert sum(formulation.program.integer) <= MoiraiMilp().binaries(problem)


def diamond(width=2, devices=2, **options):
    """One op, `width` ops of 1 s beside each other, one op, on like devices with free links."""
    builder = GraphBuilder("diamond")
    first = builder.add_op("first", "op", flops=1.0)
    middle = [builder.add_op(f"middle{k}", "op", flops=1.0) for k in range(width)]
    last = builder.add_op("last", "op", flops=1.0)
    fan = builder.add_tensor(first, 0.0)
    for op in middle:
        builder.connect(fan, op)
        builder.connect(builder.add_tensor(op, 0.0), last)
    graph = builder.build()
    n, d = graph.op_count, devices
    return Problem(
        name="diamond",
        **graph_columns(graph),
        op_time=np.ones((n, d)),
        op_memory=np.zeros(n),
        op_pinned=np.full(n, -1),
        device_names=tuple(f"device{k}" for k in range(d)),
        device_kinds=("kind",) * d,
        device_memory=np.full(d, np.inf),
        link_latency=np.zeros((d, d)),
        link_seconds_per_byte=np.zeros((d, d)),
        channel_offsets=np.zeros(d * d + 1, dtype=np.int64),
        channels=np.zeros(0, dtype=np.int32),
        channel_names=(),
        options=Options(**options),
    )


def test_a_fork_and_its_join_make_one_region():
    problem = diamond(3)
    names = problem.op_names
    regions = Precedence(problem).regions(largest=100)
    inner = [set(between) for first, last, between in regions if first != START and last != END]
    assert inner == [{names.index(f"middle{k}") for k in range(3)}]
    assert (START, END, Precedence(problem).order) in regions


def test_a_region_has_no_op_that_a_path_goes_round():
    problem = diamond(2)
    shortcut = replace(  # first → last as well
        problem,
        tensor_producer=np.append(problem.tensor_producer, 0),
        tensor_bytes=np.append(problem.tensor_bytes, 0.0),
        consumers=np.append(problem.consumers, problem.op_names.index("last")),
        consumer_offsets=np.append(problem.consumer_offsets, problem.edge_count + 1),
    )
    assert set(map(str, Precedence(shortcut).regions(100))) == set(
        map(str, Precedence(problem).regions(100))
    )


def test_like_devices_are_twins_unless_something_tells_them_apart():
    problem = diamond(devices=3)
    assert interchangeable_devices(problem) == [[0, 1, 2]]
    assert interchangeable_devices(problem.with_pins({1: 2})) == [[0, 1]]
    slow = problem.link_latency.copy()
    slow[0, 1] = 1.0
    assert interchangeable_devices(replace(problem, link_latency=slow)) == []
    assert interchangeable_devices(problem.with_device_memory(np.array([1.0, 2.0, 1.0]))) == [
        [0, 2]
    ]


def test_a_channel_that_only_some_routes_share_tells_devices_apart():
    offsets = np.zeros(10, dtype=np.int64)
    offsets[2:] = 1  # route 0 → 1 alone has a channel
    problem = replace(
        diamond(devices=3),
        channel_offsets=offsets,
        channels=np.zeros(1, dtype=np.int32),
        channel_names=("cable",),
    )
    assert interchangeable_devices(problem) == []
    assert interchangeable_devices(replace(problem, options=Options(contention="port"))) == [
        [0, 1, 2]
    ]


def test_an_op_of_no_length_is_not_put_behind_the_one_it_precedes_by_a_hair():
    problem = diamond(2)
    device = np.zeros(problem.op_count, dtype=np.int32)
    # middle1 took no time and starts 1e-9 after middle0 by the solver's arithmetic.
    starts = np.array([0.0, 1.0, 1.0 + 1e-9, 2.0])
    length = np.array([1.0, 1.0, 0.0, 1.0])
    order = sequence_by_time(problem, starts + length / 2, (starts + length)[problem.edge_producer])
    assert [item for item in order if item >= 0] == [0, 2, 1, 3]
    assert sorted(order) == list(range(-problem.edge_count, problem.op_count))
    assert solve(problem, Fixed(Placement(device, order))).value == 4.0


def test_it_proves_what_no_simple_bound_sees():
    plan = solve(diamond(4, 3, contention="none"), MoiraiMilp())
    assert plan.value == 4.0  # four ops on three devices take two turns
    assert plan.status == "optimal"
    assert plan.bound_source == "moirai-milp (highs)"


@pytest.mark.parametrize("name", PLANNERS)
def test_it_solves_a_small_random_wired_module(name):
    problem, _ = make_problem(
        "zoo:rwnn?modules=1&ops=10", "diviml", {"contention": "none", "transfer_unit": "edge"}
    )
    plan = solve(problem, PLANNERS[name](), time_limit=30)
    assert plan.status == "optimal"
    assert plan.value <= solve(problem, "heft").value


def test_without_time_the_first_plan_is_returned_and_nothing_proved():
    problem, _ = make_problem("zoo:rwnn?modules=1", "diviml")
    proposal = MoiraiMilp().plan(problem, Budget(0.0), 0, no_progress)
    plan = solve(problem, MoiraiMilp(), time_limit=1e-6)
    assert proposal.lower_bound == 0.0
    assert plan.value <= solve(problem, "heft").value


def test_after_an_interrupt_the_first_plan_is_returned(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(formulations, "solve_program", interrupted)
    plan = solve(diamond(4, 3), MoiraiMilp())
    assert verify(plan).ok and plan.bound_source != "moirai-milp (highs)"


def test_an_interrupt_stops_the_wait_for_the_solver():
    problem, _ = make_problem("zoo:rwnn?modules=2", "diviml")
    started = time.monotonic()
    with interrupted_after(1.0):
        plan = solve(problem, MoiraiMilp(), time_limit=120.0)
    assert time.monotonic() - started < 60.0
    assert verify(plan).ok


def test_a_placement_that_does_not_fit_by_a_hair_is_cut_off():
    problem = replace(diamond(2, 2), op_memory=np.array([1.0, 1.0, 1.0, 1.0 + 1e-8]))
    problem = problem.with_device_memory(np.array([4.0, 4.0]))
    formulation, _ = program_of(problem, MoiraiMilp())
    rows = formulation.program.row_count
    assert crowded(problem, Placement(np.zeros(4, dtype=np.int32))) == [
        [(op, 0) for op in range(4)]
    ]
    formulation.forbid([(op, 0) for op in range(4)])
    assert formulation.program.row_count == rows + 1
    assert not crowded(problem, Placement(np.array([0, 0, 0, 1], dtype=np.int32)))
    plan = solve(problem, MoiraiMilp())
    assert set(plan.placement.device) == {0, 1}


def test_memory_that_no_placement_fits_is_said_to_be_proved():
    problem = replace(diamond(2, 2), op_memory=np.array([2.0, 2.0, 2.0, 0.0]))
    with pytest.raises(InfeasibleError, match="has proved"):
        solve(problem.with_device_memory(np.array([3.0, 3.0])), MoiraiMilp())


def test_a_node_limit_gives_the_same_plan_again():
    problem, _ = make_problem("zoo:rwnn?modules=1&ops=12", "diviml")
    one, two = (solve(problem, MoiraiMilp(nodes="1")) for _ in range(2))
    assert one.to_document() == two.to_document()


def test_it_starts_from_a_named_planner():
    plan = solve(diamond(2), MoiraiMilp(start="greedy"))
    assert plan.status == "optimal"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"solver": "cplex"}, "choose highs, scip, gurobi"),
        ({"nodes": "many"}, "whole number above 0"),
        ({"nodes": "0"}, "whole number above 0"),
        ({"start": "nothing"}, "no planner 'nothing'"),
    ],
)
def test_a_wrong_option_is_refused(options, complaint):
    with pytest.raises(OptionError, match=complaint):
        MoiraiMilp(**options)


def test_a_solver_that_does_not_start_is_named(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("no licence file")

    monkeypatch.setattr(milp_solver, "_solve", broken)
    with pytest.raises(OptionError, match=r"gurobi.*no licence file.*solver=highs"):
        solve(diamond(2), MoiraiMilp(solver="gurobi"))
    with pytest.raises(PlacewrightError, match="solver 'highs' failed"):
        solve(diamond(2), MoiraiMilp())


def test_what_a_solver_says_of_a_program_it_refuses_is_passed_on():
    program = Program()
    x = program.variable(0.0, 1.0)
    program.row([(x, np.nan)], lower=0.0)
    program.minimise(x)
    with pytest.raises(PlacewrightError, match=r"'highs' failed: Expected finite coefficients"):
        solve_program(program, "highs", 10.0)


@pytest.mark.parametrize("row", [False, True])
def test_a_program_with_an_empty_range_has_no_solution(row):
    program = Program()
    x = program.variable(2.0, 3.0 if row else 1.0)
    program.row([(x, 1.0)], 0.0, -1.0 if row else 9.0)
    program.minimise(x)
    assert solve_program(program, "highs", 10.0).infeasible


def test_a_program_too_large_is_refused_with_its_size(monkeypatch):
    monkeypatch.setattr(milp_planner, "MAX_BINARIES", 10)
    with pytest.raises(OptionError, match=r"would have \d+ yes-or-no variables.*coarsen"):
        solve(diamond(4, 3), MoiraiMilp())


def test_diviml_says_that_it_knows_no_contention():
    with pytest.raises(OptionError, match="set contention none or use moirai-milp"):
        solve(diamond(2, contention="port"), DivimlMilp())


def test_highs_is_asked_again_where_it_throws_its_solution_away(monkeypatch):
    from ortools.math_opt.python import mathopt

    tolerances = []
    genuine = mathopt.solve

    def sometimes(model, solver, *, params, model_params):
        tolerances.append(params.highs.double_options["mip_feasibility_tolerance"])
        if len(tolerances) == 1:
            raise RuntimeError("solve error")
        return genuine(model, solver, params=params, model_params=model_params)

    milp_solver._two_threads()
    monkeypatch.setattr(mathopt, "solve", sometimes)
    assert solve(diamond(4, 3, contention="none"), MoiraiMilp()).status == "optimal"
    assert tolerances == [1e-6, 1e-8]
