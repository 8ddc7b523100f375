"""Everything placewright raises on purpose.

    PlacewrightError
    ├── InputError               exit 2   what was given cannot be used
    │   ├── FormatError                   a file: unreadable, malformed, wrong version
    │   ├── GraphError                    a graph that is no DAG, or has impossible figures
    │   ├── ClusterError                  devices and links that make no usable cluster
    │   ├── ProfileError                  a store of measured costs, or a cost that is none
    │   ├── OptionError                   an option, a planner or a name that does not exist
    │   └── MissingExtraError             an optional dependency is not installed
    ├── InfeasibleError          exit 3   no plan can exist, or the planner found none
    │   └── ProvedInfeasibleError         no plan can exist, and the message says who proved it
    ├── VerificationError        exit 4   a plan the judge rejects
    └── ExecutionError           exit 5   running a plan failed

Each message is one sentence that names the thing at fault and how to mend it. What is no error,
but had to be assumed, is told by PlacewrightWarning.
"""

from __future__ import annotations

from typing import ClassVar


def reason(error: BaseException) -> str:
    """The first line of another library's error that says something."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), "no reason given")


class PlacewrightError(Exception):
    """Base of every error above; `exit_code` is what the command line returns."""

    exit_code: ClassVar[int] = 1


class InputError(PlacewrightError):
    """What was given cannot be used: a file, a graph, a cluster, an option, a missing extra."""

    exit_code = 2


class FormatError(InputError):
    """A file that cannot be read: malformed, or of another version."""


class GraphError(InputError):
    """A graph with a cycle, or with impossible figures."""


class ClusterError(InputError):
    """Devices and links that make no usable cluster."""


class ProfileError(InputError):
    """A store of measured costs that cannot be used, or a cost that is none."""


class OptionError(InputError):
    """An option, a planner or a name that does not exist."""


class MissingExtraError(InputError):
    """An optional dependency is missing.

    >>> str(MissingExtraError("torch", "importing a torch module"))
    "importing a torch module needs the extra 'torch': pip install 'placewright[torch]'"
    """

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the extra '{extra}': pip install 'placewright[{extra}]'")
        self.extra = extra


class InfeasibleError(PlacewrightError):
    """No plan can exist, or the planner found none."""

    exit_code = 3


class ProvedInfeasibleError(InfeasibleError):
    """There is no plan, which is proved: nothing else is worth a try."""


class VerificationError(PlacewrightError):
    """The judge rejects the plan."""

    exit_code = 4


class ExecutionError(PlacewrightError):
    """Running a plan failed."""

    exit_code = 5


class PlacewrightWarning(UserWarning):
    """What had to be assumed, such as a dimension that a model leaves open."""
