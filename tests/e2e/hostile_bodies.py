"""Bodies that nobody should send, to every endpoint of /openapi.json that reads one: valid ones in which parts are replaced,
repeated, dropped, or grow, and text that is no JSON. Whatever comes, the server answers with what the client asked for or
with what was wrong with it, and goes on.

  tests/e2e/hostile_bodies.py [--seconds S] [--seed N] [--only SERVER] [--binary FILE] [--show]

runs alone, and prints how many bodies each endpoint took and refused, and what was wrong.
"""

import argparse
import collections
import concurrent.futures
import copy
import functools
import http.client
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

from own_server import TOP, Server
from test_llama_server import make_filling

FLAGS = ("--served-model-name", "m", "--max-model-len", "256", "--kv-cache-space", "64MiB", "--isa", "scalar", "-tp", "1",
         "--trust-request-chat-template")
# The servers, by their names in messages: a model, and the flags that it needs beside FLAGS.
SERVERS = {"generator": ("models/tiny-trained", "--tool-call-parser", "hermes", "--enable-cache-reset"),
           "embedder": ("embedders/qwen3-embedding", "--dtype", "float32"),
           "scorer": ("embedders/bert-reranker", "--dtype", "float32", "--ignore-unknown-fields")}
DATA = TOP / "tests/data"
PATIENCE_S = 120  # for an answer: it only bounds a failure
CLIENTS = 4
# Endpoints that change the server for others.
LEFT_OUT = {"/sleep", "/wake_up"}
FEW = ("max_tokens", "max_output_tokens", "max_completion_tokens", "n_predict")  # mostly of few tokens

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "x", None]}, "b": {"type": "array", "items": {"type": "string"}}},
          "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
TAG = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [
    {"type": "tag", "begin": "<f=x>", "content": {"type": "json_schema", "json_schema": {"type": "boolean"}}, "end": "</f>"}]}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
