"""What stages of a pipeline may run on, and what they are charged: the tables of the kernels.

A *kind of stage* is how many devices of each class run it: one, or with replication several that
are equally fast. Where their shares may differ (option `shares`), they need not be, and a kind is
charged what it takes at least: see `StageTables.relaxed`.

`StageTables` charges a kind by rows (see `kernels.throughput.stage_loads`):

| load    | rows of seconds, for each pass under ``gpipe``               |
|---------|---------------------------------------------------------------|
| sum     | computing + transfers + synchronisation                       |
| overlap | computing; transfers in and out; synchronisation              |
| duplex  | computing; transfers in; transfers out; synchronisation       |

and by two more: memory, and how many of its nodes it cannot run.

The devices left for the rest of the nodes are a state: a number of the *leading* class and the
`code` of the others (mixed radix). Where staging is ``direct`` over links that differ, no class
leads, and what a transfer costs at least follows from the classes that are left and used up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.contracted import ContractedGraph
from placewright.analysis.devices import device_classes
from placewright.analysis.reductions.free_nodes import links_alike
from placewright.analysis.shares import harmonic
from placewright.graph import Flags, Floats, Wide
from placewright.kernels.throughput.dominance import heavy_nodes
from placewright.kernels.throughput.stage_loads import (
    HIGH,
    IN,
    LOW,
    OUT,
    Chain,
    Costs,
    Nets,
)
from placewright.problem import ROUNDING, Problem

MOST_MOVES = 20_000  # from one state of the devices to another


class Row(NamedTuple):
    """Which parts a row of seconds adds up; `threshold` 1 if it is of the backward pass."""

    compute: tuple[int, int]
    incoming: tuple[int, int]
    outgoing: tuple[int, int]
    sync: int
    threshold: int


def rows_of(load: str, schedule: str, replicate: bool) -> tuple[Row, ...]:
    """The rows of seconds under the options `load` and `schedule`."""
    passes = [((1, 0), 0), ((0, 1), 1)] if schedule == "gpipe" else [((1, 1), 0)]
    none = (0, 0)
    rows: list[Row] = []
    for way, threshold in passes:
        last = way[1]  # weights are synchronised after the backward pass
        if load == "sum":
            rows.append(Row(way, way, way, last, threshold))
            continue
        rows.append(Row(way, none, none, 0, threshold))
        if load == "overlap":
            rows.append(Row(none, way, way, 0, threshold))
        else:
            rows += [Row(none, way, none, 0, threshold), Row(none, none, way, 0, threshold)]
        if last and replicate:
            rows.append(Row(none, none, none, 1, threshold))
    return tuple(rows)


class Move(NamedTuple):
    kind: int
    variant: int
    lead: int
    before: int
    after: int


@dataclass(frozen=True, eq=False)
class StageTables:
    """The kinds of stages of a problem and all tables about them."""

    graph: ContractedGraph
    rows: tuple[Row, ...]
    kinds: tuple[tuple[int, ...], ...]
    """Per kind, how many devices of each class."""
    allowed: NDArray[np.bool_]
    """`[node, kind]` whether the kind can run the node."""
    factor: tuple[float, ...] = ()
    """Per kind, how many times what its stages compute they are charged; empty where once."""

    @property
    def passes(self) -> int:
        """How many thresholds there are: 2 where the passes count apart (``gpipe``)."""
        return 1 + max(row.threshold for row in self.rows)

    @property
    def relaxed(self) -> bool:
        """Whether a stage may take more than it is charged: with shares that may differ.

        The shares w_d are 1 together, so if d would take R_d seconds per input for the whole stage,
        the largest w_d · R_d is at least ``harmonic(R)``, which is no less than the sum of that of
        the nodes by themselves. A mean over pairs of links, however weighted, is no less than the
        least of them, ``m``, and ``harmonic`` of r times m is m / r. So what a split is charged
        bounds what it takes with any shares, and close where devices are faster by about the same
        factor for all ops.
        """
        return self.graph.problem.options.shares == "unequal"

    # -- devices -------------------------------------------------------------------------------

    @cached_property
    def class_size(self) -> Wide:
        return np.array([len(devices) for devices in self.graph.class_devices])

    @cached_property
    def uniform(self) -> bool:
        """Whether a transfer costs the same wherever it comes from or goes to."""
        return uniform_transfers(self.graph.problem)

    @cached_property
    def lead(self) -> int:
        """The leading class, -1 if none leads."""
        return int(self.class_size.argmax()) if self.uniform else -1

    @cached_property
    def others(self) -> list[int]:
        return [each for each in range(len(self.class_size)) if each != self.lead]

    @property
    def lead_count(self) -> int:
        return int(self.class_size[self.lead]) if self.lead >= 0 else 0

    @cached_property
    def states(self) -> list[tuple[int, ...]]:
        """`[code]` devices of the other classes; the last code has all of them."""
        return list(itertools.product(*(range(int(self.class_size[k]) + 1) for k in self.others)))

    # -- links ---------------------------------------------------------------------------------

    @cached_property
    def class_link(self) -> Floats:
        """`[class, class, (latency, seconds per byte)]` between two different devices."""
        problem, devices = self.graph.problem, self.graph.class_devices
        link = np.zeros((len(devices), len(devices), 2))
        for a, b in itertools.product(range(len(devices)), repeat=2):
            one, two = devices[a][0], devices[b][-1]
            link[a, b] = problem.link_latency[one, two], problem.link_seconds_per_byte[one, two]
        return link

    def direct_share(self, kind: int, other: Sequence[int], direction: int) -> Floats:
        """What a replica of `kind` pays per tensor and byte for transfers with a stage `other`.

        `other` is a number of devices of each class.
        """
        mine, theirs = np.array(self.kinds[kind]), np.array(other)
        link = self.class_link if direction == OUT else self.class_link.transpose(1, 0, 2)
        if self.relaxed:
            return np.asarray(link[np.ix_(mine > 0, theirs > 0)].min(axis=(0, 1)) / mine.sum())
        mean = np.einsum("a,b,abx->x", mine, theirs, link) / (mine.sum() * theirs.sum())
        return np.asarray(mean / mine.sum())

    def host_share(self, kind: int, direction: int) -> Floats:
        """What a replica of `kind` pays per tensor and byte to (out) or from host memory (in)."""
        return np.asarray(self._host_shares[0 if direction == OUT else 1, kind])

    @cached_property
    def _host_shares(self) -> Floats:
        """`[way, kind, (tensor, byte)]`."""
        problem, kinds = self.graph.problem, np.array(self.kinds)
        first = [devices[0] for devices in self.graph.class_devices]
        costs = np.stack([problem.host_latency[:, first], problem.host_seconds_per_byte[:, first]])
        if self.relaxed:
            least = np.where(kinds[None, None] > 0, costs[:, :, None], np.inf).min(axis=-1)
            return np.ascontiguousarray(np.moveaxis(least / kinds.sum(axis=1), 0, -1))
        shares = np.einsum("xwc,kc->wkx", costs, kinds)
        return np.ascontiguousarray(shares / (kinds.sum(axis=1) ** 2)[None, :, None])

    def least_share(self, kind: int, direction: int, others: Sequence[int]) -> Floats:
        """The least a replica pays when the other stage is on classes of `others`."""
        if self.graph.problem.staging == "host":
            return self.host_share(kind, direction)
        one = np.eye(len(self.class_size), dtype=int)
        shares = [
            self.direct_share(kind, one[other], direction)
            for other in others
            if self.kinds[kind][other] < self.class_size[other]
        ]
        return np.min(shares, axis=0) if shares else np.zeros(2)

    def sync_share(self, kind: int) -> float:
        """Seconds per byte of weights for keeping replicas equal."""
        problem, mine = self.graph.problem, self.kinds[kind]
        r = sum(mine)
        if r == 1:
            return 0.0
        used = [each for each, number in enumerate(mine) if number]
        if problem.staging == "host":
            devices = [self.graph.class_devices[each][0] for each in used]
            slowest = problem.host_seconds_per_byte[:, devices].max()
        else:
            slowest = max(
                self.class_link[a, b, 1] for a in used for b in used if a != b or mine[a] > 1
            )
        return (r - 1) / r * float(slowest)

    # -- tables --------------------------------------------------------------------------------

    @cached_property
    def nets(self) -> Nets:
        graph, nets = self.graph, self.graph.nets
        return Nets(*nets[:6], graph.reader_ways, *graph.node_nets)

    @cached_property
    def added(self) -> Floats:
        """`[node, kind, row]`: seconds, then bytes, then misfits."""
        graph = self.graph
        table = np.zeros((graph.node_count, len(self.kinds), len(self.rows) + 2))
        for kind, numbers in enumerate(self.kinds):
            sync = self.sync_share(kind) * graph.sync_bytes
            for number, row in enumerate(self.rows):
                compute = self._computing(row, np.array(numbers))
                if self.factor:
                    compute *= self.factor[kind]
                table[:, kind, number] = compute + row.sync * sync
        table[:, :, -2] = graph.memory[:, None]
        table[:, :, -1] = ~self.allowed
        return table

    def _computing(self, row: Row, numbers: Wide) -> Floats:
        """`[node]` seconds of a replica, where there are so many of each class."""
        graph = self.graph
        ways = row.compute[: graph.passes]
        if self.relaxed and np.count_nonzero(numbers) > 1:
            return harmonic(np.tensordot(ways, graph.time, 1), numbers)
        time = graph.time[:, :, int(np.argmax(numbers > 0))] / numbers.sum()
        return np.asarray(np.tensordot(ways, time, 1))

    def limits(self, thresholds: Sequence[float]) -> Floats:
        """`[kind, row]` that a stage may not exceed; `thresholds` are those of the passes."""
        problem = self.graph.problem
        table = np.zeros((len(self.kinds), len(self.rows) + 2))
        for number, row in enumerate(self.rows):
            table[:, number] = thresholds[row.threshold]
        memory = problem.device_memory[[devices[0] for devices in self.graph.class_devices]]
        for kind, numbers in enumerate(self.kinds):
            table[kind, -2] = memory[np.array(numbers) > 0].min() * (1 + ROUNDING)
        table[:, -1] = 0.5
        return table

    @cached_property
    def threshold(self) -> Wide:
        return np.array([row.threshold for row in self.rows])

    @cached_property
    def _group(self) -> Wide:
        """Which of direction, pass and side are kept apart, where that makes a difference."""
        by_pass = self.passes > 1
        numbers: dict[tuple[int, int, int], int] = {}
        group = np.zeros(8, dtype=np.int64)
        for bit, (direction, way, side) in enumerate(
            itertools.product((OUT, IN), (0, 1), (LOW, HIGH))
        ):
            key = (direction, way if by_pass else 0, 0 if self.uniform else side)
            group[bit] = numbers.setdefault(key, len(numbers))
        return group

    @cached_property
    def costs(self) -> Costs:
        moves, keys = self._moves()
        coefficient = np.zeros((len(keys), len(self.rows), int(self._group.max()) + 1, 2))
        for variant, (kind, low, high) in enumerate(keys):
            for direction, side in itertools.product((OUT, IN), (LOW, HIGH)):
                share = self.least_share(kind, direction, low if side == LOW else high)
                for number, row in enumerate(self.rows):
                    parts = row.outgoing if direction == OUT else row.incoming
                    for way in (0, 1):
                        coefficient[
                            variant, number, self._group[4 * direction + 2 * way + side]
                        ] = parts[way] * share
        return Costs(
            self.added,
            len(self.rows),
            self._group,
            self.graph.problem.staging == "host",
            coefficient,
            *_columns(moves),
        )

    @cached_property
    def heavy(self) -> Flags:
        """`[variant, node]`: see `kernels.throughput.dominance`."""
        found: Flags = heavy_nodes(self.nets, self.costs, self.graph.followers)
        return found

    def _moves(self) -> tuple[list[Move], list[tuple[int, tuple[int, ...], tuple[int, ...]]]]:
        """All moves, and what each variant stands for: kind, classes below and classes above."""
        code_of = {state: code for code, state in enumerate(self.states)}
        keys: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        moves: list[Move] = []
        everything = tuple(range(len(self.class_size)))
        for before, state in enumerate(self.states):
            for kind, numbers in enumerate(self.kinds):
                taken = [numbers[each] for each in self.others]
                lead = numbers[self.lead] if self.lead >= 0 else 0
                left = tuple(a - b for a, b in zip(state, taken, strict=True))
                if min(left, default=0) < 0:
                    continue
                low = high = everything
                if not self.uniform:
                    low = tuple(
                        each for each, have in enumerate(state) if have < self.class_size[each]
                    )
                    high = tuple(each for each, have in enumerate(left) if have)
                variant = keys.setdefault((kind, low, high), len(keys))
                moves.append(Move(kind, variant, lead, before, code_of[left]))
        return moves, list(keys)

    @cached_property
    def chain(self) -> Chain:
        kinds = range(len(self.kinds))
        between = np.zeros((2, len(self.kinds), len(self.kinds), 2))
        least = np.zeros((2, len(self.kinds), 2))
        host = self.graph.problem.staging == "host"
        for direction, kind in itertools.product((OUT, IN), kinds):
            for other in kinds:
                between[direction, kind, other] = (
                    self.host_share(kind, direction)
                    if host
                    else self.direct_share(kind, self.kinds[other], direction)
                )
            everything = range(len(self.class_size))
            least[direction, kind] = self.least_share(kind, direction, list(everything))
        row_of = np.zeros((2, 2, len(self.rows)))
        for number, row in enumerate(self.rows):
            row_of[OUT, :, number] = row.outgoing
            row_of[IN, :, number] = row.incoming
        return Chain(between, least, row_of)

    @cached_property
    def approximate(self) -> bool:
        """Whether what a stage pays may depend on how the others are cut, not on their union."""
        if self.graph.problem.staging == "host":
            return False
        return not self.uniform or bool((np.diff(self.graph.nets.offsets) > 1).any())


def _columns(moves: Sequence[Move]) -> Wide:
    """`[field, move]`, also where there are no moves because no device runs a whole stage."""
    rows = np.array(moves, dtype=np.int64).reshape(-1, len(Move._fields))
    return np.ascontiguousarray(rows.T)


def uniform_transfers(problem: Problem) -> bool:
    """Whether a transfer costs the same wherever it comes from or goes to."""
    return problem.staging == "host" or links_alike(problem)


def too_many_states(problem: Problem) -> str | None:
    """Why the devices are too different for tables of what is left of each class, or None."""
    sizes = [len(devices) for devices in device_classes(problem)[1]]
    whole = math.prod(size + 1 for size in sizes)
    states = whole // (max(sizes) + 1) if uniform_transfers(problem) else whole
    kinds = whole if problem.options.replicate else len(sizes)
    if states * kinds <= MOST_MOVES:
        return None
    return (
        f"its {problem.device_count} devices are of {len(sizes)} different classes, which makes "
        f"{states} states of what is in use and {kinds} kinds of stages, more than it can table; "
        "give fewer devices, or fewer kinds of them"
    )


def stage_tables(graph: ContractedGraph) -> StageTables:
    """The tables for the problem of `nodes` under its options.

    Without anything in the backward pass, ``gpipe`` is ``pipedream``.
    """
    problem = graph.problem
    options = problem.options
    backward = problem.is_backward.any() or (options.replicate and problem.op_sync_bytes.any())
    schedule = options.schedule if backward else "pipedream"
    sizes = [len(devices) for devices in graph.class_devices]
    if options.replicate:
        numbers = [each for each in itertools.product(*(range(s + 1) for s in sizes)) if sum(each)]
    else:
        numbers = [tuple(row) for row in np.eye(len(sizes), dtype=int).tolist()]
    kinds, allowed = [], []
    for each in numbers:
        runs = _can_run(graph, each)
        if runs.any():
            kinds.append(each)
            allowed.append(runs)
    rows = rows_of(options.load, schedule, options.replicate)
    columns = np.stack(allowed, axis=1) if allowed else np.zeros((graph.node_count, 0), bool)
    return StageTables(graph, rows, tuple(kinds), columns)


def _can_run(graph: ContractedGraph, numbers: Sequence[int]) -> NDArray[np.bool_]:
    """`[node]` whether all the devices can run it, and equally fast where shares are equal."""
    used = [each for each, number in enumerate(numbers) if number]
    runs = graph.allowed[:, used].all(axis=1)
    if len(used) == 1 or graph.problem.options.shares == "unequal":
        return np.asarray(runs)
    times = graph.problem.op_time[:, [graph.class_devices[each][0] for each in used]]
    unequal = (times != times[:, :1]).any(axis=1)
    return np.asarray(runs & (np.bincount(graph.op_node, unequal, graph.node_count) == 0))
