"""A step of micro-batches in a trace: the passes of each stage, from an empty pipeline to an empty.

A track per device, along the data. Between its passes a device is idle: the bubble. Arrows lead
from a pass to the one that goes on with its tensors. Both are busy with a transfer between them, so
the second begins before the first ends.
"""

from __future__ import annotations

from placewright.exporters.perfetto.events import Process, Slice
from placewright.outcome import BACKWARD, FORWARD, Loads
from placewright.plan import Plan
from placewright.simulate.step_passes import step_passes

WAYS = {FORWARD: "forward", BACKWARD: "backward"}


def planned_step(number: int, plan: Plan, loads: Loads) -> Process:
    """The passes of all micro-batches, and an arrow along the stages for each of these."""
    options = plan.problem.options
    share = "" if options.data_parallel == 1 else f", {options.pipeline_micro_batches} of them here"
    process = Process(number, f"planned: a step of {options.micro_batches} micro-batches{share}")
    row, passes = plan.placement.row, step_passes(plan)
    tracks = [process.track(plan.problem.device_names[device]) for device in row]
    made: dict[tuple[int, int, int], Slice] = {}
    for k in range(len(passes)):
        stage, way, batch = (
            int(each[k]) for each in (passes.stage, passes.way, passes.micro_batch)
        )
        start, finish = float(passes.start[k]), float(passes.finish[k])
        device = row[stage]
        args = {
            "micro-batch": batch + 1,
            "stage": stage + 1,
            "receives, seconds": float(loads.incoming[way, device]),
            "computes, seconds": float(loads.compute[way, device]),
            "sends, seconds": float(loads.outgoing[way, device]),
            "planned seconds": finish - start,
        }
        name = f"{WAYS[way]} {batch + 1}"
        added = process.add(Slice(tracks[stage], name, WAYS[way], start, finish, args, rank=k))
        made[stage, way, batch] = added
        before = made.get((stage - 1 if way == FORWARD else stage + 1, way, batch))
        if before is None and way == BACKWARD:
            before = made[stage, FORWARD, batch]
        if before is not None:
            process.flow((before, before.finish), (added, added.start))
    return process
