"""Lower bounds on the latency of a single run by search: regions, chains of them, cases, prices.

A graph with n ops has no schedule shorter than a part of it has, and none shorter than a chain of
parts that must follow one another. Here such parts, the *regions* between two ops, are found from
where paths part and meet (`candidates`); each is bounded for every pair of devices of its ends
(`regions`), those that are the same but for their place once (`isomorphic`). The small ones are
solved, large ones bounded more closely (`solving`), also by which devices get a copy of the tensor
that they begin with (`fan_out`) and when it arrives, with time in slots and equal branches looked
at once (`slots`, `forest`). Paths over ops and regions give a bound on the whole (`paths`). What is
beside the longest such path, its load on devices and channels and the memory are priced together
with it (`lagrangian`), in cases by the devices of ops that the path shares with what is beside it
(`cases`).

Every statement holds for each transfer unit and contention; of memory only the bytes that ops
keep are counted, which ``peak`` needs too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.bounds.bound import Bound

if TYPE_CHECKING:
    from placewright.budget import Budget, Progress
    from placewright.problem import Problem

__all__ = ["prove", "warm_up_bounds"]


def prove(
    problem: Problem,
    budget: Budget,
    incumbent: float = float("inf"),
    on_progress: Progress | None = None,
) -> Bound:
    """The best bound proved within the budget; the listener hears of each that is better.

    `incumbent`, the makespan of a plan known, ends the search where nothing is left to prove.
    Objective ``latency`` only. Returns as soon as it has nothing to add.

    >>> prove(problem, Budget(10.0)).value <= solve(problem, "heft").value
    True
    """
    from placewright.bounds.latency.relaxation.search import Search
    from placewright.budget import no_progress

    return Search(problem, budget, incumbent, on_progress or no_progress).run()


def warm_up_bounds(problem: Problem) -> None:
    """Have every kernel compiled, on a small problem; see `relaxation.rehearsal`."""
    from placewright.bounds.latency.relaxation.warm_up import warm_up_bounds

    warm_up_bounds(problem)
