"""The repair of a pipeline: what was on lost devices to those left, all else where it was.

A stage that has lost some replicas goes on with the rest. What has no device any more, or no room
on it, goes in contiguous plans to the stages before and after it in the row, cut where that is
best, and perhaps to an idle device in its place; in others to any device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from placewright.errors import InfeasibleError
from placewright.graph import Flags, Floats, Ints, Whole, Wide
from placewright.plan import Plan
from placewright.planners.throughput.board import Board, boards, mean_seconds, places_in_row
from placewright.problem import LONG_ROUNDING, Problem
from placewright.whatif.pipeline_moves import Changes, descend
from placewright.whatif.pipeline_split import Key, Pipeline, Replicas, Split, better

MOST_CUTS = 24  # places where what a lost stage had is parted
NO_ROOM = (
    "the ops of lost devices find no room beside the rest where it is; let planning anew move more"
)


class Stages:
    """The stages of a plan, and what is left of them on the devices of a problem.

    - `board`: nodes that none of the plan's stages tears apart, and all edges between go one way;
    - `stage[node]`: the number of the plan's device (the first of replicas) that it is on;
    - `device[stage]`: the device of the problem in its place, -1 if all of them are lost;
    - `place[stage]` in the row, or no entry where stages need not be contiguous;
    - `replicas`, those left of each stage that has several.
    """

    def __init__(self, old: Plan, problem: Problem) -> None:
        count = old.problem.device_count
        number = {name: d for d, name in enumerate(problem.device_names)}
        names = old.problem.device_names
        self.board, self.stage, self.place = _read(old, problem)
        self.device = np.array([number.get(name, -1) for name in names], dtype=np.int32)
        self.replicas: Replicas = ()
        for stage in old.placement.replicas:
            ops = np.flatnonzero(old.placement.device == stage[0])
            left = [number[names[d]] for d in stage if names[d] in number]
            alike = [d for d in left if _alike(problem, ops, left[0], d)]
            self.device[stage[0]] = left[0] if left else -1
            if len(alike) > 1:
                self.replicas += (tuple(alike),)
        self.used = np.unique(self.stage)
        self.count = count

    @property
    def home(self) -> Ints:
        """`[node]` the device in the place of its stage's, -1 if there is none."""
        return self.device[self.stage]

    @property
    def idle(self) -> list[int]:
        """Devices of the problem that no stage has."""
        mine = {*self.device[self.used].tolist(), *(d for each in self.replicas for d in each)}
        return [d for d in range(self.board.problem.device_count) if d not in mine]


def _read(old: Plan, problem: Problem) -> tuple[Board, Ints, Ints]:
    """The board on which the plan's stages are a split, their nodes', and their places."""
    contiguous = problem.options.contiguous
    for board in boards(problem):
        stage = np.zeros(board.graph.node_count, dtype=np.int32)
        stage[board.graph.op_node] = old.placement.device
        if not np.array_equal(stage[board.graph.op_node], old.placement.device):
            continue
        if not contiguous:
            return board, stage, np.zeros(0, dtype=np.int32)
        place = places_in_row(board.graph, stage, old.problem.device_count)
        if place is not None:
            return board, stage, place
    raise InfeasibleError(
        "the stages of the plan are none of the problem as it is now (ops must be together that "
        "were apart, or data goes other ways); plan it anew"
    )


def _alike(problem: Problem, ops: Whole, one: int, two: int) -> bool:
    """Whether the ops take as long on both, as those of replicas must."""
    return np.array_equal(problem.op_time[ops, one], problem.op_time[ops, two])


