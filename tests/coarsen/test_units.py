"""Units as groups."""

from dataclasses import replace

import numpy as np
from hypothesis import given

from placewright.coarsen import coarsen
from placewright.coarsen.contraction import contract
from placewright.coarsen.units import unit_groups
from placewright.planning import make_problem
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import chain
from tests.strategies import problems


@given(problem=problems(memory=False))
def test_groups_are_parts_of_units_and_passes_and_contract_to_a_dag(problem):
    group = unit_groups(problem)
    coarse = contract(problem, group).problem  # a cycle would be a GraphError
    assert coarse.unit_count == problem.unit_count
    for each in range(int(group.max()) + 1):
        ops = np.flatnonzero(group == each)
        assert len(set(problem.op_unit[ops].tolist())) == 1
        assert len(set(problem.is_backward[ops].tolist())) == 1


def test_a_unit_that_data_comes_back_to_is_parted_and_stays_colocated():
    """o0 → o1 → o2 → o3, all but o1 to be together: o2 and o3 are one op of the coarser."""
    problem = replace(chain([1.0] * 4, [9.0, 9.0]), colocation=[0, -1, 0, 0])
    coarse = coarsen(problem, "units").problem
    assert unit_groups(problem).tolist() == [0, 1, 2, 2]
    assert (coarse.op_count, coarse.unit_count) == (3, 2)


def test_whole_blocks_are_planned_as_one_op_each():
    problem, _ = make_problem("zoo:gpt2", "2x3090", granularity="block")
    coarse = coarsen(problem, "units").problem
    assert coarse.op_count <= problem.unit_count + 1 < problem.op_count / 10
    plan = solve(problem, "heft", coarsening="units")
    assert verify(plan).violations == ()
    assert plan.lower_bound <= plan.value
