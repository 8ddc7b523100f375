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


def bert() -> Made:
    """Its embedding of tokens is its last layer too."""
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 96,
    }
    return _transformer("BertConfig", "MaskedLM", **settings), (), {"input_ids": _tokens()}


def vit() -> Made:
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    module = _transformer("ViTConfig", "ImageClassification", **settings)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return module, (), {"pixel_values": images}


class UNet(torch.nn.Module):
    """Down and up again, with skips between."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.down = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.middle = torch.nn.Conv2d(16, 16, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = torch.nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.relu(self.first(x))
        middle = torch.relu(self.middle(torch.relu(self.down(first))))
        return self.last(torch.cat([first, self.up(middle)], dim=1))


def unet() -> Made:
    return (
        UNet().eval(),
        (torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1)),),
        {},
    )


class Words(torch.nn.Module):
    """An LSTM over tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(96, 16)
        self.layers = torch.nn.LSTM(16, 16, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(16, 96)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens))[0])


def lstm() -> Made:
    return Words().eval(), (_tokens(),), {}


class DiffusionBlock(torch.nn.Module):
    """A block of a diffusion transformer: the time modulates its norms and gates its branches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.modulation = torch.nn.Linear(width, 6 * width)
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(time)[:, None].chunk(6, -1)
        norm = torch.nn.functional.layer_norm
        y = norm(x, x.shape[-1:]) * (1 + scale) + shift
        x = x + gate * self.attention(y, y, y, need_weights=False)[0]
        y = norm(x, x.shape[-1:]) * (1 + scale2) + shift2
        return x + gate2 * self.down(torch.nn.functional.gelu(self.up(y)))


class DiffusionTransformer(torch.nn.Module):
    """Peebles and Xie 2023 in the small."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = torch.nn.Conv2d(4, width, 2, 2)
        self.time = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.SiLU())
        self.blocks = torch.nn.ModuleList(DiffusionBlock(width) for _ in range(2))
        self.last = torch.nn.Linear(width, 16)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        moment = self.time(time)
        y = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            y = block(y, moment)
        return torch.nn.functional.pixel_shuffle(
            self.last(y).transpose(1, 2).unflatten(2, (4, 4)), 2
        )


def diffusion() -> Made:
    source = torch.Generator().manual_seed(1)
    inputs = torch.rand(2, 4, 8, 8, generator=source), torch.rand(2, 1, generator=source)
    return DiffusionTransformer().eval(), inputs, {}


FAMILIES = {"gpt2": gpt2, "llama": llama, "t5": t5, "resnet": resnet, "mixtral": mixtral}
OTHERS = {"bert": bert, "vit": vit, "unet": unet, "lstm": lstm, "diffusion": diffusion}


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


# -- a model that keeps much for its backward pass ------------------------------------------------


class ResidualBlock(torch.nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


class Residual(torch.nn.Module):
    """Blocks in a row, which give a loss."""

    def __init__(self, dropout: float = 0.0, blocks: int = 4, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = torch.nn.Linear(16, width)
        self.layers = torch.nn.ModuleList(ResidualBlock(width, dropout) for _ in range(blocks))
        self.head = torch.nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).square().mean()


def residual(dropout: float = 0.0) -> Made:
    rows = torch.rand(4096, 16, generator=torch.Generator().manual_seed(1))
    return Residual(dropout), (rows,), {}


def dropping() -> Made:
    return residual(0.1)


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
