"""Memory that units cannot fill: what is left of it, against all ways to fill it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.analysis import usable_memory
from placewright.analysis.usable_memory import largest_sum, with_usable_memory
from placewright.bounds import lower_bound
from tests.builders import chain
from tests.strategies import problems, tight

SIZES = st.sampled_from([0.1, 0.3, 1.0, 2.5, 7.0, 1e9, 1e9 + 1])
COUNTS = st.dictionaries(SIZES, st.integers(1, 3), min_size=1, max_size=4)


@given(COUNTS, st.floats(0.0, 4.0))
def test_the_largest_sum_is_that_of_the_best_of_all_choices(many, share):
    sizes, counts = np.array(sorted(many)), np.array([many[size] for size in sorted(many)])
    capacity = share * sizes.max()
    sums = [
        sum(size * count for size, count in zip(sizes, chosen, strict=True))
        for chosen in itertools.product(*(range(count + 1) for count in counts))
    ]
    best = max(each for each in sums if each <= capacity * (1 + 1e-9))
    assert largest_sum(sizes, counts, capacity) == pytest.approx(min(best, capacity), rel=1e-12)


@given(tight(problems(max_ops=6, max_devices=3)))
def test_the_same_placements_fit(problem):
    fewer = with_usable_memory(problem)
    assert (fewer.device_memory <= problem.device_memory).all()
    for device in itertools.product(range(problem.device_count), repeat=problem.unit_count):
        supported = np.isfinite(problem.unit_time[np.arange(problem.unit_count), device]).all()
        used = np.bincount(device, problem.unit_memory, problem.device_count)
        if supported and (used <= problem.device_memory).all():
            assert (used <= fewer.device_memory).all()
    assert with_usable_memory(fewer) is fewer or problem.device_count == 0


def test_a_device_of_two_blocks_and_a_half_holds_two():
    problem = chain([4.0] * 5, [10.0, 99.0])
    assert with_usable_memory(problem).device_memory.tolist() == pytest.approx([8.0, 99.0])


def test_activations_may_take_what_is_left():
    problem = chain([4.0] * 5, [10.0, 99.0])
    peak = replace(problem, options=replace(problem.options, memory="peak"))
    assert with_usable_memory(peak) is peak


def test_of_too_many_sums_nothing_is_said(monkeypatch):
    monkeypatch.setattr(usable_memory, "MOST_SUMS", 2)
    problem = chain([4.0] * 5, [10.0, 99.0])
    assert with_usable_memory(problem) is problem


def test_the_bound_counts_blocks_that_do_not_fit():
    """Two of five ops of 1 s fit on the fast device, the others take 2 s; 2.5 would by bytes."""
    bound = lower_bound(chain([4.0] * 5, [10.0, 99.0]))
    assert bound.value >= 2 * 1.0 + 3 * 2.0
