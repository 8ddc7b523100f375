"""Profiling on GPUs: by a stand-in here, and by one itself where there is one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, CudaRun, Device  # noqa: E402
from placewright.costs.detect import gpu_kind  # noqa: E402
from placewright.costs.profiles import reference  # noqa: E402
from placewright.costs.profiles.profiling import profile  # noqa: E402
from placewright.costs.profiles.store import ProfileStore  # noqa: E402
from placewright.errors import ClusterError, ExecutionError, OptionError  # noqa: E402
from placewright.importers.torch.once import Source  # noqa: E402
from placewright.measuring.fused_groups import profile_groups  # noqa: E402
from placewright.measuring.optimizer_steps import profile_steps  # noqa: E402
from placewright.system.accelerators import cuda  # noqa: E402
from placewright.system.accelerators.places import CudaPlace, gpu_place  # noqa: E402
from tests.costs.profiles.machines import always_steady  # noqa: E402
from tests.system.accelerators.standin import StandIn  # noqa: E402

HERE = "torch:tests.costs.profiles.models"


def cluster(kind: str = "Stand-in 1", index: int = 0) -> Cluster:
    figures = {"memory": 4e9, "peak_flops": {"fp32": 1e13}, "memory_bandwidth": 1e12}
    return Cluster("one", (Device("gpu", kind, run=CudaRun(index), **figures),))


@pytest.fixture
def store(tmp_path):
    with ProfileStore(tmp_path / "profiles.sqlite") as opened:
        yield opened


@pytest.fixture
def standin(monkeypatch):
    made = StandIn()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    monkeypatch.setattr(reference, "_gpu_watch", lambda place: always_steady())
    yield made
    assert made.faults == []


@pytest.mark.parametrize("method", ["context", "isolated"])
def test_every_call_has_a_time_by_events_under_the_name_of_the_gpu(standin, store, method):
    [done] = profile(f"{HERE}:two_layers", cluster(), store, method=method)
    assert (done.identity, done.method, done.busy) == ("Stand-in 1", method, None)
    entries = dict(store.entries())
    assert len(entries) == done.measured == 4
    assert {key.device for key in entries} == {"Stand-in 1"}
    assert all(each.method == method and each.seconds > 0 for each in entries.values())


def test_in_context_memory_is_what_the_allocator_says_beyond_inputs_and_outputs(standin, store):
    profile(f"{HERE}:two_layers", cluster(), store)
    assert {each.memory for _, each in store.entries()} == {64.0}
    assert ("forget",) in standin.log


def test_the_host_waits_for_the_gpu_after_a_pass_and_never_within_it(standin, store):
    profile(f"{HERE}:two_layers", cluster(), store)
    log = [each[0] for each in standin.log]
    passes = "".join({"record": "r", "synchronise": "s"}.get(each, "") for each in log)
    ops = 6  # two layers with their activations, a transpose and a product
    ticked = [each for each in passes.split("s") if len(each) > 2]
    assert ticked and set(ticked) == {"r" * (ops + 1)}


def test_what_marks_take_is_taken_off(standin, store):
    """Of the stand-in each mark and each op takes a tick; less the marks, each op takes one."""
    profile(f"{HERE}:two_layers", cluster(), store)
    relu = next(each for key, each in store.entries() if key.op == "aten.relu.default")
    assert relu.seconds == pytest.approx(1e-6, rel=0.2)


def test_the_reference_of_a_gpu_runs_in_its_stream_and_is_waited_for(monkeypatch):
    driver = StandIn()
    for name, value in (("GPU_SIDE", 8), ("GPU_BYTES", 64), ("GPU_WARM_UP_SECONDS", 0.0)):
        monkeypatch.setattr(reference, name, value)
    place = CudaPlace(driver, 0)
    read = reference.gpu_reference(place)
    driver.log.clear()
    assert len(read()) == 2 and min(read()) > 0
    assert {each[0] for each in driver.log} == {"synchronise"}
    assert reference.torch_watch(place).seconds > 0
    assert driver.faults == []


def test_a_gpu_that_is_not_the_clusters_is_refused(standin, store):
    with pytest.raises(ClusterError, match="is a 'T4', but cuda 0 of this machine is a 'Stand-in"):
        profile(f"{HERE}:two_layers", cluster("T4"), store)
    with pytest.raises(ClusterError, match="cuda 1, but there is 1 GPU here that this process may"):
        profile(f"{HERE}:two_layers", cluster(index=1), store)


def test_a_machine_without_a_gpu_says_so(monkeypatch, store):
    monkeypatch.setattr(cuda, "driver", lambda: StandIn(gpus=0))
    with pytest.raises(ClusterError, match="runs on cuda 0, but no CUDA GPU is found here"):
        profile(f"{HERE}:two_layers", cluster(), store)


def test_a_gpu_that_cannot_be_used_now_is_told(monkeypatch, store):
    class Busy(StandIn):
        def stream(self, ordinal):
            raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")

    monkeypatch.setattr(cuda, "driver", Busy)
    with pytest.raises(ClusterError, match=r"cannot be used now \(CUDA error: .* busy"):
        profile(f"{HERE}:two_layers", cluster(), store)


def test_what_fails_on_the_gpu_after_the_call_is_an_error_of_the_program(standin, store):
    real = StandIn.stream

    def failing(driver, ordinal):
        made = real(driver, ordinal)

        def synchronize():
            if len(driver.log) > 5:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")

        made.synchronize = synchronize
        return made

    standin.stream = failing.__get__(standin)
    with pytest.raises(ExecutionError, match=r"the program cannot be run here .*illegal memory"):
        profile(f"{HERE}:two_layers", cluster(), store)


def test_an_optimizers_steps_are_measured_on_the_gpu(standin, store):
    source = Source(f"{HERE}:words", training=True)
    [done] = profile_steps(source, "adam", cluster(), store)
    assert (done.optimizer, done.identity, done.measured) == ("adam", "Stand-in 1", 1)


def test_groups_and_onnx_models_are_measured_on_cpus_only(standin, store, tmp_path):
    with pytest.raises(ClusterError, match="only CPUs can be measured so"):
        profile_groups(f"{HERE}:two_layers", cluster(), store)
    pytest.importorskip("onnxruntime")
    from tests.costs.profiles.onnx import models

    source = f"{models.saved(models.layers(2), tmp_path / 'layers.onnx')}?rows=3"
    with pytest.raises(OptionError, match="ONNX models are measured on CPUs only"):
        profile(source, cluster(), store)


# -- with a GPU --------------------------------------------------------------------------------

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")


@on_a_gpu
@pytest.mark.parametrize("method", ["context", "isolated"])
@pytest.mark.parametrize("source", ["two_layers", "words"])
def test_a_gpu_itself_gives_every_call_a_time_above_zero(store, method, source):
    kind = gpu_kind(gpu_place(0, "gpu").name)
    [done] = profile(f"{HERE}:{source}", cluster(kind), store, method=method)
    entries = dict(store.entries())
    assert done.failed == {} and len(entries) == done.measured > 1
    assert all(0 < each.seconds < 1 for each in entries.values())
    assert {key.device for key in entries} == {kind}


@on_a_gpu
def test_a_training_step_is_measured_on_a_gpu(store):
    kind = gpu_kind(gpu_place(0, "gpu").name)
    [done] = profile(f"{HERE}:words", cluster(kind), store, training=True)
    assert done.measured > 2 and done.failed == {}
