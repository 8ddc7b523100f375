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
from placewright.runtime.onnx_sessions.cutting import SubModel, Uses, cut
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
from placewright.runtime.onnx_sessions.team import Device, Team
from placewright.runtime.plans import cores_of, device_threads, schedule_order
from placewright.runtime.results import RunReport, StepTime
from placewright.runtime.run_options import RunOptions

Heard = Callable[[str, float], None]
_SEED = 0


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
    _check_objective(plan)
    used = sorted(set(plan.placement.device.tolist()))
    options.check(len(used))
    progress = on_progress or (lambda what, done: None)
    progress("reading the model", 0.0)
    found = _model_of(plan)
    values = input_values(found, inputs, _SEED)
    devices = _devices(plan.problem, used, options)
    program = _program(found, plan, used)
    progress("running in one session", 0.1)
    widest = max(devices, key=lambda device: device.threads)
    single = measure_whole(found, program.returned, widest, values, options)
    progress(f"opening {len(program.parts)} sub-models", 0.3)
    with Team(devices, options.timeout) as team:
        sessions = open_parts(found, program.parts, team)
        progress(f"running on {len(devices)} devices", 0.5)
        measured = measure(team, program, sessions, values, options, progress)
    return _report(plan, program, devices, single, measured)


# -- what is asked ---------------------------------------------------------------------------------


def _check_objective(plan: Plan) -> None:
    objective = plan.problem.options.objective
    if objective != "latency":
        raise OptionError(
            f"the plan is for {objective}, and of ONNX models only plans for latency are run so "
            "far; plan with --objective latency"
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
    parts = cut(schedule_order(plan), rank_of, uses, returned)
    constants = tuple(name for name in returned if name in found.scope.constants)
    if constants:  # handed out by a sub-model, of no op if there is none
        first = parts[0] if parts else SubModel(0, (), (), ())
        parts[:1] = [replace(first, gives=(*first.gives, *constants))]
    lines = [
        [number for number, part in enumerate(parts) if part.rank == rank]
        for rank in range(len(used))
    ]
    return Program(parts, lines, returned)


# -- what is told ----------------------------------------------------------------------------------


def _report(
    plan: Plan,
    program: Program,
    devices: Sequence[Device],
    single: Measured,
    measured: Measured,
) -> RunReport:
    difference = max_abs_difference(program.returned, single.outputs, measured.outputs)
    return RunReport(
        measured=statistics.median(measured.makespans),
        fastest=min(measured.makespans),
        single_process_seconds=statistics.median(single.makespans),
        max_abs_difference=difference,
        rank_busy_seconds=tuple(measured.busy(rank) for rank in range(len(devices))),
        transfer_count=len(program.transfers),
        transfer_bytes=sum(measured.sizes[name] for name, _ in program.transfers),
        ranks=len(devices),
        threads_per_rank=max(device.threads for device in devices),
        repeats=len(measured.makespans),
        predicted=plan.value,
        devices=tuple(device.name for device in devices),
        rank_threads=tuple(device.threads for device in devices),
        rank_cores=tuple(d.cores for d in devices) if any(d.cores for d in devices) else (),
        passes=tuple(tuple(_steps(program, measured, ranks)) for ranks in measured.clocked),
        results=(tuple(map(array_of, measured.outputs)),),
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
            name = str(program.parts[done.number])
            yield StepTime(rank, "op", name, started, done.finished - origin)
