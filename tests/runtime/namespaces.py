"""Hosts played by network namespaces of this machine, joined by a switch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PORT = 29511
INTERFACE = "eth0"


def ip(*arguments: object, check: bool = True) -> str:
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True, check=check)
    return done.stdout


def why_not() -> str | None:
    """Why no namespaces can be made here; None if they can."""
    if shutil.which("ip") is None:
        return "there is no ip (iproute2)"
    name = f"pw{os.getpid()}t"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.strip()}"
    return None


@dataclass(frozen=True)
class Host:
    """A namespace with its address; `port` is its end in the switch."""

    name: str
    address: str
    switch: str
    port: str

    def inside(self, *command: object) -> list[str]:
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def received(self) -> int:
        """Bytes that came out of this host."""
        told = ip("-n", self.switch, "-s", "link", "show", self.port).splitlines()
        at = next(number for number, line in enumerate(told) if "RX:" in line)
        return int(told[at + 1].split()[0])

    def unplug(self) -> None:
        ip("-n", self.switch, "link", "set", self.port, "down")

    def slow_down(self, megabits: int) -> bool:
        """What leaves goes at most at this rate; false where the kernel cannot."""
        limit = ("rate", f"{megabits}mbit", "burst", "32kb", "latency", "2s")
        command = self.inside("tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", *limit)
        return subprocess.run(command, capture_output=True).returncode == 0

    @property
    def processes(self) -> str:
        return ip("netns", "pids", self.name).strip()


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    prefix = f"pw{os.getpid()}"
    switch = f"{prefix}s"
    with ExitStack() as stack:

        def add(name: str) -> None:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name, check=False)
            ip("-n", name, "link", "set", "lo", "up")

        add(switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        found = []
        for number in range(count):
            host = Host(f"{prefix}h{number}", f"10.77.0.{number + 1}", switch, f"port{number}")
            add(host.name)
            ends = (INTERFACE, "netns", host.name, "type", "veth", "peer", "name", host.port)
            ip("link", "add", *ends, "netns", switch)
            ip("-n", switch, "link", "set", host.port, "master", "bridge", "up")
            ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", INTERFACE)
            ip("-n", host.name, "link", "set", INTERFACE, "up")
            found.append(host)
        yield found


@contextmanager
def torchrun(
    among: Sequence[Host], folder: Path, *command: object
) -> Iterator[list[subprocess.Popen[str]]]:
    """torchrun with a rank on each host; each command's exit code goes to ``code-RANK``."""
    note = f'"$@"; code=$?; echo $code > {folder}/code-$RANK; exit $code'
    placewright = [sys.executable, "-m", "placewright", *map(str, command)]
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                _started(
                    host.inside(
                        sys.executable, "-m", "torch.distributed.run",
                        "--nnodes", len(among), "--nproc-per-node", 1, "--node-rank", rank,
                        "--master-addr", among[0].address, "--master-port", PORT,
                        "--no-python", "sh", "-c", note, "sh", *placewright,
                    )
                )
            )
            for rank, host in enumerate(among)
        ]  # fmt: skip


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
