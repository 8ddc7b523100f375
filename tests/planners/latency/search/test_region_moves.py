"""Steepest descent by moves of whole regions, judged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.errors import OptionError
from placewright.graph import GraphBuilder
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.search.region_moves import RegionMoves
from placewright.planning import make_problem
from placewright.simulate.latency import time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.planners.judging import judged_twice
from tests.strategies import problems


@settings(max_examples=30)
@given(problem=problems(), seed=st.integers(0, 3))
def test_its_plan_passes_the_judge_comes_again_and_beats_the_simple_ones(problem, seed):
    plan = judged_twice(problem, RegionMoves(), seed)
    if plan is None:
        return
    simple, _ = first_incumbent(problem, seed, None, Budget())
    if simple is not None and problem.options.memory == "resident":
        assert plan.value <= simple.value * (1 + 1e-12)


def branches(count=3, length=20):
    """A main chain, and a branch beside it that only a small tensor feeds and one collects."""
    builder = GraphBuilder("branches")
    for op in range(count * length + 2):
        builder.add_op(f"op{op}", "op")
    for branch in range(count):
        first = 1 + branch * length
        builder.connect(builder.add_tensor(0, 1e6), first)
        for op in range(first, first + length - 1):
            builder.connect(builder.add_tensor(op, 1e9), op + 1)
        builder.connect(builder.add_tensor(first + length - 1, 1e6), count * length + 1)
    builder.times["kind"] = [1.0] * (count * length + 2)
    devices = tuple(Device(f"device{k}", "kind", memory=np.inf) for k in range(count))
    links = tuple(
        Link(devices[a].name, devices[b].name, bandwidth=1e7)
        for a in range(count)
        for b in range(a)
    )
    return make_problem(builder.build(), Cluster("some", devices=devices, links=links))[0]


def test_each_branch_goes_to_a_device_of_its_own():
    problem = branches()  # a transfer within a branch takes as long as 100 ops
    plan = solve(problem, RegionMoves())
    assert plan.value == pytest.approx(1 + 20 + 1 + 0.2, abs=0.11)
    assert len(set(plan.placement.device.tolist())) == 3


def test_it_stops_when_the_time_is_up():
    problem = branches()
    solve(problem, RegionMoves())  # compiled
    assert solve(problem, RegionMoves(), time_limit=1e-9).value <= 62.0


def test_it_goes_on_from_the_start_it_is_given_and_tells_of_what_is_better(workloads):
    problem, _ = make_problem(workloads / "moirai/googlenet.json")
    best = RegionMoves().plan(problem, Budget(), 0, no_progress).placement
    told = []

    class Listener:
        def found(self, placement):
            told.append(time_placement(problem, placement).makespan)

        def proved(self, lower_bound, source):
            raise AssertionError("nothing is proved here")

    value = time_placement(problem, best).makespan
    again = RegionMoves(work=1).plan(problem, Budget(start=best), 0, no_progress).placement
    assert time_placement(problem, again).makespan <= value
    RegionMoves().plan(problem, Budget(listener=Listener()), 0, no_progress)
    assert len(told) > 1
    assert told == sorted(told, reverse=True)
    assert told[-1] == pytest.approx(value)


def test_an_interrupt_keeps_what_was_found():
    problem = branches()

    def interrupt(what, done):
        raise KeyboardInterrupt

    proposal = RegionMoves().plan(problem, Budget(), 0, interrupt)
    assert time_placement(problem, proposal.placement).makespan <= 62.0


def test_work_is_a_whole_number():
    with pytest.raises(OptionError, match="work is 'much'"):
        RegionMoves(work="much")


def test_the_move_that_a_transformer_needs_is_found(workloads):
    problem, _ = make_problem(workloads / "moirai/transformer.json")
    plan = solve(problem, RegionMoves())
    assert plan.value <= 20.1e-3  # the best single device: 22.7
    assert verify(plan).ok


def test_the_former_name_is_still_taken():
    problem = branches()
    plan = solve(problem, "seeds")
    assert plan.planner == "region-moves"
    assert plan.value == solve(problem, "region-moves").value
