"""Peak memory of a schedule (memory option ``peak``)."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Ints
from placewright.outcome import Schedule
from placewright.plan import Placement, Plan
from placewright.problem import ROUNDING, Problem


def peak_memory(problem: Problem, placement: Placement, schedule: Schedule) -> Floats:
    """`[device]` bytes: what its ops keep, and the most that tensors take besides at any time.

    At one instant, what ends goes before what begins.
    """
    device = placement.device
    kept: Floats = np.bincount(device, problem.op_memory, problem.device_count).astype(np.float64)
    lives = tensor_lives(problem, placement, schedule)
    lives = lives[lives[:, 2] > lives[:, 1]]
    for d in range(problem.device_count):
        mine = lives[lives[:, 0] == d]
        if len(mine):
            time = np.concatenate([mine[:, 1], mine[:, 2]])
            change = np.concatenate([mine[:, 3], -mine[:, 3]])
            order = np.lexsort((change, time))
            kept[d] += max(0.0, np.cumsum(change[order]).max())
    return kept


def tensor_lives(problem: Problem, placement: Placement, schedule: Schedule) -> Floats:
    """Rows (device, from, to, bytes) of every copy of a tensor.

    A tensor lives on its producer's device from the producer's start until the last use there,
    transfers away included; on another device from the start of its transfer until the last
    use that the transfer serves.
    """
    device = placement.device
    return np.concatenate([_at_home(problem, device, schedule), _away(problem, device, schedule)])


def used_memory(plan: Plan) -> Floats:
    """`[device]` bytes that the plan counts on: what ops keep, and under ``peak`` tensors too."""
    options = plan.problem.options
    if options.objective == "latency" and options.memory == "peak":
        return peak_memory(plan.problem, plan.placement, plan.schedule)
    return plan.device_memory


def peak_excess(problem: Problem, placement: Placement, schedule: Schedule) -> Floats:
    """`[device]` bytes by which the peak is above what the device has; 0 or less where it fits.

    Nothing is above it under memory option ``resident``, which counts what ops keep alone.
    """
    if problem.options.memory == "resident":
        return np.zeros(problem.device_count)
    used = peak_memory(problem, placement, schedule)
    return used - problem.device_memory * (1.0 + ROUNDING)


def _at_home(problem: Problem, device: Ints, schedule: Schedule) -> Floats:
    """Rows (device, from, to, bytes) of every tensor where it is produced."""
    producer = problem.tensor_producer
    end = schedule.op_finish[producer].copy()
    local = device[problem.edge_producer] == device[problem.consumers]
    np.maximum.at(end, problem.edge_tensor[local], schedule.op_finish[problem.consumers[local]])
    np.maximum.at(end, schedule.transfers.tensor, schedule.transfers.finish)
    return np.stack(
        [device[producer], schedule.op_start[producer], end, problem.tensor_bytes], axis=1
    )


def _away(problem: Problem, device: Ints, schedule: Schedule) -> Floats:
    """Rows (device, from, to, bytes) of every transferred copy."""
    sent = schedule.transfers
    end = sent.finish.copy()
    if problem.options.transfer_unit == "edge":
        end = np.maximum(end, schedule.op_finish[sent.consumer])
    else:
        count = problem.device_count
        key = sent.tensor.astype(np.int64) * count + sent.target
        order = np.argsort(key)
        edge_key = problem.edge_tensor.astype(np.int64) * count + device[problem.consumers]
        at = np.searchsorted(key[order], edge_key)
        at = np.minimum(at, max(len(key) - 1, 0))
        served = np.flatnonzero(key[order][at] == edge_key) if len(key) else np.zeros(0, int)
        np.maximum.at(end, order[at[served]], schedule.op_finish[problem.consumers[served]])
    return np.stack([sent.target, sent.start, end, problem.tensor_bytes[sent.tensor]], axis=1)
