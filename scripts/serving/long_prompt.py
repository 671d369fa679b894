"""Sends a long prompt into running streams, and short ones after it, with `pinion load`."""

import contextlib
import json
import shlex
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

from peers.engines import Failed
from peers.runs import loaded
from serving import gaps

STREAM_PROMPT, STREAM_TOKENS = 32, 4096
SHORTS, SHORT_PROMPT, SHORT_EVERY_S = 3, 16, 2.0
AFTER_S = 1.0  # for which streams run on after the long prompt: the last step's tokens arrive one by one


def prompts(count, prompt, output, clients=1):
    return ("--max-concurrency", str(clients), "--prompt-len", str(prompt), "--output-len", str(output),
            "--num-prompts", str(count), "--timeout", "3600s")


@contextlib.contextmanager
def in_background(pinion, server, url, options, seed):
    """A `pinion load` that runs meanwhile; calling the result interrupts it, and returns its JSON."""
    command = [str(pinion), "load", url, "--json", "--detailed", "--seed", str(seed), *options]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL)

        def result():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # it reports the results so far
            process.wait()
            output.seek(0)
            try:
                return json.load(output)
            except json.JSONDecodeError:
                raise Failed(f"`{shlex.join(command)}` failed on {server.name}") from None

        try:
            yield result
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def trace(tokens):
    """A long prompt at once, and short ones after it, as a trace of `pinion load`: one process knows the time of all."""
    times = [(0, tokens, 2), *((SHORT_EVERY_S * (i + 1), SHORT_PROMPT, 8) for i in range(SHORTS))]
    return "".join(json.dumps({"timestamp": 1e3 * at_s, "input_length": prompt, "output_length": output}) + "\n"
                   for at_s, prompt, output in times)


class StepTimes:
    """Times of Pinion's steps, once a second while a `with` lasts; none of other engines or without a bound."""

    def __init__(self, url):
        self.url, self.seen, self.ended = url, [], threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while True:
            with contextlib.suppress(OSError, ValueError, KeyError), \
                    urllib.request.urlopen(f"{self.url}/server_info", timeout=30) as reply:
                self.seen.append(json.load(reply)["step_times"])
            if self.ended.wait(1):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def bound_s(self):
        """The median bound of the steps that had one, or None."""
        bounds = [times["bound_seconds"] for times in self.seen if times.get("bound_seconds")]
        return statistics.median(bounds) if bounds else None


def measure(pinion, server, url, tokens, streams, settle_s, seed):
    """gaps.Beside of one server that runs, and the times of its steps meanwhile."""
    alone = loaded(pinion, server, url, prompts(1, tokens, 2), seed)
    with (tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file,
          in_background(pinion, server, url, prompts(streams, STREAM_PROMPT, STREAM_TOKENS, streams), seed + 1) as rest):
        file.write(trace(tokens))
        file.flush()
        # The load says nothing while it runs; whether this was long enough is checked afterwards.
        time.sleep(2 * settle_s)
        with StepTimes(url) as times:
            arrivals = loaded(pinion, server, url, ("--trace", file.name, "--num-prompts", str(1 + SHORTS), "--timeout",
                                                    "3600s"), seed + 2)
        time.sleep(AFTER_S)
        return gaps.beside(rest(), arrivals, alone, settle_s), times
