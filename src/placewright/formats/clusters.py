"""Clusters in files: ``placewright.cluster/1``, YAML or JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placewright.cluster import Cluster, Device, Link, LinkMeasurement
from placewright.errors import ClusterError
from placewright.formats import files
from placewright.formats.runs import read_run, run_document

FORMAT = "placewright.cluster/1"
UNLIMITED = "unlimited"


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The cluster as a ``placewright.cluster/1`` object (bytes, B/s, seconds)."""
    document: dict[str, Any] = {"format": FORMAT, "name": cluster.name}
    if cluster.description:
        document["description"] = cluster.description
    if cluster.routing != "widest":
        document["routing"] = cluster.routing
    if cluster.host_memory:
        document["host_memory"] = cluster.host_memory
    document["devices"] = [_device_entry(device) for device in cluster.devices]
    if cluster.switches:
        document["switches"] = list(cluster.switches)
    document["links"] = [_link_entry(link) for link in cluster.links]
    return document


def save_cluster(cluster: Cluster, path: str | Path) -> None:
    """Write the cluster as YAML (``.yaml``, ``.yml``) or JSON."""
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        import yaml

        text = yaml.safe_dump(cluster_document(cluster), sort_keys=False, allow_unicode=True)
        files.write_text(path, text)
    else:
        files.write_json(path, cluster_document(cluster))


def read_cluster(document: Any, path: str | Path = "cluster") -> Cluster:
    """Read a ``placewright.cluster/1`` object; FormatError or ClusterError name the fault."""
    from placewright.formats.schema import ClusterFile  # pydantic is slow to import

    files.check_format(document, FORMAT, path)
    content = files.validate(ClusterFile, document, path)
    try:
        devices = tuple(
            Device(
                **entry.model_dump()
                | {"memory": _number(entry.memory), "run": read_run(entry.run, entry.name)}
            )
            for entry in content.devices
        )
        links = tuple(
            Link(
                entry.between[0],
                entry.between[1],
                bandwidth=_number(entry.bandwidth) or math.inf,
                reverse_bandwidth=_number(entry.reverse_bandwidth),
                latency=entry.latency,
                duplex=entry.duplex,
                channel=entry.channel,
                measured=LinkMeasurement(**entry.measured.model_dump()) if entry.measured else None,
            )
            for entry in content.links
        )
        return Cluster(
            content.name,
            devices,
            links,
            tuple(content.switches),
            content.routing,
            content.host_memory,
            content.description,
        )
    except ClusterError as error:
        raise ClusterError(f"{path}: {error}") from None


def _number(value: float | str | None) -> float | None:
    return math.inf if isinstance(value, str) else value


def _amount(value: float) -> float | str:
    return UNLIMITED if math.isinf(value) else value


def _device_entry(device: Device) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": device.name, "kind": device.kind, "host": device.host}
    if device.memory is not None:
        entry["memory"] = _amount(device.memory)
    if device.peak_flops is not None:
        entry["peak_flops"] = dict(device.peak_flops)
    for what in (
        "memory_bandwidth",
        "launch_overhead",
        "compute_efficiency",
        "memory_efficiency",
        "multiprocessors",
    ):
        if getattr(device, what) is not None:
            entry[what] = getattr(device, what)
    if device.batch_sizes is not None:
        entry["batch_sizes"] = list(device.batch_sizes)
    if device.run is not None:
        entry["run"] = run_document(device.run)
    return entry


def _link_entry(link: Link) -> dict[str, Any]:
    entry: dict[str, Any] = {"between": [link.a, link.b], "bandwidth": _amount(link.bandwidth)}
    if link.reverse_bandwidth is not None:
        entry["reverse_bandwidth"] = _amount(link.reverse_bandwidth)
    if link.latency:
        entry["latency"] = link.latency
    if link.duplex != "full":
        entry["duplex"] = link.duplex
    if link.channel is not None:
        entry["channel"] = link.channel
    if link.measured is not None:
        entry["measured"] = asdict(link.measured)
    return entry
