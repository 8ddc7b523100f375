"""Plans for ``latency`` in words and columns."""

from __future__ import annotations

from placewright.outcome import Schedule
from placewright.problem import Problem
from placewright.report.columns import sent


def value_words(problem: Problem) -> str:
    return "latency"


def value_title(problem: Problem) -> str:
    return "makespan"


def counts(outcome: Schedule) -> dict[str, int]:
    return {"transfers": len(outcome.transfers)}


def device_columns(problem: Problem, outcome: Schedule) -> dict[str, list[str]]:
    transfers = outcome.transfers
    size = problem.tensor_bytes[transfers.tensor]
    return sent(problem.device_count, transfers.source, size)
