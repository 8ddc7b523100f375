"""Files that say by hand which op runs on which device.

Three kinds, told apart by content:

- ``placewright.placement/1``: op names, or prefixes of op or module names, each with a device;
- a saved plan (``placewright.plan/1``), of which the placement counts;
- the expert placements published by Tarnawski et al. (NeurIPS 2020, App. D): lists of ops, by
  the number that the workload file gives them, for each accelerator and each CPU.

>>> file = parse_placement({"format": "placewright.placement/1",
...                         "placement": {"": "gpu0", "decoder": "gpu1"}}, "mine.json")
>>> file.placement["decoder"]
'gpu1'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from placewright.errors import FormatError
from placewright.formats import files
from placewright.formats.plans import FORMAT as PLAN_FORMAT
from placewright.plan import Plan

FORMAT = "placewright.placement/1"


@dataclass(frozen=True)
class PlacementFile:
    """What a placement file says: `placement` by name or prefix, or else `by_number`.

    `exact` if the names are whole op names; `by_number` maps the ids of a workload file to device
    names as `importers.workloads` gives them: ``acc0``, …, ``cpu0``, ….
    """

    placement: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    by_number: Mapping[int, str] | None = None


class PlacementDocument(BaseModel):
    """Which device each op runs on: a key is an op's name, or a prefix of op or module names."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal["placewright.placement/1"]
    placement: dict[str, str]


class ExpertDevice(BaseModel):
    """The ops of one device, by number; other fields are debugging information."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    nodes: list[int]


class ExpertDocument(BaseModel):
    """A published expert placement; ``fpgas`` are the accelerators."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    fpgas: list[ExpertDevice]
    cpus: list[ExpertDevice]


class WorkloadNode(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    id: int


class WorkloadDocument(BaseModel):
    """Of a published workload, the numbers of its ops."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    nodes: list[WorkloadNode]


def read_placement(path: str | Path) -> PlacementFile:
    """The placement file at `path`; FormatError, naming the field, if it is none."""
    return parse_placement(files.read_document(path), path)


def parse_placement(document: object, path: str | Path) -> PlacementFile:
    """A placement from the content of a file."""
    if isinstance(document, dict) and "format" not in document and "fpgas" in document:
        return PlacementFile(by_number=read_expert(document, path))
    if isinstance(document, dict) and document.get("format") == PLAN_FORMAT:
        return PlacementFile(Plan.from_document(document, path).device_of(), exact=True)
    files.check_format(document, FORMAT, path)
    return PlacementFile(files.validate(PlacementDocument, document, path).placement)


def read_expert(document: object, path: str | Path) -> dict[int, str]:
    """The device name per op id of a published expert placement; FormatError also for an op
    that is placed twice.
    """
    content = files.validate(ExpertDocument, document, path)
    placement: dict[int, str] = {}
    for prefix, key, entries in (("acc", "fpgas", content.fpgas), ("cpu", "cpus", content.cpus)):
        for number, entry in enumerate(entries):
            for op_id in entry.nodes:
                if op_id in placement:
                    raise FormatError(
                        f"{path}: field {key}.{number}.nodes: node {op_id} is already on "
                        f"{placement[op_id]}; place each node once"
                    )
                placement[op_id] = f"{prefix}{number}"
    return placement


def read_op_numbers(path: str | Path) -> tuple[int, ...]:
    """`[op]` the number that the published workload at `path` gives each op, in its order."""
    content = files.validate(WorkloadDocument, files.read_document(path), path)
    return tuple(node.id for node in content.nodes)
