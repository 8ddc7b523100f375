"""`Placement` and `Plan`: a decision, and the whole answer with its proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any, Literal, TypeVar

import numpy as np

from placewright.errors import GraphError
from placewright.graph import Floats, Ints, ReadOnly, frozen
from placewright.outcome import Loads, Outcome, Schedule
from placewright.problem import Problem
from placewright.stored import Stored
from placewright.units import format_seconds

OPTIMAL_GAP = 1e-4
MOST_EVENTS = 200  # of a history
SHARES_ROUNDING = 1e-9  # how far off 1 the shares of a stage may be together
Status = Literal["optimal", "feasible"]
Number = TypeVar("Number", int, float)


def gap_of(value: float, lower_bound: float) -> float:
    """(value - lower_bound) / value, and 0 for a value of 0."""
    return (value - lower_bound) / value if value > 0 else 0.0


def status_of(gap: float) -> Status:
    """That of a plan with this gap."""
    return "optimal" if gap <= OPTIMAL_GAP else "feasible"


@dataclass(frozen=True, eq=False)
class Placement(ReadOnly):
    """`device[op]`: where each op runs; ``device[op, input]`` for objective ``batch-throughput``.

    `sequence`, where a planner decided that too, is one order of all ops and edges: item i ≥ 0
    is op i, item i < 0 is edge ``-1 - i``. Timing each item as early as its predecessors and its
    resources (device, channels), taken in this order, allow gives the schedule; every
    semi-active schedule has such a sequence. None leaves the order to the scheduler. For
    ``batch-throughput`` ops and edges are those of `simulate.batch.expand`.

    `replicas` (objective ``throughput``): stages that run on several devices, each a tuple of
    them; its ops name the first. `replica_shares`, in the same order: which part of the inputs
    each of them takes, above 0 and 1 together; empty where all take as many. `row` (with option
    `micro_batches`): the devices of the stages in the order of the data; with option
    `data_parallel` too, `replicas` has each stage of it, in its order: its device in the first
    pipeline, in the second, …. `subgraph[op]` (``invocation-latency``): which of its accelerator's
    invocations, from 0 in their order, an op belongs to; -1 on a CPU.

    GraphError for what is no whole number, and shares that do not add up; whether ops and devices
    are those of a problem is for `solve` and the judge to say.
    """

    device: Ints
    sequence: Ints | None = None
    replicas: tuple[tuple[int, ...], ...] = ()
    subgraph: Ints | None = None
    replica_shares: tuple[tuple[float, ...], ...] = ()
    row: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", _whole_numbers("device", self.device))
        for name in ("sequence", "subgraph"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _whole_numbers(name, getattr(self, name)))
        replicas = _stages("replicas", self.replicas, index)
        object.__setattr__(self, "replicas", replicas)
        object.__setattr__(self, "row", _stages("row", (self.row,), index)[0])
        shares = _stages("replica_shares", self.replica_shares, float)
        object.__setattr__(self, "replica_shares", shares)
        _check_shares(replicas, shares)

    @property
    def shares(self) -> tuple[tuple[float, ...], ...]:
        """Per stage of `replicas` the part of the inputs that each takes."""
        equal = (tuple(1 / len(stage) for _ in stage) for stage in self.replicas)
        return self.replica_shares or tuple(equal)

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The `row` of each pipeline: of one, or of those that are data-parallel."""
        return (
            tuple(zip(*self.replicas, strict=True)) if self.row and self.replicas else (self.row,)
        )

    def subgraph_ops(self, device: int, number: int) -> Ints:
        """The ops of a subgraph of an accelerator; all there are where subgraphs are not told."""
        mine = self.device == device
        if self.subgraph is not None:
            mine &= self.subgraph == number
        return np.flatnonzero(mine).astype(np.int32)


def _whole_numbers(name: str, given: Any) -> Ints:
    """GraphError for what is no array of whole numbers, or too large for int32."""
    try:
        array = np.asarray(given)
    except ValueError:  # rows that differ in length
        array = np.asarray(None)
    is_whole = array.dtype.kind in "iu" or not array.size
    if array.dtype.kind == "f":  # as numpy.zeros makes it
        is_whole = bool((array == np.trunc(array)).all())
    if array.ndim == 0 or not is_whole:
        raise GraphError(f"the placement's {name} is no array of whole numbers; give one")
    held = np.iinfo(np.int32)
    if array.dtype != np.int32 and array.size:
        for number in (array.min(), array.max()):
            if not held.min <= number <= held.max:
                raise GraphError(
                    f"the placement's {name} has {number}; give a number from 0, or -1 for none"
                )
    return frozen(array, np.int32)


def _stages(name: str, given: Any, kind: Callable[[Any], Number]) -> tuple[tuple[Number, ...], ...]:
    """A row of numbers for each stage; GraphError for anything else."""
    try:
        return tuple(tuple(kind(each) for each in stage) for stage in given)
    except (TypeError, ValueError):
        raise GraphError(
            f"the placement's {name} is {given!r}; give a tuple of numbers for each stage"
        ) from None


