"""What holds for every quick planner of the other objectives, on random problems and workloads."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright import planners
from placewright.planning import make_problem
from placewright.solving import compare
from placewright.verify import verify
from tests.planners.judging import judged_twice
from tests.strategies import tight
from tests.strategies.batch import batch_problems
from tests.strategies.invocation import invocation_problems
from tests.strategies.throughput import throughput_problems

TARNAWSKI = Path(__file__).resolve().parents[3] / "shared" / "workloads" / "tarnawski"
PROBLEMS = {
    "throughput": throughput_problems(contiguous=None),
    "invocation-latency": invocation_problems(),
    "batch-throughput": batch_problems(),
}
SMALL = {
    "throughput": throughput_problems(max_ops=5, contiguous=None),
    "invocation-latency": invocation_problems(),
    "batch-throughput": batch_problems(max_ops=6),
}
QUICK = [
    (objective, row.name)
    for objective in PROBLEMS
    for row in planners.planners_for(objective)
    if row.quick
]
FILES = [
    pytest.param(objective, file, id=f"{objective}, {file.stem}")
    for objective, folder in (("throughput", "throughput"), ("invocation-latency", "latency"))
    for file in sorted((TARNAWSKI / folder).glob("*.json"))
]


@pytest.mark.parametrize(("objective", "name"), QUICK)
@given(data=st.data())
def test_its_plan_passes_the_judge_and_comes_out_the_same_again(objective, name, data):
    judged_twice(data.draw(PROBLEMS[objective] | tight(SMALL[objective])), name)


@pytest.mark.skipif(not FILES, reason="the published workloads are not here")
@pytest.mark.parametrize(("objective", "file"), FILES)
def test_quick_planners_take_every_published_workload(objective, file):
    problem, _ = make_problem(file, None, {"objective": objective})
    lines = compare(problem)
    plans = [line.plan for line in lines if line.plan is not None]
    assert plans
    for plan in plans:
        assert verify(plan).violations == ()
    for line in lines:  # only one device may be too small for everything
        assert line.plan is not None or line.planner == "single-device", line.error
