"""How kernels are compiled: as by numba's `njit`, without what takes long and nobody uses.

Compiling is what a user waits for on the first run, and most of it is not the kernel itself:

- beside a kernel numba compiles two ways into it, one for C, which nobody calls, and one for
  Python, which kernels that only kernels call do without (`inner`);
- every array that a kernel looks at is counted as referred to, through dozens of arrays in a named
  tuple. A kernel is lent its arrays by who calls it, so there is nothing to count, unless it makes
  arrays of its own, or gets them from a kernel that does (`allocates`). Who does so without saying
  so is refused when it is compiled.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from placewright.kernels.kept import keep


def kernel(function: Any = None, /, **options: Any) -> Any:
    """A kernel that is called from Python. Options: `allocates`, and those of `numba.njit`."""
    return _decorated(function, options)


def inner(function: Any = None, /, **options: Any) -> Any:
    """A kernel that only kernels call: called from Python it would crash the interpreter."""
    return _decorated(function, options | {"no_cpython_wrapper": True})


def inlined(function: Any) -> Any:
    """A kernel whose lines become a part of each kernel that calls it: for a line or two."""
    import numba

    compiling: Any = numba.njit
    return compiling(inline="always")(function)


def _decorated(function: Any, options: dict[str, Any]) -> Any:
    if function is None:
        return lambda function: _decorated(function, options)
    import numba

    compiling: Any = numba.njit  # its annotations know fewer options than it takes
    options = {"cache": True, "nogil": True, "no_cfunc_wrapper": True} | options
    allocates = options.pop("allocates", False)
    options["_nrt"] = allocates  # said either way, or numba takes what the calling kernel has
    if not allocates:
        options["pipeline_class"] = _lent()
    compiled = compiling(**options)(function)
    if hasattr(compiled, "py_func"):  # not where NUMBA_DISABLE_JIT is set
        keep(compiled, function)
    return compiled


@cache
def _lent() -> type:
    """Numba's compiler with a look at what a kernel without counts of references gets and returns.

    What it returns would be freed too early, what other kernels return to it never.
    """
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import AnalysisPass, register_pass
    from numba.core.errors import TypingError
    from numba.core.typed_passes import AnnotateTypes
    from numba.core.types import Dispatcher

    @register_pass(mutates_CFG=False, analysis_only=True)
    class OwnsNoArray(AnalysisPass):
        _name = "owns_no_array"

        def __init__(self) -> None:
            AnalysisPass.__init__(self)

        def run_pass(self, state: Any) -> bool:
            models, name = state.targetctx.data_model_manager, state.func_id.func_name
            made = [
                state.calltypes[call].return_type
                for block in state.func_ir.blocks.values()
                for call in block.find_exprs("call")
                if isinstance(state.typemap[call.func.name], Dispatcher)
            ]
            if any(models[each].contains_nrt_meminfo() for each in [*made, state.return_type]):
                raise TypingError(
                    f"kernel {name} returns an array or calls a kernel that does: say "
                    "allocates=True"
                )
            return False

    class Lent(CompilerBase):
        def define_pipelines(self) -> list[Any]:
            built = DefaultPassBuilder.define_nopython_pipeline(self.state)
            built.add_pass_after(OwnsNoArray, AnnotateTypes)
            built.finalize()
            return [built]

    return Lent
