"""Files: reading and writing them whole, and the formats of what is in them.

Importing this tells the data how it is kept (`stored`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from placewright.cluster import Cluster
from placewright.formats import clusters, files, graphs, plans
from placewright.graph import Graph
from placewright.plan import Plan
from placewright.stored import Format, kept_as

T = TypeVar("T")


@dataclass(frozen=True)
class _Json(Format[T]):
    """A file that holds the document as JSON."""

    make: Callable[[T], dict[str, Any]]
    parse: Callable[[Any, str | Path], T]

    def document(self, data: T) -> dict[str, Any]:
        return self.make(data)

    def read(self, document: Any, path: str | Path) -> T:
        return self.parse(document, path)

    def save(self, data: T, path: str | Path) -> None:
        files.write_json(path, self.make(data))

    def load(self, path: str | Path) -> T:
        return self.parse(files.read_document(path, f"a {self.name} file"), path)


@dataclass(frozen=True)
class _Cluster(_Json[Cluster]):
    """The same, or YAML."""

    def load(self, path: str | Path) -> Cluster:
        document = files.read_document(path, "a cluster file", may_be_yaml=True)
        return replace(self.parse(document, path), file=str(path))

    def save(self, data: Cluster, path: str | Path) -> None:
        clusters.save_cluster(data, path)


@dataclass(frozen=True)
class _Plan(_Json[Plan]):
    """The same, the problem's part of it made once."""

    def save(self, data: Plan, path: str | Path) -> None:
        plans.save_plan(data, path)


kept_as(Graph, _Json("graph", graphs.graph_document, graphs.read_graph))
kept_as(Cluster, _Cluster("cluster", clusters.cluster_document, clusters.read_cluster))
kept_as(Plan, _Plan("plan", plans.plan_document, plans.read_plan))
