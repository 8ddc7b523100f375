"""Plans run on GPUs: on a stand-in that finds races, and on a GPU itself where there is one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, CudaRun, Device, Link  # noqa: E402
from placewright.errors import ClusterError, ExecutionError, OptionError  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.runtime import RunOptions, RunReport, run_plan  # noqa: E402
from placewright.runtime.execution import run_assignments  # noqa: E402
from placewright.runtime.pipelined import run_pipeline  # noqa: E402
from placewright.runtime.ranks import distributed, launch  # noqa: E402
from placewright.runtime.ranks.state import Optimizer  # noqa: E402
from placewright.system.accelerators import cuda  # noqa: E402
from tests.runtime.programs import Case, family, random_assignment  # noqa: E402
from tests.system.accelerators.standin import StandIn  # noqa: E402

HERE = "tests.runtime.models"
LOCAL = RunOptions(launcher="local", repeats=2, clocked=2, threads=1, timeout=30.0)
PLACES: dict[str, tuple[int | None, ...]] = {
    "cpu and gpu": (None, 0),
    "gpu and cpu": (0, None),
    "two gpus": (0, 1),
    "two streams of a gpu": (0, 0),
    "two gpus and a cpu": (0, 1, None),
}


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = StandIn(gpus=2)
    monkeypatch.setattr(cuda, "driver", lambda: made)
    yield made
    assert made.faults == []


def run(case: Case, gpus: tuple[int | None, ...], seed: int, **changes: Any) -> RunReport:
    options = RunOptions(**{**vars(LOCAL), "rank_gpus": gpus, **changes})
    assignment = random_assignment(case, len(gpus), seed)
    [report] = run_assignments(
        case.program, case.values, [assignment], len(gpus), options=options, modules=[HERE]
    )
    return report


@pytest.mark.parametrize("name", ["gpt2", "t5", "resnet"])
@pytest.mark.parametrize("places", list(PLACES))
@pytest.mark.parametrize("seed", [0, 1])
def test_any_placement_gives_the_outputs_of_one_process(
    standin: StandIn, name: str, places: str, seed: int
) -> None:
    report = run(family(name), PLACES[places], seed)
    assert report.max_abs_difference <= 1e-6
    assert report.transfer_count > 0


def test_times_of_a_gpu_are_those_of_its_events(standin: StandIn) -> None:
    report = run(family("gpt2"), (0, None), 0)
    assert all(step.finish >= step.start >= 0 for steps in report.passes for step in steps)
    on_gpu = [step for step in report.passes[0] if step.rank == 0 and step.kind == "op"]
    # Of the stand-in an op takes a tick, and so does the mark at its end; so exactly the same.
    assert on_gpu and all(step.finish - step.start < 1e-4 for step in on_gpu)
    assert all(0 <= seconds < report.measured * 2 for seconds in report.rank_busy_seconds)


def test_the_host_waits_for_a_gpu_only_when_a_call_has_ended(standin: StandIn) -> None:
    run(family("gpt2"), (0, 1), 0, repeats=1, clocked=0)
    waits = [each for each in standin.log if each[0] in ("synchronise", "await")]
    calls, ranks, streams = 2, 2, 2
    ends = calls * 3 * ranks * streams  # a call, its weights' new values, and its barrier
    loading = 2 * ranks * streams
    marks = [each for each in waits if each[0] == "await"]
    assert len(waits) - len(marks) <= ends + loading
    assert len(marks) <= calls * ranks  # the times of its waits, read when it has ended


def test_an_optimizer_steps_on_the_gpu_that_has_the_parameter(standin: StandIn) -> None:
    from placewright.importers.torch.programs import from_module
    from tests.runtime.programs import case_of_program

    torch.manual_seed(0)

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(x))).square().mean()

    case = case_of_program(from_module((Loss(), (torch.randn(3, 4),), {}), "loss", training=True))
    report = run(case, (0, None), 1, optimizer=Optimizer("sgd", 0.1), repeats=4)
    assert report.max_abs_difference <= 1e-6
    losses = [float(call[0]) for call in report.results]
    assert losses[-1] < losses[0]


def test_an_op_that_fails_on_a_gpu_is_named(standin: StandIn, monkeypatch) -> None:
    case = family("gpt2")
    real = StandIn.ran

    def short(driver: StandIn, *op: Any) -> None:
        real(driver, *op)
        if len(driver.log) > 20:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of …"
            )

    monkeypatch.setattr(StandIn, "ran", short)
    with pytest.raises(ExecutionError, match=r"rank \d ran out of memory .*: 20\.0 MiB more"):
        run(case, (0, 1), 0)
    standin.faults.clear()


# -- processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [(0, 1), (0, None, 1)])
def test_processes_send_from_gpu_to_gpu_and_over_the_host_to_cpus(
    temporary: Path, standin: StandIn, monkeypatch: pytest.MonkeyPatch, gpus: tuple[int | None, ...]
) -> None:
    workers = partial(launch.Ranks, worker="tests.runtime.gpus.worker")
    monkeypatch.setattr(distributed, "Ranks", workers)
    report = run(family("gpt2"), gpus, 1, launcher="processes")
    assert report.max_abs_difference <= 1e-6
    assert len(report.rank_peak_memory) == len(gpus)


def test_two_processes_on_one_gpu_are_refused(
    temporary: Path, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = partial(launch.Ranks, worker="tests.runtime.gpus.worker")
    monkeypatch.setattr(distributed, "Ranks", workers)
    with pytest.raises(ExecutionError, match="ranks 0 and 1 both run on cuda 0, and NCCL joins"):
        run(family("gpt2"), (0, 0), 1, launcher="processes")


# -- plans -----------------------------------------------------------------------------------


def plan_on(*runs: CudaRun | None, objective: str = "latency") -> Any:
    devices = tuple(Device(f"d{n}", "T4", memory=1e9, run=run) for n, run in enumerate(runs))
    links = (Link("d0", "d1", 1e9),)
    return make_plan(
        f"torch:{HERE}:chain",
        Cluster("pair", devices, links),
        planner="single-device",
        objective=objective,
    )


def test_a_plan_on_a_gpu_of_this_machine_runs_there(standin: StandIn) -> None:
    report = run_plan(plan_on(CudaRun(0), None), LOCAL)
    assert report.max_abs_difference <= 1e-6
    assert any(each[0] == "record" for each in standin.log)


def test_gpus_that_are_not_there_and_what_they_do_not_run_yet_are_told(standin: StandIn) -> None:
    with pytest.raises(ClusterError, match="'d0' runs on cuda 7, but there are 2 GPUs here"):
        run_plan(plan_on(CudaRun(7), None), LOCAL)
    limited = RunOptions(launcher="processes", memory_limits=(1e9,))
    with pytest.raises(OptionError, match="memory of GPUs is not limited"):
        run_plan(plan_on(CudaRun(0), None), limited)
    with pytest.raises(OptionError, match="only plans for latency of programs of torch are run on"):
        run_pipeline(plan_on(CudaRun(0), None, objective="throughput"))


# -- with a GPU --------------------------------------------------------------------------------

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")


@on_a_gpu
@pytest.mark.parametrize("places", [(None, 0), (0, None), (0, 0), (0,)])
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_a_gpu_itself_gives_the_outputs_of_one_process(name: str, places: Any) -> None:
    report = run(family(name), places, 1)
    assert report.max_abs_difference <= 1e-4
    assert report.measured > 0


@on_a_gpu
def test_two_placements_on_a_gpu_itself_are_equal_to_the_bit() -> None:
    case = family("t5")
    one, other = (run(case, (0, 0), seed) for seed in (2, 4))
    for a, b in zip(one.results[-1], other.results[-1], strict=True):
        assert torch.equal(a, b)


@on_a_gpu
def test_a_process_with_a_gpu_itself_and_one_with_a_cpu(temporary: Path) -> None:
    report = run(family("t5"), (0, None), 1, launcher="processes")
    assert report.max_abs_difference <= 1e-4
    assert report.rank_peak_memory[0] > 0
