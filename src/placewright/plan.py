"""`Placement` and `Plan`: a decision, and the whole answer with its proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from placewright import files
from placewright.errors import FormatError, GraphError, OptionError
from placewright.graph import Floats, Ints, ReadOnly, frozen
from placewright.outcome import KEYS, BatchSchedule, Loads, Outcome, Schedule, read_outcome
from placewright.problem import Problem
from placewright.problem_files import problem_document, read_problem

if TYPE_CHECKING:
    from placewright.formats import PlanFile

FORMAT = "placewright.plan/1"
OPTIMAL_GAP = 1e-4
Status = Literal["optimal", "feasible"]


def gap_of(value: float, lower_bound: float) -> float:
    """(value - lower_bound) / value, and 0 for a value of 0."""
    return (value - lower_bound) / value if value > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Placement(ReadOnly):
    """`device[op]`: where each op runs; ``device[op, input]`` for objective ``batch-throughput``.

    `sequence`, where a planner decided that too, is one order of all ops and edges: item i ≥ 0
    is op i, item i < 0 is edge ``-1 - i``. Timing each item as early as its predecessors and its
    resources (device, channels), taken in this order, allow gives the schedule; every
    semi-active schedule has such a sequence. None leaves the order to the scheduler. For
    ``batch-throughput`` ops and edges are those of `simulate.batch.expand`.

    `replicas` (objective ``throughput``): stages that run on several devices, each a tuple of
    them; its ops name the first. `subgraph[op]` (``invocation-latency``): which of its
    accelerator's invocations, from 0 in their order, an op belongs to; -1 on a CPU.
    """

    device: Ints
    sequence: Ints | None = None
    replicas: tuple[tuple[int, ...], ...] = ()
    subgraph: Ints | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", frozen(self.device, np.int32))
        for name in ("sequence", "subgraph"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        replicas = tuple(tuple(int(device) for device in stage) for stage in self.replicas)
        object.__setattr__(self, "replicas", replicas)


def numbered(device: Ints, subgraph: Ints) -> Ints:
    """`[op]` its subgraph, per device from 0 in the given order, without gaps; -1 stays."""
    found = np.full(len(subgraph), -1, dtype=np.int32)
    for each in np.unique(device[subgraph >= 0]):
        there = (device == each) & (subgraph >= 0)
        found[there] = np.unique(subgraph[there], return_inverse=True)[1]
    return found


@dataclass(frozen=True, eq=False)
class Plan:
    """A placement, what it comes to, its value and the proof of how good that is.

    `value` and `lower_bound` are seconds; `bound_source` says which argument proves the bound.
    The plan carries its whole problem, so that anyone can judge it.
    """

    problem: Problem
    placement: Placement
    outcome: Outcome
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
    stated_status: Status | None = field(default=None, init=False)
    """What its file says, for the judge to compare; a plan that is made or changed states none."""

    @property
    def gap(self) -> float:
        """(value - lower_bound) / value."""
        return gap_of(self.value, self.lower_bound)

    @property
    def status(self) -> Status:
        return "optimal" if self.gap <= OPTIMAL_GAP else "feasible"

    @property
    def schedule(self) -> Schedule:
        """The outcome of objective ``latency``; TypeError for another objective."""
        if not isinstance(self.outcome, Schedule):
            objective = self.problem.options.objective
            raise TypeError(f"a plan for {objective} has no schedule of ops; see Plan.outcome")
        return self.outcome

    @property
    def throughput(self) -> float | None:
        """Samples per second, for the two objectives that are about many.

        Inputs per second where it is not known how many samples one has
        (`Problem.input_samples`).
        """
        inputs = {"throughput": 1, "batch-throughput": self.problem.options.batch}
        count = inputs.get(self.problem.options.objective)
        if count is None:
            return None
        count *= self.problem.input_samples or 1
        return count / self.value if self.value else float("inf")

    @property
    def device_load(self) -> Floats:
        """`[device]` seconds that it is busy: computing, and for ``throughput`` all its load."""
        problem, device = self.problem, self.placement.device
        if isinstance(self.outcome, Loads):
            return self.outcome.load
        if isinstance(self.outcome, BatchSchedule):
            batches = self.outcome.batches
            busy = batches.finish - batches.start
            return np.bincount(batches.device, busy, problem.device_count).astype(np.float64)
        times = problem.op_time[np.arange(problem.op_count), device]
        return np.bincount(device, times, problem.device_count).astype(np.float64)

    @property
    def device_ops(self) -> list[Ints]:
        """Per device, the ops that run there (in a replica too)."""
        devices = self.placement.device.reshape(self.problem.op_count, -1)
        count = self.problem.device_count
        found = [
            np.flatnonzero((devices == device).any(axis=1)).astype(np.int32)
            for device in range(count)
        ]
        for first, *others in self.placement.replicas:
            for device in others:
                found[device] = found[first]
        return found

    @property
    def device_memory(self) -> Floats:
        """`[device]` bytes that the ops there keep."""
        return np.array([self.problem.op_memory[ops].sum() for ops in self.device_ops])

    def device_of(self) -> dict[str, str]:
        """Op name → device name (of its first input, and the first replica)."""
        names = self.problem.device_names
        first = self.placement.device.reshape(self.problem.op_count, -1)[:, 0]
        return {op: names[device] for op, device in zip(self.problem.op_names, first, strict=True)}

    def save(self, path: str | Path) -> None:
        """Write a plan file (``placewright.plan/1``), whole or not at all."""
        files.write_json(path, self.to_document())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan file. Whether the plan is right is for `verify` to say."""
        return cls.from_document(files.read_document(path), path)

    def to_document(self) -> dict[str, Any]:
        """The plan as a ``placewright.plan/1`` object."""
        from placewright import __version__

        document = {
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
        }
        if self.placement.replicas:
            document["replicas"] = [list(stage) for stage in self.placement.replicas]
        if self.placement.subgraph is not None:
            document["subgraph"] = self.placement.subgraph.tolist()
        document[KEYS[self.problem.options.objective]] = self.outcome.to_document()
        document["problem"] = problem_document(self.problem)
        return document

    @classmethod
    def from_document(cls, document: Any, path: str | Path = "plan") -> Plan:
        from placewright.formats import PlanFile  # pydantic is slow to import

        files.check_format(document, FORMAT, path)
        content = files.validate(PlanFile, document, path)
        try:
            problem = read_problem(content.problem)
            key = KEYS[problem.options.objective]
            entry = _only_outcome(content, key, problem.options.objective, path)
            plan = cls(
                problem=problem,
                placement=Placement(
                    _rectangle(content.placement, problem, path),
                    replicas=tuple(tuple(stage) for stage in content.replicas or ()),
                    subgraph=None if content.subgraph is None else np.array(content.subgraph),
                ),
                outcome=_outcome(key, entry, content.value, path),
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
        object.__setattr__(plan, "stated_status", content.status)
        return plan._checked(path)

    def _checked(self, path: str | Path) -> Plan:
        """FormatError if a column is not as long as there are ops."""
        columns: dict[str, Any] = {"placement": self.placement.device}
        if self.placement.subgraph is not None:
            columns["subgraph"] = self.placement.subgraph
        key = KEYS[self.problem.options.objective]
        for name in ("op_start", "op_finish"):
            if hasattr(self.outcome, name):
                columns[f"{key}.{name}"] = getattr(self.outcome, name)
        for what, column in columns.items():
            if len(column) != self.problem.op_count:
                raise FormatError(
                    f"{path}: {what} has {len(column)} entries for {self.problem.op_count} ops"
                )
        return self


def _only_outcome(content: PlanFile, key: str, objective: str, path: str | Path) -> Any:
    """The entry of the objective's outcome; FormatError without it, or with another's besides."""
    if (entry := getattr(content, key)) is None:
        raise FormatError(f"{path}: field {key}: missing; a plan for {objective} has it")
    for other in KEYS.values():
        if other != key and getattr(content, other) is not None:
            raise FormatError(
                f"{path}: field {other}: belongs to another objective; a plan for {objective} has "
                f"{key} in its place, so leave it out"
            )
    return entry


def _outcome(key: str, entry: Any, value: float, path: str | Path) -> Outcome:
    try:
        return read_outcome(key, entry, value)
    except ValueError:
        raise FormatError(f"{path}: field {key}: a table has rows that differ in length") from None


def _rectangle(rows: list[int] | list[list[int]], problem: Problem, path: str | Path) -> Ints:
    """The placement column: a device per op, or per op and input of a batch."""
    width = problem.options.batch if problem.options.objective == "batch-throughput" else None
    for op, row in enumerate(rows):
        got = len(row) if isinstance(row, list) else None
        if got != width:
            wanted = "one device" if width is None else f"{width} devices, one per input"
            raise FormatError(f"{path}: field placement.{op}: give {wanted}")
    return np.array(rows, dtype=np.int32)
