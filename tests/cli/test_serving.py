"""``plan --mix``: prefill and decode together, from the command line."""

from __future__ import annotations

import pytest

from tests.cli.running import run

GPT2 = "zoo:gpt2?layers=2"
MIX = ("--mix", "prompt=64,output=8")


def succeeded(found):
    assert found.code == 0, found.err
    return found


def test_json_says_what_a_request_takes_and_how_many_fit(tmp_path):
    path = tmp_path / "plan.json"
    found = succeeded(
        run("plan", GPT2, "-c", "2x3090", "-p", "heft", *MIX, "--json", "-o", path)
    ).json
    serving = found["serving"]
    whole = serving["seconds_to_first_token"] + 8 * serving["seconds_per_token"]
    assert found["value"] == serving["seconds_per_request"] == pytest.approx(whole)
    assert found["lower_bound"] <= found["value"]
    assert serving["tokens_per_second"] == pytest.approx(8 / found["value"])
    assert (serving["prompt"], serving["output"], serving["context"]) == (64, 8, 72)
    assert serving["cache_bytes"] == 2 * 2 * 768 * 72 * 2
    assert serving["sequences"] == min(
        each["sequences"] for each in serving["devices"] if each["sequences"] is not None
    )
    assert found["plan"] == str(path)
    assert succeeded(run("verify", path)).code == 0


def test_throughput_is_in_tokens_and_sequences_per_second():
    found = succeeded(
        run("plan", f"{GPT2}&batch=4", "-c", "2x3090", "-p", "ideal-dp", "--objective",
            "throughput", *MIX, "--json")
    ).json  # fmt: skip
    assert found["objective"] == "throughput"
    assert found["throughput"] == pytest.approx(4 / found["value"])
    assert found["serving"]["tokens_per_second"] == pytest.approx(32 / found["value"])


def test_the_terminal_shows_both_phases():
    text = succeeded(run("plan", GPT2, "-c", "2x3090", "-p", "heft", *MIX)).out
    for words in (
        "request",
        "64 tokens in, 8 out",
        "first token",
        "per token",
        "tokens per second",
        "1 sequence of 72 tokens",
        "fit beside the weights",
    ):
        assert words in text  # fmt: skip


def test_wide_shows_what_is_longer_than_a_piped_table(tmp_path):
    """With --wide a long name of a device stands in one line."""
    name, cluster = "gpu" * 60, tmp_path / "cluster.json"
    shown = run("cluster", "show", "2x3090", "--json").out
    cluster.write_text(shown.replace('"gpu0"', f'"{name}"'))
    asked = ("plan", GPT2, "-c", cluster, "-p", "heft", *MIX)
    assert name not in succeeded(run(*asked)).out
    assert name in succeeded(run(*asked, "--wide")).out


def test_a_plan_of_one_phase_says_how_many_sequences_fit():
    source = "zoo:gpt2?layers=2&phase=decode&context=128&batch=2"
    serving = succeeded(run("plan", source, "-c", "2x3090", "-p", "heft", "--json")).json["serving"]
    assert serving["cache_bytes"] == 2 * 2 * 2 * 768 * 128 * 2
    assert serving["sequences"] > 2
    text = succeeded(run("plan", source, "-c", "2x3090", "-p", "heft", "--wide")).out
    assert "for 2 sequences" in text and "fit beside the weights" in text


def test_a_plan_without_a_cache_says_nothing_of_it():
    found = succeeded(run("plan", GPT2, "-c", "2x3090", "-p", "heft", "--json")).json
    assert "serving" not in found


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--training",), "--mix is for inference"),
        (("--cost-noise", "0.1"), "leave it out, or --mix"),
        (("--memory", "peak"), "leave out --memory peak"),
        (("--objective", "batch-throughput"), "for objectives latency and throughput"),
    ],
)
def test_what_a_mix_cannot_have_is_refused(more, sentence):
    found = run("plan", GPT2, "-c", "2x3090", *MIX, *more)
    assert found.code == 2
    assert sentence in found.err


def test_compared_requests_say_how_many_sequences_fit():
    asked = ("compare", GPT2, "-c", "4090+3060", *MIX, "--planners", "heft,memory-fill")
    number = succeeded(run(*asked, "--json")).json[0]["serving"]["sequences"]
    assert f" {number} " in succeeded(run(*asked, "--wide")).out


def test_a_mix_of_a_file_is_refused(tmp_path):
    path = tmp_path / "model.json"
    path.write_text("{}", "utf-8")
    found = run("plan", path, "-c", "2x3090", *MIX)
    assert (found.code, "sources with phases" in found.err) == (2, True)


# -- engines -------------------------------------------------------------------------------------


