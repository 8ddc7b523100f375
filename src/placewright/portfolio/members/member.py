"""A member of a portfolio: a planner of the table with options, or a prover of `bounds`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from placewright.problem import Problem, once_per_problem

Role = Literal["construct", "decide", "search", "prove"]
Shape = Literal["chain", "tied", "modules", "whole"]
Memory = Literal["enough", "full", "short"]
CHAIN: Shape = "chain"
TIED: Shape = "tied"
MODULES: Shape = "modules"
WHOLE: Shape = "whole"
ENOUGH: Memory = "enough"
FULL: Memory = "full"
SHORT: Memory = "short"

INSTANT = ("single-device", "greedy", "data-parallel", "heft", "met", "memory-fill", "m-topo")
"""Constructive planners that take less than a second even on 50,000 ops."""

SMALL = 300
"""Ops × devices of a problem on which every constructive planner takes a moment: all of them
together less than a worker takes to start. So does a round of what is counted in iterations."""

DECIDED, DECIDED_BATCHES = 100, 250
"""Ops × devices of a problem that an exact planner mostly decides before a worker has started; of
batches times the parts that their inputs can be split into."""

MANY = 200
"""Ops of a problem in which memory may be what limits the search."""

UNDECIDED = 600
"""Ops × devices of a problem that provers mostly do not decide soon where memory counts."""


@dataclass(frozen=True)
class Member:
    """A planner, or a prover ``module:function`` of `bounds`, and when it takes part.

    - `role`: ``construct`` is asked once, at the start; ``decide`` is an exact planner, asked once
      after those in this process and for a moment, where the problem is so small (`DECIDED`) that
      nobody else may be needed; ``search`` goes on from the best plan as often as time allows (with
      `afresh`, from a start of its own); ``prove`` is asked once, for `share` of the time that is
      then left, and is the one to say that a plan is optimal;
    - `options` of the planner; `effort`: those that limit it in a run counted in iterations, in
      which a member without does not take part;
    - `fewest_ops`, `most_ops`: sizes of the problem that it is for; `most_units`: units as a share
      of its ops; `shapes`: shapes (`shape_of`);
    - `passed`: True if it is only for graphs that are a chain of small modules but for edges which
      pass by some (`milp_split.is_chain_but_for_passing`), False if only for others;
    - `memory`: whether it is for problems whose ops do not all fit the device that is quickest for
      them, of `MANY` ops or more (``short``) or of fewer and of `UNDECIDED` size or more
      (``full``), and for all others (``enough``);
    - `where`: options of the problem, and what they must be for it to take part;
    - `decides`: it finds a plan or proves that there is none, given time;
    - `alone`: it uses all cores itself, so nobody else works while it does;
    - `cores`: its option for a number of cores to work on. It gets `core_share` of what there are,
      at most `most_cores`, whose workers wait, and that before any other that is not instant;
    - `shortest`: seconds of a turn of a search, at the least;
    - `first_share`: of the time that is left, for the first turn of a search that is long at once.
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
    most_units: float = 1.0
    shapes: Collection[Shape] = (CHAIN, TIED, MODULES, WHOLE)
    passed: bool | None = None
    memory: Collection[Memory] = (ENOUGH, FULL, SHORT)
    where: Mapping[str, Any] = field(default_factory=dict)
    decides: bool = False
    alone: bool = False
    cores: str = ""
    most_cores: int = 1
    core_share: float = 1.0
    shortest: float = 1.0
    first_share: float = 0.0

    def takes(self, problem: Problem, shape: Shape) -> bool:
        if self.role == "decide" and not is_decided(problem):
            return False
        if any(getattr(problem.options, name) != value for name, value in self.where.items()):
            return False
        if problem.unit_count > self.most_units * problem.op_count:
            return False
        if memory_of(problem) not in self.memory:
            return False
        if not (self.fewest_ops <= problem.op_count <= self.most_ops and shape in self.shapes):
            return False
        return self.passed is None or self.passed == _is_passed(problem)

    @property
    def title(self) -> str:
        """How it is called in events and plans."""
        return self.name if self.coarsening == "none" else f"{self.name} on {self.coarsening}"

    def is_instant(self, problem: Problem) -> bool:
        """Whether it is done before worker processes have so much as started."""
        small = problem.op_count * problem.device_count <= SMALL
        return self.role == "construct" and (small or self.name in INSTANT)


@once_per_problem
def is_decided(problem: Problem) -> bool:
    """Whether it is so small that an exact planner mostly decides it at once."""
    size = problem.op_count * problem.device_count
    if size > DECIDED or problem.options.objective != "batch-throughput":
        return size <= DECIDED
    from placewright.kernels.batch.arrays import batches_of

    parts = problem.options.batch // batches_of(problem).chunk
    return size * parts <= DECIDED_BATCHES


def _is_passed(problem: Problem) -> bool:
    from placewright.planners.latency.modules.milp_split import is_chain_but_for_passing

    return is_chain_but_for_passing(problem)


@once_per_problem
def memory_of(problem: Problem) -> Memory:
    """What a problem has of it.

    Small problems have modules that can be solved although memory ties them together.
    """
    quickest = int(problem.op_time.sum(axis=0).argmin())
    if problem.op_memory.sum() <= problem.device_memory[quickest]:
        return "enough"
    if problem.op_count >= MANY:
        return "short"
    return "full" if problem.op_count * problem.device_count >= UNDECIDED else "enough"


FREE = {"order": "free"}
"""Of `annealing`: the order of ops is searched too."""

PRICED = {"order": "free", "overfull": "priced"}
"""The same, with a price for what devices have too much on the way."""

STEPS = {"iterations": "20000"}
"""The effort of a search in a run that is counted in iterations."""
