"""A pass: each rank runs its sub-models in turn, on values that others hand over as they are.

A pass takes one sample, or several that are under way at once (a pipeline).

A value is the very memory that ONNX Runtime made it in. It is let go when its last reader is done.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from placewright.errors import ExecutionError, reason
from placewright.importers.onnx.files import TensorType, has_known_size
from placewright.runtime.onnx_sessions.cutting import SubModel
from placewright.runtime.onnx_sessions.sessions import Session
from placewright.runtime.onnx_sessions.team import Team

if TYPE_CHECKING:
    from onnxruntime import OrtValue


Task = tuple[int, int]
"""The number of a sample, and that of the sub-model to run on it."""


@dataclass(frozen=True)
class Program:
    """Sub-models, the tasks of each rank in its order, and the tensors to return.

    `replicas` has the ranks that take turns at the samples where a sub-model's rank has several.
    """

    parts: Sequence[SubModel]
    tasks: Sequence[Sequence[Task]]
    returned: tuple[str, ...]
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        parts: Sequence[SubModel],
        ranks: int,
        returned: tuple[str, ...],
        samples: int = 1,
        replicas: Mapping[int, Sequence[int]] | None = None,
    ) -> Program:
        """Each sample enters a rank's line a place after the one before it.

        Of several samples, the sub-models must be in an order in which they can run.
        """
        made = cls(parts, [[] for _ in range(ranks)], returned, replicas or {})
        places = sorted(
            (sample + number, number, sample)
            for sample in range(samples)
            for number in range(len(parts))
        )
        tasks: list[list[Task]] = [[] for _ in range(ranks)]
        for _, number, sample in places:
            tasks[made.rank((sample, number))].append((sample, number))
        return replace(made, tasks=tasks)

    def ranks(self, number: int) -> Sequence[int]:
        """Those that run a sub-model."""
        first = self.parts[number].rank
        return self.replicas.get(first, (first,))

    def rank(self, task: Task) -> int:
        """The one that runs it on that sample: replicas take turns."""
        sample, number = task
        ranks = self.ranks(number)
        return ranks[sample % len(ranks)]

    @property
    def samples(self) -> int:
        return 1 + max((sample for line in self.tasks for sample, _ in line), default=0)

    @cached_property
    def maker(self) -> dict[str, int]:
        """Tensor → the number of the sub-model that gives it."""
        return {name: number for number, part in enumerate(self.parts) for name in part.gives}

    @cached_property
    def uses(self) -> Counter[str]:
        """How many read each tensor that a sub-model gives; the caller counts as one."""
        uses = Counter(name for part in self.parts for name in part.reads)
        uses.update(set(self.returned))
        return uses

    @cached_property
    def awaited(self) -> list[list[str]]:
        """`[sub-model]` what it reads of others."""
        return [[name for name in part.reads if name in self.maker] for part in self.parts]

    @cached_property
    def transfers(self) -> set[tuple[str, int]]:
        """Tensors and the ranks they go to, from another: once to each, of replicas to one."""
        return {
            (name, part.rank)
            for part, names in zip(self.parts, self.awaited, strict=True)
            for name in names
            if self.parts[self.maker[name]].rank != part.rank
        }


@dataclass(frozen=True)
class Done:
    """When a task was taken up, had all it reads, and was done (of `perf_counter`).

    `late` is the last tensor that it waited for, if it did.
    """

    task: Task
    asked: float
    started: float
    finished: float
    late: str | None


class Pass:
    """All tasks of a program on its samples: `rank` is called in the thread of each rank.

    `sessions` has those of each rank by the sub-models that it runs.
    """

    def __init__(
        self,
        team: Team,
        program: Program,
        sessions: Sequence[Mapping[int, Session]],
        samples: Sequence[Mapping[str, OrtValue]],
    ) -> None:
        self._team = team
        self._program = program
        self._sessions = sessions
        self._values = [dict(inputs) for inputs in samples]
        self._left = [program.uses.copy() for _ in samples]
        self.sizes: dict[str, int] = {}
        """Bytes of what sub-models gave."""

    def rank(self, rank: int) -> list[Done]:
        return [self._run(rank, task) for task in self._program.tasks[rank]]

    @property
    def outputs(self) -> list[list[OrtValue]]:
        """`[sample]` what the model returns, where all ranks are done."""
        return [[values[name] for name in self._program.returned] for values in self._values]

    def _run(self, rank: int, task: Task) -> Done:
        sample, number = task
        values = self._values[sample]
        asked = time.perf_counter()
        late = self._wait(rank, task)
        part = self._program.parts[number]
        self._team.begins(rank, f"runs {part}")
        started = time.perf_counter()
        try:
            made = self._sessions[rank][number].run({name: values[name] for name in part.reads})
        except Exception as error:  # ONNX Runtime raises many types
            self._team.check()  # whether that is why
            raise self._failed(part, rank, error) from None
        finished = time.perf_counter()
        self._hand_over(rank, task, made)
        return Done(task, asked, started, finished, late)

    def _wait(self, rank: int, task: Task) -> str | None:
        """Until all that a task reads is there; the last that it had to wait for."""
        sample, number = task
        late = None
        with self._team.lock:
            for name in self._program.awaited[number]:
                if name not in self._values[sample]:
                    late = name
                    there = partial(self._values[sample].__contains__, name)
                    self._team.wait(rank, self._lacks(task, name), there)
        return late

    def _lacks(self, task: Task, name: str) -> str:
        sample, number = task
        parts, maker = self._program.parts, self._program.maker[name]
        device = self._team.devices[self._program.rank((sample, maker))]
        return (
            f"waits in {parts[number]} for tensor '{name}' of {parts[maker]} "
            f"on device '{device.name}'"
        )

    def _hand_over(self, rank: int, task: Task, made: Mapping[str, OrtValue]) -> None:
        """Let others have what a task made, and let go what nobody reads any more."""
        sample, number = task
        values, left = self._values[sample], self._left[sample]
        sizes = {name: size_of(value) for name, value in made.items()}
        with self._team.lock:
            self.sizes.update(sizes)
            values.update(made)
            for name in self._program.awaited[number]:
                left[name] -= 1
                if not left[name]:
                    del values[name]
            self._team.goes_on(rank)
            self._team.arrived.notify_all()

    def _failed(self, part: SubModel, rank: int, error: Exception) -> ExecutionError:
        device = self._team.devices[rank].name
        return ExecutionError(
            f"ONNX Runtime cannot run {part} on device '{device}' "
            f"({type(error).__name__}: {' '.join(reason(error).split())})"
        )


def size_of(value: OrtValue) -> int:
    """Bytes of a tensor; of text, those of its characters."""
    if not has_known_size(value.element_type()):
        return sum(len(text.encode()) for text in value.numpy().flat)
    return int(TensorType(value.element_type(), tuple(value.shape())).bytes)
