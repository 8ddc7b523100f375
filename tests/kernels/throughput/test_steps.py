"""The seconds of a step are those of its slow twin."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.throughput.steps import Passes, step_of
from tests.naive import steps as naive

SECONDS = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
SHARES = st.sampled_from([0.0, 0.25, 0.5])


@st.composite
def rows_of_passes(draw):
    """Passes, of which each has a part at either end that its neighbours take part in."""
    stages = draw(st.integers(1, 5))
    columns = [
        np.array(draw(st.lists(each, min_size=stages, max_size=stages)))
        for each in (SECONDS, SECONDS, SHARES, SHARES)
    ]
    forward, backward, up, down = columns
    return Passes(
        forward + up + np.append(up[1:], 0.0), backward + down + np.append(0.0, down[:-1]),
        up, down, np.zeros(stages), np.zeros((stages, 8)),
    )  # fmt: skip


@given(rows_of_passes(), st.integers(1, 8), st.booleans())
def test_a_step_takes_what_its_passes_do_one_by_one(passes, micro_batches, is_gpipe):
    stages = len(passes.forward)
    asked = (passes, stages, micro_batches, is_gpipe)
    assert step_of(*asked) == naive.step_of(*asked)
