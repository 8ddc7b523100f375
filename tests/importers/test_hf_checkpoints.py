"""A directory with safetensors: weights have the bytes of the files, which are not loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from placewright.errors import FormatError, OptionError
from placewright.graph import Graph
from placewright.importers.safetensors import ITEM_BITS, SINGLE
from placewright.importers.torch.sources import from_hf

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100,
}  # fmt: skip
Tensors = Mapping[str, tuple[str, list[int]]]


def write(folder: Path, tensors: Tensors) -> None:
    """A file of tensors (type, shape) that are all holes, and nothing in them."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.ceil(math.prod(shape) * ITEM_BITS[dtype] / 8)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / SINGLE).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def model(folder: Path, kind: str = "Llama", **more: Any) -> Any:
    """A model on meta whose configuration is in `folder`."""
    config = getattr(transformers, f"{kind}Config")(**SIZES, **more)
    config.save_pretrained(folder)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def plain(module: Any, dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    return {name: (dtype, list(each.shape)) for name, each in module.named_parameters()}


def parameters_of(graph: Graph, module: str) -> float:
    return float(graph.op_parameter_bytes[[m == module for m in graph.op_modules]].sum())


def test_bytes_are_those_of_the_weights_that_a_run_will_load(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    module = model(tmp_path)
    write(tmp_path / "files", plain(module))
    bare, given, fresh = (
        from_hf(f"{tmp_path}?sequence=8{more}")
        for more in ("", f"&weights={tmp_path / 'files'}", "&weights=fresh")
    )
    assert "stored_bytes" not in bare.attributes and "stored_bytes" not in fresh.attributes
    assert given.attributes["stored_bytes"] == 2 * sum(e.numel() for e in module.parameters())
    write(tmp_path, plain(module))
    assert "stored_bytes" in from_hf(f"{tmp_path}?sequence=8").attributes
    assert "stored_bytes" not in from_hf(f"{tmp_path}?sequence=8&weights=fresh").attributes
    with pytest.raises(OptionError, match="there are no weights 'nowhere'"):
        from_hf(f"{tmp_path}?weights=nowhere")


def test_bytes_are_those_of_the_files_not_of_the_configuration(tmp_path: Path) -> None:
    module = model(tmp_path)
    write(tmp_path, plain(module))
    graph = from_hf(f"{tmp_path}?sequence=8")
    numbers = sum(each.numel() for each in module.parameters())
    assert graph.attributes["stored_bytes"] == 2 * numbers
    assert graph.attributes["stored_dtypes"] == {"BF16": 2 * numbers}
    assert parameters_of(graph, "model.layers.0.self_attn.q_proj") == 2 * 64 * 64
    whole = from_hf(f"{tmp_path / 'config.json'}?sequence=8")
    assert parameters_of(whole, "model.layers.0.self_attn.q_proj") == 4 * 64 * 64


def test_an_op_reads_the_bytes_that_are_kept(tmp_path: Path) -> None:
    module = model(tmp_path)
    write(tmp_path, plain(module))
    stored = from_hf(f"{tmp_path}?sequence=8")
    whole = from_hf(f"{tmp_path / 'config.json'}?sequence=8")
    up = stored.op_modules.index("model.layers.0.mlp.up_proj")
    assert whole.op_bytes_read[up] - stored.op_bytes_read[up] == 2 * 64 * 96
    assert stored.op_flops[up] == whole.op_flops[up]
    assert stored.op_signatures[up] == "" != whole.op_signatures[up]


def test_files_that_transformers_writes_are_read(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**SIZES, tie_word_embeddings=True)
    made = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    made.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    graph = from_hf(f"{tmp_path}?sequence=8")
    assert graph.attributes["stored_bytes"] == 2 * sum(p.numel() for p in made.parameters())
    held = float(graph.op_parameter_bytes.sum())
    assert held == pytest.approx(graph.attributes["stored_bytes"], rel=0.01)  # and rotary tables


def test_experts_that_are_apart_in_the_files_are_one_parameter(tmp_path: Path) -> None:
    module = model(tmp_path, "Mixtral", num_local_experts=4)
    tensors = {name: each for name, each in plain(module).items() if ".experts." not in name}
    for layer in range(2):
        for expert in range(4):
            where = f"model.layers.{layer}.block_sparse_moe.experts.{expert}"
            tensors |= {
                f"{where}.w1.weight": ("BF16", [96, 64]),
                f"{where}.w2.weight": ("BF16", [64, 96]),
                f"{where}.w3.weight": ("BF16", [96, 64]),
            }
    write(tmp_path, tensors)
    graph = from_hf(f"{tmp_path}?sequence=8")
    assert graph.attributes["stored_bytes"] == 2 * sum(p.numel() for p in module.parameters())
    assert "stored_unused_bytes" not in graph.attributes
    del tensors["model.layers.1.block_sparse_moe.experts.3.w1.weight"]
    write(tmp_path, tensors)
    with pytest.raises(FormatError, match=r"hold \d+ numbers for"):
        from_hf(f"{tmp_path}?sequence=8")


def gptq(name: str, rows: int, columns: int) -> dict[str, tuple[str, list[int]]]:
    """Four bits a number, and per 32 rows a scale and a zero point."""
    return {
        f"{name}.qweight": ("I32", [columns // 8, rows]),
        f"{name}.qzeros": ("I32", [columns // 32, rows // 8]),
        f"{name}.scales": ("F16", [columns // 32, rows]),
        f"{name}.g_idx": ("I32", [columns]),
    }


def bitsandbytes(name: str, rows: int, columns: int) -> dict[str, tuple[str, list[int]]]:
    return {
        f"{name}.weight": ("U8", [rows * columns // 2, 1]),
        f"{name}.weight.absmax": ("U8", [rows * columns // 64]),
        f"{name}.weight.quant_map": ("F32", [16]),
        f"{name}.weight.quant_state.bitsandbytes__nf4": ("U8", [97]),
    }


def int8(name: str, rows: int, columns: int) -> dict[str, tuple[str, list[int]]]:
    return {f"{name}.weight": ("I8", [rows, columns]), f"{name}.SCB": ("F32", [rows])}


def fp8(name: str, rows: int, columns: int) -> dict[str, tuple[str, list[int]]]:
    return {
        f"{name}.weight": ("F8_E4M3", [rows, columns]),
        f"{name}.weight_scale_inv": ("F32", [1, 1]),
    }


def packed(name: str, rows: int, columns: int) -> dict[str, tuple[str, list[int]]]:
    return {
        f"{name}.weight_packed": ("I32", [rows, columns // 8]),
        f"{name}.weight_scale": ("BF16", [rows, columns // 32]),
        f"{name}.weight_shape": ("I64", [2]),
    }


@pytest.mark.parametrize("quantised", [gptq, bitsandbytes, int8, fp8, packed])
def test_a_quantised_checkpoint_has_the_bytes_of_all_its_tensors(
    tmp_path: Path, quantised: Any
) -> None:
    module = model(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    tensors: dict[str, tuple[str, list[int]]] = {}
    for name, (dtype, shape) in plain(module).items():
        owner = name.removesuffix(".weight")
        tensors |= quantised(owner, *shape) if "_proj" in name else {name: (dtype, shape)}
    write(tmp_path, tensors)
    graph = from_hf(f"{tmp_path}?sequence=8")
    down = "model.layers.1.mlp.down_proj"
    own = {name: each for name, each in tensors.items() if name.startswith(f"{down}.")}
    expected = sum(math.ceil(math.prod(s) * ITEM_BITS[d] / 8) for d, s in own.values())
    assert parameters_of(graph, down) == pytest.approx(expected)
    assert "stored_unused_bytes" not in graph.attributes
    op = graph.op_modules.index(down)
    assert graph.op_bytes_read[op] == pytest.approx(expected + 8 * 96 * 4)


def test_quantised_experts_are_found_by_the_names_of_their_matrices(tmp_path: Path) -> None:
    module = model(tmp_path, "Mixtral", num_local_experts=4)
    tensors = {name: each for name, each in plain(module).items() if ".experts." not in name}
    for layer in range(2):
        for expert in range(4):
            where = f"model.layers.{layer}.block_sparse_moe.experts.{expert}"
            tensors |= gptq(f"{where}.w1", 96, 64) | gptq(f"{where}.w3", 96, 64)
            tensors |= gptq(f"{where}.w2", 64, 96)
    write(tmp_path, tensors)
    attributes = from_hf(f"{tmp_path}?sequence=8").attributes
    total = sum(math.ceil(math.prod(s) * ITEM_BITS[d] / 8) for d, s in tensors.values())
    assert attributes["stored_bytes"] == pytest.approx(total)
    assert "stored_unused_bytes" not in attributes


def test_blocks_and_scales_of_stacked_experts_are_theirs(tmp_path: Path) -> None:
    module = model(tmp_path, "GptOss", num_local_experts=4, head_dim=16)
    tensors: dict[str, tuple[str, list[int]]] = {}
    for name, (dtype, shape) in plain(module).items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inner, outer = shape
            tensors[f"{name}_blocks"] = ("U8", [experts, outer, inner // 32, 16])
            tensors[f"{name}_scales"] = ("U8", [experts, outer, inner // 32])
        else:
            tensors[name] = (dtype, shape)
    write(tmp_path, tensors)
    attributes = from_hf(f"{tmp_path}?sequence=8").attributes
    total = sum(math.ceil(math.prod(s) * ITEM_BITS[d] / 8) for d, s in tensors.values())
    assert attributes["stored_bytes"] == pytest.approx(total)
    assert "stored_unused_bytes" not in attributes


def test_phases_have_the_bytes_of_the_files_too(tmp_path: Path) -> None:
    module = model(tmp_path)
    write(tmp_path, plain(module))
    graph = from_hf(f"{tmp_path}?phase=decode&context=8")
    assert parameters_of(graph, "model.layers.0.self_attn.q_proj") == 2 * 64 * 64
    assert graph.attributes["stored_bytes"] == 2 * sum(p.numel() for p in module.parameters())


def test_tensors_the_model_has_no_use_for_are_told(tmp_path: Path) -> None:
    module = model(tmp_path)
    write(tmp_path, plain(module) | {"vision_tower.patches": ("F32", [10])})
    assert from_hf(f"{tmp_path}?sequence=8").attributes["stored_unused_bytes"] == 40


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"lm_head.weight": ("BF16", [99, 64])}, r"has shape \[99, 64\] in the files, \[100, 64\]"),
        ({"lm_head.weight": ("BF16", [64, 100])}, r"has shape \[64, 100\] in the files"),
        ({"lm_head.weight": None}, "hold nothing for 'lm_head.weight'"),
    ],
)
def test_files_of_another_model_are_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    tensors = plain(model(tmp_path)) | change
    write(tmp_path, {name: each for name, each in tensors.items() if each is not None})
    with pytest.raises(FormatError, match=sentence):
        from_hf(f"{tmp_path}?sequence=8")


# -- weights of another type ---------------------------------------------------------------------


def linear_numbers(module: Any) -> int:
    ends = {id(module.model.embed_tokens.weight), id(module.lm_head.weight)}
    return sum(
        each.numel() for each in module.parameters() if each.dim() > 1 and id(each) not in ends
    )


@pytest.mark.parametrize(("dtype", "bits"), [("int4", 4), ("int8", 8), ("fp8", 8)])
@pytest.mark.parametrize("tied", [False, True])
def test_matrices_have_the_bits_of_the_type_and_their_scales(
    tmp_path: Path, dtype: str, bits: int, tied: bool
) -> None:
    module = model(tmp_path, dtype="bfloat16", tie_word_embeddings=tied)
    plain = from_hf(f"{tmp_path}?sequence=8")
    graph = from_hf(f"{tmp_path}?sequence=8&weights={dtype}")
    numbers = linear_numbers(module)
    less = numbers * (16 - bits - 16 / 128) / 8
    assert plain.op_parameter_bytes.sum() - graph.op_parameter_bytes.sum() == less
    assert plain.op_bytes_read.sum() - graph.op_bytes_read.sum() == pytest.approx(less)
    assert graph.attributes["stored_dtypes"][dtype] == numbers * (bits + 16 / 128) / 8
    assert graph.attributes["stored_bytes"] == sum(graph.attributes["stored_dtypes"].values())
    assert graph.op_flops.sum() == plain.op_flops.sum()


def test_experts_that_are_one_tensor_have_the_bits_of_the_type(tmp_path: Path) -> None:
    module = model(tmp_path, "Mixtral", num_local_experts=4, dtype="bfloat16")
    graph = from_hf(f"{tmp_path}?sequence=8&weights=int4")
    stored = linear_numbers(module) * (4 + 16 / 128) / 8
    assert graph.attributes["stored_dtypes"]["int4"] == stored


def test_one_phase_of_serving_reads_weights_of_the_type(tmp_path: Path) -> None:
    module = model(tmp_path, dtype="bfloat16")
    text = f"{tmp_path}?phase=decode&context=8"
    plain, graph = from_hf(text), from_hf(f"{text}&weights=int4")
    less = linear_numbers(module) * (12 - 16 / 128) / 8
    assert plain.op_parameter_bytes.sum() - graph.op_parameter_bytes.sum() == less


def test_a_type_of_weights_is_for_planning_inference(tmp_path: Path) -> None:
    model(tmp_path)
    with pytest.raises(OptionError, match="weights=int4 are for inference"):
        from_hf(f"{tmp_path}?weights=int4", training=True)
    with pytest.raises(OptionError, match=r"no weights 'int3'; .* a type \(int4, int8, fp8\)"):
        from_hf(f"{tmp_path}?weights=int3")
