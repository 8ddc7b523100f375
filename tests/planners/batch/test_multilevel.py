"""Multilevel annealing for batches: its levels, and the plans that need them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright import budget
from placewright.budget import Budget, no_progress
from placewright.kernels.batch.arrays import batches_of
from placewright.options import Options
from placewright.planners.batch import multilevel
from placewright.planners.batch.multilevel import Multilevel, _Search
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import plain
from tests.strategies.batch import batch_problems


@settings(max_examples=40)
@given(data=st.data(), problem=batch_problems(memory=False))
def test_each_level_joins_groups_of_the_one_before_and_keeps_a_split_for_each(data, problem):
    search = _Search(problem, Budget(), data.draw(st.integers(0, 99)), 100)
    within = search.rows if data.draw(st.booleans()) else None
    levels = list(search._levels(within))
    assert levels[0].tolist() == list(range(problem.unit_count))
    for finer, coarser in pairwise(levels):
        assert coarser.max() < finer.max()
        assert len({*zip(finer.tolist(), coarser.tolist(), strict=True)}) == finer.max() + 1
    for group in levels:
        level = replace(problem, colocation=group[problem.op_unit])
        assert batches_of(level).allowed.any(axis=(1, 2)).all()
        for number in range(group.max() + 1) if within is not None else ():
            rows = within[group[problem.op_unit] == number]
            assert (rows == rows[0]).all()


def two_chains(length: int) -> Problem:
    """Two chains that nothing joins, of ops whose batches cost little and transfers much.

    A batch of both inputs takes as long as one of one: each chain whole on a device of its own.
    """
    count = 2 * length
    producers = [op for op in range(count) if (op + 1) % length]
    return Problem(
        **plain(count, 2)
        | {
            "options": Options("batch-throughput", contention="none", batch=2),
            "op_time": np.ones((count, 2)),
            "batch_sizes": [1, 2],
            "batch_time": np.ones((count, 2, 2)),
            "tensor_producer": producers,
            "tensor_bytes": [1.0] * len(producers),
            "consumer_offsets": list(range(len(producers) + 1)),
            "consumers": [op + 1 for op in producers],
            "link_latency": [[0.0, 3.0], [3.0, 0.0]],
            "link_seconds_per_byte": np.zeros((2, 2)),
            "channel_offsets": [0] * 5,
            "channels": [],
            "channel_names": (),
        }
    )


@pytest.mark.parametrize("seed", range(3))
def test_chains_change_devices_as_a_whole(seed):
    problem = two_chains(12)
    plan = solve(problem, Multilevel(iterations=30_000), seed=seed)
    assert plan.value == pytest.approx(12.0)
    assert verify(plan).ok


def test_where_groups_have_no_room_it_goes_on_from_the_plan_it_has():
    problem = two_chains(4)
    tight = replace(problem, op_memory=np.ones(8), device_memory=np.array([4.0, 4.0]))
    plan = solve(tight, Multilevel(iterations=5_000))
    assert plan.value == pytest.approx(4.0)
    assert verify(plan).ok


class Listener:
    """Counts the plans that it is told of."""

    count = 0

    def found(self, placement) -> None:
        self.count += 1

    def proved(self, lower_bound: float, source: str) -> None:
        raise AssertionError(source)


def eight_images() -> Problem:
    options = {"objective": "batch-throughput", "batch": 8}
    return make_problem("zoo:googlenet", "diviml", options)[0]


def test_better_plans_are_told_of_while_a_level_is_annealed(monkeypatch):
    """A level may take all the time there is; who listens need not wait for its end."""
    monkeypatch.setattr(multilevel, "PACES", (1e9,))  # the first level takes all evaluations
    monkeypatch.setattr(multilevel, "STEPS_BETWEEN_LOOKS", 500)
    monkeypatch.setattr(budget, "TELL_SECONDS", 0.0)
    listener = Listener()
    given = Budget(listener=listener)
    Multilevel(iterations=20_000).plan(eight_images(), given, 0, no_progress)
    assert listener.count > 2  # the plan it starts from, the best of a level


@pytest.mark.parametrize("coarsening", ["fusion", "units"])
def test_a_coarser_problem_is_searched_and_its_plan_expanded(coarsening):
    """Its sequence is of the batches of groups: plans on the way are expanded without."""
    problem = eight_images()
    plan = solve(problem, Multilevel(iterations=2_000), coarsening=coarsening)
    assert verify(plan).violations == ()
