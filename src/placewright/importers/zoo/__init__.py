"""The zoo: graphs of known models made from hyper-parameters, with no framework.

>>> graph = build("gpt2?layers=2&context=128")
>>> graph.name, graph.op_count
('gpt2?layers=2&context=128', 51)

Keys and values that do not exist are an OptionError that names those that do.

The models stand in `table`; how their ops, FLOPs and bytes are worked out, in `blocks`; how a
forward graph becomes one for training, in `backward`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from placewright.errors import OptionError
from placewright.graph import Graph
from placewright.importers.zoo.backward import joint_graph
from placewright.importers.zoo.blocks import ParameterCounter, Writer
from placewright.importers.zoo.options import Hyper, defaults, did_you_mean, override, read_spec
from placewright.importers.zoo.table import TABLE, Model

__all__ = ["ZooEntry", "build", "entries", "joint_graph", "names"]

_MODELS = {model.name: model for model in TABLE}


@dataclass(frozen=True)
class ZooEntry:
    """One model of the zoo: `parameters` are its hyper-parameters and their defaults."""

    name: str
    family: str
    description: str
    parameters: Mapping[str, Any]
    parameter_count: int


def build(spec: str, training: bool = False) -> Graph:
    """The graph of `spec`, ``NAME`` or ``NAME?key=value&key=value``; forward, or with backward.

    OptionError if the name, a key or a value does not exist, or the values do not fit together.
    """
    name, texts = read_spec(spec)
    model = _find(name)
    shape = override(_where(name), model.shape, texts)
    _check_training(name, shape, training)
    writer = Writer(spec.removesuffix("?"), shape.dtype)
    model.write(writer, shape)
    writer.builder.attributes.update(family=model.family, **defaults(shape))
    writer.builder.input_samples = shape.batch
    graph = writer.finish()
    if model.times is not None and (times := model.times(graph, shape)):
        graph = replace(graph, times=times)
    return joint_graph(graph, shape.optimizer) if training else graph


def names() -> Iterable[str]:
    """What the models of the zoo are called."""
    return _MODELS.keys()


@cache
def entries() -> tuple[ZooEntry, ...]:
    """Every model of the zoo, in the order of the table."""
    return tuple(
        ZooEntry(
            name=model.name,
            family=model.family,
            description=model.description,
            parameters=MappingProxyType(defaults(model.shape)),
            parameter_count=_count_parameters(model),
        )
        for model in TABLE
    )


def _where(name: str) -> str:
    return f"zoo model '{name}'"


def _find(name: str) -> Model:
    if name not in _MODELS:
        raise OptionError(
            f"there is no zoo model '{name}'; {did_you_mean(name, _MODELS)}"
            f"there are {', '.join(_MODELS)}"
        )
    return _MODELS[name]


def _check_training(name: str, shape: Hyper, training: bool) -> None:
    if shape.optimizer != "none" and not training:
        raise OptionError(
            f"zoo model '{name}': optimizer={shape.optimizer} needs training; ask for training "
            "or leave it out"
        )
    phase = getattr(shape, "phase", "forward")
    if training and phase != "forward":
        raise OptionError(f"zoo model '{name}': phase={phase} cannot be trained; use forward")
    times = getattr(shape, "times", "roofline")
    if training and times != "roofline":
        raise OptionError(f"zoo model '{name}': times={times} are for inference; use roofline")


def _count_parameters(model: Model) -> int:
    """Parameters of a model as the table has it; attention whole, which is quicker to write."""
    values = defaults(model.shape)
    coarse = {"granularity": "op"} if values.get("granularity") == "head" else {}
    shape = override(_where(model.name), model.shape, coarse)
    counter = ParameterCounter(model.name, shape.dtype)
    model.write(counter, shape)
    return round(counter.parameters)
