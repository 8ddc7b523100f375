"""Running a plan for an ONNX model, and comparing it with the model in one session."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from placewright.budget import Progress, no_progress
from placewright.costs.profiles.onnx.options import import_runtime
from placewright.importers.onnx.folding import Values, stored_values
from placewright.plan import Plan
from placewright.runtime.inputs import given_inputs
from placewright.runtime.onnx_sessions.inputs import input_values
from placewright.runtime.onnx_sessions.measuring import (
    Measured,
    measure,
    measure_whole,
    open_parts,
)
from placewright.runtime.onnx_sessions.outputs import max_abs_difference
from placewright.runtime.onnx_sessions.passes import Done, Program
from placewright.runtime.onnx_sessions.preparing import (
    check_options,
    check_plan,
    devices_of,
    model_of,
    program_of,
)
from placewright.runtime.onnx_sessions.team import Device, Team
from placewright.runtime.results import RunReport, StepTime
from placewright.runtime.run_options import RunOptions

if TYPE_CHECKING:
    from onnx import NodeProto

RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip


def run_onnx_plan(
    plan: Plan,
    options: RunOptions | None = None,
    *,
    on_progress: Progress | None = None,
) -> RunReport:
    """Run a plan for ``FILE.onnx[?NAME=SIZE&…]``, a thread per device it uses, in its order.

    A thread whose device is cores of this machine is pinned to them, and its sessions have as
    many threads; ``options.threads`` is another number for all. Inputs that ``options.inputs``
    does not have are made up from ``options.seed``. All of it happens in this process, whatever
    ``options.launcher``, and is stuck where nothing comes to an end for ``options.timeout``
    seconds: no sub-model, nor the model in one session.

    For a plan for throughput several samples are under way at once; the seconds told are those of
    one more in the steady state, the busy ones those of a sample.

    A step of ``RunReport.passes`` is a sub-model, or waiting for what another rank's gives.
    OptionError for another plan, InputError for inputs or a model that do not fit it,
    ExecutionError for what ONNX Runtime cannot run.
    """
    import_runtime("running")
    options = options or RunOptions()
    check_plan(plan)
    used = plan.used_devices  # a rank each, in this order
    check_options(options, len(used))
    progress = on_progress or no_progress
    progress("reading the model", 0.0)
    found = model_of(plan)
    devices = devices_of(plan.problem, used, options)
    program = program_of(found, plan, used)
    given = given_inputs(options.inputs)
    samples = [
        input_values(found, given, options.seed + number) for number in range(program.samples)
    ]
    progress("running in one session", 0.1)
    widest = max(devices, key=lambda device: device.threads)
    single = measure_whole(found, program.returned, widest, samples, options)
    progress(f"opening {len(program.parts)} sub-models", 0.3)
    with Team(devices, options.timeout) as team:
        sessions = open_parts(found, program, team)
        progress(f"running on {len(devices)} devices", 0.5)
        measured = measure(team, program, sessions, samples, options, progress)
    report = _report(plan, program, devices, single, measured)
    graph = found.model.graph
    values = stored_values(graph)
    return replace(report, random_ops=sum(_draws(node, values) for node in graph.node))


def _draws(node: NodeProto, values: Values) -> bool:
    """Whether a node draws at random in a run; dropout does so in training alone.

    `values` are the small constants of the model.
    """
    if node.domain:
        return False
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        return bool(values.get(node.input[2], np.True_).any())
    return node.op_type in RANDOM


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
        results=tuple(map(tuple, measured.outputs)),
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
                maker, size = program.maker[done.late], measured.sizes[done.late]
                peer = program.rank((done.task[0], maker))
                source = str(program.parts[maker])
                yield StepTime(rank, "wait", source, asked, started, peer, size)
            name = str(program.parts[done.task[1]])
            yield StepTime(rank, "op", name, started, done.finished - origin)
