"""Plans in files: ``placewright.plan/1``, the problem included."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.errors import ClusterError, FormatError, GraphError, OptionError
from placewright.formats import files
from placewright.formats.problems import problem_document, read_problem
from placewright.graph import Ints
from placewright.objectives import OBJECTIVES, ObjectiveEntry
from placewright.outcome import Outcome
from placewright.plan import History, Placement, Plan
from placewright.problem import Problem, once_per_problem
from placewright.system.references import referred
from placewright.version import __version__

if TYPE_CHECKING:
    from placewright.formats.schema import HistoryEntry, PlanFile

FORMAT = "placewright.plan/1"


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write the plan; what its problem comes to in JSON is kept, for checkpoints come often."""
    head = files.json_text(_without_problem(plan))
    files.write_text(path, f'{head[:-1]}, "problem": {_problem_text(plan.problem)}}}\n')


@once_per_problem
def _problem_text(problem: Problem) -> str:
    return files.json_text(problem_document(problem))


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as a ``placewright.plan/1`` object."""
    return _without_problem(plan) | {"problem": problem_document(plan.problem)}


def _without_problem(plan: Plan) -> dict[str, Any]:
    document = {
        "format": FORMAT,
        "version": __version__,
        "source": plan.source,
        "planner": {
            "name": plan.planner,
            "seed": plan.seed,
            "options": dict(plan.planner_options),
            "coarsening": plan.coarsening,
        },
        "value": plan.value,
        "lower_bound": plan.lower_bound,
        "bound_source": plan.bound_source,
        "status": plan.status,
        "placement": plan.placement.device.tolist(),
    }
    if plan.placement.replicas:
        document["replicas"] = [list(stage) for stage in plan.placement.replicas]
    if plan.placement.replica_shares:
        document["replica_shares"] = [list(stage) for stage in plan.placement.replica_shares]
    if plan.placement.row:
        document["row"] = list(plan.placement.row)
    if plan.placement.subgraph is not None:
        document["subgraph"] = plan.placement.subgraph.tolist()
    document[plan.problem.options.row.outcome_key] = plan.outcome.to_document()
    if plan.history is not None:
        document["history"] = _history_document(plan.history)
    return document


def _history_document(history: History) -> dict[str, Any]:
    return {
        "seconds": history.seconds.tolist(),
        "value": [each if math.isfinite(each) else None for each in history.value.tolist()],
        "lower_bound": history.lower_bound.tolist(),
    }


def _history(entry: HistoryEntry | None) -> History | None:
    if entry is None:
        return None
    value = [math.inf if each is None else each for each in entry.value]
    return History(np.array(entry.seconds), np.array(value), np.array(entry.lower_bound))


def read_plan(document: Any, path: str | Path = "plan") -> Plan:
    """Read a ``placewright.plan/1`` object; FormatError names the fault."""
    from placewright.formats.schema import PlanFile  # pydantic is slow to import

    files.check_format(document, FORMAT, path)
    content = files.validate(PlanFile, document, path)
    try:
        problem = read_problem(content.problem)
        row = problem.options.row
        entry = _only_outcome(content, row, path)
        plan = Plan(
            problem=problem,
            placement=Placement(
                _rectangle(content.placement, problem, path),
                replicas=tuple(tuple(stage) for stage in content.replicas or ()),
                row=tuple(content.row or ()),
                subgraph=None if content.subgraph is None else np.array(content.subgraph),
                replica_shares=tuple(tuple(stage) for stage in content.replica_shares or ()),
            ),
            outcome=_outcome(row, entry, content.value, path),
            value=content.value,
            lower_bound=content.lower_bound,
            bound_source=content.bound_source,
            planner=content.planner.name,
            seed=content.planner.seed,
            planner_options=content.planner.options,
            coarsening=content.planner.coarsening,
            source=content.source,
            history=_history(content.history),
        )
    except (GraphError, ClusterError, OptionError) as error:
        raise FormatError(f"{path}: {error}") from None
    object.__setattr__(plan, "stated_status", content.status)
    _check_lengths(plan, path)
    return plan


def _check_lengths(plan: Plan, path: str | Path) -> None:
    """FormatError if a column is not as long as there are ops."""
    columns: dict[str, Any] = {"placement": plan.placement.device}
    if plan.placement.subgraph is not None:
        columns["subgraph"] = plan.placement.subgraph
    key = plan.problem.options.row.outcome_key
    for name in ("op_start", "op_finish"):
        if hasattr(plan.outcome, name):
            columns[f"{key}.{name}"] = getattr(plan.outcome, name)
    for what, column in columns.items():
        if len(column) != plan.problem.op_count:
            raise FormatError(
                f"{path}: {what} has {len(column)} entries for {plan.problem.op_count} ops"
            )


def _only_outcome(content: PlanFile, row: ObjectiveEntry, path: str | Path) -> Any:
    """The entry of the objective's outcome; FormatError without it, or with another's besides."""
    key = row.outcome_key
    if (entry := getattr(content, key)) is None:
        raise FormatError(f"{path}: field {key}: missing; a plan for {row.name} has it")
    for other in [each.outcome_key for each in OBJECTIVES.values()]:
        if other != key and getattr(content, other) is not None:
            raise FormatError(
                f"{path}: field {other}: belongs to another objective; a plan for {row.name} has "
                f"{key} in its place, so leave it out"
            )
    return entry


def _outcome(row: ObjectiveEntry, entry: Any, value: float, path: str | Path) -> Outcome:
    try:
        outcome: Outcome = referred(row.outcome).read(entry.model_dump(), value)
    except ValueError:
        raise FormatError(
            f"{path}: field {row.outcome_key}: a table has rows that differ in length"
        ) from None
    return outcome


def _rectangle(rows: list[int] | list[list[int]], problem: Problem, path: str | Path) -> Ints:
    """The placement column: a device per op, or per op and input of a batch."""
    options = problem.options
    width = options.batch if options.row.by_input else None
    for op, row in enumerate(rows):
        got = len(row) if isinstance(row, list) else None
        if got != width:
            wanted = "one device" if width is None else f"{width} devices, one per input"
            raise FormatError(f"{path}: field placement.{op}: give {wanted}")
    return np.array(rows, dtype=np.int32)
