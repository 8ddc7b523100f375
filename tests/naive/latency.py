"""Slow, obvious twins of the kernels: dictionaries and loops, nothing clever."""

from __future__ import annotations

import math

from hypothesis import reject

from placewright.problem import Problem

MOST_STATES = 20_000  # that brute force may visit for one placement


def transfer_time(problem: Problem, tensor: int, source: int, target: int) -> float:
    return float(problem.link_latency[source, target]) + float(
        problem.tensor_bytes[tensor]
    ) * float(problem.link_seconds_per_byte[source, target])


def contended(problem: Problem, source: int, target: int) -> list[object]:
    if problem.options.contention == "port":
        return [("out", source), ("in", target)]
    if problem.options.contention == "link":
        pair = source * problem.device_count + target
        low, high = problem.channel_offsets[pair : pair + 2]
        return [("channel", int(c)) for c in problem.channels[low:high]]
    return []


def inputs_of(problem: Problem, op: int) -> list[int]:
    return [e for e in range(problem.edge_count) if problem.consumers[e] == op]


def time_sequence(problem, device, sequence):
    """(op_start, op_finish, edge_start, edge_finish) as dictionaries; see the kernel."""
    op_start, op_finish, edge_start, edge_finish = {}, {}, {}, {}
    free = {}
    arrived = {}
    for item in sequence:
        if item >= 0:
            d = device[item]
            start = free.get(("device", d), 0.0)
            for e in inputs_of(problem, item):
                producer = problem.edge_producer[e]
                there = op_finish[producer] if device[producer] == d else edge_finish[e]
                start = max(start, there)
            op_start[item] = start
            op_finish[item] = free[("device", d)] = start + float(problem.op_time[item, d])
            continue
        e = -1 - item
        producer, consumer = problem.edge_producer[e], problem.consumers[e]
        source, target = device[producer], device[consumer]
        if source == target:
            continue
        tensor = problem.edge_tensor[e]
        key = (tensor, target) if problem.options.transfer_unit == "tensor" else e
        if key not in arrived:
            resources = contended(problem, source, target)
            start = max([op_finish[producer], *(free.get(r, 0.0) for r in resources)])
            arrived[key] = start + transfer_time(problem, tensor, source, target)
            for r in resources:
                free[r] = arrived[key]
            edge_start[e] = start
        edge_finish[e] = arrived[key]
    return op_start, op_finish, edge_start, edge_finish


class Timeline:
    """Busy intervals of one resource; gaps are what is between them."""

    def __init__(self) -> None:
        self.busy: list[tuple[float, float]] = []

    def gaps(self):
        edges = sorted(self.busy)
        start = 0.0
        for a, b in edges:
            if a > start:
                yield start, a
            start = max(start, b)
        yield start, math.inf

    def earliest(self, ready, duration):
        for start, end in self.gaps():
            begin = max(ready, start)
            if end > ready and begin + duration <= end:
                return begin
        raise AssertionError

    def end(self):
        return max((b for _, b in self.busy), default=0.0)


def insertion_schedule(problem: Problem, order, unit_device, *, insertion=True):
    """(unit_device, op_start, op_finish, edge_start, failed op or -1); see the kernel."""
    unit_device = list(unit_device)
    free = [float(m) for m in problem.device_memory]
    for unit, d in enumerate(unit_device):
        if d >= 0:
            free[d] -= float(problem.unit_memory[unit])
    devices = [Timeline() for _ in range(problem.device_count)]
    channels: dict[object, Timeline] = {}
    op_start, op_finish, edge_start, arrival = {}, {}, {}, {}
    by_tensor = problem.options.transfer_unit == "tensor"

    def channel_start(resources, ready, duration):
        start = ready
        while True:
            later = max(
                [
                    start,
                    *(
                        channels.setdefault(r, Timeline()).earliest(start, duration)
                        for r in resources
                    ),
                ]
            )
            if later == start:
                return start
            start = later

    for op in order:
        unit = problem.op_unit[op]

        def finish_on(d, op=op):
            ready, sending = 0.0, 0.0
            for e in inputs_of(problem, op):
                producer = problem.edge_producer[e]
                source = unit_device[problem.op_unit[producer]]
                there = op_finish[producer]
                if source != d:
                    tensor = problem.edge_tensor[e]
                    if by_tensor and (tensor, d) in arrival:
                        there = arrival[tensor, d]
                    else:
                        duration = transfer_time(problem, tensor, source, d)
                        resources = contended(problem, source, d)
                        if resources:
                            there = (
                                channel_start(resources, max(there, sending), duration) + duration
                            )
                            sending = there
                        else:
                            there += duration
                ready = max(ready, there)
            time = float(problem.op_time[op, d])
            start = devices[d].earliest(ready, time) if insertion else max(ready, devices[d].end())
            return start + time

        if unit_device[unit] < 0:
            candidates = [
                d
                for d in range(problem.device_count)
                if math.isfinite(problem.unit_time[unit, d])
                and problem.unit_memory[unit] <= free[d]
            ]
            if not candidates:
                return unit_device, op_start, op_finish, edge_start, int(op)
            unit_device[unit] = min(candidates, key=lambda d: (finish_on(d), d))
            free[unit_device[unit]] -= float(problem.unit_memory[unit])
        d = unit_device[unit]
        ready = 0.0
        for e in inputs_of(problem, op):
            producer = problem.edge_producer[e]
            source = unit_device[problem.op_unit[producer]]
            there = op_finish[producer]
            if source != d:
                tensor = problem.edge_tensor[e]
                key = (tensor, d) if by_tensor else e
                if key not in arrival:
                    duration = transfer_time(problem, tensor, source, d)
                    resources = contended(problem, source, d)
                    start = channel_start(resources, there, duration)
                    for r in resources:
                        channels[r].busy.append((start, start + duration))
                    edge_start[e] = start
                    arrival[key] = start + duration
                there = arrival[key]
            ready = max(ready, there)
        time = float(problem.op_time[op, d])
        start = devices[d].earliest(ready, time) if insertion else max(ready, devices[d].end())
        devices[d].busy.append((start, start + time))
        op_start[op], op_finish[op] = start, start + time
    return unit_device, op_start, op_finish, edge_start, -1


