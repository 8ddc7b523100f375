"""Measuring calls: each is run on tensors like its own, and every sample is of that call."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from placewright.costs.profiles.loading import load_program  # noqa: E402
from placewright.costs.profiles.measure import (  # noqa: E402
    bytes_in_context,
    measure_alone,
    measure_in_context,
)
from placewright.costs.profiles.program import FEWEST, FEWEST_LONG  # noqa: E402
from placewright.costs.profiles.values import made_up  # noqa: E402
from placewright.errors import ExecutionError, OptionError  # noqa: E402
from placewright.importers.torch.programs import Executable, load_executable  # noqa: E402
from placewright.importers.torch.signature import signature  # noqa: E402
from tests.costs.profiles.machines import Machine, always_steady  # noqa: E402
from tests.costs.profiles.models import two_layers  # noqa: E402

HERE = "torch:tests.costs.profiles.models"


def without_values(executable: Executable) -> Executable:
    return replace(executable, values={})


@pytest.mark.parametrize("known", [True, False])
def test_in_context_every_op_has_a_sample_of_every_pass(known):
    executable = load_executable(f"{HERE}:five_layers")
    told = []
    found = measure_in_context(
        executable if known else without_values(executable),
        lambda done, share, samples: told.append((done, share, samples())),
        watch=always_steady(),
    )
    often = Counter(signature(node) for node in executable.calls)
    assert len(found.passes) >= FEWEST
    assert {s: len(each) for s, each in found.samples.items()} == {
        s: count * len(found.passes) for s, count in often.items()
    }
    assert all(second >= 0 for each in found.samples.values() for second in each)
    assert [done for done, *_ in told] == list(range(1, len(found.passes) + 1))
    assert found.ran == found.steady == len(found.passes)
    assert told[-1][1] == 1.0 and told[-1][2] == found.samples


def test_a_pass_takes_what_its_ops_take():
    executable = load_executable(f"{HERE}:two_layers")
    found = measure_in_context(executable, lambda *_: None, watch=always_steady())
    total = sum(second for each in found.samples.values() for second in each)
    assert total == pytest.approx(sum(found.passes))


@pytest.mark.parametrize(("fast", "counted"), [(1.0, "steady"), (0.3, "ran")])
def test_samples_are_those_of_steady_passes_and_of_all_where_these_are_too_few(fast, counted):
    executable = load_executable(f"{HERE}:two_layers")
    machine = Machine(lambda now: 1.0 if now < fast else 0.5)

    def heard(done, share, samples):
        machine.work(0.2)

    found = measure_in_context(executable, heard, watch=machine.watch())
    assert 0 < found.steady < found.ran
    assert len(found.passes) == getattr(found, counted)
    assert {len(each) for each in found.calls.values()} == {len(found.passes)}


@pytest.mark.parametrize("source", ["two_layers", "words"])
def test_each_call_can_be_measured_by_itself(source):
    executable = without_values(load_executable(f"{HERE}:{source}"))
    for node in executable.calls:
        # A machine that stops for a moment makes any call a long one.
        assert len(measure_alone(executable, node)) >= FEWEST_LONG


def test_a_training_step_is_a_program_too():
    executable = load_executable(f"{HERE}:words", training=True)
    found = measure_in_context(executable, lambda *_: None)
    assert any("embedding" in name and "backward" in name for name in found.samples)
    assert executable.weights and set(executable.weights) <= set(executable.values)


def test_a_call_that_fails_is_named():
    executable = load_executable(f"{HERE}:words_out_of_range")
    with pytest.raises(ExecutionError, match=r"aten\.embedding.* cannot be run here \(IndexError"):
        measure_in_context(executable, lambda *_: None)


def test_made_up_values_have_the_shape_type_and_strides_of_the_program():
    executable = load_executable(f"{HERE}:two_layers")
    generator = torch.Generator().manual_seed(0)
    for node in executable.module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            made = made_up(node, generator)
            assert (made.shape, made.dtype, made.stride()) == (
                value.shape,
                value.dtype,
                value.stride(),
            )
            assert torch.isfinite(made).all()


def test_made_up_indices_are_rows_of_their_table():
    executable = load_executable(f"{HERE}:words")
    [ids] = [
        node
        for node in executable.module.graph.find_nodes(op="placeholder")
        if node.name not in executable.weights
    ]
    generator = torch.Generator().manual_seed(0)
    drawn = {int(i) for _ in range(40) for i in made_up(ids, generator).flatten()}
    assert drawn == set(range(7))


def test_a_run_in_context_holds_weights_inputs_and_what_is_alive():
    executable = load_executable(f"{HERE}:two_layers")
    weights = 4 * (2 * (16 * 16 + 16) + 16 * 16)
    activations = 4 * 3 * 16
    assert bytes_in_context(executable) == weights + activations + 2 * activations


def test_an_exported_program_is_told_by_its_content(tmp_path):
    module, args = two_layers()
    with (tmp_path / "exported.bin").open("wb") as file:
        torch.export.save(torch.export.export(module, args), file)
    of_file = load_program(str(tmp_path / "exported.bin"))
    assert of_file.calls == load_program(f"{HERE}:two_layers").calls


@pytest.mark.parametrize("source", ["zoo:gpt2", "graph.pt2"])
def test_what_has_no_program_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.pt2").write_text('{"format": "placewright.graph/1"}')
    for load in (load_executable, load_program):
        with pytest.raises(OptionError, match=f"{source} has no program to run; use torch:"):
            load(source)
        with pytest.raises(OptionError, match="to run forward and backward"):
            load(source, training=True)
