"""Lines through what ops take at small batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.costs.profiles.entry import Measured
from placewright.costs.profiles.regression import Line, fitted, regressed
from placewright.importers.costs import Cost

BATCHES = (2, 4, 8)
WORK = Cost(8.0, 4.0, 2.0)
amounts = st.just(0.0) | st.floats(1e-9, 1e15)


@pytest.mark.parametrize("line", [Line(3e-6, 1e-6), Line(0.0, 2e-3), Line(5e-4, 0.0), Line(0, 0)])
def test_a_line_is_found_again(line):
    found = fitted(BATCHES, [line.at(batch) for batch in BATCHES])
    assert found.fixed == pytest.approx(line.fixed, abs=1e-12)
    assert found.per_sample == pytest.approx(line.per_sample, abs=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e9])
def test_a_line_is_found_under_noise_whatever_its_size(size):
    rng = np.random.default_rng(7)
    batches = np.repeat([1, 2, 4, 8, 16], 200)
    values = size * (2.0 + 0.5 * batches) * (1 + 0.05 * rng.standard_normal(batches.size))
    assert fitted(batches, values).at(32) == pytest.approx(size * 18.0, rel=0.03)


def test_what_falls_with_the_batch_is_taken_for_constant():
    found = fitted(BATCHES, [4.0, 3.0, 2.0])
    assert found.per_sample == 0.0 and 2.0 <= found.fixed <= 4.0


def test_what_would_start_below_zero_starts_at_zero():
    found = fitted(BATCHES, [1.0, 4.0, 10.0])
    assert found.fixed == 0.0 and 0.5 <= found.per_sample <= 1.25


def test_small_values_weigh_as_much_as_large_ones():
    assert fitted((1, 2, 100), [1.0, 2.0, 150.0]).at(1) < 1.4  # by absolute errors: 1.5


@given(values=st.lists(amounts, min_size=3, max_size=3))
def test_no_line_is_ever_negative(values):
    found = fitted(BATCHES, values)
    assert found.fixed >= 0.0 and found.per_sample >= 0.0
    assert np.isfinite(found.at(1024))


@given(values=st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=3))
def test_no_line_that_is_not_negative_is_nearer(values):
    x, y = np.array(BATCHES), np.array(values)
    weight = 1.0 / np.maximum(y, 0.01 * y.max())

    def error(fixed, per_sample):
        return (((fixed + per_sample * x - y) * weight) ** 2).sum()

    found = fitted(BATCHES, values)
    least = error(found.fixed, found.per_sample)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 0.1, 1.0):
        for fixed, per_sample in rng.uniform(0.0, scale, (50, 2)) * y.max():
            assert least <= error(fixed, per_sample) * (1 + 1e-6) + 1e-9


def test_an_entry_keeps_its_order_and_says_that_it_is_regressed():
    samples = [Measured(2e-6, 1e-6, 9e-6, 7, "context"), Measured(4e-6, 3e-6, 5e-6, 9, "context")]
    found = regressed((1, 2), samples, [100.0, 180.0], 10, WORK, 700.0)
    assert found.low <= found.seconds <= found.high
    assert found.seconds == pytest.approx(20e-6)
    assert (found.method, found.samples) == ("regressed", 16)
    assert (found.flops, found.bytes_read, found.bytes_written) == (8.0, 4.0, 2.0)
    assert found.memory == pytest.approx(20.0 + 80.0 * 10 - 700.0)
    assert regressed((1, 2), samples, [100.0, 180.0], 10, WORK, 9e9).memory == 0.0
