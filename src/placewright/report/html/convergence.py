"""Value and bound over the time that planning took."""

from __future__ import annotations

import math
from typing import Any

from placewright.plan import Plan


def convergence_record(plan: Plan) -> dict[str, Any] | None:
    """Columns of the plan's history, `value` None before there was a plan; None without history."""
    history = plan.history
    if history is None or not any(map(math.isfinite, history.value.tolist())):
        return None
    return {
        "seconds": history.seconds.tolist(),
        "value": [each if math.isfinite(each) else None for each in history.value.tolist()],
        "bound": history.lower_bound.tolist(),
    }
