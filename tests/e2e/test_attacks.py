"""Requests that once stopped the server for everybody: each is answered, and others are served meanwhile.

No test here measures a time: the attacked server must go on beside one that nobody attacks (standstill.py).
`attacks.py --measure` shows the times.
"""

import asyncio
import os
import signal

import pytest

import attacks
import raw_client
import standstill
from attack_gaps import target_of
from conftest import wait_until
from process_tree import engine_of

FLAGS = ["--kv-cache-space", "64MiB", "--isa", "scalar", "-tp", "1"]
MAX_CONNECTIONS = 2500


def start(start_server, data):
    return start_server(data / "models" / "tiny-trained", *FLAGS, "--served-model-name", "tiny",
                        "--request-memory", "1GiB", "--max-connections", MAX_CONNECTIONS)


@pytest.fixture(scope="module")
def server(start_server, data):
    return start(start_server, data)


@pytest.fixture(scope="module")
def control(start_server, data):
    """One that nobody attacks."""
    return start(start_server, data)


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
def test_an_attack_is_answered_and_stops_nobody(server, control, name):
    raw_client.raise_descriptor_limit()
    attack = attacks.ATTACKS[name].against(target_of(server, MAX_CONNECTIONS))
    with standstill.Watch(server.port, control.port) as watch:
        answers = asyncio.run(attack())
    assert watch.verdict() == []
    assert attacks.check(name, answers) is None
    check_that_all_is_given_back(server)


@pytest.mark.parametrize("kind, process", [("answers of /health", lambda server: server.process.pid),
                                           ("parts of streams", engine_of)])
def test_a_standstill_is_noticed(server, control, kind, process):
    """Of either process: it is stopped for as long as the control needs to get further ahead than it ever was before, by
    a tenth of the limits."""
    limits = {one: most // 10 for one, most in standstill.MOST_MISSED.items()}
    with standstill.Watch(server.port, control.port, limits) as watch:
        assert wait_until(lambda: len(watch.answers) == 2 * len(standstill.KINDS))
        os.kill(process(server), signal.SIGSTOP)
        most_before = watch.most_missed[kind]
        try:
            assert wait_until(lambda: watch.missed[kind] > most_before + limits[kind])
        finally:
            os.kill(process(server), signal.SIGCONT)
    assert any(kind in sentence for sentence in watch.verdict())
