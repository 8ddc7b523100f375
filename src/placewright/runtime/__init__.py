"""Executing a plan: on ONNX Runtime what came from an ONNX file (`onnx_sessions`), all else on
PyTorch: cut the exported program, run it on ranks, compare.

    Plan ──run_plan──▶ source ──export──▶ program ──cut──▶ a Stage per rank ──▶ ranks

`plans.py` says which program and which ranks, `execution.py` is the outline of a run; `stages/`
cuts, `weights/` tells each rank where its weights are, `ranks/` runs them, `torchrun.py` one of
several hosts; `reference.py` is the single process a run is compared with. `pipelined/` runs plans
for throughput, `tuning/` learns from runs, `links/` measures transfers.
"""

from placewright.runtime.dispatch import run_plan
from placewright.runtime.execution import execute
from placewright.runtime.plans import run_rank
from placewright.runtime.results import RunReport, StepTime
from placewright.runtime.run_options import RunOptions

__all__ = ["RunOptions", "RunReport", "StepTime", "execute", "run_plan", "run_rank"]
