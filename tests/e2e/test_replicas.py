"""Several servers of one configuration behind one load: swept, lost, launched."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import jsonschema
import pytest
from conftest import PATIENCE_S, running, wait_until

FIXED = pathlib.Path(__file__).with_name("fixed_server.py")
TTFT_MS, ITL_MS, OUTPUT = 30, 5, 8

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2,
                                reason="two replicas need two CPUs")


def trials(out):
    with sqlite3.connect(out / "results.db") as database:
        return [(candidate, bool(ok), reason, log_tail, json.loads(info) if info else {})
                for candidate, ok, reason, log_tail, info in database.execute(
                    "select candidate, ok, reason, log_tail, info from trial")]


def values(out, metric, concurrency, candidate):
    with sqlite3.connect(out / "results.db") as database:
        return [row[0] for row in database.execute(
            "select value from samples where metric=? and concurrency=? and candidate=?",
            (metric, concurrency, candidate))]


def define(tmp_path, **changes):
    definition = {
        "axes": {},
        "workload": {"prompt_len": 16, "output_len": OUTPUT, "concurrency": [1, 4],
                     "num_prompts": 8},
        "objectives": ["throughput"],
        # A budget of which one pair of the calibration fills its tenth.
        "rounds": 1, "budget": "60s", "seed": 3, "trial_limit": 20,
        **changes,
    }
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(definition))
    return path


def test_one_and_two_replicas_of_the_real_engine(pinion, tmp_path, top):
    out = tmp_path / "out"
    done = pinion("sweep", "preset:tiny", "--def", define(tmp_path), "--replicas", "1,2",
                  "--threads-bind", "auto", "--out", out, timeout=280)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    assert [(one["label"], one["status"]) for one in results["candidates"]] == [
        ("default", "ok"), ("replicas=2", "ok")]
    infos = {candidate: info for candidate, _, _, _, info in trials(out)}
    assert (infos[0]["replicas"], infos[1]["replicas"]) == (1, 2)
    # Both over HTTP, on the same CPUs, which two replicas divide.
    assert {infos[0]["engine"], infos[1]["engine"]} == {"pinion"}
    plans = [infos[candidate]["plan"]["ranks"] for candidate in (0, 1)]
    assert len(plans[1]) == 2
    assert sorted(plans[0][0]["cpus"]) == sorted(cpu for rank in plans[1] for cpu in rank["cpus"])
    assert infos[1]["weight_bytes"] == 2 * infos[0]["weight_bytes"]
    assert infos[1]["isa"] == infos[0]["isa"]
    # The servers' own counters, and memory of all.
    assert values(out, "preemptions", 4, 1) and values(out, "prefix_hit_share", 4, 1)
    assert min(values(out, "peak_rss_bytes", 0, 1)) > 1.3 * max(values(out, "peak_rss_bytes", 0, 0))
    assert min(values(out, "output_tokens_per_s", 0, 1)) > 0
    logs = sorted(path.name for path in (out / "logs").glob("*candidate1*"))
    assert [name for name in logs if name.endswith("-replica2.log")]
    one = next((out / "logs").glob("*candidate1.log")).read_text()
    assert "2 replicas, each with" in one and "of KV space per rank" in one
    assert "goes to the replica with the fewest requests in flight" in (out / "report.html").read_text()
    profile = json.loads((out / "profiles" / "throughput.json").read_text())
    jsonschema.validate(profile, json.loads((top / "profiles" / "profile.schema.json").read_text()))
    assert not running("serve", "preset:tiny")


def test_memory_is_that_of_the_engine_process_too(pinion, tmp_path):
    out = tmp_path / "out"
    definition = define(tmp_path, workload={"prompt_len": 8, "output_len": 2, "concurrency": [],
                                            "num_prompts": 2}, budget="10s")
    done = pinion("sweep", "preset:opt-125m", "--def", definition, "--kv-cache-space", "16MiB",
                  "--out", out, timeout=280)
    assert done.returncode == 0, done.stderr
    weights = {info["weight_bytes"] for *_, info in trials(out)}
    assert min(values(out, "peak_rss_bytes", 0, 0)) > max(weights) > 200e6


def test_a_chat_never_asks_for_more_than_the_context_holds(pinion, tmp_path):
    """preset:tiny takes 512 tokens; 4 turns of a chat come to some 1,400."""
    out = tmp_path / "out"
    definition = define(tmp_path, workload={"name": "chat", "turns": 4, "concurrency": [2],
                                            "num_prompts": 6})
    done = pinion("sweep", "preset:tiny", "--def", definition, "--replicas", "1,2", "--out", out,
                  timeout=280)
    assert done.returncode == 0, done.stderr
    assert all(ok for _, ok, *_ in trials(out)), trials(out)
    with sqlite3.connect(out / "results.db") as database:
        for (suspect,) in database.execute("select suspect from trial"):
            assert "failed" not in suspect


def fixed(log, *flags):
    return {"engine": "command",
            "command": [sys.executable, str(FIXED), "--port", "{port}", "--ttft-ms", str(TTFT_MS),
                        "--itl-ms", str(ITL_MS), "--log", str(log / "{port}.log"), *flags]}


def test_two_servers_with_one_place_each_share_the_load(pinion, tmp_path):
    """Servers of known times: what two of them give at most, and that both get their share."""
    out, answers = tmp_path / "out", tmp_path / "answers"
    answers.mkdir()
    definition = define(tmp_path, engines=[fixed(answers, "--slots", "1")], axes={"replicas": [1, 2]})
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=280)
    assert done.returncode == 0, done.stderr
    # Whatever disturbs them, it makes nothing faster than the places allow. (One client occupies one
    # of them, on either server.)
    one_by_one = OUTPUT / (TTFT_MS + (OUTPUT - 1) * ITL_MS) * 1e3 * (1 + 1e-9)
    assert max(values(out, "output_tokens_per_s", 4, 0)) <= one_by_one
    assert max(values(out, "output_tokens_per_s", 4, 1)) <= 2 * one_by_one
    assert max(values(out, "output_tokens_per_s", 1, 1)) <= one_by_one
    infos = [info for candidate, *_, info in trials(out) if candidate == 1]
    for info in infos:
        assert info["command"].count("--port") == 2
        assert "--port 8001" in info["command"] and "--port 8002" in info["command"]
    # Servers of the trials with two: as many requests each, but for those that asked about tokens
    # and the odd one of each phase; and at the same time, so that half of the clients of the whole
    # batch are connected to either.
    logs = sorted(([json.loads(line) for line in path.read_text().splitlines()]
                   for path in answers.iterdir()), key=len)
    assert len(logs) == 2 * len(infos) + sum(1 for candidate, *_ in trials(out) if candidate == 0)
    pairs = logs[:2 * len(infos)]
    assert len(pairs[-1]) - len(pairs[0]) <= 8
    most_at_once = [max(one["connections"] for one in log) for log in logs]
    assert set(most_at_once[:len(pairs)]) == {4} and set(most_at_once[len(pairs):]) == {8}
    assert not running(FIXED)


def test_a_conversation_stays_with_its_replica(pinion, tmp_path):
    out, answers = tmp_path / "out", tmp_path / "answers"
    answers.mkdir()
    definition = define(tmp_path, engines=[fixed(answers)], axes={"replicas": [1, 2]},
                        workload={"prompt_len": 16, "output_len": 2, "turns": 3,
                                  "concurrency": [3], "num_prompts": 7})
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=280)
    assert done.returncode == 0, done.stderr
    asked = [[json.loads(line)["asked"] for line in path.read_text().splitlines()]
             for path in answers.iterdir()]
    two = sorted(asked, key=len)[:2]  # of the trial that had two servers
    firsts = [set(texts) for texts in two]
    assert not firsts[0] & firsts[1]
    for texts, first in zip(two, firsts):
        turns = [texts.count(one) for one in first]
        assert max(turns) == 3


def test_a_replica_that_is_killed_fails_its_trial_by_name(pinion, tmp_path):
    out, answers = tmp_path / "out", tmp_path / "answers"
    answers.mkdir()
    definition = define(tmp_path, engines=[fixed(answers)], axes={"replicas": [1, 2]})
    stop = threading.Event()

    def kill_one_of_two():
        while not stop.wait(0.02):
            if len(servers := running(FIXED)) != 2:
                continue
            ports = {server: pathlib.Path(f"/proc/{server}/cmdline") for server in servers}
            for server, line in ports.items():
                try:
                    words = line.read_bytes().split(b"\0")
                except OSError:
                    continue
                port = words[words.index(b"--port") + 1].decode()
                log = answers / f"{port}.log"
                if log.exists() and log.read_text().count("\n") > 3:  # it is under load
                    os.kill(server, signal.SIGKILL)
                    break

    killer = threading.Thread(target=kill_one_of_two)
    killer.start()
    try:
        done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=280)
    finally:
        stop.set()
        killer.join()
    assert done.returncode == 0, done.stderr
    failed = [(reason, tail) for candidate, ok, reason, tail, _ in trials(out)
              if candidate == 1 and not ok]
    assert failed
    for reason, tail in failed:
        assert reason.startswith("replica ") and reason.endswith(
            "of 2 was ended by signal 9 (Killed) under load")
        assert "fixed server on port" in tail  # the end of that replica's own log
    assert all(ok for candidate, ok, *_ in trials(out) if candidate == 0)
    assert not running(FIXED)


def test_settings_that_do_not_divide_are_left_out_with_the_reason(pinion, tmp_path):
    out = tmp_path / "out"
    many = len(os.sched_getaffinity(0)) + 1
    definition = define(tmp_path, engines=[fixed(tmp_path)], rounds=1,
                        workload={"prompt_len": 8, "output_len": 2, "concurrency": [1],
                                  "num_prompts": 2},
                        candidates=[{"replicas": many}, {"replicas": 2, "threads_bind": "0"}])
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=120)
    assert done.returncode == 0, done.stderr
    reasons = [one["reason"] for one in json.loads((out / "results.json").read_text())["candidates"]]
    assert f"{many} replicas of 1 rank cannot have a CPU for each rank" in reasons[1]
    assert "has 1 list for 2 ranks" in reasons[2]
    done = pinion("sweep", "some/model", "--replicas", "0", "--out", tmp_path / "none")
    assert done.returncode == 2 and "--replicas" in done.stderr


@pytest.fixture
def profile(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({
        "format": 2, "objective": "throughput", "model": "preset:tiny",
        "configuration": {"max_num_seqs": 8, "kv_cache_space": 0.1, "replicas": 2},
        "machine": {}, "cpus": []}))
    return file


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def three_ports():
    """The first of three free ports in a row, below those that systems assign."""
    while True:
        first = random.randrange(20000, 30000)
        try:
            for port in range(first, first + 3):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            pass  # in use


@pytest.fixture
def launched(binary, profile, tmp_path):
    """A launch of both replicas, ready: (process, ports, log)."""
    port = three_ports()
    log = tmp_path / "launch.log"
    with open(log, "wb") as output:
        process = subprocess.Popen([str(binary), "launch", str(profile), "--port", str(port)],
                                   stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT)
    ports = [port + 1, port + 2]
    try:
        assert wait_until(lambda: all(answers(one) for one in ports)), log.read_text()
        yield process, ports, log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert wait_until(lambda: not any(running("serve", "--port", one) for one in ports))


def test_launch_starts_all_and_ends_all(launched):
    process, ports, log = launched
    for port in ports:
        body = json.dumps({"model": "preset:tiny", "prompt": "a", "max_tokens": 3,
                           "ignore_eos": True}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert json.loads(reply.read())["usage"]["completion_tokens"] == 3
    assert "`pinion launch --haproxy` prints" in log.read_text()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert not any(answers(port) for port in ports)


def test_launch_ends_when_a_replica_does(launched):
    process, ports, log = launched
    os.kill(running("serve", "--port", ports[1])[0], signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 1
    assert "pinion: replica 2 of 2 was ended by signal 9 (Killed)" in log.read_text()
    assert not any(answers(port) for port in ports)


def test_launch_that_is_killed_leaves_no_replica(launched):
    process, ports, _ = launched
    process.kill()
    process.wait()
    assert wait_until(lambda: not any(running("serve", "--port", port) for port in ports))


def test_dry_run_has_a_line_a_replica(pinion, profile):
    done = pinion("launch", profile, "--dry-run", "--port", 9000)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" ")[:2] for line in lines] == [["taskset", "-c"]] * 2
    assert "--port 9001" in lines[0] and "--port 9002" in lines[1]
    plan = json.loads(pinion("launch", profile, "--dry-run", "--json").stdout)
    assert [len(one["cpus"]) > 0 for one in plan["replicas"]] == [True, True]


def test_haproxy_configuration(pinion, profile, tmp_path):
    done = pinion("launch", profile, "--haproxy", "--host", "0.0.0.0", "--port", 9000)
    assert done.returncode == 0, done.stderr
    assert "bind 0.0.0.0:9000" in done.stdout and "127.0.0.1:9002" in done.stdout
    one = tmp_path / "one.json"
    single = json.loads(profile.read_text())
    single["configuration"]["replicas"] = 1
    one.write_text(json.dumps(single))
    refused = pinion("launch", one, "--haproxy")
    assert refused.returncode == 2 and "leave out --haproxy" in refused.stderr
    if shutil.which("haproxy"):
        configuration = tmp_path / "haproxy.cfg"
        configuration.write_text(done.stdout)
        checked = subprocess.run(["haproxy", "-c", "-f", str(configuration)], capture_output=True,
                                 text=True)
        assert checked.returncode == 0, checked.stderr
