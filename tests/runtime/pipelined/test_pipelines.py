"""Pipelines on real processes give the outputs, gradients and losses of a single one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("psutil")

from placewright.cluster import Cluster, CudaRun, Device, Link  # noqa: E402
from placewright.errors import ExecutionError, InputError, OptionError  # noqa: E402
from placewright.options import Options  # noqa: E402
from placewright.plan import Placement, Plan  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.runtime import RunOptions  # noqa: E402
from placewright.runtime.decoding import Decoding  # noqa: E402
from placewright.runtime.pipelined import PipelineReport, run_pipeline  # noqa: E402
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
from tests.runtime.pipelined.test_cutting import outputs  # noqa: E402

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("temporary")]
SCHEDULES = ("gpipe", "1f1b", "interleaved")


def executed(
    made: Case, placement: dict[str, int], schedule: Any, steps: int = 0
) -> PipelineReport:
    chain = cut_chain(made.executable, placement)
    request = Request(schedule, micro_batches=6, repeats=1, steps=steps)
    return execute_chain(made.executable, chain, request, alone(chain))


def assert_trained(report: PipelineReport) -> None:
    assert report.max_abs_difference <= 1e-6
    assert report.max_gradient_difference is not None
    assert report.max_gradient_difference <= 1e-6
    assert report.losses == pytest.approx(report.single_process_losses, abs=1e-5)


# -- right outputs and gradients ---------------------------------------------------------------


def test_empty_tensors_and_outputs_of_every_rank_are_those_of_one_process() -> None:
    made = case_of(outputs)
    report = executed(made, contiguous(made, 3), "1f1b")
    assert report.rank_stages == ((0,), (1,), (2,))
    assert report.max_abs_difference == 0


def test_training_over_three_ranks_in_several_stages_each_has_the_gradients_of_one_process() -> (
    None
):
    made = case("unet", True)
    report = executed(made, scattered(made, 3, 1), "interleaved", steps=2)
    assert sum(map(len, report.rank_stages)) > 3
    assert_trained(report)
    assert len(report.losses) == 2


def test_assignments_to_parts_of_tensors_are_trained() -> None:
    """They are copies to autograd, of which torch has no derivative."""
    made = case("assigned", True)
    assert any(call.target == torch.ops.aten.copy.default for call in made.executable.calls)
    assert_trained(executed(made, contiguous(made, 2), "1f1b", steps=2))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", models.INFERENCE)
def test_every_schedule_gives_the_outputs_bit_for_bit(name: str, ranks: int, schedule: Any) -> None:
    made = case(name)
    assert executed(made, contiguous(made, ranks), schedule).max_abs_difference == 0


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", models.TRAINING)
def test_every_schedule_gives_the_gradients(name: str, ranks: int, schedule: Any) -> None:
    made = case(name, True)
    assert_trained(executed(made, contiguous(made, ranks), schedule, steps=2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_scattered_placements_are_run_by_every_schedule(
    name: str, schedule: Any, seed: int
) -> None:
    made = case(name)
    assert executed(made, scattered(made, 3, seed), schedule).max_abs_difference == 0
    made = case(name, True)
    assert_trained(executed(made, scattered(made, 3, seed), schedule))


# -- plans -------------------------------------------------------------------------------------


def pair() -> Cluster:
    cpus = tuple(Device(name, "EPYC 7763", "host", memory=1e9) for name in ("left", "right"))
    return Cluster("pair", cpus, (Link("left", "right", 1e9),))


@pytest.fixture(scope="module")
def chain_plan() -> Plan:
    """linear and neg on the right, the rest on the left."""
    made = make_plan(source(plain.chain), pair(), planner="single-device", objective="throughput")
    return replace(made, placement=Placement(np.array([1, 1, 0, 0])))


@pytest.fixture(scope="module")
def training_plan() -> Plan:
    return make_plan(
        source(models.chain_loss),
        pair(),
        planner="single-device",
        objective="throughput",
        training=True,
    )


def test_a_plan_is_run_on_its_devices_in_the_order_of_the_chain(chain_plan: Plan) -> None:
    told: list[tuple[str, float]] = []
    report = run_pipeline(
        chain_plan, RunOptions(repeats=2), micro_batches=4, on_progress=lambda *it: told.append(it)
    )
    assert report.devices == ("right", "left")
    assert report.predicted == chain_plan.value
    assert report.max_abs_difference == 0
    assert (report.max_gradient_difference, report.losses) == (None, ())
    assert report.stage_bytes == (2 * 8 * 4, 0)
    assert report.batch_seconds > 0
    assert all(0 < busy <= report.batch_seconds for busy in report.rank_busy_seconds)
    assert all(0 <= share < 1 for share in report.rank_bubble_share)
    assert all(peak > 1e7 for peak in report.rank_peak_memory)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    document = report.to_document()
    assert document["rank_devices"] == ("right", "left")
    assert set(document) >= {"predicted", "measured", "max_abs_difference"}


def test_tied_weights_run_on_two_devices_with_a_copy_each() -> None:
    made = make_plan(source(plain.gpt2), pair(), planner="single-device", objective="throughput")
    problem = made.problem
    readers = np.flatnonzero(problem.op_copied)
    device = np.zeros(problem.op_count, dtype=np.int32)
    device[problem.topological_rank >= problem.topological_rank[readers].min()] = 1
    assert readers.size
    report = run_pipeline(
        replace(made, placement=Placement(device)), RunOptions(repeats=1), micro_batches=2
    )
    assert (report.ranks, report.max_abs_difference) == (2, 0)


def test_tied_weights_are_trained_on_two_devices_with_a_copy_each() -> None:
    made = make_plan(
        source(models.gpt2), pair(), planner="row-cuts", objective="throughput", training=True
    )
    problem = made.problem
    assert problem.op_copied.any()
    middle = int(np.median(problem.topological_rank[~problem.is_backward]))
    forward = (problem.topological_rank >= middle).astype(np.int32)
    device = np.where(problem.is_backward, forward[problem.forward_twin], forward)
    for unit in range(problem.unit_count):
        ops = np.flatnonzero(problem.op_unit == unit)
        device[ops] = device[ops].min()
    placement = Placement(device)
    copying = np.flatnonzero(problem.op_copied)
    assert set(device[copying].tolist()) == {1}
    report = run_pipeline(
        replace(made, placement=placement), RunOptions(repeats=1), micro_batches=4, steps=2
    )
    assert report.ranks == 2
    assert report.sync_seconds > 0
    assert_trained(report)


def test_a_training_plan_on_one_device_is_trained(training_plan: Plan) -> None:
    report = run_pipeline(
        training_plan, RunOptions(repeats=1), schedule="1f1b", micro_batches=3, steps=3
    )
    assert_trained(report)
    assert report.ranks == 1
    assert report.losses[0] > report.losses[-1]


def test_an_optimizer_without_steps_to_take_is_refused(training_plan: Plan) -> None:
    with pytest.raises(OptionError, match="add steps to optimizer"):
        run_pipeline(training_plan, RunOptions(optimizer=Optimizer("adam")))


# -- what fails --------------------------------------------------------------------------------


def test_an_op_that_fails_on_a_rank_is_named() -> None:
    made = case_of(plain.stumbling)
    with pytest.raises(ExecutionError, match=r"failed in op 'stumble': ValueError: out of cheese"):
        executed(made, contiguous(made, 2), "gpipe")


def test_a_plan_for_latency_is_refused(chain_plan: Plan) -> None:
    problem = replace(chain_plan.problem, options=Options())
    with pytest.raises(OptionError, match="for objective 'latency', and a pipeline runs plans for"):
        run_pipeline(replace(chain_plan, problem=problem))


def test_a_plan_of_something_without_weights_is_refused(chain_plan: Plan) -> None:
    with pytest.raises(OptionError, match="has no program to run"):
        run_pipeline(replace(chain_plan, source="zoo:gpt2"))


def test_a_plan_on_gpus_of_this_machine_is_refused(chain_plan: Plan) -> None:
    problem = replace(chain_plan.problem, device_runs=(None, CudaRun(0)))
    with pytest.raises(OptionError, match="device 'right' runs on cuda 0, and only plans for"):
        run_pipeline(replace(chain_plan, problem=problem))


def test_a_plan_for_another_program_is_refused(chain_plan: Plan) -> None:
    with pytest.raises(InputError, match="plan this program again"):
        run_pipeline(replace(chain_plan, source=source(models.unet)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"micro_batches": 0}, "micro_batches is 0"),
        ({"repeats": 0}, "repeats is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"steps": -1}, "steps is -1"),
        ({"steps": 1}, "for inference, which takes no training steps"),
        ({"optimizer": Optimizer("sgd")}, "for inference, which takes no training steps"),
        ({"decoding": Decoding(3)}, "makes no tokens; leave out tokens"),
        ({"timeout": float("inf")}, "at most a week"),
        ({"schedule": "zigzag"}, "choose gpipe, 1f1b, interleaved"),
    ],
)
def test_impossible_options_are_refused(chain_plan: Plan, options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        asked = {
            name: options.pop(name)
            for name in ("repeats", "threads", "timeout", "optimizer", "decoding")
            if name in options
        }
        run_pipeline(chain_plan, RunOptions(**asked), **options)
