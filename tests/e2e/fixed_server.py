"""A small server that speaks OpenAI's API and answers after known times: what a load generator is
checked against. It is none of Pinion's code. Standard library only.

    fixed_server.py --port 8000 --ttft-ms 50 --itl-ms 10 [--slots N] [--fail-every N]
                    [--knee N | --script BITS --run-length N] [--slow-every N] [--gather N]
                    [--die-after N] [--exit-at N] [--refusal TEXT] [--hang-up] [--api-key KEY]
                    [--certificate FILE --key FILE] [--log FILE [--count]]

Every answer has `max_tokens` tokens: the first one --ttft-ms after the request came in (and had one
of the --slots places), each next one --itl-ms later, all at times that were fixed when the request
began, so that no delay adds up. First tokens of every Nth answer take ten times as long with
--slow-every. With --gather no answer but those of the warm-up begins before so many requests have
come in.

An answer of two tokens that comes in one piece, which fits a client's first read of 512 bytes, has no
time between them, however slow the machine is. One whose tokens come apart does: the second goes out
when the client has read the first. A limit just above 0 for the time per token separates the two. With --knee answers come in one piece unless there
are more connections than that: a cliff. With --script, answers do so in the runs of --run-length
requests that have a 1 in it ("011": all but the first run).

Answers of --die-after have no length and end with the connection after N tokens, as if the server
had died; with --exit-at it does, when the Nth request comes. With --hang-up the connection ends after every answer, and nothing says so before. As a proxy it
answers itself: the log has the targets as they were asked for. Prompts count one token a word and 3 more for every request.
"""

import argparse
import errno
import json
import os
import signal
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse


WARM_UP = 2  # requests that `pinion load` sends first


# Of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE = 4, 20, 1, 0x300, 2, 3
NETLINK_HEADER, DIAG_HEADER, SOCKET_ID, EXPIRES = 16, 4, 48, 4  # bytes before the length of the receive queue
TCP_ESTABLISHED, TCP_SYN_SENT, EVERY_STATE = 1 << 1, 1 << 2, 0xffffffff


def client_sockets(flags, states, client, server):
    """What the kernel tells of sockets from `client` to `server`, (address, port) each, in one of the states: both ends
    and the number of unread bytes of each. /proc/net/tcp tells it as well, but of all connections of the machine's last
    minute: with 16,000 of them that takes 40 ms of CPU time, 20 times as much."""
    any_interface, any_cookie = 0, 0xffffffff
    wanted = struct.pack("!HH16s16s", client[1], server[1], socket.inet_aton(client[0]), socket.inet_aton(server[0]))
    wanted += struct.pack("=III", any_interface, any_cookie, any_cookie)
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, states) + wanted
    header = struct.pack("=IHHII", NETLINK_HEADER + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | flags, 0, 0)
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + request)
        while True:
            answer = kernel.recv(1 << 16)
            while answer:
                length, kind = struct.unpack_from("=IH", answer)
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", answer, NETLINK_HEADER)[0]
                    raise OSError(code, os.strerror(code))
                port, to_port, ours, theirs = struct.unpack_from("!HH4s12x4s", answer, NETLINK_HEADER + DIAG_HEADER)
                unread, = struct.unpack_from("=I", answer, NETLINK_HEADER + DIAG_HEADER + SOCKET_ID + EXPIRES)
                found.append(((socket.inet_ntoa(ours), port), (socket.inet_ntoa(theirs), to_port), unread))
                answer = answer[(length + 3) & ~3:]  # messages begin at multiples of four bytes
            if not flags & NLM_F_DUMP:
                return found


def open_connections(port):
    """How many clients are connected, as their own sockets tell: one that was closed counts no more,
    even if this side has not yet heard of it. A client that opens all of its connections before it
    uses one is seen with all of them from its first request on. Clients of other servers may have
    this port at other addresses of the machine."""
    here, any_client = ("127.0.0.1", port), ("0.0.0.0", 0)
    alive = TCP_ESTABLISHED | TCP_SYN_SENT  # or about to be
    # The kernel looks at ports alone when it lists sockets. It gives a long list in pieces, and one that moves
    # meanwhile may be in two of them.
    return len({client for client, server, _ in client_sockets(NLM_F_DUMP, alive, any_client, here) if server == here})


def unread_bytes(connection):
    """The bytes that the client, which runs on this machine, has received and not read; 0 if it has gone."""
    try:
        (_, _, unread), = client_sockets(0, EVERY_STATE, connection.getpeername(), connection.getsockname())
    except OSError as error:
        if error.errno == errno.ENOENT:
            return 0
        raise
    return unread


def wait_until_read(connection):
    """Returns when the client has read all that was sent to it."""
    while unread_bytes(connection):
        time.sleep(0.001)


def sleep_until(when):
    while (left := when - time.monotonic()) > 0:
        time.sleep(left)


