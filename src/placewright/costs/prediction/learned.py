"""What was learnt, with how far it is off on what it has not seen."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.costs.prediction.fit import Efficiency, learn
from placewright.costs.prediction.samples import Samples
from placewright.costs.prediction.work import Work
from placewright.graph import Flags, Floats

FOLDS = 5
LEAST_SPREAD = 0.05
SPREAD_PRIOR = 5  # samples of a family that all families' spread counts as


@dataclass(frozen=True)
class Learned:
    """Efficiencies, and by family the standard deviation of log(measured / predicted)."""

    efficiency: Efficiency
    spreads: dict[str, float]
    spread: float

    def seconds(self, ops: Sequence[str], families: Sequence[str], work: Work) -> Floats:
        """`[op]` seconds."""
        return predicted(self.efficiency, ops, families, work)

    def spread_of(self, families: Sequence[str]) -> Floats:
        """`[op]` spread of what `seconds` says."""
        return np.array([self.spreads.get(each, self.spread) for each in families])


def learned_from(samples: Samples) -> Learned:
    """Learn from all samples; the spread is that of folds left out in turn."""
    errors = np.empty(len(samples))
    fold = np.array([zlib.crc32(text.encode()) % FOLDS for text in samples.signatures])
    for number in range(FOLDS):
        out = fold == number
        if out.any() and not out.all():
            errors[out] = log_errors(samples, out)
    spread = _robust_spread(errors, LEAST_SPREAD, 0)
    names = np.array(samples.families)
    spreads = {
        family: _robust_spread(errors[names == family], spread, SPREAD_PRIOR)
        for family in dict.fromkeys(samples.families)
    }
    return Learned(_learn(samples), spreads, spread)


def log_errors(samples: Samples, out: Flags) -> Floats:
    """`[left out]` log(measured / predicted) of the samples `out`, learning from the others."""
    efficiency, asked = _learn(samples.where(~out)), samples.where(out)
    found = predicted(efficiency, asked.ops, asked.families, asked.work)
    errors: Floats = np.log(np.maximum(asked.seconds, 1e-9) / found)
    return errors


def predicted(
    efficiency: Efficiency, ops: Sequence[str], families: Sequence[str], work: Work
) -> Floats:
    """`[op]` seconds, each op's name looked up once."""
    seconds = np.empty(len(ops))
    places: dict[str, list[int]] = {}
    for place, (op, family) in enumerate(zip(ops, families, strict=True)):
        places.setdefault(f"{family} {op}", []).append(place)
    for some in places.values():
        first = some[0]
        seconds[some] = efficiency.seconds(ops[first], families[first], work.of(np.array(some)))
    return seconds


def _learn(samples: Samples) -> Efficiency:
    return learn(list(samples.ops), list(samples.families), samples.work, samples.seconds)


def _robust_spread(errors: Floats, prior: float, weight: float) -> float:
    """The standard deviation around 0 that two thirds of the errors suggest."""
    count = len(errors)
    if not count:
        return prior
    own = float(np.quantile(np.abs(errors), 0.6827))
    variance = (count * own**2 + weight * prior**2) / (count + weight)
    return max(float(np.sqrt(variance)), LEAST_SPREAD)
