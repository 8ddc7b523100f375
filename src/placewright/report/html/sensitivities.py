"""What other hardware would do: value and bound of the changed problems, beside the plan's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placewright.plan import Plan
from placewright.whatif.sensitivities import Sensitivity


def sensitivities_record(
    plan: Plan, found: Sequence[Sensitivity], seconds: float
) -> dict[str, Any]:
    """Rows of a change with `value` and `bound`, or the `error`; planned for `seconds` in all.

    `change` and `least` are shares of the plan's value: of the plan found, and of the best there
    can be under the change; `keeps`: the plan is still one under it.
    """
    return {"seconds": seconds, "rows": [_row(plan, each) for each in found]}


def _row(plan: Plan, each: Sensitivity) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": each.change.name,
        "kind": each.change.kind,
        "keeps": each.change.keeps,
    }
    if each.plan is None:
        return {**row, "value": None, "error": each.error}
    whole = plan.value or 1.0
    return {
        **row,
        "value": each.plan.value,
        "bound": each.plan.lower_bound,
        "change": each.plan.value / whole - 1.0,
        "least": each.plan.lower_bound / whole - 1.0,
    }
