"""`vllm bench serve`, completions and chats, on a model with random weights; its requests that fail, and its end by Ctrl-C."""

import json
import signal
import subprocess

import pytest

from conftest import wait_until
from environment import HEAVY, abandoned, metric, model, python_environment, run  # noqa: F401: model is a fixture

pytestmark = HEAVY
FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB", "--max-model-len", "256", "--served-model-name", "tiny")
REQUESTS, INPUT, OUTPUT = 6, 16, 8
SPEED = 20  # tokens per second of the stand-in's
APIS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}


@pytest.fixture(scope="module")
def server(start_server, model):  # noqa: F811
    return start_server(model, *FLAGS)


def command(server, model, api, *, prompt=INPUT, output=OUTPUT):  # noqa: F811
    """The benchmark of two streams with a random dataset."""
    return [python_environment("vllm") / "vllm", "bench", "serve", "--backend", api, "--endpoint", APIS[api],
            "--base-url", server.url, "--model", "tiny", "--tokenizer", model, "--dataset-name", "random",
            "--random-input-len", prompt, "--random-output-len", output, "--num-prompts", REQUESTS,
            "--max-concurrency", 2, "--ignore-eos"]


def measured(server, model, folder, api, **load):  # noqa: F811
    """Its report of a load."""
    run(*command(server, model, api, **load), "--save-result", "--save-detailed", "--result-dir", folder,
        "--result-filename", "out.json")
    return json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("api", APIS)
def test_streams_are_timed_and_their_tokens_counted(server, model, tmp_path, api):  # noqa: F811
    names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total")
    before = {name: metric(server, name) for name in names}
    done = measured(server, model, tmp_path, api)
    prompts, answers, finished = (metric(server, name) - before[name] for name in names)
    assert (done["completed"], done["failed"]) == (REQUESTS, 0) and not any(done["errors"])
    assert finished == REQUESTS
    assert done["total_output_tokens"] == answers == REQUESTS * OUTPUT
    assert done["output_lens"] == [OUTPUT] * REQUESTS
    assert done["total_input_tokens"] == prompts >= REQUESTS * INPUT
    assert all(first > 0 for first in done["ttfts"])
    assert sum(len(gaps) > 0 for gaps in done["itls"]) == REQUESTS, "the tokens came one after the other"


@pytest.mark.parametrize("api", APIS)
def test_requests_that_are_refused_are_its_errors(server, model, tmp_path, api):  # noqa: F811
    done = measured(server, model, tmp_path, api, prompt=400)
    assert (done["completed"], done["failed"]) == (0, REQUESTS)
    assert all("Bad Request" in error for error in done["errors"])


def test_a_benchmark_that_is_interrupted_leaves_nothing_running(start_server, model):  # noqa: F811
    server = start_server(model, "--stand-in", SPEED, "--served-model-name", "tiny")
    words = [str(word) for word in command(server, model, "openai", output=10 * SPEED)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        try:
            assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 2)
            bench.send_signal(signal.SIGINT)
            assert bench.wait(60) != 0
        finally:
            bench.kill()
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert abandoned(server) == 2
