"""Fusion rules: ordered lists of op types, from data files.

A rule speaks in words (``matmul``, ``relu``) because the same op has many names: ``conv`` in the
zoo, ``aten.conv2d`` in an exported PyTorch program, ``Conv`` in ONNX. ``rules/words.yaml`` says
which op types each word stands for; a type no word claims is a word of its own.

>>> rules = load_rules("eigen")
>>> rules.word("aten.conv2d"), rules.word("Conv"), rules.word("conv")
('conv', 'conv', 'conv')
>>> [" ".join(each) for each in rules.texts]
['conv bn', 'conv bn relu', 'conv bn add relu']
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import FormatError, OptionError
from placewright.formats import files

if TYPE_CHECKING:
    from placewright.coarsen.fusion_schema import RulesFile

FORMAT = "placewright.fusion-rules/1"
WORDS_FORMAT = "placewright.fusion-words/1"
_FOLDER = "rules"
_WORDS = "words"
_MARKS = {"?": (True, False), "*": (True, True), "+": (False, True)}


@dataclass(frozen=True)
class Item:
    """One place of a rule: any of `words`; may be left out, may come several times."""

    words: frozenset[str]
    optional: bool = False
    repeats: bool = False


@dataclass(frozen=True)
class Rules:
    """Rules by one name. `texts` is `rules` as the file writes them.

    Ops of the words `through` (views) may follow any op of a rule.
    """

    name: str
    description: str
    texts: tuple[tuple[str, ...], ...]
    rules: tuple[tuple[Item, ...], ...]
    through: frozenset[str]
    word_of_key: Mapping[str, str] = field(repr=False)

    def word(self, op_type: str) -> str:
        """The word for an op type of any framework."""
        key = _key(op_type)
        return self.word_of_key.get(key, key)


def rule_names() -> tuple[str, ...]:
    """The rules that come with placewright."""
    folder = resources.files("placewright.coarsen") / _FOLDER
    names = {each.name.removesuffix(".yaml") for each in folder.iterdir()}
    return tuple(sorted(names - {_WORDS}))


def load_rules(name_or_path: str | Path) -> Rules:
    """Rules by name (see `rule_names`) or from a YAML or JSON file ``placewright.fusion-rules/1``.

    Raises OptionError for a name that does not exist and FormatError for a malformed file.
    """
    text = str(name_or_path)
    if text in rule_names():
        return _built_in(text)
    is_file = isinstance(name_or_path, Path) or "/" in text or Path(text).suffix
    if not is_file:
        names = rule_names()
        near = difflib.get_close_matches(text, names, n=1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        raise OptionError(
            f"there are no fusion rules '{text}'; {meant}"
            f"there are {', '.join(names)}, or give a file (.yaml)"
        )
    return _read(Path(text), text)


@cache
def _built_in(name: str) -> Rules:
    with resources.as_file(_resource(name)) as path:
        return _read(path, name)


def _resource(name: str) -> resources.abc.Traversable:
    return resources.files("placewright.coarsen") / _FOLDER / f"{name}.yaml"


def _read(path: Path, name: str) -> Rules:
    from placewright.coarsen.fusion_schema import RulesFile

    document = files.read_document(path)
    files.check_format(document, FORMAT, path)
    entry = files.validate(RulesFile, document, path)
    word_of_key = {**_shared_words(), **_keys(entry.words, path)}
    rules = tuple(
        tuple(_item(text, entry, word_of_key, f"{path}: field rules.{row}") for text in texts)
        for row, texts in enumerate(entry.rules)
    )
    for row, (texts, items) in enumerate(zip(entry.rules, rules, strict=True)):
        if len(items) < 2 and not any(each.repeats for each in items):
            raise FormatError(
                f"{path}: field rules.{row}: [{', '.join(texts)}] fuses nothing; "
                "a rule has two ops or more"
            )
    written = tuple(map(tuple, entry.rules))
    through = _known(entry.through, word_of_key)
    return Rules(name, entry.description, written, rules, through, word_of_key)


@cache
def _shared_words() -> Mapping[str, str]:
    from placewright.coarsen.fusion_schema import WordsFile

    with resources.as_file(_resource(_WORDS)) as path:
        document = files.read_document(path)
        files.check_format(document, WORDS_FORMAT, path)
        return _keys(files.validate(WordsFile, document, path).words, path)


def _keys(words: Mapping[str, list[str]], path: Path) -> dict[str, str]:
    """Each op type's key → its word; FormatError where two words claim one."""
    word_of_key: dict[str, str] = {}
    for word, op_types in words.items():
        for op_type in (word, *op_types):
            other = word_of_key.setdefault(_key(op_type), word)
            if other != word:
                raise FormatError(
                    f"{path}: field words.{word}: op type '{op_type}' belongs to word '{other}' "
                    "already; leave it in one of them"
                )
    return word_of_key


def _item(text: str, entry: RulesFile, word_of_key: Mapping[str, str], where: str) -> Item:
    name, mark = (text[:-1], text[-1]) if text[-1] in _MARKS else (text, "")
    if not name or any(each in name for each in "?*+ "):
        raise FormatError(
            f"{where}: '{text}' is no item of a rule; write a word or class, "
            "then nothing, ?, * or +"
        )
    words = entry.classes.get(name, [name])
    optional, repeats = _MARKS.get(mark, (False, False))
    return Item(_known(words, word_of_key), optional, repeats)


def _known(words: Iterable[str], word_of_key: Mapping[str, str]) -> frozenset[str]:
    return frozenset(word_of_key.get(_key(each), _key(each)) for each in words)


_NAMESPACES = frozenset({"aten", "prims", "torch", "torchvision", "onnx", "microsoft"})


def _key(op_type: str) -> str:
    """An op type without namespace, overload, case and underscores.

    >>> _key("aten._softmax.default"), _key("com.microsoft.FusedMatMul"), _key("relu_")
    ('softmax', 'fusedmatmul', 'relu')
    """
    parts = op_type.lower().replace("::", ".").split(".")
    named = [at for at, part in enumerate(parts[:-1]) if part in _NAMESPACES]
    if named:
        parts = parts[named[0] + 1 :]
    return parts[0].replace("_", "") or op_type.lower()
