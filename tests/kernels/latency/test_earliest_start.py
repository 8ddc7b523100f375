"""The earliest-start kernel against its naive twin."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.earliest_start import earliest_start_placement
from placewright.kernels.latency.units import units_of
from tests import naive
from tests.strategies import problems


@given(st.data())
def test_kernel_picks_the_same_pairs_as_its_twin(data):
    problem = data.draw(problems())
    priority = np.array(data.draw(st.permutations(range(problem.op_count))), dtype=np.int32)
    unit_device = np.full(problem.unit_count, -1, dtype=np.int32)
    expected = naive.earliest_start_placement(problem, priority, unit_device)
    units = units_of(problem, unit_device)
    failed = earliest_start_placement(arrays_of(problem), priority, units)
    assert (failed >= 0) == (expected[1] >= 0)
    if failed < 0:
        assert units.device.tolist() == expected[0]
