"""Embeddings and scores: pinion embed and rank, and the endpoints, through OpenAI's own client."""

import base64
import json
import urllib.error
import urllib.request

import numpy
import openai
import pytest

FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB")
BOUND = 3e-4  # of the reference's RMS


def golden_of(data, name):
    folder = data / "embedders" / name
    return folder, json.loads((folder / "golden.json").read_text())


def vectors_of(folder):
    """golden.safetensors: what the reference makes of each text."""
    raw = (folder / "golden.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = numpy.frombuffer(raw[8 + size + begin:8 + size + end], "<f4")
    return found


def embeddings_of(folder):
    vectors = vectors_of(folder)
    return numpy.array([vectors[f"prompt{i}.embedding.float32"] for i in range(len(vectors))])


def assert_near(got, wanted):
    got, wanted = numpy.asarray(got, dtype=float), numpy.asarray(wanted, dtype=float)
    assert got.shape == wanted.shape
    assert numpy.abs(got - wanted).max() <= BOUND * numpy.sqrt((wanted ** 2).mean())


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize("name", ["qwen3-embedding", "bert-cls", "embeddinggemma"])
def test_embed_writes_the_references_embeddings(pinion, data, tmp_path, name):
    folder, golden = golden_of(data, name)
    lines = write_lines(tmp_path / "in.jsonl", [{"text": p["text"]} for p in golden["prompts"]])
    done = pinion("embed", folder, *FLAGS, "--input", lines)
    assert done.returncode == 0, done.stderr
    assert_near([line["embedding"] for line in read_lines(done)], embeddings_of(folder))


def test_embed_puts_a_named_prompt_before_the_text(pinion, data, tmp_path):
    folder, golden = golden_of(data, "qwen3-embedding")
    prompts = json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"]
    text = golden["prompts"][0]["text"].removeprefix(prompts["query"])
    lines = write_lines(tmp_path / "in.jsonl", [{"text": text}])
    done = pinion("embed", folder, *FLAGS, "--input", lines, "--prompt-name", "query")
    assert done.returncode == 0, done.stderr
    assert_near(read_lines(done)[0]["embedding"], embeddings_of(folder)[0])


def test_embed_names_the_line_and_the_field_of_an_error(pinion, data, tmp_path):
    folder, _ = golden_of(data, "qwen3-embedding")
    lines = write_lines(tmp_path / "in.jsonl", [{"text": "fine"}, {"text": 7}])
    done = pinion("embed", folder, *FLAGS, "--input", lines)
    assert done.returncode == 1
    good, bad = read_lines(done)
    assert len(good["embedding"]) == 64
    assert bad["error"].startswith("line 2: 'text' is ")


def test_a_line_of_embed_may_have_dimensions_of_its_own(pinion, data, tmp_path):
    folder, golden = golden_of(data, "qwen3-embedding")
    text = golden["prompts"][0]["text"]
    lines = write_lines(tmp_path / "in.jsonl", [{"text": text, "dimensions": 16}, {"text": text},
                                                {"text": text, "dimensions": 65}, {"text": text, "dimensions": "all"}])
    done = pinion("embed", folder, *FLAGS, "--input", lines, "--dimensions", "32")
    assert done.returncode == 1
    own, usual, too_many, no_number = read_lines(done)
    first = embeddings_of(folder)[0]
    assert_near(own["embedding"], first[:16] / numpy.linalg.norm(first[:16]))
    assert_near(usual["embedding"], first[:32] / numpy.linalg.norm(first[:32]))
    assert too_many["error"] == "line 3: 'dimensions' is 65, want 1 to 64"
    assert no_number["error"].startswith("line 4: 'dimensions' is ")


def test_keys_of_a_line_that_nothing_heeds_are_refused_by_name(pinion, data, tmp_path):
    embedder, _ = golden_of(data, "qwen3-embedding")
    lines = write_lines(tmp_path / "in.jsonl", [{"text": "x", "dimension": 16}, {"text": "x", "input_ids": [1]},
                                                {"input_ids": [1], "prompt_name": "query"}, {"input_ids": [1]}])
    errors = [line.get("error") for line in read_lines(pinion("embed", embedder, *FLAGS, "--input", lines))]
    assert errors == ["line 1: unknown key 'dimension'; use one of text, input_ids, prompt_name, dimensions",
                      "line 2: 'text' and 'input_ids' are in one line; leave one of them out",
                      "line 3: 'prompt_name' and 'input_ids' are in one line; leave one of them out", None]
    reranker, _ = golden_of(data, "bert-reranker")
    lines = write_lines(tmp_path / "pairs.jsonl", [{"query": "a", "documents": ["b"], "top_n": 1}])
    done = pinion("rank", reranker, *FLAGS, "--input", lines)
    assert done.returncode == 1
    assert read_lines(done) == [{"error": "line 1: unknown key 'top_n'; use one of query, documents, instruction"}]


@pytest.mark.parametrize("name", ["bert-reranker", "xlmr-reranker", "modernbert-reranker"])
def test_rank_writes_the_references_scores(pinion, data, tmp_path, name):
    folder, golden = golden_of(data, name)
    pairs = [p["text"] for p in golden["prompts"]]
    lines = write_lines(tmp_path / "in.jsonl",
                        [{"query": query, "documents": [document]} for query, document in pairs])
    for flags, key in (((), "score"), (("--logits",), "logit")):
        done = pinion("rank", folder, *FLAGS, *flags, "--input", lines)
        assert done.returncode == 0, done.stderr
        assert_near([line["scores"][0] for line in read_lines(done)],
                    [p[key] for p in golden["prompts"]])


def test_rank_asks_a_generative_reranker_its_question(pinion, data, tmp_path):
    folder, golden = golden_of(data, "qwen3-reranker")
    lines = []
    for prompt in golden["prompts"]:
        rest = prompt["text"].split("<Query>: ", 1)[1]
        query, rest = rest.split("\n<Document>: ", 1)
        lines.append({"query": query, "documents": [rest.split("<|im_end|>", 1)[0]]})
    done = pinion("rank", folder, *FLAGS, "--logits", "--input",
                  write_lines(tmp_path / "in.jsonl", lines))
    assert done.returncode == 0, done.stderr
    assert_near([line["scores"][0] for line in read_lines(done)],
                [p["logit"] for p in golden["prompts"]])


@pytest.fixture(scope="module")
def embedder(start_server, data):
    return start_server(data / "embedders" / "qwen3-embedding", *FLAGS, "--served-model-name", "e")


@pytest.fixture(scope="module")
def client(embedder):
    return openai.OpenAI(base_url=f"{embedder.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def reranker(start_server, data):
    return start_server(data / "embedders" / "bert-reranker", *FLAGS)


def test_openais_client_gets_the_references_embeddings(client, data):
    folder, golden = golden_of(data, "qwen3-embedding")
    texts = [p["text"] for p in golden["prompts"]]
    answer = client.embeddings.create(model="e", input=texts)  # asks for base64
    assert [item.index for item in answer.data] == list(range(len(texts)))
    assert_near([item.embedding for item in answer.data], embeddings_of(folder))
    tokens = sum(len(p["input_ids"]) for p in golden["prompts"])
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens
    ids = client.embeddings.create(model="e", input=golden["prompts"][0]["input_ids"],
                                   encoding_format="float")
    assert_near(ids.data[0].embedding, embeddings_of(folder)[0])


def test_dimensions_keep_the_first_elements_at_length_one(client, data):
    folder, golden = golden_of(data, "qwen3-embedding")
    answer = client.embeddings.create(model="e", input=golden["prompts"][0]["text"], dimensions=16)
    first = embeddings_of(folder)[0][:16]
    assert_near(answer.data[0].embedding, first / numpy.linalg.norm(first))
    with pytest.raises(openai.BadRequestError, match="'dimensions' is 65"):
        client.embeddings.create(model="e", input="x", dimensions=65)


def test_base64_holds_the_same_floats(embedder):
    status, text = ask(embedder, "/v1/embeddings", {"input": "x", "encoding_format": "base64"})
    _, plain = ask(embedder, "/v1/embeddings", {"input": "x"})
    assert status == 200
    raw = base64.b64decode(text["data"][0]["embedding"])
    assert numpy.frombuffer(raw, "<f4").tolist() == pytest.approx(plain["data"][0]["embedding"])


def test_an_embedder_scores_pairs_by_their_cosine(embedder, data):
    folder, golden = golden_of(data, "qwen3-embedding")
    texts = [p["text"] for p in golden["prompts"]]
    _, answer = ask(embedder, "/score", {"text_1": texts[0], "text_2": texts[1:]})
    scores = [item["score"] for item in answer["data"]]
    vectors = embeddings_of(folder)
    assert scores == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-3)
    _, ranking = ask(embedder, "/v2/rerank", {"query": texts[0], "documents": texts[1:], "top_n": 2})
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[:2]
    assert [item["index"] for item in ranking["results"]] == best
    assert ranking["results"][0]["document"]["text"] == texts[1:][best[0]]


def test_pooling_gives_vectors(embedder, data):
    folder, golden = golden_of(data, "qwen3-embedding")
    _, answer = ask(embedder, "/pooling", {"input": golden["prompts"][0]["text"]})
    assert answer["data"][0]["object"] == "pooling"
    assert_near(answer["data"][0]["data"], embeddings_of(folder)[0])


def test_a_cross_encoder_ranks_as_the_reference(reranker, data):
    _, golden = golden_of(data, "bert-reranker")
    pairs = [p["text"] for p in golden["prompts"]]
    _, answer = ask(reranker, "/v1/score", {"text_1": [a for a, _ in pairs],
                                            "text_2": [b for _, b in pairs]})
    assert_near([item["score"] for item in answer["data"]], [p["score"] for p in golden["prompts"]])
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        _, ranking = ask(reranker, path, {"query": pairs[0][0], "documents": [pairs[0][1]]})
        assert_near([ranking["results"][0]["relevance_score"]], [golden["prompts"][0]["score"]])
    status, answer = ask(reranker, "/classify", {"input": "a text"})
    assert status == 200
    assert answer["data"][0]["num_classes"] == 1
    assert len(answer["data"][0]["probs"]) == 1


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages",
                                  "/v1/responses", "/classify"])
