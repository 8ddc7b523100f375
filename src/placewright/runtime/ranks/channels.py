"""How ranks talk: what the function of a stage sends and receives by, and gloo."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from placewright.runtime.stages.code import Transfer
from placewright.runtime.stages.layout import empty, pack, unpack


class Channel(Protocol):
    """What a stage's function is given to talk to the other ranks."""

    @property
    def waited(self) -> float:
        """Seconds spent in `wait` so far."""

    def post(self, transfer: Transfer) -> Any:
        """Make room for the tensor; what it returns goes to `wait`."""

    def wait(self, posted: Any) -> Tensor:
        """The tensor, once it is here."""

    def send(self, transfer: Transfer, value: Tensor) -> None:
        """Start sending; the value must not be written to any more."""

    def finish(self) -> None:
        """Until everything sent has left; only then may its memory go."""


class ChannelError(Exception):
    """The other end is gone. Never the cause of a failed run, so told apart from others."""


class ChannelTimeoutError(ChannelError):
    """The other end has neither sent nor taken anything for too long."""


class OpError(Exception):
    """A step raised its `__cause__`; `where` is ``op 'NAME'``, or what moves its output."""

    def __init__(self, op: str, moving: str = "") -> None:
        super().__init__(op)
        self.where = f"{moving} the output of op '{op}'" if moving else f"op '{op}'"


def waiting_for(transfer: Transfer) -> str:
    """What a rank has done, in an error."""
    return f"has waited for the output of op '{transfer.tensor}' from rank {transfer.source}"


# -- gloo ------------------------------------------------------------------------------------


class GlooChannel:
    """Point-to-point messages of torch.distributed's default process group.

    Nothing is waited for longer than `timeout` seconds. Tensors arrive in the `room` made for each.
    """

    def __init__(self, timeout: float, room: Callable[[Transfer], Tensor] = empty) -> None:
        self.waited = 0.0
        self._room = room
        self._timeout = datetime.timedelta(seconds=timeout)
        self._sending: list[tuple[Any, Tensor, Transfer]] = []

    def post(self, transfer: Transfer) -> tuple[Transfer, Tensor, Any]:
        flat = self._room(transfer)
        if not transfer.elements:
            return transfer, flat, None
        try:
            work = torch.distributed.irecv(flat, transfer.source, tag=transfer.tag)
        except RuntimeError as error:
            raise ChannelError(str(error)) from error
        return transfer, flat, work

    def wait(self, posted: tuple[Transfer, Tensor, Any]) -> Tensor:
        transfer, flat, work = posted
        started = time.perf_counter()
        if work is not None:
            self._finish(work, waiting_for(transfer))
        self.waited += time.perf_counter() - started
        return unpack(transfer, flat)

    def send(self, transfer: Transfer, value: Tensor) -> None:
        if transfer.elements:
            self.send_flat(transfer, pack(transfer, value))

    def send_flat(self, transfer: Transfer, flat: Tensor) -> None:
        """Start sending bytes that `pack` made."""
        try:
            work = torch.distributed.isend(flat, transfer.target, tag=transfer.tag)
        except RuntimeError as error:
            raise ChannelError(str(error)) from error
        self._sending.append((work, flat, transfer))

    def finish(self) -> None:
        for work, _, transfer in self._sending:
            self._finish(
                work,
                f"has been sending the output of op '{transfer.tensor}' to rank {transfer.target}",
            )
        self._sending.clear()

    def _finish(self, work: Any, what: str) -> None:
        started = time.monotonic()
        try:
            work.wait(self._timeout)
        except RuntimeError as error:
            patience = self._timeout.total_seconds()
            if time.monotonic() - started >= 0.9 * patience:
                raise ChannelTimeoutError(f"{what} for {patience:g} s") from error
            raise ChannelError(str(error)) from error
