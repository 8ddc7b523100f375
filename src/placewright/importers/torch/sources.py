"""Models named on the command line: ``torch:PACKAGE.MODULE:FACTORY``, ``hf:CONFIG``, ``.pt2``."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from placewright.errors import MissingExtraError, OptionError
from placewright.graph import Graph
from placewright.importers.safetensors import read_checkpoint
from placewright.importers.torch import export as torch_export
from placewright.importers.torch.archive import load_pt2, read_pt2
from placewright.importers.torch.checkpoint import StoredWeights, stored_weights
from placewright.importers.torch.configuration import configuration
from placewright.importers.torch.generation import (
    GENERATE,
    generation_graph,
    with_generation,
)
from placewright.importers.torch.phases import (
    PHASES,
    check_has_phases,
    phase_graph,
    with_phase,
)
from placewright.importers.torch.quantised import TYPES, quantised_weights
from placewright.importers.torch.tracing import import_torch
from placewright.system.users_code import named
from placewright.units import parse_whole

if TYPE_CHECKING:
    import torch

    Loaded = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

FRESH = "fresh"
"""Random weights: what ``weights=…`` of a source may say instead of a path."""

__all__ = ["from_factory", "from_hf", "load_factory", "load_hf", "load_pt2", "read_pt2"]


def from_factory(spec: str, training: bool = False) -> Graph:
    """The `Graph` of what ``PACKAGE.MODULE:FACTORY`` returns (see `load_factory`)."""
    return factory_graph(spec, torch_export.export_module(*load_factory(spec), training=training))


def factory_graph(spec: str, program: torch_export.Exported) -> Graph:
    """The `Graph` of what ``PACKAGE.MODULE:FACTORY`` returned, exported."""
    return torch_export.graph_from_exported(program, spec.rpartition(":")[2])


def load_factory(spec: str, batch: int | None = None) -> Loaded:
    """Import the module, call the factory, and return its ``(module, args, kwargs)``.

    The factory returns ``(module, args)`` or ``(module, args, kwargs)``. It is called with
    nothing, or with ``batch=…`` where a `batch` is given. The working directory is searched first,
    as `python -m` does. OptionError names what is wrong.
    """
    factory = _factory(spec)
    if batch is not None:
        factory_batch(spec)  # refuses what takes none
    try:
        made = factory() if batch is None else factory(batch=batch)
    except (Exception, SystemExit) as error:  # a factory that ends the process makes no module
        raise OptionError(f"torch:{spec} raised {type(error).__name__}: {error}") from error
    return _checked(made, spec)


def factory_batch(spec: str) -> int:
    """The batch that a factory makes example inputs of: the default of its argument `batch`."""
    factory, name = _factory(spec), spec.rpartition(":")[2]
    try:
        batch = inspect.signature(factory).parameters["batch"].default
    except (KeyError, TypeError, ValueError):
        batch = None
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise OptionError(
            f"torch:{spec}: '{name}' takes no batch, so other batches cannot be made; write "
            f"def {name.rpartition('.')[2]}(batch=32), which makes example inputs of so many"
        )
    return batch


def _factory(spec: str) -> Any:
    """The function that `spec` names."""
    import_torch("importing a torch module")
    place, separator, name = spec.partition(":")
    if not (separator and place and name):
        raise OptionError(f"torch:{spec} names no factory; write torch:PACKAGE.MODULE:FACTORY")
    factory: Any = named(place, name, "torch:")
    if not callable(factory):
        raise OptionError(f"torch:{spec}: '{name}' is a {type(factory).__name__}, not a function")
    return factory


def _checked(made: Any, spec: str) -> Loaded:
    import torch

    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise OptionError(
            f"torch:{spec} returned a {type(made).__name__}; "
            "return (module, args) or (module, args, kwargs)"
        )
    module, args, kwargs = (*made, {})[:3]
    if not isinstance(module, torch.nn.Module):
        raise OptionError(
            f"torch:{spec}: the first of what it returned is a {type(module).__name__}; "
            "it must be a torch.nn.Module"
        )
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        raise OptionError(
            f"torch:{spec}: args must be a tuple and kwargs a dict, "
            f"not {type(args).__name__} and {type(kwargs).__name__}"
        )
    return module, tuple(args), dict(kwargs)


# -- Transformers ------------------------------------------------------------------------------


def from_hf(config: str, training: bool = False, *, cache_tokens: int | None = None) -> Graph:
    """The `Graph` of a Transformers model, from its configuration alone (see `load_hf`).

    Of a directory with safetensors, weights have the bytes that the files give them (inference).
    With ``phase=…`` the KV cache holds `cache_tokens` tokens, or for ``context`` if that is None.

    >>> from_hf("gpt2?n_layer=1&sequence=16").attributes["parameters"]  # doctest: +SKIP
    46472448
    """
    loaded = load_hf(config, training)
    program = torch_export.export_module(*loaded, training=training)
    return hf_graph(config, loaded, program, training, cache_tokens=cache_tokens)


def hf_graph(
    config: str,
    loaded: Loaded,
    program: torch_export.Exported,
    training: bool = False,
    *,
    cache_tokens: int | None = None,
) -> Graph:
    """The `Graph` of what `load_hf` gave, exported; see `from_hf`."""
    module, _, kwargs = loaded
    phase = getattr(module, "phase", None)
    model: Any = getattr(module, "model", module) if phase else module
    name = Path(config.partition("?")[0]).name.removesuffix(".json")
    name = model.config.model_type if name in ("", "config") else name
    weights = _quantised(model, config, training)
    if weights is None and not training:
        weights = _stored(model, weights_folder(config))
    stored = weights.bytes if weights else {}
    facts = weights.attributes() if weights else {}
    if phase == GENERATE:
        graph = generation_graph(cast(Any, program), name, stored)
    elif phase:
        graph = phase_graph(module, cast(Any, program), name, stored, cache_tokens)
    else:
        graph = torch_export.graph_from_exported(program, name, stored=stored)
    if phase:
        facts |= {key: getattr(module, key) for key in ("phase", "context")}
    samples = len(next(iter(kwargs.values())))
    return replace(graph, input_samples=samples, attributes={**graph.attributes, **facts})


def weights_folder(config: str) -> Path | None:
    """Where the weights of a run will be, if that is a directory."""
    weights = hf_weights(config)
    folder = Path(weights or config.partition("?")[0]).expanduser()
    return folder if weights not in (FRESH, *TYPES) and folder.is_dir() else None


def _quantised(model: Any, config: str, training: bool) -> StoredWeights | None:
    """The weights in the type that ``weights=…`` names; None where it names none."""
    weights = hf_weights(config)
    if weights not in TYPES:
        return None
    if training:
        raise OptionError(
            f"hf:{config}: weights={weights} are for inference; leave it out, or --training"
        )
    return quantised_weights(model, weights)


def _stored(model: Any, folder: Path | None) -> StoredWeights | None:
    """What the safetensors in a directory hold, read from their headers."""
    tensors = None if folder is None else read_checkpoint(folder)
    if folder is None or tensors is None:
        return None
    return stored_weights(model, tensors, folder)


def load_hf(config: str, training: bool = False, batch: int | None = None) -> Loaded:
    """Build a Transformers model on the meta device, with example inputs.

    `config` is a ``config.json``, a directory with one, or a model type such as ``gpt2`` (then
    with that type's defaults); ``?batch=…&sequence=…`` gives the example inputs' size (default
    1 × 128), and any other ``key=value`` sets that field of the configuration. The head is for
    sequence-to-sequence, masked or causal language, or image classification, as the type has
    it. With ``phase=prefill`` or ``phase=decode`` it is one phase of serving a causal language
    model (see `phases.with_phase`), with ``context`` tokens; with ``phase=generate`` a program
    that makes a token a call (see `generation.with_generation`). ``weights=…`` changes nothing
    here (see `hf_weights`). A `batch` goes before that of
    `config`. Nothing is looked up on the network and no code from the configuration is run.
    """
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtraError("hf", "importing a Transformers configuration") from None
    source, _, query = config.partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    hf_weights(config)  # refuses what is not there; only a run loads them
    parameters.pop("weights", None)
    phase = _phase(parameters, config, training)
    sizes = {
        key: _positive(parameters.pop(key, str(default)), key, config)
        for key, default in (("batch", 1), ("sequence", 128))
    }
    sizes["batch"] = batch or sizes["batch"]
    with _offline():
        settings = configuration(source, parameters, config)
        kind = _kind(settings, config)
        if phase != "forward" and kind != "CausalLM":
            raise OptionError(
                f"hf:{config}: phase is for causal language models, and a "
                f"{settings.model_type} is none; leave out phase, or take a model of the zoo"
            )
        _check_heads(settings, config)
        factory = getattr(transformers, f"AutoModelFor{kind}")
        try:
            with torch.device("meta"):
                module = factory.from_config(settings)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise OptionError(f"hf:{config}: Transformers cannot build it ({reason})") from error
        inputs = _example_inputs(settings, kind, training=training, source=config, **sizes)
        if phase == "forward":
            return module, (), inputs
        check_has_phases(module, config)
        chosen = {"batch": sizes["batch"], "context": sizes["sequence"]}
        if phase == GENERATE:
            return with_generation(module, source=config, **chosen)
        return with_phase(module, phase, source=config, **chosen)


def _check_heads(settings: Any, config: str) -> None:
    """OptionError where heads cannot share keys and values; latent attention has them for all."""
    fields = vars(getattr(settings, "text_config", settings))
    heads, kept = fields.get("num_attention_heads"), fields.get("num_key_value_heads")
    if "kv_lora_rank" in fields or not (isinstance(heads, int) and isinstance(kept, int)):
        return
    if kept < 1 or heads % kept:
        raise OptionError(
            f"hf:{config}: num_attention_heads is {heads} and num_key_value_heads is {kept}, which "
            "must divide it; give both"
        )


def hf_kind(config: str) -> str:
    """Which of the AutoModelFor… classes of Transformers builds ``hf:CONFIG``."""
    source, _, query = config.partition("?")
    fields = {key: value for key, value in parse_qsl(query) if key not in ("batch", "sequence")}
    with _offline():
        return _kind(configuration(source, fields, config), config)


def _phase(parameters: dict[str, str], config: str, training: bool) -> str:
    """The phase asked for; ``context``, which is another name of ``sequence``, becomes that."""
    phase = parameters.pop("phase", "forward")
    if phase not in PHASES:
        raise OptionError(f"hf:{config}: phase is '{phase}'; choose {', '.join(PHASES)}")
    if training and phase != "forward":
        raise OptionError(f"hf:{config}: phase={phase} cannot be trained; leave it out")
    if "context" in parameters:
        if "sequence" in parameters:
            raise OptionError(f"hf:{config}: context and sequence are the same; give one of them")
        parameters["sequence"] = _positive_text(parameters.pop("context"), "context", config)
    return phase


def hf_batch(config: str) -> int:
    """The batch that ``hf:CONFIG`` asks for."""
    given = dict(parse_qsl(config.partition("?")[2], keep_blank_values=True))
    return _positive(given.get("batch", "1"), "batch", config)


def hf_weights(config: str) -> str | None:
    """What ``hf:CONFIG?weights=…`` says: ``fresh``, a file, a directory or a type; None if nothing.

    A type (`quantised.TYPES`) says how large weights are, and is nothing that a run could load.
    """
    weights = dict(parse_qsl(config.partition("?")[2], keep_blank_values=True)).get("weights")
    if weights is None or weights in (FRESH, *TYPES):
        return weights
    if weights and Path(weights).expanduser().exists():
        return weights
    raise OptionError(
        f"hf:{config}: there are no weights '{weights}'; give {FRESH}, a file of weights, a "
        f"directory with safetensors, or for planning alone a type ({', '.join(TYPES)})"
    )


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _positive(text: str, key: str, config: str) -> int:
    return int(_positive_text(text, key, config))


def _positive_text(text: str, key: str, config: str) -> str:
    if not parse_whole(text):
        raise OptionError(f"hf:{config}: {key} is {text!r}; give a whole number from 1")
    return text


def _kind(settings: Any, config: str) -> str:
    """Which of the AutoModelFor… classes builds the model."""
    from transformers.models.auto import modeling_auto as auto

    def has(mapping: str) -> bool:
        return type(settings) in getattr(auto, f"MODEL_FOR_{mapping}_MAPPING")

    if not has("SPEECH_SEQ_2_SEQ"):
        if has("SEQ_TO_SEQ_CAUSAL_LM"):
            return "Seq2SeqLM"
        if has("MASKED_LM") and not getattr(settings, "is_decoder", False):
            return "MaskedLM"
        if has("CAUSAL_LM"):
            return "CausalLM"
        if has("IMAGE_CLASSIFICATION"):
            return "ImageClassification"
    raise OptionError(
        f"hf:{config}: '{settings.model_type}' is no language model or image classifier; "
        "write a factory and use torch:PACKAGE.MODULE:FACTORY"
    )


def _example_inputs(
    settings: Any, kind: str, *, batch: int, sequence: int, training: bool, source: str
) -> dict[str, Any]:
    import torch

    if kind == "ImageClassification":
        image = _image_shape(settings)
        inputs = {"pixel_values": torch.empty(batch, *image, device="meta", dtype=settings.dtype)}
        labels = torch.empty(batch, dtype=torch.long, device="meta")
        return {**inputs, "labels": labels} if training else inputs
    longest = getattr(settings, "max_position_embeddings", None)
    if isinstance(longest, int) and 0 < longest < sequence:
        raise OptionError(
            f"hf:{source}: {sequence} tokens are asked for (context or sequence), and the model "
            f"has {longest} positions; give {longest} at most"
        )
    ids = torch.empty(batch, sequence, dtype=torch.long, device="meta")
    inputs = {"input_ids": ids}
    if training:
        inputs["labels"] = ids.clone()
    if kind == "Seq2SeqLM":
        inputs["decoder_input_ids"] = ids.clone()
    return inputs if kind == "MaskedLM" else {**inputs, "use_cache": False}


def _image_shape(settings: Any) -> tuple[int, int, int]:
    own = getattr(settings, "vision_config", settings)  # of a model that sees among others
    size = getattr(own, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else (size[-2], size[-1])
    return int(getattr(own, "num_channels", 3)), math.ceil(height), math.ceil(width)
