"""Running a throughput plan as a pipeline of CPU ranks on this machine.

Plan ──run_pipeline──▶ program ──cut_chain──▶ virtual stages ──▶ ranks, a schedule of torch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from placewright.budget import Progress, no_progress
from placewright.coarsen.recompute import recomputed_blocks
from placewright.errors import OptionError
from placewright.plan import Plan
from placewright.runtime.execution import load, modules_of
from placewright.runtime.pipelined.report import PipelineReport
from placewright.runtime.pipelined.schedules import Schedule
from placewright.runtime.plans import check_turns, cores_of, device_threads
from placewright.runtime.ranks.job import Own
from placewright.runtime.run_options import RunOptions
from placewright.stash import recomputed_ops

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable
    from placewright.runtime.values import Values


DEFAULT_MICRO_BATCHES = 8


def run_pipeline(
    plan: Plan,
    options: RunOptions | None = None,
    *,
    schedule: Schedule | None = None,
    micro_batches: int | None = None,
    steps: int = 0,
    on_progress: Progress | None = None,
) -> PipelineReport:
    """Run a throughput plan, a process of this machine per device of its chain.

    Where a stage runs on several devices these take turns at the micro-batches. `schedule` and
    `micro_batches` are those of a plan of steps, if they are not given, else ``gpipe`` and 8; a
    step as planned is measured as a whole.

    The source's example inputs are one micro-batch, and one sample of the plan. A plan for
    training goes forward and backward, and then takes `steps` steps of ``options.optimizer``
    (gradient descent if there is none). Ranks are pinned and have threads as in `run_plan`.

    OptionError for plans of another objective or on GPUs of this machine, and for numbers that
    the schedule cannot run; InputError for a plan of another program;
    ExecutionError, all ranks being ended, if a rank fails, or if none reports anything for
    ``options.timeout`` seconds.
    """
    options = options or RunOptions(repeats=3)
    _check_plan(plan)
    training = bool(plan.problem.is_backward.any())
    planned = plan.problem.options.micro_batches
    schedule = schedule or planned_schedule(plan, training=training)
    if micro_batches is None:
        micro_batches = planned or DEFAULT_MICRO_BATCHES
    _check_request(options, micro_batches, steps, training=training)
    progress = on_progress or no_progress
    progress("exporting", 0.0)
    program, values = load(plan.source, options, training=training)
    from placewright.runtime.pipelined.cutting import cut_chain
    from placewright.runtime.pipelined.executing import Request, execute_chain
    from placewright.runtime.ranks.state import STEEPEST

    executable = _with_values(program, values)
    devices = plan.placement.device.tolist()
    once = ~recomputed_ops(plan.problem)
    device_of = dict(compress(zip(plan.problem.op_names, devices, strict=True), once.tolist()))
    again = recomputed_blocks(plan.problem)
    chain = cut_chain(executable, device_of, plan.placement.replicas, again)
    optimizer = options.optimizer or STEEPEST
    report = execute_chain(
        executable,
        chain,
        Request(schedule, micro_batches, options.repeats, steps, options.timeout, optimizer),
        _own(plan, chain.devices, options.threads),
        modules=modules_of(plan.source),
        progress=progress,
    )
    names = tuple(plan.problem.device_names[device] for device in chain.devices)
    if micro_batches == planned:
        report = replace(report, measured=report.batch_seconds / micro_batches)
    return replace(report, predicted=plan.value, devices=names)


def planned_schedule(plan: Plan, *, training: bool) -> Schedule:
    """1F1B for a plan of such steps that trains; else all forward passes come first."""
    options = plan.problem.options
    steps = options.micro_batches is not None and options.schedule == "pipedream"
    return "1f1b" if steps and training else "gpipe"


def _with_values(program: Executable, values: Values) -> Executable:
    """The program with all its weights, as the single process that ranks are compared with has."""
    weights = values.weights.load(set(program.weights.values()))
    by_placeholder = {place: weights[name] for place, name in program.weights.items()}
    return replace(program, values={**by_placeholder, **values.inputs})


def _own(plan: Plan, devices: Sequence[int], threads: int | Sequence[int] | None) -> Own:
    cores = tuple(cores_of(plan.problem, device) for device in devices)
    if threads is None:
        unpinned = device_threads(plan.problem, devices)
        threads = [len(mine) or unpinned for mine in cores]
    return Own.of(len(devices), threads, cores)


# -- what cannot be run ------------------------------------------------------------------------


def _check_plan(plan: Plan) -> None:
    objective = plan.problem.options.objective
    if objective != "throughput":
        raise OptionError(
            f"the plan is for objective '{objective}', and a pipeline runs plans for throughput; "
            "plan with --objective throughput"
        )
    if plan.problem.options.data_parallel > 1:
        raise OptionError(
            f"the plan has {plan.problem.options.data_parallel} data-parallel pipelines, and run "
            "has one; plan without --data-parallel"
        )
    check_turns(plan)


def _check_request(options: RunOptions, micro_batches: int, steps: int, *, training: bool) -> None:
    options.check(ranks=1)
    if options.launcher != "processes":
        raise OptionError(f"a pipeline runs on processes; leave out launcher {options.launcher}")
    if options.memory_limits:
        raise OptionError("the memory of a pipeline's ranks is not limited; leave out the limit")
    if options.decoding is not None:
        raise OptionError(
            "a pipeline makes no tokens; leave out tokens, or plan hf:CONFIG?phase=generate for "
            "latency"
        )
    if micro_batches < 1:
        raise OptionError(f"micro_batches is {micro_batches}; it must be at least 1")
    if steps < 0:
        raise OptionError(f"steps is {steps}; it must be at least 0")
    if (steps or options.optimizer is not None) and not training:
        raise OptionError(
            "the plan is for inference, which takes no training steps; leave out steps and "
            "optimizer"
        )
    if options.optimizer is not None and not steps:
        raise OptionError("a pipeline takes as many steps as it is told; add steps to optimizer")
