"""Vectors in forms other than JSON's numbers, as vLLM has them, and Cohere's /v2/embed, through their own clients."""

import base64
import json
import urllib.error
import urllib.request

import numpy
import pytest

from test_embed import FLAGS, ask, assert_near, embeddings_of, golden_of

TEXTS = ["The cat sat on the mat.", "A dog."]
NUMPY = {"float32": "f4", "float16": "f2"}


@pytest.fixture(scope="module")
def embedder(start_server, data):
    return start_server(data / "embedders" / "qwen3-embedding", *FLAGS, "--served-model-name", "e")


@pytest.fixture(scope="module")
def plain(embedder):
    """The vectors as numbers."""
    _, answer = ask(embedder, "/v1/embeddings", {"input": TEXTS})
    return numpy.array([item["embedding"] for item in answer["data"]], dtype=numpy.float32)


def fetch(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers, answer.read()


def floats_of(raw, kind, order):
    """The values of these bytes, in the order of a client's machine."""
    sign = ">" if order == "big" else "<"
    if kind in NUMPY:
        return numpy.frombuffer(raw, sign + NUMPY[kind]).astype(numpy.float32)
    if kind == "bfloat16":
        return (numpy.frombuffer(raw, sign + "u2").astype(numpy.uint32) << 16).view(numpy.float32)
    exponent_bits, bias = (4, 7) if kind == "fp8_e4m3" else (5, 15)
    codes = numpy.frombuffer(raw, numpy.uint8).astype(int)
    mantissa_bits = 7 - exponent_bits
    exponent = codes >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = (codes & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    size = numpy.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))
    return numpy.where(codes >> 7, -size, size).astype(numpy.float32)


# Half a unit in the last place, and what the smallest steps are.
PRECISION = {"float32": (0, 0), "float16": (2**-11, 2**-25), "bfloat16": (2**-8, 0), "fp8_e4m3": (2**-4, 2**-10),
             "fp8_e5m2": (2**-3, 2**-17)}


@pytest.mark.parametrize("order", ["native", "little", "big"])
@pytest.mark.parametrize("kind", list(PRECISION))
def test_bytes_are_the_same_vectors_in_every_type_and_order(embedder, plain, kind, order):
    wishes = {"input": TEXTS, "embed_dtype": kind, "endianness": order}
    relative, absolute = PRECISION[kind]
    headers, raw = fetch(embedder, "/v1/embeddings", {**wishes, "encoding_format": "bytes"})
    assert headers["Content-Type"] == "application/octet-stream"
    metadata = json.loads(headers["metadata"])
    assert metadata["model"] == "e" and metadata["usage"]["prompt_tokens"] > 0
    assert [item["index"] for item in metadata["data"]] == [0, 1]
    for item, wanted in zip(metadata["data"], plain):
        assert (item["embed_dtype"], item["endianness"], item["shape"]) == (kind, order, [64])
        got = floats_of(raw[item["start"]:item["end"]], kind, order)
        assert (abs(got - wanted) <= relative * abs(wanted) + absolute).all()
    assert metadata["data"][-1]["end"] == len(raw)
    headers, alone = fetch(embedder, "/v1/embeddings", {**wishes, "encoding_format": "bytes_only"})
    assert alone == raw and headers["metadata"] is None
    _, text = ask(embedder, "/v1/embeddings", {**wishes, "encoding_format": "base64"})
    assert b"".join(base64.b64decode(item["embedding"]) for item in text["data"]) == raw


def test_pooling_has_the_same_forms(embedder, plain):
    headers, raw = fetch(embedder, "/pooling", {"input": TEXTS, "encoding_format": "bytes", "endianness": "big"})
    assert json.loads(headers["metadata"])["data"][1] == {
        "index": 1, "embed_dtype": "float32", "endianness": "big", "start": 256, "end": 512, "shape": [64]}
    assert floats_of(raw, "float32", "big").reshape(2, 64).tolist() == plain.tolist()


def test_a_refusal_is_json_for_any_requested_form(embedder):
    for field in ("embed_dtype", "endianness", "encoding_format"):
        for value in ("hex", 5, [], -1):
            status, answer = ask(embedder, "/v1/embeddings", {"input": "x", "encoding_format": "bytes", field: value})
            assert status == 400 and answer["error"]["param"] == field
            assert answer["error"]["message"].startswith(f"'{field}' is ")


