"""A plan handed to an engine: the file or folder it reads, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from placewright.errors import OptionError
from placewright.exporters.engines import Engine, find_engine
from placewright.exporters.loading import check_loads, note_on_weights
from placewright.exporters.stages import BlockPlan
from placewright.formats import files
from placewright.formats.folders import check_new_folder
from placewright.options import check_kind, check_mapping
from placewright.plan import Plan
from placewright.system.references import referred
from placewright.verify import verify


def export(
    plan: Plan | str | Path,
    engine: str,
    path: str | Path,
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """Write `plan`, or the plan of a file, for `engine` to `path`; lines on how to use it.

    `options` are those of the engine's row. OptionError for what the engine cannot express: it is
    never bent. VerificationError for a plan that does not hold.

    >>> export("plan.json", "vllm", "vllm.json")             # doctest: +SKIP
    ['VLLM_PP_LAYER_PARTITION=5,27 … vllm serve MODEL --pipeline-parallel-size 2 …']
    """
    row = find_engine(engine)
    check_kind(path, (str, Path), "path", f"the name of a {'folder' if row.folder else 'file'}")
    check_mapping(options, "options", "{'backend': 'vulkan'}")
    given = _arguments(row, options or {})
    check = check_new_folder if row.folder else files.check_writable
    check(Path(path))
    found = plan if isinstance(plan, Plan) else Plan.load(plan)
    verify(found).raise_if_failed()
    check_loads(found.source, row)
    lines: list[str] | None = referred(row.write)(path, found, **given)
    return [*(lines or []), *note_on_weights(found.source, row)]


def _arguments(row: Engine, options: Mapping[str, str]) -> dict[str, str]:
    """The options by the names that the engine's function has for them, numbers as text.

    OptionError for others.
    """
    for name in options:
        if name not in row.options:
            known = f"it takes {', '.join(row.options)}" if row.options else "it takes none"
            raise OptionError(f"-O {name}: {row.name} has no such option; {known}")
    return {name.replace("-", "_"): str(value) for name, value in options.items()}


def fault_of_hosts(found: BlockPlan, engine: str) -> str:
    """Why the engine cannot start a plan's stages on their hosts; nothing where it can.

    No search keeps to this, so that the best plan may be one that is not exported.
    """
    row = find_engine(engine)
    try:
        if row.ranks:
            referred(row.ranks)(found, engine)
    except OptionError as error:
        return str(error)
    return ""
