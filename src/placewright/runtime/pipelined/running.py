"""Running a throughput plan as a pipeline of CPU ranks on this machine.

Plan ──run_pipeline──▶ program ──cut_chain──▶ virtual stages ──▶ ranks, a schedule of torch
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placewright.errors import ExecutionError, InputError, OptionError
from placewright.importers.torch.programs import Executable, load_executable
from placewright.importers.torch.tracing import import_torch
from placewright.plan import Plan
from placewright.runtime.distributed import _cores_of, device_threads
from placewright.runtime.pipelined.report import PipelineReport
from placewright.runtime.pipelined.schedules import Schedule

if TYPE_CHECKING:
    from placewright.runtime.pipelined.executing import Own

Progress = Callable[[str, float], None]

_LONGEST_TIMEOUT = 7 * 24 * 3600.0


def run_pipeline(
    plan: Plan,
    *,
    schedule: Schedule = "gpipe",
    micro_batches: int = 8,
    repeats: int = 3,
    steps: int = 0,
    timeout: float = 60.0,
    threads: int | None = None,
    on_progress: Progress | None = None,
) -> PipelineReport:
    """Run a throughput plan of ``torch:PACKAGE.MODULE:FACTORY``, a rank per device of its chain.

    The factory's example inputs are one micro-batch, and one sample of the plan. A plan for
    training goes forward and backward, and then takes `steps` steps of the optimiser. Ranks are
    pinned and have threads as in `run_plan`.

    OptionError for plans of another objective or source, with replicas or on GPUs of this
    machine, and for numbers that the schedule cannot run; InputError for a plan of another
    program; ExecutionError, all ranks being ended, if a rank fails, or if none reports anything
    for `timeout` seconds.
    """
    _check_plan(plan)
    training = bool(plan.problem.is_backward.any())
    counts = {"micro_batches": micro_batches, "repeats": repeats}
    _check_request(counts, steps, timeout, threads, training=training)
    import_torch("running a plan")
    from placewright.runtime.pipelined.constants import without_constants
    from placewright.runtime.pipelined.cutting import cut_chain
    from placewright.runtime.pipelined.executing import Request, execute_chain

    progress = on_progress or (lambda what, done: None)
    progress("exporting", 0.0)
    executable = without_constants(load_executable(plan.source, training=training))
    _check_values(executable)
    devices = plan.placement.device.tolist()
    chain = cut_chain(executable, dict(zip(plan.problem.op_names, devices, strict=True)))
    report = execute_chain(
        executable,
        chain,
        Request(schedule, micro_batches, repeats, steps, timeout),
        _own(plan, chain.devices, threads),
        modules=[plan.source.split(":")[1]],
        progress=progress,
    )
    names = tuple(plan.problem.device_names[device] for device in chain.devices)
    return replace(report, predicted=plan.value, devices=names)


def _own(plan: Plan, devices: Sequence[int], threads: int | None) -> Own:
    from placewright.runtime.pipelined.executing import Own

    cores = tuple(_cores_of(plan.problem, device) for device in devices)
    if threads is not None:
        return Own((threads,) * len(devices), cores)
    unpinned = device_threads(plan.problem, devices)
    return Own(tuple(len(mine) or unpinned for mine in cores), cores)


# -- what cannot be run ------------------------------------------------------------------------


def _check_plan(plan: Plan) -> None:
    objective = plan.problem.options.objective
    if objective != "throughput":
        raise OptionError(
            f"the plan is for objective '{objective}', and a pipeline runs plans for throughput; "
            "plan with --objective throughput"
        )
    kind, _, factory = plan.source.partition(":")
    if kind != "torch" or not factory:
        raise OptionError(
            f"the plan's source is '{plan.source}', but only a factory brings weights and "
            "inputs to run; plan torch:PACKAGE.MODULE:FACTORY"
        )
    for stage in plan.placement.replicas:
        if len(stage) > 1:
            names = " and ".join(f"'{plan.problem.device_names[device]}'" for device in stage)
            raise OptionError(
                f"the plan runs one stage on several devices ({names}), and replicas are not run "
                "yet; plan without --replicate"
            )


def _check_request(
    counts: dict[str, int], steps: int, timeout: float, threads: int | None, *, training: bool
) -> None:
    if os.name != "posix":
        raise ExecutionError("running a plan needs Linux or macOS")
    for name, value in (counts | {"threads": 1 if threads is None else threads}).items():
        if value < 1:
            raise OptionError(f"{name} is {value}; it must be at least 1")
    if steps < 0:
        raise OptionError(f"steps is {steps}; it must be at least 0")
    if steps and not training:
        raise OptionError(
            "the plan is for inference, which takes no training steps; leave out steps"
        )
    if not 0 < timeout <= _LONGEST_TIMEOUT:
        raise OptionError(f"timeout is {timeout}; it must be more than 0 s and at most a week")


def _check_values(executable: Executable) -> None:
    for node in executable.module.graph.find_nodes(op="placeholder"):
        if node.name not in executable.values and node.users:
            name = executable.weights.get(node.name, node.name)
            raise InputError(
                f"'{name}' has a shape but no values (device meta); "
                "a factory must return real tensors for a run"
            )
