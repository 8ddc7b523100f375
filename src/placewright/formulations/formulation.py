"""What every formulation of a problem has: build, hint, solve, decode, forbid.

It is built by its constructor, which raises OutOfTimeError where its time limit passes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from placewright.budget import Budget
from placewright.formulations.fit import Chosen
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.solvers.mathopt import RELATIVE_GAP, Program, safe_bound, solve_program
from placewright.solvers.running import Answer

Start = TypeVar("Start", contravariant=True)
Solution = TypeVar("Solution")
Heard = TypeVar("Heard", contravariant=True)


class Timed(Protocol):
    """A plan and the seconds it takes."""

    @property
    def placement(self) -> Placement: ...

    @property
    def value(self) -> float: ...


@dataclass(frozen=True, eq=False)
class Valued:
    """A plan of which nothing more than its value is needed."""

    placement: Placement
    value: float


class Listener(Protocol[Heard]):
    """Who hears of what is found and proved, in seconds, while a solver runs."""

    def found(self, solution: Heard) -> None: ...

    def proved(self, lower_bound: float) -> None: ...


class Formulation(Protocol[Start, Solution]):
    """A program for a problem, whichever solver it is for; `Start` is a plan with its times."""

    def hint(self, start: Start) -> None:
        """Begin from a plan."""

    def solve(self, limit: Budget, listener: Listener[Solution]) -> Answer[Solution]:
        """The best found by the end of `limit`, and seconds that no plan can beat.

        Infinite where no plan is within the horizon, if that is proved without tolerances.
        """

    def decode(self, solution: Solution) -> Placement:
        """The placement, with its sequence, of a solution."""

    def forbid(self, chosen: Chosen) -> None:
        """Not all of these together (a cover inequality).

        They overflow a device by a solver's tolerance, or are a placement that does not fit when
        it is timed.
        """


class Rows(Protocol[Start]):
    """A formulation as a mixed-integer program, before it has a solver; `scale` is in seconds."""

    program: Program
    scale: float

    def hint(self, start: Start) -> Floats | None:
        """The value of every variable in a plan; None if it has no such values."""

    def decode(self, values: Floats) -> Placement: ...

    def forbid(self, chosen: Chosen) -> None: ...


@dataclass(frozen=True)
class MathOpt:
    """A solver of MathOpt: its name, a limit on branch-and-bound nodes, a seed, a relative gap."""

    solver: str
    nodes: int | None = None
    seed: int = 0
    gap: float = RELATIVE_GAP


class Programmed(Generic[Start]):
    """Rows with a solver of MathOpt."""

    def __init__(self, rows: Rows[Start], mathopt: MathOpt) -> None:
        self.rows, self.mathopt = rows, mathopt
        self.values: Floats | None = None

    def hint(self, start: Start) -> None:
        self.values = self.rows.hint(start)

    def solve(self, limit: Budget, listener: Listener[Floats]) -> Answer[Floats]:
        how, program = self.mathopt, self.rows.program
        answer = solve_program(
            program, how.solver, limit.left, self.values, how.nodes, how.seed, how.gap,
            listener.found,
        )  # fmt: skip
        bound = safe_bound(answer) * self.rows.scale
        return Answer(answer.values, bound, answer.complete)

    def decode(self, solution: Floats) -> Placement:
        return self.rows.decode(solution)

    def forbid(self, chosen: Chosen) -> None:
        self.rows.forbid(chosen)
