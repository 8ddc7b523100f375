"""A graph of two branches with known calls, two devices of this machine, and their real times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.cluster import Cluster, CpuRun, Device, Link
from placewright.graph import Graph, GraphBuilder
from placewright.importers import Imported
from placewright.problem import Problem

KIND, LIBRARY = "Known CPU", "torch 9.9"
FAST, SLOW = f"{KIND}, 2 cores", f"{KIND}, 1 core"


def layered(layers: int = 4) -> Graph:
    """x → two branches of `layers` equal products each → sum; larger tensors further down."""
    builder = GraphBuilder("layered")
    builder.attributes["framework"] = LIBRARY

    def op(name: str, kind: str, inputs: list[int], flops: float, size: float) -> int:
        made = builder.add_op(
            name, kind, inputs, flops=flops, bytes_read=size, bytes_written=size,
            signature=f"aten.{kind}.default({size:g})",
        )  # fmt: skip
        return builder.add_tensor(made, size)

    first = op("first", "linear", [], 2e9, 1e4)
    ends = []
    for branch in "ab":
        last = first
        for layer in range(layers):
            last = op(f"{branch}{layer}", "mm", [last], 4e9, 1e5 * 4**layer)
        ends.append(last)
    op("sum", "add", ends, 1e9, 1e4)
    return builder.build()


def two_cpus() -> Cluster:
    """A device of two cores and one of one, as their datasheets have them; joined by a link."""
    figures = {"memory": 1e12, "memory_bandwidth": 1e10, "launch_overhead": 1e-5}
    return Cluster(
        "two",
        (
            Device("fast", KIND, peak_flops={"fp32": 2e11}, run=CpuRun((0, 1)), **figures),
            Device("slow", KIND, peak_flops={"fp32": 1e11}, run=CpuRun((2,)), **figures),
        ),
        (Link("fast", "slow", 1e9, latency=1e-4, duplex="half", channel="memory"),),
    )


def imported(graph: Graph) -> Imported:
    return Imported(graph, source="torch:models:layered")


def really(problem: Problem, *, slower: float = 3.0) -> Problem:
    """The problem of the machine: products take `slower` times as long on one core as is said.

    Other ops take a third longer everywhere; links have twice the latency and half the bandwidth.
    """
    products = np.array([kind == "mm" for kind in problem.op_types])
    factor = np.where(products[:, None], [[1.0, slower]], 4 / 3)
    return replace(
        problem,
        op_time=problem.op_time * factor,
        link_latency=problem.link_latency * 2,
        link_seconds_per_byte=problem.link_seconds_per_byte * 2,
    )
