"""Which chain of ideals has the least largest load? (Tarnawski et al. §5.1.1)

The paper's table itself, for the few ideals that are left when a limit a little above the answer,
and one a little below it, are known (see `ideal_dp`).
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.dominance import holds_all, leave_idle, must_hold
from placewright.kernels.throughput.ideal_targets import (
    BLOCK,
    close,
    desk_for,
    first_open,
    leave_out,
    may_follow,
    targets_of,
)
from placewright.kernels.throughput.stage_transfers import (
    mark_cut,
    may_be_within,
    transfers_between,
)


@kernel(allocates=True)
def least_chain(ideals, beside, alive, least, most, nets, costs, heavy, limits, lower, upper):
    """`(value, ideals, kinds)`: the chain whose largest load is least, of those below `upper`.

    Loads below `lower` need not be told apart: no chain keeps that limit. `value` is infinite if
    there is no chain. As `fewest`, but the table holds the least load for each number of devices;
    what has come down to `lower` is passed over. For one limit on all loads, and transfers known
    from the stage alone.
    """
    count, codes = least.shape
    levels = most[0, codes - 1] + 1
    value = np.full((count, codes, levels), np.inf)
    value[count - 1] = lower
    next_place = np.zeros((count, codes, levels), dtype=np.int32)
    next_move = np.zeros((count, codes, levels), dtype=np.int32)
    targets = targets_of(ideals.bits, ideals.added, alive, least, most, levels - 1)
    desk, below = desk_for(ideals, alive, costs), np.empty(costs.time_rows)
    _fill(
        value, next_place, next_move, targets, desk, below, ideals, beside, alive, least, most,
        nets, costs, heavy, limits, lower, upper,
    )  # fmt: skip
    return _way(alive, costs, value[0, codes - 1], next_place, next_move)


@inner
def _fill(
    value, next_place, next_move, targets, desk, below, ideals, beside, alive, least, most, nets,
    costs, heavy, limits, lower, upper,
):  # fmt: skip
    """The work on its tables; ``below[row]`` is room for the limit of a load."""
    bits, added = ideals.bits, ideals.added
    move_kind, move_variant, move_lead = costs.move_kind, costs.move_variant, costs.move_lead
    move_before, move_after = costs.move_before, costs.move_after
    coefficient, time_rows = costs.coefficient, costs.time_rows
    list_start, list_places, list_open = targets.start, targets.places, targets.open
    next_open, block_most = targets.next_open, targets.most
    common, any_of = targets.common, targets.any
    outside, required, floor, total = desk.outside, desk.required, desk.floor, desk.total
    count, codes, levels = value.shape
    rows = len(floor)
    for place in range(count - 1, 0, -1):
        larger = alive[place]
        ready = False
        for level in range(levels):
            leave_idle(
                costs,
                value[place, :, level],
                next_place[place, :, level],
                next_move[place, :, level],
            )
        for code in range(codes):
            for level in range(1, levels):
                if value[place, code, level - 1] <= value[place, code, level]:
                    value[place, code, level] = value[place, code, level - 1]
                    next_place[place, code, level] = next_place[place, code, level - 1]
                    next_move[place, code, level] = next_move[place, code, level - 1]
        for move in range(len(move_kind)):
            before, after, kind = move_before[move], move_after[move], move_kind[move]
            for row in range(rows):
                limit = upper if row < time_rows else limits[kind, row]
                floor[row] = added[larger, kind * rows + row] - limit
            for level in range(max(least[place, after], 0), levels - move_lead[move]):
                so_far = value[place, after, level]
                if so_far >= upper or level > most[place, after]:
                    continue
                if level > 0 and value[place, after, level - 1] == so_far:
                    continue  # as good with fewer
                want = level + move_lead[move]
                which = before * levels + want
                if list_open[which] == 0:
                    continue
                over = value[:, after, level]
                if must_hold(
                    ideals, larger, desk.place_of, heavy[move_variant[move]], over, required
                ):
                    continue
                if not ready:
                    ready = True
                    leave_out(bits[larger], outside)
                    mark_cut(ideals, larger, beside)
                first, end = list_start[which], list_start[which + 1]
                block, behind = first // BLOCK - 1, end // BLOCK
                while True:
                    block = first_open(next_open, block + 1)
                    if block >= behind or list_places[block * BLOCK] >= place:
                        break
                    if not holds_all(any_of, block, required):
                        continue
                    if not may_follow(common, block_most, block, outside, floor, kind * rows):
                        continue
                    for i in range(block * BLOCK, (block + 1) * BLOCK):
                        low = list_places[i]
                        if low >= place:
                            break
                        if value[low, before, want] <= so_far:
                            continue
                        smaller = alive[low]
                        if not holds_all(bits, smaller, required):
                            continue
                        if not may_follow(bits, added, smaller, outside, floor, kind * rows):
                            continue
                        below[:] = min(upper, value[low, before, want])
                        if not may_be_within(
                            ideals, smaller, larger, kind * rows, move_variant[move], below,
                            beside,
                        ):  # fmt: skip
                            continue
                        transfers_between(ideals, smaller, larger, nets, costs, beside, total)
                        load = so_far
                        for row in range(time_rows):
                            column = kind * rows + row
                            seconds = added[larger, column] - added[smaller, column]
                            for g in range(total.shape[0]):
                                per = coefficient[move_variant[move], row, g]
                                seconds += per[0] * total[g, 0] + per[1] * total[g, 1]
                            load = max(load, seconds)
                        if load < upper and load < value[low, before, want]:
                            value[low, before, want] = load
                            next_place[low, before, want] = place
                            next_move[low, before, want] = move
                            if load <= lower:
                                close(targets, which, block)
    for level in range(levels):
        leave_idle(costs, value[0, :, level], next_place[0, :, level], next_move[0, :, level])


@inner(allocates=True)
def _way(alive, costs, value, next_place, next_move):
    """The best value of any number of devices, and the chain with it."""
    count, codes, levels = next_place.shape
    reached = np.empty(count, dtype=np.int64)
    kinds = np.empty(count, dtype=np.int64)
    best, level, code = np.inf, levels - 1, codes - 1
    for number in range(levels):
        if value[number] < best:
            best, level = value[number], number
    size = place = 0
    while best < np.inf and place < count - 1:
        move = next_move[place, code, level]
        place = next_place[place, code, level]
        reached[size], kinds[size] = alive[place], costs.move_kind[move]
        code, level = costs.move_after[move], level - costs.move_lead[move]
        size += 1
    return best, reached[:size], kinds[:size]
