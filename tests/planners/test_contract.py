"""What every planner of the table owes whoever gives it a start and listens.

A planner that searches never returns worse than the placement it may start from; one that only
constructs takes no notice of it. Whatever a planner tells on its way has to hold: a placement
passes the judge, a bound is below the best value known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from placewright import planners
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, MissingExtraError
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.planners.base import Planner
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate import evaluate
from placewright.verify import verify
from tests.strategies import problems
from tests.strategies.batch import batch_problems
from tests.strategies.invocation import invocation_problems
from tests.strategies.throughput import throughput_problems

SECONDS = 2.0  # the effort below should end most planners long before
SLACK = 1e-6  # relative: solvers prove and plan with tolerances

CONSTRUCTIVE = {
    "latency": {
        "single-device", "memory-fill", "met", "m-topo", "greedy", "heft", "m-etf", "m-sct", "getf",
        "order-place", "celeritas", "metis", "scotch", "depth-split",
    },
    "throughput": {
        "single-device", "greedy", "linear-dp", "ideal-dp", "row-cuts", "pipedream", "metis",
        "scotch", "data-parallel",
    },
    "invocation-latency": {
        "single-device", "greedy", "max-load-dp", "metis", "scotch",
    },
    "batch-throughput": {"single-device", "data-parallel", "met", "greedy", "heft"},
}  # fmt: skip
"""Planners that take no notice of a start; all the others go on from it."""

# What fails is small already, and making it smaller would ask slow planners again and again.
QUICKLY = settings(phases=(Phase.explicit, Phase.generate), max_examples=8)

FROM_A_FILE = {"expert"}  # the placement of a file, which random problems do not have

# So little that a planner would often end with worse than the start, did it not know it.
EFFORT = {
    ("throughput", "exhaustive"): {},
    ("invocation-latency", "ideal-dp"): {},
    ("latency", "auto"): {"processes": "1", "iterations": "1"},
    ("latency", "region-moves"): {"work": "1"},
    ("latency", "multilevel"): {"iterations": "30"},
    ("latency", "annealing"): {"iterations": "30"},
    ("latency", "one-plus-one-ea"): {"iterations": "30"},
    ("latency", "local-search"): {"iterations": "30", "restarts": "1"},
    ("latency", "cp-sat"): {"workers": "1", "units": "0.01"},
    ("latency", "lns"): {"workers": "1", "iterations": "2"},
    ("latency", "moirai-milp"): {"nodes": "5"},
    ("latency", "diviml-milp"): {"nodes": "5"},
    ("latency", "milp-split"): {"processes": "1", "nodes": "5"},
    ("latency", "module-annealing"): {"turns": "2"},
    ("latency", "hrl"): {"episodes": "8", "groups": "4"},
    ("latency", "placeto"): {"episodes": "8"},
    ("throughput", "auto"): {"processes": "1", "iterations": "1"},
    ("throughput", "local-search"): {"iterations": "30", "restarts": "1"},
    ("throughput", "annealing"): {"steps": "30"},
    ("throughput", "block-moves"): {"steps": "30"},
    ("throughput", "max-load-ip"): {"steps": "30"},
    ("invocation-latency", "auto"): {"processes": "1", "iterations": "1"},
    ("invocation-latency", "linear-dp"): {"orders": "1", "moves": "10"},
    ("invocation-latency", "annealing"): {"iterations": "30", "orders": "1"},
    ("invocation-latency", "local-search"): {"iterations": "30", "restarts": "1"},
    ("invocation-latency", "invocation-ip"): {"nodes": "5"},
    ("batch-throughput", "auto"): {"processes": "1", "iterations": "1"},
    ("batch-throughput", "annealing"): {"iterations": "30"},
    ("batch-throughput", "multilevel"): {"iterations": "30"},
    ("batch-throughput", "one-plus-one-ea"): {"iterations": "30"},
    ("batch-throughput", "diviml-milp"): {"nodes": "5"},
    ("batch-throughput", "milp-split"): {"iterations": "1"},
}
# What makes the start: simple planners, and annealing with these options and so much of that one.
SIMPLE = {
    "latency": ("single-device", "greedy", "heft"),
    "throughput": ("greedy", "ideal-dp"),
    "invocation-latency": ("linear-dp",),
    "batch-throughput": ("greedy", "heft"),
}
SEARCH = {
    "latency": ({"order": "free"}, "iterations"),
    "throughput": ({}, "steps"),
    "invocation-latency": ({}, "iterations"),
    "batch-throughput": ({}, "iterations"),
}
# Planners that take some problems only.
OPTIONS = {
    ("latency", "diviml-milp"): Options(contention="none"),
    ("latency", "moirai-milp"): Options(contention="port", transfer_unit="edge"),
}
CONTIGUOUS = {
    ("throughput", name): False for name in ("local-search", "annealing", "metis", "scotch")
}

LARGER = {
    "latency": ("zoo:rwnn?modules=3&ops=14", "diviml"),
    "throughput": ("zoo:rwnn?modules=3&ops=14", "8xA100"),
    "invocation-latency": ("zoo:rwnn?modules=2&ops=14", "tarnawski"),
    "batch-throughput": ("zoo:rwnn?modules=2&ops=10", "diviml"),
}

ROWS = [(row.objective, row.name) for row in planners.TABLE if row.name not in FROM_A_FILE]
CONSTRUCTING = [row for row in ROWS if row[1] in CONSTRUCTIVE[row[0]]]
SEARCHING = [row for row in ROWS if row not in CONSTRUCTING]


def problems_for(objective: str, name: str) -> st.SearchStrategy[Problem]:
    """Random problems that the planner takes; memory is what ops keep (`solve` sees to peaks)."""
    if objective == "latency":
        options = OPTIONS.get((objective, name))
        drawn = problems(max_ops=10, max_devices=3, options=options)
        return drawn.map(
            lambda problem: replace(problem, options=replace(problem.options, memory="resident"))
        )
    if objective == "throughput":
        return throughput_problems(contiguous=CONTIGUOUS.get((objective, name)), shares=None)
    if objective == "invocation-latency":
        return invocation_problems(max_ops=7)
    return batch_problems(max_ops=6, max_batch=4)


@dataclass
class Recorder:
    """A listener that keeps what it hears."""

    placements: list[Placement] = field(default_factory=list)
    bounds: list[tuple[float, str]] = field(default_factory=list)

    def found(self, placement: Placement) -> None:
        self.placements.append(placement)

    def proved(self, lower_bound: float, source: str) -> None:
        self.bounds.append((lower_bound, source))


def plan_of(problem: Problem, placement: Placement) -> Plan:
    outcome = evaluate(problem, placement)
    return Plan(
        problem=problem,
        placement=replace(placement, sequence=None),
        outcome=outcome,
        value=outcome.value,
        lower_bound=0.0,
        bound_source="",
        planner="any",
    )


def judged(problem: Problem, placement: Placement) -> float:
    """The value of a placement; fails where the judge finds fault with its plan."""
    plan = plan_of(problem, placement)
    assert verify(plan).violations == ()
    return plan.value


def good_start(problem: Problem, effort: int = 500) -> tuple[Placement, float] | None:
    """The best of what some quick planners and a search find; None if they find nothing."""
    objective = problem.options.objective
    chosen = [planners.create(name, None, objective) for name in SIMPLE[objective]]
    options, limit = SEARCH[objective]
    chosen.append(planners.create("annealing", options | {limit: str(effort)}, objective))
    best: tuple[Placement, float] | None = None
    for planner in chosen:
        if planner.supports(problem) is not None:
            continue
        try:
            placement = planner.plan(problem, Budget(), 7, no_progress).placement
        except InfeasibleError:
            continue
        plan = plan_of(problem, placement)
        if verify(plan).ok and (best is None or plan.value < best[1]):
            best = placement, plan.value
    return best


def created(objective: str, name: str) -> Planner:
    return planners.create(name, EFFORT.get((objective, name)), objective)


def check_told(problem: Problem, recorder: Recorder, returned: float, known: float) -> None:
    """What was told holds, and what was returned is as good as what was told."""
    told = [judged(problem, placement) for placement in recorder.placements]
    best = min([known, returned, *told])
    assert returned <= min(told, default=math.inf) * (1 + SLACK)
    for bound, source in recorder.bounds:
        assert bound <= best * (1 + SLACK), source


@pytest.mark.parametrize(("objective", "name"), SEARCHING)
@QUICKLY
@given(data=st.data())
def test_a_planner_that_searches_never_returns_worse_than_its_start(objective, name, data):
    problem = data.draw(problems_for(objective, name))
    planner = created(objective, name)
    assume(planner.supports(problem) is None)
    found = good_start(problem)
    assume(found is not None)
    check_search(problem, planner, *found)


def check_search(problem: Problem, planner: Planner, start: Placement, value: float) -> None:
    recorder = Recorder()
    budget = Budget(SECONDS, start=start, listener=recorder)
    proposal = planner.plan(problem, budget, 0, no_progress)
    returned = judged(problem, proposal.placement)
    assert returned <= value * (1 + SLACK)
    assert proposal.lower_bound <= min(returned, value) * (1 + SLACK)
    check_told(problem, recorder, returned, value)


@cache
def larger(objective: str, **options: Any) -> tuple[Problem, Placement, float]:
    """A problem too large to solve with little effort, and a plan that took more."""
    source, cluster = LARGER[objective]
    problem, _ = make_problem(source, cluster, {"objective": objective, **options})
    found = good_start(problem, 20_000)
    assert found is not None
    return problem, *found


@pytest.mark.parametrize(
    ("objective", "name"),
    [
        pytest.param(*row, marks=[pytest.mark.slow] * (row[1] == "auto"))
        for row in SEARCHING
        if row[1] != "exhaustive"  # for a handful of ops
    ],
)
def test_on_a_larger_graph_too_it_never_returns_worse_than_its_start(objective, name):
    chosen = OPTIONS.get((objective, name))
    options = {} if chosen is None else {
        "contention": chosen.contention, "transfer_unit": chosen.transfer_unit
    }  # fmt: skip
    if objective == "throughput":
        options = {"contiguous": CONTIGUOUS.get((objective, name), True)}
    if objective == "batch-throughput":
        options = {"contention": "none", "batch": 4}
    problem, start, value = larger(objective, **options)
    planner = created(objective, name)
    assert planner.supports(problem) is None
    check_search(problem, planner, start, value)


@pytest.mark.parametrize(("objective", "name"), CONSTRUCTING)
@QUICKLY
@given(data=st.data())
def test_a_planner_that_constructs_takes_no_notice_of_a_start(objective, name, data):
    problem = data.draw(problems_for(objective, name))
    planner = created(objective, name)
    assume(planner.supports(problem) is None)
    found = good_start(problem)
    assume(found is not None)
    start, value = found
    recorder = Recorder()
    try:
        without = planner.plan(problem, Budget(), 0, no_progress).placement
        proposal = planner.plan(problem, Budget(math.inf, start, recorder), 0, no_progress)
    except InfeasibleError:
        return
    except MissingExtraError as missing:
        pytest.skip(str(missing))
    assert np.array_equal(proposal.placement.device, without.device)
    returned = judged(problem, proposal.placement)
    assert proposal.lower_bound <= min(returned, value) * (1 + SLACK)
    check_told(problem, recorder, returned, value)


def test_every_planner_is_on_one_side_of_the_contract():
    assert set(EFFORT) == set(SEARCHING)
    for objective, names in CONSTRUCTIVE.items():
        assert names <= {row.name for row in planners.planners_for(objective)}
