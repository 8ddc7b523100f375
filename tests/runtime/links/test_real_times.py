"""Real transfers between processes, and real copies, are timed."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("psutil")

from placewright.errors import ExecutionError  # noqa: E402
from placewright.runtime.links.copies import copy_times  # noqa: E402
from placewright.runtime.links.ranks import process_times  # noqa: E402
from placewright.runtime.links.threads import thread_times  # noqa: E402
from placewright.runtime.ranks import launch  # noqa: E402

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("temporary")]
SIZES = (2**10, 2**16, 2**22)


def cores(count: int) -> list[tuple[int, ...]]:
    """Those of `count` devices; where there are too few, some share one."""
    there = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return [(there[number % len(there)],) for number in range(count)]


@pytest.mark.parametrize("shared", [True, False])
def test_each_pair_of_processes_is_timed(shared: bool) -> None:
    heard: list[float] = []
    found = process_times(
        cores(3), shared=shared, sizes=SIZES, on_progress=lambda _, done: heard.append(done)
    )
    assert sorted(found) == [(0, 1), (0, 2), (1, 2)]
    for times in found.values():
        assert times.sizes == SIZES
        assert all(seconds > 0 for seconds in times.seconds)
    assert heard == pytest.approx([1 / 3, 2 / 3, 1])


@pytest.mark.parametrize("times", [copy_times, thread_times])
def test_transfers_within_a_process_are_timed_and_it_is_where_it_was(times: Any) -> None:
    before = cores(99)
    found = times(cores(2), sizes=SIZES)
    assert list(found) == [(0, 1)]
    assert found[0, 1].sizes == SIZES
    assert all(seconds > 0 for seconds in found[0, 1].seconds)
    assert cores(99) == before


def test_a_process_that_cannot_start_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; sys.exit('no luck')"
    monkeypatch.setattr(launch, "_BOOT", script)
    with pytest.raises(ExecutionError, match=r"rank \d ended while starting .*no luck"):
        process_times(cores(2), sizes=SIZES)


def test_cores_that_are_not_there_are_named() -> None:
    with pytest.raises(ExecutionError, match="core 4095 is not there"):
        process_times([(0,), (4095,)], sizes=SIZES)
