"""Slow, obvious twins for batches of inputs: dictionaries and loops over single inputs."""

from __future__ import annotations

import itertools
import math
from itertools import combinations_with_replacement, product

import numpy as np
from hypothesis import reject

from placewright.problem import Problem
from placewright.simulate.batch import expand
from tests.naive.latency import Timeline, contended, inputs_of, shortest_makespan

MOST_PLACEMENTS = 300


def size_time(problem, op, device, size):
    """Seconds of a batch; inf if the device takes none of that size."""
    sizes = problem.batch_sizes.tolist()
    if size not in sizes:
        return math.inf
    return float(problem.batch_time[op, device, sizes.index(size)])


def members(row, device):
    return [each for each, where in enumerate(row) if where == device]


def moved_inputs(problem, where, tensor, readers, source, target):
    """Inputs whose tensor is made on `source` and read on `target` by one of `readers`."""
    made = where[int(problem.tensor_producer[tensor])]
    return [
        each
        for each in range(problem.options.batch)
        if made[each] == source and any(where[op][each] == target for op in readers)
    ]


def run_in_order(problem, where, order, earliest=None):
    """(start, finish) of ``[op, device]``, each as early as the order of the ops allows.

    Per op its batches by device, then what they send: by tensor (transfer unit ``edge``: and
    consumer), source and target. `where[op][input]` is a device. No batch before its `earliest`.
    """
    start, finish, free = {}, {}, {}
    needed = {}  # (op, device) → latest arrival so far
    devices = range(problem.device_count)
    for op in order:
        for d in devices:
            if members(where[op], d):
                begin = max(free.get(("device", d), 0.0), needed.get((op, d), 0.0))
                begin = max(begin, (earliest or {}).get((op, d), 0.0))
                start[op, d] = begin
                finish[op, d] = begin + size_time(problem, op, d, len(members(where[op], d)))
                free["device", d] = finish[op, d]
        for tensor in range(problem.tensor_count):
            if problem.tensor_producer[tensor] != op:
                continue
            low, high = problem.consumer_offsets[tensor : tensor + 2]
            readers = problem.consumers[low:high].tolist()
            by_tensor = problem.options.transfer_unit == "tensor"
            for group in [readers] if by_tensor else [[reader] for reader in readers]:
                for source, target in itertools.product(devices, devices):
                    inputs = moved_inputs(problem, where, tensor, group, source, target)
                    if not inputs:
                        continue
                    there = finish[op, source]
                    if source != target:
                        there = transfer(problem, tensor, len(inputs), source, target, there, free)
                    for reader in group:
                        if any(where[reader][each] == target for each in inputs):
                            key = reader, target
                            needed[key] = max(needed.get(key, 0.0), there)
    return start, finish


def tails_in_order(problem, where, order):
    """``(op, device)`` → seconds that everything takes longer, once its batch is delayed by a lot.

    That is the way from its start to the end of all: what is delayed by more than all takes has
    nothing beside it.
    """
    late = 1.0 + max(run_in_order(problem, where, order)[1].values())
    found = {}
    for op in order:
        for device in set(where[op]):
            ends = run_in_order(problem, where, order, {(op, device): late})[1]
            found[op, device] = max(ends.values()) - late
    return found


def transfer(problem, tensor, inputs, source, target, ready, free):
    """When the tensors are there; books the channels in `free`."""
    together = 1 if problem.options.contention == "none" else inputs
    resources = contended(problem, source, target)
    begin = max([ready, *(free.get(resource, 0.0) for resource in resources)])
    end = begin + (
        float(problem.link_latency[source, target])
        + float(problem.tensor_bytes[tensor])
        * together
        * float(problem.link_seconds_per_byte[source, target])
    )
    for resource in resources:
        free[resource] = end
    return end


def fewest_first(problem, allowed):
    """All splits ``(chunks per device)`` with ``allowed[device][count]``, in the kernels' order."""
    counts = [[n for n, fine in enumerate(column) if fine] for column in allowed]
    total = len(allowed[0]) - 1
    found = [split for split in itertools.product(*counts) if sum(split) == total]
    return sorted(found, key=lambda split: (sum(n > 0 for n in split), split))


