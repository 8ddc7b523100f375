"""What the catalog's own data file may hold (pydantic is slow to import: import this late)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from placewright.formats.schema import Bandwidth, Bytes, Count, Positive, Seconds, Strict
from placewright.graph import DTYPES

Share = Annotated[float, Field(gt=0, le=1)]
Family = Literal["gpu", "cpu", "other"]


class Defaults(Strict):
    launch_overhead: Seconds
    compute_efficiency: Share
    memory_efficiency: Share


class KindEntry(Strict):
    name: Annotated[str, Field(min_length=1)]
    family: Literal["gpu", "cpu"]
    aliases: tuple[str, ...] = ()
    memory: Bytes | None = None
    memory_bandwidth: Bandwidth
    multiprocessors: Count | None = None
    peak_tflops: Annotated[dict[str, Positive], Field(min_length=1)]
    launch_overhead: Seconds | None = None
    compute_efficiency: Share | None = None
    memory_efficiency: Share | None = None
    source: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _dtypes_are_known(self) -> KindEntry:
        unknown = set(self.peak_tflops) - set(DTYPES)
        if unknown:
            raise ValueError(f"{self.name}: no dtype {sorted(unknown)[0]!r}")
        return self


class DevicesFile(Strict):
    defaults: dict[Family, Defaults]
    kinds: Annotated[list[KindEntry], Field(min_length=1)]
