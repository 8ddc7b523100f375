"""What figures leave unexplained is smoothed over like sizes of an op and of its family."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.costs.prediction import misses
from placewright.costs.prediction.misses import misses_of
from placewright.costs.prediction.work import Work

seconds = st.floats(0, 1)
sizes = st.tuples(seconds, seconds, seconds)
samples = st.lists(
    st.tuples(st.sampled_from("abc"), sizes, st.floats(-3, 3)), min_size=1, max_size=6
)


def work_of(rows):
    return Work(*np.array(rows, dtype=float).reshape(-1, 3).T, np.full(len(rows), np.inf))


def likeness(op, size, other, its_size):
    """The covariance of what two ops miss."""
    logs = [[math.log(max(each, 1e-5)) / 2 for each in part] for part in (size, its_size)]
    near = math.exp(-(math.dist(*logs) ** 2) / 2)
    return near * (0.15**2 + (0.4**2 if op == other else 0.0))


@given(samples, st.sampled_from("abd"), st.lists(sizes, min_size=1, max_size=4))
def test_it_is_the_mean_of_a_gaussian_process(known, op, asked):
    covariance = [[likeness(*one[:2], *two[:2]) for two in known] for one in known]
    covariance = np.array(covariance) + 0.15**2 * np.eye(len(known))
    missed = np.array([each[2] for each in known])
    weights = np.linalg.inv(covariance) @ np.clip(missed, -1, 1)
    expected = [
        sum(likeness(op, size, *one[:2]) * each for one, each in zip(known, weights, strict=True))
        for size in asked
    ]
    ops = np.array([each[0] for each in known])
    found = misses_of(ops, work_of([each[1] for each in known]), missed)
    assert found.of(op, work_of(asked)) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_far_from_what_was_measured_the_figures_alone_count():
    found = misses_of(np.array(["a"]), work_of([(1e-4, 1e-4, 1e-4)]), np.array([0.7]))
    near, far = found.of("a", work_of([(1e-4, 1e-4, 1e-4), (1e3, 1e3, 1e3)]))
    assert 0.6 < near < 0.7
    assert abs(far) < 1e-6


def test_another_op_of_the_family_learns_less_from_it():
    found = misses_of(np.array(["a"]), work_of([(1e-4, 1e-4, 0)]), np.array([0.7]))
    same = work_of([(1e-4, 1e-4, 0)])
    assert 0.05 < found.of("b", same)[0] < 0.5 * found.of("a", same)[0]


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_of_very_many_samples_some_are_looked_at(seed):
    rng = np.random.default_rng(seed)
    count = misses.MOST + 200
    work = work_of(10 ** rng.uniform(-6, -2, (count, 3)))
    found = misses_of(np.full(count, "a"), work, np.full(count, 0.5))
    assert len(found.ops) == misses.MOST
    assert found.of("a", work) == pytest.approx(0.5, abs=0.1)
