"""Transformers models small enough to run in a test, with their example inputs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

TOKENS = {"vocab_size": 100, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
VIT = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "CausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 2, **TOKENS}),
    "llama": ("LlamaConfig", "CausalLM", {**LLAMA, **TOKENS}),
    "t5": (
        "T5Config",
        "Seq2SeqLM",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, **TOKENS},
    ),
    "mixtral": ("MixtralConfig", "CausalLM", {**LLAMA, **TOKENS, "num_local_experts": 4}),
    "bert": ("BertConfig", "MaskedLM", {**VIT, **TOKENS, "max_position_embeddings": 64}),
    "vit": ("ViTConfig", "ImageClassification", {**VIT, "image_size": 32, "patch_size": 8}),
    "resnet": (
        "ResNetConfig",
        "ImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
    ),
}
NO_DROPOUT = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}


def make(name: str, device: str = "cpu", training: bool = False, **changes: Any) -> Any:
    """`(module, kwargs)` of a tiny model, the same weights and inputs each time."""
    config_name, head, settings = CONFIGS[name]
    config = getattr(transformers, config_name)(**settings | changes)
    torch.manual_seed(0)
    with torch.device(device):
        module = getattr(transformers, f"AutoModelFor{head}").from_config(config).eval()
        if head == "ImageClassification":
            inputs = {"pixel_values": torch.rand(2, 3, 32, 32)}
            labels = torch.zeros(2, dtype=torch.long)
        else:
            labels = torch.zeros(2, 16, dtype=torch.long)
            inputs = {"input_ids": torch.arange(32).reshape(2, 16) + 2}
            if head == "Seq2SeqLM" and not training:
                inputs["decoder_input_ids"] = inputs["input_ids"]
            if head != "MaskedLM":
                inputs["use_cache"] = False
    return module, {**inputs, "labels": labels} if training else inputs
