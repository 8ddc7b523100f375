"""Samples of the costs: factors on the times of ops and transfers, and makespans under them.

A sample draws a factor per op, then one per edge, all independent: exp(noise · z) with z standard
normal (``lognormal``: median 1, standard deviation about `noise` where that is small), or between
1 - noise and 1 + noise, evenly (``uniform``, noise at most 1). A transfer's factor is that of the
first edge, by number, that it serves.
"""

from __future__ import annotations

import numpy as np

from placewright.errors import OptionError
from placewright.graph import Floats, Ints
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency import robust as kernel
from placewright.problem import Problem

DISTRIBUTIONS = ("lognormal", "uniform")


def check_noise(noise: float, samples: int, distribution: str) -> None:
    """OptionError for what no samples can be drawn with."""
    if distribution not in DISTRIBUTIONS:
        raise OptionError(f"distribution is '{distribution}'; choose {', '.join(DISTRIBUTIONS)}")
    most = 1.0 if distribution == "uniform" else 3.0
    if not 0.0 <= noise <= most:
        raise OptionError(f"noise is {noise:g}; give a share from 0 to {most:g}, such as 0.1")
    if samples < 1:
        raise OptionError(f"samples is {samples}; give a whole number above 0")


class Costs:
    """The costs of one problem, varying with `noise`: factors drawn, makespans under them."""

    def __init__(self, problem: Problem, noise: float, distribution: str, seed: int) -> None:
        self.problem = problem
        self.noise = noise
        self.distribution = distribution
        self.seed = seed
        self.items = problem.op_count + problem.edge_count

    def rng(self, *stream: int) -> np.random.Generator:
        """The generator of the seed, or of a stream beside it (numbers above 0)."""
        return np.random.default_rng([self.seed, *stream] if stream else self.seed)

    def factors(self, rng: np.random.Generator, samples: int) -> Floats:
        """`[sample, op, then edge]`, drawn sample by sample."""
        if self.distribution == "uniform":
            return rng.uniform(1.0 - self.noise, 1.0 + self.noise, (samples, self.items))
        found: Floats = np.exp(self.noise * rng.standard_normal((samples, self.items)))
        return found

    def makespans(
        self, device: Ints, sequence: Ints, samples: int, rng: np.random.Generator
    ) -> Floats:
        """`[sample]` seconds of a placement in its sequence (see `plan.Placement`)."""
        arrays, scratch = arrays_of(self.problem), scratch_of(self.problem, 1)
        device, sequence = device.astype(np.int32), sequence.astype(np.int32)  # and writable
        makespan = scratch.makespan[0]
        found = np.empty(samples)
        for first in range(0, samples, kernel.LANES):
            width = min(kernel.LANES, samples - first)
            op_factor, edge_factor = in_lanes(self.factors(rng, width), self.problem.op_count)
            kernel.time_block(
                arrays, device, sequence, op_factor[0], edge_factor[0], scratch, makespan
            )
            found[first : first + width] = makespan[:width]
        return found


def in_lanes(factors: Floats, op_count: int) -> tuple[Floats, Floats]:
    """Factors `[sample, item]` as the kernels take them: [block, op, lane], [block, edge, lane]."""
    samples, items = factors.shape
    blocks = -(-samples // kernel.LANES)
    padded = np.ones((blocks * kernel.LANES, items))
    padded[:samples] = factors
    lanes = padded.reshape(blocks, kernel.LANES, items).transpose(0, 2, 1)
    return (
        np.ascontiguousarray(lanes[:, :op_count]),
        np.ascontiguousarray(lanes[:, op_count:]),
    )


def scratch_of(problem: Problem, blocks: int) -> kernel.Scratch:
    """What the kernels borrow, for samples in so many blocks."""
    n, edges, lanes = problem.op_count, problem.edge_count, kernel.LANES
    return kernel.Scratch(
        op_ready=np.empty((n, lanes)),
        op_finish=np.empty((n, lanes)),
        sent=np.empty(edges, dtype=np.bool_),
        device_free=np.empty((problem.device_count, lanes)),
        channel_free=np.empty((arrays_of(problem).channel_count, lanes)),
        start=np.empty(lanes),
        makespan=np.empty((blocks, lanes)),
        undo_unit=np.empty(problem.unit_count, dtype=np.int32),
        undo_device=np.empty(problem.unit_count, dtype=np.int32),
        undo_sequence=np.empty(n + edges, dtype=np.int32),
        saved=np.zeros(2, dtype=np.int64),
        kept=np.empty(edges, dtype=np.int32),
    )
