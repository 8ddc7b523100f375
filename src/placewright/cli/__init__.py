"""The command line: a command a file. A command parses, calls the API, and prints."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import TextIO

from placewright.cli.bash import mend_words
from placewright.cli.output import remark
from placewright.errors import PlacewrightError, PlacewrightWarning

INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors become one line on stderr and the exit code of their kind.

    0 done, 2 bad input, 3 infeasible, 4 verification failed, 5 running a plan failed.
    """
    _listen_to_warnings()
    mend_words(os.environ)
    if isinstance(sys.stdout, io.TextIOWrapper):  # an odd name must not end in a traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from placewright.cli.app import app

        app(prog_name="placewright")  # however it was started: completion goes by the name
    except KeyboardInterrupt:  # before a command began
        remark("placewright: interrupted")
        sys.exit(INTERRUPTED)
    except PlacewrightError as error:
        remark(f"placewright: {error}")
        sys.exit(error.exit_code)
    except SystemExit as stop:  # how Typer ends every run, also those the user cut short
        if isinstance(stop.__context__, BrokenPipeError):  # the reader has seen enough
            sys.exit(0)
        if stop.code == INTERRUPTED:
            remark("placewright: interrupted")
        raise


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
