"""ONNX Runtime as it is used here, measuring or running: nodes as they are written, in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from placewright.errors import MissingExtraError

if TYPE_CHECKING:
    from onnxruntime import OrtValue, SessionOptions

SILENT = 4  # a level of logging: only what ends the process is told


def import_runtime(doing: str) -> None:
    """MissingExtraError without ONNX Runtime; `doing` is what needs it, such as running."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        raise MissingExtraError("onnx", f"{doing} an ONNX model") from None


def session_options(threads: int, weights: Mapping[str, OrtValue] | None = None) -> SessionOptions:
    """Of a session without optimisations on so many threads.

    `weights` are lent to the session, which does not keep them.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    # Else the threads of one session wait busily while another runs on their cores.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if weights:
        options.add_external_initializers(list(weights), list(weights.values()))
    return options
