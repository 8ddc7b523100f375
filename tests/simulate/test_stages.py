"""Virtual stages of any split."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.options import Options
from placewright.plan import Placement
from placewright.simulate.stages import virtual_stages
from tests.strategies import placements, problems

THROUGHPUT = Options(objective="throughput", contiguous=False)


@given(st.data())
def test_every_op_is_in_one_stage_on_its_device_and_data_goes_on_only(data):
    problem = data.draw(problems(options=THROUGHPUT, memory=False))
    device = data.draw(placements(problem))
    stages = virtual_stages(problem, Placement(device))
    place = np.full(problem.op_count, -1)
    for number, stage in enumerate(stages):
        assert (place[stage.ops] == -1).all()
        assert (device[stage.ops] == stage.device).all()
        place[stage.ops] = number
    assert (place >= 0).all()
    assert (place[problem.edge_producer] <= place[problem.consumers]).all()


@given(st.data())
def test_a_contiguous_split_has_a_stage_per_device(data):
    problem = data.draw(problems(options=THROUGHPUT, memory=False))
    order = problem.topological_order
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=3)))
    device = np.zeros(problem.op_count, dtype=np.int32)
    device[order] = np.searchsorted(cuts, np.arange(len(order)), side="right")
    stages = virtual_stages(problem, Placement(device))
    assert sorted(stage.device for stage in stages) == sorted(set(device.tolist()))
