"""The best shares of one stage of replicas: exact, as the grids of the naive twin find them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.throughput.best_shares import best_shared
from placewright.simulate.throughput import loads
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import X, Y, Z
from tests.builders import throughput_chain as chain
from tests.naive.throughput import all_splits, best_shares, best_split
from tests.strategies.throughput import pipelines, throughput_problems

UNEQUAL = {"replicate": True, "shares": "unequal"}
ANY = pipelines(max_ops=4, **UNEQUAL) | throughput_problems(max_ops=4, contiguous=None, **UNEQUAL)


@settings(max_examples=40, deadline=None)
@given(ANY, st.data())
def test_no_shares_are_better_and_grids_come_as_close_as_they_are_fine(problem, data):
    splits = [each for each in all_splits(problem) if each.replicas]
    assume(splits)
    split = data.draw(st.sampled_from(splits))
    best, least = best_shared(problem, split)
    value = loads(problem, best).value
    naive, _ = best_shares(problem, split)
    assert least <= naive * (1 + 1e-12)
    assert value <= naive * (1 + 1e-6) + 1e-8
    assert least <= value


@settings(max_examples=25, deadline=None)
@given(ANY)
def test_the_best_split_with_any_shares_is_proved(problem):
    least, _ = best_split(problem, finely=True)
    assume(np.isfinite(least))
    found = solve(problem, "exhaustive")
    assert verify(found).violations == ()
    assert found.lower_bound <= least * (1 + 1e-9)
    assert found.value <= least * (1 + 1e-6) + 1e-8
    assert found.status == "optimal"


def sends_to_unequal_ends():
    """Three ops on two replicas; a third device reads over links of different speed."""
    pace = np.zeros((3, 3))
    pace[X, Z], pace[Y, Z] = 0.25, 1.0
    return chain(
        staging="direct",
        device_memory=[9, 9, 9],
        link_latency=np.zeros((3, 3)),
        link_seconds_per_byte=pace,
        options=Options("throughput", contiguous=True, **UNEQUAL),
    )


def test_the_replica_with_the_quicker_link_takes_more():
    problem = sends_to_unequal_ends()
    split = Placement([X, X, X, Z], replicas=((X, Y),))
    best, least = best_shared(problem, split)
    ((first, second),) = best.replica_shares
    assert first > second
    assert loads(problem, best).value == pytest.approx(least)
    assert least < loads(problem, split).value


def test_passes_of_their_own_share_by_a_ratio_of_both():
    """Under gpipe one replica is quick forward and the other backward: neither pass decides."""
    problem = chain(
        op_time=[[1, 4, 9], [0, 0, 9], [0, 0, 9], [4, 1, 9]],
        is_backward=[False, False, False, True],
        options=Options("throughput", schedule="gpipe", **UNEQUAL),
    )
    split = Placement([X] * 4, replicas=((X, Y),))
    best, least = best_shared(problem, split)
    assert loads(problem, best).value == pytest.approx(least) == pytest.approx(4.0)
