"""Several engines of one configuration behind one front end: swept, lost, launched."""

import json
import os
import pathlib
import re
import shlex
import signal
import sqlite3
import stat
import threading
import urllib.error
import urllib.request

import jsonschema
import pytest
from conftest import PATIENCE_S, running, wait_until
from process_tree import children_of

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
        "workload": {"prompt_len": 16, "output_len": 8, "concurrency": [1, 4], "num_prompts": 8},
        "objectives": ["throughput"],
        "rounds": 1, "budget": "10m", "seed": 3, "trial_limit": 20,
        **changes,
    }
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(definition))
    return path


@pytest.fixture(scope="module")
def swept(pinion, binary, tmp_path_factory):
    """(folder, command lines of the trials' servers) of a sweep of one engine and two."""
    folder = tmp_path_factory.mktemp("replicas")
    told = folder / "told"
    recorder = folder / "recorder"
    recorder.write_text(f'#!/bin/sh\necho "$*" >> {shlex.quote(str(told))}\n'
                        f'exec {shlex.quote(str(binary))} "$@"\n')
    recorder.chmod(recorder.stat().st_mode | stat.S_IXUSR)
    done = pinion("sweep", "preset:tiny", "--def",
                  define(folder, engines=[{"engine": "pinion", "binary": str(recorder)}]),
                  "--replicas", "1,2", "--threads-bind", "auto", "--out", folder / "out", timeout=280)
    assert done.returncode == 0, done.stderr
    return folder / "out", told.read_text().splitlines()


def test_one_and_two_engines_are_measured(swept, top):
    out, _ = swept
    results = json.loads((out / "results.json").read_text())
    assert [(one["label"], one["status"]) for one in results["candidates"]] == [
        ("default", "ok"), ("replicas=2", "ok")]
    infos = {candidate: info for candidate, _, _, _, info in trials(out)}
    assert (infos[0]["replicas"], infos[1]["replicas"]) == (1, 2)
    # On the same CPUs, which two engines divide.
    plans = [infos[candidate]["plan"]["ranks"] for candidate in (0, 1)]
    assert len(plans[1]) == 2
    assert sorted(plans[0][0]["cpus"]) == sorted(cpu for rank in plans[1] for cpu in rank["cpus"])
    assert infos[1]["weight_bytes"] == 2 * infos[0]["weight_bytes"]
    assert infos[1]["kv_bytes"] > 0 and infos[1]["isa"] == infos[0]["isa"]
    # The server's own counters, and memory of all its processes.
    assert values(out, "preemptions", 4, 1) and values(out, "prefix_hit_share", 4, 1)
    assert min(values(out, "peak_rss_bytes", 0, 1)) > 1.2 * max(values(out, "peak_rss_bytes", 0, 0))
    assert min(values(out, "output_tokens_per_s", 0, 1)) > 0
    assert "gives each request to the one that has its prefix" in (out / "report.html").read_text()
    assert not running("serve", "preset:tiny")


def test_launch_starts_the_configuration_of_a_trial(swept, pinion, start_server, tmp_path):
    """The same words, and the same CPUs."""
    out, told = swept
    profile = json.loads((out / "profiles" / "throughput.json").read_text())
    profile["configuration"]["replicas"] = 2
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(profile))
    launched = shlex.split(pinion("launch", file, "--dry-run").stdout)[1:]
    launched = launched[:launched.index("--port")]
    assert launched[-4:] == ["--data-parallel-size", "2", "--host", "127.0.0.1"]
    of_trials = [line for line in told if "--data-parallel-size" in line]
    assert of_trials and len(of_trials) < len(told)
    for line in of_trials:
        assert re.sub(r" --port \d+ --max-engine-restarts 0$", "", line) == " ".join(launched)
    server = start_server(file, command="launch")
    engines = json.loads(server.get("/server_info"))["replicas"]
    plan = next(info["plan"] for candidate, *_, info in trials(out) if candidate == 1)
    assert [[rank["cpus"] for rank in one["plan"]["ranks"]] for one in engines] == [
        [rank["cpus"]] for rank in plan["ranks"]]


