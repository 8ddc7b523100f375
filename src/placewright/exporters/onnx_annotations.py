"""ONNX models that say where each node runs: device configurations, and layer annotations.

A device configuration of the IR (`ModelProto.configuration`, from version 11 on) names devices; a
node refers to it with its `pipeline_stage`, and says of each tensor that it makes on which device
that is. ONNX Runtime reads none of it, but the annotation ``layer_ann`` of nodes, which
``session.layer_assignment_settings`` gives to execution providers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.exporters.onnx_files import loaded, save_model
from placewright.exporters.onnx_stages import OnnxStages, add_types, onnx_stages
from placewright.importers.onnx.ops import captured
from placewright.importers.onnx.reading import with_values
from placewright.plan import Plan

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CONFIGURATION = "placewright"
LAYER = "layer_ann"
DEVICE = "placewright.device"
"""Metadata of nodes with the device's name, which viewers such as Netron show."""
_FIRST_VERSION = 11  # of the IR, that has device configurations


def write_device_configurations(path: str | Path, plan: Plan) -> list[str]:
    """Write the model with the device and the pipeline stage of each node; what was written."""
    stages = onnx_stages(plan, "onnx")
    beside = save_model(configured(stages), Path(path))
    count = len(stages.parts)
    lines = [
        f"{count} pipeline stage{'s' if count != 1 else ''} on "
        + ", ".join(plan.problem.device_names[each] for each in stages.used)
    ]
    return [*lines, *([f"the weights are in {beside}, which goes with it"] if beside else [])]


def configured(stages: OnnxStages) -> ModelProto:
    """The model with a device configuration of the cluster's devices.

    Of a node whose result nothing needs the device is said, but no stage. The device is in the
    metadata of each node too.
    """
    problem = stages.plan.problem
    model = loaded(with_values(stages.model), stages.model.path)
    add_types(model, stages.model)
    model.ir_version = max(model.ir_version, _FIRST_VERSION)
    model.configuration.add(
        name=CONFIGURATION, num_devices=problem.device_count, device=problem.device_names
    )
    device_of = _device_of(stages.plan)
    stage_of = {op: stage for stage, part in enumerate(stages.parts) for op in part.ops}
    for node, op in _nodes(stages, model):
        of_node = node.device_configurations.add(configuration_id=CONFIGURATION)
        if op in stage_of:
            of_node.pipeline_stage = stage_of[op]
        for name in filter(None, node.output):
            of_node.sharding_spec.add(tensor_name=name, device=[device_of[op]])
        _tell(node, DEVICE, problem.device_names[device_of[op]])
    return model


def _tell(node: NodeProto, key: str, value: str) -> None:
    """Set the metadata `key` of a node."""
    kept = [each for each in node.metadata_props if each.key != key]
    del node.metadata_props[:]
    node.metadata_props.extend(kept)
    node.metadata_props.add(key=key, value=value)


def annotated(stages: OnnxStages) -> ModelProto:
    """The model with the layer annotation `layer_name` of its device on each node."""
    model = loaded(with_values(stages.model), stages.model.path)
    device_of = _device_of(stages.plan)
    for node, op in _nodes(stages, model):
        _tell(node, LAYER, layer_name(device_of[op]))
    return model


def layer_name(device: int) -> str:
    """What nodes of a device are annotated with; names of devices may hold what settings may not.

    >>> layer_name(2)
    'device2'
    """
    return f"device{device}"


def _nodes(stages: OnnxStages, model: ModelProto) -> Iterator[tuple[NodeProto, str]]:
    """Each node of the graph with its op; a constant goes with the first that reads it."""
    found, nodes = stages.model, model.graph.node
    op_of = {number: op for op, number in found.nodes.items()}
    reader: dict[str, str] = {}
    for number in reversed(range(len(nodes))):
        op = op_of.get(number) or next(
            (reader[name] for name in nodes[number].output if name in reader), None
        )
        if op is None:  # a constant that nothing reads, or that the model returns
            op = next(iter(found.nodes), None)
        if op is not None:
            op_of[number] = op
            reader.update(dict.fromkeys((*nodes[number].input, *captured(nodes[number])), op))
    for number, node in enumerate(nodes):
        if number in op_of:
            yield node, op_of[number]


def _device_of(plan: Plan) -> dict[str, int]:
    return dict(zip(plan.problem.op_names, plan.placement.device.tolist(), strict=True))
