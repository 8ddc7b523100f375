"""The planner `moirai-milp`: Moirai's exact method (arXiv 2023, §III)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from placewright.analysis.precedence import Precedence
from placewright.budget import Budget
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.moirai_program import MoiraiProgram
from placewright.formulations.latency.peak import order_variables
from placewright.formulations.latency.program import LatencyProgram
from placewright.planners.latency.exact.outline import MAX_BINARIES, MilpPlanner
from placewright.problem import Problem


class MoiraiMilp(MilpPlanner):
    """Exact latency with memory and contention: Moirai's program, any contention option.

    The paper's model is contention ``port`` with transfer unit ``edge``; ``link`` differs only in
    which routes share a channel, ``none`` leaves equation 8 out, and unit ``tensor`` has one
    transfer per tensor and destination. Under memory option ``peak`` equation 5 counts what is
    alive beside what ops keep (`peak`).
    """

    name: ClassVar[str] = "moirai-milp"

    def binaries(self, problem: Problem) -> int:
        precedence = Precedence(problem)
        count = problem.unit_count * problem.device_count + 2 * precedence.unordered_pairs()
        count += order_variables(problem)
        if problem.options.contention != "none" and count <= MAX_BINARIES:
            count += 2 * _unordered_transfers(problem, precedence)
        return count

    def formulate(self, instance: Instance, limit: Budget) -> LatencyProgram:
        return MoiraiProgram(instance, limit)


def _unordered_transfers(problem: Problem, precedence: Precedence) -> int:
    """Pairs of possible transfers that no path orders."""
    by_tensor = problem.options.transfer_unit == "tensor"
    outgoing = np.zeros(problem.op_count, dtype=np.int32)
    transfers: list[tuple[int, list[int], int]] = []  # producer, consumers, how many
    for tensor, producer in enumerate(problem.tensor_producer.tolist()):
        low, high = problem.consumer_offsets[tensor : tensor + 2]
        consumers = problem.consumers[low:high].tolist()
        if by_tensor and len(consumers) > 1:
            transfers.append((producer, consumers, problem.device_count))
        else:
            transfers += [(producer, [consumer], 1) for consumer in consumers]
    for producer, _, count in transfers:
        outgoing[producer] += count
    total = int(outgoing.sum())
    ordered = sum(
        count * precedence.weigh(precedence.after_all(consumers), outgoing)
        for _, consumers, count in transfers
    )
    return total * (total - 1) // 2 - ordered
