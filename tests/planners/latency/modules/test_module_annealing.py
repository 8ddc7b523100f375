"""Modules annealed one by one: against the optimum, with tied units, where memory is short."""

import itertools
import math
import time
from threading import Event

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.modules import split_modules
from placewright.analysis.parts import parts_of
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError
from placewright.planners.latency.modules.annealing import ModuleAnnealing, choices_of
from placewright.planners.latency.modules.arcs_annealed import AnnealedArcs, Turn, cheapest
from placewright.planners.latency.modules.chain import MOST_CHAINS, chains_of, part_sizes
from placewright.planners.latency.modules.knapsack import fitted, prices_of
from placewright.planning import make_problem
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import chain
from tests.planners.judging import judged_twice
from tests.planners.latency.exact.test_milp_split import diamonds
from tests.strategies import problems


def small(turns=12):
    return ModuleAnnealing(turns=turns)


def tied(layers=3):
    """A language model whose first and last op share their weights, on four devices."""
    query = f"gpt2?layers={layers}&heads=2"
    return make_problem(f"zoo:{query}", "moirai-intra-server", {"contention": "port"})[0]


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(0, 3))
def test_its_plan_passes_the_judge_and_comes_again(problem, seed):
    judged_twice(problem, small(), seed)


def test_a_chain_of_small_modules_comes_near_its_optimum():
    problem = make_problem("zoo:rwnn?modules=4&ops=10&channels=1", "diviml", {})[0]
    best = solve(problem, "milp-split", time_limit=20.0)
    assert best.value == pytest.approx(best.lower_bound, rel=1e-4)
    assert solve(problem, small(turns=60)).value <= best.value * 1.01


def test_equal_layers_share_what_is_found_and_tied_weights_stay_together():
    problem = tied()
    chains = chains_of(problem, AnnealedArcs)
    assert len(chains) == problem.device_count
    kinds = {id(arcs) for chain in chains for arcs in chain.arcs}
    assert len(chains[0].parts) > 6
    assert len(kinds) < sum(len(chain.parts) for chain in chains) / 2
    assert max(part_sizes(problem)) < 0.5 * problem.op_count
    plan = solve(problem, small(turns=40))
    assert verify(plan).ok
    assert plan.value < solve(problem, "heft").value


def test_one_that_is_given_a_plan_is_never_worse():
    problem = tied()
    start = solve(problem, "annealing", planner_options={"order": "free", "iterations": "20000"})
    budget = Budget(start=start.placement)
    found = small(turns=5).plan(problem, budget, 0, no_progress).placement
    assert time_placement(problem, found).makespan <= start.value


def test_several_threads_find_a_plan_in_the_time_that_is_given():
    plan = solve(tied(), ModuleAnnealing(processes=2), time_limit=2.0)
    assert verify(plan).ok
    assert plan.seconds < 10.0


def test_where_memory_is_short_layers_lie_on_several_devices():
    problem = tied(layers=8)
    total = problem.op_memory.sum()
    tight = problem.with_device_memory(np.full(problem.device_count, 0.5 * total))
    plan = solve(tight, small(turns=40))
    assert verify(plan).ok
    assert len(set(plan.placement.device.tolist())) > 1
    assert plan.value <= solve(tight, "heft").value


def test_after_ctrl_c_all_turns_end_and_the_best_plan_stays():
    problem = tied()

    def interrupt(what, done):
        raise KeyboardInterrupt

    started = time.monotonic()
    proposal = ModuleAnnealing(processes=2).plan(problem, Budget(600.0), 0, interrupt)
    assert time.monotonic() - started < 60.0
    assert time_placement(problem, proposal.placement).makespan > 0.0
    stop = Event()
    part = Turn(600.0, stop=stop).part(500.0).part(400.0)
    assert 300.0 < part.left <= 400.0
    stop.set()
    assert part.left == 0.0


# -- the parts -------------------------------------------------------------------------------------


