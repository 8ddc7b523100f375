"""Stages run by threads of this process: the code of a run over many processes, without them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from placewright.runtime.ranks.calls import Caller
from placewright.runtime.ranks.channels import Channel, ChannelError
from placewright.runtime.reference import gather
from placewright.runtime.stages.code import Transfer
from placewright.runtime.stages.cutting import Stage
from placewright.runtime.stages.layout import pack, unpack
from placewright.runtime.values import Values


def run_stages(stages: Sequence[Stage], values: Values, timeout: float = 60.0) -> list[Any]:
    """The program's flat outputs, each stage being run by a thread of this process.

    The code that runs is that of a run over many processes; only the messages stay in memory.
    """
    exchange = Exchange(timeout)
    results: dict[int, list[Any]] = {}
    errors: list[Exception] = []

    def run(stage: Stage, channel: Channel) -> None:
        try:
            weights = values.weights.load(set(stage.weights.values()))
            results[stage.rank] = Caller(stage, weights, values.inputs).call(channel)
        except Exception as error:
            errors.append(error)
            exchange.abandon()

    threads = [
        threading.Thread(target=run, args=(stage, channel), daemon=True)
        for stage, channel in zip(stages, exchange.channels(len(stages)), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((each for each in errors if not isinstance(each, ChannelError)), errors[0])
    return gather(stages, [results[each.rank][: len(each.outputs)] for each in stages])


class Exchange:
    """Channels between ranks that are threads of one process; packs and unpacks as gloo does."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._arrived: dict[int, Tensor] = {}
        self._changed = threading.Condition()
        self._broken = False

    def channels(self, ranks: int) -> Sequence[ThreadChannel]:
        return [ThreadChannel(self) for _ in range(ranks)]

    def put(self, transfer: Transfer, flat: Tensor) -> None:
        with self._changed:
            self._arrived[transfer.tag] = flat
            self._changed.notify_all()

    def take(self, transfer: Transfer) -> Tensor:
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._broken or transfer.tag in self._arrived, self.timeout
            )
            if self._broken:
                raise ChannelError("another rank failed")
            if not there:
                raise ChannelError(
                    f"rank {transfer.target} waited {self.timeout:g} s for '{transfer.tensor}' "
                    f"from rank {transfer.source}; give a longer timeout if the model is slow"
                )
            return self._arrived.pop(transfer.tag)

    def abandon(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()


class ThreadChannel:
    """One rank's end of an `Exchange`."""

    def __init__(self, exchange: Exchange) -> None:
        self.waited = 0.0
        self._exchange = exchange

    def post(self, transfer: Transfer) -> Transfer:
        return transfer

    def wait(self, posted: Transfer) -> Tensor:
        started = time.perf_counter()
        flat = self._exchange.take(posted)
        self.waited += time.perf_counter() - started
        return unpack(posted, flat)

    def send(self, transfer: Transfer, value: Tensor) -> None:
        # A copy, as a message is: the receiver's tensor shares no memory with the sender's.
        self._exchange.put(transfer, pack(transfer, value).clone())
