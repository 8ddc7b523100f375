"""A stage, call after call: what every rank does, wherever it runs.

A warm-up, then the timed calls, then a few on which the clock is read at every step. All of them
change the state that the program keeps between calls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Protocol

import torch

from placewright.runtime.ranks.channels import Channel, ChannelError, ChannelTimeoutError, OpError
from placewright.runtime.ranks.state import Optimizer, State
from placewright.runtime.stages.code import Call, Send
from placewright.runtime.stages.compiled import Compiled
from placewright.runtime.stages.cutting import Stage
from placewright.runtime.stages.retargeted import stage_on
from placewright.system.accelerators.places import CudaPlace


@dataclass(frozen=True)
class Calls:
    """How often a program is called: a warm-up, `repeats` timed calls, and `clocked` ones.

    Results of every call are kept with `keep_all`, else those of the last timed one. With an
    `optimizer` parameters take a step after each call.
    """

    repeats: int = 5
    clocked: int = 3
    keep_all: bool = False
    optimizer: Optimizer | None = None

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Calls:
        optimizer = document["optimizer"]
        return cls(**{**document, "optimizer": optimizer and Optimizer(**optimizer)})


class Connection(Protocol):
    """How a rank talks to the others."""

    def channel(self) -> Channel:
        """A new one, for one call."""

    def barrier(self) -> None:
        """Until all ranks are here."""


class Heard(Protocol):
    """Is told of each call (`call`, with its times in seconds) and each clocked one (`steps`)."""

    def __call__(self, kind: str, **fields: Any) -> None: ...


class Caller:
    """One rank's stage with its `weights` by name and its `inputs` by placeholder.

    That of a GPU has a `place`, which the thread has entered, and its weights are there.
    """

    def __init__(
        self,
        stage: Stage,
        weights: Mapping[str, Any],
        inputs: Mapping[str, Any],
        optimizer: Optimizer | None = None,
        place: CudaPlace | None = None,
    ) -> None:
        self._place = place
        self._moments = None if place is None else place.moments()
        self._began = 0.0
        if place is not None:
            stage = stage_on(stage, place.device)
            inputs = {name: _moved(inputs[name], place.device) for name in stage.inputs}
        self._stage = stage
        self._inputs = inputs
        own = {name: weights[name] for name in stage.weights.values()}
        # The values that a run was given stay as they are.
        own |= {name: own[name].clone() for name in stage.written}
        self._state = State(own, optimizer)
        self._plain = Compiled(stage.code)
        self._clocked = Compiled(stage.code, now if self._moments is None else self._moments.mark)

    def call(self, channel: Channel, *, clocked: bool = False) -> list[Any]:
        """The values of the stage's ``code.result``, all being done. OpError for an op that fails.

        What fails on a GPU after its call has returned is raised as it is.
        """
        weights = [self._state.weights[name] for name in self._stage.weights.values()]
        inputs = weights + [self._inputs[name] for name in self._stage.inputs]
        function = self._clocked if clocked else self._plain
        if self._moments is not None:
            self._moments.clear()
            self._began = now()  # the GPU has nothing to do, so the first mark passes at once
        try:
            with torch.no_grad():
                results: list[Any] = function(channel, inputs)
            self._settle()
            return results
        except ChannelError:
            raise
        except Exception as error:
            step = function.step_of(error)
            if step is None:
                raise
            if isinstance(step, Call):
                raise OpError(step.name) from error
            moving = "sending" if isinstance(step, Send) else "receiving"
            raise OpError(step.transfer.tensor, moving) from error

    @property
    def ticks(self) -> list[float]:
        """When the last clocked call began, and each of its steps ended."""
        if self._moments is None:
            return list(self._clocked.ticks)
        return list(accumulate(self._moments.intervals(), initial=self._began))

    def keep(self, results: list[Any]) -> list[Any]:
        """Take over what a call gave for the weights; the caller's own results."""
        stage, own = self._stage, len(self._stage.outputs)
        changed = own + len(stage.updates)
        self._state.update(
            dict(zip(stage.updates, results[own:changed], strict=True)),
            dict(zip(stage.gradients, results[changed:], strict=True)),
        )
        self._settle()
        return results[:own]

    def home(self, results: Sequence[Any]) -> list[Any]:
        """The same in memory of the host."""
        if self._place is None:
            return list(results)
        return [_moved(each, torch.device("cpu")) for each in results]

    def _settle(self) -> None:
        if self._place is None:
            return
        try:
            self._place.settle()
        except TimeoutError as error:
            raise ChannelTimeoutError(str(error)) from error


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def run_calls(
    caller: Caller, calls: Calls, connection: Connection, heard: Heard
) -> list[list[Any]]:
    """All calls, all ranks at once; the results that are kept, oldest first."""
    kept: list[list[Any]] = []
    for call in range(1 + calls.repeats):
        results, times = _timed_call(caller, connection)
        started = now()
        results = caller.keep(results)
        heard("call", call=call, **times, updated=now() - started)
        kept = [*kept, results] if calls.keep_all else [results]
    for _ in range(calls.clocked):
        results, times = _timed_call(caller, connection, clocked=True)
        heard("steps", ticks=caller.ticks, **times)
        caller.keep(results)
    return [caller.home(each) for each in kept]


def _timed_call(
    caller: Caller, connection: Connection, *, clocked: bool = False
) -> tuple[list[Any], dict[str, float]]:
    """One call from the barrier to this rank's last step."""
    channel = connection.channel()
    connection.barrier()
    started = now()
    results = caller.call(channel, clocked=clocked)
    finished = now()
    channel.finish()
    return results, {"started": started, "finished": finished, "waited": channel.waited}


def now() -> float:
    """Seconds of one clock for all processes of this machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
