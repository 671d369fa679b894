"""Servers under load: starting and stopping one, loading it, and the description of the machine in a result."""

import contextlib
import datetime
import json
import os
import platform
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from peers.engines import Failed

START_LIMIT_S, STOP_LIMIT_S = 900, 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(server, process, url, log):
    end = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    reason = "is not ready" if process.poll() is None else f"ended with status {process.returncode}"
    raise Failed(f"{server.name} {reason}: `{server.text()}`; its output is in {log}")


def stop(process):
    """Ends the server and all that it started."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)


@contextlib.contextmanager
def running(server, log):
    """The URL of the server while it runs."""
    port = free_port()
    command = [word.replace("{port}", str(port)) for word in server.command]
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env={**os.environ, **server.environment}, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(server, process, url, log)
        yield url
    finally:
        stop(process)


def loaded(pinion, server, url, options, seed, detailed=True):
    """Result of `pinion load`; each row has a seed of its own, so that no prompt is in a cache."""
    command = [str(pinion), "load", url, "--json", *(["--detailed"] if detailed else []), "--seed", str(seed),
               *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    run = json.loads(done.stdout) if done.stdout else {}
    if done.returncode != 0 and "levels" not in run:  # a search may find that no load passes
        errors = [request["error"] for request in run.get("pinion", {}).get("requests", []) if request["error"]]
        reason = (errors or done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Failed(f"`{shlex.join(command)}` failed on {server.name}: {reason}")
    return run


def cpu_numbers(text):
    """0-2,5 -> [0, 1, 2, 5]."""
    numbers = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def machine(cpus):
    """Description of the machine; `cpus`: the list that the engines had."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")),
                     platform.machine())
    return {"cpu": model, "cpus": cpus, "threads": len(cpu_numbers(cpus)),
            "kernel": platform.release(), "date": datetime.date.today().isoformat()}


def short(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
