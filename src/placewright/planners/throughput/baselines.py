"""What throughput planners are compared with (Tarnawski et al. 2020, §6 and §7)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import ContractedGraph, directions
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Ints
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planners.latency.construct import expert, partitioners, simple
from placewright.planners.throughput.contiguity import circle_in, in_a_row
from placewright.planners.throughput.linear_dp import first_cut
from placewright.planners.throughput.stages import too_many_states
from placewright.problem import Problem

NOT_CONTIGUOUS = "its splits are not contiguous; allow that (--no-contiguous)"


class SingleDevice(simple.SingleDevice):
    """Everything on the one device that does it soonest: no pipeline at all."""

    objective: ClassVar[str] = "throughput"


class Greedy:
    """Fill one accelerator after another in topological order; the rest goes to CPUs (§7).

    Of forward ops in their order, each with the backward ops colocated with it. A device is left
    for good at the first node that it has no room for or does not support, so the split is
    contiguous. Where devices run out, the answer is the first cut of a linear order that fits.
    """

    name: ClassVar[str] = "greedy"
    objective: ClassVar[str] = "throughput"

    def supports(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        graph = directions(problem)[0]
        node_device, left_over = _filled(problem, graph)
        if left_over is None:
            return Proposal(Placement(node_device[graph.op_node]))
        split = None if too_many_states(problem) else first_cut(problem, budget, seed, on_progress)
        if split is None:
            op = int(np.flatnonzero(graph.op_node == left_over)[0])
            raise InfeasibleError(
                "planner 'greedy' found no split that fits the devices (it ran out of them at op "
                f"'{problem.op_names[op]}'); give the devices more memory or try another planner"
            )
        return Proposal(split.placement())


def _filled(problem: Problem, graph: ContractedGraph) -> tuple[Ints, int | None]:
    """`[node]` devices, filled one after another; and the first node that is left over."""
    devices = np.argsort(problem.is_cpu, kind="stable").tolist()
    allowed = graph.allowed[:, graph.device_class]
    free = problem.device_memory.copy()
    place = 0
    node_device = np.zeros(graph.node_count, dtype=np.int32)
    for node, memory in enumerate(graph.memory):
        while place < len(devices):
            device = devices[place]
            if allowed[node, device] and memory <= free[device]:
                break
            place += 1
        else:
            return node_device, node
        node_device[node] = device
        free[device] -= memory
    return node_device, None


class Metis(partitioners.Metis):
    """METIS: parts of equal work that exchange little (`partitioners.Metis`)."""

    objective: ClassVar[str] = "throughput"

    def supports(self, problem: Problem) -> str | None:
        return NOT_CONTIGUOUS if problem.options.contiguous else None


class Scotch(partitioners.Scotch):
    """Scotch: parts of equal work that exchange little (`partitioners.Scotch`; §6)."""

    objective: ClassVar[str] = "throughput"

    def supports(self, problem: Problem) -> str | None:
        return NOT_CONTIGUOUS if problem.options.contiguous else None


class Expert(expert.Expert):
    """A split from a file (`expert.Expert`; §6)."""

    objective: ClassVar[str] = "throughput"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        proposal = super().plan(problem, budget, seed, on_progress)
        device = proposal.placement.device
        if problem.options.contiguous and not in_a_row(problem, device):
            raise InfeasibleError(
                f"{self.file}: the placement is not contiguous: {_circle(problem, device)}; move "
                "these ops, or allow that (--no-contiguous)"
            )
        return proposal


def _circle(problem: Problem, device: Ints) -> str:
    """Which edges lead from device to device and back, one for each two devices of a circle."""
    parts = []
    for edges in circle_in(problem, device):
        producer, consumer = problem.edge_producer[edges[0]], problem.consumers[edges[0]]
        ends = (
            f"'{problem.op_names[op]}' on '{problem.device_names[device[op]]}'"
            for op in (producer, consumer)
        )
        more = f" (and {len(edges) - 1} more)" if len(edges) > 1 else ""
        parts.append(" to ".join(ends) + more)
    return "data goes from " + ", from ".join(parts)
