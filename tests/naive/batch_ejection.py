"""The slow, obvious twin of `kernels.batch.ejection`: lists, the same random draws."""

from __future__ import annotations

from placewright.kernels.batch import ejection
from placewright.kernels.batch.arrays import batches_of
from tests.naive.ejection import Chain


class Ejection(Chain):
    """Rows of units, `rows[unit]`, ops in `order`, and `changes`, (unit, row before)."""

    most_links = ejection.MOST_LINKS

    def __init__(self, problem, rows, order, rng):
        self.problem, self.rng = problem, rng
        self.rows, self.order = [list(row) for row in rows], list(order)
        self.changes = []

    def put(self, unit, row):
        """Split the unit as in `row` if it may be split so and is not."""
        b = batches_of(self.problem)
        if row == self.rows[unit] or not all(
            b.allowed[unit, b.kind[d], row.count(d)] for d in set(row)
        ):
            return False
        self.changes.append((unit, self.rows[unit]))
        self.rows[unit] = list(row)
        return True

    def free(self, device):
        memory = self.problem.unit_memory.tolist()
        used = sum(m for m, row in zip(memory, self.rows, strict=True) if device in row)
        return float(self.problem.device_memory[device]) - used

    def overfull(self):
        return [d for d in range(self.problem.device_count) if self.free(d) < 0]

    def send_away(self, device):
        problem, memory = self.problem, self.problem.unit_memory.tolist()
        unit = self.changes[self.below(len(self.changes))][0]
        place = self.order.index(int(problem.op_unit.tolist().index(unit)))
        forwards = self.rng.random() < 0.5
        enough, kind = self.rng.random() < ejection.ENOUGH, self.rng.random()
        goal = None
        if kind >= ejection.BACK:
            goal = self.below(problem.device_count)
        elif kind >= ejection.WITHIN:
            row = self.changes[self.below(len(self.changes))][1]
            goal = row[self.below(len(row))]
        ring = self.order[place:] + self.order[:place]
        if not forwards:
            ring = ring[:1] + ring[:0:-1]
        changed = {unit for unit, _ in self.changes}
        for op in ring[: ejection.MOST_SCANNED]:
            unit = int(problem.op_unit[op])
            if unit in changed or device not in self.rows[unit] or not memory[unit]:
                continue
            if enough and self.free(device) + memory[unit] < 0:
                continue
            target = self.within(unit, device) if goal is None else goal
            row = [target if d == device else d for d in self.rows[unit]]
            if self.put(unit, row):
                changed.add(unit)
                if self.free(device) >= 0:
                    return

    def within(self, unit, device):
        row = self.rows[unit]
        first = self.below(len(row))
        others = [d for d in row[first:] + row[:first] if d != device]
        return others[0] if others else self.below(self.problem.device_count)
