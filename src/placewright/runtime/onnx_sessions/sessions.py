"""Sessions of ONNX Runtime on values that are bound, not copied.

Optimisations are off, as when costs are measured: nodes run as they are written, in a sub-model as
in the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import MissingExtraError

if TYPE_CHECKING:
    from onnxruntime import OrtValue, RunOptions

_SILENT = 4  # only what ends the process is told
_FOLDER = "session.model_external_initializers_file_folder_path"


def import_runtime() -> None:
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        raise MissingExtraError("onnx", "running an ONNX model") from None


def run_options() -> RunOptions:
    """Options of runs; setting ``terminate`` ends those that have them, after the op at hand."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = _SILENT
    return options


class Session:
    """A model, a file or in memory, that is open on a CPU.

    Its threads are the one that calls `run` and those it starts here, which are on the cores that
    this thread is on. Of a model in memory, `folder` has its external data, and `weights` are lent
    to it.
    """

    def __init__(
        self,
        model: Path | bytes,
        threads: int,
        options: RunOptions,
        *,
        folder: Path | None = None,
        weights: Mapping[str, OrtValue] | None = None,
    ) -> None:
        import onnxruntime as ort

        settings = ort.SessionOptions()
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = _SILENT
        # Else the threads of one session wait busily while another runs on their cores.
        settings.add_session_config_entry("session.force_spinning_stop", "1")
        if folder is not None:
            settings.add_session_config_entry(_FOLDER, str(folder.resolve()))
        if weights:
            settings.add_external_initializers(list(weights), list(weights.values()))
        self._weights = weights  # ONNX Runtime does not keep them
        source = str(model) if isinstance(model, Path) else model
        self._session = ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
        self._options = options
        self._binding = self._session.io_binding()
        self._gives = [each.name for each in self._session.get_outputs()]

    def run(self, values: Mapping[str, OrtValue]) -> dict[str, OrtValue]:
        """The outputs, in memory of their own."""
        for name, value in values.items():
            self._binding.bind_ortvalue_input(name, value)
        for name in self._gives:
            self._binding.bind_output(name)
        try:
            self._session.run_with_iobinding(self._binding, self._options)
            return dict(zip(self._gives, self._binding.get_outputs(), strict=True))
        finally:  # so that it keeps no value alive
            self._binding.clear_binding_inputs()
            self._binding.clear_binding_outputs()
