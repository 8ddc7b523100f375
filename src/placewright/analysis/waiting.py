"""What ops and transfers of a schedule waited for; from its last op, that is the critical path.

Each item, an op or a transfer, began when the last thing that it needed was done: an input, the
device that was busy with another op, or a channel that was busy with another transfer. The chain of
these from the end of the schedule to its beginning has no slack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from placewright.plan import Plan


class Step(NamedTuple):
    """An op, or a transfer (`is_transfer`), by its number."""

    is_transfer: bool
    item: int


def critical_path(plan: Plan) -> list[Step]:
    """The items of the path in the order in which they run; of several paths one."""
    return Waits(plan).path()


class Waits:
    """What ops and transfers of a schedule may have waited for."""

    def __init__(self, plan: Plan) -> None:
        problem, schedule = plan.problem, plan.schedule
        self.problem = problem
        self.device = plan.placement.device
        self.transfers = schedule.transfers
        self.by_tensor = problem.options.transfer_unit == "tensor"
        self.start = (schedule.op_start, schedule.transfers.start)
        self.finish = (schedule.op_finish, schedule.transfers.finish)
        self.slack = 1e-9 * schedule.makespan
        self.sent = self._arrivals()
        self.before = self._before_on_devices()
        self.before_on_channels = self._before_on_channels()

    def path(self) -> list[Step]:
        """The critical path."""
        return self.chain(Step(False, int(np.argmax(self.finish[False]))))

    def chain(self, step: Step) -> list[Step]:
        """What led to a step, from the start of the schedule; the step is the last."""
        found = [step]
        seen = {step}
        while (cause := self.cause(step)) is not None and cause not in seen:
            found.append(cause)
            seen.add(cause)
            step = cause
        return found[::-1]

    def times(self, step: Step) -> tuple[float, float]:
        """When a step starts and ends."""
        return (
            float(self.start[step.is_transfer][step.item]),
            float(self.finish[step.is_transfer][step.item]),
        )

    def cause(self, step: Step) -> Step | None:
        """What ended last of all that the step needed; an input before a device, if at once."""
        needed = self._of_transfer(step.item) if step.is_transfer else self._of_op(step.item)
        limit = self.start[step.is_transfer][step.item] + self.slack
        best, latest = None, -np.inf
        for each in needed:
            finish = self.finish[each.is_transfer][each.item]
            if latest + self.slack < finish <= limit:
                best, latest = each, finish
        return best

    def _of_op(self, op: int) -> Iterator[Step]:
        problem, here = self.problem, self.device[op]
        offsets, edges = problem.op_inputs
        for edge in edges[offsets[op] : offsets[op + 1]].tolist():
            producer = int(problem.edge_producer[edge])
            if self.device[producer] == here:
                yield Step(False, producer)
                continue
            consumer = -1 if self.by_tensor else op
            arrival = self.sent.get((int(problem.edge_tensor[edge]), int(here), consumer))
            if arrival is not None:
                yield Step(True, arrival)
        if self.before[op] >= 0:
            yield Step(False, int(self.before[op]))

    def _of_transfer(self, transfer: int) -> Iterator[Step]:
        yield Step(False, int(self.problem.tensor_producer[self.transfers.tensor[transfer]]))
        for before in self.before_on_channels[transfer]:
            yield Step(True, before)

    def _arrivals(self) -> dict[tuple[int, int, int], int]:
        """Tensor, target and consumer (-1 for all) → the transfer."""
        moves = self.transfers
        consumer = moves.consumer if not self.by_tensor else np.full(len(moves), -1)
        keys = zip(moves.tensor.tolist(), moves.target.tolist(), consumer.tolist(), strict=True)
        return {key: row for row, key in enumerate(keys)}

    def _before_on_devices(self) -> list[int]:
        """`[op]` the op that ran on its device before it, or -1."""
        found = [-1] * self.problem.op_count
        last: dict[int, int] = {}
        for op in np.lexsort((self.finish[False], self.start[False])).tolist():
            device = int(self.device[op])
            found[op] = last.get(device, -1)
            last[device] = op
        return found

    def _before_on_channels(self) -> dict[int, list[int]]:
        """Transfer → those that its channels carried before it."""
        offsets, channels, _ = self.problem.active_channels
        moves, count = self.transfers, self.problem.device_count
        found: dict[int, list[int]] = defaultdict(list)
        last: dict[int, int] = {}
        for row in np.lexsort((moves.finish, moves.start)).tolist():
            pair = int(moves.source[row]) * count + int(moves.target[row])
            for channel in channels[offsets[pair] : offsets[pair + 1]].tolist():
                if channel in last:
                    found[row].append(last[channel])
                last[channel] = row
        return found
