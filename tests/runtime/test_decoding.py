"""Greedy decoding by a placed model: the tokens of Transformers' own loop and of one process."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import placewright as pw  # noqa: E402
from placewright.errors import OptionError  # noqa: E402
from placewright.importers.torch.graph import fold  # noqa: E402
from placewright.importers.torch.programs import Executable  # noqa: E402
from placewright.importers.torch.sources import from_hf  # noqa: E402
from placewright.runtime import RunOptions, RunReport, run_plan  # noqa: E402
from placewright.runtime.decoding import Decoding, prepared, with_tokens  # noqa: E402
from placewright.runtime.execution import Assignment, load, run_assignments  # noqa: E402
from placewright.runtime.stages.cutting import cut  # noqa: E402
from placewright.runtime.values import Values  # noqa: E402
from tests.cli.running import run  # noqa: E402
from tests.runtime.models import DECODER  # noqa: E402

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("temporary")]

WORDS = {"vocab_size": 96, "bos_token_id": 5, "eos_token_id": None, "pad_token_id": 1}
FAMILIES = {
    "GPT2Config": {"n_embd": 32, "n_layer": 2, "n_head": 2},
    "LlamaConfig": DECODER,
    "MixtralConfig": {**DECODER, "num_local_experts": 4},
    "MistralConfig": {**DECODER, "sliding_window": 6},
}
PROMPT = (7, 3, 90, 11, 4)
LOCAL = RunOptions(launcher="local", threads=1, decoding=Decoding(32, [PROMPT]))


@cache
def model_of(family: str) -> Any:
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    # Wide enough that the tokens are not all the same.
    settings = {**FAMILIES[family], **WORDS, "initializer_range": 0.3}
    config = getattr(transformers, family)(**settings)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(scope="module")
def source_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Writes the files of a model, and names it as a source."""
    folder = tmp_path_factory.mktemp("models")

    def source(family: str, query: str = "context=40") -> str:
        if not (folder / family).exists():
            model_of(family).save_pretrained(folder / family)
        return f"hf:{folder / family}?phase=generate&{query}"

    return source


def generated(family: str, prompt: Any = PROMPT, tokens: int = 32) -> tuple[int, ...]:
    """What Transformers' own greedy loop makes."""
    ids = torch.tensor([prompt])
    found = model_of(family).generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens
    )
    return tuple(found[0, len(prompt) :].tolist())


@cache
def loaded(source: str, weights: str | None = None) -> tuple[Executable, Values]:
    return load(source, RunOptions(weights=weights), training=False)


def placed(
    source: str, ranks: int, seeds: range = range(1), options: RunOptions = LOCAL
) -> list[RunReport]:
    """The source run on random placements."""
    program, values = loaded(source, options.weights)
    options, values = prepared(program, values, options)
    ops = sorted({op for op in fold(program.module.graph).values() if op is not None})
    draws = [random.Random(seed) for seed in seeds]
    placements = [Assignment({op: draw.randrange(ranks) for op in ops}) for draw in draws]
    reports = run_assignments(program, values, placements, ranks, options=options)
    return [with_tokens(report, values, options) for report in reports]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_any_placement_makes_the_tokens_of_transformers(
    family: str, ranks: int, source_of: Any
) -> None:
    source, expected = source_of(family), generated(family)
    assert len(set(expected)) > 3
    for report in placed(source, ranks, range(4)):
        assert report.tokens == (expected,)
        assert report.same_tokens is True
        assert report.max_abs_difference <= 1e-4
        assert len(report.results) == len(PROMPT) + 31


def test_a_planned_placement_on_processes_makes_the_tokens_of_transformers(
    source_of: Any,
) -> None:
    source = source_of("LlamaConfig")
    cluster = pw.load_cluster("2x3090")
    plan = pw.plan(source, cluster, planner="m-topo")
    assert len(set(plan.placement.device.tolist())) == 2
    report = run_plan(plan, replace(LOCAL, launcher="processes"))
    assert report.tokens == (generated("LlamaConfig"),)
    document = report.to_document()
    assert document["tokens"] == report.tokens
    assert document["same_tokens"] is True
    assert document["tokens_per_second"] == pytest.approx(1 / report.call_seconds)
    assert document["predicted_tokens_per_second"] == pytest.approx(1 / plan.value)


def test_sequences_of_a_batch_have_prompts_of_their_own(source_of: Any) -> None:
    prompts = [PROMPT, (50, 60)]
    options = replace(LOCAL, decoding=Decoding(20, prompts))
    (report,) = placed(source_of("LlamaConfig", "context=40&batch=2"), 2, options=options)
    assert report.tokens == tuple(generated("LlamaConfig", each, 20) for each in prompts)
    assert report.same_tokens is True


def test_without_a_prompt_decoding_begins_with_the_models_own_token(source_of: Any) -> None:
    options = replace(LOCAL, decoding=Decoding(4))
    (report,) = placed(source_of("GPT2Config"), 2, options=options)
    assert report.tokens == (generated("GPT2Config", (5,), 4),)


def test_one_token_is_made_too(source_of: Any) -> None:
    options = replace(LOCAL, decoding=Decoding(1, [(9,)]))
    (report,) = placed(source_of("GPT2Config", "context=2"), 2, options=options)
    assert report.tokens == (generated("GPT2Config", (9,), 1),)


def test_fresh_weights_begin_with_an_empty_cache() -> None:
    source = "hf:gpt2?n_embd=32&n_layer=1&n_head=2&vocab_size=50&phase=generate&context=16"
    (report,) = placed(source, 2, options=replace(LOCAL, weights="fresh", decoding=Decoding(8)))
    assert report.same_tokens is True
    assert len(report.tokens[0]) == 8


# -- what is planned with ----------------------------------------------------------------------

