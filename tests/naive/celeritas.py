"""Slow, obvious twins of what is behind Celeritas: `latency.sequential` and `latency.adjusting`."""

from __future__ import annotations

import itertools
import math

from placewright.problem import Problem
from tests.naive.latency import Timeline, contended, inputs_of, transfer_time


def successors(problem: Problem, op: int) -> list[int]:
    """The consumer of every edge that leaves `op`."""
    return problem.consumers[problem.edge_producer == op].tolist()


def top_levels(problem: Problem, op_weight, edge_weight) -> list[float]:
    """The longest path that ends before each op, by recursion over what it reads."""

    def level(op):
        ways = [0.0]
        for edge in inputs_of(problem, op):
            producer = int(problem.edge_producer[edge])
            ways.append(level(producer) + float(op_weight[producer]) + float(edge_weight[edge]))
        return max(ways)

    return [level(op) for op in range(problem.op_count)]


def depth_first(problem: Problem, priority) -> list[int]:
    """CPD_Topo of Alg. 1 line by line; `priority` is the paper's cpath; ties by op number."""
    missing = [len(inputs_of(problem, op)) for op in range(problem.op_count)]
    queue = [op for op in range(problem.op_count) if missing[op] == 0]
    queue.sort(key=lambda op: (-priority[op], op))
    order = []
    while queue:
        op = queue.pop(0)
        order.append(op)
        for child in sorted(successors(problem, op), key=lambda each: (priority[each], -each)):
            missing[child] -= 1
            if missing[child] == 0:
                queue.insert(0, child)
    return order


def by_label(problem: Problem, line, label) -> list[int]:
    """The ready op that comes first in `line`, of the label of the last op if one is ready."""
    line = list(line)
    done: list[int] = []
    while len(done) < problem.op_count:
        ready = [
            op
            for op in line
            if op not in done
            and all(int(problem.edge_producer[e]) in done for e in inputs_of(problem, op))
        ]
        same = [op for op in ready if done and label[op] == label[done[-1]]]
        done.append((same or ready)[0])
    return done


def cheapest_cuts(inputs, memory, allowed, device_memory, limit, label, pure, reach) -> list[int]:
    """`begin` of every prefix, costs added up anew; `inputs[j]`: pairs of after and cost."""

    def cost(begin, end):
        return sum(c for j in range(begin, end) for after, c in inputs[j] if after < begin)

    best = [(0, 0, 0)]  # cost, groups, where the last group begins
    for end in range(1, len(memory) + 1):
        found = []
        for begin in reversed(range(end)):
            group = range(begin, end)
            if len(group) > 1 and not may_be_one(
                group, memory, allowed, device_memory, limit, label, pure, reach
            ):
                break
            found.append((best[begin][0] + cost(begin, end), best[begin][1] + 1, begin))
        best.append(min(found, key=lambda each: each[:2]))
    return [begin for _, _, begin in best]


def may_be_one(group, memory, allowed, device_memory, limit, label, pure, reach) -> bool:
    """Whether several positions may be one group."""
    held = 0.0
    for j in reversed(group):
        held += memory[j]
    labels = {int(label[j]) for j in group}
    return (
        len(group) <= reach
        and held <= limit
        and any(
            all(allowed[j][d] for j in group) and held <= device_memory[d]
            for d in range(len(device_memory))
        )
        and len(labels - {-1}) <= 1
        and not (any(pure[j] for j in group) and len(labels) > 1)
    )


def cut_cost(problem: Problem, group, measure: str) -> float:
    """Seconds of what is sent between groups, over the mean route, from the definition."""
    count = problem.device_count
    pairs = [(a, b) for a, b in itertools.product(range(count), repeat=2) if a != b]
    total = 0.0
    sent = set()
    for edge in range(problem.edge_count):
        source = group[problem.edge_producer[edge]]
        target = group[problem.consumers[edge]]
        tensor = int(problem.edge_tensor[edge])
        if source == target or (measure == "tensor" and (tensor, target) in sent):
            continue
        sent.add((tensor, target))
        total += sum(transfer_time(problem, tensor, a, b) for a, b in pairs) / max(len(pairs), 1)
    return total


