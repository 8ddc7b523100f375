"""Plans of ONNX files as sub-models for ONNX Runtime, and as annotations that onnx reads back."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import placewright as pw  # noqa: E402
from placewright.cluster import Cluster, CpuRun, Device, Link  # noqa: E402
from placewright.errors import OptionError  # noqa: E402
from placewright.exporters import onnx_files  # noqa: E402
from placewright.exporters.exporting import export  # noqa: E402
from placewright.exporters.onnx_annotations import write_device_configurations  # noqa: E402
from placewright.exporters.onnx_runtime import write_sessions  # noqa: E402
from placewright.plan import Placement, Plan  # noqa: E402
from placewright.planning import make_problem  # noqa: E402
from placewright.runtime.onnx_sessions.preparing import model_of  # noqa: E402
from placewright.simulate import evaluate  # noqa: E402
from placewright.simulate.latency import dispatch_placement  # noqa: E402
from tests.runtime.onnx_sessions.models import (  # noqa: E402
    FLOAT,
    MODELS,
    SIZES,
    body,
    convolutional,
    model,
    node,
    value,
)
from tests.runtime.onnx_sessions.plans import plan_of, saved  # noqa: E402

pytestmark = pytest.mark.timeout(120)
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def started(folder: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """The script, in a Python that sees installed packages only."""
    command = [sys.executable, "-I", folder / "run.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def in_one_session(model: Path, inputs: Path) -> dict[str, np.ndarray]:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, settings, providers=[CPU])
    names = [each.name for each in session.get_outputs()]
    with np.load(inputs) as given:
        return dict(zip(names, session.run(names, dict(given)), strict=True))


def check_equal(found: Path, expected: dict[str, np.ndarray]) -> None:
    with np.load(found) as outputs:
        assert set(outputs.files) == set(expected)
        for name, array in expected.items():
            assert outputs[name].dtype == array.dtype
            np.testing.assert_array_equal(outputs[name], array)


def plan_on_gpus(source: Path, gpus: int, cpus: int) -> Plan:
    """Op number k on device number k, modulo how many there are."""
    devices = [Device(f"gpu{k}", "T4") for k in range(gpus)]
    devices += [Device(f"cpu{k}", "EPYC 7763", memory=1e9) for k in range(cpus)]
    names = [device.name for device in devices]
    links = tuple(Link(a, b, 1e9) for k, a in enumerate(names) for b in names[k + 1 :])
    cluster = Cluster("mixed", tuple(devices), links)
    problem, name = make_problem(str(source), cluster, {"objective": "latency"})
    device = np.arange(problem.op_count, dtype=np.int32) % len(devices)
    placement = dispatch_placement(problem, device, None)
    outcome = evaluate(problem, placement)
    return Plan(
        problem=problem, placement=placement, outcome=outcome, value=outcome.value,
        lower_bound=0.0, bound_source="none", planner="by hand", source=name,
    )  # fmt: skip


# -- ONNX Runtime ----------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_script_gives_to_the_bit_what_the_whole_model_gives(objective, tmp_path):
    source, folder = saved(convolutional(), tmp_path), tmp_path / "sessions"
    plan = plan_of(source, None, None, None, seed=1, objective=objective)
    export(plan, "onnxruntime", folder)
    done = started(folder, "--outputs", tmp_path / "outputs.npz")
    assert done.returncode == 0, done.stderr
    check_equal(tmp_path / "outputs.npz", in_one_session(source, folder / "inputs.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_any_model_and_placement_gives_to_the_bit_what_the_whole_model_gives(name, tmp_path):
    path = saved(MODELS[name](), tmp_path)
    for seed in range(3):
        folder, outputs = tmp_path / f"sessions{seed}", tmp_path / f"{seed}.npz"
        write_sessions(folder, plan_of(f"{path}{SIZES.get(name, '')}", seed=seed))
        done = started(folder, "--outputs", outputs)
        assert done.returncode == 0, done.stderr
        check_equal(outputs, in_one_session(path, folder / "inputs.npz"))


def test_an_output_that_a_model_lists_twice_is_written_once(tmp_path):
    made = convolutional()
    made.graph.output.append(made.graph.output[0])
    source, folder = saved(made, tmp_path), tmp_path / "sessions"
    export(plan_of(source, [0] * 9), "onnxruntime", folder)
    for arguments in ((), ("--annotated",)):
        done = started(folder, "--outputs", tmp_path / "outputs.npz", *arguments)
        assert done.returncode == 0, done.stderr
        check_equal(tmp_path / "outputs.npz", in_one_session(source, folder / "inputs.npz"))


def test_outputs_of_types_that_numpy_lacks_are_written_as_their_bits(tmp_path):
    kinds = {"bfloat16": onnx.TensorProto.BFLOAT16, "int4": onnx.TensorProto.INT4}
    nodes = [node("Neg", "x", "y")]
    nodes += [node("Cast", "y", name, to=kind) for name, kind in kinds.items()]
    labels = onnx.numpy_helper.from_array(np.array(["cat"], object), "labels")
    made = model(nodes, [value("x", FLOAT, [1, 3])], "bfloat16 int4 labels", [labels], opset=21)
    made.graph.output[2].CopyFrom(value("labels", onnx.TensorProto.STRING, [1]))
    folder = tmp_path / "sessions"
    export(plan_of(saved(made, tmp_path), [0, 1, 0]), "onnxruntime", folder)
    np.savez(tmp_path / "inputs.npz", x=np.array([[1, 2, -1]], np.float32))
    outputs = tmp_path / "outputs.npz"
    done = started(folder, "--inputs", tmp_path / "inputs.npz", "--outputs", outputs)
    assert done.returncode == 0, done.stderr
    with np.load(outputs) as found:
        assert found["bfloat16"].tolist() == [[0xBF80, 0xC000, 0x3F80]]
        assert found["int4"].tolist() == [0xEF, 0x01]  # two to a byte, the first one low
        assert found["labels"].tolist() == ["cat"]


def test_inputs_of_types_that_numpy_lacks_are_their_bits(tmp_path):
    kinds = {"bfloat16": onnx.TensorProto.BFLOAT16, "float8": onnx.TensorProto.FLOAT8E5M2}
    nodes = [node("Cast", name, f"{name}_y", to=FLOAT) for name in kinds]
    inputs = [value(name, kind, [1, 2]) for name, kind in kinds.items()]
    made = model(nodes, inputs, "bfloat16_y float8_y", opset=21)
    folder, outputs = tmp_path / "sessions", tmp_path / "outputs.npz"
    export(plan_of(saved(made, tmp_path), [0, 1]), "onnxruntime", folder)
    assert started(folder).returncode == 0
    bits = {"bfloat16": np.uint16([[0x3F80, 0xC000]]), "float8": np.uint8([[0x3C, 0xC0]])}
    np.savez(tmp_path / "inputs.npz", **bits)
    done = started(folder, "--inputs", tmp_path / "inputs.npz", "--outputs", outputs)
    assert done.returncode == 0, done.stderr
    with np.load(outputs) as found:
        assert {name: found[name].tolist() for name in found.files} == {
            "bfloat16_y": [[1.0, -2.0]],
            "float8_y": [[1.0, -2.0]],
        }


def test_inputs_that_the_plan_does_not_have_are_refused(tmp_path):
    folder = tmp_path / "sessions"
    made = model([node("Neg", "x", "y")], [value("x", FLOAT, [1])], "y")
    export(plan_of(saved(made, tmp_path), [0]), "onnxruntime", folder)
    np.savez(tmp_path / "inputs.npz", x=np.ones(1, np.float32), scale=np.ones(1))
    done = started(folder, "--inputs", tmp_path / "inputs.npz")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("'scale' is none of the plan's inputs: x")


def test_an_input_whose_elements_share_bytes_is_refused(tmp_path):
    inputs = [value("x", onnx.TensorProto.INT4, [2])]
    made = model([node("Cast", "x", "y", to=FLOAT)], inputs, "y", opset=21)
    with pytest.raises(OptionError, match=r"elements of input 'x' of .* share bytes"):
        export(plan_of(saved(made, tmp_path), [0]), "onnxruntime", tmp_path / "sessions")


def test_nodes_that_share_a_name_get_their_own_in_the_sub_models(tmp_path):
    branch = body([node("Neg", "x", "n"), node("Abs", "n", "a")], (), [value("a", FLOAT, [2])])
    nodes = [
        node("If", "c", "i", then_branch=branch, else_branch=branch),
        node("Relu", "i", "r"),
        node("Exp", "r", "y"),
    ]
    for each in (*nodes, *branch.node, *nodes[0].attribute[0].g.node):
        each.name = "same"
    inputs = [value("x", FLOAT, [2]), value("c", onnx.TensorProto.BOOL, [])]
    folder, outputs = tmp_path / "sessions", tmp_path / "outputs.npz"
    export(plan_of(saved(model(nodes, inputs, "y"), tmp_path), [0, 0, 0]), "onnxruntime", folder)
    np.savez(tmp_path / "inputs.npz", x=np.zeros(2, np.float32), c=np.array(True))
    for arguments in ((), ("--annotated",)):
        given = ("--inputs", tmp_path / "inputs.npz", "--outputs", outputs)
        done = started(folder, *given, *arguments)
        assert done.returncode == 0, done.stderr
        with np.load(outputs) as found:
            assert found["y"].tolist() == [1.0, 1.0]


def test_sizes_that_one_stage_reckons_resize_in_another(tmp_path):
    nodes = [
        node("Shape", "like", "sizes"),
        node("Relu", "image", "r"),
        node("Resize", "r _ _ sizes", "y", mode="nearest"),
    ]
    shapes = {"image": ["n", 1, 4, 4], "like": ["n", 1, "h", "w"]}
    made = model(nodes, [value(name, FLOAT, shape) for name, shape in shapes.items()], "y")
    source, folder = saved(made, tmp_path), tmp_path / "sessions"
    export(plan_of(f"{source}?h=8&w=6", [0, 1, 1]), "onnxruntime", folder)
    done = started(folder, "--outputs", tmp_path / "outputs.npz")
    assert done.returncode == 0, done.stderr
    check_equal(tmp_path / "outputs.npz", in_one_session(source, folder / "inputs.npz"))


def test_each_node_runs_on_the_provider_meant(tmp_path):
    source, folder = saved(convolutional(), tmp_path), tmp_path / "sessions"
    plan = plan_of(source, None, CpuRun((0,)), None, seed=2)
    export(plan, "onnxruntime", folder)
    done = started(folder, "--profile", tmp_path / "trace")
    traces = [line for line in done.stdout.splitlines() if line.endswith(".json")]
    stages = json.loads((folder / "stages.json").read_text())["stages"]
    assert len(traces) == len(stages) > 1
    ran = []
    for trace, stage in zip(traces, stages, strict=True):
        events = json.loads(Path(trace).read_text())
        nodes = [event["args"] for event in events if event.get("cat") == "Node"]
        assert {each["provider"] for each in nodes if "provider" in each} == {stage["provider"][0]}
        ran += [event["name"] for event in events if event["name"].endswith("_kernel_time")]
        assert f"{stage['model']} on {stage['device']}: " in done.stdout
        assert stage["threads"] == (1 if stage["device"] == "cpu0" else 0)
    assert sorted(ran) == sorted(f"{name}_kernel_time" for name in plan.problem.op_names)


def test_every_sub_model_passes_the_checker_of_onnx(tmp_path):
    source, folder = saved(convolutional(), tmp_path), tmp_path / "sessions"
    export(plan_of(source, seed=3), "onnxruntime", folder)
    for path in folder.glob("*.onnx"):
        onnx.checker.check_model(path, full_check=True)


def test_a_cuda_device_is_named_with_its_provider_and_a_machine_without_says_so(tmp_path):
    source, folder = saved(convolutional(), tmp_path), tmp_path / "sessions"
    lines = export(plan_on_gpus(source, 2, 1), "onnxruntime", folder)
    assert "no annotated.onnx: a session has one CUDA device, the plan gpu0, gpu1" in lines[1]
    stages = json.loads((folder / "stages.json").read_text())["stages"]
    meant = {stage["device"]: stage["provider"] for stage in stages}
    assert meant == {
        "gpu0": [CUDA, {"device_id": 0}], "gpu1": [CUDA, {"device_id": 1}], "cpu0": [CPU, {}],
    }  # fmt: skip
    if CUDA not in ort.get_available_providers():
        done = started(folder)
        (line,) = done.stderr.splitlines()
        assert done.returncode and "is planned for gpu0, which needs CUDAExecutionProvider" in line


def test_a_gpu_and_a_cpu_are_layers_of_one_session(tmp_path):
    source, folder = saved(convolutional(), tmp_path), tmp_path / "sessions"
    plan = plan_on_gpus(source, 1, 1)
    assert len(export(plan, "onnxruntime", folder)) == 1
    layers = json.loads((folder / "stages.json").read_text())["annotated"]
    assert layers["settings"] == "cuda(=device0);cpu(=device1)"
    model = onnx.load(folder / layers["model"])
    found = {n.name: {p.key: p.value for p in n.metadata_props} for n in model.graph.node}
    device = plan.placement.device.tolist()
    for op, name in enumerate(plan.problem.op_names):
        assert found[name] == {"layer_ann": f"device{device[op]}"}


def test_the_annotated_model_runs_in_one_session(tmp_path):
    source, folder = saved(convolutional(), tmp_path), tmp_path / "sessions"
    export(plan_on_gpus(source, 0, 1), "onnxruntime", folder)
    done = started(folder, "--annotated", "--outputs", tmp_path / "outputs.npz")
    assert done.returncode == 0 and "annotated.onnx on cpu0: " in done.stdout, done.stderr
    check_equal(tmp_path / "outputs.npz", in_one_session(source, folder / "inputs.npz"))


def test_weights_in_other_files_go_into_the_sub_models(tmp_path, monkeypatch):
    source = tmp_path / "model.onnx"
    onnx.save_model(
        convolutional(), source, save_as_external_data=True, location="weights", size_threshold=0
    )
    plan, folder = plan_of(source, seed=4), tmp_path / "sessions"
    monkeypatch.setattr(onnx_files, "LARGEST", 0)
    export(plan, "onnxruntime", folder)
    assert list(folder.glob("stage*.onnx.data"))
    source.with_name("weights").rename(tmp_path / "elsewhere")
    assert started(folder, "--outputs", tmp_path / "outputs.npz").returncode == 0
    (tmp_path / "elsewhere").rename(source.with_name("weights"))
    check_equal(tmp_path / "outputs.npz", in_one_session(source, folder / "inputs.npz"))


def test_a_folder_with_files_is_left_alone_and_a_failure_leaves_nothing(tmp_path, monkeypatch):
    source, folder = saved(convolutional(), tmp_path), tmp_path / "sessions"
    plan = plan_of(source, seed=0)
    folder.mkdir()
    (folder / "mine").touch()
    with pytest.raises(pw.FormatError, match="is a folder with files in it; name a new folder"):
        export(plan, "onnxruntime", folder)
    (folder / "mine").unlink()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(
        "placewright.exporters.onnx_runtime.made_up", lambda *_: 1 / 0, raising=True
    )
    with pytest.raises(ZeroDivisionError):
        export(plan, "onnxruntime", folder)
    assert sorted(tmp_path.rglob("*")) == before


# -- device configurations of the IR ---------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MODELS))
def test_device_configurations_say_where_each_op_runs(name, tmp_path):
    source = f"{saved(MODELS[name](), tmp_path)}{SIZES.get(name, '')}"
    plan, path = plan_of(source, seed=5), tmp_path / "annotated.onnx"
    write_device_configurations(path, plan)
    model = onnx.load(path)
    (configuration,) = model.configuration
    assert model.ir_version >= 11
    assert list(configuration.device) == list(plan.problem.device_names)
    assert configuration.num_devices == len(configuration.device)
    nodes = {name: node for node in model.graph.node for name in node.output if name}
    device = dict(zip(plan.problem.op_names, plan.placement.device.tolist(), strict=True))
    for op, known in model_of(plan).ops.items():
        made = [*filter(None, known.node.output)]
        (of_node,) = nodes[made[0]].device_configurations
        assert of_node.configuration_id == configuration.name
        assert [each.tensor_name for each in of_node.sharding_spec] == made
        assert {index for each in of_node.sharding_spec for index in each.device} == {device[op]}
        metadata = {each.key: each.value for each in nodes[made[0]].metadata_props}
        assert metadata["placewright.device"] == plan.problem.device_names[device[op]]


def test_a_model_with_device_configurations_passes_the_checker_and_runs_as_before(tmp_path):
    source, path, folder = saved(convolutional(), tmp_path), tmp_path / "a.onnx", tmp_path / "s"
    plan = plan_of(source, seed=6)
    export(plan, "onnx", path)
    export(plan, "onnxruntime", folder)
    onnx.checker.check_model(path, full_check=False)
    expected = in_one_session(source, folder / "inputs.npz")
    for name, array in in_one_session(path, folder / "inputs.npz").items():
        np.testing.assert_array_equal(array, expected[name])


def test_stages_follow_one_another_along_the_data(tmp_path):
    source, path = saved(convolutional(), tmp_path), tmp_path / "annotated.onnx"
    plan = plan_of(source, None, None, None, None, seed=7)
    export(plan, "onnx", path)
    stage: dict[str, int] = {}
    devices: dict[int, set[int]] = {}
    for made in onnx.load(path).graph.node:
        of_node = made.device_configurations[0]
        assert all(stage.get(name, 0) <= of_node.pipeline_stage for name in made.input)
        stage |= dict.fromkeys(made.output, of_node.pipeline_stage)
        (device,) = {each for spec in of_node.sharding_spec for each in spec.device}
        devices.setdefault(of_node.pipeline_stage, set()).add(device)
    assert len(devices) > 1 and all(len(each) == 1 for each in devices.values())


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["onnxruntime", "onnx"])
def test_a_plan_of_no_onnx_file_is_refused_even_without_onnx(engine, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    plan = pw.plan("zoo:gpt2?layers=1", "2x3090", planner="heft")
    with pytest.raises(OptionError, match="takes plans of ONNX files, and the plan is of zoo:gpt2"):
        export(plan, engine, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("engine", ["onnxruntime", "onnx"])
def test_stages_with_replicas_are_refused(engine, tmp_path):
    source = saved(convolutional(), tmp_path)
    asked = {"planner": "single-device", "objective": "throughput", "replicate": True}
    plan = pw.plan(str(source), "2x3090", **asked)
    ops = np.zeros(plan.problem.op_count, dtype=np.int32)
    placement = Placement(ops, replicas=((0, 1),))
    outcome = evaluate(plan.problem, placement)
    plan = replace(plan, placement=placement, outcome=outcome, value=outcome.value)
    with pytest.raises(OptionError, match="has stages with replicas; plan without --replicate"):
        export(plan, engine, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "named"),
    [("M2", "Apple M2"), ("MI300X", "AMD MI300X"), ("Intel Arc B580", "Intel Arc B580")],
)
def test_gpus_without_cuda_are_refused(kind, named, tmp_path):
    source = saved(convolutional(), tmp_path)
    figures = {"peak_flops": {"fp32": 1e12}, "memory_bandwidth": 1e11}
    cluster = Cluster("box", (Device("gpu", kind, memory=1e9, **figures),))
    plan = pw.plan(str(source), cluster, planner="single-device")
    with pytest.raises(OptionError, match=f"device 'gpu' is an {named}, and"):
        export(plan, "onnxruntime", tmp_path / "out")
