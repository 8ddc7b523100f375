"""Published workloads come in with the figures of their files; bad files with one sentence."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.costs.links import routes
from placewright.errors import FormatError, GraphError, InputError
from placewright.formats.files import parse_json
from placewright.formats.placements import read_expert
from placewright.importers.workloads import Workload, is_workload, read_workload
from placewright.options import Options

WORKLOADS = Path(__file__).parents[2].parent / "shared" / "workloads"
MOIRAI = sorted((WORKLOADS / "moirai").glob("*.json"))
TARNAWSKI = [
    *sorted((WORKLOADS / "tarnawski" / "throughput").glob("*.json")),
    *sorted((WORKLOADS / "tarnawski" / "latency").glob("*.json")),
]

published = pytest.mark.skipif(not MOIRAI, reason="the published workloads are not at hand")


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def load(path: Path) -> tuple[dict[str, Any], Workload]:
    document = json.loads(path.read_text())
    return document, read_workload(document, path)


def transfer_seconds(workload: Workload, tensor: int) -> Any:
    """`[a, b]` seconds to move `tensor`, over the routes of the workload's own cluster."""
    paths = routes(workload.cluster)
    return paths.link_latency + workload.graph.tensor_bytes[tensor] * paths.link_seconds_per_byte


def moirai() -> dict[str, Any]:
    return {
        "format": "moirai/1",
        "name": "three",
        "time_unit": "ms",
        "devices": [{"name": "a", "memory": 8e9}, {"name": "b", "memory": 4e9}],
        "transfer_rate": [[0, 1.0], [1.25, 0]],
        "ops": [
            {"id": 10, "time": [1.0, 2.0], "memory": 100},
            {"id": 7, "time": [3.0, None], "memory": 0},
            {"id": 20, "time": [5.0, 6.0], "memory": 7.5},
        ],
        "edges": [
            {"source": 10, "target": 7, "transfer_time_0_1": 0.5},
            {"source": 10, "target": 20, "transfer_time_0_1": 0.5},
            {"source": 7, "target": 20, "transfer_time_0_1": 0.3},
        ],
    }


def tarnawski() -> dict[str, Any]:
    return {
        "maxSizePerFPGA": 1e9,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [
            node(4, colorClass=1, layerId=3, name="first"),
            node(-2, colorClass=1, name="first"),
            node(9, supportedOnFpga=0, fpgaLatency=None),
            node(11, isBackwardNode=1, colorClass=1),
            node(12, isBackwardNode=True, colorClass=2),
        ],
        "edges": [edge(4, -2, 2.0), edge(-2, 9, 0.5), edge(9, 11, 1.0), edge(11, 12, 0.25)],
    }


def node(id: int, **fields: Any) -> dict[str, Any]:
    plain = {"supportedOnFpga": True, "cpuLatency": 10.0, "fpgaLatency": 1.0, "size": 64.0}
    return {"id": id, "isBackwardNode": False} | plain | fields


def edge(source: int, target: int, cost: Any) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost}


# -- the published files -----------------------------------------------------------------------


@published
@pytest.mark.parametrize("path", MOIRAI, ids=label)
def test_a_moirai_file_keeps_its_ops_times_and_memory(path: Path) -> None:
    raw, workload = load(path)
    graph = workload.graph
    assert graph.op_count == len(raw["ops"])
    for number, device in enumerate(raw["devices"]):
        total = sum(op["time"][number] for op in raw["ops"])
        assert graph.times[device["name"]].sum() * 1e3 == pytest.approx(total, rel=1e-12)
    assert graph.op_parameter_bytes.sum() == sum(op["memory"] for op in raw["ops"])
    assert [d.memory for d in workload.cluster.devices] == [d["memory"] for d in raw["devices"]]
    pairs = {(e["source"], e["target"]) for e in raw["edges"]}
    producer, consumer = graph.edges
    ids = np.array([op["id"] for op in raw["ops"]])
    assert set(zip(ids[producer].tolist(), ids[consumer].tolist(), strict=True)) == pairs


