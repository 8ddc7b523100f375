"""The two phases of serving a Transformers language model: prefill and decode.

Prefill runs the whole prompt and keeps its keys and values; decode runs one new token of each
sequence against those kept so far. Both are exported as programs whose KV cache is plain tensors
in and out, made by Transformers' own `DynamicCache`, so that layers with a sliding window keep
their window only.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError, PlacewrightError, reason
from placewright.graph import Graph
from placewright.importers.torch.costs import is_view, size_of
from placewright.importers.torch.export import export_inference, graph_from_program
from placewright.importers.torch.graph import Caches, fold
from placewright.importers.torch.tracing import without_meta

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

PHASES = ("forward", "prefill", "decode", "generate")
OWN = "model."
"""What a name of the model begins with inside the module that is exported."""

_OTHER_STATES = ("update_conv_state", "update_recurrent_state", "update_indexer")

Loaded = tuple["torch.nn.Module", tuple[Any, ...], dict[str, Any]]


def with_phase(
    model: torch.nn.Module, phase: str, *, batch: int, context: int, source: str
) -> Loaded:
    """A module that runs one phase of `model`, with example inputs on the meta device.

    Prefill takes ``input_ids[batch, context]``; decode ``input_ids[batch, 1]`` and as `past` the
    keys and values of the ``context - 1`` tokens before, layer by layer. Both return the logits
    of the last token and the keys and values of all. OptionError where the model keeps something
    else than keys and values.
    """
    import torch

    tokens = 1 if phase == "decode" else context
    ids = torch.empty(batch, tokens, dtype=torch.long, device="meta")
    step = _module(model)
    step.phase, step.context = phase, context  # type: ignore[assignment]
    if phase == "prefill":
        return step, (), {"input_ids": ids, "past": []}
    if context < 2:
        raise OptionError(
            f"hf:{source}: decode needs a token before the new one; give context=2 or more"
        )
    shapes = cache_shapes(model, batch=batch, context=context - 1, source=source)
    past = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in shapes]
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
    return graph_from_program(
        program,
        name,
        stored={OWN + parameter: amount for parameter, amount in stored.items()},
        caches=_caches(program, _windows(module), cache_tokens),
        module_prefix=OWN,
    )


def cache_shapes(
    model: torch.nn.Module, *, batch: int, context: int, source: str
) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of the keys and of the values of each layer after `context` tokens."""
    import torch

    ids = torch.empty(batch, context, dtype=torch.long, device="meta")
    step, inputs = _module(model), {"input_ids": ids, "past": []}
    try:
        kept = _kept_without_memory(step, inputs) or _kept_by_export(step, inputs)
    except PlacewrightError:
        raise
    except Exception as error:
        raise OptionError(
            f"hf:{source}: its KV cache cannot be worked out ({type(error).__name__}: "
            f"{reason(error)}); leave out phase"
        ) from error
    return [(tuple(each.shape), each.dtype) for each in kept]


def _kept_without_memory(step: torch.nn.Module, inputs: Mapping[str, Any]) -> list[Any]:
    """The keys and values after a run on tensors that have shapes only; none where one cannot be.

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


def _module(model: torch.nn.Module) -> torch.nn.Module:
    """`model` with its KV cache as tensors in and out; its own parts are named ``model.…``."""
    import torch
    from transformers import DynamicCache

    last_only = "logits_to_keep" in inspect.signature(model.forward).parameters

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, past: list[Any]) -> tuple[Any, ...]:
            config: Any = self.model.config
            cache = DynamicCache(config=config)
            _fill(cache, past)
            asked = {"logits_to_keep": 1} if last_only else {}
            found = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True, **asked)
            return (found.logits, *_kept(found))

    return Step().eval()


def _fill(cache: Any, past: list[Any]) -> None:
    """Put keys and values into a cache as they are; `update` would copy them."""
    for layer, keys, values in zip(layers_of(cache), past[::2], past[1::2], strict=bool(past)):
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = keys.shape[-2]


def layers_of(cache: Any) -> list[Any]:
    """The layers that keep something; others use what one of these keeps."""
    layers = getattr(cache, "layers", None) or []
    return [each for each in layers if hasattr(each, "lazy_initialization")]


def check_keeps_keys_and_values(model: torch.nn.Module, source: str) -> None:
    """OptionError where layers of `model` keep a state of another kind, as those of Mamba do."""
    from transformers import DynamicCache

    config: Any = model.config
    layers = DynamicCache(config=config).layers
    others = [each for each in layers if any(hasattr(each, name) for name in _OTHER_STATES)]
    if others:
        kinds = ", ".join(sorted({type(each).__name__ for each in others}))
        raise OptionError(
            f"hf:{source}: phase is for models whose layers all keep keys and values, and "
            f"{len(others)} of {len(layers)} of this one keep another state ({kinds} of "
            "Transformers); leave out phase"
        )


def _kept(found: Any) -> list[Any]:
    """The keys and values of each layer; OptionError where a layer keeps something else."""
    import torch

    layers = layers_of(getattr(found, "past_key_values", None))
    kept = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
    if not kept or not all(isinstance(each, torch.Tensor) for each in kept):
        raise OptionError(
            f"{type(found).__name__}: phase is for models whose layers all keep keys and "
            "values, and this one keeps something else; leave out phase"
        )
    return kept


def _windows(module: torch.nn.Module) -> list[float]:
    """Tokens that each layer keeps at most: its sliding window, or any number."""
    from transformers import DynamicCache

    model: Any = module.model
    layers = layers_of(DynamicCache(config=model.config))
    return [float(getattr(layer, "sliding_window", None) or math.inf) for layer in layers]


def _caches(program: ExportedProgram, windows: list[float], cache_tokens: int | None) -> Caches:
    """What of the program is the KV cache: all inputs but the first, all outputs but the first.

    The calls that make these outputs keep them, which hold as many tokens.
    """
    inputs = frozenset(map(str, program.graph_signature.user_inputs[1:]))
    nodes = {node.name: node for node in program.graph.nodes}
    owner = fold(program.graph)
    kept: dict[str, float] = {}
    for number, name in enumerate(program.graph_signature.user_outputs[1:]):
        node = _behind_views(nodes[str(name)])
        op, value = owner[node.name], node.meta["val"]
        if op is None:
            continue
        tokens = int(value.shape[-2])
        most = min(cache_tokens or tokens, windows[number // 2] if windows else math.inf)
        kept[op] = kept.get(op, 0.0) + size_of(value) / tokens * most
    return Caches(inputs, kept, is_served=True)


def _behind_views(node: Node) -> Node:
    """The call that made the memory a node looks at."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node
