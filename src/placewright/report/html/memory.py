"""Memory over time: what ops keep, and the tensors that are alive besides."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.graph import Floats
from placewright.plan import Plan
from placewright.report.html.columns import column
from placewright.simulate.peak import tensor_lives

MOMENTS = 600  # stretches of time, of each of which the highest is kept
MOST_VALUES = 200_000  # of all devices together


def memory_record(plan: Plan) -> dict[str, Any]:
    """Per device with ops: bytes that ops keep, and the most alive besides in equal stretches.

    `counted` says whether the plan counts the tensors that are alive (memory option ``peak``).
    """
    problem = plan.problem
    used = plan.used_devices
    moments = max(2, min(MOMENTS, MOST_VALUES // max(len(used), 1)))
    lives = tensor_lives(problem, plan.placement, plan.schedule)
    kept = plan.device_memory
    return {
        "seconds": plan.value,
        "counted": problem.options.memory == "peak",
        "training": bool(problem.is_backward.any()),
        "devices": [
            {
                "device": d,
                "kept": float(kept[d]),
                "alive": column(highest(lives[lives[:, 0] == d, 1:], plan.value, moments)),
            }
            for d in used
        ],
    }


def highest(lives: Floats, seconds: float, moments: int) -> Floats:
    """`[stretch]` the most bytes alive in it, of rows (from, to, bytes).

    At one instant, what ends goes before what begins.
    """
    found = np.zeros(moments)
    lives = lives[lives[:, 1] > lives[:, 0]]
    if not len(lives) or not seconds:
        return found
    time = np.concatenate([lives[:, 0], lives[:, 1]])
    change = np.concatenate([lives[:, 2], -lives[:, 2]])
    order = np.lexsort((change, time))
    alive = np.maximum(np.cumsum(change[order]), 0.0)
    stretch = np.minimum((time[order] / seconds * moments).astype(np.int64), moments - 1)
    np.maximum.at(found, stretch, alive)
    last = np.searchsorted(stretch, np.arange(moments)) - 1  # what is alive as a stretch begins
    begin: Floats = np.where(last >= 0, alive[last], 0.0)
    highest: Floats = np.rint(np.maximum(found, begin)).astype(np.float64)
    return highest
