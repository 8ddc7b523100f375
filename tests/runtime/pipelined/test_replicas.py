"""Stages on several devices, which take turns, give what a single process gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("psutil")

from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.errors import ExecutionError, InputError  # noqa: E402
from placewright.plan import Placement  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.report.pipelines import pipeline_table  # noqa: E402
from placewright.runtime import RunOptions  # noqa: E402
from placewright.runtime.pipelined import PipelineReport, run_pipeline  # noqa: E402
from placewright.runtime.pipelined.changing import matters  # noqa: E402
from placewright.runtime.pipelined.cutting import cut_chain  # noqa: E402
from placewright.runtime.pipelined.executing import Request, execute_chain  # noqa: E402
from placewright.runtime.ranks.state import Optimizer  # noqa: E402
from tests.runtime import models as plain  # noqa: E402
from tests.runtime.pipelined import models  # noqa: E402
from tests.runtime.pipelined.programs import (  # noqa: E402
    Case,
    alone,
    case,
    case_of,
    contiguous,
    scattered,
    source,
)

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("temporary")]
ASKED: dict[str, Any] = {
    "micro_batches": 5,
    "repeats": 1,
    "timeout": 200.0,
    "optimizer": Optimizer("adam", 0.01),
}


class Counting(torch.nn.Module):
    """Adds how often it was called, and keeps a count that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("unread", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        self.unread.add_(1)
        return x.sin() + self.calls


def counting() -> plain.Made:
    return Counting(), (torch.arange(6.0).reshape(2, 3),), {}


def executed(
    made: Case,
    placement: dict[str, int],
    replicas: list[tuple[int, ...]],
    schedule: Any = "gpipe",
    **request: Any,
) -> PipelineReport:
    chain = cut_chain(made.executable, placement, replicas)
    asked = Request(schedule, **{**ASKED, **request})
    return execute_chain(made.executable, chain, asked, alone(chain))


def assert_trained(report: PipelineReport, steps: int) -> None:
    assert report.max_abs_difference <= 1e-6
    assert report.max_gradient_difference is not None
    assert report.max_gradient_difference <= 1e-6
    assert len(report.losses) == steps
    assert report.losses == pytest.approx(report.single_process_losses, abs=1e-5)


# -- right outputs and gradients ---------------------------------------------------------------


def test_a_stage_with_two_replicas_gives_the_outputs_bit_for_bit() -> None:
    made = case("unet")
    report = executed(made, contiguous(made, 2), [(1, 2)])
    assert report.rank_stages == ((0,), (1,), (1,))
    assert report.max_abs_difference == 0
    assert report.sync_seconds == 0


def test_a_replicated_stage_has_the_gradients_of_one_process() -> None:
    """With running statistics of a batch normalisation, which each replica keeps for itself."""
    made = case("unet", True)
    report = executed(made, contiguous(made, 2), [(0, 2)], "1f1b", steps=2)
    assert report.rank_stages == ((0,), (0,), (1,))
    assert report.sync_seconds > 0
    assert_trained(report, 2)


def test_neighbours_with_other_numbers_of_replicas_train_alike() -> None:
    """The last stage has three: each has a part of the losses, and the second of them one more."""
    made = case("lstm", True)
    report = executed(made, contiguous(made, 2), [(1, 2, 3)], "1f1b", steps=2)
    assert report.ranks == 4
    assert_trained(report, 2)


def test_a_rank_without_a_turn_has_the_gradients_of_the_others() -> None:
    made = case_of(models.chain_loss, True)
    report = executed(made, contiguous(made, 1), [(0, 1, 2)], micro_batches=2, steps=1)
    assert_trained(report, 1)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("name", models.TRAINING)
def test_two_replicas_before_three_train_alike(name: str, schedule: Any) -> None:
    made = case(name, True)
    replicas = [(0, 2), (1, 3, 4)]
    report = executed(made, contiguous(made, 2), replicas, schedule, micro_batches=7, steps=2)
    assert_trained(report, 2)
    made = case(name)
    assert executed(made, contiguous(made, 2), replicas, schedule).max_abs_difference == 0


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_replicas_of_several_virtual_stages_train_alike(name: str, schedule: Any) -> None:
    made = case(name, True)
    report = executed(made, scattered(made, 3, 0), [(1, 3)], schedule, micro_batches=6, steps=1)
    assert max(map(len, report.rank_stages)) > 1
    assert_trained(report, 1)


# -- plans -------------------------------------------------------------------------------------


def three() -> Cluster:
    names = ("left", "middle", "right")
    cpus = tuple(Device(name, "EPYC 7763", "host", memory=1e9) for name in names)
    links = [(0, 1), (1, 2), (0, 2)]
    return Cluster("three", cpus, tuple(Link(names[a], names[b], 1e9) for a, b in links))


def test_a_plan_with_replicas_is_run_on_all_their_devices() -> None:
    made = make_plan(
        source(plain.chain),
        three(),
        planner="single-device",
        objective="throughput",
        replicate=True,
    )
    placement = Placement(np.array([2, 2, 0, 0]), replicas=((2, 1),))
    report = run_pipeline(replace(made, placement=placement), RunOptions(repeats=1))
    assert report.devices == ("right", "middle", "left")
    assert report.max_abs_difference == 0
    assert (report.predicted, report.rank_stages) == (made.value, ((0,), (0,), (1,)))


def test_the_report_says_how_long_replicas_add_up_their_gradients() -> None:
    made = make_plan(
        source(models.chain_loss),
        three(),
        planner="single-device",
        objective="throughput",
        training=True,
    )
    placement = Placement(np.zeros(made.problem.op_count), replicas=((0, 1, 2),))
    made = replace(made, placement=placement)
    report = run_pipeline(made, RunOptions(repeats=1), micro_batches=3, steps=1)
    assert_trained(report, 1)
    labels = list(pipeline_table(made, report).columns[0].cells)
    assert "adding up gradients" in labels


# -- what cannot be ----------------------------------------------------------------------------


def test_a_buffer_that_replicas_would_each_see_a_part_of_is_refused() -> None:
    made = case_of(counting)
    with pytest.raises(InputError, match="'calls' changes with every run and is read by a stage"):
        cut_chain(made.executable, contiguous(made, 1), [(0, 1)])


def test_only_what_outputs_depend_on_matters() -> None:
    made = case_of(counting).executable
    assert [matters(made, name) for name in ("calls", "unread")] == [True, False]
    made = case("resnet", True).executable
    assert made.updates
    assert not any(matters(made, name) for name in made.updates)


def test_an_op_that_fails_on_a_replica_is_named() -> None:
    made = case_of(plain.stumbling)
    with pytest.raises(ExecutionError, match=r"failed in op 'stumble': ValueError: out of cheese"):
        executed(made, contiguous(made, 2), [(1, 2)])
