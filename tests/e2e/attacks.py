"""Requests and connections that are to cost nobody but their sender.

ATTACKS maps names to functions. Each takes a Target, builds what it will send, and returns a coroutine function
that attacks once and returns the answers; `allowed` names the statuses that they may have (0: the connection was
closed without an answer, or in the middle of one).

  tests/e2e/attacks.py --measure [--stand-in RATE] [--only NAME,...] [MODEL]

shows what each does to a stream and to /health of a server that is started for it.
"""

import asyncio
import dataclasses
import random
import sys
import typing

from raw_client import Connection, exchange, get, head, post

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HOLD_S = 1.0  # how long an attack keeps its connections open, if that is what it does
FILL_S = 3.0  # and one that waits until nothing more fits into them
REFUSED = {0, 400, 403, 404, 405, 408, 411, 413, 414, 415, 431}


@dataclasses.dataclass(frozen=True)
class Attack:
    """One way to misuse a server."""

    build: typing.Callable
    allowed: frozenset

    @property
    def name(self):
        return self.build.__name__

    def against(self, target):
        """One attack: await it for the answers."""
        return self.build(target)


ATTACKS = {}


def attack(*allowed):
    """Enters the function below into the list."""
    def enter(build):
        ATTACKS[build.__name__] = Attack(build, frozenset(allowed))
        return build
    return enter


def send_once(target, data):
    async def run():
        return [await exchange(target, data)]
    return run


def send_all(target, requests, half_close=False):
    """One after another: each on a connection of its own."""
    async def run():
        return [await exchange(target, data, half_close) for data in requests]
    return run


# ---- One request ------------------------------------------------------------------------------------------


@attack(200, 400, 413)
def many_keys(target):
    kwargs = {f"key{i}": i for i in range(200_000)}
    return send_once(target, post(CHAT, {"messages": [{"role": "user", "content": "hi"}],
                                         "chat_template_kwargs": kwargs, "max_tokens": 1}))


@attack(400)
def biases_of_many_choices(target):
    return send_once(target, post(COMPLETIONS, {"prompt": "hi", "n": 2048, "max_tokens": 1,
                                                "logit_bias": {str(i): 1 for i in range(100_000)}}))


@attack(400, 413)
def long_text(target):
    return send_once(target, post("/tokenize", {"prompt": "some words " * 2_700_000}))


@attack(200, 400, 413, 503)
def long_texts_at_once(target):
    data = post("/tokenize", {"prompt": "some words " * 400_000})

    async def run():
        return await asyncio.gather(*(exchange(target, data) for _ in range(8)))
    return run


@attack(413)
def many_values(target):
    return send_once(target, post(COMPLETIONS, '{"prompt":[0' + ",0" * 15_000_000 + "]}"))


@attack(400, 413)
def deep_nesting(target):
    return send_once(target, post(COMPLETIONS, '{"prompt":"hi","user":' + "[" * 5_000_000))


@attack(400)
def long_stop_strings(target):
    return send_all(target, [post(COMPLETIONS, {"prompt": "hi", "stop": "x" * 4_000_000}),
                             post(COMPLETIONS, {"prompt": "hi", "stop": ["x" * 1000] * 4000}),
                             post(COMPLETIONS, {"prompt": "hi", "stop_token_ids": list(range(500_000))})])


@attack(200)
def long_prompt(target, tokens=6000):
    """New tokens each time: a prompt that is in the prefix cache costs nothing."""
    length = min(tokens, target.max_model_len - 8)

    async def run():
        ids = [random.randrange(16, 500) for _ in range(length)]
        return [await exchange(target, post(COMPLETIONS, {"prompt": ids, "max_tokens": 2}))]
    return run


@attack(*REFUSED - {0, 408})
def foreign(target):
    """Requests that a web page could make a browser send, and that no client of this API sends."""
    body = b'{"prompt":"hi","max_tokens":1}'
    size = f"Content-Length: {len(body)}"
    kind = "Content-Type: application/json"
    line = f"POST {COMPLETIONS}"
    return send_all(target, [
        head(line, ["Content-Type: text/plain", size, "Connection: close"]) + body,
        head(line, [kind, size, "Connection: close"], host="evil.example") + body,
        head(line, [kind, size, "Origin: https://evil.example", "Connection: close"]) + body,
        head("POST /nowhere", [kind, size, "Connection: close"]) + body,
        head(f"DELETE {COMPLETIONS}", ["Connection: close"])])


# ---- No HTTP ----------------------------------------------------------------------------------------------

MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,  # TLS
    b"\0" * 5000,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"get /health HTTP/1.1\r\nHost: localhost\r\n\0: x\r\n\r\n",
    b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    head("GET /health", ["X: " + "a" * 1_000_000]),
    head("GET /health", ["X: a"] * 100_000),
    head("GET /health", ["Host: localhost"]),
    b"GET /health HTTP/1.1\r\n\r\n",
    head(f"POST {COMPLETIONS}", ["Content-Type: application/json", "Content-Length: -1"]),
    head(f"POST {COMPLETIONS}", ["Content-Type: application/json", "Content-Length: 99999999999999999999"]),
    head(f"POST {COMPLETIONS}", ["Content-Type: application/json", "Content-Length: 4000000000"]) + b"{",
    head(f"POST {COMPLETIONS}", ["Content-Length: 2", "Content-Length: 3"]) + b"{}",
    head(f"POST {COMPLETIONS}", ["Content-Length: 2", "Transfer-Encoding: chunked"]) + b"{}",
    head(f"POST {COMPLETIONS}", ["Transfer-Encoding: chunked"]) + b"ffffffffffffffff\r\n{",
    head(f"POST {COMPLETIONS}", ["Transfer-Encoding: chunked"]) + b"-1\r\n{",
    head(f"POST {COMPLETIONS}", ["Transfer-Encoding: chunked"]) + b"1;" + b"x" * 1_000_000,
]


@attack(*REFUSED)
def malformed(target):
    return send_all(target, MALFORMED, half_close=True)


@attack(0, 200)
def half_closed(target):
    """The client says that it will send no more, as soon as it has asked."""
    requests = [post(COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "stream": stream}) for stream in (False, True)]
    return send_all(target, requests + [get("/health")], half_close=True)


# ---- Connections ------------------------------------------------------------------------------------------


async def hold(connections, each=None, fill=False):
    """Keeps them open; `each` is done to all of them four times a second."""
    end = asyncio.get_running_loop().time() + (FILL_S if fill else HOLD_S)
    while asyncio.get_running_loop().time() < end:
        if each:
            await asyncio.gather(*(each(connection) for connection in connections))
        await asyncio.sleep(0.25)


async def open_many(target, count, receive_buffer=None):
    connections = [Connection(target, receive_buffer) for _ in range(count)]
    # In groups: the kernel's queue of new connections has its length.
    for i in range(0, count, 200):
        await asyncio.gather(*(one.__aenter__() for one in connections[i:i + 200]))
    return connections


def close_all(connections):
    for connection in connections:
        connection.socket.close()


@attack()
def slow_headers(target, count=200):
    async def run():
        connections = await open_many(target, count)
        try:
            await asyncio.gather(*(one.send(b"GET /health HTTP/1.1\r\nX: ") for one in connections))
            await hold(connections, each=lambda one: one.send(b"a"))
        finally:
            close_all(connections)
        return []
    return run


@attack()
def slow_bodies(target, count=200):
    start = head(f"POST {COMPLETIONS}", ["Content-Type: application/json", "Content-Length: 1000000"])

    async def run():
        connections = await open_many(target, count)
        try:
            await asyncio.gather(*(one.send(start) for one in connections))
            await hold(connections, each=lambda one: one.send(b" " * 100))
        finally:
            close_all(connections)
        return []
    return run


@attack()
def slow_readers(target, count=16):
    """Streams that nobody reads, of events as large as they get."""
    data = post(COMPLETIONS, {"prompt": "hi", "n": 2, "max_tokens": min(1000, target.max_model_len // 2),
                              "ignore_eos": True, "stream": True, "logprobs": 5})

    async def run():
        connections = await open_many(target, count, receive_buffer=4096)
        try:
            await asyncio.gather(*(one.send(data) for one in connections))
            await hold(connections, fill=True)
        finally:
            close_all(connections)
        return []
    return run


@attack()
def idle_connections(target, count=2000):
    async def run():
        connections = await open_many(target, count)
        try:
            await hold(connections)
        finally:
            close_all(connections)
        return []
    return run


@attack(200)
def more_connections_than_allowed(target):
    """The idle ones make way for those that ask something."""
    async def run():
        connections = await open_many(target, target.max_connections + 100)
        try:
            return [await exchange(target, get("/health")) for _ in range(10)]
        finally:
            close_all(connections)
    return run


@attack()
def aborts(target, count=64):
    """Clients that ask for much and leave at once, politely or not."""
    data = post(COMPLETIONS, {"prompt": "hi", "max_tokens": target.max_model_len // 2, "ignore_eos": True,
                              "stream": True})

    async def leave(index):
        async with Connection(target) as connection:
            await connection.send(data)
            if index % 3:
                await connection.receive()
            if index % 2:
                connection.reset()

    async def run():
        await asyncio.gather(*(leave(index) for index in range(count)))
        return []
    return run


def check(name, answers):
    """None, or a sentence about the first answer that the attack should not have had."""
    for answer in answers:
        text = answer.text[:300].decode(errors="replace")
        if answer.status not in ATTACKS[name].allowed:
            return f"{name} got status {answer.status}, want one of {sorted(ATTACKS[name].allowed)}: {text}"
        if not answer.complete and 0 not in ATTACKS[name].allowed:
            return f"{name} got an answer that is cut: {text}"
        if answer.status >= 400 and len(answer.text) > 3000:
            return f"{name} got an error of {len(answer.text)} bytes: an error never repeats what was sent"
    return None


if __name__ == "__main__":
    import attack_gaps
    sys.exit(attack_gaps.main())
