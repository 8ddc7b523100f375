"""Simulated annealing of a pipeline by moves of a node, alone or with nodes that hang on it.

Where stages stand in a row, what follows a moved node goes along if it has to. Moves keep to the
memory of devices: one that is full sends others away (`ejection`). A placement that does not fit to
begin with pays for what is too much.
"""

from __future__ import annotations

import math

import numpy as np

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.ejection import (
    MANY_NETS,
    STROLL,
    has_room,
    make_room,
    neighbour,
    places,
)
from placewright.kernels.throughput.loads import (
    busiest,
    fits,
    load_now,
    move,
    restore,
    settle,
    value,
)

ROUNDING = 1e-12
OVERFLOW_PRICE = 4.0  # in values, for as much too much as a device has memory
BUSIEST_SHARE = 0.3  # of the moves, off the device with the largest load
NEIGHBOUR_SHARE = 0.8  # of the moves, to the device of a node that shares a net
SINGLE_SHARE = 0.85  # of the moves, of one node
DOUBLINGS = 5  # of the most nodes that a block begins with
MOST_DRAWN = 256  # nodes that go with one move at most


@kernel(allocates=True)
def anneal(p, state, movable, rank, rng, steps, scale, first, last, squarings):
    """Simulated annealing; the best placement seen goes to `state.best`.

    `rank[device]` is the place of each device in the row that stages keep to, or nothing where
    they need not. The temperature falls geometrically from `first` to `last` (seconds) over the
    steps; `scale` is about the value, in seconds. The energy is the 2^squarings-norm of the loads,
    a smooth stand-in for the value that sees them all. A worse one by Δ is taken with probability
    exp(-Δ / temperature). Ends on the last placement, not on the best.
    """
    devices = len(state.used)
    row = np.empty(len(rank), dtype=np.int32)
    for device in range(len(rank)):
        row[rank[device]] = device
    block = np.empty(MOST_DRAWN, dtype=np.int32)
    origins = np.empty(MOST_DRAWN, dtype=np.int32)
    mark = np.zeros(len(state.node_device), dtype=np.int64)
    powers = _all_powers(p, state, scale, squarings)
    overfull = not fits(p, state)
    current = _norm(powers, scale, squarings) + _price(p, state, overfull, scale)
    cooling = (last / first) ** (1.0 / max(steps, 1))
    temperature = first
    changed = np.zeros(2)
    for step in range(steps):
        temperature *= cooling
        node = _any_node(p, state, movable, rng)
        nets = p.node_offsets[node + 1] - p.node_offsets[node]
        if nets > MANY_NETS and rng.random() * nets > MANY_NETS:
            continue
        if rng.random() < NEIGHBOUR_SHARE:
            target = state.node_device[neighbour(p, np.int64(node), rng)]
        elif len(rank) > 0:
            low, high = places(p, state, rank, np.int64(node), np.int64(devices))
            target = row[low + int(rng.random() * (high - low + 1))]
        else:
            target = np.int32(rng.random() * devices)
        if target == state.node_device[node]:
            continue
        wanted = 1
        if rng.random() >= SINGLE_SHARE:
            wanted = 1 << (1 + int(rng.random() * DOUBLINGS))
        size = _gather(p, state, node, wanted, block, mark, step + 1, rng)
        if len(rank) > 0:
            size = _draw_along(p, state, rank, target, block, size, mark, step + 1)
        if size == 0 or not _is_allowed(p, block, size, target):
            continue
        for k in range(size):
            origins[k] = state.node_device[block[k]]
            move(p, state, np.int64(block[k]), np.int64(target))
        size = make_room(p, state, rank, row, rng, block, origins, size, mark, step + 1)
        if not has_room(p, state, block, size):
            _take_back(p, state, block, origins, size)
            continue
        changed[:] = powers
        for k in range(state.touched_count[0]):
            device = state.touched[k]
            for way in range(p.ways):
                changed[way] += _power(load_now(p, state, way, device), scale, squarings)
                changed[way] -= _power(state.load[way, device], scale, squarings)
        then = _norm(changed, scale, squarings) + _price(p, state, overfull, scale)
        if then <= current or rng.random() < math.exp((current - then) / temperature):
            settle(p, state)
            powers[:] = changed
            current = then
            overfull = overfull and not fits(p, state)
            found = value(state)
            if not overfull and found < state.best_value[0] * (1.0 - ROUNDING):
                state.best_value[0] = found
                state.best[:] = state.node_device
        else:
            _take_back(p, state, block, origins, size)


