"""What the dashboard "vllm_overview" asks Prometheus for, which vLLM publishes with its examples: every series of it, by
name, by the labels that its queries select or group by, and by the values that they select."""

import re

import openai
import pytest

LINE = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

OF_MODEL = {"model_name": "tiny"}
SUMMED = [
    *({"vllm:request_success_total": {"finished_reason": reason}} for reason in ("stop", "length", "abort", "error")),
    {"vllm:prompt_tokens_total": {}}, {"vllm:generation_tokens_total": {}}, {"vllm:num_preemptions_total": {}},
    {"vllm:num_requests_running": {}}, {"vllm:num_requests_waiting": {}}, {"vllm:kv_cache_usage_perc": {}},
    *({"vllm:num_requests_waiting_by_reason": {"reason": reason}} for reason in ("capacity", "deferred")),
    *({f"vllm:{cache}_{what}_total": {}} for cache in ("prefix_cache", "external_prefix_cache", "mm_cache")
      for what in ("hits", "queries")),
    *({"vllm:prompt_tokens_by_source_total": {"source": source}}
      for source in ("local_compute", "local_cache_hit", "external_kv_transfer")),
    {"vllm:prompt_tokens_cached_total": {}}, {"vllm:prompt_tokens_recomputed_total": {}},
    *({"vllm:prompt_tokens_cached_by_source_total": {"source": source}}
      for source in ("device", "host", "p2p", "disk", "external_unspecified")),
]
HISTOGRAMS = ["vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
              "vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
              "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
              "vllm:request_decode_time_seconds", "vllm:iteration_tokens_total", "vllm:request_prompt_tokens",
              "vllm:request_generation_tokens"]
# The dashboard's limits for its shares of requests that were fast enough are boundaries of buckets.
BOUNDARIES = {"vllm:time_to_first_token_seconds": 0.5, "vllm:request_time_per_output_token_seconds": 0.1}


@pytest.fixture(scope="module")
def series(start_server, data):
    """{name: [(labels, value)]} after some requests."""
    server = start_server(data / "models" / "tiny-trained", "--dtype", "float32", "--kv-cache-space", "64MiB",
                          "--served-model-name", "tiny")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    for _ in range(2):
        client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=4)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt="", max_tokens=4, temperature=-1)
    found = {}
    for line in server.get("/metrics").splitlines():
        if match := LINE.match(line):
            found.setdefault(match[1], []).append((dict(LABEL.findall(match[2] or "")), float(match[3])))
    return found


def selected(series, name, **labels):
    return [value for own, value in series.get(name, []) if labels.items() <= own.items()]


def test_every_sum_has_its_series(series):
    for wanted in SUMMED:
        ((name, labels),) = wanted.items()
        assert selected(series, name, **OF_MODEL, **labels), (name, labels)
    assert sum(selected(series, "vllm:request_success_total", **OF_MODEL)) == 2
    assert len(selected(series, "vllm:num_requests_running", **OF_MODEL)) == 1, "it counts engines by this"


def test_every_histogram_has_buckets_a_sum_and_a_count(series):
    for name in HISTOGRAMS:
        buckets = {labels["le"]: value for labels, value in series[f"{name}_bucket"] if labels["model_name"] == "tiny"}
        (count,), (total,) = (selected(series, f"{name}_{part}", **OF_MODEL) for part in ("count", "sum"))
        assert count > 0 and total >= 0, name
        assert buckets["+Inf"] == count and len(buckets) > 5, name
    for name, limit in BOUNDARIES.items():
        assert limit in {float(labels["le"]) for labels, _ in series[f"{name}_bucket"]}, (name, limit)


def test_the_cache_is_described_as_vllm_does(series):
    (((labels, value)),) = series["vllm:cache_config_info"]
    assert value == 1
    assert int(labels["kv_cache_size_tokens"]) == int(labels["num_gpu_blocks"]) * int(labels["block_size"])
    assert float(labels["kv_cache_max_concurrency"]) > 0 and labels["enable_prefix_caching"] == "True"
    assert {"cache_dtype", "gpu_memory_utilization", "num_cpu_blocks", "sliding_window"} <= labels.keys()


def test_exchanges_are_told_by_status_and_handler(series):
    statuses = {labels["status"] for labels, _ in series["http_requests_total"]}
    assert {"2xx", "4xx"} <= statuses
    assert selected(series, "http_requests_total", handler="/v1/completions", status="2xx") == [2]
    for part in ("sum", "count"):
        assert selected(series, f"http_request_duration_seconds_{part}", handler="/v1/completions"), part
