"""RPC servers and runs of llama.cpp, by the interpreter that has it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "PLACEWRIGHT_LLAMA_PYTHON"
INTERPRETER = os.environ.get(VARIABLE, sys.executable)
PEER = str(Path(__file__).with_name("peer.py"))
SECONDS = 120
MIB = 2**20


def why_not() -> str:
    """Why no model can be run; empty if one can."""
    found = subprocess.run(
        [INTERPRETER, PEER, "check"], capture_output=True, text=True, timeout=SECONDS
    )
    if found.returncode == 0:
        return ""
    last = found.stderr.strip().splitlines()[-1]
    return f"{INTERPRETER}: {last}; {VARIABLE} names an interpreter that has llama_cpp with RPC"


@contextmanager
def servers(count: int) -> Iterator[list[int]]:
    """Ports of so many RPC servers on loopback; they are gone afterwards, whatever happens."""
    with ExitStack() as running:
        ports = [running.enter_context(_server()) for _ in range(count)]
        yield ports


@contextmanager
def _server() -> Iterator[int]:
    port = _free_port()
    process = subprocess.Popen(
        [INTERPRETER, PEER, "serve", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the RPC server ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no RPC server came up at port {port}")


@dataclass(frozen=True)
class Ran:
    """What a run of llama.cpp says of itself, and the logits of its last token.

    Buffers are called by the address of their server, of `endpoints` in the order of ``--rpc``.
    """

    log: str
    logits: list[float]
    endpoints: list[str]

    @property
    def devices(self) -> list[str]:
        """Of each layer, and of the output."""
        found = re.findall(r"layer +(\d+) assigned to device ([^\s,]+)", self.log)
        assert [int(layer) for layer, _ in found] == list(range(len(found)))
        return [device for _, device in found]

    def bytes(self, what: str) -> dict[str, float]:
        """Per device those of its buffers: ``model``, ``KV`` or ``compute``; to 5 KiB."""
        found: dict[str, float] = defaultdict(float)
        pattern = (
            rf"^(?:load_tensors|llama_kv_cache|sched_reserve): +(\S+) +{what} buffer size = +(\S+)"
        )
        for buffer, size in re.findall(pattern, self.log, re.MULTILINE):
            _, remote, endpoint = buffer.rstrip("]").partition("[")
            device = f"RPC{self.endpoints.index(endpoint)}" if remote else "CPU"
            found[device] += float(size) * MIB
        return dict(found)


def run(model: Path, tokens: list[int], arguments: list[str]) -> Ran:
    """Load a model with arguments of ``llama-server``, and take these tokens at once."""
    words = [str(model), ",".join(map(str, tokens)), *arguments]
    done = subprocess.run(
        [INTERPRETER, PEER, "run", *words], capture_output=True, text=True, timeout=5 * SECONDS
    )
    assert done.returncode == 0, done.stderr[-2000:]
    endpoints = arguments[arguments.index("--rpc") + 1].split(",") if "--rpc" in arguments else []
    return Ran(**json.loads(done.stdout.splitlines()[-1]), endpoints=endpoints)
