"""Hypothesis strategies; those of graphs and latency by name, other objectives in their files."""

from tests.strategies.common import (
    BYTES,
    TIMES,
    graph_columns,
    graphs,
    graphs_of_blocks,
    placements,
    problems,
    problems_of_blocks,
    sequences,
    short_of_peaks,
    tight,
    tiny,
)

__all__ = [
    "BYTES",
    "TIMES",
    "graph_columns",
    "graphs",
    "graphs_of_blocks",
    "placements",
    "problems",
    "problems_of_blocks",
    "sequences",
    "short_of_peaks",
    "tight",
    "tiny",
]
