"""Factories of models small enough to run in a test: random weights, the same each time."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

Made = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

TOKENS = {"vocab_size": 96, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def _transformer(config_name: str, head: str, **settings: Any) -> torch.nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**settings)
    return getattr(transformers, f"AutoModelFor{head}").from_config(config).eval()


def _tokens() -> torch.Tensor:
    return torch.randint(2, 96, (2, 16), generator=torch.Generator().manual_seed(1))


def gpt2() -> Made:
    settings = {"n_embd": 32, "n_layer": 2, "n_head": 2, **TOKENS}
    module = _transformer("GPT2Config", "CausalLM", **settings)
    return module, (), {"input_ids": _tokens(), "use_cache": False}


def llama() -> Made:
    module = _transformer("LlamaConfig", "CausalLM", **DECODER, **TOKENS)
    return module, (), {"input_ids": _tokens(), "use_cache": False}


def mixtral() -> Made:
    """With the operator `transformers::grouped_mm_fallback`, which torch does not define."""
    module = _transformer("MixtralConfig", "CausalLM", **DECODER, **TOKENS, num_local_experts=4)
    return module, (), {"input_ids": _tokens(), "use_cache": False}


def t5() -> Made:
    settings = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, **TOKENS}
    module = _transformer("T5Config", "Seq2SeqLM", **settings)
    inputs = {"input_ids": _tokens(), "decoder_input_ids": _tokens(), "use_cache": False}
    return module, (), inputs


def resnet() -> Made:
    settings = {
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [2, 2],
        "layer_type": "basic",
    }
    module = _transformer("ResNetConfig", "ImageClassification", **settings)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return module, (), {"pixel_values": images}


FAMILIES = {"gpt2": gpt2, "llama": llama, "t5": t5, "resnet": resnet, "mixtral": mixtral}


# -- models that misbehave, but only on a rank -------------------------------------------------


def _on_a_rank() -> bool:
    return torch.distributed.is_initialized()


@torch.library.custom_op("placewright_tests::stumble", mutates_args=())
def stumble(x: torch.Tensor) -> torch.Tensor:
    if _on_a_rank():
        raise ValueError("out of cheese")
    return x.clone()


@torch.library.custom_op("placewright_tests::dawdle", mutates_args=())
def dawdle(x: torch.Tensor) -> torch.Tensor:
    if _on_a_rank():
        time.sleep(float(os.environ.get("DAWDLE_SECONDS", "60")))
    return x.clone()


for _operator in (stumble, dawdle):
    _operator.register_fake(torch.empty_like)


class Chain(torch.nn.Module):
    """linear → the operator → linear_1 → relu."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 8)
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.operator(self.first(x))))


def stumbling() -> Made:
    return Chain(stumble), (torch.ones(2, 8),), {}


def dawdling() -> Made:
    return Chain(dawdle), (torch.ones(2, 8),), {}


def chain() -> Made:
    return Chain(torch.neg), (torch.ones(2, 8),), {}


# -- a model that sends much -------------------------------------------------------------------


class Broad(torch.nn.Module):
    """A layer whose output is 1 MiB, and two that follow."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 1024)
        self.second = torch.nn.Linear(1024, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def broad() -> Made:
    return Broad(), (torch.ones(256, 8),), {}