@inner
def _take_back(p, state, block, origins, size):
    for k in range(size - 1, -1, -1):
        move(p, state, np.int64(block[k]), np.int64(origins[k]))
    restore(state)


@inner
def _any_node(p, state, movable, rng):
    if rng.random() < BUSIEST_SHARE:
        device = busiest(state, int(rng.random() * p.ways))
        node = state.first_on[device]
        if node >= 0:
            for _ in range(int(rng.random() * STROLL)):
                node = state.next_on[node]
            state.first_on[device] = node
            return node
    return movable[int(rng.random() * len(movable))]


@inner
def _gather(p, state, node, wanted, block, mark, tick, rng):
    """Up to `wanted` nodes of one device that hang together by nets, `node` first; how many."""
    device = state.node_device[node]
    block[0] = node
    mark[node] = tick
    size, looked = 1, 0
    while size < wanted and looked < size:
        here = block[looked]
        looked += 1
        first, count = p.node_offsets[here], p.node_offsets[here + 1] - p.node_offsets[here]
        shift = int(rng.random() * count) if count > 0 else 0
        for k in range(count):
            net = p.node_nets[first + (k + shift) % count]
            low, high = p.reader_offsets[net] - 1, p.reader_offsets[net + 1]
            for at in range(low, min(high, low + MOST_DRAWN)):
                other = p.net_source[net] if at == low else p.readers[at]
                nets = p.node_offsets[other + 1] - p.node_offsets[other]
                if (
                    size < wanted
                    and mark[other] != tick
                    and nets <= MANY_NETS
                    and state.node_device[other] == device
                ):
                    mark[other] = tick
                    block[size] = other
                    size += 1
    return size


@inner
def _draw_along(p, state, rank, target, block, size, mark, tick):
    """The block with all that would stand on the wrong side of it; 0 if that is too much."""
    looked = 0
    goal = rank[target]
    while looked < size:
        here = block[looked]
        looked += 1
        up = rank[state.node_device[here]] < goal
        offsets = p.follower_offsets if up else p.leader_offsets
        others = p.followers if up else p.leaders
        for k in range(offsets[here], offsets[here + 1]):
            other = others[k]
            place = rank[state.node_device[other]]
            behind = place < goal if up else place > goal
            if behind and mark[other] != tick:
                if size == len(block):
                    return 0
                mark[other] = tick
                block[size] = other
                size += 1
    return size


@inner
def _is_allowed(p, block, size, target):
    kind = p.device_class[target]
    allowed = True
    for k in range(size):
        allowed &= p.allowed[block[k], kind]
    return allowed


@inner
def _price(p, state, overfull, scale):
    """What is too much on devices costs, in shares of their memory."""
    total = 0.0
    if overfull:
        for device in range(len(state.used)):
            over = state.used[device] - p.device_memory[device] * (1.0 + ROUNDING)
            total += max(over, 0.0) / max(p.device_memory[device], 1.0)
    return OVERFLOW_PRICE * scale * total


@inner(allocates=True)
def _all_powers(p, state, scale, squarings):
    powers = np.zeros(2)
    for way in range(p.ways):
        for device in range(len(state.used)):
            powers[way] += _power(state.load[way, device], scale, squarings)
    return powers


@inner
def _power(seconds, scale, squarings):
    share = max(seconds, 0.0) / scale
    for _ in range(squarings):
        share *= share
    return share


@inner
def _norm(powers, scale, squarings):
    total = 0.0
    for way in range(2):
        root = max(powers[way], 0.0)
        for _ in range(squarings):
            root = math.sqrt(root)
        total += root * scale
    return total
