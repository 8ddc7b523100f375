"""Is there a chain of ideals whose stages all stay below a limit? (Tarnawski et al. §5.1.1)

The paper's table holds the least load per ideal and numbers of devices, filled from pairs of
ideals. Asked only whether a load below a limit can be had, it shrinks to the fewest devices per
ideal, and windows on what devices can do at all leave few ideals and fewer pairs. Of these most are
stages that no best split needs (see `dominance`).
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
from placewright.kernels.throughput.ideals import NEVER, least_lead
from placewright.kernels.throughput.stage_loads import UNPLACED, chain_rows
from placewright.kernels.throughput.stage_transfers import (
    holds,
    mark_cut,
    may_be_within,
    transfers_between,
)

DEAR = 3  # of counting the transfers of a pair, beside looking at it
PINS = 32  # ends of nets, of all stages of a chain, that are looked at as quickly as a pair
FOUND, NONE, GAVE_UP = 1, 0, -1


@kernel(allocates=True)
def survivors(ideals, windows):
    """`(alive, least[ideal, code], most[ideal, code])` under tighter windows.

    Of the leading class, the nodes outside an ideal need `least` devices when those of `code`
    are left beside, and may have `most`.
    """
    count, codes = ideals.bits.shape[0], windows.capacity.shape[1]
    alive = np.empty(count, dtype=np.int64)
    least = np.empty((count, codes), dtype=np.int32)
    most = np.empty((count, codes), dtype=np.int32)
    kept = 0
    for ideal in range(count):
        any_code = ideal in (0, count - 1)
        for code in range(codes):
            few = least_lead(windows, ideals.above[ideal], code)
            many = windows.lead_count - least_lead(windows, ideals.below[ideal], codes - 1 - code)
            least[kept, code] = few
            most[kept, code] = many
            any_code |= few <= many
        if any_code:
            alive[kept] = ideal
            kept += 1
    return alive[:kept], least[:kept], most[:kept]


@kernel(allocates=True)
def fewest(ideals, beside, alive, least, most, nets, costs, heavy, limits, most_work, whole):
    """`(work, need, further, by)`: the fewest devices that do for what an ideal leaves over.

    That is ``need[place, code]`` of the leading class beside the devices of `code`, each stage in
    ``limits[kind, row]``; `NEVER` if there is no way. `place` is that of the ideal in `alive`.
    Each ideal is gone from once, when what it leaves over is known, to the smaller ones that one
    stage more could reach: those on the list for that many devices, `least` to `most`, which no
    other has reached yet. It gives up when more than `most_work` blocks and pairs had to be
    looked at, and `work`, how many were, is more than that; a pair whose transfers are counted is
    as many as `DEAR` more. The way that was found goes on from ideal ``further[place, code]`` over
    the stage of move ``by[place, code]``. It ends when there is a way from the empty ideal, unless
    the `whole` table is wanted.
    """
    count, codes = least.shape
    need = np.full((count, codes), NEVER, dtype=np.int32)
    need[count - 1] = 0
    further = np.zeros((count, codes), dtype=np.int32)
    by = np.zeros((count, codes), dtype=np.int32)
    targets = targets_of(ideals.bits, ideals.added, alive, least, most, most[0, codes - 1])
    desk = desk_for(ideals, alive, costs)
    work = _fill(
        need, further, by, targets, desk, ideals, beside, alive, most, nets, costs, heavy, limits,
        most_work, whole,
    )  # fmt: skip
    return work, need, further, by


@inner
def _fill(
    need, further, by, targets, desk, ideals, beside, alive, most, nets, costs, heavy, limits,
    most_work, whole,
):  # fmt: skip
    """The work of `fewest` on its tables, for kernels that make arrays count references to them."""
    bits, added = ideals.bits, ideals.added
    move_kind, move_variant, move_lead = costs.move_kind, costs.move_variant, costs.move_lead
    move_before, move_after = costs.move_before, costs.move_after
    list_start, list_places, list_open = targets.start, targets.places, targets.open
    next_open, block_most = targets.next_open, targets.most
    common, any_of = targets.common, targets.any
    outside, required, floor = desk.outside, desk.required, desk.floor
    count, codes = need.shape
    rows, lead_count = len(floor), most[0, codes - 1]
    work = 0
    for place in range(count - 1, 0, -1):
        larger = alive[place]
        leave_idle(costs, need[place], further[place], by[place])
        ready = False
        for move in range(len(move_kind)):
            after = move_after[move]
            if need[place, after] > most[place, after]:
                continue
            want = need[place, after] + move_lead[move]
            if want > lead_count:
                continue
            before, kind = move_before[move], move_kind[move]
            which = before * (lead_count + 1) + want
            if list_open[which] == 0:
                continue
            if must_hold(
                ideals, larger, desk.place_of, heavy[move_variant[move]], need[:, after], required
            ):
                continue
            if not ready:
                ready = True
                leave_out(bits[larger], outside)
                mark_cut(ideals, larger, beside)
            first, end = list_start[which], list_start[which + 1]
            for row in range(rows):
                floor[row] = added[larger, kind * rows + row] - limits[kind, row]
            block, behind = first // BLOCK - 1, (end + BLOCK - 1) // BLOCK
            while True:
                block = first_open(next_open, block + 1)
                if block >= behind or list_places[block * BLOCK] >= place:
                    break
                work += 1
                if not holds_all(any_of, block, required):
                    continue
                if not may_follow(common, block_most, block, outside, floor, kind * rows):
                    continue
                for i in range(block * BLOCK, min(end, (block + 1) * BLOCK)):
                    lower = list_places[i]
                    if lower >= place:
                        break
                    if need[lower, before] <= want:
                        continue
                    work += 1
                    smaller = alive[lower]
                    if not holds_all(bits, smaller, required):
                        continue
                    if not may_follow(bits, added, smaller, outside, floor, kind * rows):
                        continue
                    if not may_be_within(
                        ideals, smaller, larger, kind * rows, move_variant[move], limits[kind],
                        beside,
                    ):  # fmt: skip
                        continue
                    work += DEAR
                    transfers_between(ideals, smaller, larger, nets, costs, beside, desk.total)
                    if within(
                        ideals, smaller, larger, costs, limits, kind, move_variant[move], desk.total
                    ):
                        need[lower, before] = want
                        further[lower, before], by[lower, before] = place, move
                        close(targets, which, block)
        if need[0, codes - 1] <= lead_count and not whole:
            break
        if work > most_work:
            break
    leave_idle(costs, need[0], further[0], by[0])
    return work


@kernel(allocates=True)
def followed(alive, need, further, by, costs):
    """`(ideals, kinds)`: the chain that `fewest` found, empty if there is none."""
    count, codes = need.shape
    reached = np.empty(count, dtype=np.int64)
    kinds = np.empty(count, dtype=np.int64)
    size, place, code = 0, 0, codes - 1
    while need[0, codes - 1] < NEVER and place < count - 1:
        move = by[place, code]
        place, code = further[place, code], costs.move_after[move]
        reached[size], kinds[size] = alive[place], costs.move_kind[move]
        size += 1
    return reached[:size], kinds[:size]


@kernel
def within(ideals, smaller, larger, costs, limits, kind, variant, total):
    """Whether the stage between two ideals keeps every limit of seconds of its kind."""
    added, coefficient, time_rows = ideals.added, costs.coefficient, costs.time_rows
    column = kind * costs.added.shape[2]
    for row in range(time_rows):
        seconds = added[larger, column + row] - added[smaller, column + row]
        for g in range(total.shape[0]):
            seconds += coefficient[variant, row, g, 0] * total[g, 0]
            seconds += coefficient[variant, row, g, 1] * total[g, 1]
        if seconds > limits[kind, row]:
            return False
    return True


@kernel(allocates=True)
def find_chain(
    ideals, beside, alive, need, most, nets, costs, chain, limits, most_steps, most_work
):
    """`(work, answer, ideals, kinds)`: a chain of stages within the limits, from the bottom.

    For stages whose transfers are only known when all stages are: `need` (from `fewest`) says what
    cannot be completed, and every chain it allows is tried depth first, stages charged as
    `chain_rows` does, until one keeps the limits, none is left, or `most_steps` are made or more
    than `most_work` ideals and pairs looked at (counted as `fewest` does; a step looks at every
    net).
    """
    count, codes = need.shape
    nodes = costs.added.shape[0]
    rows = costs.added.shape[2]
    moves = len(costs.move_kind)
    depth_most = min(count, nodes) + 1
    at = np.zeros(depth_most + 1, dtype=np.int64)  # place of the ideal reached
    code = np.zeros(depth_most + 1, dtype=np.int64)
    lead = np.zeros(depth_most + 1, dtype=np.int64)
    next_place = np.zeros(depth_most + 1, dtype=np.int64)
    next_move = np.zeros(depth_most + 1, dtype=np.int64)
    kind_of = np.zeros(depth_most + 1, dtype=np.int64)
    stage = np.full(nodes, UNPLACED, dtype=np.int64)
    floor = np.empty(rows)
    total = np.zeros((costs.coefficient.shape[2], 2))
    outside = np.empty(ideals.bits.shape[1], dtype=np.uint64)
    code[0] = codes - 1
    lead[0] = most[0, codes - 1]
    if need[0, codes - 1] > lead[0]:
        return 0, NONE, at[:1], kind_of[:0]
    next_place[0] = count - 1
    depth = steps = work = 0
    while depth >= 0:
        if steps > most_steps or work > most_work:
            return work, GAVE_UP, at[:1], kind_of[:0]
        if at[depth] == count - 1:
            return work, FOUND, alive[at[1 : depth + 1]], kind_of[:depth]
        if next_move[depth] == moves:
            next_move[depth] = 0
            next_place[depth] -= 1
            work += 1
        if next_place[depth] <= at[depth]:
            depth -= 1
            if depth >= 0:
                clear(stage, depth)
            continue
        place, move = next_place[depth], next_move[depth]
        next_move[depth] += 1
        kind = costs.move_kind[move]
        left = lead[depth] - costs.move_lead[move]
        if (
            costs.move_before[move] != code[depth]
            or left < 0
            or need[place, costs.move_after[move]] > left
        ):
            continue
        work += 1
        smaller, larger = alive[at[depth]], alive[place]
        leave_out(ideals.bits[larger], outside)
        for row in range(rows):
            floor[row] = ideals.added[larger, kind * rows + row] - limits[kind, row]
        if not may_follow(ideals.bits, ideals.added, smaller, outside, floor, kind * rows):
            continue
        work += DEAR
        mark_cut(ideals, larger, beside)
        transfers_between(ideals, smaller, larger, nets, costs, beside, total)
        if not within(
            ideals, smaller, larger, costs, limits, kind, costs.move_variant[move], total
        ):
            continue
        kind_of[depth] = kind
        steps += 1
        work += (len(nets.readers) + len(nets.producer)) // PINS
        fill(stage, ideals.bits, smaller, larger, depth)
        charged = chain_rows(nets, costs, chain, stage, kind_of, depth + 1)
        fits = True
        for s in range(depth + 1):
            for row in range(costs.time_rows):
                fits &= charged[s, row] <= limits[kind_of[s], row]
        if not fits:
            clear(stage, depth)
            continue
        depth += 1
        at[depth], code[depth], lead[depth] = place, costs.move_after[move], left
        next_place[depth], next_move[depth] = count - 1, 0
    return work, NONE, at[:1], kind_of[:0]


@kernel
def fill(stage, bits, smaller, larger, number):
    """Note the nodes between two ideals as those of a stage."""
    for node in range(len(stage)):
        if holds(bits[larger], node) and not holds(bits[smaller], node):
            stage[node] = number


@kernel
def clear(stage, number):
    """Take the nodes of a stage off again."""
    for node in range(len(stage)):
        if stage[node] == number:
            stage[node] = UNPLACED
