"""A chain of ops in stretches that devices have memory for: a lower bound on latency.

Take the ops v_0, v_1, … that all others lead to or depend on. A *stretch* is a run of them, as long
as can be, on one device and with all that lies between them there too. The device has memory for
all of it. Ops that lie beside some of its ops, and are to be with one of them, run there meanwhile.
From one stretch to the next some tensor is sent, or even there and back (`steps`). So

    T  ≥  Σ over stretches of what they take on their device  +  Σ over changes of what they take,

and a shortest way along the chain is a lower bound: it changes device where it must, for no device
has memory for all. That is more than prices of memory say where devices are equal: those are
content with a mean over plans that have all on one device.

The same holds for any chain of ops each of which leads to the next; what lies beside some of its
ops is left out then. A second chain passes by ops that lie beside much of the longest path, such as
a decoder's first ones, which need nothing of the encoder, or that are to be with one of its ops. A
third passes by light ones too, such as those that work out each layer's positions.

Where devices differ prices say the rest. As in `paths`, for μ ≥ 0 per device the plan pays at most
Σ_d μ_d M_d for all that ops keep; so each stretch is charged μ_d for its bytes, other ops the least
price of a device that takes them, and Σ_d μ_d M_d is given back.
"""

from __future__ import annotations

import numpy as np

from placewright.analysis.comparable import cut_ops, heaviest_path, spans, with_mates
from placewright.analysis.devices import kinds
from placewright.bounds.bound import Bound
from placewright.bounds.latency.chain_program import devices_along
from placewright.bounds.latency.steps import steps_of
from placewright.bounds.latency.ways import Ways
from placewright.budget import Budget, Progress
from placewright.graph import Flags, Floats, Whole
from placewright.problem import LONG_ROUNDING, Problem

SOURCE = "stretches of a chain of ops"
NOTHING = Bound(0.0, SOURCE)
MOST_WORK = 50_000  # ops, and edges between units × kinds of devices, of some 10 µs each
MOST_WORK_ALONE = 200_000  # the same where nobody waits for it
MOST_PLACES = 600
NARROW = 0.2  # of a path, that an op lies beside; wider ones are left out of the second chain
LIGHT = 0.1  # of what ops of the path take that an op lies beside; quicker ones are left out too


def stretches(problem: Problem, most_work: int = MOST_WORK) -> Bound:
    """The bound of the module's text; 0 seconds for graphs that are too large for it."""
    return max((bound for bound, _ in _of_chains(problem, most_work)), key=_value, default=NOTHING)


def prove(
    problem: Problem,
    budget: Budget,
    incumbent: float = float("inf"),
    on_progress: Progress | None = None,
) -> Bound:
    """`stretches` of graphs that are larger, and then devices for whole places of the best chain.

    The program of `chain_program` has its memory full to the last byte that whole places leave,
    which is more than prices say. `incumbent` is the makespan of a plan known.
    """
    found = _of_chains(problem, MOST_WORK_ALONE)
    if not found:
        return NOTHING
    best, ways = max(found, key=lambda each: each[0].value)
    budget.listener.proved(best.value, best.source)
    if best.value >= incumbent * (1 - 2 * LONG_ROUNDING):
        return best
    return max(best, devices_along(problem, ways, budget, incumbent), key=_value)


def _value(bound: Bound) -> float:
    return bound.value


def _of_chains(problem: Problem, most_work: int) -> list[tuple[Bound, Ways]]:
    """The bound of each chain and the ways along it; none for graphs that are too large."""
    unit = problem.op_unit
    apart = np.count_nonzero(unit[problem.edge_producer] != unit[problem.consumers])
    if problem.op_count + apart * len(kinds(problem)[0]) > most_work:
        return []
    return [_along(problem, chain) for chain in _chains(problem) if chain]


def _chains(problem: Problem) -> list[list[int]]:
    """The chains of the module's text, different ones."""
    quickest = np.where(problem.unit_allowed[problem.op_unit], problem.op_time, np.inf).min(axis=1)
    longest = float(quickest.max(initial=0.0)) or 1.0
    path = heaviest_path(problem, quickest + longest * LONG_ROUNDING)
    span = spans(problem, path)
    passed = span[:, 1] - span[:, 0] > NARROW * len(path)
    passed[with_mates(problem, path, span)] = True
    nothing = np.zeros(problem.op_count, dtype=np.bool_)
    chains: list[list[int]] = []
    for left_out in (nothing, passed, passed | _light(path, span, quickest)):
        chain = _shortened(problem, cut_ops(path, span[~left_out]))
        if chain not in chains:
            chains.append(chain)
    return chains


def _light(path: list[int], span: Whole, quickest: Floats) -> Flags:
    """`[op]` whether it lies beside ops of the path that take many times as long together."""
    taken = np.cumsum(np.concatenate([[0.0], quickest[path]]))
    inside = np.clip(span[:, 0] + 1, 0, len(path)), np.clip(span[:, 1], 0, len(path))
    beside = taken[np.maximum(inside[1], inside[0])] - taken[inside[0]]
    return np.asarray(quickest < LIGHT * beside)


def _shortened(problem: Problem, chain: list[int]) -> list[int]:
    """At most `MOST_PLACES` or so of the chain: first what lies inside a run of one unit goes."""
    if len(chain) > MOST_PLACES:
        unit = problem.op_unit[chain]
        apart = np.concatenate([[True], unit[1:] != unit[:-1], [True]])
        chain = np.asarray(chain)[apart[:-1] | apart[1:]].tolist()
    return chain[:: 1 + len(chain) // MOST_PLACES]


def _along(problem: Problem, chain: list[int]) -> tuple[Bound, Ways]:
    """The bound of a chain of ops each of which leads to the next."""
    ways = Ways.of(problem, chain, steps_of(problem, chain))
    best, plain = ways.best_over_prices()
    return Bound(best * (1 - LONG_ROUNDING), SOURCE + " with memory" * (best > plain)), ways
