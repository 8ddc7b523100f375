"""What the layers of a model keep from token to token, in the cache that Transformers has for it.

Attention keeps keys and values, of ever more tokens. Layers like Mamba's keep a state of one size,
and the last tokens before a short convolution. A layer may keep several of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from placewright.errors import OptionError

KEYS_AND_VALUES = ("keys", "values")
_STATES = ("conv_states", "recurrent_states")


@dataclass(frozen=True)
class Place:
    """Where a cache has a tensor: its `name` in a layer, and the number among several states."""

    layer: int
    name: str
    number: int = 0

    @property
    def grows(self) -> bool:
        """Whether it has a place for each token."""
        return self.name in KEYS_AND_VALUES


def kept_by(cache: Any, source: str) -> dict[Place, Any]:
    """The tensors in a cache after a run; OptionError where a layer kept nothing there."""
    import torch

    found = {
        place: tensor
        for number, layer in enumerate(cache.layers)
        for place, tensor in _tensors(number, layer)
        if isinstance(tensor, torch.Tensor)
    }
    keeping = {number for number, layer in enumerate(cache.layers) if keeps(layer)}
    missing = sorted(keeping - {place.layer for place in found})
    if missing or not found:
        kinds = sorted({type(cache.layers[number]).__name__ for number in missing})
        which = f"layer {missing[0]} ({', '.join(kinds)})" if missing else "its layers"
        raise OptionError(
            f"hf:{source}: phase is for models that keep all they need of earlier tokens in "
            f"Transformers' cache, and {which} of this one kept nothing there; leave out phase"
        )
    return found


def keeps(layer: Any) -> bool:
    """Whether a layer of a cache keeps something; others use what one of these keeps."""
    return hasattr(layer, "lazy_initialization")


def fill(cache: Any, places: Sequence[Place], tensors: Sequence[Any], tokens: int) -> None:
    """Put what is kept of `tokens` tokens into a cache; its own updates would copy it.

    Of these a layer with a sliding window has the last only.
    """
    given = dict(zip(places, tensors, strict=True))
    for place, tensor in given.items():
        layer = cache.layers[place.layer]
        if place.grows:
            _fill_keys_or_values(layer, place, given, tokens)
        else:
            _fill_state(layer, place, tensor)


def _fill_keys_or_values(layer: Any, place: Place, given: dict[Place, Any], tokens: int) -> None:
    if place.name != "keys":
        return
    keys, values = (given[Place(place.layer, name)] for name in KEYS_AND_VALUES)
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    if hasattr(layer, "cumulative_length"):
        layer.cumulative_length = tokens


def _fill_state(layer: Any, place: Place, tensor: Any) -> None:
    layer.dtype, layer.device = tensor.dtype, tensor.device
    getattr(layer, place.name)[place.number] = tensor
    getattr(layer, f"is_{place.name}_initialized")[place.number] = True
    layer.has_previous_state[place.number] = True
    if place.name == "conv_states":
        layer.conv_kernel_size[place.number] = tensor.shape[-1]


def keep_by_assigning(cache: Any) -> None:
    """Have layers take a new state as it is.

    Transformers copies it into the memory of the old one, which an exported program would say as
    a copy more; on a device the kernel that makes the state writes it there.
    """
    for layer in cache.layers:
        if hasattr(layer, "update_recurrent_state"):
            layer.update_recurrent_state = _assign_recurrent(layer)
            layer.update_conv_state = _assign_convolved(layer)


def overwrite(cache: Any, old: Any, new: Any) -> None:
    """Put `new` where a cache has the state `old`, or write it there where `old` is a part."""
    for layer in cache.layers:
        for name in _STATES:
            states = getattr(layer, name, {})
            for number, state in states.items():
                if state is old:
                    states[number] = new
                    return
    old.copy_(new)


def _assign_recurrent(layer: Any) -> Any:
    def update(recurrent_states: Any, state_idx: int = 0, **_: Any) -> Any:
        layer.recurrent_states[state_idx] = recurrent_states
        layer.is_recurrent_states_initialized[state_idx] = True
        return recurrent_states

    return update


def _assign_convolved(layer: Any) -> Any:
    """The last tokens are kept; all are returned, those kept before among them."""
    import torch

    def update(
        conv_states: Any, state_idx: int = 0, conv_kernel_size: int | None = None, **_: Any
    ) -> Any:
        size = layer.conv_kernel_size[state_idx] or conv_kernel_size or conv_states.shape[-1]
        layer.conv_kernel_size[state_idx] = size
        if layer.has_previous_state[state_idx]:
            conv_states = torch.cat([layer.conv_states[state_idx], conv_states], dim=-1)
        elif conv_states.shape[-1] < size:
            missing = size - conv_states.shape[-1]
            conv_states = torch.nn.functional.pad(conv_states, (missing, 0))
        layer.has_previous_state[state_idx] = True
        layer.conv_states[state_idx] = conv_states[..., -size:]
        return conv_states

    return update


def _tensors(number: int, layer: Any) -> Iterator[tuple[Place, Any]]:
    for name in KEYS_AND_VALUES:
        yield Place(number, name), getattr(layer, name, None)
    for name in _STATES:
        for at, tensor in getattr(layer, name, {}).items():
            yield Place(number, name, at), tensor
