"""Running a plan for an ONNX model, and comparing it with the model in one session."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from placewright.errors import InputError, OptionError
from placewright.importers.kinds import open_source
from placewright.importers.onnx.dimensions import read_sizes
from placewright.importers.onnx.reading import OnnxModel, read_model
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.onnx_sessions.cutting import SubModel, Uses, cut, cut_in_runs
from placewright.runtime.onnx_sessions.inputs import Inputs, input_values
from placewright.runtime.onnx_sessions.measuring import (
    Measured,
    measure,
    measure_whole,
    open_parts,
)
from placewright.runtime.onnx_sessions.outputs import array_of, max_abs_difference
from placewright.runtime.onnx_sessions.passes import Done, Program
from placewright.runtime.onnx_sessions.sessions import import_runtime
from placewright.runtime.onnx_sessions.stages import in_stages
from placewright.runtime.onnx_sessions.team import Device, Team
from placewright.runtime.plans import cores_of, device_threads, schedule_order
from placewright.runtime.results import RunReport, StepTime
from placewright.runtime.run_options import RunOptions
from placewright.units import listed

Heard = Callable[[str, float], None]
_SAMPLES = 5  # of a pipeline, for each device: one to fill it, the others to measure


def run_onnx_plan(
    plan: Plan,
    options: RunOptions | None = None,
    *,
    inputs: Inputs | None = None,
    on_progress: Heard | None = None,
) -> RunReport:
    """Run a plan for ``FILE.onnx[?NAME=SIZE&…]``, a thread per device it uses, in its order.

    A thread whose device is cores of this machine is pinned to them, and its sessions have as
    many threads; ``options.threads`` is another number for all. `inputs` are values for inputs of
    the model, arrays by name or an ``.npz`` file of these; others are made up. The run counts as
    stuck where nothing comes to an end for ``options.timeout`` seconds: no sub-model, nor the
    model in one session.

    A step of ``RunReport.passes`` is a sub-model, or waiting for what another rank's gives.
    OptionError for another plan, InputError for inputs or a model that do not fit it,
    ExecutionError for what ONNX Runtime cannot run.
    """
    import_runtime()
    options = options or RunOptions()
    _check_plan(plan)
    used = sorted(set(plan.placement.device.tolist()))
    options.check(len(used))
    progress = on_progress or (lambda what, done: None)
    progress("reading the model", 0.0)
    found = _model_of(plan)
    devices = _devices(plan.problem, used, options)
    program = _program(found, plan, used)
    samples = [input_values(found, inputs, seed) for seed in range(program.samples)]
    progress("running in one session", 0.1)
    widest = max(devices, key=lambda device: device.threads)
    single = measure_whole(found, program.returned, widest, samples, options)
    progress(f"opening {len(program.parts)} sub-models", 0.3)
    with Team(devices, options.timeout) as team:
        sessions = open_parts(found, program.parts, team)
        progress(f"running on {len(devices)} devices", 0.5)
        measured = measure(team, program, sessions, samples, options, progress)
    return _report(plan, program, devices, single, measured)


# -- what is asked ---------------------------------------------------------------------------------


def _check_plan(plan: Plan) -> None:
    objective = plan.problem.options.objective
    if objective not in ("latency", "throughput"):
        raise OptionError(
            f"the plan is for {objective}, and of ONNX models only plans for latency and "
            "throughput are run so far; plan with --objective latency"
        )
    for stage in plan.placement.replicas:
        if len(stage) > 1:
            names = listed([f"'{plan.problem.device_names[device]}'" for device in stage])
            raise OptionError(
                f"the plan runs a stage on several devices ({names}), and replicas are not run "
                "yet; plan without --replicate"
            )


def _model_of(plan: Plan) -> OnnxModel:
    """The model that the plan is for."""
    file = open_source(plan.source)
    if file.kind != "onnx":
        raise OptionError(f"the plan's source '{plan.source}' is no ONNX model; plan one")
    sizes = read_sizes(file.query, file.path)
    found = read_model(file.path, dimensions=sizes, content=file.content)
    differing = sorted(set(plan.problem.op_names) ^ found.nodes.keys())
    if differing:
        where = "model" if differing[0] in found.nodes else "plan"
        raise InputError(
            f"op '{differing[0]}' is only in the {where}: {file.path} is not the model that was "
            "planned; plan it again"
        )
    return found


def _devices(problem: Problem, used: Sequence[int], options: RunOptions) -> list[Device]:
    """What each device that is used is here, in the order of the ranks."""
    cores = list(options.rank_cores) or [cores_of(problem, device) for device in used]
    threads = options.threads
    if threads is None:
        unpinned = device_threads(problem, used)
        threads = [len(mine) or unpinned for mine in cores]
    elif isinstance(threads, int):
        threads = [threads] * len(used)
    return [
        Device(problem.device_names[device], count, tuple(mine))
        for device, count, mine in zip(used, threads, cores, strict=True)
    ]


def _program(found: OnnxModel, plan: Plan, used: Sequence[int]) -> Program:
    rank_of = {
        op: used.index(device)
        for op, device in zip(plan.problem.op_names, plan.placement.device.tolist(), strict=True)
    }
    uses = {
        name: Uses(tuple(op.reads), tuple(filter(None, op.node.output)))
        for name, op in found.ops.items()
    }
    returned = tuple(dict.fromkeys(value.name for value in found.model.graph.output))
    if plan.problem.options.objective == "latency":
        parts, samples = cut(schedule_order(plan), rank_of, uses, returned), 1
    else:
        order = in_stages(list(found.ops), rank_of, uses)
        parts, samples = cut_in_runs(order, rank_of, uses, returned), _SAMPLES * len(used)
    constants = tuple(name for name in returned if name in found.scope.constants)
    if constants:  # handed out by a sub-model, of no op if there is none
        first = parts[0] if parts else SubModel(0, (), (), ())
        parts[:1] = [replace(first, gives=(*first.gives, *constants))]
    return Program.of(parts, len(used), returned, samples)


# -- what is told ----------------------------------------------------------------------------------


def _report(
    plan: Plan,
    program: Program,
    devices: Sequence[Device],
    single: Measured,
    measured: Measured,
) -> RunReport:
    seconds = measured.seconds
    difference = max(
        max_abs_difference(program.returned, expected, found)
        for expected, found in zip(single.outputs, measured.outputs, strict=True)
    )
    return RunReport(
        measured=statistics.median(seconds),
        fastest=min(seconds),
        single_process_seconds=statistics.median(single.seconds),
        max_abs_difference=difference,
        rank_busy_seconds=tuple(measured.busy(rank) for rank in range(len(devices))),
        transfer_count=len(program.transfers),
        transfer_bytes=sum(measured.sizes[name] for name, _ in program.transfers),
        ranks=len(devices),
        threads_per_rank=max(device.threads for device in devices),
        repeats=len(seconds),
        predicted=plan.value,
        devices=tuple(device.name for device in devices),
        rank_threads=tuple(device.threads for device in devices),
        rank_cores=tuple(d.cores for d in devices) if any(d.cores for d in devices) else (),
        passes=tuple(tuple(_steps(program, measured, ranks)) for ranks in measured.clocked),
        results=tuple(tuple(map(array_of, each)) for each in measured.outputs),
    )


def _steps(
    program: Program, measured: Measured, ranks: Sequence[Sequence[Done]]
) -> Iterator[StepTime]:
    """The sub-models of a pass, and the waits before them."""
    origin = min((line[0].asked for line in ranks if line), default=0.0)
    for rank, line in enumerate(ranks):
        for done in line:
            asked, started = done.asked - origin, done.started - origin
            if done.late is not None:
                source = program.parts[program.maker[done.late]]
                size = measured.sizes[done.late]
                yield StepTime(rank, "wait", str(source), asked, started, source.rank, size)
            name = str(program.parts[done.task[1]])
            yield StepTime(rank, "op", name, started, done.finished - origin)