def upward_ranks(problem: Problem, op_weight, edge_weight):
    rank: dict[int, float] = {}

    def of(op: int) -> float:
        if op not in rank:
            tails = [
                edge_weight[e] + of(int(problem.consumers[e]))
                for e in range(problem.edge_count)
                if problem.edge_producer[e] == op
            ]
            rank[op] = op_weight[op] + max([0.0, *tails])
        return rank[op]

    return [of(op) for op in range(problem.op_count)]


def earliest_start_placement(problem: Problem, priority, unit_device):
    """(unit_device, failed op or -1): try every ready op on every device; see the kernel."""
    unit_device = list(unit_device)
    free = [float(m) for m in problem.device_memory]
    for unit, d in enumerate(unit_device):
        if d >= 0:
            free[d] -= float(problem.unit_memory[unit])
    device_free = [0.0] * problem.device_count
    op_finish, op_device = {}, {}
    while len(op_finish) < problem.op_count:
        ready = [
            op
            for op in range(problem.op_count)
            if op not in op_finish
            and all(problem.edge_producer[e] in op_finish for e in inputs_of(problem, op))
        ]
        pairs = []
        for op in ready:
            unit = problem.op_unit[op]
            for d in range(problem.device_count):
                if not math.isfinite(problem.unit_time[unit, d]):
                    continue
                if unit_device[unit] >= 0:
                    if unit_device[unit] != d:
                        continue
                elif problem.unit_memory[unit] > free[d]:
                    continue
                start = device_free[d]
                for e in inputs_of(problem, op):
                    producer = int(problem.edge_producer[e])
                    there = op_finish[producer]
                    if op_device[producer] != d:
                        there += transfer_time(
                            problem, problem.edge_tensor[e], op_device[producer], d
                        )
                    start = max(start, there)
                pairs.append((start, int(priority[op]), d, op))
        if not pairs:
            return unit_device, ready[0]
        start, _, d, op = min(pairs)
        unit = problem.op_unit[op]
        if unit_device[unit] < 0:
            unit_device[unit] = d
            free[d] -= float(problem.unit_memory[unit])
        op_device[op] = d
        op_finish[op] = device_free[d] = start + float(problem.op_time[op, d])
    return unit_device, -1


def peak_memory(problem: Problem, device, schedule):
    """[device] bytes: at the start of every interval, add up all that is alive."""
    sent = schedule.transfers
    by_tensor = problem.options.transfer_unit == "tensor"
    lives = []
    for t in range(problem.tensor_count):
        producer = problem.tensor_producer[t]
        home = device[producer]
        users = problem.consumers[problem.consumer_offsets[t] : problem.consumer_offsets[t + 1]]
        end = float(schedule.op_finish[producer])
        for op in users:
            if device[op] == home:
                end = max(end, float(schedule.op_finish[op]))
        for k in range(len(sent)):
            if sent.tensor[k] != t:
                continue
            end = max(end, float(sent.finish[k]))
            served = (
                [op for op in users if device[op] == sent.target[k]]
                if by_tensor
                else [sent.consumer[k]]
            )
            until = max([float(sent.finish[k]), *(float(schedule.op_finish[op]) for op in served)])
            lives.append((sent.target[k], float(sent.start[k]), until, problem.tensor_bytes[t]))
        lives.append((home, float(schedule.op_start[producer]), end, problem.tensor_bytes[t]))
    peaks = []
    for d in range(problem.device_count):
        kept = sum(float(problem.op_memory[o]) for o in range(problem.op_count) if device[o] == d)
        mine = [life for life in lives if life[0] == d and life[2] > life[1]]
        alive = [
            sum(size for _, start, end, size in mine if start <= at < end) for _, at, _, _ in mine
        ]
        peaks.append(kept + max([0.0, *alive]))
    return peaks


