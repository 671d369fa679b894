"""Several engines behind one front end: serve --data-parallel-size."""

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import urllib.error
import urllib.request

import pytest
from conftest import wait_until
from process_tree import engines_of

MODEL = "tiny"  # trained, and in float32: what others compute beside it changes no token
LONG = "a b c d e f g h " * 12  # more than two blocks of 64 tokens
FLAGS = ("--kv-cache-space", "8MiB", "--dtype", "float32", "--served-model-name", MODEL)


@pytest.fixture(scope="module")
def two(start_server, data):
    return start_server(data / "models/tiny-trained", "--data-parallel-size", "2", "--enable-sleep-mode", "--enable-cache-reset",
                        *FLAGS)


@pytest.fixture(scope="module")
def one(start_server, data):
    return start_server(data / "models/tiny-trained", *FLAGS)


def complete(server, prompt, **more):
    return server.post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 8,
                                           "temperature": 0, **more})


def text(server, prompt, **more):
    return [choice["text"] for choice in complete(server, prompt, **more)["choices"]]


def post(server, path):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, b"", method="POST")) as reply:
        return reply.status


def replicas(server):
    return json.loads(server.get("/server_info"))["replicas"]


def metric(server, name):
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", server.get("/metrics"),
                                                    re.M))


def test_answers_are_those_of_one_engine(one, two):
    prompts = [f"{LONG} {i}" for i in range(6)] + ["x"]
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(lambda prompt: text(two, prompt), prompts)) == [text(one, p) for p in prompts]
    # Several prompts of one request, and several choices of one prompt.
    assert text(two, prompts) == text(one, prompts)
    several = {"n": 3, "temperature": 1, "seed": 7}
    assert text(two, LONG, **several) == text(one, LONG, **several)


def test_engines_of_stages_of_ranks_answer_as_one_engine(one, start_server, data):
    """Replicas x -pp x -tp: eight ranks, which may be more than there are CPUs."""
    split = start_server(data / "models/tiny-trained", "--data-parallel-size", "2", "-pp", "2", "-tp", "2",
                         "--threads-bind", "nobind", *FLAGS)
    assert [len(each["plan"]["ranks"]) for each in replicas(split)] == [4, 4]
    before = series(split, "vllm:generation_tokens_total")
    prompts = [f"{i} {LONG}" for i in range(7)]
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(lambda prompt: text(split, prompt), prompts)) == [text(one, p) for p in prompts]
    after = series(split, "vllm:generation_tokens_total")
    assert all(after[engine] > before.get(engine, 0) for engine in ("0", "1")), "both have answered"


def test_each_engine_has_cpus_and_a_cache_of_its_own(two):
    each = replicas(two)
    assert len(each) == len(engines_of(two)) == 2
    cpus = [{cpu for rank in one["plan"]["ranks"] for cpu in rank["cpus"]} for one in each]
    assert cpus[0] and cpus[1] and not cpus[0] & cpus[1]
    assert all(one["kv_cache"]["bytes"] > 0 for one in each)
    for pid, own in zip(engines_of(two), cpus):
        assert os.sched_getaffinity(pid) == own


def test_a_prefix_is_computed_once(two):
    """A conversation's next turn goes to the engine that has the turns before."""
    assert two.post("/reset_prefix_cache", {})["success"] is True
    hits = metric(two, "vllm:prefix_cache_hits_total")
    story = "z y x w v u t s " * 12
    for turn in range(6):
        usage = complete(two, story)["usage"]
        if turn:
            assert usage["prompt_tokens_details"]["cached_tokens"] > 0, turn
        story += f" and then {turn}"
    assert metric(two, "vllm:prefix_cache_hits_total") > hits


def test_both_engines_compute_at_once(two):
    before = metric(two, "vllm:generation_tokens_total")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: complete(two, f"{i} {LONG}", max_tokens=100, ignore_eos=True), range(8)))
    assert metric(two, "vllm:generation_tokens_total") == before + 800


def series(server, name):
    """{the engine's number: the sum of its series of this name}"""
    found = {}
    for labels, value in re.findall(rf"^{name}{{([^}}]*)}} (\S+)$", server.get("/metrics"), re.M):
        engine = re.search(r'\bengine="(\d+)"', labels)[1]
        found[engine] = found.get(engine, 0) + float(value)
    return found


