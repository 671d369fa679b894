"""Some thousand bodies of hostile_bodies.py, the same ones every time, and that it notices what it is there to notice."""

import json
import os
import random
import signal

import pytest

import hostile_bodies
from hostile_bodies import verdict

BODIES = {"generator": 500, "embedder": 1500, "scorer": 1500}


@pytest.mark.parametrize("name", hostile_bodies.SERVERS)
def test_every_body_gets_an_answer_and_leaves_nothing_behind(start_server, tmp_path, name):
    server = hostile_bodies.start(start_server, name, tmp_path)
    sender = hostile_bodies.Sender(server, name)
    sender.run(range(BODIES[name]))
    sender.check_rest()
    assert not sender.failures, "\n".join(sender.failures[:5])
    by_status = {status: sum(count for (_, one), count in sender.tally.items() if one == status) for status in (200, 400)}
    assert sum(sender.tally.values()) == BODIES[name]
    assert min(by_status.values()) > BODIES[name] / 10, "bodies are neither all right nor all wrong"
    assert {path for path, _ in sender.tally} == {path for path, _ in sender.targets}
    server.stop()


def test_a_server_that_is_killed_is_noticed(start_server, tmp_path):
    server = hostile_bodies.start(start_server, "scorer", tmp_path)
    sender = hostile_bodies.Sender(server, "scorer")
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    sender.try_one(1)
    assert "no answer" in sender.failures[0]
    sender.check_rest()
    assert "ended with -9" in sender.failures[1]


def test_a_seed_makes_the_same_body_again():
    schema = {"properties": {"prompt": {"type": "string"}, "n": {"type": "integer"}}, "required": ["prompt"]}
    texts = [[hostile_bodies.some_text(random.Random(seed), schema) for seed in range(200)] for _ in range(2)]
    assert texts[0] == texts[1] and len(set(texts[0])) > 50


SSE, JSON = "text/event-stream", "application/json"
CHAT, MESSAGES, RESPONSES, LLAMA = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/completion"


def events(*values, end=""):
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values) + end


@pytest.mark.parametrize("path, status, kind, text", [
    (CHAT, 200, JSON, "{}"), (CHAT, 400, JSON, '{"error": {"message": "no"}}'), (CHAT, 504, JSON, "{}"),
    (CHAT, 200, SSE, events({"choices": []}, end="data: [DONE]\n\n")),
    (CHAT, 500, JSON, '{"error": {"message": "the grammar is too costly: x"}}'),
    (MESSAGES, 200, SSE, events({"type": "message_start"}, {"type": "message_stop"})),
    (RESPONSES, 200, SSE, events({"type": "response.incomplete"})), (LLAMA, 200, SSE, events({"stop": True})),
])
def test_allowed_answers_are_fine(path, status, kind, text):
    assert verdict(path, status, kind, text) is None


@pytest.mark.parametrize("path, status, kind, text, why", [
    (CHAT, 500, JSON, '{"error": {"message": "oops"}}', "status 500"), (CHAT, 503, JSON, "{}", "status 503"),
    (CHAT, 500, JSON, "no JSON", "status 500"), (CHAT, 302, JSON, "{}", "status 302"),
    (CHAT, 400, JSON, "{}", "without a message"), (CHAT, 400, JSON, "<html>", "cannot read"),
    (CHAT, 200, JSON, '{"id": ', "cannot read"), (CHAT, 200, SSE, events({"choices": []}), "without its end"),
    (CHAT, 200, SSE, events({"error": {"message": "oops", "code": 500}}, end="data: [DONE]\n\n"), "ended with 500"),
    (CHAT, 200, SSE, "", "without its end"), (CHAT, 200, SSE, "data: {\n\ndata: [DONE]\n\n", "cannot read"),
    (MESSAGES, 200, SSE, events({"type": "message_start"}), "without its end"),
    (RESPONSES, 200, SSE, events({"type": "response.created"}), "without its end"),
    (LLAMA, 200, SSE, events({"stop": False}), "without its end"),
])
def test_forbidden_answers_are_noticed(path, status, kind, text, why):
    assert why in verdict(path, status, kind, text)
