"""MILP-SPLIT against the exact planners and brute force, and what its parts promise."""

import itertools
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.modules import chained, split_modules
from placewright.analysis.parts import parts_of
from placewright.analysis.subproblem import subproblem
from placewright.budget import Budget
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.latency.incumbent import timed
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.latency.construct.simple import MinimumExecutionTime
from placewright.planners.latency.exact import cases, parallel
from placewright.planners.latency.exact.diviml import DivimlMilp
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.modules import chain_search
from placewright.planners.latency.modules.chain_exact import ExactChain
from placewright.planners.latency.modules.chain_search import Arc, ChainSearch, Start
from placewright.planners.latency.modules.channel_bound import channel_bounds
from placewright.planners.latency.modules.channels import polished
from placewright.planners.latency.modules.milp_split import MilpSplit, is_chain
from placewright.planners.latency.search.neighbourhoods import Search
from placewright.planners.latency.search.state import State
from placewright.planning import make_problem
from placewright.portfolio.members import shape_of
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.solvers import running
from placewright.solving import solve
from placewright.verify import verify
from tests.naive import shortest_makespan
from tests.planners.judging import judged
from tests.strategies import placements, problems, tiny

RESIDENT = st.builds(
    Options,
    transfer_unit=st.sampled_from(["tensor", "edge"]),
    contention=st.sampled_from(["none", "port", "link"]),
)


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


def optimum(problem, seconds):
    job = cases.Job(subproblem(problem, problem.topological_order))
    return parallel.Solvers(cases.Method(), 1).solve([job], Budget(seconds))[0]


def bounds_of(modules):
    return list(channel_bounds(modules, parallel.Solvers(cases.Method(), 1), Budget(), _mute))


def _mute(what, done):
    pass


OVERTIME = 20.0  # seconds on a loaded machine; on an idle one it is less than half of one


# -- one channel -----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(tiny(RESIDENT, memory=False))
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


@settings(max_examples=20, deadline=None)
@given(tiny(RESIDENT))
def test_where_memory_binds_the_plan_fits_and_the_bound_holds(problem):
    best = shortest_makespan(problem)
    plan = judged(problem, MilpSplit(channels="1"))
    assert (plan is None) == np.isinf(best)
    assert plan is None or plan.lower_bound <= best * (1 + 1e-9)


def test_it_agrees_with_the_exact_planner_on_random_wiring():
    problem = rwnn("modules=2&ops=5&channels=1")
    ours, exact = solve(problem, MilpSplit()), solve(problem, DivimlMilp(), time_limit=30)
    assert ours.value == pytest.approx(exact.value, rel=1e-5)
    assert ours.status == "optimal"
    quick = "critical path", "stretches of a chain of ops"
    assert ours.bound_source in ("milp-split", *quick)


@settings(max_examples=15, deadline=None)
@given(tiny(RESIDENT, memory=False), st.data())
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
    original = cases.Case._by_constraints

    def counted(case, *given):
        asked.append(case)
        return original(case, *given)

    monkeypatch.setattr(cases.Case, "_by_constraints", counted)
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


@settings(max_examples=20, deadline=None)
@given(tiny(RESIDENT), st.sampled_from(["2", "3", "4"]))
def test_with_more_channels_the_plan_is_valid_and_the_bound_holds(problem, channels):
    plan = judged(problem, MilpSplit(channels=channels, max_ops="2"))
    assert plan is None or plan.lower_bound <= shortest_makespan(problem) * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_larger_problems_of_every_kind_get_a_plan_the_judge_accepts(data):
    problem = data.draw(problems(10, 3))
    try:
        plan = solve(problem, MilpSplit(max_ops="4", module_seconds="1"), time_limit=2)
    except InfeasibleError:
        return
    assert verify(plan).ok


@settings(max_examples=25)
@given(tiny(RESIDENT), st.sampled_from([2, 3, 4]), st.sampled_from([1, 2, 3]))
def test_the_bound_of_several_channels_is_never_above_the_optimum(problem, channels, max_ops):
    best = shortest_makespan(problem)
    assume(np.isfinite(best))
    for bound in bounds_of(split_modules(problem, channels, max_ops)):
        assert bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("dependency", ["sdep", "wdep"])
