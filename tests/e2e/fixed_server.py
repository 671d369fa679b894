"""A small server that speaks OpenAI's API and answers after known times: what a load generator is
checked against. It is none of Pinion's code. Standard library only.

    fixed_server.py --port 8000 --ttft-ms 50 --itl-ms 10 [--slots N] [--fail-every N] [--knee N]
                    [--slow-every N] [--gather N]
                    [--die-after N] [--refusal TEXT]

Every answer has `max_tokens` tokens: the first one --ttft-ms after the request came in (and had one
of the --slots places), each next one --itl-ms later, all at times that were fixed when the request
began, so that no delay adds up. With more than --knee requests at a time, first tokens take ten
times as long: a cliff; so do they in every Nth answer with --slow-every. With --gather no answer but
those of the warm-up begins before so many requests have come in. Answers of --die-after
have no length and end with the connection after N tokens, as if the server had died. Prompts count one
token a word and 3 more for every request.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time


WARM_UP = 2  # requests that `pinion load` sends first


def sleep_until(when):
    while (left := when - time.monotonic()) > 0:
        time.sleep(left)


class Server:
    def __init__(self, options):
        self.options = options
        self.slots = threading.Semaphore(options.slots) if options.slots else None
        self.lock = threading.Lock()
        self.requests = 0
        self.live = 0
        self.gathered = threading.Event()
        self.log = open(options.log, "w") if options.log else None

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

    def generate(self, connection, body, chat):
        options = self.options
        with self.lock:
            self.requests += 1
            number = self.requests
        if options.gather and number >= WARM_UP + options.gather:
            self.gathered.set()
        if options.gather and number > WARM_UP:
            self.gathered.wait()
        if options.fail_every and number % options.fail_every == 0:
            return self.answer(connection, 503, {"error": {"message": options.refusal}})
        if self.slots:
            self.slots.acquire()
        with self.lock:
            self.live += 1
            is_slow = (options.knee and self.live > options.knee) or (
                options.slow_every and number % options.slow_every == 0)
            slow = 10 if is_slow else 1
        try:
            self.stream(connection, body, chat, slow)
        finally:
            with self.lock:
                self.live -= 1
            if self.slots:
                self.slots.release()

    def stream(self, connection, body, chat, slow):
        options = self.options
        start = time.monotonic()
        framing = b"Connection: close" if options.die_after else b"Transfer-Encoding: chunked"
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           + framing + b"\r\n\r\n")

        def send(event):
            text = event if isinstance(event, str) else json.dumps(event)
            data = f"data: {text}\n\n".encode()
            connection.sendall(data if options.die_after else b"%x\r\n%s\r\n" % (len(data), data))

        if chat:
            send(self.chunk(chat, "", role="assistant"))
        count = body["max_tokens"]
        sending, sent = [], []  # before and after each token went out
        for i in range(count):
            sleep_until(start + (options.ttft_ms * slow + i * options.itl_ms) / 1e3)
            sending.append(time.monotonic())
            send(self.chunk(chat, f" word{i}", finish="length" if i + 1 == count else None))
            sent.append(time.monotonic())
            if i + 1 == options.die_after and i + 1 < count:
                return connection.shutdown(socket.SHUT_RDWR)
        if body.get("stream_options", {}).get("include_usage"):
            usage = {"prompt_tokens": self.count_prompt(body, chat), "completion_tokens": count}
            send({"id": "x", "choices": [], "usage": usage})
        # Before the answer ends: a client that has read its end may end this process.
        if self.log:
            with self.lock:
                print(json.dumps({"start": start, "sending": sending, "tokens": sent, "asked": self.text_of(body, chat)[:30]}),
                      file=self.log, flush=True)
        send("[DONE]")
        if options.die_after:
            return connection.shutdown(socket.SHUT_RDWR)
        connection.sendall(b"0\r\n\r\n")

    def answer(self, connection, status, body):
        data = json.dumps(body).encode()
        connection.sendall(b"HTTP/1.1 %d Status\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (status, len(data), data))

    def handle(self, connection, method, path, body):
        if path in ("/v1/completions", "/v1/chat/completions") and method == "POST":
            return self.generate(connection, json.loads(body), "chat" in path)
        if path == "/health":
            return self.answer(connection, 200, {})
        if path == "/v1/models":
            return self.answer(connection, 200, {"object": "list", "data": [{"id": "fixed"}]})
        return self.answer(connection, 404, {"error": {"message": f"no {path} here"}})

    def serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        try:
            while line := stream.readline():
                method, path, _ = line.decode().split(" ", 2)
                length = 0
                while (header := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = header.decode().partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                self.handle(connection, method, path, stream.read(length))
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
    parser.add_argument("--knee", type=int, default=0)
    parser.add_argument("--slow-every", type=int, default=0)
    parser.add_argument("--gather", type=int, default=0)
    parser.add_argument("--log", help="file for the times of every answer, CLOCK_MONOTONIC")
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