def _check_shares(
    replicas: tuple[tuple[int, ...], ...], shares: tuple[tuple[float, ...], ...]
) -> None:
    """GraphError for shares that are not those of the replicas."""
    if not shares:
        return
    if [*map(len, shares)] != [*map(len, replicas)]:
        raise GraphError(
            "replica_shares does not have a share for each device of each of replicas; give one "
            "for each, or leave replica_shares out where all take as many inputs"
        )
    for stage in shares:
        if not all(0 < share <= 1 for share in stage) or abs(sum(stage) - 1) > SHARES_ROUNDING:
            raise GraphError(
                f"replica_shares has {list(stage)}; give a stage shares above 0 that add up to 1"
            )


def numbered(device: Ints, subgraph: Ints) -> Ints:
    """`[op]` its subgraph, per device from 0 in the given order, without gaps; -1 stays."""
    found = np.full(len(subgraph), -1, dtype=np.int32)
    for each in np.unique(device[subgraph >= 0]):
        there = (device == each) & (subgraph >= 0)
        found[there] = np.unique(subgraph[there], return_inverse=True)[1]
    return found


@dataclass(frozen=True, eq=False)
class History(ReadOnly):
    """How planning went: columns, one entry each time that a better plan or bound was found.

    `seconds` since it began, never falling; `value` (infinite before there was a plan) and
    `lower_bound` as they stood then. GraphError for columns that are no such thing.
    """

    seconds: Floats
    value: Floats
    lower_bound: Floats

    def __post_init__(self) -> None:
        for name in ("seconds", "value", "lower_bound"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        lengths = {len(self.seconds), len(self.value), len(self.lower_bound)}
        if len(lengths) > 1:
            raise GraphError("the columns of history differ in length")
        falling = (np.diff(self.seconds) < 0).any() or (self.seconds < 0).any()
        if falling or not np.isfinite(self.seconds).all():
            raise GraphError("the seconds of history must not fall, from 0 or more")

    def __len__(self) -> int:
        return len(self.seconds)

    def then(self, later: History) -> History:
        """This and what came `later`, on one clock; the better of each holds on."""
        started = float(self.seconds[-1]) if len(self) else 0.0
        value = np.concatenate([self.value, later.value])
        bound = np.concatenate([self.lower_bound, later.lower_bound])
        return History(
            np.concatenate([self.seconds, later.seconds + started]),
            np.minimum.accumulate(value),
            np.maximum.accumulate(bound),
        ).thinned()

    def thinned(self, most: int = MOST_EVENTS) -> History:
        """At most so many entries: the ends, and those that bring value and bound nearest."""
        if len(self) <= most:
            return self
        with np.errstate(divide="ignore", invalid="ignore"):
            width = np.where(np.isfinite(self.value), self.value - self.lower_bound, np.inf)
            gain = np.nan_to_num(-np.diff(width), nan=0.0, posinf=np.inf)
        best = np.argsort(-gain[:-1], kind="stable")[: most - 2] + 1
        kept = np.unique(np.concatenate([[0], best, [len(self) - 1]]))
        return History(self.seconds[kept], self.value[kept], self.lower_bound[kept])


@dataclass(frozen=True, eq=False)
class Plan(Stored):
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
    history: History | None = None
    """How value and bound came about; None where the planner tells no such thing, or where its
    plan does not depend on the clock, so that equal plans are equal files."""
    stated_status: Status | None = field(default=None, init=False)
    """What its file says, for the judge to compare; a plan that is made or changed states none."""

    def __repr__(self) -> str:
        value = f"{format_seconds(self.value)}, gap {100 * self.gap:.2g} %"
        return f"<Plan of {self.problem!r} by {self.planner}: {value}>"

    @property
    def gap(self) -> float:
        """(value - lower_bound) / value."""
        return gap_of(self.value, self.lower_bound)

    @property
    def status(self) -> Status:
        return status_of(self.gap)

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
        options = self.problem.options
        if not options.row.is_rate:
            return None
        count = options.batch * (self.problem.input_samples or 1)
        return count / self.value if self.value else float("inf")

    @property
    def device_load(self) -> Floats:
        """`[device]` seconds that it is busy: computing, and for ``throughput`` all its load."""
        return self.outcome.device_load(self.problem, self.placement.device)

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
    def used_devices(self) -> list[int]:
        """Those with ops, replicas included."""
        return [device for device, ops in enumerate(self.device_ops) if len(ops)]

    @property
    def device_memory(self) -> Floats:
        """`[device]` bytes that the ops there keep, for all micro-batches in flight."""
        kept = np.array([self.problem.op_memory[ops].sum() for ops in self.device_ops])
        return kept + self.device_stash

    @property
    def device_stash(self) -> Floats:
        """`[device]` bytes of activations of the micro-batches in flight beyond the first."""
        more, stash = np.zeros(self.problem.device_count), self.problem.op_stash
        step = self.outcome.step if isinstance(self.outcome, Loads) else None
        if step is not None and stash.size:
            ops = self.device_ops
            for row in self.placement.rows:
                for device, count in zip(row, step.in_flight.tolist(), strict=True):
                    more[device] = (count - 1) * stash[ops[device]].sum()
        return more

    def device_of(self) -> dict[str, str]:
        """Op name → device name (of its first input, and the first replica)."""
        names = self.problem.device_names
        first = self.placement.device.reshape(self.problem.op_count, -1)[:, 0]
        return {op: names[device] for op, device in zip(self.problem.op_names, first, strict=True)}
