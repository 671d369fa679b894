"""`pinion bench` on the real engine."""

import pytest

from conftest import WITH_CEILINGS


def test_bench_json_holds_its_contract(pinion_json):
    report = pinion_json("bench", "preset:tiny", "--prompt-len", "32", "--output-len", "8", "--json")
    for rate in ("prefill_tokens_per_s", "decode_tokens_per_s"):
        assert 0 < report[rate]["low"] <= report[rate]["median"] <= report[rate]["high"]
    assert report["load_s"] > 0 and report["peak_rss_bytes"] > 0 and report["threads"] >= 1
    assert isinstance(report["isa"], str) and report["config"]["model"] == "preset:tiny"


def test_bench_needs_no_lengths(pinion_json):
    """preset:tiny takes 512 tokens, and 64 of them are the answer."""
    report = pinion_json("bench", "preset:tiny", "--rounds", "1", "--json")
    assert (report["prompt_len"], report["output_len"]) == (448, 64)


def test_bench_times_texts_that_are_embedded(pinion, pinion_json, data):
    """An encoder's texts are prefill alone, beside the machine's limit for it."""
    flags = ["bench", data / "embedders/bert-mean", "--prompt-len", "64", "--batch", "4", "--rounds", "1"]
    report = pinion_json(*flags, "--json", env=WITH_CEILINGS)
    assert report["prefill_tokens_per_s"]["median"] > 0 and "decode_tokens_per_s" not in report
    assert report["limits"]["metrics"]["prefill_tokens_per_s"]["fraction"]["median"] > 0
    layers, hidden, mlp, tokens, texts = 3, 64, 128, 64, 4
    matrices = 4 * hidden * hidden + 2 * hidden * mlp
    scores = 2 * tokens * hidden  # each token attends to all: products with keys and with values
    assert report["limits"]["prefill"]["flops"] == 2 * texts * tokens * layers * (matrices + scores)
    assert report["output_len"] is None
    text = pinion(*flags).stdout
    assert "latency: 64 tokens in, an embedding or scores out, batch 4, 1 round" in text
    done = pinion("bench", data / "embedders/bert-reranker", "--prompt-len", "16", "--rounds", "1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", [("--output-len", "8"), ("--slo-ttft", "1s"), ("--slo-tpot", "1s"), ("--slo-e2el", "1s")])
def test_flags_of_answers_are_refused_for_texts_without(pinion, data, flags):
    done = pinion("bench", data / "embedders/bert-mean", *flags)
    assert done.returncode == 2 and f"{flags[0]} is for models that generate text" in done.stderr
    assert done.stdout == ""