def test_an_embedder_refuses_unsupported_requests_by_name(embedder, path):
    status, answer = ask(embedder, path, {"model": "e", "prompt": "x", "messages": []})
    assert status == 400
    message = answer["error"]["message"]
    assert path in message and "/v1/embeddings" in message


def test_a_generative_model_refuses_the_endpoints_of_vectors(start_server, data):
    server = start_server(data / "models" / "tiny-trained", *FLAGS)
    for path in ("/v1/embeddings", "/pooling", "/score", "/rerank", "/classify"):
        status, answer = ask(server, path, {"input": "x"})
        assert status == 400
        assert path in answer["error"]["message"]
    assert "--task" not in ask(server, "/classify", {"input": "x"})[1]["error"]["message"]


def test_the_task_of_pooling_is_the_models(embedder, reranker):
    for server, fits, others in ((embedder, ("embed",), ("token_embed", "score")),
                                 (reranker, ("classify", "score"), ("token_classify", "embed"))):
        for task in fits:
            assert ask(server, "/pooling", {"input": "x", "task": task})[0] == 200
        for task in others:
            status, answer = ask(server, "/pooling", {"input": "x", "task": task})
            assert status == 400 and answer["error"]["param"] == "task", answer


def test_wishes_for_embeddings_are_refused_by_a_model_that_scores(reranker):
    for field, value in (("dimensions", 1), ("normalize", True)):
        status, answer = ask(reranker, "/pooling", {"input": "x", field: value})
        assert status == 400 and answer["error"]["param"] == field, answer


