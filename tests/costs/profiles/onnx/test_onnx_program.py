"""ONNX models are measured through ONNX Runtime: every node, as a whole and by itself."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from placewright.costs.profiles.loading import load_program
from placewright.costs.profiles.onnx import program as onnx_program
from placewright.costs.profiles.onnx.program import OnnxProgram
from placewright.costs.profiles.onnx.reference import runtime_watch
from placewright.costs.profiles.onnx.sessions import evened, measure_clock, profiler_seconds
from placewright.costs.profiles.onnx.values import Blank, made_up
from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.program import FEWEST, FEWEST_LONG
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import (
    ExecutionError,
    FormatError,
    MissingExtraError,
    OptionError,
)
from placewright.importers import load
from placewright.importers.onnx.files import TensorType
from placewright.importers.onnx.signature import library
from placewright.planning import make_problem, plan
from placewright.problem import DATASHEET, MEASURED
from placewright.system.accelerators.places import CpuPlace
from tests.cli.running import run
from tests.costs.profiles.machines import Machine, always_steady
from tests.costs.profiles.onnx import models
from tests.costs.profiles.test_profiling import cluster

Program = Callable[[Any], OnnxProgram]
ONE = CpuPlace((0,))  # thread


@pytest.fixture
def program(tmp_path: Path) -> Program:
    def loaded(model: Any) -> OnnxProgram:
        found = load_program(str(models.saved(model, tmp_path / "model.onnx")))
        assert isinstance(found, OnnxProgram)
        return found

    return loaded


@pytest.fixture
def store(tmp_path: Path):
    with ProfileStore(tmp_path / "profiles.sqlite") as opened:
        yield opened


def two_layers(tmp_path: Path, count: int = 2) -> str:
    return f"{models.saved(models.layers(count), tmp_path / f'{count}.onnx')}?rows=3"


@pytest.mark.parametrize("threads", [1, 2])
def test_in_context_every_op_has_a_sample_of_every_pass_that_counts(
    tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(onnx_program, "runtime_watch", lambda threads: always_steady())
    found = load_program(two_layers(tmp_path, 5))
    told: list[tuple[int, float]] = []
    context = found.in_context(
        CpuPlace(range(threads)), lambda done, share, samples: told.append((done, share))
    )
    assert len(context.passes) >= FEWEST
    assert {call: len(each) for call, each in context.samples.items()} == {
        call: count * len(context.passes) for call, count in found.calls.items()
    }
    assert all(second >= 0 for each in context.samples.values() for second in each)
    assert [done for done, _ in told] == list(range(1, len(context.passes) + 1))
    assert told[-1][1] == 1.0


@pytest.mark.parametrize("model", [models.layers(1), models.words(), models.normalised()])
def test_each_call_can_be_measured_by_itself(program: Program, model: Any):
    found = program(model)
    for call in found.calls:
        samples = found.alone(call, ONE)
        # A machine that stops for a moment makes any call a long one.
        assert len(samples) >= FEWEST_LONG and min(samples) >= 0


OPS = [
    (("Conv", "x w", "y"), [3, 8, 9, 9], [4, 8, 3, 3], {}),
    (("Gather", "w i", "y"), [3, 4], [5000, 2], {}),
    (("Div", "i i", "y"), [3, 4], [5000, 2], {}),
    (("ScatterND", "w p u", "y"), [3, 4], [5000, 2], {}),
    (("Transpose", "x", "y"), [3, 8, 9, 9], [1], {"perm": [0, 2, 3, 1]}),
    (("ReduceMean", "x", "y"), [3, 8], [1], {"keepdims": 0}),
]


@pytest.mark.parametrize(("call", "x", "w", "attributes"), OPS, ids=[row[0][0] for row in OPS])
def test_made_up_values_let_operators_run(program: Program, call, x, w, attributes):
    inputs = (("x", 1, x), ("i", 7, [3]), ("p", 7, [3, 1]), ("u", 1, [3, 2]))
    model = models.of([models.node(*call, **attributes)], inputs, (("y", 0, None),),
                      [models.weight("w", *w)])  # fmt: skip
    model.graph.output[0].ClearField("type")
    found = program(model)
    [text] = found.calls
    assert found.alone(text, ONE)
    assert found.in_context(ONE, lambda *_: None).samples[text]


def test_what_runtime_makes_other_nodes_of_is_measured_by_itself(program: Program, store, tmp_path):
    found = program(models.normalised())
    samples = found.in_context(ONE, lambda *_: None).samples
    assert [call.partition("(")[0] for call in samples] == ["Relu"]
    [done] = profile(found.name, cluster(), store)
    assert (done.measured, done.method) == (2, "context")
    methods = {key.op: each.method for key, each in store.entries()}
    assert methods == {"Relu": "context", "GroupNormalization": "isolated"}


def test_a_node_that_holds_a_graph_is_measured_in_context_only(program: Program, store, recwarn):
    found = program(models.looped())
    loop = next(call for call in found.calls if call.startswith("Loop("))
    assert found.in_context(ONE, lambda *_: None).samples[loop]
    with pytest.raises(ExecutionError, match=r"Loop\(.* cannot be measured by itself"):
        profile(found.name, cluster(), store, method="isolated")
    [done] = profile(found.name, cluster(), store, method="isolated", missing="predict")
    assert list(done.failed) == [loop] and done.measured + done.known == 1


def test_models_with_sparse_weights_and_text_are_measured_in_context(program: Program):
    assert len(program(models.sparse()).in_context(ONE, lambda *_: None).samples) == 2


def test_a_call_that_runtime_cannot_run_is_named(program: Program):
    model = models.of([models.node("Mystery", "x", "y", domain="other")],
                      outputs=(("y", 1, [2, 8]),))  # fmt: skip
    found = program(model)
    [call] = found.calls
    with pytest.raises(ExecutionError, match=r"other\.Mystery\(.* cannot be run by ONNX Runtime"):
        found.alone(call, ONE)
    with pytest.raises(ExecutionError, match=r"model\.onnx cannot be run by ONNX Runtime"):
        found.in_context(ONE, lambda *_: None)


def test_a_run_in_context_holds_two_sessions(tmp_path: Path):
    found = load_program(two_layers(tmp_path))
    weights, activations = 4 * 2 * (128 * 128 + 128), 4 * 3 * 128
    assert found.bytes_in_context == 3 * weights + activations + 2 * 2 * activations


def test_the_work_of_a_call_is_that_of_its_op(tmp_path: Path):
    source = two_layers(tmp_path)
    found, graph = load_program(source), load(source).graph
    for op, text in enumerate(graph.op_signatures):
        work = found.work(text)
        assert (work.flops, work.bytes_read, work.bytes_written, work.dtype) == (
            graph.op_flops[op],
            graph.op_bytes_read[op],
            graph.op_bytes_written[op],
            graph.op_dtypes[op],
        )


def test_what_moves_between_two_calls_of_an_op_is_told(tmp_path: Path):
    product, add, relu = load_program(two_layers(tmp_path)).bytes_before.values()
    activation, weights, bias = 4 * 3 * 128, 4 * 128 * 128, 4 * 128
    assert product == 4 * activation + bias
    assert add == 4 * activation + weights
    assert relu == 4 * activation + weights + bias


def test_passes_while_the_machine_is_slow_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    machine = Machine()
    watch = machine.watch()
    monkeypatch.setattr(onnx_program, "runtime_watch", lambda threads: watch)

    def heard(done: int, share: float, samples: object) -> None:
        machine.speed = lambda now: 1.0 if done < 5 else 0.5
        machine.work(0.2)

    found = load_program(two_layers(tmp_path))
    context = found.in_context(ONE, heard)
    assert 3 <= context.steady == len(context.passes) < context.ran
    assert {call: len(each) for call, each in context.samples.items()} == {
        call: count * context.steady for call, count in found.calls.items()
    }


def test_the_reference_of_the_runtime_computes_and_copies():
    watch = runtime_watch(1)
    assert watch is runtime_watch(1)
    computing, copying = watch.look()
    assert 0 < computing < 1 and 0 < copying < 1


def test_the_clock_takes_some_time_for_a_run_and_for_a_node():
    clock = measure_clock(1, always_steady())
    assert 0 < clock.run < 1e-2 and 0 < clock.profiler < 1e-3


def test_the_ops_of_a_model_take_together_what_it_takes_without_the_profiler():
    passes = np.array([1e-3, 1.1e-3, 0.9e-3])
    assert profiler_seconds(3e-6, 100 * 8e-6 * np.ones(3), 100) == pytest.approx(8e-6)
    unsure = np.array([-1.0, 0.0, 1.0]) * passes
    assert profiler_seconds(3e-6, unsure, 1) == pytest.approx(3e-6, rel=1e-3)
    assert profiler_seconds(3e-6, -passes, 100) == 0.0


def test_equal_counts_of_microseconds_are_shared_out_over_the_microsecond():
    times = np.array([[0, 4], [0, 0]])
    first, second = (1e6 * evened(times)).tolist()
    assert [first, second] == [pytest.approx([1 / 6, 4.5]), pytest.approx([0.5, 5 / 6])]


def test_plans_take_the_measured_times_of_a_model_and_its_family(tmp_path: Path, store):
    source = two_layers(tmp_path)
    [first] = profile(source, cluster(), store)
    [family] = profile(two_layers(tmp_path, 5), cluster(), store)
    assert (first.measured, first.known, first.method) == (3, 0, "context")
    assert (family.measured, family.known, family.method) == (0, 3, None)
    assert first.library == library() and library().startswith("onnxruntime ")
    made = plan(source, cluster(), planner="heft", costs=CostOptions(profiles=store.path))
    sources = made.problem.op_cost_source
    assert (sources[:, 0] == MEASURED).all() and (sources[:, 1] == DATASHEET).all()
    seconds = {key.signature: each.seconds for key, each in store.entries()}
    assert made.problem.op_time[:, 0].tolist() == [
        seconds[text] for text in load(source).graph.op_signatures
    ]


def test_where_runtime_is_not_installed_no_time_is_looked_up(tmp_path: Path, store, monkeypatch):
    source = two_layers(tmp_path)
    profile(source, cluster(), store)
    monkeypatch.setattr("placewright.importers.onnx.model.library", lambda: "")
    problem, _ = make_problem(source, cluster(), costs=CostOptions(profiles=store.path))
    assert (problem.op_cost_source == DATASHEET).all()


def test_what_it_needs_is_said_where_runtime_is_not_installed(tmp_path: Path, monkeypatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"needs the extra 'onnx'"):
        load_program(two_layers(tmp_path))


def test_the_command_measures_an_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    where, profiles = tmp_path / "cluster.yaml", tmp_path / "profiles.sqlite"
    cluster().save(where)
    source = two_layers(tmp_path)
    [done] = run("profile", source, "-c", where, "--profiles", profiles, "--json").json
    assert (done["measured"], done["library"]) == (3, library())
    refused = run("profile", source, "-c", where, "--profiles", profiles, "--training")
    assert refused.code == 2 and "no program to run forward and backward" in refused.err
    assert "ONNX" not in refused.err
    monkeypatch.setattr("placewright.costs.profiles.compiling.check_compiler", lambda: None)
    refused = run("profile", source, "-c", where, "--profiles", profiles, "--compiled")
    assert refused.code == 2
    assert "is an ONNX model, and only programs of torch are compiled (--compiled)" in refused.err


def test_files_are_told_by_their_content(tmp_path: Path):
    odd = models.saved(models.layers(1), tmp_path / "model.pt2")
    assert isinstance(load_program(str(odd)), OnnxProgram)
    (tmp_path / "graph.onnx").write_text('{"format": "placewright.graph/1"}')
    with pytest.raises(OptionError, match="has no program to run"):
        load_program(str(tmp_path / "graph.onnx"))
    with pytest.raises(FormatError, match="no such file"):
        load_program(str(tmp_path / "absent.onnx"))


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", [1, 2, 3, 6, 7, 9, 10, 11, 14, 16, 17, 21])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_made_up_values_have_the_size_of_their_type(element: int, shape: tuple[int, ...]):
    blank = Blank(TensorType(element, shape))
    array = made_up(blank, np.random.default_rng(0))
    assert array.nbytes == blank.type.bytes
    if array.dtype.kind in "fc":
        assert np.isfinite(array).all() and (array != 0).any()


def test_made_up_indices_are_in_their_range():
    array = made_up(Blank(TensorType(7, (50, 9)), 7), np.random.default_rng(0))
    assert set(array.flatten().tolist()) == set(range(7))
