"""Transfers between two ranks, made as the stages of a run make them, and timed.

A tensor goes there and back; a transfer takes half of that, so one clock is enough, on whatever
host the other rank is. Both ends post a receive before they send, as stages do. Each transfer is a
call of its own, with a channel that `opened` gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from placewright.costs.profiles.reference import torch_reference
from placewright.costs.profiles.steady import COMPUTING, COPYING, Readings, Watch
from placewright.runtime.links.pace import SIZES, Times, measured_times
from placewright.runtime.ranks.channels import Channel
from placewright.runtime.ranks.joining import channel_errors
from placewright.runtime.stages.code import Transfer

THERE, BACK, HEADER = 1, 2, 3  # tags

PATIENCE_SECONDS = 600.0  # for one message
Opened = Callable[[], Channel]


def lead(rank: int, other: int, opened: Opened, sizes: Sequence[int] = SIZES) -> Times:
    """The times of transfers between `rank`, this one, and `other`, which must `follow`."""
    own = torch_reference()

    def read() -> Readings:
        """Both ends, one after the other: a transfer waits for the slower."""
        _tell(other, 0, 1)
        return (*own(), *_readings(other))

    watch = Watch(read, 2 * (COMPUTING, COPYING))
    found = measured_times(
        lambda size, count: _there_and_back(rank, other, opened, size, count), watch, sizes
    )
    _tell(other, 0, 0)
    return found


def follow(rank: int, leader: int, opened: Opened) -> None:
    """Send back whatever the `leader` sends, until it says that it is done.

    For no bytes at all it sends how fast this end is.
    """
    reference = torch_reference()
    while True:
        size, count = _told(leader)
        if not count:
            return
        if not size:
            with channel_errors():
                readings = torch.tensor(reference(), dtype=torch.float64)
                torch.distributed.send(readings, leader, tag=HEADER)
            continue
        there, back = _transfers(leader, rank, size)
        channel = opened()
        posted = channel.post(there)
        for done in range(count):
            value = channel.wait(posted)
            answering = channel
            if done + 1 < count:
                channel = opened()
                posted = channel.post(there)
            answering.send(back, value)
            answering.finish()


def _there_and_back(rank: int, other: int, opened: Opened, size: int, count: int) -> list[float]:
    _tell(other, size, count)
    there, back = _transfers(rank, other, size)
    value = torch.zeros(size, dtype=torch.uint8)
    seconds = []
    for _ in range(count):
        channel = opened()
        posted = channel.post(back)
        started = time.perf_counter()
        channel.send(there, value)
        value = channel.wait(posted)
        seconds.append((time.perf_counter() - started) / 2)
        channel.finish()
    return seconds


def _transfers(leader: int, other: int, size: int) -> tuple[Transfer, Transfer]:
    def between(tag: int, source: int, target: int) -> Transfer:
        return Transfer(tag, "measured", source, target, (size,), (1,), "uint8", 1)

    return between(THERE, leader, other), between(BACK, other, leader)


def _tell(other: int, size: int, count: int) -> None:
    with channel_errors():
        torch.distributed.send(torch.tensor([size, count]), other, tag=HEADER)


def _told(leader: int) -> tuple[int, int]:
    header: Tensor = torch.zeros(2, dtype=torch.int64)
    with channel_errors():
        torch.distributed.recv(header, leader, tag=HEADER)
    size, count = header.tolist()
    return size, count


def _readings(other: int) -> Readings:
    found = torch.zeros(2, dtype=torch.float64)
    with channel_errors():
        torch.distributed.recv(found, other, tag=HEADER)
    return tuple(found.tolist())
