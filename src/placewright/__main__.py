"""``python -m placewright``: the command line."""

from placewright.cli import main

main()
