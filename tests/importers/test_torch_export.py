"""Importing PyTorch modules, factories, Transformers configurations and .pt2 files."""

from __future__ import annotations

import io
import operator
import pickle
import sys
import time
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.errors import (  # noqa: E402
    FormatError,
    GraphError,
    MissingExtraError,
    OptionError,
    PlacewrightWarning,
)
from placewright.graph import Graph  # noqa: E402
from placewright.importers.torch import costs as torch_costs  # noqa: E402
from placewright.importers.torch import export as torch_export  # noqa: E402
from placewright.importers.torch import sources as torch_sources  # noqa: E402
from tests.importers.tiny_models import CONFIGS, make  # noqa: E402

ALL = sorted(CONFIGS)


@cache
def program_of(name: str) -> Any:
    module, kwargs = make(name)
    return torch_export.export_inference(module, (), kwargs)


@cache
def graph_of(name: str) -> Graph:
    return torch_export.graph_from_program(program_of(name), name)


def counted_by_torch(module: Any, kwargs: dict[str, Any]) -> float:
    """FLOPs of an eager run; torch's counter does not know attention and experts on the CPU."""
    from torch.utils.flop_counter import FlopCounterMode

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> float:
        return 2 * np.prod(query[:3]) * key[2] * (query[3] + value[3])

    def experts(rows: Any, weights: Any, *_: Any, **__: Any) -> float:
        return 2 * rows[0] * rows[1] * weights[2]

    formulas = {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
        torch.ops.aten._grouped_mm: experts,
    }
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        module(**kwargs)
    return float(counter.get_total_flops())


# -- what the graph says -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_call_is_an_op_or_folded_into_one(name: str) -> None:
    program, graph = program_of(name), graph_of(name)
    owner = torch_export.op_of_node(program)
    for node in program.graph.nodes:
        if node.op == "call_function":
            computes = node.target is not operator.getitem and node.meta.get("val") is not None
            assert (node.name in graph.op_index) == computes
            assert owner[node.name] == (node.name if computes else owner[node.args[0].name])
    assert {op for op in owner.values() if op} == set(graph.op_names)


@pytest.mark.parametrize("name", ALL)
def test_an_op_depends_on_exactly_the_ops_its_node_reads(name: str) -> None:
    program, graph = program_of(name), graph_of(name)
    owner = torch_export.op_of_node(program)
    expected = {
        (owner[source.name], node.name)
        for node in program.graph.nodes
        if node.name in graph.op_index
        for source in node.all_input_nodes
        if owner[source.name]
    }
    names = np.array(graph.op_names)
    producer, consumer = graph.edges
    assert set(zip(names[producer], names[consumer], strict=True)) == expected


@pytest.mark.parametrize("name", ALL)
def test_parameter_bytes_are_those_of_the_model_and_of_the_buffers_it_reads(name: str) -> None:
    module, _ = make(name)
    program = program_of(name)
    read = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
    buffers = dict(module.named_buffers())
    used = [
        buffers[target]
        for node, target in program.graph_signature.inputs_to_buffers.items()
        if node in read
    ]
    expected = sum(t.numel() * t.element_size() for t in [*module.parameters(), *used])
    assert graph_of(name).op_parameter_bytes.sum() == expected
    assert graph_of(name).attributes["parameters"] == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", ALL)
def test_flops_are_those_torch_counts_in_an_eager_run(name: str) -> None:
    module, kwargs = make(name)
    assert graph_of(name).op_flops.sum() == counted_by_torch(module, kwargs) > 0
    assert "flops_unknown" not in graph_of(name).attributes


@pytest.mark.parametrize("name", ALL)
def test_a_meta_module_gives_the_graph_of_the_real_one(name: str) -> None:
    module, kwargs = make(name, device="meta")
    found = torch_export.graph_from_module(module, (), kwargs, name=name)
    assert found.to_document() == graph_of(name).to_document()
    assert all(parameter.is_meta for parameter in module.parameters())


def test_the_program_computes_what_the_module_computes() -> None:
    module, kwargs = make("gpt2")
    with torch.no_grad():
        expected = module(**kwargs).logits
    assert torch.equal(program_of("gpt2").module(check_guards=False)(**kwargs).logits, expected)


