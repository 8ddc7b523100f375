"""Links are corrected by the messages of a run: by a line where they allow one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.plan import Plan
from placewright.runtime.ranks.segments import transport
from placewright.runtime.results import StepTime
from placewright.runtime.tuning.comparison import Message
from placewright.runtime.tuning.link_correction import LinkCorrection, corrected, link_corrections
from placewright.solving import solve
from tests.runtime.test_comparison import two_devices

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Between x and y: a latency of 1 ms, and 1 GB/s."""
    apart = [[0.0, 1.0], [1.0, 0.0]]
    return solve(
        two_devices(
            link_latency=[[1e-3 * each for each in row] for row in apart],
            link_seconds_per_byte=[[1e-9 * each for each in row] for row in apart],
        ),
        "heft",
    )


def message(size: int, seconds: float, *, back: bool = False, waited: bool = True) -> Message:
    ends = (1, 0) if back else (0, 1)
    send = StepTime(ends[0], "send", "a", 1.0, 1.0, ends[1], size)
    wait = StepTime(ends[1], "wait", "a", 0.0 if waited else 1.0 + seconds / 2, 1.0 + seconds,
                    ends[0], size)  # fmt: skip
    return Message(0, *ends, send, wait)


def on_a_line(latency: float, bandwidth: float, sizes: list[int]) -> list[Message]:
    return [
        message(size, latency + size / bandwidth, back=bool(number % 2))
        for number, size in enumerate(sizes)
    ]


def only(plan: Plan, messages: list[Message]) -> LinkCorrection:
    (found,) = link_corrections(plan, messages)
    return found


def test_a_line_goes_through_enough_messages_of_both_directions(plan: Plan) -> None:
    found = only(plan, on_a_line(5e-5, 2e9, [KIB, 4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB]))
    assert found.latency == pytest.approx(5e-5, rel=0.05)
    assert found.bandwidth == pytest.approx(2e9, rel=0.05)
    assert found.fit is not None and found.fit.largest_error < 0.05
    assert (found.a, found.b, found.messages) == ("x", "y", 6)
    assert (found.latency_before, found.bandwidth_before) == (1e-3, pytest.approx(1e9))


def test_of_small_messages_alone_the_latency_is_corrected(plan: Plan) -> None:
    found = only(plan, on_a_line(3e-3, 5e8, [KIB, KIB, 2 * KIB]))
    assert found.latency == pytest.approx(3e-3, rel=0.01)
    assert (found.bandwidth, found.fit) == (pytest.approx(1e9), None)


def test_of_large_messages_alone_the_bandwidth_is_corrected(plan: Plan) -> None:
    found = only(plan, on_a_line(1e-3, 5e8, [16 * MIB, 17 * MIB, 18 * MIB]))
    assert (found.latency, found.fit) == (1e-3, None)
    assert found.bandwidth == pytest.approx(5e8)


def test_sizes_that_are_too_alike_make_no_line(plan: Plan) -> None:
    found = only(plan, on_a_line(1e-3, 5e8, [4 * MIB + k for k in range(10)]))
    assert (found.fit, found.messages) == (None, 10)


def test_both_figures_shrink_where_one_alone_takes_longer_than_was_measured(plan: Plan) -> None:
    found = only(plan, [message(1_250_000, 9e-4)] * 2)  # a latency of 1 ms is more than that
    assert found.latency == pytest.approx(1e-3 * 9e-4 / 2.25e-3)
    assert found.bandwidth == pytest.approx(1e9 / (9e-4 / 2.25e-3))


def test_messages_that_nobody_waited_for_teach_nothing(plan: Plan) -> None:
    assert link_corrections(plan, [message(KIB, 1.0, waited=False)]) == ()
    assert link_corrections(plan, []) == ()


def test_a_shared_memory_gets_the_latency_that_was_seen(plan: Plan) -> None:
    shared = two_devices(link_latency=[[0, 0], [0, 0]], link_seconds_per_byte=[[0, 0], [0, 0]])
    found = only(replace(plan, problem=shared), [message(KIB, 1e-4)])
    assert (found.latency, found.bandwidth) == (pytest.approx(1e-4), float("inf"))


# -- clusters ----------------------------------------------------------------------------------

LINK = Link("x", "y", 1e9, 2e9, 1e-3, "half", "memory")
OTHER = Link("y", "z", 7e9)


def cluster(*links: Link) -> Cluster:
    devices = tuple(Device(name, "T4") for name in "xyz")
    return Cluster("box", devices, links, switches=("switch",))


def test_the_link_of_the_pair_takes_the_figures_and_keeps_its_channel(plan: Plan) -> None:
    found = only(plan, on_a_line(5e-5, 2e9, [KIB, 4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB]))
    after = corrected(cluster(LINK, OTHER), [found])
    link, other = after.links
    assert (link.latency, link.bandwidth) == (found.latency, found.bandwidth)
    assert (link.reverse_bandwidth, link.duplex, link.channel) == (None, "half", "memory")
    assert link.measured is not None and link.measured.transport == transport()
    assert (other, after.routing) == (OTHER, "direct")


def test_a_pair_without_a_link_of_its_own_stays_as_it_is(plan: Plan) -> None:
    found = only(plan, [message(KIB, 1.0)])
    switched = cluster(Link("x", "switch", 1e9), Link("switch", "y", 1e9), OTHER)
    assert corrected(switched, [found]) is switched
    twice = cluster(LINK, LINK, OTHER)
    assert corrected(twice, [found]) is twice
