"""Published workloads: the JSON files that placement papers came with, figures included.

Two formats are known, told apart by content (`is_workload`). Both carry measured times for
their own devices, so a file is a graph and a cluster in one:

- ``moirai/1`` (Moirai, 2023): a time per op and device, a transfer time per edge for the way
  from device 0 to 1, and a matrix that scales it for the other ways;
- Tarnawski et al. (NeurIPS 2020, App. D): CPUs and accelerators ("FPGA" in the files), a time
  for each of the two, and per edge the time to move the source's output between an accelerator
  and host memory.

Times are milliseconds in the files and seconds here. Neither format knows bytes on a link, only
times, so a time becomes bytes over a nominal link of `NOMINAL_BANDWIDTH` and back again.

>>> from placewright.formats.files import read_document
>>> workload = read_workload(read_document("googlenet.json"), "googlenet.json")  # doctest: +SKIP
>>> workload.graph.op_count, workload.cluster.device_names  # doctest: +SKIP
(141, ('gpu0', 'gpu1', 'gpu2', 'gpu3'))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from placewright.cluster import Cluster, Device, Link
from placewright.errors import FormatError, GraphError
from placewright.formats import files
from placewright.graph import WHOLE_MEMORY, Graph, GraphBuilder

NOMINAL_BANDWIDTH = 1e9  # bytes per second that stand for a transfer rate of 1
MOIRAI_FORMAT = "moirai/1"
HOST_MEMORY = "host-memory"
ACCELERATOR, CPU = "accelerator", "cpu"  # the kinds of device of a Tarnawski workload

_TARNAWSKI_DEVICES = ("maxSizePerFPGA", "maxFPGAs", "maxCPUs")
_MILLISECONDS = 1e3  # per second: dividing rounds once, multiplying by 0.001 would round twice


@dataclass(frozen=True)
class Workload:
    """What a workload file holds.

    `options` are those under which the published figures are judged (names as in
    `placewright.options.Options`), empty where the defaults hold. `op_ids[op]` is the number
    that the file gives the op, which expert placements refer to (see `placement_files`).
    """

    graph: Graph
    cluster: Cluster
    options: dict[str, str]
    op_ids: tuple[int, ...] = ()


def is_workload(document: object) -> bool:
    """Whether `document` means to be a published workload (it may still be malformed).

    >>> is_workload({"format": "moirai/1"}), is_workload({"format": "placewright.graph/1"})
    (True, False)
    """
    if not isinstance(document, Mapping):
        return False
    if "format" in document:
        return str(document["format"]).startswith("moirai/")
    return "nodes" in document and any(key in document for key in _TARNAWSKI_DEVICES)


def read_workload(document: object, path: str | Path) -> Workload:
    """The graph, devices and options of a published workload, read from `path`.

    Raises FormatError for a field that is missing, of the wrong type or out of range, and
    GraphError for ops and edges that make no DAG; each names the file and the field.
    """
    if not is_workload(document):
        raise FormatError(
            f'{path}: not a published workload; it needs "format": "{MOIRAI_FORMAT}", or the '
            f"fields nodes, edges, {', '.join(_TARNAWSKI_DEVICES)}"
        )
    if isinstance(document, Mapping) and "format" in document:
        files.check_format(document, MOIRAI_FORMAT, path)
        return _moirai(files.validate(MoiraiFile, document, path), path)
    return _tarnawski(files.validate(TarnawskiFile, document, path), path)


# -- the formats -----------------------------------------------------------------------------


def _flag(value: object) -> object:
    """0 and 1 as the flags they are in some of the files; anything else as it is."""
    return bool(value) if type(value) is int and value in (0, 1) else value


def _whole(value: object) -> object:
    """3.0 as the 3 it was before a table with gaps was written to the file."""
    return int(value) if type(value) is float and value.is_integer() else value


def _text(value: object) -> object:
    """A name that is a number as text."""
    return str(value) if type(value) in (int, float) else value


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, BeforeValidator(_text)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Count = Annotated[int, Field(ge=0, le=1024), BeforeValidator(_whole)]


class Entry(BaseModel):
    """Numbers must be numbers; fields beyond the format's are debugging information."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class MoiraiDevice(Entry):
    name: Annotated[str, Field(min_length=1)]
    memory: Amount


class MoiraiOp(Entry):
    """`time` per device in milliseconds, null where unsupported; `memory` in bytes."""

    id: Whole
    time: list[Amount | None]
    memory: Amount


class MoiraiEdge(Entry):
    source: Whole
    target: Whole
    transfer_time_0_1: Amount


