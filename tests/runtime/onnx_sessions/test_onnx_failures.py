"""When a run of an ONNX model fails, it says why, and all its threads end."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from placewright.cluster import CpuRun, CudaRun  # noqa: E402
from placewright.errors import (  # noqa: E402
    ClusterError,
    ExecutionError,
    FormatError,
    InputError,
    OptionError,
)
from placewright.plan import Plan  # noqa: E402
from placewright.runtime import RunOptions, run_plan  # noqa: E402
from placewright.runtime.decoding import Decoding  # noqa: E402
from placewright.runtime.onnx_sessions.sessions import Session  # noqa: E402
from tests.interrupting import interrupted_after  # noqa: E402
from tests.runtime.onnx_sessions.models import (  # noqa: E402
    BOOL,
    FLOAT,
    INT64,
    body,
    drawn,
    model,
    node,
    numbers,
    value,
)
from tests.runtime.onnx_sessions.plans import ONCE, plan_of, saved  # noqa: E402

pytestmark = pytest.mark.timeout(120)


def chain() -> Any:
    nodes = [node("Exp", "x", "a"), node("Sin", "a", "b"), node("Cos", "b", "y")]
    return model(nodes, [value("x", FLOAT, [8])], "y")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Exp on cpu0, Sin on cpu1, Cos on cpu0."""
    return plan_of(saved(chain(), tmp_path), [0, 1, 0])


def patched(monkeypatch: pytest.MonkeyPatch, thread: str, action: Any) -> None:
    """Have `action` called before each sub-model of a device, where there are several."""
    original = Session.run

    def run(self: Any, values: Any) -> Any:
        if threading.current_thread().name == thread and "x" not in values:
            action()
        return original(self, values)

    monkeypatch.setattr(Session, "run", run)


def endless() -> Any:
    """A Loop that takes years."""
    rounds = body(
        [node("Identity", "go", "goes"), node("Cos", "state", "next")],
        [value("round", INT64, []), value("go", BOOL, []), value("state", FLOAT, [64])],
        [value("goes", BOOL, []), value("next", FLOAT, [64])],
    )
    nodes = [node("Exp", "x", "h"), node("Loop", "many _ h", "l", body=rounds)]
    nodes.append(node("Neg", "l", "y"))
    made = model(nodes, [value("x", FLOAT, [64])], "y", [numbers("many", 10**15, shape=())])
    made.graph.value_info.append(value("l", FLOAT, [64]))
    return made


def test_an_op_that_fails_is_told_with_its_device_and_the_reason(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("Non-zero status code\nand so on")

    patched(monkeypatch, "cpu1", fail)
    with pytest.raises(ExecutionError) as caught:
        run_plan(plan, ONCE)
    assert str(caught.value) == (
        "ONNX Runtime cannot run Sin b on device 'cpu1' (RuntimeError: Non-zero status code)"
    )


def test_a_model_that_cannot_run_at_all_is_told(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x shape", "r"), node("Exp", "r", "y")]
    inputs = [value("x", FLOAT, [8]), value("shape", INT64, [1])]
    plan = plan_of(f"{saved(model(nodes, inputs, 'y'), tmp_path)}?r.0=8", [0, 1])
    with pytest.raises(ExecutionError, match=r"cannot run the whole model .*running Reshape node"):
        run_plan(plan, ONCE, inputs={"shape": np.array([7])})


def test_a_model_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    made = model([node("Exp", "x", "h"), node("Neg", "h", "y")], [value("x", FLOAT, [8])], "y")
    made.ir_version = 99
    with pytest.raises(ExecutionError, match="cannot open the whole model for device 'cpu0'"):
        run_plan(plan_of(saved(made, tmp_path), [0, 1]), ONCE)


def test_a_tensor_that_never_comes_is_told_with_who_waits_for_whom(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched(monkeypatch, "cpu1", lambda: time.sleep(3))
    with pytest.raises(ExecutionError) as caught:
        run_plan(plan, replace(ONCE, timeout=1.0))
    assert str(caught.value) == (
        "device 'cpu0' waits in Cos y for tensor 'b' of Sin b on device 'cpu1', and nothing has "
        "come to an end for 1 s; give it longer with --timeout"
    )


def test_an_op_that_does_not_end_is_ended_and_told(tmp_path: Path) -> None:
    plan = plan_of(saved(endless(), tmp_path), [0, 1, 0])
    with pytest.raises(ExecutionError, match="runs the whole model, and nothing has come to an"):
        run_plan(plan, replace(ONCE, timeout=1.0))


def test_ctrl_c_ends_a_run_in_the_middle_of_an_op(tmp_path: Path) -> None:
    plan = plan_of(saved(endless(), tmp_path), [0, 1, 0])
    with pytest.raises(KeyboardInterrupt), interrupted_after(1.0):
        run_plan(plan, ONCE)


# -- what cannot be asked ------------------------------------------------------------------------


def test_a_plan_on_gpus_is_refused(tmp_path: Path) -> None:
    plan = plan_of(saved(chain(), tmp_path), [0, 1, 0], None, CudaRun(1))
    with pytest.raises(OptionError, match="device 'cpu1' runs on cuda 1, and only plans for"):
        run_plan(plan, ONCE)
    unused = plan_of(saved(chain(), tmp_path), [0, 0, 0], None, CudaRun(1))
    assert run_plan(unused, ONCE).devices == ("cpu0",)


def test_cores_that_are_not_there_are_refused(tmp_path: Path) -> None:
    plan = plan_of(saved(chain(), tmp_path), [0, 1, 0], None, CpuRun((4000,)))
    with pytest.raises(ClusterError, match="core 4000 is not there"):
        run_plan(plan, ONCE)


def test_plans_of_other_objectives_are_refused(tmp_path: Path) -> None:
    path = saved(chain(), tmp_path)
    plan = plan_of(path, [0, 1, 1])
    options = replace(plan.problem.options, objective="invocation-latency")
    with pytest.raises(OptionError, match="the plan is for invocation-latency, and of ONNX"):
        run_plan(replace(plan, problem=replace(plan.problem, options=options)), ONCE)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"repeats": 0}, "repeats is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"timeout": 0.0}, "timeout is 0"),
        ({"threads": 100_000}, "threads is 100000, and this machine has .* give at most"),
        ({"weights": "fresh"}, "runs of ONNX models take no weights: an ONNX file has its weights"),
        ({"decoding": Decoding(3, [[1]])}, "runs of ONNX models take no tokens"),
        ({"memory_limits": [1e9, 1e9]}, "runs of ONNX models take no memory limits"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    plan: Plan, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        run_plan(plan, RunOptions(**options))


def test_a_plan_of_another_model_is_refused(plan: Plan) -> None:
    path = Path(plan.source)
    other = model([node("Neg", "x", "y")], [value("x", FLOAT, [8])], "y")
    path.write_bytes(other.SerializeToString())
    with pytest.raises(InputError, match=r"op 'Cos y' is only in the plan: .* plan it again"):
        run_plan(plan, ONCE)
    path.unlink()
    with pytest.raises(FormatError, match="no such file"):
        run_plan(plan, ONCE)


def test_weights_that_are_gone_are_told(tmp_path: Path) -> None:
    made = model([node("MatMul", "x w", "y")], [value("x", FLOAT, [2, 8])], "y", [drawn("w", 8, 8)])
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    plan = plan_of(path, [0])
    (tmp_path / "w.bin").unlink()
    with pytest.raises(FormatError, match=r"w.bin does not exist"):
        run_plan(plan, ONCE)
