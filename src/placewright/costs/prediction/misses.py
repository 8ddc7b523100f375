"""What figures leave unexplained: a Gaussian process over the sizes of ops (kriging).

The log of how much longer an op took than its figures say is taken for the sum of two smooth
functions of its size, one for all ops of a family and one for each op, and of noise. Both are
normal with mean 0, and alike where sizes are: exp(-d²/2), where d is the length of the difference
of the logs of what is computed, what is moved and what was moved before, in units of `LENGTH`. Far
from all that was measured the figures alone count. Rasmussen & Williams 2006, §2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.costs.prediction.work import Work
from placewright.graph import Floats

OF_FAMILY, OF_OP = 0.15, 0.4  # standard deviations of both functions, of natural logs
NOISE = 0.15
LENGTH = 2.0  # of natural logs
NOTHING = 1e-5  # seconds of computing or moving that are as good as none
LARGEST = 1.0  # a miss beyond which a sample says no more
MOST = 1_000  # samples of a family that are looked at, drawn at random if there are more


@dataclass(frozen=True)
class Misses:
    """Of one family: the samples' ops and sizes, and what each of them counts."""

    ops: np.ndarray
    sizes: Floats
    weights: Floats

    def of(self, op: str, work: Work) -> Floats:
        """`[size]` how far off an op of this family may be expected to be, as a log."""
        sizes, place = np.unique(_sizes(work), axis=0, return_inverse=True)
        same = self.ops[None] == op
        found: Floats = _alike(sizes, self.sizes, same) @ self.weights
        return found[place.ravel()]


def misses_of(ops: np.ndarray, work: Work, missed: Floats) -> Misses:
    """From the samples of a family: ops' names, their work, and what figures missed of each."""
    if len(ops) > MOST:
        kept = np.sort(np.random.default_rng(0).permutation(len(ops))[:MOST])
        ops, work, missed = ops[kept], work.of(kept), missed[kept]
    sizes = _sizes(work)
    covariance = _alike(sizes, sizes, ops[:, None] == ops[None])
    covariance[np.diag_indices(len(ops))] += NOISE**2
    weights = np.linalg.solve(covariance, np.clip(missed, -LARGEST, LARGEST))
    return Misses(ops, sizes, np.asarray(weights, dtype=np.float64))


def _sizes(work: Work) -> Floats:
    """`[sample, 3]` logs, in units of `LENGTH`."""
    columns = np.stack([work.computing, work.moving, work.before], axis=1)
    found: Floats = np.log(np.maximum(columns, NOTHING)) / LENGTH
    return found


def _alike(these: Floats, those: Floats, same_op: np.ndarray) -> Floats:
    """`[these, those]` covariances."""
    squares = (these**2).sum(1)[:, None] + (those**2).sum(1)[None] - 2 * these @ those.T
    near = np.exp(-0.5 * np.maximum(squares, 0.0))
    found: Floats = near * (OF_FAMILY**2 + OF_OP**2 * same_op)
    return found
