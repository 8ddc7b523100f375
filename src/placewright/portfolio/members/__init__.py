"""Who takes part: the members of a portfolio, in the order they are asked.

Those of an objective are in the file of its name; every quick planner of its table is one too.
"""

from __future__ import annotations

from placewright import planners
from placewright.objectives import OBJECTIVES
from placewright.portfolio.members.member import (
    CHAIN,
    INSTANT,
    MODULES,
    SMALL,
    TIED,
    WHOLE,
    Member,
    Shape,
)
from placewright.problem import Problem
from placewright.system.references import referred

__all__ = ["INSTANT", "PROMISING", "SMALL", "Member", "everybody", "members_for", "shape_of"]

PROMISING = ("region-moves", "row-cuts")
"""The first of the others, on few of the equal blocks of a model before on all."""
LARGEST_PART = 0.25  # of the ops, in a graph that falls apart


def everybody(objective: str) -> list[Member]:
    """All members there are for an objective, for problems of whatever size and shape."""
    quick = [row.name for row in planners.planners_for(objective) if row.quick]
    beside: tuple[Member, ...] = referred(OBJECTIVES[objective].members)
    return [*(Member(name, "construct", effort={}) for name in quick), *beside]


def members_for(problem: Problem, in_iterations: bool) -> list[Member]:
    """The members for a problem: every quick planner of its objective, then the others."""
    members = everybody(problem.options.objective)
    depends = any(each.shapes != Member.shapes for each in members)
    shape = shape_of(problem) if depends else WHOLE
    found = sorted((each for each in members if each.takes(problem, shape)), key=_rank)
    return [each for each in found if each.effort is not None or not in_iterations]


def shape_of(problem: Problem) -> Shape:
    """Whether it is a chain of small modules, one tied by memory, of large ones, or none."""
    from placewright.planners.latency.modules.chain import part_sizes
    from placewright.planners.latency.modules.milp_split import is_chain

    if is_chain(problem):
        return TIED if problem.may_overflow else CHAIN
    return MODULES if max(part_sizes(problem)) <= LARGEST_PART * problem.op_count else WHOLE


def _rank(member: Member) -> tuple[int, int]:
    """Of the constructive members first those done at once, then the promising ones."""
    first = [*INSTANT, *PROMISING]
    if member.role != "construct":
        return len(first) + 1, 0
    place = first.index(member.name) if member.name in first else len(first)
    return place, member.coarsening == "none"
