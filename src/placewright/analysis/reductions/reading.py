"""A contracted graph made as small as is exact; smaller ones for plans and bounds beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.analysis.reductions.free_nodes import is_free, joined, memory_is_slack
from placewright.analysis.reductions.sole_devices import with_sole_devices
from placewright.graph import Flags, Wide


@dataclass(frozen=True, eq=False)
class Reading:
    """A contracted graph with its free nodes joined, as far as that is exact.

    Where memory is slack all free nodes have joined a neighbour in `exact`. Elsewhere only those
    without bytes; then the others have in `merged`, which keeps their bytes, so that its splits
    fit, and in `light`, which leaves them out, so that what is proved about its splits holds for
    all: moved as in the proof, any split that fits is one of `light` and no worse there.
    """

    exact: ContractedGraph

    @cached_property
    def merged(self) -> ContractedGraph:
        """Every split of it fits; the best one may be lost. `exact` itself if nothing joins."""
        if memory_is_slack(self.exact):
            return self.exact
        return joined(self.exact, np.ones(self.exact.node_count, dtype=np.bool_))

    @cached_property
    def light(self) -> ContractedGraph:
        """No worse than `exact`; its splits may not fit."""
        kept = np.where(self.joins, 0.0, self.exact.memory)
        memory = np.bincount(self.group, kept, self.merged.node_count).astype(np.float64)
        return replace(self.merged, memory=memory)

    @cached_property
    def group(self) -> Wide:
        """`[node of exact]` its node of `merged`."""
        group = np.empty(self.exact.node_count, dtype=np.int64)
        group[self.exact.op_node] = self.merged.op_node
        return group

    @cached_property
    def joins(self) -> Flags:
        """`[node of exact]` whether it is free and is with others in `merged`."""
        alone = np.bincount(self.group, minlength=self.merged.node_count) == 1
        return np.asarray(is_free(self.exact) & ~alone[self.group])

    @classmethod
    def of(cls, graph: ContractedGraph) -> Reading:
        """The reading of a graph as it is."""
        graph = with_sole_devices(graph)
        bytes_too = memory_is_slack(graph)
        return cls(joined(graph, (graph.memory == 0) | bytes_too))
