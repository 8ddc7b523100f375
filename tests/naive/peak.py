"""Twins for memory option ``peak``: a gated schedule step by step, and every schedule there is."""

from __future__ import annotations

import math

from hypothesis import reject

from placewright.problem import Problem
from tests.naive.latency import contended, inputs_of, transfer_time, upward_ranks

OVERFULL = math.inf
ROUNDING = 1e-12
MOST_STATES = 60_000  # that brute force may visit for one problem


class Course:
    """A schedule under construction: what has begun, and what is alive when.

    Lives are ``[device, begin, end or None while uses are to come, bytes]``.
    """

    def __init__(self, problem: Problem, device) -> None:
        self.problem, self.device = problem, [int(d) for d in device]
        self.by_tensor = problem.options.transfer_unit == "tensor"
        self.start: dict[int, float] = {}
        self.finish: dict[int, float] = {}
        self.sent: dict[object, tuple[float, float]] = {}
        self.free: dict[object, float] = {}
        self.last = 0.0

    def copy(self) -> Course:
        other = Course(self.problem, self.device)
        other.start, other.finish = dict(self.start), dict(self.finish)
        other.sent, other.free, other.last = dict(self.sent), dict(self.free), self.last
        return other

    def key(self, edge: int) -> object:
        target = self.device[int(self.problem.consumers[edge])]
        return (int(self.problem.edge_tensor[edge]), target) if self.by_tensor else edge

    def crosses(self, edge: int) -> bool:
        producer, consumer = self.problem.edge_producer[edge], self.problem.consumers[edge]
        return self.device[int(producer)] != self.device[int(consumer)]

    def kept(self, d: int) -> float:
        memory = self.problem.op_memory
        return sum(float(memory[op]) for op, where in enumerate(self.device) if where == d)

    def lives(self):
        """(device, begin, end) and bytes of all that has begun; `inf` where uses are to come."""
        problem, found = self.problem, []
        for tensor in range(problem.tensor_count):
            producer, size = int(problem.tensor_producer[tensor]), problem.tensor_bytes[tensor]
            if producer not in self.start:
                continue
            low, high = problem.consumer_offsets[tensor : tensor + 2]
            ends, copies = [self.finish[producer]], {}
            for edge in range(low, high):
                reader = int(problem.consumers[edge])
                until = self.finish.get(reader, math.inf)
                if not self.crosses(edge):
                    ends.append(until)
                    continue
                begin, arrival = self.sent.get(self.key(edge), (None, math.inf))
                ends.append(arrival)
                if begin is not None:
                    copies.setdefault(self.key(edge), [self.device[reader], begin, arrival])
                    copies[self.key(edge)][2] = max(copies[self.key(edge)][2], until)
            found.append((self.device[producer], self.start[producer], max(ends), float(size)))
            found += [(d, begin, end, float(size)) for d, begin, end in copies.values()]
        return found

    def used(self, d: int, at: float) -> float:
        """Bytes on device d just after the instant `at`, as far as is known."""
        alive = [
            size for where, begin, end, size in self.lives() if where == d and begin <= at < end
        ]
        return self.kept(d) + sum(alive)

    def fits(self, at: float, rounding: float = ROUNDING) -> bool:
        memory = self.problem.device_memory
        return all(
            self.used(d, at) <= float(memory[d]) * (1 + rounding) for d in range(len(memory))
        )

    def ready(self, item: int) -> float | None:
        """When an op or (-1 - edge) a transfer could begin, memory aside; None if it cannot."""
        if item >= 0:
            times = [self.last, self.free.get(("device", self.device[item]), 0.0)]
            for edge in inputs_of(self.problem, item):
                producer = int(self.problem.edge_producer[edge])
                if not self.crosses(edge):
                    there = self.finish.get(producer)
                else:
                    there = self.sent.get(self.key(edge), (None, None))[1]
                if there is None:
                    return None
                times.append(there)
            return max(times)
        producer = int(self.problem.edge_producer[-1 - item])
        if producer not in self.finish:
            return None
        return max(
            self.last, self.finish[producer], *(self.free.get(r, 0.0) for r in self.over(item)), 0.0
        )

    def over(self, item: int) -> list[object]:
        source = self.device[int(self.problem.edge_producer[-1 - item])]
        target = self.device[int(self.problem.consumers[-1 - item])]
        return contended(self.problem, source, target)

    def begin(self, item: int, at: float) -> None:
        self.last = at
        if item >= 0:
            d = self.device[item]
            self.start[item] = at
            self.finish[item] = self.free["device", d] = at + float(self.problem.op_time[item, d])
            return
        edge = -1 - item
        source = self.device[int(self.problem.edge_producer[edge])]
        target = self.device[int(self.problem.consumers[edge])]
        tensor = int(self.problem.edge_tensor[edge])
        finish = at + transfer_time(self.problem, tensor, source, target)
        self.sent[self.key(edge)] = (at, finish)
        for resource in self.over(item):
            self.free[resource] = finish

    def is_to_begin(self, item: int) -> bool:
        return item >= 0 or (self.crosses(-1 - item) and self.key(-1 - item) not in self.sent)

    def takes(self, item: int) -> float:
        if item >= 0:
            return float(self.problem.op_time[item, self.device[item]])
        producer, consumer = (
            self.problem.edge_producer[-1 - item],
            self.problem.consumers[-1 - item],
        )
        tensor = int(self.problem.edge_tensor[-1 - item])
        ends = self.device[int(producer)], self.device[int(consumer)]
        return transfer_time(self.problem, tensor, *ends)

    def begin_together(self, items: list[int], at: float) -> int:
        """Begin the first item and as few as need be of those behind it; how many, 0 if in vain."""
        for count, item in enumerate(items, 1):
            if not self.is_to_begin(item):
                if self.finish.get(int(self.problem.edge_producer[-1 - item]), math.inf) > at:
                    return 0
                continue
            ready = self.ready(item)
            if count > 1 and (ready is None or ready > at or self.takes(item) > 0.0):
                return 0
            self.begin(item, at)
            if self.fits(at):
                return count
            if self.takes(item) > 0.0:
                return 0
        return 0

    def later(self, at: float) -> list[float]:
        """When something ends after `at`, as far as is known: a life, an op or a transfer."""
        ends = [end for _, _, end, _ in self.lives()]
        ends += [*self.finish.values(), *(finish for _, finish in self.sent.values())]
        return sorted({end for end in ends if at < end < math.inf})


