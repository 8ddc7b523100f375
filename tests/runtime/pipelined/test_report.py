"""The page about running names every figure of a pipeline's report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from placewright.runtime.pipelined import PipelineReport

PAGE = Path(__file__).parents[3] / "docs" / "running.md"


def test_the_running_page_has_every_figure_of_a_pipeline() -> None:
    text = PAGE.read_text("utf-8").partition("## Pipelines")[2].partition("\n## ")[0]
    for field in dataclasses.fields(PipelineReport):
        assert f"`{field.name}`" in text