class MoiraiFile(Entry):
    """`transfer_rate[a][b]` scales an edge's transfer time for the way from device a to b."""

    format: Literal["moirai/1"]
    name: str
    time_unit: Literal["ms"]
    devices: Annotated[list[MoiraiDevice], Field(min_length=1)]
    transfer_rate: list[list[Amount]]
    ops: Annotated[list[MoiraiOp], Field(min_length=1)]
    edges: list[MoiraiEdge]


class TarnawskiNode(Entry):
    """Latencies in milliseconds; ops of one `colorClass` share a device; `size` in bytes."""

    id: Whole
    supportedOnFpga: Flag  # noqa: N815  (the names are the file's)
    cpuLatency: Amount  # noqa: N815
    fpgaLatency: Amount | None = None  # noqa: N815
    isBackwardNode: Flag = False  # noqa: N815
    colorClass: Whole | None = None  # noqa: N815
    size: Amount
    name: Text | None = None
    layerId: Whole | None = None  # noqa: N815


class TarnawskiEdge(Entry):
    sourceId: Whole  # noqa: N815
    destId: Whole  # noqa: N815
    cost: Amount


class TarnawskiFile(Entry):
    maxSizePerFPGA: Amount  # noqa: N815
    maxFPGAs: Count  # noqa: N815
    maxCPUs: Count  # noqa: N815
    nodes: Annotated[list[TarnawskiNode], Field(min_length=1)]
    edges: list[TarnawskiEdge]


# -- Moirai ----------------------------------------------------------------------------------


def _moirai(content: MoiraiFile, path: str | Path) -> Workload:
    _check_moirai_shapes(content, path)
    op_ids = [op.id for op in content.ops]
    op_of = _index_of(op_ids, "ops", path)
    builder = GraphBuilder(content.name)
    for op in content.ops:
        builder.add_op(f"op{op.id}", "op", parameter_bytes=op.memory)
    edges = ((edge.source, edge.target, edge.transfer_time_0_1) for edge in content.edges)
    _add_tensors(builder, op_of, edges, ("source", "target"), path)
    for number, device in enumerate(content.devices):
        builder.times[device.name] = [_seconds(op.time[number]) for op in content.ops]
    builder.attributes["source"] = f"published workload, {MOIRAI_FORMAT}"
    options = {"contention": "port", "transfer_unit": "edge"}
    return Workload(_build(builder, path), _moirai_cluster(content), options, tuple(op_ids))


def _check_moirai_shapes(content: MoiraiFile, path: str | Path) -> None:
    count = len(content.devices)
    names = [device.name for device in content.devices]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise FormatError(
                f"{path}: field devices.{number}.name: two devices are named '{name}'; "
                "give each its own name"
            )
    rows = content.transfer_rate
    if [len(row) for row in rows] != [count] * count:
        raise FormatError(
            f"{path}: field transfer_rate: must be {count} rows of {count} numbers, "
            "one for each device"
        )
    for number, op in enumerate(content.ops):
        if len(op.time) != count:
            raise FormatError(
                f"{path}: field ops.{number}.time: has {len(op.time)} entries for {count} "
                "devices; give one for each"
            )


def _moirai_cluster(content: MoiraiFile) -> Cluster:
    """Every device a kind of its own; the matrix holds end to end, so links are taken directly."""

    def bandwidth(a: int, b: int) -> float:
        rate = content.transfer_rate[a][b]
        return NOMINAL_BANDWIDTH / rate if rate else math.inf

    devices = content.devices
    return Cluster(
        content.name,
        devices=tuple(Device(each.name, each.name, memory=each.memory) for each in devices),
        links=tuple(
            Link(
                devices[a].name,
                devices[b].name,
                bandwidth=bandwidth(a, b),
                reverse_bandwidth=bandwidth(b, a),
            )
            for a in range(len(devices))
            for b in range(a + 1, len(devices))
        ),
        routing="direct",
        description="devices of the workload file; bandwidths are nominal",
    )


# -- Tarnawski -------------------------------------------------------------------------------


def _tarnawski(content: TarnawskiFile, path: str | Path) -> Workload:
    nodes = content.nodes
    op_ids = [node.id for node in nodes]
    op_of = _index_of(op_ids, "nodes", path)
    name = Path(path).stem
    builder = GraphBuilder(name)
    for node, op_name in zip(nodes, _op_names(nodes), strict=True):
        builder.add_op(
            op_name,
            "op",
            parameter_bytes=node.size,
            module="" if node.layerId is None else f"layer.{node.layerId}",
            backward=node.isBackwardNode,
            colocate=None if node.colorClass is None else str(node.colorClass),
        )
    for backward, forward in _twins(nodes):
        builder.set_twin(backward, forward)
    edges = ((edge.sourceId, edge.destId, edge.cost) for edge in content.edges)
    _add_tensors(builder, op_of, edges, ("sourceId", "destId"), path)
    builder.times[ACCELERATOR] = _accelerator_times(nodes, path)
    builder.times[CPU] = [_seconds(node.cpuLatency) for node in nodes]
    builder.attributes["source"] = "published workload, Tarnawski et al. 2020"
    builder.attributes[WHOLE_MEMORY] = True  # gradients and the like are in the sizes
    return Workload(_build(builder, path), _tarnawski_cluster(content, path), {}, tuple(op_ids))


