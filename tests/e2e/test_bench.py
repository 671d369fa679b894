"""`pinion bench` on the real engine."""

import pytest


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
    report = pinion_json(*flags, "--json")
    limit = report["limits"]["metrics"]["prefill_tokens_per_s"]
    rate = report["prefill_tokens_per_s"]["median"]
    assert 0 < rate == pytest.approx(limit["limit"]["median"] * limit["fraction"]["median"])
    assert report["limits"]["prefill"]["flops"] > 0 and "decode_tokens_per_s" not in report
    text = pinion(*flags).stdout
    assert "latency: 64 tokens in, an embedding or scores out, batch 4, 1 round" in text
    done = pinion("bench", data / "embedders/bert-reranker", "--prompt-len", "16", "--rounds", "1")
    assert done.returncode == 0, done.stderr
