"""The ranks of an engine's job: host by host, and on which GPUs.

torchrun, vLLM and SGLang number the ranks of a host one after another. So an order of ranks can be
started only if those of each host follow one another.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any

from placewright.errors import OptionError
from placewright.exporters.devices import visible_devices
from placewright.exporters.stages import BlockPlan
from placewright.problem import Problem

PORT = 29500
"""Where the ranks of several hosts meet, on the first of them: torchrun's own default."""
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Ranks:
    """The device of each rank. `by_pipeline`: a data-parallel pipeline's ranks follow one another.

    Else the ranks of a stage do, one of each pipeline, as Megatron-LM and DeepSpeed have it by
    themselves.
    """

    problem: Problem
    devices: tuple[int, ...]
    by_pipeline: bool

    @property
    def hosts(self) -> list[tuple[str, tuple[int, ...]]]:
        """The hosts in the order of their ranks, with the devices of these."""
        runs = groupby(self.devices, self.problem.device_host)
        return [(host, tuple(devices)) for host, devices in runs]

    @property
    def can_be_started(self) -> bool:
        names = [host for host, _ in self.hosts]
        return len(names) == len(set(names))


def ranks_of(found: BlockPlan, engine: str) -> Ranks:
    """The ranks of a plan's stages; OptionError where they cannot be numbered so."""
    problem = found.plan.problem
    stages = [found.devices(stage) for stage in found.stages]
    by_stage = Ranks(problem, tuple(each for stage in stages for each in stage), False)
    pipelines = zip(*stages, strict=True)
    by_pipeline = Ranks(problem, tuple(each for row in pipelines for each in row), True)
    for ranks in (by_stage, by_pipeline):
        if ranks.can_be_started:
            return ranks
    hosts = ", ".join(host or "this one" for host, _ in by_stage.hosts)
    raise OptionError(
        f"{engine}: the ranks of a host are numbered one after another, and the plan's stages go "
        f"over the hosts {hosts}; plan for fewer hosts"
    )


def hosts_document(
    ranks: Ranks, engine: str, variables: Mapping[str, str] = NO_VARIABLES
) -> dict[str, Any]:
    """`environment`, of one host; of several `hosts`, each with its own and how many `ranks`.

    It has these `variables`, and the GPUs of the host are visible in the order of its ranks.
    """
    each: list[dict[str, Any]] = []
    for host, own in ranks.hosts:
        environment = {**variables, **visible_devices(ranks.problem, own, engine)}
        each.append({"host": host, "ranks": len(own), "environment": environment})
    return {"environment": each[0]["environment"]} if len(each) == 1 else {"hosts": each}


def environments(document: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Those of a `hosts_document`, host by host."""
    return [each["environment"] for each in document.get("hosts", [document])]


def started(
    ranks: Ranks, environments: Sequence[Mapping[str, str]], program: Sequence[str], *, alone: str
) -> list[str]:
    """The lines by which torchrun starts a program with these environments, host by host.

    `alone` is what torchrun is told besides on one host.
    """
    hosts = [host for host, _ in ranks.hosts]
    main = ["--master-addr", hosts[0], "--master-port", str(PORT)] if len(hosts) > 1 else []

    def words(number: int) -> list[str]:
        where = as_node(number, len(hosts)) or alone.split()
        count = ["--nproc-per-node", str(len(ranks.hosts[number][1]))]
        return ["torchrun", *where, *count, *main, *program]

    return shell_lines(hosts, environments, words)


def as_node(number: int, hosts: int) -> list[str]:
    """The arguments by which a program is that of the host of this number; none of one host."""
    return ["--nnodes", str(hosts), "--node-rank", str(number)] if hosts > 1 else []


def shell_lines(
    hosts: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    words: Callable[[int], Sequence[str]],
) -> list[str]:
    """A line for the shell of each host, after its name where there are several.

    `words` are the command on the host of a number, which follows the host's environment.
    """
    lines = []
    for number, (host, environment) in enumerate(zip(hosts, environments, strict=True)):
        variables = [f"{name}={value}" for name, value in environment.items()]
        line = shlex.join([*variables, *words(number)])
        lines.append(f"{host}: {line}" if len(hosts) > 1 else line)
    return lines
