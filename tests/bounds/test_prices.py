"""Prices found by steps: how close they come on a ridge."""

import numpy as np
import pytest

from placewright.bounds.prices import HopedFor


@pytest.mark.parametrize("steep", [1.0, 10.0, 1000.0])
def test_prices_on_a_ridge_come_close_to_the_best(steep):
    """10 − |x − 3| − steep · (|y − x| + |z − y|) is largest where all are 3, along a ridge."""
    hoped, price = HopedFor(), np.zeros(3)
    while not hoped.given_up:
        x, y, z = price
        value = 10.0 - abs(x - 3.0) - steep * (abs(y - x) + abs(z - y))
        one, two = steep * np.sign(y - x), steep * np.sign(z - y)
        slope = np.array([one - np.sign(x - 3.0), two - one, -two])
        price = hoped.next_prices(price, value, slope)
    assert 9.9 <= hoped.best <= 10.0


def test_prices_are_never_negative():
    hoped, price = HopedFor(), np.array([1.0, 1.0])
    for _ in range(20):
        price = hoped.next_prices(price, float(-price.sum()), np.array([-1.0, -1.0]))
        assert (price >= 0.0).all()
