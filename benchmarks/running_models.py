"""Models of `running`, random weights: of parallel branches, and applied to chunks of a batch."""

from __future__ import annotations

from typing import Any

import torch
from cost_models import UNet
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
CHUNKS = 4
TOKENS = 64


class Convolution(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


class Branches(nn.Module):
    """An Inception block of four branches of about the same work."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        quarter = channels // 4
        self.branches = nn.ModuleList(
            nn.Sequential(Convolution(channels, quarter, 1), Convolution(quarter, quarter, size))
            for size in (3, 3, 5, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Inception(nn.Module):
    """Szegedy et al. 2015 in the small: a stem, then blocks of branches."""

    def __init__(self, channels: int = 256, blocks: int = 6) -> None:
        super().__init__()
        self.stem = nn.Sequential(Convolution(3, 64, 7, 2), Convolution(64, channels, 3, 2))
        self.blocks = nn.Sequential(*(Branches(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Tower(nn.Module):
    """A transformer encoder of its own width."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean(1)


class TwoTowers(nn.Module):
    """Radford et al. 2021: an encoder of images beside one of texts, compared at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = Tower(512, 4), Tower(512, 4)

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return nn.functional.cosine_similarity(self.image(image), self.text(text))


class Ensemble(nn.Module):
    """Three networks of different sizes that vote."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList(Inception(width, 3) for width in (128, 192, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([member(x).softmax(-1) for member in self.members]).mean(0)


class Mixture(nn.Module):
    """Layers of four experts that all run, weighted by a gate (a dense mixture)."""

    def __init__(self, width: int = 512, layers: int = 4, experts: int = 4) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(width, experts) for _ in range(layers))
        self.experts = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                for _ in range(experts)
            )
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for gate, experts in zip(self.gates, self.experts, strict=True):
            weights = gate(x).softmax(-1)
            x = x + sum(weights[..., k : k + 1] * each(x) for k, each in enumerate(experts))
        return x


def _made(module: nn.Module, *inputs: torch.Tensor) -> Made:
    return module.eval(), inputs


def inception() -> Made:
    torch.manual_seed(0)
    return _made(Inception(), torch.randn(1, 3, 160, 160))


def two_towers() -> Made:
    torch.manual_seed(0)
    return _made(TwoTowers(), torch.randn(1, 196, 512), torch.randn(1, 196, 512))


def ensemble() -> Made:
    torch.manual_seed(0)
    return _made(Ensemble(), torch.randn(1, 3, 160, 160))


def mixture() -> Made:
    torch.manual_seed(0)
    return _made(Mixture(), torch.randn(1, 256, 512))


def unet() -> Made:
    torch.manual_seed(0)
    return _made(UNet(), torch.randn(1, 3, 192, 192))


# -- in chunks ---------------------------------------------------------------------------------


class Chunks(nn.Module):
    """A model applied to each sample of a batch, one after the other in the program.

    No chunk reads another's values, so that devices may work on several at once; but a weight is
    read by the same op of every chunk, and these are on one device. So what can be gained is a
    pipeline: the first chunk in one part of the model while the second is in the part before.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batches: torch.Tensor) -> torch.Tensor:
        chunks = zip(*(batch.chunk(CHUNKS) for batch in batches), strict=True)
        return torch.cat([_first(self.model(*chunk)) for chunk in chunks])


def _first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def _transformer(name: str, **overrides: Any) -> nn.Module:
    """A model of Transformers at its default size, but for `overrides`."""
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, f"{name}Model")
    return kind(kind.config_class(**overrides))


def _tokens() -> torch.Tensor:
    return torch.arange(CHUNKS * TOKENS).reshape(CHUNKS, TOKENS) % 1000


def _images(size: int) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(CHUNKS, 3, size, size)


def bert_in_chunks() -> Made:
    return _made(Chunks(_transformer("Bert", num_hidden_layers=4)), _tokens())


def gpt2_in_chunks() -> Made:
    return _made(Chunks(_transformer("GPT2", n_layer=4, use_cache=False)), _tokens())


def vit_in_chunks() -> Made:
    return _made(Chunks(_transformer("ViT", num_hidden_layers=4, image_size=128)), _images(128))


def resnet_in_chunks() -> Made:
    return _made(Chunks(_transformer("ResNet")), _images(112))


class _EncodeDecode(nn.Module):
    """An encoder's tokens and a decoder's, by position."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, read: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=read, decoder_input_ids=written)[0]


def t5_in_chunks() -> Made:
    model = _transformer("T5", num_layers=4, use_cache=False)
    return _made(Chunks(_EncodeDecode(model)), _tokens(), _tokens())


def unet_in_chunks() -> Made:
    torch.manual_seed(0)
    return _made(Chunks(UNet()), _images(96))
