"""`row-cuts`: the best cuts of a linear order over a row of devices, for any size.

The nodes stand in a line along the data and the devices in a row of neighbours. A limit on the
loads is lowered by bisection; whether the line can be cut so that no load exceeds it is found by
going along both at once (`kernels.throughput.row_cuts`). Several lines and rows are tried.
Different from the dynamic programs (`linear-dp`, `ideal-dp`) the row of the devices is given, not
sought, and so it takes a time in proportion to the graph whatever the devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, PlacewrightError
from placewright.graph import Floats, Ints, Wide
from placewright.planners.base import MemoryAccount, Proposal, whole_number
from placewright.planners.throughput.board import Board, boards, mean_seconds
from placewright.planners.throughput.lines import WORTH, Cuts, Line, improved_row, line_of
from placewright.problem import LONG_ROUNDING, Problem

FINE_WIDTH, FINE_PRECISION = 24, 0.001  # for the best line
REFINEMENTS = 3


class RowCuts:
    """Contiguous splits, or any; no replicas.

    Options: `orders`, how many linear orders are tried on each row (6); `rows`, how often the best
    row is changed at random after that (40).
    """

    name: ClassVar[str] = "row-cuts"
    objective: ClassVar[str] = "throughput"

    def __init__(self, orders: str | int = 6, rows: str | int = 40) -> None:
        self.orders = whole_number(self.name, "orders", orders)
        self.rows = whole_number(self.name, "rows", rows)

    def supports(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        found = best_cuts(problem, self.orders, self.rows, budget, seed, on_progress)
        return Proposal(found.placement())


def best_cuts(
    problem: Problem, orders: int, more_rows: int, budget: Budget, seed: int, on_progress: Progress
) -> Cuts:
    """The best split found until the end of the budget, at least one if there is one to be found.

    InfeasibleError if none is found.
    """
    leader = _Leader()
    reasons: list[str] = []
    tried = 0
    try:
        for board in boards(problem):
            tried += 1
            misfit = board.misfit()
            if misfit is not None:
                reasons.append(misfit)
                continue
            leader.look(board, orders, budget, seed, on_progress)
            leader.improve(more_rows, budget, np.random.default_rng(seed))
    except KeyboardInterrupt:
        if leader.best is None:
            raise
    if leader.best is not None:
        return leader.best
    if len(reasons) == tried and problem.options.contiguous:
        raise InfeasibleError(
            f"planner 'row-cuts': there is no contiguous split, for {reasons[0]}; allow stages "
            "that are not contiguous (--no-contiguous), or give the devices more memory"
        )
    raise InfeasibleError(
        "planner 'row-cuts' found no split that fits the devices (no cuts of its linear orders "
        "do); give them more memory, or allow stages that are not contiguous (--no-contiguous)"
    )


@dataclass
class _Leader:
    """The best split so far, and the line it is of if that is of the board looked at last."""

    best: Cuts | None = None
    line: Line | None = None

    def take(self, found: Cuts | None, line: Line) -> bool:
        """Whether it is better."""
        if found is None or (self.best is not None and found.value >= self.best.value):
            return False
        self.best, self.line = found, line
        return True

    def look(
        self, board: Board, orders: int, budget: Budget, seed: int, on_progress: Progress
    ) -> None:
        """At all lines beside all rows, as time allows."""
        self.line = None
        lines = board.orders(orders, seed)
        all_rows = [each for row in rows(board) for each in _with_pins(board, row, lines[0])]
        for number, row in enumerate(all_rows):
            for order in lines:
                if self.best is not None and budget.left <= 0:
                    return
                on_progress("rows", number / len(all_rows))
                line = line_of(board, row, order)
                limit = math.inf if self.best is None else WORTH * self.best.value
                if line is not None:
                    self.take(line.best_below(limit, budget), line)
        if self.best is None:
            self.best = _anywhere(board)

    def improve(self, more_rows: int, budget: Budget, rng: np.random.Generator) -> None:
        """With a wider beam, with what is known of who reads what, and in other rows."""
        if self.best is None or self.line is None:
            return
        for _ in range(REFINEMENTS):
            line = self.line.informed(self.best)
            found = line.best_below(self.best.value, budget, FINE_WIDTH, FINE_PRECISION)
            if not self.take(found, line) or budget.left <= 0:
                break

        def adopt(cuts: Cuts) -> None:
            self.best = cuts

        improved_row(self.line.informed(self.best), self.best, more_rows, budget, rng, adopt)


def _with_pins(board: Board, row: Ints, order: Wide) -> list[Ints]:
    """The row, and where ops are pinned the row with their devices where the ops are in the line.

    Only where stages are contiguous; elsewhere pinned ops are no part of the line.
    """
    problem = board.problem
    pinned = np.unique(problem.op_pinned[problem.op_pinned >= 0])
    if not problem.options.contiguous or not len(pinned):
        return [row]
    place = np.empty(len(order))
    place[order] = np.cumsum(mean_seconds(board, row)[order])
    place /= max(float(place.max()), 1e-300)
    wanted = np.empty(problem.device_count)
    others = ~np.isin(row, pinned)
    wanted[row[others]] = (np.arange(others.sum()) + 0.5) / max(int(others.sum()), 1)
    for device in pinned.tolist():
        ops = np.flatnonzero(problem.op_pinned == device)
        wanted[device] = place[board.graph.op_node[ops]].mean()
    moved = row[np.argsort(wanted[row], kind="stable")]
    return [np.ascontiguousarray(moved, dtype=np.int32), row]


def _anywhere(board: Board) -> Cuts | None:
    """Where no line fits: the largest unit first, on the first fast device with room."""
    problem = board.problem
    if problem.options.contiguous:
        return None
    account = MemoryAccount(problem, RowCuts.name)
    row = rows(board)[0]
    for unit in np.argsort(-problem.unit_memory, kind="stable").tolist():
        account.place_first(unit, row)
    found = board.nodes_on(account.unit_device)
    if found is None:
        raise PlacewrightError("a unit is on two devices; report this with the problem's file")
    return Cuts(board, found, board.value(found))


# -- rows of devices -----------------------------------------------------------------------


def rows(board: Board) -> list[Ints]:
    """Different rows of all devices worth a try.

    The fast ones first, in the order they are listed in (which has those of a host together); last;
    half of the fastest at either end; and each device followed by the nearest of those left. What
    an op needs that few devices can run may be wherever it likes, so no row is best for all.
    """
    listed = np.arange(board.problem.device_count)
    speed = _seconds_of_all(board)[board.arrays.device_class]
    fast = listed[np.argsort(speed, kind="stable")]
    half = int((speed == speed.min()).sum()) // 2
    ends = np.concatenate([fast[:half], fast[2 * half :], fast[half : 2 * half]])
    found: list[Ints] = []
    for row in (fast, fast[::-1], ends, _chain(board, speed), listed):
        if not any(np.array_equal(row, other) for other in found):
            found.append(np.ascontiguousarray(row, dtype=np.int32))
    return found


def _seconds_of_all(board: Board) -> Floats:
    """`[class]` seconds of all nodes, those it cannot run counted as on the slowest that can."""
    time = board.arrays.time.sum(axis=0)
    worst = np.where(board.graph.allowed, time, 0.0).max(axis=1)
    seconds: Floats = np.where(board.graph.allowed, time, 10.0 * worst[:, None]).sum(axis=0)
    return seconds


def _chain(board: Board, speed: Floats) -> Ints:
    """Each device followed by the nearest of those left, of these the fastest."""
    problem, arrays = board.problem, board.arrays
    count = problem.device_count
    tensors = max(float(arrays.net_count.sum()), 1.0)
    size = float(arrays.net_bytes.sum()) / tensors
    row = [int(speed.argmin())]
    left = np.ones(count, dtype=np.bool_)
    left[row[0]] = False
    rank = np.argsort(np.argsort(speed, kind="stable"), kind="stable")
    while len(row) < count:
        last = row[-1]
        away = problem.link_latency[last] + size * problem.link_seconds_per_byte[last]
        away = np.where(left, away, np.inf)
        nearest = np.flatnonzero(away <= away.min() * (1 + LONG_ROUNDING))
        row.append(int(nearest[rank[nearest].argmin()]))
        left[row[-1]] = False
    return np.array(row, dtype=np.int32)
