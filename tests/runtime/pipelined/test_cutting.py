"""The stages of a chain, run one after the other, are the whole program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from placewright.errors import InputError  # noqa: E402
from placewright.runtime.pipelined.boundaries import Crossing, crossings  # noqa: E402
from placewright.runtime.pipelined.cutting import cut_chain  # noqa: E402
from placewright.runtime.pipelined.gradients import ranks_with  # noqa: E402
from placewright.runtime.pipelined.reference import SingleProcess  # noqa: E402
from placewright.runtime.reference import max_abs_difference  # noqa: E402
from tests.runtime import models as plain  # noqa: E402
from tests.runtime.pipelined import models  # noqa: E402
from tests.runtime.pipelined.programs import (  # noqa: E402
    Case,
    Placement,
    case,
    case_of,
    contiguous,
    modules_of,
    results_of,
    scattered,
    trained,
)

MICRO_BATCHES = 2


def quick(names: Iterable[str], *few: str) -> list[Any]:
    """All of them, but those that are not `few` only where slow tests run."""
    return [each if each in few else pytest.param(each, marks=pytest.mark.slow) for each in names]


def assert_same_outputs(made: Case, placement: Placement) -> None:
    modules = modules_of(made, cut_chain(made.executable, placement), MICRO_BATCHES)
    found = results_of(modules, MICRO_BATCHES)
    expected = SingleProcess(made.executable).results(MICRO_BATCHES)
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert max_abs_difference([value], [found[key]]) == 0


def assert_same_training(made: Case, placement: Placement) -> None:
    modules = modules_of(made, cut_chain(made.executable, placement), MICRO_BATCHES)
    losses, gradients = trained(made, modules, MICRO_BATCHES)
    single = SingleProcess(made.executable)
    expected_losses, expected = single.gradients(MICRO_BATCHES)
    assert losses == pytest.approx(expected_losses, abs=1e-6)
    assert set(gradients) == set(expected)
    for name, value in expected.items():
        assert max_abs_difference([value], [gradients[name]]) <= 1e-6
    for module in modules:
        for name in module.stage.updates:
            assert max_abs_difference([single.weights[name]], [module.state[name]]) <= 1e-6


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("name", quick(models.INFERENCE, "llama", "unet", "lstm"))
def test_stages_along_the_program_give_its_outputs_bit_for_bit(name: str, devices: int) -> None:
    assert_same_outputs(case(name), contiguous(case(name), devices))


@pytest.mark.parametrize("name", quick(models.INFERENCE, "unet", "lstm"))
@given(data=st.data())
@settings(max_examples=2)
def test_stages_of_any_placement_give_the_outputs_bit_for_bit(name: str, data: Any) -> None:
    made = case(name)
    devices, seed = data.draw(st.integers(2, 4)), data.draw(st.integers(0, 999))
    assert_same_outputs(made, scattered(made, devices, seed))


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("name", quick(models.TRAINING, "gpt2", "resnet", "unet", "lstm", "taught"))
def test_stages_along_the_program_give_its_losses_gradients_and_statistics(
    name: str, devices: int
) -> None:
    assert_same_training(case(name, True), contiguous(case(name, True), devices))


@pytest.mark.parametrize("name", quick(models.TRAINING, "unet"))
@given(data=st.data())
@settings(max_examples=2)
def test_stages_of_any_placement_give_the_gradients(name: str, data: Any) -> None:
    made = case(name, True)
    devices, seed = data.draw(st.integers(2, 4)), data.draw(st.integers(0, 999))
    assert_same_training(made, scattered(made, devices, seed))


# -- what a stage holds ------------------------------------------------------------------------


def chain_case() -> Case:
    return case_of(plain.chain)


def test_a_stage_has_the_weights_and_inputs_of_its_own_ops_only() -> None:
    chain = cut_chain(chain_case().executable, {"linear": 0, "neg": 0, "linear_1": 1, "relu": 1})
    first, second = chain.stages
    assert set(first.weights.values()) == {"first.weight", "first.bias"}
    assert set(second.weights.values()) == {"second.weight", "second.bias"}
    assert (first.sent, second.received, second.sent) == (("neg",), ("neg",), ())
    assert (first.results, second.results) == ((), (0,))
    assert len(first.inputs) == 1
    assert second.inputs == ()


def test_a_weight_that_is_trained_on_two_devices_names_the_ranks_that_add_up_its_gradient() -> None:
    made = case("lstm", True)
    ops = [node.name for node in made.executable.calls]
    chain = cut_chain(made.executable, {op: int(op != "embedding") for op in ops})
    tied = set.intersection(*({*stage.weights.values()} for stage in chain.stages))
    assert tied & set(made.executable.gradients)
    assert ranks_with(made.executable, chain) == {key: [0, 1] for key in tied}
    replicated = cut_chain(made.executable, dict.fromkeys(ops, 0), [(0, 2, 1)])
    every = ranks_with(made.executable, replicated)
    assert every == {key: [0, 1, 2] for key in made.executable.gradients}


def test_a_device_that_is_come_back_to_has_two_stages() -> None:
    placement = {"linear": 4, "neg": 1, "linear_1": 4, "relu": 4}
    chain = cut_chain(chain_case().executable, placement)
    assert chain.groups.group_of == (0, 1, 0)
    assert chain.devices == (4, 1)
    assert chain.groups.stages(0) == (0, 2)


def test_what_a_later_stage_needs_passes_through_those_between() -> None:
    made = case("unet")
    placement = contiguous(made, 3)
    stages = cut_chain(made.executable, placement).stages
    assert len(stages) == 3
    through = set(stages[1].received) & set(stages[1].sent)
    calls = {step.name for step in stages[1].code.steps}
    assert through
    assert not through & calls


def test_the_last_stage_of_training_sends_the_loss() -> None:
    made = case_of(models.chain_loss, True)
    chain = cut_chain(made.executable, contiguous(made, 2))
    (loss,) = chain.stages[-1].sent
    assert crossings(made.executable, chain.stages)[-1][0].shape == ()
    assert loss in {node.name for node in made.executable.calls}


def test_only_what_depends_on_trained_weights_has_a_gradient() -> None:
    made = case_of(models.chain_loss, True)
    chain = cut_chain(made.executable, contiguous(made, 2))
    assert all(each.requires_grad for each in crossings(made.executable, chain.stages)[0])
    inference = cut_chain(chain_case().executable, contiguous(chain_case(), 2))
    found = crossings(chain_case().executable, inference.stages)[0]
    assert not any(each.requires_grad for each in found)


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(torch.randn(2, 3, 4), id="contiguous"),
        pytest.param(torch.randn(2, 3, 4).permute(2, 0, 1), id="permuted"),
        pytest.param(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), id="nhwc"),
        pytest.param(torch.randn(3, 4, dtype=torch.complex64).conj().t(), id="conjugate"),
        pytest.param(torch.tensor(3), id="no dimension"),
    ],
)
def test_a_tensor_arrives_as_it_lay_in_memory(tensor: Any) -> None:
    crossing = Crossing.of("x", tensor)
    packed = crossing.pack(tensor)
    assert packed.is_contiguous()
    assert packed.shape == crossing.shape
    arrived = crossing.unpack(packed)
    assert torch.equal(arrived, tensor)
    assert arrived.stride() == tensor.stride()
    assert crossing.bytes == tensor.numel() * tensor.element_size()


# -- what cannot be cut ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tanh": 0}, "names a foreign op 'tanh'"),
        ({"relu": None}, "gives no device to op 'relu'"),
    ],
)
def test_a_placement_of_another_program_is_refused(change: Any, message: str) -> None:
    placement = {**contiguous(chain_case(), 2), **change}
    kept = {op: device for op, device in placement.items() if device is not None}
    with pytest.raises(InputError, match=message):
        cut_chain(chain_case().executable, kept)


class Outputs(torch.nn.Module):
    """Gives back what no op makes, what is empty, and pieces of one op's output."""

    def forward(self, x: Any, y: Any) -> Any:
        first, second = (x + 1).split(1)
        empty = y[:0] * 2
        return x, 3, None, first, torch.cat([empty, second * 2]), empty


def outputs() -> Any:
    return Outputs(), (torch.ones(2, 3), torch.ones(2, 3)), {}


def test_outputs_that_no_op_makes_and_pieces_of_outputs_are_given_back() -> None:
    made = case_of(outputs)
    for devices in (1, 2, 3):
        assert_same_outputs(made, contiguous(made, devices))


class Counting(torch.nn.Module):
    """A buffer that one op reads and another, later one makes the new value of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        y = x + self.seen
        self.seen.add_(y.mean())
        return y


def counting() -> Any:
    return Counting(), (torch.ones(2),), {}


def test_a_weight_that_changes_must_be_in_one_stage() -> None:
    executable = case_of(counting).executable
    ops = [node.name for node in executable.calls]
    assert executable.updates
    with pytest.raises(InputError, match="'seen' changes with every run"):
        cut_chain(executable, {op: int(op != ops[0]) for op in ops})


def test_a_weight_that_changes_has_its_new_value_in_the_next_micro_batch() -> None:
    made = case_of(counting)
    assert_same_outputs(made, contiguous(made, 1))
    found = SingleProcess(made.executable).results(2)
    assert [value.tolist() for value in found.values()] == [[1.0, 1.0], [2.0, 2.0]]
