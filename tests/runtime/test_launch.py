"""Starting and hearing from ranks, with little scripts in place of the real worker."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from placewright.errors import ExecutionError
from placewright.runtime.ranks import launch
from placewright.runtime.ranks.job import Event
from placewright.runtime.ranks.launch import Ranks

pytestmark = pytest.mark.timeout(60)

PREFACE = """
import json, os, sys, time
_, _, folder, rank, pipe, parent = sys.argv
rank = int(rank)
def report(event, **fields):
    os.write(int(pipe), (json.dumps({"event": event, **fields}) + chr(10)).encode())
"""


def hear(
    script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, timeout: float = 20.0
) -> list[tuple[int, Event]]:
    """All that two ranks running `script` report."""
    monkeypatch.setattr(launch, "_BOOT", PREFACE + textwrap.dedent(script))
    with Ranks(folder, {"threads": [1, 1]}) as ranks:
        return list(ranks.events(timeout))


def complaint(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: float) -> str:
    with pytest.raises(ExecutionError) as caught:
        hear(script, folder, monkeypatch, **options)
    return str(caught.value)


def test_events_come_with_their_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = hear("report('hello', answer=rank * 2); report('done')", tmp_path, monkeypatch)
    hello = sorted((rank, event["answer"]) for rank, event in events if event["event"] == "hello")
    assert hello == [(0, 0), (1, 2)]


def test_a_rank_that_is_done_early_may_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "time.sleep(rank); report('late', rank=rank); report('done')"
    events = hear(script, tmp_path, monkeypatch)
    assert [rank for rank, event in events if event["event"] == "late"] == [0, 1]


def test_the_rank_that_failed_is_blamed_and_not_the_one_that_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
        if rank == 1:
            report("error", kind="channel", type="ChannelError", message="closed", where=None)
        else:
            time.sleep(0.3)
            report("error", kind="own", type="ValueError", message="no luck", where="op 'add'")
    """
    told = complaint(script, tmp_path, monkeypatch)
    assert told == "rank 0 failed in op 'add': ValueError: no luck"


def test_a_rank_that_only_lost_its_connection_is_told_where_no_other_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
        if rank == 1:
            report("error", kind="channel", type="ChannelError", message="closed", where=None)
        time.sleep(30)
    """
    started = time.monotonic()
    told = complaint(script, tmp_path, monkeypatch)
    assert told == "rank 1 lost another rank while starting (closed)"
    assert time.monotonic() - started < 25


def test_a_rank_that_ends_without_a_word_is_told_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
        report("x", doing="loading its weights")
        if rank == 1:
            sys.exit("no such thing")
        time.sleep(30)
    """
    told = complaint(script, tmp_path, monkeypatch)
    assert told == "rank 1 ended while loading its weights (exit code 1): no such thing"


def test_a_silent_rank_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
        if rank == 0:
            report("done")
        time.sleep(30)
    """
    told = complaint(script, tmp_path, monkeypatch, timeout=1.0)
    assert told.startswith("rank 1 is stuck starting: no rank reported anything for 1 s")


def test_a_rank_ends_when_the_block_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_BOOT", PREFACE + "time.sleep(30)")
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Ranks(tmp_path, {"threads": [1, 1]}) as ranks:
        raise KeyboardInterrupt
    assert all(process.returncode == -9 for process in ranks._processes)
    assert time.monotonic() - started < 25
