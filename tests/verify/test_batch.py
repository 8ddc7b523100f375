"""The judge of batches names what is wrong: a plan that holds, one thing broken in each test.

Four inputs; op a, then b. Device x takes a second per input, y two; a tensor takes 0.5 s and a
second per input that it is for. Of a, inputs 0–2 are on x and 3 on y; of b, 0 and 1 on x:

    x:      a (3 inputs) 0–3, b (2) 3–5
    x → y:  the tensor of input 2, 3–4.5
    y:      a (1) 0–2, b (2) 4.5–8.5
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.options import Options
from placewright.outcome import Batches, BatchSchedule, BatchTransfers
from placewright.plan import Placement, Plan
from placewright.verify import verify
from tests.builders import A, B, X, Y
from tests.builders import batches_of_four as problem

PLACED = ((X, X, X, Y), (X, X, Y, Y))
BATCHES = ((A, X, 3, 0, 3), (A, Y, 1, 0, 2), (B, X, 2, 3, 5), (B, Y, 2, 4.5, 8.5))
SENT = ((0, -1, X, Y, 1, 3, 4.5),)


def plan(placed=PLACED, batches=BATCHES, sent=SENT, value=8.5, bound=2.0, **changes) -> Plan:
    return Plan(
        problem(**changes),
        Placement(np.array(placed)),
        BatchSchedule(
            Batches(*(zip(*batches, strict=True) if batches else [[]] * 5)),
            BatchTransfers(*(zip(*sent, strict=True) if sent else [[]] * 7)),
        ),
        value,
        bound,
        "by hand",
        "by hand",
    )


def changed(rows, number, **fields):
    """`rows` with fields of one of them changed."""
    names = ("op", "device", "size", "start", "finish")
    if len(rows[0]) == 7:
        names = ("tensor", "consumer", "source", "target", "inputs", "start", "finish")
    row = tuple(fields.get(name, old) for name, old in zip(names, rows[number], strict=True))
    return (*rows[:number], row, *rows[number + 1 :])


def assert_names(judged: Plan, *violations: str) -> None:
    """Each of `violations` is in one of the judge's sentences, and it has no other sentence."""
    found = verify(judged).violations
    assert len(found) == len(violations), found
    for sentence in violations:
        assert any(sentence in violation for violation in found), found


@pytest.mark.parametrize("contention", ["none", "port", "link"])
def test_the_plan_holds(contention):
    report = verify(plan(options=Options("batch-throughput", contention=contention, batch=4)))
    assert (report.violations, report.value, report.device_memory) == ((), 8.5, (3, 3))


def test_waiting_is_allowed():
    assert_names(plan(batches=changed(BATCHES, 3, start=6, finish=10), value=10))


def test_a_batch_of_another_size_than_its_inputs():
    assert_names(plan(batches=changed(BATCHES, 2, size=1, finish=4)), "has 2 inputs, not 1")


def test_a_size_that_the_device_does_not_take():
    time = np.array(problem().batch_time)
    time[A, X, 2] = math.inf
    assert_names(plan(batch_time=time), "has 3 inputs, a size that the device does not take")


def test_a_batch_too_short():
    batches = changed(BATCHES, 3, finish=8)
    assert_names(plan(batches=batches, value=8.0), "takes 3.500 s, it needs 4.000 s")


def test_two_batches_at_once_on_one_device():
    batches = changed(BATCHES, 2, start=2, finish=4)
    assert_names(plan(batches=batches), "run at once", "starts before its input")


def test_a_batch_that_starts_before_its_data_is_there():
    batches = changed(BATCHES, 3, start=4, finish=8)
    assert_names(plan(batches=batches, value=8.0), "starts before its input from 'a' on 'x'")


def test_a_transfer_is_missing():
    assert_names(plan(sent=()), "is there (never)")


def test_a_transfer_for_fewer_inputs_than_need_it():
    placed = ((X, X, X, Y), (X, Y, Y, X))
    back = (0, -1, Y, X, 1, 6, 7.5)
    batches = (*BATCHES[:2], (B, X, 2, 7.5, 9.5), (B, Y, 2, 6, 10))
    sent = ((0, -1, X, Y, 2, 3, 5.5), back)
    assert_names(plan(placed, batches, sent, 10))
    assert_names(
        plan(placed, batches, ((0, -1, X, Y, 1, 3, 4.5), back), 10), "for 1 inputs, 2 need it"
    )


def test_a_transfer_that_nobody_needs():
    assert_names(plan(sent=(*SENT, (0, -1, Y, X, 1, 4.5, 6))), "for 1 inputs, 0 need it")


