"""What a program keeps between calls, and training steps, on any placement."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.errors import ExecutionError, OptionError  # noqa: E402
from placewright.importers.torch.programs import from_training  # noqa: E402
from placewright.importers.torch.training import export_training  # noqa: E402
from placewright.runtime import RunOptions, RunReport  # noqa: E402
from placewright.runtime.execution import Assignment, run_assignments  # noqa: E402
from placewright.runtime.ranks.state import Optimizer  # noqa: E402
from tests.runtime import models  # noqa: E402
from tests.runtime.programs import Case, case_of, case_of_program, random_assignment  # noqa: E402

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("temporary")]
LOCAL = RunOptions(launcher="local", repeats=3, clocked=1, threads=1)


def run(case: Case, ranks: int, seeds: range, options: RunOptions = LOCAL) -> list[RunReport]:
    assignments = [random_assignment(case, ranks, seed) for seed in seeds]
    return run_assignments(case.program, case.values, assignments, ranks, options=options)


def training(module: torch.nn.Module, args: Any = (), kwargs: Any = None) -> Case:
    program = export_training(module, args, kwargs)
    return case_of_program(from_training(program, "training", (args, kwargs or {})))


class Counter(torch.nn.Module):
    """Keeps the last outputs, and how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("kept", torch.zeros(8, 4))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.kept.index_copy_(0, self.calls % 8, self.layer(x + self.kept.sum(0)))
        self.calls.add_(1)
        return self.kept.mean(0), self.calls * 2


def test_buffers_have_their_new_values_in_the_next_call_on_any_placement() -> None:
    module = Counter()
    case = case_of(Counter(), (torch.ones(1, 4),))
    with torch.no_grad():
        expected = [[each.clone() for each in module(torch.ones(1, 4))] for _ in range(4)]
    for report in run(case, 3, range(6)):
        assert report.max_abs_difference == 0
        assert [int(call[1]) for call in report.results] == [2, 4, 6, 8]
        for call, (kept, _) in zip(report.results, expected, strict=True):
            torch.testing.assert_close(call[0], kept, rtol=0, atol=0)


def test_a_run_leaves_the_values_it_was_given_as_they_were() -> None:
    case = case_of(Counter(), (torch.ones(1, 4),))
    weights = case.values.weights.load(set(case.program.weights.values()))
    before = {name: value.clone() for name, value in weights.items()}
    run(case, 2, range(2))
    assert all(torch.equal(weights[name], value) for name, value in before.items())


def test_ops_that_draw_at_random_are_counted() -> None:
    torch.manual_seed(0)
    drops = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5))
    loss = torch.nn.Sequential(drops, torch.nn.Flatten(0), _Sum())
    (report,) = run(training(loss, (torch.ones(2, 4),)), 2, range(1))
    assert report.random_ops == 1
    assert report.max_abs_difference > 0
    (plain,) = run(case_of(Counter(), (torch.ones(1, 4),)), 2, range(1))
    assert plain.random_ops == 0


class _Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


