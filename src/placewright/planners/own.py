"""A planner of the user's own, named ``PACKAGE.MODULE:CLASS`` where a planner's name is expected.

It is judged as any other. What it raises, and what is no proposal, is told in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from traceback import extract_tb
from typing import Any, cast

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import OptionError, PlacewrightError
from placewright.objectives import OBJECTIVES
from placewright.plan import Placement
from placewright.planners.base import Planner, Proposal
from placewright.planners.table import PlannerEntry
from placewright.problem import Problem
from placewright.system.users_code import named


def own_entry(name: str, objective: str) -> PlannerEntry:
    """A row for it, as in the table; nobody knows how long it takes."""
    return PlannerEntry(name, objective, "a planner of your own", "", name, quick=False)


def create_own(name: str, options: Mapping[str, str]) -> Planner:
    """The planner that `name` names, made with its options (texts); OptionError if it is none."""
    place, _, attribute = name.partition(":")
    if not (place and attribute):
        raise OptionError(f"planner '{name}' names no class; write PACKAGE.MODULE:CLASS")
    maker = named(place, attribute)
    if not callable(maker):
        raise OptionError(f"planner '{name}': it is a {type(maker).__name__}, not a class")
    try:
        planner = maker(**options)
    except PlacewrightError:
        raise
    except Exception as error:
        said = f" with -O {', '.join(options)}" if options else ""
        raise OptionError(f"planner '{name}' cannot be made{said}: {_told(error)}") from error
    for what in ("supports", "plan"):
        if not callable(getattr(planner, what, None)):
            raise OptionError(
                f"planner '{name}' has no method '{what}'; see 'Adding a planner' in CONTRIBUTING"
            )
    objective = getattr(planner, "objective", None)
    if objective not in OBJECTIVES:
        raise OptionError(
            f"planner '{name}': its objective is {objective!r}; set it to one of "
            f"{', '.join(OBJECTIVES)}"
        )
    return cast(Planner, _Own(planner, name))


class _Own:
    """Asks the planner, and looks at what it says before anybody uses it."""

    def __init__(self, planner: Any, name: str) -> None:
        self._planner = planner
        self.name = str(getattr(planner, "name", name))
        self.objective = str(planner.objective)
        self.counts_peak = bool(getattr(planner, "counts_peak", False))

    def supports(self, problem: Problem) -> str | None:
        refusal: str | None = self._asked(self._planner.supports, problem)
        return refusal

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        proposal = self._asked(self._planner.plan, problem, budget, seed, on_progress)
        if not (isinstance(proposal, Proposal) and isinstance(proposal.placement, Placement)):
            raise OptionError(
                f"planner '{self.name}' returned a {type(proposal).__name__}; return "
                "Proposal(Placement(device))"
            )
        device = proposal.placement.device
        if device.shape[:1] != (problem.op_count,):
            raise OptionError(
                f"planner '{self.name}' placed {len(device)} ops of {problem.op_count}; give each "
                "op a device"
            )
        wrong = np.argwhere((device < 0) | (device >= problem.device_count))
        if wrong.size:
            op = int(wrong[0, 0])
            raise OptionError(
                f"planner '{self.name}' placed '{problem.op_names[op]}' on device "
                f"{device[tuple(wrong[0])]}; devices go from 0 to {problem.device_count - 1}"
            )
        return proposal

    def _asked(self, method: Any, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except PlacewrightError:
            raise
        except Exception as error:
            raise OptionError(f"planner '{self.name}' failed: {_told(error)}") from error


def _told(error: Exception) -> str:
    """An error in one line, with the place that raised it."""
    frames = extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"
