"""What a plan's figures are called; each objective has words of its own (see `objectives`)."""

from __future__ import annotations

from typing import Any

from placewright.plan import Plan
from placewright.problem import Problem
from placewright.system.references import referred


def value_words(problem: Problem) -> str:
    """What the value is: for the objectives about many samples, a time for what."""
    words: str = _of(problem, "value_words")(problem)
    return words


def value_title(problem: Problem) -> str:
    """The same over a column."""
    title: str = _of(problem, "value_title")(problem)
    return title


def rate_words(problem: Problem) -> str:
    """What `Plan.throughput` counts in a second."""
    return "inputs" if problem.input_samples is None else "samples"


def counts(plan: Plan) -> dict[str, int]:
    """How many there are of what the objective schedules."""
    found: dict[str, int] = _of(plan.problem, "counts")(plan.outcome)
    return found


def device_columns(plan: Plan) -> dict[str, list[str]]:
    """Title → text per device: what it sends and receives, in what the objective counts."""
    found: dict[str, list[str]] = _of(plan.problem, "device_columns")(plan.problem, plan.outcome)
    return found


def _of(problem: Problem, name: str) -> Any:
    return referred(f"{problem.options.row.report}:{name}")
