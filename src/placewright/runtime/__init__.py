"""Executing a plan: on ONNX Runtime what came from an ONNX file (`onnx_sessions`), all else on
PyTorch: cut the exported program, run it on ranks, compare.

    Plan ──run_plan──▶ factory ──export──▶ program ──cut──▶ a Stage per rank ──▶ processes

`code.py` says what a stage does, as data; `compiled.py` makes a function of it; `channels.py`
moves tensors; `local.py` runs in this process, `distributed.py`, `launch.py` and `worker.py`
on processes of this machine.
"""

from placewright.runtime.dispatch import run_plan
from placewright.runtime.execution import execute
from placewright.runtime.plans import run_rank
from placewright.runtime.results import RunReport, StepTime
from placewright.runtime.run_options import RunOptions

__all__ = ["RunOptions", "RunReport", "StepTime", "execute", "run_plan", "run_rank"]
