"""`--trace FILE`, and what Ctrl-C leaves behind."""

import json
import os
import signal
import subprocess
import threading

import pytest

from conftest import PATIENCE_S, wait_until

MODEL = "models/tiny-trained"
PARTS = {"schedule", "commit", "forward", "embed", "norm", "qkv", "rotary+store", "attention", "o",
         "mlp_in", "down", "head", "sample", "barrier"}


def spans_of(path):
    """{(pid, tid): [(begin, end, name)]} of a trace, in the order of the file."""
    rows = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            row = rows.setdefault((event["pid"], event["tid"]), [])
            row.append((event["ts"], event["ts"] + event["dur"], event["name"]))
    return rows


def check_nesting(spans):
    """Every span ends within the one that encloses its beginning."""
    open_ends = []
    for begin, end, name in spans:
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 0.001, name
        open_ends.append(end)


def headings(path, kind):
    return {event["args"]["name"] for event in json.loads(path.read_text())["traceEvents"]
            if event["name"] == kind}


@pytest.mark.parametrize("command", [
    ["run", "-p", "Once upon a time", "--max-tokens", 4],
    ["bench", "--prompt-len", 8, "--output-len", 4, "--rounds", 1],
])
def test_traces_every_part_of_a_step_on_every_thread(pinion, data, tmp_path, command):
    path = tmp_path / "trace.json"
    done = pinion(command[0], data / MODEL, *command[1:], "--trace", path, "--kv-cache-space",
                  "64MiB", "-tp", 2, "--threads-bind", "nobind", env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = spans_of(path)
    for spans in rows.values():
        check_nesting(spans)
    assert headings(path, "thread_name") == {"rank 0 thread 0", "rank 1 thread 0"}
    names = [{name for _, _, name in spans} for spans in rows.values()]
    assert PARTS <= set.union(*names)
    computing = [each for each in names if "forward" in each]
    assert len(computing) == 2
    assert all(PARTS - {"schedule", "commit", "sample"} <= each for each in computing)


def test_serve_traces_both_of_its_processes(start_server, data, tmp_path):
    path = tmp_path / "trace.json"
    server = start_server(data / MODEL, "--trace", path, "--kv-cache-space", "64MiB")
    server.post("/v1/completions", {"model": str(data / MODEL), "prompt": "Once", "max_tokens": 4})
    assert server.stop() == 0
    assert headings(path, "process_name") == {"engine", "front end"}
    rows = spans_of(path)
    for spans in rows.values():
        check_nesting(spans)
    names = {name for spans in rows.values() for _, _, name in spans}
    assert PARTS | {"receive", "send", "request", "tokenise", "detokenise"} <= names


@pytest.mark.parametrize("command", [["run", "-p", "x"], ["bench"], ["serve"]])
def test_refuses_a_trace_that_cannot_be_written_before_it_loads(pinion, data, tmp_path, command):
    done = pinion(command[0], data / MODEL, *command[1:], "--trace", tmp_path / "no" / "trace.json")
    assert done.returncode == 1
    assert "no/trace.json" in done.stderr and "No such file" in done.stderr
    assert "load and pack" not in done.stderr


@pytest.fixture
def start(spawn, tmp_path):
    """start(ARGUMENTS...) -> a running command and the file that its standard error goes to."""
    log = tmp_path / "stderr"

    def run(*arguments):
        with open(log, "wb") as stderr:
            return spawn(*arguments, stdout=subprocess.PIPE, stderr=stderr), log

    return run


def wait_for(condition, process):
    assert wait_until(lambda: condition() or process.poll() is not None) and condition()


def interrupt(process):
    """Standard output of a command that Ctrl-C ends."""
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    return out


class Terminal:
    """Standard error of a command that tells a terminal how far it has come; read as it comes, so that
    the command never waits for us."""

    def __init__(self):
        self.reading, self.writing = os.openpty()
        self.text = ""
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            while data := os.read(self.reading, 1 << 16):
                self.text += data.decode(errors="replace")
        except OSError:
            pass  # nobody holds its other end

    def close(self):
        """Once the command has ended."""
        os.close(self.writing)
        self.thread.join()
        os.close(self.reading)


def test_an_interrupted_bench_prints_the_rounds_it_has(spawn, tmp_path):
    trace, terminal = tmp_path / "trace.json", Terminal()
    try:
        process = spawn("bench", "preset:tiny", "--rounds", 100000, "--json", "--prompt-len", 8,
                        "--output-len", 4, "--kv-cache-space", "64MiB", "--trace", trace,
                        stdout=subprocess.PIPE, stderr=terminal.writing)
        wait_for(lambda: "round 2 of 100000" in terminal.text, process)
        rounds = json.loads(interrupt(process))["rounds"]
    finally:
        process.kill()
        process.wait()
        terminal.close()
    assert rounds >= 2
    words = terminal.text.splitlines()[-1]
    assert "interrupted" in words and f"of {rounds} of 100000 rounds" in words
    for spans in spans_of(trace).values():
        check_nesting(spans)


def test_an_interrupted_run_leaves_its_finished_lines(start, tmp_path):
    lines = tmp_path / "in.jsonl"
    prompts = [{"input_ids": [i, 5], "max_tokens": 1 if i < 3 else 2000} for i in range(600)]
    lines.write_text("".join(json.dumps(line) + "\n" for line in prompts))
    output = tmp_path / "out.jsonl"
    process, log = start("run", "preset:tiny", "--input", lines, "--output",
                         output, "--ignore-eos", "--max-num-seqs", 1, "--kv-cache-space", "64MiB")
    wait_for(lambda: output.exists() and output.read_text().count("\n") >= 3, process)
    interrupt(process)
    out = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["prompt_ids"][0] for line in out] == list(range(len(out)))
    assert f"interrupted; {len(out)} of 600 results are written to" in log.read_text()


def test_an_interruption_while_loading_says_so(start):
    process, log = start("bench", "preset:llama-3.2-1b", "--kv-cache-space",
                         "64MiB")
    wait_for(lambda: "capacity check" in log.read_text(), process)
    assert interrupt(process) == ""
    assert "interrupted; no round was measured yet" in log.read_text()
