"""The command line: a command a file. A command parses, calls the API, and prints."""

from __future__ import annotations

import sys

from placewright.errors import PlacewrightError

INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors become one line on stderr and the exit code of their kind.

    0 done, 2 bad input, 3 infeasible, 4 verification failed, 5 running a plan failed.
    """
    from placewright.cli.app import app

    try:
        app()
    except PlacewrightError as error:
        print(f"placewright: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("placewright: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
