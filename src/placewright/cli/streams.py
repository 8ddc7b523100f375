"""The standard streams: stdout has what a command prints and nothing else; no fault is a traceback.

Libraries in C and C++ write to file descriptor 1, some of it whatever they are told (HiGHS does, of
a solution that it transforms), and that would be in the midst of a command's JSON.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

STDOUT = 1
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def open_streams() -> None:
    """Have both streams where the shell closed one, and let no odd name end in a traceback.

    From now on what is written to file descriptor 1, also by processes that are started, goes to
    stderr; `sys.stdout` writes to what it was.
    """
    if sys.stderr is None:
        sys.stderr = _nowhere()
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if isinstance(sys.stdout, io.TextIOWrapper):
        if _descriptor(sys.stdout) == STDOUT:
            sys.stdout = _apart(sys.stdout)
        sys.stdout.reconfigure(errors="backslashreplace")


def close_streams() -> OSError | None:
    """Write what is left, which would fail with a traceback as the process ends; stdout's fault."""
    failed = None
    try:
        sys.stdout.flush()
    except OSError as error:
        failed = error
    try:
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)
    return failed


def drop(stream: TextIO) -> None:
    """What `stream` still holds goes nowhere; as the process ends it would be tried once more."""
    with Path(os.devnull).open("wb") as nowhere, suppress(io.UnsupportedOperation):
        os.dup2(nowhere.fileno(), stream.fileno())


def fault(error: OSError) -> str:
    """What the system has against it, in one sentence."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno in FULL:
        return f"standard output: cannot be written ({error.strerror})"
    return error.strerror or str(error)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _descriptor(stream: TextIO) -> int | None:
    """None of a stream that is kept in memory."""
    try:
        return stream.fileno()
    except io.UnsupportedOperation:
        return None


def _apart(stdout: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream to where `stdout` leads, with a descriptor of its own; 1 leads to stderr."""
    stdout.flush()
    own = os.dup(STDOUT)
    os.dup2(sys.stderr.fileno(), STDOUT)
    return io.TextIOWrapper(
        os.fdopen(own, "wb", buffering=0 if stdout.write_through else -1),
        encoding=stdout.encoding,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
