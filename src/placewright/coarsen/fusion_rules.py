"""Fusion rules: ordered lists of op types, from data files.

A rule speaks in words (``matmul``, ``relu``), for the same op has many names (see
`formats.op_words`).

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
from placewright.formats.op_words import key_of, keys_of, shared_words

if TYPE_CHECKING:
    from placewright.coarsen.fusion_schema import RulesFile

FORMAT = "placewright.fusion-rules/1"
_FOLDER = "rules"
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
        key = key_of(op_type)
        return self.word_of_key.get(key, key)


def rule_names() -> tuple[str, ...]:
    """The rules that come with placewright."""
    folder = resources.files("placewright.coarsen") / _FOLDER
    names = {each.name.removesuffix(".yaml") for each in folder.iterdir()}
    return tuple(sorted(names))


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
    word_of_key = {**shared_words(), **keys_of(entry.words, path)}
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
    return frozenset(word_of_key.get(key_of(each), key_of(each)) for each in words)
