"""`explain`: what names mean, what is said of places and of devices."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

import placewright
from placewright.errors import InputError, VerificationError
from placewright.solving import solve
from placewright.whatif.changes import without_devices
from placewright.whatif.explain.named import enclosing, named
from tests.builders import chain, judged
from tests.report.html.plans import QUICK, plan_for
from tests.whatif.explain.plans import plans


def test_a_name_is_of_an_op_a_block_a_module_or_a_device():
    problem = plan_for("latency").problem
    kinds = {name: named(problem, name).kind for name in (problem.op_names[0], "rtx4090")}
    assert kinds == {problem.op_names[0]: "op", "rtx4090": "device"}
    block = named(problem, "block:blocks.0")
    assert block.kind == "block"
    assert len(block.ops) > 1
    assert named(problem, "module:blocks.0").kind == "module"


def test_a_name_that_there_is_not_is_answered_by_names_like_it():
    with pytest.raises(InputError, match=r"no op, block, module or device 'rtx4091'.*'rtx4090'"):
        placewright.explain(plan_for("latency"), "rtx4091")


def test_what_is_both_a_block_and_an_op_is_offered_once():
    with pytest.raises(InputError) as caught:
        placewright.explain(plan_for("latency"), "lm_hed")
    assert str(caught.value).count("'lm_head'") == 1


def test_what_encloses_an_op_holds_it_the_smallest_first():
    problem = plan_for("latency").problem
    op = next(k for k, module in enumerate(problem.op_modules) if module.count(".") >= 2)
    found = enclosing(problem, np.array([op]))
    sizes = [len(each.ops) for each in found]
    assert sizes == sorted(sizes)
    assert all(op in each.ops for each in found)


def test_a_wrong_plan_is_not_explained():
    plan = plan_for("latency")
    with pytest.raises(VerificationError):
        placewright.explain(replace(plan, value=plan.value / 2), "rtx4090")


@pytest.mark.parametrize("objective", QUICK)
def test_an_op_of_every_objective_is_explained_for_every_other_device(objective):
    plan = plan_for(objective)
    found = placewright.explain(plan, plan.problem.op_names[3])
    others = set(range(plan.problem.device_count)) - set(found.devices)
    assert {move.device for move in found.moves} >= others
    assert list(found.ties) == sorted(found.ties, key=lambda each: abs(each.change))
    assert bool(found.chain) == (objective == "latency")


@settings(max_examples=12)
@given(plans("latency"))
def test_the_chain_to_an_op_ends_in_it_and_each_step_follows_the_one_before(plan):
    op = plan.problem.op_count - 1
    chain_of = placewright.explain(plan, f"op:{plan.problem.op_names[op]}").chain
    assert chain_of[-1].last == op
    assert chain_of[-1].finish == plan.schedule.op_finish[op]
    for before, after in pairwise(chain_of):
        assert after.start == pytest.approx(before.finish + after.idle, abs=1e-9 * plan.value)


def test_a_pinned_op_says_what_it_would_cost_elsewhere():
    found = placewright.explain(solve(judged(), "heft"), "a")
    assert {move.blocked for move in found.moves} == {"pin"}
    assert all(np.isfinite(move.value) for move in found.moves)


@settings(max_examples=12)
@given(plans("latency"))
def test_load_and_what_a_device_waits_for_make_up_the_value(plan):
    for name in plan.problem.device_names:
        found = placewright.explain(plan, f"device:{name}")
        waited = sum(seconds for _, seconds in found.waits)
        assert found.load + waited == pytest.approx(plan.value, abs=1e-6 * max(plan.value, 1.0))


def test_what_a_device_waits_for_is_work_and_transfers_elsewhere():
    plan = solve(chain([8.0, 8.0], [8.0, 8.0], tensor_bytes=5.0), "heft")
    first = int(plan.placement.device[0])
    names = plan.problem.device_names
    found = placewright.explain(plan, f"device:{names[1 - first]}")
    seconds = float(plan.problem.op_time[0, first])
    way = f"transfers {names[first]} → {names[1 - first]}"
    assert dict(found.waits) == {f"work on {names[first]}": seconds, way: 1.0}


@pytest.mark.parametrize("objective", QUICK)
def test_without_a_device_a_plan_keeps_above_the_bound_of_what_is_left(objective):
    plan = plan_for(objective)
    device = plan.used_devices[0]
    found = placewright.explain(plan, f"device:{plan.problem.device_names[device]}")
    assert found.without is not None
    if found.without.value is not None:
        assert found.without.lower_bound <= found.without.value
        left = without_devices(plan.problem, [plan.problem.device_names[device]])
        assert left.device_count == plan.problem.device_count - 1


def test_without_the_only_device_there_is_nothing():
    problem = without_devices(chain([1.0, 1.0], [10.0, 10.0]), ["y"])
    found = placewright.explain(solve(problem, "heft"), "device:x")
    assert found.without.value is None
    assert "nothing to plan on" in found.without.error


def test_what_could_best_leave_a_device_is_there_and_the_best_comes_first():
    plan = plan_for("latency")
    device = int(np.argmax(plan.device_load))
    found = placewright.explain(plan, f"device:{plan.problem.device_names[device]}")
    changes = [move.change for move in found.leaving]
    assert changes == sorted(changes)
    assert 0 < len(changes) <= 5
    for move in found.leaving:
        assert (plan.placement.device[move.ops] == device).any()
        assert not move.blocked