def embed(server, **body):
    status, answer = ask(server, "/v2/embed", {"model": "e", "texts": TEXTS, **body})
    assert status == 200, answer
    return answer


def test_coheres_answer_has_the_types_that_were_asked_for(embedder, plain):
    answer = embed(embedder, embedding_types=["float", "base64", "binary", "ubinary"])
    found = answer["embeddings"]
    assert answer["texts"] == TEXTS and answer["id"].startswith("embd-")
    assert answer["meta"]["api_version"] == {"version": "2"} and answer["meta"]["tokens"]["input_tokens"] > 0
    assert numpy.array(found["float"], dtype=numpy.float32).tolist() == plain.tolist()
    assert b"".join(map(base64.b64decode, found["base64"])) == plain.tobytes()
    signs = numpy.packbits(plain >= 0, axis=1)
    assert found["ubinary"] == signs.tolist()
    assert found["binary"] == (signs.astype(int) - 128).tolist()
    assert list(embed(embedder)["embeddings"]) == ["float"]


def test_an_input_type_is_the_prompt_of_its_name(embedder, data):
    folder, golden = golden_of(data, "qwen3-embedding")
    prompts = json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"]
    text = golden["prompts"][0]["text"].removeprefix(prompts["query"])
    answer = embed(embedder, texts=[text], input_type="query")
    assert_near(answer["embeddings"]["float"], embeddings_of(folder)[:1])
    assert answer["texts"] == [text], "without the prompt"
    status, answer = ask(embedder, "/v2/embed", {"texts": [text], "input_type": "queries"})
    assert status == 400 and answer["error"]["param"] == "input_type"
    assert "search_query" in answer["error"]["message"] and ", query" in answer["error"]["message"]


def test_coheres_own_input_types_are_prompts_if_a_model_has_them(start_server, embedder, data):
    """vLLM refuses them unless a prompt has the same name, but Cohere's clients cannot leave them out."""
    without = start_server(data / "embedders" / "bert-mean", *FLAGS)  # it has no prompts
    for server, other in ((embedder, {"search_query": "query", "search_document": "document"}), (without, {})):
        def of(name, server=server):
            status, answer = ask(server, "/v2/embed", {"texts": ["x"], **({"input_type": name} if name else {})})
            assert status == 200, answer
            return answer["embeddings"]

        for name in ("search_document", "search_query", "classification", "clustering"):
            assert of(name) == of(other.get(name))
    assert ask(without, "/v2/embed", {"texts": ["x"], "input_type": "query"})[0] == 400


def test_coheres_texts_are_cut_or_refused(embedder):
    long = "The cat sat on the mat and looked at the dog. " * 400
    cut = embed(embedder, texts=[long])
    assert cut["meta"]["tokens"]["input_tokens"] > 100
    few = embed(embedder, texts=[long], max_tokens=5)
    assert few["meta"]["tokens"]["input_tokens"] == 5
    assert embed(embedder, texts=[long], max_tokens=2**31 - 1)["embeddings"] == cut["embeddings"]
    for truncate in ("NONE", "START"):
        assert embed(embedder, truncate=truncate)["embeddings"] == embed(embedder)["embeddings"]
        for most in ({}, {"max_tokens": 5}):
            status, answer = ask(embedder, "/v2/embed", {"texts": [long], "truncate": truncate, **most})
            assert status == 400 and answer["error"]["param"] == "texts", answer
            assert "END" in answer["error"]["message"]


def test_coheres_dimensions_are_the_first_ones(embedder):
    short = numpy.array(embed(embedder, output_dimension=16)["embeddings"]["float"])
    whole = numpy.array(embed(embedder)["embeddings"]["float"])[:, :16]
    assert short == pytest.approx(whole / numpy.linalg.norm(whole, axis=1, keepdims=True), abs=1e-5)
    for body, param in (({"output_dimension": 65}, "output_dimension"), ({"output_dimension": 0}, "output_dimension"),
                        ({"output_dimension": 12, "embedding_types": ["binary"]}, "embedding_types"),
                        ({"embedding_types": ["int8"]}, "embedding_types")):
        status, answer = ask(embedder, "/v2/embed", {"texts": TEXTS, **body})
        assert status == 400 and answer["error"]["param"] == param, answer


def test_a_generative_model_refuses_cohere_by_name(start_server, data):
    server = start_server(data / "models" / "tiny-trained", *FLAGS)
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(server, "/v2/embed", {"texts": ["x"]})
    assert "/v2/embed" in refused.value.read().decode()