def test_the_same_module_gives_the_same_names() -> None:
    module, kwargs = make("gpt2")
    again = torch_export.export_inference(module, (), kwargs)
    names = [node.name for node in program_of("gpt2").graph.nodes]
    assert [node.name for node in again.graph.nodes] == names


def test_export_leaves_the_training_flags_as_they_were() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
    module.train()
    module[1].eval()
    torch_export.export_inference(module, (torch.zeros(1, 4),))
    assert module.training and module[0].training and not module[1].training


def test_a_tied_embedding_is_counted_once_and_keeps_its_readers_together() -> None:
    graph = graph_of("gpt2")
    embedding, head = graph.op_index["embedding"], graph.op_index["linear"]
    assert graph.colocation[embedding] == graph.colocation[head] >= 0
    assert graph.op_parameter_bytes[embedding] == 100 * 32 * 4
    assert graph.op_parameter_bytes[head] == 0
    assert (graph.colocation >= 0).sum() == 2


def test_a_tied_embedding_may_be_copied_so_that_its_readers_part() -> None:
    graph = torch_export.graph_from_program(program_of("gpt2"), "gpt2", shared="copy")
    for op in ("embedding", "linear"):
        assert graph.op_parameter_bytes[graph.op_index[op]] == 100 * 32 * 4
    assert (graph.colocation == -1).all()


def test_weights_read_through_a_view_stay_with_the_view() -> None:
    class Transposed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(3, 5))

        def forward(self, x: Any) -> Any:
            return torch.relu(x) @ self.weight.t()

    graph = torch_export.graph_from_module(Transposed(), (torch.zeros(2, 5),))
    assert {graph.op_names[op] for op in np.flatnonzero(graph.colocation >= 0)} == {"t", "matmul"}


def test_each_output_an_op_has_is_a_tensor_of_its_own() -> None:
    graph = graph_of("gpt2")
    split = graph.op_index["split"]
    tensors = np.flatnonzero(graph.tensor_producer == split)
    assert [graph.tensor_names[t] for t in tensors] == ["getitem", "getitem_1", "getitem_2"]
    assert graph.tensor_bytes[tensors].tolist() == [2 * 16 * 32 * 4] * 3


def test_views_cost_nothing_and_other_ops_their_traffic() -> None:
    graph = graph_of("gpt2")
    views = {"aten.view", "aten.transpose", "aten.unsqueeze", "aten.expand", "aten.split"}
    free = np.array([kind in views for kind in graph.op_types])
    traffic = graph.op_bytes_read + graph.op_bytes_written
    assert free.sum() > 20 and (traffic[free] == 0).all() and (graph.op_flops[free] == 0).all()
    addmm = graph.op_index["addmm"]
    assert graph.op_flops[addmm] == 2 * 32 * 32 * 96
    assert graph.op_bytes_read[addmm] == 4 * (32 * 32 + 32 * 96 + 96)
    assert graph.op_bytes_written[addmm] == 4 * 32 * 96
    assert graph.op_modules[addmm] == "transformer.h.0.attn.c_attn"


def test_an_embedding_reads_the_rows_it_looks_up_and_a_broadcast_its_source() -> None:
    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(1000, 8)

        def forward(self, ids: Any, x: Any) -> Any:
            return self.table(ids), x.expand(100, 8) + 1

    graph = torch_export.graph_from_module(
        Both(), (torch.zeros(3, dtype=torch.long), torch.zeros(1, 8))
    )
    assert graph.op_bytes_read[graph.op_index["embedding"]] == 3 * 8 * 4 + 3 * 8
    assert graph.op_bytes_read[graph.op_index["add"]] == 8 * 4
    assert graph.op_bytes_written[graph.op_index["add"]] == 100 * 8 * 4


def test_a_few_tokens_read_only_the_experts_they_can_reach() -> None:
    module, _ = make("mixtral", num_local_experts=16)
    ids = torch.zeros(1, 1, dtype=torch.long)
    graph = torch_export.graph_from_module(module, (ids,), {"use_cache": False})
    experts = graph.op_index["grouped_mm_fallback"]
    rows, weights = 2 * 32 * 4, 2 * 32 * 128 * 4  # top-2 of 16 experts, float32
    assert graph.op_bytes_read[experts] == rows + weights + 16 * 4