def test_a_vector_without_activation_has_the_length_of_the_pooled_one(embedder):
    def vector_of(**wishes):
        _, answer = ask(embedder, "/pooling", {"input": "x", **wishes})
        return answer["data"][0]["data"]

    plain = vector_of(normalize=False)
    assert numpy.linalg.norm(plain) != pytest.approx(1, abs=1e-3)
    assert vector_of(activation=False) == plain
    assert vector_of(activation=False, normalize=True) == vector_of()


def test_a_text_too_long_for_a_generative_reranker_is_not_to_be_truncated(start_server, data):
    server = start_server(data / "embedders" / "qwen3-reranker", *FLAGS, "--task", "score")
    status, answer = ask(server, "/score", {"text_1": "x", "text_2": "word " * 4000})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    assert "truncate_prompt_tokens" not in answer["error"]["message"]


def test_documents_are_cut_to_the_requested_length(embedder, reranker):
    """A cut document is scored as its beginning alone, and shown whole."""
    begin = "The cat sat on the mat"
    for server in (embedder, reranker):
        size = len(ask(server, "/tokenize", {"prompt": begin, "add_special_tokens": False})[1]["tokens"])
        body = {"query": "cat", "documents": [begin + " and looked at the dog" * 300, begin]}
        assert ask(server, "/rerank", body)[1]["error"]["code"] == "context_length_exceeded"
        _, cut = ask(server, "/rerank", {**body, "max_tokens_per_doc": size})
        first, second = sorted(cut["results"], key=lambda result: result["index"])
        assert first["relevance_score"] == second["relevance_score"]
        assert first["document"]["text"] == body["documents"][0]


