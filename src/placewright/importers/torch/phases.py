"""The two phases of serving a Transformers language model: prefill and decode.

Prefill runs the whole prompt and keeps what later tokens need of it; decode runs one new token of
each sequence against what was kept so far. Both are exported as programs whose cache is plain
tensors in and out, made by Transformers' own `DynamicCache`, so that layers with a sliding window
keep their window only, and layers like Mamba's a state of one size.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from placewright.errors import OptionError, PlacewrightError, reason
from placewright.graph import WINDOWS, Graph
from placewright.importers.torch.costs import is_view, size_of
from placewright.importers.torch.export import export_inference, graph_from_program
from placewright.importers.torch.graph import Caches, fold
from placewright.importers.torch.kept import (
    Place,
    fill,
    keep_by_assigning,
    keeps,
    kept_by,
    overwrite,
)
from placewright.importers.torch.tracing import without_meta

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

PHASES = ("forward", "prefill", "decode", "generate")
OWN = "model."
"""What a name of the model begins with inside the module that is exported."""

Loaded = tuple["torch.nn.Module", tuple[Any, ...], dict[str, Any]]
Shapes = dict[Place, tuple[tuple[int, ...], "torch.dtype"]]


def with_phase(
    model: torch.nn.Module, phase: str, *, batch: int, context: int, source: str
) -> Loaded:
    """A module that runs one phase of `model`, with example inputs on the meta device.

    Prefill takes ``input_ids[batch, context]``; decode ``input_ids[batch, 1]`` and as `past` what
    layer by layer is kept of the ``context - 1`` tokens before. Both return the logits of the last
    token and what is kept of all. OptionError where that is not all in Transformers' cache.
    """
    import torch

    tokens = 1 if phase == "decode" else context
    ids = torch.empty(batch, tokens, dtype=torch.long, device="meta")
    step = _module(model, source)
    step.phase, step.context = phase, context
    if phase == "prefill":
        return step, (), {"input_ids": ids, "past": []}
    if context < 2:
        raise OptionError(
            f"hf:{source}: decode needs a token before the new one; give context=2 or more"
        )
    shapes = cache_shapes(model, batch=batch, context=context - 1, source=source)
    step.places[:] = shapes
    past = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in shapes.values()]
    return step, (), {"input_ids": ids, "past": past}


def phase_graph(
    module: Any,
    program: ExportedProgram,
    name: str,
    stored: Mapping[str, float],
    cache_tokens: int | None = None,
) -> Graph:
    """The `Graph` of the module that `with_phase` made, exported; `stored` as of other programs.

    The KV cache holds `cache_tokens` tokens; None: for those of the run.
    """
    caches, windows = _caches(program, module.places, _windows(module), cache_tokens)
    graph = graph_from_program(
        program,
        name,
        stored={OWN + parameter: amount for parameter, amount in stored.items()},
        caches=caches,
        module_prefix=OWN,
    )
    attributes = {**graph.attributes, WINDOWS: windows} if windows else graph.attributes
    return replace(graph, attributes=attributes)


def cache_shapes(model: torch.nn.Module, *, batch: int, context: int, source: str) -> Shapes:
    """Shape and type of all that is kept after `context` tokens, in the order of the layers."""
    import torch

    ids = torch.empty(batch, context, dtype=torch.long, device="meta")
    step, inputs = _module(model, source), {"input_ids": ids, "past": []}
    try:
        kept = _kept_without_memory(step, inputs) or _kept_by_export(step, inputs)
    except PlacewrightError:
        raise
    except Exception as error:
        raise OptionError(
            f"hf:{source}: its KV cache cannot be worked out ({type(error).__name__}: "
            f"{reason(error)}); leave out phase"
        ) from error
    found = [(tuple(each.shape), each.dtype) for each in kept]
    return dict(zip(step.places, found, strict=True))


def _kept_without_memory(step: torch.nn.Module, inputs: Mapping[str, Any]) -> list[Any]:
    """What is kept after a run on tensors that have shapes only; none where one cannot be.

    Experts of a mixture, for one, choose another way to multiply while they are exported.
    """
    import torch

    step, _, kwargs = without_meta(step, (), inputs)
    torch_log = logging.getLogger("torch._subclasses.fake_tensor")
    was, torch_log.disabled = torch_log.disabled, True
    try:
        with torch.no_grad(), kwargs["input_ids"].fake_mode:
            return list(step(**kwargs)[1:])
    except PlacewrightError:
        raise
    except Exception:
        return []
    finally:
        torch_log.disabled = was


def _kept_by_export(step: torch.nn.Module, inputs: Mapping[str, Any]) -> list[Any]:
    program = export_inference(step, (), inputs)
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes[str(name)].meta["val"] for name in program.graph_signature.user_outputs[1:]]


def _module(model: torch.nn.Module, source: str) -> Any:
    """`model` with its cache as tensors in and out; its own parts are named ``model.…``.

    `places` are those of the tensors in its cache: of all that are given, and after a run of all
    that it returned.
    """
    import torch
    from transformers import DynamicCache

    from placewright.importers.torch.kernel_ops import kernels_of

    known = inspect.signature(model.forward).parameters
    asked: dict[str, Any] = {"use_cache": True}
    asked |= {"logits_to_keep": 1} if "logits_to_keep" in known else {}
    cache_name = cache_argument(known)

    class Step(torch.nn.Module):
        places: ClassVar[list[Place]] = []  # of the class, so that a copy's run tells the module
        context: int

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, past: list[Any]) -> tuple[Any, ...]:
            config: Any = self.model.config
            cache: Any = DynamicCache(config=config)
            keep_by_assigning(cache)
            if past:
                fill(cache, self.places, past, self.context - 1)
            with kernels_of(self.model, partial(overwrite, cache)):
                found = self.model(input_ids=input_ids, **{cache_name: cache}, **asked)
            kept = kept_by(cache, source)
            self.places[:] = kept
            return (found.logits, *kept.values())

    Step.__name__ = type(model).__name__  # what an error of its forward names
    return Step().eval()


def cache_argument(known: Container[str]) -> str:
    """What a model calls its cache, by the arguments that it has; Transformers 5.24 renamed it."""
    return "cache" if "cache" in known else "past_key_values"


def layers_of(cache: Any) -> list[Any]:
    """The layers that keep something; others use what one of these keeps."""
    return [each for each in cache.layers if keeps(each)]


def check_has_phases(model: torch.nn.Module, source: str) -> None:
    """OptionError where layers of `model` keep more than `kept` knows of, such as an index."""
    from transformers import DynamicCache

    takes_it = getattr(model, "_supports_default_dynamic_cache", None)
    if takes_it is not None and not takes_it():
        raise OptionError(
            f"hf:{source}: phase is for models that keep what they need of earlier tokens in "
            f"Transformers' DynamicCache, and {type(model).__name__} has a cache of its own; leave "
            "out phase"
        )
    config: Any = model.config
    layers = DynamicCache(config=config).layers
    others = [each for each in layers if _keeps_more(each)]
    if others:
        kinds = ", ".join(sorted({type(each).__name__ for each in others}))
        raise OptionError(
            f"hf:{source}: phase is for models whose layers keep keys and values or a state, and "
            f"{len(others)} of {len(layers)} of this one keep something else ({kinds} of "
            "Transformers); leave out phase"
        )


def _keeps_more(layer: Any) -> bool:
    """Whether it is a layer of a model's own (DeepSeek V4), or one with an index of tokens."""
    from transformers import DynamicCache

    has_states = hasattr(layer, "update_recurrent_state")
    return (
        type(layer).__module__ != DynamicCache.__module__
        or hasattr(layer, "update_indexer")
        or (has_states and not isinstance(layer.recurrent_states, dict))  # Transformers before 5.24
    )


