"""Paths through a network whose arcs cost by the devices of both ends; what lies between two ops.

A *network* has its ops numbered topologically, edges in CSR by tail (`out_offsets`, `head`) and
by head (`in_offsets`, `in_edges`, `tail`).
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import kernel
from placewright.kernels.latency.dual_ascent import delay


@kernel(allocates=True)
def meeting_points(n, offsets, neighbours):
    """`[op]` the first op ahead that every path from it meets; the last op for itself.

    Ops are numbered topologically and the last is reached from all. The point of an op is the
    meeting point of its followers, found by walking up the tree of points (Cooper et al. 2001).
    """
    point = np.full(n, n - 1)
    for op in range(n - 2, -1, -1):
        common = neighbours[offsets[op]]
        for k in range(offsets[op] + 1, offsets[op + 1]):
            other = neighbours[k]
            while common != other:
                if common < other:
                    common = point[common]
                else:
                    other = point[other]
        point[op] = common
    return point


@kernel
def mark_between(first, last, out_offsets, head, mark):
    """Set `mark[op − first]` for ops after `first` and before `last` on some path; their number.

    `mark` has room for both ends, which are not marked.
    """
    span = last - first + 1
    mark[:span] = 0
    mark[0] = 1
    for op in range(first, last):
        if mark[op - first]:
            for e in range(out_offsets[op], out_offsets[op + 1]):
                if head[e] <= last:
                    mark[head[e] - first] = 1
    count = 0
    mark[span - 1] = 2 if mark[span - 1] else 0
    for op in range(last - 1, first, -1):
        if not mark[op - first]:
            continue
        for e in range(out_offsets[op], out_offsets[op + 1]):
            if head[e] <= last and mark[head[e] - first] == 2:
                mark[op - first] = 2
                count += 1
                break
    for k in range(span):
        mark[k] = 1 if mark[k] == 2 else 0
    mark[0] = mark[span - 1] = 0
    return count


@kernel(allocates=True)
def mark_cuts(first, last, out_offsets, head, mark):
    """Like `mark_between`, with 2 for ops that every path from `first` to `last` passes.

    Those are the ops over which no edge of the region goes. Edges from op 0 and to the last op of
    all, which say no more than that an op runs within the schedule, do not count where another
    edge of the region says more.
    """
    count = mark_between(first, last, out_offsets, head, mark)
    end = len(out_offsets) - 2
    span = last - first + 1
    mark[span - 1] = 1
    fed = np.zeros(span, dtype=np.uint8)  # by an op other than 0
    for op in range(max(first, 1), last):
        if op == first or mark[op - first]:
            for e in range(out_offsets[op], out_offsets[op + 1]):
                if head[e] <= last and mark[head[e] - first]:
                    fed[head[e] - first] = 1
    furthest = first
    for op in range(first, last):
        if op > first:
            if not mark[op - first]:
                continue
            if furthest <= op:
                mark[op - first] = 2
        only_end = True
        for e in range(out_offsets[op], out_offsets[op + 1]):
            to = head[e]
            if to > last or to == end or not mark[to - first] or (op == 0 and fed[to - first]):
                continue
            only_end = False
            furthest = max(furthest, to)
        if only_end:
            furthest = last
    mark[span - 1] = 0
    return count


@kernel(allocates=True)
def measure_regions(first, last, out_offsets, head, time, closed, share, overfull):
    """`(count, seconds)` of each region: ops between, and their time on the best single device.

    Times `overfull` if they fit no device together.
    """
    regions, devices = len(first), time.shape[1]
    count, seconds = np.zeros(regions, dtype=np.int64), np.zeros(regions)
    mark = np.empty((last - first).max() + 1 if regions else 1, dtype=np.uint8)
    total = np.empty(devices)
    for r in range(regions):
        count[r] = mark_between(first[r], last[r], out_offsets, head, mark)
        total[:] = 0.0
        used = np.zeros(devices)
        for op in range(first[r] + 1, last[r]):
            if mark[op - first[r]]:
                fastest = np.inf
                for d in range(devices):
                    if not closed[op, d]:
                        fastest = min(fastest, time[op, d])
                for d in range(devices):
                    used[d] += share[op, d]
                    total[d] += fastest if closed[op, d] else time[op, d]
        seconds[r] = total.min() * (1.0 if used.min() <= 1.0 else overfull)
    return count, seconds


@kernel(allocates=True)
def arrivals(net, routes, closed, arc_offsets, arc_tail, cost):
    """`(reach, via, source)`: when an op on a device ends at the earliest, and why not sooner.

    An op on d ends no sooner than the latest, over its edges and its arcs, of the least, over
    devices a of the tail, of the tail's end on a and what comes then: the transfer and the op's
    time, or the arc's ``cost[arc, a, d]``. `via[op, d]` is the edge, −1 − the arc, or the number
    of edges for none; `source[op, d]` the device of its tail. Arcs are in the order of heads.
    """
    n, devices = net.time.shape
    edges = len(net.head)
    reach = np.full((n, devices), np.inf)
    via = np.full((n, devices), edges)
    source = np.zeros((n, devices), dtype=np.int64)
    for op in range(n):
        for d in range(devices):
            if closed[op, d]:
                continue
            latest = 0.0
            for k in range(net.in_offsets[op], net.in_offsets[op + 1]):
                e = net.in_edges[k]
                tail = net.tail[e]
                least, where = np.inf, 0
                for a in range(devices):
                    there = reach[tail, a] + delay(net, routes, e, a, d)
                    if there < least:
                        least, where = there, a
                if least + net.time[op, d] >= latest:
                    latest, via[op, d], source[op, d] = least + net.time[op, d], e, where
            for arc in range(arc_offsets[op], arc_offsets[op + 1]):
                tail = arc_tail[arc]
                least, where = np.inf, 0
                for a in range(devices):
                    if reach[tail, a] + cost[arc, a, d] < least:
                        least, where = reach[tail, a] + cost[arc, a, d], a
                if least > latest:
                    latest, via[op, d], source[op, d] = least, -1 - arc, where
            reach[op, d] = max(latest, net.time[op, d])
    return reach, via, source


@kernel(allocates=True)
def mark_arcs(via, closed, tail, arc_tail, used):
    """Set `used[arc]` for arcs that the ends of the last op rest on, see `arrivals`.

    Those that some op they rest on is reached over, whichever device it is on.
    """
    n, devices = via.shape
    edges = len(tail)
    looked_at = np.zeros(n, dtype=np.bool_)
    looked_at[n - 1] = True
    for op in range(n - 1, -1, -1):
        if not looked_at[op]:
            continue
        for d in range(devices):
            if closed[op, d] or via[op, d] == edges:
                continue
            if via[op, d] < 0:
                arc = -1 - via[op, d]
                used[arc] = True
                looked_at[arc_tail[arc]] = True
            else:
                looked_at[tail[via[op, d]]] = True


@kernel(allocates=True)
def remainders(net, routes, closed, arc_offsets, arcs, arc_head, cost):
    """`[op, device]`: from the end of an op on a device to the end of all, at least.

    The mirror of `arrivals`; ``arcs[arc_offsets[op]:arc_offsets[op + 1]]`` begin with the op.
    """
    n, devices = net.time.shape
    rest = np.full((n, devices), np.inf)
    for op in range(n - 1, -1, -1):
        for d in range(devices):
            if closed[op, d]:
                continue
            latest = 0.0
            for e in range(net.out_offsets[op], net.out_offsets[op + 1]):
                head = net.head[e]
                least = np.inf
                for b in range(devices):
                    needed = net.time[head, b] + rest[head, b] + delay(net, routes, e, d, b)
                    least = min(least, needed)
                latest = max(latest, least)
            for k in range(arc_offsets[op], arc_offsets[op + 1]):
                arc = arcs[k]
                least = np.inf
                for b in range(devices):
                    least = min(least, cost[arc, d, b] + rest[arc_head[arc], b])
                latest = max(latest, least)
            rest[op, d] = latest
    return rest
