"""A server of our own, for tests and for scripts that measure one."""

import errno
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]


# Ports below those that Linux gives away by itself (32768), and for each worker its own: one that another worker took
# in the time that a server needs to start would answer in its place. From any of them on, for runs side by side.
PORTS_OF_A_WORKER = 1000
FIRST_PORT = 10000 + PORTS_OF_A_WORKER * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 20)
turns = itertools.count(random.randrange(PORTS_OF_A_WORKER))


def free_port():
    """A port of this worker's at which nobody listens, and which it does not get again soon."""
    for turn in itertools.islice(turns, PORTS_OF_A_WORKER):
        port = FIRST_PORT + turn % PORTS_OF_A_WORKER
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
    raise OSError(errno.EADDRINUSE, f"no port from {FIRST_PORT} on is free")


class Server:
    """A `pinion serve MODEL` (or `launch PROFILE`) of our own, ready when constructed."""

    def __init__(self, binary, log, target, *flags, command="serve", env=None,
                 start_timeout_s=120):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [str(binary), command, str(target), "--port", str(self.port), *map(str, flags)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})})
        try:
            self._wait_until_ready(start_timeout_s)
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self, timeout_s):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                self.get("/health")
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise AssertionError(f"the server is not ready:\n{self.log.read_text()[-4000:]}")

    def get(self, path, timeout=30):
        with urllib.request.urlopen(self.url + path, timeout=timeout) as reply:
            return reply.read().decode()

    def post(self, path, body, timeout=120):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return json.loads(reply.read())

    def stop(self, timeout_s=30):
        """SIGTERM, and SIGKILL if that does not end it in time; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode
