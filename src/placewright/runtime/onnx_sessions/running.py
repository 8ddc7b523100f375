"""Running a plan for an ONNX model, and comparing it with the model in one session."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from placewright.cluster import CpuRun
from placewright.errors import InputError, OptionError
from placewright.importers.kinds import open_source
from placewright.importers.onnx.dimensions import read_sizes
from placewright.importers.onnx.reading import OnnxModel, read_model
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.distributed import device_threads, schedule_order
from placewright.runtime.onnx_sessions.cutting import SubModel, Uses, cut
from placewright.runtime.onnx_sessions.inputs import Inputs, input_values
from placewright.runtime.onnx_sessions.measuring import (
    Measured,
    measure,
    measure_whole,
    open_parts,
)
from placewright.runtime.onnx_sessions.outputs import max_abs_difference
from placewright.runtime.onnx_sessions.passes import Program
from placewright.runtime.onnx_sessions.sessions import import_runtime
from placewright.runtime.onnx_sessions.team import Device, Team
from placewright.runtime.results import RunReport, StepTime
from placewright.system.pinning import pinned, refuse_elsewhere

Heard = Callable[[str, float], None]
_LONGEST_TIMEOUT = 7 * 24 * 3600.0
_SEED = 0


def run_onnx_plan(
    plan: Plan,
    *,
    repeats: int = 5,
    timeout: float = 60.0,
    threads: int | None = None,
    inputs: Inputs | None = None,
    on_progress: Heard | None = None,
) -> RunReport:
    """Run a plan for ``FILE.onnx[?NAME=SIZE&…]``, a thread per device it uses, in its order.

    A thread whose device is cores of this machine is pinned to them, and its sessions have as
    many threads; `threads` is another number for all. `inputs` are values for inputs of the model,
    arrays by name or an ``.npz`` file of these; others are made up. `timeout` is how long, in
    seconds, nothing may come to an end: no sub-model, nor the model in one session.

    Returns what was measured, `steps` included: a step is a sub-model, or waiting for what another
    rank's gives. OptionError for another plan, InputError for inputs or a model that do not fit
    it, ExecutionError for what ONNX Runtime cannot run.
    """
    import_runtime()
    _check_request(plan, repeats, timeout, threads)
    progress = on_progress or (lambda what, done: None)
    progress("reading the model", 0.0)
    found = _model_of(plan)
    values = input_values(found, inputs, _SEED)
    used, devices = _devices(plan.problem, plan.placement.device.tolist(), threads)
    program = _program(found, plan, used)
    progress("running in one session", 0.1)
    widest = max(devices, key=lambda device: device.threads)
    single = measure_whole(found, program.returned, widest, values, repeats, timeout)
    progress(f"opening {len(program.parts)} sub-models", 0.3)
    with Team(devices, timeout) as team:
        sessions = open_parts(found, program.parts, team)
        progress(f"running on {len(devices)} devices", 0.5)
        measured = measure(team, program, sessions, values, repeats, progress)
    return _report(plan, program, devices, single, measured)


# -- what is asked ---------------------------------------------------------------------------------


def _check_request(plan: Plan, repeats: int, timeout: float, threads: int | None) -> None:
    objective = plan.problem.options.objective
    if objective != "latency":
        raise OptionError(
            f"the plan is for {objective}, and of ONNX models only plans for latency are run so "
            "far; plan with --objective latency"
        )
    for name, value in {"repeats": repeats, "threads": threads or 1}.items():
        if value < 1:
            raise OptionError(f"{name} is {value}; it must be at least 1")
    if not 0 < timeout <= _LONGEST_TIMEOUT:
        raise OptionError(f"timeout is {timeout}; it must be more than 0 s and at most a week")


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


def _devices(
    problem: Problem, placement: Sequence[int], threads: int | None
) -> tuple[list[int], list[Device]]:
    """The devices of the plan that are used, in turn the ranks, and what they are here."""
    used = sorted(set(placement))
    unpinned = device_threads(problem, used)
    devices = []
    for device in used:
        cores = _cores_of(problem, device)
        devices.append(
            Device(problem.device_names[device], threads or len(cores) or unpinned, cores)
        )
    return used, devices


def _cores_of(problem: Problem, device: int) -> tuple[int, ...]:
    """The logical CPUs that `device` is, none where that is not said."""
    run = problem.device_run(device)
    if run is None:
        return ()
    if not isinstance(run, CpuRun):
        raise OptionError(
            f"the plan's device '{problem.device_names[device]}' runs on {run}, and ONNX models "
            "are run on CPUs only so far; plan on devices that run on cpu"
        )
    refuse_elsewhere(problem.device_names[device], run.host)
    with pinned(run.cores):  # told before anything is opened
        return run.cores


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
    ranks = range(len(devices))
    difference = max_abs_difference(program.returned, single.outputs, measured.outputs)
    return RunReport(
        measured=statistics.median(measured.makespans),
        fastest=min(measured.makespans),
        single_process_seconds=statistics.median(single.makespans),
        max_abs_difference=difference,
        rank_busy_seconds=tuple(measured.busy(rank) for rank in ranks),
        transfer_count=len(program.transfers),
        transfer_bytes=sum(measured.sizes[name] for name, _ in program.transfers),
        ranks=len(devices),
        threads_per_rank=max(device.threads for device in devices),
        repeats=len(measured.makespans),
        predicted=plan.value,
        devices=tuple(device.name for device in devices),
        rank_threads=tuple(device.threads for device in devices),
        rank_cores=tuple(d.cores for d in devices) if any(d.cores for d in devices) else (),
        steps=tuple(_steps(program, measured)),
    )


def _steps(program: Program, measured: Measured) -> Iterator[StepTime]:
    """The sub-models of one pass, and the waits before them."""
    origin = min((line[0].asked for line in measured.traced if line), default=0.0)
    for rank, line in enumerate(measured.traced):
        for done in line:
            asked, started, finished = (
                moment - origin for moment in (done.asked, done.started, done.finished)
            )
            if done.late is not None:
                source = program.parts[program.maker[done.late]]
                yield StepTime(
                    rank, "wait", str(source), asked, started,
                    peer=source.rank, bytes=measured.sizes[done.late],
                )  # fmt: skip
            yield StepTime(rank, "op", str(program.parts[done.number]), started, finished)
