"""GGUF files: the graph of the architecture with the file's own bytes, and nothing half-read."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from placewright.errors import FormatError, InputError, OptionError
from placewright.graph import Graph
from placewright.importers import load
from placewright.importers.gguf.architectures import ARCHITECTURES
from placewright.importers.gguf.header import read_header
from placewright.importers.gguf.types import TYPES
from placewright.serving.planning import plan_request
from tests.importers.gguf_files import (
    HEADS,
    HIDDEN,
    KV_HEADS,
    SIZE,
    WIDE,
    WORDS,
    block,
    ends,
    gguf,
    stored_bytes,
    write,
)

QUANTISED = {
    **dict.fromkeys(("ffn_up", "ffn_gate", "ffn_down"), "Q4_0"),
    "attn_q.": "Q8_0",
    "attn_output": "Q5_1",
    "token_embd": "F16",
}
MIXED = {**ends(), **block(0), **block(1)}
KEPT = KV_HEADS * SIZE * 2 * 2  # keys and values of two bytes: of a token in a layer


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny-q4.gguf", MIXED, QUANTISED)


def graph_of(path: Path, query: str = "") -> Graph:
    return load(f"{path}?{query}" if query else str(path)).graph


def held(graph: Graph) -> dict[str, float]:
    """Bytes of weights by op."""
    weights = zip(graph.op_names, graph.op_parameter_bytes.tolist(), strict=True)
    return {name: count for name, count in weights if count}


def op(graph: Graph, name: str) -> int:
    return graph.op_index[name]


def test_every_weight_has_the_bytes_of_the_file(llama: Path) -> None:
    expected = {name.removesuffix(".weight"): n for name, n in stored_bytes(llama).items()}
    graph = graph_of(llama)
    assert held(graph) == expected
    assert expected["blk.0.ffn_up"] == HIDDEN * WIDE // 32 * 18
    assert graph.attributes["stored_bytes"] == sum(expected.values())
    assert f"Q4_0 {6 * HIDDEN * WIDE // 32 * 18}" in graph.attributes["stored_dtypes"].split(", ")
    elements = 2 * HIDDEN * WORDS + HIDDEN + 2 * 2 * HIDDEN
    elements += 2 * (2 * HIDDEN * HEADS * SIZE + 2 * HIDDEN * KV_HEADS * SIZE + 3 * HIDDEN * WIDE)
    assert graph.attributes["parameters"] == elements


def test_the_sizes_of_types_are_those_of_the_package() -> None:
    known = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert len(TYPES.keys() & known.keys()) > 25
    for number in TYPES.keys() & known.keys():  # a package may be older than a type
        kind = TYPES[number]
        assert gguf.GGMLQuantizationType(number).name == kind.name
        assert known[number] == (kind.block_elements, kind.block_bytes)


def test_a_matrix_computes_in_the_type_of_activations_and_reads_its_own_bytes(llama: Path) -> None:
    graph = graph_of(llama, "context=10&batch=3")
    up = op(graph, "blk.1.ffn_up")
    assert graph.op_flops[up] == 2 * 30 * HIDDEN * WIDE
    assert graph.op_bytes_read[up] == 30 * HIDDEN * 2 + HIDDEN * WIDE // 32 * 18
    assert (graph.op_dtypes[up], graph.op_modules[up]) == ("fp16", "blk.1")
    assert graph.input_samples == 3
    embedding = op(graph, "token_embd")
    assert graph.op_bytes_read[embedding] == 30 * HIDDEN * 2  # rows of F16, not the table


@pytest.mark.parametrize(("phase", "tiles"), [("prefill", 10), ("forward", 10), ("decode", 16)])
def test_attention_skips_what_is_masked(llama: Path, phase: str, tiles: int) -> None:
    graph = graph_of(llama, f"phase={phase}&context=512")
    tokens = 1 if phase == "decode" else 512
    pairs = HEADS * tokens * 512 * tiles / 16
    assert graph.op_flops[op(graph, "blk.0.attention")] == pairs * (4 * SIZE + 5)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_phase_keeps_the_keys_and_values_of_its_context(llama: Path, phase: str) -> None:
    graph = graph_of(llama, f"phase={phase}&context=24&batch=3&dtype=fp32")
    assert graph.op_state_bytes.sum() == 3 * 24 * 2 * KEPT
    assert graph.attributes["kv_bytes_per_token"] == 2 * KEPT
    assert (graph.attributes["phase"], graph.attributes["context"]) == (phase, 24)
    tokens = 24 if phase == "prefill" else 1
    assert graph.op_flops[op(graph, "blk.0.attn_q")] == 2 * 3 * tokens * HIDDEN * HEADS * SIZE
    assert graph.op_flops[op(graph, "output")] == 2 * 3 * HIDDEN * WORDS  # of the last token


def test_the_plain_forward_keeps_nothing_and_has_the_context_of_the_model(llama: Path) -> None:
    graph = graph_of(llama)
    assert graph.op_state_bytes.sum() == 0
    assert graph.op_flops[op(graph, "output")] == 2 * 64 * HIDDEN * WORDS


def test_a_head_without_a_matrix_is_tied_to_the_embedding(tmp_path: Path) -> None:
    graph = graph_of(write(tmp_path / "tied.gguf", {**ends(tied=True), **block(0)}))
    embedding, head = op(graph, "token_embd"), op(graph, "output")
    assert graph.colocation[embedding] == graph.colocation[head] >= 0
    assert graph.op_parameter_bytes[head] == 0
    assert graph.op_bytes_read[head] > HIDDEN * WORDS * 4


def test_experts_are_read_as_far_as_tokens_use_them(tmp_path: Path) -> None:
    experts = block(
        0,
        ffn_gate=None,
        ffn_up=None,
        ffn_down=None,
        ffn_gate_inp=(HIDDEN, 8),
        ffn_gate_exps=(HIDDEN, WIDE, 8),
        ffn_up_exps=(HIDDEN, WIDE, 8),
        ffn_down_exps=(WIDE, HIDDEN, 8),
    )
    path = write(
        tmp_path / "moe.gguf",
        {**ends(), **experts},
        {"exps": "Q8_0"},
        expert_count=8,
        expert_used_count=2,
    )
    graph = graph_of(path, "phase=decode&context=8")
    up, table = op(graph, "blk.0.ffn_up_exps"), HIDDEN * WIDE * 8 // 32 * 34
    assert graph.op_parameter_bytes[up] == table
    assert graph.op_flops[up] == 2 * 2 * HIDDEN * WIDE
    assert graph.op_bytes_read[up] == HIDDEN * 2 + table * 2 / 8
    assert sum(held(graph).values()) == sum(stored_bytes(path).values())


BESIDES = {
    "qwen2": {},
    "qwen3": {"attn_q_norm": (SIZE,), "attn_k_norm": (SIZE,)},
    "phi3": {
        "attn_q": None,
        "attn_k": None,
        "attn_v": None,
        "attn_qkv": (HIDDEN, (HEADS + 2 * KV_HEADS) * SIZE),
        "ffn_gate": None,
        "ffn_up": (HIDDEN, 2 * WIDE),
    },
    "starcoder2": {"ffn_gate": None},
    "command-r": {"ffn_norm": None},
    "gemma2": {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,)},
    "olmo2": {
        "attn_norm": None,
        "ffn_norm": None,
        "post_attention_norm": (HIDDEN,),
        "post_ffw_norm": (HIDDEN,),
    },
    "gpt-oss": {"ffn_norm": None, "post_attention_norm": (HIDDEN,), "attn_sinks": (HEADS,)},
}
"""What a block has besides, or not, in architectures that are written from its tensors."""


@pytest.mark.parametrize("architecture", BESIDES)
def test_every_tensor_of_an_architecture_has_its_place(tmp_path: Path, architecture: str) -> None:
    blocks = {**block(0, **BESIDES[architecture]), **block(1, **BESIDES[architecture])}
    biases = {"blk.0.attn_output.bias": (HIDDEN,)}
    path = write(
        tmp_path / "model.gguf",
        {**ends(), **blocks, **biases},
        architecture=architecture,
        attention__sliding_window=6,
    )
    graph = graph_of(path, "phase=decode&context=24")
    assert sum(held(graph).values()) == sum(stored_bytes(path).values())
    windows = architecture in ("gemma2", "gpt-oss")
    assert graph.op_state_bytes.sum() == KEPT * (24 + (6 if windows else 24))
    assert graph.op_names[-1] == "output"
    products = sum(graph.op_flops[op(graph, name)] for name in held(graph) if "ffn_" in name)
    matrices = 2 if architecture == "starcoder2" else 3
    assert products >= 2 * 2 * matrices * HIDDEN * WIDE


def test_sizes_may_differ_by_layer(tmp_path: Path) -> None:
    small = block(1, attn_k=(HIDDEN, SIZE), attn_v=(HIDDEN, SIZE))
    path = write(
        tmp_path / "m.gguf", {**ends(), **block(0), **small}, attention__head_count_kv=[2, 1]
    )
    graph = graph_of(path, "phase=decode&context=10")
    assert graph.op_state_bytes.sum() == 10 * (KEPT + KEPT / 2)


def test_a_model_in_several_files_is_one(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.gguf", MIXED)
    for number in (1, 2):
        tensors = {**ends(), **block(0)} if number == 1 else block(1)
        path = tmp_path / f"m-0000{number}-of-00002.gguf"
        write(path, tensors, block_count=2)
        _say_split(path, number - 1)
    graph = graph_of(tmp_path / "m-00001-of-00002.gguf")
    assert held(graph) == held(graph_of(whole))
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(FormatError, match=r"m-00002-of-00002\.gguf: no such file"):
        graph_of(tmp_path / "m-00001-of-00002.gguf")


def _say_split(path: Path, number: int) -> None:
    """Put the count of files into the metadata, as the program that splits files does."""
    content = path.read_bytes()
    (count,) = struct.unpack_from("<Q", content, 16)
    start = 24

    def entry(key: bytes, format: str, kind: int, value: int) -> bytes:
        return struct.pack("<Q", len(key)) + key + struct.pack(f"<I{format}", kind, value)

    more = entry(b"split.no", "H", 2, number) + entry(b"split.count", "H", 2, 2)
    more += b"" if number else entry(b"split.tensors.count", "i", 5, len(MIXED))
    entries = 2 if number else 3
    changed = content[:16] + struct.pack("<Q", count + entries) + more + content[start:]
    path.write_bytes(changed + bytes(64))  # data begins later now; what it holds does not matter


def test_prefill_and_decode_are_planned_together(llama: Path) -> None:
    served = plan_request(f"{llama}?batch=2", "2x3090", "prompt=8,output=8", planner="heft")
    assert served.plan.problem.op_cache.sum() == 2 * 16 * 2 * KEPT
    assert served.seconds_per_token > 0
    with pytest.raises(OptionError, match="--mix says what 'context=9' would"):
        plan_request(f"{llama}?context=9", "2x3090", "prompt=8,output=8")


# -- what is refused -----------------------------------------------------------------------------


def test_an_unknown_architecture_is_named_with_those_known(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {**ends(), **block(0)}, architecture="mamba")
    with pytest.raises(FormatError, match=r"'mamba' is not known; known are .*llama.*qwen2"):
        graph_of(path)


def test_a_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {**ends(), **block(0, something=(HIDDEN,))})
    with pytest.raises(FormatError, match=r"what 'llama' does with blk\.0\.something\.weight"):
        graph_of(path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"attn_q": None}, "has no tensor 'blk.0.attn_q.weight'"),
        ({"attn_k": (HIDDEN, 64)}, r"'blk.0.attn_k.weight' has shape \[256, 64\]; .*\[256, 128\]"),
        ({"ffn_down": (WIDE, 128)}, r"has shape \[512, 128\]"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(tmp_path: Path, changes, sentence: str) -> None:
    path = write(tmp_path / "m.gguf", {**ends(), **block(0, **changes)})
    with pytest.raises(FormatError, match=sentence):
        graph_of(path)


def test_heads_that_cannot_share_keys_and_values_are_named(tmp_path: Path) -> None:
    given = {"attention__head_count": 4, "attention__head_count_kv": 3}
    path = write(tmp_path / "m.gguf", {**ends(), **block(0)}, **given)
    with pytest.raises(FormatError, match="layer 0 has 4 heads and 3 of keys and values, which"):
        graph_of(path)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("phase=train", "phase=train: .*must be one of forward, prefill, decode"),
        ("context=0", "context=0: must be from 1"),
        ("contxt=8", "has no parameter 'contxt'; did you mean 'context'"),
        ("optimizer=adam", "is for inference"),
        ("context", "'context' is no option"),
        ("batch=1&batch=2", "'batch' is given twice"),
    ],
)
def test_options_that_do_not_exist_are_refused(llama: Path, query: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load(f"{llama}?{query}")


def test_a_file_that_is_cut_off_is_said_so_wherever_it_is(llama: Path) -> None:
    content = llama.read_bytes()
    for length in (*range(4, 200), *range(200, len(content), 9973), len(content) - 1):
        llama.write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"tiny-q4\.gguf: (is cut off|has )"):
            graph_of(llama)


def test_changed_bytes_of_a_header_give_a_sentence_or_a_graph(llama: Path) -> None:
    content = llama.read_bytes()
    for place in range(4, 1500, 7):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        llama.write_bytes(changed)
        try:
            graph_of(llama)
        except InputError as error:
            assert str(error).startswith(str(llama))
            assert "\n" not in str(error)


@pytest.mark.parametrize(("version", "sentence"), [(1, "has version 1"), (3 << 24, "big-endian")])
def test_other_versions_are_refused(llama: Path, version: int, sentence: str) -> None:
    content = llama.read_bytes()
    llama.write_bytes(content[:4] + struct.pack("<I", version) + content[8:])
    with pytest.raises(FormatError, match=sentence):
        graph_of(llama)


def test_no_data_of_tensors_is_read(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from placewright.importers.gguf import header as headers

    reached = []
    known = headers._Reader.header

    def noted(reader):
        found = known(reader)
        reached.append(reader.file.tell())
        return found

    monkeypatch.setattr(headers._Reader, "header", noted)
    header = read_header(llama)
    assert reached[0] <= llama.stat().st_size - sum(each.bytes for each in header.tensors.values())


def test_the_page_lists_every_architecture() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text("utf-8")
    listed = page.partition("Known architectures: ")[2].partition(". Another,")[0]
    assert re.findall(r"`([\w-]+)`", listed) == list(ARCHITECTURES)
