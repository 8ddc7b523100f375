"""Plans for ``batch-throughput`` in words and columns."""

from __future__ import annotations

from placewright.outcome import BatchSchedule
from placewright.problem import Problem
from placewright.report.columns import sent


def value_words(problem: Problem) -> str:
    """With how many inputs, and samples in each if they are several, the time is for."""
    count, samples = problem.options.batch, problem.input_samples
    inputs = f"{count} input{'s' if count != 1 else ''}"
    return f"time for {inputs}" + (f" of {samples} samples" if (samples or 1) > 1 else "")


def value_title(problem: Problem) -> str:
    return value_words(problem).replace(" of ", "\nof ")


def counts(outcome: BatchSchedule) -> dict[str, int]:
    return {"batches": len(outcome.batches), "transfers": len(outcome.transfers)}


def device_columns(problem: Problem, outcome: BatchSchedule) -> dict[str, list[str]]:
    transfers = outcome.transfers
    size = problem.tensor_bytes[transfers.tensor] * transfers.inputs
    return sent(problem.device_count, transfers.source, size)
