"""A program of PyTorch, as profiling sees it: ATen calls by their signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from placewright.costs.profiles import measure
from placewright.costs.profiles.memory import gpu_memory
from placewright.costs.profiles.program import Context, Heard
from placewright.costs.profiles.reuse import median_before
from placewright.importers.costs import Cost
from placewright.importers.torch.programs import Executable
from placewright.importers.torch.signature import signature
from placewright.importers.torch.tracing import framework
from placewright.system.accelerators.places import CudaPlace, Place

if TYPE_CHECKING:
    from torch.fx import Node


class TorchProgram:
    """See `program.Program`. torch has its threads from whoever moved the process."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self.name = executable.name
        self.library = framework()

    @cached_property
    def _nodes(self) -> dict[str, list[Node]]:
        nodes: dict[str, list[Node]] = {}
        for node in self._executable.calls:
            nodes.setdefault(signature(node), []).append(node)
        return nodes

    @property
    def calls(self) -> Mapping[str, int]:
        return Counter({text: len(nodes) for text, nodes in self._nodes.items()})

    @property
    def bytes_in_context(self) -> float:
        return measure.bytes_in_context(self._executable)

    def work(self, call: str) -> Cost:
        return self._executable.work(self._nodes[call][0])

    @cached_property
    def bytes_before(self) -> Mapping[str, float]:
        calls = self._executable.calls
        return median_before(map(signature, calls), map(self._executable.work, calls))

    def in_context(self, place: Place, heard: Heard) -> Context:
        found = measure.measure_in_context(self._executable, heard, place=place)
        if not isinstance(place, CudaPlace):
            return found
        needed = gpu_memory(self._executable, place)
        return replace(
            found,
            memory={
                text: max(needed[node.name] for node in nodes)
                for text, nodes in self._nodes.items()
            },
        )

    def alone(self, call: str, place: Place) -> list[float]:
        return measure.measure_alone(self._executable, self._nodes[call][0], place=place)