@published
@pytest.mark.parametrize("path", MOIRAI, ids=label)
def test_every_transfer_of_a_moirai_file_takes_its_published_time(path: Path) -> None:
    raw, workload = load(path)
    graph, ids = workload.graph, [op["id"] for op in raw["ops"]]
    published_time = {(e["source"], e["target"]): e["transfer_time_0_1"] for e in raw["edges"]}
    rate = np.array(raw["transfer_rate"])
    checked = 0
    for tensor in range(graph.tensor_count):
        seconds = transfer_seconds(workload, tensor)
        for consumer in graph.consumers_of(tensor):
            pair = (ids[graph.tensor_producer[tensor]], ids[consumer])
            np.testing.assert_allclose(seconds, published_time[pair] * rate / 1e3, rtol=1e-12)
            checked += 1
    assert checked == len(raw["edges"])


@published
@pytest.mark.parametrize("path", TARNAWSKI, ids=label)
def test_a_tarnawski_file_keeps_its_ops_times_and_memory(path: Path) -> None:
    raw, workload = load(path)
    graph = workload.graph
    nodes = raw["nodes"]
    assert graph.op_count == len(nodes)
    assert len(graph.consumers) == len(raw["edges"])
    cpu = sum(n["cpuLatency"] for n in nodes)
    accelerator = sum(n["fpgaLatency"] for n in nodes)
    assert graph.times["cpu"].sum() * 1e3 == pytest.approx(cpu, rel=1e-12)
    assert graph.times["accelerator"].sum() * 1e3 == pytest.approx(accelerator, rel=1e-12)
    assert graph.op_parameter_bytes.sum() == pytest.approx(sum(n["size"] for n in nodes))
    assert graph.is_backward.sum() == sum(map(bool, (n["isBackwardNode"] for n in nodes)))
    colors = {n["colorClass"] for n in nodes if "colorClass" in n}
    assert len(set(graph.colocation.tolist()) - {-1}) == len(colors)
    kinds = [device.kind for device in workload.cluster.devices]
    assert kinds.count("accelerator") == raw["maxFPGAs"]
    assert kinds.count("cpu") == raw["maxCPUs"]


@published
@pytest.mark.parametrize("path", TARNAWSKI, ids=label)
def test_every_edge_of_a_tarnawski_file_costs_its_published_time(path: Path) -> None:
    raw, workload = load(path)
    graph, ids = workload.graph, [n["id"] for n in raw["nodes"]]
    cost = {(e["sourceId"], e["destId"]): e["cost"] for e in raw["edges"]}
    cpu = workload.cluster.device_names.index("cpu0")
    for tensor in range(graph.tensor_count):
        seconds = transfer_seconds(workload, tensor)
        for consumer in graph.consumers_of(tensor):
            expected = cost[ids[graph.tensor_producer[tensor]], ids[consumer]] / 1e3
            assert seconds[0, cpu] == pytest.approx(expected, rel=1e-12)
            assert seconds[cpu, 0] == pytest.approx(expected, rel=1e-12)


@published
def test_backward_ops_of_a_training_file_belong_to_a_forward_op_of_their_color() -> None:
    raw, workload = load(WORKLOADS / "tarnawski" / "throughput" / "op_bert_L-12_training.json")
    graph, nodes = workload.graph, raw["nodes"]
    with_twin = 0
    for op in np.flatnonzero(graph.is_backward):
        color = nodes[op].get("colorClass")
        forward = [
            i
            for i, n in enumerate(nodes)
            if not n["isBackwardNode"] and n.get("colorClass") == color
        ]
        expected = forward[0] if color is not None and forward else -1
        assert graph.forward_twin[op] == expected
        with_twin += expected >= 0
    assert with_twin > 100


@published
@pytest.mark.parametrize(
    ("expert", "workload"),
    [
        ("bert24_inference_expert", "layer_bert24_inference"),
        ("bert24_training_expert", "layer_bert24_training"),
        ("inceptionv3_inference_expert", "layer_inceptionv3_inference"),
        ("resnet50_inference_expert", "layer_resnet50_inference"),
    ],
)
def test_an_expert_file_places_every_op_of_its_workload(expert: str, workload: str) -> None:
    path = WORKLOADS / "tarnawski" / "experts" / f"{expert}.json"
    raw = json.loads(path.read_text())
    placement = read_expert(raw, path)
    _, target = load(WORKLOADS / "tarnawski" / "throughput" / f"{workload}.json")
    assert set(placement) == set(target.op_ids)
    assert set(placement.values()) <= set(target.cluster.device_names)
    assert all(placement[op_id] == "acc1" for op_id in raw["fpgas"][1]["nodes"])


