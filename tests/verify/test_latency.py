"""The judge names what is wrong: a plan that holds, with exactly one thing broken in each test.

The plan, on devices x, y and z (z is idle), with a, b, e on x and c, d on y:

    x:        a 0–1, b 1–3, e 3–4
    x → y:    tensor 0 (of a) 1–3.5, tensor 1 (of b) 3.5–5
    y:        c 3.5–5.5, d 5.5–6.5
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.errors import InfeasibleError, VerificationError
from placewright.options import Options
from placewright.outcome import Schedule, Transfers
from placewright.plan import Placement, Plan
from placewright.problem import Problem
from placewright.solving import solve
from placewright.verify import CHECKS, MAX_SHOWN, verify
from tests.builders import A, B, C, D, E, X, Y, Z
from tests.builders import judged as problem
from tests.strategies import problems


def plan(
    device: tuple[int, ...] = (X, X, Y, Y, X),
    start: tuple[float, ...] = (0, 1, 3.5, 5.5, 3),
    finish: tuple[float, ...] = (1, 3, 5.5, 6.5, 4),
    sent: tuple[tuple[float, ...], ...] = ((0, -1, X, Y, 1, 3.5), (1, -1, X, Y, 3.5, 5)),
    value: float = 6.5,
    bound: float = 5.0,
    options: Options | None = None,
    **changes: object,
) -> Plan:
    """The plan above; `sent` has a row (tensor, consumer, source, target, start, finish) each."""
    if options is not None:
        changes["options"] = options
    return Plan(
        problem(**changes),
        Placement(device),
        Schedule(start, finish, Transfers(*zip(*sent, strict=True)) if sent else NO_TRANSFERS),
        value,
        bound,
        "by hand",
        "by hand",
    )


NO_TRANSFERS = Transfers(*([],) * 6)
FIRST, SECOND = (0, -1, X, Y, 1, 3.5), (1, -1, X, Y, 3.5, 5)
FREE = Options(contention="none")


def assert_names(judged: Plan, *violations: str) -> None:
    """Each of `violations` is in one of the judge's sentences, and it has no other sentence."""
    found = verify(judged).violations
    assert len(found) == len(violations), found
    for sentence in violations:
        assert any(sentence in violation for violation in found), found


# -- plans that hold -----------------------------------------------------------------------------


def test_the_plan_holds():
    report = verify(plan())
    assert (report.ok, report.violations) == (True, ())
    assert (report.value, report.device_memory) == (6.5, (3, 2, 0))
    assert report.checks == CHECKS
    report.raise_if_failed()


@pytest.mark.parametrize("contention", ["none", "port", "link"])
def test_the_plan_holds_whatever_contends(contention):
    assert_names(plan(options=Options(contention=contention)))


def test_waiting_is_allowed():
    assert_names(plan(finish=(1, 3, 5.5, 9, 4), start=(0, 1, 3.5, 8, 3), value=9.0))


def test_rounding_is_allowed():
    finish = (1 + 1e-12, 3, 5.5, 6.5, 4)
    assert_names(plan(finish=finish, value=6.5 - 1e-12, bound=6.5 + 1e-12))


def test_more_than_rounding_is_not_allowed():
    assert_names(plan(value=6.5 + 1e-7), "the value is 6.500 s, the last op ends at 6.500 s")


def test_ops_of_no_length_may_stand_at_the_ends_of_others():
    times = [[1, 2, 2], [2, 2, 2], [3, 2, 2], [1, 1, 1], [0, 0, 0]]
    for at in (0, 1, 3, 100):
        start, finish = (0, 1, 3.5, 5.5, at), (1, 3, 5.5, 6.5, at)
        assert_names(plan(start=start, finish=finish, value=max(6.5, at), op_time=times))


@pytest.mark.parametrize("end", [1, 3])
@pytest.mark.parametrize("by", [-1e-12, 1e-12])
def test_an_op_of_no_length_may_stand_at_the_end_of_another_but_for_rounding(end, by):
    """b is on x from 1 to 3."""
    times = [[1, 2, 2], [2, 2, 2], [3, 2, 2], [1, 1, 1], [0, 0, 0]]
    at = end + by
    assert_names(plan(start=(0, 1, 3.5, 5.5, at), finish=(1, 3, 5.5, 6.5, at), op_time=times))


# -- the placement -------------------------------------------------------------------------------


def test_an_op_on_a_device_that_cannot_run_it():
    times = np.array(problem().op_time)
    times[E, X] = math.inf
    assert_names(
        plan(op_time=times),
        "op 'e' is on 'x', which cannot run it",
        "op 'e' takes 1.000 s on 'x', which needs inf",
    )


