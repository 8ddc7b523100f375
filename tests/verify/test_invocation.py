"""The judge catches every kind of wrong plan for invocation latency."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.slots import placement_of, slot_of
from placewright.graph import GraphBuilder
from placewright.kernels.invocation.timing import latency
from placewright.options import Options
from placewright.outcome import Invocations
from placewright.plan import Placement, Plan
from placewright.simulate.invocation import invoke
from placewright.verify import verify
from tests.builders import ACC0, ACC1, CPU
from tests.builders import invocation_chain as chain
from tests.strategies import graph_columns
from tests.strategies.invocation import invocation_problems, invocation_slots


def plan_of(problem, device, subgraph, outcome=None):
    placement = Placement(np.array(device), subgraph=np.array(subgraph))
    outcome = outcome or invoke(problem, placement)
    return Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")


def good_plan():
    """a, b on acc0; c on the CPU; d on acc1: 2 + 2 out, then 5, then 2 in + 1."""
    return plan_of(chain(), [ACC0, ACC0, CPU, ACC1], [0, 0, -1, 0])


def with_table(plan, **columns):
    """The plan with other columns of its table of invocations."""
    outcome = plan.outcome
    changed = replace(outcome, invocations=replace(outcome.invocations, **columns))
    return replace(plan, outcome=changed)


def complaints(plan):
    return " | ".join(verify(plan).violations)


def test_a_right_plan_is_right():
    plan = good_plan()
    assert plan.value == 12.0
    assert verify(plan).ok
    assert verify(plan).value == 12.0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_the_evaluator_makes_of_fitting_slots_is_right(data):
    problem = data.draw(invocation_problems(max_ops=8, max_accelerators=3))
    device, number = data.draw(invocation_slots(problem))
    used = np.bincount(device, problem.op_memory, problem.device_count)
    assume((used <= problem.device_memory).all())
    assume(np.isfinite(problem.unit_time[problem.op_unit, device]).all())
    op_slot = slot_of(problem, device, number)
    assume(np.isfinite(latency(problem, op_slot)))
    placement = placement_of(problem, op_slot)
    outcome = invoke(problem, placement)
    plan = Plan(problem, placement, outcome, outcome.value, 0.0, "none", "drawn")
    assert verify(plan).violations == ()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        pytest.param(
            lambda: plan_of(
                chain(Options(objective="invocation-latency")),
                [ACC0, ACC0, CPU, ACC0],
                [0, 0, -1, 1],
            ),
            "2 forward subgraphs, 1 allowed",
            id="too many subgraphs",
        ),
        pytest.param(
            lambda: plan_of(chain(colocate="ad"), [ACC0, ACC0, CPU, ACC1], [0, 0, -1, 0]),
            "together",
            id="colocated ops apart",
        ),
        pytest.param(
            lambda: plan_of(chain(memory=1.5), [ACC0, ACC0, CPU, ACC1], [0, 0, -1, 0]),
            "acc0",
            id="memory overflows",
        ),
        pytest.param(
            lambda: plan_of(
                replace(chain(), op_pinned=np.array([ACC1, -1, -1, -1])),
                [ACC0, ACC0, CPU, ACC1],
                [0, 0, -1, 0],
            ),
            "pinned",
            id="not where it is pinned",
        ),
        pytest.param(
            lambda: plan_of(
                chain(unsupported=[(0, ACC0)]),
                [ACC0, ACC0, CPU, ACC1],
                [0, 0, -1, 0],
                outcome=good_plan().outcome,
            ),
            "op 'a'",
            id="not supported",
        ),
        pytest.param(
            lambda: plan_of(chain(backward="d"), [ACC0] * 4, [0] * 4),
            "forward and backward ops",
            id="both ways in one subgraph",
        ),
    ],
)
def test_a_placement_that_breaks_a_rule_is_caught(make, complaint):
    assert complaint in complaints(make())


def test_a_subgraph_with_a_way_out_and_back_is_caught():
    plan = good_plan()
    wrong = Placement(np.array([ACC0, ACC0, CPU, ACC0]), subgraph=np.array([0, 0, -1, 0]))
    assert "not contiguous" in complaints(replace(plan, placement=wrong))


def test_a_subgraph_that_is_left_by_the_first_op_is_caught_even_if_nothing_takes_time():
    """b → a → c, and a, whose number is 0, is on the CPU."""
    whole = chain()
    timeless = replace(
        whole,
        op_time=np.zeros((4, 3)),
        tensor_producer=np.array([1, 0]),
        tensor_bytes=np.zeros(2),
        consumer_offsets=np.array([0, 1, 2]),
        consumers=np.array([0, 2]),
    )
    right = plan_of(timeless, [ACC0, ACC0, ACC0, CPU], [0, 0, 0, -1])
    assert verify(right).ok
    placement = Placement(np.array([CPU, ACC0, ACC0, CPU]), subgraph=np.array([-1, 0, 0, -1]))
    assert verify(replace(right, placement=placement)).violations == (
        "subgraph 0 of 'acc0' is not contiguous: a path leaves it by 'a' and comes back",
    )


@pytest.mark.parametrize("number", [0, 3])
def test_an_op_on_a_cpu_is_in_no_subgraph(number):
    plan = good_plan()
    labelled = Placement(plan.placement.device, subgraph=np.array([0, 0, number, 0]))
    assert verify(replace(plan, placement=labelled)).violations == (
        f"op 'c' is on a CPU, but in subgraph {number}; -1 is none",
    )


@pytest.mark.parametrize("number", [1, 7, -1])
def test_subgraphs_are_numbered_from_0(number):
    """In the table of invocations as well, so that only the number is wrong."""
    plan = plan_of(chain(), [ACC0, ACC0, CPU, ACC1], [number, number, -1, 0], good_plan().outcome)
    assert verify(with_table(plan, subgraph=np.array([number, 0]))).violations == (
        f"subgraphs of 'acc0' are numbered {number}, not from 0 in their order",
    )


def apart(start):
    """a on acc0 in subgraph 0, b on acc0 in subgraph 1, nothing between them; one second each."""
    builder = GraphBuilder("apart")
    for name in "ab":
        builder.add_op(name, "op")
    graph = builder.build()
    whole = chain()
    problem = replace(
        whole, **graph_columns(graph), op_time=whole.op_time[:2], op_memory=np.zeros(2),
        op_pinned=np.array([-1, -1]), op_sync_bytes=np.zeros(2), batch_time=np.zeros((2, 3, 0)),
    )  # fmt: skip
    plan = plan_of(problem, [ACC0, ACC0], [0, 1])
    assert plan.outcome.invocations.start.tolist() == [0.0, 1.0]
    finish = Invocations(np.array(start) + 1.0, plan.outcome.invocations)
    return with_table(replace(plan, outcome=finish), start=np.array(start))


def test_subgraphs_are_numbered_in_the_order_of_their_invocations():
    assert verify(apart([0.0, 1.0])).ok
    (said,) = verify(apart([1.0, 0.0])).violations
    assert said == "subgraph 1 of 'acc0' starts before subgraph 0"


def test_subgraphs_that_wait_for_each_other_are_caught_even_if_nothing_takes_time():
    """a → b and c → d; a and d on acc0, b and c on acc1: each contiguous, none can be first."""
    whole = chain()
    timeless = replace(
        whole,
        op_time=np.zeros((4, 3)),
        tensor_producer=np.array([0, 2]),
        tensor_bytes=np.zeros(2),
        consumer_offsets=np.array([0, 1, 2]),
        consumers=np.array([1, 3]),
    )
    right = plan_of(timeless, [ACC0, ACC1, CPU, CPU], [0, 0, -1, -1])
    assert verify(right).ok
    placement = Placement(np.array([ACC0, ACC1, ACC1, ACC0]), subgraph=np.zeros(4))
    assert verify(replace(right, placement=placement)).violations == (
        "subgraph 0 of 'acc0' and subgraph 0 of 'acc1' wait for each other",
    )


def test_a_plan_without_subgraphs_is_caught():
    plan = good_plan()
    assert "subgraph" in complaints(replace(plan, placement=Placement(plan.placement.device)))


@pytest.mark.parametrize(
    ("column", "change", "complaint"),
    [
        ("incoming", -1.0, "reads"),
        ("compute", -0.5, "computes"),
        ("outgoing", 1.0, "writes"),
    ],
)
def test_an_invocation_of_another_length_is_caught(column, change, complaint):
    plan = good_plan()
    values = getattr(plan.outcome.invocations, column).copy()
    values[0 if column == "outgoing" else 1] += change
    assert complaint in complaints(with_table(plan, **{column: values}))


def test_an_invocation_before_its_inputs_is_caught():
    plan = good_plan()
    assert "in host memory" in complaints(with_table(plan, start=np.array([0.0, 8.0])))


def test_two_invocations_of_one_accelerator_at_once_are_caught():
    plan = plan_of(chain(), [ACC0, ACC0, CPU, ACC0], [0, 0, -1, 1])
    assert verify(plan).ok
    assert "at once" in complaints(with_table(plan, start=np.array([0.0, 3.0])))


def test_an_invocation_that_is_missing_is_caught():
    plan = good_plan()
    table = plan.outcome.invocations
    names = ("device", "subgraph", "start", "incoming", "compute", "outgoing")
    short = {name: getattr(table, name)[:1] for name in names}
    assert "never invoked" in complaints(with_table(plan, **short))


def test_an_invocation_that_is_listed_twice_is_caught():
    plan = good_plan()
    table = plan.outcome.invocations
    names = ("device", "subgraph", "start", "incoming", "compute", "outgoing")
    twice = {name: np.append(getattr(table, name), getattr(table, name)[:1]) for name in names}
    assert "invoked twice" in complaints(with_table(plan, **twice))


def test_an_invocation_without_ops_is_caught():
    plan = good_plan()
    assert "has no ops" in complaints(with_table(plan, subgraph=np.array([0, 1])))


@pytest.mark.parametrize(("op", "complaint"), [(2, "op 'c' ends"), (0, "is said to be ready")])
def test_an_output_that_is_ready_too_soon_is_caught(op, complaint):
    plan = good_plan()
    finish = plan.outcome.op_finish.copy()
    finish[op] -= 0.5
    wrong = Invocations(finish, plan.outcome.invocations)
    assert complaint in complaints(replace(plan, outcome=wrong))


def test_a_value_that_is_too_good_is_caught():
    assert verify(replace(good_plan(), value=11.0)).violations


def test_a_bound_above_the_value_is_caught():
    assert verify(replace(good_plan(), lower_bound=13.0)).violations


def test_a_time_that_is_no_number_is_caught():
    plan = good_plan()
    assert "not finite" in complaints(with_table(plan, start=np.array([0.0, np.nan])))
