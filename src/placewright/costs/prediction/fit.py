"""How long an op takes by what it has to do: a roofline whose figures are fitted to measurements.

An op that computes for x seconds at the device's peak and moves its bytes in y seconds at the
device's bandwidth takes

    t = o (1 + d w / (w + v)) + ((a u x)⁴ + m(y)⁴)^¼,    m(y) = b min(y, z) + c max(y - z, 0),
    u = (1 + (e / n)⁴)^¼

seconds: `o` for being called, up to 1 + d times as much where calls since the last one of the same
op moved so many bytes (in w seconds) that little of what calling it needs is left in the caches;
then the longer of computing, at 1/a of the peak, and moving, at 1/b of the bandwidth from caches
and 1/c of it beyond what they hold. For large ops it becomes a line, so it extrapolates to sizes
nobody measured. Since x, y and w are seconds at the peaks of the device, what is fitted on one
device says something about others of its class.

A GPU computes blocks of outputs in waves, a block per multiprocessor (wave scaling, as in Habitat,
Yu et al. 2021): an op with fewer outputs than a wave leaves multiprocessors idle, and is no faster
on a GPU that has more of them. With n outputs for each multiprocessor it computes u times as long
as it would with all of them busy, which takes e outputs for each. Where the multiprocessors are not
known n is infinite and u is 1.

Few ops are measured at many sizes, so the figures of an op are drawn to those of its family,
and the family's to those of all ops, as much as there is too little to tell them apart (a maximum
a posteriori estimate with normal priors of log figures, by Levenberg and Marquardt, with weights
after Huber). What is left is smoothed over like sizes of an op and of its family (`misses`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.costs.prediction.misses import Misses, misses_of
from placewright.costs.prediction.work import Work
from placewright.graph import Floats

FIGURES = ("overhead", "computing", "cached", "moving", "cache", "cold", "eviction", "wave")
# Of all ops: where nothing is known, and how far off that may be (of logs, natural).
# A block of a matrix product is usually one of 128 x 128 outputs or half of that.
ROOT = np.log([6e-6, 2.0, 1.0, 1.7, 2e-4, 2.0, 2e-4, 8192.0])
ROOT_SPREAD = np.array([1.5, 1.0, 1.0, 1.0, 1.5, 1.5, 1.5, 1.0])
FAMILY_SPREAD = np.array([0.8, 0.8, 0.8, 0.8, 0.8, 0.5, 0.3, 0.8])
OP_SPREAD = np.array([0.5, 0.5, 0.5, 0.5, 0.3, 0.3, 0.2, 0.5])
NOISE = 0.15  # of the log of a measured time, beside what sizes explain
OUTLIER = 2.0  # noises; a sample further off counts less (Huber)
FEWEST_OF_OP = 6  # samples for figures of its own; what fewer say is smoothed over
STEPS = 25
SLOPE_STEP = 1e-4
POWER = 4.0


def seconds_of(log_figures: Floats, work: Work) -> Floats:
    """The formula of this module: `[op]` seconds, `log_figures` as `FIGURES` has them."""
    overhead, computing, cached, moving, cache, cold, eviction, wave = np.exp(log_figures)
    hot = np.minimum(work.moving, cache)
    moved = cached * hot + moving * (work.moving - hot)
    idle = (1.0 + (wave / work.outputs) ** POWER) ** (1.0 / POWER)
    computed = computing * work.computing * idle
    longest, least = np.maximum(computed, moved), np.minimum(computed, moved)
    ratio = np.divide(least, longest, out=np.zeros_like(longest), where=longest > 0)
    calling = overhead * (1.0 + cold * work.before / (work.before + eviction))
    found: Floats = calling + longest * (1.0 + ratio**POWER) ** (1.0 / POWER)
    return found


def fit_figures(work: Work, seconds: Floats, prior: Floats, spread: Floats) -> Floats:
    """The log figures that explain `seconds` best, drawn to `prior` (both as `FIGURES`)."""
    target = np.log(seconds)

    def miss(at: Floats) -> Floats:
        found: Floats = (np.log(seconds_of(at, work)) - target) / NOISE
        return found

    def cost(residual: Floats, at: Floats) -> float:
        size = np.abs(residual)
        huber = np.where(size <= OUTLIER, size**2, 2 * OUTLIER * size - OUTLIER**2)
        return float(huber.sum() + (((at - prior) / spread) ** 2).sum())

    at, damping = prior.copy(), 1.0
    residual = miss(at)
    value = cost(residual, at)
    for _ in range(STEPS):
        steps = np.eye(len(at)) * SLOPE_STEP
        slopes = np.stack([(miss(at + step) - residual) / SLOPE_STEP for step in steps], 1)
        weight = np.minimum(1.0, OUTLIER / np.maximum(np.abs(residual), 1e-12))
        curvature = slopes.T @ (weight[:, None] * slopes) + np.diag(spread**-2.0)
        downhill = slopes.T @ (weight * residual) + (at - prior) / spread**2
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), downhill)
        there = at - np.clip(step, -1.0, 1.0)
        new = miss(there)
        if (lower := cost(new, there)) < value:
            done = value - lower < 1e-6 * value
            at, residual, value, damping = there, new, lower, damping / 4
            if done:
                break
        else:
            damping *= 8
    return at


@dataclass(frozen=True)
class Efficiency:
    """What was learnt of one class of devices: figures of all ops, of families and of ops.

    `misses` says of each family what its figures and those of its ops leave unexplained.
    """

    root: Floats
    families: dict[str, Floats]
    ops: dict[tuple[str, str], Floats]
    misses: dict[str, Misses]

    def seconds(self, op: str, family: str, work: Work) -> Floats:
        """`[size]` seconds of an op at some sizes."""
        found = seconds_of(self.figures(op, family), work)
        if family in self.misses:
            found *= np.exp(self.misses[family].of(op, work))
        return found

    def figures(self, op: str, family: str) -> Floats:
        """Those of the op, else those of its family, else those of all ops."""
        return self.ops.get((family, op), self.families.get(family, self.root))


def learn(ops: list[str], families: list[str], work: Work, seconds: Floats) -> Efficiency:
    """Fit to samples: the op's name and family, what it had to do, and how long it took."""
    seconds = np.maximum(seconds, 1e-9)
    op_names, family_names = np.array(ops), np.array(families)
    found = Efficiency(fit_figures(work, seconds, ROOT, ROOT_SPREAD), {}, {}, {})
    for family in dict.fromkeys(families):
        chosen = np.flatnonzero(family_names == family)
        names, known, took = op_names[chosen], work.of(chosen), seconds[chosen]
        of_family = fit_figures(known, took, found.root, FAMILY_SPREAD)
        found.families[family] = of_family
        explained = np.empty(len(chosen))
        for op in dict.fromkeys(names.tolist()):
            mine = np.flatnonzero(names == op)
            figures = of_family
            if len(mine) >= FEWEST_OF_OP:
                figures = fit_figures(known.of(mine), took[mine], of_family, OP_SPREAD)
            found.ops[family, op] = figures
            explained[mine] = seconds_of(figures, known.of(mine))
        found.misses[family] = misses_of(names, known, np.log(took / explained))
    return found