def test_embeddings_have_an_activation_too(embedder):
    """vLLM's name for `normalize`."""
    raw, length_one = (ask(embedder, "/v1/embeddings", {"input": "x", "use_activation": on})[1]["data"][0]["embedding"]
                       for on in (False, True))
    assert numpy.linalg.norm(length_one) == pytest.approx(1, abs=1e-5)
    assert numpy.linalg.norm(raw) != pytest.approx(1, abs=1e-2)
    assert numpy.asarray(raw) / numpy.linalg.norm(raw) == pytest.approx(length_one, abs=1e-5)


def test_a_conversation_is_embedded_as_its_prompt(embedder, reranker):
    """As vLLM does: without the beginning of an answer, and special tokens are the template's."""
    def embedded(**body):
        status, answer = ask(embedder, "/v1/embeddings", body)
        assert status == 200, answer
        return answer["data"][0]["embedding"], answer["usage"]["prompt_tokens"]

    messages = [{"role": "user", "content": "The cat sat."}, {"role": "assistant", "content": "On the mat."}]
    for more, wishes in (({}, {"add_generation_prompt": False}), ({"add_generation_prompt": True},) * 2,
                         ({"continue_final_message": True},) * 2):
        prompt = ask(embedder, "/apply-template", {"messages": messages, **wishes})[1]["prompt"]
        assert embedded(messages=messages, **more) == embedded(input=prompt, add_special_tokens=False)
    assert embedded(messages=messages) != embedded(messages=messages, add_special_tokens=True)
    status, answer = ask(embedder, "/pooling", {"messages": messages, "task": "embed"})
    assert status == 200 and answer["data"][0]["data"] == embedded(messages=messages)[0]
    for server, path, body in ((embedder, "/v1/embeddings", {"messages": []}),
                               (reranker, "/pooling", {"messages": messages}),  # it has no template
                               (embedder, "/rerank", {"query": "x", "documents": ["y"], "messages": messages})):
        status, answer = ask(server, path, body)
        assert status == 400 and answer["error"]["param"] == "messages", answer


def test_unknown_and_unusable_fields_are_refused_by_name(embedder):
    for body, param in (({"input": "x", "instructions": "y"}, "instructions"),
                        ({"input": 5}, "input"), ({}, "input"),
                        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
                        ({"input": "x", "messages": [{"role": "user", "content": "x"}]}, "messages")):
        status, answer = ask(embedder, "/v1/embeddings", body)
        assert status == 400 and answer["error"]["param"] == param, answer
    status, answer = ask(embedder, "/v1/embeddings", {"input": "word " * 2000})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    status, _ = ask(embedder, "/v1/embeddings", {"input": "word " * 2000,
                                                 "truncate_prompt_tokens": -1})
    assert status == 200


def test_llama_servers_own_endpoint_gives_lists_of_vectors(embedder, data):
    folder, golden = golden_of(data, "qwen3-embedding")
    texts = [prompt["text"] for prompt in golden["prompts"]]
    wanted = embeddings_of(folder)
    for path in ("/embedding", "/embeddings"):
        status, answer = ask(embedder, path, {"content": texts})
        assert status == 200 and [one["index"] for one in answer] == list(range(len(texts)))
        assert_near([one["embedding"][0] for one in answer], wanted)
    (one,) = ask(embedder, "/embedding", {"content": texts[0], "embd_normalize": -1})[1]
    raw = ask(embedder, "/v1/embeddings", {"input": texts[0], "normalize": False})[1]["data"][0]["embedding"]
    assert one["embedding"] == [raw]
    for body, why in (({"content": "x", "embd_normalize": 3}, "'embd_normalize' is 3"), ({}, "'content'"),
                      ({"input": "x"}, "'input' is not a field"), ({"content": []}, "'content'")):
        status, answer = ask(embedder, "/embedding", body)
        assert status == 400 and why in answer["error"]["message"], (body, answer)


def test_reranking_is_another_name(reranker):
    body = {"query": "a", "documents": ["b", "c"]}
    answers = [ask(reranker, path, body)[1]["results"] for path in ("/rerank", "/reranking", "/v1/reranking")]
    assert answers[0] == answers[1] == answers[2] and len(answers[0]) == 2