def list_schedule(problem, order, splits_of_unit, chunk, *, insertion):
    """(rows by unit, start, finish) of `lists.list_batches`, memory unlimited."""
    chunks = problem.options.batch // chunk
    devices = range(problem.device_count)
    rows, start, finish = {}, {}, {}
    timelines = [Timeline() for _ in devices]
    free, arrived = {}, {}
    keeps = problem.options.contention != "none" and problem.options.transfer_unit == "tensor"

    def seconds(tensor, source, target):
        if source == target:
            return 0.0
        return float(problem.link_latency[source, target]) + float(
            problem.tensor_bytes[tensor]
        ) * float(problem.link_seconds_per_byte[source, target])

    def edges_of(op):
        return [(int(problem.edge_producer[e]), int(problem.edge_tensor[e]))
                for e in inputs_of(problem, op)]  # fmt: skip

    def closest(op):
        cost = {}
        for c, d in itertools.product(range(chunks), devices):
            cost[c, d] = 0.0
            for producer, tensor in edges_of(op):
                if (tensor, d, c) not in arrived:
                    cost[c, d] += seconds(tensor, rows[problem.op_unit[producer]][c], d)
        return sorted(cost, key=lambda pair: (cost[pair], pair))

    def fill(pairs, split):
        row, left = {}, list(split)
        for c, d in pairs:
            if c not in row and left[d]:
                row[c] = d
                left[d] -= 1
        return [row[c] for c in range(chunks)]

    def ready(op, row, free, arrived):
        """Per device; books in `free` and `arrived`."""
        at = dict.fromkeys(devices, 0.0)
        for producer, tensor in edges_of(op):
            made = rows[problem.op_unit[producer]]
            for source, target in itertools.product(devices, devices):
                both = [c for c in range(chunks) if (made[c], row[c]) == (source, target)]
                known = [c for c in both if (tensor, target, c) in arrived]
                fresh = [c for c in both if (tensor, target, c) not in arrived]
                for c in known:
                    at[target] = max(at[target], arrived[tensor, target, c])
                if fresh:
                    there = finish[producer, source]
                    if source != target:
                        there = transfer(
                            problem, tensor, len(fresh) * chunk, source, target, there, free
                        )
                        if keeps:
                            arrived.update({(tensor, target, c): there for c in fresh})
                    at[target] = max(at[target], there)
        return at

    def begin(d, at, time):
        return timelines[d].earliest(at, time) if insertion else max(at, timelines[d].end())

    def times(op, row, at):
        for d in sorted(set(row)):
            time = size_time(problem, op, d, row.count(d) * chunk)
            yield d, begin(d, at[d], time), time

    for op in order:
        unit = problem.op_unit[op]
        if unit not in rows:
            best = math.inf
            pairs = closest(op)
            for split in splits_of_unit[unit]:
                row = fill(pairs, split)
                at = ready(op, row, dict(free), dict(arrived))
                last = max(begun + time for _, begun, time in times(op, row, at))
                if last < best:
                    best, chosen = last, row
            rows[unit] = chosen
        at = ready(op, rows[unit], free, arrived)
        for d, begun, time in list(times(op, rows[unit], at)):
            start[op, d], finish[op, d] = begun, begun + time
            if time > 0:
                timelines[d].busy.append((begun, begun + time))
    return rows, start, finish


def every_placement(problem):
    """All ``device[op][input]`` that keep pins, units, sizes and memory; rejects when too many."""
    batch, devices = problem.options.batch, range(problem.device_count)
    rows = list(itertools.product(devices, repeat=batch))
    choices = []
    for unit in range(problem.unit_count):
        ops = [op for op in range(problem.op_count) if problem.op_unit[op] == unit]
        choices.append([
            row
            for row in rows
            if all(
                math.isfinite(size_time(problem, op, d, row.count(d)))
                and math.isfinite(problem.op_time[op, d])
                and problem.op_pinned[op] in (-1, d)
                for op in ops
                for d in set(row)
            )
        ])  # fmt: skip
    if math.prod(len(some) for some in choices) > MOST_PLACEMENTS:
        reject()
    for chosen in itertools.product(*choices):
        where = [chosen[problem.op_unit[op]] for op in range(problem.op_count)]
        kept = [
            sum(float(problem.op_memory[op]) for op, row in enumerate(where) if d in row)
            for d in devices
        ]
        if all(kept[d] <= problem.device_memory[d] for d in devices):
            yield where


def shortest_batch_time(problem: Problem) -> float:
    """The least time to finish all inputs; `inf` if no placement fits.

    Inputs are alike, so the paths they take are tried as multisets.
    """
    best = math.inf
    devices = range(problem.device_count)
    paths = [path for path in product(devices, repeat=problem.op_count) if _allowed(problem, path)]
    for chosen in combinations_with_replacement(paths, problem.options.batch):
        device = np.array(chosen, dtype=np.int32).T
        if _possible(problem, device):
            best = min(best, shortest_makespan(expand(problem, device).problem))
    return best


def _allowed(problem: Problem, path: tuple[int, ...]) -> bool:
    together: dict[int, int] = {}
    for op, device in enumerate(path):
        if problem.op_pinned[op] not in (-1, device):
            return False
        group = int(problem.colocation[op])
        if group >= 0 and together.setdefault(group, device) != device:
            return False
    return True


def best_even_split(problem: Problem) -> float:
    """The least time to finish all inputs where each takes all its ops on one device."""
    best = math.inf
    every = range(problem.device_count)
    devices = [each for each in every if _allowed(problem, (each,) * problem.op_count)]
    for row in combinations_with_replacement(devices, problem.options.batch):
        device = np.tile(np.array(row, dtype=np.int32), (problem.op_count, 1))
        if _possible(problem, device):
            best = min(best, shortest_makespan(expand(problem, device).problem))
    return best


def _possible(problem: Problem, device: np.ndarray) -> bool:
    """Whether every batch has a size its device takes (memory is for the makespan's search)."""
    sizes = problem.batch_sizes.tolist()
    for op, row in enumerate(device.tolist()):
        for where in set(row):
            if not math.isfinite(problem.op_time[op, where]):
                return False
            count = row.count(where)
            if count not in sizes:
                return False
            if not math.isfinite(problem.batch_time[op, where, sizes.index(count)]):
                return False
    return True