def test_an_op_that_is_not_where_it_is_pinned():
    assert_names(plan(op_pinned=[-1, -1, -1, -1, Z]), "op 'e' is pinned to 'z' but is on 'x'")


def test_colocated_ops_apart():
    apart = plan(colocation=[-1, 0, 0, -1, -1])
    assert_names(apart, "ops 'b' and 'c' must be together but are on 'x' and 'y'")


def test_an_op_moved_to_another_device():
    moved = plan(device=(X, Y, Y, Y, X))
    assert_names(
        moved,
        "op 'b' starts at 1.000 s, before its input from 'a' is there (3.500 s)",
        "tensor 1 is sent from 'x', where it is not",
        "1 transfers serve no op",
    )


def test_an_op_moved_to_where_its_input_never_comes():
    moved = plan(device=(X, Z, Y, Y, X))
    found = verify(moved).violations
    assert "op 'b' on 'z' needs a tensor of 'a' on 'x', which is never sent" in found


# -- memory --------------------------------------------------------------------------------------


def test_ops_that_need_more_than_their_device_has():
    assert_names(plan(device_memory=[3, 2, 0]))
    assert_names(plan(device_memory=[2.5, 2, 0]), "device 'x' needs 3 B and has 2 B")


def test_the_peak_counts_tensors_while_they_live():
    """x keeps a, b, e; tensor 0 lives there 0–3.5, tensor 1 1–5, so 3 + 2 + 1 at most.

    y keeps c, d; tensor 0 lives there 1–5.5, tensor 1 3.5–6.5, tensor 2 3.5–6.5.
    """
    peak = Options(memory="peak")
    assert verify(plan(options=peak)).device_memory == (6, 6, 0)
    assert_names(plan(options=peak, device_memory=[6, 6, 0]))
    for memory, name in (([5.9, 6, 0], "x"), ([6, 5.9, 0], "y")):
        broken = plan(options=peak, device_memory=memory)
        assert_names(broken, f"device '{name}' needs 6 B and has 6 B")


def test_a_tensor_lives_where_it_was_made_until_it_is_sent():
    """e (3–4) makes one of 4 B on x, where tensor 0 is kept till 3.5 by its transfer alone."""
    of_e = {
        "tensor_producer": [A, B, C, E], "tensor_bytes": [2, 1, 1, 4],
        "consumer_offsets": [0, 2, 3, 4, 4],
    }  # fmt: skip
    assert verify(plan(options=Options(memory="peak"), **of_e)).device_memory[X] == 3 + 2 + 1 + 4


def test_resident_memory_does_not_count_tensors():
    assert_names(plan(device_memory=[3, 2, 0], options=Options(memory="resident")))


def test_a_tensor_that_ends_makes_room_for_one_that_begins():
    """All on z: tensor 0 (2 B) ends with c at 6, when d starts on one of 2 B of its own."""
    alone = {
        "device": (Z,) * 5, "start": (0, 2, 4, 6, 7), "finish": (2, 4, 6, 7, 8), "sent": (),
        "value": 8.0, "op_pinned": [-1] * 5, "options": Options(memory="peak"),
    }  # fmt: skip
    of_d = {
        "tensor_producer": [A, B, C, D], "tensor_bytes": [2, 1, 1, 2],
        "consumer_offsets": [0, 2, 3, 4, 4],
    }  # fmt: skip
    assert verify(plan(**alone)).device_memory == (0, 0, 5 + 2 + 1 + 1)
    assert verify(plan(**alone, **of_d)).device_memory == (0, 0, 5 + 2 + 1 + 1)


# -- times of ops --------------------------------------------------------------------------------


def test_an_op_started_before_its_input_is_there():
    early = plan(start=(0, 1, 3, 5.5, 3), finish=(1, 3, 5, 6.5, 4))
    assert_names(
        early, "op 'c' starts at 3.000 s, before its input from 'a' is there (3.500 s)"
    )  # fmt: skip


def test_an_op_started_before_a_local_input_is_made():
    early = plan(
        start=(0, 1, 3.5, 5, 3), finish=(1, 3, 5.5, 6, 4), value=6.0, op_time=[
            [1, 2, 2], [2, 2, 2], [3, 2, 2], [1, 1, 1], [1, 1, 1]])  # fmt: skip
    assert_names(
        early,
        "op 'd' starts at 5.000 s, before its input from 'c' is there (5.500 s)",
        "ops 'c' and 'd' run at once on 'y'",
    )


