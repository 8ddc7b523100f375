"""PipeDream's optimiser (Narayanan et al., SOSP 2019; Tarnawski et al. 2020, §6, App. C)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import ContractedGraph, directions
from placewright.analysis.reductions.free_nodes import joined
from placewright.budget import Budget, Progress
from placewright.coarsen.contraction import Contraction, contract
from placewright.errors import GraphError, InfeasibleError
from placewright.graph import Wide
from placewright.planners.base import Proposal
from placewright.planners.throughput.calibrated import beside_equal_shares, placed
from placewright.planners.throughput.ideal_dp import too_many_states
from placewright.planners.throughput.splits import Split, best_of_lines
from placewright.planners.throughput.stages import stage_tables
from placewright.problem import Problem


class PipeDream:
    """The best cuts of a path of layers, which branchings are contracted into.

    PipeDream knows layers in a row. Nodes that take no time join a neighbour, so that what dangles
    from a layer (the parts of a tuple, a dropout in inference) is no branching. What then lies
    between two ops that everything passes through becomes one layer, and the best cuts of the row
    are found by dynamic programming, with replicas where the problem allows them and over slower
    links between hosts where it has some.
    """

    name: ClassVar[str] = "pipedream"
    objective: ClassVar[str] = "throughput"

    def supports(self, problem: Problem) -> str | None:
        return too_many_states(problem)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        best: tuple[Split, Contraction] | None = None
        for graph in directions(problem):
            path = _as_path(problem, joined(graph, np.ones(graph.node_count, dtype=np.bool_)))
            if path is None:
                continue
            for layers in directions(path.problem):
                row = np.arange(layers.node_count)
                cutoff = best[0].value if best else np.inf
                found = best_of_lines(stage_tables(layers), [row], cutoff)
                best = best if found is None else (found, path)
        if best is None:
            raise InfeasibleError(
                "planner 'pipedream' found no split that fits the devices (no cuts of the row of "
                "layers do); give them more memory or try ideal-dp, which cuts within branchings "
                "too"
            )
        split, path = best
        whole = path.expand(placed(split))
        return Proposal(beside_equal_shares(self, problem, whole, budget, seed, on_progress))


def _as_path(problem: Problem, graph: ContractedGraph) -> Contraction | None:
    """The problem with each layer of the path as one op per pass, the two on one device."""
    layer = path_layers(graph)[graph.op_node]
    key = 2 * layer + problem.is_backward
    group = np.unique(key, return_inverse=True)[1].astype(np.int32)
    try:
        contraction = contract(problem, group)
    except GraphError:  # data that goes from backward to forward ops makes a circle
        return None
    first = np.zeros(contraction.problem.op_count, dtype=np.int64)
    first[group] = layer
    together = replace(contraction.problem, colocation=first.astype(np.int32))
    return replace(contraction, problem=together)


def path_layers(graph: ContractedGraph) -> Wide:
    """`[node]` number of its layer: nodes that all others come before or after, and what lies
    between two of them.

    Numbers are a topological order. All nodes up to p lead to p if p alone of them has no
    follower among them; p leads to all from p on if p alone of them has no leader among them.
    """
    count = graph.node_count
    number = np.arange(count)
    next_follower = np.full(count, count)
    np.minimum.at(next_follower, graph.edge_source, graph.edge_target)
    last_leader = np.full(count, -1)
    np.maximum.at(last_leader, graph.edge_target, graph.edge_source)
    ends = _covered(number, next_follower, count)
    starts = _covered(last_leader + 1, number + 1, count)
    cut = (ends == 1) & (starts == 1)
    # A layer begins at each cut node, and right after it.
    begins = cut | np.concatenate([[True], cut[:-1]])
    layers: Wide = np.cumsum(begins) - 1
    return layers


def _covered(first: Wide, end: Wide, count: int) -> Wide:
    """`[number]` how many of the ranges ``first … end - 1`` hold it."""
    change = np.zeros(count + 1, dtype=np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, end, -1)
    covered: Wide = np.cumsum(change)[:count]
    return covered
