"""A plan for Model Explorer: the graph by modules, and per node its device and its seconds.

Three files: ``graph.json``, a graph that Model Explorer opens; ``devices.json`` and
``seconds.json``, node data for it, which are loaded on top.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from placewright.exporters.tables import COLOURS, first_devices
from placewright.formats import files
from placewright.formats.folders import new_folder
from placewright.plan import Plan

GRAPH = "plan"
PALE, DARK = "#ffffcc", "#bd0026"


def write_model_explorer(path: str | Path, plan: Plan) -> list[str]:
    """Write the folder; how to look at it. Of a plan for batches devices are of the first input."""
    with new_folder(path) as folder:
        files.write_json(folder / "graph.json", graph_document(plan))
        files.write_json(folder / "devices.json", devices_document(plan))
        files.write_json(folder / "seconds.json", seconds_document(plan))
    # The viewer shows the last one first.
    graph, *data = (str(Path(path) / f"{name}.json") for name in ("graph", "seconds", "devices"))
    return [shlex.join(["model-explorer", graph, f"--node_data_paths={','.join(data)}"])]


def graph_document(plan: Plan) -> dict[str, Any]:
    """A collection of one graph: a node per op, named by its number, in layers of modules."""
    problem = plan.problem
    device = first_devices(plan)
    inputs: dict[int, list[int]] = defaultdict(list)
    ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    for producer, consumer in ends:
        inputs[consumer].append(producer)
    nodes = [
        {
            "id": str(op),
            "label": problem.op_names[op],
            "namespace": problem.op_modules[op].replace("/", "∕").replace(".", "/"),
            "attrs": [
                {"key": "type", "value": problem.op_types[op]},
                {"key": "device", "value": problem.device_names[device[op]]},
                {"key": "memory bytes", "value": f"{problem.op_memory[op]:.0f}"},
            ],
            "incomingEdges": [
                {
                    "sourceNodeId": str(producer),
                    "sourceNodeOutputId": "0",
                    "targetNodeInputId": str(place),
                }
                for place, producer in enumerate(inputs[op])
            ],
        }
        for op in range(problem.op_count)
    ]
    return {"label": problem.name, "graphs": [{"id": GRAPH, "nodes": nodes}]}


def devices_document(plan: Plan) -> dict[str, Any]:
    """Per node the name of its device, in the device's colour."""
    names = plan.problem.device_names
    results = {
        str(op): {"value": names[each], "bgColor": COLOURS[each % len(COLOURS)]}
        for op, each in enumerate(first_devices(plan).tolist())
    }
    return {GRAPH: {"results": results, "showExpandedSummaryOnGroupNode": True}}


def seconds_document(plan: Plan) -> dict[str, Any]:
    """Per node the seconds that it takes where it is, the darker the longer."""
    problem = plan.problem
    seconds = problem.op_time[np.arange(problem.op_count), first_devices(plan)]
    gradient = [{"stop": 0, "bgColor": PALE}, {"stop": 1, "bgColor": DARK, "textColor": "white"}]
    results = {str(op): {"value": each} for op, each in enumerate(seconds.tolist())}
    return {GRAPH: {"results": results, "gradient": gradient}}
