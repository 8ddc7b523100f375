"""Lines of nodes beside rows of devices, and the best cuts of one over the other.

See `kernels.throughput.row_cuts`. A limit on the loads is lowered by bisection; rows are improved
by putting devices elsewhere in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from placewright.budget import Budget
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.throughput.row_cuts import copies_sent, crossing, cut_row
from placewright.plan import Placement
from placewright.planners.throughput.board import Board, mean_seconds

WORTH = 0.995  # of the best value: where a line that has not been looked at has to come to
BETTER = 0.9995  # of the best value: where a changed row has to
DOUBLINGS = 80
CAUTION = 0.8  # of a limit that can be kept: the next one tried is no lower
RARE_SHARE = 0.5  # of the devices of a row: an op on fewer is put somewhere first
WIDTH = 4  # positions kept at each device
PRECISION = 0.005  # of a limit
NEGLIGIBLE = 1e-9  # of the first limit
FEWEST_PLACES = 4  # of a row, looked at for what to exchange


@dataclass(frozen=True, eq=False)
class Cuts:
    """A split: `node_device[node]`, seconds per input."""

    board: Board
    node_device: Ints
    value: float

    def placement(self) -> Placement:
        return Placement(self.node_device[self.board.graph.op_node])


@dataclass(frozen=True, eq=False)
class Line:
    """Nodes in a line, devices in a row, and what is set aside for nodes put elsewhere.

    `order` are the nodes of the line; `aside[node]` the device of the others, or -1.
    """

    board: Board
    row: Ints
    order: Wide
    aside: Ints
    score: Floats
    copies: Floats
    taken: Floats
    busy: Floats

    def cut(self, limit: float, width: int = WIDTH) -> Cuts | None:
        """A split with loads of at most about `limit`."""
        found = cut_row(
            self.board.arrays, self.order, self.row, limit, width, self.score, self.copies,
            self.taken, self.busy,
        )  # fmt: skip
        device = np.where(self.aside >= 0, self.aside, found).astype(np.int32)
        if (device < 0).any():
            return None
        return Cuts(self.board, device, self.board.value(device))

    def best_below(
        self,
        limit: float,
        budget: Budget,
        width: int = WIDTH,
        precision: float = PRECISION,
    ) -> Cuts | None:
        """The best split on the way from `limit` down to the least that can be kept.

        None if `limit` cannot. Where links differ a split's loads are not what they were thought
        to be: its value counts.
        """
        found = self.cut(limit, width)
        if found is None:
            return None
        low, high = 0.0, limit
        if math.isinf(high):
            found, high = self._doubled(found, width)
            low = high / 2
        least = NEGLIGIBLE * high  # where all loads can be zero, no limit is too low
        while high - low > precision * high and high > least and budget.left > 0:
            middle = max((low + high) / 2, CAUTION * high)
            tried = self.cut(middle, width)
            if tried is None:
                low = middle
                continue
            high = middle
            if tried.value < found.value:
                found = tried
        return found

    def _doubled(self, loosest: Cuts, width: int) -> tuple[Cuts, float]:
        """The first split of a doubled limit, and the limit."""
        limit = float(mean_seconds(self.board, self.row).sum()) / len(self.row)
        limit = limit or loosest.value / 2**DOUBLINGS
        while 0 < limit < loosest.value:
            found = self.cut(limit, width)
            if found is not None:
                return min(found, loosest, key=lambda each: each.value), limit
            limit *= 2
        return loosest, loosest.value

    def informed(self, cuts: Cuts) -> Line:
        """The same line with nets sent to as many stages as in these cuts."""
        if self.board.arrays.through_host:
            return self
        place = _places(self.row)
        return replace(self, copies=copies_sent(self.board.arrays, place[cuts.node_device]))

    def in_row(self, row: Ints) -> Line:
        """The same line beside the same devices in another row."""
        return replace(self, row=row)


def line_of(board: Board, row: Ints, order: Wide) -> Line | None:
    """None if what has to be put aside has no room."""
    aside = _put_aside(board, row)
    if aside is None:
        return None
    problem, arrays = board.problem, board.arrays
    outside = aside >= 0
    kind = arrays.device_class[aside[outside]]
    seconds = arrays.time[:, np.flatnonzero(outside), kind].sum(axis=0)
    devices = problem.device_count
    order = np.ascontiguousarray(order[~outside[order]])
    work = np.concatenate([[0.0], np.cumsum(mean_seconds(board, row)[order])])
    score = work - crossing(arrays, order, *_between_neighbours(board, row))
    score[-1] = np.inf
    return Line(
        board,
        row,
        order,
        aside,
        score,
        np.ones((len(arrays.net_source), 2)),
        np.bincount(aside[outside], arrays.memory[outside], devices).astype(np.float64),
        np.bincount(aside[outside], seconds, devices).astype(np.float64),
    )


def line_through(cuts: Cuts, order: Wide) -> Line | None:
    """A line and a row that a split is a cut of: in `order`, the nodes of each device together.

    Devices stand in the row as their nodes do in the order, on average; idle ones come last.
    """
    board, device = cuts.board, cuts.node_device
    count = board.problem.device_count
    position = _places(order)
    nodes = np.bincount(device, minlength=count)
    place = np.bincount(device, position, count) / np.maximum(nodes, 1)
    rank = board.row_rank(device)
    if rank is not None and len(rank):
        place = rank.astype(np.float64)
    place = np.where(nodes > 0, place, np.inf)
    row = np.argsort(place, kind="stable").astype(np.int32)
    by_device = order[np.argsort(_places(row)[device[order]], kind="stable")]
    line = line_of(board, row, by_device)
    return None if line is None else line.informed(cuts)


def improved_row(
    line: Line,
    best: Cuts,
    tries: float,
    budget: Budget,
    rng: np.random.Generator,
    on_better: Callable[[Cuts], None] | None = None,
) -> tuple[Line, Cuts, int]:
    """Put devices elsewhere in the row as long as that helps; also how many rows were tried."""
    tried = 0
    while tried < tries and budget.left > 0 and len(line.row) > 1 and best.value > 0:
        used = len(np.unique(best.node_device))
        other = line.in_row(_changed(line.row, used, line.board.arrays.device_class, rng))
        found = other.cut(BETTER * best.value)
        if found is not None and found.value < best.value:
            lowest = other.best_below(BETTER * found.value, budget)
            line = other
            best = found if lowest is None or lowest.value > found.value else lowest
            if on_better is not None:
                on_better(best)
        tried += 1
    return line, best, tried


def _changed(row: Ints, used: int, device_class: Ints, rng: np.random.Generator) -> Ints:
    """The row with two devices exchanged, one put elsewhere or a stretch turned round."""
    reach = min(len(row), max(used + 1, FEWEST_PLACES))
    one, two = (int(each) for each in rng.integers(reach, size=2))
    if rng.random() < 0.2:  # any other device for one of those in use
        two = int(rng.integers(len(row)))
    kind = rng.integers(3)
    found = row.copy()
    if kind == 0 and device_class[row[one]] != device_class[row[two]]:
        found[[one, two]] = row[[two, one]]
    elif kind == 1:
        low, high = min(one, two), max(one, two) + 1
        found[low:high] = row[low:high][::-1]
    else:
        found = np.insert(np.delete(row, one), two, row[one]).astype(np.int32)
    return found


def _between_neighbours(board: Board, row: Ints) -> tuple[float, float]:
    """Latency and seconds per byte of the transfer from one device of a row to the next, about."""
    problem = board.problem
    if problem.staging == "host":
        latency, per_byte = problem.host_latency[:, row], problem.host_seconds_per_byte[:, row]
        return float(latency.sum(axis=0).mean()), float(per_byte.sum(axis=0).mean())
    if len(row) == 1:
        return 0.0, 0.0
    ways = row[:-1], row[1:]
    return float(problem.link_latency[ways].mean()), float(
        problem.link_seconds_per_byte[ways].mean()
    )


def _places(order: Wide | Ints) -> Wide:
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


def _put_aside(board: Board, row: Ints) -> Ints | None:
    """`[node]` devices of what would tear a line apart: ops that few devices can run; else -1.

    Only where stages need not be contiguous. Each, the longest first, goes to the device that is
    done soonest with what it was given. None if there is no room.
    """
    problem, arrays = board.problem, board.arrays
    aside = np.full(board.graph.node_count, -1, dtype=np.int32)
    if problem.options.contiguous:
        return aside
    rare = _rare(board, row)
    seconds = np.where(board.graph.allowed, arrays.time.sum(axis=0), np.inf).min(axis=1)
    free = problem.device_memory.copy()
    busy = np.zeros(problem.device_count)
    for node in rare[np.argsort(-seconds[rare], kind="stable")].tolist():
        here = board.graph.allowed[node][arrays.device_class]
        here &= arrays.memory[node] <= free
        if not here.any():
            return None
        then = busy + arrays.time[:, node].sum(axis=0)[arrays.device_class]
        device = int(np.where(here, then, np.inf).argmin())
        aside[node] = device
        busy[device] = then[device]
        free[device] -= arrays.memory[node]
    return aside


def _rare(board: Board, row: Ints) -> Ints:
    many = np.bincount(board.arrays.device_class[row], minlength=board.graph.class_count)
    able = board.fits() @ many
    return np.flatnonzero(able < RARE_SHARE * len(row)).astype(np.int32)
