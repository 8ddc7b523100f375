"""Writes in place cost what they write, although the exported program copies."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from placewright.graph import Graph  # noqa: E402
from placewright.importers.torch import sources  # noqa: E402
from placewright.importers.torch.archive import load_pt2  # noqa: E402
from placewright.importers.torch.export import (  # noqa: E402
    graph_from_module,
    graph_from_program,
)

ROW = 4 * 16  # bytes of a row of `whole`


class Writes(torch.nn.Module):
    """Changes a table of 100 rows by `write(table, new, places)` and reads it."""

    def __init__(self, write: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(100, 16))
        self.write = write

    def forward(self, new: Any, places: Any) -> Any:
        table = self.table + 0.0
        changed = self.write(table, new, places)
        return (table if changed is None else changed).sum()


def inputs() -> tuple[Any, Any]:
    return torch.ones(3, 16), torch.tensor([4, 7, 9])


def moved(graph: Graph, *kinds: str) -> tuple[float, float]:
    ops = [op for op, kind in enumerate(graph.op_types) if kind.removeprefix("aten.") in kinds]
    assert ops, graph.op_types
    return float(graph.op_bytes_read[ops].sum()), float(graph.op_bytes_written[ops].sum())


def assign_slice(table: Any, new: Any, places: Any) -> None:
    table[10:13] = new


def assign_part_of_a_row(table: Any, new: Any, places: Any) -> None:
    table[10, 2:6] = new[0, :4]


def assign_rows(table: Any, new: Any, places: Any) -> None:
    table[places] = new


def assign_a_number(table: Any, new: Any, places: Any) -> None:
    table[places] = 1.0


def columns(table: Any, new: Any, places: Any) -> None:
    table.scatter_(0, places[:, None].expand(3, 16), new)


@pytest.mark.parametrize(
    ("write", "kinds", "read", "written"),
    [
        (assign_slice, ("copy", "slice_scatter"), 3 * ROW, 3 * ROW),
        (assign_part_of_a_row, ("copy", "slice_scatter", "select_scatter"), 16, 16),
        (assign_rows, ("index_put",), 3 * ROW + 24, 3 * ROW),
        (assign_a_number, ("index_put",), 24 + 4, 3 * ROW),
        (lambda t, n, p: t.index_copy_(0, p, n), ("index_copy",), 3 * ROW + 24, 3 * ROW),
        (lambda t, n, p: t.index_add_(0, p, n), ("index_add",), 6 * ROW + 24, 3 * ROW),
        (lambda t, n, p: t.index_fill_(0, p, 1.0), ("index_fill",), 24, 3 * ROW),
        (columns, ("scatter",), 3 * ROW + 24, 3 * ROW),
    ],
)
def test_a_write_in_place_moves_what_it_writes(
    write: Callable[[Any, Any, Any], Any], kinds: tuple[str, ...], read: float, written: float
) -> None:
    graph = graph_from_module(Writes(write).eval(), inputs())
    assert moved(graph, *kinds) == (read, written)


@pytest.mark.parametrize(
    ("write", "kind", "source"),
    [
        (lambda t, n, p: torch.slice_scatter(t, t[:3] + n, 0, 0, 3), "slice_scatter", 3 * ROW),
        (lambda t, n, p: torch.index_copy(t, 0, p, n), "index_copy", 3 * ROW + 24),
        (lambda t, n, p: torch.index_add(t, 0, p, n), "index_add", 3 * ROW + 24),
    ],
)
def test_a_changed_copy_is_a_copy(
    write: Callable[[Any, Any, Any], Any], kind: str, source: float
) -> None:
    graph = graph_from_module(Writes(write).eval(), inputs())
    assert moved(graph, kind) == (100 * ROW + source, 100 * ROW)


def test_a_saved_program_still_tells_what_it_writes_in_place() -> None:
    module = Writes(assign_slice).eval()
    program = torch.export.export(module, inputs()).run_decompositions({})
    file = io.BytesIO()
    torch.export.save(program, file)
    graph = graph_from_program(load_pt2("saved.pt2", file.getvalue()), "saved")
    assert moved(graph, "copy", "slice_scatter") == (3 * ROW, 3 * ROW)


class Joined(torch.nn.Module):
    """Two products side by side in one tensor, as the keys of latent attention are."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(16, 100), torch.nn.Linear(16, 100)

    def forward(self, x: Any) -> Any:
        joined = x.new_empty(3, 200)
        joined[:, :100] = self.one(x)
        joined[:, 100:] = self.two(x)
        return (joined * joined).sum()


def test_training_writes_in_place_forward_and_backward() -> None:
    graph = graph_from_module(Joined(), (torch.ones(3, 16),), training=True)
    half, whole = 3 * 100 * 4, 3 * 200 * 4
    assert moved(graph, "slice_scatter") == (0.0, 0.0)
    # Autograd copies the gradient of the whole for each part, and puts zeros where the last was.
    assert moved(graph, "copy") == (2 * half + 2 * whole + half,) * 2


MLA = (
    "deepseek_v3?num_hidden_layers=1&vocab_size=100&hidden_size=64&intermediate_size=64"
    "&num_attention_heads=4&num_key_value_heads=4&kv_lora_rank=32&q_lora_rank=32"
    "&qk_rope_head_dim=8&qk_nope_head_dim=16&v_head_dim=16&first_k_dense_replace=1&phase=decode"
)


def test_latent_attention_multiplies_with_its_latents_and_expands_none_of_them() -> None:
    pytest.importorskip("transformers")
    short, long = (sources.from_hf(f"{MLA}&context={tokens}") for tokens in (40, 140))
    latent, rotated, heads = 32, 8, 4
    more = long.op_bytes_read.sum() - short.op_bytes_read.sum()
    assert more == 100 * 4 * (latent + rotated)
    assert long.op_bytes_written.sum() == short.op_bytes_written.sum()
    more = long.op_flops.sum() - short.op_flops.sum()
    assert more == pytest.approx(100 * 2 * heads * (latent + rotated + latent))


def test_what_would_expand_latents_multiplies_with_new_tokens_alone() -> None:
    pytest.importorskip("transformers")
    graph = sources.from_hf(f"{MLA}&context=40")
    expands = next(op for op, path in enumerate(graph.op_modules) if path.endswith("kv_b_proj"))
    assert graph.op_flops[expands] == pytest.approx(2 * 32 * 4 * (16 + 16))
    assert graph.op_bytes_read[expands] == pytest.approx(4 * (32 * 4 * (16 + 16) + 32))


def test_a_prompt_expands_its_latents() -> None:
    pytest.importorskip("transformers")
    graph = sources.from_hf(f"{MLA.replace('decode', 'prefill')}&context=40")
    expands = next(op for op, path in enumerate(graph.op_modules) if path.endswith("kv_b_proj"))
    assert graph.op_flops[expands] == 40 * 2 * 32 * 4 * (16 + 16)
