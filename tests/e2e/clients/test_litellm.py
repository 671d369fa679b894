"""LiteLLM's client, which reaches one server by several APIs."""

import pytest

from environment import HEAVY, abandoned, run_program
from test_tools import CALL, STOP, echoing  # noqa: F401: a fixture

pytestmark = HEAVY
MOST = 2000  # tokens of the answers that are left: 5 seconds of the stand-in's


@pytest.fixture(scope="module")
def found(start_server, echoing):  # noqa: F811
    server = start_server(echoing, "--stand-in", "400", "--served-model-name", "echo")
    found = run_program("litellm", "litellm_client.py", server.url, STOP, CALL, MOST)
    return {"abandoned": abandoned(server), **found}


def test_all_apis_give_the_same_answer(found):
    for api in ("said", "streamed", "vllm", "anthropic", "anthropic_streamed", "responded"):
        assert found[api] == "Hello", api
    assert found["completed"] == 3


def test_calls_and_reasoning_are_told_apart(found):
    assert found["reasoning"] == "hm"
    assert found["calls"] == found["streamed_calls"] == [["weather", {"city": "Bern", "days": 2}]]


def test_errors_have_the_classes_of_the_client(found):
    assert (found["unknown"], found["bad"]) == ("NotFoundError", "BadRequestError")


def test_a_stream_that_is_closed_ends_its_answer(found):
    assert all(found["left"]) and len(found["left"]) == 4  # OpenAI's API, vLLM, Anthropic's; OpenAI's, async
    assert found["ended"] == [True] * 4
    assert found["abandoned"] == 4
