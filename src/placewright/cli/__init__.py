"""The command line: a command a file. A command parses, calls the API, and prints."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TextIO

from placewright.cli.bash import mend_words
from placewright.cli.output import remark
from placewright.cli.streams import close_streams, drop, fault, open_streams
from placewright.errors import InputError, PlacewrightError, PlacewrightWarning
from placewright.system.interrupts import prints_when_interrupted

INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors become one line on stderr and the exit code of their kind.

    0 done, 2 bad input, 3 infeasible, 4 verification failed, 5 running a plan failed.
    """
    open_streams()
    _listen_to_warnings()
    mend_words(os.environ)
    code = _run()
    error = close_streams()
    if error is not None:
        failed = _failed(error)
        code = code or failed
    sys.exit(code)


def _run() -> str | int | None:
    """Run the command, and say what it fails of; the exit code."""
    try:
        from placewright.cli.app import app

        with prints_when_interrupted():
            app(prog_name="placewright")  # however it was started: completion goes by the name
    except KeyboardInterrupt:  # before a command began
        remark("placewright: interrupted")
        return INTERRUPTED
    except PlacewrightError as error:
        remark(f"placewright: {error}")
        return error.exit_code
    except OSError as error:  # of a file it is a FormatError
        return _failed(error)
    except MemoryError:
        remark("placewright: this machine's memory is used up; ask for fewer ops or devices")
        return InputError.exit_code
    except SystemExit as stop:  # how Typer ends every run, also those the user cut short
        if isinstance(stop.__context__, BrokenPipeError):  # the reader has seen enough
            return 0
        if stop.code == INTERRUPTED:
            remark("placewright: interrupted")
        return stop.code
    return 0


def _failed(error: OSError) -> int:
    """Say what the system refuses, and print no more; the exit code, 0 if the reader has gone."""
    drop(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    remark(f"placewright: {fault(error)}")
    return InputError.exit_code


def _listen_to_warnings() -> None:
    """Print placewright's own warnings as remarks."""
    if not sys.warnoptions:  # libraries' deprecation notes are not for the user of a command
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PlacewrightWarning)
    show_others = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, PlacewrightWarning):
            remark(f"placewright: {message}")
        else:
            show_others(message, category, filename, lineno, file, line)

    warnings.showwarning = show
