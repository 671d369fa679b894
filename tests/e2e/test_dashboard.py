"""The queries of the dashboards "vllm_overview" and "vLLM" (of prometheus_grafana), which vLLM publishes with its
examples: every series of them, by name, by the labels that their queries select or group by, and by the values that they
select."""

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
              "vllm:request_generation_tokens", "vllm:request_max_num_generation_tokens"]
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


# The boundaries of vLLM 0.33's families of histograms, and what is in each.
FAMILIES = [
    ([0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680],
     ["e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
      "request_prefill_time_seconds", "request_decode_time_seconds"]),
    ([0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560],
     ["time_to_first_token_seconds"]),
    ([0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80],
     ["inter_token_latency_seconds", "request_time_per_output_token_seconds"]),
    ([1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], ["iteration_tokens_total"]),
    ([1, 2, 5, 10, 20], ["request_params_n"]),
    ([1, 2, 3, 4, 5, 10, 20], ["request_num_preemptions"]),
    # Up to the model's 2048 tokens.
    ([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000],
     ["request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens",
      "request_params_max_tokens", "request_prefill_kv_computed_tokens"]),
]


@pytest.mark.parametrize("boundaries, names", FAMILIES)
def test_histograms_have_vllms_boundaries_and_labels(series, boundaries, names):
    for name in names:
        buckets = series[f"vllm:{name}_bucket"]
        assert [float(labels["le"]) for labels, _ in buckets] == [*boundaries, float("inf")], name
        assert all(labels.keys() == {"model_name", "engine", "le"} for labels, _ in buckets), name


# vLLM's other series, by the labels that they have beside the model's and the engine's.
SERIES = {
    **{name: {} for name in (
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "external_prefix_cache_queries_total", "external_prefix_cache_hits_total",
        "mm_cache_queries_total", "mm_cache_hits_total", "num_preemptions_total", "prompt_tokens_total",
        "prompt_tokens_cached_total", "prompt_tokens_recomputed_total", "generation_tokens_total")},
    "num_requests_waiting_by_reason": {"reason": {"capacity", "deferred"}},
    "engine_sleep_state": {"sleep_state": {"awake", "weights_offloaded", "discard_all"}},
    "prompt_tokens_by_source_total": {"source": {"local_compute", "local_cache_hit", "external_kv_transfer"}},
    "request_success_total": {"finished_reason": {"stop", "length", "abort", "error", "repetition"}},
}


def test_series_have_vllms_labels(series):
    for name, more in SERIES.items():
        found = [labels for labels, _ in series[f"vllm:{name}"]]
        assert all(labels.keys() == {"model_name", "engine", *more} for labels in found), name
        for label, values in more.items():
            assert {labels[label] for labels in found} == values, name
    rejected = [labels for labels, _ in series["vllm:admission_rejections_total"]]
    assert {"max_num_queued_reqs", "max_num_queued_tokens"} <= {labels["reason"] for labels in rejected}


def test_the_process_tells_of_itself(series):
    for name in ("process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds",
                 "process_cpu_seconds_total", "process_open_fds", "process_max_fds"):
        (((labels, value)),) = series[name]
        assert labels == {} and value > 0, name


def test_the_cache_is_described_as_vllm_does(series):
    (((labels, value)),) = series["vllm:cache_config_info"]
    assert value == 1
    assert int(labels["kv_cache_size_tokens"]) == int(labels["num_gpu_blocks"]) * int(labels["block_size"])
    assert float(labels["kv_cache_max_concurrency"]) > 0 and labels["enable_prefix_caching"] == "True"
    assert {"cache_dtype", "gpu_memory_utilization", "num_cpu_blocks", "sliding_window"} <= labels.keys()


def test_exchanges_are_told_by_status_and_handler(series):
    for name in ("http_requests_total", "http_request_size_bytes_count", "http_response_size_bytes_count",
                 "http_request_duration_highr_seconds_bucket", "http_request_duration_seconds_bucket"):
        assert series[name], name
    statuses = {labels["status"] for labels, _ in series["http_requests_total"]}
    assert {"2xx", "4xx"} <= statuses
    assert selected(series, "http_requests_total", handler="/v1/completions", status="2xx") == [2]
    for part in ("sum", "count"):
        assert selected(series, f"http_request_duration_seconds_{part}", handler="/v1/completions"), part
