"""Words for types of ops: the same op is called otherwise by every source.

``conv`` is ``conv`` in the zoo, ``aten.conv2d`` in an exported PyTorch program, ``Conv`` in ONNX.
``op_words.yaml`` says which op types each word stands for; a type that no word claims is a word of
its own.

>>> [word_of(each) for each in ("aten.conv2d", "Conv", "conv", "aten._softmax.default")]
['conv', 'conv', 'conv', 'softmax']
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from placewright.errors import FormatError
from placewright.formats import files

FORMAT = "placewright.fusion-words/1"
_NAMESPACES = frozenset({"aten", "prims", "torch", "torchvision", "onnx", "microsoft"})


def word_of(op_type: str) -> str:
    """The word for an op type of any source."""
    key = key_of(op_type)
    return shared_words().get(key, key)


@cache
def shared_words() -> Mapping[str, str]:
    """Key (see `key_of`) → word, of all op types in ``op_words.yaml``."""
    with resources.as_file(resources.files("placewright.formats") / "op_words.yaml") as path:
        document = files.read_document(path)
        files.check_format(document, FORMAT, path)
        return keys_of(document["words"], path)


def keys_of(words: Mapping[str, list[str]], path: Path) -> dict[str, str]:
    """Each op type's key → its word; FormatError where two words claim one."""
    word_of_key: dict[str, str] = {}
    for word, op_types in words.items():
        for op_type in (word, *op_types):
            other = word_of_key.setdefault(key_of(op_type), word)
            if other != word:
                raise FormatError(
                    f"{path}: field words.{word}: op type '{op_type}' belongs to word '{other}' "
                    "already; leave it in one of them"
                )
    return word_of_key


def key_of(op_type: str) -> str:
    """An op type without namespace, overload, case and underscores.

    >>> key_of("aten._softmax.default"), key_of("com.microsoft.FusedMatMul"), key_of("relu_")
    ('softmax', 'fusedmatmul', 'relu')
    """
    parts = op_type.lower().replace("::", ".").split(".")
    named = [at for at, part in enumerate(parts[:-1]) if part in _NAMESPACES]
    if named:
        parts = parts[named[0] + 1 :]
    return parts[0].replace("_", "") or op_type.lower()
