"""LangChain's chat model, with its streams, tools and structured output, and its embeddings."""

import json
import pathlib

import numpy
import pytest

from environment import HEAVY, abandoned, run_program
from test_embed import assert_near, embeddings_of, golden_of
from test_tools import CALL, STOP, echoing  # noqa: F401: a fixture

pytestmark = HEAVY
MOST = 2000  # tokens of the answers that are left: 5 seconds of the stand-in's


@pytest.fixture(scope="module")
def found(start_server, binary, data, echoing):  # noqa: F811
    told = start_server(echoing, "--stand-in", "400", "--served-model-name", "echo")
    real = "none"
    if (pathlib.Path(binary).parent / "grammar-env").exists():
        real = start_server(data / "models" / "tiny-trained", "--dtype", "float32", "--kv-cache-space", "64MiB",
                            "--served-model-name", "tiny").url
    folder, golden = golden_of(data, "qwen3-embedding")
    embedder = start_server(folder, "--dtype", "float32", "--kv-cache-space", "64MiB", "--served-model-name", "e")
    texts = json.dumps([prompt["text"] for prompt in golden["prompts"]])
    found = run_program("langchain", "langchain_client.py", told.url, STOP, real, CALL, embedder.url, texts, MOST)
    return {"real": real, "abandoned": abandoned(told), **found}


def test_answers_and_streams_are_the_same(found):
    assert found["said"] == found["streamed"] == found["responded"] == "Hello"
    assert len(found["usage"]) == 1 and found["usage"][0] > 0
    assert found["batch"] == ["One", "Two"] and found["completed"]


def test_tools_are_called_and_answered(found):
    assert found["calls"] == found["streamed_calls"] == [["weather", {"city": "Bern", "days": 2}]]
    assert found["after_tool"] == "rain"


def test_structured_output_is_of_its_type(found):
    if found["real"] == "none":
        pytest.skip("llguidance is not installed by scripts/build")
    for method in ("json_schema", "function_calling"):
        assert found[method]["word"] in ("yes", "no") and isinstance(found[method]["sure"], bool)


def test_embeddings_are_the_references(found, data):
    wanted = embeddings_of(golden_of(data, "qwen3-embedding")[0])
    assert_near(found["embedded"], wanted)
    assert_near(found["query"], wanted[0][:16] / numpy.linalg.norm(wanted[0][:16]))


def test_errors_have_the_classes_of_the_client(found):
    assert found["error"] == "model_not_found"
    assert found["too_many"] == "dimensions"


def test_a_stream_that_is_closed_ends_its_answer(found):
    assert all(found["left"]) and len(found["left"]) == 2  # sync and async
    assert found["ended"] == [True, True]
    assert found["abandoned"] == 2
