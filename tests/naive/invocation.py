"""Invocation latency the slow way: recursion over what waits for what, and every assignment.

Written from Tarnawski et al. 2020, §4 (Figs. 3 and 4); shares nothing with `simulate`.
"""

from __future__ import annotations

import itertools
import math

Slot = tuple[int, int] | None  # device and number of the invocation; None on a CPU


def edges_of(problem):
    """(producer, tensor, consumer) triples."""
    return [
        (int(problem.tensor_producer[tensor]), tensor, int(problem.consumers[edge]))
        for tensor in range(problem.tensor_count)
        for edge in range(problem.consumer_offsets[tensor], problem.consumer_offsets[tensor + 1])
    ]


def host_time(problem, way, device, tensor):
    return float(problem.host_latency[way, device]) + float(problem.tensor_bytes[tensor]) * float(
        problem.host_seconds_per_byte[way, device]
    )


def latency(problem, device, slots):
    """Seconds, or infinity if something waits for itself."""
    edges = edges_of(problem)
    finish: dict[object, float] = {}
    under_way: set[object] = set()

    def end_of(what):
        """`what` is an op on a CPU or a slot."""
        if what in finish:
            return finish[what]
        if what in under_way:
            return math.inf
        under_way.add(what)
        own = {what} if isinstance(what, int) else {o for o, s in enumerate(slots) if s == what}
        waits = [
            end_of(slots[p] if slots[p] is not None else p)
            for p, _, c in edges
            if c in own and p not in own
        ]
        if isinstance(what, int):
            took = float(problem.op_time[what, device[what]])
        else:
            where, number = what
            waits += [
                end_of(s) for s in {*slots} if s is not None and s[0] == where and s[1] < number
            ]
            read = {t for p, t, c in edges if c in own and p not in own}
            written = {t for p, t, c in edges if p in own and c not in own}
            took = sum(float(problem.op_time[op, where]) for op in own)
            took += sum(host_time(problem, 1, where, t) for t in read)
            took += sum(host_time(problem, 0, where, t) for t in written)
        under_way.discard(what)
        finish[what] = max([0.0, *waits]) + took
        return finish[what]

    return max(end_of(s if s is not None else op) for op, s in enumerate(slots))


def assignments(problem):
    """All (device, slots) that keep pins, support, units, memory and the number of subgraphs."""
    q = problem.options.subgraphs
    numbers = range(2 * q if problem.is_backward.any() else q)
    choices = []
    for op in range(problem.op_count):
        mine = []
        for d in range(problem.device_count):
            pinned = int(problem.op_pinned[op])
            if pinned not in (-1, d) or not math.isfinite(problem.op_time[op, d]):
                continue
            mine += [(d, None)] if problem.is_cpu[d] else [(d, number) for number in numbers]
        choices.append(mine)
    for picked in itertools.product(*choices):
        device = [d for d, _ in picked]
        slots = [None if number is None else (d, number) for d, number in picked]
        if _allowed(problem, device, slots, q):
            yield device, slots


def _allowed(problem, device, slots, q):
    groups: dict[int, int] = {}
    for op, group in enumerate(problem.colocation.tolist()):
        if group >= 0 and groups.setdefault(group, device[op]) != device[op]:
            return False
    for d in range(problem.device_count):
        kept = sum(float(problem.op_memory[op]) for op in range(len(device)) if device[op] == d)
        if kept > problem.device_memory[d] * (1 + 1e-12):
            return False
        ways: dict[int, set[bool]] = {}
        for op, slot in enumerate(slots):
            if slot is not None and slot[0] == d:
                ways.setdefault(slot[1], set()).add(bool(problem.is_backward[op]))
        if any(len(kinds) > 1 for kinds in ways.values()):
            return False
        for way in (False, True):
            if sum(kinds == {way} for kinds in ways.values()) > q:
                return False
    return True


def least_latency(problem):
    """Seconds of the best assignment; infinity if there is none."""
    return min(
        (latency(problem, device, slots) for device, slots in assignments(problem)),
        default=math.inf,
    )


def least_row(problem):
    """Seconds of the best assignment if each subgraph, and op on a CPU, waits for the one before.

    Infinity if there is none.
    """
    edges = edges_of(problem)

    def took(own, where):
        read = {t for p, t, c in edges if c in own and p not in own}
        written = {t for p, t, c in edges if p in own and c not in own}
        seconds = sum(float(problem.op_time[op, where]) for op in own)
        seconds += sum(host_time(problem, 1, where, t) for t in read)
        return seconds + sum(host_time(problem, 0, where, t) for t in written)

    best = math.inf
    for device, slots in assignments(problem):
        if math.isfinite(latency(problem, device, slots)):
            chosen = [slot[0] for slot in slots if slot is not None]
            own = [({op for op, s in enumerate(slots) if s and s[0] == d}, d) for d in {*chosen}]
            alone = [op for op, slot in enumerate(slots) if slot is None]
            total = sum(took(*each) for each in own)
            best = min(best, total + sum(float(problem.op_time[op, device[op]]) for op in alone))
    return best


def cheapest_split(problem, atoms, order, devices, stops):
    """Seconds of the cheapest cut of `order` into segments on `devices`, in turn, and CPUs.

    By trying every cut; `atoms` are the ops of each and its seconds on a CPU; segments begin
    and end where `stops` allow.
    """
    ops_of, cpu_seconds = atoms

    def cost(ops, device):
        if not all(math.isfinite(problem.unit_time[problem.op_unit[op], device]) for op in ops):
            return math.inf
        if sum(float(problem.op_memory[op]) for op in ops) > problem.device_memory[device]:
            return math.inf
        total = 0.0
        for way in (False, True):
            own = {op for op in ops if problem.is_backward[op] == way}
            edges = edges_of(problem)
            read = {t for p, t, c in edges if c in own and p not in own}
            written = {t for p, t, c in edges if p in own and c not in own}
            total += sum(float(problem.op_time[op, device]) for op in own)
            total += sum(host_time(problem, 1, device, t) for t in read)
            total += sum(host_time(problem, 0, device, t) for t in written)
        return total

    def rest(place, used):
        if place == len(order):
            return 0.0
        found = [cpu_seconds[order[place]] + rest(place + 1, used)]
        if used < len(devices):
            found.append(rest(place, used + 1))
            ends = [k for k in range(place + 1, len(order) + 1) if stops[place] and stops[k]]
            for end in ends:
                ops = [op for atom in order[place:end] for op in ops_of[atom]]
                found.append(cost(ops, devices[used]) + rest(end, used + 1))
        return min(found)

    return rest(0, 0)
