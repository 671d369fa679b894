"""Requests that once stopped the server for everybody: each is answered, and others are served meanwhile.

No test here measures a time: a request that goes through beside an attack that is still under way is proof
enough. `attacks.py --measure` shows the times.
"""

import asyncio
import concurrent.futures
import json
import urllib.error
import urllib.request

import pytest

import attacks
import raw_client
from attack_gaps import target_of
from conftest import wait_until

FLAGS = ["--kv-cache-space", "64MiB", "--isa", "scalar", "-tp", "1"]
MAX_CONNECTIONS = 2500


@pytest.fixture(scope="module")
def server(start_server, data):
    return start_server(data / "models" / "tiny-trained", *FLAGS, "--served-model-name", "tiny",
                        "--request-memory", "512MiB", "--max-connections", MAX_CONNECTIONS)


def post(server, path, body):
    """(status, text) of the answer."""
    request = urllib.request.Request(server.url + path, body.encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(server, name):
    lines = [line for line in server.get("/metrics").splitlines() if line.startswith(name + "{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def check_that_all_is_given_back(server):
    """The last of it goes when the server sees that a client has left."""
    for name, rest in (("pinion:request_memory_bytes", 0), ("vllm:num_requests_running", 0),
                       ("vllm:num_requests_waiting", 0), ("pinion:pool_queued", 0),
                       ("pinion:connections", 1)):  # the one that asks
        assert wait_until(lambda name=name, rest=rest: metric(server, name) == rest), \
            f"{name} stays {metric(server, name)}, want {rest}"


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_an_attack_is_answered_and_stops_nobody(server, name):
    raw_client.raise_descriptor_limit()
    attack = attacks.ATTACKS[name].against(target_of(server, MAX_CONNECTIONS))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        attacking = pool.submit(asyncio.run, attack())
        while True:
            status, text = post(server, "/v1/completions",
                                json.dumps({"prompt": "Once", "max_tokens": 2}))
            assert status == 200, text
            assert json.loads(text)["usage"]["completion_tokens"] == 2
            if attacking.done():
                break
        assert attacks.check(name, attacking.result()) is None
    check_that_all_is_given_back(server)