# -- synthetic files -----------------------------------------------------------------------------


def test_moirai_devices_are_kinds_of_their_own_and_the_options_are_the_published_ones() -> None:
    workload = read_workload(moirai(), "three.json")
    assert workload.options == {"contention": "port", "transfer_unit": "edge"}
    assert [(d.name, d.kind, d.memory) for d in workload.cluster.devices] == [
        ("a", "a", 8e9),
        ("b", "b", 4e9),
    ]
    assert workload.cluster.routing == "direct"
    assert workload.op_ids == (10, 7, 20)
    assert workload.graph.op_names == ("op10", "op7", "op20")
    assert workload.graph.times["b"].tolist() == [0.002, math.inf, 0.006]


def test_the_options_of_a_workload_are_options_of_a_problem() -> None:
    options = Options(**read_workload(moirai(), "three.json").options)  # type: ignore[arg-type]
    assert (options.contention, options.transfer_unit) == ("port", "edge")


def test_a_moirai_transfer_takes_longer_the_way_the_matrix_says() -> None:
    workload = read_workload(moirai(), "three.json")
    seconds = transfer_seconds(workload, 0)
    assert seconds[0, 1] == pytest.approx(0.0005, rel=1e-12)
    assert seconds[1, 0] == pytest.approx(0.0005 * 1.25, rel=1e-12)


def test_a_transfer_rate_of_zero_between_two_devices_costs_nothing() -> None:
    document = moirai()
    document["transfer_rate"][0][1] = 0
    workload = read_workload(document, "three.json")
    seconds = transfer_seconds(workload, 0)
    assert seconds[0, 1] == 0
    assert seconds[1, 0] > 0


def test_edges_of_one_op_share_a_tensor_where_their_times_agree() -> None:
    document = moirai()
    assert read_workload(document, "three.json").graph.tensor_count == 2
    document["edges"][1]["transfer_time_0_1"] = 0.75
    graph = read_workload(document, "three.json").graph
    assert graph.tensor_count == 3
    assert sorted(graph.tensor_bytes.tolist()) == pytest.approx([3e5, 5e5, 7.5e5])


def test_an_edge_listed_twice_is_one_edge() -> None:
    document = tarnawski()
    document["edges"].append(edge(4, -2, 2.0))
    assert len(read_workload(document, "five.json").graph.consumers) == 4


def test_tarnawski_names_are_unique_and_tell_layer_color_and_twin() -> None:
    graph = read_workload(tarnawski(), "dir/five.json").graph
    assert graph.name == "five"
    assert graph.op_names == ("first", "first#-2", "node9", "node11", "node12")
    assert graph.op_modules == ("layer.3", "", "", "", "")
    assert graph.colocation.tolist() == [0, 0, -1, 0, 1]
    assert graph.is_backward.tolist() == [False, False, False, True, True]
    assert graph.forward_twin.tolist() == [-1, -1, -1, 0, -1]


def test_an_op_unsupported_on_accelerators_takes_forever_there() -> None:
    graph = read_workload(tarnawski(), "five.json").graph
    assert graph.times["accelerator"].tolist() == [0.001, 0.001, math.inf, 0.001, 0.001]
    assert graph.times["cpu"].tolist() == [0.01] * 5


def test_accelerators_reach_each_other_and_the_cpu_through_host_memory() -> None:
    workload = read_workload(tarnawski(), "five.json")
    assert workload.cluster.switches == ("host-memory",)
    assert workload.cluster.device_names == ("acc0", "acc1", "cpu0")
    assert [d.memory for d in workload.cluster.devices] == [1e9, 1e9, math.inf]
    assert workload.options == {}
    seconds = transfer_seconds(workload, 0)
    assert seconds[0, 2] == pytest.approx(0.002, rel=1e-12)
    assert seconds[0, 1] == pytest.approx(0.002, rel=1e-12)