def shortest_makespan(problem: Problem) -> float:
    """The optimum by trying every placement and every order; for a handful of ops.

    Depth first over sequences of ops and edges by ascending start: at each step append any item
    whose predecessors are in and that starts no earlier than the last. Every semi-active schedule
    is such a sequence, and one of them is optimal. A branch ends where the longest path that is
    left cannot beat the best found. An example with too many sequences is rejected.
    """
    best = math.inf
    n = problem.op_count
    in_edges = {op: inputs_of(problem, op) for op in range(n)}
    out_edges = {
        op: [e for e in range(problem.edge_count) if problem.edge_producer[e] == op]
        for op in range(n)
    }
    by_tensor = problem.options.transfer_unit == "tensor"
    seen: set[object] = set()

    def path_lengths(device):
        op_time = [float(problem.op_time[op, d]) for op, d in enumerate(device)]
        edge_time = []
        for e in range(problem.edge_count):
            ends = device[problem.edge_producer[e]], device[problem.consumers[e]]
            crosses = ends[0] != ends[1]
            edge_time.append(
                transfer_time(problem, problem.edge_tensor[e], *ends) if crosses else 0.0
            )
        return upward_ranks(problem, op_time, edge_time)

    def key_of(e, target):
        return (int(problem.edge_tensor[e]), target) if by_tensor else e

    def extend(device, left, op_finish, arrived, free, last):
        nonlocal best
        state = (tuple(device), frozenset(op_finish.items()), frozenset(arrived.items()))
        if state in seen:  # orders that lead to the same times are one
            return
        seen.add(state)
        if len(seen) > MOST_STATES:
            reject()
        if len(op_finish) == n:
            best = min(best, max(op_finish.values()))
            return
        for op in range(n):
            if op in op_finish or any(
                problem.edge_producer[e] not in op_finish for e in in_edges[op]
            ):
                continue
            d = device[op]
            local = [e for e in in_edges[op] if device[problem.edge_producer[e]] == d]
            remote = [e for e in in_edges[op] if e not in local]
            if any(key_of(e, d) not in arrived for e in remote):
                continue
            start = max(
                [
                    free.get(("device", d), 0.0),
                    *(op_finish[int(problem.edge_producer[e])] for e in local),
                    *(arrived[key_of(e, d)] for e in remote),
                ]
            )
            if start + left[op] >= best:
                return
            if start < last:
                continue
            finish = start + float(problem.op_time[op, d])
            sent = dict(arrived)
            for e in out_edges[op]:  # what contends with nothing is sent at once
                target = device[int(problem.consumers[e])]
                if target != d and not contended(problem, d, target):
                    sent[key_of(e, target)] = finish + transfer_time(
                        problem, problem.edge_tensor[e], d, target
                    )
            extend(
                device,
                left,
                op_finish | {op: finish},
                sent,
                free | {("device", d): finish},
                start,
            )
        for op in op_finish:
            for e in out_edges[op]:
                target = device[int(problem.consumers[e])]
                key = key_of(e, target)
                if target == device[op] or key in arrived:
                    continue
                resources = contended(problem, device[op], target)
                start = max([op_finish[op], *(free.get(r, 0.0) for r in resources)])
                if start < last:
                    continue
                finish = start + transfer_time(problem, problem.edge_tensor[e], device[op], target)
                extend(
                    device,
                    left,
                    op_finish,
                    arrived | {key: finish},
                    free | dict.fromkeys(resources, finish),
                    start,
                )

    def place(device):
        op = len(device)
        if op == n:
            left = path_lengths(device)
            if max(left) < best:
                seen.clear()
                extend(device, left, {}, {}, {}, 0.0)
            return
        for d in range(problem.device_count):
            together = [device[o] for o in range(op) if problem.op_unit[o] == problem.op_unit[op]]
            if together and together[0] != d:
                continue
            used = sum(
                float(problem.op_memory[o]) for o, where in enumerate([*device, d]) if where == d
            )
            if (
                math.isfinite(problem.unit_time[problem.op_unit[op], d])
                and used <= problem.device_memory[d]
            ):
                place([*device, d])

    place([])
    return best
