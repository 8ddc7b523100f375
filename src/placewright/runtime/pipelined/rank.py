"""A rank of a pipeline: started by `executing.py`, it runs its stages and tells what they took."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.runtime.pipelined.clock import BusyClock
from placewright.runtime.pipelined.groups import Groups
from placewright.runtime.ranks.joining import barrier, connect, file_store, leave
from placewright.runtime.ranks.worker import Reporter, Settings, serve
from placewright.system.memory import peak_memory

if TYPE_CHECKING:
    from placewright.runtime.pipelined.gradients import Sums
    from placewright.runtime.pipelined.jobs import Answer, Job
    from placewright.runtime.pipelined.pipeline import Pipeline

_ALIVE_SECONDS = 1.0


def main() -> None:
    serve(_run)


def _run(folder: Path, rank: int, settings: Settings, report: Reporter) -> None:
    from placewright.runtime.pipelined.jobs import give_back, job_of
    from placewright.runtime.stages.targets import import_all

    report("loading", doing="loading its weights")
    job = job_of(folder, rank)
    sys.path[:] = settings["path"]
    import_all(settings["modules"])
    report("connecting", doing="connecting to the other ranks")
    connect(file_store(folder, settings["ranks"]), rank, settings["ranks"], settings["timeout"])
    part = _Part(folder, rank, job, settings, report)
    checked = part.check()
    part.measure()
    answer = replace(checked, losses=part.train())
    report("saving", doing="saving its outputs", peak=peak_memory())
    give_back(folder, rank, answer)
    leave()


class _Part:
    """The rank's stages, under the schedule of the batch and of a longer one."""

    def __init__(
        self, folder: Path, rank: int, job: Job, settings: Settings, report: Reporter
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._job = job
        self._settings = settings
        self._report = report
        self._told = time.monotonic()
        self._clock = BusyClock(self._alive)
        sizes, group_of = settings["groups"]["sizes"], settings["groups"]["group_of"]
        self._groups = Groups(tuple(sizes), tuple(group_of))
        self._sums = self._joined()
        self._build()

    def _joined(self) -> Sums | None:
        """The ranks that this one shares gradients with, or others theirs."""
        if not self._settings["ranks_with"]:
            return None
        from placewright.runtime.pipelined.gradients import Sums

        return Sums(self._settings["ranks_with"], self._rank)

    def _build(self) -> None:
        """Stages whose weights are as they came."""
        from placewright.runtime.pipelined.module import StageModule, state_of
        from placewright.runtime.pipelined.samples import sample
        from placewright.runtime.weights import from_document

        job = self._job
        names = {name for stage in job.stages for name in stage.weights.values()}
        self._state = state_of(from_document(job.weights).load(names), job.trained)
        samples = [sample(job.inputs, number) for number in range(self._settings["batches"][0])]
        self._modules = [
            StageModule(stage, received, sent, self._state, samples)
            for stage, received, sent in zip(job.stages, job.received, job.sent, strict=True)
        ]
        self._pipelines: dict[int, Pipeline] = {}

    def _pipeline(self, micro_batches: int) -> Pipeline:
        if micro_batches not in self._pipelines:
            turns = self._settings["method"] == "turns"
            make = self._in_turns if turns else self._under_torch
            self._pipelines[micro_batches] = make(micro_batches)
        return self._pipelines[micro_batches]

    def _in_turns(self, micro_batches: int) -> Pipeline:
        from placewright.runtime.pipelined.schedules import read_row
        from placewright.runtime.pipelined.turns import TurnsPipeline

        return TurnsPipeline(
            self._modules,
            self._groups,
            read_row(self._folder, micro_batches, self._rank),
            micro_batches=micro_batches,
            training=self._settings["training"],
            clock=self._clock,
        )

    def _under_torch(self, micro_batches: int) -> Pipeline:
        from placewright.runtime.pipelined.pipeline import TorchPipeline

        return TorchPipeline(
            self._modules,
            len(self._groups.group_of),
            method=self._settings["method"],
            micro_batches=micro_batches,
            training=self._settings["training"],
            folder=self._folder,
            clock=self._clock,
        )

    def _alive(self) -> None:
        """A word now and then, for a batch may take longer than the parent's patience."""
        now = time.monotonic()
        if now - self._told > _ALIVE_SECONDS:
            self._told = now
            self._report("alive")

    def check(self) -> Answer:
        """One batch from the weights as they came: its outputs or gradients are compared."""
        from placewright.runtime.pipelined.jobs import Answer

        self._report("running", doing="running its stages")
        micro_batches = self._settings["batches"][0]
        for module in self._modules:
            module.results = {}
            module.step = 0
        losses = self._pipeline(micro_batches).run()
        self._add_up()
        results = {
            (number, position): value
            for module in self._modules
            for number, values in (module.results or {}).items()
            for position, value in zip(module.stage.results, values, strict=True)
        }
        gradients = {name: each / micro_batches for name, each in self._gradients()}
        for module in self._modules:
            module.results = module.step = None
        self._forget_gradients()
        return Answer(results, gradients, losses)

    def measure(self) -> None:
        """The timed batches, the short and the longer one in turn."""
        from placewright.runtime.ranks.calls import now

        for length, micro_batches in enumerate(self._settings["batches"]):
            pipeline = self._pipeline(micro_batches)
            for repeat in range(self._settings["repeats"] + 1):  # the first is a warm-up
                barrier()
                started = now()
                pipeline.run()
                sync = self._add_up()
                finished = now()
                self._report(
                    "batch",
                    length=length,
                    repeat=repeat,
                    started=started,
                    finished=finished,
                    busy=self._clock.taken(),
                    sync=sync,
                )
                self._forget_gradients()

    def train(self) -> list[float]:
        """The rank's share of the average loss of each step, from the weights as they came."""
        from placewright.runtime.ranks.state import Optimizer

        steps, micro_batches = self._settings["steps"], self._settings["batches"][0]
        if not steps:
            return []
        self._report("training", doing="training")
        self._build()
        pipeline = self._pipeline(micro_batches)
        own = [self._state[name] for name in self._job.trained]
        optimizer = Optimizer(**self._settings["optimizer"]).over(own) if own else None
        averages: list[float] = []
        for step in range(1, steps + 1):
            for module in self._modules:
                module.step = step
            losses = pipeline.run()
            self._add_up()
            averages += [sum(losses.values()) / micro_batches] if losses else []
            for name, gradient in self._gradients():
                self._state[name].grad = gradient / micro_batches
            if optimizer is not None:
                optimizer.step()
            self._forget_gradients()
        return averages

    def _add_up(self) -> float:
        """Make gradients those of all replicas and copies; the seconds it took."""
        started = time.perf_counter()
        if self._sums is None:
            return 0.0
        self._sums.add_up(self._state)
        return time.perf_counter() - started

    def _gradients(self) -> list[tuple[str, Any]]:
        named = [(name, self._state[name].grad) for name in self._job.trained]
        return [(name, gradient) for name, gradient in named if gradient is not None]

    def _forget_gradients(self) -> None:
        for name in self._job.trained:
            self._state[name].grad = None