class PipelineRepair:
    """Finds the repair; `loose[node]` may go anywhere, and all others stay."""

    def __init__(self, pipeline: Pipeline, stages: Stages) -> None:
        self.pipeline = pipeline
        self.problem = pipeline.problem
        self.stages = stages
        self.board = stages.board
        self.loose = self._loose()
        self.device = stages.device.copy()  # [stage], idle ones in the place of lost ones

    def best(self) -> Split:
        """Whole, within memory, in a row; InfeasibleError where that is not found."""
        if (self.loose & (self.stages.home < 0)).all():
            raise InfeasibleError("no device of the plan is left; there is nothing to repair")
        found = self._cut() if self.problem.options.contiguous else self._spread()
        changes = Changes(self.pipeline, self.loose)
        with contextlib.suppress(KeyboardInterrupt):
            found = descend(changes, found, _measure, lambda split: self.loose, np.inf)
        if not self.pipeline.holds(found):
            raise InfeasibleError(NO_ROOM)
        return found

    def _loose(self) -> Flags:
        """Nodes without a device; all of a device's that cannot hold or run what it has."""
        stages, pipeline = self.stages, self.pipeline
        home = stages.home
        loose = home < 0
        there = np.flatnonzero(~loose)
        used = np.bincount(home[there], self.board.graph.memory[there], self.problem.device_count)
        for stage in stages.replicas:
            used[list(stage)] = used[stage[0]]
        full = set(np.flatnonzero(used > self.problem.device_memory * (1 + LONG_ROUNDING)).tolist())
        full |= set(home[there[~pipeline.allowed[there, home[there]]]].tolist())
        full |= {s[0] for s in stages.replicas if full.intersection(s)}
        return np.asarray(loose | np.isin(home, sorted(full)))

    def _split(self, node_device: Ints) -> Split:
        return self.pipeline.split(node_device, self.stages.replicas)

    # -- in a row --------------------------------------------------------------------------------

    def _cut(self) -> Split:
        """Each loose stage's nodes parted over the stages beside it and a device in its place."""
        stages = self.stages
        row = stages.used[np.argsort(stages.place[stages.used])].tolist()
        affected = [stage for stage in row if self.loose[stages.stage == stage].any()]
        node_device = stages.home.copy()
        for stage in affected:
            self._hold_place(node_device, stage, row)
        split = self._split(node_device)
        idle = stages.idle
        for stage in affected:
            split, taken = self._recut(split, stage, row, idle)
            idle = [device for device in idle if device != taken]
        return split

    def _hold_place(self, node_device: Ints, stage: int, row: list[int]) -> None:
        """What a lost stage had, halved between its neighbours, until it is looked at."""
        if self.device[stage] >= 0:
            return
        before, after = self._beside(stage, row)
        nodes = self._nodes(stage)
        half = len(nodes) // 2 if before >= 0 and after >= 0 else len(nodes) * (before >= 0)
        node_device[nodes[:half]], node_device[nodes[half:]] = before, after

    def _recut(
        self, split: Split, stage: int, row: list[int], idle: list[int]
    ) -> tuple[Split, int]:
        """The best way to part the nodes of a stage, and the idle device that takes its place.

        -1 if none does.
        """
        before, after = self._beside(stage, row)
        nodes, mine = self._nodes(stage), int(self.device[stage])
        middles = [mine] if mine >= 0 else [-1, *self._distinct(idle)]
        best, taken = split, -1
        for middle in middles:
            for low, high in self._cuts(nodes, before, middle, after):
                node_device = split.node_device.copy()
                node_device[nodes[:low]] = before
                node_device[nodes[low:high]] = middle
                node_device[nodes[high:]] = after
                found = self._split(node_device)
                if better(_measure(found), _measure(best)):
                    best, taken = found, middle if high > low else -1
        if mine < 0:
            self.device[stage] = taken
        return best, taken

    def _beside(self, stage: int, row: list[int]) -> tuple[int, int]:
        """The devices of the next stages in the row that have one; -1 where there is none."""
        place = row.index(stage)
        before = next((int(self.device[s]) for s in row[:place][::-1] if self.device[s] >= 0), -1)
        after = next((int(self.device[s]) for s in row[place + 1 :] if self.device[s] >= 0), -1)
        return before, after

    def _nodes(self, stage: int) -> Wide:
        """Along the data."""
        along = self.board.orders(1, 0)[0]
        return np.asarray(along[self.stages.stage[along] == stage])

    def _cuts(self, nodes: Wide, before: int, middle: int, after: int) -> Iterator[tuple[int, int]]:
        """Where the middle part begins and ends, at places that part the work about evenly."""
        work = np.cumsum(self._seconds[nodes])
        shares = np.linspace(0.0, 1.0, MOST_CUTS + 1) * (work[-1] if len(work) else 0.0)
        inner = np.searchsorted(work, shares).tolist() if len(nodes) > MOST_CUTS else []
        places = sorted({0, len(nodes), *(inner or range(len(nodes)))})
        for low in places if before >= 0 else [0]:
            if middle < 0:
                if after >= 0 or low == len(nodes):
                    yield low, low
                continue
            for high in places if after >= 0 else [len(nodes)]:
                if high >= low:
                    yield low, high

    @property
    def _seconds(self) -> Floats:
        return mean_seconds(self.board, np.arange(self.problem.device_count, dtype=np.int32))

    def _distinct(self, idle: list[int]) -> list[int]:
        """One of each class of idle devices that nothing but their links tells apart."""
        of_class = self.board.graph.device_class
        first: dict[tuple[int, bytes], int] = {}
        for device in idle:
            links = self.problem.link_seconds_per_byte[device]
            first.setdefault((int(of_class[device]), np.sort(links).tobytes()), device)
        return list(first.values())

    # -- anywhere --------------------------------------------------------------------------------

    def _spread(self) -> Split:
        """The loose nodes to one idle device, or one by one where the load stays least."""
        home = self.stages.home
        loose = np.flatnonzero(self.loose)
        found = [self._split(self._one_by_one(home, loose, by_memory)) for by_memory in (0, 1)]
        for device in self._seats():
            candidate = home.copy()
            candidate[loose] = device
            found.append(self._split(candidate))
        best = found[0]
        for each in found[1:]:
            if better(_measure(each), _measure(best)):
                best = each
        return best

    def _seats(self) -> list[int]:
        """Devices that ops may name: of replicas the first only."""
        others = {d for stage in self.stages.replicas for d in stage[1:]}
        return [d for d in range(self.problem.device_count) if d not in others]

    def _one_by_one(self, home: Ints, loose: Wide, by_memory: int) -> Ints:
        """The longest (or largest) first, each where computing is done soonest and there is room.

        At home where there is room, which moves nothing.
        """
        graph, seats = self.board.graph, np.array(self._seats())
        arrays = self.board.arrays
        time = arrays.time.sum(axis=0)[:, graph.device_class]
        size = np.array([self._replica_count(int(d)) for d in range(self.problem.device_count)])
        device = home.copy()
        fixed = np.flatnonzero(~self.loose)
        busy = np.bincount(device[fixed], time[fixed, device[fixed]], self.problem.device_count)
        used = np.bincount(device[fixed], graph.memory[fixed], self.problem.device_count)
        first = graph.memory[loose] if by_memory else self._seconds[loose]
        for node in loose[np.argsort(-first, kind="stable")].tolist():
            then = (busy + time[node]) / size
            lacks = used + graph.memory[node] > self.problem.device_memory
            order = np.lexsort((
                then[seats],
                self.pipeline.coming[node, seats],
                lacks[seats],
                ~self.pipeline.allowed[node, seats],
            ))  # fmt: skip
            chosen = int(seats[order[0]])
            device[node] = chosen
            busy[chosen] += time[node, chosen]
            used[chosen] += graph.memory[node]
        return device

    def _replica_count(self, device: int) -> int:
        return next((len(s) for s in self.stages.replicas if s[0] == device), 1)


def _measure(split: Split) -> Key:
    """First that it fits, then few bytes, then a low value."""
    return split.over, split.moved, split.value, split.unevenness
