"""Requests that once stopped the server for everybody: each is answered, and others are served meanwhile.

No test here measures a time: a request that goes through beside an attack that is still under way is proof
enough.
"""

import concurrent.futures
import json
import urllib.error
import urllib.request

import pytest

FLAGS = ["--kv-cache-space", "64MiB", "--isa", "scalar", "-tp", "1"]


@pytest.fixture(scope="module")
def server(start_server, data):
    return start_server(data / "models" / "tiny-trained", *FLAGS, "--served-model-name", "tiny",
                        "--request-memory", "512MiB")


def post(server, path, body):
    """(status, text) of the answer."""
    request = urllib.request.Request(server.url + path, body.encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def many_keys():
    kwargs = {f"key{i}": i for i in range(200_000)}
    return "/v1/chat/completions", json.dumps(
        {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": kwargs,
         "max_tokens": 1}), (200, 400)


def biases_of_many_choices():
    return "/v1/completions", json.dumps(
        {"prompt": "hi", "n": 2048, "logit_bias": {str(i): 1 for i in range(100_000)}}), (400,)


def long_text():
    return "/tokenize", json.dumps({"prompt": "some words " * 2_700_000}), (413,)


def many_values():
    return "/v1/completions", '{"prompt":[0' + ",0" * 15_000_000 + "]}", (413,)


def long_stop_string():
    return "/v1/completions", json.dumps({"prompt": "hi", "stop": "x" * 4_000_000}), (400,)


@pytest.mark.parametrize("attack", [many_keys, biases_of_many_choices, long_text, many_values,
                                    long_stop_string], ids=lambda attack: attack.__name__)
def test_an_attack_is_answered_and_stops_nobody(server, attack):
    path, body, allowed = attack()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        attacking = pool.submit(post, server, path, body)
        while True:
            status, text = post(server, "/v1/completions",
                                json.dumps({"prompt": "Once", "max_tokens": 2}))
            assert status == 200, text
            assert json.loads(text)["usage"]["completion_tokens"] == 2
            if attacking.done():
                break
        status, text = attacking.result()
    assert status in allowed, text[:300]
    assert len(text) < 2000  # an error never repeats what was sent
    assert server.get("/metrics").count("pinion:request_memory_bytes") > 0


def test_all_memory_of_requests_is_given_back(server):
    for attack in (many_keys, many_values, long_text):
        path, body, _ = attack()
        post(server, path, body)
    used = [line for line in server.get("/metrics").splitlines()
            if line.startswith("pinion:request_memory_bytes")]
    assert [float(line.rsplit(" ", 1)[1]) for line in used] == [0]
