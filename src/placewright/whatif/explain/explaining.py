"""`explain`: why a plan has an op, a block or a device as it has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from placewright.options import check_kind
from placewright.plan import Plan

if TYPE_CHECKING:
    from placewright.whatif.explain.devices import DeviceExplanation
    from placewright.whatif.explain.places import PlaceExplanation


def explain(plan: Plan | str | Path, name: str) -> PlaceExplanation | DeviceExplanation:
    """Why the op, block, module or device called `name` is as it is in a plan, or plan file.

    Of ops: what every other device would cost, with all else where it is, and what forbids it; the
    allowed moves that change the value least; and, for ``latency``, what they wait for. Of a
    device: its load, idle time and memory, a quick plan without it, and what could best leave it.
    ``device:NAME``, ``op:NAME``, ``block:NAME`` and ``module:NAME`` tell apart what is called the
    same.

    InputError for a name that there is not, VerificationError for a plan that does not hold.

    >>> explain("plan.json", "lm_head").moves[0].change          # doctest: +SKIP
    0.00041
    """
    from placewright.verify import verify
    from placewright.whatif.explain.devices import explain_device
    from placewright.whatif.explain.named import named
    from placewright.whatif.explain.places import explain_place

    check_kind(name, str, "name", "that of an op, a block, a module or a device")
    loaded = plan if isinstance(plan, Plan) else Plan.load(plan)
    loaded.problem.options.require_full_plan("explain")
    target = named(loaded.problem, name)
    verify(loaded).raise_if_failed()
    if target.kind == "device":
        return explain_device(loaded, target.device)
    return explain_place(loaded, target)
