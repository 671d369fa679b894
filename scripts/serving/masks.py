#!/usr/bin/python3
"""Measures how long steps wait for the masks of grammars.

  scripts/serving/masks.py [--sequences N] [--tokens N] [--flags FLAGS] [--binary FILE] [--json FILE] [MODEL]

Starts a server with --trace and asks for N answers at once, first without grammars, then under grammars of several
kinds that no answer comes to the end of. The trace tells of every step how long its sampling waited for a mask (spans
'wait for mask' within spans 'step'). Steps of fewer than N rows are not counted, and of the first few steps, in which a
grammar's lexer meets its states for the first time, a figure of their own is given.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from streams import TOP, Failed, free_port, get

READY_S, ANSWER_S = 600, 600  # how long to wait for a server that loads, and for an answer
WARM_STEPS = 16
OUT_OF_TIME = "to check it takes more than 2 s"  # why a server refuses a grammar that the machine had no time for
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags", "home"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
    "home": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": False, "required": ["city"],
                                          "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{2,12}$"}}}]}}}
# Each grammar gets as many sequences as the others.
GRAMMARS = [
    {"json": {"type": "array", "items": PERSON, "minItems": 1000}},
    {"json": {"type": "array", "items": {"type": "string"}, "minItems": 1000}},
    {"regex": "([A-Z][a-z]{2,9}( [a-z]{2,9}){3,8}[.] ){500}"},
    {"grammar": 'root ::= (("yes" | "no" | "perhaps, if all else fails" | [0-9]+ "." [0-9]) ", "){1000}'},
]


def spans_of(path, names):
    """[(name, begin, end, counts)] of a trace in microseconds of the monotonic clock, by their beginning."""
    events = json.loads(path.read_text())["traceEvents"]
    return sorted(((event["name"], event["ts"], event["ts"] + event["dur"], event.get("args", {}))
                   for event in events if event["ph"] == "X" and event["name"] in names), key=lambda span: span[1])


def union_us(spans):
    """How long at least one of them lasts; they come by their beginning."""
    total = until = 0.0
    for _, begin, end, _ in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def steps_within(spans, phase, sequences):
    """(duration, wait) in microseconds of the steps in a phase that computed as many rows as there are sequences, or more."""
    steps, inner = [span for span in spans if span[0] == "step"], [span for span in spans if span[0] != "step"]
    found, at = [], 0
    for _, begin, end, _ in steps:
        while at < len(inner) and inner[at][1] < begin:
            at += 1
        last = at
        while last < len(inner) and inner[last][1] < end:
            last += 1
        of_step, at = inner[at:last], last
        rows = sum(span[3].get("rows", 0) for span in of_step if span[0] == "forward")
        if begin >= phase[0] and end <= phase[1] and rows >= sequences:
            found.append((end - begin, union_us([span for span in of_step if span[0] == "wait for mask"])))
    return found


def ask(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    except OSError as error:
        raise Failed(f"no answer: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Failed(f"status {answer.status}: {text[:500]}")
    return json.loads(text)["usage"]["completion_tokens"]


def all_at_once(port, sequences, tokens, grammars):
    """The time of it in microseconds, begin and end. Prompts are of one token, so that a step has a row for each sequence."""
    bodies = [{"model": "m", "prompt": [1000 + i], "max_tokens": tokens, "ignore_eos": True, "temperature": 1, "seed": i,
               **({"structured_outputs": grammars[i % len(grammars)]} if grammars else {})} for i in range(sequences)]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(sequences) as pool:
        counts = list(pool.map(lambda body: ask(port, body), bodies))
    if min(counts) < tokens:
        raise Failed(f"an answer ended after {min(counts)} of {tokens} tokens")
    return began * 1e6, time.monotonic() * 1e6


def once_checked(*load):
    """all_at_once, repeated while a busy machine cannot check the grammars in time; the server keeps those that it has
    checked."""
    end = time.monotonic() + READY_S
    while True:
        try:
            return all_at_once(*load)
        except Failed as error:
            if OUT_OF_TIME not in str(error) or time.monotonic() > end:
                raise


def serve(binary, model, trace, flags, run):
    """Result of `run`, called with the port of a server, which is ended after it so that its trace is whole."""
    port = free_port()
    with open(trace.with_suffix(".log"), "w+", encoding="utf-8") as log:
        process = subprocess.Popen([str(binary), "serve", str(model), "--port", str(port), "--served-model-name", "m",
                                    "--trace", str(trace), *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            end = time.monotonic() + READY_S
            while get(port, "/health")[0] != 200:
                if process.poll() is not None or time.monotonic() > end:
                    raise Failed(f"the server is not ready: {pathlib.Path(log.name).read_text()[-2000:]}")
                time.sleep(0.1)
            return run(port)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def figures_of(steps):
    if not steps:
        raise Failed("the trace has no step of all sequences")
    waits = [wait for _, wait in steps]
    return {"steps": len(steps), "step_ms": quantile([step for step, _ in steps], 0.5) / 1e3,
            "wait_us_mean": sum(waits) / len(waits), "wait_us_median": quantile(waits, 0.5),
            "wait_us_p99": quantile(waits, 0.99), "wait_us_max": max(waits),
            "wait_share": sum(waits) / sum(step for step, _ in steps)}


def measure(binary, model, sequences=16, tokens=96, flags=()):
    """The figures as a dictionary."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"

        def run(port):
            once_checked(port, sequences, 4, GRAMMARS)  # the helper starts, and reads the vocabulary
            return [once_checked(port, sequences, tokens, grammars) for grammars in (None, GRAMMARS)]
        phases = serve(binary, model, trace, ["--max-num-seqs", str(sequences), *flags], run)
        spans = spans_of(trace, ("step", "forward", "wait for mask"))
    plain, constrained = (steps_within(spans, phase, sequences) for phase in phases)
    return {"model": str(model), "sequences": sequences, "tokens": tokens, "without_grammars": figures_of(plain),
            "first_steps": figures_of(constrained[:WARM_STEPS]), "with_grammars": figures_of(constrained[WARM_STEPS:])}


def describe(figures):
    """A few lines for a person."""
    def words(name, what):
        one = figures[name]
        return (f"{what}: {one['steps']} steps of {one['step_ms']:.1f} ms (median), which waited for masks {one['wait_us_mean']:.0f} "
                f"us on average ({one['wait_share']:.3%}), median {one['wait_us_median']:.0f}, 99 % {one['wait_us_p99']:.0f}, "
                f"at most {one['wait_us_max']:.0f}")
    return "\n".join([f"{figures['sequences']} sequences of {figures['model']}", words("without_grammars", "without grammars"),
                      words("first_steps", "first steps with grammars"), words("with_grammars", "with grammars")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", default="preset:qwen2.5-0.5b", metavar="MODEL")
    parser.add_argument("--binary", default=TOP / "build/pinion", type=pathlib.Path)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96, help="of each answer")
    parser.add_argument("--flags", default="", help="further flags of `pinion serve`")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    arguments = parser.parse_args()
    try:
        figures = measure(arguments.binary, arguments.model, arguments.sequences, arguments.tokens, arguments.flags.split())
    except (Failed, OSError) as error:
        print(f"masks.py: {error}", file=sys.stderr)
        return 1
    print(describe(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