@pytest.mark.parametrize("finish", [3.25, 5.0])
def test_an_op_of_the_wrong_length(finish):
    wrong = plan(finish=(1, 3, 5.5, 6.5, finish))
    assert_names(wrong, "op 'e' takes ")


def test_ops_that_run_at_once():
    at_once = plan(start=(0, 1, 3.5, 5.5, 2.5), finish=(1, 3, 5.5, 6.5, 3.5))
    assert_names(at_once, "ops 'b' and 'e' run at once on 'x'")


def test_ops_that_run_at_exactly_the_same_time():
    at_once = plan(start=(0, 1, 3.5, 5.5, 0), finish=(1, 3, 5.5, 6.5, 1))
    assert_names(at_once, "ops 'a' and 'e' run at once on 'x'")


def test_an_op_of_no_length_strictly_inside_another():
    times = [[1, 2, 2], [2, 2, 2], [3, 2, 2], [1, 1, 1], [0, 0, 0]]
    inside = plan(start=(0, 1, 3.5, 5.5, 2), finish=(1, 3, 5.5, 6.5, 2), op_time=times)
    assert_names(inside, "ops 'b' and 'e' run at once on 'x'")


def test_a_short_op_does_not_hide_a_long_one_from_the_next():
    """e on y from 3 to 12 covers c (3.5–5.5) and d (5.5–6.5), which follows c."""
    times = [[1, 2, 2], [2, 2, 2], [3, 2, 2], [1, 1, 1], [9, 9, 9]]
    covering = plan(
        device=(X, X, Y, Y, Y), finish=(1, 3, 5.5, 6.5, 12), value=12.0, op_time=times
    )  # fmt: skip
    assert_names(
        covering, "ops 'e' and 'c' run at once on 'y'", "ops 'e' and 'd' run at once on 'y'"
    )  # fmt: skip


# -- transfers -----------------------------------------------------------------------------------


def test_a_transfer_that_is_missing():
    assert_names(
        plan(sent=(FIRST,)),
        "op 'd' on 'y' needs a tensor of 'b' on 'x', which is never sent",
    )
    assert verify(plan(sent=())).violations[0].startswith("op 'c' on 'y' needs a tensor of 'a'")


@pytest.mark.parametrize("finish", [3.25, 3.0])
def test_a_transfer_too_short_for_its_route(finish):
    assert_names(
        plan(sent=((0, -1, X, Y, 1, finish), SECOND)),
        "the transfer of tensor 0 from 'x' to 'y' takes",
    )


def test_a_transfer_too_long_for_its_route():
    long = plan(sent=(FIRST, (1, -1, X, Y, 3.5, 5.25)))
    assert_names(long, "tensor 1 from 'x' to 'y' takes 1.750 s, the route needs 1.500 s")


def test_transfers_that_overlap_on_a_channel():
    overlapping = (FIRST, (1, -1, X, Y, 3, 4.5))
    assert_names(
        plan(sent=overlapping),
        "transfers of tensor 0 from 'x' to 'y' and of tensor 1 from 'x' to 'y' overlap on one "
        "channel",
    )
    assert_names(plan(sent=overlapping, options=FREE))


def test_transfers_that_overlap_on_ports():
    overlapping = (FIRST, (1, -1, X, Y, 3, 4.5))
    port = plan(sent=overlapping, options=Options(contention="port"))
    assert_names(port, "overlap on one outgoing port", "overlap on one incoming port")


def fan_out(second: tuple[float, ...], **changes: object) -> Plan:
    """a sends tensor 0 to c on y and, as `second`, to b on z, which sends nothing on."""
    return plan(
        device=(X, Z, Y, Y, X),
        start=(0, 6, 3.5, 5.5, 3),
        finish=(1, 8, 5.5, 6.5, 4),
        sent=(FIRST, second),
        value=8.0,
        consumer_offsets=[0, 2, 2, 3],
        consumers=[B, C, D],
        **changes,
    )


def test_transfers_of_one_device_share_its_port_but_not_the_channels_of_apart_routes():
    at_once, one_by_one = (0, -1, X, Z, 1, 3.5), (0, -1, X, Z, 3.5, 6)
    port = Options(contention="port")
    assert_names(fan_out(at_once))
    assert_names(fan_out(at_once, options=port), "overlap on one outgoing port")
    assert_names(fan_out(one_by_one, options=port))


