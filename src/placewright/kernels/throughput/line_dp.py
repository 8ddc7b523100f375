"""The best cuts of one linear order of the nodes into stages (Tarnawski et al. §5.1.2, DPL)."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.stage_loads import charges


@kernel(allocates=True)
def best_cuts(order, nets, costs, limits, threshold, lead_count, codes, cutoff, open_at):
    """`(value, starts, kinds)`: stages of neighbours in `order`, the largest load least.

    A stage's load is the largest of its time rows with `threshold` 0 plus the largest of those
    with 1 (see `stage_loads.Costs`; `limits[kind, row]` count for the other rows only). Splits
    of load `cutoff` or more are not looked at: `value` is infinite if there is none below.
    `starts[stage]` is the position in `order` where a stage begins; none does where `open_at` is
    false.
    """
    # Arrays stand in names of their own: reading a tuple's field in a loop costs as much as the
    # rest of it.
    producer, net_way = nets.producer, nets.way
    net_tensors, net_bytes = nets.tensors, nets.bytes
    node_offsets, node_nets, node_ways = nets.node_offsets, nets.node_nets, nets.node_ways
    table, time_rows, group, once = costs.added, costs.time_rows, costs.group, costs.once
    coefficient = costs.coefficient
    move_kind, move_variant, move_lead = costs.move_kind, costs.move_variant, costs.move_lead
    move_before, move_after = costs.move_before, costs.move_after
    count, moves = len(order), len(move_kind)
    kinds, rows = table.shape[1], table.shape[2]
    variants, groups = coefficient.shape[0], coefficient.shape[2]

    position = np.empty(count, dtype=np.int64)
    for place in range(count):
        position[order[place]] = place
    home, first, last = _positions(nets, position)
    total = np.zeros((groups, 2))
    charged = np.zeros(len(producer), dtype=np.int64)  # what the net means for the stage
    inside = np.zeros(len(producer), dtype=np.int64)  # its readers there: 1 some, 2 forward ones
    load = np.empty(variants)
    added = np.empty((kinds, rows))
    fits = np.empty(kinds, dtype=np.bool_)
    # best[place, code, number]: for what comes from `place` on, with `number` of the leading class.
    best = np.full((count + 1, codes, lead_count + 1), np.inf)
    best[count] = 0.0
    cut = np.zeros((count + 1, codes, lead_count + 1), dtype=np.int32)
    by = np.zeros((count + 1, codes, lead_count + 1), dtype=np.int32)
    enough = np.zeros(codes, dtype=np.int64)
    for end in range(count, 0, -1):
        dead_end = True
        for code in range(codes):
            enough[code] = 0
            while enough[code] <= lead_count and best[end, code, enough[code]] >= cutoff:
                enough[code] += 1
            dead_end &= enough[code] > lead_count
        if dead_end or not open_at[end]:
            continue
        total[:] = 0.0
        added[:] = 0.0
        start = end - 1
        while start >= 0:
            node = order[start]
            alive = False
            for kind in range(kinds):
                fits[kind] = True
                for row in range(rows):
                    added[kind, row] += table[node, kind, row]
                    limit = cutoff if row < time_rows else limits[kind, row]
                    fits[kind] &= added[kind, row] <= limit
                alive |= fits[kind]
            if not alive:
                break
            for k in range(node_offsets[node], node_offsets[node + 1]):
                net, ways = node_nets[k], node_ways[k]
                if ways > 0:
                    inside[net] |= 1 + 2 * (ways & 1)
                bits = charges(
                    net_way[net], once, start <= home[net] < end, first[net] < start,
                    last[net] >= end, inside[net] > 0, inside[net] > 1, home[net] < start,
                )  # fmt: skip
                changed = bits ^ charged[net]
                if changed == 0:
                    continue
                charged[net] = bits
                for bit in range(8):
                    if changed >> bit & 1:
                        sign = 1.0 if bits >> bit & 1 else -1.0
                        total[group[bit], 0] += sign * net_tensors[net]
                        total[group[bit], 1] += sign * net_bytes[net]
            if not open_at[start]:
                start -= 1
                continue
            for variant in range(variants):
                load[variant] = -1.0
            for move in range(moves):
                kind, variant = move_kind[move], move_variant[move]
                if not fits[kind]:
                    continue
                if load[variant] < 0.0:
                    one = two = 0.0
                    for row in range(time_rows):
                        seconds = added[kind, row]
                        for g in range(groups):
                            seconds += coefficient[variant, row, g, 0] * total[g, 0]
                            seconds += coefficient[variant, row, g, 1] * total[g, 1]
                        if threshold[row] == 0:
                            one = max(one, seconds)
                        else:
                            two = max(two, seconds)
                    load[variant] = one + two
                if load[variant] >= cutoff:
                    continue
                before, after, takes = move_before[move], move_after[move], move_lead[move]
                for number in range(takes + enough[after], lead_count + 1):
                    value = max(load[variant], best[end, after, number - takes])
                    if value < best[start, before, number]:
                        best[start, before, number] = value
                        cut[start, before, number] = end
                        by[start, before, number] = move
            start -= 1
        for place in range(max(start, 0), end):  # the stage is emptied
            node = order[place]
            for k in range(node_offsets[node], node_offsets[node + 1]):
                inside[node_nets[k]] = 0
                charged[node_nets[k]] = 0
    return _walk(best, cut, by, costs, count, codes, lead_count)


@inner(allocates=True)
def _walk(best, cut, by, costs, count, codes, lead_count):
    value = best[0, codes - 1, lead_count]
    starts = np.zeros(count, dtype=np.int64)
    kinds = np.zeros(count, dtype=np.int64)
    stages = place = 0
    code, number = codes - 1, lead_count
    if value < np.inf:
        while place < count:
            move = by[place, code, number]
            starts[stages] = place
            kinds[stages] = costs.move_kind[move]
            stages += 1
            place = cut[place, code, number]
            code = costs.move_after[move]
            number -= costs.move_lead[move]
    return value, starts[:stages], kinds[:stages]


@inner(allocates=True)
def _positions(nets, position):
    """Per net, the positions of its producer, of its first and of its last reader."""
    home = position[nets.producer]
    first = np.empty(len(nets.producer), dtype=np.int64)
    last = np.empty(len(nets.producer), dtype=np.int64)
    for net in range(len(nets.producer)):
        low, high = len(position), -1
        for k in range(nets.offsets[net], nets.offsets[net + 1]):
            low = min(low, position[nets.readers[k]])
            high = max(high, position[nets.readers[k]])
        first[net], last[net] = low, high
    return home, first, last