def test_requests_for_an_engine_are_planned_saved_and_exported(tmp_path):
    path = tmp_path / "plan.json"
    mix = ("--mix", "prompt=64,output=8,batch=4")
    found = succeeded(
        run("plan", GPT2, "-c", "4090+3060", *mix, "--for", "vllm", "--json", "-o", path)
    ).json
    stages, serving = found["stages"], found["serving"]
    assert found["status"] == "optimal" and found["engine"] == "vllm"
    assert serving["batch"] == 4 * len(stages) <= serving["sequences"]
    assert found["unrestricted"]["bound"] <= found["value"]
    assert sum(each["layers"] for each in stages) == 2
    assert succeeded(run("verify", path)).code == 0
    exported = succeeded(run("export", path, "--to", "vllm", "-o", tmp_path / "vllm.json"))
    assert f"--max-num-seqs {4 * len(stages)} --max-model-len 72" in exported.out


def test_kinds_of_requests_have_a_line_and_a_record_each():
    mix = ("--mix", "prompt=64,output=8,share=3; prompt=16,output=32")
    asked = ("plan", GPT2, "-c", "4090+3060", *mix, "--for", "llama-cpp")
    assert "kinds of requests" in succeeded(run(*asked)).out
    serving = succeeded(run(*asked, "--json")).json["serving"]
    assert [kind["share"] for kind in serving["kinds"]] == [0.75, 0.25]
    assert (serving["prompt"], serving["output"], serving["context"]) == (52, 14, 72)
    mean = sum(kind["share"] * kind["seconds_per_request"] for kind in serving["kinds"])
    assert serving["seconds_per_request"] == pytest.approx(mean)


def test_the_table_of_batches_marks_the_best():
    mix = ("--mix", "prompt=64,output=8,batch=best")
    text = succeeded(run("plan", GPT2, "-c", "4090+3060", *mix, "--for", "sglang")).out
    assert "sequences of a batch" in text and " *" in text
    assert "sequences at once" in text and "sglang, stage 1" in text


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--mix", "prompt=64,output=8,batch=best"), "add --for ENGINE"),
        (("--mix", "prompt=64,output=8,batch=0"), "batch is 0"),
        (("--mix", "prompt=64,output=8,batch=most"), "batch is 'most'"),
        (("--mix", "prompt=8,output=8;prompt=64,output=8"), "add --for ENGINE"),
        (("--mix", "prompt=8,output=8,batch=2;prompt=8,output=9,batch=3"), "one batch"),
        (("--mix", "prompt=8,output=8,share=-1"), "share is -1"),
        (("--mix", "prompt=8,output=8,share=much"), "share is 'much'"),
        ((*MIX, "--for", "megatron"), "engines that serve language models"),
        ((*MIX, "--for", "vllm", "--training"), "--mix is for inference"),
    ],
)
def test_batches_and_engines_that_cannot_be_are_refused(more, sentence):
    found = run("plan", GPT2, "-c", "2x3090", *more)
    assert found.code == 2 and sentence in found.err


# -- compare -------------------------------------------------------------------------------------


def test_compare_of_a_mix_has_what_plan_has_of_each_planner(tmp_path):
    path = tmp_path / "best.json"
    asked = ("compare", GPT2, "-c", "2x3090", *MIX, "--planners", "memory-fill,greedy")
    result = succeeded(run(*asked))
    assert "first token" in result.out and "tokens/s" in result.out
    records = succeeded(run(*asked, "-o", path, "--json")).json
    assert [record["planner"] for record in records] == ["memory-fill", "greedy"]
    best = min(records, key=lambda record: record["value"])
    assert [record["plan"] for record in records if record is not best] == [None]
    assert best["plan"] == str(path)
    for record in records:
        alone = succeeded(
            run("plan", GPT2, "-c", "2x3090", *MIX, "-p", record["planner"], "--json")
        ).json
        assert record["value"] == alone["value"]
        assert record["serving"] == alone["serving"]
    assert succeeded(run("verify", path)).out


def test_compare_of_a_mix_says_who_finds_nothing():
    planners = ("--planners", "single-device,memory-fill")
    asked = ("compare", "zoo:llama-13b", "-c", "4090+3060", *MIX, *planners)
    result = succeeded(run(*asked))
    assert "single-device" in result.err
    one, two = succeeded(run(*asked, "--json")).json
    assert one["value"] is None and one["error"] and two["value"] > 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--training",), "--mix is for inference"),
        (("--granularity", "block"), "leave it out, or --mix"),
    ],
)
def test_what_a_comparison_of_a_mix_cannot_have_is_refused(more, sentence):
    found = run("compare", GPT2, "-c", "2x3090", *MIX, *more)
    assert found.code == 2 and sentence in found.err
