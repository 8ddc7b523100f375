"""What a portfolio asks of every planner that searches for a short latency."""

import numpy as np
import pytest

from placewright.budget import Budget, no_progress
from placewright.planners.latency.construct.list_scheduling import Heft
from placewright.planners.latency.exact.cp_sat import CpSat, Lns
from placewright.planners.latency.search.region_moves import RegionMoves
from placewright.planners.latency.search.strings import Annealing, LocalSearch, OnePlusOneEA
from placewright.planning import make_problem
from placewright.simulate.latency import schedule_placement, time_placement

SEARCHES = {
    "annealing": lambda: Annealing(iterations=3000),
    "annealing-free": lambda: Annealing(iterations=3000, order="free"),
    "one-plus-one-ea": lambda: OnePlusOneEA(iterations=3000),
    "local-search": lambda: LocalSearch(iterations=3000),
    "lns": lambda: Lns(iterations=4, workers=1),
    "cp-sat": lambda: CpSat(workers="1", units="0.3"),
    "region-moves": RegionMoves,
}
every_search = pytest.mark.parametrize("create", SEARCHES.values(), ids=SEARCHES)


@pytest.fixture(scope="module")
def problem():
    return make_problem("zoo:rwnn?times=diviml&modules=3&ops=10", "diviml", {})[0]


def value(problem, placement):
    return time_placement(problem, placement).makespan


class Ear:
    """A listener that takes notes."""

    def __init__(self, problem):
        self.problem = problem
        self.values, self.bounds = [], []

    def found(self, placement):
        used = np.bincount(
            placement.device, self.problem.op_memory, minlength=self.problem.device_count
        )
        assert (used <= self.problem.device_memory).all()
        self.values.append(value(self.problem, placement))

    def proved(self, lower_bound, source):
        assert source
        self.bounds.append(lower_bound)


@pytest.fixture(scope="module")
def good(problem):
    annealing = Annealing(iterations=200_000, order="free")
    return annealing.plan(problem, Budget(), 3, no_progress).placement


@every_search
def test_it_never_ends_worse_than_its_start(create, problem, good):
    proposal = create().plan(problem, Budget(start=good), 0, no_progress)
    assert value(problem, proposal.placement) <= value(problem, good) * (1 + 1e-12)


@every_search
def test_it_makes_use_of_its_start_and_gives_the_same_plan_again(create, problem):
    bad = schedule_placement(problem, np.zeros(problem.op_count, dtype=np.int32))
    one, two = (
        create().plan(problem, Budget(start=bad), 5, no_progress).placement for _ in range(2)
    )
    assert value(problem, one) < value(problem, bad)
    assert one.device.tolist() == two.device.tolist()
    assert one.sequence is None or one.sequence.tolist() == two.sequence.tolist()


@every_search
def test_what_it_tells_of_gets_better_and_bounds_hold(create, problem):
    ear = Ear(problem)
    start = Heft().plan(problem, Budget(), 0, no_progress).placement
    proposal = create().plan(problem, Budget(start=start, listener=ear), 0, no_progress)
    best = value(problem, proposal.placement)
    assert ear.values == sorted(ear.values, reverse=True)
    assert all(best * (1 - 1e-12) <= each for each in ear.values)
    assert all(bound <= best * (1 + 1e-12) for bound in ear.bounds)


def test_cp_sat_tells_of_solutions_and_bounds_on_the_way(problem):
    ear = Ear(problem)
    bad = schedule_placement(problem, np.zeros(problem.op_count, dtype=np.int32))
    CpSat(workers="1", units="1").plan(problem, Budget(start=bad, listener=ear), 0, no_progress)
    assert ear.bounds


def test_annealing_tells_of_plans_while_it_runs(problem):
    for order in ("breadth-first", "free"):
        ear = Ear(problem)
        bad = schedule_placement(problem, np.zeros(problem.op_count, dtype=np.int32))
        Annealing(iterations=20_000, order=order).plan(
            problem, Budget(start=bad, listener=ear), 0, no_progress
        )
        assert ear.values
        assert ear.values[0] < value(problem, bad)


@every_search
def test_it_stops_soon_after_its_time_is_up(create, problem):
    create().plan(problem, Budget(), 0, no_progress)  # compiled
    budget = Budget(0.2)
    create().plan(problem, budget, 0, no_progress)
    assert budget.left > -2.0
