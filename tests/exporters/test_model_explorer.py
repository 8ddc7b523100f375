"""The folder for Model Explorer: a graph, and data of its nodes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from placewright.errors import FormatError
from placewright.exporters.exporting import export
from tests.report.html.plans import QUICK, plan_for, with_names

NODE = {"id", "label", "namespace", "attrs", "incomingEdges"}


def read(folder):
    return {path.name: json.loads(path.read_text("utf-8")) for path in folder.iterdir()}


@pytest.mark.parametrize("objective", QUICK)
def test_the_graph_and_the_data_of_its_nodes_name_the_same_nodes(objective, tmp_path):
    plan = plan_for(objective)
    problem = plan.problem
    export(plan, "model-explorer", tmp_path / "new")
    files = read(tmp_path / "new")
    assert set(files) == {"graph.json", "devices.json", "seconds.json"}
    [graph] = files["graph.json"]["graphs"]
    numbers = [str(op) for op in range(problem.op_count)]
    assert [node["id"] for node in graph["nodes"]] == numbers
    assert all(set(node) == NODE for node in graph["nodes"])
    for name in ("devices.json", "seconds.json"):
        [(of, data)] = files[name].items()
        assert of == graph["id"]
        assert list(data["results"]) == numbers
    edges = [
        (int(edge["sourceNodeId"]), int(node["id"]))
        for node in graph["nodes"]
        for edge in node["incomingEdges"]
    ]
    expected = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    assert sorted(edges) == sorted(expected)


def test_devices_and_seconds_are_those_of_the_plan(tmp_path):
    plan = plan_for("latency")
    problem, device = plan.problem, plan.placement.device
    export(plan, "model-explorer", tmp_path / "new")
    files = read(tmp_path / "new")
    devices = files["devices.json"]["plan"]["results"]
    assert [each["value"] for each in devices.values()] == [
        problem.device_names[each] for each in device
    ]
    seconds = files["seconds.json"]["plan"]["results"]
    expected = problem.op_time[np.arange(problem.op_count), device]
    assert [each["value"] for each in seconds.values()] == expected.tolist()
    [graph] = files["graph.json"]["graphs"]
    module = problem.op_modules[5]
    assert graph["nodes"][5]["namespace"] == module.replace(".", "/")


def test_a_slash_in_a_module_opens_no_layer(tmp_path):
    export(with_names("a/b", "c"), "model-explorer", tmp_path / "new")
    [graph] = read(tmp_path / "new")["graph.json"]["graphs"]
    assert "/" not in graph["nodes"][0]["namespace"]
    assert graph["nodes"][0]["label"] == "a/b"


def test_a_folder_with_files_in_it_is_refused(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(FormatError, match="name a new folder"):
        export(plan_for("latency"), "model-explorer", tmp_path)
