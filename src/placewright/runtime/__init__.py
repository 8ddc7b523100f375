"""Executing a plan on PyTorch: cut the exported program, run it on ranks, compare.

    Plan ──run_plan──▶ factory ──export──▶ program ──cut──▶ a Stage per rank ──▶ processes

`code.py` says what a stage does, as data; `compiled.py` makes a function of it; `channels.py`
moves tensors; `local.py` runs in this process, `distributed.py`, `launch.py` and `worker.py`
on processes of this machine.
"""

from placewright.runtime.distributed import execute
from placewright.runtime.plans import run_plan
from placewright.runtime.results import RunReport, StepTime

__all__ = ["RunReport", "StepTime", "execute", "run_plan"]
