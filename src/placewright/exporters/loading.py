"""Whether an engine loads the weights of a plan's source in the type that the plan counts.

A plan counts weights in some bytes. It holds only where the engine loads them in these: that of a
GGUF file, or of ``hf:CONFIG?weights=int4``, which says how large a quantised checkpoint would be.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from placewright.errors import OptionError
from placewright.exporters.engines import ENGINES, Engine
from placewright.importers.kinds import is_gguf
from placewright.importers.torch.quantised import TYPES

GGUF = "gguf"
OF_PHASES = ("phase", "context", "weights")


def check_loads(source: str, engine: Engine) -> None:
    """OptionError where the engine does not load weights as a plan of `source` counts them."""
    kind = weights_type(source)
    if engine.limits is None or kind is None or kind in engine.limits.quantised:
        return
    able = [name for name, row in ENGINES.items() if row.limits and kind in row.limits.quantised]
    if kind == GGUF:
        raise OptionError(
            f"{engine.name} does not run GGUF files in their bytes, and the plan is of {source}; "
            f"plan hf:CONFIG, or --for {' or '.join(able)}"
        )
    raise OptionError(
        f"{engine.name} does not make {kind} of a model's weights, and the plan counts them so "
        f"(weights={kind}); plan hf:DIRECTORY of a quantised checkpoint, or --for "
        f"{' or '.join(able)}"
    )


def weights_type(source: str) -> str | None:
    """``gguf``, or the type of ``weights=``; None where weights have their own bytes."""
    if source.startswith("hf:"):
        given = dict(parse_qsl(source.partition("?")[2])).get("weights")
        return given if given in TYPES else None
    return GGUF if is_gguf(source) else None


def note_on_weights(source: str, engine: Engine) -> list[str]:
    """A line on which checkpoint the engine has to be given."""
    kind = weights_type(source)
    if engine.limits is None or kind not in TYPES:
        return []
    return [f"# the model must have its weights in {kind}, as the plan counts them"]


def without_phase(config: str) -> str:
    """``hf:CONFIG`` of the model itself, not of a phase of serving it."""
    path, mark, query = config.partition("?")
    left = [(key, value) for key, value in parse_qsl(query) if key not in OF_PHASES]
    return f"{path}?{urlencode(left)}" if mark and left else path
