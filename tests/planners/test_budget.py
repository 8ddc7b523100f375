"""How long a planner may take: the time it is given, all of it, or its own default."""

import math

import pytest

from placewright.budget import Budget

HOUR, DEFAULT = 3600.0, 600.0


@pytest.mark.parametrize(
    ("given", "allowed"), [(math.inf, DEFAULT), (HOUR, HOUR), (DEFAULT / 2, DEFAULT / 2)]
)
def test_a_default_holds_only_where_no_time_is_given(given: float, allowed: float) -> None:
    assert Budget(given).or_at_most(DEFAULT).left == pytest.approx(allowed, abs=1.0)


def test_a_part_is_no_longer_than_what_is_left() -> None:
    assert Budget(HOUR).part(DEFAULT).left == pytest.approx(DEFAULT, abs=1.0)
    assert Budget(DEFAULT).part(HOUR).left == pytest.approx(DEFAULT, abs=1.0)
