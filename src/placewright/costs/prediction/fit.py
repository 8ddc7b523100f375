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
after Huber). What is left is smoothed over like sizes of the same op.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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
NEAR = 1.0  # of logs: sizes that say something of each other
SMOOTH_PRIOR = 0.7  # samples that a correction of 0 counts as
POWER = 4.0


class Work(NamedTuple):
    """`[op]` seconds of computing at the peak, of moving at the bandwidth, and of moving what calls
    moved since the last one of the same op; outputs for each multiprocessor, `inf` if not known."""

    computing: Floats
    moving: Floats
    before: Floats
    outputs: Floats

    def of(self, chosen: np.ndarray) -> Work:
        return Work(*(column[chosen] for column in self))


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
        slopes = np.stack(
            [(miss(at + step) - residual) / 1e-4 for step in np.eye(len(at)) * 1e-4], 1
        )
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

    `misses` holds, for each op's name, the work of its samples and the logs of how much longer
    they took than its figures say.
    """

    root: Floats
    families: dict[str, Floats]
    ops: dict[str, Floats]
    misses: dict[str, tuple[Work, Floats]]

    def seconds(self, op: str, family: str, work: Work) -> Floats:
        """`[size]` seconds of an op at some sizes."""
        figures = self.ops.get(op, self.families.get(family, self.root))
        found: Floats = seconds_of(figures, work) * np.exp(self._correction(op, work))
        return found

    def _correction(self, op: str, work: Work) -> Floats | float:
        if op not in self.misses:
            return 0.0
        known, missed = self.misses[op]
        near = np.exp(-0.5 * (_distance(work, known) / NEAR) ** 2)
        correction: Floats = (near @ missed) / (near.sum(axis=1) + SMOOTH_PRIOR)
        return correction


def learn(ops: list[str], families: list[str], work: Work, seconds: Floats) -> Efficiency:
    """Fit to samples: the op's name and family, what it had to do, and how long it took."""
    seconds = np.maximum(seconds, 1e-9)
    op_names, family_names = np.array(ops), np.array(families)
    root = fit_figures(work, seconds, ROOT, ROOT_SPREAD)
    of_families, of_ops, misses = {}, {}, {}
    for family in dict.fromkeys(families):
        chosen = family_names == family
        figures = fit_figures(work.of(chosen), seconds[chosen], root, FAMILY_SPREAD)
        of_families[family] = figures
        for op in dict.fromkeys(op_names[chosen].tolist()):
            mine = op_names == op
            known, took = work.of(mine), seconds[mine]
            if len(took) >= FEWEST_OF_OP:
                of_ops[op] = fit_figures(known, took, figures, OP_SPREAD)
            else:
                of_ops[op] = figures
            misses[op] = known, np.log(took / seconds_of(of_ops[op], known))
    return Efficiency(root, of_families, of_ops, misses)


def _distance(these: Work, those: Work) -> Floats:
    """`[these, those]` how far sizes lie apart: the length of the difference of their logs."""
    total = np.zeros((len(these.computing), len(those.computing)))
    for a, b in zip(these[:2], those[:2], strict=True):
        left, right = np.log(np.maximum(a, 1e-12)), np.log(np.maximum(b, 1e-12))
        total += (left[:, None] - right[None, :]) ** 2
    return np.sqrt(total)
