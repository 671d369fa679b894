"""The server when its engine process dies, hangs or is sent to sleep, and when it is to end itself."""

import concurrent.futures
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import signal
import socket
import threading
import urllib.error
import urllib.request

import pytest

from conftest import PATIENCE_S, wait_until
from process_tree import children_of, engine_of

FLAGS = ("--kv-cache-space", "64MiB", "--served-model-name", "tiny")
ENDLESS = {"model": "tiny", "prompt": "Once", "max_tokens": 2000, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(data):
    return data / "models/tiny-trained"


def health(server):
    """Status and body of GET /health."""
    try:
        return 200, server.get("/health")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def is_healthy(server):
    return health(server)[0] == 200


def kill_and_wait_for_the_next(server):
    first = engine_of(server)
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: engine_of(server) not in (None, first) and is_healthy(server))


def post(server, path, body=None):
    """Status and text of the answer."""
    request = urllib.request.Request(server.url + path, json.dumps(body or {}).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Stream:
    """A completion that streams; its lines are read by a thread."""

    def __init__(self, server, wait_for_events=2, **fields):
        body = json.dumps({**ENDLESS, "stream": True, **fields}).encode()
        request = urllib.request.Request(server.url + "/v1/completions", body,
                                         {"Content-Type": "application/json"})
        self.reply = urllib.request.urlopen(request, timeout=120)
        self.events = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()
        assert wait_until(lambda: len(self.events) >= wait_for_events)

    def _read(self):
        for line in self.reply:
            if line.startswith(b"data: "):
                self.events.append(line[6:].decode().strip())

    def end(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.events


def greedy(server):
    status, text = post(server, "/v1/completions", {"model": "tiny", "prompt": "Once upon",
                                                    "max_tokens": 8, "temperature": 0})
    assert status == 200, text
    return json.loads(text)["choices"][0]["text"]


def check_ended_by_the_engines_death(events):
    assert events[-1] == "[DONE]"
    error = json.loads(events[-2])["error"]["message"]
    assert "is being restarted" in error
    for of_the_log in ("signal", "last line", "rank", "GiB"):
        assert of_the_log not in error


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGSTOP])
def test_an_engine_that_dies_or_hangs_is_replaced(start_server, model, number):
    server = start_server(model, *FLAGS, "--max-num-seqs", 16, "--engine-timeout", "2s")
    text = greedy(server)
    stream = Stream(server, n=16)
    waiting = {}
    thread = threading.Thread(target=lambda: waiting.update(answer=post(server, "/v1/completions",
                                                                        ENDLESS)))
    thread.start()
    assert wait_until(lambda: 'requests_waiting{engine="0",model_name="tiny"} 1' in server.get("/metrics"))
    first = engine_of(server)
    os.kill(first, number)
    check_ended_by_the_engines_death(stream.end())
    thread.join(60)
    status, answer = waiting["answer"]
    assert status == 503 and "is being restarted" in answer and "signal" not in answer
    # A new request waits for the new engine.
    assert greedy(server) == text
    assert engine_of(server) not in (None, first)
    assert is_healthy(server)
    hung = number == signal.SIGSTOP
    assert f"signal {int(signal.SIGKILL if hung else number)}" in server.log.read_text()
    assert ("--engine-timeout" in server.log.read_text()) == hung
    assert 'pinion:engine_restarts_total{model_name="tiny"} 1' in server.get("/metrics")
    assert server.stop() == 0


def test_other_signals_change_nothing(start_server, model):
    """Nor do those for the front end, if a service's manager sends them to all of its processes."""
    server = start_server(model, *FLAGS)
    first = engine_of(server)
    stream = Stream(server)
    stray = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
    for number in stray:
        os.kill(server.process.pid, number)
    for number in (*stray, signal.SIGTERM, signal.SIGINT):
        os.kill(first, number)
    assert stream.end()[-1] == "[DONE]"
    assert "error" not in stream.events[-2]
    assert engine_of(server) == first and is_healthy(server)
    assert server.stop() == 0


