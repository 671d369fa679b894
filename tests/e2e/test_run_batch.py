"""OpenAI's batch files, answered by a server that the command starts and stops."""

import json
import signal

import pytest
from conftest import running, wait_until

MODEL = "preset:tiny"


def request(name, url="/v1/completions", **body):
    return {"custom_id": name, "method": "POST", "url": url,
            "body": {"model": MODEL, "max_tokens": 4, "temperature": 0, **body}}


def batch(tmp_path, *requests):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in requests))
    return path


def answers(path):
    return {one["custom_id"]: one for one in map(json.loads, path.read_text().splitlines())}


def test_every_request_is_answered_as_the_server_answers_it(pinion, tmp_path):
    requests = [request("text", prompt="once upon"), request("other", model="gpt-4", prompt="x"),
                request("none", "/v1/nowhere"), request("wrong", prompt="x", temperature=-1)]
    out = tmp_path / "out.jsonl"
    done = pinion("run-batch", MODEL, "-i", batch(tmp_path, *requests), "-o", out)
    assert done.returncode == 1 and "requests failed" in done.stderr
    given = answers(out)
    status = {name: one["response"]["status_code"] for name, one in given.items()}
    assert status["text"] == 200 and status["other"] == status["none"] == 404 and status["wrong"] == 400
    body = given["text"]["response"]["body"]
    assert body["usage"]["completion_tokens"] == 4 and body["object"] == "text_completion"
    assert given["text"]["response"]["request_id"] == body["id"] and given["text"]["error"] is None
    assert "gpt-4" in given["other"]["response"]["body"]["error"]["message"]
    assert "temperature" in given["wrong"]["response"]["body"]["error"]["message"]
    alone = pinion("run", MODEL, "-p", "once upon", "--max-tokens", 4, "--temperature", 0, "--json")
    assert body["choices"][0]["text"] == json.loads(alone.stdout)["text"]


def test_an_interrupted_batch_goes_on_from_its_last_answer(pinion, spawn, tmp_path):
    requests = [request(f"r{i}", prompt=f"number {i}", ignore_eos=True) for i in range(60)]
    for long in requests[4:]:  # a million tokens: it cannot end before it is interrupted
        long["body"] |= {"max_tokens": 400, "n": 64}
    given, out = batch(tmp_path, *requests), tmp_path / "out.jsonl"
    words = ("run-batch", MODEL, "-i", given, "-o", out, "--max-concurrency", 2)
    process = spawn(*words)
    wait_until(lambda: out.exists() and out.read_text().count("\n") >= 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 1
    before = out.read_text()
    assert 3 <= before.count("\n") < 60
    again = pinion(*words)
    assert again.returncode == 2 and "--resume" in again.stderr and out.read_text() == before
    out.write_text(before + '{"custom_id": "r59", "response"')  # as if it had been killed while writing
    for long in requests[4:]:
        long["body"] |= {"max_tokens": 4, "n": 1}
    batch(tmp_path, *requests)
    done = pinion(*words, "--resume")
    assert done.returncode == 0, done.stderr
    assert out.read_text().startswith(before)
    assert set(answers(out)) == {one["custom_id"] for one in requests} and out.read_text().count("\n") == 60
    assert pinion(*words, "--resume").returncode == 0, "nothing is left to do"


@pytest.mark.parametrize("line, says", [
    ({"custom_id": "a", "method": "GET", "url": "/v1/models", "body": {}}, "'method' must be POST"),
    (request("a", prompt="x", stream=True), "'stream' cannot be used in a batch"),
    (request("first", prompt="x"), "custom_id 'first' as well"),
])
def test_a_bad_line_is_named_before_the_server_starts(pinion, tmp_path, line, says):
    given, out = batch(tmp_path, request("first", prompt="x"), line), tmp_path / "out.jsonl"
    done = pinion("run-batch", MODEL, "-i", given, "-o", out)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "request 2 of the batch" in done.stderr and says in done.stderr and not out.exists()


def test_the_server_ends_with_the_batch(pinion, tmp_path):
    done = pinion("run-batch", MODEL, "-i", batch(tmp_path, request("a", prompt="x")), "-o", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["response"]["status_code"] == 200
    assert not running("serve", MODEL, "--port")