@given(problems(memory=False))
def test_units_with_one_device_join_no_modules(problem):
    modules = split_modules(problem)
    pinned = problem.with_pins(dict.fromkeys(range(problem.unit_count), 0))
    assume(pinned.unit_allowed.any(axis=1).all())
    assert len(parts_of(split_modules(pinned))) == modules.count


@settings(max_examples=30, deadline=None)
@given(problems())
def test_a_chain_holds_every_op_and_its_simple_plans_are_plans(problem):
    chains = chains_of(problem, AnnealedArcs)
    assert 1 <= len(chains) <= MOST_CHAINS
    zero = np.zeros(problem.device_count)
    for each in chains:
        assert sorted(np.concatenate([p.ops for p in each.parts])) == list(range(problem.op_count))
        arcs, length = cheapest(each, zero)
        if math.isinf(length):
            continue
        assert length == pytest.approx(sum(arc.value for arc in arcs))
        assert all(arc.low <= arc.value * (1 + 1e-9) for arc in arcs)
        assert cheapest(each, zero, optimistic=True)[1] <= length * (1 + 1e-9)


def test_the_last_part_shares_no_arcs_with_equal_ones_that_end_at_a_cut_op():
    problem = diamonds(4, contention="none")
    device = np.full(problem.op_count, problem.device_count - 1, dtype=np.int32)
    (found,) = chains_of(problem, AnnealedArcs)
    found.learn(schedule_placement(problem, device))
    assert found.arcs[1] is found.arcs[2] and found.arcs[2] is not found.arcs[3]
    assert found.parts[2].sub.key() == found.parts[3].sub.key()
    for arcs in found.arcs:
        for pair, arc in arcs.at.items():
            assert all(arcs.part.ends(plan.placement) == pair for plan in arc.plans)


def every_choice(chosen):
    """Seconds and bytes of every choice of an arc and a plan for each module, devices agreeing."""
    options = [
        [(arc, plan) for arc in arcs.at.values() for plan in arc.plans] for arcs in chosen.arcs
    ]
    for row in itertools.product(*options):
        if all(one.target == two.source for (one, _), (two, _) in itertools.pairwise(row)):
            yield (
                sum(plan.value for _, plan in row),
                np.sum([arc.memory(plan) for arc, plan in row], axis=0),
            )


@settings(max_examples=20, deadline=None)
@given(problems(), st.floats(0.3, 1.0))
def test_what_fits_is_the_shortest_that_does_and_prices_bound_it(problem, share):
    whole = chains_of(problem, AnnealedArcs)[0]
    sizes = [sum(len(arc.plans) for arc in arcs.at.values()) for arcs in whole.arcs]
    assume(math.prod(sizes) <= 20_000)
    everything = list(every_choice(whole))
    assume(everything)
    capacity = np.maximum(share * np.max([used for _, used in everything], axis=0), 1.0)
    values = [value for value, used in everything if (used <= capacity).all()]
    best = min(values, default=math.inf)
    found = fitted(choices_of(whole), capacity, 10.0)
    assert (found is None) == math.isinf(best)
    goal = best if math.isfinite(best) else 2 * max(value for value, _ in everything)
    price = prices_of([whole], capacity, goal)
    assert (price >= 0).all()
    assert cheapest(whole, price)[1] - price @ capacity <= best * (1 + 1e-9) + 1e-12
    if found is not None:
        used = np.sum([each.memory for each in found], axis=0)
        assert (used <= capacity * (1 + 1e-9)).all()
        assert sum(each.value for each in found) == pytest.approx(best, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("kept", [[1.0, 5.0, 1.0], [2.0, 5.0, 2.0, 1.0]])
def test_a_module_that_has_room_nowhere_is_refused(kept):
    with pytest.raises(InfeasibleError, match="found no device for op 'o1'"):
        small().plan(chain(kept, [4.0, 4.0]), Budget(), 0, no_progress)
