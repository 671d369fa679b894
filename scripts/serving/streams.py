#!/usr/bin/python3
"""Measures the CPU time of the front end of `pinion serve` for an event of a stream.

  scripts/serving/streams.py [--streams N] [--rate R] [--seconds S] [--chat] [--binary FILE] [--json FILE] [MODEL]

Starts a server whose engine is a stand-in (no model is computed, but events come over the real link from the
real engine process), opens N streams of R events a second over sockets, and reads for S seconds the processor
time of the front end's process from /proc. MODEL gives the tokenizer; its weights are not read. The client is
one process that looks at its sockets R times a second, so that it takes little of the machine.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
READY_S, FIRST_S = 60, 60  # how long to wait for a server, and for the first event of every stream
PROMPT = "The quick brown fox jumps over the lazy dog, and then it does so once more. "


class Failed(Exception):
    """The server did not start, or a stream got no events."""


@dataclasses.dataclass(frozen=True)
class CpuSeconds:
    """Processor time of a process with all of its threads."""

    user: float
    system: float

    @staticmethod
    def of(pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return CpuSeconds(int(fields[11]) / tick, int(fields[12]) / tick)

    @property
    def all(self):
        return self.user + self.system

    def since(self, earlier):
        return CpuSeconds(self.user - earlier.user, self.system - earlier.system)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(port, path):
    """(status, text); status 0: nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


@contextlib.contextmanager
def serving(binary, model, rate, *flags):
    """(process, port) of a server with a stand-in for its engine."""
    port = free_port()
    process = subprocess.Popen([str(binary), "serve", str(model), "--port", str(port), "--stand-in", str(rate),
                                "--served-model-name", "stand-in", *map(str, flags)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    os.set_blocking(process.stderr.fileno(), False)
    try:
        end = time.monotonic() + READY_S
        while get(port, "/health")[0] != 200:
            if process.poll() is not None or time.monotonic() > end:
                log = (process.stderr.read() or b"").decode()
                raise Failed(f"the server is not ready: {log[-2000:]}")
            time.sleep(0.05)
        yield process, port
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


class Stream:
    """One stream's socket; counts events without parsing them."""

    def __init__(self, port, tokens, chat):
        what = {"messages": [{"role": "user", "content": PROMPT}]} if chat else {"prompt": PROMPT}
        body = json.dumps({**what, "model": "stand-in", "max_tokens": tokens, "stream": True}).encode()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.sendall(f"POST /v1/{'chat/' if chat else ''}completions HTTP/1.1\r\nHost: localhost\r\n"
                            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        self.socket.setblocking(False)
        self.events, self.bytes, self.ended, self.refusal = 0, 0, False, ""

    def read(self, buffer):
        """Takes the bytes that have arrived."""
        try:
            count = self.socket.recv_into(buffer)
        except BlockingIOError:
            return
        if self.bytes == 0 and not buffer.startswith(b"HTTP/1.1 200"):
            self.refusal = buffer[:count].decode(errors="replace")
        self.ended |= count == 0 or buffer.find(b"data: [DONE]", 0, count) >= 0
        self.bytes += count
        # A mark that two reads cut in half is missed by both; an event is written in one piece.
        self.events += buffer.count(b"data: {", 0, count)


def read_for(streams, seconds, rate, until=lambda: False):
    """Reads `rate` times a second, until the time is over or `until` holds; how many rounds of it came late."""
    buffer = bytearray(1 << 16)
    start = next_s = time.monotonic()
    late = 0
    while time.monotonic() < start + seconds and not until():
        for stream in streams:
            stream.read(buffer)
        next_s += 1 / rate
        pause = next_s - time.monotonic()
        late += pause < 0
        time.sleep(max(0.0, pause))
    return late


def measure(binary, model, count=1000, rate=20.0, seconds=20.0, chat=False, flags=()):
    """The figures of `count` streams, as a dictionary."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and count + 64 > hard:
        raise Failed(f"{count} streams want as many descriptors, and this process may have {hard}")
    with serving(binary, model, rate, *flags) as (process, port):
        # More than will be needed, but for the prompt as many as the model can hold.
        length = json.loads(get(port, "/v1/models")[1])["data"][0]["max_model_len"]
        tokens = min(int(rate * (seconds + FIRST_S)), length - len(PROMPT))
        streams = [Stream(port, tokens, chat) for _ in range(count)]
        read_for(streams, FIRST_S, rate, lambda: all(stream.events > 2 for stream in streams))
        for stream in streams:
            if stream.refusal or stream.events <= 2:
                raise Failed(f"a stream got no events, but: {stream.refusal or 'nothing'}")
        start, front, own = time.monotonic(), CpuSeconds.of(process.pid), time.process_time()
        before, bytes_before = [stream.events for stream in streams], sum(stream.bytes for stream in streams)
        late = read_for(streams, seconds, rate)
        wall = time.monotonic() - start
        front, own = CpuSeconds.of(process.pid).since(front), time.process_time() - own
        events = [stream.events - earlier for stream, earlier in zip(streams, before)]
        for stream in streams:
            stream.socket.close()
    if min(events) == 0 or any(stream.ended for stream in streams):
        raise Failed(f"{sum(stream.ended for stream in streams)} of {count} streams ended before the measurement did, "
                     f"{events.count(0)} got no event during it; a model of {length} tokens holds "
                     f"{length / rate:.0f} s of a stream")
    total = sum(events)
    return {"streams": count, "events_per_s_each": rate, "seconds": wall, "chat": chat,
            "events_per_s": total / wall, "delivered": total / (count * rate * wall),
            "bytes_per_event": (sum(stream.bytes for stream in streams) - bytes_before) / total,
            "front_end_cpus": front.all / wall, "front_end_user_cpus": front.user / wall,
            "cpu_us_per_event": front.all / total * 1e6, "client_cpus": own / wall, "client_late_rounds": late}


def describe(figures):
    """One sentence for a person."""
    return (f"{figures['streams']} streams of {figures['events_per_s_each']:g} events/s: {figures['events_per_s']:.0f} "
            f"events/s arrived ({figures['delivered']:.1%}); the front end used {figures['front_end_cpus']:.3f} CPUs "
            f"({figures['front_end_user_cpus']:.3f} of them outside the kernel), {figures['cpu_us_per_event']:.1f} us "
            f"an event of {figures['bytes_per_event']:.0f} bytes; the client used {figures['client_cpus']:.2f} CPUs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", default="preset:qwen2.5-0.5b", metavar="MODEL")
    parser.add_argument("--binary", default=TOP / "build/pinion", type=pathlib.Path)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=20, help="events a second of each stream")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--chat", action="store_true", help="chats instead of completions")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    arguments = parser.parse_args()
    try:
        figures = measure(arguments.binary, arguments.model, arguments.streams, arguments.rate, arguments.seconds,
                          arguments.chat)
    except (Failed, OSError) as error:
        print(f"streams.py: {error}", file=sys.stderr)
        return 1
    print(describe(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
