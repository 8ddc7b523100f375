"""What a planner is, and what it gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.problem import ROUNDING, Problem
from placewright.units import format_bytes


@dataclass(frozen=True)
class Proposal:
    """A planner's answer: a placement and, from exact planners, the bound they proved."""

    placement: Placement
    lower_bound: float = 0.0
    bound_source: str = ""


class Planner(Protocol):
    """One algorithm; its row in the table of `planners` says where it comes from.

    One that heeds memory option ``peak`` by itself says so by a class attribute ``counts_peak``
    that is true. The others are asked as if memory were ``resident``, with less and less of it,
    until the peak of their schedule fits (`solving.propose`).
    """

    name: ClassVar[str]
    objective: ClassVar[str]

    def supports(self, problem: Problem) -> str | None:
        """None, or why this planner cannot take `problem`."""

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        """A placement; InfeasibleError if the planner finds none that fits.

        Pinned units (`Problem.unit_pinned`) must be where they are pinned, their memory set
        aside before any other unit is placed.
        """


def whole_number(planner: str, option: str, text: str | int) -> int:
    """The value of a planner's option; OptionError unless it is a whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise OptionError(f"planner '{planner}': {option} is '{text}'; give a whole number above 0")
    return number


def count_option(planner: str, option: str, text: str) -> int | None:
    """The same in digits alone, None if it is not given."""
    if text and not text.isdecimal():
        raise OptionError(f"planner '{planner}': {option} is '{text}'; give a whole number above 0")
    return whole_number(planner, option, text) if text else None


def one_of(planner: str, option: str, text: str, choices: tuple[str, ...]) -> str:
    """The value of a planner's option; OptionError unless it is one of the choices."""
    if text not in choices:
        raise OptionError(
            f"planner '{planner}': {option} is '{text}'; choose {' or '.join(choices)}"
        )
    return text


def positive_number(planner: str, option: str, text: str | float) -> float:
    """The value of a planner's option; OptionError unless it is a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise OptionError(f"planner '{planner}': {option} is '{text}'; give a number above 0")
    return number


class LatencyPlanner:
    """Shared by planners for objective ``latency`` that take every problem."""

    objective: ClassVar[str] = "latency"
    counts_peak: ClassVar[bool] = False

    def supports(self, problem: Problem) -> str | None:
        return None


class MemoryAccount:
    """Gives units to devices while keeping count of what is free on each.

    Pinned units are placed at once: NoRoomError if they have no room, as units made of several
    may have none that are pinned where one of them is.
    """

    def __init__(self, problem: Problem, planner: str) -> None:
        self.problem = problem
        self.planner = planner
        self.unit_device: Ints = np.full(problem.unit_count, -1, dtype=np.int32)
        self.free = problem.device_memory.copy()
        self.allowed = np.isfinite(problem.unit_time)
        for unit in np.flatnonzero(problem.unit_pinned >= 0):
            device = int(problem.unit_pinned[unit])
            self.place(int(unit), device)
            if self.free[device] < -ROUNDING * problem.device_memory[device]:
                raise no_room(problem, int(unit), self.free, planner)

    def fits(self, unit: int, device: int) -> bool:
        memory = self.problem.unit_memory[unit]
        return bool(self.allowed[unit, device] and memory <= self.free[device])

    def place(self, unit: int, device: int) -> None:
        self.unit_device[unit] = device
        self.free[device] -= self.problem.unit_memory[unit]

    def place_first(self, unit: int, devices: Ints) -> None:
        """On the first of `devices` that can take the unit, unless it is placed already.

        NoRoomError if none can.
        """
        if self.unit_device[unit] >= 0:
            return None
        for device in devices:
            if self.fits(unit, int(device)):
                return self.place(unit, int(device))
        raise no_room(self.problem, unit, self.free, self.planner)

    def placement(self) -> Placement:
        return Placement(self.unit_device[self.problem.op_unit])


class NoRoomError(InfeasibleError):
    """A planner found no device for a unit; the unit may fit if it is placed before others."""

    def __init__(self, message: str, unit: int) -> None:
        super().__init__(message)
        self.unit = unit


def no_room(problem: Problem, unit: int, free: Floats, planner: str) -> NoRoomError:
    op = int(np.flatnonzero(problem.op_unit == unit)[0])
    largest = max((float(free[d]) for d in range(problem.device_count)), default=0.0)
    return NoRoomError(
        f"planner '{planner}' found no device for op '{problem.op_names[op]}': it needs "
        f"{format_bytes(problem.unit_memory[unit])} (the most that is left on one device is "
        f"{format_bytes(largest)}); give the devices more memory or try another planner",
        unit,
    )
