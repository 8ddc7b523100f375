"""Writes docs/cli-reference.md from the application itself: `python docs/cli_reference.py`.

Commands, arguments, options, defaults and help texts are those of the Typer app; exit codes are
those of the errors. What an environment variable does no code says, so that table is kept here.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import typer

from placewright import errors
from placewright.cli import INTERRUPTED
from placewright.cli.app import app

PAGE = Path(__file__).parent / "cli-reference.md"
HEAD = """\
# Command reference

Every command with its arguments, options and defaults. This page is written by the application
(`python docs/cli_reference.py`); what the options mean in full is in [Commands](cli.md).
"""
ENVIRONMENT = {
    "PLACEWRIGHT_IMPORTS": "the folder where [imports are kept](cli.md#imports-are-kept), or `off`",
    "PLACEWRIGHT_PROFILES": "the store of [measured costs](profiles.md#where-they-are), a SQLite "
    "file, where `--profiles` names none",
    "NUMBA_CACHE_DIR": "the folder where numba keeps compiled kernels",
    "CXX": "the C++ compiler of `profile --compiled`",
    "RAY_ADDRESS": "the [Ray cluster](ray.md) that `--ray auto` means",
    "RAY_AUTH_MODE": "whether Ray asks for its token; read by Ray",
    "GLOO_SOCKET_IFNAME": "with `run --launcher torchrun`: the network interface, where "
    "`--interface` names none",
    "MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE": "set by torchrun, read by `--launcher torchrun` "
    "and `cluster detect --rendezvous torchrun`",
    "NO_COLOR": "if it is set, no colours (any value; read by Rich)",
}
VALUES = {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}
TYPERS = ("--help", "--install-completion", "--show-completion")


def reference() -> str:
    """The whole page."""
    group = typer.main.get_command(app)
    commands = list(_commands(group, ("placewright",)))
    parts = [HEAD, _index(commands), _general(group)]
    parts += [_section(words, command) for words, command in commands]
    return "\n".join([*parts, _exit_codes(), _environment()])


def _commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """("placewright cluster show", command), in the order of the help page."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def _index(commands: list[tuple[str, Any]]) -> str:
    rows = [
        f"| [`{words}`](#{words.replace(' ', '-')}) | {_cell(_first_sentence(_help(command)))} |"
        for words, command in commands
    ]
    return "\n".join(["| command | what it does |", "|---|---|", *rows, ""])


def _first_sentence(text: str) -> str:
    return text.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].removesuffix(".")


def _general(group: Any) -> str:
    """The options of `placewright` itself."""
    rows = [_row(each, {}) for each in _options(group)]
    return "\n".join(["## placewright", "", *_table(rows)])


def _options(command: Any) -> list[Any]:
    """The options of our own: help and completion are Typer's, in its words."""
    found = [each for each in command.params if each.param_type_name == "option"]
    return [each for each in found if each.opts[0] not in TYPERS]


def _section(words: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    chosen = _options(command)
    hints = typing.get_type_hints(command.callback, include_extras=True)
    usage = " ".join([words, *map(_argument, arguments), *(["[OPTIONS]"] if chosen else [])])
    lines = [f"## {words}", "", "```text", usage, "```", "", _text(_help(command)), ""]
    lines += [f"- `{_argument(each)}`: {_text(each.help or '')}" for each in arguments]
    lines += [""] if arguments else []
    rows = [_row(each, hints) for each in chosen]
    return "\n".join([*lines, *(_table(rows) if rows else [])])


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _argument(argument: Any) -> str:
    return str(argument.metavar or argument.name).upper()


def _table(rows: list[str]) -> list[str]:
    return ["| option | value | default | meaning |", "|---|---|---|---|", *rows, ""]


def _row(option: Any, hints: dict[str, Any]) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value, more = _value(option, hints.get(option.name))
    default = "required" if option.required else _default(option)
    return f"| {names} | {value} | {default} | {_cell(option.help or '')}{more} |"


def _value(option: Any, hint: Any) -> tuple[str, str]:
    """What the option takes (nothing, for a flag), and what the limits on a number are."""
    if option.is_flag or hint is None:
        return "", ""
    kind, info = typing.get_args(hint)[:2]  # of Annotated
    limits = [f"at least {info.min:g}"] if info.min is not None else []
    limits += [f"at most {info.max:g}"] if info.max is not None else []
    return f"`{option.metavar or _word(kind)}`", f" ({', '.join(limits)})" if limits else ""


def _word(kind: Any) -> str:
    """What a value of this type is called in a usage line."""
    if typing.get_origin(kind) is typing.Literal:
        return "\\|".join(typing.get_args(kind))
    parts = [each for each in typing.get_args(kind) if each is not NoneType]
    return _word(parts[0]) if parts else VALUES[kind]


def _default(option: Any) -> str:
    if option.default is None or option.default in ((), [], math.inf):
        return ""
    if option.is_flag:
        return "on" if option.default else "off"
    return f"`{option.default}`"


def _exit_codes() -> str:
    kinds = {each.exit_code: each for each in errors.PlacewrightError.__subclasses__()}
    rows = [f"| {code} | {_text(inspect.getdoc(kinds[code]) or '')} |" for code in sorted(kinds)]
    return "\n".join(
        [
            *("## Exit codes", "", "| code | meaning |", "|---|---|", "| 0 | Done. |"),
            *(*rows, f"| {INTERRUPTED} | Interrupted. |", ""),
        ]
    )


def _environment() -> str:
    rows = [
        f"| {', '.join(f'`{each}`' for each in names.split(', '))} | {meaning} |"
        for names, meaning in ENVIRONMENT.items()
    ]
    return "\n".join(["## Environment", "", "| variable | meaning |", "|---|---|", *rows, ""])


def _text(text: str) -> str:
    """Help as Markdown: no character of it is markup."""
    return "".join(f"\\{each}" if each in "*_<>[]`" else each for each in text)


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
