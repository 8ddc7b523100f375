"""Cutting programs, with the stages run as threads of this process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.errors import ExecutionError, InputError  # noqa: E402
from placewright.runtime.ranks.channels import ChannelError  # noqa: E402
from placewright.runtime.ranks.job_files import load_rank, save_rank  # noqa: E402
from placewright.runtime.reference import max_abs_difference  # noqa: E402
from placewright.runtime.stages import layout, targets  # noqa: E402
from placewright.runtime.stages.code import Call, Code, Post, Ref  # noqa: E402
from placewright.runtime.stages.compiled import Compiled  # noqa: E402
from placewright.runtime.stages.cutting import cut  # noqa: E402
from placewright.runtime.values import Values  # noqa: E402
from tests.runtime import models  # noqa: E402
from tests.runtime.programs import Case, case_of, family, random_assignment  # noqa: E402
from tests.runtime.threads import run_stages  # noqa: E402

pytestmark = pytest.mark.timeout(120)
FAMILIES = sorted(models.FAMILIES)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Sums of floats depend on the number of threads, and stages are threads already."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Lambda(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def small(function: Any, *args: Any) -> Case:
    return case_of(Lambda(function), args)


def difference(case: Case, device_of: Any, order: Any = None, ranks: int | None = None) -> float:
    stages = cut(case.program, device_of, order, ranks)
    return max_abs_difference(case.expected, run_stages(stages, case.values, timeout=20))


def worst_of_every_placement(case: Case) -> float:
    placements = itertools.product(range(2), repeat=len(case.ops))
    return max(
        difference(case, dict(zip(case.ops, devices, strict=True)), ranks=2)
        for devices in placements
    )


# -- any placement gives the same outputs ------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_ten_random_placements_give_the_outputs_of_a_single_process(name: str, ranks: int) -> None:
    case = family(name)
    for seed in range(10):
        assignment = random_assignment(case, ranks, seed)
        found = difference(case, assignment.device_of, assignment.order, ranks)
        assert found <= 1e-6, f"seed {seed}"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_single_process_gives_the_outputs_of_the_module_itself(name: str) -> None:
    module, args, kwargs = models.FAMILIES[name]()
    with torch.no_grad():
        output = module(*args, **kwargs)
    assert max_abs_difference([output.logits], family(name).expected[:1]) <= 1e-6


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_neighbouring_ops_on_alternating_ranks_give_the_same_outputs(name: str) -> None:
    case = family(name)
    assert difference(case, {op: i % 4 for i, op in enumerate(case.ops)}) <= 1e-6


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.t().view(-1, 2, 4)[:, 0] + 1, id="transposed"),
        pytest.param(lambda x: (x[:, None].expand(4, 3, 8) * 2).view(-1), id="broadcast"),
        pytest.param(lambda x: x[:, ::2].t().flip(0) - 1, id="slice with gaps"),
        pytest.param(lambda x: x.view(1, 2, 4, 4).to(memory_format=torch.channels_last) + 1,
                     id="channels last"),
        pytest.param(lambda x: torch.view_as_complex(x.view(4, 4, 2)).conj() * 2, id="conjugate"),
        pytest.param(lambda x: x[:, :0].sum(1) + x.sum(), id="empty and scalar"),
        pytest.param(lambda x: (x.to(torch.bfloat16) * 2, x > 0), id="bfloat16 and bool"),
        pytest.param(lambda x: x.topk(2)[0] + x.topk(2)[1], id="two outputs of one op"),
        pytest.param(lambda x: torch.arange(8) + x, id="op without inputs"),
    ],
)  # fmt: skip
def test_every_placement_of_a_small_program_is_exact(function: Any) -> None:
    case = small(function, torch.randn(4, 8))
    assert 2 <= len(case.ops) <= 8
    assert worst_of_every_placement(case) == 0


def test_numbers_taken_from_tensors_are_taken_wherever_they_are_used() -> None:
    case = small(lambda x: (x + 1) * (x * 2).max().item(), torch.randn(4, 8))
    assert worst_of_every_placement(case) == 0


def test_bodies_of_higher_order_ops_are_run() -> None:
    def function(x: Any) -> Any:
        doubled = x * 2
        return torch.cond(doubled.sum() > 0, torch.sin, torch.cos, (doubled,)) + 1

    for x in (torch.ones(4), -torch.ones(4)):
        case = small(function, x)
        assert any("cond" in op for op in case.ops)
        assert worst_of_every_placement(case) == 0


def test_an_autocast_region_keeps_its_precision() -> None:
    def function(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return y.float() + 1

    assert worst_of_every_placement(small(function, torch.randn(4, 4))) == 0


def test_outputs_that_no_op_makes_are_returned() -> None:
    case = small(lambda x: (x, x + 1, 3, None, x + 1), torch.randn(3))
    assert worst_of_every_placement(case) == 0


def test_tied_weights_and_weights_of_several_ranks_are_right() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(8, 4)
            self.head = torch.nn.Linear(4, 8, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.embed(x))

    assert worst_of_every_placement(case_of(Tied(), (torch.arange(3),))) == 0


# -- what a stage holds ------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_a_tensor_is_sent_once_to_each_rank_and_what_is_sent_is_received(name: str) -> None:
    case = family(name)
    stages = cut(case.program, random_assignment(case, 3, 0).device_of)
    sent = [transfer for stage in stages for transfer in stage.sends]
    steps = [step for stage in stages for step in stage.code.steps]
    received = [step.transfer for step in steps if isinstance(step, Post)]
    assert len({(each.tensor, each.target) for each in sent}) == len(sent)
    assert len({each.tag for each in sent}) == len(sent)
    assert sorted(sent, key=lambda t: t.tag) == sorted(received, key=lambda t: t.tag)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_call_runs_on_the_rank_of_its_op(name: str) -> None:
    case = family(name)
    device_of = random_assignment(case, 3, 2).device_of
    ran = {call.name: stage.rank for stage in cut(case.program, device_of) for call in stage.calls}
    assert {op: ran[op] for op in case.ops} == device_of


def test_a_rank_has_the_weights_and_inputs_of_its_own_ops_only() -> None:
    first, second = cut(case_of(*models.chain()).program, {
        "linear": 0, "neg": 0, "linear_1": 1, "relu": 1,
    })  # fmt: skip
    assert set(first.weights.values()) == {"first.weight", "first.bias"}
    assert set(second.weights.values()) == {"second.weight", "second.bias"}
    assert len(first.inputs) == 1
    assert second.inputs == ()


def test_a_rank_without_ops_has_nothing_to_do() -> None:
    case = case_of(*models.chain())
    stages = cut(case.program, dict.fromkeys(case.ops, 1), ranks=3)
    assert [len(stage.code.steps) for stage in stages] == [0, 4, 0]
    assert max_abs_difference(case.expected, run_stages(stages, case.values)) == 0


def test_a_receive_is_posted_where_the_order_has_the_producer() -> None:
    case = case_of(*models.chain())
    device_of = {"linear": 0, "neg": 1, "linear_1": 0, "relu": 1}
    assert [str(step).split(" = ")[0] for step in cut(case.program, device_of)[1].code.steps] == [
        "post %linear from rank 0",
        "wait %linear",
        "%neg",
        "send %neg to rank 0",
        "post %linear_1 from rank 0",
        "wait %linear_1",
        "%relu",
    ]


def test_the_order_given_is_the_order_of_the_calls() -> None:
    case = small(lambda x: (x + 1, x * 2, x - 3), torch.ones(2))
    order = list(reversed(case.ops))
    assert [call.name for call in cut(case.program, dict.fromkeys(order, 0), order)[0].calls] == (
        order
    )


def test_a_value_is_dropped_after_its_last_use() -> None:
    case = case_of(*models.chain())
    source = Compiled(cut(case.program, dict.fromkeys(case.ops, 0))[0].code).source
    assert source.count("del ") == 3


def test_a_broadcast_travels_without_its_repetitions() -> None:
    case = small(lambda x: x[None].expand(100, 4) + 1, torch.ones(4))
    stages = cut(case.program, {op: int(op == "add") for op in case.ops})
    assert [each.bytes for each in stages[0].sends] == [16]


def test_a_file_of_a_rank_gives_back_its_stages_and_its_inputs_without_weights(
    tmp_path: Path,
) -> None:
    case = family("mixtral")
    stages = cut(case.program, random_assignment(case, 2, 0).device_of)
    for stage in stages:
        save_rank(tmp_path, stage.rank, [stage], {"kind": "held"}, case.values.inputs)
        found = load_rank(tmp_path, stage.rank)
        assert found.stages == [stage]
        assert found.weights == {"kind": "held"}
        assert set(found.inputs) == set(stage.inputs)
        for name, value in found.inputs.items():
            assert torch.equal(value, case.values.inputs[name])


# -- how tensors travel ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(torch.randn(2, 3, 4), id="contiguous"),
        pytest.param(torch.randn(2, 3, 4).permute(2, 0, 1), id="permuted"),
        pytest.param(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), id="nhwc"),
        pytest.param(torch.randn(3, 1).expand(3, 5), id="broadcast"),
        pytest.param(torch.randn(4, 1, 3).permute(2, 1, 0).expand(3, 6, 4), id="both"),
        pytest.param(torch.tensor(3), id="no dimension"),
        pytest.param(torch.randn(3, 0), id="no element"),
    ],
)
def test_strides_survive_the_journey(tensor: Any) -> None:
    transfer = layout.transfer_of(tensor, "x", "y", 0, 1, 0)
    arrived = layout.unpack(transfer, layout.pack(transfer, tensor).clone())
    assert torch.equal(arrived, tensor)
    assert arrived.stride() == tensor.stride()


def test_a_tensor_with_gaps_arrives_dense_in_the_same_order_of_dimensions() -> None:
    tensor = torch.randn(4, 6, 8)[:, :, ::2].permute(2, 0, 1)
    transfer = layout.transfer_of(tensor, "x", "y", 0, 1, 0)
    arrived = layout.unpack(transfer, layout.pack(transfer, tensor))
    assert torch.equal(arrived, tensor)
    assert arrived.stride() == (1, 24, 4)


def test_a_dense_tensor_is_sent_from_its_own_memory() -> None:
    tensor = torch.randn(3, 4).t()
    transfer = layout.transfer_of(tensor, "x", "y", 0, 1, 0)
    assert layout.pack(transfer, tensor).data_ptr() == tensor.data_ptr()


def test_a_tensor_laid_out_otherwise_than_promised_is_rearranged() -> None:
    tensor = torch.randn(3, 4)
    transfer = layout.transfer_of(tensor.t().contiguous().t(), "x", "y", 0, 1, 0)
    arrived = layout.unpack(transfer, layout.pack(transfer, tensor))
    assert torch.equal(arrived, tensor)
    assert arrived.stride() == (1, 3)


# -- what cannot be cut ------------------------------------------------------------------------

CHAIN = {"linear": 0, "neg": 0, "linear_1": 0, "relu": 0}
ORDER = ["linear", "neg", "linear_1", "relu"]


@pytest.mark.parametrize(
    ("device_of", "order", "ranks", "message"),
    [
        ({"linear": 0, "neg": 0, "relu": 0}, None, None, "gives op 'linear_1' no device"),
        ({**CHAIN, "tanh": 0}, None, None, "names op 'tanh', which this program does not have"),
        ({**CHAIN, "neg": 2}, None, 2, "op 'neg' is placed on rank 2 of 2"),
        ({**CHAIN, "neg": -1}, None, 2, "op 'neg' is placed on rank -1 of 2"),
        (CHAIN, ORDER[:3], None, "the order lacks op 'relu'"),
        (CHAIN, [*ORDER, "tanh"], None, "the order names a foreign op 'tanh'"),
        (CHAIN, [*ORDER, "relu"], None, "the order has op 'relu' twice"),
        (CHAIN, ["neg", "linear", *ORDER[2:]], None, "op 'neg' before op 'linear'"),
    ],
)
def test_a_placement_or_order_that_does_not_fit_is_refused(
    device_of: Any, order: Any, ranks: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        cut(case_of(*models.chain()).program, device_of, order, ranks)


def test_a_module_without_values_is_refused() -> None:
    with torch.device("meta"):
        module, inputs = torch.nn.Linear(4, 4), (torch.ones(2, 4),)
    with pytest.raises(InputError, match="has a shape but no values"):
        case_of(module, inputs)


def test_a_program_that_writes_into_its_inputs_is_refused() -> None:
    case = small(lambda x: x.add_(1).sum(), torch.zeros(3))
    with pytest.raises(InputError, match="writes into its inputs"):
        cut(case.program, dict.fromkeys(case.ops, 0))


def test_an_operator_that_no_module_registers_is_named() -> None:
    with pytest.raises(InputError, match=r"operator 'nowhere.nothing.default' is not registered"):
        Compiled(Code((), (Call("x", "torch.ops.nowhere.nothing.default", (), {}),), Ref("x")))


def test_modules_that_define_custom_operators_are_found() -> None:
    case = family("mixtral")
    stages = cut(case.program, dict.fromkeys(case.ops, 0))
    found = targets.defining_modules(stage.code for stage in stages)
    assert found == ["transformers.integrations.moe"]


# -- failures and comparison -------------------------------------------------------------------


def test_the_step_that_raised_is_known() -> None:
    case = case_of(*models.chain())
    function = Compiled(cut(case.program, dict.fromkeys(case.ops, 0))[0].code)
    stage = cut(case.program, CHAIN)[0]
    weights = case.values.weights.load(set(stage.weights.values()))
    values = [*weights.values(), *case.values.inputs.values()]
    wrong = [torch.ones(3), *values[1:]]
    with pytest.raises(RuntimeError) as caught:
        function(None, wrong)
    assert getattr(function.step_of(caught.value), "name", None) == "linear"


def test_a_rank_that_fails_ends_the_threads_that_wait_for_it() -> None:
    case = case_of(*models.chain())
    stages = cut(case.program, {**CHAIN, "relu": 1})
    with pytest.raises(KeyError):
        run_stages(stages, Values(case.values.weights, {}), timeout=20)


def test_a_rank_that_never_receives_says_what_it_waited_for() -> None:
    case = case_of(*models.chain())
    _, second = cut(case.program, {**CHAIN, "relu": 1})
    idle = cut(case.program, dict.fromkeys(case.ops, 1))[0]
    with pytest.raises(ChannelError, match=r"rank 1 waited 0.2 s for 'linear_1' from rank 0"):
        run_stages([idle, second], case.values, timeout=0.2)


def test_differences_are_measured_and_nans_in_the_same_place_are_equal() -> None:
    nan, inf = float("nan"), float("inf")
    a = torch.tensor([nan, inf, 1.0])
    assert max_abs_difference([a, 3], [a.clone(), 3]) == 0
    assert max_abs_difference([a], [torch.tensor([nan, inf, 1.25])]) == 0.25
    assert max_abs_difference([a], [torch.tensor([0.0, inf, 1.0])]) == inf
    assert max_abs_difference([torch.tensor([True])], [torch.tensor([False])]) == 1


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "gave 0 outputs instead of 1"),
        ([torch.ones(3)], r"output 0 is \(3,\) of torch.float32 instead of \(2,\)"),
        ([torch.ones(2, dtype=torch.int64)], "of torch.int64 instead of"),
        ([None], "output 0 is None instead of"),
    ],
)
def test_outputs_of_another_kind_are_an_error(found: list[Any], message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        max_abs_difference([torch.ones(2)], found)
