"""SageMaker's requirements of a container: /ping, and /invocations, which answers the bodies of the other endpoints."""

import json
import urllib.error
import urllib.request

import pytest

from test_embed import FLAGS, ask

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
TEXT = {"prompt": "Once upon", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def generator(start_server, data):
    return start_server(data / "models" / "tiny-trained", *FLAGS)


@pytest.fixture(scope="module")
def embedder(start_server, data):
    return start_server(data / "embedders" / "qwen3-embedding", *FLAGS)


@pytest.fixture(scope="module")
def reranker(start_server, data):
    return start_server(data / "embedders" / "bert-reranker", *FLAGS)


def same(server, body, path):
    """Whether /invocations answers a body as `path` does."""
    (status, invoked), (expected, direct) = ask(server, "/invocations", body), ask(server, path, body)
    for answer in (invoked, direct):
        for field in ("id", "created"):
            answer.pop(field, None)
    return (status, invoked) == (expected, direct)


def test_bodies_of_text_go_to_chats_and_completions(generator):
    assert same(generator, CHAT, "/v1/chat/completions")
    assert same(generator, TEXT, "/v1/completions")
    assert ask(generator, "/invocations", {**CHAT, **TEXT})[1]["error"]["param"] == "prompt", "messages come first"


def test_invocations_stream(generator):
    request = urllib.request.Request(generator.url + "/invocations", json.dumps({**CHAT, "stream": True}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        events = answer.read().decode().split("\n\n")
    assert json.loads(events[0].removeprefix("data: "))["object"] == "chat.completion.chunk"
    assert events[-2] == "data: [DONE]"


def test_bodies_of_texts_go_to_the_models_task(embedder, reranker):
    pairs = {"text_1": "a cat", "text_2": ["a dog", "a mat"]}
    ranking = {"query": "a cat", "documents": ["a dog", "a mat"]}
    for server, alone in ((embedder, "/v1/embeddings"), (reranker, "/classify")):
        assert same(server, {"input": "x"}, alone)
        assert same(server, pairs, "/score")
        assert same(server, {"queries": "a cat", "documents": ["a dog"]}, "/score")
        assert same(server, ranking, "/rerank")


def test_errors_are_those_of_the_endpoint(generator, embedder):
    assert same(generator, {**CHAT, "temperature": -1}, "/v1/chat/completions")
    assert same(generator, {**TEXT, "no_such_field": 1}, "/v1/completions")
    assert same(embedder, {"input": 5}, "/v1/embeddings")


def test_bodies_that_fit_no_endpoint_are_refused_with_the_missing_fields(generator, embedder):
    for server, wanted in ((generator, "'messages' or 'prompt'"), (embedder, "'input' or 'messages'")):
        for body in ({}, {"x": {"messages": [], "input": "x"}}, [], "input", 7, None):
            status, answer = ask(server, "/invocations", body)
            assert status == 400 and wanted in answer["error"]["message"], (body, answer)
    for raw in (b"", b"{", b'{"prompt"', b'{"prompt": "x"'):
        request = urllib.request.Request(generator.url + "/invocations", raw, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code == 400
        assert json.loads(refused.value.read())["error"]["message"]


def test_a_ping_may_be_a_post(generator):
    for method in ("GET", "POST"):
        request = urllib.request.Request(generator.url + "/ping", method=method, data=b"" if method == "POST" else None)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(generator.url + "/ping", method="DELETE"), timeout=60)
    assert refused.value.code == 405 and refused.value.headers["Allow"] == "GET, HEAD, POST"
