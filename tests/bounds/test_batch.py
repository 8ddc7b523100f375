"""Lower bounds on batches against brute force, and against what they are made of."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds import lower_bound as bound_of_objective
from placewright.bounds.batch import lower_bound
from placewright.bounds.batch.paths import mean_path
from placewright.bounds.batch.splits import op_splits, unit_splits
from placewright.bounds.batch.together import path_and_work
from placewright.bounds.batch.windows import windows
from placewright.bounds.batch.work import work, work_and_weights
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
    whole, weight = work_and_weights(problem)
    for bound in (whole, mean_path(problem), windows(problem, weight), path_and_work(problem)):
        assert 0 <= bound.value <= optimum + 1e-9, bound


@settings(max_examples=20)
@given(
    problem=batch_problems(max_ops=4, max_devices=3, max_batch=3),
    shares=st.lists(st.sampled_from([0.4, 0.5, 0.7, 1.0]), min_size=3, max_size=3),
)
def test_paths_are_below_the_optimum_where_memory_is_tight(problem, shares):
    room = np.array(shares[: problem.device_count]) * problem.op_memory.sum()
    problem = problem.with_device_memory(room)
    optimum = shortest(problem)
    for bound in (mean_path(problem), path_and_work(problem)):
        assert bound.value <= optimum + 1e-9


@settings(max_examples=30)
@given(problem=batch_problems(max_ops=6, max_devices=3), weights=st.integers(0, 2**32 - 1))
def test_no_prices_prove_more_than_path_and_work_together(problem, weights):
    """A path, weights and prices drawn, and the cheapest splits of trying all."""
    rng = np.random.default_rng(weights)
    b, found = batches_of(problem), path_and_work(problem).value
    drawn = rng.dirichlet(np.ones(problem.device_count + 1))
    path, op = [], int(rng.integers(problem.op_count))
    while op is not None:
        path.append(op)
        after = problem.consumers[problem.edge_producer == op].tolist()
        op = int(rng.choice(after)) if after else None
    total = 0.0
    for unit in range(problem.unit_count):
        allowed = b.allowed[unit, b.kind].tolist()
        total += min(
            sum(
                (drawn[d] + drawn[-1] * (op in path) * n / sum(split)) * b.time[op, b.kind[d], n]
                for op in np.flatnonzero(problem.op_unit == unit)
                for d, n in enumerate(split)
                if n
            )
            for split in naive_batch.fewest_first(problem, allowed)
        )
    assert total <= found * (1 + 1e-3) + 1e-12


@given(problem=batch_problems(), weights=st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
def test_the_cheapest_split_is_that_of_trying_all(problem, weights):
    table = op_splits(problem)
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
    table, b = op_splits(problem), batches_of(problem)
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
    assert mean_path(by_hand(batch_time=time)).value == pytest.approx(2 * (3 * 3 + 1) / 4)


def test_work_is_shared_out_by_speed():
    """Eight seconds on x or sixteen on y: 16/3 if they could be cut anywhere, no less."""
    assert work(by_hand()).value == pytest.approx(16 / 3, rel=2e-2)


def test_what_comes_before_is_added_to_the_work():
    """Op a takes 5 s on any split; b needs both devices for four seconds each."""
    time = np.full((2, 2, 4), np.inf)
    time[0, 0, 3] = 5.0
    time[1, :, 1] = 4.0
    at_once = {"link_latency": np.zeros((2, 2)), "link_seconds_per_byte": np.zeros((2, 2))}
    found = bound_of_objective(by_hand(batch_time=time, **at_once))
    assert found.value == pytest.approx(9.0)


def test_a_path_and_work_prove_more_together():
    """On a real network, where one batch spares work and several make the paths shorter."""
    options = {"objective": "batch-throughput", "batch": 16, "contention": "none"}
    problem, _ = make_problem("zoo:rwnn?modules=2&ops=10", "diviml", options)
    apart = max(work(problem).value, mean_path(problem).value)
    assert path_and_work(problem).value > 1.0001 * apart


def test_memory_is_priced():
    """Weights fit once in all, so the fast device cannot have everything."""
    memory = {"op_memory": [1.0, 1.0], "device_memory": [1.0, 1.0]}
    time = np.array([[[1, 2, 3, 4], [10, 20, 30, 40]]] * 2)
    free, tight = by_hand(batch_time=time), by_hand(batch_time=time, **memory)
    assert lower_bound(free).value < 10
    assert lower_bound(tight).value > 20
    assert "memory" in lower_bound(tight).source
    assert lower_bound(tight).value <= shortest(tight)


def test_no_weights_prove_more_than_the_linear_program():
    """On a real network: the dual of the same program, solved by trying weights."""
    options = {"objective": "batch-throughput", "batch": 16, "contention": "none"}
    problem, _ = make_problem("zoo:rwnn?modules=2&ops=10", "diviml", options)
    table = unit_splits(problem)
    number = np.bincount(table.kind)
    found = work(problem).value
    tried = 0.0
    for one, other in itertools.product(np.linspace(0, 1, 60), repeat=2):
        if one + other <= 1:
            weight = np.array([one, other, 1 - one - other])
            values = table.cheapest(table.weighted(weight[:, None]))[0]
            tried = max(tried, float(values @ number))
    assert found >= 0.99 * tried
