"""Several plans side by side: values and bounds, and where each has the blocks of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from placewright.graph import Floats
from placewright.plan import Plan
from placewright.report.html.columns import column
from placewright.report.html.model import blocks_of


def comparison_record(plans: Sequence[Plan], labels: Sequence[str]) -> dict[str, Any] | None:
    """None for one plan. `blocks` are those of all plans, in the order of the first that has them.

    `lanes` are for each plan its blocks by their number in `blocks`, with ``share[block, device]``
    of their seconds. `differs[block]` says whether plans have it on different devices.
    """
    if len(plans) < 2:
        return None
    number: dict[str, int] = {}
    for plan in plans:
        for name in blocks_of(plan.problem).names:
            number.setdefault(name, len(number))
    places: list[set[tuple[tuple[str, int], ...]]] = [set() for _ in number]
    lanes = []
    for plan in plans:
        share = _shares(plan)
        blocks = [number[name] for name in blocks_of(plan.problem).names]
        for block, row in zip(blocks, share, strict=True):
            places[block].add(_place(plan, row))
        lanes.append({"blocks": blocks, "share": column(share.astype(np.float32))})
    objectives = {plan.problem.options.objective for plan in plans}
    return {
        "labels": list(labels),
        "blocks": list(number),
        "lanes": lanes,
        "differs": [len(each) > 1 for each in places],
        "comparable": len(objectives) == 1 and len({plan.problem.name for plan in plans}) == 1,
    }


def _place(plan: Plan, share: Floats) -> tuple[tuple[str, int], ...]:
    """The devices of a block with the percent that each has."""
    percent = np.round(100 * share).astype(int)
    return tuple((plan.problem.device_names[d], int(percent[d])) for d in np.flatnonzero(percent))


def _shares(plan: Plan) -> Floats:
    """`[block, device]` of the seconds of the block's ops; of ops if none takes time."""
    problem, blocks = plan.problem, blocks_of(plan.problem)
    device = plan.placement.device.reshape(problem.op_count, -1)
    found = np.zeros((blocks.count, problem.device_count))
    ops = np.arange(problem.op_count)
    timed = np.bincount(blocks.op_block, problem.op_time.min(axis=1), blocks.count) > 0
    for each in device.T:
        seconds = np.where(timed[blocks.op_block], problem.op_time[ops, each], 1.0)
        np.add.at(found, (blocks.op_block, each), seconds)
    total = found.sum(axis=1, keepdims=True)
    share: Floats = np.divide(found, total, out=np.zeros_like(found), where=total > 0)
    return share
