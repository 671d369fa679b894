"""A client of raw sockets: it may misbehave as no library would let it, and keeps thousands of connections."""

import asyncio
import contextlib
import dataclasses
import json
import resource
import socket
import struct

PATIENCE_S = 120  # for an answer: it only bounds a failure


@dataclasses.dataclass(frozen=True)
class Target:
    """A server under attack."""

    port: int
    model: str
    max_model_len: int
    max_connections: int = 4096


def raise_descriptor_limit():
    """As far as this process may; the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def head(line, headers=(), host="localhost"):
    """A request's header; `line` is such as "GET /health"."""
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()


def get(path):
    """The bytes of a request."""
    return head(f"GET {path}", ["Connection: close"])


def post(path, body, headers=()):
    """The bytes of a request; `body` is JSON text or what becomes it."""
    if not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    return head(f"POST {path}", ["Content-Type: application/json", f"Content-Length: {len(body)}",
                                 "Connection: close", *headers]) + body


@dataclasses.dataclass(frozen=True)
class Answer:
    """The bytes that a server sent until it was done, or closed the connection."""

    text: bytes

    @property
    def status(self):
        """0: there was none."""
        words = self.text[:20].split(None, 2)
        return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else 0

    @property
    def body(self):
        """Of a stream, with the chunks' frames."""
        return self.text.partition(b"\r\n\r\n")[2]

    @property
    def complete(self):
        """Whether all of it arrived. That the connection was closed ends no answer to HTTP/1.1."""
        header, end, body = self.text.partition(b"\r\n\r\n")
        return bool(end) and is_whole(body, body_bytes(header))


def body_bytes(header):
    """The length in the header; None: the body comes in chunks."""
    for line in header.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return None


def is_whole(body, size):
    return body.endswith(b"0\r\n\r\n") if size is None else len(body) >= size


class Connection:
    """One socket. `async with` opens and closes it."""

    def __init__(self, target, receive_buffer=None):
        self.target = target
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)

    async def __aenter__(self):
        try:
            await asyncio.get_running_loop().sock_connect(self.socket, ("127.0.0.1", self.target.port))
        except BaseException:
            self.socket.close()
            raise
        return self

    async def __aexit__(self, *_):
        self.socket.close()

    async def send(self, data):
        """False if the server has closed the connection."""
        try:
            await asyncio.get_running_loop().sock_sendall(self.socket, data)
            return True
        except OSError:
            return False

    async def receive(self, most=1 << 16):
        """The next bytes; none if the server has closed the connection."""
        try:
            return await asyncio.get_running_loop().sock_recv(self.socket, most)
        except OSError:
            return b""

    async def read_answer(self):
        """All that comes until the answer is complete or the connection closed."""
        header, body, size = b"", bytearray(), None
        while part := await self.receive():
            body += part
            if not header and b"\r\n\r\n" in body:
                header, end, rest = bytes(body).partition(b"\r\n\r\n")
                header, body, size = header + end, bytearray(rest), body_bytes(header)
            if header and is_whole(body, size):
                break
        return Answer(header + bytes(body))

    def finish(self):
        """Says that no more will be sent, as `shutdown` does."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        """Makes closing abrupt: the server's next write or read fails."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def exchange(target, data, half_close=False):
    """The answer to `data`; sending stops when the answer is complete."""
    async with Connection(target) as connection:
        async def send():
            if await connection.send(data) and half_close:
                connection.finish()

        sending = asyncio.ensure_future(send())
        try:
            async with asyncio.timeout(PATIENCE_S):  # wait_for may swallow a cancellation in Python 3.11
                return await connection.read_answer()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
