"""A placement of pieces as an engine runs it, timed by the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placewright.analysis.offloading import fetching, helper_bytes, without_memory
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.data_parallel import Groups
from placewright.exporters.devices import NOBODY, first_gpu
from placewright.exporters.engines import Engine
from placewright.exporters.pieces import Phase, Pieces
from placewright.exporters.sharing import without_spare
from placewright.graph import Ints
from placewright.outcome import Outcome
from placewright.plan import Placement, Plan
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem
from placewright.serving.value import joint_value
from placewright.simulate import evaluate
from placewright.simulate.latency import dispatch_placement
from placewright.simulate.pipeline_steps import kept_bytes
from placewright.units import format_bytes
from placewright.verify import verify


@dataclass(frozen=True, eq=False)
class Run:
    """A placement in the problem that it is run in, `repeats` times."""

    problem: Problem
    placement: Placement
    outcome: Outcome
    repeats: float = 1.0


@dataclass(frozen=True, eq=False)
class Timed:
    """What is run of a problem, after what is run `before` it; `told` is what a plan says of it.

    `value` is what all of it takes.
    """

    own: Run
    told: Mapping[str, str]
    before: tuple[Run, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        return (*self.before, self.own)

    @property
    def value(self) -> float:
        if not self.before:
            return self.own.outcome.value
        options = self.own.problem.options
        return joint_value(options, [(run.repeats, run.outcome) for run in self.runs])


def timed_placement(
    pieces: Pieces, piece_device: Ints, helper: int = NOBODY, groups: Groups | None = None
) -> Timed:
    """The pieces on these devices, weights that a stage shares held once.

    With `groups` they are devices of the first of them, and the pieces are in each. `pieces` is of
    a problem in which device `helper`, if any, computes what is on the CPU; here it also has less
    memory by what that needs. InfeasibleError where memory is not enough.
    """
    steps = pieces.problem.options.micro_batches is not None
    row = tuple(dict.fromkeys(piece_device.tolist())) if steps else ()
    replicas = () if groups is None else groups.replicas(row)
    placement = Placement(piece_device[pieces.op_piece], row=row, replicas=replicas)
    problem, copied = without_spare(pieces.problem, pieces.shared, piece_device)
    told = {"copied": ", ".join(copied)} if copied else {}
    if helper != NOBODY and pieces.cpu in piece_device:
        taken = helper_bytes(problem, pieces.fetched, placement.device == pieces.cpu)
        problem = without_memory(problem, helper, taken)
        told["offload"] = problem.device_names[helper]
    _check_room(problem, placement)
    own = Run(problem, *_scheduled(problem, placement), pieces.repeats)
    before = tuple(_run(phase, piece_device) for phase in pieces.before)
    return Timed(own, told, before)


def _run(phase: Phase, piece_device: Ints) -> Run:
    """A phase on the devices of its pieces."""
    placement = Placement(piece_device[phase.op_piece])
    return Run(phase.problem, *_scheduled(phase.problem, placement), phase.repeats)


def _scheduled(problem: Problem, placement: Placement) -> tuple[Placement, Outcome]:
    """The quicker of two schedules: into gaps, or nothing idle while an op could start."""
    outcome = evaluate(problem, placement)
    if problem.options.objective == "latency":
        other = dispatch_placement(problem, placement.device)
        sooner = evaluate(problem, other)
        if sooner.value < outcome.value * (1 - LONG_ROUNDING):
            return other, sooner
    return placement, outcome


def judged_blocks(
    pieces: Pieces, engine: Engine, block_device: Sequence[int], planner: str = "expert"
) -> Plan:
    """The plan that has the blocks of a model on these devices, run as the engine runs it.

    `pieces` are those of the engine (`pieces_for`). So what others propose compares with plans for
    it. OptionError for what the engine cannot run, InfeasibleError for what does not fit.
    """
    device = _device_of_pieces(pieces, np.asarray(block_device, dtype=np.int32), engine)
    cpu = pieces.cpu
    helper = first_gpu(pieces.problem, device.tolist()) if cpu in device else NOBODY
    if helper != NOBODY:
        pieces = pieces.changed(lambda phase: fetching(phase.problem, cpu, helper, phase.fetched))
    _check_supported(pieces, device, engine)
    timed = timed_placement(pieces, device, helper)
    plan = Plan(
        problem=timed.own.problem,
        placement=timed.own.placement,
        outcome=timed.own.outcome,
        value=timed.own.outcome.value,
        lower_bound=0.0,
        bound_source="none was looked for",
        planner=planner,
        planner_options={"engine": engine.name, **timed.told},
    )
    verify(plan).raise_if_failed()
    return plan


def _device_of_pieces(pieces: Pieces, block_device: Ints, engine: Engine) -> Ints:
    op_device = block_device[pieces.blocks.op_block]
    device = np.empty(pieces.count, dtype=np.int32)
    device[pieces.op_piece] = op_device
    parted = np.flatnonzero(device[pieces.op_piece] != op_device)
    if parted.size:
        name = pieces.blocks.names[pieces.blocks.op_block[parted[0]]]
        raise OptionError(f"{engine.name} keeps {name} with the layer beside it")
    return device


def _check_supported(pieces: Pieces, device: Ints, engine: Engine) -> None:
    problem = pieces.problem
    place = device[pieces.op_piece]
    barred = np.flatnonzero(~np.isfinite(problem.op_time[np.arange(problem.op_count), place]))
    if barred.size:
        op = int(barred[0])
        raise OptionError(
            f"{engine.name} does not run '{problem.op_names[op]}' on "
            f"{problem.device_names[place[op]]}"
        )


def _check_room(problem: Problem, placement: Placement) -> None:
    kept = kept_bytes(problem, placement)
    for device in np.flatnonzero(kept > problem.device_memory * (1 + ROUNDING)).tolist():
        raise InfeasibleError(
            f"{problem.device_names[device]} is to keep {format_bytes(float(kept[device]))} and "
            f"has room for {format_bytes(float(problem.device_memory[device]))}"
        )
