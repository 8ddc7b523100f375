"""What is asked of a run, beside the plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placewright.errors import ExecutionError, OptionError

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable
    from placewright.runtime.decoding import Decoding
    from placewright.runtime.inputs import Inputs
    from placewright.runtime.ranks.calls import Calls
    from placewright.runtime.ranks.state import Optimizer

LAUNCHERS = ("processes", "local", "torchrun")
LEAST_THREADS, THREADS_PER_CPU = 64, 4  # of a rank: more than these take minutes to start
_LONGEST_TIMEOUT = 7 * 24 * 3600.0


@dataclass(frozen=True)
class RunOptions:
    """`repeats` timed calls after a warm-up, then `clocked` ones with a clock at every step.

    With `launcher` ``processes`` a rank is a process of this machine, with ``local`` a thread of
    this process; with ``torchrun`` this process is one of those that torchrun started, which talk
    over the network `interface` (by default the loopback one). A rank counts as stuck after
    `timeout` seconds without news.

    `threads` are those of each rank, one number or a number for each (None: the cores are shared
    out), `rank_cores` the logical CPUs each is pinned to (none: to none), `rank_gpus` the numbers
    of the GPUs that ranks compute on (None: on the CPU). A rank may take so many bytes as its
    `memory_limits` say, beyond what torch itself takes (none: no limit).

    With an `optimizer` a training program's parameters take a step after each call. `weights` are
    a file, a directory or ``fresh`` (see `weights.weights_of`); made-up values are drawn from
    `seed`. `inputs` are values for inputs of the program, arrays by name or an ``.npz`` file; the
    source's own, or made-up ones, take the place of others. With `decoding` a program that makes
    tokens is called as often as that needs, whatever `repeats` says, and is clocked only as far as
    there is room for tokens.
    """

    launcher: str = "processes"
    repeats: int = 5
    clocked: int = 3
    timeout: float = 60.0
    threads: int | Sequence[int] | None = None
    rank_cores: Sequence[Sequence[int]] = ()
    rank_gpus: Sequence[int | None] = ()
    optimizer: Optimizer | None = None
    weights: str | None = None
    seed: int = 0
    memory_limits: Sequence[float] = ()
    interface: str = ""
    decoding: Decoding | None = None
    inputs: Inputs | None = None

    def check(self, ranks: int) -> None:
        """OptionError for what cannot be asked, ExecutionError for a system without ranks."""
        if os.name != "posix":
            raise ExecutionError("running a plan needs Linux or macOS")
        if self.launcher not in LAUNCHERS:
            raise OptionError(f"launcher is '{self.launcher}'; choose {', '.join(LAUNCHERS)}")
        threads = self.threads if isinstance(self.threads, int) else min(self.threads or (1,))
        for name, value in (("ranks", ranks), ("repeats", self.repeats), ("threads", threads)):
            if value < 1:
                raise OptionError(f"{name} is {value}; it must be at least 1")
        most = max(LEAST_THREADS, THREADS_PER_CPU * (os.cpu_count() or 1))
        if threads > most:
            raise OptionError(
                f"threads is {threads}, and this machine has {os.cpu_count()} CPUs; give at most "
                f"{most}"
            )
        if self.memory_limits and len(self.memory_limits) != ranks:
            raise OptionError(
                f"{len(self.memory_limits)} memory limits are given for {ranks} ranks"
            )
        if self.memory_limits and any(gpu is not None for gpu in self.rank_gpus):
            raise OptionError("memory of GPUs is not limited; leave the limits out")
        if self.clocked < 0:
            raise OptionError(f"clocked is {self.clocked}; it must not be negative")
        if not 0 < self.timeout <= _LONGEST_TIMEOUT:
            raise OptionError(
                f"timeout is {self.timeout}; it must be more than 0 s and at most a week"
            )

    def calls(self, program: Executable) -> Calls:
        """How a program is called: all results are kept where calls build on each other."""
        from placewright.runtime.ranks.calls import Calls

        if self.optimizer is not None and not program.gradients:
            raise OptionError(
                f"{program.name}: there are no gradients for the optimizer to step down; "
                "plan with --training"
            )
        builds_up = bool(program.updates) or self.optimizer is not None
        return Calls(self.repeats, self.clocked, builds_up, self.optimizer)