def test_a_hangup_makes_the_access_log_follow_its_name(start_server, model, tmp_path):
    log = tmp_path / "access.log"
    server = start_server(model, *FLAGS, "--access-log", log)
    log.rename(tmp_path / "access.log.1")
    os.kill(server.process.pid, signal.SIGHUP)
    assert wait_until(log.exists)
    assert server.stop() == 0


def test_restarts_that_run_out_name_the_cause(start_server, model, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    server = start_server(copy, *FLAGS, "--enable-sleep-mode", "--max-engine-restarts", 1)
    assert post(server, "/sleep")[0] == 200
    shutil.rmtree(copy)
    status, answer = post(server, "/wake_up")
    assert status == 503 and str(copy) not in answer
    assert server.process.wait(PATIENCE_S) == 1
    last = server.log.read_text().strip().splitlines()[-1]
    assert "--max-engine-restarts" in last and str(copy) in last


def test_a_restart_keeps_the_size_of_the_cache(start_server, model):
    server = start_server(model, "--served-model-name", "tiny")
    before = json.loads(server.get("/server_info"))
    assert not before["options"]["kv_cache_space"]
    kill_and_wait_for_the_next(server)
    after = json.loads(server.get("/server_info"))
    assert after["kv_cache"] == before["kv_cache"]
    assert after["options"]["kv_cache_space"]  # not because as much was free by chance


def test_health_names_the_fault(start_server, model):
    server = start_server(model, *FLAGS, "--max-engine-restarts", 1000)
    seen = []

    def unwell():
        with contextlib.suppress(TypeError, ProcessLookupError):  # there is none just now
            os.kill(engine_of(server), signal.SIGKILL)
        seen.append(health(server))
        return seen[-1][0] == 503

    assert wait_until(unwell)
    body = json.loads(seen[-1][1])
    assert body["status"] == "restarting" and "ended unexpectedly" in body["reason"]
    assert wait_until(lambda: is_healthy(server))


def test_too_many_deaths_end_the_server(start_server, model):
    server = start_server(model, *FLAGS, "--max-engine-restarts", 1)
    kill_and_wait_for_the_next(server)
    stream = Stream(server)
    os.kill(engine_of(server), signal.SIGKILL)
    assert "too often" in json.loads(stream.end()[-2])["error"]["message"]
    assert server.process.wait(20) == 1
    assert "--max-engine-restarts" in server.log.read_text()


def test_a_shutdown_reports_the_answers_that_it_cuts(start_server, model):
    server = start_server(model, *FLAGS, "--shutdown-timeout", "200ms", "--engine-timeout", "10m")
    os.kill(engine_of(server), signal.SIGSTOP)  # no time would be enough for it
    # The header of an answer tells that its sequences live.
    streams = [Stream(server, wait_for_events=0, n=16) for _ in range(2)]
    server.process.send_signal(signal.SIGTERM)
    for stream in streams:
        events = stream.end()
        assert events[-1] == "[DONE]"
        assert "is shutting down" in json.loads(events[-2])["error"]["message"]
    assert server.process.wait(PATIENCE_S) == 0
    assert "cut off 32 live sequences" in server.log.read_text()


def rss_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def rss_of_all_kib(pid):
    """Of a process and its children."""
    return rss_kib(pid) + sum(rss_kib(child) for child in children_of(pid))


def cached_bytes(path):
    """How much of a file is in the page cache."""
    if path.stat().st_size == 0:
        return 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
        pages = (ctypes.c_ubyte * (-(-len(mapped) // mmap.PAGESIZE)))()
        begin = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(len(mapped)),
                                         pages) == 0
        return sum(page & 1 for page in pages) * mmap.PAGESIZE


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_keeps_the_weights_in_the_page_cache_at_level_1(start_server, model, tmp_path, level):
    copy = pathlib.Path(shutil.copytree(model, tmp_path / "model"))
    os.sync()  # pages that are not written yet stay
    weights = max(copy.iterdir(), key=lambda file: file.stat().st_size)
    with open(weights, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_bytes(weights):
        pytest.skip("this file system keeps its files in memory")
    trace = tmp_path / "trace.json"
    server = start_server(copy, *FLAGS, "--enable-sleep-mode", "--trace", trace)
    assert cached_bytes(weights) >= weights.stat().st_size
    assert post(server, f"/sleep?level={level}")[0] == 200
    kept = cached_bytes(weights)
    assert kept >= weights.stat().st_size if level == 1 else kept == 0
    assert server.stop() == 0  # asleep, too, it ends when told to
    # Work of seconds for a large model does not belong on the event loop.
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    on = [names[event["tid"]] for event in events if event["name"] == "drop from page cache"]
    assert on == (["worker"] if level == 2 else [])


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_gives_all_memory_of_the_engine_back(start_server, model, level):
    server = start_server(model, *FLAGS, "--enable-sleep-mode")
    text = greedy(server)
    engine = engine_of(server)
    held, before = rss_kib(engine), rss_of_all_kib(server.process.pid)
    assert held << 10 >= json.loads(server.get("/server_info"))["weight_bytes"]
    assert post(server, f"/sleep?level={level}")[0] == 200
    assert engine_of(server) is None
    assert not pathlib.Path(f"/proc/{engine}").exists()
    # All of it, but for what the front end needs to say so.
    assert before - rss_of_all_kib(server.process.pid) >= 0.9 * held
    assert json.loads(server.get("/is_sleeping")) == {"is_sleeping": True}
    status, answer = post(server, "/v1/completions", ENDLESS)
    assert status == 503 and "/wake_up" in answer
    assert health(server)[0] == 503 and "sleeping" in health(server)[1]
    assert post(server, "/wake_up")[0] == 200
    assert json.loads(server.get("/is_sleeping")) == {"is_sleeping": False}
    assert greedy(server) == text


def test_sleep_lets_live_requests_finish(start_server, model):
    server = start_server(model, *FLAGS, "--enable-sleep-mode", "--shutdown-timeout", "10m",
                          "--engine-timeout", "10m")
    engine = engine_of(server)
    os.kill(engine, signal.SIGSTOP)
    stream = Stream(server, wait_for_events=0, max_tokens=40)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asleep = pool.submit(post, server, "/sleep")
        assert wait_until(lambda: "falls asleep" in health(server)[1])
        assert not asleep.done() and not stream.events
        os.kill(engine, signal.SIGCONT)
        assert asleep.result()[0] == 200
    events = stream.end()
    assert events[-1] == "[DONE]" and '"finish_reason":"length"' in events[-2]


def test_profiles_a_window_of_both_processes(start_server, model, tmp_path):
    server = start_server(model, *FLAGS, "--profile-dir", tmp_path)
    greedy(server)
    for window in range(2):
        path = json.loads(post(server, "/start_profile")[1])["path"]
        assert post(server, "/start_profile")[0] == 409
        greedy(server)
        status, answer = post(server, "/stop_profile")
        assert (status, json.loads(answer)) == (200, {"path": path})
        events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
        processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
        assert processes == {"engine", "front end"}
        names = {event["name"] for event in events if event["ph"] == "X"}
        assert {"forward", "step", "request"} <= names, window
    assert len(list(tmp_path.iterdir())) == 2


def test_endpoints_that_hurt_others_are_closed_by_default(start_server, model):
    server = start_server(model, *FLAGS)
    for path in ("/sleep", "/wake_up", "/start_profile", "/stop_profile"):
        assert post(server, path)[0] == 404, path


def test_a_restart_leaks_no_descriptor(start_server, model):
    server = start_server(model, *FLAGS)

    def descriptors():
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    # A connection of the question whether it is healthy may be among them, but not four.
    before = descriptors()
    for _ in range(4):
        kill_and_wait_for_the_next(server)
    assert wait_until(lambda: descriptors() <= before)


def test_the_port_stays_open_during_a_restart(start_server, model):
    server = start_server(model, *FLAGS)
    os.kill(engine_of(server), signal.SIGKILL)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10):
            pass
    assert wait_until(lambda: is_healthy(server))
