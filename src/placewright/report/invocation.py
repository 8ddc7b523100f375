"""Plans for ``invocation-latency`` in words and columns."""

from __future__ import annotations

import numpy as np

from placewright.outcome import Invocations
from placewright.problem import Problem


def value_words(problem: Problem) -> str:
    return "invocation-latency"


def value_title(problem: Problem) -> str:
    return value_words(problem)


def counts(outcome: Invocations) -> dict[str, int]:
    return {"invocations": len(outcome.invocations)}


def device_columns(problem: Problem, outcome: Invocations) -> dict[str, list[str]]:
    times = np.bincount(outcome.invocations.device, minlength=problem.device_count)
    return {"invoked": [str(each) for each in times]}