def test_metrics_tell_the_engines_apart(two):
    names = ("vllm:generation_tokens_total", "vllm:request_success_total", "vllm:time_to_first_token_seconds_count",
             "vllm:e2e_request_latency_seconds_count", "vllm:prompt_tokens_total")
    before = {name: series(two, name) for name in names}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: complete(two, f"{i} {LONG}", max_tokens=50, ignore_eos=True), range(8)))
    grown = {name: {engine: value - before[name][engine] for engine, value in series(two, name).items()} for name in names}
    assert all(set(each) == {"0", "1"} and min(each.values()) > 0 for each in grown.values()), grown
    requests = grown["vllm:request_success_total"]
    assert sum(requests.values()) == 8
    assert grown["vllm:e2e_request_latency_seconds_count"] == grown["vllm:time_to_first_token_seconds_count"] == requests
    # A request's tokens and its end are counted for the same engine.
    assert grown["vllm:generation_tokens_total"] == {engine: 50 * count for engine, count in requests.items()}
    assert len(re.findall(r"^vllm:num_requests_running{", two.get("/metrics"), re.M)) == 2, "dashboards count engines so"
    assert series(two, "vllm:cache_config_info") == {"0": 1, "1": 1}


def test_a_dead_engine_costs_its_own_requests_alone(two):
    first, second = engines_of(two)
    restarts = metric(two, "pinion:engine_restarts_total")
    tokens = metric(two, "vllm:generation_tokens_total")

    def answer(i):
        try:
            return complete(two, f"{i} {LONG}", max_tokens=300, ignore_eos=True)["usage"]["completion_tokens"]
        except urllib.error.HTTPError as refused:
            return refused.code

    # Stopped first, so that it certainly has some that are not answered.
    os.kill(first, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(answer, i) for i in range(8)]
        assert wait_until(lambda: sum(one.done() for one in asked) >= 4), "those of the other one are answered"
        os.kill(first, signal.SIGKILL)
        found = [one.result() for one in asked]
    assert set(found) == {300, 503} and found.count(503) <= 4, found
    assert two.get("/health") == ""
    assert complete(two, LONG)["usage"]["completion_tokens"] == 8, "the other one answers meanwhile"
    assert metric(two, "pinion:engine_restarts_total") == restarts + 1
    assert wait_until(lambda: len(engines_of(two)) == 2 and len(replicas(two)) == 2)
    assert metric(two, "vllm:generation_tokens_total") >= tokens + 300 * found.count(300), "a total never shrinks"
    assert second in engines_of(two)


def test_a_client_that_leaves_frees_every_engine(two):
    """A request of several prompts is on both."""
    with contextlib.suppress(TimeoutError):
        two.post("/v1/completions", {"model": MODEL, "prompt": [f"{i} {LONG}" for i in range(4)], "n": 8,
                                     "max_tokens": 300, "ignore_eos": True}, timeout=0.05)
    assert wait_until(lambda: metric(two, "vllm:num_requests_running") == 0)
    assert complete(two, "x")["usage"]["completion_tokens"] == 8


def test_all_sleep_and_wake(two):
    two_before = engines_of(two)
    assert len(two_before) == 2
    assert post(two, "/sleep") == 200
    assert engines_of(two) == []
    with pytest.raises(urllib.error.HTTPError, match="503"):
        complete(two, "x")
    assert post(two, "/wake_up") == 200
    assert complete(two, "x")["usage"]["completion_tokens"] == 8
    assert wait_until(lambda: len(replicas(two)) == 2)
    assert not set(two_before) & set(engines_of(two))


@pytest.mark.parametrize("flags, says", [
    (("--data-parallel-size", "3"), "a CPU for each rank"),
    (("--data-parallel-size", "0"), "--data-parallel-size"),
    (("--data-parallel-size", "2", "--threads-bind", "0"), "ranks"),
    (("--data-parallel-size", "2", "--kv-cache-space", "900GiB"), "--data-parallel-size 2"),
])
def test_impossible_numbers_of_engines_are_refused(pinion, flags, says):
    done = pinion("serve", "preset:tiny", "--port", "0", *flags)
    assert done.returncode in (1, 2) and says in done.stderr and len(done.stderr.strip().splitlines()) == 1
