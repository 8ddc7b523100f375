"""Celeritas (Xu et al. 2022): fuse ops into groups, place these, give ops their group's device.

`coarsen.sequential` makes the groups. What the paper calls best effort, giving an op to the
device with the lowest memory use although nothing has room, would overflow that device; a plan
here never does. Both planners give a group to any device that has room for it, and where none
has, begin again with smaller groups (half the memory fraction, `HALVINGS` times), then with
single ops; if an op finds no room even so, that is a NoRoomError.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from placewright.analysis.orders import ORDERS, check_order, order_named
from placewright.budget import Budget, Progress
from placewright.coarsen.contraction import Contraction, contract
from placewright.coarsen.sequential import (
    MEMORY_FRACTION,
    REACH,
    check_measure,
    sequential_groups,
)
from placewright.errors import OptionError
from placewright.graph import Ints, Wide
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.adjusting import adjusting_schedule
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, MemoryAccount, NoRoomError, Proposal, no_room
from placewright.planners.latency.construct.simple import fastest_first, filled
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, sequence_of, time_placement

HALVINGS = 3
SAME = "same"
BOTH = "both"
TRANSFERS = ("work", "channels")


class GroupPlanner(LatencyPlanner):
    """What both planners share: the groups, and their options.

    - `order`: ``cpd``, ``dfs`` or ``m-topo``: the topological order that is cut into groups;
    - `reach`: ops in a group at most (R, 200);
    - `memory_fraction`: of a device's memory in a group at most (M, 0.25);
    - `measure`: what a cut costs, per ``edge`` or per ``tensor`` (the problem's transfer unit);
    - `group_order`: the order in which groups are placed: the ``same``, so that groups that send
      each other most stay neighbours, or a new one of the group graph, named as above. Alg. 2
      takes a new CPD-TOPO order; but on a graph of large groups that interleaves branches, and
      a training step of a T5 with 30,000 ops takes 4.1 s instead of 2.5 s.

    A placement is timed in the order of its groups and in the scheduler's, and keeps the better.
    """

    name: ClassVar[str]

    def __init__(
        self,
        order: str = "cpd",
        reach: str = str(REACH),
        memory_fraction: str = str(MEMORY_FRACTION),
        measure: str = "",
        group_order: str = SAME,
    ) -> None:
        self.order = check_order(order)
        self.reach = int(_number("reach", reach, least=1, whole=True))
        self.memory_fraction = _number("memory_fraction", memory_fraction, least=1e-6)
        self.measure = check_measure(measure) if measure else None
        if group_order != SAME and group_order not in ORDERS:
            raise OptionError(f"group_order is '{group_order}'; choose {SAME}, {', '.join(ORDERS)}")
        self.group_order = group_order

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        for halving in range(HALVINGS + 1):
            contraction = self._contract(problem, self.memory_fraction / 2**halving)
            try:
                placed = self.place(contraction.problem, self._line(contraction.problem))
            except NoRoomError:
                continue
            return Proposal(_first_done(problem, [contraction.expand(each) for each in placed]))
        placed = self.place(problem, order_named(self.order, problem))
        return Proposal(_first_done(problem, placed))

    def place(self, problem: Problem, line: Ints) -> list[Placement]:
        """Placements to choose from, of ops in the topological order `line`.

        NoRoomError if one fits nowhere.
        """
        raise NotImplementedError

    def _contract(self, problem: Problem, memory_fraction: float) -> Contraction:
        groups = sequential_groups(
            problem,
            order=self.order,
            reach=self.reach,
            memory_fraction=memory_fraction,
            measure=self.measure,
        )
        return contract(problem, groups)

    def _line(self, coarse: Problem) -> Ints:
        """The order of the groups, which are numbered as they were cut."""
        if self.group_order == SAME:
            return np.arange(coarse.op_count, dtype=np.int32)
        return order_named(self.group_order, coarse)


class OrderPlace(GroupPlanner):
    """Order-Place: groups in the topological order, each device up to its memory (§5.2, §6.2.2).

    Devices come fastest first; one is left for good at the first group it has no room for. A
    group for which neither it nor a later one has room goes where most memory is free.
    """

    name: ClassVar[str] = "order-place"

    def place(self, problem: Problem, line: Ints) -> list[Placement]:
        return [filled(problem, line, self.name, anywhere=True)]


class Celeritas(GroupPlanner):
    """Adjusting Placement (Alg. 2): follow the order, leave a device where that saves time.

    Groups come in the topological order, as in Order-Place. One goes to the device of the group
    before it, unless on another device it would finish earlier by more than it takes to send its
    results back; ops and transfers may fill gaps. The paper compares start times, on devices that
    are all alike; finish times are the same there and right elsewhere too.

    Transfers count as work of the devices that send and receive (§6.1): with option `transfers`
    ``work`` they keep both from computing, as ops would; with ``channels`` they keep only the
    channels of the problem's contention option busy, as when the plan is judged. ``both`` (the
    default) tries one and the other. In the paper's model an adjustment never makes Order-Place
    worse (§5.2); under contention and memory limits it can, so that is tried too. The plan is the
    one that is done first.
    """

    name: ClassVar[str] = "celeritas"

    def __init__(self, transfers: str = BOTH, **options: str) -> None:
        super().__init__(**options)
        if transfers not in (BOTH, *TRANSFERS):
            raise OptionError(f"transfers is '{transfers}'; choose {BOTH}, {', '.join(TRANSFERS)}")
        self.transfers = TRANSFERS if transfers == BOTH else (transfers,)

    def place(self, problem: Problem, line: Ints) -> list[Placement]:
        found: list[Placement] = []
        full: NoRoomError | None = None
        for transfers in self.transfers:
            try:
                found.append(self._adjusted(problem, line, transfers))
            except NoRoomError as error:
                full = error
        try:
            found.append(filled(problem, line, self.name, anywhere=True))
        except NoRoomError as error:
            full = error
        if full and not found:
            raise full
        return found

    def _adjusted(self, problem: Problem, line: Ints, transfers: str) -> Placement:
        offsets, busy, resources = busy_with_transfers(problem, transfers)
        account = MemoryAccount(problem, self.name)
        op_start, op_finish = np.empty(problem.op_count), np.empty(problem.op_count)
        edge_start, edge_finish = np.empty(problem.edge_count), np.empty(problem.edge_count)
        failed = adjusting_schedule(
            arrays_of(problem),
            offsets,
            busy,
            resources,
            line,
            problem.op_unit,
            account.unit_device,
            problem.unit_memory,
            account.allowed,
            account.free,
            int(fastest_first(problem)[0]),
            op_start,
            op_finish,
            edge_start,
            edge_finish,
        )
        if failed >= 0:
            raise no_room(problem, int(problem.op_unit[failed]), account.free, self.name)
        return Placement(
            account.unit_device[problem.op_unit],
            sequence_of(problem, op_start, op_finish, edge_start, edge_finish),
        )


def busy_with_transfers(problem: Problem, transfers: str) -> tuple[Wide, Ints, int]:
    """What a transfer keeps busy: CSR per pair of devices, and how many resources there are.

    `transfers` is ``work`` or ``channels``; see `Celeritas`. The first resources are the devices.
    """
    count = problem.device_count
    if transfers == "channels":
        offsets, channels, names = problem.active_channels
        return offsets.copy(), count + channels, count + len(names)
    source, target = np.divmod(np.arange(count * count), count)
    offsets = np.concatenate([[0], np.cumsum(np.where(source != target, 2, 0))])
    ends = np.stack([source, target], axis=1)[source != target]
    return offsets, ends.ravel().astype(np.int32), count


def _first_done(problem: Problem, placements: list[Placement]) -> Placement:
    """The placement that is done first, each in its own order, if it has one, and the scheduler's.

    Of equals the first.
    """
    orders = [each for each in placements if each.sequence is not None]
    orders += [schedule_placement(problem, each.device) for each in placements]
    return min(orders, key=lambda each: time_placement(problem, each).makespan)


def _number(name: str, text: str, *, least: float, whole: bool = False) -> float:
    """The number in `text`; OptionError unless it is one, at least `least`, finite."""
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        kind = "a whole number" if whole else "a number"
        raise OptionError(f"option {name} is '{text}'; give {kind} of at least {least:g}")
    return value
