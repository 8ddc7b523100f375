"""Reads pages of HTML back: their parts, and the columns of their data."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

import placewright


class Parts(HTMLParser):
    """The elements of a page, and the text of its `script`, `style` and `title`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag in self.texts:
            self._inside = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside][-1] += data

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.texts["script"][0])

    @property
    def policy(self) -> str:
        found = [each for tag, each in self.tags if each.get("http-equiv")]
        return str(found[0]["content"])


def written(tmp_path: Path, *plans: placewright.Plan) -> Parts:
    """The page of some plans."""
    path = tmp_path / "page.html"
    placewright.report(plans, path)
    return Parts(path.read_text("utf-8"))


def column(record: dict[str, str]) -> np.ndarray[Any, Any]:
    content = base64.b64decode(record["data"])
    return np.frombuffer(content, np.dtype(record["type"]).newbyteorder("<"))


def names(record: dict[str, Any]) -> list[str]:
    """Texts that share starts; lengths are those of UTF-16, as JavaScript has them."""
    found, before = [], b""
    for length, rest in zip(column(record["shared"]).tolist(), record["rest"], strict=True):
        before = before[: 2 * length] + rest.encode("utf-16-le")
        found.append(before.decode("utf-16-le"))
    return found