def breakpoint_sets(op_count: int):
    """Every way to cut a line of ops, as the list of positions where a group begins."""
    for bits in itertools.product([False, True], repeat=op_count - 1):
        yield [0, *(k + 1 for k, cut in enumerate(bits) if cut)]


def adjusting_schedule(problem: Problem, order, unit_device, previous, work: bool):
    """(unit_device, op_start, op_finish, edge_start, failed op or -1); see the kernel."""
    unit_device = list(unit_device)
    free = [float(m) for m in problem.device_memory]
    for unit, d in enumerate(unit_device):
        if d >= 0:
            free[d] -= float(problem.unit_memory[unit])
    lines: dict[object, Timeline] = {}
    op_start, op_finish, edge_start, arrival = {}, {}, {}, {}
    by_tensor = problem.options.transfer_unit == "tensor"

    def line(resource) -> Timeline:
        return lines.setdefault(resource, Timeline())

    def resources(source, target) -> list[object]:
        if work:
            return [("device", source), ("device", target)]
        return contended(problem, source, target)

    def send(source, target, ready, duration):
        while True:
            later = [line(r).earliest(ready, duration) for r in resources(source, target)]
            if max([ready, *later]) == ready:
                return ready
            ready = max(later)

    def arrivals(op, d, book):
        """When the op's inputs are on d; its transfers one after the other, or booked."""
        ready = sending = 0.0
        for e in inputs_of(problem, op):
            producer, tensor = int(problem.edge_producer[e]), int(problem.edge_tensor[e])
            source = unit_device[problem.op_unit[producer]]
            there = op_finish[producer]
            if source != d and by_tensor and (tensor, d) in arrival:
                there = arrival[tensor, d]
            elif source != d:
                duration = transfer_time(problem, tensor, source, d)
                used = resources(source, d)
                start = there
                if used:
                    start = send(source, d, there if book else max(there, sending), duration)
                    sending = start + duration
                there = start + duration
                if book:
                    for r in used:
                        line(r).busy.append((start, there))
                    edge_start[e] = start
                    arrival[tensor, d] = there
            ready = max(ready, there)
        return ready

    for op in order:
        unit = int(problem.op_unit[op])
        if unit_device[unit] < 0:
            finish = {}
            for d in range(problem.device_count):
                if math.isinf(problem.unit_time[unit, d]) or problem.unit_memory[unit] > free[d]:
                    continue
                time = float(problem.op_time[op, d])
                finish[d] = time + line(("device", d)).earliest(arrivals(op, d, False), time)
            if not finish:
                return unit_device, op_start, op_finish, edge_start, int(op)
            chosen = min(finish, key=lambda d: (finish[d], d))
            back = [0.0]
            if chosen != previous:
                back += [
                    transfer_time(problem, int(problem.edge_tensor[e]), chosen, previous)
                    for e in range(problem.edge_count)
                    if problem.edge_producer[e] == op
                ]
            if previous in finish and finish[previous] - finish[chosen] <= max(back):
                chosen = previous
            unit_device[unit] = chosen
            free[chosen] -= float(problem.unit_memory[unit])
        previous = unit_device[unit]
        ready = arrivals(op, previous, True)
        time = float(problem.op_time[op, previous])
        op_start[op] = line(("device", previous)).earliest(ready, time)
        op_finish[op] = op_start[op] + time
        line(("device", previous)).busy.append((op_start[op], op_finish[op]))
    return unit_device, op_start, op_finish, edge_start, -1


def breadth_first_order(problem):
    """A queue: ops without inputs by number, then each as the last of its inputs comes out."""
    waiting = [0] * problem.op_count
    for consumer in problem.consumers:
        waiting[consumer] += 1
    queue = [op for op in range(problem.op_count) if waiting[op] == 0]
    for op in queue:  # grows while it is read
        for edge in range(problem.edge_count):
            if problem.edge_producer[edge] == op:
                consumer = int(problem.consumers[edge])
                waiting[consumer] -= 1
                if waiting[consumer] == 0:
                    queue.append(consumer)
    return queue
