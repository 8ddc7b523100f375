"""A rank's part of a pipeline whose stages have replicas, which take turns at micro-batches.

The schedules of torch.distributed.pipelining have one rank for each stage, and so one peer for
each tensor. Here the peer depends on the micro-batch, and the replicas of neighbours need not be
equally many. So the actions of the rank's row are taken one by one, with sends and receives of
our own; autograd does each stage's backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from placewright.runtime.pipelined.boundaries import Crossings
from placewright.runtime.pipelined.clock import BusyClock
from placewright.runtime.pipelined.groups import Groups
from placewright.runtime.pipelined.module import StageModule
from placewright.runtime.pipelined.tables import Action
from placewright.runtime.pipelined.transfers import Transfers

_AHEAD = 2  # actions whose tensors may arrive while another is run


class TurnsPipeline:
    """The actions of a rank in the order of its `row`; see `Pipeline`."""

    def __init__(
        self,
        modules: Sequence[StageModule],
        groups: Groups,
        row: Sequence[Action],
        *,
        micro_batches: int,
        training: bool,
        clock: BusyClock,
    ) -> None:
        self._modules = {module.stage.index: module for module in modules}
        self._groups = groups
        self._last = len(groups.group_of) - 1
        self._row = [action for action in row if training or action.kind == "F"]
        self._training = training
        self._clock = clock
        self._transfers = Transfers(micro_batches)
        self._kept: dict[tuple[int, int], tuple[list[Tensor], Sequence[Tensor]]] = {}
        self._losses: dict[int, float] = {}

    def run(self) -> dict[int, float]:
        self._losses = {}
        coming = iter(self._row)
        with torch.set_grad_enabled(self._training):
            for action in islice(coming, _AHEAD):
                self._expect(action)
            for action in self._row:
                for later in islice(coming, 1):
                    self._expect(later)
                if action.kind == "F":
                    self._forward(action)
                else:
                    self._backward(action)
        self._transfers.finish()
        return self._losses

    def _expect(self, action: Action) -> None:
        crossings, stage = self._read(action)
        if 0 <= stage <= self._last:
            source = self._groups.rank(stage, action.micro_batch)
            self._transfers.expect(action, source, [each.example() for each in crossings])

    def _read(self, action: Action) -> tuple[Crossings, int]:
        """What an action begins with, and the stage it is of; none where that is beyond an end."""
        module = self._modules[action.stage]
        if action.kind == "F":
            return module.received, action.stage - 1
        return _with_gradient(module.sent), action.stage + 1

    def _forward(self, action: Action) -> None:
        module, number = self._modules[action.stage], action.micro_batch
        received = self._transfers.take(action) if action.stage else []
        for each, value in zip(module.received, received, strict=True):
            value.requires_grad_(each.requires_grad)
        sent = self._clock.forward(module, *received, micro_batch=torch.tensor(number))
        if self._training:
            self._kept[action.stage, number] = received, sent
        if action.stage < self._last:
            self._send(Action(action.stage + 1, "F", number), [value.detach() for value in sent])
        elif self._training:
            self._losses[number] = float(sent[0].detach())

    def _backward(self, action: Action) -> None:
        module, number = self._modules[action.stage], action.micro_batch
        received, sent = self._kept.pop((action.stage, number))
        if action.stage < self._last:
            gradients = self._transfers.take(action)
        else:
            gradients = [torch.ones_like(sent[0])]
        pairs = zip(module.sent, sent, strict=True)
        roots = [value for each, value in pairs if each.requires_grad]
        if roots:
            backward = torch.autograd.backward
            self._clock.backward(action.stage, backward, roots, gradients)
        if action.stage:
            back = [_gradient(value) for value in received if value.requires_grad]
            self._send(Action(action.stage - 1, "B", number), back)

    def _send(self, action: Action, values: Sequence[Tensor]) -> None:
        target = self._groups.rank(action.stage, action.micro_batch)
        self._transfers.send(action, target, values)


def _with_gradient(crossings: Crossings) -> Crossings:
    return tuple(each for each in crossings if each.requires_grad)


def _gradient(value: Tensor) -> Tensor:
    return torch.zeros_like(value) if value.grad is None else value.grad.contiguous()
