"""What a file of fusion rules may hold (pydantic is slow to import: import this late)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from placewright.formats.schema import Strict

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]


class RulesFile(Strict):
    """``placewright.fusion-rules/1``.

    `words` adds op types to the words that every rule file knows; `classes` names several words
    at once; a rule lists words or classes in the order of the data, each followed by nothing
    (once), ``?`` (at most once), ``*`` (any number of times) or ``+`` (once or more). Ops of the
    words `through` move nothing and may follow any op of a rule.
    """

    format: str
    description: str = ""
    source: str = ""
    words: dict[Text, Texts] = Field(default_factory=dict)
    classes: dict[Text, Texts] = Field(default_factory=dict)
    through: list[Text] = Field(default_factory=list)
    rules: Annotated[list[Texts], Field(min_length=1)]

    @model_validator(mode="after")
    def _classes_are_no_words(self) -> RulesFile:
        both = sorted(set(self.classes) & set(self.words))
        if both:
            raise ValueError(f"{both[0]!r} is both a word and a class; rename one")
        return self
