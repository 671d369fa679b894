"""AIPerf's load, by all APIs that both know, streamed where they stream; its requests that fail, and those that it
gives up. Its own counts of tokens are not looked at: it counts the text anew, and random weights write broken UTF-8."""

import concurrent.futures
import json
import pathlib

import pytest

from conftest import wait_until
from environment import HEAVY, metric, model, python_environment, run  # noqa: F401: model is a fixture
from test_embed import golden_of

pytestmark = HEAVY
FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB", "--served-model-name", "tiny")
REQUESTS, OUTPUT = 6, 8
SPEED = 20  # tokens per second of the stand-in's
WORKERS = 4  # of the server, by default
BY_API = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses",
          "messages": "/v1/messages"}


@pytest.fixture(scope="module")
def server(start_server, model):
    return start_server(model, *FLAGS, "--enable-cache-reset")


def measured(server, model, folder, api, *flags, expected=0):
    """AIPerf's summary of a load of two streams, and its record of each request."""
    run(python_environment("aiperf") / "aiperf", "profile", "--model", "tiny", "--tokenizer", model, "--ui", "none",
        "--url", server.url, "--endpoint-type", api, "--concurrency", 2, "--request-count", REQUESTS, "--isl", 16,
        "--num-dataset-entries", REQUESTS, "--no-gpu-telemetry", "--output-artifact-dir", folder / "out", *flags,
        expected=expected, HF_HUB_OFFLINE="")  # which would refuse a tokenizer's folder
    summary = folder / "out/profile_export_aiperf.json"  # unless all failed
    lines = (folder / "out/profile_export.jsonl").read_text().splitlines()
    return json.loads(summary.read_text()) if summary.exists() else None, [json.loads(line) for line in lines]


def answered(server, path):
    """The successful exchanges of a path."""
    lines = [line for line in server.get("/metrics").splitlines() if line.startswith("http_requests_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if f'handler="{path}"' in line and '"2xx"' in line)


@pytest.mark.parametrize("api", BY_API)
def test_streams_are_timed_and_their_tokens_counted(server, model, tmp_path, api):
    before, answers = metric(server, "vllm:generation_tokens_total"), answered(server, BY_API[api])
    summary, records = measured(server, model, tmp_path, api, "--streaming", "--osl", OUTPUT, "--extra-inputs",
                                "ignore_eos:true", "--reset-kv-cache")
    assert summary["request_count"]["avg"] == len(records) == REQUESTS and "error_request_count" not in summary
    for record in records:
        metrics = {name: metric["value"] for name, metric in record["metrics"].items()}
        if api != "responses":  # whose usage it looks for in answers that were not cut
            assert metrics["usage_completion_tokens"] == OUTPUT and metrics["usage_prompt_tokens"] > 0
        assert 0 < metrics["time_to_first_token"] <= metrics["request_latency"]
    assert metric(server, "vllm:generation_tokens_total") - before == REQUESTS * OUTPUT
    assert answered(server, BY_API[api]) - answers == REQUESTS


def test_whole_answers_are_counted_too(server, model, tmp_path):
    summary, records = measured(server, model, tmp_path, "chat", "--osl", OUTPUT, "--extra-inputs", "ignore_eos:true",
                                "--use-server-token-count")
    assert summary["output_sequence_length"]["avg"] == OUTPUT and len(records) == REQUESTS


def test_requests_that_are_refused_are_its_errors(server, model, tmp_path):
    summary, records = measured(server, model, tmp_path, "chat", "--streaming", "--osl", 4096, expected=1)
    assert summary is None and len(records) == REQUESTS
    assert {record["error"]["code"] for record in records} == {400}
    assert all("max_completion_tokens" in record["error"]["message"] for record in records)


def chat_helpers(server):
    """How many processes of a server are there to render templates."""
    count = 0
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            count += int(parent) == server.process.pid and b"chat-helper" in (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
    return count


def start_chat_helpers(server):
    """Each worker starts its helper before its first chat, which takes seconds on a busy machine."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}

    def all_run():
        with concurrent.futures.ThreadPoolExecutor(2 * WORKERS) as pool:
            list(pool.map(lambda _: server.post("/v1/chat/completions", body), range(2 * WORKERS)))
        return chat_helpers(server) == WORKERS
    assert wait_until(all_run)


def test_requests_that_it_gives_up_end(start_server, model, tmp_path):
    server = start_server(model, "--stand-in", SPEED, "--served-model-name", "tiny")
    most = 20 * SPEED
    start_chat_helpers(server)
    before = metric(server, "vllm:generation_tokens_total")
    _, records = measured(server, model, tmp_path, "chat", "--streaming", "--osl", most, "--request-cancellation-rate",
                          100, "--request-cancellation-delay", 5, expected=1)
    assert len(records) == REQUESTS and all(record["metadata"]["was_cancelled"] for record in records)
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert 0 < metric(server, "vllm:generation_tokens_total") - before < REQUESTS * most


@pytest.mark.parametrize("api", ["embeddings", "cohere-rankings"])
def test_texts_are_embedded_and_ranked(start_server, data, tmp_path, api):
    folder, _ = golden_of(data, "qwen3-embedding")
    server = start_server(folder, *FLAGS)
    summary, records = measured(server, folder, tmp_path, api)
    assert summary["request_count"]["avg"] == len(records) == REQUESTS
    assert summary["request_latency"]["avg"] > 0
