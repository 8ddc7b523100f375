"""Greedy decoding of a Transformers language model as one program, called once per token.

What a call leaves for the next is in buffers: the KV cache, which has room for the whole context
and is written at the position of the token, that position, and the token that was chosen. So
tokens come of calling the program again and again, with no traffic but its own. The prompt is its
input: as long as the position is within the prompt, the token to go on from is taken of that.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError
from placewright.graph import Graph
from placewright.importers.torch.costs import size_of
from placewright.importers.torch.export import graph_from_program
from placewright.importers.torch.graph import Caches
from placewright.importers.torch.phases import OWN, Loaded, cache_argument, cache_shapes, layers_of

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

GENERATE = "generate"
PROMPT, PROMPT_LENGTH = "prompt", "prompt_length"
"""The program's inputs: token ids ``[batch, context]``, and how many count, ``[batch]``."""
POSITION = "state.position"
"""The buffer with the number of tokens in the cache."""
_CACHE = "state.cache"

Shapes = list[tuple[tuple[int, ...], "torch.dtype"]]


def with_generation(model: torch.nn.Module, *, batch: int, context: int, source: str) -> Loaded:
    """A module that makes one token a call, with a prompt of one token as example input.

    Weights and buffers have no memory. It returns the chosen tokens ``[batch]`` and the logits
    they were chosen by. OptionError where the model keeps something else than keys and values.
    """
    import torch

    if context < 2:
        raise OptionError(
            f"hf:{source}: generate needs room for a prompt and a token; give context=2 or more"
        )
    kept = cache_shapes(model, batch=batch, context=context, source=source)
    if not all(place.grows for place in kept):
        raise OptionError(
            f"hf:{source}: phase={GENERATE} is built for models that keep keys and values alone, "
            "and this one keeps states too; take phase=prefill or phase=decode, or leave out phase"
        )
    shapes = [
        ((*shape[:-2], context, shape[-1]), dtype)  # a window is kept by the mask
        for shape, dtype in kept.values()
    ]
    module = _module(model, _state(shapes, batch), source)
    module.phase, module.context = GENERATE, context  # type: ignore[assignment]
    prompt = torch.zeros(batch, context, dtype=torch.long)
    config: Any = model.config
    first = getattr(config, "bos_token_id", None)
    if isinstance(first, int) and 0 < first < config.vocab_size:
        prompt[:, 0] = first
    return module, (), {PROMPT: prompt, PROMPT_LENGTH: torch.ones(batch, dtype=torch.long)}


def generation_graph(program: ExportedProgram, name: str, stored: Mapping[str, float]) -> Graph:
    """The `Graph` of the module that `with_generation` made, exported; `stored` as of others."""
    return graph_from_program(
        program,
        name,
        stored={OWN + parameter: amount for parameter, amount in stored.items()},
        caches=_caches(program),
        module_prefix=OWN,
    )


def _caches(program: ExportedProgram) -> Caches:
    """The buffers of the cache, and the calls that append to them."""
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    buffers = signature.inputs_to_buffers.items()
    inputs = frozenset(node for node, buffer in buffers if buffer.startswith(_CACHE))
    kept = {
        output: size_of(nodes[output].meta["val"])
        for output, buffer in signature.buffers_to_mutate.items()
        if buffer.startswith(_CACHE)
    }
    return Caches(inputs, kept)


def _state(shapes: Shapes, batch: int) -> torch.nn.Module:
    """What is kept between calls; no part of the model's own state."""
    import torch

    class State(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with torch.device("meta"):
                self._keep("position", (1,), torch.long)
                self._keep("token", (batch,), torch.long)
                for number, (shape, dtype) in enumerate(shapes):
                    self._keep(f"cache{number}", shape, dtype)

        def _keep(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
            self.register_buffer(name, torch.empty(shape, dtype=dtype), persistent=False)

        def reset_parameters(self) -> None:
            """Nothing kept: what a run begins with."""
            for buffer in self.buffers():
                buffer.zero_()

        @property
        def caches(self) -> list[tuple[Any, Any]]:
            """Keys and values of each layer, ``[batch, heads, context, size of a head]``."""
            held = [getattr(self, f"cache{number}") for number in range(len(shapes))]
            return list(zip(held[::2], held[1::2], strict=True))

    return State()


def _module(model: torch.nn.Module, state: torch.nn.Module, source: str) -> torch.nn.Module:
    """One step of `model`; its own parts are named ``model.…``, what is kept ``state.…``."""
    import torch

    known = inspect.signature(model.forward).parameters

    class Generation(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.state = state

        def forward(self, prompt: Any, prompt_length: Any) -> tuple[Any, Any]:
            kept: Any = self.state
            # A copy: who reads a buffer itself is kept on one device, and every layer needs this.
            position = kept.position.clone()
            given = prompt.index_select(1, position).squeeze(1)
            token = torch.where(position < prompt_length, given, kept.token)
            cache = _cache(self.model.config, kept.caches, position, source)
            asked = {"position_ids": position.expand(len(token), 1), "logits_to_keep": 1}
            found = self.model(
                input_ids=token.unsqueeze(1),
                use_cache=True,
                **{cache_argument(known): cache},
                **{key: value for key, value in asked.items() if key in known},
            )
            chosen = found.logits[:, -1].argmax(-1)
            kept.token.copy_(chosen)
            kept.position.copy_(position + 1)
            return chosen, found.logits

    return Generation().eval()


def _cache(config: Any, tensors: list[tuple[Any, Any]], position: Any, source: str) -> Any:
    """Transformers' cache over tensors of a fixed size, written at `position`."""
    from transformers.cache_utils import Cache, DynamicCache, StaticLayer

    class Kept(StaticLayer):  # type: ignore[no-untyped-call]
        def __init__(self, keys: Any, values: Any, *, is_sliding: bool) -> None:
            super().__init__(max_cache_len=keys.shape[-2])
            self.keys, self.values, self.is_sliding = keys, values, is_sliding
            self.cumulative_length, self.is_initialized = position, True

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> Any:
            kept: tuple[Any, Any] = self.keys, self.values
            for tensor, new in zip(kept, (key_states, value_states), strict=True):
                tensor.index_copy_(2, position, new)
            return kept

    made: Any = DynamicCache(config=config)
    keeping = layers_of(made)
    if len(keeping) != len(tensors):
        raise OptionError(
            f"hf:{source}: phase={GENERATE} is built for models whose cache has a layer for each "
            "of theirs; leave out phase"
        )
    held = iter(tensors)
    layers = [
        Kept(*next(held), is_sliding=layer.is_sliding) if layer in keeping else layer
        for layer in made.layers
    ]
    return Cache(layers=layers)
