#!/usr/bin/python3
"""Measures how much of a prompt's way over a link passes while the prompt is computed.

  scripts/serving/handover.py [--tokens N] [--mbits R] [--rounds N] [--flags FLAGS] [--json FILE] [--binary FILE] [MODEL]

Starts a server that computes prompts and one that has them computed, with a link of a given rate between them: a proxy
that takes bytes at once and hands them on at that rate. It notes when bytes came and when they were through. The
share of the bytes' time on the link that was over when the last ones came, behind the step, does not depend on how
fast the machine is just now; the time to the first token does. Several binaries (--binary again) are measured in turns.
"""

import argparse
import contextlib
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/e2e"))

from own_server import TOP, Server, free_port  # noqa: E402

READ_BYTES = 1 << 16
SIGN_OF_LIFE_BYTES = 8  # an empty frame


class SlowLink:
    """Listens at a port, and connects clients to another one. Bytes from there are slow."""

    def __init__(self, target, bits_per_s):
        self.target, self.bytes_per_s = target, bits_per_s / 8
        self.came = []  # (time, bytes)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                for one in near, far:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_slowly, args=(far, near), daemon=True).start()

    @staticmethod
    def _pass_on(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                sink.sendall(data)
        sink.close()

    def _pass_slowly(self, source, sink):
        waiting, changed, ended = [], threading.Condition(), threading.Event()

        def send():
            free = 0.0  # when the link is
            with contextlib.suppress(OSError):
                while True:
                    with changed:
                        changed.wait_for(lambda: waiting or ended.is_set())
                        if not waiting:
                            return
                        came, data = waiting.pop(0)
                    free = max(free, came) + len(data) / self.bytes_per_s
                    time.sleep(max(0.0, free - time.monotonic()))
                    sink.sendall(data)
        threading.Thread(target=send, daemon=True).start()
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                now = time.monotonic()
                self.came.append((now, len(data)))
                with changed:
                    waiting.append((now, data))
                    changed.notify()
        ended.set()
        with changed:
            changed.notify()

    def close(self):
        self.listener.close()


def hidden_share(came, bytes_per_s):
    """(bytes, of their time on the link the share that was over when the last of them came)."""
    came = [one for one in came if one[1] > SIGN_OF_LIFE_BYTES]
    free = 0.0
    for moment, count in came:
        free = max(free, moment) + count / bytes_per_s
    total = sum(count for _, count in came)
    return total, 1 - (free - came[-1][0]) / (total / bytes_per_s)


class Pair:
    """Two servers of a binary with a link between them."""

    def __init__(self, stack, folder, arguments, binary):
        flags = ["--served-model-name", "m", "--max-model-len", str(arguments.tokens + 64), *arguments.flags.split()]
        port = free_port()
        self.prefill = stack.enter_context(contextlib.closing(Ended(
            Server(binary, folder / "prefill.log", arguments.model, "--role", "prefill", "--prefill-listen",
                   f"127.0.0.1:{port}", *flags, start_timeout_s=600)))).server
        self.link = stack.enter_context(contextlib.closing(SlowLink(port, arguments.mbits * 1e6)))
        self.decode = stack.enter_context(contextlib.closing(Ended(
            Server(binary, folder / "decode.log", arguments.model, "--role", "decode", "--prefill-from",
                   f"127.0.0.1:{self.link.port}", *flags, start_timeout_s=600)))).server
        end = time.monotonic() + 60
        while not json.loads(self.decode.get("/server_info"))["prefill"]["prompts_from"][0]["up"]:
            if time.monotonic() > end:
                raise AssertionError("the servers do not find each other")
            time.sleep(0.1)

    def round(self, tokens, seed):
        """Figures of a prompt that nobody has seen."""
        prompt = [random.Random(seed).randrange(100, 30000) for _ in range(tokens)]
        self.link.came.clear()
        began = time.monotonic()
        self.decode.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 1, "ignore_eos": True}, timeout=600)
        first_token_s = time.monotonic() - began
        total, share = hidden_share(list(self.link.came), self.link.bytes_per_s)
        return {"first_token_s": first_token_s, "bytes": total, "link_s": total / self.link.bytes_per_s, "hidden_share": share}


class Ended:
    """A server that contextlib.closing stops."""

    def __init__(self, server):
        self.server = server

    def close(self):
        self.server.stop()


def measure(arguments):
    """{binary: [figures of each round]}."""
    found = {str(binary): [] for binary in arguments.binary}
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        pairs = {}
        for number, binary in enumerate(arguments.binary):
            own = pathlib.Path(folder) / str(number)
            own.mkdir()
            pairs[str(binary)] = Pair(stack, own, arguments, binary)
        for seed in range(arguments.rounds):
            for binary, pair in pairs.items():
                found[binary].append(pair.round(arguments.tokens, seed))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", default="preset:qwen2.5-0.5b", metavar="MODEL")
    parser.add_argument("--binary", action="append", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=2048, help="of each prompt")
    parser.add_argument("--mbits", type=float, default=200, help="millions of bits that the link carries in a second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flags", default="", help="further flags of `pinion serve`")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary or [TOP / "build/pinion"]
    try:
        found = measure(arguments)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"handover.py: {error}", file=sys.stderr)
        return 1
    for binary, rounds in found.items():
        for one in rounds:
            print(f"{binary}: first token after {one['first_token_s']:.2f} s; {one['bytes'] / 2**20:.1f} MiB take the link "
                  f"{one['link_s']:.2f} s, of which {one['hidden_share']:.1%} were over when the last bytes came")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
