"""A plan for latency in a trace: its ops and transfers, and arrows between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from placewright.exporters.perfetto.events import Process, Slice
from placewright.exporters.perfetto.lanes import transfer_lanes
from placewright.outcome import BatchTransfers, Transfers
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.runtime.tuning.comparison import OpTimes, RunComparison


def op_args(
    problem: Problem, op: int, planned: float, times: OpTimes | None = None
) -> dict[str, Any]:
    """What a slice of an op says; `planned` in seconds."""
    args: dict[str, Any] = {
        "op": problem.op_names[op],
        "type": problem.op_types[op],
        "module": problem.op_modules[op],
        "memory bytes": float(problem.op_memory[op]),
        "planned seconds": planned,
    }
    if times is not None and times.measured is not None:
        args["measured seconds"] = times.measured
    return args


def planned_schedule(number: int, plan: Plan, found: RunComparison | None) -> Process:
    """A track per device; then, for each two devices, as many as transfers go at once."""
    process = Process(number, "planned")
    problem, schedule = plan.problem, plan.schedule
    tracks = [process.track(name) for name in problem.device_names]
    times = found.ops if found else (None,) * problem.op_count
    ops = []
    for op, name in enumerate(problem.op_names):
        start, finish = float(schedule.op_start[op]), float(schedule.op_finish[op])
        args = op_args(problem, op, finish - start, times[op])
        track = tracks[int(plan.placement.device[op])]
        rank = float(problem.topological_rank[op])
        ops.append(process.add(Slice(track, name, "op", start, finish, args, rank)))
    _add_transfers(process, plan, ops, found)
    return process


def _add_transfers(
    process: Process, plan: Plan, ops: Sequence[Slice], found: RunComparison | None
) -> None:
    """The plan's transfers, each with an arrow from its op to every op that it is for."""
    problem, moves = plan.problem, plan.schedule.transfers
    producers = problem.tensor_producer[moves.tensor].tolist()
    ways = list(zip(producers, moves.source.tolist(), moves.target.tolist(), strict=True))
    measured = {(each.producer, each.source, each.target): each.measured
                for each in (found.transfers if found else ())}  # fmt: skip
    lanes = transfer_lanes(process, problem.device_names, moves)
    for row, (producer, source, target) in enumerate(ways):
        start, finish = float(moves.start[row]), float(moves.finish[row])
        args = {
            "from": problem.device_names[source],
            "to": problem.device_names[target],
            "bytes": float(problem.tensor_bytes[moves.tensor[row]]),
            "planned seconds": finish - start,
        }
        if (seconds := measured.get(ways[row])) is not None:
            args["measured seconds"] = seconds
        name = problem.op_names[producer]
        rank = ops[producer].rank + 0.5
        moved = process.add(Slice(lanes[row], name, "transfer", start, finish, args, rank))
        for reader in _readers(plan, row):
            process.flow(*((each, each.middle) for each in (ops[producer], moved, ops[reader])))


def _readers(plan: Plan, row: int) -> list[int]:
    """The ops on its target that a transfer is for."""
    moves, device = plan.schedule.transfers, plan.placement.device
    return [op for op in readers(plan.problem, moves, row) if device[op] == moves.target[row]]


def readers(problem: Problem, moves: Transfers | BatchTransfers, row: int) -> list[int]:
    """The op that a transfer is for, or all that read its tensor, on whatever devices."""
    if moves.consumer[row] >= 0:
        return [int(moves.consumer[row])]
    tensor = moves.tensor[row]
    first, end = problem.consumer_offsets[tensor : tensor + 2]
    found: list[int] = problem.consumers[first:end].tolist()
    return found
