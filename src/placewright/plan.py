"""`Placement`, `Schedule` and `Plan`: a decision, its timing, and the whole answer with proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from placewright import files
from placewright.errors import FormatError, GraphError, OptionError
from placewright.graph import Floats, Ints, frozen
from placewright.problem import Problem

FORMAT = "placewright.plan/1"
OPTIMAL_GAP = 1e-4
Status = Literal["optimal", "feasible"]


@dataclass(frozen=True, eq=False)
class Placement:
    """`device[op]`: where each op runs.

    `sequence`, where a planner decided that too, is one order of all ops and edges: item i ≥ 0
    is op i, item i < 0 is edge ``-1 - i``. Timing each item as early as its predecessors and its
    resources (device, channels), taken in this order, allow gives the schedule; every
    semi-active schedule has such a sequence. None leaves the order to the scheduler.
    """

    device: Ints
    sequence: Ints | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", frozen(self.device, np.int32))
        if self.sequence is not None:
            object.__setattr__(self, "sequence", frozen(self.sequence, np.int32))


@dataclass(frozen=True, eq=False)
class Transfers:
    """Columns, one entry per transfer: the tensor, from `source` to `target` device, seconds.

    `consumer` is the op it is for, or -1 where one transfer serves all consumers on the target.
    """

    tensor: Ints
    consumer: Ints
    source: Ints
    target: Ints
    start: Floats
    finish: Floats

    def __post_init__(self) -> None:
        for name in ("tensor", "consumer", "source", "target"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        for name in ("start", "finish"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        if len({len(getattr(self, name)) for name in self.__dataclass_fields__}) > 1:
            raise GraphError("the columns of schedule.transfers differ in length")

    def __len__(self) -> int:
        return len(self.tensor)


@dataclass(frozen=True, eq=False)
class Schedule:
    """`op_start[op]`, `op_finish[op]` and the transfers; seconds from the start of the run."""

    op_start: Floats
    op_finish: Floats
    transfers: Transfers

    def __post_init__(self) -> None:
        for name in ("op_start", "op_finish"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    @property
    def makespan(self) -> float:
        return float(self.op_finish.max())


@dataclass(frozen=True, eq=False)
class Plan:
    """A placement, its schedule, its value and the proof of how good that is.

    `value` and `lower_bound` are seconds; `bound_source` says which argument proves the bound.
    The plan carries its whole problem, so that anyone can judge it.
    """

    problem: Problem
    placement: Placement
    schedule: Schedule
    value: float
    lower_bound: float
    bound_source: str
    planner: str
    seed: int = 0
    planner_options: Mapping[str, str] = field(default_factory=dict)
    coarsening: str = "none"
    source: str = ""
    seconds: float = float("nan")
    """How long planning took; not kept in the file, so that equal plans are equal files."""

    @property
    def gap(self) -> float:
        """(value - lower_bound) / value."""
        return (self.value - self.lower_bound) / self.value if self.value > 0 else 0.0

    @property
    def status(self) -> Status:
        return "optimal" if self.gap <= OPTIMAL_GAP else "feasible"

    @property
    def device_load(self) -> Floats:
        """`[device]` seconds of computing."""
        problem, device = self.problem, self.placement.device
        times = problem.op_time[np.arange(problem.op_count), device]
        return np.bincount(device, times, problem.device_count).astype(np.float64)

    @property
    def device_memory(self) -> Floats:
        """`[device]` bytes that the ops placed there keep."""
        problem = self.problem
        memory = np.bincount(self.placement.device, problem.op_memory, problem.device_count)
        return memory.astype(np.float64)

    def device_of(self) -> dict[str, str]:
        """Op name → device name."""
        names = self.problem.device_names
        return {
            op: names[device]
            for op, device in zip(self.problem.op_names, self.placement.device, strict=True)
        }

    def save(self, path: str | Path) -> None:
        files.write_json(path, self.to_document())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan file. Whether the plan is right is for `verify` to say."""
        return cls.from_document(files.read_document(path), path)

    def to_document(self) -> dict[str, Any]:
        """The plan as a ``placewright.plan/1`` object."""
        from placewright import __version__

        transfers = self.schedule.transfers
        return {
            "format": FORMAT,
            "version": __version__,
            "source": self.source,
            "planner": {
                "name": self.planner,
                "seed": self.seed,
                "options": dict(self.planner_options),
                "coarsening": self.coarsening,
            },
            "value": self.value,
            "lower_bound": self.lower_bound,
            "bound_source": self.bound_source,
            "status": self.status,
            "placement": self.placement.device.tolist(),
            "schedule": {
                "op_start": self.schedule.op_start.tolist(),
                "op_finish": self.schedule.op_finish.tolist(),
                "transfers": {
                    column: getattr(transfers, column).tolist()
                    for column in ("tensor", "consumer", "source", "target", "start", "finish")
                },
            },
            "problem": self.problem.to_document(),
        }

    @classmethod
    def from_document(cls, document: Any, path: str | Path = "plan") -> Plan:
        from placewright.formats import PlanFile  # pydantic is slow to import

        files.check_format(document, FORMAT, path)
        content = files.validate(PlanFile, document, path)
        schedule = content.schedule
        try:
            plan = cls(
                problem=Problem.from_entry(content.problem),
                placement=Placement(np.array(content.placement)),
                schedule=Schedule(
                    np.array(schedule.op_start),
                    np.array(schedule.op_finish),
                    Transfers(**schedule.transfers.model_dump()),
                ),
                value=content.value,
                lower_bound=content.lower_bound,
                bound_source=content.bound_source,
                planner=content.planner.name,
                seed=content.planner.seed,
                planner_options=content.planner.options,
                coarsening=content.planner.coarsening,
                source=content.source,
            )
        except (GraphError, OptionError) as error:
            raise FormatError(f"{path}: {error}") from None
        n = plan.problem.op_count
        for what, column in (
            ("placement", plan.placement.device),
            ("schedule.op_start", plan.schedule.op_start),
            ("schedule.op_finish", plan.schedule.op_finish),
        ):
            if len(column) != n:
                raise FormatError(f"{path}: {what} has {len(column)} entries for {n} ops")
        return plan
