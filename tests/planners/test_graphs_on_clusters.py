"""The whole path on random graphs, clusters and options: costs, routes, planners, judge."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright import planners
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import InfeasibleError
from placewright.options import Options
from placewright.solving import compare
from placewright.verify import verify
from tests.costs.test_links import clusters
from tests.strategies import graphs

QUICK = [row.name for row in planners.planners_for("latency") if row.quick]
OPTIONS = st.builds(
    Options,
    transfer_unit=st.sampled_from(["tensor", "edge"]),
    contention=st.sampled_from(["none", "port", "link"]),
    memory=st.sampled_from(["resident", "peak"]),
)


@settings(max_examples=25)
@given(graph=graphs(max_ops=20), cluster=clusters(), options=OPTIONS)
def test_every_quick_planner_has_a_plan_that_the_judge_accepts(graph, cluster, options):
    problem = build_problem(graph, cluster, options, CostOptions())
    lines = compare(problem, QUICK)
    assert [line.error for line in lines] == [""] * len(QUICK)  # memory is ample
    for line in lines:
        assert verify(line.plan).violations == ()
        assert line.plan.lower_bound == lines[0].plan.lower_bound <= line.plan.value


@given(graph=graphs(), cluster=clusters())
def test_a_cluster_with_too_little_memory_is_infeasible_before_planning(graph, cluster):
    needed = graph.op_parameter_bytes.sum()
    if needed == 0:
        return
    problem = build_problem(graph, cluster, Options(), CostOptions())
    tight = problem.with_device_memory(
        0.0 * problem.device_memory + 0.9 * needed / len(problem.device_memory)
    )
    with pytest.raises(InfeasibleError, match=r"fits on no device|the devices have"):
        compare(tight, QUICK)