def test_more_tokens_read_the_experts_that_they_can_be_expected_to_reach() -> None:
    module, _ = make("mixtral", num_local_experts=16)
    ids = torch.zeros(1, 8, dtype=torch.long)
    graph = torch_export.graph_from_module(module, (ids,), {"use_cache": False})
    experts = graph.op_index["grouped_mm_fallback"]
    rows, weights = 16 * 32 * 4, 16 * 32 * 128 * 4
    reached = 1 - (1 - 2 / 16) ** 8
    assert graph.op_bytes_read[experts] == pytest.approx(rows + weights * reached + 16 * 4)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float64", "fp64"), ("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16")],
)
def test_ops_have_the_type_they_work_in(dtype: str, expected: str) -> None:
    kind = getattr(torch, dtype)
    layer = torch.nn.Linear(4, 4).to(kind)
    graph = torch_export.graph_from_module(layer, (torch.zeros(2, 4, dtype=kind),))
    assert graph.op_dtypes == (expected,)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float64", "fp64"), ("float32", "tf32"), ("bfloat16", "bf16"), ("float16", "fp16")],
)
def test_convolutions_of_fp32_work_in_tf32_as_pytorch_has_it(dtype: str, expected: str) -> None:
    assert torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
    kind = getattr(torch, dtype)
    layers = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.ConvTranspose2d(4, 4, 3))
    graph = torch_export.graph_from_module(layers.to(kind), (torch.zeros(1, 4, 8, 8, dtype=kind),))
    assert graph.op_dtypes == (expected, expected)