def _windows(module: Any) -> dict[int, float]:
    """Tokens that a layer keeps at most: its sliding window, or any number."""
    from transformers import DynamicCache

    layers = DynamicCache(config=module.model.config).layers
    return {
        number: float(getattr(layer, "sliding_window", None) or math.inf)
        for number, layer in enumerate(layers)
    }


def _caches(
    program: ExportedProgram,
    places: Sequence[Place],
    windows: Mapping[int, float],
    cache_tokens: int | None,
) -> tuple[Caches, dict[str, int]]:
    """What of the program is the cache: all inputs but the first, all outputs but the first.

    The calls that make these outputs keep them: keys and values of as many tokens, and states; and
    which do not keep all tokens (`graph.WINDOWS`).
    """
    signature = program.graph_signature
    given = dict(zip(map(str, signature.user_inputs[1:]), places, strict=False))
    nodes = {node.name: node for node in program.graph.nodes}
    owner = fold(program.graph)
    kept: dict[str, float] = {}
    fewer: dict[str, int] = {}
    for place, name in zip(places, signature.user_outputs[1:], strict=True):
        node = _behind_views(nodes[str(name)])
        op, value = owner[node.name], node.meta["val"]
        if op is None:
            continue
        amount = size_of(nodes[str(name)].meta["val"])
        if place.grows:
            tokens = int(value.shape[-2])
            most = min(cache_tokens or tokens, windows[place.layer])
            amount = size_of(value) / tokens * most
        window = windows[place.layer] if place.grows else 0
        if math.isfinite(window):
            fewer[op] = int(window)
        kept[op] = kept.get(op, 0.0) + amount
    appended = frozenset(name for name, place in given.items() if place.grows)
    return Caches(appended, kept, states=frozenset(given) - appended, is_served=True), fewer


def _behind_views(node: Node) -> Node:
    """The call that made the memory a node looks at."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node
