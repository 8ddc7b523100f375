"""A model that is cut, in any way and order, gives to the bit what it gives in one session."""

from __future__ import annotations

import os
import struct
import threading
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from placewright.cluster import CpuRun  # noqa: E402
from placewright.errors import InputError  # noqa: E402
from placewright.importers.onnx.reading import read_model  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.report.running import run_record, step_tables  # noqa: E402
from placewright.runtime import RunOptions, run_plan  # noqa: E402
from placewright.runtime.onnx_sessions import passes, run_onnx_plan  # noqa: E402
from placewright.runtime.onnx_sessions.cutting import SubModel  # noqa: E402
from placewright.runtime.onnx_sessions.models import Parts  # noqa: E402
from placewright.runtime.onnx_sessions.sessions import Session  # noqa: E402
from tests.runtime.onnx_sessions.models import (  # noqa: E402
    FLOAT,
    MODELS,
    SIZES,
    convolutional,
    drawn,
    exported_block,
    model,
    node,
    tied,
    value,
)
from tests.runtime.onnx_sessions.plans import ONCE, cluster_of, plan_of, saved  # noqa: E402

pytestmark = pytest.mark.timeout(120)


# -- any placement, any order --------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MODELS))
def test_any_placement_in_any_order_gives_the_outputs_of_one_session(
    name: str, tmp_path: Path
) -> None:
    source = f"{saved(MODELS[name](), tmp_path)}{SIZES.get(name, '')}"
    for seed in range(20):
        plan = plan_of(source, None, *[None] * (2 + seed % 3), seed=seed)
        assert run_onnx_plan(plan, ONCE).max_abs_difference == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_two_hundred_placements_give_the_outputs_of_one_session(name: str, tmp_path: Path) -> None:
    source = f"{saved(MODELS[name](), tmp_path)}{SIZES.get(name, '')}"
    for seed in range(1000, 1200):
        plan = plan_of(source, None, *[None] * (2 + seed % 3), seed=seed)
        assert run_onnx_plan(plan, ONCE).max_abs_difference == 0.0


@pytest.mark.parametrize("name", sorted(MODELS))
def test_several_samples_in_a_pipeline_give_what_each_gives_in_one_session(
    name: str, tmp_path: Path
) -> None:
    source = f"{saved(MODELS[name](), tmp_path)}{SIZES.get(name, '')}"
    for seed in range(5):
        runs = [None] * (2 + seed % 3)
        plan = plan_of(source, None, *runs, seed=seed, objective="throughput")
        report = run_onnx_plan(plan, ONCE)
        assert report.max_abs_difference == 0.0
        assert len(report.results) == 5 * report.ranks


def test_a_run_of_a_pipeline_is_recorded_without_a_schedule_to_compare_it_with(
    tmp_path: Path,
) -> None:
    plan = plan_of(saved(two_branches(), tmp_path), [0, 1, 0], objective="throughput")
    report = run_plan(plan, RunOptions(repeats=1, clocked=1))
    assert report.steps
    assert "ops" not in run_record(plan, report)
    assert list(step_tables(plan, report)) == []


BINARY, UNARY = ("Add", "Sub", "Mul", "Max"), ("Relu", "Tanh", "Neg", "Softmax", "Identity")


@st.composite
def dags(draw: st.DrawFn) -> Any:
    """Any DAG of small ops with any of its tensors as outputs, inputs and weights included."""
    names = ["x", "w"]
    nodes = []
    for number in range(draw(st.integers(1, 10))):
        two = draw(st.booleans())
        read = [draw(st.sampled_from(names)) for _ in range(1 + two)]
        kind = draw(st.sampled_from(BINARY if two else UNARY))
        nodes.append(node(kind, " ".join(read), f"t{number}"))
        names.append(f"t{number}")
    made = {name for each in nodes for name in each.output}
    outputs = draw(st.lists(st.sampled_from(sorted(made)), min_size=1, max_size=4, unique=True))
    return model(nodes, [value("x", FLOAT, [4, 4])], " ".join(outputs), [drawn("w", 4, 4)])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dags(), st.integers(0, 10**6), st.integers(2, 4))
def test_any_dag_gives_the_outputs_of_one_session(
    tmp_path: Path, made: Any, seed: int, devices: int
) -> None:
    try:
        plan = plan_of(saved(made, tmp_path), None, *[None] * devices, seed=seed)
    except InputError:  # nothing but constants
        return
    assert run_onnx_plan(plan, ONCE).max_abs_difference == 0.0


