"""Lower bounds on batches against brute force, and against what they are made of."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds import batch
from placewright.bounds import lower_bound as bound_of_objective
from placewright.kernels.batch.arrays import batches_of
from placewright.planning import make_problem
from tests.builders import batches_of_four as by_hand
from tests.naive import batch as naive_batch
from tests.planners.batch.test_batch import shortest
from tests.strategies.batch import batch_problems


@settings(max_examples=30)
@given(problem=batch_problems(max_ops=4, max_devices=3, max_batch=3))
def test_no_bound_is_above_the_optimum(problem):
    optimum = shortest(problem)
    weight = batch._work(problem)[1]
    for bound in (batch.work(problem), batch.mean_path(problem), batch.windows(problem, weight)):
        assert 0 <= bound.value <= optimum + 1e-9, bound


@settings(max_examples=20)
@given(
    problem=batch_problems(max_ops=4, max_devices=3, max_batch=3),
    shares=st.lists(st.sampled_from([0.4, 0.5, 0.7, 1.0]), min_size=3, max_size=3),
)
def test_the_mean_path_is_below_the_optimum_where_memory_is_tight(problem, shares):
    room = np.array(shares[: problem.device_count]) * problem.op_memory.sum()
    problem = problem.with_device_memory(room)
    assert batch.mean_path(problem).value <= shortest(problem) + 1e-9


@given(problem=batch_problems(), weights=st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
def test_the_cheapest_split_is_that_of_trying_all(problem, weights):
    table = batch._op_table(problem)
    weight = np.array(weights[: problem.device_count])
    values, counts = table.cheapest(table.weighted(weight[:, None]))
    b = batches_of(problem)
    for op in range(problem.op_count):
        cost = {
            split: sum(weight[d] * b.time[op, b.kind[d], n] for d, n in enumerate(split))
            for split in naive_batch.fewest_first(
                problem, b.allowed[problem.op_unit[op], b.kind].tolist()
            )
        }
        kind = table.kind[op]
        assert values[kind] == pytest.approx(min(cost.values()))
        assert cost[tuple(counts[kind].tolist())] == pytest.approx(values[kind])


@given(problem=batch_problems())
def test_the_quickest_batch_is_one_of_a_split(problem):
    table, b = batch._op_table(problem), batches_of(problem)
    for op in range(problem.op_count):
        splits = naive_batch.fewest_first(problem, b.allowed[problem.op_unit[op], b.kind].tolist())
        quickest = min(
            b.time[op, b.kind[d], n] for split in splits for d, n in enumerate(split) if n
        )
        assert table.quickest[table.kind[op]] == quickest


def test_the_path_counts_the_mean_batch_and_not_the_quickest():
    """Sizes 1 and 3 only, on devices as fast: three inputs wait 3 s, one 1 s, per op."""
    time = np.full((2, 2, 4), np.inf)
    time[:, :, 0], time[:, :, 2] = 1.0, 3.0
    assert batch.mean_path(by_hand(batch_time=time)).value == pytest.approx(2 * (3 * 3 + 1) / 4)


def test_work_is_shared_out_by_speed():
    """Eight seconds on x or sixteen on y: 16/3 if they could be cut anywhere, no less."""
    assert batch.work(by_hand()).value == pytest.approx(16 / 3, rel=2e-2)


def test_what_comes_before_is_added_to_the_work():
    """Op a takes 5 s on any split; b needs both devices for four seconds each."""
    time = np.full((2, 2, 4), np.inf)
    time[0, 0, 3] = 5.0
    time[1, :, 1] = 4.0
    found = bound_of_objective(by_hand(batch_time=time))
    assert found.value == pytest.approx(9.0)


def test_memory_is_priced():
    """Weights fit once in all, so the fast device cannot have everything."""
    memory = {"op_memory": [1.0, 1.0], "device_memory": [1.0, 1.0]}
    time = np.array([[[1, 2, 3, 4], [10, 20, 30, 40]]] * 2)
    free, tight = by_hand(batch_time=time), by_hand(batch_time=time, **memory)
    assert batch.lower_bound(free).value < 10
    assert batch.lower_bound(tight).value > 20
    assert "memory" in batch.lower_bound(tight).source
    assert batch.lower_bound(tight).value <= shortest(tight)


def test_no_weights_prove_more_than_the_linear_program():
    """On a real network: the dual of the same program, solved by trying weights."""
    options = {"objective": "batch-throughput", "batch": 16, "contention": "none"}
    problem, _ = make_problem("zoo:rwnn?modules=2&ops=10", "diviml", options)
    table = batch._unit_table(problem)
    number = np.bincount(table.kind)
    found = batch.work(problem).value
    tried = 0.0
    for one, other in itertools.product(np.linspace(0, 1, 60), repeat=2):
        if one + other <= 1:
            weight = np.array([one, other, 1 - one - other])
            values = table.cheapest(table.weighted(weight[:, None]))[0]
            tried = max(tried, float(values @ number))
    assert found >= 0.99 * tried