def test_routes_that_share_a_channel_contend():
    offsets = [0, 0, 1, 2, 2, 2, 2, 2, 2, 2]
    shared = {"channel_offsets": offsets, "channels": [0, 0]}
    assert_names(fan_out((0, -1, X, Z, 1, 3.5), **shared), "overlap on one channel")


def test_a_transfer_does_not_contend_with_itself_where_a_route_names_a_channel_twice():
    offsets = [0, 0, 2, 3, 4, 4, 5, 6, 7, 7]
    assert_names(plan(channel_offsets=offsets, channels=[0, 0, 1, 2, 3, 4, 5]))


def test_a_transfer_sent_from_where_the_tensor_is_not():
    wrong = plan(sent=((0, -1, Z, Y, 1, 3.5), SECOND))
    assert_names(wrong, "tensor 0 is sent from 'z', where it is not")


def test_a_transfer_sent_before_its_tensor_is_made():
    early = plan(sent=(FIRST, (1, -1, X, Y, 2.5, 4)), options=FREE)
    assert_names(early, "tensor 1 is sent before 'b' has produced it")


def test_a_transfer_that_no_op_needs():
    extra = (FIRST, SECOND, (0, -1, X, Z, 1, 3.5))
    assert_names(plan(sent=extra), "1 transfers serve no op")


def test_a_tensor_sent_twice():
    twice = (FIRST, SECOND, (0, -1, X, Y, 5, 7.5))
    found = verify(plan(sent=twice, options=FREE)).violations
    assert "tensor 0 is sent twice to 'y'" in found


def test_a_transfer_from_a_device_to_itself():
    found = verify(plan(sent=(FIRST, SECOND, (0, -1, X, X, 1, 1)))).violations
    assert "the transfer of tensor 0 from 'x' to 'x' goes nowhere" in found


# -- transfers per edge --------------------------------------------------------------------------

EDGE = Options(transfer_unit="edge", contention="none")
# b is on y too: a sends its tensor to b and to c.
PER_EDGE = {
    "device": (X, Y, Y, Y, X), "start": (0, 3.5, 5.5, 7.5, 3), "finish": (1, 5.5, 7.5, 8.5, 4),
    "value": 8.5, "options": EDGE,
}  # fmt: skip
TO_B, TO_C = (0, B, X, Y, 1, 3.5), (0, C, X, Y, 1, 3.5)


def test_per_edge_a_tensor_is_sent_once_for_each_consumer():
    assert_names(plan(sent=(TO_B, TO_C), **PER_EDGE))
    assert_names(
        plan(sent=(TO_B,), **PER_EDGE),
        "op 'c' on 'y' needs a tensor of 'a' on 'x', which is never sent",
    )


def test_per_edge_an_op_waits_for_its_own_transfer():
    late = (0, B, X, Y, 2, 4.5)
    assert_names(
        plan(sent=(late, TO_C), **PER_EDGE),
        "op 'b' starts at 3.500 s, before its input from 'a' is there (4.500 s)",
    )


def test_per_edge_a_transfer_for_an_op_that_does_not_read_the_tensor():
    assert_names(plan(sent=(TO_B, TO_C, (0, D, X, Y, 1, 3.5)), **PER_EDGE), "1 transfers serve no")


@pytest.mark.parametrize("consumer", [-1, 5, 10**6])
def test_per_edge_a_transfer_names_its_op(consumer):
    """Also under peak memory, which looks at the op."""
    options = Options(transfer_unit="edge", contention="none", memory="peak")
    wrong = plan(sent=(TO_B, TO_C, (0, consumer, X, Y, 1, 3.5)), **PER_EDGE | {"options": options})
    assert_names(wrong, f"a transfer names consumer {consumer}, but each is for one op")


def test_per_tensor_a_transfer_names_no_op():
    wrong = plan(sent=((0, C, X, Y, 1, 3.5), SECOND))
    assert_names(wrong, f"a transfer names consumer {C}, but each is for all consumers")


# -- claims --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 6.0, 7.0, math.inf, math.nan])
def test_a_value_that_is_not_the_last_finish(value):
    assert_names(plan(value=value), "the value is")


@pytest.mark.parametrize("bound", [6.6, math.inf, math.nan, -1.0])
def test_a_bound_that_cannot_be_one(bound):
    assert_names(plan(bound=bound), "the lower bound")


# -- shapes --------------------------------------------------------------------------------------

