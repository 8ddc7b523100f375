"""Smaller problems from larger ones, and the way back.

A coarsening numbers groups of ops; `contraction.contract` makes one op of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.coarsen.contraction import Contraction
    from placewright.graph import Ints
    from placewright.problem import Problem

COARSENINGS = {
    "none": "plan op by op",
    "fusion": "fuse what an inference engine fuses (GCOF, Moirai Alg. 1)",
    "sequential": "cut a topological order at its best breakpoints (Celeritas Alg. 1)",
    "modules": "contract the modules between cut ops (DiviML §IV-B)",
    "layers": "contract the ops of one layer of the model (Tarnawski et al. §6.2)",
}


def coarsen(problem: Problem, name: str) -> Contraction | None:
    """`problem` coarsened by `name` (a key of `COARSENINGS`), or None for ``none``."""
    check_name(name)
    if name == "none":
        return None
    from placewright.coarsen.contraction import contract

    return contract(problem, _groups(problem, name))


def check_name(name: str) -> None:
    """OptionError unless `name` is a coarsening."""
    if name not in COARSENINGS:
        raise OptionError(f"no coarsening '{name}'; there are {', '.join(COARSENINGS)}")


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
    from placewright.coarsen.modules import module_groups

    return module_groups(problem)
