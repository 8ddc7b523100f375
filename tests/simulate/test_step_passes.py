"""The passes of a step are done in the order of the papers, one at a time, and take as long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.outcome import BACKWARD, FORWARD
from placewright.plan import Plan
from placewright.simulate import evaluate
from placewright.simulate.pipeline_steps import hops
from placewright.simulate.step_passes import step_passes
from tests.naive.steps import every_step, order
from tests.strategies.steps import step_problems

WAYS = {"forward": FORWARD, "backward": BACKWARD}


@given(step_problems(), st.data())
def test_passes_are_those_of_the_step(made, data):
    problem = made[0]
    rows = list(every_step(*made))
    if not rows:
        return
    placement = data.draw(st.sampled_from(rows))[1]
    outcome = evaluate(problem, placement)
    plan = Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")
    passes = step_passes(plan)
    trains, count = bool(problem.is_backward.any()), problem.options.micro_batches
    stages = len(placement.row)
    assert passes.start.min() == 0.0
    assert passes.finish.max() == pytest.approx(outcome.step.seconds, rel=1e-12)
    for stage in range(stages):
        mine = passes.stage == stage
        gpipe = problem.options.schedule == "gpipe" or not trains
        wanted = [(WAYS[way], number) for way, number in order(stages - 1 - stage, count, gpipe)]
        if not trains:
            wanted = [each for each in wanted if each[0] == FORWARD]
        found = zip(passes.way[mine].tolist(), passes.micro_batch[mine].tolist(), strict=True)
        assert list(found) == wanted
        assert (passes.start[mine][1:] >= passes.finish[mine][:-1]).all()
    assert_each_waits_for_its_data(plan, passes)


def assert_each_waits_for_its_data(plan, passes):
    between = hops(plan.problem, plan.placement)
    ends = dict(zip(_keys(passes), passes.finish, strict=True))
    for (stage, way, number), start in zip(_keys(passes), passes.start, strict=True):
        if way == FORWARD and stage:
            assert start >= ends[stage - 1, FORWARD, number] - between.up[stage - 1] - 1e-12
        if way == BACKWARD and stage + 1 < len(plan.placement.row):
            assert start >= ends[stage + 1, BACKWARD, number] - between.down[stage] - 1e-12


def _keys(passes):
    return zip(passes.stage.tolist(), passes.way.tolist(), passes.micro_batch.tolist(), strict=True)
