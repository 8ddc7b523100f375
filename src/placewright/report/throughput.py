"""Plans for ``throughput`` in words and columns."""

from __future__ import annotations

from placewright.outcome import Loads
from placewright.problem import Problem
from placewright.units import format_seconds


def value_words(problem: Problem) -> str:
    """With how many samples the time is for, where that is known."""
    samples = problem.input_samples
    if problem.options.micro_batches is not None:
        several = samples is not None and samples > 1
        return f"time per micro-batch of {samples} samples" if several else "time per micro-batch"
    if samples is None:
        return "time per input"
    return "time per sample" if samples == 1 else f"time per batch of {samples} samples"


def value_title(problem: Problem) -> str:
    return value_words(problem).replace(" of ", "\nof ")


def counts(outcome: Loads) -> dict[str, int]:
    return {"devices at work": int((outcome.load > 0).sum())}


def device_columns(problem: Problem, outcome: Loads) -> dict[str, list[str]]:
    """Seconds of transfers in and out."""
    ways = {"in": outcome.incoming, "out": outcome.outgoing}
    return {
        title: [format_seconds(float(each)) for each in seconds.sum(axis=0)]
        for title, seconds in ways.items()
    }
