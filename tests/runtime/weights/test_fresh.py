"""Random weights, made submodule by submodule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from placewright.errors import InputError, OptionError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.importers.torch.programs import load_executable, load_module  # noqa: E402
from placewright.runtime.weights import (  # noqa: E402
    FreshWeights,
    bytes_of,
    from_document,
    hand_over,
    weights_of,
)
from tests.importers.tiny_models import make  # noqa: E402
from tests.runtime.weights.models import tensors_of, weights  # noqa: E402

PLACE = "torch:tests.runtime.weights.factories"
FAMILIES = ["gpt2", "llama", "mixtral", "t5", "bert", "vit", "resnet"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_values_are_the_same_whatever_else_is_made(kind: str) -> None:
    fresh = FreshWeights(make(kind, "meta")[0], "a model")
    names = list(tensors_of(make(kind, "meta")[0]))
    whole = fresh.load(names)
    other = FreshWeights(make(kind, "meta")[0], "a model")
    assert [n for n in reversed(names) if not torch.equal(whole[n], other.load([n])[n])] == []


@pytest.mark.parametrize("kind", FAMILIES)
def test_values_are_spread_as_transformers_spreads_them(kind: str) -> None:
    meta, _ = make(kind, "meta")
    expected = tensors_of(make(kind)[0])
    found = FreshWeights(meta, "a model").load(list(expected))
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        if tensor.unique().numel() == 1 or "inv_freq" in name or "position_ids" in name:
            assert torch.equal(found[name], tensor), name  # ones, zeros and what is computed
        elif tensor.numel() > 500:
            assert float(found[name].std() / tensor.detach().std()) == pytest.approx(1, abs=0.2), (
                name
            )
        else:
            assert float(found[name].std()) > 0, name
    assert all(each.is_meta for each in tensors_of(meta).values())


def test_tied_weights_have_one_value_and_one_memory() -> None:
    fresh = FreshWeights(make("t5", "meta")[0], "a model")
    names = ["lm_head.weight", "shared.weight", "encoder.embed_tokens.weight"]
    found = fresh.load(names)
    assert len({each.data_ptr() for each in found.values()}) == 1
    alone = fresh.load(names[:1])[names[0]]
    assert torch.equal(alone, found["shared.weight"])


def test_another_seed_makes_other_values_and_another_submodule_too() -> None:
    meta = make("llama", "meta")[0]
    name, other = (f"model.layers.{layer}.mlp.up_proj.weight" for layer in (0, 1))
    one = FreshWeights(meta, "a model", 1).load([name, other])
    assert not torch.equal(one[name], one[other])
    assert not torch.equal(one[name], FreshWeights(meta, "a model", 2).load([name])[name])


def test_the_random_numbers_of_the_process_go_on_as_before() -> None:
    fresh = FreshWeights(make("llama", "meta")[0], "a model")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fresh.load(["lm_head.weight"])
    assert torch.equal(torch.rand(3), expected)


def test_nothing_is_kept_of_what_was_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc
    import weakref

    made: list[Any] = []
    empty = torch.empty_strided

    def counted(*shape: Any, **options: Any) -> Any:
        tensor = empty(*shape, **options)
        made.append(weakref.ref(tensor.untyped_storage()))
        return tensor

    meta, _ = make("mixtral", "meta")
    fresh = FreshWeights(meta, "a model")
    gc.disable()
    monkeypatch.setattr(torch, "empty_strided", counted)
    try:
        found = fresh.load(["model.layers.0.mlp.experts.down_proj"])
    finally:
        gc.enable()
    assert len(made) == 2  # what the module of the experts owns
    held = [each.untyped_storage().nbytes() for each in found.values()]
    assert held == [bytes_of(fresh, list(found))]


def test_a_rank_is_handed_what_this_process_makes() -> None:
    found, names = weights(f"{PLACE}:on_meta", seed=3)
    with hand_over(found, names) as handed:
        again = from_document(json.loads(json.dumps(handed.document))).load(names)
    loaded = found.load(names)
    assert all(torch.equal(loaded[name], again[name]) for name in names)
    assert float(loaded["0.weight"].std()) > 0
    assert loaded["1.running_var"].tolist() == [1.0] * 8


def test_a_module_of_a_phase_is_made_like_its_model() -> None:
    source = "hf:llama?hidden_size=64&num_hidden_layers=1&intermediate_size=32&vocab_size=50"
    sizes = "&num_attention_heads=2&num_key_value_heads=2&head_dim=32&sequence=8"
    found, names = weights(source + sizes + "&phase=prefill")
    loaded = found.load(names)
    assert float(loaded["model.model.layers.0.mlp.up_proj.weight"].std()) == pytest.approx(
        0.02, rel=0.2
    )


def test_a_module_that_does_not_initialise_itself_is_named() -> None:
    found, names = weights(f"{PLACE}:only_built")
    with pytest.raises(InputError, match=r"'0\.gain' has no initial value: the module '0' \(Only"):
        found.load(names)


def test_initialising_that_fails_is_one_sentence() -> None:
    class Failing(torch.nn.Linear):
        def reset_parameters(self) -> None:
            if not self.weight.is_meta:
                raise ValueError("not\nnow")

    with torch.device("meta"):
        module = torch.nn.Sequential(Failing(2, 2))
    with pytest.raises(InputError, match=r"'0' \(Failing\) alone raised ValueError: not; give"):
        FreshWeights(module, "a module").load(["0.weight"])


def test_writes_past_autograd_count() -> None:
    class Old(torch.nn.Linear):
        def reset_parameters(self) -> None:
            self.weight.data.fill_(2)
            self.bias.data.zero_()

    with torch.device("meta"):
        module = torch.nn.Sequential(Old(2, 2))
    assert FreshWeights(module, "a module").load(["0.weight"])["0.weight"].sum() == 8


# -- which weights a source has ----------------------------------------------------------------


def test_a_factory_brings_its_own_values() -> None:
    found, names = weights(f"{PLACE}:real")
    module = load_module(f"{PLACE}:real")[0]
    loaded = found.load(names)
    assert found.origin == "values of the source"
    assert torch.equal(loaded["turned"], module.turned)
    assert loaded["shift"].tolist() == [0, 1, 2, 3]


def test_fresh_weights_of_a_factory_leave_its_constants() -> None:
    found, names = weights(f"{PLACE}:real".replace("real", "on_meta"), "fresh")
    assert set(found.load(names)) == set(names)
    source = f"{PLACE}:real"
    module = load_module(source)[0]
    with torch.no_grad():
        module.first.bias.fill_(7)
    executable = load_executable(source)
    fresh = weights_of(source, executable, module, "fresh")
    assert fresh.load(["scale", "shift"])["scale"].tolist() == [3.0] * 4
    assert fresh.load(["first.bias"])["first.bias"].abs().max() < 1


def test_a_constant_without_values_is_named() -> None:
    with pytest.raises(OptionError, match=r"its constant '1\.shift' has a shape but no values"):
        weights(f"{PLACE}:with_constant")


def test_a_source_without_a_module_is_refused() -> None:
    with pytest.raises(OptionError, match="zoo:gpt3 has no module"):
        load_module("zoo:gpt3")
