"""Times of randomly wired networks as DiviML's tables have them: drawn, not measured.

The paper measured every op on its three devices and published sums only. Here each op draws its
times such that the sums are those of the tables; which op got which time is made up.

From the paper:

- seconds of the default network on the A100 alone: 211.7 ms (Table I, best device, 1-chan);
- the CPU takes 7.10 times that, the T4 1.26 times (Table II, RWNNs), in every network exactly;
- a batch of 16 takes 16 / 54 s on the A100 (Table IV, best device, 1-chan).

Drawn, so that Table I's other columns come out alike. There MET gains next to nothing over the best
device, so hardly an op is faster elsewhere; yet three devices are more than twice as fast as one,
so the CPU must be nearly as good as a GPU at much of the work:

- an op is light or heavy. Elementwise ops, norms and averages are light, convolutions and matrix
  products heavy; a whole unit is heavy with probability `HEAVY_UNITS`. Light ops cost the devices
  about the same, the starting of a kernel; the CPU is far slower at heavy ones, the T4 somewhat;
- an op's seconds on the A100 are its type's mean, times 0.5 to 1.5.

The draws use only `random.Random.random`: the same spec gives the same times everywhere.

>>> from placewright.importers import zoo
>>> graph = zoo.build("rwnn?times=diviml")
>>> [round(1e3 * float(graph.times[kind].sum())) for kind in (CPU, T4, A100)]
[1510, 268, 213]
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Graph

Bools = NDArray[np.bool_]

CPU, T4, A100 = "Xeon Skylake 2.0 GHz", "T4", "A100 40GB"  # the kinds of cluster ``diviml``

SLOWER = {CPU: 7.10, T4: 1.26}
"""Times a network takes on the device over those on the A100 (Table II)."""

UNIT_SECONDS = 0.632e-3  # on the A100: 211.7 ms over 10 modules of 33 units and an average
_SHARE_OF_UNIT = {"unit": 1.0, "stem": 1.0, "mean": 0.5}
_PART_OF_UNIT = 0.2  # one of sum, relu, two convolutions, batch norm; and the head's ops

HEAVY_UNITS = 0.3
_HEAVY = {"unit": HEAVY_UNITS, "stem": 1.0, "conv": 1.0, "matmul": 1.0}  # probability, else 0

_LIGHT_RATIO = {CPU: (0.99, 1.30), T4: (1.00, 1.10)}  # to the A100, drawn between these
_HEAVY_SPREAD = (0.75, 1.25)  # around the ratio that makes the sums those of Table II

_GROWTH_LIGHT = {CPU: 0.01, T4: 0.01, A100: 0.01}
_GROWTH_HEAVY = {CPU: 1.0, T4: 0.12, A100: 0.065}

BATCHES = (4, 8, 12, 16, 32, 64, 96, 128)
"""The quarters of the paper's batches, 16 and 128 (§V-C)."""


def diviml_times(graph: Graph, seed: int, inputs: int = 1) -> dict[str, Floats]:
    """Kind of device → `[op]` seconds of a run on `inputs`; ``KIND@SIZE`` for `SIZE` such runs.

    The kinds are those of cluster ``diviml``; the sizes are `BATCHES`.
    """
    single, heavy = _draw(graph.op_types, random.Random(seed))
    times = {kind: batch_time(each, heavy, kind, inputs) for kind, each in single.items()}
    for kind, each in single.items():
        for size in BATCHES:
            times[f"{kind}@{size}"] = batch_time(each, heavy, kind, size * inputs)
    return times


def batch_time(single: Floats, heavy: Bools, kind: str, batch: int) -> Floats:
    """`[op]` seconds for `batch` inputs at once on a device of `kind`, from those for one.

    They grow by a fixed share of `single` for each further input: little where starting the op is
    what costs (light ops), fully for heavy ops on the CPU, in between on GPUs, such that the A100
    takes 1.40 times as long for 16 inputs as for one (Tables I and IV).
    """
    growth = np.where(heavy, _GROWTH_HEAVY[kind], _GROWTH_LIGHT[kind])
    times: Floats = single * (1.0 + growth * (batch - 1))
    return times


def _draw(types: Sequence[str], draw: random.Random) -> tuple[Mapping[str, Floats], Bools]:
    """Kind → `[op]` seconds for one input, and which ops are heavy."""

    def between(low: float, high: float) -> float:
        return low + (high - low) * draw.random()

    count = len(types)
    a100, heavy = np.zeros(count), np.zeros(count, dtype=bool)
    ratio = {kind: np.zeros(count) for kind in SLOWER}
    for op, type in enumerate(types):
        mean = UNIT_SECONDS * _SHARE_OF_UNIT.get(type, _PART_OF_UNIT)
        a100[op] = mean * between(0.5, 1.5)
        heavy[op] = draw.random() < _HEAVY.get(type, 0.0)
        for kind in SLOWER:
            limits = _HEAVY_SPREAD if heavy[op] else _LIGHT_RATIO[kind]
            ratio[kind][op] = between(*limits)
    times = {kind: a100 * _balanced(each, heavy, a100, kind) for kind, each in ratio.items()}
    return {**times, A100: a100}, heavy


def _balanced(ratio: Floats, heavy: Bools, a100: Floats, kind: str) -> Floats:
    """The ratios with the heavy ops' scaled such that the network's is that of Table II.

    There always are heavy ops: the stem and the classifier.
    """
    spent = ratio * a100
    scale = (SLOWER[kind] * a100.sum() - spent[~heavy].sum()) / spent[heavy].sum()
    balanced: Floats = np.where(heavy, ratio * scale, ratio)
    return balanced
