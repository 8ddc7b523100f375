"""Slow, obvious twins of what is fast; those of latency, which most others build on, by name."""

from tests.naive.latency import (
    Timeline,
    contended,
    earliest_start_placement,
    inputs_of,
    insertion_schedule,
    peak_memory,
    shortest_makespan,
    time_sequence,
    transfer_time,
    upward_ranks,
)

__all__ = [
    "Timeline",
    "contended",
    "earliest_start_placement",
    "inputs_of",
    "insertion_schedule",
    "peak_memory",
    "shortest_makespan",
    "time_sequence",
    "transfer_time",
    "upward_ranks",
]
