"""Files of policies: weights in safetensors, and in its header what they are of, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, isfinite, nn

from placewright.errors import FormatError, reason
from placewright.formats import files

FORMAT = "placewright.policy/1"
KEY = "placewright"
"""Of the header's metadata, which holds text by name."""


def write_policy(path: Path, policy: nn.Module, planner: str, sizes: dict[str, int]) -> None:
    """All of it or nothing; `sizes` are those that the policy is built from."""
    document = {"format": FORMAT, "planner": planner, "sizes": sizes}
    weights = {name: each.detach().contiguous() for name, each in policy.state_dict().items()}
    files.write_bytes(path, save(weights, {KEY: files.json_text(document)}))


def saved_size(path: Path, size: str, most: int, planner: str) -> int:
    """A size of the policy in a file; FormatError unless it is from 1 to `most`."""
    found = _read(path, planner)[0].get(size)
    if not isinstance(found, int) or not 1 <= found <= most:
        raise FormatError(
            f"{path}: is a policy for {found} {size}, no number from 1 to {most}; train it again"
        )
    return found


def read_policy(path: Path, policy: nn.Module, planner: str, sizes: dict[str, int]) -> None:
    """Put a file's weights into `policy`, which is built from `sizes`.

    FormatError for a file that is damaged, foreign, or of a policy of another planner or size.
    """
    saved, weights = _read(path, planner)
    for size, wanted in sizes.items():
        found = saved.get(size)
        if found != wanted:
            raise FormatError(
                f"{path}: is a policy for {found} {size}, here there are {wanted}; train one for "
                "these"
            )
    expected = {name: each.shape for name, each in policy.state_dict().items()}
    if expected != {name: each.shape for name, each in weights.items()}:
        raise FormatError(
            f"{path}: its tensors are not those of a policy of planner '{planner}'; train it again"
        )
    broken = next((name for name, each in weights.items() if not isfinite(each).all()), None)
    if broken is not None:
        raise FormatError(f"{path}: tensor '{broken}' is not finite; train the policy again")
    policy.load_state_dict(weights)


def _read(path: Path, planner: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The sizes of a policy of `planner`, as its file says, and the tensors."""
    document, weights = _content(path)
    files.check_format(document, FORMAT, path)
    if document.get("planner") != planner:
        raise FormatError(
            f"{path}: is a policy of planner {document.get('planner')!r}, not of '{planner}'; give "
            f"one that planner '{planner}' saved"
        )
    sizes = document.get("sizes")
    return (sizes if isinstance(sizes, dict) else {}), weights


def _content(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """What the header says and the tensors."""
    files.read_bytes(path)  # says why a file cannot be read
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(KEY, "{}")
            names = file.keys()  # it cannot be iterated over itself
            return json.loads(text), {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise FormatError(
            f"{path}: is no policy file ({reason(error)}); give one written with -O save=FILE"
        ) from None
