"""The ranks as processes of this machine: starting, hearing from them, and ending them all.

A rank is a child process in a session of its own. It reports over a pipe, a JSON object a line.
However this process ends, the ranks end: `Ranks` kills what is left when its `with` block is
left for any reason, SIGTERM included, and a rank that loses its parent ends itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from placewright.errors import ExecutionError
from placewright.runtime.ranks.failures import sentence_of
from placewright.runtime.ranks.job import Event
from placewright.system.memory import is_shortage

# -P: what lies in the working directory must not shadow the standard library. The parent's own
# search path comes last, in case placewright was found through it.
_BOOT = (
    "import importlib, json, sys; boot = json.loads(sys.argv[1]); "
    "sys.path += [each for each in boot['path'] if each not in sys.path]; "
    "importlib.import_module(boot['worker']).main()"
)
_LAST_WORDS_SECONDS = 1.0
_EXIT_SECONDS = 5.0
_GRACE_SECONDS = 1.0  # for a rank that has waited as long to say for whom


class Ranks:
    """Worker processes on the jobs in `folder`, one for each entry of ``settings["threads"]``.

    It says how many CPU threads that one has; all find the settings in `folder`, see
    `worker.serve`. `worker` is the module whose `main` they run. They talk over the network
    `interface`, the loopback one if None. Each inherits its `descriptors`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        worker: str = "placewright.runtime.ranks.worker",
        interface: str | None = None,
        descriptors: Sequence[Sequence[int]] = (),
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._threads: Sequence[int] = settings["threads"]
        self._worker = worker
        self._interface = interface
        self._descriptors = descriptors
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: dict[int, _Lines] = {}
        self._doing = dict.fromkeys(range(len(self._threads)), "starting")
        self._done: set[int] = set()

    def __enter__(self) -> Ranks:
        try:
            text = json.dumps(self._settings)
            (self._folder / "settings.json").write_text(text, encoding="utf-8")
            environment = self._environment()
            for rank, threads in enumerate(self._threads):
                self._start(rank, environment | {"OMP_NUM_THREADS": str(threads)})
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._let_exit()
        self._end()

    def events(self, timeout: float) -> Iterator[tuple[int, Event]]:
        """What the ranks report, as `(rank, event)`, until all are done.

        ExecutionError as soon as one fails, or when none reported anything for `timeout`
        seconds.
        """
        while len(self._done) < len(self._threads):
            heard = list(self._hear(timeout + _GRACE_SECONDS))
            if not heard:
                raise ExecutionError(self._silence(timeout))
            failures = [(rank, event) for rank, event in heard if _fails(event)]
            if failures:
                raise ExecutionError(self._diagnosis(failures))
            yield from heard

    # -- starting and ending -----------------------------------------------------------------

    def _start(self, rank: int, environment: Mapping[str, str]) -> None:
        path = [str(Path(each).absolute()) for each in sys.path]
        boot = json.dumps({"path": path, "worker": self._worker})
        inherited = self._descriptors[rank] if self._descriptors else ()
        reading, writing = os.pipe()
        arguments = [str(self._folder), str(rank), str(writing), str(os.getpid())]
        try:
            with self._log(rank).open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _BOOT, boot, *arguments],
                    stdin=subprocess.PIPE,  # its end tells the rank that this process has ended
                    stdout=log,
                    stderr=log,
                    pass_fds=[writing, *inherited],
                    start_new_session=True,
                    env=environment,
                )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._processes.append(process)
        self._pipes[rank] = _Lines(reading)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            # Else gloo looks up the host's name.
            "GLOO_SOCKET_IFNAME": self._interface or loopback_interface(),
        }

    def _let_exit(self) -> None:
        deadline = time.monotonic() + _EXIT_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def _end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        for pipe in self._pipes.values():
            pipe.close()
        self._pipes.clear()

    # -- hearing from them -------------------------------------------------------------------

    def _hear(self, timeout: float) -> Iterator[tuple[int, Event]]:
        """Everything that has arrived, waiting up to `timeout` for the first of it."""
        with selectors.DefaultSelector() as selector:
            for rank, pipe in self._pipes.items():
                if not pipe.ended:
                    selector.register(pipe.descriptor, selectors.EVENT_READ, rank)
            for key, _ in selector.select(timeout):
                rank = key.data
                for event in self._pipes[rank].read():
                    self._doing[rank] = str(event.get("doing", self._doing[rank]))
                    if event["event"] == "done":
                        self._done.add(rank)
                    if event["event"] == "end" and rank in self._done:
                        event = {"event": "left"}
                    yield rank, event

    def _diagnosis(self, failures: list[tuple[int, Event]]) -> str:
        """The failure that came first: a rank that lost its peer is never to blame."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while not any(map(_is_cause, failures)) and (left := deadline - time.monotonic()) > 0:
            if all(pipe.ended for pipe in self._pipes.values()):
                break
            reported = {rank for rank, _ in failures}
            failures += [
                (rank, event)
                for rank, event in self._hear(left)
                if _fails(event) and rank not in reported  # having reported, a rank ends
            ]
        return self._sentence(*next(filter(_is_cause, failures), failures[0]))

    def _sentence(self, rank: int, event: Event) -> str:
        if event["event"] == "error":
            stopped = self._stopped() if event["kind"] == "channel" else None
            return stopped or sentence_of(rank, event, self._doing[rank])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._processes[rank].wait(_LAST_WORDS_SECONDS)
        code = self._processes[rank].returncode
        words = self._last_line(rank)
        if is_shortage(words) and code:
            short = {"kind": "memory", "message": "no more is there"}
            return sentence_of(rank, short, self._doing[rank])
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            cause = "; if nobody did, the machine ran out of memory" if name == "SIGKILL" else ""
            return f"rank {rank} was ended by {name} while {self._doing[rank]}{cause}"
        return f"rank {rank} ended while {self._doing[rank]} (exit code {code}){words}"

    def _stopped(self) -> str | None:
        """The sentence about a rank that somebody has stopped; None if all go on."""
        for rank, process in enumerate(self._processes):
            if _is_stopped(process.pid):
                return (
                    f"rank {rank} was stopped by a signal while {self._doing[rank]}; "
                    "let it go on (SIGCONT) sooner, or give a longer timeout"
                )
        return None

    def _silence(self, timeout: float) -> str:
        if stopped := self._stopped():
            return stopped
        rank = min(self._doing.keys() - self._done)
        return (
            f"rank {rank} is stuck {self._doing[rank]}: no rank reported anything for "
            f"{timeout:g} s; give a longer timeout if the model is slow"
        )

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.log"

    def _last_line(self, rank: int) -> str:
        lines = self._log(rank).read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last}" if last else ""


def _fails(event: Event) -> bool:
    return event["event"] in ("error", "end")


def _is_cause(failure: tuple[int, Event]) -> bool:
    _, event = failure
    return event["event"] == "end" or bool(event["kind"] != "channel")


def _is_stopped(process: int) -> bool:
    """Whether a child process of this one is stopped."""
    if not hasattr(os, "waitid"):  # macOS
        return False
    flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process, flags) is not None
    except ChildProcessError:
        return False


class _Lines:
    """The reading end of a rank's pipe; after its last line there is one event ``end``."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._rest = b""

    def read(self) -> list[Event]:
        content = os.read(self.descriptor, 1 << 16)
        *lines, self._rest = (self._rest + content).split(b"\n")
        events = [json.loads(line) for line in lines]
        if not content:
            self.ended = True
            events.append({"event": "end"})
        return events

    def close(self) -> None:
        os.close(self.descriptor)


def loopback_interface() -> str:
    """``lo``, on macOS ``lo0``: gloo's connections stay on it."""
    names = {name for _, name in socket.if_nameindex()}
    for name in ("lo", "lo0"):
        if name in names:
            return name
    raise ExecutionError(
        f"this machine has no loopback interface lo or lo0 (only {', '.join(sorted(names))}); "
        "ranks of one machine talk over it"
    )


def cores() -> int:
    """CPU cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit, so that `with` blocks are left in order.

    Only where nobody handles them already, and only in the main thread, where Python runs
    handlers. Ctrl-C raises KeyboardInterrupt by itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signals = [signal.SIGTERM, signal.SIGHUP]
    ours = [each for each in signals if signal.getsignal(each) is signal.SIG_DFL]
    for each in ours:
        signal.signal(each, leave)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
