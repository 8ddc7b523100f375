"""The visible table of the zoo: every model with its family, a sentence and its hyper-parameters.

Sources of the figures: GPT-2 (Radford et al. 2019), GPT-3 (Brown et al. 2020), BERT (Devlin et al.
2018), T5 (Raffel et al. 2020), Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024), Mixtral
(Jiang et al. 2024), Swin (Liu et al. 2021), ResNet (He et al. 2015), and the Moirai paper's Table
IV for the sizes of GPT-3, Swin and AlphaFold2 that it places. Its GPT-3 1.3B has 24 layers here, as
in Brown et al. and as its own 9480 ops demand (24 · (11 + 12·32)); the table prints 32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from placewright.graph import Floats, Graph
from placewright.importers.zoo.blocks import Writer
from placewright.importers.zoo.convolutional import (
    Convolutional,
    Inception,
    ResNet,
    write_googlenet,
    write_inception,
    write_resnet,
)
from placewright.importers.zoo.encoder_decoder import T5, write_t5
from placewright.importers.zoo.evoformer import Evoformer, write_evoformer
from placewright.importers.zoo.llama import Llama, Mixtral, write_llama
from placewright.importers.zoo.options import Hyper
from placewright.importers.zoo.random_wiring import (
    RandomWiring,
    random_wiring_times,
    write_random_wiring,
)
from placewright.importers.zoo.swin import Swin, write_swin
from placewright.importers.zoo.transformers import Bert, Gpt, write_bert, write_gpt


@dataclass(frozen=True)
class Model:
    """One row: `write` writes the ops of the hyper-parameters `shape`.

    `times`, where a model has some of its own, gives kind of device → `[op]` seconds.
    """

    name: str
    family: str
    description: str
    shape: Hyper
    write: Callable[[Writer, Any], None]
    times: Callable[[Graph, Any], Mapping[str, Floats]] | None = None


def _gpt3(name: str, layers: int, hidden: int, heads: int, granularity: str = "head") -> Model:
    shape = Gpt(
        layers=layers, hidden=hidden, heads=heads,
        context=2048, positions=2048, granularity=granularity,
    )  # fmt: skip
    size = name.removeprefix("gpt3-").upper()
    note = ", Moirai Table IV" if granularity == "head" else ""
    return Model(name, "gpt", f"GPT-3 {size}, 2048 tokens{note}", shape, write_gpt)


def _t5(name: str, **sizes: Any) -> Model:
    size = name.removeprefix("t5-")
    return Model(name, "t5", f"T5 {size}, encoder and decoder", T5(**sizes), write_t5)


def _swin(name: str, hidden: int, heads: int, layers3: int, layers4: int) -> Model:
    shape = Swin(
        hidden=hidden, heads=heads, layers3=layers3, layers4=layers4,
        grow_heads=False, image=1100, granularity="head",
    )  # fmt: skip
    size = name.removeprefix("swin-").upper()
    return Model(name, "swin", f"Swin {size}, 1100×1100, Moirai Table IV", shape, write_swin)


def _alphafold(name: str, layers: int, hidden: int, pair: int, heads: int) -> Model:
    shape = Evoformer(layers=layers, hidden=hidden, pair=pair, heads=heads)
    size = name.removeprefix("alphafold2-").upper()
    description = f"AlphaFold2 Evoformer {size}, 128 sequences, Moirai Table IV"
    return Model(name, "evoformer", description, shape, write_evoformer)


def _resnet(depth: str) -> Model:
    return Model(
        f"resnet{depth}", "resnet", f"ResNet-{depth}, 224×224", ResNet(depth=depth), write_resnet
    )


TABLE: tuple[Model, ...] = (
    Model("gpt2", "gpt", "GPT-2 small", Gpt(), write_gpt),
    Model("gpt2-xl", "gpt", "GPT-2 XL", Gpt(layers=48, hidden=1600, heads=25), write_gpt),
    _gpt3("gpt3-330m", 24, 1024, 16),
    _gpt3("gpt3-1.3b", 24, 2048, 32),
    _gpt3("gpt3-2.7b", 32, 2560, 32),
    _gpt3("gpt3-13b", 40, 5120, 40),
    _gpt3("gpt3-175b", 96, 12288, 96, granularity="op"),
    Model("bert-base", "bert", "BERT base, 512 tokens", Bert(), write_bert),
    Model(
        "bert-large", "bert", "BERT large, 512 tokens",
        Bert(layers=24, hidden=1024, heads=16), write_bert,
    ),
    _t5("t5-small"),
    _t5("t5-base", layers=12, hidden=768, heads=12, feedforward=3072),
    _t5("t5-large", layers=24, hidden=1024, heads=16, feedforward=4096),
    _t5("t5-3b", layers=24, hidden=1024, heads=32, head_size=128, feedforward=16384),
    _t5("t5-11b", layers=24, hidden=1024, heads=128, head_size=128, feedforward=65536),
    Model("llama-7b", "llama", "Llama 2 7B", Llama(), write_llama),
    Model(
        "llama-13b", "llama", "Llama 2 13B",
        Llama(layers=40, hidden=5120, feedforward=13824, heads=40, kv_heads=40), write_llama,
    ),
    Model(
        "llama-70b", "llama", "Llama 2 70B, 8 key-value heads",
        Llama(layers=80, hidden=8192, feedforward=28672, heads=64, kv_heads=8), write_llama,
    ),
    Model(
        "llama3-8b", "llama", "Llama 3 8B, 8 key-value heads",
        Llama(feedforward=14336, kv_heads=8, vocabulary=128256, context=8192), write_llama,
    ),
    Model("mixtral-8x7b", "mixtral", "Mixtral 8x7B, 2 of 8 experts", Mixtral(), write_llama),
    Model(
        "mixtral-8x22b", "mixtral", "Mixtral 8x22B, 2 of 8 experts",
        Mixtral(layers=56, hidden=6144, feedforward=16384, heads=48, vocabulary=32768),
        write_llama,
    ),
    Model("swin-t", "swin", "Swin-T, 224×224", Swin(), write_swin),
    Model(
        "swin-b", "swin", "Swin-B, 224×224", Swin(hidden=128, heads=4, layers3=18), write_swin
    ),
    _swin("swin-1.8b", 512, 16, layers3=26, layers4=2),
    _swin("swin-6.6b", 768, 24, layers3=40, layers4=4),
    _swin("swin-13b", 1024, 32, layers3=48, layers4=4),
    _resnet("50"),
    _resnet("101"),
    _resnet("152"),
    Model("googlenet", "googlenet", "GoogLeNet, 224×224", Convolutional(), write_googlenet),
    Model("inception-v3", "inception", "Inception v3, 299×299", Inception(), write_inception),
    _alphafold("alphafold2-87m", 48, 256, 128, 8),
    _alphafold("alphafold2-930m", 64, 512, 512, 16),
    _alphafold("alphafold2-2.4b", 96, 1024, 512, 32),
    _alphafold("alphafold2-3.2b", 128, 1024, 512, 32),
    Model(
        "rwnn", "rwnn", "Randomly wired network, 10 modules (DiviML §V)",
        RandomWiring(), write_random_wiring, random_wiring_times,
    ),
)  # fmt: skip