# Values that belong somewhere: what the fields of these names may hold, as far as it is nested.
KNOWN = {
    "messages": [[{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "x"}]},
                  {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "c", "content": "y"}],
                 [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]},
                  {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""},
                                                    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]}]],
    "input": [["x", "y"], [[5, 6], [7]], [{"role": "user", "content": "x"}],
              [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
               {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
               {"type": "function_call_output", "call_id": "c", "output": "y"},
               {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]}]],
    "tools": [[TOOL], [{"type": "function", "name": "f", "parameters": SCHEMA}],
              [{"name": "f", "input_schema": SCHEMA, "description": "d"}]],
    "tool_choice": ["required", "none", {"type": "function", "function": {"name": "f"}}, {"type": "function", "name": "f"},
                    {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "f"},
                    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}},
                    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}],
    "response_format": [{"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
                        {"type": "json_object"}, TAG],
    "structured_outputs": [{"json": SCHEMA}, {"regex": "[a-c]{2,5}"}, {"choice": ["a", "b"]}, {"grammar": 'root ::= "a" | "b"'},
                           {"json_object": True}, {"structural_tag": json.dumps(TAG)}],
    "guided_json": [SCHEMA], "guided_regex": ["(a|b)+c?"], "guided_choice": [["a", "b"]],
    "guided_grammar": ['start: "a" /[0-9]/', 'root ::= "a" [0-9]'], "grammar": ['root ::= "a"'], "json_schema": [SCHEMA],
    "text": [{"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "low"}],
    "output_config": [{"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}],
    "thinking": [{"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}],
    "reasoning": [{"effort": "low", "summary": "auto"}], "include": [["message.output_text.logprobs"]],
    "logit_bias": [{"5": -100, "6": 1.5}, [[5, False], ["x", 2]]], "stop": ["x", ["x", "yy"]], "stop_token_ids": [[5]],
    "bad_words": [["x", "the"]], "allowed_token_ids": [[5, 6, 7]], "stream_options": [{"include_usage": True}],
    "chat_template": ["{{ messages[0].content }}", "{% for m in messages %}{{ m.role }}{% endfor %}"],
    "chat_template_kwargs": [{"enable_thinking": False}], "documents": [[{"text": "x", "title": "t"}], ["x", "y"]],
    "prompt": ["x", ["x", "y"], [5, 6], [[5], [6]]], "samplers": [["top_k", "temperature"], "kt"],
    "system": [[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]],
    "queries": [["x", "y"]], "input_extra": [[{"filename": "f", "text": "x"}]], "metadata": [{"a": "b"}],
    "stream": [True], "n": [2], "echo": [True], "logprobs": [2, True], "top_logprobs": [2], "prompt_logprobs": [1],
    "use_beam_search": [True], "temperature": [0, 2.0], "best_of": [2], "suffix": ["y"], "seed": [7],
    "thinking_token_budget": [3], "truncate_prompt_tokens": [1, -1], "priority": [-5], "min_tokens": [3], "ignore_eos": [True],
    "return_token_ids": [True], "continue_final_message": [True], "add_generation_prompt": [False], "dimensions": [8],
    "encoding_format": ["base64", "bytes", "bytes_only"], "embed_dtype": ["float16", "fp8_e4m3"], "endianness": ["big"],
}
# Values that may be anywhere. Callables get the generator.
LONG = "fox " * 5000
ODD = [
    None, True, False, 0, 1, -1, 2, 7, 1.5, -0.0, 1e-320, 1e308, -1e308, 2**31 - 1, 2**31, -2**31, 2**32, 2**53 + 1,
    2**63 - 1, -2**63, 2**63, 2**64, 10**30, 1e19, "", "x", " ", "null", "NaN", "0", "-1", "1e999", "\x00", "a\x00b", "\ud800",
    "\udfff\ud800", "\U0001f600", "e\u0301" * 20, "\u202e", "\ufeff", "\r\n\r\n", "data: [DONE]\n\n", "<think>", "</think>",
    "<tool_call>", "<|im_end|>", "<s>", "{{ 7 * 7 }}", "{% for i in range(10**9) %}x{% endfor %}", "{{ ''.__class__ }}", "(" * 50,
    "[a-z]{1,9}", "(a|b)*", "((a{9}){9}){9}", "%s%n", "../../etc/passwd", "http://127.0.0.1/", LONG, [], {}, [[]], [{}], [None],
    [[[]]], {"": None}, {"type": None}, {"a": {"a": {"a": {}}}}, {"$ref": "#"}, {"$ref": "#/properties/a"}, {"type": "object"},
    {"anyOf": [{"$ref": "#"}]}, {"pattern": "(?=x)", "type": "string"}, {"type": "string", "minLength": 5, "maxLength": 2},
    {"minimum": 5, "maximum": 2, "type": "integer"}, {"enum": []}, {"not": {}}, {"items": [], "type": "array"},
    list(range(300)), ["x"] * 300, [[5]] * 50, {str(i): i for i in range(300)}, {"type": "text", "text": "x"},
    {"type": "image_url", "image_url": {"url": "data:,"}}, {"role": "user", "content": "x"}, {"role": "", "content": ""},
]


def nested(rng):
    """A value in 5 to 300 layers of lists and objects."""
    value = rng.choice(ODD)
    for _ in range(rng.choice([5, 60, 300])):
        value = [value] if rng.random() < 0.5 else {rng.choice(["a", "type", "items", "content", "function"]): value}
    return value


def odd(rng):
    if rng.random() < 0.05:
        return nested(rng)
    return copy.deepcopy(rng.choice(ODD))


def places(value, at=()):
    """The paths of all parts of a value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items)[:50]:
        yield from places(part, (*at, key))


def change(rng, body):
    """Replaces, drops, repeats or wraps a part of it, or adds one."""
    at = rng.choice(list(places(body))[1:] or [None])
    if at is None:
        return
    holder = body
    for key in at[:-1]:
        holder = holder[key]
    key, act = at[-1], rng.randrange(7)
    if act < 3:
        holder[key] = odd(rng)
    elif act == 3:
        del holder[key]
    elif act == 4:
        holder[key] = [copy.deepcopy(holder[key]) for _ in range(rng.choice([1, 2, 40]))]
    elif act == 5 and isinstance(holder, dict):
        holder[rng.choice(["type", "name", "content", "text", "function", "schema", "id", "role", "strict", "tools", "mode",
                           "properties", "required", "format", "parameters", "x"])] = odd(rng)
    elif isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), odd(rng))
    else:
        holder[key] = {"type": holder[key]}


def plausible(rng, name, schema):
    """A value that the field may have, as far as its schema and KNOWN tell."""
    schema = next(iter(schema.get("anyOf", [])), schema) if isinstance(schema, dict) else {}
    values = [*KNOWN.get(name, []), *schema.get("enum", [])]
    if not values or rng.random() < 0.1:
        values = {"boolean": [True, False], "integer": [0, 1, 3], "number": [0, 0.5, 1], "string": ["x", "Once upon"],
                  "array": [[], ["x"], [5]], "object": [{}]}.get(schema.get("type"), ODD)
    return copy.deepcopy(rng.choice(values))


def some_body(rng, schema):
    """Required fields and some others, mostly with values that they may have; in half of the bodies parts are changed."""
    fields = schema["properties"]
    names = [*schema.get("required", []), *rng.sample(sorted(fields), min(len(fields), rng.choice([0, 1, 1, 2, 3, 6])))]
    for name, share in (("messages", 0.5), ("input", 0.5), ("queries", 0.7), ("documents", 0.7), *((name, 0.7) for name in FEW)):
        if name in fields and rng.random() < share:
            names.append(name)
    if "tool_choice" in names and "tools" in fields:
        names.append("tools")
    body = {name: plausible(rng, name, fields[name]) for name in names}
    body |= {name: rng.choice([1, 5, 20]) for name in FEW if name in body}
    if "model" in body:
        body["model"] = "m"
    for _ in range(rng.choice([0, 0, 0, 1, 1, 1, 2, 5])):
        change(rng, body)
    return body


def spoilt(rng, text):
    """Bytes that are, mostly, no JSON any more."""
    act = rng.randrange(7)
    at = rng.randrange(len(text) + 1)
    if act == 0:
        return text[:at]
    if act == 1:
        return text[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9))) + text[at:]
    if act == 2:
        return text + text
    if act == 3:
        return text.replace(b'"', b"'")
    if act == 4:  # a field twice
        return text[:-1] + b"," + text[1:] if len(text) > 2 else text
    if act == 5:
        return text.replace(b"1", rng.choice([b"NaN", b"Infinity", b"-", b"01", b"1.", b"1e400", b"0x1"]))
    return rng.choice([b"", b"[" * 5000, b'{"a":' * 5000, b"\xff\xfe", b"null", b'"', b"[]", b"{}", text.decode().encode("utf-16")])


def some_text(rng, schema):
    """The body as it is sent."""
    if rng.random() < 0.02:
        text = json.dumps(odd(rng)).encode()
    else:
        text = json.dumps(some_body(rng, schema), allow_nan=True).encode()
    return spoilt(rng, text) if rng.random() < 0.1 else text


def error_of(text):
    """The error in an answer's JSON, of whichever API; None: it has none."""
    value = json.loads(text)
    return value.get("error") if isinstance(value, dict) else None


def events_of(text):
    """The data of a stream's events, but for the mark at its end."""
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [line for line in lines if line != "[DONE]"]


def ended(path, events, text):
    """Whether a stream came to its end, as its API has it."""
    last = json.loads(events[-1]) if events else {}
    if path == "/v1/messages":
        return last.get("type") in ("message_stop", "error")
    if path == "/v1/responses":
        return last.get("type") in ("response.completed", "response.incomplete", "response.failed")
    if path in ("/completion", "/completions", "/infill"):
        return last.get("stop") is True or "error" in last
    return text.rstrip().endswith("data: [DONE]")


# Costs of a client's grammar beyond those of its check are found while it is followed: its sender alone gets such
# an answer. All that are being followed get the last one, if their process is silent for 5 s, as it may be on a busy machine.
OWN_FAULT = ("too costly", "cannot be followed", "cannot follow", "the process that follows grammars took too long")


def verdict(path, status, kind, text):
    """The fault of an answer; None: it has none."""
    if status // 100 not in (2, 4):
        if status == 504:  # the body's own `timeout` was over
            return None
        try:
            message = str(error_of(text).get("message"))
        except (ValueError, AttributeError):
            message = ""
        return None if status == 500 and any(words in message for words in OWN_FAULT) else f"status {status}"
    try:
        if status >= 400:
            error = error_of(text)
            if not isinstance(error, dict) or not error.get("message"):
                return "an error without a message"
        elif kind.startswith("text/event-stream"):
            events = events_of(text)
            if not ended(path, events, text):
                return "a stream without its end"
            error = error_of(events[-1]) if events else None
            code = error.get("code") if isinstance(error, dict) else None
            if code in (500, 503) and not any(words in error["message"] for words in OWN_FAULT):
                return f"a stream that ended with {code}"
        elif kind.startswith("application/json"):
            json.loads(text)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        return f"an answer that its client cannot read: {error!r}"
    return None


class Sender:
    """Sends bodies to a server and judges its answers."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        document = json.loads(server.get("/openapi.json"))
        schemas = document["components"]["schemas"]
        self.targets = [(path, schemas[one["$ref"].rsplit("/", 1)[1]]) for path, item in document["paths"].items()
                        if path not in LEFT_OUT and "requestBody" in item.get("post", {})
                        for wanted in [item["post"]["requestBody"]["content"]["application/json"]["schema"]]
                        for one in wanted.get("anyOf", [wanted])]
        self.tally = collections.Counter()
        self.slowest = (0.0, "", b"")
        self.failures = []
        self.lock = threading.Lock()

    def send(self, path, text):
        """(status, content type, text) of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)
        try:
            connection.request("POST", path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read().decode("utf-8", "surrogateescape")
        finally:
            connection.close()

    def try_one(self, seed):
        rng = random.Random(seed)
        path, schema = rng.choice(self.targets)
        text = some_text(rng, schema)
        began = time.monotonic()
        try:
            status, kind, answer = self.send(path, text)
            wrong = verdict(path, status, kind, answer)
        except (OSError, http.client.HTTPException) as error:
            status, answer, wrong = 0, "", f"no answer: {error!r}"
        took = time.monotonic() - began
        with self.lock:
            self.tally[path, status] += 1
            self.slowest = max(self.slowest, (took, path, text[:300]))
            if wrong:
                self.failures.append(f"{self.name}, seed {seed}: POST {path} {text[:600]!r}: {wrong}: {answer[:400]}")

    def run(self, seeds):
        """Sends the bodies of these seeds; ends early once the server is gone."""
        def each(seed):
            if self.server.process.poll() is None and len(self.failures) < 50:
                self.try_one(seed)
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(each, seeds))

    def run_for(self, seconds, seed):
        """In rounds, until the time is over; how many there were."""
        end, sent = time.monotonic() + seconds, 0
        while time.monotonic() < end and not self.failures:
            self.run(range(seed + sent, seed + sent + 100))
            sent += 100
        return sent

    def check_rest(self):
        """The server has nothing left to do, and is the one that it was."""
        def kept():
            values = collections.Counter()
            for line in self.server.get("/metrics").splitlines():
                if line.startswith(AT_REST):
                    values[line.partition("{")[0]] += float(line.rsplit(" ", 1)[1])
            return {name: value for name, value in values.items() if value}
        if self.server.process.poll() is not None:
            self.failures.append(f"{self.name}: the server ended with {self.server.process.returncode}")
            return
        end = time.monotonic() + PATIENCE_S
        while kept() and time.monotonic() < end:
            time.sleep(0.1)
        if left := kept():
            self.failures.append(f"{self.name}: at rest it has {left}")

    def report(self):
        by_path = collections.defaultdict(collections.Counter)
        for (path, status), count in self.tally.items():
            by_path[path][status] += count
        lines = [f"{self.name} {path}: " + ", ".join(f"{count} x {status}" for status, count in sorted(counts.items()))
                 for path, counts in sorted(by_path.items())]
        took, path, text = self.slowest
        return "\n".join([*lines, f"{self.name}: the slowest answer took {took:.1f} s, of POST {path} {text!r}"])


AT_REST = ("vllm:num_requests_running", "vllm:num_requests_waiting", "pinion:pool_queued", "pinion:request_memory_bytes",
           "pinion:engine_restarts_total", "vllm:kv_cache_usage_perc")


def start(start_server, name, folder):
    """A server of SERVERS; `start_server` as in conftest.py. `folder`: for a model with tokens for gaps."""
    model, *flags = SERVERS[name]
    model = make_filling(DATA, folder / "model") if name == "generator" else DATA / model
    return start_server(model, *FLAGS, *flags)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=600, help="of sending, for all servers together")
    parser.add_argument("--seed", type=int, default=1, help="of the first body; the others' follow")
    parser.add_argument("--only", choices=SERVERS, help="one server")
    parser.add_argument("--show", action="store_true", help="print the body of this seed for each server, and send nothing else")
    parser.add_argument("--binary", type=pathlib.Path, default=TOP / "build/pinion")
    arguments = parser.parse_args()
    failures = []
    names = [arguments.only] if arguments.only else list(SERVERS)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            log = pathlib.Path(folder) / f"{name}.log"
            server = start(functools.partial(Server, arguments.binary, log), name, pathlib.Path(folder))
            try:
                sender = Sender(server, name)
                if arguments.show:
                    rng = random.Random(arguments.seed)
                    path, schema = rng.choice(sender.targets)
                    text = some_text(rng, schema)
                    print(path, text.decode(errors="replace"), sender.send(path, text), sep="\n")
                    continue
                sent = sender.run_for(arguments.seconds / len(names), arguments.seed)
                sender.check_rest()
                print(sender.report(), f"{name}: {sent} bodies, {len(sender.failures)} failures", sep="\n", flush=True)
                if sender.failures:
                    print(log.read_text()[-3000:], file=sys.stderr)
                failures += sender.failures
            finally:
                server.stop()
    for failure in failures[:20]:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
