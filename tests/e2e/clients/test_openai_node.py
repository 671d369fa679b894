"""OpenAI's client for Node, unchanged. The server's stand-in says what it is told to."""

import json
import shutil

import pytest

from conftest import wait_until
from environment import HERE, abandoned, metric, node_environment, run
from test_tools import CALL, STOP, echoing  # noqa: F401: a fixture

MOST = 400  # tokens of the answer that is left: a second of the stand-in's


@pytest.fixture(scope="module")
def server(start_server, echoing):  # noqa: F811
    return start_server(echoing, "--stand-in", MOST, "--served-model-name", "echo")


@pytest.fixture(scope="module")
def found(server):
    folder = node_environment("openai-node")
    shutil.copy(HERE / "openai-node/client.mjs", folder)
    found = json.loads(run("node", "client.mjs", server.url, STOP, CALL, cwd=folder).splitlines()[-1])
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0), "the client has left"
    return found


def test_answers_and_streams_are_the_same(found):
    assert found["models"] == ["echo"]
    assert found["said"] == found["streamed"] == "Hello"
    assert found["completed"]["completion_tokens"] == 3


def test_calls_of_tools_are_put_together_from_a_stream(found):
    ((name, arguments),) = found["calls"]
    assert name == "weather" and json.loads(arguments) == {"city": "Bern", "days": 2}


def test_responses_are_followed_to_their_end(found):
    assert found["responded"] == "Hello"
    ((kind, name, arguments),) = found["items"]
    assert (kind, name) == ("function_call", "weather") and json.loads(arguments) == {"city": "Bern", "days": 2}
    assert found["numbers"] == list(range(len(found["numbers"]))) and len(found["numbers"]) > 4


def test_errors_have_the_classes_of_the_client(found):
    assert found["unknown"] == {"class": "NotFoundError", "status": 404, "code": "model_not_found", "param": "model"}
    assert (found["bad"]["class"], found["bad"]["status"]) == ("BadRequestError", 400)


def test_a_client_that_leaves_ends_its_answer(found, server):
    assert metric(server, "vllm:request_success_total") > 0 and found
    assert abandoned(server) == 1