SMALL = (
    "llama?"
    + "&".join(f"{key}={value}" for key, value in DECODER.items())
    + "&vocab_size=96&head_dim=8"
)
CACHE_OF_A_TOKEN = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, head size, fp32: bytes


def test_the_cache_is_state_and_no_weight() -> None:
    made = from_hf(f"{SMALL}&phase=generate&context=24&batch=3")
    decode = from_hf(f"{SMALL}&phase=decode&context=24&batch=3")
    assert made.op_state_bytes.sum() == 3 * 24 * CACHE_OF_A_TOKEN
    tokens = 8 + 3 * 8  # the position, and each sequence's token
    assert made.op_parameter_bytes.sum() == decode.op_parameter_bytes.sum() + tokens
    assert made.op_flops.sum() == decode.op_flops.sum()
    assert (made.attributes["phase"], made.attributes["context"]) == ("generate", 24)
    plan = pw.plan(f"hf:{SMALL}&phase=generate&context=24&batch=3", "2x3090", planner="met")
    assert plan.problem.op_cache.sum() == 3 * 24 * CACHE_OF_A_TOKEN


def test_appending_moves_the_new_token_and_not_the_cache() -> None:
    made = from_hf(f"{SMALL}&phase=generate&context=24")
    holders = made.op_state_bytes.nonzero()[0].tolist()
    assert len(holders) == 4
    for op in holders:
        position = 8
        assert made.op_bytes_written[op] == made.op_state_bytes[op] / 24 + position


def test_layers_are_not_held_together_by_the_position() -> None:
    made = from_hf(f"{SMALL}&phase=generate&context=24")
    holders = made.op_state_bytes.nonzero()[0]
    assert (made.colocation[holders] == -1).all()


def test_the_cache_is_written_where_it_is(source_of: Any) -> None:
    program, _ = loaded(source_of("LlamaConfig"))
    owner = fold(program.module.graph)
    (stage,) = cut(program, {op: 0 for op in owner.values() if op is not None})
    assert stage.written == ("state.cache0", "state.cache1", "state.cache2", "state.cache3")
    targets = [call.target for call in stage.calls]
    assert targets.count("torch.ops.aten.index_copy_.default") == 4
    assert "torch.ops.aten.index_copy.default" not in targets


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decoding", "sentence"),
    [
        (Decoding(36, [PROMPT]), "a prompt of 5 and 36 new tokens are 41, and context=40 has no"),
        (Decoding(0), "tokens is 0; it must be at least 1"),
        (Decoding(4, [()]), "a prompt is empty; give token ids"),
        (Decoding(4, [(96,)]), "the prompt has token 96, and the model has tokens 0 to 95"),
        (Decoding(4, [(1,), (2,)]), "2 prompts are given for a batch of 1; give one"),
    ],
)
def test_tokens_that_cannot_be_made_are_refused(
    decoding: Decoding, sentence: str, source_of: Any
) -> None:
    with pytest.raises(OptionError, match=re.escape(sentence)):
        placed(source_of("GPT2Config"), 1, options=replace(LOCAL, decoding=decoding))


def test_a_program_that_makes_no_tokens_is_refused() -> None:
    with pytest.raises(OptionError, match="makes no tokens; plan hf:CONFIG\\?phase=generate"):
        placed("torch:tests.runtime.models:chain", 1)


def test_calls_do_not_run_past_the_context(source_of: Any) -> None:
    source = source_of("GPT2Config", "context=8")
    with pytest.raises(OptionError, match="9 calls make 9 tokens, and context=8 has no room"):
        placed(source, 1, options=replace(LOCAL, decoding=None))
    (report,) = placed(source, 1, options=replace(LOCAL, decoding=None, repeats=4))
    assert report.tokens == ()


def test_a_context_without_room_for_a_token_is_refused() -> None:
    with pytest.raises(OptionError, match="generate needs room for a prompt and a token"):
        from_hf(f"{SMALL}&phase=generate&context=1")


# -- on the command line -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def plan_file(source_of: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("plans") / "plan.json"
    pw.plan(source_of("GPT2Config"), "2x3090", planner="m-topo").save(path)
    return path


def test_the_command_prints_tokens_beside_what_was_predicted(plan_file: Path) -> None:
    made = run("run", plan_file, "--tokens", 6, "--prompt", "7,3,90,11,4", "--launcher", "local")
    assert made.code == 0, made.err
    expected = " ".join(map(str, generated("GPT2Config", PROMPT, 6)))
    words = " ".join(made.out.replace("│", " ").split())
    assert f"tokens {expected}" in words
    assert "same tokens as one process yes" in words
    assert re.search(r"tokens per second [\d.e+]+ \(predicted [\d.e+]+\)", words)


def test_the_command_writes_tokens_as_json(plan_file: Path) -> None:
    arguments = ("--tokens", 6, "--prompt", "7, 3", "--launcher", "local", "--json")
    found = run("run", plan_file, *arguments).json
    assert found["tokens"] == [list(generated("GPT2Config", (7, 3), 6))]
    assert found["same_tokens"] is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--prompt", "1,2"), "--prompt is what tokens are made after; add --tokens"),
        (("--tokens", 4, "--prompt", "one"), "--prompt is 'one'; give token ids, as in 1,2,3"),
        (("--tokens", 4, "--prompt", ""), "--prompt is ''; give token ids, as in 1,2,3"),
        (("--tokens", 40), "a prompt of 1 and 40 new tokens are 41, and context=40 has no room"),
    ],
)
def test_the_command_refuses_what_it_cannot_make(
    arguments: tuple[Any, ...], sentence: str, plan_file: Path
) -> None:
    made = run("run", plan_file, "--launcher", "local", *arguments)
    assert made.code == 2
    assert sentence in " ".join(made.err.split())
