"""ONNX models written whole, their weights beside them where a file cannot hold them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import FormatError, reason
from placewright.formats.files import umask, writing
from placewright.importers.onnx.files import tensors_of

if TYPE_CHECKING:
    from onnx import ModelProto

LARGEST = 2**31 - 2**26
"""Bytes of weights in a model's file: protobuf reads less than 2 GiB."""


def loaded(model: ModelProto, path: Path) -> ModelProto:
    """`model`, which was read from `path`, with the weights that lie in other files.

    FormatError where they cannot be read.
    """
    from onnx import external_data_helper

    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except Exception as error:  # OSError, ValueError, and onnx's own
        raise FormatError(f"{path}: its external data cannot be read ({reason(error)})") from None
    return model


def save_model(model: ModelProto, path: Path) -> str:
    """Write a model, whole or not at all; the name of the file with its weights, if there is one.

    Weights that make a file too large are put in ``NAME.data`` beside it.
    """
    import onnx

    size = sum(tensor.ByteSize() for tensor in tensors_of(model))
    beside = f"{path.name}.data" if size > LARGEST else ""
    with (
        writing(path),
        tempfile.TemporaryDirectory(dir=path.resolve().parent, prefix=f".{path.name}.") as name,
    ):
        whole = Path(name) / path.name
        if beside:
            onnx.save_model(
                model, whole, save_as_external_data=True, location=beside, size_threshold=1024
            )
        else:
            whole.write_bytes(model.SerializeToString())
        if beside and (weights := Path(name) / beside).exists():
            _moved(weights, path.with_name(beside))
        else:
            beside = ""
        _moved(whole, path)
    return beside


def _moved(source: Path, target: Path) -> None:
    source.chmod(0o666 & ~umask())
    source.replace(target)
