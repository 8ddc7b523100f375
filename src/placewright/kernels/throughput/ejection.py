"""Room for nodes that a move brings to a full device: others there go elsewhere.

As `kernels.latency.ejection` for pipelines: what is sent away goes back to where the move came
from, to the device of a node that it shares a net with, or to any; where stages stand in a row,
only to where that keeps the row. It may send others away from there in turn.
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.loads import move

ROUNDING = 1e-12
MOST_LINKS = 4  # devices from which others are sent away, one after another
MOST_PASSED = 64  # nodes of a device looked at, for what it sends away
STROLL = 16  # of them passed before the first that is looked at
MANY_NETS = 64  # of a node that stays where it is
# Where they go, each up to its share of the draws; beyond, to any device.
BACK = 0.4  # to where a node of the move was
BESIDE = 0.8  # each to where a node is that it shares a net with


@kernel
def make_room(p, state, rank, row, rng, moved, origins, count, mark, tick):
    """Send nodes away from devices that moves overfilled; how many have moved then.

    `moved` and `origins` list the moves, `count` of them so far, and ``mark[node] == tick`` says
    which nodes they are. `has_room` says whether that was enough.
    """
    for _ in range(MOST_LINKS):
        device = _overfull(p, state, moved, count)
        if device < 0:
            break
        before = count
        count = _send_away(p, state, rank, row, rng, moved, origins, count, mark, tick, device)
        if count == before or _is_over(p, state, device):
            break
    return count


@kernel
def has_room(p, state, moved, count):
    """No device that a node was moved to has more than it holds."""
    return _overfull(p, state, moved, count) < 0


@inner
def _overfull(p, state, moved, count):
    """A device that a node was moved to and that has more than it holds; -1 if there is none."""
    for k in range(count):
        device = np.int64(state.node_device[moved[k]])
        if _is_over(p, state, device):
            return device
    return np.int64(-1)


@inner
def _is_over(p, state, device):
    return state.used[device] > p.device_memory[device] * (1.0 + ROUNDING)


@inner
def _send_away(p, state, rank, row, rng, moved, origins, count, mark, tick, device):
    """Nodes of `device`, one after another in its ring, until it holds what is left."""
    kind, goal = rng.random(), np.int64(-1)
    if kind < BACK:
        goal = np.int64(origins[int(rng.random() * count)])
    elif kind >= BESIDE:
        goal = np.int64(rng.random() * len(state.used))
    node = np.int64(state.first_on[device])
    for _ in range(int(rng.random() * STROLL)):
        node = np.int64(state.next_on[node])
    for _ in range(MOST_PASSED):
        following = np.int64(state.next_on[node])
        nets = p.node_offsets[node + 1] - p.node_offsets[node]
        if mark[node] != tick and p.memory[node] > 0.0 and nets <= MANY_NETS:
            target = _target(p, state, rank, row, rng, node, goal)
            if target != device and p.allowed[node, p.device_class[target]]:
                moved[count], origins[count], mark[node] = node, device, tick
                count += 1
                move(p, state, node, target)
                if count == len(moved) or not _is_over(p, state, device):
                    break
        if state.first_on[device] < 0:
            break
        node = following
    return count


@inner
def _target(p, state, rank, row, rng, node, goal):
    """Where the node goes: `goal` if it may, to one beside it if that is -1 or breaks the row."""
    here = np.int64(state.node_device[node])
    if len(rank) == 0:
        return goal if goal >= 0 else np.int64(state.node_device[neighbour(p, node, rng)])
    low, high = places(p, state, rank, node, np.int64(len(state.used)))
    if goal >= 0 and low <= rank[goal] <= high:
        return goal
    place = rank[here]
    if low < place and (high == place or rng.random() < 0.5):
        return np.int64(row[place - 1])
    return np.int64(row[place + 1]) if high > place else here


@inner
def neighbour(p, node, rng):
    """A node that shares a net with `node`, or itself."""
    first, last = p.node_offsets[node], p.node_offsets[node + 1]
    if first == last:
        return node
    net = p.node_nets[first + int(rng.random() * (last - first))]
    low, high = p.reader_offsets[net], p.reader_offsets[net + 1]
    pick = int(rng.random() * (high - low + 1))
    return np.int64(p.net_source[net] if pick == 0 else p.readers[low + pick - 1])


@inner
def places(p, state, rank, node, devices):
    """The first and the last place in the row where the node may be, all others where they are."""
    low, high = np.int64(0), devices - 1
    for k in range(p.leader_offsets[node], p.leader_offsets[node + 1]):
        low = max(low, rank[state.node_device[p.leaders[k]]])
    for k in range(p.follower_offsets[node], p.follower_offsets[node + 1]):
        high = min(high, rank[state.node_device[p.followers[k]]])
    return low, high
