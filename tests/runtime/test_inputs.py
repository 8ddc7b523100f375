"""A person's own inputs are what a program of torch is run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.errors import InputError, OptionError  # noqa: E402
from placewright.runtime import RunOptions, execute  # noqa: E402
from placewright.runtime.execution import load  # noqa: E402
from tests.runtime import models  # noqa: E402
from tests.runtime.pipelined import models as trained  # noqa: E402

UNET = "torch:tests.runtime.models:unet"
IMAGE = (2, 3, 16, 16)


def loaded(source: str, inputs: Any, *, training: bool = False) -> dict[str, Any]:
    _, values = load(source, RunOptions(inputs=inputs), training=training)
    return dict(values.inputs)


def half() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """With an input that NumPy has no type for."""
    return torch.nn.ReLU(), (torch.zeros(2, 3, dtype=torch.bfloat16),), {}


def last_channel_first() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    image = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    return torch.nn.ReLU(), (image,), {}


def test_a_run_takes_the_inputs_of_a_file(tmp_path: Path) -> None:
    image = np.random.default_rng(0).standard_normal(IMAGE).astype(np.float32)
    np.savez_compressed(tmp_path / "inputs.npz", x=image)
    program, _ = load(UNET, RunOptions(), training=False)
    device_of = {node.name: number % 2 for number, node in enumerate(program.calls)}
    options = RunOptions("local", repeats=1, clocked=0, inputs=tmp_path / "inputs.npz")
    report = execute(UNET, device_of, 2, options=options)
    assert report is not None
    module, _, _ = models.unet()
    with torch.no_grad():
        expected = module(torch.from_numpy(image))
    assert torch.equal(report.results[0][0], expected)
    assert report.max_abs_difference == 0


def test_bfloat16_is_given_as_float32() -> None:
    found = loaded(f"torch:{__name__}:half", {"input": np.full((2, 3), 1.5, np.float32)})
    (value,) = found.values()
    assert value.dtype == torch.bfloat16
    assert value.tolist() == [[1.5] * 3] * 2


def test_an_input_is_laid_out_as_the_program_was_exported() -> None:
    given = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)
    found = loaded(f"torch:{__name__}:last_channel_first", {"input": given})
    (value,) = found.values()
    assert value.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(value.numpy(), given)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"y": np.zeros(1)}, "inputs: the model has no input 'y'; it has 'x'"),
        ({"x": np.zeros(IMAGE)}, r"input 'x' is float64\[2, 3, 16, 16\], but the plan is for"),
        ({"x": np.zeros((1, 3), np.float32)}, r"is float32\[1, 3\], but the plan is for float32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        loaded(UNET, inputs)


def test_a_training_plan_takes_no_inputs() -> None:
    source = f"torch:{trained.__name__}:chain_loss"
    with pytest.raises(OptionError, match="runs on the example inputs of its source"):
        loaded(source, {"x": np.zeros(1)}, training=True)
