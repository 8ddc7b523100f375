"""Programs relaxed to whole numbers: what they prove holds, whatever the ratio of their numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.solvers.mathopt import HORIZON, Program
from placewright.solvers.rounded import solve_whole


def cheapest(price, gain, need, far):
    """Choose items that gain so much, at the least sum of prices; `far` is no choice at all."""
    program = Program()
    cost = program.variable(0.0, HORIZON)
    program.minimise(cost)
    chosen = [program.binary() for _ in price]
    program.row(zip(chosen, gain, strict=True), lower=need)
    program.row([(cost, 1.0), *((y, -each) for y, each in zip(chosen, price, strict=True))], 0.0)
    program.row([(cost, -1.0), (chosen[-1], far)], upper=0.0)
    return solve_whole(program, Budget(10.0), workers=1)


def by_hand(price, gain, need):
    choices = itertools.product([0, 1], repeat=len(price))
    return min(
        float(np.dot(each, price))
        for each in choices
        if np.dot(each, gain) >= need and np.dot(each, price) <= HORIZON and not each[-1]
    )


@pytest.mark.parametrize("large", [1e3, 1e9, 1e15, 1e30])
def test_numbers_that_do_not_fit_64_bits_are_cut_to_what_matters(large):
    price, gain = [3.0, 4.0, large, 2.0], [1.0, large, 2.0, large]
    answer = cheapest(price, gain, 1.0, far=large)
    assert answer.complete
    assert answer.bound == pytest.approx(by_hand(price, gain, 1.0), abs=1e-2)
    assert answer.bound <= 3.0


def test_a_row_that_fits_no_64_bits_is_left_out():
    """Of ``1e30 · x ≥ y`` a bound may know nothing, but what it knows must hold."""
    program = Program()
    cost = program.variable(0.0, HORIZON)
    program.minimise(cost)
    x, y = program.binary(), program.binary()
    program.row([(x, 1e30), (y, -1.0)], lower=0.0)
    program.row([(cost, 1.0), (x, -5.0), (y, 3.0)], lower=0.0)
    program.row([(y, 1.0)], lower=1.0)
    answer = solve_whole(program, Budget(10.0), workers=1)
    assert answer.complete
    assert answer.bound <= 2.0