BROKEN_SHAPES = [
    ({"device": (X, X)}, "placement has 2 entries for 5 ops"),
    ({"start": (0.0,)}, "op_start has 1 entries for 5 ops"),
    ({"finish": (0.0,) * 6}, "op_finish has 6 entries for 5 ops"),
    ({"device": (X, X, Y, Y, 3)}, "the placement names device 3, but devices go from 0 to 2"),
    ({"device": (X, X, Y, Y, -1)}, "the placement names device -1"),
    ({"sent": ((3, -1, X, Y, 1, 3.5),)}, "a transfer names tensor 3, but they go from 0 to 2"),
    ({"sent": ((-1, -1, X, Y, 1, 3.5),)}, "a transfer names tensor -1"),
    ({"sent": ((0, -1, 3, Y, 1, 3.5),)}, "a transfer names source 3"),
    ({"sent": ((0, -1, X, -1, 1, 3.5),)}, "a transfer names target -1"),
    ({"start": (0, 1, 3.5, math.nan, 3)}, "a time of op start is negative or not finite"),
    ({"finish": (1, 3, 5.5, math.inf, 4)}, "a time of op finish is negative or not finite"),
    ({"start": (-1, 1, 3.5, 5.5, 3)}, "a time of op start is negative or not finite"),
    ({"sent": ((0, -1, X, Y, -1, 1.5),)}, "a time of transfer start is negative"),
    ({"sent": ((0, -1, X, Y, 1, math.nan),)}, "a time of transfer finish is negative"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN_SHAPES, ids=[m for _, m in BROKEN_SHAPES])
def test_what_refers_to_nothing_is_said_before_anything_is_judged(broken, message):
    report = verify(plan(**broken))
    assert len(report.violations) == 1
    assert report.violations[0].startswith(message)
    assert (math.isnan(report.value), report.device_memory) == (True, ())


# -- the report ----------------------------------------------------------------------------------


def test_a_wrong_plan_raises_its_first_violation_and_counts_the_others():
    report = verify(plan(sent=(), value=0.0))
    with pytest.raises(VerificationError) as caught:
        report.raise_if_failed()
    message = str(caught.value)
    assert message.startswith(f"the plan is wrong: {report.violations[0]}")
    assert message.endswith(f"(and {len(report.violations) - 1} more)")


def test_only_so_many_violations_are_shown():
    count = 3 * MAX_SHOWN
    many = Problem(
        **{
            **{name: getattr(problem(), name) for name in (
                "name", "device_names", "device_kinds", "device_memory", "link_latency",
                "link_seconds_per_byte", "channel_offsets", "channels", "channel_names")},
            "op_names": tuple(f"op{k}" for k in range(count)),
            "op_types": ("op",) * count, "op_modules": ("",) * count,
            "op_time": np.ones((count, 3)), "op_memory": np.zeros(count),
            "is_backward": np.zeros(count), "forward_twin": np.full(count, -1),
            "colocation": np.full(count, -1), "op_pinned": np.full(count, -1),
            "tensor_producer": [], "tensor_bytes": [], "consumer_offsets": [0], "consumers": [],
        }
    )  # fmt: skip
    zeros, ones = np.zeros(count), np.ones(count)
    all_at_once = Plan(
        many, Placement(zeros), Schedule(zeros, ones, NO_TRANSFERS), 1.0, 1.0, "", ""
    )
    assert len(verify(all_at_once).violations) == MAX_SHOWN


# -- on random plans -----------------------------------------------------------------------------


@given(problems(max_ops=8), st.data())
def test_no_op_of_a_plan_can_take_no_time_if_it_needs_some(random, data):
    """Cutting any op that takes time to nothing is always found, whatever the problem."""
    try:
        good = solve(random, "m-topo")
    except InfeasibleError:
        assume(False)
    start, finish = good.schedule.op_start, good.schedule.op_finish
    op = data.draw(st.integers(0, random.op_count - 1))
    assume(finish[op] > start[op])
    cut = finish.copy()
    cut[op] = start[op]
    wrong = replace(good, outcome=Schedule(start, cut, good.schedule.transfers))
    assert any(f"op '{random.op_names[op]}' takes" in each for each in verify(wrong).violations)


@given(problems(max_ops=8, memory=False), st.data())
def test_no_transfer_of_a_plan_can_be_left_out(random, data):
    try:
        good = solve(random, "m-topo")
    except InfeasibleError:
        assume(False)
    sent = good.schedule.transfers
    assume(len(sent) > 0)
    gone = data.draw(st.integers(0, len(sent) - 1))
    rest = Transfers(*(np.delete(getattr(sent, name), gone) for name in vars(sent)))
    wrong = replace(good, outcome=replace(good.schedule, transfers=rest))
    assert any("which is never sent" in each for each in verify(wrong).violations)
