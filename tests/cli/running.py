"""Runs the command line inside the test process, which is many times faster than starting one."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

from placewright.cli import main
from placewright.graph import GraphBuilder


@dataclass(frozen=True)
class Run:
    """What a command left: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: object) -> Run:
    """``placewright ARGUMENTS``; an exception that `main` lets through fails the test."""
    compile_kernels()
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["placewright", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int | None), code
    return Run(code or 0, out.getvalue(), without_remark(err.getvalue()))


def without_remark(text: str) -> str:
    """Without the one line that a kernel's first use on a machine adds, at whatever command."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if "compiling kernels" not in line)


@cache
def compile_kernels() -> None:
    """So that no command has to announce that it compiles them."""
    from placewright.planning import plan

    builder = GraphBuilder("one")
    builder.add_op("op", "op")
    plan(builder.build(), "2x3090")
