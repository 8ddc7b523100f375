"""The evaluator of batches, against a twin that knows single inputs only, and the judge."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.errors import InfeasibleError
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.planners.batch.rows import input_devices, listed
from placewright.simulate import evaluate
from placewright.simulate.batch import expand
from placewright.verify import verify
from tests.builders import batches_of_four as by_hand
from tests.naive import batch as naive_batch
from tests.naive import expand as naive_expand
from tests.strategies.batch import batch_problems, op_orders, rows_of


@given(data=st.data(), problem=batch_problems())
def test_whole_columns_say_the_same_as_one_tensor_and_input_after_another(data, problem):
    device = input_devices(problem, data.draw(rows_of(problem)))
    found, naive = expand(problem, device), naive_expand.expand(problem, device)
    for column in fields(naive):
        if column.name != "problem":
            same(getattr(found, column.name), getattr(naive, column.name))
    for column in fields(naive.problem):
        same(getattr(found.problem, column.name), getattr(naive.problem, column.name))


def same(found, naive):
    if isinstance(naive, np.ndarray):
        assert found.dtype == naive.dtype
        assert found.tobytes() == naive.tobytes()
    else:
        assert found == naive


def plan_of(problem, device, sequence=None):
    outcome = evaluate(problem, Placement(device, sequence))
    return Plan(problem, Placement(device), outcome, outcome.value, 0.0, "none", "by hand")


def fits(problem, device):
    return Plan.device_memory.fget(plan_of(problem, device)) <= problem.device_memory


@given(data=st.data(), problem=batch_problems())
def test_in_an_order_every_batch_comes_when_its_twin_says(data, problem):
    device = input_devices(problem, data.draw(rows_of(problem)))
    order = data.draw(op_orders(problem))
    sequence = listed(expand(problem, device), order)
    batches = evaluate(problem, Placement(device, sequence)).batches
    start, finish = naive_batch.run_in_order(problem, device.tolist(), order.tolist())
    keys = list(zip(batches.op.tolist(), batches.device.tolist(), strict=True))
    assert sorted(keys) == sorted(start)
    assert batches.start.tolist() == pytest.approx([start[key] for key in keys], abs=1e-12)
    assert batches.finish.tolist() == pytest.approx([finish[key] for key in keys], abs=1e-12)


@given(data=st.data(), problem=batch_problems())
def test_the_judge_agrees_in_any_order_and_in_a_good_one(data, problem):
    device = input_devices(problem, data.draw(rows_of(problem)))
    assume(fits(problem, device).all())
    order = data.draw(op_orders(problem))
    for sequence in (None, listed(expand(problem, device), order)):
        assert verify(plan_of(problem, device, sequence)).violations == ()


@given(data=st.data(), problem=batch_problems(memory=False))
def test_which_inputs_are_which_does_not_matter(data, problem):
    device = input_devices(problem, data.draw(rows_of(problem)))
    renamed = data.draw(st.permutations(range(problem.options.batch)))
    assert evaluate(problem, Placement(device[:, renamed])).value == pytest.approx(
        evaluate(problem, Placement(device)).value
    )


def test_batches_of_an_op_run_at_once_and_each_waits_for_its_own_inputs_only():
    plan = plan_of(by_hand(), np.array([[0, 0, 0, 1], [0, 0, 1, 1]]))
    batches = plan.outcome.batches
    rows = zip(batches.op, batches.device, batches.size, batches.start, batches.finish, strict=True)
    assert [tuple(row) for row in rows] == [
        (0, 0, 3, 0, 3), (0, 1, 1, 0, 2), (1, 0, 2, 3, 5), (1, 1, 2, 4.5, 8.5),
    ]  # fmt: skip


@pytest.mark.parametrize(("contention", "arrives"), [("none", 4 + 1.5), ("link", 4 + 0.5 + 2)])
def test_tensors_go_together_unless_nothing_contends(contention, arrives):
    problem = by_hand(options=Options("batch-throughput", contention=contention, batch=4))
    outcome = plan_of(problem, np.array([[0] * 4, [0, 0, 1, 1]])).outcome
    assert outcome.transfers.inputs.tolist() == [2]
    assert outcome.transfers.finish.tolist() == [arrives]


def test_a_size_that_is_not_allowed_never_ends():
    problem = by_hand(batch_time=[[[1, 2, np.inf, 4]] * 2] * 2)
    device = np.array([[0, 0, 0, 1], [0] * 4])
    assert evaluate(problem, Placement(device)).value == np.inf
    with pytest.raises(InfeasibleError, match="add up to 4 inputs"):
        from placewright.planners.batch.splits import splits_of

        splits_of(by_hand(batch_time=[[[np.inf, np.inf, 3, np.inf]] * 2] * 2))
