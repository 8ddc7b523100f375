"""Running a plan: which program, which rank for each op, and what each rank is here."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placewright.cluster import CpuRun, CudaRun
from placewright.errors import OptionError
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.execution import execute
from placewright.runtime.ranks.launch import cores
from placewright.runtime.results import RunReport
from placewright.runtime.run_options import RunOptions
from placewright.system.accelerators.places import gpu_ordinal
from placewright.system.pinning import pinned, refuse_elsewhere

if TYPE_CHECKING:
    from placewright.budget import Progress


def run_plan(
    plan: Plan, options: RunOptions | None = None, *, on_progress: Progress | None = None
) -> RunReport:
    """Run a plan on ranks of this machine, a rank per device it uses, in its order.

    A rank whose device is cores of this machine is pinned to them, and has as many threads; any
    other has as many as `device_threads` says. ``options.threads`` is another number for all. A
    rank whose device is a GPU of this machine computes there.

    OptionError for a plan whose source has no program to run; ClusterError for cores or GPUs that
    are not there.
    """
    report = _run(plan, options or RunOptions(), on_progress)
    if report is None:
        raise OptionError("this process is one of torchrun's ranks, see run_rank")
    return report


def run_rank(
    plan: Plan, options: RunOptions | None = None, *, on_progress: Progress | None = None
) -> RunReport | None:
    """Run this process's part of a plan, as a rank that torchrun started, on any host.

    Rank 0 gives the report, the others None. Errors as in `run_plan`.
    """
    options = replace(options or RunOptions(), launcher="torchrun")
    return _run(plan, options, on_progress)


def check_turns(plan: Plan) -> None:
    """OptionError for replicas with unequal shares: those that run take turns, one input each."""
    if plan.placement.replica_shares:
        raise OptionError(
            "the plan has replicas that take unequal shares of the inputs, and replicas that are "
            "run take turns; plan without --shares unequal"
        )


def _run(plan: Plan, options: RunOptions, on_progress: Progress | None) -> RunReport | None:
    if plan.problem.options.objective != "latency":
        raise OptionError(
            f"the plan is for {plan.problem.options.objective}, whose ops have no schedule to run; "
            "plan for latency"
        )
    used = sorted(set(plan.placement.device.tolist()))
    rank_gpus = [gpu_of(plan.problem, device) for device in used]
    rank_cores = [
        () if gpu is not None else cores_of(plan.problem, device)
        for device, gpu in zip(used, rank_gpus, strict=True)
    ]
    if options.threads is None:
        unpinned = device_threads(plan.problem, used)
        options = replace(options, threads=[len(mine) or unpinned for mine in rank_cores])
    devices = plan.placement.device.tolist()
    device_of = {
        op: used.index(device) for op, device in zip(plan.problem.op_names, devices, strict=True)
    }
    report = execute(
        plan.source,
        device_of,
        len(used),
        schedule_order(plan),
        training=bool(plan.problem.is_backward.any()),
        problem=plan.problem,
        options=replace(options, rank_cores=rank_cores, rank_gpus=rank_gpus),
        on_progress=on_progress,
    )
    if report is None:
        return None
    names = tuple(plan.problem.device_names[device] for device in used)
    return replace(report, predicted=plan.value, devices=names)


def gpu_of(problem: Problem, device: int) -> int | None:
    """The number of the GPU of this machine that `device` is, None for any other device.

    ClusterError where it is not there.
    """
    run, name = problem.device_run(device), problem.device_names[device]
    if not isinstance(run, CudaRun):
        return None
    refuse_elsewhere(name, run.host)
    gpu_ordinal(run.index, name)  # told before anything is exported
    return run.index


def cores_of(problem: Problem, device: int) -> tuple[int, ...]:
    """The logical CPUs that `device` is, none where that is not said."""
    run = problem.device_run(device)
    if run is None:
        return ()
    if not isinstance(run, CpuRun):
        raise OptionError(
            f"the plan's device '{problem.device_names[device]}' runs on {run}, and only plans for "
            "latency of programs of torch are run on GPUs; plan on devices that run on cpu"
        )
    refuse_elsewhere(problem.device_names[device], run.host)
    with pinned(run.cores):  # told before anything is exported
        return run.cores


def schedule_order(plan: Plan) -> list[str]:
    """The ops by their start in the schedule, and always topological, whatever rounding did."""
    problem, schedule = plan.problem, plan.schedule
    waiting = [0] * problem.op_count
    successors: list[list[int]] = [[] for _ in range(problem.op_count)]
    edges = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    for producer, consumer in edges:
        successors[producer].append(consumer)
        waiting[consumer] += 1
    when = list(zip(schedule.op_start.tolist(), schedule.op_finish.tolist(), strict=True))
    ready = [(when[op], op) for op in range(problem.op_count) if not waiting[op]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(problem.op_names[op])
        for successor in successors[op]:
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(ready, (when[successor], successor))
    return order


def device_threads(problem: Problem, used: Sequence[int]) -> int:
    """CPU threads of one device, where the devices `used` run as ranks of this machine.

    The CPUs of the cluster share its cores, whether or not the plan uses them all. Where it uses
    an accelerator, a rank stands for that too, and all devices share the cores.
    """
    only_cpus = bool(problem.is_cpu[list(used)].all())
    count = int(problem.is_cpu.sum()) if only_cpus else problem.device_count
    return max(1, cores() // count)
