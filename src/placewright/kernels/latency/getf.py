"""What the linear programs of GETF and m-SCT need: symmetry, soft paths, GETF's mirror descent.

The graph comes as pairs of ops (a producer and one of its consumers) sorted by consumer:
``pair_producer[in_offsets[op]:in_offsets[op + 1]]`` are the producers of `op`.
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inlined, inner, kernel

FLOOR = -30.0  # of a logarithm: shares below exp(FLOOR) do not sink further and can come back


@inlined
def _mix(word):
    """A bijection of 64-bit words in which every output bit depends on every input bit."""
    word ^= word >> np.uint64(30)
    word *= np.uint64(0xBF58476D1CE4E5B9)
    word ^= word >> np.uint64(27)
    word *= np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@kernel(allocates=True)
def sweep_colours(order, offsets, others, keys, colour, salt):
    """`[op]` new colour: a hash of the op's colour and of its neighbours' new colours with keys.

    `others` and `keys` (CSR) are neighbours that come before the op in `order`. Colours are
    64-bit hashes; the neighbours count as a multiset.
    """
    swept = np.empty_like(colour)
    for op in order:
        seen = np.uint64(0)
        for k in range(offsets[op], offsets[op + 1]):
            seen += _mix(_mix(swept[others[k]] + salt) + keys[k])
        swept[op] = _mix(_mix(colour[op] + salt) ^ _mix(seen))
    return swept


@kernel
def soft_longest_path(
    order, in_offsets, pair_producer, op_weight, pair_weight, is_last, temperature,
    head, op_flow, pair_flow,
):  # fmt: skip
    """One unit of flow over all paths, each in proportion to exp(length / temperature).

    Paths end at an op of `is_last` and begin at an op without producers. Writes `head[op]` (the
    soft longest path up to its start), `op_flow[op]` and `pair_flow[pair]`, the share of paths
    through each. The flow is conserved up to rounding whatever the temperature, for the shares
    of an op's producers are normalised where they are taken.
    """
    for op in order:
        first, last = in_offsets[op], in_offsets[op + 1]
        if first == last:
            head[op] = 0.0
            continue
        longest = -np.inf
        for k in range(first, last):
            producer = pair_producer[k]
            longest = max(longest, head[producer] + op_weight[producer] + pair_weight[k])
        total = 0.0
        for k in range(first, last):
            producer = pair_producer[k]
            length = head[producer] + op_weight[producer] + pair_weight[k]
            pair_flow[k] = np.exp((length - longest) / temperature)
            total += pair_flow[k]
        for k in range(first, last):
            pair_flow[k] /= total
        head[op] = longest + temperature * np.log(total)
    longest = -np.inf
    for op in order:
        if is_last[op]:
            longest = max(longest, head[op] + op_weight[op])
    total = 0.0
    for op in order:
        op_flow[op] = 0.0
        if is_last[op]:
            op_flow[op] = np.exp((head[op] + op_weight[op] - longest) / temperature)
            total += op_flow[op]
    for position in range(len(order) - 1, -1, -1):
        op = order[position]
        if is_last[op]:
            op_flow[op] /= total
        for k in range(in_offsets[op], in_offsets[op + 1]):
            pair_flow[k] *= op_flow[op]
            op_flow[pair_producer[k]] += pair_flow[k]


@inner
def _costs(unit_cost, op_unit, op_time, flow, weight, price, unit_fill):
    """`unit_cost[unit, kind]`: what the multipliers charge for the unit on a device kind."""
    for unit in range(unit_cost.shape[0]):
        for k in range(unit_cost.shape[1]):
            unit_cost[unit, k] = unit_fill[unit, k] * price[k]
    for op in range(len(op_unit)):
        for k in range(op_time.shape[1]):
            unit_cost[op_unit[op], k] += op_time[op, k] * (weight[k] + flow[op])


@kernel
def dual_value(unit_cost, unit_allowed, price):
    """Σ_unit min_kind cost − Σ price: a lower bound on the program for any multipliers ≥ 0."""
    value = 0.0
    for unit in range(unit_cost.shape[0]):
        least = np.inf
        for k in range(unit_cost.shape[1]):
            if unit_allowed[unit, k]:
                least = min(least, unit_cost[unit, k])
        value += least
    return value - price.sum()


@kernel(allocates=True)
def assignment_descent(
    order, in_offsets, pair_producer, is_last, op_unit, op_time, unit_fill, unit_allowed,
    kind_size, iterations,
):  # fmt: skip
    """GETF's program by mirror descent: (share[unit, kind], lower bound).

    A saddle point is sought of Σ_unit Σ_kind share · cost, where the multipliers charge each op
    its time times (its device kind's weight + the path flow through it) and each unit its memory
    times the kind's price. Shares move by exponentiated gradients; the weights of loads and
    paths, which sum to 1, too; the flow follows a soft longest path that hardens; prices follow
    the overflow. Steps shrink linearly. Shares are averaged over the second half; the bound is
    the best dual value met, and so a bound however far the descent is from its end.

    `op_time[op, kind]` is 0 where not allowed, `unit_fill[unit, kind]` the share of all the
    kind's memory, `kind_size[kind]` the number of equal devices.
    """
    op_count, kinds = op_time.shape
    units = unit_fill.shape[0]
    log_share, share = np.zeros((units, kinds)), np.zeros((units, kinds))
    mean_share, unit_cost = np.zeros((units, kinds)), np.zeros((units, kinds))
    load_weight, path_weight = np.full(kinds, 1.0 / (kinds + 1)), 1.0 / (kinds + 1)
    price = np.zeros(kinds)
    op_weight, head, flow = np.empty(op_count), np.empty(op_count), np.empty(op_count)
    pair_weight, pair_flow = np.zeros(len(pair_producer)), np.empty(len(pair_producer))
    bound = 0.0
    for step in range(iterations):
        progress = step / iterations
        rate = 1.01 - progress
        for unit in range(units):
            top, total = -np.inf, 0.0
            for k in range(kinds):
                if unit_allowed[unit, k]:
                    top = max(top, log_share[unit, k])
            for k in range(kinds):
                if unit_allowed[unit, k]:
                    log_share[unit, k] = max(log_share[unit, k] - top, FLOOR)
                    share[unit, k] = np.exp(log_share[unit, k])
                    total += share[unit, k]
            share[unit] /= total
        load, fill = np.zeros(kinds), np.zeros(kinds)
        for op in range(op_count):
            op_weight[op] = 0.0
            for k in range(kinds):
                seconds = op_time[op, k] * share[op_unit[op], k]
                op_weight[op] += seconds
                load[k] += seconds / kind_size[k]
        for unit in range(units):
            fill += unit_fill[unit] * share[unit]
        temperature = op_weight.mean() * 0.03**progress
        if temperature == 0.0:
            return share, 0.0
        soft_longest_path(
            order, in_offsets, pair_producer, op_weight, pair_weight, is_last, temperature,
            head, flow, pair_flow,
        )  # fmt: skip
        path = (flow * op_weight).sum()
        largest = max(path, load.max())
        path_weight *= np.exp(rate * (path / largest - 1.0))
        load_weight *= np.exp(rate * (load / largest - 1.0))
        total = path_weight + load_weight.sum()
        path_weight /= total
        load_weight /= total
        price = np.maximum(price + rate * largest * (fill - 1.0), 0.0)
        flow *= path_weight
        _costs(unit_cost, op_unit, op_time, flow, load_weight / kind_size, price, unit_fill)
        bound = max(bound, dual_value(unit_cost, unit_allowed, price))
        for unit in range(units):
            mean, allowed = 0.0, 0
            for k in range(kinds):
                if unit_allowed[unit, k]:
                    mean += unit_cost[unit, k]
                    allowed += 1
            if mean > 0.0:
                log_share[unit] -= rate * unit_cost[unit] * allowed / mean
        if 2 * step >= iterations - 1:
            mean_share += share
    for unit in range(units):
        mean_share[unit] /= mean_share[unit].sum()
    return mean_share, bound