def test_a_profile_with_replicas_fits_the_schema(swept, top):
    profile = json.loads((swept[0] / "profiles" / "throughput.json").read_text())
    profile["configuration"]["replicas"] = 2
    jsonschema.validate(profile, json.loads((top / "profiles" / "profile.schema.json").read_text()))


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


def tokens_of(server):
    """How many tokens a process has served; 0 if it is not a server that answers."""
    try:
        words = pathlib.Path(f"/proc/{server}/cmdline").read_bytes().decode().split("\0")
        port = words[words.index("--port") + 1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
            text = reply.read().decode()
    except (OSError, ValueError, urllib.error.URLError):
        return 0
    return sum(map(float, re.findall(r"^vllm:generation_tokens_total(?:{[^}]*})? (\S+)$", text, re.M)))


def test_an_engine_that_is_killed_under_load_fails_its_trial(pinion, tmp_path):
    """Engines that take seconds for every answer, so that there is load whenever they are looked at."""
    out = tmp_path / "out"
    definition = define(tmp_path, engines=[{"engine": "pinion", "arguments": ["--stand-in", "10"]}],
                        axes={"replicas": [1, 2]},
                        workload={"prompt_len": 8, "output_len": 30, "concurrency": [],
                                  "num_prompts": 8})
    stop = threading.Event()

    def kill_one_of_two():
        while not stop.wait(0.05):
            servers, workers = running("serve", "--stand-in"), running("engine-worker")
            for server in servers:
                engines = [one for one in children_of(server) if one in workers]
                if len(engines) == 2 and tokens_of(server) > 30:
                    os.kill(engines[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one_of_two)
    killer.start()
    try:
        done = pinion("sweep", "preset:tiny", "--def", definition, "--out", out, timeout=280)
    finally:
        stop.set()
        killer.join()
    assert done.returncode == 0, done.stderr
    found = {0: [], 1: []}
    for candidate, ok, reason, tail, _ in trials(out):
        found[candidate].append((ok, reason, tail))
    assert all(ok for ok, *_ in found[0]) and not any(ok for ok, *_ in found[1])
    for _, reason, tail in found[1]:
        assert reason.startswith("the server ended with exit code 1 under load: the engine process"), reason
        assert "ended by signal 9 (Killed)" in reason and "ended by signal 9 (Killed)" in tail
    assert not running("serve", "--stand-in")


def test_settings_that_do_not_divide_are_left_out_with_the_reason(pinion, tmp_path):
    out = tmp_path / "out"
    many = len(os.sched_getaffinity(0)) + 1
    definition = define(tmp_path, workload={"prompt_len": 8, "output_len": 2, "concurrency": [1],
                                            "num_prompts": 2},
                        candidates=[{"replicas": many}, {"replicas": 2, "threads_bind": "0"}])
    done = pinion("sweep", "preset:tiny", "--def", definition, "--out", out, timeout=120)
    assert done.returncode == 0, done.stderr
    reasons = [one["reason"] for one in json.loads((out / "results.json").read_text())["candidates"]]
    assert f"{many} replicas of 1 rank (-tp 1 -pp 1) cannot have a CPU for each rank" in reasons[1]
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


def test_launch_starts_all_engines_behind_one_address_and_ends_them(start_server, profile):
    server = start_server(profile, command="launch")
    engines = [one for one in children_of(server.process.pid) if one in running("engine-worker")]
    assert len(engines) == 2
    answer = server.post("/v1/completions", {"model": "preset:tiny", "prompt": "a", "max_tokens": 3,
                                             "ignore_eos": True})
    assert answer["usage"]["completion_tokens"] == 3
    assert server.stop(PATIENCE_S) == 0
    assert not set(engines) & set(running("engine-worker"))


def test_launch_that_is_killed_leaves_no_engine(start_server, profile):
    server = start_server(profile, command="launch")
    engines = set(children_of(server.process.pid))
    server.process.kill()
    server.process.wait()
    assert wait_until(lambda: not engines & set(running("engine-worker")))


def test_dry_run_is_one_command(pinion, profile):
    done = pinion("launch", profile, "--dry-run", "--port", 9000)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "--data-parallel-size 2 --host 127.0.0.1 --port 9000" in done.stdout
    plan = json.loads(pinion("launch", profile, "--dry-run", "--json").stdout)
    assert "--data-parallel-size" in plan["command"]
