"""The options of ``cluster detect`` that measure links, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from placewright.cli import options as o
from placewright.cluster import Transport
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.cluster import Cluster

LONGEST_TIMEOUT = 24 * 3600.0


@dataclass(frozen=True)
class Measuring:
    """What is measured, and where hosts meet: a group of options (see `groups`)."""

    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure the links between devices (extra torch)."),
    ] = False
    transport: Annotated[
        str | None,
        o.chosen(
            "With --measure: transfers between processes through shared memory or over gloo, "
            "between threads, or copies. If not given, as placewright run sends them.",
            get_args(Transport),
        ),
    ] = None
    rendezvous: Annotated[
        str | None,
        typer.Option(
            help="With --measure: meet other hosts where node 0 listens, or where torchrun says "
            "(torchrun).",
            metavar="HOST:PORT",
        ),
    ] = None
    nodes: Annotated[int | None, typer.Option(help="With --rendezvous: how many hosts meet.")] = (
        None
    )
    node: Annotated[
        int | None, typer.Option(help="With --rendezvous: which of them this is, from 0.")
    ] = None
    interface: Annotated[
        str,
        typer.Option(
            help="With --rendezvous: the network interface that reaches the others (loopback)."
        ),
    ] = ""
    timeout: Annotated[
        float,
        typer.Option(help="With --measure: seconds to wait for hosts and for silent processes."),
    ] = 60.0

    def check(self) -> None:
        """OptionError for options that do not go together."""
        given = {each.name for each in fields(self) if getattr(self, each.name) != each.default}
        for name in sorted(given - {"measure"}):
            if not self.measure:
                raise OptionError(f"--{name} is for measuring links; add --measure")
        for name in sorted(given & {"nodes", "node", "interface"}):
            if self.rendezvous is None:
                raise OptionError(f"--{name} is for hosts that meet; add --rendezvous")
        if self.transport is not None and self.transport not in get_args(Transport):
            choices = ", ".join(get_args(Transport))
            raise OptionError(f"--transport is '{self.transport}'; choose {choices}")
        if self.transport not in (None, "gloo") and self.rendezvous is not None:
            raise OptionError(f"hosts share no memory; leave --transport {self.transport} out")
        if not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise OptionError(
                f"--timeout is {self.timeout:g}; it must be above 0 and at most a day"
            )

    def cluster(self, split_cpu: int | None, quiet: bool) -> Cluster | None:
        """What is found and measured; None on a node that leaves the writing to node 0."""
        from placewright.cli.output import progress, remark

        if not self.measure:
            from placewright.costs.detect import detect

            return detect(split_cpu)
        from placewright.runtime.links import Rendezvous, measure_hosts, measure_links

        if self.rendezvous is None:
            transport = cast(Any, self.transport)  # checked
            with progress(quiet) as on_progress:
                return measure_links(
                    split_cpu, transport, timeout=self.timeout, on_progress=on_progress
                )
        meeting = Rendezvous.of(self.rendezvous, self.nodes, self.node, self.interface)
        with progress(quiet) as on_progress:
            found = measure_hosts(meeting, split_cpu, timeout=self.timeout, on_progress=on_progress)
        if meeting.node == 0:
            return found
        remark(f"placewright: measured; node 0 of {meeting.nodes} writes the cluster")
        return None
