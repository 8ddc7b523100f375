"""What the programs for one input have in common: a placement, and a scale."""

from __future__ import annotations

from abc import ABC, abstractmethod

from placewright.budget import Budget
from placewright.formulations.fit import Chosen
from placewright.formulations.latency.incumbent import Incumbent
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.placement import PlacementVariables
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.solvers.mathopt import Program


class LatencyProgram(ABC):
    """`formulation.Rows` of a problem for one input; OutOfTimeError if the limit passes first."""

    def __init__(self, instance: Instance, limit: Budget) -> None:
        self.instance = instance
        self.problem = instance.problem
        self.scale = instance.scale
        self.program = Program(limit)
        self.placement = PlacementVariables(self.program, instance)

    @abstractmethod
    def hint(self, start: Incumbent) -> Floats:
        """The value of every variable in the incumbent's schedule."""

    @abstractmethod
    def decode(self, values: Floats) -> Placement:
        """The placement, with its sequence, of a solution."""

    def forbid(self, chosen: Chosen) -> None:
        """Not all of these together (a cover inequality)."""
        cover = [(self.placement.on[unit][device], 1.0) for unit, device in chosen]
        self.program.row(cover, upper=len(cover) - 1)