def test_a_model_of_an_exporter_is_run_as_it_was_planned(tmp_path: Path) -> None:
    path = exported_block(tmp_path / "block.onnx")
    for planner in ("heft", "memory-fill", "greedy"):
        plan = make_plan(f"{path}?tokens=7", cluster_of(None, None, None), planner=planner)
        report = run_plan(plan, RunOptions(repeats=2))
        assert report.max_abs_difference == 0.0
        assert report.predicted == plan.value


def test_an_output_that_a_model_lists_twice_is_returned_once(tmp_path: Path) -> None:
    nodes = [node("Exp", "x", "h"), node("Sin", "h", "y")]
    plan = plan_of(saved(model(nodes, [value("x", FLOAT, [8])], "y h y"), tmp_path), [0, 1])
    report = run_onnx_plan(plan, ONCE)
    assert report.max_abs_difference == 0.0
    assert len(report.results[0]) == 2


def test_text_that_a_model_stores_may_be_an_output(tmp_path: Path) -> None:
    nodes = [node("Exp", "x", "h"), node("Sin", "h", "y")]
    labels = onnx.numpy_helper.from_array(np.array(["cat", "dog"], object), "labels")
    made = model(nodes, [value("x", FLOAT, [8])], "y labels", [labels])
    made.graph.output[1].CopyFrom(value("labels", onnx.TensorProto.STRING, [2]))
    report = run_onnx_plan(plan_of(saved(made, tmp_path), [0, 1]), ONCE)
    assert report.max_abs_difference == 0.0
    assert report.results[0][1].tolist() == ["cat", "dog"]


# -- weights -------------------------------------------------------------------------------------