class Server:
    def __init__(self, options):
        self.options = options
        self.slots = threading.Semaphore(options.slots) if options.slots else None
        self.lock = threading.Lock()
        self.requests = 0
        self.gathered = threading.Event()
        self.log = open(options.log.replace("PID", str(os.getpid())), "w") if options.log else None

    def text_of(self, body, chat):
        if chat:
            return "\n".join(message["content"] for message in body["messages"])
        return body["prompt"]

    def count_prompt(self, body, chat):
        return 3 + len(self.text_of(body, chat).split())

    def chunk(self, chat, text, finish=None, role=None):
        choice = {"index": 0, "finish_reason": finish}
        if chat:
            choice["delta"] = {"role": role, "content": ""} if role else {"content": text}
        else:
            choice["text"] = text
        return {"id": "x", "object": "chunk", "model": "fixed", "choices": [choice]}

    def generate(self, connection, target, body, chat):
        options = self.options
        with self.lock:
            self.requests += 1
            number = self.requests
        if number == options.exit_at:
            os._exit(3)
        if options.gather and number >= WARM_UP + options.gather:
            self.gathered.set()
        if options.gather and number > WARM_UP:
            self.gathered.wait()
        if options.fail_every and number % options.fail_every == 0:
            return self.answer(connection, 503, {"error": {"message": options.refusal}})
        if self.slots:
            self.slots.acquire()
        try:
            self.stream(connection, target, body, chat, number)
        finally:
            if self.slots:
                self.slots.release()

    def in_one_piece(self, number, connections):
        options = self.options
        if options.script and number > WARM_UP:
            return options.script[(number - WARM_UP - 1) // options.run_length] == "1"
        return options.knee > 0 and connections <= options.knee

    def stream(self, connection, target, body, chat, number):
        options = self.options
        start = time.monotonic()
        # Counting takes a millisecond of CPU time.
        connections = open_connections(options.port) if options.knee or options.count else None
        in_one_piece = self.in_one_piece(number, connections)
        slow = 10 if options.slow_every and number % options.slow_every == 0 else 1
        framing = b"Connection: close" if options.die_after else b"Transfer-Encoding: chunked"
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           + framing + b"\r\n\r\n")

        def send(*events):
            texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
            data = "".join(f"data: {text}\n\n" for text in texts).encode()
            connection.sendall(data if options.die_after else b"%x\r\n%s\r\n" % (len(data), data))

        if chat:
            send(self.chunk(chat, "", role="assistant"))
        count = body["max_tokens"]
        tokens = [self.chunk(chat, f" word{i}", finish="length" if i + 1 == count else None)
                  for i in range(count)]
        sending, sent = [], []  # before and after each token went out
        for i, token in enumerate(tokens):
            sleep_until(start + (options.ttft_ms * slow + i * options.itl_ms) / 1e3)
            sending.append(time.monotonic())
            send(*(tokens if in_one_piece else [token]))
            sent.append(time.monotonic())
            if in_one_piece:
                break
            if options.knee or options.script:
                wait_until_read(connection)
            if i + 1 == options.die_after and i + 1 < count:
                return connection.shutdown(socket.SHUT_RDWR)
        if body.get("stream_options", {}).get("include_usage"):
            usage = {"prompt_tokens": self.count_prompt(body, chat), "completion_tokens": count}
            send({"id": "x", "choices": [], "usage": usage})
        # Before the answer ends: a client that has read its end may end this process.
        if self.log:
            with self.lock:
                print(json.dumps({"start": start, "sending": sending, "tokens": sent,
                                  "connections": connections,
                                  "peer": connection.getpeername()[1], "target": target,
                                  "asked": self.text_of(body, chat)[:30]}),
                      file=self.log, flush=True)
        send("[DONE]")
        if options.die_after:
            return connection.shutdown(socket.SHUT_RDWR)
        connection.sendall(b"0\r\n\r\n")

    def answer(self, connection, status, body):
        data = json.dumps(body).encode()
        connection.sendall(b"HTTP/1.1 %d Status\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (status, len(data), data))

    def handle(self, connection, method, target, key, body):
        path = urllib.parse.urlsplit(target).path
        if key != self.options.api_key:
            return self.answer(connection, 401, {"error": {"message": f"the key is '{key}'"}})
        if path in ("/v1/completions", "/v1/chat/completions") and method == "POST":
            return self.generate(connection, target, json.loads(body), "chat" in path)
        if path == "/health":
            return self.answer(connection, 200, {})
        if path == "/v1/models":
            return self.answer(connection, 200, {"object": "list", "data": [{"id": "fixed"}]})
        return self.answer(connection, 404, {"error": {"message": f"no {path} here"}})

    def serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        options = self.options
        try:
            if options.certificate:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(options.certificate, options.key)
                connection = context.wrap_socket(connection, server_side=True)
            stream = connection.makefile("rb")
            while line := stream.readline():
                method, target, _ = line.decode().split(" ", 2)
                length, key = 0, ""
                while (header := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = header.decode().partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                    if name.lower() == "authorization":
                        key = value.strip().removeprefix("Bearer ")
                self.handle(connection, method, target, key, stream.read(length))
                if options.hang_up:
                    return connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client has gone
        finally:
            connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ttft-ms", type=float, default=50)
    parser.add_argument("--itl-ms", type=float, default=10)
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--refusal", default="out of order", help="what is said with --fail-every")
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--exit-at", type=int, default=0)
    parser.add_argument("--hang-up", action="store_true")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--knee", type=int, default=0)
    parser.add_argument("--script", default="")
    parser.add_argument("--run-length", type=int, default=0)
    parser.add_argument("--slow-every", type=int, default=0)
    parser.add_argument("--gather", type=int, default=0)
    parser.add_argument("--log", help="file for the times of every answer, CLOCK_MONOTONIC; PID in its name is the "
                                      "server's, since two may get the same port one after the other")
    parser.add_argument("--count", action="store_true", help="tell in the log how many clients are connected")
    parser.add_argument("--start-s", type=float, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    time.sleep(options.start_s)
    server = Server(options)
    listener = socket.create_server(("127.0.0.1", options.port), backlog=512)
    print(f"fixed server on port {options.port}", file=sys.stderr, flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=server.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
