"""The engine's stand-in (`serve --stand-in`), and the script that measures the front end with it."""

import json
import subprocess
import sys


def test_the_stand_in_answers_with_the_prompt_over_and_over(start_server, data):
    server = start_server(data / "models/tiny-trained", "--stand-in", "500", "--served-model-name", "tiny")
    assert server.get("/server_info").count('"stand_in_tokens_per_s":500') == 1
    prompt = server.post("/tokenize", {"prompt": "Once upon a time"})["tokens"]
    answer = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 2 * len(prompt)})
    assert answer["choices"][0]["text"] == "Once upon a timeOnce upon a time"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2 * len(prompt)


def test_a_rate_that_a_heartbeat_would_not_survive_is_refused(pinion, data):
    done = pinion("serve", data / "models/tiny-trained", "--stand-in", "0.1")
    assert done.returncode == 2 and "--stand-in 0.1, want" in done.stderr


def measure(top, binary, *flags):
    return subprocess.run([sys.executable, top / "scripts/serving/streams.py", "--binary", binary, *flags],
                          capture_output=True, text=True, timeout=120, check=False)


def test_all_streams_are_read_and_charged(top, binary, data, tmp_path):
    out = tmp_path / "streams.json"
    done = measure(top, binary, "--streams", "30", "--rate", "50", "--seconds", "2", "--json", out,
                   data / "models/tiny-trained")
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["streams"] == 30 and figures["bytes_per_event"] > 100
    assert figures["events_per_s"] > 30  # each stream got some, or the script had failed
    assert figures["cpu_us_per_event"] > 0
    assert "30 streams of 50 events/s" in done.stdout


def test_a_server_that_does_not_start_is_reported(top, binary, tmp_path):
    done = measure(top, binary, "--streams", "1", tmp_path / "no-model")
    assert done.returncode == 1
    assert "the server is not ready" in done.stderr and "no-model" in done.stderr
