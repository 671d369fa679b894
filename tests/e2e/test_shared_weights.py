"""Engines of one server that read one copy of the packed weights (--share-weights)."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import time
import urllib.error
import urllib.request

import pytest
from conftest import PATIENCE_S, wait_until
from process_tree import engines_of

MODEL = "tiny"
FLAGS = ("--kv-cache-space", "8MiB", "--dtype", "float32", "--served-model-name", MODEL)
TWO = ("--data-parallel-size", "2", "--share-weights", "on", "--enable-sleep-mode")
PROMPTS = ["x", "a b c d e f g h " * 12, "once upon a time"]
# Made-up weights that take a second or more to pack.
LARGE = "preset:qwen2.5-0.5b@2"


@pytest.fixture(scope="module")
def trained(data):
    return data / "models/tiny-trained"


@pytest.fixture(scope="module")
def two(start_server, trained):
    return start_server(trained, *TWO, *FLAGS)


@pytest.fixture(scope="module")
def expected(start_server, trained):
    return answers(start_server(trained, *FLAGS))


def answers(server):
    body = {"model": MODEL, "prompt": PROMPTS, "max_tokens": 12, "temperature": 0}
    return [choice["text"] for choice in server.post("/v1/completions", body)["choices"]]


def answers_one_by_one(server):
    """In steps of their own: in bfloat16 the rest of a step may decide a near tie of made-up weights."""
    bodies = [{"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0} for prompt in PROMPTS]
    return [server.post("/v1/completions", body)["choices"][0]["text"] for body in bodies]


def post(server, path):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, b"", method="POST"), timeout=PATIENCE_S) as reply:
        return reply.status


def replicas(server):
    return json.loads(server.get("/server_info"))["replicas"]


def weights_of(pid):
    """(access, {"Rss": bytes, "Pss": bytes}) of each mapping of shared weights."""
    found = []
    text = pathlib.Path(f"/proc/{pid}/smaps").read_text()
    for access, body in re.findall(r"^\S+ (\S+) \S+ \S+ \d+ +/memfd:weights[^\n]*\n((?:\w+: .*\n)+)", text, re.M):
        found.append((access, {key: int(kib) << 10 for key, kib in re.findall(r"^(Rss|Pss): +(\d+) kB", body, re.M)}))
    return found


def private_bytes(pid):
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss_Anon: +(\d+) kB", rollup, re.M)[1]) << 10


def packed_here(server):
    return [one["shared_weights"]["packed_here"] for one in replicas(server)]


def test_answers_are_those_of_one_engine(two, expected):
    assert answers(two) == expected


def test_both_read_one_copy(two):
    info = replicas(two)
    size = info[0]["weight_bytes"]
    assert [one["weight_bytes"] for one in info] == [size, size]
    assert sorted(packed_here(two)) == [False, True]
    assert all(one["shared_weights"]["copy"] == 0 and one["shared_weights"]["engines"] == 2 for one in info)
    mapped = [weights_of(pid) for pid in engines_of(two)]
    assert all(access == "r--s" for each in mapped for access, _ in each), "nobody writes there any more"
    once = sum(memory["Pss"] for each in mapped for _, memory in each)
    assert size <= once < size + (1 << 16), "one copy, and no more than a few pages around it"
    assert all(sum(memory["Rss"] for _, memory in each) >= size for each in mapped), "each has it whole"
    for one in info:  # move_pages sees shared pages
        assert sum(node["bytes"] for node in one["placement"][0]["weights"]) == size


def test_topo_names_the_engine_whose_weights_are_shared(two, pinion):
    done = pinion("topo", "--live", two.url)
    assert done.returncode == 0 and "engine 1 · its weights are those of engine 0" in done.stdout, done.stderr


def test_a_killed_engine_maps_the_copy_that_is_there(two, expected):
    before = engines_of(two)
    os.kill(before[packed_here(two).index(True)], signal.SIGKILL)
    assert wait_until(lambda: len(engines_of(two)) == 2 and set(engines_of(two)) != set(before)
                      and packed_here(two) == [False, False]), "what it tells may be some seconds old"
    assert two.log.read_text().count("mapped: another engine has packed them") == 2
    assert answers(two) == expected, "its prompts are for both engines"


def test_an_engine_does_not_take_a_copy_of_another_checkpoint(start_server, trained, tmp_path, expected):
    folder = tmp_path / "model"
    shutil.copytree(trained, folder)
    server = start_server(folder, *TWO, *FLAGS)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1  # behind the first row of its tensor
    (tmp_path / "other").write_bytes(weights)
    os.replace(tmp_path / "other", folder / "model.safetensors")
    os.kill(engines_of(server)[0], signal.SIGKILL)
    assert wait_until(lambda: "was packed from another checkpoint or with other options" in server.log.read_text())
    assert answers(server) == expected, "the other engine goes on"


def test_an_engine_on_its_own_has_private_weights(start_server, trained, expected):
    apart = start_server(trained, "--data-parallel-size", "2", "--share-weights", "off", *FLAGS)
    assert [one["shared_weights"] for one in replicas(apart)] == [None, None]
    assert not any(weights_of(pid) for pid in engines_of(apart))
    assert answers(apart) == expected


def test_the_log_says_if_there_is_nobody_to_share_with(start_server, trained):
    alone = start_server(trained, "--share-weights", "on", *FLAGS)
    assert alone.log.read_text().count(
        "--share-weights on has no effect: there is one engine; --data-parallel-size N starts several") == 1


@pytest.fixture(scope="module")
def large(start_server):
    return start_server(LARGE, "--served-model-name", MODEL, "--kv-cache-space", "32MiB", "--max-model-len", "512",
                        "--max-num-batched-tokens", "128", *TWO)


def packing(server):
    """The engine process that is packing, or None."""
    for pid in engines_of(server):
        with contextlib.suppress(OSError):
            if any(access == "rw-s" for access, _ in weights_of(pid)):
                return pid
    return None


def who_packed(server):
    with contextlib.suppress(urllib.error.HTTPError):
        return sorted(packed_here(server))
    return []


def test_one_copy_saves_the_memory_of_the_other(large):
    size = replicas(large)[0]["weight_bytes"]
    assert size > 100 << 20
    for pid in engines_of(large):
        assert private_bytes(pid) < size / 2


def test_a_sleeping_server_has_no_weights_and_a_packer_that_dies_is_replaced(large):
    before = answers_one_by_one(large)
    assert post(large, "/sleep") == 200
    assert engines_of(large) == []
    link = next(path for path in pathlib.Path(f"/proc/{large.process.pid}/fd").iterdir()
                if "memfd:weights" in os.readlink(path))
    assert os.stat(link).st_blocks == 0, "the copy is given back"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        woken = pool.submit(post, large, "/wake_up")
        end = time.monotonic() + PATIENCE_S
        while (packer := packing(large)) is None:
            assert time.monotonic() < end
            time.sleep(0.005)
        os.kill(packer, signal.SIGKILL)
        assert woken.result() == 200
    assert wait_until(lambda: who_packed(large) == [False, True]), "what it tells may be some seconds old"
    assert answers_one_by_one(large) == before
