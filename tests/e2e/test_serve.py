"""pinion serve, through the official OpenAI client and by its processes."""

import json
import os
import pathlib
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import httpx2
import openai
import pytest

from conftest import PATIENCE_S, wait_until
from process_tree import descendants_of, engine_of

FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB")


@pytest.fixture(scope="module")
def model(data):
    return data / "models" / "tiny-trained"


@pytest.fixture(scope="module")
def golden(model):
    return json.loads((model / "golden.json").read_text())


@pytest.fixture(scope="module")
def server(start_server, model):
    return start_server(model, *FLAGS, "--served-model-name", "tiny")


def client_of(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def client(server):
    return client_of(server)


def alive(pid):
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def metric(server, name):
    """The sum of a metric's values over its labels."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in server.get("/metrics").splitlines()
               if line.startswith(name))


def long_stream(server, sequences, tokens, **more):
    """An open stream whose first chunk has come."""
    stream = client_of(server).completions.create(
        model="tiny", prompt="Once", max_tokens=tokens, n=sequences, stream=True,
        extra_body={"ignore_eos": True}, **more)
    first = next(stream)
    assert first.choices
    return stream


def cpus_of_threads(pid):
    """The CPUs that each thread of a process may run on, by thread id."""
    found = {}
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        cpus = set()
        for part in fields["Cpus_allowed_list"].strip().split(","):
            first, _, last = part.partition("-")
            cpus |= set(range(int(first), int(last or first) + 1))
        found[int(status.parent.name)] = cpus
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be reserved of one")
def test_the_front_end_runs_on_its_reserved_cpus_alone(start_server, model):
    reserving = start_server(model, *FLAGS, "--reserved-cpus", "1", "--served-model-name", "tiny")
    client_of(reserving).completions.create(model="tiny", prompt="Once", max_tokens=2)
    threads = cpus_of_threads(reserving.process.pid)
    (reserved,) = {frozenset(cpus) for cpus in threads.values()}  # the same of every thread
    assert len(reserved) == 1
    assert reserved == set(json.loads(reserving.get("/server_info"))["plan"]["frontend_cpus"])
    for cpus in cpus_of_threads(engine_of(reserving)).values():
        assert cpus & reserved == set()


def test_completes_as_the_reference(client, golden):
    for case in golden["prompts"]:
        for prompt in (case["text"], case["input_ids"]):
            done = client.completions.create(model="tiny", prompt=prompt, temperature=0,
                                             max_tokens=len(case["greedy_ids"]))
            assert done.choices[0].text == case["greedy_text"]
            assert done.usage.prompt_tokens == len(case["input_ids"])


def test_streams_the_same_text(client, golden):
    case = golden["prompts"][0]
    chunks = list(client.completions.create(
        model="tiny", prompt=case["text"], temperature=0, max_tokens=len(case["greedy_ids"]),
        stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == case["greedy_text"]
    assert chunks[-1].usage.completion_tokens == len(case["greedy_ids"])
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in ("stop", "length")


def test_answers_a_list_of_prompts_in_order(client, golden):
    cases = golden["prompts"][:3]
    done = client.completions.create(model="tiny", prompt=[case["text"] for case in cases],
                                     temperature=0, max_tokens=8, n=2)
    assert [choice.index for choice in done.choices] == list(range(6))
    for i, choice in enumerate(done.choices):
        assert cases[i // 2]["greedy_text"].startswith(choice.text)


def test_chats(client, golden):
    for case in golden["chats"]:
        if case["messages"][-1]["role"] != "user":
            continue
        done = client.chat.completions.create(model="tiny", messages=case["messages"],
                                              temperature=0, max_completion_tokens=12)
        assert done.usage.prompt_tokens == len(case["input_ids"])
        assert done.choices[0].message.role == "assistant"
        chunks = list(client.chat.completions.create(
            model="tiny", messages=case["messages"], temperature=0, max_tokens=12, stream=True))
        assert chunks[0].choices[0].delta.role == "assistant"
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        assert text == done.choices[0].message.content


def test_logprobs_match_the_reference(client, golden):
    case = golden["prompts"][0]
    done = client.completions.create(model="tiny", prompt=case["input_ids"], temperature=0,
                                     max_tokens=3, logprobs=5)
    for ours, reference in zip(done.choices[0].logprobs.token_logprobs, case["top5_logprobs"]):
        assert ours == pytest.approx(reference[0][1], abs=1e-3)
    chat = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}],
                                          max_tokens=2, logprobs=True, top_logprobs=3)
    assert [len(token.top_logprobs) for token in chat.choices[0].logprobs.content] == [3, 3]


def test_rates_prompts_as_score_does(server, client, pinion, model, golden, tmp_path):
    cases = golden["prompts"][:3]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"input_ids": case["input_ids"]}) + "\n" for case in cases))
    scored = pinion("score", model, *FLAGS[:2], "--input", prompts, "--top-logprobs", 1)
    assert scored.returncode == 0, scored.stderr
    expected = [json.loads(line)["token_logprobs"] for line in scored.stdout.splitlines()]
    for max_tokens in (0, 1):  # 1: as lm-eval's loglikelihood tasks ask
        done = client.completions.create(
            model="tiny", prompt=[case["input_ids"] for case in cases], echo=True, logprobs=1,
            temperature=0, max_tokens=max_tokens, seed=1234)
        for choice, reference in zip(done.choices, expected, strict=True):
            found = choice.logprobs.token_logprobs
            assert found[0] is None and reference[0] is None
            assert len(found) == len(reference) + max_tokens
            assert found[1:len(reference)] == pytest.approx(reference[1:], abs=1e-4)
            for logprob, top in zip(found[1:], choice.logprobs.top_logprobs[1:], strict=True):
                assert logprob <= max(top.values())
    asked = client.completions.create(model="tiny", prompt=cases[0]["input_ids"], max_tokens=1,
                                      extra_body={"prompt_logprobs": 1})
    listed = asked.choices[0].prompt_logprobs
    assert listed[0] is None
    for token, position, reference in zip(cases[0]["input_ids"][1:], listed[1:], expected[0][1:], strict=True):
        assert position[str(token)]["logprob"] == pytest.approx(reference, abs=1e-4)


def test_seeds_choose_and_stop_strings_end(client):
    def sample(seed):
        return client.completions.create(model="tiny", prompt="The", temperature=1, max_tokens=24,
                                         seed=seed).choices[0].text

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(5)}) > 1
    whole = client.completions.create(model="tiny", prompt="The quick brown fox", temperature=0,
                                      max_tokens=24).choices[0].text
    cut = client.completions.create(model="tiny", prompt="The quick brown fox", temperature=0,
                                    max_tokens=24, stop="__all__")
    assert whole.startswith(cut.choices[0].text + "__all__")
    assert cut.choices[0].finish_reason == "stop"


def test_errors_are_the_clients_own(client):
    ask = client.completions.create
    with pytest.raises(openai.NotFoundError) as refused:
        ask(model="other", prompt="x")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        ask(model="tiny", prompt="x", temperature=-1)
    with pytest.raises(openai.BadRequestError) as refused:
        ask(model="tiny", prompt="x", max_tokens=10_000)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="response_format"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}],
                                       response_format={"type": "yaml"})


def test_reports_its_version_models_and_metrics(server, client, version):
    before = metric(server, "vllm:generation_tokens_total")
    client.completions.create(model="tiny", prompt="Once", max_tokens=3,
                              extra_body={"ignore_eos": True})
    assert metric(server, "vllm:generation_tokens_total") >= before + 3
    assert json.loads(server.get("/version")) == {"version": version}
    assert [entry.id for entry in client.models.list()] == ["tiny"]
    info = json.loads(server.get("/server_info"))
    assert info["dtype"] == "float32"
    assert info["plan"]["ranks"][0]["threads"] >= 1
    assert info["kv_cache"]["bytes"] == 64 << 20
    assert {stage["stage"] for stage in info["stages"]} >= {"load and pack", "warm-up"}
    assert info["placement"][0]["rank"] == 0
    assert sum(node["bytes"] for node in info["placement"][0]["weights"]) == info["weight_bytes"]
    assert set(info["placement"][0]["remote_share"]) == {"weights", "kv", "workspace"}
    assert info["allocator"] and "omp" in info["openmp"]


def test_topo_shows_the_pages_of_a_running_server(server, client, pinion, pinion_json):
    client.completions.create(model="tiny", prompt="Once", max_tokens=1)  # writes KV
    shown = pinion_json("topo", "--live", server.url, "--json")
    placed = json.loads(server.get("/server_info"))["placement"][0]
    assert shown["url"] == server.url and shown["model"].endswith("tiny-trained")
    [rank] = shown["engines"][0]["ranks"]
    assert (rank["rank"], rank["nodes"]) == (0, placed["nodes"])
    assert rank["weights"]["nodes"] == placed["weights"]
    for memory in ("weights", "kv", "workspace"):
        assert sum(node["pages"] for node in rank[memory]["nodes"]) > 0
        assert rank[memory]["remote_share"] == placed["remote_share"][memory]
    text = pinion("topo", "--live", server.url).stdout
    pages = placed["weights"][0]["pages"]
    assert "rank 0     planned on node" in text
    assert f"weights: {pages} page" in text and "% remote" in text


def test_topo_names_a_server_that_tells_no_placement(server, pinion):
    done = pinion("topo", "--live", f"{server.url}/nowhere")
    assert done.returncode == 1 and "/nowhere/server_info: HTTP 404" in done.stderr
    done = pinion("topo", "--live", server.url, "-tp", 2)
    assert done.returncode == 2 and "excludes --live" in done.stderr
    done = pinion("topo", "--api-key", "x")
    assert done.returncode == 2 and "--api-key requires --live" in done.stderr


def test_drops_cached_prefixes_on_demand(start_server, model):
    resetting = start_server(model, *FLAGS, "--served-model-name", "tiny", "--enable-cache-reset")

    def cached():
        done = client_of(resetting).completions.create(model="tiny", prompt="word " * 100, max_tokens=1)
        return done.usage.prompt_tokens_details.cached_tokens

    assert cached() == 0
    assert cached() > 0
    assert httpx2.post(f"{resetting.url}/reset_prefix_cache").json() == {"success": True}
    assert cached() == 0


def test_reuses_the_prefix_of_an_earlier_prompt(server, client):
    before = metric(server, "vllm:prefix_cache_hits_total")
    prompt = list(range(10, 110))
    for _ in range(2):
        client.completions.create(model="tiny", prompt=prompt, max_tokens=2)
    assert metric(server, "vllm:prefix_cache_hits_total") >= before + 64


def test_a_client_that_leaves_stops_its_sequences(server):
    before = metric(server, "vllm:generation_tokens_total")
    stream = long_stream(server, sequences=64, tokens=2000)
    stream.close()
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert metric(server, "vllm:generation_tokens_total") - before < 64 * 2000


def switches_of_sleepers(pids):
    """How often each thread of the processes has been switched away from, which stays the same only
    while it sleeps; None if one of them does not sleep."""
    found = {}
    for pid in pids:
        for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
            if not fields["State"].startswith("S"):
                return None
            found[pid, status.parent.name] = [count for name, count in fields.items()
                                              if name.endswith("voluntary_ctxt_switches")]
    return found


def test_idle_costs_nothing(server):
    """A thread that spins never sleeps, and one that polls is switched to again and again: a machine's
    load does neither to a thread that waits."""
    pids = [server.process.pid, *descendants_of(server.process.pid)]
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)

    def sleeps_without_waking():
        before = switches_of_sleepers(pids)
        time.sleep(1)
        return before is not None and before == switches_of_sleepers(pids)

    assert wait_until(sleeps_without_waking)


def test_sigterm_lets_live_requests_finish(start_server, model):
    server = start_server(model, *FLAGS, "--served-model-name", "tiny")
    stream = long_stream(server, sequences=4, tokens=200)
    server.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: not accepts(server.port))
    ends = [chunk.choices[0].finish_reason for chunk in stream if chunk.choices]
    assert ends.count("length") == 4
    assert server.process.wait(PATIENCE_S) == 0


def test_a_second_signal_ends_at_once(start_server, model):
    server = start_server(model, *FLAGS, "--served-model-name", "tiny")
    stream = long_stream(server, sequences=64, tokens=2000)
    children = descendants_of(server.process.pid)
    server.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: not accepts(server.port))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(25) == 0  # after one signal the requests would have 30 s
    assert wait_until(lambda: not any(map(alive, children)))
    with pytest.raises((openai.APIError, httpx2.TransportError)):  # it was far from its end
        for _ in stream:
            pass


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_killed_engine_fails_its_requests_and_ends_a_server_without_restarts(start_server, model):
    server = start_server(model, *FLAGS, "--served-model-name", "tiny", "--max-engine-restarts", 0)
    stream = long_stream(server, sequences=64, tokens=2000)
    children = descendants_of(server.process.pid)
    os.kill(engine_of(server), signal.SIGKILL)
    with pytest.raises(openai.APIError, match="ended unexpectedly"):
        for _ in stream:
            pass
    assert server.process.wait(PATIENCE_S) == 1
    assert "signal 9" in server.log.read_text()
    assert wait_until(lambda: not any(map(alive, children)))


def test_a_killed_front_end_leaves_nobody_behind(start_server, model):
    server = start_server(model, *FLAGS)
    children = descendants_of(server.process.pid)
    assert children
    server.process.kill()
    server.process.wait(PATIENCE_S)
    assert wait_until(lambda: not any(map(alive, children)))


def test_does_not_start_with_impossible_settings(pinion, server, model):
    taken = pinion("serve", model, *FLAGS, "--port", server.port)
    assert taken.returncode == 1
    assert f"127.0.0.1:{server.port}" in taken.stderr.splitlines()[-1]
    gpu = pinion("serve", model, "--gpu-memory-utilization", "0.9")
    assert gpu.returncode == 2
    assert "--gpu-memory-utilization" in gpu.stderr
    assert pinion("serve", model, "--port", "70000").returncode == 2
    too_much = pinion("serve", model, "--port", "0", "--kv-cache-space", "100000")
    assert too_much.returncode == 1
    assert "--kv-cache-space" in too_much.stderr.splitlines()[-1]


def test_many_clients_at_once_each_get_their_own_answer(server, golden):
    cases = golden["prompts"]
    wrong = []

    def ask(case):
        done = client_of(server).completions.create(
            model="tiny", prompt=case["text"], temperature=0, max_tokens=len(case["greedy_ids"]))
        if done.choices[0].text != case["greedy_text"]:
            wrong.append((case["text"], done.choices[0].text))

    threads = [threading.Thread(target=ask, args=(cases[i % len(cases)],)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_keeps_connections_and_survives_noise(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as noise:
        noise.sendall(os.urandom(4096))
        noise.shutdown(socket.SHUT_WR)
        while noise.recv(4096):
            pass
    request = urllib.request.Request(f"{server.url}/v1/completions", b"x" * (33 << 20))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 413
    assert server.get("/health") == ""