def test_integer_products_work_in_int8() -> None:
    class Product(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return torch._int_mm(a, b)

    eights = torch.zeros(32, 32, dtype=torch.int8)
    graph = torch_export.graph_from_module(Product(), (eights, eights))
    assert graph.op_dtypes == ("int8",) and graph.op_flops[0] == 2 * 32**3


def test_a_recurrent_layer_has_the_flops_of_its_products() -> None:
    module = torch.nn.LSTM(8, 16, batch_first=True)
    graph = torch_export.graph_from_module(module, (torch.zeros(2, 5, 8),))
    assert graph.op_flops.sum() == 2 * (2 * 5) * (8 + 16) * (4 * 16)


def test_flops_nobody_can_count_are_named() -> None:
    @torch.library.custom_op("placewright_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: Any) -> Any:
        return torch.empty_like(x)

    class Custom(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.placewright_tests.twice(x)

    with pytest.warns(PlacewrightWarning, match=r"FLOPs of placewright_tests\.twice are not known"):
        graph = torch_export.graph_from_module(Custom(), (torch.zeros(4),))
    assert graph.attributes["flops_unknown"] == ["placewright_tests.twice"]


def test_a_branch_costs_as_much_as_its_dearer_arm() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda y: y @ y, lambda y: y + 1, (x,))

    graph = torch_export.graph_from_module(Branch(), (torch.zeros(8, 8),))
    assert graph.op_flops[graph.op_index["cond"]] == 2 * 8**3


def test_a_program_that_writes_into_its_inputs_is_refused() -> None:
    class InPlace(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x).add_(1)

    program = torch.export.export(InPlace(), (torch.zeros(4),))
    with pytest.raises(GraphError, match="make the program functional"):
        torch_export.graph_from_program(program, "in-place")


def test_a_module_that_looks_at_its_data_is_refused_in_one_sentence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Looks(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(GraphError, match=r"torch\.export cannot follow this module") as caught:
        torch_export.graph_from_module(Looks(), (torch.zeros(4),), name="looks")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_arguments_that_a_module_does_not_run_with_are_told_in_one_sentence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(GraphError, match=r"^Linear: its forward fails \(RuntimeError: .*check"):
        torch_export.graph_from_module(torch.nn.Linear(4, 4), (torch.zeros(2, 5),), name="wide")
    assert capfd.readouterr() == ("", "")


def test_sizes_that_are_symbolic_count_as_those_of_the_example() -> None:
    layer = torch.nn.Linear(4, 4)
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(layer, (torch.zeros(6, 4),), dynamic_shapes=({0: batch},))
    program = exported.run_decompositions({})
    fixed = torch_export.graph_from_module(layer, (torch.zeros(6, 4),), name="l")
    dynamic = torch_export.graph_from_program(program, "l")
    assert dynamic.op_flops.tolist() == fixed.op_flops.tolist()
    assert dynamic.tensor_bytes.tolist() == fixed.tensor_bytes.tolist()


def test_equal_layers_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    trace = torch_costs._trace
    monkeypatch.setattr(
        torch_costs, "_trace", lambda target, *rest: traced.append(target) or trace(target, *rest)
    )
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(8)))
    torch_export.graph_from_module(layers, (torch.zeros(2, 4),))
    assert len(traced) == 1


# -- .pt2 files --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "gpt2.pt2"
    torch.export.save(program_of("gpt2"), path)
    return path


def rewritten(path: Path, to: Path, name: str, old: bytes, new: bytes) -> Path:
    """The archive with `old` replaced in its member `name`."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(to, "w") as target:
        for each in source.namelist():
            content = source.read(each)
            if each.endswith(name):
                assert old in content
                content = content.replace(old, new)
            target.writestr(each, content)
    return to


def test_a_saved_program_reads_back_as_an_equal_graph(saved: Path) -> None:
    assert torch_sources.read_pt2(saved).to_document() == graph_of("gpt2").to_document()


def test_a_saved_program_computes_what_it_did(saved: Path) -> None:
    _, kwargs = make("gpt2")
    first = program_of("gpt2").module(check_guards=False)(**kwargs).logits
    again = torch_sources.load_pt2(saved).module(check_guards=False)(**kwargs).logits
    assert torch.equal(first, again)


def test_a_program_with_symbolic_sizes_reads_back(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cat([x, x]).reshape(-1)

    path = tmp_path / "twice.pt2"
    batch = torch.export.Dim("batch", max=32)
    program = torch.export.export(Twice(), (torch.zeros(6, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    assert torch_sources.read_pt2(path).tensor_bytes[0] == 12 * 4 * 4


class Explosive:
    """Unpickling one writes the file named by `path`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def test_pickled_objects_in_a_file_are_not_opened(saved: Path, tmp_path: Path) -> None:
    proof = tmp_path / "exploded"
    bad = tmp_path / "bad.pt2"
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(bad, "w") as target:
        for each in source.namelist():
            content = source.read(each)
            if "sample_inputs" in each:
                buffer = io.BytesIO()
                torch.save(Explosive(str(proof)), buffer)
                content = buffer.getvalue()
            target.writestr(each, content)
    with pytest.raises(FormatError, match="Python objects"):
        torch_sources.read_pt2(bad)
    assert not proof.exists()
    pickle.loads(pickle.dumps(Explosive(str(proof))))
    assert proof.exists()  # it would have been


NO_RANGES = b'"range_constraints": {}'
CODE_AS_RANGE = b'"range_constraints": {"exit(3)": {"min_val": 1, "max_val": 2}}'


@pytest.mark.parametrize(
    ("member", "old", "new", "reason"),
    [
        ("weights_config.json", b'"use_pickle": false', b'"use_pickle": true', "pickled object"),
        ("weights_config.json", b'"weight_0"', b'"opaque_obj_0"', "pickled object"),
        ("model.json", b"torch.ops.aten.tanh.default", b"torch.hub.load", "no registered op"),
        ("model.json", b"torch.ops.aten.tanh.default", b"torch.ops.load_library", "registered"),
        ("model.json", NO_RANGES, CODE_AS_RANGE, "arithmetic"),
        ("archive_version", b"0", b"9", "not a .pt2 file that this torch reads"),
        ("model.json", b"{", b"", "not a .pt2 file that this torch reads"),
    ],
)  # fmt: skip
def test_a_file_that_would_run_code_or_is_broken_is_refused(
    saved: Path, tmp_path: Path, member: str, old: bytes, new: bytes, reason: str
) -> None:
    bad = rewritten(saved, tmp_path / "bad.pt2", member, old, new)
    with pytest.raises(FormatError, match=reason):
        torch_sources.read_pt2(bad)


def test_a_symbolic_size_that_is_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "relu.pt2"
    batch = torch.export.Dim("batch", max=32)
    program = torch.export.export(
        torch.nn.ReLU(), (torch.zeros(6, 4),), dynamic_shapes=({0: batch},)
    )
    torch.export.save(program, path)
    with zipfile.ZipFile(path) as archive:
        text = archive.read("relu/models/model.json").decode()
    size = text.partition('"expr_str": "')[2].partition('"')[0]
    bad = rewritten(
        path, tmp_path / "bad.pt2", "model.json", size.encode(), b"__import__('os').getcwd()"
    )
    with pytest.raises(FormatError, match="not plain arithmetic"):
        torch_sources.read_pt2(bad)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no archive at all"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.pt2"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.pt2"):
        torch_sources.read_pt2(path)


# -- factories ---------------------------------------------------------------------------------

FACTORIES = """
import torch

def layer():
    return torch.nn.Linear(4, 2), (torch.zeros(3, 4),)

def with_keywords():
    return torch.nn.Linear(4, 2), (), {"input": torch.zeros(3, 4)}

def lonely():
    return torch.nn.Linear(4, 2)

def no_module():
    return 3, ()

def no_arguments():
    return torch.nn.Linear(4, 2), torch.zeros(3, 4)

def fails():
    raise ValueError("out of luck")

def ends():
    raise SystemExit(3)

value = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_factories.py").write_text(FACTORIES)
    (tmp_path / "needs_more.py").write_text("import no_such_library_anywhere\n")
    (tmp_path / "broken_code.py").write_text("def (:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("my_factories", "needs_more", "broken_code"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("factory", ["layer", "with_keywords"])
def test_a_factory_beside_the_user_is_found_and_called(here: Path, factory: str) -> None:
    graph = torch_sources.from_factory(f"my_factories:{factory}")
    assert (graph.name, graph.op_types) == (factory, ("aten.linear",))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("my_factories", "write torch:PACKAGE.MODULE:FACTORY"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("my_factories.inner:f", "there is no module 'my_factories.inner'"),
        ("needs_more:f", "imports 'no_such_library_anywhere', which is not installed"),
        ("broken_code:f", "importing 'broken_code' raised SyntaxError"),
        ("my_factories:layers", "has no 'layers'; did you mean 'layer'"),
        ("my_factories:value", "'value' is a int, not a function"),
        ("my_factories:lonely", "returned a Linear; return \\(module, args\\)"),
        ("my_factories:no_module", "is a int; it must be a torch.nn.Module"),
        ("my_factories:no_arguments", "args must be a tuple"),
        ("my_factories:fails", "raised ValueError: out of luck"),
        ("my_factories:ends", "raised SystemExit: 3"),
        ("my_factories.py:layer", "is a file, not a module; write torch:my_factories:layer$"),
        ("./my_factories:layer", "is a file, not a module; write torch:my_factories:layer$"),
        ("a/b/c.py:f", "; write torch:a.b.c:f, or run from a/b and write torch:c:f$"),
        ("a/c:f", "; write torch:a.c:f, or run from a and write torch:c:f$"),
        ("v1.2/c.py:f", "; run from v1.2 and write torch:c:f$"),
        ("../c.py:f", r"; run from \.\. and write torch:c:f$"),
        ("/home/me/c.py:f", "; run from /home/me and write torch:c:f$"),
    ],
)
def test_what_is_wrong_with_a_factory_is_said(here: Path, spec: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        torch_sources.load_factory(spec)


def test_a_file_given_for_a_module_is_not_imported(here: Path) -> None:
    (here / "loud.py").write_text("raise RuntimeError('imported')")
    with pytest.raises(OptionError, match="write torch:loud:f"):
        torch_sources.load_factory("loud.py:f")


def test_the_ways_that_a_path_is_answered_with_work(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "inner").mkdir()
    (here / "my_factories.py").rename(here / "inner" / "factories_within.py")
    with pytest.raises(OptionError, match=r"torch:inner\.factories_within:layer, or run from"):
        torch_sources.load_factory("inner/factories_within.py:layer")
    assert torch_sources.from_factory("inner.factories_within:layer").op_count == 1
    monkeypatch.chdir(here / "inner")
    assert torch_sources.from_factory("factories_within:layer").op_count == 1


# -- Transformers configurations ---------------------------------------------------------------


def test_a_model_type_with_fields_set_is_built_on_meta() -> None:
    module, args, kwargs = torch_sources.load_hf("gpt2?n_layer=1&n_embd=24&batch=3&sequence=8")
    assert all(parameter.is_meta for parameter in module.parameters())
    assert (args, tuple(kwargs["input_ids"].shape)) == ((), (3, 8))
    assert module.config.n_layer == 1 and kwargs["use_cache"] is False


@pytest.mark.parametrize("name", ALL)
def test_a_saved_configuration_gives_the_models_graph(name: str, tmp_path: Path) -> None:
    module, _ = make(name, device="meta")
    module.config.save_pretrained(tmp_path)
    query = "?batch=2" if name in ("vit", "resnet") else "?batch=2&sequence=16"
    if name == "resnet":  # it knows no image size of its own
        built, _, kwargs = torch_sources.load_hf(f"{tmp_path}{query}")
        assert kwargs["pixel_values"].shape == (2, 3, 224, 224)
        assert type(built) is type(module)
        return
    graph = torch_sources.from_hf(f"{tmp_path / 'config.json'}{query}")
    assert graph.name == name
    assert graph.op_names == graph_of(name).op_names
    assert graph.op_flops.tolist() == graph_of(name).op_flops.tolist()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("gtp2", "no Transformers model type 'gtp2'; did you mean 'gpt2'"),
        ("gpt2?layers=3", "has no 'layers'"),
        ("gpt2?batch=0", "batch is '0'; give a whole number from 1"),
        (
            "gpt2?sequence=4096",
            r"4096 tokens are .* model has 1024 positions; give 1024",
        ),
        ("whisper", "no language model or image classifier"),
        ("gpt2?n_embd=25", "cannot build it"),
        (
            "llama?num_attention_heads=6&num_key_value_heads=4&hidden_size=96",
            "num_attention_heads is 6 and num_key_value_heads is 4, which must divide it",
        ),
        ("gpt2?n_layer=many", "n_layer"),
        (
            "org/name-7B.v2?batch=2",
            r"hub.*network.*\(hf download org/name-7B.v2 config.json .*hf:PATH",
        ),
        ("org/name/more", "no Transformers model type 'org/name/more' and no such file"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_said(config: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        torch_sources.load_hf(config)


@pytest.mark.parametrize("content", ["[]", "{}", '{"model_type": 3}', "{"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(FormatError, match=r"config\.json"):
        torch_sources.load_hf(str(path))


def test_missing_libraries_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"placewright\[hf\]"):
        torch_sources.load_hf("gpt2")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"placewright\[torch\]"):
        torch_sources.load_factory("a:b")


def test_a_large_model_needs_neither_its_weights_nor_minutes() -> None:
    """Two layers of Llama 70B: the width is what would cost memory."""
    start = time.perf_counter()
    graph = torch_sources.from_hf(
        "llama?hidden_size=8192&num_hidden_layers=2&num_attention_heads=64&num_key_value_heads=8"
        "&intermediate_size=28672&vocab_size=128256&dtype=bfloat16"
    )
    assert graph.op_parameter_bytes.sum() > 7.6e9
    assert set(graph.op_dtypes) == {"bf16", "fp32"}
    assert time.perf_counter() - start < 60


@pytest.mark.slow
def test_gpt3_imports_without_weights() -> None:
    graph = torch_sources.from_hf(
        "gpt2?n_embd=12288&n_layer=96&n_head=96&n_positions=2048&sequence=2048"
    )
    assert graph.attributes["parameters"] == 174_604_259_328
    assert graph.op_flops.sum() > 2 * 174e9 * 2048


class Tower(torch.nn.Module):
    """An embedding, two layers of which one keeps more than it reads, and a tower nobody asks."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = torch.nn.Linear(8, 100)
        self.embedding = torch.nn.Embedding(10, 8)
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.second.scale = torch.nn.Parameter(torch.ones(5))

    def forward(self, ids: Any) -> Any:
        return self.second(self.first(self.embedding(ids))).sum()


@pytest.mark.parametrize("training", [False, True])
def test_parameters_that_no_op_reads_are_kept_where_their_module_begins(training: bool) -> None:
    ids = torch.ones(3, dtype=torch.long)
    graph = torch_export.graph_from_module(Tower(), (ids,), training=training)
    unread = {"embedding": 4 * 900, "second": 4 * 5}
    assert graph.attributes["unread_parameter_bytes"] == sum(unread.values())
    kept = graph.op_parameter_bytes + graph.op_state_bytes
    read = {"embedding": 4 * 80, "first": 4 * 72, "second": 4 * 72}
    for module in read:
        ops = [op for op, each in enumerate(graph.op_modules) if each == module]
        assert kept[ops].sum() == read[module] + unread.get(module, 0)
    trained = graph.op_parameter_bytes.sum()
    assert trained == sum(read.values()) + (0 if training else sum(unread.values()))
