"""Kinds of devices: those that are alike count as one with a number of them."""

from __future__ import annotations

import numpy as np

from placewright.analysis.devices import alike, restricted
from placewright.graph import Floats, Ints
from placewright.problem import Problem, once_per_problem


@once_per_problem
def kinds(problem: Problem) -> tuple[Ints, Ints]:
    """`analysis.devices.alike`, once: it looks at all times of all devices."""
    return alike(problem)


def one_of_each(problem: Problem) -> tuple[Problem, Floats]:
    """The problem on the first device of each kind, and `[kind]` how many there are of it."""
    first, class_of = kinds(problem)
    count = np.bincount(class_of).astype(np.float64)
    if len(first) == problem.device_count:
        return problem, count
    return restricted(problem, first).problem, count  # kinds are numbered by their first device
