"""The best shares of a split of which at most one stage is replicated, exactly.

Two replicas take the parts w and 1 - w of the inputs. What a device computes is linear in w, and
what it sends and receives is quadratic: a transfer takes the mean over the pairs of devices, and
each replica has its part of that (`simulate.throughput`). So a pass takes the largest of a few
polynomials of degree 2, under ``gpipe`` two passes take the sum of two such, and either is least
at 0, at 1, where two polynomials cross, or where one of them (one of each pass) is level. All these
are tried.

Replicas on all devices send nothing. Replica d takes f_d seconds forward and b_d backward if it has
all inputs, and within limits F and B the part min(F / f_d, B / b_d). For a given F / B the least
limits are those at which the parts come to 1. Between two ratios f_d / b_d the sum F + B is one
linear function of F / B over another, so it is least at such a ratio, at an end, or where B is what
keeping weights equal takes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from placewright.graph import Floats
from placewright.outcome import BACKWARD, FORWARD, Loads
from placewright.plan import Placement
from placewright.problem import ROUNDING, Problem
from placewright.simulate.throughput import load_terms, loads

MOST_DEVICES = 3
"""Of which at most one stage is replicated, and where three are nothing is sent."""

SAMPLES = np.array([0.25, 0.5, 0.75])  # shares that tell a polynomial of degree 2
SMALLEST = 1e-9  # share that a replica takes at least
FITTED = 1e-9  # relative; rounding of polynomials


def best_shared(problem: Problem, placement: Placement) -> tuple[Placement, float]:
    """The placement with the best shares, and seconds: none of `SMALLEST` or more are better.

    A replica that is better with none is another split, without it. For problems of at most
    `MOST_DEVICES` devices, with option `shares` unequal.
    """
    if not placement.replicas:
        value = loads(problem, placement).value
        return placement, value * (1 - ROUNDING)
    (stage,) = placement.replicas
    if len(stage) == 2:
        return _best_of_two(problem, placement)
    return _best_of_all(problem, placement)


def _shared(placement: Placement, shares: Floats) -> Placement:
    kept = np.maximum(shares / shares.sum(), SMALLEST)
    return replace(placement, replica_shares=(tuple((kept / kept.sum()).tolist()),))


# -- two replicas ----------------------------------------------------------------------------------


def _best_of_two(problem: Problem, placement: Placement) -> tuple[Placement, float]:
    at_samples = [
        loads(problem, _shared(placement, np.array([share, 1 - share]))) for share in SAMPLES
    ]
    passes = [
        _polynomials(np.stack([_terms(problem, found, each) for found in at_samples]))
        for each in _passes(problem)
    ]
    candidates = _candidates(passes)
    powers = np.stack([candidates**2, candidates, np.ones_like(candidates)])
    values = sum((each @ powers).max(axis=0) for each in passes)
    share = float(candidates[values.argmin()])
    return _shared(placement, np.array([share, 1 - share])), float(values.min()) * (1 - FITTED)


def _passes(problem: Problem) -> list[list[int]]:
    """The passes that have one limit each."""
    if problem.options.schedule == "gpipe":
        return [[FORWARD], [BACKWARD]]
    return [[FORWARD, BACKWARD]]


def _terms(problem: Problem, found: Loads, passes: list[int]) -> Floats:
    """Seconds of which the largest is what these passes take."""
    parts = (found.compute, found.incoming, found.outgoing)
    terms = load_terms(problem.options, *(each[passes].sum(axis=0) for each in parts))
    if BACKWARD not in passes:
        return np.concatenate(terms)
    if problem.options.load == "sum":
        return terms[0] + found.sync
    return np.concatenate([*terms, found.sync])


def _polynomials(terms: Floats) -> Floats:
    """``[term, power]`` coefficients, highest power first, of ``terms[sample, term]``."""
    found = np.linalg.solve(np.vander(SAMPLES, 3), terms).T
    return np.unique(found.astype(np.float64), axis=0)


def _candidates(passes: list[Floats]) -> Floats:
    """Shares among which the best one is."""
    crossing = [
        one - other for polynomials in passes for one, other in combinations(polynomials, 2)
    ]
    sums = passes[0] if len(passes) == 1 else (passes[0][:, None] + passes[1][None]).reshape(-1, 3)
    roots = [np.array([0.0, 1.0])]
    if crossing:
        roots.append(_roots(np.array(crossing)))
    with np.errstate(divide="ignore", invalid="ignore"):
        roots.append(-sums[:, 1] / (2 * sums[:, 0]))
    found = np.concatenate(roots)
    inside: Floats = found[(found >= 0.0) & (found <= 1.0)]
    return inside


def _roots(polynomials: Floats) -> Floats:
    """Real roots of ``polynomials[k]`` of degree 2, highest power first; NaN among them."""
    a, b, c = polynomials.T
    with np.errstate(divide="ignore", invalid="ignore"):
        # The root that loses no digits first; the other one from their product, c / a.
        q = -0.5 * (b + np.copysign(np.sqrt(b * b - 4 * a * c), b))
        return np.concatenate([q / a, c / q])


# -- replicas on all devices -----------------------------------------------------------------------


def _best_of_all(problem: Problem, placement: Placement) -> tuple[Placement, float]:
    (stage,) = placement.replicas
    whole = np.array([problem.op_time[:, each] for each in stage])  # all ops are on the stage
    backward = problem.is_backward
    seconds = np.stack([whole[:, ~backward].sum(axis=1), whole[:, backward].sum(axis=1)])
    sync = float(loads(problem, placement).sync[stage[0]])
    candidates = [_shared(placement, each) for each in _shares_of_all(seconds, sync)]
    values = [loads(problem, each).value for each in candidates]
    best = int(np.argmin(values))
    return candidates[best], values[best] * (1 - FITTED)


def _shares_of_all(seconds: Floats, sync: float) -> list[Floats]:
    """Shares among which the best are, of replicas with ``seconds[pass, replica]``."""
    total = seconds.sum(axis=0)
    if not total.all():  # one that takes no time takes all inputs
        return [np.where(total == 0, 1.0, 0.0)]
    forward, backward = np.maximum(seconds, ROUNDING * total)
    found = [1 / total, 1 / forward, 1 / backward]
    found += [np.minimum(ratio / forward, 1 / backward) for ratio in forward / backward]
    if sync > 0:
        found.append(np.minimum(_least_limit(forward, sync / backward) / forward, sync / backward))
    return found


def _least_limit(forward: Floats, most: Floats) -> float:
    """The least F with Σ min(F / forward, most) ≥ 1; if ``most`` are too little, some F."""
    for limit in np.sort(forward * most):
        if np.minimum(limit / forward, most).sum() >= 1.0:
            full = forward * most < limit
            return float((1.0 - most[full].sum()) / (1.0 / forward[~full]).sum())
    return float((forward * most).max())
