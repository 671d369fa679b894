"""GuideLLM's load, by three APIs, streamed and whole, on a model with random weights; its requests that fail, and those
that it gives up."""

import json

import pytest

from conftest import wait_until
from environment import HEAVY, metric, model, python_environment, run  # noqa: F401: model is a fixture

pytestmark = HEAVY
FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB", "--max-model-len", "256", "--served-model-name", "tiny")
REQUESTS, OUTPUT = 6, 8
SPEED = 20  # tokens per second of the stand-in's


@pytest.fixture(scope="module")
def server(start_server, model):
    return start_server(model, *FLAGS)


def measured(server, model, folder, *, prompt=16, output=OUTPUT, ends=f"max_requests,count={REQUESTS}", **backend):
    """GuideLLM's report of a load of two streams."""
    wishes = {"kind": "openai_http", "target": server.url, "model": "tiny", **backend}
    run(python_environment("guidellm") / "guidellm", "run", "--disable-console-interactive",
        "--backend", ",".join(f"{name}={value}" for name, value in wishes.items()),
        "--data", f"kind=synthetic_text,prompt_tokens={prompt},output_tokens={output}",
        "--tokenizer", f"kind=hf_auto,model={model}", "--profile", "kind=concurrent,streams=2",
        "--constraint", f"kind={ends}", "--output", f"kind=json,path={folder / 'out.json'}")
    (benchmark,) = json.loads((folder / "out.json").read_text())["benchmarks"]
    return benchmark["requests"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
def test_streams_are_timed_and_their_tokens_counted(server, model, tmp_path, path):
    before = metric(server, "vllm:generation_tokens_total")
    done = measured(server, model, tmp_path, request_format=path)
    assert len(done["successful"]) == REQUESTS and not done["errored"] and not done["incomplete"]
    for request in done["successful"]:
        assert json.loads(request["request_args"])["stream"] is True
        assert request["output_tokens"] == OUTPUT and request["prompt_tokens"] >= 16
        assert 0 < request["time_to_first_token_ms"] <= 1e3 * request["request_latency"]
        assert request["info"]["timings"]["token_iterations"] > 1, "the tokens came one after the other"
    assert metric(server, "vllm:generation_tokens_total") - before == REQUESTS * OUTPUT


def test_whole_answers_are_counted_too(server, model, tmp_path):
    done = measured(server, model, tmp_path, stream="false")
    assert [request["output_tokens"] for request in done["successful"]] == [OUTPUT] * REQUESTS
    assert not json.loads(done["successful"][0]["request_args"])["stream"]


def test_requests_that_are_refused_are_its_errors(server, model, tmp_path):
    done = measured(server, model, tmp_path, prompt=400)
    assert not done["successful"] and len(done["errored"]) == REQUESTS
    assert all("400" in request["info"]["error"] for request in done["errored"])


def test_requests_that_it_gives_up_end(start_server, model, tmp_path):
    server = start_server(model, "--stand-in", SPEED, "--served-model-name", "tiny")
    most = 10 * SPEED
    done = measured(server, model, tmp_path, output=most, ends="max_duration,seconds=2")
    assert not done["successful"] and not done["errored"] and len(done["incomplete"]) == 2
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert 0 < metric(server, "vllm:generation_tokens_total") < most
