"""What the programs for one input have in common: built, started from a plan, read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from placewright.budget import Budget
from placewright.formulations.latency.incumbent import Incumbent
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.placement import PlacementVariables
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.solvers.mathopt import Program


class Formulation(ABC):
    """A program for a problem: built by its constructor, read by `hint` and `decode`."""

    def __init__(self, instance: Instance, limit: Budget) -> None:
        self.instance = instance
        self.problem = instance.problem
        self.program = Program(limit)
        self.placement = PlacementVariables(self.program, instance)

    @abstractmethod
    def hint(self, incumbent: Incumbent) -> Floats:
        """The value of every variable in the incumbent's schedule."""

    @abstractmethod
    def decode(self, values: Floats) -> Placement:
        """The placement, with its sequence, of a solution."""
