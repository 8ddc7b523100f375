"""A plan handed to an engine: the file or folder it reads, or a refusal."""

from __future__ import annotations

from pathlib import Path

from placewright.exporters.engines import find_engine
from placewright.formats import files
from placewright.formats.folders import check_new_folder
from placewright.plan import Plan
from placewright.system.references import referred
from placewright.verify import verify


def export(plan: Plan | str | Path, engine: str, path: str | Path) -> list[str]:
    """Write `plan`, or the plan of a file, for `engine` to `path`; lines on how to use it.

    OptionError for what the engine cannot express: it is never bent. VerificationError for a plan
    that does not hold.

    >>> export("plan.json", "vllm", "vllm.json")             # doctest: +SKIP
    ['VLLM_PP_LAYER_PARTITION=5,27 … vllm serve MODEL --pipeline-parallel-size 2 …']
    """
    row = find_engine(engine)
    check = check_new_folder if row.folder else files.check_writable
    check(Path(path))
    found = plan if isinstance(plan, Plan) else Plan.load(plan)
    verify(found).raise_if_failed()
    lines: list[str] | None = referred(row.write)(path, found)
    return lines or []
