"""All that a page shows, as one object of JSON's types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.html.answer import answer_record
from placewright.report.html.columns import column
from placewright.report.html.comparison import comparison_record
from placewright.report.html.convergence import convergence_record
from placewright.report.html.devices import devices_record
from placewright.report.html.drawing import drawing
from placewright.report.html.model import crossings_record, model_record, placement_record
from placewright.report.html.runs import Run, beside
from placewright.version import __version__


def page_document(
    plans: Sequence[Plan],
    run: Run | None = None,
    changed: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """`models` that plans share, `plans`, and their `comparison` where there are several.

    With a `run` of the one plan there is; `changed` are the sensitivities of each plan.
    """
    labels = plan_labels(plans)
    models: list[Problem] = []
    numbers = [_number(models, plan.problem) for plan in plans]
    return {
        "version": __version__,
        "models": [model_record(problem) for problem in models],
        "plans": [
            plan_part(plan, label, run)
            | {"model": number}
            | ({"sensitivities": changed[k]} if changed else {})
            for k, (plan, label, number) in enumerate(zip(plans, labels, numbers, strict=True))
        ],
        "comparison": comparison_record(plans, labels),
    }


def plan_part(plan: Plan, label: str, run: Run | None = None) -> dict[str, Any]:
    """What is shown of one plan, and of a run of it, but for the model's own names."""
    shown = drawing(plan) if run is None else beside(plan, drawing(plan), run)
    return {
        "label": label,
        "title": plan.problem.name,
        "objective": plan.problem.options.objective,
        "answer": answer_record(plan, shown),
        "devices": devices_record(plan, shown),
        "op_seconds": column(shown.op_seconds),
        "placement": placement_record(plan),
        "crossings": crossings_record(plan),
        "timeline": shown.timeline.record() if shown.timeline is not None else None,
        "convergence": convergence_record(plan),
        **shown.parts,
    }


def plan_labels(plans: Sequence[Plan]) -> list[str]:
    """Planners, with the problem where that differs, and a number where both are the same."""
    several = len({plan.problem.name for plan in plans}) > 1
    found = [f"{plan.planner}, {plan.problem.name}" if several else plan.planner for plan in plans]
    count, seen = Counter(found), Counter[str]()
    for k, label in enumerate(found):
        seen[label] += 1
        if count[label] > 1:
            found[k] = f"{label} ({seen[label]})"
    return found


def _number(models: list[Problem], problem: Problem) -> int:
    """The place of a model with the same ops, blocks and memory; the problem joins if none is."""
    for number, each in enumerate(models):
        if each is problem or _same_model(each, problem):
            return number
    models.append(problem)
    return len(models) - 1


def _same_model(one: Problem, two: Problem) -> bool:
    return (
        one.op_names == two.op_names
        and one.op_types == two.op_types
        and one.op_modules == two.op_modules
        and (one.op_memory == two.op_memory).all()
        and one.consumers.tobytes() == two.consumers.tobytes()
        and one.tensor_producer.tobytes() == two.tensor_producer.tobytes()
    )
