"""Executing a plan for an ONNX model: a session of ONNX Runtime per sub-model, on CPUs.

    Plan ──▶ OnnxModel ──cut──▶ SubModels ──Parts──▶ a Session each ──Pass──▶ outputs, times

`cutting.py` says which ops are a sub-model, `models.py` makes models of them, `sessions.py` opens
them, `team.py` has a thread for each device, and in `passes.py` these hand values on.
"""

from placewright.runtime.onnx_sessions.running import run_onnx_plan

__all__ = ["run_onnx_plan"]
