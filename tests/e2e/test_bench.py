"""`pinion bench` on the real engine."""


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
