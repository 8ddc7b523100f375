"""Sessions of ONNX Runtime on values that are bound, not copied.

Optimisations are off, as when costs are measured: nodes run as they are written, in a sub-model as
in the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.costs.profiles.onnx.options import SILENT, session_options

if TYPE_CHECKING:
    from onnxruntime import OrtValue, RunOptions

_FOLDER = "session.model_external_initializers_file_folder_path"


def run_options() -> RunOptions:
    """Options of runs; setting ``terminate`` ends those that have them, after the op at hand."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = SILENT
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

        settings = session_options(threads, weights)
        if folder is not None:
            settings.add_session_config_entry(_FOLDER, str(folder.resolve()))
        self._weights = weights  # ONNX Runtime does not keep them
        source = str(model) if isinstance(model, Path) else model
        self._session = ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
        self._options = options
        self._binding = self._session.io_binding()
        # A model may list an output twice, which is bound once.
        self._gives = list(dict.fromkeys(each.name for each in self._session.get_outputs()))

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
