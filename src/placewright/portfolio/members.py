"""Who takes part: the members of a portfolio per objective, in the order they are asked.

A member is a planner of the table with options, or a prover of `bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from placewright import planners
from placewright.problem import Problem

Role = Literal["construct", "search", "prove"]
Shape = Literal["chain", "modules", "whole"]
CHAIN: Shape = "chain"
MODULES: Shape = "modules"
WHOLE: Shape = "whole"
LARGEST_PART = 0.25  # of the ops, in a graph that falls apart

INSTANT = ("single-device", "greedy", "heft", "met", "memory-fill", "m-topo")
"""Constructive planners that take less than a second even on 50,000 ops."""

PROMISING = ("seeds", "row-cuts")
"""The first of the others, on few of the equal blocks of a model before on all."""

SMALL = 300
"""Ops × devices of a problem on which every constructive planner takes a moment: all of them
together less than a worker takes to start. So does a round of what is counted in iterations."""


@dataclass(frozen=True)
class Member:
    """A planner, or a prover ``module:function`` of `bounds`, and when it takes part.

    - `role`: ``construct`` is asked once, at the start; ``search`` goes on from the best plan as
      often as time allows (with `afresh`, from a start of its own); ``prove`` is asked once, for
      `share` of the time that is then left, and is the one to say that a plan is optimal;
    - `options` of the planner; `effort`: those that limit it in a run counted in iterations, in
      which a member without does not take part;
    - `fewest_ops`, `most_ops`: sizes of the problem that it is for; `shapes`: shapes (`shape_of`);
    - `decides`: it finds a plan or proves that there is none, given time;
    - `alone`: it uses all cores itself, so nobody else works while it does;
    - `cores`: its option for a number of cores to work on. It gets `core_share` of what there are,
      at most `most_cores`, whose workers wait, and that before any other that is not instant.
    """

    name: str
    role: Role
    options: Mapping[str, str] = field(default_factory=dict)
    effort: Mapping[str, str] | None = None
    share: float = 1.0
    coarsening: str = "none"
    afresh: bool = False
    prover: str = ""
    fewest_ops: int = 0
    most_ops: float = math.inf
    shapes: Collection[Shape] = (CHAIN, MODULES, WHOLE)
    decides: bool = False
    alone: bool = False
    cores: str = ""
    most_cores: int = 1
    core_share: float = 1.0

    def takes(self, problem: Problem, shape: Shape) -> bool:
        return self.fewest_ops <= problem.op_count <= self.most_ops and shape in self.shapes

    @property
    def title(self) -> str:
        """How it is called in events and plans."""
        return self.name if self.coarsening == "none" else f"{self.name} on {self.coarsening}"

    def is_instant(self, problem: Problem) -> bool:
        """Whether it is done before worker processes have so much as started."""
        small = problem.op_count * problem.device_count <= SMALL
        return self.role == "construct" and (small or self.name in INSTANT)


def shape_of(problem: Problem) -> Shape:
    """Whether it is a chain of small modules, falls apart into large ones, or does not."""
    from placewright.planners.latency.modules.chain import part_sizes
    from placewright.planners.latency.modules.milp_split import is_chain

    if is_chain(problem):
        return CHAIN
    return MODULES if max(part_sizes(problem)) <= LARGEST_PART * problem.op_count else WHOLE


STEPS = {"iterations": "20000"}
FREE = {"order": "free"}
WINDOWS = {"iterations": "20"}
RELAXATION = "latency.relaxation:prove"
NODES = {"nodes": "200", "processes": "1"}

LATENCY = (
    # A large model of equal layers: few of them are soon planned, the others placed alike.
    Member("seeds", "construct", effort={}, coarsening="repeats+fusion", fewest_ops=2_000),
    Member("seeds", "construct", effort={}, coarsening="repeats", fewest_ops=2_000),
    Member("annealing", "search", FREE, STEPS, coarsening="repeats+fusion", fewest_ops=2_000),
    Member("multilevel", "search", {}, STEPS, coarsening="repeats+fusion", fewest_ops=2_000),
    Member("annealing", "search", FREE, STEPS, coarsening="repeats", fewest_ops=2_000),
    Member("multilevel", "search", {}, STEPS, coarsening="repeats", fewest_ops=2_000),
    # What an engine fuses moves as one: attention heads, not ops, go to other devices.
    Member("multilevel", "search", {}, STEPS, coarsening="fusion", afresh=True, fewest_ops=500),
    Member("annealing", "search", FREE, STEPS, coarsening="fusion", fewest_ops=500),
    Member("annealing", "search", FREE, STEPS),
    Member("multilevel", "search", {}, STEPS, afresh=True, fewest_ops=2_000),
    Member("lns", "search", {"workers": "1"}, WINDOWS),
    Member("multilevel", "search", {}, STEPS, fewest_ops=2_000),
    Member("annealing", "search", FREE, STEPS, afresh=True, most_ops=3_000),
    # Where modules follow one another in time nobody proves nearly as much as their program, and
    # few find as much, if it has the cores; the others have the last fifth of the time.
    Member(
        "milp-split",
        "prove",
        {},
        NODES,
        0.8,
        shapes=[CHAIN],
        cores="processes",
        most_cores=8,
        most_ops=3_000,
    ),
    # With its first and last op held on other devices than the best simple plan has them, even a
    # graph that is one module shows plans that no small step leads to.
    Member(
        "module-annealing",
        "prove",
        {"processes": "1"},
        share=0.3,
        shapes=[WHOLE],
        most_ops=3_000,
    ),
    # Modules too large for that are still much smaller than the whole.
    Member(
        "module-annealing",
        "prove",
        {},
        {"turns": "20"},
        shapes=[MODULES],
        cores="processes",
        most_cores=8,
        core_share=0.5,
    ),
    Member(
        "milp-split",
        "prove",
        {"processes": "1"},
        NODES,
        0.45,
        shapes=[MODULES, WHOLE],
        most_ops=3_000,
    ),
    Member("relaxation", "prove", share=0.6, prover=RELAXATION, shapes=[MODULES]),
    Member(
        "relaxation", "prove", share=0.4, prover="latency.relaxation:prove", shapes=[CHAIN, WHOLE]
    ),
    Member("cp-sat", "prove", {"workers": "1"}, {"units": "5"}, most_ops=300, decides=True),
    # Which modules it finds is partly luck, and others find nothing beside it: again, from there.
    Member("module-annealing", "prove", {"processes": "1"}, shapes=[MODULES]),
)

THROUGHPUT = (
    Member("annealing", "search", {}, {"steps": "20000"}, most_ops=5_000),
    Member("block-moves", "search", {}, {"steps": "20000"}),
    # Asked once and beside the searches, before the next has all cores: on devices that differ
    # these find more, on equal ones that does.
    Member("annealing", "prove", share=0.35, afresh=True, most_ops=5_000),
    Member("max-load-ip", "prove", {}, {"steps": "100000"}, share=0.7, alone=True),
)

INVOCATION = (
    Member("annealing", "search", {}, STEPS),
    # The best plan has deep valleys around it: hotter out of them, or from somewhere else.
    Member("annealing", "search", {"temperature": "0.03"}, STEPS),
    Member("annealing", "search", {}, STEPS, afresh=True, most_ops=3_000),
    Member("path", "prove", share=0.4, prover="invocation.path:prove"),
    Member("invocation-ip", "prove", {"cuts": "0"}, share=0.45, most_ops=500),
    # Asked once and for all the rest: what cools slowly finds what no turn is long enough for.
    Member("annealing", "prove"),
)

BATCH = (
    Member("annealing", "search", {}, STEPS),
    Member("milp-split", "prove", share=0.4),
    # For all the rest: what cools slowly finds what no turn is long enough for.
    Member("annealing", "prove"),
)

MEMBERS: Mapping[str, tuple[Member, ...]] = {
    "latency": LATENCY,
    "throughput": THROUGHPUT,
    "invocation-latency": INVOCATION,
    "batch-throughput": BATCH,
}


def members_for(problem: Problem, in_iterations: bool) -> list[Member]:
    """The members for a problem: every quick planner of its objective, then those above."""
    objective = problem.options.objective
    quick = [row.name for row in planners.planners_for(objective) if row.quick]
    members = [Member(name, "construct", effort={}) for name in quick]
    shape = shape_of(problem) if objective == "latency" else WHOLE
    members += [each for each in MEMBERS[objective] if each.takes(problem, shape)]
    found = sorted(members, key=_rank)
    return [each for each in found if each.effort is not None or not in_iterations]


def _rank(member: Member) -> tuple[int, int]:
    """Of the constructive members first those done at once, then the promising ones."""
    first = [*INSTANT, *PROMISING]
    if member.role != "construct":
        return len(first) + 1, 0
    place = first.index(member.name) if member.name in first else len(first)
    return place, member.coarsening == "none"