def test_fields_beyond_the_format_are_taken_for_debugging_information() -> None:
    document = tarnawski() | {"comment": "from a profiler"}
    document["nodes"][0]["profile"] = {"runs": 3}
    assert read_workload(document, "five.json").graph.op_count == 5


def test_whole_numbers_may_be_written_as_floats() -> None:
    """As a table with gaps writes them; and a name may be a number."""
    document = tarnawski()
    for each in document["nodes"]:
        each["id"] = float(each["id"])
        each["name"] = 7
        if "colorClass" in each:
            each["colorClass"] = float(each["colorClass"])
    for each in document["edges"]:
        each["sourceId"], each["destId"] = float(each["sourceId"]), float(each["destId"])
    graph, same = read_workload(document, "five.json").graph, read_workload(tarnawski(), "").graph
    assert graph.op_names[0].startswith("7")
    assert (graph.colocation == same.colocation).all()
    assert (graph.consumers == same.consumers).all()


def test_workloads_are_told_apart_by_content() -> None:
    assert is_workload(moirai())
    assert is_workload(tarnawski())
    assert not is_workload({"format": "placewright.graph/1", "nodes": [], "maxFPGAs": 1})
    assert not is_workload({"nodes": [], "edges": []})
    assert not is_workload([moirai()])
    assert not is_workload(None)


def test_a_placement_file_names_devices_in_order() -> None:
    document = {"fpgas": [{"nodes": [3], "load": -1}, {"nodes": []}], "cpus": [{"nodes": [1, 2]}]}
    assert read_expert(document, "expert.json") == {3: "acc0", 1: "cpu0", 2: "cpu0"}


def test_a_placement_file_that_places_an_op_twice_is_refused() -> None:
    document = {"fpgas": [{"nodes": [3]}, {"nodes": [3]}], "cpus": []}
    with pytest.raises(FormatError, match=r"fpgas\.1\.nodes: node 3 is already on acc0"):
        read_expert(document, "expert.json")


