"""A run beside the plan: the tracks of what its ranks did, from what ``run --json`` printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from placewright.errors import FormatError, InputError
from placewright.formats import files
from placewright.outcome import Schedule
from placewright.plan import Plan
from placewright.report.html.drawing import (
    MEASURED,
    WAITING,
    Drawing,
    Slices,
    Track,
    joined,
)
from placewright.units import format_seconds

SHOWN = {"op": MEASURED, "wait": WAITING}
"""The kinds of step that are shown; a send only starts something."""
COLUMNS = ("rank", "kind", "name", "start", "finish")


@dataclass(frozen=True)
class Run:
    """What a run measured: seconds end to end, and its steps (see `COLUMNS`) by device."""

    measured: float
    devices: Sequence[str]
    steps: Sequence[tuple[int, str, str, float, float]]


def read_run(path: str | Path) -> Run:
    """Read what ``run --json`` printed; FormatError names the fault, or what it lacks."""
    document = files.read_document(path)
    try:
        steps = document["step_times"]
        rows = list(zip(*(steps[name] for name in COLUMNS), strict=True))
        run = Run(float(document["measured"]), list(document["rank_devices"]), rows)
        whole = all(_is_step(row, run) for row in rows)
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise FormatError(
            f"{path}: has no steps of a run as 'placewright run PLAN --json' prints them; "
            "run the plan again and keep that output"
        )
    return run


def read_run_of(plans: Sequence[Plan], path: str | Path | None) -> Run | None:
    """The run of the one plan, if there is a file of one.

    InputError where plans are several, or of a plan whose runs have no clock at every step.
    """
    if path is None:
        return None
    if len(plans) > 1:
        raise InputError("a run is shown beside the one plan that was run; give that plan alone")
    for plan in plans:
        if not isinstance(plan.outcome, Schedule):
            raise _no_clock(plan)
    return read_run(path)


def _no_clock(plan: Plan) -> InputError:
    return InputError(
        f"the plan is for {plan.problem.options.objective}, and only of plans for latency is "
        "known when each step of a run began; leave out the run"
    )


def _is_step(row: tuple[Any, ...], run: Run) -> bool:
    rank, kind, name, start, finish = row
    return (
        type(rank) is int
        and 0 <= rank < len(run.devices)
        and isinstance(kind, str)
        and isinstance(name, str)
        and math.isfinite(start)
        and start <= finish < math.inf
    )


def beside(plan: Plan, shown: Drawing, run: Run) -> Drawing:
    """What is planned, with a track of the run under that of each device.

    InputError for a plan that is no schedule, or not the one that was run.
    """
    timeline = shown.timeline
    if timeline is None or not isinstance(plan.outcome, Schedule):
        raise _no_clock(plan)
    measured = _slices(plan, run)
    names = plan.problem.device_names
    under = [Track(f"{name}, measured", "rank", d) for d, name in enumerate(names)]
    links = timeline.tracks[len(names) :]
    tracks = [track for pair in zip(timeline.tracks, under, strict=False) for track in pair]
    planned = timeline.slices
    on_device = planned.track < len(names)
    moved = np.where(on_device, 2 * planned.track, planned.track + len(names))
    slices = joined(replace(planned, track=moved), measured)
    words = f"A run took {format_seconds(run.measured)}; {format_seconds(plan.value)} were planned."
    return replace(
        shown,
        timeline=replace(timeline, tracks=[*tracks, *links], slices=slices),
        notes=[*shown.notes, words],
    )


def _slices(plan: Plan, run: Run) -> Slices:
    """Ops and waits of the ranks, on the tracks under their devices."""
    device = {name: d for d, name in enumerate(plan.problem.device_names)}
    op = {name: k for k, name in enumerate(plan.problem.op_names)}
    rows = [row for row in run.steps if row[1] in SHOWN and row[2] in op]
    unknown = [name for name in run.devices if name not in device]
    others = [row[2] for row in run.steps if row[1] == "op" and row[2] not in op]
    if unknown or others or not rows:
        what = f"device '{unknown[0]}'" if unknown else f"op '{others[0]}'" if others else "ops"
        raise InputError(
            f"the run has {what} that the plan lacks; give the plan that was run (not of an ONNX "
            "model: its runs have a clock at sub-models, which are not drawn)"
        )
    on = [device[run.devices[row[0]]] for row in rows]
    for row, place in zip(rows, on, strict=True):
        planned = int(plan.placement.device[op[row[2]]])
        if row[1] == "op" and place != planned:
            raise InputError(
                f"the run has op '{row[2]}' on '{plan.problem.device_names[place]}', and the plan "
                f"on '{plan.problem.device_names[planned]}'; give the plan that was run"
            )
    count = len(rows)
    return Slices(
        track=np.array([2 * place + 1 for place in on]),
        kind=np.array([SHOWN[row[1]] for row in rows]),
        start=np.array([row[3] for row in rows]),
        finish=np.array([row[4] for row in rows]),
        item=np.array([op[row[2]] for row in rows]),
        amount=np.zeros(count),
        critical=np.zeros(count, dtype=np.bool_),
    )