@pytest.mark.parametrize("channels", [2, 3])
def test_bound_optimum_and_value_are_in_order_and_near_on_random_wiring(channels, dependency):
    problem = rwnn(f"modules=2&ops=4&channels={channels}&dependency={dependency}")
    best = optimum(problem, 60)
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
def test_the_bound_is_below_what_the_whole_program_finds(channels, dependency):
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
    bounds = bounds_of(chained(problem, module))
    assert shortest_makespan(problem) == 6.0
    assert bounds == pytest.approx([6.0, 6.0])


def test_placing_two_modules_anew_shortens_a_plan_and_keeps_it_valid():
    problem = rwnn("modules=3&ops=6&channels=2")
    modules = split_modules(problem, 2, 12)
    slowest = int(problem.op_time.sum(axis=0).argmax())
    start = State(problem, Placement(np.full(problem.op_count, slowest, dtype=np.int32)))
    solvers = parallel.Solvers(cases.Method(), 1)
    found = list(polished(start, modules, Budget(60), solvers, _mute))
    values = [start.value, *(each.value for each in found)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.5 * start.value
    assert time_placement(problem, found[-1].placement).makespan == pytest.approx(values[-1])


@settings(max_examples=20)
@given(tiny(RESIDENT))
def test_the_constraint_program_finds_and_proves_the_optimum(problem):
    best = shortest_makespan(problem)
    answer = optimum(problem, 30)
    assert answer.is_proved or not np.isfinite(best)
    if np.isfinite(best):
        assert answer.value == pytest.approx(best, rel=1e-5, abs=1e-9)
        assert best * (1 - 2e-5) <= answer.lower_bound <= best * (1 + 1e-9)
    else:
        assert answer.placement is None


# -- many at a time -------------------------------------------------------------------------------


def hard_parts():
    problem = rwnn("modules=4&ops=8")
    modules = split_modules(problem)
    return [cases.Job(subproblem(problem, modules.ops(t))) for t in range(1, 5)]


def test_two_threads_find_what_one_finds():
    alone = parallel.Solvers(cases.Method(), 1).solve(hard_parts(), Budget())
    together = parallel.Solvers(cases.Method(), 2).solve(hard_parts(), Budget())
    for one, other in zip(alone, together, strict=True):
        assert one.value == other.value
        assert one.lower_bound == other.lower_bound
        assert (one.placement.device == other.placement.device).all()


def test_ctrl_c_ends_all_threads_and_is_handed_on(monkeypatch):
    def interrupt(*given, **named):
        raise KeyboardInterrupt

    solvers = parallel.Solvers(cases.Method(), 2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(running, "wait", _after(0, interrupt, running.wait))
        solvers.solve(hard_parts(), Budget())
    assert not any("ThreadPool" in thread.name for thread in threading.enumerate())


def _after(calls, then, before):
    """What calls `then` once, at call number `calls`, and `before` else."""
    count = itertools.count()
    return lambda *given, **named: (then if next(count) == calls else before)(*given, **named)


@settings(max_examples=20, deadline=None)
@given(tiny(RESIDENT, memory=False), st.floats(0.5, 1.5))
def test_a_cutoff_leaves_the_optimum_below_it_and_excludes_what_is_not(problem, share):
    best = shortest_makespan(problem)
    assume(np.isfinite(best) and best > 0)
    job = cases.Job(subproblem(problem, problem.topological_order), cutoff=share * best)
    answer = parallel.Solvers(cases.Method(), 1).solve([job], Budget())[0]
    assert answer.is_done(job.cutoff)
    assert answer.lower_bound <= best * (1 + 1e-9)
    if share > 1.001:
        assert answer.value == pytest.approx(best, rel=2e-5)
    else:
        assert answer.lower_bound >= min(share, 1 - 2e-5) * best


@settings(max_examples=20)
@given(problems(max_ops=5, max_devices=3), st.sampled_from([0.3, 0.9, 1.0]))
def test_a_bound_that_is_known_leaves_the_optimum_what_it_is(problem, share):
    best = shortest_makespan(problem)
    assume(np.isfinite(best))
    job = cases.Job(subproblem(problem, problem.topological_order), low=share * best)
    answer = parallel.Solvers(cases.Method(), 1).solve([job], Budget())[0]
    assert answer.value == pytest.approx(best)
    assert share * best * (1 - 1e-12) <= answer.lower_bound <= best * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(tiny(RESIDENT, memory=False), st.booleans())
def test_parts_taken_to_be_hard_are_solved_to_the_same_optimum(problem, starts):
    best = shortest_makespan(problem)
    assume(np.isfinite(best) and best > 0.0)
    chain = ExactChain(split_modules(problem))
    for arcs in chain.chain.arcs:
        arcs.find_hard()
    if starts:
        chain.learn(first_incumbent(problem, 0, None, Budget())[0].placement)
    for _ in ChainSearch(chain, parallel.Solvers(cases.Method(), 1), None).steps(Budget()):
        assert chain.chain.lower_bound() <= best * (1 + 1e-9)
    assert chain.is_finished and chain.is_proved
    found = time_placement(problem, chain.placement())
    assert found.makespan == pytest.approx(best, rel=1e-5)
    assert chain.chain.lower_bound() == pytest.approx(best, rel=1e-5)


def hard_chain():
    problem = rwnn("modules=3&ops=12")
    return problem, ExactChain(split_modules(problem))


def test_of_a_chain_nothing_is_asked_for_twice_at_a_time():
    _, chain = hard_chain()
    under_way = []
    while (turn := chain.next(under_way, Budget())) is not None and len(under_way) < 8:
        under_way.append(turn)
    assert len(under_way) > 1
    assert (
        len({turn.what for turn in under_way}) == len({t.key for t in under_way}) == len(under_way)
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_chain_is_solved_beside_a_search_that_makes_the_plan_better(threads, monkeypatch):
    monkeypatch.setattr(chain_search, "ARCS_FIRST", 0.0)
    problem, chain = hard_chain()
    slowest = int(problem.op_time.sum(axis=0).argmax())
    start = State(problem, Placement(np.full(problem.op_count, slowest, dtype=np.int32)))
    together = ChainSearch(chain, parallel.Solvers(cases.Method(), threads), Search(start))
    learnt = []
    monkeypatch.setattr(
        together,
        "_learn",
        lambda work: learnt.append(type(work)) or ChainSearch._learn(together, work),
    )
    together.take(start)
    for _ in together.steps(Budget(60)):
        pass
    assert chain.is_proved
    assert Start in learnt and Arc in learnt
    assert time_placement(problem, chain.placement()).makespan <= together.search.best.value
    _, alone = hard_chain()
    for _ in ChainSearch(alone, parallel.Solvers(cases.Method(), 1), None).steps(Budget(60)):
        pass
    assert time_placement(problem, chain.placement()).makespan == pytest.approx(
        time_placement(problem, alone.placement()).makespan, rel=1e-5
    )


def test_when_time_is_up_no_thread_of_a_chain_is_at_work():
    problem = rwnn("modules=4&ops=34")
    chain = ExactChain(split_modules(problem))
    first = first_incumbent(problem, 0, None, Budget())[0]
    together = ChainSearch(
        chain, parallel.Solvers(cases.Method(), 2), Search(State(problem, first.placement))
    )
    together.take(State(problem, first.placement))
    limit = Budget(1.5)
    for _ in together.steps(limit):
        pass
    assert limit.left <= 0 and not chain.is_proved
    assert not any("ThreadPool" in thread.name for thread in threading.enumerate())


def test_only_graphs_that_fall_apart_into_small_modules_are_chains():
    for query, chain in (("rwnn?modules=3&ops=20", True), ("rwnn?modules=3&ops=60", False),
                         ("rwnn?modules=1&ops=20&channels=1", True), ("gpt2?layers=1", False),
                         ("rwnn?modules=3&ops=10&channels=2", False)):  # fmt: skip
        assert is_chain(make_problem(f"zoo:{query}", "diviml", {})[0]) == chain, query


def test_where_memory_may_bind_a_chain_is_tied():
    problem = make_problem("zoo:rwnn?modules=3&ops=20", "diviml", {})[0]
    assert is_chain(problem)
    total = problem.op_memory.sum()
    for least, is_tied in [(total, False), (0.9 * total, True)]:
        limited = problem.with_device_memory([total, 2 * total, least])
        assert is_chain(limited)
        assert limited.may_overflow == is_tied
        assert shape_of(limited) == ("tied" if is_tied else "chain")


@pytest.mark.parametrize(("processes", "searches"), [("1", False), ("2", True)])
def test_from_a_start_it_searches_itself_only_if_it_has_cores_to_itself(
    processes, searches, monkeypatch
):
    asked = []
    usual = ChainSearch.__init__
    monkeypatch.setattr(
        ChainSearch,
        "__init__",
        lambda self, chain, solvers, search: (
            asked.append(search) or usual(self, chain, solvers, search)
        ),
    )
    problem, _ = make_problem("zoo:rwnn?modules=3&ops=34", "diviml", {"contention": "none"})
    start = MinimumExecutionTime().plan(problem, Budget(), 0, _mute).placement
    MilpSplit(processes=processes).plan(problem, Budget(2.0, start), 0, _mute)
    assert [each is not None for each in asked] == [searches]


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


@given(problems(), st.data())
def test_a_placement_restricted_to_all_ops_in_another_order_is_timed_alike(problem, data):
    device = data.draw(placements(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    placed = schedule_placement(problem, device)
    sub = subproblem(problem, problem.topological_order[::-1])
    inside = time_placement(sub.problem, sub.restricted(placed)).makespan
    assert inside == time_placement(problem, placed).makespan


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

    monkeypatch.setattr(cases.Case, "_by_constraints", interrupt)
    problem = diamonds(3, contention="none")
    plan = solve(problem, MilpSplit(channels="1"))
    assert verify(plan).ok
    assert plan.value <= timed(problem, Placement(plan.placement.device)).value


class Log:
    """A listener that remembers."""

    def __init__(self, problem):
        self.problem, self.values, self.bounds = problem, [], []

    def found(self, placement):
        self.values.append(time_placement(self.problem, placement).makespan)

    def proved(self, lower_bound, source):
        assert source
        self.bounds.append(lower_bound)


@pytest.mark.parametrize("channels", ["1", "2"])
def test_it_tells_of_plans_and_bounds_on_the_way(channels, monkeypatch):
    monkeypatch.setattr("placewright.budget.TELL_SECONDS", 0.0)
    monkeypatch.setattr("placewright.solvers.bound_callback.TELL_SECONDS", 0.0)
    problem = rwnn(f"modules=3&ops=6&channels={channels}")
    log = Log(problem)
    proposal = MilpSplit(channels=channels).plan(problem, Budget(20, listener=log), 0, _mute)
    value = time_placement(problem, proposal.placement).makespan
    assert log.values == sorted(log.values, reverse=True)
    assert log.values[-1] == pytest.approx(value)
    assert log.bounds == sorted(log.bounds)
    assert 0 < log.bounds[-1] <= value


@settings(max_examples=15, deadline=None)
@given(tiny(RESIDENT), st.sampled_from(["1", "2"]), st.integers(0, 3))
def test_it_is_never_worse_than_its_start(problem, channels, seed):
    try:
        start = MinimumExecutionTime().plan(problem, Budget(), 0, _mute).placement
    except InfeasibleError:
        return
    start = schedule_placement(problem, start.device)
    budget = Budget(2.0, start=start)
    proposal = MilpSplit(channels=channels).plan(problem, budget, seed, _mute)
    before, after = (time_placement(problem, p).makespan for p in (start, proposal.placement))
    assert after <= before


def test_it_keeps_a_start_that_is_the_best_it_has():
    problem = rwnn("modules=3&ops=6&channels=1")
    best = solve(problem, MilpSplit()).placement
    again = MilpSplit().plan(problem, Budget(0.0, start=best), 0, _mute).placement
    assert (again.device == best.device).all()


@pytest.mark.parametrize("query", ["modules=40&ops=32&channels=1", "modules=60&ops=20&channels=4"])
def test_it_stops_in_time_on_a_large_graph(query):
    problem = rwnn(query)
    planner = MilpSplit()
    solve(diamonds(2), MilpSplit())  # compiles what is not compiled yet
    started = time.monotonic()
    planner.plan(problem, Budget(2.0), 0, _mute)
    assert time.monotonic() - started < 2.0 + OVERTIME


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
