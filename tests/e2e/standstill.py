"""Notices that a server stands still, however fast or busy the machine is.

Two servers, the watched one and a control that nobody else uses, are asked the same by threads of this process.
What slows the machine slows both. If the control answers many times between two answers of the watched server,
that one does not serve.
"""

import collections
import http.client
import json
import threading

# So many answers of the control may lie between two of the watched server. On two busy cores there were at most 242
# and 122 during the attacks of attacks.py (2,000 new connections; a prompt of 6,000 tokens), 51 without one, and 2,017
# beside two other test processes. The limits were reached there in 10 and 16 s of standing still; on another machine
# that takes as much longer or shorter as the attacks do.
MOST_MISSED = {"answers of /health": 5000, "parts of streams": 1000}
PATIENCE_S = 120  # for an answer: it only bounds a failure
STREAM = json.dumps({"prompt": "Once", "max_tokens": 40, "ignore_eos": True, "stream": True})


def ask_health(connection):
    """Yields once."""
    connection.request("GET", "/health")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, f"/health answered {answer.status}"
    yield


def read_stream(connection):
    """Yields at every part of a stream that arrives, and checks that it is whole."""
    connection.request("POST", "/v1/completions", STREAM, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, f"a stream was answered with {answer.status}"
    text = b""
    while part := answer.read1():
        text += part
        yield
    assert text.endswith(b"data: [DONE]\n\n"), f"a stream ended with {text[-200:]}"
    assert b'data: {"error"' not in text, f"a stream had an error: {text[-400:]}"


KINDS = {"answers of /health": ask_health, "parts of streams": read_stream}


class Watch:
    """Asks both servers from __enter__ to __exit__, which waits until the watched one has answered once more."""

    def __init__(self, watched_port, control_port, limits=MOST_MISSED):
        self.limits = limits
        self.ports = {"watched": watched_port, "control": control_port}
        self.missed = {kind: 0 for kind in KINDS}  # since the last answer of the watched server
        self.most_missed = collections.Counter()
        self.answers = collections.Counter()  # by kind and server
        self.failures = []
        self.ending = threading.Event()
        self.running = {kind: len(self.ports) for kind in KINDS}
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._ask_on, args=(kind, server))
                        for kind in KINDS for server in self.ports]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self.threads:
            thread.join()

    def _ask_on(self, kind, server):
        try:
            last = False
            while not last:
                # The control goes on as long as the watched server owes an answer.
                last = self.ending.is_set() if server == "watched" else self.running[kind] == 1
                connection = http.client.HTTPConnection("127.0.0.1", self.ports[server], timeout=PATIENCE_S)
                try:
                    for _ in KINDS[kind](connection):
                        self._count(kind, server)
                finally:
                    connection.close()
        except (OSError, http.client.HTTPException, AssertionError) as error:
            self.failures.append(f"{server} server: {type(error).__name__} {error}")
        finally:
            with self.lock:
                self.running[kind] -= 1

    def _count(self, kind, server):
        with self.lock:
            self.answers[kind, server] += 1
            self.missed[kind] = self.missed[kind] + 1 if server == "control" else 0
            self.most_missed[kind] = max(self.most_missed[kind], self.missed[kind])

    def verdict(self):
        """A sentence for everything that was wrong."""
        return self.failures + [
            f"the control had {count} {kind} while the watched server had none, want at most {self.limits[kind]}"
            for kind, count in self.most_missed.items() if count > self.limits[kind]]
