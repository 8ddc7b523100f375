"""Weights read from the files of a checkpoint, a state dict, or an exported program."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from placewright.errors import FormatError, InputError, OptionError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from placewright.runtime.weights import Weights, bytes_of, from_document, hand_over  # noqa: E402
from tests.importers.tiny_models import make  # noqa: E402
from tests.runtime.weights.factories import real  # noqa: E402
from tests.runtime.weights.models import differing, saved, tensors_of, weights  # noqa: E402

FAMILIES = ["gpt2", "llama", "mixtral", "t5", "bert", "resnet"]
REAL = "torch:tests.runtime.weights.factories:real"


def handed(found: Weights, names: list[str]) -> dict[str, torch.Tensor]:
    """As a rank loads them."""
    with hand_over(found, names) as given:
        return from_document(json.loads(json.dumps(given.document))).load(names)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_checkpoint_gives_what_transformers_loads(kind: str, tmp_path: Path) -> None:
    module, source = saved(kind, tmp_path)
    found, names = weights(source)
    assert differing(found.load(names), tensors_of(module)) == []


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_a_rank_loads_its_own_by_a_document_alone(kind: str, tmp_path: Path) -> None:
    module, source = saved(kind, tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    found, names = weights(source)
    own = [name for name in names if "layers.1" in name or "inv_freq" in name]
    with hand_over(found, own) as handed:
        rank = from_document(json.loads(json.dumps(handed.document)))
        assert differing(rank.load(own), tensors_of(module)) == []
        with pytest.raises(InputError, match=r"no weight 'model\.norm\.weight'"):
            rank.load(["model.norm.weight"])
    assert bytes_of(found, own) == sum(each.nbytes for each in rank.load(own).values())


def test_only_the_bytes_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, source = saved("gpt2", tmp_path)
    found, _ = weights(source)
    made, empty = [], torch.empty

    def counted(*shape: Any, **options: Any) -> Any:
        made.append(empty(*shape, **options))
        return made[-1]

    monkeypatch.setattr(torch, "empty", counted)
    name = "transformer.h.1.mlp.c_fc.weight"
    loaded = found.load([name])
    assert sum(each.nbytes for each in made) == tensors_of(module)[name].nbytes
    assert loaded[name].untyped_storage().nbytes() == loaded[name].nbytes


def test_tied_weights_are_found_under_either_name(tmp_path: Path) -> None:
    module, source = saved("gpt2", tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    found, names = weights(source)
    assert {"lm_head.weight", "transformer.wte.weight"} <= set(names)
    for name in ("lm_head.weight", "transformer.wte.weight"):
        assert torch.equal(found.load([name])[name], module.lm_head.weight)


def test_a_checkpoint_of_the_base_model_gives_its_part(tmp_path: Path) -> None:
    module, source = saved("gpt2", tmp_path)
    module.transformer.save_pretrained(tmp_path / "base")
    assert "h.0.ln_1.weight" in load_file(tmp_path / "base" / "model.safetensors")
    found, names = weights(source, str(tmp_path / "base"))
    assert differing(found.load(names), tensors_of(module)) == []


def test_values_are_converted_to_the_dtype_of_the_program(tmp_path: Path) -> None:
    module, _ = saved("llama", tmp_path)
    halves = {name: each.bfloat16() for name, each in module.state_dict().items()}
    save_file(halves, tmp_path / "halves.safetensors")
    found, _ = weights(f"hf:{tmp_path}?sequence=8", str(tmp_path / "halves.safetensors"))
    name = "model.norm.weight"
    assert found.load([name])[name].dtype == torch.float32
    assert torch.equal(found.load([name])[name], halves[name].float())


def test_a_phase_has_the_weights_of_its_model(tmp_path: Path) -> None:
    module, source = saved("llama", tmp_path)
    found, names = weights(source + "&phase=prefill")
    expected = {f"model.{name}": each for name, each in tensors_of(module).items()}
    assert differing(found.load(names), expected) == []


def test_the_query_of_a_source_may_name_the_weights(tmp_path: Path) -> None:
    module, _ = saved("gpt2", tmp_path / "there")
    module.config.save_pretrained(tmp_path / "here")
    found, names = weights(f"hf:{tmp_path / 'here'}?sequence=8&weights={tmp_path / 'there'}")
    assert differing(found.load(names), tensors_of(module)) == []
    with pytest.raises(OptionError, match="there are no weights 'nowhere'"):
        weights("hf:gpt2?weights=nowhere")
    with pytest.raises(OptionError, match=r"weights=int4 of hf:.* give --weights fresh"):
        weights(f"hf:{tmp_path / 'here'}?sequence=8&weights=int4")


@pytest.mark.parametrize("suffix", [".pt", ".bin"])
def test_a_state_dict_gives_what_was_saved(suffix: str, tmp_path: Path) -> None:
    (
        module,
        _,
    ) = real()[:2]
    with torch.no_grad():
        module.turned.copy_(torch.arange(16.0).reshape(4, 4))
    torch.save({"state_dict": module.state_dict(), "step": 3}, tmp_path / f"a{suffix}")
    found, names = weights(REAL, str(tmp_path / f"a{suffix}"))
    loaded = found.load(names)
    expected = tensors_of(module) | {"shift": module.shift}
    assert differing(loaded, expected) == []
    assert loaded["turned"].stride() == (1, 4)
    assert differing(handed(found, ["turned", "scale"]), expected) == []


def test_a_state_dict_of_a_transformers_model_is_taken(tmp_path: Path) -> None:
    module, source = saved("t5", tmp_path)
    torch.save(module.state_dict(), tmp_path / "a.pth")
    found, names = weights(source, str(tmp_path / "a.pth"))
    assert differing(found.load(names), tensors_of(module)) == []


def exported(path: Path) -> Any:
    from placewright.importers.torch.export import export_inference

    module, args = real()[:2]
    torch.export.save(export_inference(module, args), path)
    return module


def test_an_archive_gives_the_bytes_of_its_members(tmp_path: Path) -> None:
    module = exported(tmp_path / "a.pt2")
    found, names = weights(str(tmp_path / "a.pt2"))
    loaded = handed(found, names)
    assert found.origin.startswith(str(tmp_path))
    expected = tensors_of(module) | {"shift": module.shift}
    assert differing(loaded, expected) == []
    assert [each.tolist() for name, each in loaded.items() if "lifted" in name] == [[1, 2, 3, 4]]


def test_an_archive_takes_other_weights(tmp_path: Path) -> None:
    module = exported(tmp_path / "a.pt2")
    torch.nn.init.ones_(module.first.bias)
    torch.save(module.state_dict(), tmp_path / "b.pt")
    found, _ = weights(str(tmp_path / "a.pt2"), str(tmp_path / "b.pt"))
    assert found.load(["first.bias"])["first.bias"].tolist() == [1.0] * 4
    with pytest.raises(OptionError, match=r"has no values for '.*'; give --weights FILE"):
        weights(str(tmp_path / "a.pt2"), "fresh")


# -- what is refused ---------------------------------------------------------------------------


def changed(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda held: {k: v for k, v in held.items() if "0.mlp.up" not in k},
         r"holds nothing for 'model\.layers\.0\.mlp\.up_proj\.weight'"),
        (lambda held: {**held, "model.norm.weight": torch.ones(31)},
         r"'model\.norm\.weight' is 31 numbers there, but 32 in the program"),
        (lambda held: {**held, "model.norm.weight": torch.ones(4, 8)},
         r"is of shape \[4, 8\] there, but \[32\] in the program"),
        (lambda held: {**held, "model.norm.weight": torch.ones(32, dtype=torch.int32)},
         r"is of type int32 there, but float32 in the program"),
        (lambda held: {**held, "model.norm.weight_scale": torch.ones(1)},
         r"'model\.norm\.weight' is not there as plain numbers \('model\.norm\.weight_scale'"),
        (lambda held: {**held, "norm.weight": torch.ones(32)},
         r"'model\.norm\.weight' and 'norm\.weight' are both 'model\.norm\.weight'"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_does_not_fit_is_one_sentence(
    change: Any, fault: str, tmp_path: Path
) -> None:
    _, source = saved("llama", tmp_path)
    changed(tmp_path, change)
    with pytest.raises(FormatError, match=fault):
        weights(source)


def test_an_expert_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    _, source = saved("mixtral", tmp_path)
    changed(tmp_path, lambda held: {k: v for k, v in held.items() if "0.mlp.experts.2.w1" not in k
                                    and "0.block_sparse_moe.experts.2.w1" not in k})  # fmt: skip
    with pytest.raises(FormatError, match=r"experts\.gate_up_proj' is \d+ numbers there"):
        weights(source)


def test_a_file_that_changes_or_ends_is_noticed(tmp_path: Path) -> None:
    _, source = saved("llama", tmp_path)
    found, _ = weights(source)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FormatError, match="has changed since the run began"):
        found.load(["model.norm.weight"])
    path.unlink()
    with pytest.raises(FormatError, match="cannot be read"):
        found.load(["model.norm.weight"])


def broken(kind: str, path: Path) -> None:
    if kind == "pickle":
        torch.save({"a": Path("x")}, path)
    elif kind == "module":
        torch.save(torch.nn.Linear(2, 2), path)
    elif kind == "list":
        torch.save([torch.zeros(2)], path)
    elif kind == "nothing":
        torch.save({"a": 3}, path)
    elif kind == "legacy":
        torch.save({"a": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    elif kind == "cut":
        torch.save({"a": torch.zeros(2)}, path)
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "archive":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/archive_format", "pt2")
            payload = {"path_name": "weight_0", "use_pickle": True}
            archive.writestr(
                "a/data/weights/model_weights_config.json", json.dumps({"config": {"w": payload}})
            )
    elif kind == "short":
        path.with_suffix(".safetensors").write_bytes(b"12345678")


@pytest.mark.parametrize(
    ("kind", "name", "fault"),
    [
        ("pickle", "a.pt", "torch does not load it as weights alone"),
        ("module", "a.pt", "torch does not load it as weights alone"),
        ("list", "a.pt", "holds a list, not a state dict"),
        ("nothing", "a.pt", "holds no tensors by name"),
        ("legacy", "a.pt", "is no archive as torch.save and torch.export.save write them"),
        ("cut", "a.pt", "is a broken archive"),
        ("archive", "a.pt", "is a pickled object"),
        ("short", "a.safetensors", "its header is said to be"),
    ],
)
def test_a_broken_file_is_one_sentence(kind: str, name: str, fault: str, tmp_path: Path) -> None:
    broken(kind, tmp_path / "a.pt")
    with pytest.raises(FormatError, match=fault) as caught:
        weights(REAL, str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_directory_without_weights_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"holds neither model\.safetensors"):
        weights(REAL, str(tmp_path))
    with pytest.raises(OptionError, match="there is no 'nowhere'; give 'fresh', a file"):
        weights(REAL, "nowhere")


def test_a_checkpoint_that_holds_what_the_model_computes_is_taken(tmp_path: Path) -> None:
    module, source = saved("llama", tmp_path)
    old = "model.layers.0.self_attn.rotary_emb.inv_freq"
    changed(tmp_path, lambda held: {**held, old: torch.zeros(4)})
    found, names = weights(source)
    assert differing(found.load(names), tensors_of(make("llama")[0])) == []
    assert differing(found.load(names), tensors_of(module)) == []
