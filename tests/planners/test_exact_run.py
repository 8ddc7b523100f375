"""The outline of exact planners, with a formulation that lists its placements."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.formulations.formulation import Valued
from placewright.plan import Placement
from placewright.planners.exact import ExactRun
from placewright.solvers.running import Answer
from tests.builders import chain


class Listed:
    """Placements by value; what is forbidden is left out."""

    def __init__(self, values):
        self.values, self.asked = values, 0

    def hint(self, start):
        pass

    def solve(self, limit, listener):
        self.asked += 1
        best = min(self.values, key=self.values.get, default=None)
        if best is None:
            return Answer(None, math.inf, complete=True)
        return Answer(best, self.values[best], complete=True)

    def decode(self, solution):
        return Placement(np.array(solution, dtype=np.int32))

    def forbid(self, chosen):
        del self.values[tuple(device for _, device in sorted(chosen))]


def run_of(useless, *, goes_on, best=None):
    """Placements in `useless` do not fit when they are timed; others take what the key says."""
    formulation = Listed({(0, 0): 1.0, (0, 1): 2.0, (1, 1): 3.0})
    values = dict(formulation.values)

    def judge(found, best):
        key = tuple(found.device.tolist())
        if key in useless or (best is not None and values[key] >= best.value):
            return best
        return Valued(found, values[key])

    problem = chain([0.0, 0.0], [math.inf, math.inf])
    run = ExactRun(problem, Budget(), "listed", judge, best, goes_on=goes_on)
    assert run.run(lambda: formulation)
    return run, formulation


def test_after_an_optimum_that_does_not_fit_the_next_best_is_found_and_the_bound_stays():
    run, formulation = run_of([(0, 0), (0, 1)], goes_on=True)
    assert (run.value, run.bound.value, formulation.asked) == (3.0, 1.0, 3)


def test_that_nothing_is_left_proves_nothing_where_placements_were_forbidden():
    run, _ = run_of([(0, 0), (0, 1), (1, 1)], goes_on=True)
    assert run.best is None and not run.infeasible and run.bound.value == 1.0
    with pytest.raises(InfeasibleError, match="does not fit when it is timed"):
        run.proposal("listed")


def test_a_plan_known_before_is_kept_unless_a_better_one_fits():
    known = Valued(Placement(np.array([1, 1], dtype=np.int32)), 3.0)
    run, _ = run_of([(0, 0)], goes_on=True, best=known)
    assert (run.value, run.bound.value) == (2.0, 1.0)
    run, formulation = run_of([(0, 0)], goes_on=False, best=known)
    assert (run.best, run.bound.value, formulation.asked) == (known, 1.0, 1)
