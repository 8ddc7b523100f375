"""A machine that takes exactly the times of a problem, in place of processes."""

from __future__ import annotations

from placewright.analysis.warm_start import starting_placement
from placewright.outcome import Schedule
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.results import RunReport, StepTime
from placewright.simulate import evaluate


def simulated_run(plan: Plan, truth: Problem) -> RunReport:
    """What a run of `plan` measures where ops and transfers take what `truth` says."""
    schedule = evaluate(truth, starting_placement(plan, truth))
    assert isinstance(schedule, Schedule)
    used = sorted(set(plan.placement.device.tolist()))
    steps = [step for rank, device in enumerate(used)
             for step in _steps(plan, truth, schedule, used, rank, device)]  # fmt: skip
    names = tuple(truth.device_names[device] for device in used)
    return RunReport(
        measured=schedule.value,
        fastest=schedule.value,
        single_process_seconds=schedule.value,
        max_abs_difference=0.0,
        rank_busy_seconds=tuple(schedule.device_load(truth, plan.placement.device)[used].tolist()),
        transfer_count=len(schedule.transfers),
        transfer_bytes=int(truth.tensor_bytes[schedule.transfers.tensor].sum()),
        ranks=len(used),
        threads_per_rank=1,
        repeats=1,
        predicted=plan.value,
        devices=names,
        passes=(tuple(sorted(steps, key=lambda step: (step.start, step.finish))),),
    )


def _steps(
    plan: Plan, truth: Problem, schedule: Schedule, used: list[int], rank: int, device: int
) -> list[StepTime]:
    """Of one rank: its ops in their order, waits before the first reader, sends as they start."""
    moves = schedule.transfers
    steps, here, clock = [], plan.placement.device == device, 0.0
    arrived: set[int] = set()
    for op in sorted(here.nonzero()[0].tolist(), key=lambda op: schedule.op_start[op]):
        for row in range(len(moves)):
            reads = op in truth.consumers[truth.edge_tensor == moves.tensor[row]]
            if row in arrived or moves.target[row] != device or not reads:
                continue
            arrived.add(row)
            finish = max(clock, float(moves.finish[row]))
            source = used.index(int(moves.source[row]))
            steps.append(_moved(truth, rank, "wait", clock, finish, source, int(moves.tensor[row])))
            clock = finish
        start, clock = float(schedule.op_start[op]), float(schedule.op_finish[op])
        steps.append(StepTime(rank, "op", truth.op_names[op], start, clock))
    for row in range(len(moves)):
        if moves.source[row] == device:
            start, target = float(moves.start[row]), used.index(int(moves.target[row]))
            steps.append(_moved(truth, rank, "send", start, start, target, int(moves.tensor[row])))
    return steps


def _moved(
    truth: Problem, rank: int, kind: str, start: float, finish: float, peer: int, tensor: int
) -> StepTime:
    name = truth.op_names[truth.tensor_producer[tensor]]
    size = int(truth.tensor_bytes[tensor])
    return StepTime(rank, kind, name, start, finish, peer, size)  # type: ignore[arg-type]
