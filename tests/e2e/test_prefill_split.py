"""Servers and engines that share work: some compute prompts, the others go on with their keys and values."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess

import pytest
from conftest import free_port, wait_until
from gguf_files import write_gguf

MODEL = "tiny"  # trained, and in float32: what others compute beside it changes no token
LONG = "a b c d e f g h " * 24  # several blocks
FLAGS = ("--kv-cache-space", "8MiB", "--dtype", "float32", "--served-model-name", MODEL, "--block-size", "16")


def complete(server, prompt, **more):
    return server.post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0, **more})


def text(server, prompt, **more):
    return [choice["text"] for choice in complete(server, prompt, **more)["choices"]]


def info(server):
    return json.loads(server.get("/server_info"))


def metric(server, name, engine=None, more=""):
    """The sum of a metric over all engines, or that of one; `more`: a label that is to be there."""
    found = re.findall(rf"^{name}(?:{{([^}}]*)}})? (\S+)$", server.get("/metrics"), re.M)
    wanted = "" if engine is None else f'engine="{engine}"'
    return sum(float(value) for labels, value in found if wanted in labels and more in labels)


def roles(server):
    """{role: what the engine that has it tells}; /server_info is a few seconds old, its engines are in no order."""
    told = info(server)
    return {one["prefill"]["role"]: one["prefill"] for one in told.get("replicas", [told])}


def is_up(server):
    """Whether the engine that answers has found the one that computes prompts."""
    return roles(server)["decode"]["prompts_from"][0]["up"]


@pytest.fixture(scope="module")
def model(data):
    return data / "models/tiny-trained"


@pytest.fixture(scope="module")
def one(start_server, model):
    return start_server(model, *FLAGS)


@pytest.fixture(scope="module")
def group(start_server, model):
    server = start_server(model, "--data-parallel-size", 2, "--prefill-replicas", 1, *FLAGS)
    assert wait_until(lambda: is_up(server))
    return server


@pytest.fixture(scope="module")
def pair(start_server, model):
    """A server that has its prompts computed, and the one that computes them, by TCP."""
    port = free_port()
    decode = start_server(model, "--role", "decode", "--prefill-from", f"127.0.0.1:{port}", *FLAGS)
    prefill = start_server(model, "--role", "prefill", "--prefill-listen", f"127.0.0.1:{port}", *FLAGS)
    assert wait_until(lambda: is_up(decode))
    return decode, prefill


def prompts(word):
    return [f"{word} {i} {LONG}" for i in range(6)] + ["x"]


def all_texts(server, all_prompts):
    with concurrent.futures.ThreadPoolExecutor(len(all_prompts)) as pool:
        return list(pool.map(lambda prompt: text(server, prompt), all_prompts))


def test_answers_are_those_of_one_engine(one, group):
    asked = prompts("group")
    assert all_texts(group, asked) == [text(one, prompt) for prompt in asked]
    assert text(group, asked) == text(one, asked)
    several = {"n": 3, "temperature": 1, "seed": 7}
    assert text(group, "group " + LONG, **several) == text(one, "group " + LONG, **several)


def test_one_engine_computes_the_prompts_and_the_other_answers(group):
    taken = metric(group, "vllm:prompt_tokens_by_source_total", 1, 'source="external_kv_transfer"')
    handed = metric(group, "pinion:transfer_tokens_total", 1)
    yielded = [metric(group, "vllm:generation_tokens_total", engine) for engine in (0, 1)]
    computed = metric(group, "vllm:prompt_tokens_by_source_total", 0, 'source="local_compute"')
    usage = complete(group, "roles " + LONG)["usage"]
    assert usage.get("prompt_tokens_details", {}).get("cached_tokens", 0) == 0, "nobody had it before"
    assert metric(group, "pinion:transfer_tokens_total", 1) - handed >= usage["prompt_tokens"] - 32
    assert metric(group, "vllm:prompt_tokens_by_source_total", 0, 'source="local_compute"') - computed >= usage["prompt_tokens"] - 32
    assert metric(group, "vllm:prompt_tokens_by_source_total", 1, 'source="external_kv_transfer"') - taken >= usage[
        "prompt_tokens"] - 32
    cached = metric(group, "vllm:prompt_tokens_cached_total", 1)
    assert cached == sum(metric(group, "vllm:prompt_tokens_by_source_total", 1, f'source="{source}"')
                         for source in ("local_cache_hit", "external_kv_transfer"))
    assert cached == metric(group, "vllm:prompt_tokens_cached_by_source_total", 1)
    after = [metric(group, "vllm:generation_tokens_total", engine) for engine in (0, 1)]
    assert after == [yielded[0], yielded[1] + usage["completion_tokens"]]
    assert metric(group, "pinion:transfer_failed_prompts_total") == 0
    again = complete(group, "roles " + LONG)["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 32


def test_the_server_tells_the_roles(group):
    assert wait_until(lambda: roles(group)["prefill"]["engines"] == 1)
    told = roles(group)
    assert told["decode"]["prompts_from"] == [{"address": told["prefill"]["listens"], "up": True}]


def process_for_prompts(server):
    children = subprocess.run(["pgrep", "-P", str(server.process.pid), "-f", "engine-worker"], capture_output=True,
                              text=True).stdout
    with_role, = (pid for pid in map(int, children.split())
                  if b'"role":"prefill"' in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    return with_role


def test_without_the_engine_for_prompts_the_others_compute_them(one, start_server, model):
    server = start_server(model, "--data-parallel-size", 2, "--prefill-replicas", 1, *FLAGS)
    assert wait_until(lambda: is_up(server))
    asked = prompts("killed")
    expected = [text(one, prompt) for prompt in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        answers = [pool.submit(text, server, prompt) for prompt in asked]
        os.kill(process_for_prompts(server), signal.SIGKILL)
        assert [answer.result() for answer in answers] == expected
    # And goes on with it once it is there again.
    orders = metric(server, "pinion:transfer_prompts_total", 1)

    def is_ordered_again(numbers=iter(range(10**6))):
        prompt = f"restarted {next(numbers)} {LONG}"
        assert text(server, prompt) == text(one, prompt)
        return metric(server, "pinion:transfer_prompts_total", 1) > orders

    assert wait_until(is_ordered_again)


def test_its_folder_of_sockets_goes_with_the_server(binary, model, tmp_path, start_server):
    server = start_server(model, "--data-parallel-size", 2, "--prefill-replicas", 1, *FLAGS, env={"TMPDIR": str(tmp_path)})
    folder, = tmp_path.glob("pinion-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    server.stop()
    assert not folder.exists()


def test_servers_on_different_hosts_answer_as_one(one, pair):
    decode, prefill = pair
    asked = prompts("pair")
    assert all_texts(decode, asked) == [text(one, prompt) for prompt in asked]
    taken = metric(decode, "pinion:transfer_tokens_total", more='direction="taken"')
    assert taken == metric(prefill, "pinion:transfer_tokens_total", more='direction="given"') > 0
    # The server for prompts is a whole server, too.
    for more in ({}, {"use_beam_search": True, "n": 2}):
        assert text(prefill, "pair " + LONG, **more) == text(one, "pair " + LONG, **more)


def processes_of(server):
    """The server and its engine."""
    children = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True).stdout
    return [server.process.pid, *map(int, children.split())]


def test_prompts_of_a_stopped_engine_are_computed_here_until_it_goes_on(one, start_server, model):
    """A process that is stopped keeps its connections: only its silence tells."""
    port = free_port()
    decode = start_server(model, "--role", "decode", "--prefill-from", f"127.0.0.1:{port}", *FLAGS)
    prefill = start_server(model, "--role", "prefill", "--prefill-listen", f"127.0.0.1:{port}", *FLAGS)
    assert wait_until(lambda: is_up(decode))
    asked = prompts("stopped")
    expected = [text(one, prompt) for prompt in asked]
    stopped = processes_of(prefill)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert all_texts(decode, asked) == expected
        assert wait_until(lambda: not is_up(decode))
        assert "no sign of life" in decode.log.read_text()
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    orders = metric(decode, "pinion:transfer_prompts_total")

    def is_ordered_again(numbers=iter(range(10**6))):
        prompt = f"goes on {next(numbers)} {LONG}"
        assert text(decode, prompt) == text(one, prompt)
        return metric(decode, "pinion:transfer_prompts_total") > orders

    assert wait_until(is_ordered_again)


def test_a_salt_keeps_handed_over_prefixes_apart(pair):
    decode, _ = pair
    first = complete(decode, "salted " + LONG, cache_salt="a")["usage"]
    other = complete(decode, "salted " + LONG, cache_salt="b")["usage"]
    same = complete(decode, "salted " + LONG, cache_salt="a")["usage"]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in (first, other, same)]
    assert cached[0] == cached[1] == 0 < cached[2]


def test_strangers_at_the_port_for_prompts_are_sent_away(pair, one):
    decode, prefill = pair
    host, port = info(prefill)["prefill"]["listens"].rsplit(":", 1)
    for said in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\x00" * 64):
        with socket.create_connection((host, int(port)), 10) as stranger:
            stranger.settimeout(15)
            with contextlib.suppress(ConnectionError):  # a reset is as good as an end
                stranger.sendall(said)
                assert stranger.recv(64) == b""
    assert text(decode, "strangers " + LONG) == text(one, "strangers " + LONG)


def test_a_server_of_another_model_is_refused_with_both_values(start_server, model):
    port = free_port()
    start_server(model, "--role", "prefill", "--prefill-listen", f"127.0.0.1:{port}", *FLAGS, "--kv-cache-dtype", "int8")
    decode = start_server(model, "--role", "decode", "--prefill-from", f"127.0.0.1:{port}", *FLAGS)
    assert wait_until(lambda: "differ" in info(decode)["prefill"]["prompts_from"][0]["reason"])
    assert "--kv-cache-dtype is int8 in the one that computes prompts and float32" in info(decode)["prefill"][
        "prompts_from"][0]["reason"]
    assert text(decode, LONG), "it computes its prompts itself"


def test_a_file_that_says_otherwise_how_its_weights_are_used_is_refused(start_server, data, tmp_path):
    """The files differ in a number of their headers alone."""
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    write_gguf(data, "llama4", one)
    key = b"llama4.rope.freq_base"
    written = bytearray(one.read_bytes())
    at = written.index(key) + len(key) + 4  # behind the value's type
    written[at:at + 4] = struct.pack("<f", 2 * struct.unpack_from("<f", written, at)[0])
    other.write_bytes(written)
    port = free_port()
    start_server(one, "--role", "prefill", "--prefill-listen", f"127.0.0.1:{port}", *FLAGS)
    decode = start_server(other, "--role", "decode", "--prefill-from", f"127.0.0.1:{port}", *FLAGS)

    def peer():
        return info(decode)["prefill"]["prompts_from"][0]

    assert wait_until(lambda: "differ" in peer().get("reason", "differ: it is up"))
    assert "config.json is" in peer().get("reason", "it is up")


@pytest.mark.parametrize("flags, said", [
    (("--role", "prefill"), "--role prefill wants --prefill-listen HOST:PORT"),
    (("--role", "decode"), "--role decode wants --prefill-from HOST:PORT"),
    (("--role", "both"), "--role"),
    (("--prefill-listen", "127.0.0.1:1"), "--prefill-listen is for --role prefill"),
    (("--prefill-from", "127.0.0.1:1"), "--prefill-from is for --role decode"),
    (("--role", "prefill", "--prefill-listen", "nowhere"), "--prefill-listen 'nowhere' has no port"),
    (("--role", "decode", "--prefill-from", "a:1,b"), "--prefill-from 'b' has no port"),
    (("--role", "prefill", "--prefill-listen", "127.0.0.1:0", "--data-parallel-size", 2), "--data-parallel-size"),
    (("--prefill-replicas", 1), "--prefill-replicas is 1 of 1 engine"),
    (("--prefill-replicas", 2, "--data-parallel-size", 2), "want fewer than all"),
    (("--prefill-replicas", 1, "--data-parallel-size", 2, "--no-enable-prefix-caching"), "prefix cache"),
    (("--role", "decode", "--prefill-from", "h:1", "--no-enable-prefix-caching"), "--no-enable-prefix-caching"),
    (("--prefill-replicas", 1, "--data-parallel-size", 2, "--role", "decode", "--prefill-from", "h:1"), "use one of them"),
    (("--role", "prefill", "--prefill-listen", "203.0.113.1:9"), "cannot listen on 203.0.113.1:9"),
])
def test_impossible_settings_are_refused_in_a_sentence(binary, model, flags, said):
    ended = subprocess.run([binary, "serve", model, "--port", "0", *map(str, flags)], capture_output=True, text=True,
                           timeout=120)
    assert ended.returncode != 0
    last = ended.stderr.strip().splitlines()[-1]
    assert said in ended.stderr and len(last) < 400, ended.stderr
