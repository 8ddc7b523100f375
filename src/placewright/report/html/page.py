"""The page itself: the document, the style and the scripts in one file that asks for nothing else.

A Content-Security-Policy in the page allows the style and the script by their hashes and forbids
all else, so that nothing in a plan, whatever its names are, can run or be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from typing import Any

STYLES = ("colours.css", "layout.css", "parts.css", "model.css", "print.css")
SCRIPTS = (
    "data.js",
    "units.js",
    "elements.js",
    "colours.js",
    "answer.js",
    "slices.js",
    "view.js",
    "painter.js",
    "search.js",
    "timeline.js",
    "devices.js",
    "memory.js",
    "loads.js",
    "convergence.js",
    "whatif.js",
    "map.js",
    "model.js",
    "comparison.js",
    "main.js",
)
"""In the order in which they stand in the page: what one uses as it is read comes before it."""


def page_html(document: dict[str, Any]) -> str:
    """The file for a `document` (see `document.page_document`)."""
    style = "\n".join(_text(name) for name in STYLES)
    script = '(() => {\n"use strict";\n' + "\n".join(_text(name) for name in SCRIPTS) + "})();\n"
    title = " and ".join(dict.fromkeys(plan["title"] for plan in document["plans"]))
    parts = {
        "policy": _policy(style, script),
        "title": html.escape(title),
        "style": style,
        "data": json_for_html(document),
        "script": script,
    }
    page = _text("page.html")
    first, *others = page.split("{{")  # one pass, so that what is put in is never looked at
    found = [first]
    for each in others:
        name, _, rest = each.partition("}}")
        found += [parts[name], rest]
    return "".join(found)


def json_for_html(document: Any) -> str:
    """JSON without the characters that HTML, or old JavaScript, would see an end in."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _text(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text("utf-8")
