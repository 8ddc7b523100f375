"""How far what the ranks gave is from what a single process computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from placewright.errors import ExecutionError
from placewright.importers.torch.programs import Executable
from placewright.runtime.pipelined.jobs import Answer
from placewright.runtime.pipelined.reference import SingleProcess
from placewright.runtime.ranks.state import Optimizer
from placewright.runtime.reference import max_abs_difference


@dataclass(frozen=True)
class Differences:
    """The largest of the outputs and of the gradients (None: there are none), and the losses."""

    outputs: float
    gradients: float | None
    losses: tuple[float, ...]
    expected_losses: tuple[float, ...]


@dataclass(frozen=True)
class Expected:
    """What a single process computes of the same micro-batches."""

    results: dict[tuple[int, int], Any] = field(default_factory=dict)
    checked_losses: list[float] = field(default_factory=list)
    gradients: dict[str, torch.Tensor] | None = None
    losses: list[float] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        executable: Executable,
        micro_batches: int,
        steps: int,
        optimizer: Optimizer,
        threads: int,
    ) -> Expected:
        """Computed in this process with so many threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            if not executable.gradients:
                return cls(SingleProcess(executable).results(micro_batches))
            checked, gradients = SingleProcess(executable).gradients(micro_batches)
            losses = (
                SingleProcess(executable).train(micro_batches, steps, optimizer) if steps else []
            )
            return cls({}, checked, gradients, losses)
        finally:
            torch.set_num_threads(before)

    def differences(self, answers: Sequence[Answer]) -> Differences:
        """ExecutionError where the ranks gave other things than a single process."""
        results = {key: each for answer in answers for key, each in answer.results.items()}
        checked = {key: loss for answer in answers for key, loss in answer.checked_losses.items()}
        outputs = max(
            _distance("output", self.results, results),
            _distance("loss", _tensors(dict(enumerate(self.checked_losses))), _tensors(checked)),
        )
        shares = [answer.losses for answer in answers if answer.losses]
        losses = tuple(map(sum, zip(*shares, strict=True)))
        return Differences(outputs, self._gradients(answers), losses, tuple(self.losses))

    def _gradients(self, answers: Sequence[Answer]) -> float | None:
        """Of every rank that has them: replicas must agree."""
        if self.gradients is None:
            return None
        pairs = [pair for answer in answers for pair in answer.gradients.items()]
        _check_keys("gradient", self.gradients, dict(pairs))
        expected = [self.gradients[name] for name, _ in pairs]
        return max_abs_difference(expected, [each for _, each in pairs])


def _tensors(losses: Mapping[int, float]) -> dict[int, torch.Tensor]:
    return {key: torch.tensor(loss, dtype=torch.float64) for key, loss in losses.items()}


def _distance(what: str, expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> float:
    """The largest distance of two collections of values, which must have the same keys."""
    _check_keys(what, expected, found)
    return max_abs_difference(list(expected.values()), [found[key] for key in expected])


def _check_keys(what: str, expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> None:
    if missing := sorted(set(expected) ^ set(found)):
        raise ExecutionError(f"the run and a single process differ in having {what} {missing[0]}")
