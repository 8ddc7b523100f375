"""How many devices a set of pieces takes at least: prices that prune the ideals.

For weights λ of the classes, the devices of a stage's classes can do no more than Σ λ_k · number ·
limit, and whatever runs a piece charges at least min_k λ_k · its seconds (or bytes) for it. Every
choice of λ gives a valid condition; here one for each row and set of classes, from a fractional
knapsack: what the other classes do best is theirs, until they are full.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from placewright.graph import Floats
from placewright.kernels.ideals import Windows
from placewright.kernels.stage_loads import IN, OUT
from placewright.planners.pipeline.stages import TOLERANCE, StageTables

TOO_MUCH = 10.0  # times all there is: the price of what no device of a window can run
MOST_CLASSES = 3  # that do not lead, of which every subset has windows of its own


def windows_of(tables: StageTables, thresholds: Sequence[float]) -> Windows:
    """What devices can do at most within the thresholds; see `kernels.ideals.Windows`."""
    found = _window_prices(tables, thresholds)
    pieces = tables.pieces
    price = np.zeros((pieces.piece_count, len(found)))
    out_price = np.zeros((pieces.net_count, len(found)))
    in_price = np.zeros((pieces.net_count, len(found)))
    lead = np.zeros(len(found))
    room = np.full((len(found), len(tables.states)), np.inf)
    states = np.array(tables.states, dtype=np.float64).reshape(len(tables.states), -1)
    for w, (row, others, class_price) in enumerate(found):
        limit = _class_limits(tables, row, thresholds)
        members = [*others] if tables.lead < 0 else [tables.lead, *others]
        price[:, w] = _cheapest(tables, row, members, class_price, limit)
        if row < len(tables.rows):
            out_price[:, w], in_price[:, w] = _cheapest_cut(tables, row, members, class_price)
        if tables.lead >= 0:
            lead[w] = limit[tables.lead] * class_price[tables.lead]
        inside = np.array([each in others for each in tables.others], dtype=np.bool_)
        usable = ~(states[:, ~inside] > 0).any(axis=1)
        capacity = np.array(
            [class_price[k] * limit[k] if k in others else 0 for k in tables.others]
        )
        room[w, usable] = states[usable][:, inside] @ capacity[inside]
    return Windows(price, out_price, in_price, lead, room, tables.lead_count)


def _class_limits(tables: StageTables, row: int, thresholds: Sequence[float]) -> Floats:
    if row < len(tables.rows):
        return np.full(len(tables.class_size), thresholds[tables.rows[row].threshold])
    problem = tables.pieces.problem
    first = [devices[0] for devices in tables.pieces.class_devices]
    return np.asarray(problem.device_memory[first] * (1 + TOLERANCE))


def _class_added(tables: StageTables, row: int) -> Floats:
    """`[piece, class]` what one device of the class is charged for a piece, transfers aside."""
    pieces = tables.pieces
    if row == len(tables.rows):
        return np.repeat(pieces.piece_memory[:, None], len(tables.class_size), axis=1)
    compute = tables.rows[row].compute
    return np.asarray(compute[0] * pieces.piece_time[0] + compute[1] * pieces.piece_time[1])


def _window_prices(
    tables: StageTables, thresholds: Sequence[float]
) -> list[tuple[int, tuple[int, ...], Floats]]:
    """(row, other classes, price of each class) per window."""
    sets: list[tuple[int, ...]] = [tuple(tables.others)]
    if len(tables.others) <= MOST_CLASSES:
        sizes = range(len(tables.others) + 1)
        sets = [each for k in sizes for each in itertools.combinations(tables.others, k)]
    found = []
    rows = [number for number, row in enumerate(tables.rows) if any(row.compute)]
    for row, others in itertools.product([*rows, len(tables.rows)], sets):
        if tables.lead < 0 and not others:
            continue
        limit = _class_limits(tables, row, thresholds)
        members = [*others] if tables.lead < 0 else [tables.lead, *others]
        if np.isinf(limit[members]).any():
            continue
        prices = np.ones(len(tables.class_size))
        if row < len(tables.rows):
            prices = _knapsack_prices(tables, row, members, limit)
        found.append((row, others, prices))
    return found


def _knapsack_prices(
    tables: StageTables, row: int, members: Sequence[int], limit: Floats
) -> Floats:
    """The first class at 1; each other where a knapsack of what it does best fills up."""
    added, allowed = _class_added(tables, row), tables.pieces.piece_allowed
    prices = np.ones(len(tables.class_size))
    first = members[0]
    for each in members[1:]:
        both = allowed[:, first] & allowed[:, each] & (added[:, each] > 0)
        ratio = added[both, first] / added[both, each]
        order = np.argsort(-ratio, kind="stable")
        only = added[allowed[:, each] & ~allowed[:, first], each].sum()
        filled = only + np.cumsum(added[both, each][order])
        full = int(np.searchsorted(filled, tables.class_size[each] * limit[each]))
        if full < len(order):
            prices[each] = ratio[order[full]]
        else:
            prices[each] = 0.0
    return prices


def _cheapest(
    tables: StageTables, row: int, members: Sequence[int], class_price: Floats, limit: Floats
) -> Floats:
    added = _class_added(tables, row)[:, members] * class_price[members]
    if row < len(tables.rows):
        worst = TOO_MUCH * (
            added.max(axis=1).sum() + (limit * tables.class_size * class_price)[members].sum()
        )
        added = np.where(tables.pieces.piece_allowed[:, members], added, worst)
    return np.asarray(added.min(axis=1))


def _cheapest_cut(
    tables: StageTables, row: int, members: Sequence[int], class_price: Floats
) -> tuple[Floats, Floats]:
    """`[net]` what the producer's side and the other pay at least for a net that is cut."""
    pieces, parts = tables.pieces, tables.rows[row]
    single = {
        numbers.index(1): kind for kind, numbers in enumerate(tables.kinds) if sum(numbers) == 1
    }
    everything = list(range(len(tables.class_size)))
    least = np.zeros((2, 2))
    for direction in (OUT, IN):
        shares = [
            tables.least_share(single[k], direction, everything) * class_price[k]
            for k in members
            if k in single
        ]
        least[direction] = np.min(shares, axis=0) if shares else 0.0
    outgoing = least[OUT, 0] * pieces.net_tensors + least[OUT, 1] * pieces.net_bytes
    incoming = least[IN, 0] * pieces.net_tensors + least[IN, 1] * pieces.net_bytes
    outgoing = outgoing * np.array(parts.outgoing)[pieces.net_way]
    return outgoing, incoming * min(parts.incoming)