def test_a_tensor_is_sent_twice():
    assert_names(plan(sent=(*SENT, (0, -1, X, Y, 1, 4.5, 6))), "is sent twice",
                 "starts before its input")  # fmt: skip


def test_a_tensor_is_sent_before_it_is_made():
    sent = changed(SENT, 0, start=2, finish=3.5)
    assert_names(plan(sent=sent), "is sent before the batch that makes it has ended")


def test_per_tensor_a_transfer_names_no_op():
    assert_names(
        plan(sent=changed(SENT, 0, consumer=B)),
        f"a transfer names consumer {B}, but each is for all consumers",
    )


EDGE = Options("batch-throughput", transfer_unit="edge", batch=4)
TO_B = changed(SENT, 0, consumer=B)


def test_per_edge_a_transfer_names_its_op():
    assert_names(plan(sent=TO_B, options=EDGE))
    assert_names(plan(sent=(*TO_B, (0, A, X, Y, 1, 4.5, 6)), options=EDGE), "0 need it")


@pytest.mark.parametrize("consumer", [-1, 2, 10**6])
def test_per_edge_a_transfer_for_no_op_is_wrong_besides_those_needed(consumer):
    sent = (*TO_B, (0, consumer, X, Y, 1, 4.5, 6))
    said = f"a transfer names consumer {consumer}, but each is for one op, from 0 to 1"
    assert_names(plan(sent=sent, options=EDGE), said)


def test_a_transfer_for_no_inputs():
    assert_names(plan(sent=(*SENT, (0, -1, Y, X, 0, 4.5, 5))), "for 0 inputs, 0 need it")


def test_a_transfer_too_short():
    assert_names(plan(sent=changed(SENT, 0, finish=4)), "takes 1.000 s, it needs 1.500 s")


@pytest.mark.parametrize(("contention", "what"), [("link", "on one channel"), ("none", "")])
def test_transfers_overlap_on_a_channel(contention, what):
    placed = ((X, X, X, Y), (X, Y, Y, X))
    batches = (*BATCHES[:2], (B, X, 2, 5, 7), (B, Y, 2, 6, 10))
    options = Options("batch-throughput", contention=contention, batch=4)
    end = 4.5 if contention == "none" else 5.5
    sent = ((0, -1, X, Y, 2, 3, end), (0, -1, Y, X, 1, 3, 4.5))
    assert_names(plan(placed, batches, sent, 10, options=options), *[what] * bool(what))


def test_an_op_without_a_batch_on_a_device_that_has_inputs():
    assert_names(plan(batches=BATCHES[:3], value=5.0), "is missing")


def test_a_batch_without_inputs():
    batches = (*BATCHES[:3], (B, Y, 2, 4.5, 8.5))
    found = verify(plan(placed=((X, X, X, X), (X, X, Y, Y)), batches=batches)).violations
    assert any("has no inputs" in violation for violation in found), found


def test_an_op_with_two_batches_on_one_device():
    found = verify(plan(batches=(*BATCHES, (A, Y, 1, 2, 4)))).violations
    assert any("has two batches on one device" in violation for violation in found), found


def test_weights_count_on_every_device_that_runs_a_batch():
    assert_names(plan(device_memory=[3.0, 2.5]), "device 'y' needs")
    assert_names(plan(device_memory=[3.0, 3.0]))


def test_a_pinned_op_elsewhere():
    assert_names(plan(op_pinned=[X, -1]), "op 'a' is pinned to 'x' but is on 'x' and 'y'")


def test_an_op_on_a_device_that_cannot_run_it():
    assert_names(plan(op_time=[[1, 2], [1, math.inf]]), "op 'b' is on 'y', which cannot run it")


def test_colocated_ops_whose_inputs_part():
    found = verify(plan(colocation=[0, 0])).violations
    assert len(found) == 1
    assert "'a'" in found[0]
    assert "'b'" in found[0]


def test_another_value_than_the_last_finish():
    assert_names(plan(value=8.0), "the value is 8.000 s, the last finish is 8.500 s")


def test_a_lower_bound_above_the_value():
    assert_names(plan(bound=9.0), "the lower bound 9.000 s is not between 0 and the value")


def test_a_placement_without_a_device_per_input():
    judged = plan(placed=((X, X, X), (X, X, Y)))
    assert_names(judged, "is not 2 rows, one per op, of 4 devices, one per input")


def test_a_device_that_does_not_exist():
    assert_names(plan(placed=((X, X, X, 7), (X, X, Y, Y))), "the placement names device 7")


def test_a_time_that_is_no_number():
    assert_names(plan(batches=changed(BATCHES, 3, finish=math.inf)), "negative or not finite")
