"""Whether anything fits at all: every placement within memory, by its own arithmetic.

Resident memory, supported devices, pins, colocation; and what each objective asks besides:
contiguous subgraphs in a number that is allowed, stages in a row, batches of allowed sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tests.naive.throughput import is_contiguous


def anything_fits(problem) -> bool:
    """Whether the problem has a plan at all, under memory option ``resident``."""
    objective = problem.options.objective
    if objective == "batch-throughput":
        return next(_filled(problem, _batch_choices(problem)), None) is not None
    if objective == "latency":
        return next(_filled(problem, _choices(problem)), None) is not None
    if objective == "throughput" and not problem.options.contiguous:
        return next(_filled(problem, _choices(problem)), None) is not None
    # With replicas no more fits: every device of a stage keeps what its first would keep alone.
    allowed = is_contiguous if objective == "throughput" else runs_in_subgraphs
    return any(allowed(problem, device) for device in placements_that_fit(problem))


def placements_that_fit(problem) -> Iterator[list[int]]:
    """`[op]` devices, of every placement within memory."""
    units = units_of(problem)
    for chosen in _filled(problem, _choices(problem), every=True):
        device = [-1] * problem.op_count
        for ops, (where,) in zip(units, chosen, strict=True):
            for op in ops:
                device[op] = where
        yield device


def units_of(problem) -> list[list[int]]:
    """Ops that must be together, by their first op."""
    units: dict[object, list[int]] = {}
    for op, group in enumerate(problem.colocation.tolist()):
        units.setdefault(("group", group) if group >= 0 else op, []).append(op)
    return list(units.values())


def _choices(problem) -> list[list[tuple[int, ...]]]:
    """Per unit the devices it may be on, each as a choice of one."""
    devices = range(problem.device_count)
    return [[(d,) for d in devices if _may_be(problem, ops, d)] for ops in units_of(problem)]


def _may_be(problem, ops, device) -> bool:
    return all(
        math.isfinite(problem.op_time[op, device]) and problem.op_pinned[op] in (-1, device)
        for op in ops
    )


def _batch_choices(problem) -> list[list[tuple[int, ...]]]:
    """Per unit the sets of devices that can share out its inputs."""
    sizes, inputs = problem.batch_sizes.tolist(), problem.options.batch
    found = []
    for ops in units_of(problem):
        counts = [[0] for _ in range(problem.device_count)]
        for device in range(problem.device_count):
            for index, size in enumerate(sizes):
                times = problem.batch_time[ops, device, index]
                if _may_be(problem, ops, device) and all(map(math.isfinite, times.tolist())):
                    counts[device].append(size)
        sets = {
            tuple(d for d, count in enumerate(split) if count)
            for split in itertools.product(*counts)
            if sum(split) == inputs
        }
        found.append(sorted(sets, key=len))
    return found


def _filled(problem, choices, every: bool = False) -> Iterator[list[tuple[int, ...]]]:
    """Per unit one of its choices, such that all that devices keep fits; all ways, or one."""
    need = [math.fsum(problem.op_memory[ops].tolist()) for ops in units_of(problem)]
    capacity = problem.device_memory.tolist()
    dead: set[object] = set()  # states from which nothing fits

    def rest(kept: tuple[tuple[float, ...], ...]) -> Iterator[list[tuple[int, ...]]]:
        unit = len(chosen)
        if unit == len(need):
            yield list(chosen)
            return
        state = unit, kept
        if state in dead:
            return
        for devices in choices[unit]:
            takes = {d for d in devices if need[unit] and math.isfinite(capacity[d])}
            more = tuple(
                tuple(sorted((*there, need[unit]))) if d in takes else there
                for d, there in enumerate(kept)
            )
            if all(math.fsum(more[d]) <= capacity[d] for d in takes):
                chosen.append(devices)
                yield from rest(more)
                chosen.pop()
        if not every:
            dead.add(state)

    chosen: list[tuple[int, ...]] = []
    yield from rest(((),) * problem.device_count)


def runs_in_subgraphs(problem, device) -> bool:
    """Whether the subgraphs allowed per accelerator and way are enough for this placement.

    Invocations one after another, in every order of accelerators; each takes all of its
    accelerator's ops of one way that are ready, or become so within it: taking fewer helps no one.
    """
    ops = range(problem.op_count)
    before: list[set[int]] = [set() for _ in ops]
    for edge in range(problem.edge_count):
        before[problem.consumers[edge]].add(int(problem.edge_producer[edge]))

    def after(done, mine):
        """`done`, and those of `mine` that need nothing else."""
        while more := {op for op in mine - done if before[op] <= done}:
            done = done | more
        return done

    on_cpu = {op for op in ops if problem.is_cpu[device[op]]}
    slots: dict[tuple[int, bool], set[int]] = {}
    for op in ops:
        if op not in on_cpu:
            slots.setdefault((device[op], bool(problem.is_backward[op])), set()).add(op)
    states = [(after(frozenset(), on_cpu), dict.fromkeys(slots, problem.options.subgraphs))]
    seen = set()
    while states:
        done, left = states.pop()
        if len(done) == problem.op_count:
            return True
        for slot, mine in slots.items():
            now = after(done, mine)
            state = after(now, on_cpu), tuple(left[each] - (each == slot) for each in slots)
            if left[slot] and now != done and state not in seen:
                seen.add(state)
                states.append((state[0], dict(zip(slots, state[1], strict=True))))
    return False
