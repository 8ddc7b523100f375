"""What inputs wait for their tensors, against placements input by input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.bounds.batch.arrivals import Arrivals
from placewright.bounds.batch.splits import all_splits
from placewright.bounds.batch.together import path_and_work, prove
from placewright.budget import Budget
from placewright.kernels.batch.arrays import batches_of
from placewright.planners.batch.rows import input_devices
from tests.builders import batches_of_four as by_hand
from tests.naive import batch as naive_batch
from tests.planners.batch.test_batch import shortest
from tests.strategies.batch import batch_problems, rows_of


def mean_wait(problem, edge, made, read):
    """Seconds that an input waits on average for its tensor, with nothing in the way."""
    nbytes, total = float(problem.tensor_bytes[problem.edge_tensor[edge]]), 0.0
    for source, target in zip(made, read, strict=True):
        if source != target:
            beside = list(zip(made, read, strict=True)).count((source, target))
            together = beside if problem.options.contention != "none" else 1
            total += problem.link_latency[source, target]
            total += together * nbytes * problem.link_seconds_per_byte[source, target]
    return total / len(made)


def chunks_of(problem, row):
    return np.bincount(row, minlength=problem.device_count) // batches_of(problem).chunk


@given(problem=batch_problems(max_devices=4), data=st.data())
def test_no_placement_lets_inputs_wait_less(problem, data):
    device = input_devices(problem, data.draw(rows_of(problem)))
    arrivals, kind = Arrivals.of(problem), batches_of(problem).kind
    for number, edge in enumerate(arrivals.edge.tolist()):
        made = device[problem.edge_producer[edge]]
        read = device[problem.consumers[edge]]
        before, after = chunks_of(problem, made), chunks_of(problem, read)
        least = float(arrivals.cost[number, kind, before, after].sum())
        assert least <= mean_wait(problem, edge, made.tolist(), read.tolist()) + 1e-9


@given(problem=batch_problems(), seed=st.integers(0, 2**32 - 1))
def test_no_price_of_a_place_is_more_than_what_it_saves(problem, seed):
    rng, arrivals = np.random.default_rng(seed), Arrivals.of(problem)
    potential, amount = rng.random(arrivals.cost.shape[:3]), rng.random(len(arrivals.edge))
    potential[:, :, 0] = 0.0
    lowered = arrivals.lowered(potential, amount)
    for place in np.ndindex(*arrivals.cost.shape):
        edge, kind, before, after = place
        paid = amount[edge] * arrivals.cost[place] + potential[edge, kind, before]
        assert lowered[edge, kind, after] <= paid
    assert not lowered[:, :, 0].any()


@given(problem=batch_problems())
def test_all_splits_are_those_of_trying_all(problem):
    b = batches_of(problem)
    for unit, allowed in enumerate(b.allowed):
        found = [each.tobytes() for each in all_splits(allowed, np.bincount(b.kind))]
        wanted = set()
        for split in naive_batch.fewest_first(problem, b.allowed[unit, b.kind].tolist()):
            table = np.zeros(allowed.shape, dtype=np.int64)
            for device, count in enumerate(split):
                table[b.kind[device], count] += 1
            wanted.add(table.tobytes())
        assert len(found) == len(set(found))
        assert set(found) == wanted


def test_who_waits_for_a_tensor_is_counted():
    """a takes two seconds in halves, b four as one batch, which two of four inputs come to.

    They wait 0.5 s and a second each: 2.5 s. The mean of all inputs is half of that.
    """
    time = np.full((2, 2, 4), np.inf)
    time[0, :, 1], time[1, :, 3] = 2.0, 4.0
    at_once = {"link_latency": np.zeros((2, 2)), "link_seconds_per_byte": np.zeros((2, 2))}
    assert path_and_work(by_hand(batch_time=time, **at_once)).value == pytest.approx(6.0)
    problem = by_hand(batch_time=time)
    assert path_and_work(problem).value == pytest.approx(6.0 + 0.5 * 2.5)
    assert shortest(problem) == pytest.approx(6.0 + 2.5)


def test_nobody_waits_where_splits_are_too_many(monkeypatch):
    """Then the bound is that of paths and work, and still one."""
    monkeypatch.setattr("placewright.bounds.batch.together.MOST_LISTED", 1)
    time = np.full((2, 2, 4), np.inf)
    time[0, :, 1], time[1, :, 3] = 2.0, 4.0
    assert path_and_work(by_hand(batch_time=time)).value == pytest.approx(6.0)


def test_what_takes_no_time_has_no_bound(monkeypatch):
    monkeypatch.setattr("placewright.bounds.batch.together.AT_ONCE", 1)
    idle = by_hand(batch_time=np.zeros((2, 2, 4)))
    assert path_and_work(idle).value == prove(idle, Budget(10.0)).value == 0.0


def test_larger_problems_are_for_the_prover(monkeypatch):
    """Of more pairs than at once `path_and_work` counts no transfers, and `prove` does."""
    time = np.full((2, 2, 4), np.inf)
    time[0, :, 1], time[1, :, 3] = 2.0, 4.0
    problem = by_hand(batch_time=time)
    assert prove(problem, Budget(10.0)).value == 0.0
    monkeypatch.setattr("placewright.bounds.batch.together.AT_ONCE", 1)
    assert path_and_work(problem).value == pytest.approx(6.0)
    assert prove(problem, Budget(10.0)).value == pytest.approx(7.25)
    assert prove(problem, Budget(0.0)).value <= 7.25 + 1e-9
    monkeypatch.setattr("placewright.bounds.batch.together.ALONE", 1)
    assert prove(problem, Budget(10.0)).value == 0.0
