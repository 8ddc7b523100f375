"""A plan for batch throughput in a trace: its batches and transfers, and arrows between them."""

from __future__ import annotations

from placewright.exporters.perfetto.events import Process, Slice
from placewright.exporters.perfetto.lanes import transfer_lanes
from placewright.exporters.perfetto.schedule import op_args, readers
from placewright.outcome import BatchSchedule
from placewright.plan import Plan


def planned_batches(number: int, plan: Plan, schedule: BatchSchedule) -> Process:
    """A track per device; then, for each two devices, as many as transfers go at once."""
    process = Process(number, "planned")
    problem, batches = plan.problem, schedule.batches
    tracks = [process.track(name) for name in problem.device_names]
    made: dict[tuple[int, int], Slice] = {}  # of an op and a device
    for row in range(len(batches)):
        op, device, size = (int(each[row]) for each in (batches.op, batches.device, batches.size))
        start, finish = float(batches.start[row]), float(batches.finish[row])
        args = op_args(problem, op, finish - start) | {"inputs": size}
        rank = float(problem.topological_rank[op])
        name = f"{problem.op_names[op]} ×{size}"
        made[op, device] = process.add(Slice(tracks[device], name, "op", start, finish, args, rank))
    _add_transfers(process, plan, schedule, made)
    return process


def _add_transfers(
    process: Process, plan: Plan, schedule: BatchSchedule, made: dict[tuple[int, int], Slice]
) -> None:
    """Each with an arrow from the batch that it comes from to every batch that it is for."""
    problem, moves = plan.problem, schedule.transfers
    lane = transfer_lanes(process, problem.device_names, moves)
    for row in range(len(moves)):
        tensor, source, target, inputs = (
            int(each[row]) for each in (moves.tensor, moves.source, moves.target, moves.inputs)
        )
        start, finish = float(moves.start[row]), float(moves.finish[row])
        producer = int(problem.tensor_producer[tensor])
        args = {
            "from": problem.device_names[source],
            "to": problem.device_names[target],
            "inputs": inputs,
            "bytes": float(problem.tensor_bytes[tensor]) * inputs,
            "planned seconds": finish - start,
        }
        sent = made[producer, source]
        name = f"{problem.op_names[producer]} ×{inputs}"
        moved = process.add(
            Slice(lane[row], name, "transfer", start, finish, args, sent.rank + 0.5)
        )
        for reader in _readers(plan, schedule, row):
            batch = made[reader, target]
            process.flow(*((each, each.middle) for each in (sent, moved, batch)))


def _readers(plan: Plan, schedule: BatchSchedule, row: int) -> list[int]:
    """The ops that read, on the target, of an input that was computed on the source."""
    problem, moves, device = plan.problem, schedule.transfers, plan.placement.device
    sent = device[problem.tensor_producer[moves.tensor[row]]] == moves.source[row]
    ops = readers(problem, moves, row)
    return [op for op in ops if (sent & (device[op] == moves.target[row])).any()]