def test_weights_in_other_files_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the model is, not where the run is."""
    onnx.save(
        convolutional(), tmp_path / "model.onnx", save_as_external_data=True,
        location="weights.bin", size_threshold=0,
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for source in ("model.onnx", f"{tmp_path}/model.onnx"):
        plan = plan_of(f"{source}?height=12", seed=1)
        assert run_onnx_plan(plan, ONCE).max_abs_difference == 0.0


def test_weights_are_lent_to_sessions_and_a_shared_one_is_there_once(tmp_path: Path) -> None:
    found = read_model(saved(tied(), tmp_path))
    parts = Parts(found)
    lent = []
    for op in ("Gather h", "Transpose back"):
        reads, gives = found.ops[op].reads, found.ops[op].node.output
        built, weights = parts.build(SubModel(0, (op,), tuple(reads), tuple(gives)))
        assert len(built.SerializeToString()) < 50 * 16 * 4
        lent += weights.values()
    assert len(lent) == 2
    assert len({each.data_ptr() for each in lent}) == 1


# -- inputs --------------------------------------------------------------------------------------


def test_inputs_may_be_given_as_arrays_or_as_a_file(tmp_path: Path) -> None:
    plan = plan_of(saved(tied(), tmp_path), seed=0)
    ids = np.arange(10).reshape(2, 5)
    np.savez(tmp_path / "inputs.npz", ids=ids)
    expected = ReferenceEvaluator(tied()).run(["y"], {"ids": ids})[0]
    for inputs in ({"ids": ids}, tmp_path / "inputs.npz"):
        report = run_plan(plan, ONCE, inputs=inputs)
        assert report.max_abs_difference == 0.0
        np.testing.assert_allclose(report.results[0][3], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("element", "bits"),
    [
        ("BFLOAT16", np.array([[0x3F80, 0xC000]], np.uint16)),
        ("FLOAT8E4M3FN", np.array([[0x38, 0xC0]], np.uint8)),
        ("INT4", np.array([0xE1], np.uint8)),
    ],
)
def test_inputs_of_types_that_numpy_lacks_are_given_as_their_bits(
    element: str, bits: Any, tmp_path: Path
) -> None:
    inputs = [value("x", getattr(onnx.TensorProto, element), [1, 2])]
    made = model([node("Cast", "x", "h", to=FLOAT), node("Neg", "h", "y")], inputs, "y", opset=21)
    plan = plan_of(saved(made, tmp_path), [0, 1])
    assert run_plan(plan, ONCE).max_abs_difference == 0.0
    assert run_plan(plan, ONCE, inputs={"x": bits}).results[0][0].tolist() == [[-1.0, 2.0]]


def test_a_value_that_the_model_has_itself_is_no_input(tmp_path: Path) -> None:
    scale = onnx.numpy_helper.from_array(np.ones(2, np.float32), "scale")
    inputs = [value("x", FLOAT, [2]), value("scale", FLOAT, [2])]
    plan = plan_of(saved(model([node("Mul", "x scale", "y")], inputs, "y", [scale]), tmp_path), [0])
    with pytest.raises(InputError, match=r"'scale' has its value in .* planned as a weight"):
        run_plan(plan, ONCE, inputs={"scale": np.zeros(2, np.float32)})


def write_bad_archives() -> None:
    """One with a byte changed, one that claims more than there is, one without arrays."""
    np.savez_compressed("damaged.npz", ids=np.arange(1000))
    content = bytearray(Path("damaged.npz").read_bytes())
    content[len(content) // 3] ^= 0xFF
    Path("damaged.npz").write_bytes(content)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776000,), }"
    with zipfile.ZipFile("huge.npz", "w") as file:
        file.writestr("ids.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with zipfile.ZipFile("words.npz", "w") as file:
        file.writestr("ids", b"no array")


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"idz": np.zeros(1)}, "the model has no input 'idz'; it has 'ids'"),
        ({"ids": np.zeros((2, 5))}, r"input 'ids' is float64\[2, 5\], but the plan is for int64"),
        ({"ids": np.zeros((2, 6), np.int64)}, r"is int64\[2, 6\], but .* int64\[2, 5\]; give"),
        ("missing.npz", "missing.npz: no such file"),
        ("text.npz", "text.npz: no .npz file of plain arrays .*save the inputs with numpy.savez"),
        ("objects.npz", "objects.npz: no .npz file of plain arrays"),
        ("one.npy", "one.npy: holds one array; save the inputs with numpy.savez"),
        ("damaged.npz", "damaged.npz: no .npz file of plain arrays"),
        ("huge.npz", "huge.npz: its arrays do not fit in memory"),
        ("words.npz", "words.npz: 'ids' is no array"),
        (".", r"\.: cannot be read \(Is a directory\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    inputs: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(saved(tied(), tmp_path), seed=0)
    Path("text.npz").write_text("no zip")
    np.savez("objects.npz", ids=np.array([{}], dtype=object))
    np.save("one.npy", np.zeros(3))
    write_bad_archives()
    with pytest.raises(InputError, match=sentence):
        run_plan(plan, ONCE, inputs=inputs)


# -- what is told --------------------------------------------------------------------------------


def two_branches() -> Any:
    """Two heavy branches of one input, which join."""
    nodes = [
        node("MatMul", "x v", "a"),
        node("MatMul", "x w", "b"),
        node("Add", "a b", "y"),
    ]
    weights = [drawn("v", 256, 256), drawn("w", 256, 256, seed=1)]
    return model(nodes, [value("x", FLOAT, [64, 256])], "y", weights)


def test_ops_that_draw_at_random_are_counted(tmp_path: Path) -> None:
    nodes = [node("RandomNormalLike", "x", "noise"), node("Add", "x noise", "y")]
    plan = plan_of(saved(model(nodes, [value("x", FLOAT, [8])], "y"), tmp_path), [0, 1])
    assert run_onnx_plan(plan, ONCE).random_ops == 1


@pytest.mark.parametrize("training", [False, True])
def test_a_dropout_draws_at_random_where_it_trains(training: bool, tmp_path: Path) -> None:
    weights = [onnx.numpy_helper.from_array(np.float32(0.5), "ratio")]
    weights.append(onnx.numpy_helper.from_array(np.array(training), "training"))
    nodes = [node("Dropout", "x ratio training", "y")]
    made = model(nodes, [value("x", FLOAT, [8])], "y", weights)
    assert run_onnx_plan(plan_of(saved(made, tmp_path), [0]), ONCE).random_ops == training


def test_a_run_reports_times_transfers_and_steps(tmp_path: Path) -> None:
    plan = plan_of(saved(two_branches(), tmp_path), [0, 1, 0])
    told: list[tuple[str, float]] = []
    options = RunOptions(repeats=3, clocked=2)
    report = run_onnx_plan(plan, options, on_progress=lambda *each: told.append(each))
    assert (report.transfer_count, report.transfer_bytes) == (1, 64 * 256 * 4)
    assert 0 < report.fastest <= report.measured
    assert report.single_process_seconds > 0
    assert all(0 < busy <= report.measured for busy in report.rank_busy_seconds)
    assert report.devices == ("cpu0", "cpu1")
    assert (report.ranks, report.repeats, report.predicted) == (2, 3, plan.value)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(report.passes) == 2
    ran = {(each.rank, each.name) for each in report.steps if each.kind == "op"}
    assert ran == {(0, "MatMul a"), (1, "MatMul b"), (0, "Add y")}
    for each in report.steps:
        assert 0 <= each.start <= each.finish
        if each.kind == "wait":
            assert (each.rank, each.name, each.peer) == (0, "MatMul b", 1)
            assert each.bytes == report.transfer_bytes


def test_replicas_take_the_samples_in_turn(tmp_path: Path) -> None:
    nodes = [node("Exp", "t0", "t1"), node("Sin", "t1", "t2"), node("Cos", "t2", "t3")]
    path = saved(model(nodes, [value("t0", FLOAT, [2, 8])], "t3"), tmp_path)
    runs = [None] * 4
    plan = plan_of(path, [1, 1, 0], *runs, objective="throughput")
    placement = replace(plan.placement, replicas=((1, 2, 3),))
    report = run_onnx_plan(replace(plan, placement=placement), RunOptions(repeats=1, clocked=1))
    assert report.devices == ("cpu0", "cpu1", "cpu2", "cpu3")
    assert (report.max_abs_difference, len(report.results)) == (0.0, 20)
    done = [(each.rank, each.name) for each in report.steps if each.kind == "op"]
    assert Counter(done) == {
        (0, "Cos t3"): 20,
        **{(rank, "Exp t1 … Sin t2 (2 ops)"): 20 // 3 + (rank < 3) for rank in (1, 2, 3)},
    }
    assert report.transfer_count == 1


def test_a_value_is_let_go_after_its_last_use(tmp_path: Path) -> None:
    nodes = [node("Exp", f"t{k}", f"t{k + 1}") for k in range(6)]
    made = model(nodes, [value("t0", FLOAT, [8])], "t6")
    plan = plan_of(saved(made, tmp_path), [0, 1, 0, 1, 0, 1])
    most = []

    class Counting(dict[str, Any]):
        def update(self, *args: Any, **kwargs: Any) -> None:
            super().update(*args, **kwargs)
            most.append(len(self))

    original = passes.Pass.__init__

    def counted(self: Any, *args: Any) -> None:
        original(self, *args)
        self._values = [Counting(each) for each in self._values]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passes.Pass, "__init__", counted)
        assert run_onnx_plan(plan, ONCE).max_abs_difference == 0.0
    assert max(most) == 3  # the input, what is read, what is made


# -- devices of this machine ---------------------------------------------------------------------


def test_a_device_is_pinned_to_its_cores_and_has_as_many_threads(tmp_path: Path) -> None:
    usable = tuple(sorted(os.sched_getaffinity(0)))
    if len(usable) < 2:
        pytest.skip("this machine has one core")
    runs = (CpuRun(usable[:1]), CpuRun(usable[1:]))
    plan = plan_of(saved(two_branches(), tmp_path), [0, 1, 0], *runs)
    seen: dict[str, set[int]] = {}
    original = Session.run

    def watched(self: Any, values: Any) -> Any:
        seen[threading.current_thread().name] = os.sched_getaffinity(threading.get_native_id())
        return original(self, values)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "run", watched)
        report = run_plan(plan, ONCE)
    assert seen == {"cpu0": {usable[0]}, "cpu1": set(usable[1:])}
    assert report.rank_cores == (usable[:1], usable[1:])
    assert report.rank_threads == (1, len(usable) - 1)
    assert tuple(sorted(os.sched_getaffinity(0))) == usable
    assert run_plan(plan, RunOptions(repeats=1, threads=2)).rank_threads == (2, 2)


def test_threads_of_a_session_are_on_the_cores_of_its_device(tmp_path: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    plan = plan_of(saved(two_branches(), tmp_path), [0, 0, 0], CpuRun((usable[-1],)), None)
    tasks = Path("/proc/self/task")
    before = {each.name for each in tasks.iterdir()}
    places: list[set[int]] = []
    original = Session.run

    def watched(self: Any, values: Any) -> Any:
        begun = (each.name for each in tasks.iterdir() if each.name not in before)
        places.extend(os.sched_getaffinity(int(each)) for each in begun)
        return original(self, values)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "run", watched)
        run_plan(plan, RunOptions(repeats=1, threads=3))
    assert len(places) >= 3
    assert all(place == {usable[-1]} for place in places)