class Classifier(torch.nn.Module):
    """Convolution, batch norm and a linear layer used twice; returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(1, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = torch.relu(self.norm(self.first(x))).mean((2, 3))
        return torch.nn.functional.cross_entropy(self.layer(self.layer(found)), y)


def classifier() -> tuple[Classifier, tuple[torch.Tensor, torch.Tensor]]:
    source = torch.Generator().manual_seed(1)
    return Classifier(), (torch.rand(6, 1, 8, 8, generator=source), torch.arange(6) % 4)


def steps_of_torch(module: torch.nn.Module, args: Any, kwargs: Any, optimizer: Any) -> list[float]:
    """The losses of a plain training loop."""
    module.train()
    losses = []
    for _ in range(20):
        found = module(*args, **kwargs)
        loss = found if isinstance(found, torch.Tensor) else found.loss
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_losses_of_twenty_steps_are_those_of_a_training_loop(name: str) -> None:
    module, args = classifier()
    case = training(*classifier())
    made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    expected = steps_of_torch(module, args, {}, made(module.parameters(), lr=0.05))
    options = RunOptions(
        launcher="local", repeats=19, clocked=1, threads=1, optimizer=Optimizer(name, 0.05)
    )
    for report in run(case, 3, range(3), options):
        assert report.max_abs_difference == 0
        assert report.losses == pytest.approx(expected, rel=1e-5)
        assert expected[-1] < expected[0]


def test_a_transformer_with_tied_weights_trains_on_processes_as_in_one() -> None:
    module, _, kwargs = models.gpt2()
    for each in module.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    kwargs["labels"] = kwargs["input_ids"]
    case = training(module, (), kwargs)
    options = RunOptions(repeats=3, clocked=1, threads=1, optimizer=Optimizer("adamw", 0.01))
    (report,) = run(case, 2, range(1), options)
    assert report.max_abs_difference <= 1e-6
    assert len(report.losses) == 4
    assert report.losses[-1] < report.losses[0]
    assert report.update_seconds > 0


def test_an_optimizer_without_gradients_is_refused() -> None:
    options = RunOptions(optimizer=Optimizer("sgd"))
    with pytest.raises(OptionError, match="no gradients for the optimizer"):
        run(case_of(*models.chain()), 1, range(1), options)


@pytest.mark.parametrize(("name", "rate"), [("lion", 0.1), ("sgd", 0.0), ("sgd", float("nan"))])
def test_an_optimizer_that_is_none_is_refused(name: str, rate: float) -> None:
    with pytest.raises(OptionError, match=r"optimizer is 'lion'|learning rate is"):
        Optimizer(name, rate)


def test_every_step_has_a_time_between_those_of_its_neighbours() -> None:
    case = case_of(*models.chain())
    (report,) = run(case, 2, range(1))
    assert len(report.passes) == 1
    assert {step.name for step in report.steps if step.kind == "op"} == set(case.ops)
    sent = sum(step.bytes for step in report.steps if step.kind == "send")
    assert sent == report.transfer_bytes
    for rank in range(2):
        mine = [step for step in report.steps if step.rank == rank]
        assert all(0 <= step.start <= step.finish for step in mine)
        assert all(a.finish <= b.start for a, b in itertools.pairwise(mine))


# -- threads of this process -------------------------------------------------------------------


def test_an_exception_in_a_thread_ends_all_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(*models.stumbling())
    monkeypatch.setattr(models, "_on_a_rank", lambda: random.random() < 2)
    monkeypatch.setattr("placewright.runtime.execution._reference", lambda *_: None)
    with pytest.raises(ExecutionError, match=r"^rank . failed in op 'stumble': ValueError: out of"):
        run(case, 2, range(1))


@pytest.mark.parametrize(
    ("slow", "late"), [(0, "the output of op 'dawdle' from rank 0"), (1, "rank 1")]
)
def test_a_thread_that_waits_too_long_says_for_whom(
    slow: int, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 for a tensor of rank 0; rank 0, which has done its part, for rank 1 itself."""
    case = case_of(*models.dawdling())
    monkeypatch.setattr(models, "_on_a_rank", lambda: True)
    monkeypatch.setattr("placewright.runtime.execution._reference", lambda *_: None)
    monkeypatch.setenv("DAWDLE_SECONDS", "3")
    assignment = {"linear": 0, "dawdle": slow, "linear_1": 1, "relu": 1}
    options = RunOptions(launcher="local", timeout=0.5, threads=1)
    with pytest.raises(ExecutionError) as caught:
        run_assignments(case.program, case.values, [Assignment(assignment)], 2, options=options)
    assert str(caught.value) == (
        f"rank {1 - slow} has waited for {late} for 0.5 s; "
        "give a longer timeout if the model is slow"
    )