# -- malformed files -------------------------------------------------------------------------------


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def drop(*keys: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return change


def add_edge(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["edges"].append(fields)


MALFORMED_TARNAWSKI = [
    ("cost null", put("edges", 1, "cost", value=None), FormatError, "edges.1.cost"),
    ("cost absent", drop("edges", 0, "cost"), FormatError, "edges.0.cost"),
    ("cost negative", put("edges", 0, "cost", value=-1), FormatError, "edges.0.cost"),
    ("cost NaN", put("edges", 0, "cost", value=math.nan), FormatError, "edges.0.cost"),
    ("cost infinite", put("edges", 0, "cost", value=math.inf), FormatError, "edges.0.cost"),
    ("cost text", put("edges", 0, "cost", value="2 ms"), FormatError, "edges.0.cost"),
    ("time negative", put("nodes", 2, "cpuLatency", value=-3), FormatError, "nodes.2.cpuLatency"),
    ("time absent", drop("nodes", 0, "cpuLatency"), FormatError, "nodes.0.cpuLatency"),
    ("accelerator time", drop("nodes", 0, "fpgaLatency"), FormatError, "nodes.0.fpgaLatency"),
    ("size absent", drop("nodes", 1, "size"), FormatError, "nodes.1.size"),
    ("id absent", drop("nodes", 1, "id"), FormatError, "nodes.1.id"),
    ("id a fraction", put("nodes", 1, "id", value=1.5), FormatError, "nodes.1.id"),
    ("id twice", put("nodes", 1, "id", value=4), GraphError, "nodes.1.id: 4 is already"),
    ("source unknown", put("edges", 0, "sourceId", value=99), GraphError, "edges.0.sourceId"),
    ("target unknown", put("edges", 3, "destId", value=99), GraphError, "edges.3.destId"),
    ("self-loop", put("edges", 0, "destId", value=4), GraphError, "edges.0.*itself"),
    ("cycle", add_edge(sourceId=12, destId=4, cost=1), GraphError, "cycle"),
    ("no nodes", put("nodes", value=[]), FormatError, "nodes"),
    ("nodes an object", put("nodes", value={}), FormatError, "nodes"),
    ("edges missing", drop("edges"), FormatError, "edges"),
    (
        "flag a word",
        put("nodes", 0, "supportedOnFpga", value="yes"),
        FormatError,
        "supportedOnFpga",
    ),
    ("flag two", put("nodes", 0, "isBackwardNode", value=2), FormatError, "isBackwardNode"),
    ("devices negative", put("maxFPGAs", value=-1), FormatError, "maxFPGAs"),
    ("devices endless", put("maxCPUs", value=10**9), FormatError, "maxCPUs"),
    ("memory absent", drop("maxSizePerFPGA"), FormatError, "maxSizePerFPGA"),
    ("huge integer", put("edges", 0, "cost", value=10**400), FormatError, "edges.0.cost"),
    ("cost overflows", put("edges", 0, "cost", value=1e305), GraphError, "tensor_bytes"),
]

MALFORMED_MOIRAI = [
    ("newer version", put("format", value="moirai/2"), FormatError, "moirai/2"),
    ("time unit", put("time_unit", value="s"), FormatError, "time_unit"),
    ("times too few", put("ops", 1, "time", value=[1.0]), FormatError, "ops.1.time"),
    ("time negative", put("ops", 1, "time", value=[1.0, -1]), FormatError, "ops.1.time.1"),
    ("rates ragged", put("transfer_rate", 1, value=[1.0]), FormatError, "transfer_rate"),
    ("rate negative", put("transfer_rate", 0, 1, value=-1), FormatError, "transfer_rate.0.1"),
    ("devices alike", put("devices", 1, "name", value="a"), FormatError, "devices.1.name"),
    ("no devices", put("devices", value=[]), FormatError, "devices"),
    ("id twice", put("ops", 2, "id", value=7), GraphError, "ops.2.id"),
    ("edge unknown", put("edges", 0, "target", value=8), GraphError, "edges.0.target"),
    ("transfer null", put("edges", 2, "transfer_time_0_1", value=None), FormatError, "edges.2"),
    (
        "cycle",
        add_edge(source=20, target=10, transfer_time_0_1=1.0),
        GraphError,
        "cycle",
    ),
]


def assert_refused(
    document: dict[str, Any], change: Callable[[Any], None], error: type[InputError], match: str
) -> None:
    changed = copy.deepcopy(document)
    change(changed)
    with pytest.raises(error, match=match) as caught:
        read_workload(changed, "work/load.json")
    message = str(caught.value)
    assert "work/load.json" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [case[1:] for case in MALFORMED_TARNAWSKI],
    ids=[case[0] for case in MALFORMED_TARNAWSKI],
)
def test_a_malformed_tarnawski_file_is_refused_by_field(
    change: Callable[[Any], None], error: type[InputError], match: str
) -> None:
    assert_refused(tarnawski(), change, error, match)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [case[1:] for case in MALFORMED_MOIRAI],
    ids=[case[0] for case in MALFORMED_MOIRAI],
)
def test_a_malformed_moirai_file_is_refused_by_field(
    change: Callable[[Any], None], error: type[InputError], match: str
) -> None:
    assert_refused(moirai(), change, error, match)


def test_a_workload_without_any_device_is_refused() -> None:
    document = tarnawski() | {"maxFPGAs": 0, "maxCPUs": 0}
    with pytest.raises(FormatError, match=r"load\.json: .*maxFPGAs and maxCPUs"):
        read_workload(document, "load.json")


def test_another_document_is_no_workload() -> None:
    with pytest.raises(FormatError, match=r"load\.json: not a published workload"):
        read_workload({"ops": []}, "load.json")


def test_a_number_beyond_all_numbers_in_the_text_is_refused() -> None:
    text = json.dumps(tarnawski()).replace("0.25", "1e999")
    with pytest.raises(FormatError, match=r"edges\.3\.cost"):
        read_workload(parse_json(text, "load.json"), "load.json")