def gated(problem: Problem, device, sequence) -> Course | None:
    """Items in order, none before the one ahead, each when it has room; None if one never has.

    Items of no duration have room where they have it together with such as come after them.
    """
    course, items = Course(problem, device), [int(item) for item in sequence]
    if not course.fits(-1.0):
        return None
    while items:
        if not course.is_to_begin(items[0]):
            items.pop(0)
            continue
        at = course.ready(items[0])
        for when in [at, *course.later(at)]:
            trial = course.copy()
            if count := trial.begin_together(items, when):
                course, items = trial, items[count:]
                break
        else:
            return None
    return course


def shortest_makespan(problem: Problem) -> float:
    """The optimum; `inf` where nothing fits. See `best_course`."""
    best = best_course(problem)
    return max(best.finish.values()) if best else math.inf


def best_course(problem: Problem) -> Course | None:
    """The optimum by every placement and every order of starts; None where nothing fits.

    Each item begins when it can or, if there is no room for it then, at an instant at which
    something ends: nothing is gained by any other. An instant may be overfull while more items are
    to begin or end at it, and counts when time goes on. An example with too many states is
    rejected.
    """
    search = _Search(problem)
    search.place([])
    return search.course


class _Search:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.best, self.states = problem, math.inf, 0
        self.course: Course | None = None

    def place(self, device: list[int]) -> None:
        problem, op = self.problem, len(device)
        if op == problem.op_count:
            course = Course(problem, device)
            if course.fits(-1.0):
                self.left = self._path_lengths(course)
                self.seen: set[object] = set()
                if max(self.left) < self.best:
                    self.extend(course)
            return
        for d in range(problem.device_count):
            unit = problem.op_unit[op]
            together = [device[o] for o in range(op) if problem.op_unit[o] == unit]
            pinned = int(problem.unit_pinned[unit])
            if (together and together[0] != d) or pinned not in (-1, d):
                continue
            if math.isfinite(problem.op_time[op, d]):
                self.place([*device, d])

    def _path_lengths(self, course: Course) -> list[float]:
        problem = self.problem
        op_time = [float(problem.op_time[op, d]) for op, d in enumerate(course.device)]
        edge_time = []
        for e in range(problem.edge_count):
            ends = course.device[problem.edge_producer[e]], course.device[problem.consumers[e]]
            tensor = int(problem.edge_tensor[e])
            edge_time.append(transfer_time(problem, tensor, *ends) if course.crosses(e) else 0.0)
        return upward_ranks(problem, op_time, edge_time)

    def extend(self, course: Course) -> None:
        key = (frozenset(course.start.items()), frozenset(course.sent.items()))
        if key in self.seen:
            return
        self.seen.add(key)
        self.states += 1
        if self.states > MOST_STATES:
            reject()
        if len(course.start) == self.problem.op_count:
            makespan = max(course.finish.values())
            if makespan < self.best and course.fits(course.last):
                self.best, self.course = makespan, course
            return
        items = [op for op in range(self.problem.op_count) if op not in course.start]
        items += [
            -1 - e
            for e in range(self.problem.edge_count)
            if course.crosses(e) and course.key(e) not in course.sent
        ]
        for item in items:
            at = course.ready(item)
            if at is None:
                continue
            left = self.left[item] if item >= 0 else 0.0
            for when in [at, *course.later(at)]:
                if when + left >= self.best or (
                    when > course.last and not course.fits(course.last)
                ):
                    break
                trial = course.copy()
                trial.begin(item, when)
                self.extend(trial)
                if trial.fits(when):  # later is no better
                    break
