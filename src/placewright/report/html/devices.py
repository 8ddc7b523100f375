"""The table of devices: load, idle time, memory, and what the objective counts besides."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.plan import Plan
from placewright.report.blocks import device_blocks
from placewright.report.html.drawing import DeviceColumn, Drawing
from placewright.simulate.peak import used_memory


def devices_record(plan: Plan, shown: Drawing) -> dict[str, Any]:
    """Rows of devices, and the columns that come after those of every objective."""
    problem = plan.problem
    ops = [len(each) for each in plan.device_ops]
    load, peak, kept = plan.device_load, used_memory(plan), plan.device_memory
    blocks = device_blocks(plan)
    rows = [
        {
            "name": name,
            "kind": problem.device_kinds[d],
            "host": problem.device_host(d),
            "ops": ops[d],
            "load": float(load[d]),
            "idle": max(plan.value - float(load[d]), 0.0),
            "kept": float(kept[d]),
            "memory": float(peak[d]),
            "capacity": _finite(float(problem.device_memory[d])),
            "blocks": blocks[d] if blocks is not None else "",
        }
        for d, name in enumerate(problem.device_names)
    ]
    return {"rows": rows, "columns": [_column(each) for each in shown.columns]}


def _column(each: DeviceColumn) -> dict[str, Any]:
    return {"title": each.title, "unit": each.unit, "values": each.values.tolist()}


def _finite(amount: float) -> float | None:
    """None for memory without a limit, which JSON has no number for."""
    return amount if np.isfinite(amount) else None
