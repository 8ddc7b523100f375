"""Exact planners and those of batches and invocations: from a start, heard on the way, in time."""

import time

import pytest

from placewright import planners
from placewright.analysis.modules import split_modules
from placewright.budget import Budget, no_progress
from placewright.planning import make_problem
from placewright.simulate import evaluate

OVERTIME = 20.0  # seconds; on an idle machine it is less than half of one, but for batches

CASES = [
    ("latency", "moirai-milp", {}),
    ("latency", "diviml-milp", {}),
    ("batch-throughput", "annealing", {}),
    ("batch-throughput", "multilevel", {}),
    ("batch-throughput", "one-plus-one-ea", {}),
    ("batch-throughput", "milp-split", {}),
    ("batch-throughput", "diviml-milp", {}),
    ("batch-throughput", "diviml-milp", {"solver": "cp-sat"}),
    ("invocation-latency", "annealing", {}),
    ("invocation-latency", "local-search", {}),
    ("invocation-latency", "linear-dp", {}),
    ("invocation-latency", "invocation-ip", {}),
]


def problem_of(objective, modules=2, ops=5):
    options = {"objective": objective}
    if objective != "invocation-latency":
        options["contention"] = "none"
    if objective == "batch-throughput":
        options["batch"] = 4
    source = f"zoo:rwnn?modules={modules}&ops={ops}"
    return make_problem(source, "diviml", options)[0]


class Log:
    """A listener that remembers."""

    def __init__(self, problem):
        self.problem, self.placements, self.bounds = problem, [], []

    def found(self, placement):
        self.placements.append(placement)

    def proved(self, lower_bound, source):
        assert source
        self.bounds.append(lower_bound)

    @property
    def values(self):
        return [evaluate(self.problem, each).value for each in self.placements]


def run(problem, objective, name, options, seconds, start=None, seed=0):
    log = Log(problem)
    planner = planners.create(name, options, objective)
    proposal = planner.plan(problem, Budget(seconds, start, log), seed, no_progress)
    return proposal, evaluate(problem, proposal.placement).value, log


@pytest.mark.parametrize(("objective", "name", "options"), CASES)
def test_it_goes_on_from_its_start_and_is_never_worse(objective, name, options):
    problem = problem_of(objective)
    _, _, first = run(problem, objective, name, options, 0.2)
    simple = (
        planners.create("heft" if objective != "invocation-latency" else "linear-dp", {}, objective)
        .plan(problem, Budget(), 1, no_progress)
        .placement
    )
    for start in [simple, *first.placements]:
        before = evaluate(problem, start).value
        _, after, log = run(problem, objective, name, options, 0.2, start)
        assert after <= before
        assert all(value < before for value in log.values)  # the start itself is no news


@pytest.mark.parametrize(("objective", "name", "options"), CASES)
def test_with_no_time_it_hands_its_start_back(objective, name, options):
    problem = problem_of(objective)
    start = run(problem, objective, name, options, 0.2)[0].placement
    _, value, log = run(problem, objective, name, options, 0.0, start)
    assert value <= evaluate(problem, start).value
    assert not log.placements or log.values[-1] < evaluate(problem, start).value


@pytest.mark.parametrize(("objective", "name", "options"), CASES)
def test_what_it_tells_of_is_true_and_ever_better(objective, name, options, monkeypatch):
    monkeypatch.setattr("placewright.budget.TELL_SECONDS", 0.0)
    problem = problem_of(objective)
    proposal, value, log = run(problem, objective, name, options, 1.0)
    assert log.placements
    assert log.values == sorted(log.values, reverse=True)
    assert value <= min(log.values)
    assert all(bound <= value * (1 + 1e-9) for bound in [*log.bounds, proposal.lower_bound])


@pytest.mark.parametrize(("objective", "name", "options"), CASES)
def test_on_a_larger_graph_it_stops_in_time(objective, name, options):
    problem = problem_of(objective, modules=20, ops=16)
    planner = planners.create(name, options, objective)
    run(problem_of(objective), objective, name, options, 0.1)  # compiles what is not compiled yet
    split_modules(problem_of(objective), 2)  # so does this, which a small problem is not in need of
    if planner.supports(problem):
        pytest.skip(planner.supports(problem))
    started = time.monotonic()
    planner.plan(problem, Budget(1.0), 0, no_progress)
    assert time.monotonic() - started < 1.0 + OVERTIME


@pytest.mark.parametrize(
    ("objective", "name", "options"),
    [
        ("batch-throughput", "annealing", {"iterations": "2000"}),
        ("batch-throughput", "multilevel", {"iterations": "2000"}),
        ("batch-throughput", "milp-split", {"iterations": "1"}),
        ("invocation-latency", "annealing", {"iterations": "3000"}),
        ("latency", "milp-split", {"nodes": "50"}),
    ],
)
def test_limited_by_effort_it_gives_the_same_plan_again_from_the_same_start(
    objective, name, options
):
    problem = problem_of(objective)
    start = run(problem, objective, name, options, float("inf"), seed=1)[0].placement
    one, two = (
        run(problem, objective, name, options, float("inf"), start)[0].placement for _ in "ab"
    )
    assert one.device.tobytes() == two.device.tobytes()
    assert (one.sequence is None) == (two.sequence is None)
    if one.sequence is not None:
        assert one.sequence.tobytes() == two.sequence.tobytes()
