"""Steps of an optimizer are measured once for each shape of a parameter, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from placewright.costs.profiles.optimizers import step_seconds, step_signatures  # noqa: E402
from placewright.costs.profiles.store import ProfileStore  # noqa: E402
from placewright.errors import ExecutionError, OptionError  # noqa: E402
from placewright.importers.torch.once import Source  # noqa: E402
from placewright.measuring.optimizer_steps import profile_steps  # noqa: E402
from tests.cli.running import run  # noqa: E402
from tests.costs.profiles.machines import always_steady  # noqa: E402
from tests.costs.profiles.test_profiling import cluster  # noqa: E402

WORDS = "torch:tests.costs.profiles.models:words"
GPT = "hf:gpt2?n_layer=2&n_embd=8&n_head=2&vocab_size=9&n_positions=7&sequence=4"


def test_every_shape_of_a_parameter_is_there_once():
    found = step_signatures(Source(GPT, training=True).executable, "adamw")
    shapes = ("9,8", "7,8", "8", "8,24", "24", "8,8", "8,32", "32", "32,8")
    assert set(found) == {f"optimizer.adamw(float32[{shape}])" for shape in shapes}


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_step_changes_its_parameter_and_takes_time(optimizer, monkeypatch):
    stepped = []
    made = getattr(torch.optim, {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}[optimizer])
    real = made.step

    def noted(self, *args):
        before = self.param_groups[0]["params"][0].clone()
        real(self, *args)
        stepped.append(bool((before != self.param_groups[0]["params"][0]).any()))
        assert self.param_groups[0]["foreach"] is False

    monkeypatch.setattr(made, "step", noted)
    samples = step_seconds(optimizer, torch.empty(64, 32, device="meta"), always_steady())
    assert min(samples) > 0 and len(samples) >= 7 and all(stepped)


def test_a_step_that_cannot_be_made_is_told():
    with pytest.raises(ExecutionError, match="a step of adamw cannot be made here"):
        step_seconds("adamw", torch.empty(2, dtype=torch.int64, device="meta"), always_steady())


def test_steps_are_measured_and_kept_once(tmp_path: Path):
    source = Source(WORDS, training=True)
    with ProfileStore(tmp_path / "store") as store:
        [done] = profile_steps(source, "sgd", cluster(), store)
        assert (done.optimizer, done.known, done.failed) == ("sgd", 0, {})
        kept = dict(store.entries())
        assert {key.op for key in kept} == {"optimizer.sgd"} and len(kept) == done.measured >= 1
        assert {key.library for key in kept} == {f"torch {torch.__version__}"}
        [again] = profile_steps(source, "sgd", cluster(), store)
        assert (again.measured, again.known) == (0, done.measured)
        [other] = profile_steps(source, "adamw", cluster(), store)
        assert other.measured == done.measured
        assert profile_steps(source, "none", cluster(), store) == []


def test_what_has_no_steps_is_refused(tmp_path: Path):
    with ProfileStore(tmp_path / "store") as store:
        with pytest.raises(OptionError, match="is no training program, so no optimizer"):
            profile_steps(Source(WORDS), "sgd", cluster(), store)
        with pytest.raises(OptionError, match="optimizer is 'lion'; choose sgd, adam, adamw, none"):
            profile_steps(Source(WORDS, training=True), "lion", cluster(), store)
    result = run("profile", WORDS, "--optimizer", "sgd")
    assert result.code == 2 and "--optimizer is for steps of --training" in result.err


def test_the_command_measures_the_ops_and_the_steps(tmp_path: Path):
    cluster().save(tmp_path / "cluster.yaml")
    given = ("-c", tmp_path / "cluster.yaml", "--profiles", tmp_path / "store", "--training")
    ops, steps = run("profile", WORDS, *given, "--optimizer", "sgd", "--json").json
    assert (ops["optimizer"], steps["optimizer"]) == ("", "sgd")
    assert ops["measured"] > steps["measured"] >= 1
    assert "steps of sgd" in run("profile", WORDS, *given, "--optimizer", "sgd").out
