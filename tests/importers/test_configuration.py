"""Fields of a Transformers configuration that are changed take those derived from them along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.errors import OptionError
from placewright.importers.torch.configuration import configuration
from placewright.importers.torch.sources import load_hf

TINY = "vocab_size=99&sequence=8"
TINY_MODELS = {
    "llama": f"{TINY}&hidden_size=64&num_hidden_layers=2&num_attention_heads=4"
    "&num_key_value_heads=2&intermediate_size=48",
    "qwen2": f"{TINY}&hidden_size=32&num_hidden_layers=2&num_attention_heads=4"
    "&num_key_value_heads=4&intermediate_size=48",
    "gpt2": f"{TINY}&n_layer=2&n_embd=24&n_head=2",
    "t5": f"{TINY}&num_layers=2&d_model=32&d_ff=48&d_kv=8&num_heads=4",
    "mixtral": f"{TINY}&hidden_size=32&num_hidden_layers=2&num_attention_heads=4"
    "&num_key_value_heads=4&intermediate_size=48&num_local_experts=2",
    "git": f"{TINY}&hidden_size=32&num_hidden_layers=2&num_attention_heads=4&intermediate_size=48"
    '&vision_config={"num_hidden_layers":1,"hidden_size":32,"num_attention_heads":2}',
}


def changed(source: str | Path, **fields: Any) -> Any:
    return configuration(str(source), {k: str(v) for k, v in fields.items()}, str(source))


@pytest.mark.parametrize("kind", TINY_MODELS)
def test_tiny_models_of_a_type_are_built(kind: str) -> None:
    module, _, _ = load_hf(f"{kind}?{TINY_MODELS[kind]}")
    assert module.config.vocab_size == 99
    assert sum(each.numel() for each in module.parameters()) < 1e6


def test_the_size_of_heads_follows_that_of_layers() -> None:
    settings = changed("llama", hidden_size=64, num_attention_heads=4)
    assert (settings.head_dim, settings.num_key_value_heads) == (16, 4)
    assert changed("llama", hidden_size=64, head_dim=128).head_dim == 128


def test_the_types_of_layers_are_as_many_as_layers() -> None:
    assert changed("qwen2", num_hidden_layers=2).layer_types == ["full_attention"] * 2


def test_a_field_within_another_is_changed_as_a_whole() -> None:
    vision = changed("git", vision_config=json.dumps({"hidden_size": 48})).vision_config
    assert (vision.hidden_size, vision.num_hidden_layers) == (48, 12)


def test_of_a_file_what_follows_from_the_rest_follows_what_is_changed(tmp_path: Path) -> None:
    changed("qwen2", hidden_size=64, num_attention_heads=4, vocab_size=99).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert len(written["layer_types"]) == 32
    settings = changed(tmp_path, num_hidden_layers=2)
    assert (settings.num_hidden_layers, len(settings.layer_types)) == (2, 2)
    assert (settings.hidden_size, settings.vocab_size) == (64, 99)


def test_of_a_file_what_does_not_follow_stays(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "head_dim": 32}))
    assert changed(file, num_attention_heads=4).head_dim == 32
    assert changed(file).head_dim == 32


@pytest.mark.parametrize(
    ("field", "hint"), [("hiden_size", "'hidden_size'"), ("sequense", "'sequence'")]
)
def test_a_field_that_there_is_not_is_refused_with_a_hint(field: str, hint: str) -> None:
    with pytest.raises(OptionError, match=rf"hf:llama: .* has no '{field}'; did you mean {hint}"):
        changed("llama", **{field: 2})


def test_a_value_that_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match=r"hf:llama: .*hidden_size"):
        changed("llama", hidden_size="wide")


def test_a_field_may_have_the_other_name_that_transformers_has_for_it(tmp_path: Path) -> None:
    assert changed("qwen3_moe", num_experts=4).num_experts == 4
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "qwen3_moe", "num_experts": 64}))
    assert changed(file, num_local_experts=4).num_experts == 4
    assert changed(file, num_experts=8).num_experts == 8
    assert changed(file, vocab_size=99).num_experts == 64
    file.write_text(json.dumps({"model_type": "gpt2", "num_hidden_layers": 3}))
    assert changed(file, n_layer=2).n_layer == changed(file, num_hidden_layers=2).n_layer == 2


def test_a_field_under_both_of_its_names_is_refused() -> None:
    with pytest.raises(OptionError, match="'num_hidden_layers' is another name of 'n_layer'"):
        changed("gpt2", n_layer=2, num_hidden_layers=3)
