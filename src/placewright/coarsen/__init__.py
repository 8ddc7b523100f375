"""Smaller problems from larger ones, and the way back.

Most coarsenings number groups of ops, and `contraction.contract` makes one op of each; ``repeats``
leaves out blocks that are like others (`shortening`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from placewright.errors import OptionError
from placewright.options import check_kind

if TYPE_CHECKING:
    from placewright.graph import Ints
    from placewright.plan import Placement
    from placewright.problem import Problem

COARSENINGS = {
    "none": "plan op by op",
    "fusion": "fuse what an inference engine fuses (GCOF, Moirai Alg. 1)",
    "sequential": "cut a topological order at its best breakpoints (Celeritas Alg. 1)",
    "modules": "contract the modules between cut ops (DiviML §IV-B)",
    "layers": "contract the ops of one layer of the model (Tarnawski et al. §6.2)",
    "units": "contract what must be together, such as the blocks of --granularity block",
    "repeats": "plan few of the equal blocks in a row, and all like them (for latency)",
}


class Coarser(Protocol):
    """A smaller `problem`, and how placements become those of the larger one and back."""

    @property
    def problem(self) -> Problem: ...

    def expand(self, placement: Placement) -> Placement: ...

    def project(self, placement: Placement) -> Placement | None:
        """For objective ``latency``; None where it does not fit."""


@dataclass(frozen=True, eq=False)
class Chain:
    """One coarsening after another."""

    first: Coarser
    second: Coarser

    @property
    def problem(self) -> Problem:
        return self.second.problem

    def expand(self, placement: Placement) -> Placement:
        return self.first.expand(self.second.expand(placement))

    def project(self, placement: Placement) -> Placement | None:
        between = self.first.project(placement)
        return None if between is None else self.second.project(between)


def coarsen(problem: Problem, name: str) -> Coarser | None:
    """`problem` coarsened by `name`, or None for ``none``.

    The name is a key of `COARSENINGS`, or several, one after another: ``repeats+fusion``.
    OptionError where a coarsening does not apply.
    """
    check_name(name)
    coarser: Coarser | None = None
    for part in name.split("+"):
        following = _coarsen(coarser.problem if coarser else problem, part)
        coarser = Chain(coarser, following) if coarser and following else following or coarser
    return coarser


def check_name(name: str) -> None:
    """OptionError unless `name` is a coarsening, or several."""
    check_kind(name, str, "coarsening", "its name, or 'none'")
    for part in name.split("+"):
        if part not in COARSENINGS:
            raise OptionError(
                f"no coarsening '{part}'; there are {', '.join(COARSENINGS)}, and several one "
                "after another, as in repeats+fusion"
            )


def _coarsen(problem: Problem, name: str) -> Coarser | None:
    if name == "none":
        return None
    if name == "repeats":
        from placewright.coarsen.shortening import shorten

        return shorten(problem)
    from placewright.coarsen.contraction import contract

    return contract(problem, _groups(problem, name))


def _groups(problem: Problem, name: str) -> Ints:
    if name == "fusion":
        from placewright.coarsen.fusion import fusion_groups

        return fusion_groups(problem)
    if name == "sequential":
        from placewright.coarsen.sequential import sequential_groups

        return sequential_groups(problem)
    if name == "layers":
        from placewright.coarsen.layers import layer_groups

        return layer_groups(problem)
    if name == "units":
        from placewright.coarsen.units import unit_groups

        return unit_groups(problem)
    from placewright.analysis.modules import module_groups

    return module_groups(problem)
