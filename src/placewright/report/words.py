"""What a plan's figures are called: for the objectives about many samples, a figure of what."""

from __future__ import annotations

from placewright.problem import Problem


def value_words(problem: Problem) -> str:
    """What the value is; for throughput with how many samples that time is for, where known."""
    options, samples = problem.options, problem.input_samples
    if options.objective == "batch-throughput":
        inputs = f"{options.batch} input{'s' if options.batch != 1 else ''}"
        return f"time for {inputs}" + (f" of {samples} samples" if (samples or 1) > 1 else "")
    if options.objective != "throughput":
        return options.objective
    if samples is None:
        return "time per input"
    return "time per sample" if samples == 1 else f"time per batch of {samples} samples"


def value_title(problem: Problem) -> str:
    """The same over a column."""
    return value_words(problem).replace(" of ", "\nof ")


def rate_words(problem: Problem) -> str:
    """What `Plan.throughput` counts in a second."""
    return "inputs" if problem.input_samples is None else "samples"
