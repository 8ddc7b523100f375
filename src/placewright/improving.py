"""`improve`: a plan that is at least as good as a given one, and at least as well proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.plan import Plan
from placewright.planning import AUTO, plan_problem
from placewright.verify import verify

if TYPE_CHECKING:
    from placewright.planners.base import Progress
    from placewright.portfolio.events import Observer


def improve(
    plan: Plan | str | Path,
    *,
    planner: str = AUTO,
    planner_options: Mapping[str, str] | None = None,
    time_limit: float = float("inf"),
    seed: int = 0,
    checkpoint: str | Path | None = None,
    on_event: Observer | None = None,
    on_progress: Progress | None = None,
) -> Plan:
    """Plan the problem of `plan` again from where it stands; the better of the two plans.

    With the better of the two bounds, unless the plan's own was above what is found now, and so
    wrong. Raises VerificationError where `plan` does not hold.

    >>> better = improve("plan.json", time_limit=60)        # doctest: +SKIP
    """
    old = plan if isinstance(plan, Plan) else Plan.load(plan)
    verify(old).raise_if_failed()
    new = plan_problem(
        old.problem,
        planner=planner,
        planner_options=planner_options,
        time_limit=time_limit,
        seed=seed,
        warm_start=old,
        checkpoint=checkpoint,
        source=old.source,
        on_event=on_event,
        on_progress=on_progress,
    )
    better = new if new.value < old.value else replace(old, seconds=new.seconds)
    proofs = [new] + ([old] if old.lower_bound <= better.value else [])
    proof = max(proofs, key=lambda plan: plan.lower_bound)
    return replace(better, lower_bound=proof.lower_bound, bound_source=proof.bound_source)
