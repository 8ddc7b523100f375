"""A plan by blocks: split ones are counted, devices say what they have."""

import numpy as np
import pytest

import placewright as pw
from placewright.plan import Placement
from placewright.report.blocks import block_record, block_words, device_blocks
from placewright.report.terminal import summary
from placewright.simulate import evaluate
from tests.cli.running import run


def split_at(op: int) -> pw.Plan:
    """GPT-2 with the ops from this one on on the second device."""
    plan = pw.plan("zoo:gpt2?layers=4", "2x3090", planner="single-device")
    problem = plan.problem
    free = object.__new__(pw.Problem)
    free.__dict__.update(problem.__dict__, colocation=np.full(problem.op_count, -1, np.int32))
    placement = Placement((np.arange(problem.op_count) >= op).astype(np.int32))
    outcome = evaluate(free, placement)
    return pw.Plan(free, placement, outcome, outcome.value, 0.0, "", "test")


def test_devices_say_which_stretches_of_blocks_they_have():
    plan = pw.plan("zoo:gpt2?layers=4", "2x3090", planner="single-device")
    assert device_blocks(plan) == ["embedding, blocks 0–3, lm_head", ""]
    assert block_record(plan) == {"blocks": {"count": 4, "split": 0}}
    assert "splits 0 of 4 blocks" in summary(plan)


def test_a_split_block_is_counted_and_both_devices_have_parts_of_it():
    names = pw.plan("zoo:gpt2?layers=4", "2x3090", planner="heft").problem.op_names
    plan = split_at(next(k for k, name in enumerate(names) if name.startswith("blocks.2.")) + 5)
    assert device_blocks(plan) == [
        "embedding, blocks 0–1, parts of blocks 2",
        "blocks 3, lm_head, parts of blocks 2",
    ]
    assert block_record(plan) == {"blocks": {"count": 4, "split": 1}}
    assert "splits 1 of 4 blocks: no engine runs this; --granularity block" in block_words(plan)


def test_a_model_without_known_blocks_has_no_words_about_them():
    plan = pw.plan("zoo:googlenet", "2x3090", planner="single-device")
    assert (block_words(plan), block_record(plan), device_blocks(plan)) == ("", {}, None)


@pytest.mark.parametrize("command", ["plan", "compare"])
def test_commands_take_a_granularity(command):
    planner = ["--planners", "heft"] if command == "compare" else ["-p", "heft"]
    found = run(command, "zoo:gpt2?layers=4", "-c", "2x3090", "--granularity", "block", "--json",
                *planner)  # fmt: skip
    record = found.json[0] if command == "compare" else found.json
    assert found.code == 0 and record["blocks"] == {"count": 4, "split": 0}


def test_a_granularity_of_a_mix_is_refused():
    found = run("plan", "zoo:gpt2", "-c", "2x3090", "--granularity", "block", "--mix",
                "prompt=8,output=8")  # fmt: skip
    assert found.code == 2 and "--granularity is for one run of a model" in found.err
