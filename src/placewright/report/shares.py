"""Which part of the inputs each replica of a stage takes, where these differ."""

from __future__ import annotations

from typing import Any

from placewright.plan import Plan
from placewright.report.blocks import device_blocks
from placewright.units import listed

SHOWN = 8  # devices of a stage that are named in a sentence


def share_words(plan: Plan) -> str:
    """``layers 0–11 on a (68 %) and b (32 %)`` for each stage; "" where all take as many."""
    names, blocks = plan.problem.device_names, device_blocks(plan)
    found = []
    for stage, shares in _stages(plan):
        what = (blocks[stage[0]] if blocks else "") or f"{len(plan.device_ops[stage[0]])} ops"
        parts = zip(stage, shares, strict=True)
        on = [f"{names[device]} ({share:.0%} of the inputs)" for device, share in parts]
        where = listed(on, SHOWN)
        found.append(f"{what} on {where}")
    return "; ".join(found)


def share_record(plan: Plan) -> dict[str, Any]:
    """`replicas`, per stage the names of its devices and their shares; none where all are equal."""
    names = plan.problem.device_names
    found = [
        [{"name": names[d], "share": share} for d, share in zip(stage, shares, strict=True)]
        for stage, shares in _stages(plan)
    ]
    return {"replicas": found} if found else {}


def input_texts(plan: Plan) -> list[str]:
    """Per device which part of the inputs of its stage it takes: all, or a share; - without ops."""
    share = {
        device: part
        for stage, shares in _stages(plan)
        for device, part in zip(stage, shares, strict=True)
    }
    used = set(plan.used_devices)
    return [
        f"{share.get(device, 1.0):.0%}" if device in used else "-"
        for device in range(plan.problem.device_count)
    ]


def _stages(plan: Plan) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    placement = plan.placement
    return list(zip(placement.replicas, placement.replica_shares, strict=False))