def _op_names(nodes: Sequence[TarnawskiNode]) -> Iterator[str]:
    """Unique names: the file's, else ``node<id>``; the id tells apart what is named alike."""
    taken: set[str] = set()
    for node in nodes:
        name = node.name or f"node{node.id}"
        while name in taken:
            name = f"{name}#{node.id}"
        taken.add(name)
        yield name


def _twins(nodes: Sequence[TarnawskiNode]) -> Iterator[tuple[int, int]]:
    """`(backward op, forward op)`: the first forward op of the backward op's color class."""
    first: dict[int, int] = {}
    for op, node in enumerate(nodes):
        if node.colorClass is not None and not node.isBackwardNode:
            first.setdefault(node.colorClass, op)
    for op, node in enumerate(nodes):
        if node.isBackwardNode and node.colorClass in first:
            yield op, first[node.colorClass]


def _accelerator_times(nodes: Sequence[TarnawskiNode], path: str | Path) -> list[float]:
    for number, node in enumerate(nodes):
        if node.supportedOnFpga and node.fpgaLatency is None:
            raise FormatError(
                f"{path}: field nodes.{number}.fpgaLatency: missing for node {node.id}; give "
                "milliseconds, or set supportedOnFpga to false"
            )
    return [_seconds(node.fpgaLatency if node.supportedOnFpga else None) for node in nodes]


def _tarnawski_cluster(content: TarnawskiFile, path: str | Path) -> Cluster:
    """Each accelerator has its own link to host memory, which is the CPUs' own memory."""
    if content.maxFPGAs + content.maxCPUs == 0:
        raise FormatError(f"{path}: fields maxFPGAs and maxCPUs are both 0; allow a device")
    accelerators = [
        Device(f"acc{number}", ACCELERATOR, memory=content.maxSizePerFPGA)
        for number in range(content.maxFPGAs)
    ]
    cpus = [Device(f"cpu{number}", CPU, memory=math.inf) for number in range(content.maxCPUs)]
    links = [Link(each.name, HOST_MEMORY, bandwidth=NOMINAL_BANDWIDTH) for each in accelerators]
    links += [Link(each.name, HOST_MEMORY, bandwidth=math.inf) for each in cpus]
    return Cluster(
        Path(path).stem,
        devices=(*accelerators, *cpus),
        links=tuple(links),
        switches=(HOST_MEMORY,),
        host_memory=HOST_MEMORY,
        description="devices of the workload file; bandwidths are nominal",
    )


# -- both ------------------------------------------------------------------------------------


def _seconds(milliseconds: float | None) -> float:
    return math.inf if milliseconds is None else milliseconds / _MILLISECONDS


def _index_of(op_ids: Sequence[int], field: str, path: str | Path) -> dict[int, int]:
    index: dict[int, int] = {}
    for op, op_id in enumerate(op_ids):
        if index.setdefault(op_id, op) != op:
            raise GraphError(
                f"{path}: field {field}.{op}.id: {op_id} is already the id of "
                f"{field}.{index[op_id]}; give each its own"
            )
    return index


def _add_tensors(
    builder: GraphBuilder,
    op_of: Mapping[int, int],
    edges: Iterable[tuple[int, int, float]],
    fields: tuple[str, str],
    path: str | Path,
) -> None:
    """One tensor per op and distinct transfer time of the edges that leave it.

    `edges` are (source id, target id, milliseconds). An edge listed twice with one time is one.
    """
    tensors: dict[tuple[int, float], int] = {}
    for number, (source, target, time) in enumerate(edges):
        for field, op_id in zip(fields, (source, target), strict=True):
            if op_id not in op_of:
                raise GraphError(
                    f"{path}: field edges.{number}.{field}: no op has the id {op_id}; "
                    "add the op or drop the edge"
                )
        if source == target:
            raise GraphError(
                f"{path}: field edges.{number}: the edge joins op {source} to itself; drop it"
            )
        key = (source, time)
        if key not in tensors:
            size = _seconds(time) * NOMINAL_BANDWIDTH
            tensors[key] = builder.add_tensor(op_of[source], size)
        builder.connect(tensors[key], op_of[target])


def _build(builder: GraphBuilder, path: str | Path) -> Graph:
    try:
        return builder.build()
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
